"""The fastest configurations in words, with days, money and what was not measured. Not: tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .figures import Figures, Optimum, failed, fastest_first, optimum
from .outcome import SearchOutcome, SearchRun
from .tables import extrapolation, rounded


def top_text(outcome: SearchOutcome, most: int) -> str:
    """At most ``most`` configurations from the fastest on, each on its line.

    Args:
        outcome: with any number of successes, none too.
        most: how many are listed; 0 lists all.
    """
    ranked, best = fastest_first(outcome), optimum(outcome)
    return "\n".join((*_ranking(ranked, best, most), *_remarks(outcome, ranked))) + "\n"


def _ranking(ranked: tuple[Figures, ...], best: Optimum | None, most: int) -> Iterator[str]:
    if best is None:
        yield "No configuration was measured, so that none is best."
        return
    shown = ranked[:most] if most else ranked
    yield f"Top {len(shown)} configs sorted from fastest to slowest:"
    for number, one in enumerate(shown, start=1):
        yield f"Config #{number}: {_line(one)}"
    yield f"Optimal config: {best.run.name}"
    if best.note:
        yield best.note


def _line(one: Figures) -> str:
    spread = "" if one.run.step_spread_s is None else f" +- {one.run.step_spread_s:.3g}s"
    cost = "" if one.usd is None else f", {one.usd:,.0f} USD"
    tie = "; as fast as the first within the noise" if one.is_tie else ""
    return (
        f"{one.run.name} with {_seconds(one.step_s)}{spread} per global step {_basis(one.run)} "
        f"({rounded(one.model_tflops_per_gpu):g} model TFLOPS / GPU, "
        f"{rounded(one.days):,g} days to train{cost}){tie}."
    )


def _basis(run: SearchRun) -> str:
    made = extrapolation(run)
    return f"extrapolated from {made}" if made else f"over {run.steps} steps"


def _seconds(step_s: float) -> str:
    return f"{step_s:.4f}s" if step_s >= 0.1 else f"{step_s:.4g}s"


def _remarks(outcome: SearchOutcome, ranked: tuple[Figures, ...]) -> Iterator[str]:
    if ranked:
        yield (
            f"Days are {outcome.tokens_b:g}B tokens at the measured speed on {outcome.nodes} x "
            f"{outcome.gpus_per_node} GPUs, steps alone: failures, checkpoints and evaluation "
            f"come on top.{_price(outcome)}"
        )
    if any(extrapolation(one.run) for one in ranked):
        yield (
            "Where a run had no time for a step, it is what its micro-batches make of one: their "
            "mean for all but the last, which has the exchange and the update. With more "
            "max_minutes_per_run there are more of them."
        )
    kinds = Counter(failure.kind.value for _, failure in failed(outcome))
    if kinds:
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        yield f"{kinds.total()} without a measurement ({counts}); failed_jobs has each reason."
    yield from outcome.notes


def _price(outcome: SearchOutcome) -> str:
    if outcome.usd_per_gpu_hour is None:
        return " No price of a GPU hour is known, so there is no cost."
    return f" A GPU hour costs {outcome.usd_per_gpu_hour:g} USD ({outcome.price or 'as given'})."
