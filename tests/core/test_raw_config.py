from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import Edit, RawConfig

KEYS = st.text("abc", min_size=1, max_size=2)
DOCUMENTS = st.dictionaries(
    KEYS,
    st.recursive(
        st.integers() | st.booleans() | st.none() | st.text("xy", max_size=2),
        lambda inner: st.dictionaries(KEYS, inner, max_size=3) | st.lists(inner, max_size=2),
        max_leaves=6,
    ),
    max_size=4,
)
PATHS = st.lists(KEYS, min_size=1, max_size=3).map(tuple)


@given(DOCUMENTS, PATHS, st.integers())
def test_an_edited_value_is_read_back_and_the_original_stays(
    document: dict[str, Any], path: tuple[str, ...], value: int
) -> None:
    original = RawConfig(document)
    assert original.with_value(path, value).get(path) == value
    assert original == RawConfig(document)


@given(DOCUMENTS)
def test_a_document_does_not_differ_from_itself(document: dict[str, Any]) -> None:
    assert RawConfig(document).diff(RawConfig(document)) == ()


def test_differences_and_removals_name_their_paths() -> None:
    before = RawConfig({"zero_optimization": {"stage": 0}, "lr": 1})
    after = before.with_value(("zero_optimization", "stage"), 2)
    assert before.diff(after) == (Edit(("zero_optimization", "stage"), 0, 2),)
    raw = RawConfig({"betas": [0.9]})
    raw.get(("betas",)).append(0.99)
    assert raw.get(("betas",)) == [0.9]
    config = RawConfig({"a": {"b": {"c": 1}}, "d": {"e": 1, "f": 2}, "g": {}})
    assert config.without(("a", "b", "c")).to_dict() == {"d": {"e": 1, "f": 2}, "g": {}}
    assert config.without(("d", "e")).to_dict()["d"] == {"f": 2}
    assert config.without(("g", "h")) == config == config.without(("d", "e", "x"))
