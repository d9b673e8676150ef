"""Numbers of a plan's layouts, reasons against the others, and changes that would help."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from autoconf_launch.autotuner.cost import MEMORY_BAND, LayoutColumns, estimate
from autoconf_launch.autotuner.mixed import ChoiceRule, PriceRange
from autoconf_launch.autotuner.planner import (
    Loser,
    Plan,
    Planned,
    Question,
    StepBand,
    Training,
)
from autoconf_launch.core import Layout, Offload, Recompute, Workload
from autoconf_launch.tuning_spaces import accelerator_names, usable_bytes

from ..estimates import ChoiceSensitivity, PlanAnswer, RankedParts, limit_to_lift
from .cells import (
    duration_text,
    memory_size,
    number_text,
    percent,
    step_time_text,
)
from .columns import PLAN_COLUMNS, RULES_IN_WORDS, nodes_text, of_best, ranking_text, row_documents
from .tables import Column, each, rows_text

_PRICE_CHANGE = 0.2
"""Prices that move by this share should leave a choice as it is."""
_COMPARED = ("step", "tokens/s/GPU", "memory", "free")
_LEAST_NAMED = 0.005
_LEAST_SHARE = 0.25
_MUCH_LONGER = 1.05
_MOST_NAMED = 2
REJECTED_COLUMNS = (
    each("", lambda found, one: RULES_IN_WORDS[one[0]], "ruled out", is_left=True),
    each("", lambda found, one: f"{one[1]:,}", "layouts"),
)


def name_of(layout: Layout) -> str:
    """Degrees of a layout in a few words."""
    degrees = {
        "dp": layout.data_parallel,
        "tp": layout.tensor_parallel,
        "pp": layout.pipeline_parallel,
        "vpp": layout.virtual_pipeline,
        "cp": layout.context_parallel,
        "ep": layout.expert_parallel,
    }
    words = [f"{knob}={size}" for knob, size in degrees.items() if size > 1 or knob == "dp"]
    words += [f"zero={layout.zero_stage}", f"micro-batch={layout.micro_batch}"]
    if layout.recompute is not Recompute.NONE:
        words.append(f"recompute={layout.recompute.value}")
    if layout.sequence_parallel:
        words.append("sp")
    if layout.offload is not Offload.NONE:
        words.append(f"offload={layout.offload.value}")
    return " ".join(words)


def _impossible(one: Loser, question: Question) -> str:
    chosen = one.family.degrees
    axes = (chosen.tensor_parallel, chosen.pipeline_parallel, chosen.context_parallel)
    sizes = [axis or () for axis in axes]
    if all(len(values) == 1 for values in sizes):
        ranks = math.prod(values[0] for values in sizes)
        data, batch = question.world // ranks, question.training.workload.global_batch
        return f"dp={data} does not divide a global batch of {batch}"
    return "no such mesh divides the GPUs and the global batch"


def loser_reason(answer: PlanAnswer, loser: Loser) -> str:
    """Why the best layout of a family is not the best of all."""
    assert answer.question is not None
    question = answer.question
    found, best = loser.plan, loser.best
    if not found.considered:
        return _impossible(loser, question)
    if not found.valid:
        rules = sorted(found.rejected, key=lambda one: -one[1])
        return " or ".join(RULES_IN_WORDS[name] for name, _ in rules[:2])
    limits = question.limits
    if found.smallest is not None:
        return f"needs {memory_size(found.smallest.peak_bytes - limits.memory_bytes)} too much"
    one = found.best[0]
    if one.layout == best.layout and one.recompute_layers == best.recompute_layers:
        return "is the best"
    if one.peak_bytes > limits.safe_bytes >= best.peak_bytes:
        return f"leaves {percent(1 - one.peak_bytes / limits.memory_bytes)} of memory free"
    if one.step_s < best.step_s * (1 - _LEAST_NAMED):
        return "faster if it works, as it is plan-only"
    return slowdown(one, best, question.training.machine.gpus_per_node)


def _planned_of(name: str) -> Column:
    """A column of a row of the plan for the best layout of a family; None if none is valid."""

    def value(answer: PlanAnswer, one: Loser) -> Any:
        return row_documents(answer, [one.planned])[0][name] if one.planned else None

    return each(name, value)


LOSER_COLUMNS = (
    each("layout", "family.name", "layout", is_left=True),
    each("", lambda a, one: one.planned and name_of(one.planned.layout), "its best", is_left=True),
    _planned_of("candidate"),
    each("fits"),
    each(
        *("step_time_s", lambda a, one: one.planned.step_s if one.fits else None, "step"),
        shown=step_time_text,
    ),
    each("slower", "", "slower", lambda share: percent(share, "+")),
    _planned_of("peak_memory_gib"),
    _planned_of("parts"),
    each("why", loser_reason, "why (shares of the best one's step)", is_left=True),
)
"""Well-known families compared with the best layout, and the reason that each lost."""


def slowdown(one: Planned, best: Planned, node: int) -> str:
    """The largest causes of a slower step, as shares of the best layout's step.

    A bubble is given as the share of the slower step that it takes.
    """
    before = dict(best.parts)
    more = {name: (s - before[name]) / best.step_s for name, s in one.parts}
    losses = sorted(
        ((share, name) for name, share in more.items() if share >= _LEAST_NAMED), reverse=True
    )
    if not losses or one.step_s <= best.step_s * (1 + _LEAST_NAMED):
        return "as fast within half a percent"
    total = sum(share for share, _ in losses)
    named = [pair for pair in losses[:_MOST_NAMED] if pair[0] >= _LEAST_SHARE * total]
    return ", ".join(_phrase(name, share, one, node) for share, name in named)


def _phrase(name: str, share: float, one: Planned, node: int) -> str:
    if name == "bubble":
        return f"pipeline bubble {percent(dict(one.parts)['bubble'] / one.step_s)}"
    words = {
        "ideal": "matrix products",
        "kernels": "kernel inefficiency",
        "recompute": "recomputation",
        "launch": "launch floor",
        "communication": "communication",
        "update": "update",
        "frozen": "frozen models",
    }
    text = f"{percent(share, '+')} {words[name]}"
    if name == "communication" and one.layout.tensor_parallel > node:
        return f"TP crosses nodes: {text}"
    return text


def why_nothing(*answers: PlanAnswer) -> str:
    """The requirement that no layout meets: rules, memory, or limits of time and money."""
    if len(answers) > 1:
        return "no cluster has a layout that fits and is within the limits."
    (answer,) = answers
    found = answer.plan
    if answer.parts is not None:
        if nearest := "; ".join(nearest_feasible(answer)):
            return f"no layout is within the limits: {nearest}."
        is_bounded = "--memory-limit" in answer.request.training.given
        return (
            f"none of {found.considered:,} layouts on any part of the cluster fits in memory; "
            f"{'raise --memory-limit, ' if is_bounded else ''}use more nodes, or nodes with more "
            "memory."
        )
    if not found.considered:
        batch, gpus = answer.workload.global_batch, len(answer.cluster.devices)
        return (
            f"--global-batch {batch} is not a multiple of {gpus} GPUs; valid: {gpus}, {2 * gpus}, "
            f"{3 * gpus}, …"
        )
    if not found.valid:
        name, count = max(found.rejected, key=lambda one: one[1])
        return (
            f"none of {found.considered:,} layouts is valid: in {count:,} of them "
            f"{RULES_IN_WORDS[name]}. Take another number of GPUs or global batch."
        )
    if found.smallest is not None:
        return _too_large(answer, found, found.smallest)
    assert found.fastest is not None
    return _too_late(answer, found.fastest)


def _too_large(answer: PlanAnswer, found: Plan, smallest: Planned) -> str:
    needed, limit = smallest.peak_bytes, answer.request.training.limit_bytes
    changes = [_with_change(change_text(answer, one)) for one in answer.changes]
    lifted = limit_to_lift(needed, limit, answer.cluster)
    others = f"without {lifted}" if lifted else _larger(needed)
    helps = [text for text in (*changes, others) if text]
    return (
        f"none of {found.valid:,} valid layouts fits: the smallest need is "
        f"{memory_size(needed)} ±{percent(MEMORY_BAND)} of {memory_size(limit)} a GPU "
        f"({name_of(smallest.layout)}); it would fit "
        f"{' or '.join(helps) or 'on no number or kind of GPU that we know'}."
    )


def _with_change(change: str) -> str:
    if change.startswith("without "):
        return change
    return f"with {change}" if change.startswith("--") else f"on {change}"


def _larger(needed_bytes: float) -> str:
    """The known GPU that has least memory beyond the need."""
    sizes = sorted((usable_bytes(gpu), gpu) for gpu in accelerator_names())
    return next((f"on {gpu}" for size, gpu in sizes if size >= needed_bytes), "")


def _too_late(answer: PlanAnswer, fastest: Planned) -> str:
    assert answer.steps is not None
    request, total_s = answer.request, fastest.step_s * answer.steps
    text, usd = f"takes {duration_text(total_s)}", None
    if fastest.usd_per_step is not None:
        usd = fastest.usd_per_step * answer.steps
        text += f" and costs ${usd:,.0f}"
    limits = [
        f"the deadline is {duration_text(limit)}"
        if flag == "--deadline"
        else f"{flag} is ${limit:,.0f}"
        for flag, limit in request.budget.exceeded_limits(total_s, usd).items()
    ]
    if answer.needed is not None:
        return (
            f"no number of {answer.cluster.devices[0].name} is within the limits: the nearest, "
            f"{len(answer.cluster.devices):,}, {text} for all tokens, but {' and '.join(limits)}."
        )
    return (
        f"no layout is within the limits: the fastest that fits {text} for all tokens, but "
        f"{' and '.join(limits)}; --gpus-needed finds a number of GPUs that is."
    )


def rejected_table(found: Plan) -> str:
    """Layouts by the rule that rejects them, most first."""
    return rows_text(REJECTED_COLUMNS, sorted(found.rejected, key=lambda one: -one[1]), found)


def bands_text(bands: Iterable[StepBand], runs: str) -> str:
    """A sentence on the error bands of steps and memory."""
    errors = [one.error for one in bands]
    ends = dict.fromkeys(f"{100 * error:.0f}" for error in (min(errors), max(errors)))
    return (
        f"90 % error bands from {runs} runs: step time ±{' to '.join(ends)} %, memory "
        f"±{percent(MEMORY_BAND)}."
    )


_MEASURED = {
    "reached_tflops": "products",
    "attention_tflops": "attention",
    "all_reduce_gb_per_s": "all-reduces",
}


def unchecked_text(bands: Iterable[StepBand]) -> Iterator[str]:
    """Sentences on features of trainings and GPUs that no published run has."""
    bands = list(bands)
    if unchecked := list(dict.fromkeys(what for one in bands for what in one.unchecked)):
        yield f"Never checked on {' or '.join(unchecked)}, so the band of the step is wider."
    if assumed := list(dict.fromkeys(_MEASURED[key] for one in bands for key in one.assumed)):
        narrowed = max(one.measured_error for one in bands)
        *first, last = assumed
        yield (
            f"Rates of {' and '.join(filter(None, [', '.join(first), last]))} are assumed: "
            "autoconf-launch doctor --measure-gpu --save FILE measures them on such a machine; "
            f"the band is then ±{percent(narrowed)}."
        )


def ranked_tables(answer: PlanAnswer) -> Iterator[str]:
    """The layouts to use, and apart from them the layouts that should not be used first."""
    best, apart = answer.plan.best, answer.plan.apart
    if best:
        yield ranking_text(answer, 1, best)
    if apart:
        lead = 1.0 - min(one.step_s for one in apart) / best[0].step_s
        error = max(band.error for band in answer.bands(apart))
        yield (
            f"Faster if it works (by up to {percent(lead)}, error band ±{percent(error)}): "
            "plan-only"
        )
        yield ranking_text(answer, len(best) + 1, apart)


def cluster_text(answer: PlanAnswer) -> str:
    """``128 x H100-SXM-80GB``; nodes of each kind if parts of the cluster are ranked."""
    if answer.parts is not None:
        return nodes_text(answer.kinds, [kind.count for kind in answer.kinds])
    gpus = answer.cluster.devices
    return f"{len(gpus):,} x {gpus[0].name}"


def _flags(workload: Workload) -> dict[str, Any]:
    return {
        "--lora-rank": workload.lora_rank,
        "--optimizer": workload.optimizer.name,
        "--precision": workload.precision.value,
        "--weights": workload.weight_format and workload.weight_format.value,
        "--loss": workload.loss and workload.loss.value,
        "--states": workload.states and workload.states.value,
        "--gradients": workload.gradients and workload.gradients.value,
        "--update-in-backward": workload.updates_in_backward or None,
        "--seq": workload.sequence_length,
        "--schedule": workload.software.schedule.name,
    }


def change_text(answer: PlanAnswer, changed: PlanAnswer) -> str:
    """The flags or the cluster in which a changed training differs from the request."""
    before, after = _flags(answer.workload), _flags(changed.workload)
    words = [
        f"{flag} {value}" for flag, value in after.items() if value not in (None, before[flag])
    ]
    dropped = [flag for flag, value in after.items() if value is None and before[flag] is not None]
    words += [f"without {flag}" for flag in dropped]
    trainer = changed.request.training.trainer.name
    if {answer.request.training.trainer.name, answer.trainer_by_flags(changed)} != {trainer}:
        words.append(f"--trainer {trainer}")
    if changed.request.exclude_offload != answer.request.exclude_offload:
        words.append("--exclude-offload")
    if len(changed.cluster.devices) != len(answer.cluster.devices):
        nodes = changed.cluster.nodes
        words.append(f"{len(nodes)}x{len(nodes[0].devices)}x{nodes[0].devices[0].name}")
    return ", ".join(words)


CHANGE_COLUMNS = (
    each("", change_text, "nearest change", is_left=True),
    each("", lambda a, one: name_of(one.plan.best[0].layout), "its best", is_left=True),
    *(of_best(one) for one in PLAN_COLUMNS if one.header in _COMPARED),
    each("", lambda a, one: one.states(one.plan.best[:1])[0].runs_here, "runs here", is_left=True),
)
"""The nearest trainings that would help, with the best layout of each."""


def nearest_feasible(answer: PlanAnswer) -> Iterator[str]:
    """For each limit, the nearest of the rows that keep the other limit."""
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
    steps, usd = answer.steps, row.usd_per_step
    time = step_time_text(row.step_s) if steps is None else duration_text(steps * row.step_s)
    paid = "" if usd is None else f" and ${number_text((steps or 1) * usd, 3)}"
    return f"{time}{paid} on {nodes_text(answer.kinds, row.counts)}"


def sensitivity_lines(answer: PlanAnswer) -> Iterator[str]:
    """Changes that would change the choice: prices, errors of steps, and networks if requested."""
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
            yield f"If one price moves by {percent(_PRICE_CHANGE)}, the choice {what}."
    if request.explain:
        yield from _error_lines(parts, found)


def _price_text(parts: RankedParts, one: PriceRange) -> str:
    """``8xA10G-24GB (now $9.77 an hour): the choice stays from $7.14 on; below, …``."""
    kind = parts.question.kinds[one.kind]
    now = f"{kind.name} (now ${kind.usd_per_hour:.2f} an hour)"
    has_low, has_high = one.low > 0, math.isfinite(one.high)
    if not (has_low or has_high):
        return f"{now}: no price of it changes the choice."
    low = f"from ${one.low:.2f} " if has_low else ""
    high = f"up to ${one.high:.2f}" if has_high else "on"
    below = f"; below, {_beyond_text(parts, one.below)}" if has_low else ""
    above = f"; above, {_beyond_text(parts, one.above)}" if has_high else ""
    return f"{now}: the choice stays {low}{high}{below}{above}."


def _beyond_text(parts: RankedParts, row: Planned | None) -> str:
    if row is None:
        return "nothing is within the limits"
    return nodes_text(parts.question.kinds, row.counts)


def _holds(parts: RankedParts, one: PriceRange) -> bool:
    return one.holds(parts.question.kinds[one.kind].usd_per_hour or 0.0, _PRICE_CHANGE)


def _error_lines(parts: RankedParts, found: ChoiceSensitivity) -> Iterator[str]:
    band = f"band of ±{percent(found.band)}"
    if found.rivals:
        more = f" and {len(found.rivals) - 1} others" if len(found.rivals) > 1 else ""
        first = _beyond_text(parts, found.rivals[0])
        yield f"Within the steps' {band}, {first}{more} may be better."
    else:
        yield f"Steps wrong by their {band} leave the choice as it is."
    for factor, row in found.networks:
        is_same = row is not None and row.counts == found.chosen.counts
        what = "the same nodes" if is_same else _beyond_text(parts, row)
        yield f"With networks {factor:g} times as fast the choice is {what}."


def sensitivity_document(parts: RankedParts) -> dict[str, Any] | None:
    """Changes that would change the choice; prices in USD an hour of a node, None for no bound."""
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


def near_first(answer: PlanAnswer) -> Iterator[str]:
    """A note on rows that the predictions cannot distinguish from the first."""
    first, *others = answer.plan.best
    if answer.parts is not None:  # its own choice may be by money
        return
    longest_s = first.step_s * (1.0 + answer.bands([first])[0].error)
    if near := sum(one.step_s <= longest_s for one in others):
        which = f"{near} of the other {len(others)} rows" if near < len(others) else "All rows"
        verb = "is" if near == 1 < len(others) else "are"
        yield f"{which} {verb} within the error band of #1; short real runs decide between them."


def hidden_sends(first: Planned, training: Training) -> Iterator[str]:
    """A note on the first row's step if its stages wait for every send and that is much."""
    if first.layout.pipeline_parallel == 1:
        return
    columns = LayoutColumns.from_layouts([first.layout], [first.recompute_layers])
    physics = training.machine.physics
    waits = replace(training.machine, physics=replace(physics, point_to_point_overlap=0.0))
    own_s, waiting_s = (
        float(estimate(columns, training.workload, machine).step_s_C[0])
        for machine in (training.machine, waits)
    )
    if waiting_s / own_s >= _MUCH_LONGER:
        yield (
            f"The network is slow for #1: {percent(physics.point_to_point_overlap)} of its sends "
            "between pipeline stages are assumed to be hidden behind computation; if none is, "
            f"its step takes {percent(waiting_s / own_s - 1)} longer."
        )
