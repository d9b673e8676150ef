from typing import Any

import numpy as np
import pytest

from autoconf_launch.autotuner.search import SearchLimits, StopKind, Study
from autoconf_launch.autotuner.space import (
    AutotuningSettings,
    ChoiceKind,
    GlobalBatchRule,
    KnobChoice,
    Outcome,
    PredictionTable,
    Rule,
    SearchSpace,
    Trial,
    build_space,
)
from autoconf_launch.core import ConfigError, FailureKind
from autoconf_launch.launcher.report import stop_sentence

from ..conftest import (
    Answer,
    Loop,
    by_stage,
    candidate,
    failure_of,
    out_of_memory,
    record,
    settings,
    small_space,
    steps_of,
)


def study(space: SearchSpace | None = None, **given: Any) -> Study:
    return Study(space or small_space(), None, settings(**given))


def faster_with_micro_batch(trial: Trial) -> Outcome:
    return steps_of(trial, 1.0 / trial.candidate.layout.micro_batch)


def only_fits(limit: int, *, free: bool = True) -> Answer:
    """Micro-batches above ``limit`` run out of memory."""

    def answer(trial: Trial) -> Outcome:
        if trial.candidate.layout.micro_batch > limit:
            return out_of_memory(free=free)
        return faster_with_micro_batch(trial)

    return answer


def test_the_baseline_runs_first_and_alone() -> None:
    first = study().ask(4, 0.0)
    assert [(trial.number, trial.name) for trial in first] == [(0, "z0_gas8_tmbspg1")]


def test_nothing_else_starts_while_the_baseline_runs() -> None:
    asked = study()
    asked.ask(4, 0.0)
    assert asked.ask(4, 0.0) == ()


@pytest.mark.parametrize("kind", [k for k in FailureKind if k is not FailureKind.OUT_OF_MEMORY])
def test_a_baseline_that_fails_for_any_reason_but_memory_ends_the_study(kind: FailureKind) -> None:
    loop = Loop(study(), lambda _: failure_of(kind)).run()
    reason = loop.study.stop_reason()
    assert reason is not None
    assert (len(loop.trials), reason.kind, reason.is_error) == (1, StopKind.BASELINE_FAILED, True)


def test_the_end_by_a_failed_baseline_shows_why() -> None:
    loop = Loop(study(), lambda _: failure_of(FailureKind.CRASHED, "exit code 1")).run()
    reason = loop.study.stop_reason()
    assert reason is not None
    assert "crashed, exit code 1" in stop_sentence(reason)
    assert reason.log_tail == ("last line",)


def test_stages_are_explored_in_order_as_long_as_they_get_better() -> None:
    loop = Loop(study(), by_stage(1, 2, 3, 4)).run()
    stages = [trial.candidate.layout.zero_stage for trial in loop.trials]
    assert stages == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4


def test_a_stage_no_better_than_the_last_is_the_last() -> None:
    loop = Loop(study(), by_stage(1, 2, 2, 9)).run()
    reason = loop.study.stop_reason()
    assert reason is not None
    assert {trial.space for trial in loop.trials} == {"z0", "z1", "z2"}
    assert stop_sentence(reason) == (
        "Stage z2 (2 samples/s) is no better than z1 (2 samples/s), so later stages were skipped."
    )


def test_a_stage_that_does_not_fit_does_not_end_the_search() -> None:
    def answer(trial: Trial) -> Outcome:
        return out_of_memory() if trial.space == "z1" else by_stage(1, 0, 2, 1)(trial)

    loop = Loop(study(), answer).run()
    assert [p.name for p in loop.study.seen.stages.values() if p.best] == ["z0", "z2", "z3"]


def test_a_stage_is_compared_with_the_last_one_that_has_a_measurement() -> None:
    def answer(trial: Trial) -> Outcome:
        return out_of_memory() if trial.space == "z1" else by_stage(2, 0, 1, 9)(trial)

    loop = Loop(study(), answer).run()
    assert "z3" not in {trial.space for trial in loop.trials}


def test_the_baseline_counts_as_exploration_of_its_stage() -> None:
    space = small_space(candidate(stage=2), stages=(2, 3))
    loop = Loop(study(space), by_stage(0, 0, 2, 1)).run()
    assert loop.names == ["z2_gas1_tmbspg1", "z3_gas1_tmbspg1"]


