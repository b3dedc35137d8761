"""Before a sweep's first job: compose and check them all, and say what is to be done and what it will take."""

import copy
import json
import os
import shutil
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.table import Table

from torchlite import command_line, config, stopping
from torchlite.config import Composed
from torchlite.data.cores import num_cores
from torchlite.errors import UserError
from torchlite.naming import GROUPS, run_name
from torchlite.record import FINISHED, read_result
from torchlite.sweep import grid
from torchlite.sweep.jobs import Job

MOST_PROBLEMS, MOST_ROWS, MOST_JOBS = 12, 40, 3  # shown; the last of each problem


def compose_all(master: DictConfig, arguments: Sequence[str], parts: dict[str, Any]) -> tuple[Path, list[Composed]]:
    """The sweep's directory and every job. Raises UserError with the problems of all of them; nothing is created."""
    loader = GlobalHydra.instance().config_loader()
    typed = OverridesParser.create(loader).parse_overrides(list(arguments))
    files = [override.input_line for override in typed if override.key_or_group == "sweep"]
    if any(override.is_sweep_override() for override in typed if override.key_or_group == "sweep"):
        raise UserError(f"{files[0]}: one sweep file at a time; a file of yours can join the parts of both.")
    if files and not parts:
        raise UserError(
            f"{files[0]}: the file lists nothing. It begins with `# @package hydra.sweeper` and has product, zip, list or join."
        )
    words = grid.jobs([override for override in typed if override.key_or_group != "sweep"], parts)
    if not words:
        raise UserError("no job: the sweep file lists none, or a range is empty.")
    name = master.name or _name(master, words)
    directory = Path(os.getcwd(), "outputs", str(name))
    with open_dict(master):
        master.hydra.sweep.dir = str(directory)
        # A job's config may be composed anew, in another process: this is how the directory reaches it
        master.hydra.overrides.hydra.append(f"hydra.sweep.dir={grid.quoted(str(directory))}")
        master.hydra.overrides.hydra.append("hydra.job.chdir=false")  # relative paths stay the caller's
    composer = _Composer(master, directory)
    jobs = _each(words, words, composer.compose)
    _refuse_twins(jobs)
    return directory, jobs


def check_all(jobs: Sequence[Composed]) -> None:
    """Raise UserError with what is wrong with any job; jobs that differ in the seed alone are checked once."""
    with stopping.loading():
        from torchlite import run  # brings torch, which no wrong word has to wait for

    unlike = {json.dumps({**job.config, "seed": 0}, sort_keys=True, default=str): job for job in reversed(jobs)}
    kept = list(reversed(unlike.values()))
    _each(kept, [job.overrides for job in kept], run.check)


def _name(master: DictConfig, words: list[list[str]]) -> str:
    """Made of the words that every job has; after the sweep file where there is one."""
    choices = dict(master.hydra.runtime.choices)
    common = set.intersection(*map(set, words))
    keys = {word.partition("=")[0] for job in words for word in job if word not in common}
    file = choices.get("sweep")
    made = run_name(choices, sorted(common), frozenset(keys))
    return f"{made}-{file}" if file else made


def _refuse_twins(jobs: list[Composed]) -> None:
    """Raise UserError where two jobs would compute the same, as when only `name` or `data_dir` is swept."""
    seen: dict[str, Composed] = {}
    for job in jobs:
        twin = seen.setdefault(job.identity, job)
        if twin is not job:
            one, other = (" ".join(words.overrides) for words in (twin, job))
            raise UserError(f"two jobs would compute the same: {one} and {other}; leave one out.")


def _each(jobs: Sequence[Any], words: Sequence[Sequence[str]], do: Callable[[Any], Any]) -> list[Any]:
    """What `do` gives for every job. Raises UserError with the problems of all of them, equal ones once."""
    done, problems = [], dict[str, list[str]]()
    for job, typed in zip(jobs, words, strict=True):
        try:
            done.append(do(job))
        except UserError as error:
            for line in str(error).splitlines():
                problems.setdefault(line, []).append(" ".join(typed))
    if problems:
        lines = [f"{line}  {_which(at_fault, len(words))}" for line, at_fault in problems.items()]
        more = [f"… and {len(lines) - MOST_PROBLEMS} more"] if len(lines) > MOST_PROBLEMS else []
        raise UserError("\n".join(lines[:MOST_PROBLEMS] + more))
    return done


def _which(jobs: list[str], total: int) -> str:
    if len(jobs) == total > 1:
        return f"(all {total} jobs)"
    more = f" and {len(jobs) - MOST_JOBS} more" if len(jobs) > MOST_JOBS else ""
    return ", ".join(f"(job {job})" for job in jobs[:MOST_JOBS]) + more


