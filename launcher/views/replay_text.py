"""What ``replay`` prints: a table of groups, or one JSON document. Not: the scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from autoconf_launch.autotuner.replay import REGRET_AT, WITHIN, Score

from .tables import table_of

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScores:
    """A group's score for each seed."""

    name: str
    configs: int
    scores: tuple[Score, ...]


def _percent(share: float) -> float:
    return 100.0 * share


_METRICS: dict[str, Callable[[Score], float]] = {
    **{
        f"trials_to_{round(100 * share)}pct": lambda one, i=i: one.trials_to[i]  # type: ignore[misc]
        for i, share in enumerate(WITHIN)
    },
    **{
        f"regret_at_{count}": lambda one, i=i: _percent(one.regret_at[i])  # type: ignore[misc]
        for i, count in enumerate(REGRET_AT)
    },
    "out_of_memory_trials": lambda one: one.out_of_memory_trials,
    "stopped_at": lambda one: one.stopped_at,
    "final_regret": lambda one: _percent(one.final_regret),
}


def replay_document(scored: Sequence[GroupScores], notes: Sequence[str]) -> dict[str, object]:
    """The JSON document; a regret is null where nothing had run yet."""
    everything = tuple(one for group in scored for one in group.scores)
    configs = sum(group.configs for group in scored)
    return {
        "schema_version": SCHEMA_VERSION,
        "groups": {group.name: _summary(group.configs, group.scores) for group in scored},
        "all": {"groups": len(scored), **_summary(configs, everything)},
        "left_out": list(notes),
    }


def replay_lines(scored: Sequence[GroupScores]) -> Iterator[str]:
    """A table with a row for each group, means over seeds, and the worst of all."""
    header: tuple[str, ...]
    header = ("group", "configs", "to 2 %", "to 5 %", "regret at 4", "stopped at", "final %")
    header += ("out of memory", "certificate")
    rows = [_cells(group.name, group.configs, group.scores) for group in scored]
    everything = tuple(one for group in scored for one in group.scores)
    configs = sum(group.configs for group in scored)
    rows.append(_cells(f"all {len(scored)} groups", configs, everything))
    yield table_of(rows, header, ("left", *["right"] * (len(header) - 1)))
    worst = max(_METRICS["trials_to_2pct"](one) for one in everything)
    yield f"Trials until within 2 % of the best: at worst {worst:.0f}."


def _cells(name: str, configs: int, scores: Sequence[Score]) -> tuple[str, ...]:
    shown = ("trials_to_2pct", "trials_to_5pct", "regret_at_4", "stopped_at", "final_regret")
    means = (_mean(scores, metric) for metric in (*shown, "out_of_memory_trials"))
    truths = [one.certificate_true for one in scores if one.certificate_true is not None]
    told = "-" if not truths else "true" if all(truths) else f"{truths.count(False)} false"
    return name, str(configs), *(f"{mean:.1f}" for mean in means), told


def _mean(scores: Sequence[Score], metric: str) -> float:
    return sum(map(_METRICS[metric], scores)) / len(scores)


def _summary(configs: int, scores: Sequence[Score]) -> dict[str, object]:
    truths = [one.certificate_true for one in scores if one.certificate_true is not None]
    return {
        "configs": configs,
        **{
            metric: {
                "mean": _finite(_mean(scores, metric)),
                "worst": _finite(max(map(of, scores))),
            }
            for metric, of in _METRICS.items()
        },
        "certificates": {"given": len(truths), "true": sum(truths)},
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