def test_the_best_is_the_best_of_all_stages() -> None:
    loop = Loop(study(), by_stage(1, 3, 2, 9)).run()
    assert loop.study.best is not None
    assert loop.study.best.trial.space == "z1"


def test_of_equal_ones_the_earlier_is_the_best() -> None:
    loop = Loop(study(), by_stage(1, 1, 1, 1)).run()
    assert loop.study.best is not None
    assert loop.study.best.trial.number == 0


def test_latency_is_better_when_lower() -> None:
    def answer(trial: Trial) -> Outcome:
        return steps_of(trial, 1.0 + trial.candidate.layout.micro_batch)

    loop = Loop(study(metric="latency"), answer).run()
    assert loop.study.best is not None
    assert loop.study.best.trial.candidate.layout.micro_batch == 1


def test_flops_that_nobody_counted_end_the_study_with_an_error() -> None:
    loop = Loop(study(metric="FLOPS"), by_stage(1, 1, 1, 1)).run()
    reason = loop.study.stop_reason()
    assert reason is not None
    assert (len(loop.trials), reason.kind) == (1, StopKind.METRIC_MISSING)


def test_the_number_of_trials_counts_for_each_stage() -> None:
    loop = Loop(study(tuner_num_trials=2), by_stage(1, 2, 3, 4)).run()
    assert [trial.space for trial in loop.trials] == ["z0"] * 3 + ["z1"] * 2 + ["z2"] * 2 + [
        "z3"
    ] * 2


def test_a_stage_ends_after_so_many_trials_without_a_better_one() -> None:
    def answer(trial: Trial) -> Outcome:
        return steps_of(trial, trial.candidate.layout.micro_batch)

    loop = Loop(study(tuner_early_stopping=2), answer).run()
    assert loop.names[:3] == ["z0_gas8_tmbspg1", "z0_gas4_tmbspg2", "z0_gas2_tmbspg4"]
    assert "z0_gas1_tmbspg8" not in loop.names


def test_running_out_of_memory_is_not_taken_for_a_trial_that_is_no_better() -> None:
    space = small_space(candidate(micro=32, accumulation=1))
    loop = Loop(study(space, tuner_early_stopping=1), only_fits(4)).run()
    assert "z0_gas8_tmbspg4" in loop.names


def test_failures_of_candidates_are_recorded_and_the_study_goes_on() -> None:
    def answer(trial: Trial) -> Outcome:
        return (
            failure_of(FailureKind.TIMED_OUT) if trial.number == 1 else by_stage(1, 2, 1, 1)(trial)
        )

    loop = Loop(study(), answer).run()
    assert [r.trial.number for r in loop.study.records if r.failure] == [1]
    assert loop.study.best is not None


def test_memory_that_was_free_and_ran_out_rules_out_larger_micro_batches() -> None:
    loop = Loop(study(), only_fits(2)).run()
    assert [n for n in loop.names if n.startswith("z0")] == [
        "z0_gas8_tmbspg1",
        "z0_gas4_tmbspg2",
        "z0_gas2_tmbspg4",
        # It does not accumulate and so holds no gradients during forward: not sure to need more.
        "z0_gas1_tmbspg8",
    ]


def test_what_was_ruled_out_is_counted() -> None:
    loop = Loop(study(small_space(candidate(accumulation=16), stages=(0,))), only_fits(2)).run()
    assert loop.study.pool.rejected == (("needs_more_memory", 1),)


def test_an_out_of_memory_that_is_not_sure_is_tried_once_again() -> None:
    space = small_space(candidate(accumulation=2), stages=(0,))
    loop = Loop(study(space), only_fits(1, free=False)).run()
    assert [(t.name, t.number, t.attempt) for t in loop.trials] == [
        ("z0_gas2_tmbspg1", 0, 1),
        ("z0_gas1_tmbspg2", 1, 1),
        ("z0_gas1_tmbspg2", 1, 2),
    ]


def test_a_second_attempt_that_succeeds_counts() -> None:
    def answer(trial: Trial) -> Outcome:
        return only_fits(1 if trial.attempt == 1 else 9, free=False)(trial)

    loop = Loop(study(small_space(candidate(accumulation=2), stages=(0,))), answer).run()
    assert loop.study.best is not None
    assert loop.study.best.trial.attempt == 2


