"""The answer of ``plan``, on equal nodes or not, for one cluster or several, in all forms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from autoconf_launch.autotuner.cost import EAGER_BAND, MEMORY_BAND
from autoconf_launch.autotuner.planner import Planned
from autoconf_launch.core import plural

from ..estimates import PlanAnswer, RankedParts, Verifying, trains_here
from ..machine import is_cpu
from .cells import (
    duration_text,
    format_gains_document,
    format_gains_text,
    gib,
    memory_size,
    percent,
    step_time_text,
    write_csv,
)
from .columns import (
    PLAN_COLUMNS,
    nodes_text,
    of_best,
    only_in,
    row_documents,
    state_notes,
    step_waterfall,
    waterfall_text,
    write_blocks,
)
from .fit import (
    HOST_NOT_CHECKED,
    ROUGH_CPU,
    STAGE_COLUMNS,
    cluster_name,
    marginal_note,
    training_text,
)
from .measurements import (
    training_runs_document,
    training_runs_text,
    verifying_document,
    verifying_text,
)
from .plan_reasons import (
    CHANGE_COLUMNS,
    LOSER_COLUMNS,
    bands_text,
    change_text,
    cluster_text,
    hidden_sends,
    name_of,
    near_first,
    ranked_tables,
    rejected_table,
    sensitivity_document,
    sensitivity_lines,
    unchecked_text,
    why_nothing,
)
from .tables import (
    CSV,
    JSON,
    Column,
    csv_rows,
    each,
    rows_documents,
    rows_text,
)

PLAN_SCHEMA_VERSION = 2
_MOST_INDENTED = 1000
_WORTH_NAMING = 0.99
"""Share of the best step below which a layout with less headroom is named."""


def plan_document(*answers: PlanAnswer) -> dict[str, Any]:
    """A document of a cluster, or of several with the best layout of each.

    ``explanation`` and ``waterfall`` are present if requested.
    """
    if len(answers) > 1:
        return _clusters_document(answers)
    (answer,) = answers
    found = answer.plan
    document: dict[str, Any] = {
        "schema_version": PLAN_SCHEMA_VERSION,
        "trainer": answer.request.training.trainer.name,
        "considered": found.considered,
        "valid": None if answer.parts else found.valid,
        "fit": None if answer.parts else found.fit,
        "safe": found.safe,
        "headroom": answer.headroom,
        "limit_gib": gib(answer.request.training.limit_bytes),
        "peak_memory_band": MEMORY_BAND,
        "seconds": answer.seconds,
        "cluster": _nodes_document(answer),
        "best": row_documents(answer, found.best),
        "why_nothing": None if found.best else why_nothing(answer),
        "faster_if_it_works": row_documents(answer, found.apart),
        "nearest_changes": [
            {
                "change": change_text(answer, one),
                "trainer": one.request.training.trainer.name,
                **row_documents(one, one.plan.best)[0],
            }
            for one in answer.changes
        ],
        "rejected": dict(found.rejected),
        "faster_formats": format_gains_document(answer.gains),
        "notes": [*_notes(answer)] if found.best else [],
    }
    if answer.parts is not None:
        document["rule"] = answer.parts.choice.rule.value
        document["sensitivity"] = sensitivity_document(answer.parts)
    if answer.needed is not None:
        document["gpus_needed"] = answer.needed.gpus
    if answer.measured is not None:
        document["measured"] = training_runs_document(answer.measured)
    if answer.verifying is not None:
        document["verifying"] = verifying_document(answer.verifying)
    if answer.request.explain and found.best:
        document["explanation"] = rows_documents(LOSER_COLUMNS, answer.losers, answer)
        document["waterfall"] = [
            {"name": step.name, "seconds": step.seconds}
            for step in step_waterfall(found.best[0].parts)
        ]
    return document


def _nodes_document(answer: PlanAnswer) -> list[dict[str, Any]]:
    kinds = zip(answer.kinds, answer.node_usd_per_hour, answer.prices, strict=True)
    return [
        {
            "node": kind.name,
            "count": kind.count,
            "usd_per_hour": hourly,
            "price_source": price and price.how,
        }
        for kind, hourly, price in kinds
    ]


def plan_json(document: dict[str, Any]) -> str:
    """A plan's document as JSON, in a single line if it is very long."""
    indent = 2 if len(document.get("best", ())) <= _MOST_INDENTED else None
    return json.dumps(document, indent=indent, allow_nan=False)


