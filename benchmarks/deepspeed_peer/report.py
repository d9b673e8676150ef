"""What was found, as one document for ``--json`` and as text. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .blocks import Ratio, rank_arms, ratio
from .choice import GLOBAL_BATCH, LARGEST_MICRO_BATCH, RANKS, Choice
from .measure import Arm, Explored
from .tools import Tool, Tuned

TO_REACH_BEST = 0.98
TO_REACH_TIME = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """A tuner and what it did."""

    tool: Tool
    tuned: Tuned

    @property
    def arm(self) -> Arm:
        """Its choice on its own runtime."""
        return Arm(self.tool, self.tuned.choice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Everything that was measured; ``speeds`` holds samples/s of each arm in each block."""

    ours: Tuning
    deepspeed: Tuning | None
    explored: Explored
    speeds: Mapping[Arm, list[float]]

    @property
    def best(self) -> Arm:
        """The fastest of the finalists, our choice among them, with our global batch."""
        choices = (self.ours.tuned.choice, *self.explored.finalists)
        return rank_arms({arm: self.speeds[arm] for arm in arms_of(self.ours.tool, choices)})[0]

    def ratio(self, above: Arm, below: Arm) -> Ratio:
        """How fast ``above`` is beside ``below``, block by block."""
        return ratio(self.speeds[above], self.speeds[below])


def arms_of(tool: Tool, choices: tuple[Choice, ...]) -> tuple[Arm, ...]:
    """Each distinct choice on one runtime."""
    return tuple(Arm(tool, choice) for choice in dict.fromkeys(choices))


def document(found: Findings) -> dict[str, Any]:
    """The document that ``--json`` prints, but for the machine."""
    best = found.best
    ratios = {"ours_beside_best": asdict(found.ratio(found.ours.arm, best)), **_beside(found)}
    explored = found.explored
    return {
        "ours": _tuning_document(found, found.ours),
        "deepspeed": _tuning_document(found, found.deepspeed) if found.deepspeed else None,
        "best": {"choice": best.choice.name, "samples_per_s": _speed(found, best)},
        "ratios": ratios,
        "space": {
            "ranks": RANKS,
            "global_batch": GLOBAL_BATCH,
            "largest_micro_batch": LARGEST_MICRO_BATCH,
            "configurations": len(explored.relative),
        },
        "interleaved_samples_per_s": {arm.name: all_ for arm, all_ in found.speeds.items()},
        "exhaustive": {
            "wall_s": explored.wall_s,
            "blocks": explored.blocks,
            "reference": explored.reference.name,
            "relative": {choice.name: speed for choice, speed in explored.relative.items()},
        },
    }


def _beside(found: Findings) -> dict[str, Any]:
    """Ours beside DeepSpeed's: whole tools, then the choices alone on either runtime."""
    if found.deepspeed is None:
        return {}
    ours, theirs = found.ours, found.deepspeed

    def choices_on(tool: Tool) -> dict[str, float]:
        arms = (Arm(tool, ours.tuned.choice), Arm(tool, theirs.tuned.choice))
        return asdict(found.ratio(*arms))

    return {
        "ours_beside_deepspeed": asdict(found.ratio(ours.arm, theirs.arm)),
        "our_choice_beside_theirs_on_our_runtime": choices_on(ours.tool),
        "our_choice_beside_theirs_on_deepspeed": choices_on(theirs.tool),
        "our_tuning_time_beside_deepspeed": ours.tuned.wall_s / theirs.tuned.wall_s,
    }


def _tuning_document(found: Findings, tuning: Tuning) -> dict[str, Any]:
    tuned = tuning.tuned
    return {
        "wall_s": tuned.wall_s,
        "trials": tuned.trials,
        "choice": tuned.choice.name,
        "samples_per_s": _speed(found, tuning.arm),
        "global_batch": tuned.choice.global_batch,
    }


def _speed(found: Findings, arm: Arm) -> float:
    return statistics.median(found.speeds[arm])


def as_text(found: dict[str, Any]) -> str:
    """The document for people."""
    lines = [f"{'':12}{'wall':>9}{'trials':>8}  {'choice':22}{'samples/s':>10}"]
    for name in ("ours", "deepspeed"):
        row = found[name]
        if row is None:
            lines.append(f"{name:12}{'-':>9}  ({found.get('deepspeed_missing', 'skipped')})")
            continue
        speed = f"{row['samples_per_s']:10.1f}"
        lines.append(
            f"{name:12}{row['wall_s']:7.1f} s{row['trials']:8}  {row['choice']:22}{speed}"
        )
    best, ratios = found["best"], found["ratios"]
    lines.append(f"{'best':12}{'':17}  {best['choice']:22}{best['samples_per_s']:10.1f}")
    lines.append(_ratio_line("our choice beside the best", ratios["ours_beside_best"]))
    if found["deepspeed"] is not None:
        lines += _peer_lines(ratios)
    return "\n".join(lines)


def _peer_lines(ratios: dict[str, Any]) -> list[str]:
    return [
        _ratio_line("ours beside DeepSpeed, each on its own", ratios["ours_beside_deepspeed"]),
        _ratio_line(
            "the two choices on our runtime", ratios["our_choice_beside_theirs_on_our_runtime"]
        ),
        _ratio_line(
            "the two choices on DeepSpeed", ratios["our_choice_beside_theirs_on_deepspeed"]
        ),
        f"{'our tuning time beside its':40}{ratios['our_tuning_time_beside_deepspeed']:6.2f}"
        f"   (to reach: {TO_REACH_TIME})",
    ]


def _ratio_line(name: str, found: dict[str, float]) -> str:
    to_reach = {"our choice beside the best": TO_REACH_BEST}.get(name, 1.0)
    spread = f"({found['low']:.2f} to {found['high']:.2f})"
    return f"{name:40}{found['median']:6.3f} {spread:15} (to reach: {to_reach})"
