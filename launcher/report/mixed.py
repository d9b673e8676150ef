"""The answer of ``plan`` on a cluster whose nodes differ, as text and as a document."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from autoconf_launch.autotuner.mixed import ChoiceRule, MixedRow, PriceRange

from ..estimates import PRICE_CHANGE, ChoiceSensitivity, MixedAnswer
from .cells import (
    duration_text,
    memory_size,
    number_text,
    percent,
    step_time_text,
    table_of,
)
from .columns import nodes_text, row_documents
from .fit import marginal_note, training_text
from .plan_reasons import bands_text, ranked_tables, state_notes
from .waterfall import MIXED_PARTS

MIXED_SCHEMA_VERSION = 1


def mixed_text(answer: MixedAnswer) -> str:
    """Head, the best layout of each part of the cluster, notes, and reasons if asked for."""
    blocks = [_headline(answer)]
    if answer.rows:
        blocks += [*ranked_tables(answer), "\n".join(_notes(answer))]
        if lines := list(_sensitivity(answer)):
            blocks.append("\n".join(lines))
        if answer.request.explain:
            blocks += [_stages(answer, answer.rows[0]), _parts(answer.rows[0])]
    return "\n\n".join(blocks)


def why_nothing_mixed(answer: MixedAnswer) -> str:
    """What was asked for that no layout of any part gives."""
    more = "use more nodes, or nodes with more memory"
    if "--memory-limit" in answer.request.training.given:
        more = f"raise --memory-limit, {more}"
    if not answer.plan.priced:
        return (
            f"none of {answer.plan.considered:,} layouts on any part of the cluster fits in "
            f"memory; {more}."
        )
    if not answer.plan.best:
        return f"no layout fits in memory; {more}."
    return f"no layout is within the limits: {'; '.join(nearest_feasible(answer))}."


def _headline(answer: MixedAnswer) -> str:
    counts = [kind.count for kind in answer.kinds]
    return (
        f"{training_text(answer.request.training, nodes_text(answer, counts))}\n"
        f"{answer.plan.considered:,} layouts and orders of nodes considered in "
        f"{answer.seconds:.2f} s, {answer.plan.priced:,} have room for their layers with "
        f"{percent(answer.headroom)} of each GPU's memory to spare"
    )


def _notes(answer: MixedAnswer) -> Iterator[str]:
    if answer.request.pareto:
        yield (
            f"The front of {len(answer.plan.best):,} parts of the cluster: no other one is both "
            "faster and cheaper than a row."
        )
    else:
        yield (
            "One row for each part of the cluster: its fastest layout, nodes in the order of "
            "ranks, layers of each stage."
        )
    yield from _gain(answer)
    if answer.request.layer_times is not None:
        yield f"Layers are as measured in {answer.request.layer_times}; tp is what it has."
    asked = answer.request.headroom
    if answer.headroom < asked:
        yield f"No layout leaves {percent(asked)} of memory free."
    shown = (*answer.rows, *answer.apart)
    yield from state_notes(answer.states(shown))
    for kind, price in zip(answer.kinds, answer.prices, strict=True):
        if price is None:
            yield f"No price of {kind.name} is known; give one with --price."
        else:
            yield f"Price of {kind.name}: ${kind.usd_per_hour:.2f} per hour ({price.how})."
    yield bands_text(answer.bands(shown), "published")
    yield from marginal_note([row.verdict for row in shown])
    if answer.steps is not None:
        yield f"The training takes {answer.steps:,} steps."


def _gain(answer: MixedAnswer) -> Iterator[str]:
    """What it gains to use only some of the nodes."""
    best, whole = answer.plan.best[0], answer.whole
    counts = tuple(kind.count for kind in answer.kinds)
    if best.counts == counts:
        return
    unused = [n - used for n, used in zip(counts, best.counts, strict=True)]
    skipped = nodes_text(answer, unused)
    if whole is None:
        yield f"No layout fits on all nodes; the fastest does not use {skipped}."
    else:
        faster = percent(1 - best.step_s / whole.step_s)
        yield (
            f"Without {skipped} a step is {faster} shorter than on all nodes "
            f"({step_time_text(whole.step_s)})."
        )


def nearest_feasible(answer: MixedAnswer) -> Iterator[str]:
    """For each limit, what comes nearest to it of the rows that keep the other one."""
    choice, rows = answer.choice, answer.plan.best
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


def _time_and_money(answer: MixedAnswer, row: MixedRow) -> str:
    """``151 days and $295,006 on …``; of a step where the training's tokens are not known."""
    steps, usd = answer.steps, row.usd_per_step
    time = step_time_text(row.step_s) if steps is None else duration_text(steps * row.step_s)
    paid = "" if usd is None else f" and ${number_text((steps or 1) * usd, 3)}"
    return f"{time}{paid} on {nodes_text(answer, row.counts)}"


_RULES = {ChoiceRule.FASTEST: "fastest", ChoiceRule.CHEAPEST: "cheapest"}


