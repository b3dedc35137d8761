"""What is wrong with a word on the command line, and which word was probably meant.

`override` is always one of Hydra's parsed overrides; `groups` maps each config group to its options.
"""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from torchlite import stopping
from torchlite.annotations import closest, fits, shown
from torchlite.errors import UserError

ROOT_KEYS: dict[str, Any] = {  # with the type each must have
    "seed": int,
    "name": str | None,
    "data_dir": str,
    "resume": str | None,
    "dry_run": bool,
    "fail_fast": bool,
}


def wrong_roots(config: dict[str, Any], groups: Sequence[str], in_sweep: bool = False) -> list[str]:
    """What is wrong with the root keys, a line each."""
    problems = []
    problems += [f"{key}: this key is required." for key in ROOT_KEYS if key not in config]
    for key, value in config.items():
        if key in ROOT_KEYS:
            if not fits(value, ROOT_KEYS[key]):
                problems.append(f"{key}={value}: {shown(ROOT_KEYS[key])} is wanted, not {shown(type(value))}.")
        elif key not in groups:
            problems.append(f"{key}: no such key.{closest(key, (*ROOT_KEYS, *groups))}")
    if fits(config.get("seed"), int) and not -(2**63) <= config["seed"] < 2**63:
        problems.append(f"seed={config['seed']}: give a whole number of at most 63 bits.")
    for group in groups:
        if not isinstance(config.get(group), dict):
            problems.append(f"{group}: an option is required; `--help` lists them.")
    if in_sweep and config.get("resume") not in (None, "auto"):
        problems.append(f"resume={config['resume']}: a sweep's jobs go on by themselves; leave it out, or -m.")
    name = config.get("name")
    if isinstance(name, str) and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", name):
        problems.append(
            f"name={name}: letters, digits, `.`, `_` and `-` only, at most 100, since it names a directory."
        )
    return problems


def words_first(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> list[str]:
    """The words of a command line before its flags: argparse reads words on one side of a flag alone.

    Raises:
        UserError: a flag that the parser does not know, one without its value, or a word that would be of no effect.
    """

    def refuse(message: str) -> NoReturn:
        raise UserError(f"{message}; `python train.py --hydra-help` lists the flags.")

    parser.error = refuse  # type: ignore[method-assign]
    flags = list(arguments)
    words = parser.parse_intermixed_args(arguments).overrides
    for word in words:
        flags.remove(word)
        if word.startswith(("hydra.run.", "hydra.sweep.")):
            raise UserError(f"{word}: runs and sweeps lie in ./outputs/NAME; say name=NAME.")
    return [*words, *flags]


def unreadable(text: str) -> str:
    """How to write a word that Hydra's grammar cannot read."""
    key, equals, value = text.partition("=")
    if not equals:
        return f"{text}: write key=value, or quote a value that holds spaces: 'key=\"two words\"'"
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    return f"{text}: cannot be read. Quote the value, and the word for the shell: '{key}=\"{quoted}\"'"


def values(override: Any) -> list[str]:
    """The value, or each value of a sweep, as text."""
    if override.is_discrete_sweep():
        return list(override.sweep_string_iterator())
    return [str(override.get_value_element_as_str())]


def wrong_choice(
    override: Any, groups: Mapping[str, Sequence[str]], sweep: bool, required: Sequence[str]
) -> Iterator[str]:
    """A list of choices where one is wanted, or an option that a group does not have."""
    key = override.key_or_group
    if override.is_sweep_override() and not sweep:
        yield f"{override.input_line}: a list of choices; add -m to run one after the other, or quote it as one value."
    elif key in groups and not override.is_delete():
        for value in values(override):
            if value in groups[key]:
                continue
            near = closest(value, groups[key])
            if value in ("null", "None"):
                near = "" if key in required else " Leave it out to have none, and sweep without it apart."
            yield f"{key}={value}: no such option.{near} {key}: {', '.join(groups[key])}"


def wrong_key(override: Any, config: Any, groups: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A key that the composed config does not have, with the nearest that it has."""
    parts = override.key_or_group.split(".")
    if override.is_add() or parts[0] == "hydra":
        return
    node = config
    for depth, part in enumerate(parts):
        if not isinstance(node, dict) or part not in node:
            known = [str(key) for key in node if key != "_target_"] if isinstance(node, dict) else []
            known = sorted({*known, *(groups if depth == 0 else ())})
            path = ".".join(parts[:depth])
            near = closest(part, known)
            inside = _leaf_paths(config, part) if depth == 0 and len(parts) == 1 else []
            if inside and (inside[0].endswith(f".{part}") or not near):
                near = f" Did you mean {inside[0]}?"
            if near and path:
                near = near.replace("mean ", f"mean {path}.")
            elif not near:
                near = _addable(override, node) or f" There are: {', '.join(known)}."
            yield f"{override.key_or_group}: no such key{f' in {path}' if path else ''}.{near}"
            return
        node = node[part]


def _leaf_paths(config: Any, key: str, path: str = "") -> list[str]:
    """Where a key of that name stands in the config, or one that ends in it as max_epochs does; the nearest first."""
    found = []
    for name, value in config.items() if isinstance(config, dict) else ():
        if path and f"_{name}".endswith(f"_{key}"):
            found.append(f"{path}.{name}")
        found += _leaf_paths(value, key, f"{path}.{name}" if path else str(name))
    return sorted(found, key=lambda place: (not place.endswith(f".{key}"), place.count("."), len(place)))


def _addable(override: Any, node: Any) -> str | None:
    """How to give a key that the yaml leaves out but what it names takes."""
    if override.key_or_group.startswith("callbacks."):
        return f" To add a callback put + before it: +{override.input_line}"
    target = node.get("_target_") if isinstance(node, dict) else None
    if not isinstance(target, str):
        return None
    with stopping.loading():
        from torchlite.build import locate, signature  # brings torch

    try:
        takes = override.key_or_group.rpartition(".")[2] in signature(locate(target))
    except (UserError, ValueError, TypeError):
        return None
    return f" {target} takes it, though: +{override.input_line}" if takes else None
