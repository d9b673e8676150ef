"""The verb through the command's entry point: text, document, file, exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoconf_launch import recommend as python_recommend
from autoconf_launch.launcher.report import recommend_document

from .verb import Ran, Run, with_value

SEEDS = ("--family", "gpt3", "--gpus", "160", "--tflops-per-gpu", "140", "--tokens", "300B")
CLUSTER = ("--family", "gpt3", "--cluster", "20x8xA100-SXM-80GB", "--tokens", "300B")


def test_the_seeds_twenty_nodes_and_five_days(recommend: Run) -> None:
    document = recommend(*SEEDS, "--max-days", "5", "--json").document
    formula = document["formula"]
    assert (document["family"], formula["model_size_b"]) == ("gpt3", 4.03)
    assert (formula["training_days"], formula["nearest_predefined"]) == (5.0, "gpt3/5b")
    assert document["planner"]["cluster"] == "20x8xA100-SXM-80GB"
    sized = recommend(*SEEDS, "--model-size", "5", "--json").document["formula"]
    assert (sized["model_size_b"], sized["training_days"]) == (5, 6.2)


@pytest.mark.parametrize(
    ("asked", "family", "days"),
    [
        (CLUSTER, "gpt3", 5),
        (("--family", "llama", "--tokens", "2T", "--cluster", "16x8xH100"), "llama", 30),
    ],
)
def test_a_size_for_days_is_told_with_days_of_its_own_within_them(
    recommend: Run, asked: tuple[str, ...], family: str, days: int
) -> None:
    first, second = recommend(*asked, "--max-days", f"{days}").out.splitlines()[:2]
    size = first.split(" up to ")[1].split(":")[0]
    assert second.startswith(f"{family}, {size}: ")
    assert float(second.split(": ")[1].split()[0]) <= days


@pytest.mark.parametrize("question", [("--max-days", "5"), ("--model-size", "5")])
def test_the_first_line_and_the_document_name_the_trainer(
    recommend: Run, question: tuple[str, ...]
) -> None:
    first, *others = recommend(*CLUSTER, *question).out.splitlines()
    assert first.endswith(", trainer megatron (checked against NVIDIA's published trainings)")
    assert not any("trainer megatron" in line for line in others)
    assert recommend(*CLUSTER, *question, "--json").document["trainer"] == "megatron"


def test_without_a_prediction_the_text_names_no_trainer(recommend: Run) -> None:
    asked = ("--family", "gpt3", "--tokens", "300B", "--model-size", "5")
    mixed = ("--cluster", "8xA100-SXM-80GB+8xT4", "--tflops-per-gpu", "140")
    said = recommend(*asked, *mixed).out
    assert said.startswith("planner: no answer")
    assert "trainer megatron" not in said


def test_a_doubled_assumption_has_the_days_of_that_question(recommend: Run) -> None:
    asked = (*SEEDS, "--model-size", "5", "--json")
    rows = recommend(*asked).document["planner"]["assumptions"]
    row = next(one for one in rows if one["name"] == "sequence_length")
    batch = recommend(*asked).document["planner"]["global_batch"]
    other = ("--seq", str(2 * int(row["value"])), "--global-batch", str(batch))
    doubled = recommend(*asked, *other).document["planner"]
    assert row["days_at_double"] == pytest.approx(doubled["training_days"])


def test_no_number_has_an_exponent(recommend: Run) -> None:
    out = recommend(*SEEDS[:-1], "300T", "--model-size", "500").out
    assert "e+0" not in out


GPUS = ("--family", "llama", "--tokens", "2T", "--model-size", "70", "--max-days", "30")


def test_how_many_gpus_for_a_size_and_days_is_a_question(recommend: Run) -> None:
    found = recommend(*GPUS, "--cluster", "8xH100", "--json").document
    needed, planner = found["gpus_needed"], found["planner"]
    assert needed["training_days"] <= 30
    assert needed["gpus"] == needed["nodes"] * 8
    assert planner["training_days"] == needed["training_days"]
    assert found["formula"]["gpus"] == needed["gpus"]
    exact = found["formula"]["training_days_exact"]
    assert needed["gpus_by_formula"] == -(-needed["gpus"] * exact // 30)
    assert recommend(*GPUS, "--cluster", "8xH100").out.startswith(
        f"llama, 70 B parameters in 30 days: {needed['gpus']} GPUs ({needed['nodes']} nodes of 8)"
    )
    fewer = ("--cluster", f"{needed['nodes'] - 1}x8xH100", "--json")
    assert recommend(*GPUS[:-2], *fewer).document["planner"]["training_days"] > 30
    several = recommend(*GPUS, "--cluster", "16x8xH100", "--json").document
    assert several["planner"]["cluster"] == "16x8xH100"
    assert several["planner"]["training_days"] > 30 >= several["gpus_needed"]["training_days"]


def test_a_node_that_is_fast_enough_is_kept(recommend: Run) -> None:
    small = ("--family", "llama", "--tokens", "100B", "--model-size", "1", "--max-days", "300")
    found = recommend(*small, "--cluster", "8xH100", "--json").document
    assert found["formula"]["gpus"] == 8
    assert found["gpus_needed"]["gpus"] == 1


def test_days_that_no_number_of_gpus_keeps_end_with_code_3(recommend: Run) -> None:
    ran = recommend(*GPUS[:-1], "0.01", "--cluster", "8xH100")
    assert (ran.code, ran.is_one_line) == (3, True)
    assert "no number of the GPUs of 8xH100 trains 70 B parameters on 2 T tokens" in ran.err


def test_what_was_assumed_is_told_and_what_was_given_is_not(recommend: Run) -> None:
    notes = " ".join(recommend(*SEEDS, "--max-days", "5", "--json").document["notes"])
    assert "No --cluster was given" in notes
    assert "predefined searches, 51200" in notes
    assert "2048 tokens" in notes
    given = ("--seq", "4096", "--vocab", "50257", "--global-batch", "2048")
    document = recommend(*SEEDS, "--model-size", "5", *given, "--json").document
    assert not any("predefined searches" in note for note in document["notes"])
    names = {one["name"] for one in document["planner"]["assumptions"]}
    assert names.isdisjoint({"sequence_length", "vocabulary", "global_batch"})
    assert "other_share" in names


def test_without_a_rate_the_planner_predicts_it(recommend: Run) -> None:
    document = recommend(*CLUSTER, "--max-days", "5", "--json").document
    assert document["formula"]["tflops_predicted"] is True
    assert document["formula"]["tflops_per_gpu"] == pytest.approx(
        document["planner"]["tflops_per_gpu"], rel=0.2
    )


def test_the_planner_has_cost_band_and_sensitivity(recommend: Run) -> None:
    def planner_of(*more: str) -> dict[str, Any]:
        asked = (*CLUSTER, "--model-size", "5", "--json", *more)
        planner: dict[str, Any] = recommend(*asked).document["planner"]
        return planner

    planner, priced = planner_of(), planner_of("--usd-per-gpu-hour", "1")
    assert planner["days_low"] < planner["training_days"] < planner["days_high"]
    assert planner["cost_usd"] > 0
    assert priced["cost_usd"] == pytest.approx(priced["training_days"] * 24 * 160)
    assert all(one["why"] for one in planner["assumptions"])
    worse = planner_of("--assume", "other_share=0.2")
    assert worse["training_days"] > planner["training_days"]


def test_a_family_that_no_rule_knows_says_so(recommend: Run) -> None:
    arguments = ("--family", "falcon", *SEEDS[2:], "--max-days", "5", "--json")
    document = recommend(*arguments).document
    assert document["formula"]["generation"] == "nemo2"
    assert "No rule knows the family 'falcon'" in document["notes"][0]


def test_a_memory_that_no_rule_covers_says_so(recommend: Run) -> None:
    arguments = (*SEEDS, "--model-size", "5", "--gpu-memory-gb", "48", "--json")
    document = recommend(*arguments).document
    assert document["planner"]["peak_memory_gib"] < 48
    assert any("No table has a batch" in note for note in document["notes"])
    assert any("which GPU has 48 GB" in note for note in document["notes"])


def test_a_recommended_size_above_the_tables_is_told_with_its_limit(recommend: Run) -> None:
    arguments = ("--family", "t5", "--gpus", "1024", "--tflops-per-gpu", "1400")
    ran = recommend(*arguments, "--tokens", "340B", "--max-days", "14", "--json")
    assert (ran.code, ran.document["formula"]["model_size_b"]) == (0, 637.53)
    assert any("at most 250 B parameters" in note for note in ran.document["notes"])
    assert ran.document["model"]["parameters"] == pytest.approx(637.53e9, rel=0.1)
    assert 0 < ran.document["planner"]["model_size_b"] <= 250


def test_the_base_configuration_of_such_a_size_is_of_the_same_model(
    recommend: Run, tmp_path: Path
) -> None:
    out = tmp_path / "base.yaml"
    arguments = (*SEEDS, "--max-days", "5000", "--json")
    told, written = recommend(*arguments), recommend(*arguments, "--base-config", str(out))
    assert (told.code, written.code) == (0, 0)
    assert told.document == written.document
    layers = yaml.safe_load(out.read_text())["model"]["num_layers"]
    assert layers == told.document["model"]["layers"]
    assert "no layout" in told.document["planner"]["why_no_answer"]


def test_gpus_that_no_layout_divides_are_told(recommend: Run) -> None:
    arguments = ("--family", "llama", "--model-size", "405", "--gpus", "100000", "--seq", "8192")
    ran = recommend(*arguments, "--tflops-per-gpu", "140", "--tokens", "15T", "--json")
    assert "divides 100000 GPUs" in ran.document["planner"]["why_no_answer"]


@pytest.mark.parametrize("gpus", ["1", "7"])
def test_odd_numbers_of_gpus_have_an_answer(recommend: Run, gpus: str) -> None:
    arguments = ("--family", "gpt3", "--gpus", gpus, "--max-days", "5", "--tokens", "300B")
    planner = recommend(*arguments, "--tflops-per-gpu", "140", "--json").document["planner"]
    assert planner["layout"]["data_parallel"] == int(gpus)


def test_the_base_configuration_and_its_exports_are_written(
    recommend: Run, tmp_path: Path
) -> None:
    path = tmp_path / "base.yaml"
    files = ("--base-config", str(path), "--export", "megatron,nemo2")
    ran = recommend(*SEEDS, "--model-size", "5", "--max-days", "6", *files)
    document = yaml.safe_load(path.read_text())
    assert (ran.code, str(path) in ran.out) == (0, True)
    assert document["run"]["name"] == "gpt3_5b"
    assert document["trainer"]["max_steps"] == 71525
    assert document["autoconf"]["parameters"] == pytest.approx(5e9, rel=0.05)
    assert "--num-layers 24" in (tmp_path / "base.megatron.args").read_text()
    assert "llm.GPTModel" in (tmp_path / "base.nemo2.py").read_text()
    assert f"exported to {tmp_path / 'base.nemo2.py'}" in ran.out


def custom(
    recommend: Run, folder: Path, content: dict[str, Any], *more: str, gpus: str = "160"
) -> tuple[Ran, Any]:
    """The answer for a custom file, and the base configuration that is written."""
    file, out = folder / "custom.yaml", folder / "base.yaml"
    file.write_text(yaml.safe_dump(content))
    files = ("--base-config", str(out), "--custom-config", str(file))
    ran = recommend(*with_value(SEEDS, "--gpus", gpus), "--model-size", "5", *files, *more)
    assert ran.code == 0
    return ran, yaml.safe_load(out.read_text())


WHOLE = {
    "num_layers": 22,
    "hidden_size": 4096,
    "ffn_hidden_size": "${multiply:4, ${.hidden_size}}",
    "num_attention_heads": 32,
    "encoder_seq_length": 4096,
    "global_batch_size": 96,
    "optim": {"lr": 3.0e-4},
    "data": {"seq_length": "${model.encoder_seq_length}"},
}
FEW = {
    "num_layers": 22,
    "encoder_seq_length": 4096,
    "global_batch_size": 96,
    "optim": {"lr": 3e-4},
}


@pytest.mark.parametrize("model", [WHOLE, FEW], ids=["whole", "few keys"])
def test_all_numbers_are_those_of_a_custom_model(
    recommend: Run, tmp_path: Path, model: dict[str, Any]
) -> None:
    ran, base = custom(recommend, tmp_path, {"model": model}, "--json", gpus="128")
    told = ran.document
    assert (told["model"]["layers"], told["model"]["learning_rate"]) == (22, 3e-4)
    assert (told["model"]["global_batch"], told["model"]["sequence"]) == (96, 4096)
    assert told["model"]["parameters"] == pytest.approx(22 * 12 * 4096**2, rel=0.06)
    assert told["planner"]["global_batch"] == 96
    assert any(f"The model of {tmp_path / 'custom.yaml'} has" in note for note in told["notes"])
    assert base["trainer"]["max_steps"] == int(300e9 / (4096 * 96))
    if model is WHOLE:
        text = custom(recommend, tmp_path, {"model": model})[0].out
        assert "22 layers, hidden 4096, heads 32, ffn 16384, learning rate 0.0003" in text
        assert "global batch 96 of 4096 tokens" in text


def test_a_custom_model_is_left_alone(recommend: Run, tmp_path: Path) -> None:
    model = {"num_layers": 3, "hidden_size": 96, "global_batch_size": 7}
    content = {"model": model, "trainer": {"max_steps": 1}}
    _, document = custom(recommend, tmp_path, content)
    assert document["model"] == model
    assert document["trainer"]["max_steps"] == int(300e9 / (2048 * 7))


ASKED = ("--tokens", "2T", "--cluster", "64x8xH100")


def test_a_model_by_its_id_has_its_own_shape_and_days(recommend: Run) -> None:
    document = recommend("--model", "meta-llama/Llama-3.1-8B", *ASKED, "--json").document
    assert (document["family"], document["formula"]["model_size_b"]) == ("llama", 8.0303)
    assert document["model"]["parameters"] == 8_030_261_248
    assert document["planner"]["training_days"] > 0
    assert recommend("--model", "deepseek-v3", *ASKED, "--json").document["family"] == "deepseek"


def test_the_base_configuration_of_a_model_is_that_model(recommend: Run, tmp_path: Path) -> None:
    """Llama 2 has no grouped queries, unlike the family's usual models."""
    path = tmp_path / "base.yaml"
    recommend("--model", "llama2-7b", *ASKED, "--base-config", str(path))
    model = yaml.safe_load(path.read_text())["model"]["config"]
    assert (model["num_layers"], model["ffn_hidden_size"]) == (32, 11008)
    assert model["num_query_groups"] == 32


