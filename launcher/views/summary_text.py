"""A finished tuning run as text and as one document. Not: where they are written."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence

from autoconf_launch.autotuner.noise import SpeedUp
from autoconf_launch.autotuner.stop import StopKind
from autoconf_launch.autotuner.summary import Summary, SummaryRow
from autoconf_launch.core import Edit, dotted, encode

from .step_parts_text import step_parts_document, step_parts_text
from .tables import table_of

SCHEMA_VERSION = 1
_HEADERS = ("tuning_space", "num_experiments", "best_metric_val", "best_exp_name")


def table_text(summary: Summary) -> str:
    """The table in the form of the DeepSpeed Autotuner, with duration and count."""
    rows = [_cells(row) for row in summary.rows]
    table = table_of(rows, _HEADERS, ("left", "right", "right", "left"), markdown=True)
    duration = datetime.timedelta(seconds=summary.duration_s)
    count = summary.rows[-1].num_experiments
    return f"{table}\n\nTuning completed in {duration}. Total number of experiments: {count}.\n"


def findings_text(summary: Summary, edits: Sequence[Edit], command: str) -> str:
    """What was found, what changes in the user's configuration, and how to use it."""
    lines = [summary.stop.sentence] if summary.stop else []
    if summary.winner:
        lines += [_best_line(summary), *_tie_lines(summary), *_check_lines(summary)]
        lines += _edit_lines(edits)
        lines += [summary.learning_rate.sentence] if summary.learning_rate else []
        lines += _certificate_lines(summary)
        lines += filter(None, [step_parts_text(summary.winner, summary.soak)])
        lines += ["Train with it:", f"  {command}"]
    return "\n".join(lines) + "\n"


def summary_document(summary: Summary, edits: Sequence[Edit], command: str) -> dict[str, object]:
    """Content of ``summary.json``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "metric": summary.metric,
        "unit": summary.unit,
        "spaces": [encode(row) for row in summary.rows],
        "winner": summary.winner.trial.name if summary.winner else None,
        "baseline": summary.baseline.trial.name if summary.baseline else None,
        "speed_up": encode(summary.speed_up),
        "paired_rounds": summary.rounds if summary.paired else 0,
        "ties": list(summary.ties),
        "near": list(summary.near),
        "findings": list(summary.findings),
        "resolution": encode(summary.resolution),
        "soak": encode(summary.soak),
        "meaning": encode(summary.meaning),
        "certificate": summary.certificate,
        "left_out": summary.left_out,
        "step_parts": (
            step_parts_document(summary.winner, summary.soak) if summary.winner else None
        ),
        "rejected": dict(summary.rejected),
        "learning_rate": encode(summary.learning_rate),
        "stop": encode(summary.stop),
        "duration_s": summary.duration_s,
        "changes": [
            {"key": dotted(edit.path), "before": edit.before, "after": edit.after}
            for edit in edits
        ],
        "command": command if summary.winner else None,
    }


def speed_up_text(speed_up: SpeedUp) -> str:
    """``1.63 times (1.46 to 1.82) the speed``, with the 95 % interval, if it has an end."""
    if math.isinf(speed_up.high):
        return f"{speed_up.ratio:.2f} times (too few rounds for an interval) the speed"
    return f"{speed_up.ratio:.2f} times ({speed_up.low:.2f} to {speed_up.high:.2f}) the speed"


def _cells(row: SummaryRow) -> tuple[str, str, str, str]:
    if row.best_metric_val is None:
        kind = row.failure.value if row.failure else "-"
        return row.tuning_space, str(row.num_experiments), "-", kind
    value, name = f"{row.best_metric_val:.6g}", row.best_exp_name or "-"
    return row.tuning_space, str(row.num_experiments), value, name


def _best_line(summary: Summary) -> str:
    winner = summary.winner
    assert winner is not None
    best = f"Best: {winner.trial.name}, {summary.rows[-1].best_metric_val:.4g} {summary.unit}"
    if summary.baseline is not None and winner.trial.name == summary.baseline.trial.name:
        if summary.alone:
            return f"{best}. It is your configuration, the only one that was measured."
        if summary.ties or summary.near:
            return f"No measurable gain: your configuration is as fast, so it stays. {best}."
        return f"{best}. Your configuration is already the best one measured."
    if summary.speed_up is None or summary.baseline is None:
        return f"{best}."
    rounds = f"{summary.rounds} round{'s'[: summary.rounds - 1]}"
    how = f", in {rounds}{' in turn' * summary.in_turn}" if summary.paired else ""
    own = summary.baseline.trial.name
    return f"{best}; {speed_up_text(summary.speed_up)} of your {own}{how}."


def _tie_lines(summary: Summary) -> list[str]:
    near = f"Of the search alone, not ruled out by its noise: {', '.join(summary.near)}."
    own = summary.baseline.trial.name if summary.baseline else None
    no_gain = ["Your own configuration is among them: no gain was shown."]
    lines = [near, *no_gain * (own in summary.near)] if summary.near else []
    if not summary.ties:
        return lines
    return [
        f"A tie, not told apart by the noise of this machine: {', '.join(summary.ties)}.",
        *no_gain * (own in summary.ties),
        *([summary.resolution.sentence] if summary.resolution else []),
        *lines,
    ]


def _certificate_lines(summary: Summary) -> list[str]:
    """What could still be gained, unless that is why the search stopped, and what was left out."""
    is_said = summary.stop is not None and summary.stop.kind is StopKind.GOOD_ENOUGH
    return [*filter(None, (None if is_said else summary.certificate, summary.left_out))]


def _check_lines(summary: Summary) -> list[str]:
    """What is known of the winner beside its speed."""
    soak, meaning = summary.soak, summary.meaning
    return [
        *(soak.refused if soak else ()),
        *([soak.sentence] if soak else ()),
        *([meaning.sentence] if meaning else ()),
    ]


def _edit_lines(edits: Sequence[Edit]) -> list[str]:
    if not edits:
        return []
    return [
        "Changes to your configuration:",
        *(
            f"  {dotted(edit.path)}: {_value(edit.before)} -> {_value(edit.after)}"
            for edit in edits
        ),
    ]


def _value(value: object) -> str:
    return "(not set)" if value is None else str(value)
