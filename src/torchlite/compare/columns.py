"""What runs were told: configs flattened to dotted keys, the keys that differ, and conditions on them."""

import difflib
import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

from torchlite.errors import UserError, printable
from torchlite.naming import NOT_IDENTITY, names_logger

Value = str | int | float | bool | None
ABSENT = "–"  # shown where a run has no such key
LARGEST = 1e150  # whose square a float can hold, as intervals need it


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether it is a number to compute with; JSON also has longer ones, and Python's JSON those that are not finite."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def flattened(config: Mapping[str, Any]) -> dict[str, Value]:
    """Every leaf under its dotted key; lists as JSON text, whole floats as whole numbers."""
    flat: dict[str, Value] = {}

    def add(node: Mapping[str, Any], prefix: str) -> None:
        for key, value in node.items():
            if isinstance(value, dict) and value:
                add(value, f"{prefix}{key}.")
            elif isinstance(value, dict | list):
                flat[f"{prefix}{key}"] = json.dumps(value, ensure_ascii=False)
            else:
                whole = isinstance(value, float) and value.is_integer()
                flat[f"{prefix}{key}"] = int(value) if whole else value

    add(config, "")
    return flat


def shown(value: Value) -> str:
    """As one types it: `null`, `true`, 0.001, text as it stands but for characters that a terminal would obey."""
    if not isinstance(value, str):
        return json.dumps(value)
    return printable(value)


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """The last part of each key where no other ends in the same, for labels where room is scarce."""
    last = [key.rpartition(".")[2] for key in keys]
    return {
        key: end if last.count(end) == 1 and end != "_target_" else key for key, end in zip(keys, last, strict=True)
    }


def differing(runs: Sequence[Any]) -> list[str]:
    """The keys that tell the runs apart: groups first, then what was typed, then what else differs, in the config's order.

    Left out are the seed, what does not change a result (`naming.NOT_IDENTITY`), a key that follows from its group's choice
    (`optimizer.betas`, where each optimizer has one value), and a key that always equals one that is shown or follows.
    A key that somebody typed is never left out for following from another.
    """
    options = _ordered(run.options for run in runs)
    keys = _ordered(run.config for run in runs)
    typed = frozenset().union(*(run.typed for run in runs))
    logging = {key.rpartition(".")[0] + "." for run in runs for key, v in run.config.items() if names_logger(v)}
    found: list[str] = []
    explained: set[tuple[str, ...]] = set()
    for key in [*options, *(k for k in keys if k in typed), *(k for k in keys if k not in typed)]:
        values = {(type(value), value) for value in (run.values.get(key, ABSENT) for run in runs)}  # True is not 1
        if len(values) == 1 or _says_nothing(key, logging):
            continue
        column = tuple(shown(run.values.get(key, ABSENT)) for run in runs)
        group = key.partition(".")[0]
        if key not in typed and key not in options:
            choice = [shown(run.options.get(group)) for run in runs]
            if column in explained or len(set(zip(choice, column, strict=True))) == len(set(choice)):
                explained.add(column)
                continue
        explained.add(column)
        found.append(key)
    return found


def _says_nothing(key: str, logging: set[str]) -> bool:
    silent = key == "seed" or any(key == known or key.startswith(known + ".") for known in NOT_IDENTITY)
    return silent or any(key.startswith(prefix) for prefix in logging)


def _ordered(mappings: Any) -> list[str]:
    return list(dict.fromkeys(key for mapping in mappings for key in mapping))


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}


def condition(text: str, known: Sequence[str]) -> Callable[[Mapping[str, Value]], bool]:
    """A test on a run's values: `optimizer=sgd,adamw` (either), `model!=mlp`, `optimizer.lr<=0.01`.

    Raises UserError when the text is no condition, or its key is none of `known`.
    """
    match = re.match(r"([^<>=!]+?)\s*(<=|>=|!=|=|<|>)\s*(.*)$", text, re.S)
    if match is None:
        raise UserError(
            f"{text}: not a condition; write key=value, key=one,other, key!=value, key<number or key>=number."
        )
    key, sign, wanted = match[1].strip(), match[2], match[3]
    check_known(key, known)
    compare = OPERATORS[sign]
    if sign in ("=", "!="):
        words = {_canonical(word) for word in [wanted, *wanted.split(",")]}
        return lambda values: compare(True, key in values and _canonical(shown(values[key])) in words)
    try:
        limit = float(wanted)
    except ValueError:
        raise UserError(f"{text}: {wanted!r} is no number.") from None

    def holds(values: Mapping[str, Value]) -> bool:
        value = values.get(key)
        return isinstance(value, int | float) and not isinstance(value, bool) and compare(value, limit)

    return holds


def check_known(key: str, known: Sequence[str]) -> None:
    """Raise UserError unless the key is known; the message has the closest that is."""
    if key not in known:
        close = difflib.get_close_matches(key, known, 1) or [name for name in known if name.endswith("." + key)][:1]
        raise UserError(f"{key}: no run has such a key." + (f" Did you mean {close[0]}?" if close else ""))


def _canonical(text: str) -> str:
    """1e-3 and 0.001 are one value, and so are True and true, [16, 32] and [16,32]."""
    if text.startswith(("[", "{")):
        return text.replace(" ", "").replace('"', "")
    try:
        return repr(float(text))
    except ValueError:
        return text.lower() if text.lower() in ("true", "false", "null") else text
