"""`python sweep.py`: what is where, unfinished jobs again, less disk."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, Finished, Typed
from tests.runs import BASE, result


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """What `python sweep.py …` does, in this process."""

    def run(*words: str) -> Finished:
        monkeypatch.setattr(sys, "argv", [str(ROOT / "sweep.py"), *words])
        capsys.readouterr()
        code: object = 0
        try:
            runpy.run_path(str(ROOT / "sweep.py"), run_name="__main__")
        except SystemExit as ended:
            code = ended.code or 0
        captured = capsys.readouterr()
        return Finished(int(str(code)), captured.out, captured.err)

    return run


def runs(tmp_path: Path) -> list[Path]:
    return sorted(path.parent for path in (tmp_path / "outputs" / "s").glob("*/result.json"))


def test_status_shows_sweeps_and_their_jobs(typed: Typed, sweep, tmp_path: Path) -> None:
    assert "no sweep" in sweep("status").stdout
    typed("-m", *BASE, "name=s", "seed=0,1")
    done = sweep("status")
    assert done.code == 0 and "2 finished" in done.stdout and "seed=0,1" in done.stdout
    done = sweep("status", "s")
    assert done.code == 0 and done.stdout.count("finished") == 2 and "val/acc1" in done.stdout
    assert sweep("status", str(tmp_path / "outputs" / "s")).stdout == done.stdout


@pytest.mark.slow
def test_retry_runs_what_is_not_finished_as_it_was_planned(typed: Typed, sweep, tmp_path: Path) -> None:
    typed("-m", *BASE, "name=s", "seed=0,1,2")
    first, second, _ = runs(tmp_path)
    before = second.stat().st_mtime_ns, (second / "result.json").read_text()
    failed = {**result(first), "status": "failed", "failure": {"type": "E", "message": "m"}}
    (first / "result.json").write_text(json.dumps(failed))
    assert "failed: E: m" in sweep("status", "s").stdout
    done = sweep("retry", "s")
    assert done.code == 0, done.text
    assert "1 jobs in outputs/s: 1 failed" in done.stdout and result(first)["status"] == "finished"
    assert before == (second.stat().st_mtime_ns, (second / "result.json").read_text())
    assert "all 3 jobs are finished" in sweep("retry", "s").stdout


@pytest.mark.slow
def test_clean_keeps_the_checkpoints_of_the_best(typed: Typed, sweep, tmp_path: Path) -> None:
    typed("-m", *BASE, "name=s", "seed=0,1,2")
    done = sweep("clean", "s", "--keep", "1")
    assert done.code == 0 and "MB freed" in done.stdout
    kept = [run for run in runs(tmp_path) if (run / "checkpoints").exists()]
    best = max(runs(tmp_path), key=lambda run: result(run)["best"]["val/acc1"])
    assert kept == [best]
    done = typed("-m", *BASE, "name=s", "seed=0,1,2")
    assert done.code == 0 and "3 finished" in done.stdout


@pytest.mark.slow
def test_clean_keeps_no_job_by_chance(typed: Typed, sweep, tmp_path: Path) -> None:
    """Without a validation part nothing says which job is the best."""
    typed("-m", *BASE, "name=s", "seed=0,1", "data.val_fraction=0")
    done = sweep("clean", "s", "--keep", "1")
    assert done.code == 2 and "has no val/acc1, so the best jobs are not known" in done.stderr, done.text
    assert all((run / "checkpoints").exists() for run in runs(tmp_path))
    assert sweep("clean", "s", "--keep", "0").code == 0
    assert not any((run / "checkpoints").exists() for run in runs(tmp_path))


def test_a_record_from_elsewhere_names_nothing_that_is_not_allowed(
    typed: Typed, sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O01: sweep.json is a record like any other."""
    typed("-m", *BASE, "name=s", "seed=0")
    path = tmp_path / "outputs" / "s" / "sweep.json"
    facts = json.loads(path.read_text())
    (runs(tmp_path)[0] / "result.json").unlink()
    (tmp_path / "mine_not_to_import.py").write_text(f"open('{tmp_path}/pwned', 'w')\ndef f(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    for target in ("os.system", "mine_not_to_import.f", "yaml.unsafe_load", "torch.load", "filelock.FileLock"):
        facts["jobs"][0]["config"]["callbacks"]["x"] = {"_target_": target}
        path.write_text(json.dumps(facts))
        done = sweep("retry", "s")
        assert done.code == 2 and f"callbacks.x._target_={target}" in done.stderr
        assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("damage", ["{", "[]", '{"jobs": [{}], "num_threads": 1}', '{"jobs": 3, "num_threads": 1}'])
def test_a_damaged_sweep_json_is_named(sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs" / "s").mkdir(parents=True)
    (tmp_path / "outputs" / "s" / "sweep.json").write_text(damage)
    done = sweep("status", "s")
    assert done.code == 2 and "sweep.json cannot be read" in done.stderr
    assert sweep("status").code == 0


@pytest.mark.parametrize("words", [("status", "nothing"), ("retry", "nothing"), ("clean", "nothing", "--keep", "1")])
def test_a_sweep_that_is_not_there_is_named(sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words) -> None:
    monkeypatch.chdir(tmp_path)
    done = sweep(*words)
    assert done.code == 2 and "nothing" in done.stderr and "Traceback" not in done.stderr


def test_retry_names_its_own_word(sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = sweep("retry", "s", "--num-jobs", "0")
    assert done.code == 2 and done.stderr == "--num-jobs 0: give 1 or more.\n"


def test_clean_refuses_less_than_nothing(typed: Typed, sweep) -> None:
    done = sweep("clean", "s", "--keep", "-1")
    assert done.code == 2 and "--keep -1" in done.stderr
