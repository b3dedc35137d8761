"""The ledger: what is copied, what is refused, and that nothing of the machine or the person is in it."""

import getpass
import json
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.repeats import WORDS, change_facts, run_script
from tests.runs import the_run
from torchlite.reproduce import publish

QUESTION = ("--question", "Does it repeat?")


@pytest.fixture
def finished(recorded: Path) -> Path:
    """A run made from a commit that is on a branch, with no changes to the code."""

    def change(facts: dict[str, Any]) -> None:
        facts["code"] |= {"dirty": False, "modules": {}, "not_recorded": []}

    change_facts(recorded, change)
    (recorded / "source.patch").unlink(missing_ok=True)
    return recorded


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """`published("RUN", "NAME", …)`: the exit code and what is printed; the ledger is `ledger` in this test's folder."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("scipy")

    def run(*words: object) -> tuple[int, str]:
        code = publish.main([*map(str, words), "--ledger", str(tmp_path / "ledger"), *QUESTION])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


def test_an_entry_holds_what_a_repetition_needs(published: Any, finished: Path, tmp_path: Path) -> None:
    code, said = published(finished, "first_try")
    assert code == 0, said
    entry = tmp_path / "ledger" / "first_try"
    (job,) = (entry / "runs").iterdir()
    assert {path.name for path in entry.iterdir()} == {"README.md", "curve.png", "entry.json", "runs"}
    expected = {"run.json", "result.json", "config.yaml", "metrics.jsonl", "digests.jsonl"}
    assert {path.name for path in job.iterdir()} == expected
    page = (entry / "README.md").read_text()
    assert "# first_try\n\nDoes it repeat?\n" in page and "python reproduce.py experiments/first_try\n" in page
    assert "| `model=mlp model.widths=[16]" in page and "test/acc1" in page
    assert (entry / "curve.png").read_bytes().startswith(b"\x89PNG")
    table = (tmp_path / "ledger" / "README.md").read_text()
    assert "| [first_try](first_try/README.md) | Does it repeat? | 1 | test/acc1 " in table
    lines = [json.loads(line) for line in (job / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 2 and all("train/loss" in line and "seconds/epoch" not in line for line in lines)
    assert sum(path.stat().st_size for path in job.iterdir()) < 60_000


@pytest.mark.slow
def test_an_entry_is_repeated_as_identical(published: Any, finished: Path, reproduce: Any, tmp_path: Path) -> None:
    assert published(finished, "first_try")[0] == 0
    done = reproduce(tmp_path / "ledger" / "first_try", "--code", "here")
    assert done.code == 0 and "identical: " in done.stdout, done.text
    (job,) = (tmp_path / "ledger" / "first_try" / "runs").iterdir()
    text = (job / "metrics.jsonl").read_text()
    (job / "metrics.jsonl").write_text(text.replace('"val/loss": ', '"val/loss": 1', 1))
    done = reproduce(tmp_path / "ledger" / "first_try", "--code", "here")
    assert done.code == 0 and "equivalent: " in done.stdout and "parted at update 17: val/loss was 1" in done.stdout
    result = json.loads((job / "result.json").read_text())
    result["test"]["test/acc1"] -= 0.5
    (job / "result.json").write_text(json.dumps(result))
    (tmp_path / "ledger" / "first_try" / "entry.json").write_text(json.dumps({"groups": []}))
    done = reproduce(tmp_path / "ledger" / "first_try", "--code", "here")
    assert done.code == 3 and "different: " in done.stdout, done.text


@pytest.mark.slow
def test_a_sweep_becomes_groups_of_seeds_with_their_spread(published: Any, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    words = ("-m", *WORDS, "optimizer=sgd,adamw", "seed=0,1,2", "name=six")
    done = run_script(ROOT / "train.py", *words, cwd=tmp_path / "given")
    assert done.code == 0, done.text
    for run in (tmp_path / "given" / "outputs" / "six").glob("*-*/"):
        (run / "source.patch").unlink(missing_ok=True)
        change_facts(run, lambda facts: facts["code"].update(dirty=False, not_recorded=[]))
    code, said = published(tmp_path / "given" / "outputs" / "six", "optimizers")
    assert code == 0, said
    facts = json.loads((tmp_path / "ledger" / "optimizers" / "entry.json").read_text())
    assert [sorted(group["seeds"]) for group in facts["groups"]] == [[0, 1, 2], [0, 1, 2]]
    for group in facts["groups"]:
        low, high, of = group["spread"]
        scores = []
        for job in group["jobs"]:
            result = json.loads((tmp_path / "ledger" / "optimizers" / "runs" / job / "result.json").read_text())
            scores.append(result["test"]["test/acc1"])
        assert low < min(scores) <= group["mean"] <= max(scores) < high and "3 seeds" in of
    page = (tmp_path / "ledger" / "optimizers" / "README.md").read_text()
    assert (
        page.count("| 0, 1, 2 |") == 2
        and "python train.py -m model=mlp" in page
        and "optimizer=sgd seed=0,1,2\n" in page
    )


REFUSED = {
    "unfinished": ("result", {"status": "stopped"}, "it is stopped, not finished"),
    "failed": ("result", {"status": "failed"}, "it is failed, not finished"),
    "no score": ("result", {"test": {}, "best": {}}, "it has no val/acc1"),
    "no fingerprint": ("data", {"fingerprint": None}, "its data has no fingerprint"),
    "no commit": ("code", {"commit": None}, "its code is no commit"),
    "git was silent": ("code", {"dirty": None}, "git did not say"),
    "a commit of nobody's": ("code", {"commit": "1" * 40}, "is on no branch"),
    "an untracked file": ("code", {"not_recorded": ["/home/me/secret_net.py"]}, "git does not know and no patch holds"),
    "weights of one's own": ("model", {"weights": "/home/me/best.pt"}, "a file that nobody else has"),
    "a repetition": ("callbacks", {"repetition": {"_target_": "x"}}, "it is a repetition itself"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_repeated_is_refused(published: Any, finished: Path, tmp_path: Path, case: str) -> None:
    where, values, expected = REFUSED[case]
    if where == "result":
        result = json.loads((finished / "result.json").read_text())
        (finished / "result.json").write_text(json.dumps(result | values))
    else:
        change_facts(
            finished,
            lambda facts: (facts["config"] if where in ("model", "callbacks") else facts)[where].update(values),
        )
    code, said = published(finished, "entry")
    assert code == 2 and expected in said, said
    assert not (tmp_path / "ledger").exists()


def test_a_record_without_digests_is_refused(published: Any, finished: Path) -> None:
    (finished / "digests.jsonl").unlink()
    code, said = published(finished, "entry")
    assert code == 2 and "older than digests.jsonl" in said


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "A", "", "a b", "a/b", "-x"])
def test_names_of_entries_stay_in_the_ledger(published: Any, finished: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(SystemExit) if name.startswith("-") else _nothing():
        code, said = published(finished, name)
        assert code == 2 and "the name of an entry" in said
    assert not (tmp_path / "ledger").exists()


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_an_entry_is_replaced_only_when_asked(published: Any, finished: Path, tmp_path: Path) -> None:
    assert published(finished, "entry")[0] == 0
    code, said = published(finished, "entry")
    assert code == 2 and "add --replace" in said
    (tmp_path / "ledger" / "entry" / "old").write_text("x")
    assert published(finished, "entry", "--replace")[0] == 0
    assert not (tmp_path / "ledger" / "entry" / "old").exists()


# Nothing of the machine, nothing secret

SECRET = "s3cr3t-" + "value-of-mine"


@pytest.mark.slow
def test_nothing_of_the_machine_or_the_person_is_published(published: Any, tmp_path: Path) -> None:
    """Data below HOME, a secret in the environment that the config refers to, and the names of host and user."""
    home = tmp_path / "home" / "ada.lovelace"
    (home / "work" / "sets").mkdir(parents=True)
    secret = 'callbacks.progress_bar.refresh_seconds="${oc.decode:${oc.env:REFRESH_OF_MINE}}"'
    place = {"HOME": str(home), "REFRESH_OF_MINE": "0.12345678", "API_TOKEN": SECRET}
    done = run_script(
        ROOT / "train.py", *WORDS, f"data_dir={home / 'work' / 'sets'}", secret, cwd=home / "work", **place
    )
    assert done.code == 0, done.text
    run = the_run(home / "work" / "outputs")
    (run / "source.patch").unlink(missing_ok=True)
    change_facts(run, lambda facts: facts["code"].update(dirty=False, not_recorded=[]))
    assert str(home) in (run / "run.json").read_text()
    code, said = published(run, "entry")
    assert code == 0, said
    everything = "".join(
        path.read_text(errors="replace") + path.name
        for path in (tmp_path / "ledger").rglob("*")
        if path.is_file() and path.suffix != ".png"
    )
    private = [str(home), "lovelace", str(tmp_path), "0.12345678", SECRET, sys.prefix, str(ROOT)]
    private += [name for name in (platform.node(), getpass.getuser()) if len(name) >= 4 and name != "root"]
    assert [word for word in private if word in everything] == []
    assert "${oc.env:REFRESH_OF_MINE}" in everything and "environment: REFRESH_OF_MINE" in everything


LEAKS = {
    "a secret of the environment": (SECRET, "the environment variable DEPLOY_KEY"),
    "a token": ("ghp_" + "0123456789abcdefghij", "a secret"),
    "a key": ("-----BEGIN OPENSSH " + "PRIVATE KEY-----", "a secret"),
    "a password in an address": ("https://ada:hunter2@example.invalid/x", "a secret"),
    "a folder": ("/home/ada/photos", "a folder of this machine"),
    "another host": ("ran on secret-host-17 today", "the name of the machine"),
}


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("where", ["source.patch", "config", "class names"])
def test_what_would_leak_is_refused_and_not_repeated(
    published: Any, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leak: str, where: str
) -> None:
    text, what = LEAKS[leak]
    monkeypatch.setenv("DEPLOY_KEY", SECRET)
    change_facts(finished, lambda facts: facts["hardware"].update(host="secret-host-17"))
    if where == "source.patch":
        (finished / "source.patch").write_text(f"--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old\n+{text}\n")
    elif where == "config":
        change_facts(finished, lambda facts: facts["config"]["model"].update(note=f"{text}"))
    else:
        change_facts(finished, lambda facts: facts["data"].update(classes=[text, "b"]))
    code, said = published(finished, "entry")
    assert code == 2 and what in said and text not in said, said
    assert not (tmp_path / "ledger" / "entry").exists()


def test_folders_of_data_become_the_readers_own(published: Any, finished: Path, tmp_path: Path) -> None:
    def change(facts: dict[str, Any]) -> None:
        facts["config"]["data_dir"] = "/scratch/ada/sets"
        facts["config"]["data"] |= {"root": "/scratch/ada/sets/cells", "train": {"root": "/scratch/ada/sets/cells/a"}}
        facts["data"] |= {"data_dir": "/scratch/ada/sets", "root": "/scratch/ada/sets/cells"}
        facts["overrides"] += ["data_dir=/scratch/ada/sets", "data.root=/scratch/ada/sets/cells"]
        facts["command"] += " data_dir=/scratch/ada/sets data.root=/scratch/ada/sets/cells"

    change_facts(finished, change)
    code, said = published(finished, "entry")
    assert code == 0, said
    (job,) = (tmp_path / "ledger" / "entry" / "runs").iterdir()
    facts = json.loads((job / "run.json").read_text())
    assert facts["config"]["data_dir"] == "${oc.env:TORCHLITE_DATA,./data}"
    assert facts["config"]["data"]["root"] == "${data_dir}/cells"
    assert facts["config"]["data"]["train"]["root"] == "${data_dir}/cells/a"
    assert "data_dir=/" not in facts["command"] and facts["overrides"][-1] == "data.root=${data_dir}/cells"


def test_the_shipped_ledger_is_whole() -> None:
    """Every entry in this repository can be read, and its page and the table are those that publish.py writes."""
    pytest.importorskip("matplotlib")
    from torchlite.reproduce import entry, pages
    from torchlite.reproduce.records import found, read

    ledger = ROOT / "experiments"
    for folder in sorted(path.parent for path in ledger.glob("*/entry.json")):
        facts = entry.load(folder)
        runs = [read(run) for run in found(str(folder))]
        assert sorted(job for group in facts["groups"] for job in group["jobs"]) == [run.directory.name for run in runs]
        assert (folder / "README.md").read_text() == pages.page(folder.name, facts, runs)


def test_the_table_is_the_one_that_is_written(tmp_path: Path) -> None:
    from torchlite.reproduce import pages

    shutil.copytree(ROOT / "experiments", tmp_path / "experiments")
    pages.write_table(tmp_path / "experiments")
    assert (tmp_path / "experiments" / "README.md").read_text() == (ROOT / "experiments" / "README.md").read_text()