def test_a_baseline_without_memory_opens_smaller_micro_batches() -> None:
    space = small_space(candidate(micro=4, accumulation=2), stages=(0,), least=4)
    loop = Loop(study(space), only_fits(2)).run()
    assert loop.names == [
        "z0_gas2_tmbspg4",
        "z0_gas8_tmbspg1",
        "z0_gas4_tmbspg2",
        "z0_gas1_tmbspg8",
    ]


def test_a_baseline_that_fits_is_the_smallest_micro_batch() -> None:
    space = small_space(candidate(micro=4, accumulation=2), stages=(0,), least=4)
    loop = Loop(study(space), by_stage(1)).run()
    assert loop.names == ["z0_gas2_tmbspg4", "z0_gas1_tmbspg8"]


def test_when_nothing_fits_the_end_says_so() -> None:
    loop = Loop(study(), only_fits(0)).run()
    reason = loop.study.stop_reason()
    assert reason is not None
    assert (reason.kind, reason.is_error) == (StopKind.NOTHING_FITS, True)
    assert stop_sentence(reason).startswith("No configuration fits in memory: each of ")


def test_when_some_do_not_fit_and_others_fail_the_end_says_so() -> None:
    def answer(trial: Trial) -> Outcome:
        return out_of_memory() if trial.number == 0 else failure_of(FailureKind.NAN)

    reason = Loop(study(), answer).run().study.stop_reason()
    assert reason is not None
    assert (reason.kind, reason.is_error) == (StopKind.NOTHING_MEASURED, True)


def test_a_spent_budget_ends_the_study_with_what_it_has() -> None:
    asked = Study(small_space(), None, settings(), limits=SearchLimits(seconds=10.0))
    (baseline,) = asked.ask(1, 0.0)
    asked.tell(record(baseline, steps_of(baseline, 1.0)))
    assert asked.ask(1, 10.0) == ()
    reason = asked.stop_reason()
    assert reason is not None
    assert (reason.kind, reason.is_error) == (StopKind.BUDGET, False)


def test_rows_that_a_rule_rejects_are_never_tried() -> None:
    small = Rule(name="small", keep=lambda t: t["micro_batch"] < 4, why="")
    asked = Study(small_space(), None, settings(), rules=[small])
    loop = Loop(asked, by_stage(1, 2, 3, 4)).run()
    assert max(trial.candidate.layout.micro_batch for trial in loop.trials) == 2
    assert asked.pool.rejected == (("small", 8),)


@pytest.mark.parametrize("strategy", ["gridsearch", "random", "model_based"])
@pytest.mark.parametrize("slots", [1, 3])
def test_nothing_is_tried_twice(strategy: str, slots: int) -> None:
    tried = study(tuner_type=strategy, strategy="staged")
    loop = Loop(tried, faster_with_micro_batch).run(slots)
    assert len(set(loop.names)) == len(loop.names)


def families() -> SearchSpace:
    """ZeRO 0 to 3 and two tensor ranks on 4 ranks, with one micro-batch."""
    baseline = candidate(ranks=4, micro=2, accumulation=2)
    choices = (
        KnobChoice("zero_stage", (0, 1, 2, 3), ChoiceKind.FREE),
        KnobChoice("tensor_parallel", (1, 2), ChoiceKind.FREE),
        KnobChoice("micro_batch", (2,), ChoiceKind.LISTED),
    )
    return build_space(baseline, choices, GlobalBatchRule(pinned=16), AutotuningSettings())


def test_a_family_of_model_parallelism_is_explored_after_the_zero_stages() -> None:
    loop = Loop(study(families()), by_stage(1, 2, 3, 4)).run()
    assert [p.name for p in loop.study.seen.stages.values()] == ["z0", "z1", "z2", "z3", "tensor"]
    assert [trial.space for trial in loop.trials][:4] == ["z0", "z1", "z2", "z3"]
    assert {trial.space for trial in loop.trials[4:]} == {"tensor"}


def test_a_zero_stage_that_is_no_better_ends_the_zero_stages_alone() -> None:
    loop = Loop(study(families()), by_stage(4, 1, 9, 9)).run()
    spaces = [trial.space for trial in loop.trials]
    assert spaces[:2] == ["z0", "z1"]
    assert set(spaces[2:]) == {"tensor"}