class _Composer:
    """Composes jobs: once for each choice of options, since that is what takes Hydra its time; numbers are set in copies."""

    def __init__(self, master: DictConfig, directory: Path) -> None:
        self.master, self.directory = master, directory
        self.base = config.as_typed(master.hydra.overrides.hydra)
        self.options: dict[tuple[str, ...], tuple[DictConfig, dict[str, Any]]] = {}

    def compose(self, words: list[str]) -> Composed:
        overrides = [OverridesParser.create().parse_override(word) for word in words]
        values = [override for override in overrides if _is_value(override)]
        others = tuple(override.input_line or "" for override in overrides if not _is_value(override))
        try:
            if others not in self.options:
                cfg = compose(self.master.hydra.job.config_name, [*self.base, *others], return_hydra_config=True)
                self.options[others] = config.without_hydra(cfg), dict(cfg.hydra.runtime.choices)
            cfg, choices = copy.deepcopy(self.options[others])
            for override in values:  # as Hydra does
                OmegaConf.update(cfg, override.key_or_group, override.value(), merge=True)
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            raise UserError("\n".join(command_line.explain(words, sweep=True)) or str(error).splitlines()[0]) from error
        return config.plain(cfg, choices, words, self.directory)


def _is_value(override: Override) -> bool:
    """Whether it sets a key that is there, and chooses no option of a group."""
    chooses = override.key_or_group in (*GROUPS, "experiment") or "/" in override.key_or_group
    return override.type == OverrideType.CHANGE and not chooses and override.package is None


def check_data(jobs: Sequence[Job]) -> None:
    """Build each data set that the jobs name, once, so that what is missing shows now and what is decoded is kept.

    Raises:
        UserError: what building it raises.
    """
    import torch

    from torchlite import build

    problems = []
    seen: set[str] = set()
    for job in jobs:
        if job.state == FINISHED:
            continue
        node = job.composed.config["data"]
        key = json.dumps({k: v for k, v in node.items() if k not in ("batch_size", "num_workers")}, default=str)
        if key not in seen:
            seen.add(key)
            try:  # on the CPU, so that this process holds no GPU
                build.data(node, seed=job.composed.config["seed"], device=torch.device("cpu"))
            except UserError as error:
                problems.append(str(error))
    if problems:
        raise UserError("\n".join(dict.fromkeys(problems)))


# What it will take


def shape(config: dict[str, Any]) -> str:
    """Equal for configs whose runs take as long and as much disk: all but seeds, optimizer and schedule."""
    nodes = {name: config[name] for name in ("data", "model", "trainer", "task")}
    return json.dumps(nodes, sort_keys=True, default=str)


def needs(jobs: Sequence[Job], outputs: Path, newest: int = 300) -> tuple[float | None, float | None]:
    """Seconds and bytes that the unfinished jobs will take one after the other, as far as earlier runs of one shape tell.

    Args:
        newest: earlier runs that are looked at.
    """
    wanted = {shape(job.composed.record) for job in jobs if job.state != FINISHED}
    seconds: dict[str, list[float]] = {}
    sizes: dict[str, list[int]] = {}
    runs = sorted(outputs.glob("*/*/result.json"), key=lambda path: path.stat().st_mtime, reverse=True)[:newest]
    for run in (path.parent for path in runs):
        result = read_result(run)
        try:
            found = shape(json.loads((run / "run.json").read_text(encoding="utf-8"))["config"])
            took = float(result["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if result.get("status") == FINISHED and found in wanted:
            seconds.setdefault(found, []).append(took)
            sizes.setdefault(found, []).append(sum(f.stat().st_size for f in run.rglob("*") if f.is_file()))
    left = [shape(job.composed.record) for job in jobs if job.state != FINISHED]
    if not left or not wanted <= seconds.keys():
        return None, None
    return sum(statistics.median(seconds[key]) for key in left), sum(statistics.median(sizes[key]) for key in left)


def show(jobs: Sequence[Job], directory: Path, at_a_time: int, console: Console) -> None:
    """Print the plan: how many jobs in which state, what they differ in, the time and disk they will take."""
    counts = {state: sum(job.state == state for job in jobs) for state in dict.fromkeys(job.state for job in jobs)}
    said = ", ".join(f"{count} {state}" for state, count in counts.items())
    console.print(f"{len(jobs)} jobs in {_short(directory)}: {said}", markup=False, soft_wrap=True)
    seconds, size = needs(jobs, directory.parent)
    if seconds is not None and size is not None:
        free = shutil.disk_usage(directory.parent if directory.parent.exists() else ".").free
        console.print(
            f"about {duration(seconds / at_a_time)} and {size / 1e6:.0f} MB, as earlier runs of this shape took; "
            f"{free / 1e9:.0f} GB are free",
            soft_wrap=True,
        )
        if size > free:
            console.print(
                f"warning: the disk holds {free / 1e9:.1f} GB, the jobs need {size / 1e9:.1f}", soft_wrap=True
            )
    elif any(job.state != FINISHED for job in jobs):
        console.print("no earlier run of this shape tells what time and disk they will take")
    asked = jobs[0].composed.num_threads or 1
    if at_a_time > 1 and asked * at_a_time > num_cores():
        console.print(
            f"warning: each job computes with {asked} threads, as when the sweep began, and {at_a_time} at a time are "
            f"more than {num_cores()} cores; that is slower than one at a time",
            soft_wrap=True,
        )
    table = Table(box=None, pad_edge=False)
    for column in ("", "job", "state"):
        table.add_column(column, overflow="fold")
    for number, job in enumerate(jobs[:MOST_ROWS], 1):
        table.add_row(str(number), job.label, job.state)
    console.print(table, markup=False)
    if len(jobs) > MOST_ROWS:
        console.print(f"… and {len(jobs) - MOST_ROWS} more")


def duration(seconds: float) -> str:
    """`41 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
