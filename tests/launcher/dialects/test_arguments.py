from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.launcher.spelling import find_argument, put_argument
from autoconf_launch.launcher.spelling.launch_inputs import ArgumentForm, drop_argument

NAMES = ("--batch_size", "-b")


@pytest.mark.parametrize(
    ("argument", "form"),
    [
        (("--batch_size", "8"), ArgumentForm.SPACED),
        (("--batch-size=8",), ArgumentForm.JOINED),
        (("batch_size=8",), ArgumentForm.WORD),
        (("+batch_size=8",), ArgumentForm.WORD),
        (("-b", "8"), ArgumentForm.SPACED),
    ],
)
def test_a_value_is_found_in_each_form(argument: tuple[str, ...], form: ArgumentForm) -> None:
    found = find_argument(("--lr", "1", *argument, "--x"), NAMES)
    assert found is not None
    assert (found.value, found.form) == ("8", form)


def test_the_last_value_counts_and_a_switch_takes_only_a_truth_value() -> None:
    for words, names, switch, value in (
        (("-b", "2", "--batch_size=4"), NAMES, False, "4"),
        (("--batch_size", "-1"), NAMES, False, "-1"),
        (("--amp", "data"), ("--amp",), True, ""),
        (("--amp", "True"), ("--amp",), True, "True"),
    ):
        found = find_argument(words, names, switch=switch)
        assert found is not None
        assert found.value == value


def test_a_new_argument_has_an_equals_sign_where_all_others_have_one() -> None:
    assert put_argument(("c.py", "--lr=1"), None, "--b", "2") == ("c.py", "--lr=1", "--b=2")
    assert put_argument(("--lr", "1"), None, "--b", "2") == ("--lr", "1", "--b", "2")


WORDS = st.lists(st.sampled_from(["--lr", "1", "--x=2", "y=3", "-v", "data"]), max_size=5)
GIVEN = st.sampled_from([("--batch_size", "8"), ("--batch-size=8",), ("batch_size=8",), ()])


@given(WORDS, GIVEN, WORDS)
def test_a_changed_value_is_read_back_and_all_else_stays(
    before: list[str], argument: tuple[str, ...], after: list[str]
) -> None:
    arguments = (*before, *argument, *after)
    changed = put_argument(arguments, find_argument(arguments, NAMES), NAMES[0], "16")
    found = find_argument(changed, NAMES)
    assert found is not None
    assert found.value == "16"
    assert drop_argument(changed, found) == (*before, *after)
