"""Jobs in processes of their own: failures, kills, signals, several launches, several jobs at a time."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT, USER_ENVIRONMENT, Typed
from tests.runs import BASE, assert_same_run, result
from torchlite.errors import UserError
from torchlite.sweep import slots

LONG = tuple(word for word in BASE if "max_epochs" not in word)


def jobs(tmp_path: Path, name: str = "s") -> dict[str, Path]:
    """Job directories by the words that differ."""
    facts = json.loads((tmp_path / "outputs" / name / "sweep.json").read_text())
    return {" ".join(sorted(fact["words"])): tmp_path / "outputs" / name / fact["directory"] for fact in facts["jobs"]}


def launch(tmp_path: Path, *words: str) -> "subprocess.Popen[str]":
    """A sweep in a process group of its own."""
    command = [sys.executable, str(ROOT / "train.py"), "-m", *words]
    path = os.pathsep.join(filter(None, [str(ROOT), USER_ENVIRONMENT.get("PYTHONPATH")]))
    environment = {**USER_ENVIRONMENT, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    return subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # tests under nohup would have it ignored
    )


def wait_for_metrics(tmp_path: Path, runs: int = 1) -> None:
    """Until so many jobs train."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if sum(bool(path.read_text()) for path in tmp_path.rglob("metrics.jsonl")) >= runs:
            return
        time.sleep(0.02)
    raise AssertionError("no job ever trained")


@pytest.mark.slow
def test_failures_of_every_kind_stop_no_other_and_are_done_again(typed: Typed, tmp_path: Path) -> None:
    """C01: two raise, one runs out of memory, one is killed; gone on with when the fault is gone."""
    (tmp_path / "flag").touch()
    kinds = ["none", "raise", "other", "memory", "kill", "nothing"]
    nodes = ",".join(f"{{_target_:tests.strangers.Faulty,kind:{kind},flag:{tmp_path}/flag}}" for kind in kinds)
    words = ["-m", *BASE, "name=s", "trainer.save_every_updates=1", f"+callbacks.faulty={nodes}"]
    done = typed(*words)
    assert done.code == 1 and "4 of 6 jobs failed." in done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("failed: ")]
    assert len(lines) == 4
    for said in (
        "RuntimeError: the first kind",
        "ValueError: another kind",
        "OutOfMemoryError: out",
        "killed by SIGKILL",
    ):
        assert any(said in line for line in lines), done.stdout
    found = {kind: next(path for words, path in jobs(tmp_path).items() if f"kind:{kind}," in words) for kind in kinds}
    statuses = [result(found[kind])["status"] for kind in kinds]
    assert statuses == ["finished", "failed", "failed", "failed", "running", "finished"]
    for kind, said in {"raise": "Traceback", "memory": "out of memory, it says", "kill": "killed by SIGKILL"}.items():
        assert said in (found[kind] / "train.log").read_text()
    (tmp_path / "flag").unlink()
    before = {kind: (found[kind] / "result.json").stat().st_mtime_ns for kind in ("none", "nothing")}
    done = typed(*words)
    assert done.code == 0, done.text
    assert all(result(path)["status"] == "finished" for path in found.values())
    assert before == {kind: (found[kind] / "result.json").stat().st_mtime_ns for kind in before}
    assert "going on after update" in (found["kill"] / "train.log").read_text()


@pytest.mark.slow
def test_two_launches_in_one_second_run_each_job_once(tmp_path: Path) -> None:
    """B01, in one sweep: they share the work."""
    spy = f"+callbacks.spy={{_target_:tests.strangers.Spy,file:{tmp_path}/hooks.txt}}"
    words = [*BASE, "name=s", "seed=0,1,2,3", spy]
    both = [launch(tmp_path, *words) for _ in range(2)]
    texts = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], texts
    assert (tmp_path / "hooks.txt").read_text().count("fit begin") == 4
    assert [result(path)["status"] for path in jobs(tmp_path).values()] == ["finished"] * 4
    assert all(out.count("finished  val/acc1") >= 4 for out, _ in texts)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_to_everybody_stops_the_sweep(tmp_path: Path, number: signal.Signals) -> None:
    """P01: Ctrl-C in a shell reaches every process of the group; the job saves, the next is not begun."""
    words = [*LONG, "name=s", "trainer.max_epochs=200", "seed=0,1"]
    process = launch(tmp_path, *words)
    wait_for_metrics(tmp_path)
    os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == {signal.SIGUSR1: 75}.get(number, 128 + number), errors
    assert "the same command goes on" in errors and "Traceback" not in errors
    (stopped,) = list((tmp_path / "outputs").rglob("result.json"))
    assert result(stopped.parent)["status"] == "stopped" and (stopped.parent / "checkpoints" / "last.pt").exists()


