"""What a sweep shows: a live table on a terminal, lines elsewhere; at the end every job, and the failures by cause."""

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from torchlite import provenance
from torchlite.record import FAILED, FINISHED, STOPPED
from torchlite.sweep.jobs import RUNNING, Job
from torchlite.sweep.plan import duration

REFRESH_SECONDS = 0.5
MOST_ROWS = 40
STYLES = {FINISHED: "green", FAILED: "red", RUNNING: "cyan", STOPPED: "yellow"}


class Watcher:
    """Tells people how the jobs are doing."""

    def __init__(self, jobs: Sequence[Job], console: Console, at_a_time: int) -> None:
        self.jobs, self.console, self.at_a_time = jobs, console, at_a_time
        self.numbers = {job.composed.identity: number for number, job in enumerate(jobs, 1)}
        self.began: dict[str, tuple[float, int]] = {}  # when a job was started here, and the epochs it had done
        self.over = {job.composed.identity for job in jobs if job.state == FINISHED}
        self.took: list[float] = []  # seconds of the jobs that finished here
        self.live: Live | None = None
        self._drawn = 0.0
        self._said: set[str] = set()

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """The table is on the terminal while this holds."""
        if not self.console.is_terminal:
            yield
            return
        with Live(console=self.console, auto_refresh=False, transient=True) as self.live:
            yield

    def started(self, job: Job) -> None:
        self.began[job.composed.identity] = time.monotonic(), latest(job.directory).get("epoch", 0)
        self._say(job, "started" if job.state == RUNNING else job.state)

    def started_at(self, job: Job) -> float:
        """Seconds since the epoch, as a file's time would have it: clocks of file systems tick coarsely."""
        return time.time() - (time.monotonic() - self.began[job.composed.identity][0]) - 0.1

    def say_once(self, text: str) -> None:
        """A line that is not repeated."""
        if text not in self._said:
            self._said.add(text)
            self.console.print(text, markup=False, soft_wrap=True)

    def ended(self, job: Job) -> None:
        """A failure shows at once, with its cause and where its log is."""
        self.over.add(job.composed.identity)
        began = self.began.get(job.composed.identity)
        seconds = 0.0 if began is None else time.monotonic() - began[0]
        if job.state == FINISHED and began is not None:
            self.took.append(seconds)
        if job.state == FAILED:
            self.console.print(f"{self._head(job)} failed: {cause(job)}  ({log_of(job)})", markup=False, soft_wrap=True)
        else:
            said = job.state if began is not None else f"{job.state} by another launch"
            self._say(job, f"{said}  {score(job)}  {seconds:.1f} s")

    def draw(self, running: Sequence[Job]) -> None:
        """Refresh the table now and then."""
        if self.live is None or time.monotonic() - self._drawn < REFRESH_SECONDS:
            return
        self._drawn = time.monotonic()
        urgent = {FAILED: 0, RUNNING: 1}
        rows = sorted(self.jobs, key=lambda job: urgent.get(job.state, 2)) if len(self.jobs) > MOST_ROWS else self.jobs
        table = Table(title=self._title(len(running)), box=None, title_justify="left", pad_edge=False)
        for column in ("", "job", "status", "epoch", "score", "time left"):
            table.add_column(column, overflow="fold")
        for job in rows[:MOST_ROWS]:
            epoch, value, left = self._progress(job) if job.state == RUNNING else ("", score(job), "")
            status = Text(job.state, style=STYLES.get(job.state, ""))
            table.add_row(str(self.numbers[job.composed.identity]), Text(job.label), status, epoch, value, left)
        self.live.update(table, refresh=True)

    def _title(self, running: int) -> str:
        ended = len(self.over)
        left = [self._seconds_left(job) for job in self.jobs if job.state == RUNNING]
        waiting = len(self.jobs) - ended - running
        known = [seconds for seconds in left if seconds is not None]
        time_left = ""
        if len(known) == len(left) and (self.took or not waiting):
            rest = waiting * statistics.mean(self.took) / self.at_a_time if waiting else 0.0
            time_left = f", about {duration(rest + max(known, default=0.0))} left"
        return f"{ended} of {len(self.jobs)} jobs ended, {running} running{time_left}"

    def _progress(self, job: Job) -> tuple[str, str, str]:
        """Epoch, latest score and time left of a running job, as its own metrics.jsonl tells."""
        line = latest(job.directory)
        epochs = job.composed.config["trainer"]["max_epochs"]
        monitor = job.composed.config["trainer"]["monitor"]
        done = line.get("epoch", 0)
        value = line.get(monitor)
        left = self._seconds_left(job)
        said = "" if value is None else f"{monitor} {value:.4f}"
        return f"{done}/{epochs}", said, "" if left is None else duration(left)

    def _seconds_left(self, job: Job) -> float | None:
        """By the epochs it did since it was started here."""
        epochs, done = job.composed.config["trainer"]["max_epochs"], latest(job.directory).get("epoch", 0)
        began, before = self.began[job.composed.identity]
        return (time.monotonic() - began) * (epochs - done) / (done - before) if done > before else None

    def _head(self, job: Job) -> str:
        return f"[{self.numbers[job.composed.identity]}/{len(self.jobs)}] {job.label}:"

    def _say(self, job: Job, text: str) -> None:
        if self.live is None:
            self.console.print(f"{self._head(job)} {text}", markup=False, soft_wrap=True)


