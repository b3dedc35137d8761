"""Which jobs a sweep has: the words that were typed, each with each, and the parts of a sweep file.

A sweep file has any of four sections; those that are there are combined, each row of one with each of the others:

    product   {key: values}   each value with each of the other keys'; values are a list, or text such as range(0,5)
    zip       {key: values}   lists of one length: the first of each, the second of each, …
    list      [{key: value}]  one row an entry, so a key may stand where it has a meaning and be missing elsewhere
    join      [part, …]       parts of the same four sections, the rows of one after those of the other
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from torchlite.errors import UserError

Row = dict[str, str]  # key to word: {"optimizer.lr": "optimizer.lr=0.1"}
SECTIONS = ("product", "zip", "list", "join")


def jobs(typed: Sequence[Override], parts: Mapping[str, Any]) -> list[list[str]]:
    """The words of each job. What is typed wins over what the sweep file says of the same key.

    Raises:
        UserError: a section that is not built as above.
    """
    choices = [[(override.get_key_element(), word) for word in words(override)] for override in typed]
    typed_keys = {key for choice in choices for key, _ in choice}
    kept: list[Row] = []
    for row in rows(parts, "sweep"):
        left = {key: word for key, word in row.items() if key not in typed_keys}
        if left == row or left not in kept:  # two rows may have become one; what was twice is refused later
            kept.append(left)
    typed_words = [[word for _, word in chosen] for chosen in itertools.product(*choices)]
    return [[*row.values(), *chosen] for row in kept for chosen in typed_words]


def words(override: Override) -> list[str]:
    """`["seed=0", "seed=1"]` of `seed=0,1`; the word itself when nothing is swept."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [override.input_line or key]
    if not override.is_discrete_sweep():
        raise UserError(f"{override.input_line}: an interval has no end; list values, or use range or a search.")
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def rows(part: Any, path: str) -> list[Row]:
    """Every row of a part."""
    if not isinstance(part, Mapping):
        raise UserError(f"{path}: a part is a mapping with some of {', '.join(SECTIONS)}.")
    for name in part:
        if name not in SECTIONS:
            raise UserError(f"{path}.{name}: no such section; there are {', '.join(SECTIONS)}.")
    sections = [SECTION_ROWS[name](part[name], f"{path}.{name}") for name in SECTIONS if part.get(name) is not None]
    return [_merged(choice, path) for choice in itertools.product(*sections)]


def _merged(choice: Sequence[Row], path: str) -> Row:
    merged: Row = {}
    for row in choice:
        for key in row:
            if key in merged:
                raise UserError(f"{path}: {key} is in two sections of one part; leave it in one of them.")
        merged |= row
    return merged


def _product(section: Any, path: str) -> list[Row]:
    columns = _columns(section, path)
    return [dict(zip(columns, chosen, strict=True)) for chosen in itertools.product(*columns.values())]


def _zip(section: Any, path: str) -> list[Row]:
    columns = _columns(section, path)
    lengths = {key: len(column) for key, column in columns.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{key} {length}" for key, length in lengths.items())
        raise UserError(f"{path}: the lists need one length, not {said}.")
    return [dict(zip(columns, chosen, strict=True)) for chosen in zip(*columns.values(), strict=True)]


def _list(section: Any, path: str) -> list[Row]:
    if not isinstance(section, list) or not all(isinstance(entry, Mapping) for entry in section):
        raise UserError(f"{path}: a list of mappings is wanted, one a job: - {{optimizer: sgd, optimizer.lr: 0.1}}")
    for entry in section:
        for key in entry:
            _refuse_key(key, path)
    return [{str(key): word(str(key), value) for key, value in entry.items()} for entry in section]


def _join(section: Any, path: str) -> list[Row]:
    if not isinstance(section, list):
        raise UserError(f"{path}: a list of parts is wanted, each with some of {', '.join(SECTIONS)}.")
    for index, part in enumerate(section):
        # It would be a job of the defaults
        if isinstance(part, Mapping) and all(child is None for child in part.values()):
            raise UserError(f"{path}[{index}]: this part lists nothing; give it some of {', '.join(SECTIONS)}.")
    return [row for index, part in enumerate(section) for row in rows(part, f"{path}[{index}]")]


SECTION_ROWS = {"product": _product, "zip": _zip, "list": _list, "join": _join}


def _columns(section: Any, path: str) -> dict[str, list[str]]:
    if not isinstance(section, Mapping) or not section:
        raise UserError(f"{path}: a mapping is wanted, of a key to its values: optimizer.lr: [0.1, 0.01]")
    columns = {}
    for key, values in section.items():
        _refuse_key(key, path)
        if isinstance(values, str):  # as it would be typed: "0,1,2" or "range(0,5)"
            columns[str(key)] = words(_parsed(f"{key}={values}"))
        elif isinstance(values, list) and values:
            columns[str(key)] = [word(str(key), value) for value in values]
        else:
            raise UserError(f"{path}.{key}: a list of values is wanted, with one at least.")
    return columns


def _refuse_key(key: Any, path: str) -> None:
    if not isinstance(key, str) or not key or set(key) & set(" =,"):
        raise UserError(f"{path}: {key!r} is no key; keys are as typed, optimizer.lr.")


def word(key: str, value: Any) -> str:
    """The value of a key as it would be typed, so that Hydra reads back the same: `model.widths=[8,16]`."""
    return f"{key}={_typed(value)}"


def _typed(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_typed(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_typed, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"inf": "inf", "-inf": "-inf"}.get(str(value), "nan")
    if isinstance(value, str) and not (value and _reads_back(value)):
        return quoted(value)
    return str(value)


def _reads_back(text: str) -> bool:
    try:
        parsed = OverridesParser.create().parse_override(f"key={text}")
        return not parsed.is_sweep_override() and parsed.value() == text
    except HydraException:
        return False


def quoted(text: str) -> str:
    """Text as Hydra's grammar takes it: a quote is escaped, and so are backslashes, but only before a quote."""
    pieces = text.split("'")
    escaped = [piece + "\\" * (len(piece) - len(piece.rstrip("\\"))) for piece in pieces]
    return "'" + "\\'".join(escaped).replace("${", "\\${") + "'"


def _parsed(text: str) -> Override:
    try:
        loader = GlobalHydra.instance().config_loader() if GlobalHydra.instance().is_initialized() else None
        return OverridesParser.create(loader).parse_overrides([text])[0]  # which a glob looks into
    except HydraException as error:
        raise UserError(f"{text}: this cannot be read; write it as on a command line, or as a list.") from error
