"""Nothing of a record that came from elsewhere steers the terminal."""

import io
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.repeats import change_facts, put
from torchlite import logs
from torchlite.reproduce import command
from torchlite.reproduce.verdict import Parting, Spread, Verdict

STEERING = "\x1b]0;title\x07\x1b[2J\u202e\r\nidentical: all\x9b1m"


def is_plain(text: str) -> bool:
    return "\\x1b]0;title" in text and all(char.isprintable() or char == "\n" for char in text)


@pytest.fixture
def before_it_starts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """What is printed about a record until the run would begin."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torchlite.reproduce.repetition.start", lambda *_: 1)

    def run(record: Path) -> str:
        assert command.main([str(record), "--code", "here"]) == 1
        captured = capsys.readouterr()
        return captured.out + captured.err

    return run


def test_what_differs_is_printed_plainly(recorded: Path, before_it_starts: Any) -> None:
    def change(facts: dict[str, Any]) -> None:
        facts["packages"] |= {"torch": STEERING, "nvidia-x": STEERING, "rich": STEERING}
        facts["hardware"] |= {"cpu": STEERING, "cpu_capability": [STEERING]}

    change_facts(recorded, change)
    said = before_it_starts(recorded)
    assert is_plain(said) and "\nidentical" not in said


def test_the_name_of_a_record_is_printed_plainly(recorded: Path, before_it_starts: Any, tmp_path: Path) -> None:
    said = before_it_starts(shutil.copytree(recorded, tmp_path / STEERING.replace("/", "")))
    assert is_plain(said) and "\nidentical" not in said


def test_a_verdict_is_printed_plainly(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parting = Parting(1, STEERING, STEERING, [STEERING], None, STEERING)
    spread = Spread(0.1, 0.2, STEERING)
    lines = [f"data: {STEERING}"]
    verdict = Verdict(
        "different", STEERING, "x", parting, STEERING, 0.5, 0.4, spread, False, lines, STEERING, 3, STEERING
    )
    monkeypatch.setattr("torchlite.reproduce.repetition.repeat_one", lambda *_: verdict)
    assert command.main([str(recorded)]) == 3
    said = capsys.readouterr().out
    assert is_plain(said) and len(said.splitlines()) == 7


@pytest.mark.parametrize("path", ["code.commit", "config.model._target_", "config.data.root", "config.name"])
def test_refusals_are_printed_plainly(refused: Any, path: str) -> None:
    said = refused(lambda facts: put(facts, path, "${x:" + STEERING if path.endswith("root") else STEERING))
    assert is_plain(said) and "\nidentical" not in said


def test_messages_of_a_run_are_printed_plainly(tmp_path: Path) -> None:
    """Nor do they set type in bold, as square brackets could."""
    shown = io.StringIO()
    with logs.written(tmp_path, Console(file=shown, soft_wrap=True), {}):
        logging.getLogger("torchlite").warning(f"[bold]{STEERING}")
    assert shown.getvalue().startswith("warning: [bold]\\x1b]0;title") and "\x1b" not in shown.getvalue()