def latest(run: Path) -> dict[str, Any]:
    """The newest epoch's line of a run, merged over the newest line of all; empty when there is none."""
    try:
        with open(run / "metrics.jsonl", "rb") as file:
            file.seek(max(0, file.seek(0, 2) - 8192))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return {}
    merged: dict[str, Any] = {}
    for text in lines:
        with contextlib.suppress(ValueError):
            line = json.loads(text)
            merged |= line if isinstance(line, dict) else {}
    return merged


def score(job: Job) -> str:
    """The monitored score of the best weights, and the test scores."""
    result, monitor = job.result, job.composed.config["trainer"]["monitor"]
    best = (result.get("best") or {}).get(monitor)
    scores = [] if best is None else [f"{monitor} {best:.4f}"]
    test = result.get("test") or {}
    metric = f"test/{monitor.partition('/')[2]}"
    return "  ".join(scores + ([f"{metric} {test[metric]:.4f}"] if test.get(metric) is not None else []))


def cause(job: Job) -> str:
    """Why a job failed, in one line."""
    failure = job.result.get("failure") or {}
    first = (str(failure.get("message", "")).splitlines() or [""])[0]
    kind = failure.get("type", "")
    if job.reason or not kind:
        return job.reason or str(job.result.get("status", "it wrote no result"))
    return first if kind == "UserError" and first else f"{kind}: {first}".rstrip(": ")


def _is_by_other_code(job: Job, now: tuple[dict[str, Any], str]) -> bool:
    try:
        facts = json.loads((job.directory / "run.json").read_text(encoding="utf-8"))
        return provenance.is_other_code(job.directory, facts, job.composed.config, job.composed.code or now)
    except (OSError, ValueError, KeyError, TypeError):
        return True


def log_of(job: Job) -> str:
    path = job.directory / "train.log"
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def summary(jobs: Sequence[Job], console: Console) -> None:
    """Every job with its state and scores; failures grouped by cause; what was computed by other code."""
    table = Table(box=None, pad_edge=False)
    for column in ("", "job", "status", "score", "seconds"):
        table.add_column(column, overflow="fold")
    for number, job in enumerate(jobs, 1):
        seconds = job.result.get("seconds")
        status = Text(job.state, style=STYLES.get(job.state, ""))
        table.add_row(str(number), Text(job.label), status, score(job), "" if seconds is None else f"{seconds:.1f}")
    console.print(table, markup=False)
    causes: dict[str, list[Job]] = {}
    for job in jobs:
        if job.state == FAILED:
            causes.setdefault(cause(job), []).append(job)
    for reason, failed in sorted(causes.items(), key=lambda pair: -len(pair[1])):
        console.print(f"failed: {reason}", markup=False, soft_wrap=True)
        for job in failed:
            console.print(f"  {job.label}  ({log_of(job)})", markup=False, soft_wrap=True)
    now = provenance.git_state()
    others = [job.label for job in jobs if job.state == FINISHED and _is_by_other_code(job, now)]
    if others:
        shown = "; ".join(others[:3]) + ("; …" if len(others) > 3 else "")
        console.print(
            f"note: {len(others)} jobs were computed by other code than now's: {shown}", markup=False, soft_wrap=True
        )
    if causes:
        print(f"{sum(map(len, causes.values()))} of {len(jobs)} jobs failed.", file=sys.stderr)
