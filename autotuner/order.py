"""Which of the rounds' arms to take first. Not: what is measured (finals), nor what else is known.

Rounds of launches that follow each other tell little after one or two of them; what the search
saw of the same configurations is then worth as much.
"""

from __future__ import annotations

from .arms import Arm, deviations, log_cost
from .finals import Finals
from .noise import Noise, checked, relative_error
from .objective import Objective
from .sequential import PairedEstimate


def arms_in_order(rounds: Finals, objective: Objective, noise: Noise) -> tuple[Arm, ...]:
    """Arms that neither failed nor are beaten, the best first.

    What the rounds tell from their leader stands as they say. Of what they do not, who was shown
    to be faster than the baseline goes first, then who met it, then as the search and the rounds
    say together; of who joined but was not launched yet they say nothing. Before the first round
    is over, as the search says.

    Args:
        rounds: as far as they are.
        objective: what is compared.
        noise: of the search.
    """
    first = rounds.leader
    if first is None:
        return ()
    others = [a for a in rounds.arms if a is not first and not a.failed and not a.is_beaten]
    if not rounds.rounds:
        return (first, *others)
    launched = [arm for arm in (first, *others) if arm.rounds]
    if not launched:
        return ()
    first, *others = launched
    noise = checked(noise, deviations(rounds.arms, objective))
    found = {arm.name: rounds.compare(arm, first, rounds.level) for arm in others}

    def place(arm: Arm) -> tuple[bool, bool, bool, float]:
        seen = found.get(arm.name)
        gain = _gain(arm, rounds)
        known = not (gain.differs and gain.mean > 0.0), not gain.count
        if seen is None or seen.differs:
            return seen is not None and seen.mean > 0.0, *known, seen.mean if seen else 0.0
        return False, *known, together(seen, arm, first, objective, noise)

    return tuple(sorted((first, *others), key=place))


def _gain(arm: Arm, rounds: Finals) -> PairedEstimate:
    """Over the baseline, which has none over itself."""
    own = next((a for a in rounds.arms if a.searched.trial.number == 0 and not a.failed), arm)
    return rounds.compare(own, arm)


def together(
    found: PairedEstimate, slower: Arm, faster: Arm, objective: Objective, noise: Noise
) -> float:
    """How much longer ``slower`` takes by search and rounds, each weighted by its precision.

    A logarithm; ``found`` is what the rounds say of the two, ``noise`` of the search.

    Source:
        Cochran 1954, "The Combination of Estimates from Different Experiments": weights are
        inverse variances.
    """
    ours, theirs = slower.searched.measurement, faster.searched.measurement
    if ours is None or theirs is None:
        return found.mean
    searched = log_cost(ours, objective) - log_cost(theirs, objective)
    errors = relative_error(ours, noise) ** 2 + relative_error(theirs, noise) ** 2
    of_search = 1.0 / (errors + 2.0 * noise.between**2)
    of_rounds = found.count / found.spread**2
    return (of_search * searched + of_rounds * found.mean) / (of_search + of_rounds)
