"""Names of run directories, made of the words that were typed."""

import re
from collections.abc import Sequence


def run_name(
    choices: dict[str, str | None], overrides: Sequence[str], groups: Sequence[str], swept: frozenset[str] = frozenset()
) -> str:
    """A readable name of the words that are fixed: the experiment, or data and model, then other groups that were typed."""
    typed = [override.lstrip("+~").partition("=")[0] for override in overrides]
    words = [choices["experiment"]] if choices.get("experiment") and "experiment" not in swept else []
    first = () if words else ("data", "model")
    for group in (*first, *(g for g in groups if g in typed and g not in first)):
        if group not in swept and choices.get(group):
            words.append(choices[group])
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(str(word) for word in words))[:100] or "sweep"


SAYS_NOTHING = ("name", "data_dir", "resume", "dry_run", "fail_fast")  # of what a job computes


def job_name(overrides: Sequence[str], identity: str) -> str:
    """`sgd_lr-0.1_seed-3-1a2b3c4d`: the words of a job as a directory name of at most 120 plain characters."""
    words = []
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        if key in SAYS_NOTHING:
            continue
        words.append(f"{key.rpartition('.')[2]}-{value}" if "." in key or key == "seed" else value)
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", "_".join(words)).strip("-.")
    return f"{readable[:107].rstrip('-._') or 'default'}-{identity}"
