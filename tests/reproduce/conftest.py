"""A recorded run to repeat, and a copy of the repository whose code a test may change."""

import contextlib
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

import pytest

from tests.conftest import ROOT, Finished
from tests.repeats import WORDS, change_facts, git, run_script
from tests.runs import the_run
from torchlite.reproduce import code, command, publish


@pytest.fixture(scope="session")
def recorded_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small finished run, which nobody changes."""
    folder = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patched, contextlib.suppress(SystemExit):
        patched.chdir(folder)
        patched.setattr(sys, "argv", [str(ROOT / "train.py"), *WORDS])
        runpy.run_path(sys.argv[0], run_name="__main__")
    return the_run(folder / "outputs")


@pytest.fixture
def recorded(recorded_once: Path, tmp_path: Path) -> Path:
    """The same, a copy that a test may change."""
    return shutil.copytree(recorded_once, tmp_path / "given" / recorded_once.name)


@pytest.fixture
def reproduce(tmp_path: Path) -> Callable[..., Finished]:
    """`reproduce("RUN", "--code", "here")`, typed in this test's empty folder."""

    def run(*words: object, cwd: Path | None = None, **environment: str) -> Finished:
        return run_script(ROOT / "reproduce.py", *map(str, words), cwd=cwd or tmp_path, **environment)

    return run


@pytest.fixture
def repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Finished]:
    """The same in this process, the run that it starts included: torch is imported once."""
    from torchlite.reproduce import command, repetition, rerun

    def start(words: list[str], env: object, stdout: TextIO | None) -> SimpleNamespace:
        assert words[1:4] == ["-P", "-m", "torchlite.reproduce.rerun"]
        with contextlib.redirect_stdout(stdout or sys.stdout):
            code = rerun.main(words[4:])
        return SimpleNamespace(wait=lambda: code)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")  # as it will be, and not for the tests that follow
    monkeypatch.setattr(repetition, "subprocess", SimpleNamespace(Popen=start))

    def run(*words: object) -> Finished:
        code = command.main([*map(str, words)])
        captured = capsys.readouterr()
        return Finished(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def house_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository as it stands, committed to a repository of its own."""
    house = tmp_path_factory.mktemp("house")
    names = git(
        ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.py", "conf", "src", ".gitignore"
    )
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests", "benchmarks")):
            (house / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, house / name)
    git(house, "init", "-q", "-b", "main")
    git(house, "add", ".")
    git(house, "commit", "-qm", "as it stands")
    return house


@pytest.fixture
def house(house_once: Path, tmp_path: Path) -> Path:
    """The same, a copy that a test may change."""
    return shutil.copytree(house_once, tmp_path / "house")


@pytest.fixture
def refused(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """`refused(change)`: what is said about the record after the change; nothing was run, exit code 2."""
    (tmp_path / "evil.py").write_text("open('pwned', 'w').close()\n")
    monkeypatch.chdir(tmp_path)

    def run(change: Callable[[dict[str, Any]], object] = lambda facts: None, *words: str) -> str:
        change_facts(recorded, change)
        ended = command.main([str(recorded), "--code", "here", *words])
        captured = capsys.readouterr()
        assert ended == 2, captured
        assert not (tmp_path / "pwned").exists() and not (tmp_path / "outputs").exists()
        assert "Traceback" not in captured.err
        return captured.err

    return run


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
    monkeypatch.setattr(code, "is_shared", code.is_known)  # this clone may have no remote

    def run(*words: object) -> tuple[int, str]:
        ended = publish.main([*map(str, words), "--ledger", str(tmp_path / "ledger"), "--question", "Does it repeat?"])
        captured = capsys.readouterr()
        return ended, captured.out + captured.err

    return run
