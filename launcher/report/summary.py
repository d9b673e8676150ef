"""A finished tuning run as text and as one document."""

from __future__ import annotations

import datetime
import math
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from autoconf_launch.autotuner.measurement import measured_name
from autoconf_launch.autotuner.playoff import (
    Decision,
    LearningRateAdvice,
    Summary,
    SummaryRow,
    TuneVerdict,
)
from autoconf_launch.autotuner.search import StopKind
from autoconf_launch.autotuner.space import OBJECTIVES, Objective, Record, is_better
from autoconf_launch.core import Edit, dotted_name, encode, plural

from .cells import (
    is_unshown,
    label,
    number_text,
    seconds_text,
    speed_up_text,
)
from .columns import step_parts_document, step_parts_text
from .search import (
    bound_text,
    crash_text,
    failure_text,
    findings,
    labels,
    meaning_document,
    meaning_text,
    parts_text,
    refused_lines,
    skipped_text,
    soak_document,
    stop_document,
    stop_text,
    verification_text,
)
from .tables import each, rows_text

_Rivals: TypeAlias = Sequence[tuple[str, float]]
SCHEMA_VERSION = 1
COMPUTED = "playoff ratio"
"""Mark of a speed that no launch has: the best's, changed by the ratio in the playoff."""
DETAILS = "Details"
"""Heading of the second part of ``summary.txt``."""
_MOST_EDITS = 7
_MOST_NAMES = 5
_NO_GAIN = "No measurable gain: your configuration is as fast."
_NOT_SHOWN = (
    "No gain was shown: these measurements are too few or too noisy to tell whether another "
    "configuration is faster than yours."
)
_ALREADY_BEST = "No gain: your configuration is the fastest measured."
_CHOSEN = "Values chosen for what your configuration leaves open:"
_SINGLE = "The same command with a longer --budget goes on from here and compares them in rounds."
_NOISY = "A quieter machine or --effort thorough can separate them."


def table_text(summary: Summary) -> str:
    """The table in the form of the DeepSpeed Autotuner, with duration and count."""
    table = rows_text(_SPACE_COLUMNS, summary.rows, markdown=True)
    duration = datetime.timedelta(seconds=round(summary.duration_s))
    count = summary.rows[-1].num_experiments
    scale = f"\n\n{text}" if (text := scale_text(summary.decision)) else ""
    total = f"Tuning completed in {duration}. Total number of experiments: {count}."
    return f"{table}{scale}\n\n{total}\n"


def scale_text(decision: Decision) -> str:
    """Sentence on how speeds of the playoff compare; empty if none is computed."""
    if not decision.computed:
        return ""
    own = "verification run" if decision.is_verified else "playoff rounds"
    return (
        f"Speeds are on one scale: the best has the speed of its {own}, and speeds marked "
        f"{COMPUTED} are computed from it by the ratio that the playoff measured."
    )


def result_text(summary: Summary, edits: Sequence[Edit], command: str, folder: str) -> str:
    """The best, its gain, its edits and its command, then how sure that is; 25 lines at most."""
    if summary.decision.winner is None:
        return "\n".join([*_stop_lines(summary), _more_line(folder)]) + "\n"
    crash = crash_text(summary.decision.soak)
    answer = [
        *filter(None, [crash]),
        *_own_failure_lines(summary),
        *_no_gain_lines(summary),
        _best_line(summary),
        *_edit_lines(summary, edits),
    ]
    doubt = [
        *filter(None, [summary.impossible]),
        *_tie_lines(summary),
        *_check_lines(summary, crash),
        *_stop_lines(summary),
    ]
    once = "Train with it once the script is fixed:" if crash else "Train with it:"
    train = [once, f"  {command}"]
    return "\n".join([*answer, *train, "", *doubt, _more_line(folder)]) + "\n"


def _stop_lines(summary: Summary) -> list[str]:
    """Why it ended, unless it is complete and yet nothing was shown, which is the answer then."""
    is_complete = summary.stop is not None and summary.stop.kind is StopKind.EXPLORED
    is_shown = summary.decision.verdict is not TuneVerdict.INCONCLUSIVE
    stop = [stop_text(summary)] if summary.stop and (is_shown or not is_complete) else []
    return [*stop, *([parts_text(summary.parts)] if summary.parts else [])]


def _more_line(folder: str) -> str:
    return f"Details: autoconf-launch show {shlex.quote(folder)} --details"


def details_text(summary: Summary) -> str:
    """Details: repeated launches, candidates without a trial, and the parts of a step."""
    decision = summary.decision
    lines = [sentence for sentence in findings(summary) if sentence != summary.impossible]
    if decision.winner:
        alike = [rivals for rivals in _rivals(summary) if len(rivals[1]) > _MOST_NAMES]
        lines += [_names_line(summary, *rivals, len(rivals[1])) for rivals in alike]
        lines += [bound_text(summary.optimality_bound)] if summary.optimality_bound else []
        lines += [skipped_text(summary.skipped)] if summary.skipped else []
        lines += filter(None, [step_parts_text(_shown_winner(decision), decision.soak)])
    return "".join(f"{line}\n" for line in lines)


