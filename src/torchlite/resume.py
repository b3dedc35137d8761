"""Which run is continued, whether it may be, and what is left and said of one that ends badly."""

import contextlib
import errno
import json
import logging
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchlite import checkpoint, config, provenance, record
from torchlite.config import Composed, placeless
from torchlite.errors import MachineError, UserError
from torchlite.naming import MAY_CHANGE, computed
from torchlite.progress import is_whole
from torchlite.record import Record

log = logging.getLogger("torchlite")
# Whoever of us and of the libraries was reading or writing
OF_THE_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.ETIMEDOUT)
COMPUTING = {
    "packages": ("torch", "torchvision", "timm", "numpy"),
    "hardware": ("cpu",),
    "choices": ("device", "compile", "num_threads"),
}


def target(composed: Composed, outputs: Path) -> tuple[Path | None, Path | None]:
    """The run directory that `resume` names, and the checkpoint in it when a file was named; None for a new run.

    `auto` finds the newest run of the same identity that is not finished, else the newest finished one.
    """
    asked = composed.config["resume"]
    if asked is None:
        return None, None
    if asked == "auto":
        found = _newest(outputs, composed.identity)
        if found is None:
            print("resume=auto: no run of just these words is here; a new one begins")
        return found, None
    path = Path(asked)
    if path.is_file():
        directory = path.resolve().parent.parent
        if not (directory / "run.json").is_file():
            raise UserError(
                f"resume={asked}: this checkpoint lies in no run directory. To start from its weights: model.weights={asked}"
            )
        return directory, path
    if not path.is_dir():
        raise UserError(f"resume={asked}: there is no such directory; give a run directory, or auto.")
    if _written(path) is None:
        raise UserError(f"resume={asked}: this is no run directory (it has neither result.json nor run.json).")
    return path.resolve(), None


def _newest(outputs: Path, identity: str) -> Path | None:
    written = {path: file for path in outputs.glob(f"*/*-{identity}*") if (file := _written(path)) is not None}
    runs = sorted(written, key=lambda run: written[run].stat().st_mtime, reverse=True)
    unfinished = [run for run in runs if record.read_result(run).get("status") != record.FINISHED]
    free = [run for run in unfinished if not record.is_locked(run)]
    if len(free) < len(unfinished):
        log.warning("resume=auto: a run of this config is being written by another process; that one is left alone")
    return next(iter(free + [run for run in runs if run not in unfinished]), None)


def _written(path: Path) -> Path | None:
    """The file that tells how far a run came, else one that makes the folder known as a run's; None where it is no run."""
    names = ("result.json", "run.json", record.BEGUN)
    return next((path / name for name in names if (path / name).is_file()), None)


def facts(directory: Path) -> dict[str, Any] | None:
    """A run's run.json, or what it noted before it had one, or None. Raises UserError for one that cannot be read."""
    path = directory / "run.json"
    if not path.exists():
        path = directory / record.BEGUN
    if not path.exists():
        return None
    try:
        found: dict[str, Any] = {"choices": None, "code": None} if path.name == record.BEGUN else {}
        found |= json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found["config"], dict):
            raise TypeError("its config is none")
        computed(found["config"])
        kept = ("config", "options", "overrides", "name", "identity", "choices", "code", "num_threads")
        return {name: {"num_threads": None, **found}[name] for name in kept}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} cannot be read ({error}); move {directory} away and start the run again.") from error


def continued(composed: Composed, saved: dict[str, Any]) -> Composed:
    """The config to go on with: the run's own when nothing but where and how was typed; else what was typed, if it agrees.

    Raises UserError naming what differs.
    """
    if {word.lstrip("+").partition("=")[0] for word in composed.overrides} <= set(MAY_CHANGE):
        return config.recorded(saved, composed)
    differences = list(_differences(_fixed(placeless(saved["config"])), _fixed(placeless(composed.record)), ""))
    if not differences:
        return composed
    typed = tuple(f"{word.lstrip('+~').partition('=')[0]}." for word in composed.overrides)
    differences.sort(key=lambda line: not f"{line.split()[0]}.".startswith(typed))  # what was typed first
    shown = "; ".join(differences[:5]) + ("; …" if len(differences) > 5 else "")
    raise UserError(
        f"resume: the run differs from what was typed: {shown}.\nA run goes on as it began (resume=DIR alone does that); "
        "to train on with other settings start from its weights: model.weights=DIR/checkpoints/best.pt"
    )


def _fixed(config: dict[str, Any]) -> dict[str, Any]:
    """What may not change while a run is cut off. Raises as `computed` does for what has not the shape of a config."""
    fixed = computed(config)
    for key in MAY_CHANGE:
        group, _, name = key.partition(".")
        if name:
            fixed[group].pop(name, None)
    return fixed


def _differences(then: Any, now: Any, path: str) -> list[str]:
    if isinstance(then, dict) and isinstance(now, dict):
        keys = [*then, *(key for key in now if key not in then)]
        names = {key: f"{path}.{key}" if path else key for key in keys}
        return [line for key in keys for line in _differences(then.get(key), now.get(key), names[key])]
    return [] if then == now else [f"{path} was {json.dumps(then)}, is {json.dumps(now)}"]


