from __future__ import annotations

from autoconf_launch.autotuner.search import Grouping, StopReason
from autoconf_launch.autotuner.search.exploration import Exploration, new_trial
from autoconf_launch.autotuner.search.observations import Observations
from autoconf_launch.autotuner.search.pool import Pool
from autoconf_launch.autotuner.space import OBJECTIVES
from autoconf_launch.autotuner.strategies import load_strategy

from ..conftest import candidate, record, settings, small_space, steps_of

SPACE = small_space(candidate(micro=2, accumulation=4), least=2)
OBJECTIVE = OBJECTIVES["throughput"]


def explore() -> tuple[Exploration, Pool, Observations]:
    """Told of the baseline."""
    given = settings(tuner_early_stopping=99)
    groups = Grouping.of_settings(given)
    pool = Pool(SPACE, None, (), groups, OBJECTIVE)
    learned = Observations(SPACE, pool, groups, OBJECTIVE)
    own = new_trial(0, SPACE.baseline)
    learned.tell(record(own, steps_of(own, 1.0)))
    pool.take_out(SPACE.baseline)
    strategy = load_strategy("gridsearch", OBJECTIVE)
    return Exploration(SPACE, None, given, strategy, pool, learned), pool, learned


def test_trials_are_numbered_on_not_proposed_again_and_not_below_the_users() -> None:
    exploration, _, _ = explore()
    trials = exploration.propose(2, ())
    assert [trial.number for trial in trials] == [1, 2]
    assert {trial.space for trial in trials} == {"z0"}
    exploration, _, _ = explore()
    first = exploration.propose(1, ())
    assert not {t.candidate for t in exploration.propose(9, first)} & {first[0].candidate}
    exploration, _, _ = explore()
    assert all(t.candidate.layout.micro_batch >= 2 for t in exploration.propose(9, ()))
    exploration.small_too = True
    assert any(t.candidate.layout.micro_batch < 2 for t in exploration.propose(9, ()))
    exploration, pool, learned = explore()
    exploration.small_too = True
    while trials := exploration.propose(1, ()):
        pool.take_out(trials[0].candidate)
        step_s = 1.0 / (1 + trials[0].candidate.layout.zero_stage)
        learned.tell(record(trials[0], steps_of(trials[0], step_s)))
    assert isinstance(exploration.group_now(()), StopReason)
