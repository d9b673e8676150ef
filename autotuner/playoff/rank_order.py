"""Which of the contenders is the best. Not: what is measured (playoff), nor what else is known.

Rounds of launches that follow each other tell little after one or two of them; what the search
saw of the same configurations is then worth as much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from autoconf_launch.core import Candidate

from ..measurement import (
    Noise,
    PairedEstimate,
    correct_noise,
    expected_width,
    relative_error,
    speed_up,
)
from ..space import Objective, Record
from .contender import ALPHA, Contender, deviations, log_cost
from .playoff import Playoff


def order_contenders(rounds: Playoff, objective: Objective, noise: Noise) -> tuple[Contender, ...]:
    """Contenders that neither failed nor are beaten, the best first.

    What the rounds tell from their leader stands as they say. Of the others, those shown to be
    faster than the baseline go first, then those that met it, then as the search and the rounds
    say together; of those that joined but were not launched yet they say nothing. Before the
    first round is over, as the search says.

    Args:
        rounds: as far as they are.
        objective: what is compared.
        noise: of the search.
    """
    first = rounds.leader
    if first is None:
        return ()
    others = [a for a in rounds.contenders if a is not first and not a.failed and not a.is_beaten]
    if not rounds.rounds:
        return (first, *others)
    launched = [contender for contender in (first, *others) if contender.rounds]
    if not launched:
        return ()
    first, *others = launched
    noise = correct_noise(noise, deviations(rounds.contenders, objective))
    found = {
        contender.name: rounds.compare(contender, first, rounds.level) for contender in others
    }

    def place(contender: Contender) -> tuple[bool, bool, bool, float]:
        seen = found.get(contender.name)
        gain = _gain(contender, rounds)
        known = not (gain.differs and gain.mean > 0.0), not gain.count
        if seen is None or seen.differs:
            return seen is not None and seen.mean > 0.0, *known, seen.mean if seen else 0.0
        return False, *known, combined_estimate(seen, (contender, first), objective, noise).mean

    return tuple(sorted((first, *others), key=place))


def _gain(contender: Contender, rounds: Playoff) -> PairedEstimate:
    """Over the baseline, which has none over itself."""
    own = next(
        (a for a in rounds.contenders if a.searched.trial.number == 0 and not a.failed), contender
    )
    return rounds.compare(own, contender)


def combined_estimate(
    found: PairedEstimate,
    pair: tuple[Contender, Contender],
    objective: Objective,
    noise: Noise,
    alpha: float = ALPHA,
) -> PairedEstimate:
    """How much longer the first of a pair takes by search and rounds, weighted by precision.

    Args:
        found: what the rounds say of the two.
        pair: the slower one, then the faster one.
        objective: what is compared.
        noise: of the search.
        alpha: probability that the interval is ever wrong.

    Source:
        Cochran 1954, "The Combination of Estimates from Different Experiments": weights are
        inverse variances; Satterthwaite 1946 for the degrees of freedom of their sum.
    """
    ours, theirs = (contender.searched.measurement for contender in pair)
    if ours is None or theirs is None:
        return found
    searched = log_cost(ours, objective) - log_cost(theirs, objective)
    errors = relative_error(ours, noise) ** 2 + relative_error(theirs, noise) ** 2
    of_search = 1.0 / (errors + 2.0 * noise.between**2)
    of_rounds = found.count / found.spread**2
    total, count = of_search + of_rounds, max(1, found.count)
    doubt = of_search**2 / noise.between_freedom + of_rounds**2 / found.freedom
    both = PairedEstimate(
        mean=(of_search * searched + of_rounds * found.mean) / total,
        width=math.inf,
        count=count,
        spread=math.sqrt(count / total),
        freedom=total**2 / doubt,
    )
    return replace(both, width=expected_width(both, count, alpha))


def lead(
    pair: tuple[Contender, Contender],
    rounds: Playoff,
    objective: Objective,
    noise: Noise,
    rivals: int,
) -> PairedEstimate:
    """How much longer the first of a pair takes by the rounds, or by search and rounds together.

    Together where the rounds agree with the search but are too few to show it alone. The best of
    several looked best partly by luck, so the chance to be wrong is shared by all of them.

    Args:
        pair: the slower one, then the faster one.
        rounds: as far as they are.
        objective: what is compared.
        noise: of the search.
        rivals: configurations that could have been the faster one.
    """
    found = rounds.compare(*pair)
    if not found.count or found.differs or found.mean <= 0.0:
        return found
    noise = correct_noise(noise, deviations(rounds.contenders, objective))
    both = combined_estimate(found, pair, objective, noise, ALPHA / max(1, rivals))
    return both if both.mean > 0.0 and both.differs else found


def smallest_change_first(
    order: Sequence[Record], rounds: Playoff, objective: Objective, noise: Noise
) -> tuple[Record, ...]:
    """The rank order, but among equals the user's own, else what changes least of it.

    The user's own stays where no gain over it was shown. Equal are others which differ by no more
    than ``Effort.equal``, as far as is seen, and cannot be distinguished.

    Args:
        order: the best first.
        rounds: as far as they are; what did not meet there is compared by the search.
        objective: what is compared.
        noise: of the search.
    """
    own = next((record for record in order if record.trial.number == 0), None)
    if own is None or order[0] is own:
        return tuple(order)

    def apart(slower: Record, faster: Record) -> tuple[float, bool]:
        met = _by_rounds(slower, faster, rounds, rounds.level)
        return met or _by_search(slower, faster, objective, noise)

    def is_shown(record: Record) -> bool:
        pair = _met_contenders(own, record, rounds)
        found = lead(pair, rounds, objective, noise, len(order) - 1) if pair else None
        if found and found.count:
            return found.mean > 0.0 and found.differs
        gain, differs = _by_search(own, record, objective, noise)
        return gain > 0.0 and differs

    def is_equal(record: Record) -> bool:
        behind, differs = apart(record, order[0])
        return not differs and abs(behind) <= rounds.effort.equal and is_shown(record)

    equal = [record for record in order if record is order[0] or is_equal(record)]
    users = own.trial.candidate
    first = min(equal, key=lambda r: _change(users, r.trial.candidate))
    first = first if is_shown(first) else own
    return (first, *(record for record in order if record is not first))


def _by_rounds(
    slower: Record, faster: Record, rounds: Playoff, alpha: float
) -> tuple[float, bool] | None:
    """How much longer one took in the rounds, and whether that is told; None: they never met."""
    pair = _met_contenders(slower, faster, rounds)
    found = rounds.compare(*pair, alpha) if pair else None
    return (found.mean, found.differs) if found and found.count else None


def _met_contenders(
    slower: Record, faster: Record, rounds: Playoff
) -> tuple[Contender, Contender] | None:
    contenders = {contender.name: contender for contender in rounds.contenders if contender.rounds}
    ours, theirs = contenders.get(slower.trial.name), contenders.get(faster.trial.name)
    return (ours, theirs) if ours and theirs else None


def _by_search(
    slower: Record, faster: Record, objective: Objective, noise: Noise
) -> tuple[float, bool]:
    """The comparison by one launch of each; infinite and told where it lacks the metric."""
    ours, theirs = slower.measurement, faster.measurement
    found = speed_up(ours, theirs, objective, noise) if ours and theirs else None
    if found is None:
        return math.inf, True
    return math.log(found.ratio), not found.low <= 1.0 <= found.high


def _change(before: Candidate, after: Candidate) -> tuple[float, int]:
    """How far the global batch moves, and how many knobs do."""
    batches = after.layout.global_batch / before.layout.global_batch
    names = before.layout.__slots__
    moved = sum(getattr(before.layout, n) != getattr(after.layout, n) for n in names)
    extras = {*before.extras} ^ {*after.extras}
    return abs(math.log(batches)), moved + len({name for name, _ in extras})
