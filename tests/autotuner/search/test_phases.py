"""A stage whose further knobs are searched: micro-batches first, then combinations."""

from typing import Any

import pytest

from autoconf_launch.autotuner.search import Study
from autoconf_launch.autotuner.space import (
    ChoiceKind,
    GlobalBatchRule,
    KnobChoice,
    Outcome,
    SearchSpace,
    Trial,
    build_space,
)

from ..conftest import Loop, candidate, record, settings, steps_of

BUCKETS = KnobChoice("bucket_cap_mb", (5, None, 100), ChoiceKind.FREE, (0, 1))
VIEWS = KnobChoice("gradient_as_bucket_view", (None, False), ChoiceKind.FREE, (0, 1))


def study(space: SearchSpace, **given: Any) -> Study:
    return Study(space, None, settings(**given))


def full_space(*stages: int) -> SearchSpace:
    """Micro-batches 1, 2, 4 and 8; 6 combinations of two further knobs at stages 0 and 1."""
    baseline = candidate(stages[0], accumulation=8)
    stage = KnobChoice("zero_stage", stages, ChoiceKind.LISTED)
    micro = KnobChoice("micro_batch", (1,), ChoiceKind.MINIMUM)
    rule = GlobalBatchRule(pinned=16)
    return build_space(baseline, (stage, micro, BUCKETS, VIEWS), rule, settings())


def speeds(trial: Trial) -> Outcome:
    """Middle micro-batches are fastest; small buckets help a little."""
    micro = trial.candidate.layout.micro_batch
    extras = dict(trial.candidate.extras)
    bonus = 0.9 if extras.get("bucket_cap_mb") == 5 else 1.0
    return steps_of(trial, {1: 4.0, 2: 1.0, 4: 2.0, 8: 3.0}[micro] * bonus)


def test_further_knobs_come_after_micro_batches_with_their_own_patience() -> None:
    asked = study(full_space(0), num_tuning_micro_batch_sizes=1, tuner_early_stopping=9)
    names = Loop(asked, speeds).run().names
    assert names == [
        *("z0_gas8_tmbspg1", "z0_gas4_tmbspg2", "z0_gas2_tmbspg4", "z0_gas1_tmbspg8"),
        "z0_gbvF_gas4_tmbspg2",
        "z0_bcm5_gas4_tmbspg2",
        "z0_bcm5_gbvF_gas4_tmbspg2",
        "z0_bcm100_gas4_tmbspg2",
        "z0_bcm100_gbvF_gas4_tmbspg2",
    ]
    names = Loop(study(full_space(0, 1), tuner_early_stopping=99), speeds).run().names
    assert [name[:2] for name in names] == sorted(name[:2] for name in names)
    assert len(Loop(study(full_space(2)), speeds).run().trials) == 4
    asked = study(full_space(0), num_tuning_micro_batch_sizes=1, metric="latency")
    loop = Loop(asked, speeds).run()
    assert loop.study.best is not None
    assert loop.study.best.trial.name == "z0_bcm5_gas4_tmbspg2"

    def slower_and_slower(trial: Trial) -> Outcome:
        return steps_of(trial, 1.0 + trial.number)

    asked = study(full_space(0), tuner_early_stopping=2)
    names = Loop(asked, slower_and_slower).run().names
    assert [("bcm" in name or "gbv" in name) for name in names] == [False] * 3 + [True] * 2
    asked = study(full_space(0), tuner_num_trials=5, tuner_early_stopping=99)
    assert len(Loop(asked, speeds).run().trials) == 1 + 5
    asked = study(full_space(0))
    (baseline,) = asked.ask(9, 0.0)
    asked.tell(record(baseline, speeds(baseline)))
    running = asked.ask(9, 0.0)
    assert len(running) == 3
    for trial in running[:2]:
        asked.tell(record(trial, speeds(trial)))
    assert asked.ask(9, 0.0) == ()
    assert asked.stop_reason() is None
    asked.tell(record(running[2], speeds(running[2])))
    assert all(trial.candidate.extras for trial in asked.ask(9, 0.0))


@pytest.mark.parametrize(("count", "sizes"), [(1, {2}), (2, {2, 4}), (3, {2, 4, 8})])
def test_so_many_of_the_best_micro_batches_get_further_knobs(count: int, sizes: set[int]) -> None:
    asked = study(full_space(0), num_tuning_micro_batch_sizes=count, tuner_early_stopping=99)
    loop = Loop(asked, speeds).run()
    varied = [trial for trial in loop.trials if trial.candidate.extras]
    assert {trial.candidate.layout.micro_batch for trial in varied} == sizes
    assert len(varied) == 5 * count


def test_flops_rank_by_samples_so_that_a_wrong_count_does_not_win() -> None:
    def answer(trial: Trial) -> Outcome:
        micro = trial.candidate.layout.micro_batch
        return steps_of(trial, 1.0 / micro, flops_per_step=1e15 if micro == 2 else 1e3)

    asked = study(
        full_space(0), num_tuning_micro_batch_sizes=1, metric="FLOPS", tuner_early_stopping=99
    )
    varied = [t for t in Loop(asked, answer).run().trials if t.candidate.extras]
    assert {trial.candidate.layout.micro_batch for trial in varied} == {8}


@pytest.mark.parametrize("strategy", ["gridsearch", "random", "model_based"])
def test_a_resumed_full_search_goes_on_as_the_uninterrupted_one(strategy: str) -> None:
    given = {"tuner_type": strategy, "tuner_early_stopping": 6}
    whole = Loop(study(full_space(0, 1, 2), **given), speeds).run()
    for told in (4, 12, 20):
        resumed = study(full_space(0, 1, 2), **given)
        for known in whole.study.records[:told]:
            resumed.tell(known)
        assert Loop(resumed, speeds).run().trials == whole.trials[told:]


@pytest.mark.parametrize("slots", [1, 3])
def test_a_full_search_tries_nothing_twice(slots: int) -> None:
    names = Loop(study(full_space(0, 1), tuner_early_stopping=99), speeds).run(slots).names
    assert len(set(names)) == len(names)