@pytest.mark.slow
def test_a_second_signal_ends_a_sweep_within_seconds(tmp_path: Path) -> None:
    """P01"""
    process = launch(tmp_path, *LONG, "name=s", "trainer.max_epochs=2000", "seed=0,1")
    wait_for_metrics(tmp_path)
    for _ in range(2):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.1)
    began = time.monotonic()
    assert process.wait(timeout=60) == 130 and time.monotonic() - began < 5
    process.communicate()


@pytest.mark.slow
def test_a_killed_sweep_leaves_no_job_behind(tmp_path: Path) -> None:
    """C10: the launcher alone is killed with -9 during the third of four jobs; that job stops by itself, and goes on with the
    same command, after which what processes wrote aside is gone. None of it lies where machines tidy, such as /tmp.
    """
    words = [*LONG, "trainer.max_epochs=15", "trainer.save_every_updates=5", "seed=0,1,2,3"]
    process = launch(tmp_path, *words, "name=s")
    wait_for_metrics(tmp_path, runs=3)
    (aside,) = (tmp_path / "outputs" / "s").glob(f".*-{process.pid}")
    process.kill()
    process.communicate()
    runs = [path for _, path in sorted(jobs(tmp_path).items())]
    assert aside.name.startswith(f".{runs[2].name}-")
    before = [(run / "result.json").stat().st_mtime_ns for run in runs[:2]]
    again, straight = launch(tmp_path, *words, "name=s"), launch(tmp_path, *words, "name=straight")
    assert again.communicate(timeout=120) and straight.communicate(timeout=120)
    assert again.returncode == straight.returncode == 0
    assert not list((tmp_path / "outputs" / "straight").glob(".*-*"))
    assert [(run / "result.json").stat().st_mtime_ns for run in runs[:2]] == before
    assert "going on after update" in (runs[2] / "train.log").read_text()
    for run, (_, other) in zip(runs, sorted(jobs(tmp_path, "straight").items()), strict=True):
        assert_same_run(run, other)


@pytest.mark.slow
def test_a_sweep_whose_fork_server_is_killed_says_so_and_goes_on_later(tmp_path: Path) -> None:
    """C10"""
    words = [*LONG, "trainer.max_epochs=60", "seed=0,1", "hydra/launcher=local", "name=s"]
    process = launch(tmp_path, *words)
    wait_for_metrics(tmp_path, runs=2)
    runs = [path.parent for path in (tmp_path / "outputs").rglob("result.json")]
    (server,) = {int(Path(f"/proc/{result(run)['process']}/stat").read_text().split()[3]) for run in runs}
    os.kill(server, signal.SIGKILL)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 1 and "the same command goes on" in errors, out + errors
    assert len(errors.splitlines()) == 1 and out.count("cut off") == 4, out + errors  # at once, and in the summary
    again = launch(tmp_path, *words)
    out, errors = again.communicate(timeout=120)
    assert again.returncode == 0, out + errors
    assert [result(run)["status"] for run in runs] == ["finished"] * 2
    assert all("going on after update" in (run / "train.log").read_text() for run in runs)


@pytest.mark.slow
def test_a_job_stops_when_its_sweep_is_killed_or_the_terminal_closed(tmp_path: Path) -> None:
    process = launch(tmp_path, *LONG, "trainer.max_epochs=5000", "seed=0,1", "name=s")
    wait_for_metrics(tmp_path)
    process.kill()
    process.communicate()
    (run,) = [path.parent for path in (tmp_path / "outputs").rglob("metrics.jsonl")]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and result(run)["status"] == "running":
        time.sleep(0.1)
    assert result(run)["status"] == "stopped" and (run / "checkpoints" / "last.pt").exists()
    lines = len((run / "metrics.jsonl").read_text())
    process = launch(tmp_path, *LONG, "trainer.max_epochs=5000", "seed=0,1", "name=s")
    while time.monotonic() < deadline + 60 and len((run / "metrics.jsonl").read_text()) <= lines:
        time.sleep(0.1)
    process.send_signal(signal.SIGHUP)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 129 and "the same command goes on" in errors and result(run)["status"] == "stopped"


