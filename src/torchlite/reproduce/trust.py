"""What a record may make this machine do, since whoever wrote it is a stranger; more only where a person allows it by name."""

import argparse
import math
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from torchlite.check import foreign_nodes
from torchlite.config import Composed
from torchlite.errors import UserError, printable
from torchlite.naming import LOGGING_CALLBACKS
from torchlite.reproduce.records import Past
from torchlite.reproduce.rerun import as_recorded, is_left_out

ALWAYS_ALLOWED = ("TORCHLITE_DATA",)  # where the data lies, which conf/config.yaml asks for
MOST_INTERPOLATIONS = 32  # in one config
LARGEST = 1 << 20  # characters of a config when all is looked up: references to references could fill the memory
REFERENCE = re.compile(r"\$\{([\w.\[\]-]+)\}")
VARIABLE = re.compile(r"\$\{\s*oc\.env:\s*['\"]?([A-Za-z_]\w*)['\"]?\s*(,[^${}]*)?\}")
OTHER = re.compile(r"\$\{[\w.\[\]-]+\}|\$\{oc\.decode:\s*\0\s*\}")  # another key; a variable as a number
UNSEEN = re.compile(r"[\x00-\x20]")  # what a library may strip from an address
ADDRESS = re.compile(r"://|^(hf[-_]hub:|hfds/|hfids/|tfds/)", re.I)
PUBLISHED = re.compile(
    r"torchvision\.datasets\.(MNIST|FashionMNIST|CIFAR10|CIFAR100)"
)  # at fixed addresses, under checksums
FETCHES = ("download", "pretrained", "cache_dir", "hf_hub_id")  # arguments by which a library fetches something


def check(past: Past, options: argparse.Namespace, trusted: Sequence[str], here: bool) -> Composed:
    """The recorded config as it can be run here. Raises UserError, with the path of each key at fault, for what it may not do.

    The present rules hold also where older code runs, whose own may have been looser.

    Args:
        trusted: modules that came with the record and may be named.
        here: the present code runs.
    """
    asked = environment(used(past))
    missing = [name for name, has_default in asked.items() if not has_default and name not in os.environ]
    problems = interpolations(used(past), (*ALWAYS_ALLOWED, *options.allow_env)) + list(_no_text(past.facts["data"]))
    if not problems and missing:
        names = f"variable{'s'[: len(missing) - 1]} {', '.join(missing)}"
        problems = [f"the config needs the environment {names}; set it."]
    if not problems:  # else resolving it would already do what is refused
        composed = as_recorded(past, options.data_dir, tuple(trusted))
        problems = foreign_nodes(composed.config, tuple(trusted))
        problems += reaching(composed.config, options.allow_network, options.trust_code)
        problems += [] if here else kept_by_older_code(past.facts["config"]["callbacks"])
    if problems:
        raise UserError("\n".join(map(printable, problems)))
    return composed


def _no_text(data: dict[str, Any]) -> Iterator[str]:
    """What of the facts that become part of the config that runs is no plain text, a line each."""
    for key in ("data_dir", "root"):
        if "${" in (data.get(key) or ""):
            yield f"data.{key}={data[key]}: torchlite writes plain text here; refused."


def kept_by_older_code(callbacks: dict[str, Any]) -> list[str]:
    """The callbacks that are left out here but not by code that knew them by one path alone, a line each."""
    return [
        f"callbacks.{name}._target_={node['_target_']}: older code would let it log; add --code here."
        for name, node in callbacks.items()
        if is_left_out(node) and node["_target_"] not in LOGGING_CALLBACKS
    ]


def used(past: Past) -> dict[str, Any]:
    """The recorded config less what a repetition leaves out; nothing in it is resolved."""
    made = past.facts["config"]
    return {**made, "callbacks": {name: node for name, node in made["callbacks"].items() if not is_left_out(node)}}