def _sensitivity(answer: MixedAnswer) -> Iterator[str]:
    """What would change the choice: prices, errors of steps, and networks where asked for."""
    found, request = answer.sensitivity, answer.request
    is_bounded = math.isfinite(answer.choice.most_usd)
    if found is None:
        return
    if request.pareto or is_bounded or answer.choice.rule is ChoiceRule.CHEAPEST:
        what = _RULES[answer.choice.rule]
        yield f"Choice ({what}): {_time_and_money(answer, found.chosen)}."
        yield from (_price_text(answer, one) for one in found.ranges)
        if found.ranges:
            holds = all(_holds(answer, one) for one in found.ranges)
            what = "stays" if holds else "may change"
            yield f"If one price moves by {percent(PRICE_CHANGE)}, the choice {what}."
    if request.explain:
        yield _rivals_text(answer, found)
        yield from _network_lines(answer, found)


def _price_text(answer: MixedAnswer, one: PriceRange) -> str:
    """``8xA10G-24GB (now $9.77 an hour): the choice stays from $7.14 on; below, …``."""
    kind = answer.kinds[one.kind]
    now = f"{kind.name} (now ${kind.usd_per_hour:.2f} an hour)"
    has_low, has_high = one.low > 0, math.isfinite(one.high)
    if not (has_low or has_high):
        return f"{now}: no price of it changes the choice."
    low = f"from ${one.low:.2f}" if has_low else ""
    high = f"up to ${one.high:.2f}" if has_high else "on"
    below = f"; below, {_beyond_text(answer, one.below)}" if has_low else ""
    above = f"; above, {_beyond_text(answer, one.above)}" if has_high else ""
    return f"{now}: the choice stays {f'{low} {high}'.strip()}{below}{above}."


def _beyond_text(answer: MixedAnswer, row: MixedRow | None) -> str:
    return "nothing is within the limits" if row is None else nodes_text(answer, row.counts)


def _holds(answer: MixedAnswer, one: PriceRange) -> bool:
    return one.holds(answer.kinds[one.kind].usd_per_hour or 0.0, PRICE_CHANGE)


def _rivals_text(answer: MixedAnswer, found: ChoiceSensitivity) -> str:
    if not found.rivals:
        return f"Steps wrong by their band of ±{percent(found.band)} leave the choice as it is."
    first = nodes_text(answer, found.rivals[0].counts)
    more = f" and {len(found.rivals) - 1} others" if len(found.rivals) > 1 else ""
    return f"Within the steps' band of ±{percent(found.band)}, {first}{more} may be better."


def _network_lines(answer: MixedAnswer, found: ChoiceSensitivity) -> Iterator[str]:
    for factor, row in found.networks:
        speed = f"{factor:g} times as fast"
        if row is not None and row.counts == found.chosen.counts:
            yield f"With networks {speed} the choice is the same nodes."
        else:
            yield f"With networks {speed} the choice is {_beyond_text(answer, row)}."


def sensitivity_document(answer: MixedAnswer) -> dict[str, Any] | None:
    """What would change the choice; prices in USD an hour of a node, None for no bound."""
    found = answer.sensitivity
    if found is None:
        return None
    return {
        "chosen": list(found.chosen.counts),
        "prices": [
            {
                "node": answer.kinds[one.kind].name,
                "low": one.low,
                "high": one.high if math.isfinite(one.high) else None,
                "below": list(one.below.counts) if one.below else None,
                "above": list(one.above.counts) if one.above else None,
                "holds_within_20_percent": _holds(answer, one),
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


def _stages(answer: MixedAnswer, row: MixedRow) -> str:
    """Where each stage of a row lies, what it has, and how long it takes."""
    ranks = row.layout.world_size // len(row.stages)
    cells = [
        [
            str(number),
            " + ".join(answer.kinds[kind].name for kind in stage.kinds),
            f"{number * ranks} to {(number + 1) * ranks - 1}",
            str(stage.layers),
            step_time_text(stage.micro_batch_s),
            memory_size(stage.peak_bytes),
            percent(1 - stage.peak_bytes / stage.limit_bytes),
        ]
        for number, stage in enumerate(row.stages)
    ]
    headers = ["stage of #1", "nodes", "ranks", "layers", "micro-batch", "memory", "free"]
    return table_of(cells, headers, ["left", "left", *["right"] * 5])


def _parts(row: MixedRow) -> str:
    cells = [
        [MIXED_PARTS[name], step_time_text(seconds), percent(seconds / row.step_s)]
        for name, seconds in row.parts
    ]
    cells.append(["step", step_time_text(row.step_s), "100 %"])
    return table_of(cells, ["a step of #1", "seconds", "share"], ["left", "right", "right"])


def mixed_document(answer: MixedAnswer) -> dict[str, Any]:
    """A document of all rows; ``cluster`` has the kinds to which numbers in rows refer."""
    return {
        "schema_version": MIXED_SCHEMA_VERSION,
        "trainer": answer.request.training.trainer.name,
        "considered": answer.plan.considered,
        "priced": answer.plan.priced,
        "headroom": answer.headroom,
        "seconds": answer.seconds,
        "cluster": [
            {"node": kind.name, "count": kind.count, "usd_per_hour": kind.usd_per_hour}
            for kind in answer.kinds
        ],
        "rule": answer.choice.rule.value,
        "best": row_documents(answer, answer.rows),
        "faster_if_it_works": row_documents(answer, answer.apart),
        "sensitivity": sensitivity_document(answer),
    }
