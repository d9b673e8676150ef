"""Why a well-known layout lost, from the parts of its step beside the best one's.

Not: which layouts are well known (families).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .families import Family, families
from .search import Plan, Planned, Question, plan

_GB = 2**30
_LEAST_NAMED = 0.005
_LEAST_SHARE = 0.25
_MOST_NAMED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Loser:
    """The best layout of a family, and why it is not the best of all.

    Attributes:
        planned: the fastest that fits, or the smallest if none does; None where none is valid.
        fits: whether ``planned`` does.
        slower: its step over the best one's, less 1; None where it has no place in the ranking.
    """

    family: str
    planned: Planned | None
    fits: bool
    slower: float | None
    why: str


def losers(question: Question, best: Planned) -> tuple[Loser, ...]:
    """Each family beside the best layout."""
    node = question.training.machine.gpus_per_node
    free = replace(question.limits, deadline_step_s=float("inf"), cost_step_s=float("inf"))
    found = []
    for family in families(best, world=question.world, node=node):
        asked = replace(question, choices=family.choices, most=1, limits=free)
        found.append(_loser(family, plan(asked), best, question))
    return tuple(found)


def _loser(family: Family, found: Plan, best: Planned, question: Question) -> Loser:
    planned = found.best[0] if found.best else found.smallest
    slower = planned.step_s / best.step_s - 1 if planned and found.best else None
    return Loser(
        family=family.name,
        planned=planned,
        fits=bool(found.best),
        slower=slower,
        why=_why(found, best, question) if found.considered else _impossible(family, question),
    )


def _impossible(family: Family, question: Question) -> str:
    """Which equation has no solution."""
    chosen = family.choices
    degrees = [chosen.tensor or (), chosen.pipeline or (), chosen.context or ()]
    if all(len(values) == 1 for values in degrees):
        ranks = math.prod(values[0] for values in degrees)
        data = question.world // ranks
        return f"dp={data} does not divide a global batch of {question.global_batch}"
    return "no such mesh divides the GPUs and the global batch"


def _why(found: Plan, best: Planned, question: Question) -> str:
    if not found.valid:
        rules = sorted(found.rejected, key=lambda one: -one[1])
        return f"breaks {' or '.join(name for name, _ in rules[:2])}"
    if found.smallest is not None:
        over = found.smallest.peak_bytes - question.limits.memory_bytes
        return f"needs {over / _GB:.1f} GB too much"
    one = found.best[0]
    if one.layout == best.layout and one.recompute_layers == best.recompute_layers:
        return "is the best"
    return compared(one, best, question.training.machine.gpus_per_node)


def compared(one: Planned, best: Planned, node: int) -> str:
    """What makes ``one`` slower: the largest of its losses, as shares of the best one's step.

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
        return f"pipeline bubble {dict(one.parts)['bubble'] / one.step_s:.0%}".replace("%", " %")
    words = {
        "ideal": "matrix products",
        "kernels": "kernel inefficiency",
        "recompute": "recomputation",
        "launch": "launch floor",
        "communication": "communication",
        "update": "update",
    }
    text = f"+{100 * share:.0f} % {words[name]}"
    if name == "communication" and one.layout.tensor_parallel > node:
        return f"TP crosses nodes: {text}"
    return text
