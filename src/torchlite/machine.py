"""What `auto` means on this machine, and how memory is kept."""

import ctypes
import logging
import os
import platform
from typing import Any, Literal

import torch
from torch import nn

from torchlite.errors import UserError

log = logging.getLogger("torchlite")
DEFAULT_THREADS = torch.get_num_threads()  # read once: a job that sets its own number must not change the next job's
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def find_device(name: str, before: str | None = None) -> torch.device:
    """The device of that name; for "auto" an accelerator, or the CPU. Raises UserError where it cannot be used.

    Args:
        before: what "auto" became when the run began, which it keeps where that is here.
    """
    if name == "auto" and before is not None:
        try:
            return find_device(before)
        except UserError:
            log.warning(f"the run began on {before}, which is not here: from now on it may differ in last bits")
    if name == "auto":
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        name = "cpu" if accelerator is None else str(accelerator)  # which below gets its index, as a typed one does
    try:
        found = torch.empty(0, device=name).device
        if found.type == "meta":
            raise RuntimeError("the meta device holds no numbers")
        return found
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            f"trainer.device={name} cannot be used here; auto finds one, others are cpu, cuda, cuda:1, mps."
        ) from error


def set_threads(num_threads: int | Literal["auto"], auto: int | None = None, before: int | None = None) -> int:
    """Set and return the number of threads that PyTorch computes with.

    Args:
        auto: what "auto" means; None for PyTorch's own choice when it started.
        before: the number that the run began with, which it keeps as far as this machine allows.
    """
    threads = (auto or DEFAULT_THREADS) if num_threads == "auto" else num_threads
    most = 4 * (os.cpu_count() or 1)
    if before is not None:
        threads = min(before, most)
        if threads < before:
            log.warning(f"the run began with {before} threads, here it has {threads}: it may differ in last bits")
    if threads > most:
        raise UserError(f"trainer.num_threads={threads}: this machine has {os.cpu_count()} cores; give at most {most}.")
    torch.set_num_threads(threads)
    return threads


def choose_formats(
    model: nn.Module,
    device: torch.device,
    precision: str,
    channels_last: bool | Literal["auto"],
    compile: bool | Literal["auto"],
    before: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What `auto` stands for in precision, channels_last and compile, for this model on this device.

    bf16 where the device computes in it (CUDA from Ampere on; CPUs with AVX-512 BF16 or AMX, for convolutional networks, which
    gain 2.5 to 3 times by it together with channels_last, while a perceptron loses); compile on CUDA alone.

    Args:
        before: what they were when the run began, which it keeps; all but `compile` where another is asked for.
    """
    if before is not None:
        compile = before["compile"] if compile == "auto" else compile
        precision, channels_last = before["precision"], before["channels_last"]
    convolutional = any(isinstance(module, CONVOLUTIONS) for module in model.modules())
    if precision == "auto":
        precision = "bf16" if computes_in_bf16(device) and (device.type == "cuda" or convolutional) else "fp32"
    if channels_last == "auto":
        channels_last = convolutional and (device.type == "cuda" or precision == "bf16")
    if compile == "auto":
        compile = device.type == "cuda"
    return {"precision": precision, "channels_last": channels_last, "compile": compile}


def computes_in_bf16(device: torch.device) -> bool:
    """Whether the device has instructions for bf16; without them it takes many times as long as fp32."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def keep_freed_memory() -> bool:
    """Let glibc keep big blocks for the next update instead of returning them to the kernel; True where that was done.

    A small CNN's update on CPU takes 20 % less time by it.
    """
    if platform.libc_ver()[0] != "glibc" or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    libc = ctypes.CDLL(None)
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
    largest = (1 << 31) - 1
    # Either alone ends glibc's own adapting of both, so the second follows only what an older glibc took of the first
    kept = libc.mallopt(mmap_threshold, 1 << 30) or libc.mallopt(mmap_threshold, 1 << 25)
    return bool(kept and libc.mallopt(trim_threshold, largest))
