"""The answer of ``plan``, for one cluster or several, as text, document and CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from autoconf_launch.autotuner.planner import (
    Loser,
    Planned,
)
from autoconf_launch.core import plural

from ..estimates import PlanAnswer, Verifying, trains_here
from .cells import (
    duration_text,
    format_gains_document,
    format_gains_text,
    memory_size,
    percent,
    write_csv,
)
from .columns import (
    PLAN_COLUMNS,
    RankedAnswer,
    RankedRows,
    csv_header,
    csv_lines,
    gib,
    number_cells,
    row_documents,
    write_blocks,
)
from .fit import HOST_NOT_CHECKED, cluster_name, marginal_note, training_text
from .measurements import (
    training_runs_document,
    training_runs_text,
    verifying_document,
    verifying_text,
)
from .plan_reasons import (
    bands_text,
    change_text,
    changes_text,
    cluster_text,
    loser_reason,
    losers_table,
    name_of,
    ranked_tables,
    rejected_table,
    state_notes,
    why_nothing,
)
from .tables import cells_table, each
from .waterfall import waterfall, waterfall_text

PLAN_SCHEMA_VERSION = 2
_MOST_INDENTED = 1000


def plan_document(answer: PlanAnswer) -> dict[str, Any]:
    """A document; ``explanation`` and ``waterfall`` are there where they were asked for."""
    found = answer.plan
    document: dict[str, Any] = {
        "schema_version": PLAN_SCHEMA_VERSION,
        "trainer": answer.request.training.trainer.name,
        "considered": found.considered,
        "valid": found.valid,
        "fit": found.fit,
        "safe": found.safe,
        "headroom": answer.request.headroom,
        "limit_gib": gib(answer.request.training.limit_bytes),
        "seconds": answer.seconds,
        "best": row_documents(answer, found.best),
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
    }
    if answer.needed is not None:
        document["gpus_needed"] = answer.needed.gpus
    if answer.measured is not None:
        document["measured"] = training_runs_document(answer.measured)
    if answer.verifying is not None:
        document["verifying"] = verifying_document(answer.verifying)
    if answer.request.explain and found.best:
        document["explanation"] = [_loser_document(answer, one) for one in answer.losers]
        document["waterfall"] = [
            {"name": step.name, "seconds": step.seconds} for step in waterfall(found.best[0].parts)
        ]
    return document


def plan_json(document: dict[str, Any]) -> str:
    """A plan's document as JSON, in one line where it is very long."""
    indent = 2 if len(document.get("best", ())) <= _MOST_INDENTED else None
    return json.dumps(document, indent=indent, allow_nan=False)


def plan_text(answer: PlanAnswer) -> str:
    """Head, the ranking, notes on its numbers, what was ruled out, and reasons if asked for."""
    blocks = [needed_text(answer)] if answer.needed and answer.needed.gpus else []
    blocks.append(_headline(answer))
    blocks += _tables(answer)
    if answer.measured:
        blocks.append(training_runs_text(answer.measured))
    if answer.verifying:
        blocks.append(_verifying(answer, answer.verifying))
    if answer.plan.rejected:
        blocks.append(rejected_table(answer.plan))
    if answer.losers:
        parts = waterfall(answer.plan.best[0].parts)
        blocks += [losers_table(answer), f"A step of #1:\n{waterfall_text(parts)}"]
    return "\n\n".join(blocks)


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
    limit = memory_size(request.training.limit_bytes)
    has_room = found.fit and request.headroom
    room = f", {found.safe:,} with {_headroom(answer)} of {limit} to spare" if has_room else ""
    return (
        f"{training_text(request.training, cluster_text(answer))}\n"
        f"{found.considered:,} layouts considered in {answer.seconds:.2f} s: {found.valid:,} are "
        f"valid, {found.fit:,} fit{room}"
    )


def needed_text(answer: PlanAnswer) -> str:
    """How many GPUs are needed, and what fewer ones miss."""
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
    return f"{100 * answer.request.headroom:g} %"


def _tables(answer: PlanAnswer) -> Iterator[str]:
    """The layouts to use, those that may be faster, changes that would help, and notes on them."""
    yield from ranked_tables(answer)
    if answer.changes:
        yield _why_changes(answer)
        yield changes_text(answer)
    if answer.rows:
        yield "\n".join(_notes(answer))


