"""One run's record: read, and judged fit for a comparison or not."""

import contextlib
import functools
import json
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchlite.compare.columns import Value, is_number
from torchlite.compare.finding import Told, Unfit
from torchlite.compare.settings import Setting, is_recorded, setting
from torchlite.scores import bounds

CHECKED_BYTES = 2 << 20  # of a metrics.jsonl that is held against result.json; longer ones would make loading slow


@dataclass(frozen=True, eq=False)
class Run(Told):
    """A finished run whose record is whole."""

    directory: Path
    options: dict[str, Value]  # {"optimizer": "sgd", …}
    config: dict[str, Value]  # every leaf but the seed, dotted; shared by the runs of a setting
    typed: frozenset[str]  # keys typed on the command line
    scores: dict[str, float]  # of the best weights, of the test part; seconds and updates
    best_update: int | None
    monitor: str
    better: str | None  # "max" or "min": which direction of the monitored score is; None where it was not recorded
    data: dict[str, Any]
    command: str


def read(directory: Path) -> Run | Unfit:
    """The run in a directory, if it is finished and its record is whole; else why it is left out."""
    try:
        result = _mapping(directory, "result.json")
        reason = _unfinished(directory, result)
        if reason is not None:
            raise _Unfinished(reason)
        return _run(directory, _mapping(directory, "run.json"), result)
    except _Unfinished as error:
        return Unfit(directory, str(error), _told(directory))
    except _Unreadable as error:
        return Unfit(directory, str(error))


class _Unreadable(Exception):
    pass


class _Unfinished(_Unreadable):
    pass


