"""A sweep's jobs, each with its directory, and `sweep.json`, which keeps what every job is.

outputs/<name>/sweep.json                     threads a job, and of each job its words, directory and frozen config
outputs/<name>/<readable words>-<identity>/   the job's record, as every run has one
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import filelock

from torchlite import config, provenance, record
from torchlite.config import Composed
from torchlite.errors import UserError
from torchlite.naming import job_name
from torchlite.record import FAILED, FINISHED, STOPPED, read_result, write_json

FILE, LOCK = "sweep.json", ".sweep.lock"
NEW, CUT_OFF, ELSEWHERE, RUNNING = "new", "cut off", "running elsewhere", "running"


@dataclasses.dataclass
class Job:
    """One job of a sweep."""

    composed: Composed
    directory: Path
    label: str = ""  # the words that not every job has
    state: str = NEW
    reason: str = ""  # why its process ended without a result

    @property
    def result(self) -> dict[str, Any]:
        return read_result(self.directory)

    @property
    def fact(self) -> dict[str, Any]:
        """What sweep.json keeps of it."""
        own = self.composed
        return {
            "identity": own.identity,
            "directory": self.directory.name,
            "words": list(own.overrides),
            "options": own.choices,
            "config": own.record,
        }

    def look(self) -> str:
        """The state as the directory tells it now; a lock that somebody holds counts first."""
        if self.directory.is_dir() and record.is_locked(self.directory):
            return ELSEWHERE
        status = self.result.get("status")
        if status == FINISHED and isinstance(self.result.get("best"), dict):
            return FINISHED
        if status in (FAILED, STOPPED):
            return str(status)
        return NEW if status is None else CUT_OFF


def label_all(jobs: Sequence[Job]) -> None:
    """Give each job the words that tell it from the others."""
    words = [set(job.composed.overrides) for job in jobs]
    common = set.intersection(*words) if len(jobs) > 1 else set()
    for job in jobs:
        own = [word for word in job.composed.overrides if word not in common]
        job.label = " ".join(own) or " ".join(job.composed.overrides) or "the defaults"


def read(sweep: Path) -> dict[str, Any]:
    """What sweep.json says; empty when there is none. Raises UserError for one that cannot be read."""
    path = sweep / FILE
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        for fact in facts["jobs"]:
            if not isinstance(fact["config"], dict) or not all(isinstance(word, str) for word in fact["words"]):
                raise TypeError("a job's config or words are none")
            _ = fact["identity"], fact["options"], Path(fact["directory"])
        return {"num_threads": int(facts["num_threads"]), "command": str(facts["command"]), "jobs": facts["jobs"]}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} cannot be read ({error}): move it away; the jobs' own records are not touched."
        ) from error


def planned(sweep: Path, composed: Composed) -> Job:
    """A job before anything is created: in the directory that it has, or would get."""
    known = record.find(sweep, composed.identity)
    job = Job(composed, known or sweep / job_name(composed.overrides, composed.identity))
    job.state = job.look()
    return job


def settle(sweep: Path, planned: Sequence[Composed], num_threads: int, command: str) -> list[Job]:
    """The jobs, each with its directory and its config frozen in sweep.json.

    The number of threads is what it was when the sweep began. Jobs of earlier launches stay listed.
    """
    try:
        sweep.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(sweep / LOCK):
            before = read(sweep)
            num_threads = before["num_threads"] if before else num_threads
            code = provenance.git_state()
            jobs = []
            for composed in planned:
                directory = record.claim_job(sweep, composed.overrides, composed.identity)
                own = dataclasses.replace(composed, num_threads=num_threads, command=command, code=code)
                jobs.append(Job(own, directory))
            ours = {job.composed.identity for job in jobs}
            others = [fact for fact in before["jobs"] if fact["identity"] not in ours] if before else []
            facts = {"command": command, "num_threads": num_threads, "code": code[0]}
            write_json(sweep / FILE, {**facts, "jobs": [*others, *(job.fact for job in jobs)]})
    except OSError as error:
        raise UserError(f"{sweep} cannot be written: {error.strerror}. Sweeps are written to ./outputs.") from error
    label_all(jobs)
    for job in jobs:
        job.state = job.look()
    return jobs


def frozen(composed: Composed) -> Composed:
    """The job as the sweep's plan has it, whatever was edited since; found by its words. For launchers that compose anew."""
    assert composed.sweep_directory is not None
    facts = read(composed.sweep_directory)
    for fact in reversed(facts["jobs"] if facts else []):
        if fact["words"] == list(composed.overrides):
            job = config.from_facts(fact, composed.sweep_directory, trusted=None)  # typed in this sweep
            return dataclasses.replace(job, command=facts["command"], num_threads=facts["num_threads"])
    return composed


def of_sweep(sweep: Path) -> list[Job]:
    """Every job that sweep.json lists. Raises UserError where there is none."""
    facts = read(sweep)
    if not facts:
        raise UserError(
            f"{sweep}: this is no sweep (it has no {FILE}); `python sweep.py status` lists the sweeps here."
        )
    jobs = []
    for fact in facts["jobs"]:
        own = config.from_facts(fact, sweep)
        own = dataclasses.replace(own, num_threads=facts["num_threads"], command=facts["command"])
        jobs.append(Job(own, sweep / Path(fact["directory"]).name))
    label_all(jobs)
    for job in jobs:
        job.state = job.look()
    return jobs
