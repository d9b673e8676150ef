"""A small share of the campaign's damaged inputs (``make campaign`` has all of them)."""

from __future__ import annotations

import pytest

from .fuzz import Ended, misses_of, why_missed
from .inputs import KINDS, Case, Kind

CASES = 25


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_damaged_input_ends_with_one_short_line_or_is_valid(kind: Kind) -> None:
    assert [str(miss) for miss in misses_of(kind, "fixed", range(CASES), False)] == []


def test_a_broken_promise_is_seen() -> None:
    """The campaign can fail: each promise, broken by hand."""
    case = Case((), "config.json", ("lr",))
    sound = "autoconf-launch: config.json: lr is x"
    assert why_missed(case, Ended(2, sound, "", 0.1)) == ""
    broken = {
        "traceback": Ended(0, "", "", 0.1, "KeyError: 1"),
        "control": Ended(2, f"{sound}\x1b[2J", "", 0.1),
        "took": Ended(2, sound, "", 9.0),
        "exit code": Ended(4, sound, "", 0.1),
        "2 lines": Ended(2, f"{sound}\n{sound}", "", 0.1),
        "a line of": Ended(2, sound + "x" * 400, "", 0.1),
        "does not name": Ended(2, "autoconf-launch: lr is x", "", 0.1),
        "names no key": Ended(2, "autoconf-launch: config.json is wrong", "", 0.1),
    }
    assert [
        word for word, end in broken.items() if not why_missed(case, end).startswith(word)
    ] == []