def test_a_rate_above_the_peak_of_the_gpu_is_said_to_be(recommend: Run) -> None:
    given = (*CLUSTER, "--model-size", "5", "--tflops-per-gpu")
    above = "--tflops-per-gpu is 597, above the peak of A100-SXM-80GB (312)"
    assert above in recommend(*given, "597").out
    assert "above the peak" not in recommend(*given, "200").out


def model_of(family: str, size_b: float, **more: Any) -> tuple[dict[str, Any], str]:
    """The model for a size on one GPU, where the planner has nothing to search, and the notes."""
    asked: dict[str, Any] = {"family": family, "tokens_b": 2000.0, "model_size_b": size_b}
    answer = python_recommend(**asked, tflops_per_gpu=140.0, gpus=1, **more)
    document = json.loads(recommend_document(answer))
    return document["model"], " ".join(document["notes"])


@pytest.mark.parametrize(
    ("size_b", "widths"),
    [
        (7, (32, 4096, 32, 11008)),
        (8, (32, 4096, 32, 14336)),
        (13, (40, 5120, 40, 13824)),
        (33, (60, 6656, 52, 17920)),
        (70, (80, 8192, 64, 28672)),
        (405, (126, 16384, 128, 53248)),
    ],
)
def test_a_published_size_has_the_published_shape(size_b: int, widths: tuple[int, ...]) -> None:
    model, _ = model_of("llama", size_b)
    assert tuple(model[name] for name in ("layers", "hidden", "heads", "ffn")) == widths
    assert model["parameters"] == pytest.approx(1e9 * size_b, rel=0.04)


