"""Before a sweep's first job: compose and check them all."""

import os
import re
import sys
import traceback
from collections.abc import Callable
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
from torchlite.errors import FAULT, MISTAKE, UserError
from torchlite.naming import run_name


class Plan(Callback):
    """Hydra's hooks around a sweep: nothing starts unless every job is sound; at the end every failure is named."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        try:
            self.directory, self.jobs = plan(config)
        except UserError as error:
            print(error, file=sys.stderr)
            raise SystemExit(MISTAKE) from None
        except Exception:  # Hydra would swallow it and start the jobs
            traceback.print_exc()
            raise SystemExit(FAULT) from None

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
        master.hydra.overrides.hydra.append(f"hydra.sweep.dir={_quoted(directory)}")
        master.hydra.overrides.hydra.append("hydra.job.chdir=false")  # relative paths stay the caller's
    words = [list(job) for job in BasicSweeper.split_arguments(overrides, None)[0]]
    jobs = _each(words, lambda job: _compose(master, job, directory))
    _refuse_twins(jobs)
    from torchlite import run  # brings torch, which no wrong word has to wait for

    _each(words, lambda job: run.check(jobs[words.index(job)]))
    return directory, jobs


def _refuse_twins(jobs: list[Composed]) -> None:
    """Raise UserError where two jobs would compute the same, as when only `name` or `data_dir` is swept."""
    seen: dict[str, Composed] = {}
    for job in jobs:
        twin = seen.setdefault(job.identity, job)
        if twin is not job:
            one, other = (" ".join(words.overrides) for words in (twin, job))
            raise UserError(f"two jobs would compute the same: {one} and {other}; leave one out.")


def _each(words: list[list[str]], do: Callable[[list[str]], Any]) -> list[Any]:
    """What `do` gives for every job. Raises UserError with the problems of all of them."""
    done, problems = [], []
    for job in words:
        try:
            done.append(do(job))
        except UserError as error:
            problems += [f"{line}  (job {' '.join(job)})" for line in str(error).splitlines()]
    if problems:
        raise UserError("\n".join(problems[:12] + ([f"… and {len(problems) - 12} more"] if len(problems) > 12 else [])))
    return done


def _quoted(path: Path) -> str:
    """A path as Hydra's grammar takes it: a quote is escaped, and so are backslashes, but only before a quote."""
    return (
        "'"
        + re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + m[2].replace("'", "\\'"), str(path)).replace("${", "\\${")
        + "'"
    )


def _compose(master: DictConfig, words: list[str], directory: Path) -> Composed:
    base = config.as_typed(master.hydra.overrides.hydra)
    try:
        cfg = compose(master.hydra.job.config_name, [*base, *words], return_hydra_config=True)
    except HydraException as error:
        raise UserError("\n".join(config.explain([*words], sweep=True)) or str(error).splitlines()[0]) from error
    return config.plain(config.without_hydra(cfg), dict(cfg.hydra.runtime.choices), words, directory)
