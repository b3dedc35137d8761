"""Before a sweep's first job: compose and check them all."""

import os
import sys
from pathlib import Path
from typing import Any

from hydra import compose
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, open_dict

from torchlite import config
from torchlite.config import Composed
from torchlite.errors import FAULT, UserError
from torchlite.naming import run_name


class Plan(Callback):
    """Hydra's hooks around a sweep: nothing starts unless every job is sound; at the end every failure is named."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        try:
            self.directory, self.jobs = plan(config)
        except UserError as error:
            print(error, file=sys.stderr)
            raise SystemExit(2) from None  # any other exception would be swallowed by Hydra

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        from torchlite.record import FINISHED, find, read_result

        failed = []
        for job in self.jobs:
            directory = find(self.directory, job.identity)
            result = {"status": "not started"} | (read_result(directory) if directory else {})
            if result["status"] != FINISHED:
                failed.append((job, directory, result))
        if failed:
            for job, directory, result in failed:
                message = result.get("failure", {}).get("message") or result["status"]
                first_line = (message.splitlines() or [""])[0]
                print(f"failed: {' '.join(job.overrides)}: {first_line}  ({directory})", file=sys.stderr)
            print(f"{len(failed)} of {len(self.jobs)} jobs failed.", file=sys.stderr)
            raise SystemExit(FAULT)


def plan(master: DictConfig) -> tuple[Path, list[Composed]]:
    """The sweep's directory and every job, composed and checked. Raises UserError with all problems."""
    typed = config.as_typed(master.hydra.overrides.task)
    loader = GlobalHydra.instance().config_loader()
    overrides = OverridesParser.create(loader).parse_overrides(typed)
    swept = frozenset(o.key_or_group for o in overrides if o.is_sweep_override())
    choices = dict(master.hydra.runtime.choices)
    name = master.name or run_name(choices, typed, config.GROUPS, swept)
    directory = Path(os.getcwd(), "outputs", str(name))
    with open_dict(master):
        master.hydra.sweep.dir = str(directory)
        # A job's config is composed anew, maybe in another process: this is how the directory reaches it
        master.hydra.overrides.hydra.append(f"hydra.sweep.dir='{directory}'")
        master.hydra.overrides.hydra.append("hydra.job.chdir=false")  # relative paths stay the caller's
    jobs, problems = [], []
    for words in BasicSweeper.split_arguments(overrides, None)[0]:
        try:
            jobs.append(_compose(master, list(words), directory))
        except UserError as error:
            problems += [f"{line}  (job {' '.join(words)})" for line in str(error).splitlines()]
    if problems:
        raise UserError("\n".join(problems[:12] + ([f"… and {len(problems) - 12} more"] if len(problems) > 12 else [])))
    return directory, jobs


def _compose(master: DictConfig, words: list[str], directory: Path) -> Composed:
    from torchlite import run

    base = config.as_typed(master.hydra.overrides.hydra)
    try:
        cfg = compose(master.hydra.job.config_name, [*base, *words], return_hydra_config=True)
    except HydraException as error:
        raise UserError("\n".join(config.explain([*words], sweep=True)) or str(error).splitlines()[0]) from error
    choices = dict(cfg.hydra.runtime.choices)
    job = config.plain(config.without_hydra(cfg), choices, words, directory)
    run.check(job)
    return job
