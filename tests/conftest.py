"""What every test may lean on: commands run as a user types them, and hypothesis without time limits."""

import os
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
USER_ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "TORCHLITE_DATA"}

# Two test workers share two cores, and a fixed loss sequence needs a fixed number of threads: tests that compute in
# this process use one. Commands get the environment as it was.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GOMP_SPINCOUNT", "3000")
os.environ.pop("TORCHLITE_DATA", None)

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@dataclass
class Finished:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        """Both outputs, for assertions that fail readably."""
        return self.stdout + self.stderr


Command = Callable[..., Finished]


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Runs an entry point of the repository as a user would, from an empty directory: `command("train.py", "seed=1")`.

    Keywords: `cwd` (default: this test's tmp_path), `env` (added to the user's environment; None removes a name),
    `timeout` in seconds, `input` (text for standard input, which is otherwise empty).
    """

    def run(
        script: str,
        *words: str,
        cwd: Path | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float = 120,
        input: str = "",
    ) -> Finished:
        asked = {**USER_ENVIRONMENT, **(env or {})}
        done = subprocess.run(
            [sys.executable, str(ROOT / script), *words],
            cwd=cwd or tmp_path,
            env={key: value for key, value in asked.items() if value is not None},
            input=input,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def tiny(command: Command) -> Command:
    """Runs `train.py trainer=smoke` with further overrides, seconds long; keywords as for `command`."""

    def run(*overrides: str, **keywords: object) -> Finished:
        return command("train.py", "trainer=smoke", *overrides, **keywords)

    return run


Typed = Callable[..., Finished]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """`typed("optimizer=sgd", "-m")`: what `python train.py …` does, in this process, from an empty directory."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Finished:
        monkeypatch.setattr(sys, "argv", [str(ROOT / "train.py"), *words])
        capsys.readouterr()
        code = 0
        try:
            runpy.run_path(str(ROOT / "train.py"), run_name="__main__")
        except SystemExit as ended:
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return Finished(code, captured.out, captured.err)

    return run


@pytest.fixture
def stopped(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """`stopped(7, "seed=1")`: the run is sent SIGTERM when update 7 is applied; None: it is not."""

    def run(update: int | None, *words: str, number: int = signal.SIGTERM) -> Finished:
        monkeypatch.setenv("STOP_AT", str(update or -1))
        monkeypatch.setenv("SIGNAL", str(int(number)))
        return typed(*words, "+callbacks.signal._target_=tests.strangers.Signal")

    return run


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not _has_cuda():
        pytest.skip("no CUDA device")
    if item.get_closest_marker("cluster") and not (shutil.which("sbatch") or shutil.which("ray")):
        pytest.skip("no cluster software")