def _why_changes(answer: PlanAnswer) -> str:
    if not answer.plan.best:
        return "Nothing fits. Nearest changes that would:"
    if trains_here(answer.workload) or answer.plan.are_all_apart:
        return "Every layout that fits is plan-only. Nearest changes with others:"
    return "Another trainer must run this, as our runtime does not. Nearest change that it trains:"


def _notes(answer: PlanAnswer) -> Iterator[str]:
    yield from _rows_notes(answer)
    shown = (*answer.plan.best, *answer.plan.apart)
    yield from doubts([(answer, shown)])
    yield from _near_first(answer)
    if answer.verifying is None and answer.bands(shown[:1])[0].unchecked:
        yield "--verify 3 names the cheapest real runs that would check #1."
    if (limit := _host_limit(answer)) and any(one.host_bytes for one in shown):
        yield f"A node has {memory_size(limit)} of host memory."
    if answer.price is not None:
        yield f"Price: ${answer.price.usd_per_gpu_hour:.2f} per GPU hour ({answer.price.how})."
    else:
        yield "No price of this GPU is known; give one with --usd-per-gpu-hour."
    if answer.steps is not None:
        yield f"The training takes {answer.steps:,} steps."


def _near_first(answer: PlanAnswer) -> Iterator[str]:
    """Which rows the predictions cannot distinguish from the first."""
    first, *others = answer.plan.best
    longest_s = first.step_s * (1.0 + answer.bands([first])[0].error)
    if near := sum(one.step_s <= longest_s for one in others):
        which = f"{near} of the other {len(others)} rows" if near < len(others) else "All rows"
        verb = "is" if near == 1 < len(others) else "are"
        yield f"{which} {verb} within the error band of #1; short real runs decide between them."


def _rows_notes(answer: PlanAnswer) -> Iterator[str]:
    """What the rows are, which of them are tight, and what less headroom would gain."""
    best, tightest = answer.plan.best, answer.plan.tightest
    if answer.request.top is not None:
        yield (
            "One row for each family: which parallelism a layout uses, and whether it shards "
            "weights (ZeRO 3). --top 0 lists all layouts."
        )
    yield from state_notes(answer.states((*best, *answer.plan.apart)))
    limits = answer.question.limits
    safe = sum(one.peak_bytes <= limits.safe_bytes for one in best)
    if safe < len(best):
        rows = f"row {len(best)}" if safe == len(best) - 1 else f"rows {safe + 1} to {len(best)}"
        yield (
            f"Layouts that leave {_headroom(answer)} of memory free (--headroom) come first, by "
            f"step time; {rows} {'leaves' if safe == len(best) - 1 else 'leave'} less."
        )
    is_tighter = tightest is not None and tightest.peak_bytes > limits.safe_bytes
    if tightest is not None and is_tighter and tightest.step_s < _WORTH_NAMING * best[0].step_s:
        yield (
            f"With --headroom 0 the best is {percent(1 - tightest.step_s / best[0].step_s)} "
            f"faster: {name_of(tightest.layout)}, {memory_size(tightest.peak_bytes)}."
        )


_WORTH_NAMING = 0.99
"""Share of the best step below which a layout with less headroom is named."""


def doubts(blocks: Sequence[tuple[PlanAnswer, Sequence[Planned]]]) -> Iterator[str]:
    """What is faster than fp32, how far off the numbers may be, and what was not checked."""
    first, rows = blocks[0][0], [(answer, one) for answer, some in blocks for one in some]
    yield from filter(None, [format_gains_text(first.gains)])
    bands = list(dict.fromkeys(band for answer, some in blocks for band in answer.bands(some)))
    yield bands_text(bands, "measured" if first.measured else "published")
    yield from marginal_note([one.verdict for _, one in rows])
    if unchecked := list(dict.fromkeys(what for one in bands for what in one.unchecked)):
        yield (f"Never checked on {' or '.join(unchecked)}, so the band of the step is wider.")
    if any(answer.workload.architecture.experts for answer, _ in blocks):
        yield "Each expert is taken to get equally many tokens; uneven routing is slower."
    if any(one.host_bytes and not _host_limit(answer) for answer, one in rows):
        yield HOST_NOT_CHECKED


def _host_limit(answer: PlanAnswer) -> float | None:
    """Host memory of a node; None where it is not known."""
    return answer.question.training.machine.host_memory_bytes


