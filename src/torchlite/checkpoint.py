"""Checkpoints that are whole or not there: written aside, synced, renamed; read back only if every byte is as written."""

import os
import zipfile
from pathlib import Path
from typing import Any

import torch

from torchlite.errors import UserError


def save(path: Path, state: dict[str, Any]) -> None:
    """Write `state` (tensors and plain types) to `path`; whatever happens meanwhile, `path` holds the old or the new state.

    torch.save stores a CRC-32 for every tensor and for the structure; `load` checks them.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.partial")  # one name per target, so a kill leaves one leftover, not many
    with open(aside, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
    _sync_directory(path.parent)


def load(path: Path) -> dict[str, Any]:
    """The state saved at `path`, on the CPU. Raises UserError for a missing, damaged or foreign file; runs no code from it."""
    if not path.is_file():
        raise UserError(f"There is no checkpoint {path}.")
    damaged = UserError(f"The checkpoint {path} is damaged or is no checkpoint of ours.")
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:
                raise damaged
        state = torch.load(path, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except Exception as error:  # zipfile, pickle and torch each have their own way to say "not readable"
        raise damaged from error
    if not isinstance(state, dict) or "model" not in state:
        raise UserError(f"{path} holds no weights under the key `model`, so it is no checkpoint of ours.")
    return state


def _sync_directory(directory: Path) -> None:
    """Make a rename last through a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