def plan_text(*answers: PlanAnswer) -> str:
    """Head, the ranking, notes on its numbers, ruled-out layouts, and reasons if requested."""
    if len(answers) > 1:
        return _clusters_text(answers)
    (answer,) = answers
    blocks = [needed_text(answer)] if answer.needed and answer.needed.gpus else []
    blocks.append(_headline(answer))
    blocks += _tables(answer)
    if answer.measured:
        blocks.append(training_runs_text(answer.measured))
    if answer.verifying:
        blocks.append(_verifying(answer, answer.verifying))
    return "\n\n".join((*blocks, *_explanation(answer)))


def _explanation(answer: PlanAnswer) -> Iterator[str]:
    if answer.plan.rejected:
        yield rejected_table(answer.plan)
    if lines := list(sensitivity_lines(answer)):
        yield "\n".join(lines)
    if answer.losers:
        yield rows_text(LOSER_COLUMNS, answer.losers, answer)
    if answer.request.explain and answer.plan.best and answer.plan.best[0].parts:
        first = answer.plan.best[0]
        if first.stages:
            yield f"Stages of #1:\n{rows_text(STAGE_COLUMNS, first.stages, answer.kinds)}"
        yield f"A step of #1:\n{waterfall_text(step_waterfall(first.parts))}"


def _verifying(answer: PlanAnswer, verifying: Verifying) -> str:
    error = answer.bands(answer.plan.best[:1])[0].error

    def band(share: float) -> str:
        return f"±{percent((1.0 + error) ** share - 1.0)}"

    text = verifying_text(verifying, answer.workload.architecture.layers, band)
    commands = [one.command for one in verifying.named if one.command is not None]
    if not any(one.framework == "megatron" for one in commands):
        return text
    return (
        f"{text}\nThese runs need Megatron-LM, as the prediction follows the rules of trainer "
        f"{answer.request.training.trainer.name}; --trainer native names runs of our own runtime."
    )


def _headline(answer: PlanAnswer) -> str:
    found, request = answer.plan, answer.request
    what, of, counts = "layouts on orders of nodes", "each GPU's memory", f"{found.safe:,} fit"
    is_bounded = bool(answer.headroom and (found.fit or answer.parts))
    if answer.parts is None:
        what, of = "layouts", memory_size(request.training.limit_bytes)
        counts = f"{found.valid:,} are valid, {found.fit:,} fit"
        counts += f", {found.safe:,}" if is_bounded else ""
    room = f" with {_headroom(answer)} of {of} to spare" if is_bounded else ""
    return (
        f"{training_text(request.training, cluster_text(answer), answer.script)}\n"
        f"{found.considered:,} {what} considered in {answer.seconds:.2f} s: {counts}{room}"
    )


def needed_text(answer: PlanAnswer) -> str:
    """The number of GPUs needed, and the limit that fewer miss."""
    assert answer.needed is not None
    best, fewer = answer.plan.best[0], answer.needed.fewer
    cluster = answer.cluster
    nodes = f"{plural(len(cluster.nodes), 'node')} of {len(cluster.nodes[0].devices)}"
    text = f"Fewest GPUs: {cluster_text(answer)} ({nodes})"
    if answer.steps is None:
        return f"{text} fit it with {_headroom(answer)} of memory to spare."
    text += f", {duration_text(answer.steps * best.step_s)}"
    if fewer is None:
        return f"{text}; fewer have no room for it."
    days = duration_text(answer.steps * fewer.step_s)
    return f"{text}; {answer.needed.nearest:,} would take {days}."


def _headroom(answer: PlanAnswer) -> str:
    return f"{100 * answer.headroom:g} %"


def _tables(answer: PlanAnswer) -> Iterator[str]:
    """The layouts to use, layouts that may be faster, helpful changes, and notes on them."""
    yield from ranked_tables(answer)
    if answer.changes:
        yield _why_changes(answer)
        yield rows_text(CHANGE_COLUMNS, answer.changes, answer)
    if answer.plan.best:
        yield "\n".join(_notes(answer))


def _why_changes(answer: PlanAnswer) -> str:
    if not answer.plan.best:
        return "Nothing fits. Nearest changes that would:"
    if trains_here(answer.workload) or answer.plan.are_all_apart:
        return "Every layout that fits is plan-only. Nearest changes with others:"
    return "Another trainer must run this, as our runtime does not. Nearest change that it trains:"