def _loser_document(answer: PlanAnswer, one: Loser) -> dict[str, Any]:
    row = next(iter(row_documents(answer, [one.planned] if one.planned else [])), {})
    return {
        "layout": one.family.name,
        "candidate": row.get("candidate"),
        "fits": one.fits,
        "step_time_s": row.get("step_time_s") if one.fits else None,
        "slower": one.slower,
        "peak_memory_gib": row.get("peak_memory_gib"),
        "parts": row.get("parts"),
        "why": loser_reason(one, answer.question),
    }


def plan_csv(answer: RankedAnswer, file: TextIO) -> None:
    """Write a header and a line for each layout, block after block as the tables have them."""
    blocks: list[tuple[str, RankedAnswer, RankedRows]] = [
        ("best", answer, answer.rows),
        ("faster if it works", answer, answer.apart),
    ]
    if isinstance(answer, PlanAnswer):
        blocks += [(f"helps: {change_text(answer, one)}", one, one.rows) for one in answer.changes]
    write_blocks(file, blocks)


def clusters_text(answers: Sequence[PlanAnswer]) -> str:
    """Head, a row for each cluster, notes on its numbers, and why a cluster has no row's numbers.

    Args:
        answers: of one training, in the order of the rows.
    """
    rows = [_cluster_cells(rank, answer) for rank, answer in enumerate(answers, start=1)]
    names = max(rows, key=len)
    cells = {name: [row.get(name, "-") for row in rows] for name in names}
    table = cells_table((*PLAN_COLUMNS, *_CLUSTER_COLUMNS), cells)
    return "\n\n".join(
        (training_text(answers[0].request.training), table, "\n".join(_cluster_notes(answers)))
    )


_CLUSTER_COLUMNS = [each("", header=name, is_left=True) for name in ("cluster", "layout")]


def clusters_document(answers: Sequence[PlanAnswer]) -> dict[str, Any]:
    """A document; ``best`` is the best layout of each cluster, None where it has none."""
    return {
        "schema_version": PLAN_SCHEMA_VERSION,
        "trainer": answers[0].request.training.trainer.name,
        "clusters": [
            {
                "cluster": _cluster_name(answer),
                "gpus": len(answer.cluster.devices),
                "nodes": len(answer.cluster.nodes),
                "usd_per_gpu_hour": answer.price and answer.price.usd_per_gpu_hour,
                "best": row_documents(answer, answer.plan.best)[0] if answer.plan.best else None,
                "why": None if answer.plan.best else why_nothing(answer),
            }
            for answer in answers
        ],
    }


def clusters_csv(answers: Sequence[PlanAnswer], file: TextIO) -> None:
    """Write a header and a line for each cluster that has a layout."""
    found = [answer for answer in answers if answer.plan.best]
    for rank, answer in enumerate(found, start=1):
        if rank == 1:
            write_csv(file, [("cluster", "gpus", "rank", *csv_header(answer))])
        start = (_cluster_name(answer), len(answer.cluster.devices), rank)
        write_csv(file, [(*start, *line) for line in csv_lines(answer, answer.plan.best)])


def _cluster_name(answer: PlanAnswer) -> str:
    return answer.request.training.cluster_text or cluster_name(answer.cluster)


def _cluster_cells(rank: int, answer: PlanAnswer) -> dict[str, str]:
    best = next(iter(answer.plan.best), None)
    start = {
        "#": str(rank) if best else "-",
        "cluster": _cluster_name(answer),
        "GPUs": f"{len(answer.cluster.devices):,}",
    }
    if best is None:
        return start
    return {**start, "layout": name_of(best.layout), **number_cells(answer, best)}


def _cluster_notes(answers: Sequence[PlanAnswer]) -> Iterator[str]:
    """Doubts, prices, and why a cluster has no layout."""
    best = [(answer, answer.plan.best) for answer in answers if answer.plan.best]
    if best:
        yield from doubts(best)
    prices = [
        f"{_cluster_name(one)} ${price.usd_per_gpu_hour:.2f} ({price.how.partition(';')[0]})"
        for one in answers
        if (price := one.price) is not None
    ]
    if prices:
        yield f"Prices per GPU hour: {', '.join(prices)}."
    for answer in answers:
        if not answer.plan.best:
            yield f"{_cluster_name(answer)}: {why_nothing(answer)}"
