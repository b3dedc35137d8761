"""P01: signals that come while no update is at work: a run stops where it stands, and goes on from there."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Command, Typed
from tests.runs import BASE, assert_same_run, result, the_run
from torchlite import stopping

SIGNALS = [
    pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
    (signal.SIGTERM, 143),
    pytest.param(signal.SIGUSR1, 75, marks=pytest.mark.slow),
]
PLACES = {
    "code written down": "torchlite.provenance.git_state",
    "model built": "torchlite.run._network",
    "data opened": "torchlite.data.parts.open_source",
    "data fingerprinted": "torchlite.data.parts.fingerprint",
    "optimizer built": "torchlite.run._optimizer",
    "run described": "torchlite.provenance.packages",
    "best weights loaded": "torchlite.progress.load_best",
    "test set scored": "torchlite.trainer.Trainer.evaluate",
    "weights exported": "torchlite.checkpoint.save_safetensors",
}


@contextmanager
def signal_at(place: str, number: int, call: int = 1, thread: str = "") -> Iterator[None]:
    """This process gets the signal when what stands at `place` is called, in a thread of this name where one is given; an
    evaluation only counts if it is the test's."""
    home, _, name = place.rpartition(".")
    calls = 0
    with pytest.MonkeyPatch.context() as patched:
        owner: Any = __import__("pkgutil").resolve_name(home)
        original = getattr(owner, name)

        def signalled(*args: Any, **options: Any) -> Any:
            nonlocal calls
            if (name != "evaluate" or args[2] == "test") and thread in ("", threading.current_thread().name):
                calls += 1
                if calls == call:
                    os.kill(os.getpid(), number)
            return original(*args, **options)

        patched.setattr(owner, name, signalled)
        yield


@pytest.fixture(scope="module")
def done_once() -> dict[str, Path]:
    """Where the run that no signal disturbed lies, once there is one."""
    return {}


@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize("place", PLACES)
def test_a_signal_anywhere_stops_a_run_that_then_goes_on(
    typed: Typed, tmp_path: Path, place: str, number: signal.Signals, code: int, done_once: dict[str, Path]
) -> None:
    with signal_at(PLACES[place], number):
        done = typed(*BASE, "name=cut")
    assert done.code == code, done.text
    assert done.stderr.splitlines()[-1] == f"stopped: {number.name} received; go on with resume=auto"
    assert "Traceback" not in done.text
    run = the_run(tmp_path / "outputs")
    assert result(run)["status"] == "stopped" and result(run)["stopped"] == f"{number.name} received"
    trained = "epoch 3/3" in (run / "train.log").read_text()
    assert trained == (place in ("best weights loaded", "test set scored", "weights exported"))

    done = typed(f"resume={run}") if number == signal.SIGTERM else typed(*BASE, "name=cut", "resume=auto")
    assert done.code == 0, done.text
    assert done.stdout.count("epoch ") == (1 if trained else 4)  # the last line names the best epoch
    assert the_run(tmp_path / "outputs" / "cut") == run
    if not done_once:
        assert typed(*BASE, "name=straight").code == 0
        done_once["run"] = the_run(tmp_path / "outputs" / "straight")
    assert_same_run(done_once["run"], run)
    facts = [json.loads((one / "run.json").read_text()) for one in (run, done_once["run"])]
    assert facts[0]["options"] == facts[1]["options"] and set(BASE) < set(facts[0]["overrides"])


@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize("place", ["torchlite.config.plain", "torchlite.run.check", "torchlite.resume.target"])
def test_a_signal_before_there_is_a_run_leaves_nothing(
    typed: Typed, tmp_path: Path, place: str, number: signal.Signals, code: int
) -> None:
    with signal_at(place, number):
        done = typed(*BASE)
    assert done.code == code and done.stderr.startswith(f"stopped: {number.name} received"), done.text
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "outputs").exists()


