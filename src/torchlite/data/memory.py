"""How much there is to work with: memory, workers."""

import contextlib
import ctypes
import os
from pathlib import Path

import torch

from torchlite.data.cores import num_cores


def default_workers() -> int:
    """Half the cores, at least 1, at most 16."""
    return max(1, min(num_cores() // 2, 16))


def available(device: torch.device) -> int:
    """Bytes free for data: of the machine, of its container, and of the device if that has memory of its own."""
    free = [_machine(), *_container()]
    if device.type == "cuda":
        free.append(torch.cuda.mem_get_info(device)[0])
    return min(free)


def return_freed() -> None:
    """Give memory that is free in the middle of the heap back to the system; does nothing where libc is not glibc.

    Batches of some megabytes, made while workers' answers are taken apart, leave holes that the next batch just does
    not fit: a run of small batches grew by 1.5 GB without this.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # not Linux: the memory there is, not knowing how much of it is free
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _container() -> list[int]:
    """Bytes left under a control group's limit (version 2, then 1); empty where there is none."""
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            return [max(int(Path(limit).read_text()) - int(Path(used).read_text()), 0)]
        except (OSError, ValueError):  # ValueError: "max"
            continue
    return []
