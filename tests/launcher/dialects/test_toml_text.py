from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.launcher.spelling import edit_toml, parse_toml, toml_of

TEXT = """# mine
[training]
steps = 1_000  # many
name = "a # b"
mixed = 'half'

[parallelism.inner]
degrees = [1, 2]
"""


def changes(before: RawConfig, after: RawConfig) -> list[tuple[tuple[str, ...], object]]:
    return [(edit.path, edit.after) for edit in before.diff(after)]


def test_scalars_and_lists_are_read_by_table() -> None:
    assert parse_toml(TEXT).to_dict() == {
        "training": {"steps": 1000, "name": "a # b", "mixed": "half"},
        "parallelism": {"inner": {"degrees": [1, 2]}},
    }


def test_an_edit_changes_one_value_and_nothing_else() -> None:
    before = parse_toml(TEXT)
    after = before.with_value(("training", "steps"), 5)
    assert edit_toml(TEXT, changes(before, after)) == TEXT.replace("1_000", "5")


def test_a_new_key_stands_at_the_end_of_its_table() -> None:
    before = parse_toml(TEXT)
    after = before.with_value(("training", "new"), value=True).with_value(("other", "x"), 1)
    edited = edit_toml(TEXT, changes(before, after))
    assert "mixed = 'half'\nnew = true\n\n[parallelism.inner]" in edited
    assert edited.endswith("[other]\nx = 1\n")


def test_dotted_keys_inline_tables_and_lists_of_tables_are_edited_where_they_are() -> None:
    text = "a.b = 1 # one\nc = {d = 2, e = 3}\n[[f]]\ng = 4\n[[f]]\ng = 5\n"
    edited = edit_toml(text, [(("a", "b"), 7), (("c", "d"), 8), (("f", "1", "g"), 9)])
    assert edited == text.replace("1 # one", "7 # one").replace("d = 2", "d = 8").replace("5", "9")


def test_a_key_is_removed_with_its_line() -> None:
    assert edit_toml(TEXT, [(("training", "name"), None)]) == TEXT.replace('name = "a # b"\n', "")


def test_a_text_that_is_not_toml_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"TOML file cannot be read: .* at line 1"):
        parse_toml("a = = 1")


NAMES = st.text("abc", min_size=1, max_size=2)
VALUES = st.one_of(st.booleans(), st.integers(0, 99), st.text("xy #=", max_size=4))


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, min_size=1), min_size=1))
def test_a_document_is_read_back_from_its_text(document: dict[str, dict[str, object]]) -> None:
    assert parse_toml(toml_of(RawConfig(document))).to_dict() == document