def summary_text(table: str, result: str, details: str) -> str:
    """Content of ``summary.txt``: the result, the table, and details below a heading."""
    second = f"\n{DETAILS}\n{details}" if details else ""
    return f"{result}\n{table}{second}"


def first_part(text: str) -> str:
    """``summary.txt`` without its second part."""
    return text.partition(f"\n{DETAILS}\n")[0]


def second_part(text: str) -> str:
    """The heading in ``summary.txt`` and the text below it; empty without a heading."""
    return "".join(text.rpartition(f"\n{DETAILS}\n")[1:]).lstrip()


def summary_document(summary: Summary, edits: Sequence[Edit], command: str) -> dict[str, object]:
    """Content of ``summary.json``."""
    decision = summary.decision
    return {
        "schema_version": SCHEMA_VERSION,
        "metric": summary.metric,
        "unit": summary.unit,
        "spaces": [encode(row) for row in summary.rows],
        "scale": scale_text(decision) or None,
        "winner": decision.winner.trial.name if decision.winner else None,
        "baseline": summary.baseline.trial.name if summary.baseline else None,
        "speed_up": encode(decision.speed_up),
        "paired_rounds": decision.rounds if decision.paired else 0,
        "verdict": decision.verdict.value,
        "ties": [name for name, _ in decision.ties],
        "undecided": [name for name, _ in decision.undecided],
        "findings": list(findings(summary)),
        "crash": crash_text(decision.soak) or None,
        "soak": soak_document(decision.soak),
        "meaning": meaning_document(decision.meaning),
        "certificate": bound_text(bound) if (bound := summary.optimality_bound) else None,
        "left_out": skipped_text(summary.skipped) if summary.skipped else None,
        "step_parts": (
            step_parts_document(_shown_winner(decision), decision.soak)
            if decision.winner
            else None
        ),
        "rejected": dict(summary.rejected),
        "learning_rate": _advice_document(summary.learning_rate),
        "stop": stop_document(summary),
        "duration_s": summary.duration_s,
        "duration_parts": encode(summary.parts),
        "changes": [
            {"key": dotted_name(edit.path), "before": edit.before, "after": edit.after}
            for edit in edits
        ],
        "command": command if decision.winner else None,
    }


def _value_text(row: SummaryRow) -> str:
    if row.best_metric_val is None:
        return "-"
    mark = f" ({COMPUTED})" if row.computed else " (search only)" if row.search_only else ""
    return f"{row.best_metric_val:.6g}{mark}"


def _best_name(answer: Any, row: SummaryRow) -> str:
    return row.best_exp_name or (row.failure.value if row.failure else "-")


_SPACE_COLUMNS = (
    each("tuning_space", "", "tuning_space", is_left=True),
    each("num_experiments", "", "num_experiments"),
    each("best_metric_val", lambda a, row: row, "best_metric_val", _value_text),
    each("best_exp_name", _best_name, "best_exp_name", is_left=True),
)
"""The table of the DeepSpeed Autotuner."""


def _best_line(summary: Summary) -> str:
    decision, baseline = summary.decision, summary.baseline
    winner = decision.winner
    assert winner is not None
    best = f"Best: {label(winner.trial.candidate)}, {speed_text(summary)}"
    if _is_baseline(summary):
        if summary.alone:
            return f"{best}. Only your own configuration was measured."
        return f"{best}. It is your configuration."
    if decision.speed_up is None or baseline is None or _no_gain_lines(summary):
        return f"{best}."
    rounds = plural(decision.rounds, "playoff round")
    how = f", {rounds if decision.paired else 'single trials'}"
    return f"{best}, {speed_up_text(decision.speed_up, 'your configuration', how)}."


def _is_baseline(summary: Summary) -> bool:
    winner, baseline = summary.decision.winner, summary.baseline
    return bool(winner and baseline and winner.trial.name == baseline.trial.name)


def _no_gain_lines(summary: Summary) -> list[str]:
    """The answer first if nothing is faster than the user's configuration."""
    decision = summary.decision
    if decision.winner is None or summary.baseline is None or summary.alone:
        return []
    if not _is_baseline(summary):
        is_open = decision.speed_up is not None and is_unshown(decision.speed_up)
        return [_NOT_SHOWN] if is_open else []
    if decision.verdict is TuneVerdict.INCONCLUSIVE:
        return [_NOT_SHOWN]
    is_tie = decision.verdict is TuneVerdict.TIE
    return [_as_fast(summary) if is_tie else _own_is_best(summary)]


def _own_failure_lines(summary: Summary) -> list[str]:
    own = summary.baseline.trial.name if summary.baseline else None
    return [
        f"Your configuration failed in the playoff ({failure_text(record.failure)})."
        for record in summary.decision.failed
        if record.failure and measured_name(record.trial.name) == own
    ]


def _as_fast(summary: Summary) -> str:
    """The sentence on a tie, with a trial in it whose own figure was better than yours."""
    faster, met = summary.faster, summary.decision.compared
    if faster is None or faster.trial.name not in met or not _is_baseline(summary):
        return _NO_GAIN
    return (
        f"No measurable gain: {label(faster.trial.candidate)} was faster in its trial, but the "
        "playoff, which measures both again, does not distinguish it from yours."
    )