def state(directory: Path, file: Path | None, then: dict[str, Any]) -> dict[str, Any] | None:
    """What to go on from: the named checkpoint, or the newest whole one; None when the run has none yet.

    Args:
        then: the run's config, of its run.json.

    Raises:
        UserError: the checkpoint is no whole state, or another run's.
    """
    try:
        saved = checkpoint.newest(directory / "checkpoints") if file is None else checkpoint.load(file)
    except UserError as error:
        others = [path for path in checkpoint.candidates(directory / "checkpoints") if file and path != file.resolve()]
        raise UserError(f"{error} There is {others[0]}: resume={directory}") if others else error from None
    if saved is None:
        return None
    shown = file or f"{directory}/checkpoints/last.pt"
    if not is_whole(saved):
        raise UserError(f"{shown} holds weights but nothing to go on from; to start from them: model.weights={shown}")
    try:
        own = _fixed(json.loads(saved["config"]))
    except (ValueError, KeyError, TypeError, AttributeError):  # no config at all
        own = None
    # Where data lay may differ, and what it was is checked once it is read
    differences = [line for line in _differences(_fixed(then), own, "") if not line.startswith("data")]
    if differences:
        raise UserError(f"{shown} is the checkpoint of another run than {directory}: {'; '.join(differences[:3])}.")
    return saved


def check_data(rec: Record, saved: dict[str, Any] | None, data: Any, choices: dict[str, Any]) -> None:
    """Raise UserError where a run would go on with other samples than it began with; note what else is other than then."""
    if saved is None:
        return
    try:
        then = json.loads((rec.directory / "run.json").read_text(encoding="utf-8"))
        fingerprint, changes = then["data"]["fingerprint"], list(_changes(rec, then, choices))
    except (OSError, ValueError, KeyError, TypeError):
        fingerprint, changes = data.fingerprint, []  # not known
    samples = (saved["classes"], saved["split"], fingerprint)
    if samples != (list(data.class_names), dict(data.split), data.fingerprint):
        raise UserError(
            "resume: the data is not what it was: other images, classes or held-out samples. Start a new run."
        )
    update = saved["progress"]["update"]
    # Where an older checkpoint was named, what came after it no longer counts
    rec.result["continued"] = [one for one in rec.before.get("continued", []) if one["update"] < update]
    if changes:
        log.warning(f"the run began with other {', '.join(changes)}: it may differ from one that was not cut off")
        rec.result["continued"].append({"update": update, "other": changes})
    if not rec.result["continued"]:
        del rec.result["continued"]


def _changes(rec: Record, then: dict[str, Any], choices: dict[str, Any]) -> Iterator[str]:
    """What computes the rest of a run otherwise than its run.json says."""
    if provenance.is_other_code(rec.directory, then, rec.config, rec.code or provenance.git_state()):
        yield "code"
    now = {"packages": provenance.packages(), "hardware": provenance.hardware(), "choices": choices}
    computing = COMPUTING | (
        {"hardware": ("cpu", "cuda", "cudnn")} if str(choices["device"]).startswith("cuda") else {}
    )
    for part, names in computing.items():
        for name in names:
            if (old := then[part].get(name)) != now[part].get(name):
                yield f"{name} ({old})"


@contextlib.contextmanager
def forgotten_if_refused(directory: Path, forget: bool) -> Iterator[None]:
    """Leave no directory behind where a new run was refused for what was typed before it trained anything."""
    try:
        yield
    except UserError:
        if forget and not (directory / "checkpoints").exists():
            shutil.rmtree(directory, ignore_errors=True)
        raise


@contextlib.contextmanager
def way_on(directory: Path, composed: Composed) -> Iterator[None]:
    """Whatever the machine does to a run, the message says how it goes on; `directory` is as one types it."""
    try:
        yield
    except (MachineError, OSError) as error:
        told = in_short(error)
        if told is None:
            raise
        kind = type(error) if isinstance(error, MachineError) else MachineError
        whole = "The last checkpoint is whole. " if (directory / "checkpoints" / "last.pt").exists() else ""
        raise kind(f"{told}\n{whole}Go on with{way(composed, directory)}") from error


def in_short(error: BaseException) -> str | None:
    """What to say of an error that is the machine's; None for another, which needs its traceback."""
    if isinstance(error, MachineError):
        return str(error)
    if not isinstance(error, OSError) or error.errno not in OF_THE_MACHINE:
        return None
    return f"{error}. Make room." if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error)


def way(composed: Composed, directory: Path | None = None) -> str:
    """What one types for a run to go on, as the end of a sentence.

    Args:
        directory: the run's; None for the words alone where those will do.
    """
    if composed.sweep_directory is not None:
        return " the same command"
    asked = composed.config["resume"]
    if directory is None:
        if asked in (None, "auto"):
            return " resume=auto"
        directory = Path(asked).parent.parent if Path(asked).is_file() else Path(asked)
    plain = re.fullmatch(r"[\w./-]+", str(directory))  # else quoted for Hydra, then for the shell
    word = f"resume={directory}" if plain else shlex.quote(f'resume="{directory}"')
    return f" the same words and {word}" if provenance.modules(composed.config) else f": {word}"


def what_is_not_the_same(directory: Path, named: dict[str, Any]) -> str:
    """In words, whether a finished run used other code, or data elsewhere, than a run of this config would now."""
    try:
        then = json.loads((directory / "run.json").read_text(encoding="utf-8"))
        other_code = provenance.is_other_code(directory, then, named, provenance.git_state())
        data_dir = then["data"]["data_dir"]
    except (OSError, ValueError, KeyError, TypeError):
        return "its run.json cannot be read"
    other_data = data_dir != str(Path(named["data_dir"]).absolute()) and named["data"].get("root") is not None
    differences = ["by other code than now's"] if other_code else []
    return ", ".join(differences + (["from another data_dir"] if other_data else []))