@pytest.mark.parametrize("strategy", ["gridsearch", "random"])
def test_tuners_without_a_model_try_every_micro_batch_of_each_stage(strategy: str) -> None:
    tried = study(tuner_type=strategy, strategy="staged")
    assert len(Loop(tried, by_stage(1, 2, 3, 4)).run().trials) == 16


def test_the_model_leaves_micro_batches_out_that_are_beyond_saturation() -> None:
    tried = study(tuner_type="model_based", strategy="staged")
    loop = Loop(tried, by_stage(1, 2, 3, 4)).run()
    assert len(loop.trials) == 8
    assert dict(tried.pool.rejected)["beyond_saturation"] == 8


@pytest.mark.parametrize("slots", [2, 5])
def test_as_many_run_at_once_as_there_are_slots(slots: int) -> None:
    asked = study()
    (baseline,) = asked.ask(slots, 0.0)
    asked.tell(record(baseline, steps_of(baseline, 1.0)))
    assert len(asked.ask(slots, 0.0)) == min(slots, 3)


def test_trials_that_run_at_once_have_numbers_of_their_own() -> None:
    loop = Loop(study(), by_stage(1, 2, 3, 4)).run(slots=3)
    assert sorted(trial.number for trial in loop.trials) == list(range(16))


def test_the_next_stage_waits_for_what_still_runs_in_this_one() -> None:
    asked = study()
    (baseline,) = asked.ask(9, 0.0)
    asked.tell(record(baseline, steps_of(baseline, 1.0)))
    first, *_ = asked.ask(9, 0.0)
    asked.tell(record(first, steps_of(first, 1.0)))
    assert asked.ask(9, 0.0) == ()
    assert asked.stop_reason() is None


@pytest.mark.parametrize("strategy", ["gridsearch", "random", "model_based"])
@pytest.mark.parametrize("told", range(0, 14, 3))
def test_a_resumed_study_goes_on_as_the_uninterrupted_one_would(strategy: str, told: int) -> None:
    def answer(trial: Trial) -> Outcome:
        fits = only_fits(4, free=trial.number % 2 == 0)
        return fits(trial) if trial.number % 5 else by_stage(1, 2, 3, 4)(trial)

    whole = Loop(study(tuner_type=strategy), answer).run()
    resumed = study(tuner_type=strategy)
    for known in whole.study.records[:told]:
        resumed.tell(known)
    rest = Loop(resumed, answer).run()
    assert rest.trials == whole.trials[told:]
    assert resumed.stop_reason() == whole.study.stop_reason()


def test_a_record_that_is_told_twice_counts_once() -> None:
    asked = study()
    (baseline,) = asked.ask(1, 0.0)
    told = record(baseline, steps_of(baseline, 1.0))
    asked.tell(told)
    asked.tell(told)
    assert asked.records == (told,)


def test_progress_counts_every_experiment_of_a_stage() -> None:
    loop = Loop(study(), by_stage(2, 1, 1, 1)).run()
    assert [(p.name, p.experiments) for p in loop.study.seen.stages.values()] == [
        ("z0", 4),
        ("z1", 4),
        ("z2", 0),
        ("z3", 0),
    ]


def test_a_space_of_the_baseline_alone_is_explored_by_it() -> None:
    space = small_space(candidate(ranks=1), stages=(0, 1))
    loop = Loop(study(space), by_stage(1)).run()
    reason = loop.study.stop_reason()
    assert reason is not None
    assert (len(loop.trials), reason.kind, reason.is_error) == (1, StopKind.EXPLORED, False)


def test_a_study_that_its_number_of_trials_ends_says_so() -> None:
    asked = study(tuner_num_trials=2, strategy="global")
    reason = Loop(asked, by_stage(1, 2, 3, 4)).run().study.stop_reason()
    assert reason is not None
    assert reason.kind is StopKind.TRIALS
    assert "tuner_num_trials is 2" in stop_sentence(reason)


@pytest.mark.parametrize("how", [{"tuner_num_trials": 15}, {"tuner_early_stopping": 2}])
def test_a_study_that_more_trials_would_not_prolong_is_explored(how: dict[str, Any]) -> None:
    asked = study(**{"tuner_num_trials": 15, "strategy": "global", **how})
    reason = Loop(asked, by_stage(4, 3, 2, 1)).run().study.stop_reason()
    assert reason is not None
    assert reason.kind is StopKind.EXPLORED


