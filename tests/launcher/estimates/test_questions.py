import json
from collections.abc import Callable
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
    work: dict[str, Any] = {"model": "gpt2-xl", "seq": 1024, "global_batch": 64}
    assert fit(**TRAINING, micro_batch=4, sequence_parallel=False).verdict.value == "yes"
    assert fit(**work, cluster="T4", precision="fp16", micro_batch=64).verdict.value == "no"


def test_plan_takes_several_clusters() -> None:
    found = plan(cluster=["8xA100-SXM-80GB", "8xH100"], model="gpt2", seq=1024, global_batch=64)
    names = [one.request.training.cluster_text for one in found.answers]
    assert names == ["8xH100", "8xA100-SXM-80GB"]


def test_plan_counts_the_gpus_that_are_needed() -> None:
    answer = plan(**TRAINING, gpus_needed=True, tokens=10**12, deadline_s=30 * 86400.0)
    assert answer.needed
    assert answer.needed.gpus == len(answer.cluster.devices)
    assert plan(**TRAINING, headroom=0.5).plan.best[0].peak_bytes < 40 * 2**30


RUN = {"family": "gpt3", "tokens_b": 300.0}
WORK = {key: TRAINING[key] for key in ("model", "seq", "global_batch")}


@pytest.mark.parametrize(
    ("verb", "keywords", "says"),
    [
        (fit, {**TRAINING, "micro_bach": 4}, "micro_bach; did you mean 'micro_batch'"),
        (fit, {"model": "gpt2-xl", "cluster": "T4", "seq": 1}, "fit needs global_batch"),
        (fit, {**TRAINING, "zero": 4}, "zero is 4; it must be a whole number from 0 to 3"),
        (fit, {**TRAINING, "recompute": "ful"}, "'ful' is not a recompute; did you mean 'full'"),
        (fit, {**TRAINING, "global_batch": 63}, "^global_batch 63 is not a multiple"),
        (
            fit,
            {"cluster": "T4", "seq": 1024, "global_batch": 64, "shapes": {"hidden": 64}},
            r"or shapes\['layers'\]",
        ),
        (
            fit,
            {**TRAINING, "cluster": "A100", "memory_bytes": 99 * 2**30},
            r"^memory_bytes is 99\.0 GiB, but each A100",
        ),
        (plan, {**TRAINING, "headroom": 10}, "headroom is 10; it must be a share"),
        (plan, {**TRAINING, "deadline_s": 3600.0}, "^deadline_s bounds .* give its tokens"),
        (plan, {**TRAINING, "top": -1}, "top is -1; it must be a whole number from 0"),
        (plan, {**TRAINING, "tokens": 1.5e12}, "tokens is 1500000000000.0; it must be a whole"),
        (
            plan,
            {**TRAINING, "tokens": 10**9, "deadline_s": 0},
            "deadline_s is 0; it must be a number above 0",
        ),
        (
            plan,
            {**TRAINING, "usd_per_gpu_hour": "0"},
            "usd_per_gpu_hour '0' must be a number above 0",
        ),
        (plan, {**WORK, "cluster": []}, "cluster is empty"),
        (
            plan,
            {**WORK, "cluster": "2x8xH100", "gpus_needed": True},
            "^gpus_needed counts nodes itself",
        ),
        (recommend, {**RUN, "max_days": 7.0}, "give gpus, or cluster"),
        (
            recommend,
            {**RUN, "gpus": 8, "tflops_per_gpu": 140.0},
            "or model_size_b or model for the days",
        ),
        (
            validate,
            {"files": ["table.csv", "other/table.csv"]},
            r"Two files are named table\.csv",
        ),
        (validate, {"files": ["table.csv"]}, r"table\.csv"),
        (validate, {"files": "absent.csv"}, r"^absent\.csv cannot be read"),
        (validate, {"files": Path("absent.csv")}, r"^absent\.csv cannot be read"),
        (validate, {"files": []}, "files is empty; give at least one table"),
        (
            validate,
            {"files": ["table.csv"], "trainer": "megatronn"},
            "'megatronn' is not a trainer; did you mean 'megatron'",
        ),
        (
            tune,
            {"script": Path("absent.py"), "arguments": "--config 'a b.json'"},
            r"absent\.py does not exist",
        ),
        (
            tune,
            {"script": "absent.py", "arguments": "--config 'a"},
            'arguments is "--config \'a", which no shell',
        ),
        (
            tune,
            {"script": "train.py", "bugdet": "20m"},
            "tune has no keyword bugdet; did you mean 'budget'",
        ),
    ],
)
def test_what_python_cannot_answer_is_refused_by_its_keyword(
    verb: Callable[..., Any],
    keywords: dict[str, Any],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text("colour\nred\n")
    with pytest.raises(ConfigError, match=says):
        verb(**keywords)


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