def _own_is_best(summary: Summary) -> str:
    """Why the user's own configuration stays, though a trial may have been faster."""
    faster, decision, own = summary.faster, summary.decision, summary.baseline
    if faster is None or (own and not is_better(faster, own, _objective(summary))):
        return _ALREADY_BEST
    name = faster.trial.name
    refused = {found.name for found in decision.soak.refused} if decision.soak else set()
    if name in refused:
        why = "did not pass its verification run"
    elif name in {measured_name(record.trial.name) for record in decision.failed}:
        why = "failed in the playoff"
    elif decision.rounds and name in decision.compared:
        why = "was slower than yours in the playoff, which measures both again"
    else:
        return _NOT_SHOWN
    return f"No gain: {label(faster.trial.candidate)} was faster in its trial, but {why}."


def speed_text(summary: Summary) -> str:
    """``183.2 samples/s (0.175 s per step)``: the winner's one speed, as it met the others."""
    shown = _shown_winner(summary.decision)
    assert shown.measurement is not None
    value = f"{number_text(_objective(summary).metric_of(shown) or math.nan)} {summary.unit}"
    if summary.metric == "latency":
        return value
    return f"{value} ({seconds_text(shown.measurement.mean_step_s)} per step)"


def _shown_winner(decision: Decision) -> Record:
    """The winner at its one speed."""
    assert decision.winner is not None
    return decision.compared[decision.winner.trial.name]


def _objective(summary: Summary) -> Objective:
    return next(one for one in OBJECTIVES.values() if one.name == summary.metric)


def _tie_lines(summary: Summary) -> list[str]:
    """Configurations that noise does not separate from the best, and advice if that is open."""
    decision = summary.decision
    lines = [_names_line(summary, *rivals, _MOST_NAMES) for rivals in _rivals(summary)]
    advice = [_NOISY if decision.rounds else _SINGLE] if decision.undecided else []
    return [*lines, *advice]


def _rivals(summary: Summary) -> Iterator[tuple[str, _Rivals]]:
    """Ties, and what was not separated from the best, each with a heading."""
    decision = summary.decision
    if decision.ties:
        yield "Tied with the best, within noise", decision.ties
    if decision.undecided:
        yield _undecided_heading(decision), decision.undecided


def _undecided_heading(decision: Decision) -> str:
    how = plural(decision.rounds, "playoff round") if decision.rounds else "single trials"
    if not math.isfinite(decision.width):
        return f"Not separated from the best by {how}"
    most = f"{100.0 * math.expm1(decision.width):.0f} %"
    verb = "shows" if decision.rounds == 1 else "show"
    return f"Not separated from the best by {how}, which {verb} differences above {most}"


def _names_line(summary: Summary, heading: str, rivals: _Rivals, most: int) -> str:
    """Labels of configurations, each with its measured slowdown or speed-up against the best."""
    known = labels(summary)
    shown = ", ".join(
        f"{known.get(name, name)}{_behind(behind)}" for name, behind in rivals[:most]
    )
    more = f" and {len(rivals) - most} more" if len(rivals) > most else ""
    return f"{heading}: {shown}{more}."


def _behind(log_ratio: float) -> str:
    percent = round(100.0 * math.expm1(abs(log_ratio)))
    return f" ({percent} % {'slower' if log_ratio > 0.0 else 'faster'})" if percent else ""


def advice_text(advice: LearningRateAdvice) -> str:
    """Advice on the learning rate at another global batch."""
    law = "linear, for SGD" if advice.linear else "square root of the ratio"
    change = f"The global batch changes from {advice.before} to {advice.after}"
    return (
        f"{change}: unless the script scales the learning rate itself, multiply it by "
        f"{advice.factor:.3g} ({law})."
    )


def _advice_document(advice: LearningRateAdvice | None) -> object:
    if advice is None:
        return None
    return {"factor": advice.factor, "sentence": advice_text(advice)}


def _check_lines(summary: Summary, crash: str) -> list[str]:
    soak, meaning = summary.decision.soak, summary.decision.meaning
    advice = summary.learning_rate
    verified = [*refused_lines(soak), verification_text(soak)] if soak else []
    is_said = bool(soak and crash and not soak.passed)
    return [
        *([] if is_said else verified),
        *([meaning_text(meaning)] if meaning else ()),
        *([advice_text(advice)] if advice else ()),
    ]


def _edit_lines(summary: Summary, edits: Sequence[Edit]) -> list[str]:
    if not edits:
        return []
    more = len(edits) - _MOST_EDITS
    return [
        _CHOSEN if _is_baseline(summary) else "Changes to your configuration:",
        *(
            f"  {dotted_name(edit.path)}: {_value(edit.before)} -> {_value(edit.after)}"
            for edit in edits[:_MOST_EDITS]
        ),
        *([f"  and {more} more (summary.json has all)"] if more > 0 else []),
    ]


def _value(value: object) -> str:
    return "(not set)" if value is None else str(value)
