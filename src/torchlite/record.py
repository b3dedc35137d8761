"""The run directory: claimed by one run alone, and everything needed to compare and repeat that run, as text.

    config.yaml     the config, for people
    run.json        what ran: identity, choices, overrides, config, command, code, packages, hardware, data; written once
    source.patch    uncommitted changes to the code, when there are any
    modules/        files of your own that the config names
    metrics.jsonl   a line per logged update and per epoch
    digests.jsonl   what went into the updates and came out of them, to see where a repetition parts
    result.json     status, best, last and test scores, seconds, failure
    train.log       what the terminal showed, and the traceback of a failure
    tensorboard/    checkpoints/

Hydra and torch are not needed to read any of it.
"""

import contextlib
import json
import logging
import math
import os
import platform
import re
import shutil
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import filelock
import yaml
from rich.console import Console

from torchlite import lines, logs, provenance, stopping
from torchlite.errors import MachineError, UserError
from torchlite.naming import job_name
from torchlite.stopping import Stopped

log = logging.getLogger("torchlite")
DEVICE_ERRORS = ("OutOfMemoryError", "AcceleratorError")  # torch's, which this room does not import
LOCK = ".lock"
BEGUN = ".begun.json"  # what run.json will say of the words typed, until it is there: the data has to be read first
RUNNING, FINISHED, FAILED, STOPPED = "running", "finished", "failed", "stopped"


class Busy(UserError):
    """Another process is writing this run."""


class Record:
    """One run's directory, locked for as long as the run lives."""

    def __init__(
        self, directory: Path, config: dict[str, Any], words: dict[str, Any] | None = None, code: Any = None
    ) -> None:
        self.code = code  # commit and patch, as of provenance.git_state; None to ask it when the run begins
        self.directory = directory
        self.config = config
        self.words = words or {}  # what run.json says of the words typed
        self.config_json = json.dumps(config)
        self.console = Console(highlight=False, soft_wrap=True)
        self.result: dict[str, Any] = {"status": RUNNING, "process": os.getpid(), "host": platform.node()}
        self.seconds_before = 0.0  # spent by attempts that were cut off

    @contextlib.contextmanager
    def hold(self) -> Iterator["Record"]:
        """Keep the directory from every other process; a lock goes with its process, however that ends."""
        lock = filelock.FileLock(self.directory / LOCK, timeout=1)  # somebody may just be asking whether it is held
        try:
            lock.acquire()
        except filelock.Timeout as error:
            process = read_result(self.directory).get("process", "unknown")
            raise Busy(f"{self.directory} is being written by process {process}; wait for it or stop it.") from error
        except OSError as error:
            raise UserError(
                f"{self.directory} cannot be written ({error.strerror}), so nothing can run in it."
            ) from error
        try:
            yield self
        finally:
            lock.release()

    @contextlib.contextmanager
    def open(self, num_lines: int | None = None, num_digests: int = 0) -> Iterator["Record"]:
        """Write while the run lives, and write down how it ended; exceptions go on to the caller.

        Args:
            num_lines: lines of metrics.jsonl to keep and go on after; None begins anew and clears what is there.
            num_digests: the same of digests.jsonl.
        """
        started = time.perf_counter()
        self._goes_on = num_lines is not None
        self.before = read_result(self.directory) if self._goes_on else {}
        kept = {"metrics.jsonl": num_lines, "digests.jsonl": num_digests}
        begun = {self.directory / name: lines.first(self.directory / name, count) for name, count in kept.items()}
        if num_lines is None:
            self._clear()
            write_json(self.directory / BEGUN, {**self.words, "config": self.config})
        self._metrics, self._digests = (lines.Lines(path, first) for path, first in begun.items())
        if "continued" in self.before:
            self.result["continued"] = self.before["continued"]
        self._write_result()
        try:
            with logs.written(self.directory, self.console, self.result):
                try:
                    if num_lines is None:
                        self._describe_code()
                    yield self
                    self.result["status"] = FINISHED
                except BaseException as error:
                    with stopping.after_this():
                        self._note_failure(error)
                    raise
                finally:
                    with stopping.after_this():
                        self._note_end(started)
        finally:
            self._metrics.close()
            self._digests.close()

    def _note_end(self, started: float) -> None:
        for name in ("process", "host"):
            self.result.pop(name)
        self.result["seconds"] = round(self.seconds_before + time.perf_counter() - started, 3)
        try:
            self._write_result()
        except OSError as error:
            if self.result["status"] == FINISHED:
                raise
            # What ended the run is worse
            log.error(f"{self.directory}/result.json cannot be written: {error.strerror}")

    def _clear(self) -> None:
        """Take away what an earlier attempt left that did not get far enough to go on from."""
        for name in ("tensorboard", "checkpoints", "modules"):
            shutil.rmtree(self.directory / name, ignore_errors=True)
        for name in (BEGUN, "run.json", "config.yaml", "source.patch", "train.log"):
            (self.directory / name).unlink(missing_ok=True)

    def _note_failure(self, error: BaseException) -> None:
        if isinstance(error, Stopped | KeyboardInterrupt):
            self.result |= {"status": STOPPED, "stopped": str(error) or type(error).__name__}
            return
        mistake = isinstance(error, UserError)
        # A sweep begins anew what failed by itself; not what the machine failed, nor what would go on and was refused
        goes_on = (
            isinstance(error, MachineError) or type(error).__name__ in DEVICE_ERRORS or (mistake and self._goes_on)
        )
        failure = {"type": type(error).__name__, "goes_on": goes_on, "message": str(error)}
        self.result |= {"status": FAILED, "failure": failure}
        if not mistake:
            failure["traceback"] = traceback.format_exc()
        with (
            contextlib.suppress(OSError),  # a full disk is what failed, maybe
            open(self.directory / "train.log", "a", encoding="utf-8", errors="backslashreplace") as file,
        ):
            file.write(f"{error}\n" if mistake else traceback.format_exc())

    # Writing

    def _describe_code(self) -> None:
        """Write config.yaml and source.patch before anything can go wrong."""
        text = yaml.safe_dump(self.config, sort_keys=False, allow_unicode=True)
        (self.directory / "config.yaml").write_text(text, encoding="utf-8")
        code, patch = self.code or provenance.git_state()
        self._code = dict(code)
        if patch:
            (self.directory / "source.patch").write_text(patch, encoding="utf-8", errors="surrogateescape")

    def describe(self, facts: dict[str, Any]) -> None:
        """Write run.json, once; `facts` joins what this room finds out by itself."""
        own = provenance.modules(self.config)
        for name, (_, text) in own.items():
            path = self.directory / "modules" / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        self._code["modules"] = {name: where for name, (where, _) in own.items()}
        self._code["not_recorded"] = provenance.not_recorded(own)
        everything = {
            **self.words,
            **facts,
            "config": self.config,
            "working_directory": os.getcwd(),
            "code": self._code,
            "packages": provenance.packages(),
            "hardware": provenance.hardware(),
        }
        write_json(self.directory / "run.json", everything)
        (self.directory / BEGUN).unlink(missing_ok=True)

    def log(self, line: dict[str, float]) -> None:
        """Append a line to metrics.jsonl."""
        self._metrics.write(json.dumps(_without_nan(line)) + "\n")

    def digest(self, whole_lines: str) -> None:
        """Append lines to digests.jsonl."""
        self._digests.write(whole_lines)

    def sync(self) -> None:
        """Put the lines so far on disk, as a checkpoint that counts them is about to be."""
        self._metrics.sync()
        self._digests.sync()

    def finish(self, **scores: Any) -> None:
        """Note the run's scores: best, last, test and what else belongs to the result."""
        self.result |= scores

    def _write_result(self) -> None:
        write_json(self.directory / "result.json", self.result)

    def checkpoint(self, name: str) -> Path:
        """The path of checkpoint `name`: last, best or epoch-0005."""
        return self.directory / "checkpoints" / f"{name}.pt"


