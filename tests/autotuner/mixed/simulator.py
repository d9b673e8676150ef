"""An event simulation of 1F1B, pass by pass: what the formula is held against."""

from __future__ import annotations

from collections.abc import Sequence


def simulate_1f1b(forward_s: Sequence[float], backward_s: Sequence[float], count: int) -> float:
    """End of the last pass of ``count`` micro-batches; sends take no time.

    Each stage does its passes in the order of 1F1B: as many forward ones as there are stages
    behind it, then forward and backward by turns, then the backward ones that are left.
    """
    stages = len(forward_s)
    orders = [_order(stages - 1 - stage, count) for stage in range(stages)]
    done: dict[tuple[int, str, int], float] = {}
    free_s, place = [0.0] * stages, [0] * stages
    left = 2 * stages * count
    while left:
        for stage in range(stages):
            while place[stage] < len(orders[stage]):
                kind, number = orders[stage][place[stage]]
                needs = _needs(stage, kind, number, stages)
                if any(one not in done for one in needs):
                    break
                start = max([free_s[stage], *(done[one] for one in needs)])
                seconds = forward_s[stage] if kind == "forward" else backward_s[stage]
                free_s[stage] = done[stage, kind, number] = start + seconds
                place[stage] += 1
                left -= 1
    return max(free_s)


def _order(behind: int, count: int) -> list[tuple[str, int]]:
    warm_up = min(behind, count)
    passes = [("forward", number) for number in range(warm_up)]
    for number in range(count - warm_up):
        passes += [("forward", warm_up + number), ("backward", number)]
    return passes + [("backward", number) for number in range(count - warm_up, count)]


def _needs(stage: int, kind: str, number: int, stages: int) -> list[tuple[int, str, int]]:
    if kind == "forward":
        return [(stage - 1, "forward", number)] if stage else []
    own = (stage, "forward", number)
    return [own] if stage == stages - 1 else [own, (stage + 1, "backward", number)]