AT_AN_IMPORT = """
import os, signal, sys
class Sends:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["MODULE"]:
            os.kill(os.getpid(), int(os.environ["SIGNAL"]))
sys.meta_path.insert(0, Sends())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "module", "number"),
    [
        ("train.py seed=1", "hydra", signal.SIGINT),
        ("train.py seed=1", "torch", signal.SIGINT),
        ("train.py seed=1", "torch", signal.SIGTERM),
        ("train.py -m seed=0,1", "torchlite.sweep.command", signal.SIGTERM),
        ("train.py -m seed=0,1", "torch", signal.SIGINT),
        ("sweep.py status", "torchlite.sweep.manage", signal.SIGINT),
        ("compare.py outputs", "torchlite.compare.report", signal.SIGINT),
        ("reproduce.py outputs/x/y", "torch", signal.SIGINT),
        ("publish.py outputs/x/y z --question why", "torchlite.reproduce.entry", signal.SIGTERM),
    ],
)
def test_a_signal_while_modules_load_is_said_in_a_line(
    command: Command, tmp_path: Path, words: str, module: str, number: signal.Signals
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(AT_AN_IMPORT)
    path = os.pathsep.join(filter(None, [str(tmp_path / "site"), os.environ.get("PYTHONPATH")]))
    done = command(*words.split(), env={"PYTHONPATH": path, "MODULE": module, "SIGNAL": str(int(number))})
    assert (done.code, done.stdout) == (128 + number, ""), done.text
    assert done.stderr == f"stopped: {number.name} received, before anything was started\n"
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize("place", ["torchlite.sweep.plan.compose_all", "torchlite.run.check"])
def test_a_signal_before_a_sweeps_first_job_leaves_nothing(
    typed: Typed, tmp_path: Path, place: str, number: signal.Signals, code: int
) -> None:
    with signal_at(place, number):
        done = typed("-m", *BASE, "seed=0,1", "name=s")
    assert done.code == code and f"stopped: {number.name} received" in done.stderr, done.text
    assert "Traceback" not in done.text and not list(tmp_path.rglob("result.json"))


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize("hook", ["__init__", "on_fit_begin", "on_fit_end"])
def test_a_signal_stops_a_sweep_whose_jobs_are_not_in_the_loop(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: str, number: signal.Signals, code: int
) -> None:
    words = ["-m", *BASE, "trainer.max_epochs=1", "seed=0,1,2", "name=s"]
    words += [f"+callbacks.mine={{_target_:tests.strangers.SignalSweep,hook:{hook}}}"]
    monkeypatch.setenv("SIGNAL", str(int(number)))
    monkeypatch.setenv("SWEEP", str(os.getpid()))
    done = typed(*words)
    assert done.code == code and "the sweep was stopped" in done.stderr, done.text
    assert "Traceback" not in done.text
    statuses = [json.loads(path.read_text())["status"] for path in (tmp_path / "outputs").rglob("result.json")]
    assert 1 <= statuses.count("stopped") <= 2 and statuses.count("finished") <= 2, statuses
    done = typed(*words)
    assert done.code == 0, done.text
    statuses = [json.loads(path.read_text())["status"] for path in (tmp_path / "outputs").rglob("result.json")]
    assert statuses == ["finished"] * 3


def test_a_run_without_its_first_words_is_not_taken_for_the_defaults(typed: Typed, tmp_path: Path) -> None:
    """B04: cut off before anything was written down, a directory named alone would else be filled with another run."""
    with signal_at("torchlite.run._network", signal.SIGTERM):
        assert typed(*BASE, "name=cut").code == 143
    run = the_run(tmp_path / "outputs")
    (run / ".begun.json").unlink()
    done = typed(f"resume={run}")
    assert done.code == 2 and "start it again without resume" in done.stderr, done.text
    assert typed(*BASE, "name=cut", f"resume={run}").code == 0 and result(run)["status"] == "finished"


def test_the_first_words_are_in_run_json_alone_at_the_end(typed: Typed, tmp_path: Path) -> None:
    assert typed(*BASE).code == 0
    assert [path.name for path in the_run(tmp_path / "outputs").glob(".*")] == [".lock"]


def test_a_signal_while_workers_read_the_test_set_leaves_none_behind(typed: Typed, tmp_path: Path) -> None:
    words = [*BASE, "data.in_memory=false", "data.num_workers=2", "trainer.max_epochs=1", "data.eval_batch_size=100"]
    with signal_at("torchlite.tasks.Classification.evaluation_step", signal.SIGTERM, call=5):  # 3 of val, 4 of test
        done = typed(*words)
    assert done.code == 143 and "Traceback" not in done.text, done.text
    assert multiprocessing.active_children() == []
    assert typed(*words, "resume=auto").code == 0
    assert result(the_run(tmp_path / "outputs"))["status"] == "finished"


def test_a_signal_while_the_result_is_written_waits(typed: Typed, tmp_path: Path) -> None:
    """The result is whole; the exit code says that there was a signal."""
    with signal_at("torchlite.record.write_json", signal.SIGTERM, call=4):  # words, result, run.json, result
        done = typed(*BASE)
    assert done.code == 143
    run = the_run(tmp_path / "outputs")
    assert result(run)["status"] == "finished" and not list(run.glob("*.partial"))


def test_handlers_are_as_they_were_afterwards(typed: Typed) -> None:
    before = [signal.getsignal(number) for number in stopping.EXIT_CODES]
    assert typed(*BASE).code == 0
    assert [signal.getsignal(number) for number in stopping.EXIT_CODES] == before
    assert signal.set_wakeup_fd(-1) == -1


def test_what_copes_with_faults_lets_a_stop_pass() -> None:
    assert not issubclass(stopping.Stopped, Exception)


STUCK = """
import ctypes
from torchlite.callbacks import Callback
class Stuck(Callback):
    def on_batch_begin(self, trainer, batch):
        print("stuck", flush=True)
        mutex = ctypes.create_string_buffer(256)
        lock = ctypes.CDLL(None).pthread_mutex_lock
        lock(mutex), lock(mutex)  # as deep outside Python as a backward pass of minutes
"""


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [[signal.SIGINT] * 2, [signal.SIGTERM, signal.SIGINT], [signal.SIGUSR1] * 3])
def test_two_signals_end_a_process_that_is_deep_outside_python(tmp_path: Path, numbers: list[signal.Signals]) -> None:
    (tmp_path / "stuck_of_mine.py").write_text(STUCK)
    words = [sys.executable, str(ROOT / "train.py"), "+callbacks.mine._target_=stuck_of_mine.Stuck", "model=mlp"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and any(line == "stuck\n" for line in process.stdout)
            for number in numbers:
                process.send_signal(number)
                time.sleep(0.05)
            sent = time.monotonic()
            assert process.wait(timeout=30) == stopping.EXIT_CODES[numbers[0]]
            assert time.monotonic() - sent < 5
        finally:
            process.kill()


def test_a_childs_signals_are_its_own(tmp_path: Path) -> None:
    """A forked loader worker that is signalled does not count for the run it belongs to."""
    with stopping.at_once():
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, lambda *_: None)
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        os.waitpid(child, 0)
        time.sleep(0.1)
    shutil.rmtree(tmp_path)  # alive


def test_a_command_ends_without_a_last_search_for_garbage() -> None:
    """Over all that torch brought it takes most of a second."""
    code = "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 1000)); import compare"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