def _notes(answer: PlanAnswer) -> Iterator[str]:
    shown = answer.shown
    yield from _rows_notes(answer)
    yield from doubts([(answer, shown)])
    yield from near_first(answer)
    if answer.question is not None:
        yield from hidden_sends(answer.shown[0], answer.question.training)
    if answer.parts is None and answer.verifying is None and answer.bands(shown[:1])[0].unchecked:
        yield "--verify 3 names the cheapest real runs that would check #1."
    if (limit := _host_limit(answer)) and any(one.host_bytes for one in shown):
        yield f"A node has {memory_size(limit)} of host memory."
    yield from _prices(answer)
    if is_cpu(answer.cluster):
        yield ROUGH_CPU
    if answer.steps is not None:
        yield f"The training takes {answer.steps:,} steps."


def _prices(answer: PlanAnswer) -> Iterator[str]:
    kinds = answer.cluster.kinds
    for kind, price in zip(kinds, answer.prices, strict=True):
        of, flag = (f" of {kind.gpu}", "--price") if len(kinds) > 1 else ("", "--usd-per-gpu-hour")
        if price is None:
            yield f"No price of {kind.gpu} is known; give one with {flag}."
        else:
            yield f"Price{of}: ${price.usd_per_gpu_hour:.2f} per GPU hour ({price.how})."


def _rows_notes(answer: PlanAnswer) -> Iterator[str]:
    best, tightest, request = answer.plan.best, answer.plan.tightest, answer.request
    if answer.parts is not None:
        yield from _parts_notes(answer, answer.parts)
        if answer.cluster.are_nodes_equal and answer.request.degrees is None:
            flag = "--layer-times" if answer.request.layer_times else "--csv-form fasop"
            flag = "--pareto" if answer.request.pareto else flag
            yield (
                f"{flag} searches neither context parallelism, virtual stages, recomputation of "
                "some blocks nor offload: the same plan without it does, and may be faster."
            )
    elif answer.script and request.top is not None:
        yield (
            "One row for each ZeRO stage and recomputation: its fastest micro-batch. --top 0 "
            "lists all layouts."
        )
    elif request.top is not None:
        yield (
            "One row for each family: which parallelism a layout uses, and whether it shards "
            "weights (ZeRO 3). --top 0 lists all layouts."
        )
    yield from state_notes(answer.states(answer.shown))
    safe = sum(_is_safe(answer, one) for one in best)
    if not safe:
        yield f"No row leaves {100 * request.headroom:g} % of memory free (--headroom)."
    elif safe < len(best):
        rows = f"row {len(best)}" if safe == len(best) - 1 else f"rows {safe + 1} to {len(best)}"
        yield (
            f"Layouts that leave {100 * request.headroom:g} % of memory free (--headroom) come "
            f"first, by step time; {rows} {'leaves' if safe == len(best) - 1 else 'leave'} less."
        )
    is_tighter = tightest is not None and not _is_safe(answer, tightest)
    if tightest is not None and is_tighter and tightest.step_s < _WORTH_NAMING * best[0].step_s:
        yield (
            f"With --headroom 0 the best is {percent(1 - tightest.step_s / best[0].step_s)} "
            f"faster: {name_of(tightest.layout)}, {memory_size(tightest.peak_bytes)}."
        )


def _is_safe(answer: PlanAnswer, one: Planned) -> bool:
    return one.peak_bytes <= (1.0 - answer.request.headroom) * one.limit_bytes