def claim(outputs: Path, name: str, identity: str) -> Path:
    """A new directory `<outputs>/<name>/<date>-<time>-<identity>` that no other process has, whoever starts when."""
    parent = outputs / name
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{identity}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, 10_000):
            directory = parent / (stem if attempt == 1 else f"{stem}-{attempt}")
            try:
                directory.mkdir()  # atomic: one of two processes gets FileExistsError
            except FileExistsError:
                continue
            return directory
    except OSError as error:
        raise UserError(
            f"{parent} cannot be written: {error.strerror}. Runs are written to ./outputs; go to another folder."
        ) from error
    raise UserError(f"{parent} already holds 10,000 runs of this second; move some away.")


def claim_job(sweep: Path, overrides: Sequence[str], identity: str) -> Path:
    """The directory of a sweep's job, made if it is not there: a job is known by its identity, whatever words led to it."""
    known = find(sweep, identity)
    if known is not None:
        return known
    directory = sweep / job_name(overrides, identity)
    directory.mkdir(parents=True, exist_ok=True)
    return directory


SINGLE_RUN = re.compile(r"\d{8}-\d{6}-")  # how a single run's directory begins, which may lie beside a sweep's jobs


def find(sweep: Path, identity: str) -> Path | None:
    """The directory of the job with this identity, or None."""
    jobs = sorted(path for path in sweep.glob(f"*-{identity}") if not SINGLE_RUN.match(path.name))
    return next(iter(jobs), None)


def is_locked(directory: Path) -> bool:
    """Whether a living process holds this run directory."""
    lock = filelock.FileLock(directory / LOCK, blocking=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        return True
    except OSError:  # nobody can write there
        return False
    lock.release()
    return False


def read_result(directory: Path) -> dict[str, Any]:
    """What result.json says; empty when there is none that can be read."""
    try:
        result = json.loads((directory / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return result if isinstance(result, dict) and isinstance(result.get("failure", {}), dict) else {}


def write_json(path: Path, value: Any) -> None:
    """Replace `path` in one step, so that neither a reader nor a power cut ever sees half a file."""
    aside = path.with_name(f".{path.name}.partial")
    text = json.dumps(_without_nan(value), indent=2, ensure_ascii=False) + "\n"
    try:
        with open(aside, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def _without_nan(value: Any) -> Any:
    """The same with null for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
