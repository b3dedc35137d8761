"""The ledger: what is copied, and what is refused since nobody could repeat it."""

import json
import platform
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.repeats import WORDS, change_facts, run_script
from torchlite.reproduce import cleaning, pages


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
    assert (
        json.loads((job / "run.json").read_text())["hardware"]["system"] == f"{platform.system()} {platform.machine()}"
    )


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
    "a commit of nobody's": ("code", {"commit": "1" * 40}, "is on no branch of a remote"),
    "an untracked file": ("code", {"not_recorded": ["/home/me/secret_net.py"]}, "git does not know and no patch holds"),
    "weights of one's own": ("model", {"weights": "/home/me/best.pt"}, "a file that nobody else has"),
    "weights further in": ("model", {"parts": [{"file": "runs/best.safetensors"}]}, "model.parts[0].file=runs/best"),
    "a checkpoint further in": ("model", {"inner": {"checkpoint_path": "x"}}, "model.inner.checkpoint_path=x, a file"),
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


def test_the_same_run_twice_is_no_entry(published: Any, finished: Path) -> None:
    shutil.copytree(finished, finished.with_name("20260101-000000-again"))
    code, said = published(finished.parent, "twice")
    assert code == 2 and "it is the same run as" in said and "Traceback" not in said


def test_a_sweep_with_a_job_that_got_no_record_is_no_entry(published: Any, finished: Path, repeated: Any) -> None:
    jobs = [{"directory": finished.name}, {"directory": "seed-1-0123456789ab"}]
    (finished.parent / "sweep.json").write_text(json.dumps({"jobs": jobs}))
    code, said = published(finished.parent, "half")
    assert code == 2 and "seed-1-0123456789ab: it got no record" in said
    done = repeated(finished.parent, "--code", "here", "--updates", "1")
    assert done.code == 0 and "seed-1-0123456789ab: left out, since it got no record" in done.stdout, done.text


def test_a_legend_shows_what_differs() -> None:
    shared = {"data=digits", "trainer.max_epochs=2"}
    words = "data=digits optimizer=sgd trainer.max_epochs=2 optimizer.lr=${lr}"
    assert pages._label(words, shared) == "optimizer=sgd optimizer.lr=\\${lr}"


def test_the_shipped_ledger_is_whole() -> None:
    """Every entry in this repository can be read and reveals nothing; its page and the table are what publish.py writes."""
    pytest.importorskip("matplotlib")
    from torchlite.reproduce import entry
    from torchlite.reproduce.records import found, read

    ledger = ROOT / "experiments"
    for folder in sorted(path.parent for path in ledger.glob("*/entry.json")):
        facts = entry.load(folder)
        runs = [read(run) for run in found(str(folder))]
        assert sorted(job for group in facts["groups"] for job in group["jobs"]) == [run.directory.name for run in runs]
        assert (folder / "README.md").read_text() == pages.page(folder.name, facts, runs)
        assert cleaning.revealing(folder, []) == []
        assert {past.facts["hardware"]["system"] for past in runs} == {"Linux x86_64"}


def test_the_table_is_the_one_that_is_written(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments")
    pages.write_table(tmp_path / "experiments")
    assert (tmp_path / "experiments" / "README.md").read_text() == (ROOT / "experiments" / "README.md").read_text()
