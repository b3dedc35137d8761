"""A run's setting: its config less the seed and the place of the data; and whether a config gives a recorded identity."""

import functools
import itertools
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from torchlite.compare.columns import Value, flattened
from torchlite.naming import computed, hashed, identity_of

PLACE = "<data_dir>"
MOST_TRIED = 64  # ways to read a config's paths


@dataclass(frozen=True)
class Setting:
    """What the runs of one setting share."""

    identity: str
    placeless: dict[str, Any]
    computed: dict[str, Any]
    values: dict[str, Value]
    config: dict[str, Value]


def setting(config: dict[str, Any]) -> Setting:
    """Raises AttributeError, TypeError or KeyError for a config that has not the shape of one."""
    return _setting(json.dumps({**config, "seed": None}))


@functools.lru_cache(maxsize=4096)
def _setting(text: str) -> Setting:
    """The runs of one setting share the work."""
    config = json.loads(text)
    placeless = _placeless(config)
    flat = flattened(config)
    flat.pop("seed", None)
    shared = computed(placeless)
    return Setting(hashed(shared), placeless, shared, flattened(placeless), flat)


def is_recorded(identity: str, shared: Setting, config: dict[str, Any], overrides: Collection[str]) -> bool:
    """Whether the config gives the identity that the run was started under, as far as that can be told.

    The identity leaves out where data lies, whatever follows from `data_dir`; a path that was typed belongs to it. A record
    does not tell the two apart, so either will do. Nor can be told what came from the environment, which no record keeps, or
    a path that publishing took out of the words.
    """
    if identity == hashed({**shared.computed, "seed": config["seed"]}):
        return True
    if re.search(r"\$\{[\w.]+:", json.dumps(shared.placeless)) or any("${data_dir}" in word for word in overrides):
        return True
    place = config.get("data_dir")
    inside = sorted({text for text in _texts(config) if _is_below(text, str(place))})
    ways = (way for n in range(1, len(inside) + 1) for way in itertools.combinations(inside, n))
    tried = (identity_of(_placeless(config, way)) for way in itertools.islice(ways, MOST_TRIED))
    return identity in tried


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict | list):
        for item in node.values() if isinstance(node, dict) else node:
            yield from _texts(item)


def _is_below(text: str, place: str) -> bool:
    return text == place or text.startswith(place.rstrip("/") + "/")


def _placeless(config: dict[str, Any], typed: Collection[str] = ()) -> dict[str, Any]:
    """The config as its identity is taken of it: references followed, wherever the data lies.

    Args:
        typed: paths that follow from nothing, and so stay as they are.
    """
    place = config.get("data_dir")
    flat = {**flattened(config), "data_dir": PLACE}

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
        if isinstance(place, str) and value not in typed and _is_below(value, place):
            return PLACE + value[len(place.rstrip("/")) :]
        return value

    return {"callbacks": None, **followed(config), "data_dir": PLACE}
