"""The groups of a config, and how runs are known: an identity over what they compute, names made of the words typed."""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

# Of each every config has an option
GROUPS = ("data", "model", "optimizer", "scheduler", "trainer", "task", "callbacks")
# What does not change the result, and so not the identity: where data lies and how a run is started and shown
NOT_IDENTITY = (
    *("data_dir", "name", "resume", "dry_run", "fail_fast"),
    *("trainer.log_every_updates", "trainer.max_minutes", "trainer.save_pause_seconds"),
    *("data.num_workers", "data.in_memory", "data.memory_share", "data.start_method"),  # they change no bit
)
# With what a run may go on that it did not begin with; the last two may change last bits, which is said and recorded
MAY_CHANGE = (*NOT_IDENTITY, "trainer.device", "trainer.compile")
LOGGERS = ("ProgressBar", "TensorBoard", "Histograms", "MLflow")
LOGGING_CALLBACKS = [f"torchlite.callbacks.{name}" for name in LOGGERS]
OF_A_LOGGER = re.compile(rf"torchlite\.callbacks\.(\w+\.)?({'|'.join(LOGGERS)})")


def identity_of(config: dict[str, Any]) -> str:
    """12 hex digits over what a resolved config computes."""
    return hashed(computed(config))


def hashed(computed: dict[str, Any]) -> str:
    """12 hex digits over what `computed` gave."""
    text = json.dumps(computed, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def computed(config: dict[str, Any]) -> dict[str, Any]:
    """A copy of a config less `NOT_IDENTITY` and the callbacks that only log.

    Raises AttributeError, KeyError or TypeError for what has not the shape of a config.
    """
    copied: dict[str, Any] = _canonical(config)
    for key in NOT_IDENTITY:
        *parents, last = key.split(".")
        node: Any = copied
        for parent in parents:
            node = node.get(parent) or {}
        if key == "trainer.max_minutes" and last in node:
            node[last] = None  # as if none had been set; identities were given with this key in them
        else:
            node.pop(last, None)
    for name, child in list((copied["callbacks"] or {}).items()):
        if child is None or (isinstance(child, dict) and names_logger(child.get("_target_"))):
            del copied["callbacks"][name]
    return copied


def names_logger(target: Any) -> bool:
    """Whether a target names a callback that only logs, be it by the path of its own file; nothing is imported."""
    return OF_A_LOGGER.fullmatch(str(target)) is not None


def _canonical(value: Any) -> Any:
    """The same value however it was typed: 1.0 is 1."""
    if isinstance(value, dict):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def run_name(choices: dict[str, str | None], overrides: Sequence[str], swept: frozenset[str] = frozenset()) -> str:
    """A readable name of the words that are fixed: the experiment, or data and model, then other groups that were typed."""
    typed = [override.lstrip("+~").partition("=")[0] for override in overrides]
    words = [choices["experiment"]] if choices.get("experiment") and "experiment" not in swept else []
    first = () if words else ("data", "model")
    for group in (*first, *(g for g in GROUPS if g in typed and g not in first)):
        if group not in swept and choices.get(group):
            words.append(choices[group])
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(str(word) for word in words))[:100] or "sweep"


SAYS_NOTHING = ("name", "data_dir", "resume", "dry_run", "fail_fast")  # of what a job computes


def job_name(overrides: Sequence[str], identity: str) -> str:
    """`sgd_lr-0.1_seed-3-1a2b3c4d5e6f`: the words of a job as a directory name of at most 120 plain characters."""
    words = []
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        if key in SAYS_NOTHING:
            continue
        words.append(f"{key.rpartition('.')[2]}-{value}" if "." in key or key == "seed" else value)
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", "_".join(words)).strip("-.")
    return f"{readable[:107].rstrip('-._') or 'default'}-{identity}"