@pytest.mark.parametrize(
    ("family", "size_b"),
    [("llama", 13), ("llama", 70), ("qwen", 72), ("gemma", 7), ("mixtral", 47), ("nemotron", 15)],
)
def test_the_answer_is_for_the_size_that_was_asked(family: str, size_b: int) -> None:
    model, notes = model_of(family, size_b)
    assert model["parameters"] == pytest.approx(1e9 * size_b, rel=0.02)
    assert "NVIDIA's shape for" in notes


def test_another_vocabulary_changes_the_shape_where_its_count_would_be_off() -> None:
    model, _ = model_of("llama", 7, vocabulary=256_000)
    assert model["vocabulary"] == 256_000
    assert model["parameters"] == pytest.approx(7e9, rel=0.02)


def test_an_answer_has_one_global_batch_and_one_number_of_gpus(recommend: Run) -> None:
    document = recommend(*GPUS, "--cluster", "8xH100", "--json").document
    out = recommend(*GPUS, "--cluster", "8xH100").out
    batch, gpus = document["planner"]["global_batch"], document["gpus_needed"]["gpus"]
    assert document["model"]["global_batch"] == batch
    assert f"global batch {batch} of 4096 tokens" in out
    formula = next(line for line in out.splitlines() if line.startswith("NVIDIA's formula"))
    assert "for comparison" in formula
    assert f"on {gpus} GPUs" in formula
    short = recommend(*GPUS, "--cluster", "8xH100", "--seq", "2k", "--json").document
    for one in (document, short):
        assert one["planner"]["layout"].get("context_parallel", 1) == 1


