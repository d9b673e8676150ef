from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autoconf_launch.autotuner.search import SearchLimits, StopKind, StopReason, Study
from autoconf_launch.autotuner.space import (
    AutotuningSettings,
    ChoiceKind,
    GlobalBatchRule,
    KnobChoice,
    Outcome,
    Rule,
    SearchSpace,
    Trial,
    build_space,
)
from autoconf_launch.core import ConfigError, FailureKind
from autoconf_launch.launcher.report import stop_sentence

from ...rows import rows, some
from ..builders import prediction_table
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


def run(answer: Answer, space: SearchSpace | None = None, slots: int = 1, **given: Any) -> Loop:
    return Loop(study(space, **given), answer).run(slots)


def end(loop: Loop) -> StopReason:
    return some(loop.study.stop_reason())


def best(loop: Loop) -> Trial:
    assert loop.study.best is not None
    return loop.study.best.trial


def measured_baseline(asked: Study, slots: int = 1) -> Study:
    (baseline,) = asked.ask(slots, 0.0)
    asked.tell(record(baseline, steps_of(baseline, 1.0)))
    return asked


def by_micro_batch(seconds: Callable[[int], float]) -> Answer:
    return lambda trial: steps_of(trial, seconds(trial.candidate.layout.micro_batch))


FASTER_WITH_MICRO_BATCH = by_micro_batch(lambda micro: 1.0 / micro)
SLOWER_WITH_MICRO_BATCH = by_micro_batch(lambda micro: 1.0 + micro)


def only_fits(limit: int, *, free: bool = True) -> Answer:
    """Micro-batches above ``limit`` run out of memory."""

    def answer(trial: Trial) -> Outcome:
        if trial.candidate.layout.micro_batch > limit:
            return out_of_memory(free=free)
        return FASTER_WITH_MICRO_BATCH(trial)

    return answer


def unless(is_so: Callable[[Trial], bool], outcome: Outcome, otherwise: Answer) -> Answer:
    return lambda trial: outcome if is_so(trial) else otherwise(trial)


def full_at_z1(*throughputs: float) -> Answer:
    return unless(lambda trial: trial.space == "z1", out_of_memory(), by_stage(*throughputs))


def families() -> SearchSpace:
    """ZeRO 0 to 3 and two tensor ranks on 4 ranks, with one micro-batch."""
    baseline = candidate(ranks=4, micro=2, accumulation=2)
    choices = (
        KnobChoice("zero_stage", (0, 1, 2, 3), ChoiceKind.FREE),
        KnobChoice("tensor_parallel", (1, 2), ChoiceKind.FREE),
        KnobChoice("micro_batch", (2,), ChoiceKind.LISTED),
    )
    return build_space(baseline, choices, GlobalBatchRule(pinned=16), AutotuningSettings())


def test_the_baseline_runs_first_and_alone() -> None:
    asked = study()
    assert [(trial.number, trial.name) for trial in asked.ask(4, 0.0)] == [(0, "z0_gas8_tmbspg1")]
    assert asked.ask(4, 0.0) == ()


@pytest.mark.parametrize("kind", [k for k in FailureKind if k is not FailureKind.OUT_OF_MEMORY])
def test_a_baseline_that_fails_for_any_reason_but_memory_ends_the_study(kind: FailureKind) -> None:
    loop = run(lambda _: failure_of(kind, "exit code 1"))
    assert (len(loop.trials), end(loop).kind) == (1, StopKind.BASELINE_FAILED)
    assert end(loop).is_error
    assert f"{kind.value}, exit code 1" in stop_sentence(end(loop))
    assert end(loop).log_tail == ("last line",)


@rows(
    "answer, explored, measured",
    {
        "in order while they get better": (by_stage(1, 2, 3, 4), "0123", "0123"),
        "up to the first without a gain": (by_stage(1, 2, 2, 9), "012", "012"),
        "beyond a stage that does not fit": (full_at_z1(1, 0, 2, 1), "0123", "023"),
        "beside the last measured stage": (full_at_z1(2, 0, 1, 9), "012", "02"),
    },
)
def test_stages_are_explored(answer: Answer, explored: str, measured: str) -> None:
    loop = run(answer)
    assert [*dict.fromkeys(trial.space for trial in loop.trials)] == [f"z{n}" for n in explored]
    stages = loop.study.seen.stages.values()
    assert [stage.name for stage in stages if stage.best] == [f"z{n}" for n in measured]


