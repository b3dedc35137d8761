"""Does a plain value fit an annotation, and which word did the user mean?"""

import difflib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Union


def fits(value: Any, annotation: Any) -> bool:
    """Whether a value out of yaml (None, bool, int, float, str, list, dict) fits a simple annotation.

    True is no int; an int is a float; a list is a tuple or sequence. Annotations that are not simple fit everything, except
    that a plain number or text fits no class it is not an instance of.
    """
    if annotation is Any or annotation is object or isinstance(annotation, str | typing.TypeVar):
        return True
    if annotation is None or annotation is type(None):
        return value is None
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if value is None and origin not in (Union, types.UnionType):
        return False
    if origin in (Union, types.UnionType):
        return any(fits(value, argument) for argument in arguments)
    if origin is Literal:
        return any(value == choice and type(value) is type(choice) for choice in arguments)
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    kind = origin or annotation
    if kind is Callable:
        return is_node(value)
    if kind in (list, tuple, set, Sequence, Iterable):
        return isinstance(value, list) and _items_fit(value, kind, arguments)
    if kind in (dict, Mapping):
        return isinstance(value, dict) and (not arguments or all(fits(v, arguments[1]) for v in value.values()))
    if isinstance(kind, type) and kind is not type and not getattr(kind, "_is_protocol", False):
        return isinstance(value, kind) or (kind not in (str, bool) and is_node(value))
    return True


def is_node(value: Any) -> bool:
    """Whether a value describes an object; what it builds is not known before it is built."""
    return isinstance(value, dict) and "_target_" in value


def _items_fit(value: list[Any], kind: Any, arguments: tuple[Any, ...]) -> bool:
    if kind is tuple and arguments and arguments[-1] is not Ellipsis:
        return len(value) == len(arguments) and all(map(fits, value, arguments))
    return not arguments or all(fits(item, arguments[0]) for item in value)


def shown(annotation: Any) -> str:
    """An annotation in words: "a whole number", "one of batch, group, layer"."""
    words = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text",
        type(None): "null",
        None: "null",
    }
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in words:
        return words[annotation]
    if origin in (Union, types.UnionType):
        plain = [argument for argument in arguments if argument in words or typing.get_origin(argument)] or arguments
        return " or ".join(shown(argument) for argument in plain)
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}" if len(arguments) > 1 else str(arguments[0])
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        return f"a list of {len(arguments)} ({shown(arguments[0])} each)"
    if origin in (list, tuple, Sequence, Iterable) or annotation in (list, tuple):
        return "a list" + (f" ({shown(arguments[0])} each)" if arguments else "")
    if origin is Callable:
        return "a node with `_target_`"
    if origin is dict or annotation is dict:
        return "a mapping"
    return str(getattr(annotation, "__name__", annotation))


def unfit(value: Any, annotation: Any) -> str:
    """What is wanted and what was given, in words."""
    wanted, got = shown(annotation), shown(type(value))
    return f"{wanted} is wanted" + ("" if got in wanted or "one of" in wanted else f", not {got}")


def closest(word: str, known: Iterable[str]) -> str:
    """` Did you mean X?`, or nothing when no known word is near."""
    by_lower_case = {name.lower(): name for name in known}
    matches = difflib.get_close_matches(word.lower(), by_lower_case, 1, cutoff=0.5)
    return f" Did you mean {by_lower_case[matches[0]]}?" if matches else ""
