import json
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch import ConfigError, fit, plan, recommend, tune, validate
from autoconf_launch.launcher.commands.validate import validate as command

TRAINING: dict[str, Any] = {
    "model": "gpt2-xl",
    "cluster": "8xA100-SXM-80GB",
    "seq": 1024,
    "global_batch": 64,
}


def test_fit_answers_in_values() -> None:
    answer = fit(**TRAINING, micro_batch=4, sequence_parallel=False)
    assert answer.verdict.value == "yes"


def test_what_does_not_fit_is_an_answer_too() -> None:
    answer = fit(
        model="gpt2-xl", cluster="T4", seq=1024, global_batch=64, precision="fp16", micro_batch=64
    )
    assert answer.verdict.value == "no"


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
        recompute=layout.recompute,
    )
    assert asked.step_s == pytest.approx(best.step_s)


def test_plan_takes_several_clusters() -> None:
    found = plan(cluster=["8xA100-SXM-80GB", "8xH100"], model="gpt2", seq=1024, global_batch=64)
    assert [one.request.training.cluster_text for one in found.answers] == [
        "8xH100",
        "8xA100-SXM-80GB",
    ]
    with pytest.raises(ConfigError, match="cluster is empty"):
        plan(cluster=[], model="gpt2", seq=1024, global_batch=64)


def test_plan_counts_the_gpus_that_are_needed() -> None:
    answer = plan(**TRAINING, gpus_needed=True, tokens=10**12, deadline_s=30 * 86400.0)
    assert answer.needed
    assert answer.needed.gpus == len(answer.cluster.devices)
    with pytest.raises(ConfigError, match=r"^gpus_needed counts nodes itself"):
        plan(cluster="2x8xH100", model="gpt2", seq=1024, global_batch=64, gpus_needed=True)


def test_a_headroom_is_a_share() -> None:
    assert plan(**TRAINING, headroom=0.5).plan.best[0].peak_bytes < 40 * 2**30
    with pytest.raises(ConfigError, match="headroom is 10; it must be a share"):
        plan(**TRAINING, headroom=10)


def test_an_unknown_keyword_is_named() -> None:
    with pytest.raises(ConfigError, match="micro_bach; did you mean 'micro_batch'"):
        fit(**TRAINING, micro_bach=4)  # type: ignore[call-arg]


def test_a_missing_keyword_is_named() -> None:
    with pytest.raises(ConfigError, match="fit needs global_batch"):
        fit(model="gpt2-xl", cluster="T4", seq=1)  # type: ignore[call-arg]


def test_a_value_out_of_its_range_is_named() -> None:
    with pytest.raises(ConfigError, match="zero is 4; it must be a whole number from 0 to 3"):
        fit(**TRAINING, zero=4)
    with pytest.raises(ConfigError, match="'ful' is not a recompute; did you mean 'full'"):
        fit(**TRAINING, recompute="ful")


def test_a_deadline_needs_tokens() -> None:
    with pytest.raises(ConfigError, match=r"^deadline_s bounds .* give its tokens"):
        plan(**TRAINING, deadline_s=3600.0)


def test_recommend_answers_in_values() -> None:
    answer = recommend(
        family="gpt3", tokens_b=300.0, gpus=160, nodes=20, tflops_per_gpu=140.0, max_days=7.0
    )
    by_formula = 160 * 140e12 * 7 * 86_400 / (8 * 300e9) / 1e9
    assert answer.model.asked.size_b == pytest.approx(by_formula, abs=0.01)


def test_recommend_counts_the_gpus_for_a_size_and_days() -> None:
    answer = recommend(
        family="llama", tokens_b=2000.0, model_size_b=70.0, max_days=30.0, cluster="8xH100"
    )
    assert answer.needed
    assert answer.needed.cluster
    assert answer.needed.cluster.gpus == answer.cluster.gpus > 8
    assert answer.planner.outlook
    assert answer.planner.outlook.days <= 30.0