def interpolations(config: dict[str, Any], allowed: Sequence[str]) -> list[str]:
    """What a config that is not resolved yet would look up and may not, a line each."""
    texts = [(path, value) for path, _, value in inside(config) if isinstance(value, str) and "${" in value]
    if sum(text.count("${") for _, text in texts) > MOST_INTERPOLATIONS:
        return [f"config: it has more than {MOST_INTERPOLATIONS} interpolations; refused."]
    if resolved_size(config, config, {}) > LARGEST:
        return ["config: its interpolations refer to one another until it is too large, or without end; refused."]
    problems = []
    for path, text in texts:
        names, rest = variables(text)
        if "${" in rest:
            problems.append(
                f"{path}={text}: a record may refer to keys and to environment variables, by their names alone."
            )
        for name in sorted(names.keys() - set(allowed)):
            problems.append(
                f"{path}: it would use what {name} holds in your environment; add --allow-env {name} if it may."
            )
    return problems


def resolved_size(value: Any, config: dict[str, Any], known: dict[str, float]) -> float:
    """Characters of a part of a config with all keys it refers to in their places; infinite for a circle.

    Args:
        known: sizes of what was referred to so far.
    """
    if isinstance(value, dict | list):
        items = value.values() if isinstance(value, dict) else value
        return sum(resolved_size(item, config, known) for item in items)
    if not isinstance(value, str):
        return 1
    size: float = len(value)
    for name in REFERENCE.findall(value):
        if name not in known:
            known[name] = math.inf  # until it is known
            known[name] = resolved_size(_at(name, config), config, known)
        size += known[name]
    return size


def _at(name: str, config: Any) -> Any:
    """What a reference refers to; None where nothing is there, which resolving will say. A relative one may mean anything."""
    if name.startswith("."):
        return config
    for key in re.findall(r"[\w-]+", name):
        if isinstance(config, list) and key.isdigit() and int(key) < len(config):
            config = config[int(key)]
        else:
            config = config.get(key) if isinstance(config, dict) else None
    return config


def variables(text: str) -> tuple[dict[str, bool], str]:
    """The environment variables that a text asks for, True for one with a default; and the text less what could be read."""
    names: dict[str, bool] = {}
    before = None
    while before != text:  # from the inside out
        before = text
        for name, default in VARIABLE.findall(text):
            names[name] = names.get(name, True) and bool(default)
        text = OTHER.sub("\0", VARIABLE.sub("\0", text))  # which is no letter of a name
    return names, text


def environment(config: Any) -> dict[str, bool]:
    """The environment variables that a recorded config asks for; True: it has a default."""
    asked: dict[str, bool] = {}
    for _, _, value in inside(config):
        for name, default in variables(value)[0].items() if isinstance(value, str) else ():
            asked[name] = asked.get(name, True) and default
    return asked


def inside(value: Any, path: str = "", key: str = "") -> Iterator[tuple[str, str, Any]]:
    """(path, key, value) of a value and of all inside it; what is in a list has the key of the list.

    Left out is that a published set of torchvision is to be downloaded.
    """
    yield path, key, value
    if isinstance(value, dict):
        published = PUBLISHED.fullmatch(str(value.get("_target_"))) is not None
        for name, item in value.items():
            if published and name == "download" and item is True:
                continue
            yield from inside(item, f"{path}.{name}" if path else str(name), str(name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from inside(item, f"{path}[{index}]", key)


def reaching(config: dict[str, Any], network: bool, code: bool) -> Iterator[str]:
    """What in a resolved config would fetch something, send it, or run what it fetched, a line each."""
    for path, key, value in inside(config):
        if key == "trust_remote_code" and value and not code:
            yield f"{path}: it would run code that is fetched from elsewhere; add --trust-code if it may."
        if key == "reader" and str(value).lower().startswith("wds/"):
            yield f"{path}={value}: not allowed here: this reader lets a shell run what an address says."
        if not network and fetches(key, value):
            yield f"{path}={value}: it would reach beyond this machine; add --allow-network if it may."


def needs_network(past: Past) -> bool:
    """Whether a run is repeated with --allow-network only."""
    return any(fetches(key, value) for _, key, value in inside(used(past)))


def fetches(key: str, value: Any) -> bool:
    """Whether an argument makes a library reach for the network, be it only for what is not here."""
    if key in FETCHES:
        return bool(value)
    if not isinstance(value, str):
        return False
    if key in ("weights", "weights_backbone"):  # a file, or the name of published ones
        return not os.path.isfile(value)
    return (
        ADDRESS.search(UNSEEN.sub("", value)) is not None or key == "shards" and ":" in value
    )  # whose braces are yet to be expanded
