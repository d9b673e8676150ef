from dataclasses import replace

from autoconf_launch.autotuner.playoff import (
    Launches,
    Summary,
    SummaryRow,
    summarise,
    summarise_launches,
)
from autoconf_launch.autotuner.search import Study
from autoconf_launch.autotuner.space import Outcome, Trial
from autoconf_launch.core import (
    FailureKind,
    Optimizer,
)

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

SMALL = small_space(candidate(accumulation=2))


def summary_of(answer: Answer) -> Summary:
    study = Loop(Study(SMALL, None, settings()), answer).run().study
    return summarise(
        study,
        duration_s=12.5,
        optimizer=Optimizer.from_name("AdamW"),
    )


def test_each_space_has_a_row_and_so_has_the_whole() -> None:
    found = summary_of(by_stage(1, 2, 1, 0))
    assert [(r.tuning_space, r.num_experiments, r.best_exp_name) for r in found.rows] == [
        ("z0", 2, "z0_gas2_tmbspg1"),
        ("z1", 2, "z1_gas2_tmbspg1"),
        ("z2", 2, "z2_gas2_tmbspg1"),
        ("global", 6, "z1_gas2_tmbspg1"),
    ]


def test_a_space_without_a_measurement_shows_its_failure() -> None:
    def answer(trial: Trial) -> Outcome:
        return out_of_memory() if trial.space == "z1" else by_stage(2, 0, 1, 1)(trial)

    row = summary_of(answer).rows[1]
    assert row == SummaryRow(
        tuning_space="z1",
        num_experiments=2,
        best_metric_val=None,
        failure=FailureKind.OUT_OF_MEMORY,
        best_exp_name=None,
    )


def test_the_winner_is_compared_with_the_baseline() -> None:
    found = summary_of(by_stage(1, 3, 2, 2)).decision
    assert found.speed_up is not None
    assert round(found.speed_up.ratio, 6) == 3.0


def test_what_a_noisy_comparison_does_not_tell_from_the_winner_is_undecided() -> None:
    found = summary_of(by_stage(1, 3, 2, 2)).decision
    assert found.winner is not None
    assert (found.winner.trial.name, found.ties, found.undecided) == (
        "z1_gas2_tmbspg1",
        (),
        (("z1_gas1_tmbspg2", 0.0),),
    )


def test_without_a_measurement_there_is_no_winner() -> None:
    found = summary_of(lambda _: failure_of(FailureKind.CRASHED))
    assert (found.decision.winner, found.decision.speed_up, found.learning_rate) == (
        None,
        None,
        None,
    )
    assert found.stop is not None
    assert found.stop.is_error


def test_what_was_left_out_is_counted() -> None:
    space = small_space(candidate(accumulation=16), stages=(0,))
    study = Loop(Study(space, None, settings()), lambda _: out_of_memory()).run().study
    assert summarise(study, duration_s=0.0).rejected == (("needs_more_memory", 3),)


def test_the_same_batch_needs_no_other_learning_rate() -> None:
    assert summary_of(by_stage(1, 2, 1, 1)).learning_rate is None


def test_another_batch_comes_with_advice_on_the_learning_rate() -> None:
    small, large = (
        Trial(number=n, name=str(n), candidate=candidate(micro=micro), space="z0")
        for n, micro in enumerate((1, 4))
    )
    records = record(small, steps_of(small, 1.0)), record(large, steps_of(large, 1.0))
    found = summarise_launches(Launches(records=records), settings(), duration_s=0.0)
    assert found.learning_rate is not None
    assert found.learning_rate.factor == 2.0


def test_a_trial_faster_than_the_winner_is_reported() -> None:
    own, quick = (
        Trial(number=n, name=str(n), candidate=candidate(accumulation=4 // 2**n), space="z0")
        for n in range(2)
    )
    records = record(own, steps_of(own, 1.0)), record(quick, steps_of(quick, 0.2))
    assert summarise_launches(Launches(records=records), settings(), duration_s=0.0).faster is None
    soak = replace(quick, name="1_soak", attempt=2, soak_steps=5)
    soaks = (record(soak, failure_of(FailureKind.CRASHED)),)
    launches = Launches(records=records, soaks=soaks)
    found = summarise_launches(launches, settings(), duration_s=0.0)
    assert (found.decision.winner, found.faster) == records


def test_records_of_a_journal_sum_up_as_the_study_did() -> None:
    study = Loop(Study(SMALL, None, settings()), by_stage(1, 2, 1, 1)).run().study
    from_study = summarise(study, duration_s=1.0)
    from_journal = summarise_launches(Launches(records=study.records), settings(), duration_s=1.0)
    assert from_journal.rows == from_study.rows
    assert from_journal.decision == from_study.decision


def test_the_baseline_is_its_last_attempt() -> None:
    def answer(trial: Trial) -> Outcome:
        if trial.number == 0 and trial.attempt == 1:
            return out_of_memory(free=False)
        return by_stage(1, 1, 1, 1)(trial)

    baseline = summary_of(answer).baseline
    assert baseline is not None
    assert baseline.trial.attempt == 2