def test_jobs_at_a_time_have_gpus_and_cores_of_their_own(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "visible_gpus", lambda: ["3", "5"])
    monkeypatch.setattr(slots, "num_cores", lambda: 8)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where the locks are
    words = ["-m", *BASE, "name=s", "hydra/launcher=local", "+callbacks.told._target_=tests.strangers.Environment"]
    # Loader workers are children of jobs
    done = typed(*words, "seed=0,1", "data.in_memory=false", "data.num_workers=1")
    assert done.code == 0, done.text
    told = sorted((path / "environment.txt").read_text() for path in jobs(tmp_path).values())
    assert told == ["3 4", "5 4"]


def test_cores_are_divided_and_gpus_are_ones_that_nobody_else_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "num_cores", lambda: 8)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    on_cpu = slots.Slots(3, ["auto"], gpus=[])
    assert on_cpu.num_cores == 2 and [on_cpu.take() is not None for _ in range(4)] == [True, True, True, False]
    assert slots.Slots("auto", ["cpu"], gpus=["0"]).num_jobs == 2
    one, other = slots.Slots(1, ["auto"], gpus=["0", "1"]), slots.Slots("auto", ["cuda"], gpus=["0", "1"])
    first, second = one.take(), other.take()
    assert first is not None and second is not None and (first.gpu, second.gpu) == ("0", "1")
    assert second.environment == {"TORCHLITE_CORES": "4", "CUDA_VISIBLE_DEVICES": "1"}
    assert other.take() is None  # the first sweep has the other GPU
    first.give_back()
    third = other.take()
    assert third is not None and third.gpu == "0" and one.take() is None
    more = slots.Slots(4, ["auto"], gpus=["7"])
    assert [slot.gpu for slot in (more.take(), more.take(), more.take(), more.take()) if slot] == ["7"] * 4


def test_a_gpu_whose_lock_is_somebody_elses_file_is_not_taken_for_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(slots.filelock.FileLock, "acquire", refuse)
    own = slots.Slots(1, ["cuda"], gpus=["0"])
    slot = own.take()
    assert slot is not None and slot.gpu == "0" and "GPU 0 is used without a lock: not yours" in caplog.text
    slot.give_back()
    assert own.take() is not None


def test_a_gpu_by_its_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="trainer.device=cuda:1"):
        slots.Slots(2, ["cuda:1"], gpus=["0", "1"])


@pytest.mark.parametrize("wrong", ["0", "-1", "1.5", "many", "true"])
def test_a_number_of_jobs_that_is_none_is_refused(typed: Typed, tmp_path: Path, wrong: str) -> None:
    done = typed("-m", *BASE, "hydra/launcher=local", f"hydra.launcher.num_jobs={wrong}", "seed=0,1")
    assert done.code == 2 and f"hydra.launcher.num_jobs={wrong}".lower() in done.stderr.lower()
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_threads_are_what_they_were_when_the_sweep_began(typed: Typed, tmp_path: Path) -> None:
    words = ["-m", "model=mlp", "trainer.max_epochs=1", "name=s"]
    assert typed(*words, "seed=0").code == 0
    facts = json.loads((tmp_path / "outputs" / "s" / "sweep.json").read_text())
    facts["num_threads"] = 2
    (tmp_path / "outputs" / "s" / "sweep.json").write_text(json.dumps(facts))
    done = typed(*words, "seed=0,1", "hydra/launcher=local", "hydra.launcher.num_jobs=9")
    assert done.code == 0 and "warning: each job computes with 2 threads" in done.stdout
    chosen = [json.loads((path / "run.json").read_text())["choices"]["num_threads"] for path in jobs(tmp_path).values()]
    assert sorted(chosen) == [1, 2]