@rows(
    "space, answer, names",
    {
        "the baseline's own stage from the baseline on": (
            small_space(candidate(stage=2), stages=(2, 3)),
            by_stage(0, 0, 2, 1),
            ["z2_gas1_tmbspg1", "z3_gas1_tmbspg1"],
        ),
        "smaller micro-batches if the baseline has no memory": (
            small_space(candidate(micro=4, accumulation=2), stages=(0,), least=4),
            only_fits(2),
            ["z0_gas2_tmbspg4", "z0_gas8_tmbspg1", "z0_gas4_tmbspg2", "z0_gas1_tmbspg8"],
        ),
        "no smaller micro-batches than a baseline that fits": (
            small_space(candidate(micro=4, accumulation=2), stages=(0,), least=4),
            by_stage(1),
            ["z0_gas2_tmbspg4", "z0_gas1_tmbspg8"],
        ),
        # The last one does not accumulate and so holds no gradients during forward: not sure to
        # need more.
        "no larger micro-batches than a full memory had": (
            small_space(stages=(0,)),
            only_fits(2),
            ["z0_gas8_tmbspg1", "z0_gas4_tmbspg2", "z0_gas2_tmbspg4", "z0_gas1_tmbspg8"],
        ),
        "listed stages in their order": (
            small_space(candidate(stage=1, accumulation=2), stages=(3, 1), how=ChoiceKind.LISTED),
            by_stage(0, 1, 0, 2),
            ["z1_gas2_tmbspg1", "z1_gas1_tmbspg2", "z3_gas2_tmbspg1", "z3_gas1_tmbspg2"],
        ),
    },
)
def test_a_space_is_explored_by(space: SearchSpace, answer: Answer, names: list[str]) -> None:
    assert run(answer, space).names == names


@rows(
    "answer, given, number",
    {
        "of all stages": (by_stage(1, 3, 2, 9), {}, 4),
        "the earlier of equal ones": (by_stage(1, 1, 1, 1), {}, 0),
        "the lowest latency": (SLOWER_WITH_MICRO_BATCH, {"metric": "latency"}, 0),
    },
)
def test_the_best_is(answer: Answer, given: dict[str, Any], number: int) -> None:
    assert best(run(answer, **given)).number == number


def test_stages_and_budgets_end_as_their_settings_say() -> None:
    spaces = [trial.space for trial in run(by_stage(1, 2, 3, 4), tuner_num_trials=2).trials]
    assert spaces == ["z0"] * 3 + ["z1"] * 2 + ["z2"] * 2 + ["z3"] * 2
    names = run(by_micro_batch(float), tuner_early_stopping=2).names
    assert names[:3] == ["z0_gas8_tmbspg1", "z0_gas4_tmbspg2", "z0_gas2_tmbspg4"]
    assert "z0_gas1_tmbspg8" not in names
    space = small_space(candidate(micro=32, accumulation=1))
    assert "z0_gas8_tmbspg4" in run(only_fits(4), space, tuner_early_stopping=1).names
    loop = run(by_stage(9, 1, 1, 1), tuner_type="model_based", tuner_early_stopping=2)
    assert len(loop.trials) == 3


def test_candidates_that_fail_or_are_ruled_out_are_recorded_and_the_study_goes_on() -> None:
    second = unless(
        lambda trial: trial.number == 1, failure_of(FailureKind.TIMED_OUT), by_stage(1, 2, 1, 1)
    )
    loop = run(second)
    assert [r.trial.number for r in loop.study.records if r.failure] == [1]
    assert best(loop)
    loop = run(only_fits(2), small_space(candidate(accumulation=16), stages=(0,)))
    assert loop.study.pool.rejected == (("needs_more_memory", 1),)
    small = Rule(name="small", keep=lambda t: t["micro_batch"] < 4, why="")
    asked = Study(small_space(), None, settings(), rules=[small])
    loop = Loop(asked, by_stage(1, 2, 3, 4)).run()
    assert max(trial.candidate.layout.micro_batch for trial in loop.trials) == 2
    assert asked.pool.rejected == (("small", 8),)


@pytest.mark.parametrize("fits_then", [1, 9])
def test_an_out_of_memory_that_is_not_sure_is_tried_once_again(fits_then: int) -> None:
    def answer(trial: Trial) -> Outcome:
        return only_fits(1 if trial.attempt == 1 else fits_then, free=False)(trial)

    loop = run(answer, small_space(candidate(accumulation=2), stages=(0,)))
    assert [(t.name, t.number, t.attempt) for t in loop.trials] == [
        ("z0_gas2_tmbspg1", 0, 1),
        ("z0_gas1_tmbspg2", 1, 1),
        ("z0_gas1_tmbspg2", 1, 2),
    ]
    assert best(loop).attempt == (2 if fits_then == 9 else 1)


