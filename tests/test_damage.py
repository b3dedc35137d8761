"""What a run meets when its directory is damaged, foreign, full, or wanted by two."""

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filelock
import pytest
import torch

from tests.conftest import ROOT, USER_ENVIRONMENT, Typed
from tests.runs import BASE, assert_same_run, often, result, state, the_run
from torchlite import checkpoint, record
from torchlite.progress import STATE


def tampered(run: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """The run's last.pt, whole but changed; nothing else is left to fall back to."""
    path = run / "checkpoints" / "last.pt"
    saved = torch.load(path, weights_only=True)
    change(saved)
    torch.save(saved, path)
    (run / "checkpoints" / "previous.pt").unlink(missing_ok=True)


def test_a_state_has_the_parts_that_are_asked_for(typed: Typed, tmp_path: Path) -> None:
    assert typed(*BASE, "trainer.max_epochs=1").code == 0
    assert set(state(the_run(tmp_path / "outputs"))) == set(STATE)


WRONG = {
    "no generators": lambda saved: saved.pop("generators"),
    "something else in it": lambda saved: saved.update(hooks={}),
    "a negative position": lambda saved: saved["progress"].update(batch=-3),
    "a position that is no number": lambda saved: saved["progress"].update(update="20"),
    "a counter of another version": lambda saved: saved["progress"].update(steps=20),
    "no seconds": lambda saved: saved["progress"].update(seconds=None),
    "generators of another kind": lambda saved: saved["generators"].update(torch=torch.zeros(3)),
    "a generator that is none": lambda saved: saved["generators"].update(python=[3]),
    "a schedule that is none": lambda saved: saved.update(schedule=None),
    "sums that are none": lambda saved: saved.update(sums=[]),
    "another optimizer's groups": lambda saved: saved["optimizer"]["param_groups"].pop(),
    "another model's weights": lambda saved: saved["model"].popitem(),
    "another model's shapes": lambda saved: saved["model"].update({next(iter(saved["model"])): torch.zeros(2, 2)}),
    "no config": lambda saved: saved.update(config="{"),
    "another run's config": lambda saved: saved.update(config=saved["config"].replace('"seed": 0', '"seed": 1')),
}


@pytest.mark.parametrize("what", often(WRONG, 5))
def test_a_whole_file_that_is_not_this_runs_state_is_refused(stopped: Typed, tmp_path: Path, what: str) -> None:
    """E04, E05: a message that names the file or what does not fit, and no traceback; the run stays as it was."""
    assert stopped(20, *BASE).code == 143
    run = the_run(tmp_path / "outputs")
    tampered(run, WRONG[what])
    done = stopped(None, *BASE, f"resume={run}")
    assert done.code == 2, done.text
    assert "Traceback" not in done.text and "heckpoint" in done.stderr, done.text
    assert (run / "run.json").exists() and (run / "checkpoints" / "last.pt").exists()


@pytest.mark.parametrize("word", often(["optimizer=sgd", "seed=1", "model=small_cnn", "trainer.max_epochs=4"], 2))
def test_another_runs_checkpoint_is_refused(typed: Typed, tmp_path: Path, word: str) -> None:
    """A copy of it in this run's place, by mistake: same classes and data."""
    words = ["model=mlp", "trainer.max_minutes=0.00001"]
    assert typed(*words, "name=one").code == 75
    assert typed(*words, word, "name=other").code == 75
    run, other = the_run(tmp_path / "outputs" / "one"), the_run(tmp_path / "outputs" / "other")
    shutil.copy(other / "checkpoints" / "last.pt", run / "checkpoints" / "last.pt")
    done = typed(*words, f"resume={run}")
    assert done.code == 2 and "is the checkpoint of another run than" in done.stderr, done.text
    assert word.split(".")[-1].split("=")[0] in done.stderr


def test_weights_alone_are_nothing_to_go_on_from(stopped: Typed, tmp_path: Path) -> None:
    assert stopped(20, *BASE).code == 143
    run = the_run(tmp_path / "outputs")
    best = run / "checkpoints" / "best.pt"
    done = stopped(None, *BASE, f"resume={best}")
    assert done.code == 2 and f"model.weights={best}" in done.stderr
    shutil.copy(best, run / "checkpoints" / "last.pt")
    done = stopped(None, *BASE, f"resume={run}")
    assert done.code == 2 and f"model.weights={run}/checkpoints/last.pt" in done.stderr


@pytest.mark.parametrize("damage", ["missing", "cut", "another's"])
def test_a_lost_best_checkpoint_is_said_at_once_and_does_not_end_the_run(
    stopped: Typed, tmp_path: Path, damage: str
) -> None:
    """Better than to train for days and to find out at the end."""
    assert stopped(17 * 2 + 5, *BASE).code == 143
    run = the_run(tmp_path / "outputs")
    best = run / "checkpoints" / "best.pt"
    if damage == "missing":
        best.unlink()
    elif damage == "cut":
        best.write_bytes(best.read_bytes()[:1000])
    else:
        torch.save(torch.load(best, weights_only=True) | {"scores": {"update": 1}}, best)
    done = stopped(None, *BASE, f"resume={run}")
    assert done.code == 0, done.text
    assert "the best is chosen anew" in done.stdout and str(best) in done.stdout
    assert result(run)["best"]["epoch"] == 3 and result(run)["status"] == "finished"


def test_a_finished_training_whose_best_is_lost_takes_the_last(typed: Typed, tmp_path: Path) -> None:
    assert typed(*BASE).code == 0
    run = the_run(tmp_path / "outputs")
    tampered(run, lambda saved: saved["progress"]["best"].update(update=17))
    (run / "checkpoints" / "best.pt").unlink()
    (run / "result.json").write_text('{"status": "running"}')
    done = typed(f"resume={run}")
    assert done.code == 0 and "the best is chosen anew" in done.stdout, done.text
    assert result(run)["best"] == result(run)["last"]


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\x00", b'{"update": 1}\n'])
def test_lost_lines_are_named(stopped: Typed, tmp_path: Path, content: bytes | None) -> None:
    assert stopped(20, *BASE).code == 143
    run = the_run(tmp_path / "outputs")
    (run / "metrics.jsonl").unlink()
    if content is not None:
        (run / "metrics.jsonl").write_bytes(content)
    done = stopped(None, *BASE, "resume=auto")
    assert done.code == 2 and "metrics.jsonl has lost lines" in done.stderr, done.text


@pytest.mark.parametrize("text", often(["[]", '{"config": 3}', "", "\0", '{"config": "${oc.env:HOME}"}'], 2))
@pytest.mark.parametrize("words", [[], BASE])
def test_a_damaged_run_json_is_named(typed: Typed, tmp_path: Path, text: str, words: list[str]) -> None:
    assert typed(*BASE, "trainer.max_minutes=0.00001").code == 75
    run = the_run(tmp_path / "outputs")
    if text.startswith("{"):
        text = json.dumps(json.loads((run / "run.json").read_text()) | json.loads(text))
    (run / "run.json").write_text(text)
    done = typed(*words, f"resume={run}")
    assert done.code == 2 and f"{run}/run.json cannot be read" in done.stderr, done.text
    assert "Traceback" not in done.text and len(done.stderr.splitlines()) == 1


# Room and rights


def limited(size: int) -> Callable[[], None]:
    """For a child: no file larger than `size` bytes, as on a disk that is full for large files alone."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.slow
def test_a_disk_that_is_too_small_for_a_checkpoint_is_said_and_the_run_goes_on_later(
    typed: Typed, tmp_path: Path
) -> None:
    words = [*BASE, "model.widths=[512]", "name=cut"]  # half a megabyte
    done = subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        preexec_fn=limited(100_000),
        timeout=60,
    )
    run = the_run(tmp_path / "outputs")
    assert done.returncode == 1
    assert f"resume={run.relative_to(tmp_path)}" in result(run)["failure"]["message"]
    assert done.stderr == result(run)["failure"]["message"] + "\n" and "Make room" in done.stderr
    assert result(run)["status"] == "failed" and not list(run.rglob("*.partial"))
    assert typed(*words, "resume=auto").code == 0
    assert typed(*words[:-1], "name=straight").code == 0
    assert_same_run(the_run(tmp_path / "outputs" / "straight"), run)


def test_no_room_for_the_weights_for_use_is_said(typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import safetensors.torch

    def full(_: Any, path: Path) -> None:
        path.write_bytes(b"some of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(safetensors.torch, "save_file", full)
        done = typed(*BASE)
    run = the_run(tmp_path / "outputs")
    assert done.code == 1 and f"resume={run.relative_to(tmp_path)}" in done.stderr and not list(run.rglob("*.partial"))
    done = typed(f"resume={run}")
    assert done.code == 0 and result(run)["status"] == "finished" and done.stdout.count("epoch ") == 1, done.text


def test_no_room_for_the_result_does_not_hide_what_went_wrong(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = record.write_json

    def full(path: Path, value: Any) -> None:
        if value.get("status") == "failed":
            raise OSError(errno.ENOSPC, "No space left on device")
        plain(path, value)

    monkeypatch.setattr(record, "write_json", full)
    done = typed(*BASE, "+callbacks.bad={_target_:tests.strangers.Explodes,update:3,message:boom}")
    assert done.code == 1 and "RuntimeError: boom" in done.stderr
    assert "result.json cannot be written: No space left on device" in done.stdout
    assert result(the_run(tmp_path / "outputs"))["status"] == "running"  # with a free lock: cut off


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_directory_that_cannot_be_written_is_refused(
    stopped: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    assert stopped(20, *BASE).code == 143
    run = the_run(tmp_path / "outputs")

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(number, "not here")

    monkeypatch.setattr(filelock.FileLock, "acquire", refused)
    for resume in (str(run), "auto"):
        done = stopped(None, *BASE, f"resume={resume}")
        assert done.code == 2 and done.stderr == f"{run} cannot be written (not here), so nothing can run in it.\n"


# Two at once


@pytest.mark.slow
def test_two_that_want_one_run_do_not_share_it(stopped: Typed, tmp_path: Path) -> None:
    words = ["model=mlp", "trainer.max_epochs=200", "trainer.num_threads=1"]
    assert stopped(20, *words, "name=cut").code == 143
    run = the_run(tmp_path / "outputs")
    words += ["+callbacks.signal._target_=tests.strangers.Signal", f"resume={run}"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    both = [
        subprocess.Popen(
            [sys.executable, str(ROOT / "train.py"), *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**USER_ENVIRONMENT, "PYTHONPATH": path, "STOP_AT": "-1"},
        )
        for _ in range(2)
    ]
    texts = [process.communicate(timeout=120) for process in both]
    assert sorted(process.returncode for process in both) == [0, 2], texts
    loser = next(text for process, text in zip(both, texts, strict=True) if process.returncode == 2)
    assert "is being written by process" in loser[1] and len(loser[1].splitlines()) == 1
    assert result(run)["status"] == "finished"


# Names


def test_epochs_are_counted_not_spelt(tmp_path: Path) -> None:
    for name in ("epoch-0002.pt", "epoch-9999.pt", "epoch-10000.pt", "epoch-of-mine.pt"):
        torch.save({"model": {}, "progress": {"update": 1}}, tmp_path / name)
    assert [path.name for path in checkpoint.candidates(tmp_path)] == [
        "epoch-10000.pt",
        "epoch-9999.pt",
        "epoch-0002.pt",
    ]
    writer = checkpoint.Writer(keep_epochs=1)
    writer.save({tmp_path / "epoch-10001.pt": {"model": {}}})
    writer.wait()
    assert {path.name for path in tmp_path.iterdir()} == {"epoch-10001.pt", "epoch-of-mine.pt"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two words", "a=b,c", "ü日本", "it's", "100%#@[x]{y}", "${name}", "-m"])
def test_a_run_in_an_oddly_named_place_goes_on(
    stopped: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A02"""
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    assert stopped(20, *BASE).code == 143
    done = stopped(None, *BASE, "resume=auto")
    assert done.code == 0 and "going on after update 20" in done.stdout, done.text
    run = the_run(Path("outputs"))
    done = stopped(None, *BASE, f"resume={run}")
    assert done.code == 0 and "already finished" in done.stdout, done.text


def test_a_last_line_that_was_cut_is_no_line(stopped: Typed, tmp_path: Path) -> None:
    """Or the next would be glued to it, and neither could be read."""
    assert stopped(20, *BASE).code == 143
    metrics = the_run(tmp_path / "outputs") / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-1])
    done = stopped(99, *BASE, "resume=auto")
    assert done.code == 2 and "metrics.jsonl has lost lines" in done.stderr, done.text
