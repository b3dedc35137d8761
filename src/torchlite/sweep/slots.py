"""Room for jobs on this machine: cores divided among them, and GPUs that no other sweep uses meanwhile."""

import contextlib
import logging
import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import filelock

from torchlite.data.cores import num_cores
from torchlite.errors import UserError

log = logging.getLogger("torchlite")


def visible_gpus() -> list[str]:
    """Names of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES takes them."""
    import torch

    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    names = [name.strip() for name in asked.split(",")] if asked else [str(index) for index in range(count)]
    return names[:count]


class Slots:
    """So many jobs at a time, each with its share of the cores and, where there are GPUs, one of them.

    A GPU is held by a lock file that every user of the machine looks at, so another sweep takes another one. Only when more
    jobs are asked for than there are GPUs do several jobs of this sweep share one.

    Args:
        num_jobs: "auto": one on each GPU, or where there is none one for every 4 cores, but at least 2.
        devices: `trainer.device` of the jobs.

    Raises:
        UserError: a number below 1, or jobs that name a GPU by its number.
    """

    def __init__(self, num_jobs: int | str, devices: Sequence[str], gpus: Sequence[str] | None = None) -> None:
        on_gpu = any(device == "auto" or device.startswith("cuda") for device in devices)
        self.gpus = list(visible_gpus() if gpus is None else gpus) if on_gpu else []
        numbered = [device for device in devices if device.startswith("cuda:")]
        if self.gpus and numbered:
            raise UserError(f"trainer.device={numbered[0]}: a sweep gives each job a GPU of its own; say cuda or auto.")
        if num_jobs == "auto":
            num_jobs = len(self.gpus) or max(2, num_cores() // 4)
        if not isinstance(num_jobs, int) or isinstance(num_jobs, bool) or num_jobs < 1:
            raise UserError(f"hydra.launcher.num_jobs={num_jobs}: give a whole number from 1 upwards, or auto.")
        self.num_jobs = num_jobs
        self.num_cores = max(1, num_cores() // num_jobs)  # of each job
        self.used = 0
        self._held: dict[str, int] = dict.fromkeys(self.gpus, 0)  # jobs of this sweep on each
        self._locks: dict[str, filelock.BaseFileLock] = {}

    def take(self) -> "Slot | None":
        """Room for one more job, or None: there are as many as may be, or others have every GPU."""
        if self.used >= self.num_jobs:
            return None
        if not self.gpus:
            self.used += 1
            return Slot(self, None)
        most = math.ceil(self.num_jobs / len(self.gpus))
        for gpu in sorted(self.gpus, key=lambda gpu: self._held[gpu]):
            if self._held[gpu] >= most:
                continue
            if self._held[gpu] == 0:
                lock = filelock.FileLock(_lock_file(gpu), blocking=False, mode=0o666)
                try:
                    lock.acquire()
                except filelock.Timeout:  # another sweep has it
                    continue
                except OSError as error:  # whether one has it cannot be told
                    log.warning(f"GPU {gpu} is used without a lock: {error}")
                self._locks[gpu] = lock
            self._held[gpu] += 1
            self.used += 1
            return Slot(self, gpu)
        return None

    def give_back(self, gpu: str | None) -> None:
        """One job less; a GPU without any is free for others."""
        self.used -= 1
        if gpu is not None:
            self._held[gpu] -= 1
            if self._held[gpu] == 0:
                self._locks.pop(gpu).release()


class Slot:
    """Room for one job."""

    def __init__(self, slots: Slots, gpu: str | None) -> None:
        self.slots, self.gpu = slots, gpu

    @property
    def environment(self) -> dict[str, str]:
        """What tells the job's process its share."""
        own = {"TORCHLITE_CORES": str(self.slots.num_cores)}
        return own if self.gpu is None else {**own, "CUDA_VISIBLE_DEVICES": self.gpu}

    def give_back(self) -> None:
        self.slots.give_back(self.gpu)


def _lock_file(gpu: str) -> Path:
    folder = Path(tempfile.gettempdir(), "torchlite-gpus")
    with contextlib.suppress(OSError):  # somebody else's
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)  # with a sticky bit nobody could lock a file that another user made
    return folder / gpu.replace("/", "-")