def test_a_baseline_without_memory_is_replaced_by_its_second_attempt() -> None:
    first = unless(
        lambda t: (t.number, t.attempt) == (0, 1), out_of_memory(free=False), by_stage(2, 1, 1, 1)
    )
    loop = run(first)
    assert [(t.number, t.attempt) for t in loop.trials[:2]] == [(0, 1), (0, 2)]
    assert best(loop).number == 0


NAN_AFTER_THE_FIRST = unless(
    lambda trial: trial.number == 0, out_of_memory(), lambda _: failure_of(FailureKind.NAN)
)
GLOBAL = {"tuner_num_trials": 15, "strategy": "global"}
ONE_ROW = small_space(candidate(ranks=1), stages=(0, 1))


LAST_STAGE = small_space(stages=(0, 1))
TWO: dict[str, Any] = {"tuner_num_trials": 2, "strategy": "global"}
QUICK = {**GLOBAL, "effort": "quick"}
IMPATIENT = {**GLOBAL, "tuner_early_stopping": 2}
MISSING, NOT_MEASURED = StopKind.METRIC_MISSING, StopKind.NOTHING_MEASURED


@rows(
    "answer, space, given, kind, trials",
    {
        "nothing that fits": (only_fits(0), None, {}, StopKind.NOTHING_FITS, 8),
        "some that do not fit, others fail": (NAN_AFTER_THE_FIRST, None, {}, NOT_MEASURED, 14),
        "flops nobody counted": (by_stage(1, 1, 1, 1), None, {"metric": "FLOPS"}, MISSING, 1),
        "a lone baseline": (by_stage(1), ONE_ROW, {}, StopKind.EXPLORED, 1),
        "a last stage no better": (by_stage(2, 1), LAST_STAGE, {}, StopKind.EXPLORED, 8),
        "the number of trials": (by_stage(1, 2, 3, 4), None, TWO, StopKind.TRIALS, 3),
        "more than it needs": (by_stage(4, 3, 2, 1), None, GLOBAL, StopKind.EXPLORED, 6),
        "quick effort": (by_stage(4, 3, 2, 1), None, QUICK, StopKind.EXPLORED, 4),
        "patience": (by_stage(4, 3, 2, 1), None, IMPATIENT, StopKind.EXPLORED, 3),
    },
)
def test_a_study_ends_by(
    answer: Answer, space: SearchSpace | None, given: dict[str, Any], kind: StopKind, trials: int
) -> None:
    loop = run(answer, space, **given)
    assert (end(loop).kind, len(loop.trials)) == (kind, trials)
    assert end(loop).is_error == (kind not in (StopKind.EXPLORED, StopKind.TRIALS))


def test_the_end_names_its_setting_or_the_smallest_need() -> None:
    loop = run(by_stage(1, 2, 3, 4), **TWO)
    assert "tuner_num_trials is 2" in stop_sentence(end(loop))
    predictions = prediction_table([np.nan] * 3, [3e9, 2.5e9, 4e9])
    none = Rule(name="memory", keep=lambda t: np.zeros(len(t), np.bool_), why="")
    asked = Study(small_space(stages=(0,)), predictions, settings(), rules=[none])
    loop = Loop(asked, lambda _: out_of_memory()).run()
    assert "2.5 GB per rank, the limit is 1 kB" in stop_sentence(end(loop))
    text = stop_sentence(end(run(by_stage(1, 2, 2, 9))))
    assert "z2 (2 samples/s)" in text
    assert "z1 (2 samples/s)" in text


def test_a_spent_budget_ends_the_study_with_what_it_has() -> None:
    limits = SearchLimits(seconds=10.0)
    asked = measured_baseline(Study(small_space(), None, settings(), limits=limits))
    assert asked.ask(1, 10.0) == ()
    reason = some(asked.stop_reason())
    assert (reason.kind, reason.is_error) == (StopKind.BUDGET, False)


@pytest.mark.parametrize("strategy", ["gridsearch", "random", "model_based"])
@pytest.mark.parametrize("slots", [1, 3])
def test_nothing_is_tried_twice(strategy: str, slots: int) -> None:
    loop = run(FASTER_WITH_MICRO_BATCH, slots=slots, tuner_type=strategy, strategy="staged")
    assert len(set(loop.names)) == len(loop.names)
    assert sorted(trial.number for trial in loop.trials) == list(range(len(loop.trials)))


