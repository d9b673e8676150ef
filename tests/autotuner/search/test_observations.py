from __future__ import annotations

import math
import random
from dataclasses import replace

from autoconf_launch.autotuner.measurement import AGAIN_SUFFIX
from autoconf_launch.autotuner.search import Grouping, drift
from autoconf_launch.autotuner.search.observations import Observations
from autoconf_launch.autotuner.search.pool import Pool
from autoconf_launch.autotuner.space import OBJECTIVES, Record, Trial

from ..conftest import settings, small_space, steps_of

SPACE = small_space()


def learn() -> Observations:
    groups, objective = Grouping.of_settings(settings()), OBJECTIVES["throughput"]
    return Observations(SPACE, Pool(SPACE, None, (), groups, objective), groups, objective)


def tell(number: int, step_s: float, again: int = 0, attempt: int = 1) -> Record:
    trial = Trial(
        number=number,
        name=f"t{number}{AGAIN_SUFFIX if again else ''}",
        candidate=SPACE.table.row(number),
        space="z0",
        again=again,
        attempt=attempt,
    )
    return Record(trial=trial, outcome=steps_of(trial, step_s), wall_s=1.0)


def test_repeats_change_what_they_refute_and_nothing_else() -> None:
    known = learn()
    for record in (tell(0, 1.0), tell(1, 0.9), tell(2, 1.1)):
        known.tell(record)
    before = known.compared, known.best, dict(known.stages)
    known.tell(tell(0, 1.01, again=3))
    assert (known.compared, known.best, known.stages) == before
    known = learn()
    for record in (tell(0, 1.0), tell(1, 1.0), tell(2, 0.3), tell(3, 1.0)):
        known.tell(record)
    assert known.best == tell(2, 0.3)
    repeat = tell(2, 1.1, again=4)
    known.tell(replace(repeat, trial=replace(repeat.trial, doubted=True)))
    assert known.best == tell(0, 1.0)
    assert known.records[2] == tell(2, 0.3)
    known = learn()
    for record in (tell(0, 1.0), tell(1, 1.0), tell(2, 1.6)):
        known.tell(record)
    known.tell(tell(0, 2.0, again=3))
    assert known.compared == known.records
    known = learn()
    known.tell(tell(0, 1.0))
    experiments = [stage.experiments for stage in known.stages.values()]
    known.tell(replace(tell(0, 5.0), trial=tell(0, 5.0, again=1).trial))
    assert [stage.experiments for stage in known.stages.values()] == experiments


def shaken(record: Record, chance: random.Random) -> Record:
    """The same by a launch, and by steps, that differ."""
    assert record.measurement is not None
    usual = chance.gauss(0.0, 0.15)
    step_s = tuple(math.exp(usual + chance.gauss(0.0, 0.05)) for _ in range(4))
    return replace(record, outcome=replace(record.measurement, step_s=step_s))


def test_after_each_trial_all_are_compared_as_a_reader_of_all_of_them_would() -> None:
    for seed in range(70, 73):
        chance, known = random.Random(seed), learn()
        for count in range(1, 16):
            known.tell(shaken(tell(count - 1, 1.0), chance))
            if count % 3 == 0:
                known.tell(shaken(tell(0, 1.0, again=count, attempt=count), chance))
                again = shaken(tell(count - 2, 1.0, again=count, attempt=count), chance)
                known.tell(replace(again, trial=replace(again.trial, doubted=True)))
            assert known.compared == drift(known.records, known.repeats.records).records
