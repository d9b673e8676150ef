from typing import Any

from autoconf_launch.autotuner.planner import Loser, losers, plan
from autoconf_launch.autotuner.planner.explanation import families
from autoconf_launch.tuning_spaces import named_model

from .conftest import ask


def find(question: Any) -> dict[str, Loser]:
    best = plan(question).best[0]
    return {one.family.name: one for one in losers(question, best)}


def test_losers_have_names_and_are_slower_or_do_not_fit() -> None:
    plain = find(ask(8, 8, model=named_model("llama3.1-8b"), sequence=4096))["plain DDP"]
    assert plain.planned
    assert not plain.fits
    assert plain.slower is None
    for one in find(ask(8, 64)).values():
        assert one.slower is None or one.slower >= -1e-12
    best = plan(ask(most=1)).best[0]
    names = [family.name for family in families(best, world=8, node=4)]
    assert len(set(names)) == len(names)