def _parts_notes(answer: PlanAnswer, parts: RankedParts) -> Iterator[str]:
    if answer.request.pareto:
        yield (
            f"The front of {plural(len(parts.every), 'part')} of the cluster: no other part is "
            "both faster and cheaper than a row."
        )
    else:
        rows = "part of the cluster"
        if answer.request.top is None:
            rows = "mesh, micro-batch and order of nodes that fits"
        yield (
            f"One row for each {rows}: its fastest layout, nodes in the order of "
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


def doubts(blocks: Sequence[tuple[PlanAnswer, Sequence[Planned]]]) -> Iterator[str]:
    """Notes on faster formats, error bands and unchecked features."""
    first, rows = blocks[0][0], [(answer, one) for answer, some in blocks for one in some]
    yield from filter(None, [format_gains_text(first.gains)])
    bands = list(dict.fromkeys(band for answer, some in blocks for band in answer.bands(some)))
    if first.script:
        yield (
            "Step times are rooflines over the traced operations, one kernel each, at the rates "
            f"that kernels reach: ±{percent(EAGER_BAND)}, so the order is a guide. Memory is "
            f"±{percent(MEMORY_BAND)}."
        )
    else:
        yield bands_text(bands, "measured" if first.measured else "published")
    yield from marginal_note([one.verdict for _, one in rows])
    yield from unchecked_text(bands)
    if any(not one.script and one.workload.architecture.experts for one, _ in blocks):
        yield "Each expert is taken to get equally many tokens; uneven routing is slower."
    if any(one.host_bytes and not _host_limit(answer) for answer, one in rows):
        yield HOST_NOT_CHECKED


def _host_limit(answer: PlanAnswer) -> float | None:
    question = answer.question
    return None if question is None else question.training.machine.host_memory_bytes


def plan_csv(file: TextIO, *answers: PlanAnswer) -> None:
    """Write a header and a line for each layout, block after block as the tables have them.

    Each of several clusters has a line.
    """
    if len(answers) > 1:
        write_csv(file, csv_rows(CLUSTER_COLUMNS, answers, answers[0]))
        return
    (answer,) = answers
    blocks = [
        ("best", answer, answer.plan.best),
        ("faster if it works", answer, answer.plan.apart),
        *((f"helps: {change_text(answer, one)}", one, one.plan.best) for one in answer.changes),
    ]
    write_blocks(file, blocks)


def _clusters_text(answers: Sequence[PlanAnswer]) -> str:
    table = rows_text(CLUSTER_COLUMNS, answers, answers[0])
    return "\n\n".join(
        (training_text(answers[0].request.training), table, "\n".join(_cluster_notes(answers)))
    )


def _clusters_document(answers: Sequence[PlanAnswer]) -> dict[str, Any]:
    return {
        "schema_version": PLAN_SCHEMA_VERSION,
        "trainer": answers[0].request.training.trainer.name,
        "clusters": rows_documents(CLUSTER_COLUMNS, answers, answers[0]),
        "peak_memory_band": MEMORY_BAND,
        "notes": [*_cluster_notes(answers)],
    }


def _cluster_name(answer: PlanAnswer) -> str:
    return answer.request.training.cluster_text or cluster_name(answer.cluster)


def _best_document(answer: Any, one: PlanAnswer) -> dict[str, Any] | None:
    return next(iter(row_documents(one, one.plan.best)), None)


def _price(one: PlanAnswer, part: str) -> Any:
    return getattr(one.prices[0], part, None)


def _why(answer: Any, one: PlanAnswer) -> str | None:
    return None if one.plan.best else why_nothing(one)


def _ranks(answer: Any, rows: Sequence[PlanAnswer]) -> list[int | None]:
    return [rank if one.plan.best else None for rank, one in enumerate(rows, start=1)]


def _layout_text(answer: Any, one: PlanAnswer) -> str | None:
    return name_of(one.plan.best[0].layout) if one.plan.best else None


CLUSTER_COLUMNS = (
    Column("", _ranks, "#"),
    each("cluster", lambda a, one: _cluster_name(one), "cluster", is_left=True),
    each("gpus", lambda a, one: len(one.cluster.devices), "GPUs", lambda count: f"{count:,}"),
    each("nodes", lambda a, one: len(one.cluster.nodes), when=only_in(JSON)),
    each("usd_per_gpu_hour", lambda a, one: _price(one, "usd_per_gpu_hour"), when=only_in(JSON)),
    each("price_source", lambda a, one: _price(one, "how"), when=only_in(JSON)),
    each("best", _best_document, when=only_in(JSON)),
    each("why", _why, when=only_in(JSON)),
    Column("rank", _ranks, when=only_in(CSV)),
    each("", _layout_text, "layout", is_left=True),
    *map(of_best, PLAN_COLUMNS),
    each("why_nothing", _why, when=only_in(CSV)),
)
"""Rows are the answers of clusters, of which only the best layout is shown."""


def _cluster_notes(answers: Sequence[PlanAnswer]) -> Iterator[str]:
    """Doubts, prices, and why a cluster has no layout."""
    best = [(answer, answer.plan.best) for answer in answers if answer.plan.best]
    if best:
        yield from doubts(best)
    prices = [
        f"{_cluster_name(one)} ${price.usd_per_gpu_hour:.2f} ({price.how.partition(';')[0]})"
        for one in answers
        if (price := one.prices[0]) is not None
    ]
    if prices:
        yield f"Prices per GPU hour: {', '.join(prices)}."
    for answer in answers:
        if (usual := answer.trainer_by_flags(answer)) != answer.request.training.trainer.name:
            yield f"The default for {_cluster_name(answer)} alone is --trainer {usual}."
        if not answer.plan.best:
            yield f"{_cluster_name(answer)}: {why_nothing(answer)}"
