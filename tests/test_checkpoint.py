"""Checkpoints: whole or not there, read safely, and the one before when the newest is damaged."""

import errno
import os
import pickle
import pickletools
import shutil
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import Typed
from tests.runs import result, same, state, the_run
from torchlite import checkpoint
from torchlite.errors import UserError
from torchlite.randomness import generators


def some_state(number: int = 0) -> dict[str, Any]:
    return {"model": {"w": torch.full((1000,), float(number))}, "progress": {"update": number}, "scores": {}}


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    saved = some_state(3) | {"nested": [1, 2.5, None, "text", {"a": (1, 2)}], "generators": generators()}
    checkpoint.save(tmp_path / "last.pt", saved)
    assert same(checkpoint.load(tmp_path / "last.pt"), saved)


@pytest.mark.parametrize("damage", ["half", "empty", "text", "another pickle", "no weights"])
def test_a_damaged_or_foreign_file_is_told_apart(tmp_path: Path, damage: str) -> None:
    """E04"""
    path = tmp_path / "last.pt"
    checkpoint.save(path, some_state())
    content = bytearray(path.read_bytes())
    if damage == "half":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "text":
        path.write_text("not a checkpoint")
    elif damage == "another pickle":
        path.write_bytes(pickle.dumps({"model": 1}))
    else:
        torch.save({"weights": torch.ones(1)}, path)
    with pytest.raises(UserError, match="damaged|no weights under the key"):
        checkpoint.load(path)


def test_every_byte_of_the_weights_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    checkpoint.save(path, some_state(7))
    with zipfile.ZipFile(path) as archive:
        info = next(item for item in archive.infolist() if "/data/" in item.filename)
    content = bytearray(path.read_bytes())
    start = content.index(torch.full((4,), 7.0).numpy().tobytes())
    for offset in (start, start + 1234, start + info.file_size - 1):
        changed = bytearray(content)
        changed[offset] ^= 1
        path.write_bytes(changed)
        with pytest.raises(UserError, match="damaged"):
            checkpoint.load(path)


def test_the_one_before_is_used_and_it_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = checkpoint.Writer()
    for number in (1, 2, 3):
        writer.save({tmp_path / "last.pt": some_state(number)})
    writer.wait()
    assert {path.name for path in tmp_path.iterdir()} == {"last.pt", "previous.pt"}
    found = checkpoint.newest(tmp_path)
    assert found is not None and found["progress"]["update"] == 3
    (tmp_path / "last.pt").write_bytes(b"")
    found = checkpoint.newest(tmp_path)
    assert found is not None and found["progress"]["update"] == 2
    assert "last.pt is damaged" in caplog.text and "previous.pt, at update 2" in caplog.text
    (tmp_path / "previous.pt").write_bytes(b"x")
    with pytest.raises(UserError, match="No checkpoint in .* can be read"):
        checkpoint.newest(tmp_path)
    assert checkpoint.newest(tmp_path / "nowhere") is None