@pytest.mark.parametrize(
    ("strategy", "trials", "saturated"),
    [("gridsearch", 16, None), ("random", 16, None), ("model_based", 8, 8)],
)
def test_the_model_alone_leaves_micro_batches_out_that_are_beyond_saturation(
    strategy: str, trials: int, saturated: int | None
) -> None:
    loop = run(by_stage(1, 2, 3, 4), tuner_type=strategy, strategy="staged")
    assert len(loop.trials) == trials
    assert dict(loop.study.pool.rejected).get("beyond_saturation") == saturated


@pytest.mark.parametrize("slots", [2, 5])
def test_as_many_run_at_once_as_there_are_slots(slots: int) -> None:
    assert len(measured_baseline(study(), slots).ask(slots, 0.0)) == min(slots, 3)


def test_stages_wait_and_families_come_after_the_zero_stages() -> None:
    asked = measured_baseline(study(), 9)
    first, *_ = asked.ask(9, 0.0)
    asked.tell(record(first, steps_of(first, 1.0)))
    assert asked.ask(9, 0.0) == ()
    assert asked.stop_reason() is None
    loop = run(by_stage(1, 2, 3, 4), families())
    assert [p.name for p in loop.study.seen.stages.values()] == ["z0", "z1", "z2", "z3", "tensor"]
    assert [trial.space for trial in loop.trials][:4] == ["z0", "z1", "z2", "z3"]
    assert {trial.space for trial in loop.trials[4:]} == {"tensor"}
    spaces = [trial.space for trial in run(by_stage(4, 1, 9, 9), families()).trials]
    assert spaces[:2] == ["z0", "z1"]
    assert set(spaces[2:]) == {"tensor"}
    loop = run(by_stage(1, 2, 3, 4), tuner_type="model_based")
    assert len({trial.space for trial in loop.trials}) > 1


@pytest.mark.parametrize("strategy", ["gridsearch", "random", "model_based"])
def test_a_resumed_study_goes_on_as_the_uninterrupted_one_would(strategy: str) -> None:
    def answer(trial: Trial) -> Outcome:
        fits = only_fits(4, free=trial.number % 2 == 0)
        return fits(trial) if trial.number % 5 else by_stage(1, 2, 3, 4)(trial)

    whole = run(answer, tuner_type=strategy)
    for told in range(0, 14, 3):
        resumed = study(tuner_type=strategy)
        for known in whole.study.records[:told]:
            resumed.tell(known)
        assert Loop(resumed, answer).run().trials == whole.trials[told:]
        assert resumed.stop_reason() == whole.study.stop_reason()


def test_a_record_counts_once_and_progress_counts_every_experiment() -> None:
    asked = measured_baseline(study())
    (told,) = asked.records
    asked.tell(told)
    assert asked.records == (told,)
    stages = run(by_stage(2, 1, 1, 1)).study.seen.stages.values()
    assert {p.name: p.experiments for p in stages} == {"z0": 4, "z1": 4, "z2": 0, "z3": 0}


class GivesUp:
    """A strategy that finds nothing worth a trial."""

    def propose(self, *_: object) -> tuple[int, ...]:
        return ()


def test_strategies_may_give_up_be_unknown_or_depend_on_a_seed() -> None:
    asked = Study(small_space(), None, settings(), GivesUp())
    assert Loop(asked, by_stage(1)).run().names == ["z0_gas8_tmbspg1"]
    with pytest.raises(ConfigError, match="did you mean 'gridsearch'"):
        study(tuner_type="grid_search")
    orders = {tuple(run(by_stage(1, 2, 3, 4), tuner_type="random", seed=n).names) for n in (0, 1)}
    assert len(orders) == 2


STAGES = ["z0", "z1", "z2", "z3"]


@rows(
    "given, groups",
    {
        "each stage by the model": ({"tuner_type": "model_based", "strategy": "staged"}, STAGES),
        "all stages by the model": ({"tuner_type": "model_based"}, ["global"]),
        "all stages by default": ({"tuner_type": AutotuningSettings().tuner_type}, ["global"]),
        "each stage by grid search": ({"tuner_type": "gridsearch"}, STAGES),
        "all stages by xgboost": ({"tuner_type": "xgboost"}, ["global"]),
        "each stage by xgboost": ({"tuner_type": "xgboost", "strategy": "staged"}, STAGES),
        "all by grid search": ({"tuner_type": "gridsearch", "strategy": "global"}, ["global"]),
    },
)
def test_groups_are_explored(given: dict[str, Any], groups: list[str]) -> None:
    assert [p.name for p in study(**given).seen.stages.values()] == groups
