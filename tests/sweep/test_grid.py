"""Which jobs a sweep has: what is typed, and the parts of a sweep file."""

from typing import Any

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from torchlite.errors import UserError
from torchlite.sweep import grid


def jobs(typed: str = "", parts: str = "{}") -> list[str]:
    overrides = OverridesParser.create().parse_overrides(typed.split())
    return [" ".join(words) for words in grid.jobs(overrides, yaml.safe_load(parts))]


def test_what_is_typed_is_combined_each_with_each() -> None:
    assert jobs("a=1,2 b=x c=range(0,2)") == ["a=1 b=x c=0", "a=1 b=x c=1", "a=2 b=x c=0", "a=2 b=x c=1"]


def test_sections_of_a_part_are_combined() -> None:
    parts = "{product: {a: [1, 2]}, zip: {b: [x, y], c: [true, null]}}"
    assert jobs("", parts) == ["a=1 b=x c=true", "a=1 b=y c=null", "a=2 b=x c=true", "a=2 b=y c=null"]


def test_parts_are_joined_and_the_rest_applies_to_each() -> None:
    parts = """
    join:
      - list: [{o: adamw}]
      - {list: [{o: sgd, o.momentum: 0.9}], product: {o.lr: [0.1, 0.2]}}
    product: {seed: "range(0,2)"}
    """
    assert jobs("e=3", parts) == [
        *("seed=0 o=adamw e=3", "seed=0 o.lr=0.1 o=sgd o.momentum=0.9 e=3", "seed=0 o.lr=0.2 o=sgd o.momentum=0.9 e=3"),
        *("seed=1 o=adamw e=3", "seed=1 o.lr=0.1 o=sgd o.momentum=0.9 e=3", "seed=1 o.lr=0.2 o=sgd o.momentum=0.9 e=3"),
    ]


def test_a_typed_word_wins_over_the_files() -> None:
    assert jobs("seed=7", "{product: {seed: [0, 1], a: [1]}}") == ["a=1 seed=7"]


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ("{produkt: {a: [1]}}", "sweep.produkt"),
        ("{zip: {a: [1, 2], b: [1]}}", "a 2, b 1"),
        ("{product: {a: 1}}", "sweep.product.a"),
        ("{product: {1: [2, 3]}}", "1 is no key"),
        ("{list: [{a b: 1}]}", "'a b' is no key"),
        ("{product: {a: []}}", "sweep.product.a"),
        ("{product: [a]}", "sweep.product"),
        ("{list: {a: 1}}", "sweep.list"),
        ("{list: [{a: 1}], product: {a: [2]}}", "a is in two sections"),
        ("{list: [a=1]}", "sweep.list"),
        ("{join: {a: 1}}", "sweep.join"),
        ("{join: [{zip: []}]}", "sweep.join[0].zip"),
        ("{join: [{product: {a: [1]}}, {}]}", "sweep.join[1]: this part lists nothing"),
        ("{join: [{product: }]}", "sweep.join[0]: this part lists nothing"),
        ("{product: {a: 'choice('}}", "a=choice("),
        ("{product: {a: 'interval(0,1)'}}", "interval"),
    ],
)
def test_a_section_that_is_not_one_is_named(parts: str, named: str) -> None:
    with pytest.raises(UserError) as error:
        jobs("", parts)
    assert named in str(error.value)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "_target_"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(VALUES)
def test_a_value_is_typed_so_that_it_reads_back_the_same(value: Any) -> None:
    parsed = OverridesParser.create().parse_override(grid.word("key", value))
    assert not parsed.is_sweep_override() and _plain(parsed.value()) == value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if isinstance(value, bool | int | float | None) else str(getattr(value, "text", value))
