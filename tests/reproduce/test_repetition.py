"""What is said, refused and counted around the run itself, which is left out: all in this process."""

import functools
import json
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from tests.repeats import change_facts
from torchlite import machine, provenance
from torchlite.reproduce import command
from torchlite.reproduce import repetition as repetition_module
from torchlite.reproduce.records import Past, read
from torchlite.stopping import Stopped


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """`said("RUN", …)`: the exit code and what is printed, when the repetition itself is left out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")  # as it will be, and not for the tests that follow
    monkeypatch.setattr("torchlite.reproduce.repetition.start", lambda *_: 1)
    monkeypatch.setattr(provenance, "git_state", functools.cache(provenance.git_state))

    def run(*words: object) -> tuple[int, str, str]:
        try:
            code = command.main([str(word) for word in words])
        except SystemExit as ended:
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Exit codes of repetitions by the name of their record; without one it ends as recorded, to the bit."""
    codes: dict[str, int] = {}

    def start(past: Past, directory: Path, *_: object) -> int:
        if past.directory.name not in codes:
            for name in ("run.json", "result.json", "metrics.jsonl", "digests.jsonl"):
                shutil.copy(past.directory / name, directory)
        return codes.get(past.directory.name, 0)

    monkeypatch.setattr("torchlite.reproduce.repetition.start", start)
    return codes


@pytest.fixture
def sweep(recorded: Path, tmp_path: Path) -> Path:
    """Three runs of one sweep."""
    for seed in range(3):
        shutil.copytree(recorded, tmp_path / "sweep" / f"seed-{seed}-0123456789ab")
    return tmp_path / "sweep"


def test_one_that_fails_does_not_keep_the_others_from_being_repeated(
    said: Any, ends: dict[str, int], sweep: Path
) -> None:
    ends["seed-1-0123456789ab"] = -9
    code, out, err = said(sweep, "--json")
    assert code == 1 and "did not end well (exit code 137)" in err
    assert "2 identical, 1 failed" in err and err.splitlines()[-1] == "  failed: seed-1-0123456789ab"
    reports = json.loads(out)
    assert [report["verdict"] for report in reports] == ["identical", "failed", "identical"]
    assert reports[1]["run"] == str(sweep / "seed-1-0123456789ab") and "exit code 137" in reports[1]["why"]


