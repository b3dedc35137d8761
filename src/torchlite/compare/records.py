"""One run's record: read, and judged fit for a comparison or not."""

import functools
import json
import math
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchlite.compare.columns import Value, flattened
from torchlite.compare.finding import Unfit
from torchlite.naming import identity_of

CHECKED_BYTES = 2 << 20  # of a metrics.jsonl that is held against result.json; longer ones would make loading slow


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run whose record is whole."""

    directory: Path
    setting: str  # identity of its config without the seed: equal for two runs of one setting
    seed: str
    values: dict[str, Value]  # what was chosen, by the words one types, and where it ran
    options: dict[str, Value]  # {"optimizer": "sgd", …}
    config: dict[str, Value]  # every leaf but the seed, dotted; shared by the runs of a setting
    typed: frozenset[str]  # keys typed on the command line
    scores: dict[str, float]  # of the best weights, of the test part; seconds and updates
    best_update: int | None
    monitor: str
    better: str  # "max" or "min": which direction of the monitored score is
    data: dict[str, Any]
    command: str
    written: int  # ns; when its result was
    is_as_recorded: bool  # whether the config gives the identity that the run was started under


def read(directory: Path) -> Run | Unfit:
    """The run in a directory, if it is finished and its record is whole; else why it is left out."""
    try:
        result = _mapping(directory, "result.json")
        reason = _unfinished(directory, result)
        if reason is not None:
            return Unfit(directory, reason)
        return _run(directory, _mapping(directory, "run.json"), result)
    except _Unreadable as error:
        return Unfit(directory, str(error))


class _Unreadable(Exception):
    pass


def _mapping(directory: Path, name: str) -> dict[str, Any]:
    path = directory / name
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited on for ever
            raise _Unreadable(f"{name} is no file")
        read = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise _Unreadable(f"no {name}: the run was cut off before it was written, or it was removed") from None
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
    config = _part(facts, "config", dict)
    best = _part(result, "best", dict)
    if "seed" not in config:
        raise _Unreadable("run.json: config has no seed: edited by hand, or another tool's")
    trainer = config.get("trainer")
    monitor = trainer.get("monitor") if isinstance(trainer, dict) else None
    choices = _part(facts, "choices", dict, default={})
    scores = _scores(best | _part(result, "test", dict, default={}))
    for name in ("seconds", "updates"):
        if _is_number(result.get(name)):
            scores[name] = float(result[name])
    update = best.get("update")
    _check_against_metrics(directory, update, {n: v for n, v in scores.items() if n in best})
    options = _options(facts)
    overrides = [str(word) for word in _part(facts, "overrides", list, default=[])]
    try:
        setting = _setting(json.dumps({**config, "seed": None}))
        then = facts.get("identity")
        as_recorded = then in (None, identity_of({**setting.placeless, "seed": config["seed"]})) or then == identity_of(
            config
        )
    except (AttributeError, TypeError, KeyError):
        raise _Unreadable("run.json: config has not the shape of one: edited by hand, or another tool's") from None
    return Run(
        directory=directory,
        setting=setting.identity,
        seed=json.dumps(config["seed"]),
        values={**setting.values, "seed": config["seed"], **options, **_where_it_ran(facts, choices)},
        options=options,
        config=setting.config,
        typed=frozenset(word.lstrip("+~").partition("=")[0] for word in overrides),
        scores=scores,
        best_update=int(update) if _is_number(update) else None,
        monitor=str(monitor),
        better="min" if choices.get("monitor_mode", "max" if "loss" not in str(monitor) else "min") == "min" else "max",
        data=_part(facts, "data", dict, default={}),
        command=str(facts.get("command", "")),
        written=(directory / "result.json").stat().st_mtime_ns,
        is_as_recorded=as_recorded,
    )


def _part(mapping: dict[str, Any], name: str, kind: type, default: Any = None) -> Any:
    value = mapping.get(name, default)
    value = default if value is None else value
    if not isinstance(value, kind):
        raise _Unreadable(f"{name} is {_kind(value)} where a {kind.__name__} belongs: half-written, or edited by hand")
    return value


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _is_number(value: Any) -> bool:
    """Whether it is a number that a float can hold; JSON also has longer ones."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _scores(found: dict[str, Any]) -> dict[str, float]:
    for name, value in found.items():
        if "/" in name and not _is_number(value):
            raise _Unreadable(f"result.json: {name} is {json.dumps(value)}, which is no number")
    return {name: float(value) for name, value in found.items() if "/" in name}


def _options(facts: dict[str, Any]) -> dict[str, Value]:
    """{"optimizer": "sgd", …}"""
    options = _part(facts, "options", dict, default={})
    return {str(group): option for group, option in options.items() if isinstance(option, str | None)}


def _where_it_ran(facts: dict[str, Any], choices: dict[str, Any]) -> dict[str, Value]:
    code, packages, hardware = (_part(facts, name, dict, default={}) for name in ("code", "packages", "hardware"))
    commit = str(code.get("commit") or code.get("source_sha256") or "unknown")[:10]
    gpus = hardware.get("gpus")
    return {
        "name": str(facts.get("name", "")),
        "code": commit + ("+changes" if code.get("dirty") else ""),
        "torch": str(packages.get("torch", "unknown")),
        "host": str(hardware.get("host", "unknown")),
        "hardware": str(gpus[0]) if isinstance(gpus, list) and gpus else str(hardware.get("cpu", "unknown")),
        "device": str(choices.get("device", "unknown")),
        "num_threads": choices["num_threads"] if _is_number(choices.get("num_threads")) else None,
    }


def _check_against_metrics(directory: Path, update: Any, best: dict[str, float]) -> None:
    """Raise _Unreadable where metrics.jsonl has other scores at the best update than result.json."""
    path = directory / "metrics.jsonl"
    try:
        if not best or not _is_number(update) or path.stat().st_size > CHECKED_BYTES or not path.is_file():
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
            if _is_number(then.get(name)) and then[name] != value:
                raise _Unreadable(
                    f"result.json says {name} {value:g} at update {update}, metrics.jsonl {then[name]:g}: edited by hand"
                )


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class _Setting:
    """What the runs of one setting share."""

    identity: str
    placeless: dict[str, Any]
    values: dict[str, Value]
    config: dict[str, Value]


@functools.lru_cache(maxsize=4096)
def _setting(text: str) -> _Setting:
    """Of a config as JSON, its seed left out; the runs of one setting share the work."""
    config = json.loads(text)
    placeless = _placeless({"callbacks": None, **config})
    flat = flattened(config)
    flat.pop("seed", None)
    return _Setting(identity_of(placeless), placeless, flattened(placeless), flat)


def _placeless(config: dict[str, Any]) -> dict[str, Any]:
    """The config as its identity is taken of it: references followed, wherever the data lies."""
    place = config.get("data_dir")
    flat = {**flattened(config), "data_dir": "<data_dir>"}

    def followed(value: Any, depth: int = 0) -> Any:
        if isinstance(value, dict):
            return {key: followed(item, depth) for key, item in value.items()}
        if isinstance(value, list):
            return [followed(item, depth) for item in value]
        if not isinstance(value, str) or depth > 8:
            return value
        if "${" in value:
            known = re.sub(r"\$\{([\w.]+)\}", lambda m: str(flat[m[1]]) if m[1] in flat else m[0], value)
            return value if known == value else followed(known, depth + 1)
        if isinstance(place, str) and (value == place or value.startswith(place.rstrip("/") + "/")):
            return "<data_dir>" + value[len(place.rstrip("/")) :]
        return value

    return {**followed(config), "data_dir": "<data_dir>"}