def _mapping(directory: Path, name: str) -> dict[str, Any]:
    path = directory / name
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited on for ever
            raise _Unreadable(f"{name} is no file")
        read = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise _Unfinished(
            f"no {name}: the run was cut off before it was written or did not start, or it was removed"
        ) from None
    except OSError as error:
        raise _Unreadable(f"{name} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise _Unreadable(f"{name} is not JSON{where}: half-written, or edited by hand") from None
    if not isinstance(read, dict):
        raise _Unreadable(f"{name} holds {_kind(read)} where a mapping belongs: edited by hand, or another tool's")
    return read


def _unfinished(directory: Path, result: dict[str, Any]) -> str | None:
    """Why a run has no final score, or None."""
    status = result.get("status")
    if status == "finished":
        return None
    if status == "failed":
        failure = result.get("failure")
        message = str(failure.get("message") if isinstance(failure, dict) else failure).strip()
        return f"failed: {(message.splitlines() or ['without a message'])[0]}"
    if status == "stopped":
        return f"stopped: {result.get('stopped') or 'on request'}; it can go on with resume=auto"
    if status == "running":
        return "still running" if _is_locked(directory) else "cut off while it ran; it can go on with resume=auto"
    return f"result.json has {'no status' if status is None else f'the status {status!r}'}: not a record of torchlite"


def _is_locked(directory: Path) -> bool:
    if not (directory / ".lock").exists():
        return False
    from torchlite.record import is_locked

    try:
        return is_locked(directory)
    except OSError:  # somebody else's directory, where no lock can be taken
        return False


def _run(directory: Path, facts: dict[str, Any], result: dict[str, Any]) -> Run:
    told, shared = _told_by(facts)
    config = facts["config"]
    best = _part(result, "best", dict)
    trainer = config.get("trainer")
    monitor = trainer.get("monitor") if isinstance(trainer, dict) else None
    scores = _scores(best | _part(result, "test", dict, default={}))
    scores |= {name: float(result[name]) for name in ("seconds", "updates") if is_number(result.get(name))}
    update = best.get("update")
    _check_against_metrics(directory, update, {n: v for n, v in scores.items() if n in best})
    _check_bounds(scores)
    mode = _part(facts, "choices", dict, default={}).get("monitor_mode")
    overrides = [str(word) for word in _part(facts, "overrides", list, default=[])]
    if not is_recorded(identity := str(facts.get("identity")), shared, config, overrides):
        raise _Unreadable(
            f"run.json: its config does not give the identity it has ({identity}): edited by hand, or of another version"
        )
    return Run(
        **vars(told),
        directory=directory,
        options=_options(facts),
        config=shared.config,
        typed=frozenset(word.lstrip("+~").partition("=")[0] for word in overrides),
        scores=scores,
        best_update=int(update) if is_number(update) else None,
        monitor=str(monitor),
        better=mode if mode in ("min", "max") else None,
        data=_part(facts, "data", dict, default={}),
        command=str(facts.get("command", "")),
    )


def _told(directory: Path) -> Told | None:
    """What a run without a result was told: by its record, as far as it got, or by its sweep's plan. None: nobody knows."""
    for name in ("run.json", ".begun.json", "sweep.json"):
        with contextlib.suppress(_Unreadable):
            return _told_by(_planned(directory.resolve()) if name == "sweep.json" else _mapping(directory, name))[0]
    return None


def _planned(directory: Path) -> dict[str, Any]:
    try:
        written = (directory.parent / "sweep.json").stat().st_mtime_ns
    except OSError:
        return {}
    return _plan(directory.parent, written).get(directory.name, {})


@functools.lru_cache(maxsize=16)
def _plan(sweep: Path, written: int) -> dict[str, dict[str, Any]]:
    """What a sweep's jobs are, by the names of their directories; `written` keeps an older plan from being remembered."""
    jobs = _part(_mapping(sweep, "sweep.json"), "jobs", list)
    return {str(job.get("directory")): job for job in jobs if isinstance(job, dict)}


def _told_by(facts: dict[str, Any]) -> tuple[Told, Setting]:
    config, options = _part(facts, "config", dict), _options(facts)
    if "seed" not in config:
        raise _Unreadable("run.json: config has no seed: edited by hand, or another tool's")
    try:
        shared = setting(config)
    except (AttributeError, TypeError, KeyError):
        raise _Unreadable("run.json: config has not the shape of one: edited by hand, or another tool's") from None
    values = {**shared.values, "seed": config["seed"], **options, **_where_it_ran(facts)}
    return Told(shared.identity, json.dumps(config["seed"]), values), shared


def _part(mapping: dict[str, Any], name: str, kind: type, default: Any = None) -> Any:
    value = mapping.get(name, default)
    value = default if value is None else value
    if not isinstance(value, kind):
        raise _Unreadable(f"{name} is {_kind(value)} where a {kind.__name__} belongs: half-written, or edited by hand")
    return value


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _scores(found: dict[str, Any]) -> dict[str, float]:
    for name, value in found.items():
        if "/" in name and not is_number(value):
            raise _Unreadable(f"result.json: {name} is {json.dumps(value)}, which is no number")
    return {name: float(value) for name, value in found.items() if "/" in name}


def _check_bounds(scores: dict[str, float]) -> None:
    for name, value in scores.items():
        low, high = bounds(name)
        if not low <= value <= high:
            raise _Unreadable(f"result.json: {name} is {value:g}, not {low} to {high}: edited by hand, or another unit")


def _options(facts: dict[str, Any]) -> dict[str, Value]:
    """{"optimizer": "sgd", …}"""
    options = _part(facts, "options", dict, default={})
    return {str(group): option for group, option in options.items() if isinstance(option, str | None)}


def _where_it_ran(facts: dict[str, Any]) -> dict[str, Value]:
    parts = ("code", "packages", "hardware", "choices")
    code, packages, hardware, choices = (_part(facts, name, dict, default={}) for name in parts)
    commit = str(code.get("commit") or code.get("source_sha256") or "unknown")[:10]
    gpus = hardware.get("gpus")
    return {
        "name": str(facts.get("name", "")),
        "code": commit + ("+changes" if code.get("dirty") else ""),
        "torch": str(packages.get("torch", "unknown")),
        "host": str(hardware.get("host", "unknown")),
        "hardware": str(gpus[0]) if isinstance(gpus, list) and gpus else str(hardware.get("cpu", "unknown")),
        "device": str(choices.get("device", "unknown")),
        "num_threads": choices["num_threads"] if is_number(choices.get("num_threads")) else None,
    }


def _check_against_metrics(directory: Path, update: Any, best: dict[str, float]) -> None:
    """Raise _Unreadable where metrics.jsonl has other scores at the best update than result.json."""
    path = directory / "metrics.jsonl"
    try:
        if not best or not is_number(update) or path.stat().st_size > CHECKED_BYTES or not path.is_file():
            return
        written = path.read_bytes()
    except OSError:
        return  # the scores are in result.json; only curves are missed
    begin, start = b'{"update": %d, ' % update, 0
    while (start := written.find(begin, start)) >= 0:
        end = written.find(b"\n", start)
        line, start = written[start : end if end >= 0 else None], start + len(begin)
        then = _parsed(line) if b'"val/' in line else {}
        for name, value in best.items():
            if is_number(then.get(name)) and then[name] != value:
                raise _Unreadable(
                    f"result.json says {name} {value:g} at update {update}, metrics.jsonl {then[name]:g}: edited by hand"
                )


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