def test_a_refusal_later_on_is_one_that_failed_and_a_signal_ends_all(
    said: Any, ends: dict[str, int], sweep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_facts(sweep / "seed-1-0123456789ab", lambda facts: facts["code"].update(commit="1" * 40))
    code, out, err = said(sweep)
    assert code == 1 and "is not in this repository" in err and "2 identical, 1 failed" in out
    ends["seed-0-0123456789ab"] = -15
    code, out, _ = said(sweep)
    assert code == 143 and "seed-1" not in out


@pytest.mark.parametrize(("code", "told"), [(130, []), (143, ["terminate"])])
def test_a_stopped_repetition_ends_in_its_own_time(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, told: list[str]
) -> None:
    """It saves and says that it stopped; Ctrl-C on a terminal reaches it by itself, another signal is passed on."""
    done: list[str] = []

    class Repetition:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def wait(self) -> int:
            done.append("wait")
            if len(done) == 1:
                raise Stopped("a signal", code)
            return code

        def terminate(self) -> None:
            done.append("terminate")

    monkeypatch.setattr(repetition_module, "subprocess", Namespace(Popen=Repetition))
    options = Namespace(json=False, updates=None, num_threads=None, data_dir=None)
    assert repetition_module.start(read(recorded), tmp_path, [], options) == code
    assert done == ["wait", *told, "wait"]


def test_all_that_is_refused_is_refused_before_anything_starts(
    said: Any, ends: dict[str, int], sweep: Path, tmp_path: Path
) -> None:
    for name, text in (("digests.jsonl", "{"), ("run.json", "[]")):
        kept = (sweep / "seed-2-0123456789ab" / name).read_text()
        (sweep / "seed-2-0123456789ab" / name).write_text(text)
        code, out, err = said(sweep)
        assert code == 2 and out == "" and f"seed-2-0123456789ab/{name}" in err and len(err.splitlines()) == 1
        (sweep / "seed-2-0123456789ab" / name).write_text(kept)
    change_facts(sweep / "seed-2-0123456789ab", lambda facts: facts["config"].update(model={"_target_": "os.system"}))
    code, out, err = said(sweep)
    assert code == 2 and out == "" and err.startswith("model._target_=os.system")
    code, out, err = said(sweep / "seed-0-0123456789ab", "--tolerance", "-1")
    assert code == 2 and "--tolerance -1.0" in err
    assert not (tmp_path / "outputs").exists()


def test_a_folder_named_runs_is_an_entry_only_with_its_entry_json(
    said: Any, ends: dict[str, int], recorded: Path, tmp_path: Path
) -> None:
    """The spread is looked up before the run, not after it."""
    run = shutil.copytree(recorded, tmp_path / "mine" / "runs" / "a")
    for named in (run, run.parent, run.parents[1]):
        code, out, err = said(named)
        assert code == 0 and "identical: " in out, err
    (run.parents[1] / "entry.json").write_text('{"groups": [{"jobs": ["a"], "spread": 1}]}')
    code, out, err = said(run)
    assert code == 2 and out == "" and "entry.json: groups[0].spread is damaged (1)" in err


def test_other_data_is_said_before_it_starts_and_in_the_verdict(
    said: Any, ends: dict[str, int], recorded: Path, tmp_path: Path
) -> None:
    """The repetition has the fingerprint of the data as it lies here, which is not the recorded one."""
    true = json.loads((recorded / "run.json").read_text())["data"]["fingerprint"]
    change_facts(recorded, lambda facts: facts["data"].update(fingerprint="f" * 64))
    line = f"data: the fingerprint was ffffffffffff, is {true[:12]}: other images, labels or files"
    ends[recorded.name] = 1
    code, out, _ = said(recorded)
    assert code == 1 and f"what differs:\n  {line}\n" in out
    del ends[recorded.name]
    start = repetition_module.start

    def read_again(past: Past, directory: Path, *others: Any) -> int:
        start(past, directory, *others)
        change_facts(directory, lambda facts: facts["data"].update(fingerprint=true))
        return 0

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(repetition_module, "start", read_again)
        code, out, err = said(recorded, "--json")
    (verdict,) = json.loads(out)
    assert (verdict["verdict"], verdict["same_data"], verdict["differences"]) == ("equivalent", False, [line])
    assert err.count(line) == 2 and "equivalent: the data is not the recorded one" in err
    (written,) = (tmp_path / "outputs").glob("*/*/*/verdict.json")
    assert json.loads(written.read_text()) == verdict
    code, out, _ = said(recorded)  # where the code that ran says that it is the same, it is
    assert code == 0 and "identical: " in out


def test_data_that_is_not_there_is_said_before_anything_starts(said: Any, recorded: Path, tmp_path: Path) -> None:
    photos = {"_target_": "torchvision.datasets.ImageFolder", "root": str(tmp_path / "photos")}
    change_facts(recorded, lambda facts: facts["config"]["data"].update(train=photos, root=str(tmp_path / "photos")))
    code, out, err = said(recorded, "--code", "here")
    assert code == 2 and out == "" and str(tmp_path / "photos") in err
    assert not (tmp_path / "outputs").exists()


def test_what_is_not_known_ends_as_a_finding(said: Any, ends: dict[str, int], recorded: Path) -> None:
    lines = (recorded / "digests.jsonl").read_text().splitlines()
    (recorded / "digests.jsonl").write_text("\n".join(lines[:20]) + "\n")
    code, out, _ = said(recorded)
    assert (
        code == 3 and "not known: digests.jsonl of the record ends at update 18, before 34\n  compared: order of" in out
    )


def test_variables_that_the_config_needs_are_named_at_once(
    said: Any, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(facts: dict[str, Any]) -> None:
        facts["config"]["data"]["root"] = "${oc.env:PHOTOS_OF_MINE}/${oc.env:SECOND_PLACE}"
        facts["config"]["data_dir"] = "${oc.env:TORCHLITE_DATA,./data}"

    change_facts(recorded, change)
    words = (recorded, "--allow-env", "PHOTOS_OF_MINE", "--allow-env", "SECOND_PLACE")
    code, _, err = said(*words)
    assert code == 2 and "PHOTOS_OF_MINE, SECOND_PLACE" in err and "TORCHLITE_DATA" not in err
    monkeypatch.setenv("PHOTOS_OF_MINE", "x")
    monkeypatch.setenv("SECOND_PLACE", "y")
    code, out, err = said(*words)
    assert code == 1 and "environment: PHOTOS_OF_MINE is used" in out, err


def test_what_differs_is_said_before_it_starts_the_likeliest_first(said: Any, recorded: Path) -> None:
    def change(facts: dict[str, Any]) -> None:
        facts["packages"] |= {
            "torch": "2.1.0",
            "numpy": "1.0",
            "python": "3.9.0",
            "rich": "1.0",
            "nvidia-cudnn-cu13": "1",
        }
        facts["hardware"] |= {"cpu_capability": "VSX", "cpu": "another"}
        facts["choices"]["num_threads"] = 2

    change_facts(recorded, change)
    code, out, err = said(recorded, "--num-threads", "1")
    assert code == 1 and "did not end well (exit code 1)" in err
    lines = [line.strip() for line in out.splitlines()[1:]]
    beginnings = ["packages: torch was 2.1.0", "hardware: cpu_capability was VSX", "hardware: cpu was another"]
    beginnings += ["threads: computed with 2", "packages: numpy was 1.0", "packages: python was 3.9.0"]
    beginnings += [
        "packages: nvidia-cudnn-cu13 was 1",
        "packages: 1 more have another version, which compute nothing: rich",
    ]
    assert [line[: len(start)] for line, start in zip(lines, beginnings, strict=True)] == beginnings


def test_a_device_that_is_not_here_is_said(said: Any, recorded: Path) -> None:
    change_facts(recorded, lambda facts: facts["choices"].update(device="cuda:7"))
    _, out, _ = said(recorded)
    assert "hardware: it ran on cuda:7, which is not here" in out


@pytest.mark.parametrize(
    ("precision", "has_bf16", "slow"), [("bf16", False, True), ("bf16", True, False), ("fp32", False, False)]
)
def test_bf16_where_the_machine_has_none_is_said_to_be_slow(
    said: Any, recorded: Path, monkeypatch: pytest.MonkeyPatch, precision: str, has_bf16: bool, slow: bool
) -> None:
    change_facts(recorded, lambda facts: facts["choices"].update(precision=precision))
    monkeypatch.setattr(machine, "computes_in_bf16", lambda device: has_bf16)
    _, out, _ = said(recorded)
    assert ("bf16, which takes many times as long here; --updates 100 checks the first ones" in out) == slow


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["nowhere"], "nowhere: there is no such directory"),
        (["."], ". holds no run"),
        ([], "name one run"),
        (["a", "b"], "name one run"),
        (["nowhere", "--updates", "0"], "--updates 0: give a whole number above 0"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_line(said: Any, words: list[str], expected: str) -> None:
    code, out, err = said(*words)
    assert code == 2 and expected in err and len((out + err).splitlines()) == 1