@pytest.mark.parametrize(
    ("gpus", "batch"), [("3x8xA100-SXM-80GB", "1000"), ("20x8xA100-SXM-80GB", "2048")]
)
def test_a_given_global_batch_is_kept_or_the_answer_says_that_it_is_changed(
    recommend: Run, gpus: str, batch: str
) -> None:
    asked = ("--family", "gpt3", "--model-size", "5", "--tokens", "300B", "--cluster", gpus)
    document = recommend(*asked, "--global-batch", batch, "--json").document
    out = recommend(*asked, "--global-batch", batch).out
    taken = str(document["planner"]["global_batch"])
    assert document["model"]["global_batch"] == int(taken)
    assert f"global batch {taken} of 2048 tokens" in out
    sentence = f"global batch of {batch} that was given: this answer is for {taken}."
    assert (taken != batch) == (sentence in out)
    assert (taken != batch) == any(sentence in note for note in document["notes"])
    micro = document["planner"]["layout"]["micro_batch"]
    assert micro & (micro - 1) == 0


def test_the_nearest_search_has_the_vocabulary_of_the_shape(recommend: Run) -> None:
    asked = ("--family", "llama", "--model-size", "70", "--tokens", "1T", "--cluster", "16x8xH100")
    for more, name in (((), "llama3_70b"), (("--vocab", "32000"), "llama2_70b")):
        document = recommend(*asked, *more, "--json").document
        assert document["formula"]["nearest_predefined"] == f"llama/{name}"