def test_recommend_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match="give gpus, or cluster"):
        recommend(family="gpt3", tokens_b=300.0, max_days=7.0)


def test_an_error_names_the_keyword_and_not_the_flag() -> None:
    with pytest.raises(ConfigError, match=r"^global_batch 63 is not a multiple"):
        fit(model="gpt2-xl", cluster="8xA100-SXM-80GB", seq=1024, global_batch=63)
    with pytest.raises(ConfigError, match=r"or shapes\['layers'\]"):
        fit(cluster="T4", seq=1024, global_batch=64, shapes={"hidden": 64})
    with pytest.raises(ConfigError, match=r"^memory_bytes is 99\.0 GiB, but each A100"):
        fit(model="gpt2-xl", cluster="A100", seq=8, global_batch=8, memory_bytes=99 * 2**30)
    with pytest.raises(ConfigError, match="or model_size_b or model for the days"):
        recommend(family="gpt3", tokens_b=300.0, gpus=8, tflops_per_gpu=140.0)


def test_validate_takes_each_file_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Two files are named table\.csv"):
        validate([tmp_path / "table.csv", tmp_path / "other" / "table.csv"])


def test_validate_refuses_what_is_not_a_table(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("colour\nred\n")
    with pytest.raises(ConfigError, match=r"table\.csv"):
        validate([table])


@pytest.mark.parametrize("trainer", ["megatron", "huggingface"])
def test_validate_scores_rows_for_a_trainer_as_the_command_does(
    tmp_path: Path, trainer: str
) -> None:
    header = "model,layers,hidden,ffn_hidden,heads,vocab,seq,gpu,n_gpus,dp,tp,pp,mbs,gbs"
    table = tmp_path / "table.csv"
    table.write_text(
        f"{header},step_time_s,source\ngpt,24,2048,8192,16,51200,2048,A100-SXM-80GB,8,8,1,1,2,64,2,x\n"
    )
    answer = validate([table], trainer=trainer)
    printed = json.loads("".join(command([str(table), "--trainer", trainer, "--json"])))
    assert answer.trainers == ((trainer, 1),)
    assert printed["all"]["trainers"] == {trainer: 1}
    assert printed["all"]["step_time"]["mape"] == pytest.approx(answer.times.mape, abs=0.1)


@pytest.mark.parametrize("kind", [str, Path])
def test_validate_takes_one_path(tmp_path: Path, kind: type) -> None:
    with pytest.raises(ConfigError, match=r"^\S+/absent\.csv cannot be read"):
        validate(kind(tmp_path / "absent.csv"))
    with pytest.raises(ConfigError, match="files is empty; give at least one table"):
        validate([])


def test_tune_takes_a_path_and_one_line_of_arguments(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.py does not exist"):
        tune(tmp_path / "absent.py", "--config 'a b.json'")
    with pytest.raises(ConfigError, match='arguments is "--config \'a", which no shell'):
        tune(tmp_path / "absent.py", "--config 'a")


def test_validate_refuses_an_unknown_trainer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'megatronn' is not a trainer; did you mean 'megatron'"):
        validate([tmp_path / "table.csv"], trainer="megatronn")


def test_tune_names_an_unknown_keyword() -> None:
    with pytest.raises(ConfigError, match="tune has no keyword bugdet; did you mean 'budget'"):
        tune("train.py", bugdet="20m")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"top": -1}, "top is -1; it must be a whole number from 0"),
        ({"tokens": 1.5e12}, "tokens is 1500000000000.0; it must be a whole number"),
        ({"tokens": 10**9, "deadline_s": 0}, "deadline_s is 0; it must be a number above 0"),
        ({"usd_per_gpu_hour": "0"}, "usd_per_gpu_hour '0' must be a number above 0"),
    ],
)
def test_a_wrong_number_names_its_keyword(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        plan(**TRAINING, **wrong)
