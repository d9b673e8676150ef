import pytest

from autoconf_launch import ConfigError, fit, plan

TRAINING = {"model": "gpt2-xl", "cluster": "8xA100-SXM-80GB", "seq": 1024, "global_batch": 64}


def test_fit_answers_in_values() -> None:
    answer = fit(**TRAINING, micro_batch=4, sequence_parallel=False)
    assert answer.verdict.value == "yes"


def test_what_does_not_fit_is_an_answer_too() -> None:
    assert (
        fit(**{**TRAINING, "cluster": "T4", "precision": "fp16"}, micro_batch=64).verdict.value
        == "no"
    )


def test_plan_and_fit_agree_on_the_best_layout() -> None:
    best = plan(**TRAINING, top=1).plan.best[0]
    layout = best.layout
    asked = fit(
        **TRAINING,
        tp=layout.tensor_parallel,
        pp=layout.pipeline_parallel,
        cp=layout.context_parallel,
        zero=layout.zero_stage,
        micro_batch=layout.micro_batch,
        recompute=layout.recompute.value,
    )
    assert asked.step_s == pytest.approx(best.step_s)


def test_an_unknown_keyword_is_named() -> None:
    with pytest.raises(ConfigError, match="--micro-bach"):
        fit(**TRAINING, micro_bach=4)
