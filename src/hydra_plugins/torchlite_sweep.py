"""What Hydra finds by itself: the sweeper that plans every job first, and the launcher with a process for each job."""

import sys
from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf


class Jobs(Sweeper):
    """Every combination of the words typed, and what a sweep file lists; see torchlite.sweep.

    Args:
        parts: product, zip, list and join of a sweep file, as torchlite.sweep.grid takes them, which refuses others.
    """

    def __init__(self, **parts: Any) -> None:
        self.parts = {name: _plain(part) for name, part in parts.items() if part is not None}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from hydra.core.plugins import Plugins

        self.config = config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        from torchlite import stopping

        with stopping.loading():
            from torchlite.sweep import command

        assert self.config is not None and self.launcher is not None, "Hydra calls setup first"
        command.sweep(self.config, self.launcher, arguments, self.parts)


class Local(Launcher):
    """Jobs in processes of their own on this machine.

    Args:
        num_jobs: at a time; "auto": one on each GPU, or where there is none one for every 4 cores, but at least 2.
    """

    def __init__(self, num_jobs: int | str = "auto") -> None:
        self.num_jobs = num_jobs

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None: ...

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        print(
            "hydra/launcher=local and serial need hydra/sweeper=jobs; with another sweeper say hydra/launcher=basic.",
            file=sys.stderr,
        )
        raise SystemExit(2)


def _plain(part: Any) -> Any:
    return OmegaConf.to_container(part, resolve=True) if OmegaConf.is_config(part) else part