class Touch:
    """What a hostile file would do when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("touch pwned",)


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("word", ["resume", "model.weights"])
def test_a_hostile_file_runs_nothing(typed: Typed, tmp_path: Path, legacy: bool, word: str) -> None:
    """O03"""
    assert typed("trainer=smoke", "model=mlp").code == 0
    run = the_run(tmp_path / "outputs")
    (run / "result.json").write_text('{"status": "stopped"}')
    for path in (run / "checkpoints").iterdir():
        torch.save({"model": Touch(), "progress": {}}, path, _use_new_zipfile_serialization=not legacy)
    target = run if word == "resume" else run / "checkpoints" / "best.pt"
    done = typed("trainer=smoke", "model=mlp", f"{word}={target}")
    assert done.code == 2, done.text
    assert not (tmp_path / "pwned").exists() and "Traceback" not in done.text


def test_checkpoints_hold_plain_types_alone(typed: Typed, tmp_path: Path) -> None:
    """E05"""
    assert typed("trainer=smoke", "model=mlp", "optimizer=adam").code == 0
    for path in (the_run(tmp_path / "outputs") / "checkpoints").glob("*.pt"):
        saved = torch.load(path, weights_only=True)
        with zipfile.ZipFile(path) as archive:
            name = next(item for item in archive.namelist() if item.endswith("data.pkl"))
            named = {str(argument) for _, argument, _ in pickletools.genops(archive.read(name)) if argument}
        assert not any("omegaconf" in word or "torchlite." in word and "_target_" not in word for word in named)
    assert saved["model"]


def test_a_checkpoint_of_a_gpu_opens_without_one(tmp_path: Path) -> None:
    """E06: storages tagged cuda:0, as a GPU would write them."""
    path = tmp_path / "last.pt"
    checkpoint.save(path, some_state(5))
    tagged = tmp_path / "tagged.pt"
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(tagged, "w") as out:
        for item in archive.infolist():
            content = archive.read(item)
            if item.filename.endswith("data.pkl"):
                assert b"X\x03\x00\x00\x00cpu" in content
                content = content.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
            out.writestr(item.filename, content, zipfile.ZIP_STORED)
    assert same(checkpoint.load(tagged)["model"], some_state(5)["model"])


# Writing in the background


def test_a_snapshot_is_not_changed_by_later_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, go = threading.Event(), threading.Event()
    plain = torch.save

    def slow(*arguments: Any, **options: Any) -> None:
        started.set()
        go.wait(10)
        plain(*arguments, **options)

    monkeypatch.setattr(torch, "save", slow)
    weights = torch.ones(5)
    writer = checkpoint.Writer()
    writer.save({tmp_path / "last.pt": {"model": {"w": weights, "again": weights}}})
    started.wait(10)
    weights.zero_()
    go.set()
    writer.wait()
    saved = checkpoint.load(tmp_path / "last.pt")["model"]
    assert saved["w"].tolist() == [1.0] * 5 and saved["w"].data_ptr() == saved["again"].data_ptr()


def test_any_failure_of_a_write_reaches_the_loop(tmp_path: Path) -> None:
    writer = checkpoint.Writer()
    writer.save({tmp_path / "last.pt": some_state(1)}, sync=lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(ZeroDivisionError):
        writer.wait()


def test_a_damaged_newest_does_not_replace_the_whole_one_before(tmp_path: Path) -> None:
    for number in (1, 2):
        checkpoint.save(tmp_path / "last.pt", some_state(number), keep_previous=True)
    (tmp_path / "last.pt").write_bytes(b"half")
    found = checkpoint.newest(tmp_path)
    assert found is not None and found["progress"]["update"] == 1
    checkpoint.save(tmp_path / "last.pt", some_state(3), keep_previous=True)
    assert checkpoint.load(tmp_path / "previous.pt")["progress"]["update"] == 1


def test_a_file_system_without_hard_links_keeps_the_one_before_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    for number in (1, 2, 3):
        checkpoint.save(tmp_path / "last.pt", some_state(number), keep_previous=True)
    assert {path.name for path in tmp_path.iterdir()} == {"last.pt", "previous.pt"}
    assert checkpoint.load(tmp_path / "previous.pt")["progress"]["update"] == 2


def test_old_numbered_checkpoints_are_dropped(tmp_path: Path) -> None:
    writer = checkpoint.Writer(keep_epochs=2)
    for epoch in range(1, 6):
        writer.save({tmp_path / f"epoch-{epoch:04d}.pt": some_state(epoch)})
    writer.wait()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-0004.pt", "epoch-0005.pt"]


def test_a_run_that_went_back_keeps_what_it_writes(tmp_path: Path) -> None:
    for later in (9, 10):
        checkpoint.save(tmp_path / f"epoch-{later:04d}.pt", some_state(later))
    writer = checkpoint.Writer(keep_epochs=2)
    for epoch in (4, 5, 6):
        writer.save({tmp_path / f"epoch-{epoch:04d}.pt": some_state(epoch)})
    writer.wait()
    assert [int(path.stem[-4:]) for path in checkpoint.numbered(tmp_path)] == [5, 6, 9, 10]


def test_numbered_checkpoints_of_a_run(typed: Typed, tmp_path: Path) -> None:
    words = ["model=mlp", "trainer.max_epochs=6", "trainer.save_every_epochs=2", "trainer.keep_epochs=2"]
    assert typed(*words).code == 0
    names = {path.name for path in (the_run(tmp_path / "outputs") / "checkpoints").iterdir()}
    assert names == {"last.pt", "previous.pt", "best.pt", "epoch-0004.pt", "epoch-0006.pt", "best.safetensors"}


def test_a_full_disk_leaves_the_last_good_checkpoint(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, calls = torch.save, []

    def full_on_the_third(value: Any, file: Any) -> None:
        calls.append(1)
        if len(calls) == 5:
            file.write(b"some of it")
            raise OSError(28, "No space left on device")
        plain(value, file)

    words = ["model=mlp", "trainer.max_epochs=8", "trainer.num_threads=1", "optimizer.lr=0"]
    words.append("trainer.save_pause_seconds=0")
    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", full_on_the_third)
        done = typed(*words, "name=cut")
    assert done.code == 1
    run = the_run(tmp_path / "outputs")
    message = result(run)["failure"]["message"]
    assert "No space left on device" in message and f"Go on with: resume={run.relative_to(tmp_path)}" in message
    assert state(run)["progress"]["epoch"] == 3 and not list(run.rglob("*.partial"))
    assert typed(*words, "name=cut", f"resume={run}").code == 0


def test_leftovers_of_a_kill_do_not_pile_up(tmp_path: Path) -> None:
    """E01"""
    for name in (".last.pt.partial", ".previous.pt.partial"):
        (tmp_path / name).write_bytes(b"half")
    checkpoint.save(tmp_path / "last.pt", some_state(1))
    checkpoint.save(tmp_path / "last.pt", some_state(2), keep_previous=True)
    assert {path.name for path in tmp_path.iterdir()} == {"last.pt", "previous.pt"}
    assert checkpoint.load(tmp_path / "previous.pt")["progress"]["update"] == 1


def test_the_weights_for_use_are_in_safetensors(typed: Typed, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    assert typed("trainer=smoke", "model=mlp").code == 0
    run = the_run(tmp_path / "outputs")
    assert same(load_file(run / "checkpoints" / "best.safetensors"), state(run, "best")["model"])
    assert len({path.stat().st_mode for path in (run / "checkpoints").iterdir()}) == 1  # who may read one may read all
    moved = shutil.copy(run / "checkpoints" / "best.safetensors", tmp_path / "moved.safetensors")
    done = typed("trainer=smoke", "model=mlp", f"model.weights={moved}")
    assert done.code == 0 and "tensors taken from" in done.stdout


def test_what_cannot_be_read_back_is_named_when_it_is_saved(tmp_path: Path) -> None:
    """Numpy's numbers, which a schedule by numpy's cosine gives, become plain ones."""
    writer = checkpoint.Writer()
    odd = {"lr": np.float64(0.1), "steps": range(3), np.int64(4): (np.float32(0.5), [np.str_("a")])}
    writer.save({tmp_path / "last.pt": some_state(1) | {"odd": odd}})
    writer.wait()
    assert checkpoint.load(tmp_path / "last.pt")["odd"] == {"lr": 0.1, "steps": [0, 1, 2], 4: (0.5, ["a"])}
    with pytest.raises(UserError, match=r"holds a ndarray \(history\)"):
        writer.save({tmp_path / "last.pt": some_state(2) | {"callbacks": {"mine": {"history": np.zeros(3)}}}})
