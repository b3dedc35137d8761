"""What `auto` means on this machine."""

import os
from typing import Any, Literal

import torch

from torchlite.errors import UserError

DEFAULT_THREADS = torch.get_num_threads()  # read once: a job that sets its own number must not change the next job's


def find_device(name: str) -> torch.device:
    """The device of that name; for "auto" an accelerator, or the CPU. Raises UserError where it cannot be used."""
    if name == "auto":
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return accelerator or torch.device("cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"trainer.device={name} cannot be used here: {reason} (auto finds one)") from error


def set_threads(num_threads: int | Literal["auto"]) -> int:
    """Set and return the number of threads that PyTorch computes with; "auto" is its own choice at the start."""
    threads = DEFAULT_THREADS if num_threads == "auto" else num_threads
    torch.set_num_threads(threads)
    return threads


def environment(
    names: tuple[str, ...] = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "CUDA_VISIBLE_DEVICES"),
) -> dict[str, Any]:
    """Those environment variables that change speed or last bits, as they are set."""
    return {name: os.environ[name] for name in names if name in os.environ}
