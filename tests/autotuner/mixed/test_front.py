"""Choices by time and money, against looking at every price."""

import math
import random

import pytest

from autoconf_launch.autotuner.cost import Verdict
from autoconf_launch.autotuner.mixed import (
    Choice,
    ChoiceRule,
    MachineKind,
    price_range,
    reprice,
    rivals,
)
from autoconf_launch.autotuner.planner import Planned
from autoconf_launch.core import Layout
from autoconf_launch.tuning_spaces import machine

from ...rows import some


def kinds_at(*prices: float) -> tuple[MachineKind, ...]:
    return tuple(
        MachineKind(
            name=f"8x{gpu}",
            machine=machine(gpu, gpus_per_node=8),
            count=4,
            memory_bytes=2**34,
            usd_per_hour=price,
        )
        for gpu, price in zip(("A100-SXM-40GB", "A10G-24GB"), prices, strict=True)
    )


def row(counts: tuple[int, ...], step_s: float, kinds: tuple[MachineKind, ...]) -> Planned:
    plain = Planned(
        counts=counts,
        order=tuple(k for k, n in enumerate(counts) for _ in range(n)),
        layout=Layout(),
        peak_bytes=2**30,
        limit_bytes=2**34,
        step_s=step_s,
        parts=(),
        verdict=Verdict.YES,
    )
    return reprice([plain], kinds)[0]


def some_rows(seed: int, kinds: tuple[MachineKind, ...]) -> list[Planned]:
    numbers = random.Random(seed)
    parts = [(a, b) for a in range(4) for b in range(4) if a + b]
    return [row(one, numbers.uniform(0.5, 2) / (3 * one[0] + one[1]), kinds) for one in parts]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("rule", [ChoiceRule.CHEAPEST, ChoiceRule.FASTEST])
@pytest.mark.parametrize("kind", [0, 1])
def test_a_choice_stays_exactly_between_its_break_even_prices(
    seed: int, rule: ChoiceRule, kind: int
) -> None:
    kinds = kinds_at(30.0, 9.0)
    rows = some_rows(seed, kinds)
    middle = sorted(one.usd_per_step or 0.0 for one in rows)[len(rows) // 2]
    choice = Choice(rule=rule, longest_s=0.6, most_usd=middle)
    chosen = choice.rank(rows)[0]
    found = some(price_range(rows, choice, kinds, kind))

    def first_at(price: float) -> tuple[int, ...] | None:
        prices = [one.usd_per_hour or 0.0 for one in kinds]
        prices[kind] = price
        ranked = choice.rank(reprice(rows, kinds_at(*prices)))
        return ranked[0].counts if ranked else None

    for price in (x * 0.37 for x in range(1, 400)):
        if found.low < price < found.high:
            assert first_at(price) == chosen.counts
    if found.low > 0:
        assert first_at(found.low * 0.9999) != chosen.counts
        assert found.below is not None
        assert found.below.counts == first_at(found.low * 0.9999)
    if math.isfinite(found.high):
        assert first_at(found.high * 1.0001) != chosen.counts
        assert first_at(found.high * 1.0001) == (found.above.counts if found.above else None)


def test_choices_rank_by_time_and_money_and_rivals_by_the_error() -> None:
    kinds = kinds_at(30.0, 9.0)
    found = some(price_range(some_rows(1, kinds), Choice(rule=ChoiceRule.FASTEST), kinds, 0))
    assert (found.low, found.high) == (0.0, math.inf)
    assert found.holds(30.0, 0.2)
    kinds = kinds_at(30.0, 9.0)
    fast, middle, slow = (
        row((2, 0), 0.2, kinds),
        row((1, 0), 0.35, kinds),
        row((0, 1), 0.9, kinds),
    )
    rows = [slow, fast, middle]
    assert Choice(rule=ChoiceRule.CHEAPEST).rank(rows)[0] == slow
    assert Choice(rule=ChoiceRule.CHEAPEST, longest_s=0.5).rank(rows)[0] == middle
    assert Choice(rule=ChoiceRule.FASTEST).rank(rows)[0] == fast
    assert Choice(rule=ChoiceRule.FASTEST, most_usd=0.003).rank(rows)[0] == middle
    assert Choice(rule=ChoiceRule.FASTEST, longest_s=0.1).rank(rows) == ()
    kinds = kinds_at(30.0, 9.0)
    rows = [row((2, 0), 1.0, kinds), row((1, 0), 1.3, kinds), row((0, 1), 1.5, kinds)]
    assert rivals(rows, Choice(rule=ChoiceRule.FASTEST), 0.16) == (rows[1],)
    assert rivals(rows, Choice(rule=ChoiceRule.FASTEST), 0.05) == ()