class GivesUp:
    """A strategy that finds nothing worth a trial."""

    def propose(self, *_: object) -> tuple[int, ...]:
        return ()


def test_a_strategy_may_give_a_stage_up() -> None:
    asked = Study(small_space(), None, settings(), GivesUp())
    assert Loop(asked, by_stage(1)).run().names == ["z0_gas8_tmbspg1"]


def test_an_unknown_strategy_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'gridsearch'"):
        study(tuner_type="grid_search")


def test_listed_stages_alone_are_explored() -> None:
    space = small_space(candidate(stage=1, accumulation=2), stages=(3, 1), how=ChoiceKind.LISTED)
    loop = Loop(study(space), by_stage(0, 1, 0, 2)).run()
    assert [trial.space for trial in loop.trials] == ["z1", "z1", "z3", "z3"]


def test_proposals_depend_on_the_seed_of_a_random_search() -> None:
    found = {
        tuple(Loop(study(tuner_type="random", seed=seed), by_stage(1, 2, 3, 4)).run().names)
        for seed in range(4)
    }
    assert len(found) > 1


def test_the_last_stage_leaves_no_later_ones_out() -> None:
    loop = Loop(study(small_space(stages=(0, 1))), by_stage(2, 1)).run()
    reason = loop.study.stop_reason()
    assert reason is not None
    assert reason.kind is StopKind.EXPLORED


def test_an_earlier_baseline_without_memory_is_replaced_by_its_second_attempt() -> None:
    def answer(trial: Trial) -> Outcome:
        if trial.number == 0 and trial.attempt == 1:
            return out_of_memory(free=False)
        return by_stage(2, 1, 1, 1)(trial)

    loop = Loop(study(), answer).run()
    assert [(t.number, t.attempt) for t in loop.trials[:2]] == [(0, 1), (0, 2)]
    assert loop.study.best is not None
    assert loop.study.best.trial.number == 0


def test_default_settings_use_the_model_based_strategy() -> None:
    asked = Study(small_space(), None, AutotuningSettings())
    assert Loop(asked, by_stage(2, 1, 1, 1)).run().study.best is not None


def test_when_no_prediction_fits_the_end_names_the_smallest_need() -> None:
    space = small_space(stages=(0,))
    peaks_bytes = np.array([3e9, 2.5e9, 4e9])
    predictions = PredictionTable(
        peak_bytes_C=peaks_bytes, step_s_C=np.full(3, np.nan), band=None, how=""
    )
    none = Rule(name="memory", keep=lambda t: np.zeros(len(t), np.bool_), why="")
    asked = Study(space, predictions, settings(), rules=[none])
    reason = Loop(asked, lambda _: out_of_memory()).run().study.stop_reason()
    assert reason is not None
    assert stop_sentence(reason) == (
        "No configuration fits in memory: the only trial ran out of memory; the smallest "
        "predicted need is 2.5 GB per rank, the limit is 1 kB."
    )


def test_all_stages_are_one_group_where_a_model_ranks_them() -> None:
    loop = Loop(study(tuner_type="model_based"), by_stage(1, 2, 3, 4)).run()
    assert [p.name for p in loop.study.seen.stages.values()] == ["global"]
    assert len({trial.space for trial in loop.trials}) > 1


def test_patience_ends_a_global_search_as_it_ends_a_stage() -> None:
    asked = study(tuner_type="model_based", tuner_early_stopping=2)
    assert len(Loop(asked, by_stage(9, 1, 1, 1)).run().trials) == 3


@pytest.mark.parametrize(
    ("given", "groups"),
    [
        ({"tuner_type": "model_based", "strategy": "staged"}, ["z0", "z1", "z2", "z3"]),
        ({"tuner_type": "model_based"}, ["global"]),
        ({"tuner_type": "gridsearch"}, ["z0", "z1", "z2", "z3"]),
        ({"tuner_type": "xgboost"}, ["global"]),
        ({"tuner_type": "xgboost", "strategy": "staged"}, ["z0", "z1", "z2", "z3"]),
        ({"tuner_type": "gridsearch", "strategy": "global"}, ["global"]),
    ],
)
def test_what_is_explored_as_a_unit_can_be_said(given: dict[str, Any], groups: list[str]) -> None:
    assert [p.name for p in study(**given).seen.stages.values()] == groups
