"""What the choice of a part of a mixed cluster depends on, as text and as a document."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autoconf_launch.autotuner.mixed import ChoiceRule, PriceRange
from autoconf_launch.autotuner.planner import Planned

from ..estimates import PRICE_CHANGE, PlanAnswer
from .cells import duration_text, number_text, percent, step_time_text
from .columns import nodes_text

if TYPE_CHECKING:
    from ..estimates import ChoiceSensitivity, RankedParts


def parts_notes(answer: PlanAnswer, parts: RankedParts) -> Iterator[str]:
    """What the rows are, and what it gains to use only some of the nodes."""
    if answer.request.pareto:
        yield (
            f"The front of {len(parts.every):,} parts of the cluster: no other one is both "
            "faster and cheaper than a row."
        )
    else:
        yield (
            "One row for each part of the cluster: its fastest layout, nodes in the order of "
            "ranks, layers of each stage."
        )
    best, whole = parts.every[0], parts.whole
    unused = [kind.count - n for kind, n in zip(answer.kinds, best.counts, strict=True)]
    skipped = nodes_text(answer.kinds, unused)
    if whole is None:
        yield f"No layout fits on all nodes; the fastest does not use {skipped}."
    elif any(unused):
        faster = percent(1 - best.step_s / whole.step_s)
        yield (
            f"Without {skipped} a step is {faster} shorter than on all nodes "
            f"({step_time_text(whole.step_s)})."
        )
    if answer.request.layer_times is not None:
        yield f"Layers are as measured in {answer.request.layer_times}; tp is what it has."


def nearest_feasible(answer: PlanAnswer) -> Iterator[str]:
    """For each limit, what comes nearest to it of the rows that keep the other one."""
    assert answer.parts is not None
    choice, rows = answer.parts.choice, answer.parts.every
    unbounded = (replace(choice, longest_s=math.inf), replace(choice, most_usd=math.inf))
    in_budget, in_time = (one.rank(rows) for one in unbounded)
    if math.isfinite(choice.longest_s) and in_budget:
        fastest = min(in_budget, key=lambda row: row.step_s)
        within = " within the budget" if math.isfinite(choice.most_usd) else ""
        yield f"the fastest{within} takes {_time_and_money(answer, fastest)}"
    if math.isfinite(choice.most_usd) and in_time:
        cheapest = min(in_time, key=lambda row: row.usd_per_step or math.inf)
        within = " in time" if math.isfinite(choice.longest_s) else ""
        yield f"the cheapest{within} takes {_time_and_money(answer, cheapest)}"


def _time_and_money(answer: PlanAnswer, row: Planned) -> str:
    """``151 days and $295,006 on …``; of a step where the training's tokens are not known."""
    steps, usd = answer.steps, row.usd_per_step
    time = step_time_text(row.step_s) if steps is None else duration_text(steps * row.step_s)
    paid = "" if usd is None else f" and ${number_text((steps or 1) * usd, 3)}"
    return f"{time}{paid} on {nodes_text(answer.kinds, row.counts)}"


def sensitivity_lines(answer: PlanAnswer) -> Iterator[str]:
    """What would change the choice: prices, errors of steps, and networks where asked for."""
    parts, request = answer.parts, answer.request
    if parts is None or (found := parts.sensitivity) is None:
        return
    choice = parts.choice
    if request.pareto or math.isfinite(choice.most_usd) or choice.rule is ChoiceRule.CHEAPEST:
        what = choice.rule.value
        yield f"Choice ({what}): {_time_and_money(answer, found.chosen)}."
        yield from (_price_text(parts, one) for one in found.ranges)
        if found.ranges:
            holds = all(_holds(parts, one) for one in found.ranges)
            what = "stays" if holds else "may change"
            yield f"If one price moves by {percent(PRICE_CHANGE)}, the choice {what}."
    if request.explain:
        yield _rivals_text(parts, found)
        yield from _network_lines(parts, found)


def _price_text(parts: RankedParts, one: PriceRange) -> str:
    """``8xA10G-24GB (now $9.77 an hour): the choice stays from $7.14 on; below, …``."""
    kind = parts.question.kinds[one.kind]
    now = f"{kind.name} (now ${kind.usd_per_hour:.2f} an hour)"
    has_low, has_high = one.low > 0, math.isfinite(one.high)
    if not (has_low or has_high):
        return f"{now}: no price of it changes the choice."
    low = f"from ${one.low:.2f}" if has_low else ""
    high = f"up to ${one.high:.2f}" if has_high else "on"
    below = f"; below, {_beyond_text(parts, one.below)}" if has_low else ""
    above = f"; above, {_beyond_text(parts, one.above)}" if has_high else ""
    return f"{now}: the choice stays {f'{low} {high}'.strip()}{below}{above}."


def _beyond_text(parts: RankedParts, row: Planned | None) -> str:
    if row is None:
        return "nothing is within the limits"
    return nodes_text(parts.question.kinds, row.counts)


def _holds(parts: RankedParts, one: PriceRange) -> bool:
    return one.holds(parts.question.kinds[one.kind].usd_per_hour or 0.0, PRICE_CHANGE)


def _rivals_text(parts: RankedParts, found: ChoiceSensitivity) -> str:
    if not found.rivals:
        return f"Steps wrong by their band of ±{percent(found.band)} leave the choice as it is."
    first = nodes_text(parts.question.kinds, found.rivals[0].counts)
    more = f" and {len(found.rivals) - 1} others" if len(found.rivals) > 1 else ""
    return f"Within the steps' band of ±{percent(found.band)}, {first}{more} may be better."


def _network_lines(parts: RankedParts, found: ChoiceSensitivity) -> Iterator[str]:
    for factor, row in found.networks:
        speed = f"{factor:g} times as fast"
        if row is not None and row.counts == found.chosen.counts:
            yield f"With networks {speed} the choice is the same nodes."
        else:
            yield f"With networks {speed} the choice is {_beyond_text(parts, row)}."


def sensitivity_document(parts: RankedParts) -> dict[str, Any] | None:
    """What would change the choice; prices in USD an hour of a node, None for no bound."""
    found = parts.sensitivity
    if found is None:
        return None
    return {
        "chosen": list(found.chosen.counts),
        "prices": [
            {
                "node": parts.question.kinds[one.kind].name,
                "low": one.low,
                "high": one.high if math.isfinite(one.high) else None,
                "below": list(one.below.counts) if one.below else None,
                "above": list(one.above.counts) if one.above else None,
                "holds_within_20_percent": _holds(parts, one),
            }
            for one in found.ranges
        ],
        "step_time_band": found.band,
        "rivals": [list(row.counts) for row in found.rivals],
        "networks": {
            f"{factor:g}": None if row is None else list(row.counts)
            for factor, row in found.networks
        },
    }
