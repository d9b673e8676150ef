"""The verb through the command's entry point: text, document, exit code."""

import io
import json
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ..conftest import Driver
from .verb import Run, with_value

LLAMA = ("--model", "llama3.1-8b", "--seq", "4096", "--global-batch", "64")
SMALL = ("--layers", "4", "--hidden", "512", "--heads", "8", "--vocabulary", "1000")
FITS = (*LLAMA, "--cluster", "2x8xA100-SXM-40GB", "--tp", "2", "--pp", "4", "--sequence-parallel")
TOO_LARGE = (*LLAMA, "--cluster", "8xA100-SXM-40GB", "--tp", "2")
GOLDEN = """\
llama3.1-8b: 8.03 B parameters, on 16 x A100-SXM-40GB, trainer megatron (default on Ampere, \
checked there as megatron-2021)
z1_tp2_pp4_spT_gas32_tmbspg1: dp=2 tp=2 pp=4 cp=1, global batch 64 of 4096 tokens

GiB of a rank  stage 0  stage 1  stage 2  stage 3
-------------  -------  -------  -------  -------
weights           2.11     1.63     1.63     2.11
gradients         4.23     3.25     3.25     4.23
optimizer         6.34     4.88     4.88     6.34
norms             1.00     0.75     0.50     0.25
attention         1.76     1.32     0.88     0.44
mlp               5.75     4.31     2.88     1.44
logits            0.00     0.00     0.00     1.53
working           0.23     0.23     0.23     0.00
communication     1.03     1.03     1.03     1.03
context           0.75     0.75     0.75     0.75
fragmentation     0.35     0.26     0.18     0.15
sum              23.55    18.40    16.19    18.27

yes: it fits. The fullest rank (stage 0) needs 23.6 GiB ±10 % of 39.5 GiB.
"""


def test_the_report_is_as_it_was_agreed(fit: Run) -> None:
    ran = fit(*FITS)
    assert (ran.code, ran.out) == (0, GOLDEN)
    spelled = [argument.replace("-batch", "_batch") for argument in FITS]
    assert fit(*spelled).out == GOLDEN


TUNED = (
    *("--model", "llama3.1-8b", "--cluster", "rtx4090", "--trainer", "torchtune"),
    *("--states", "bf16", "--seq", "2048", "--recompute", "full", "--micro-batch", "2"),
)


def test_states_updates_and_the_optimizer_are_words_of_the_question(fit: Run) -> None:
    """torchtune publishes 18.9 GiB for this run (github.com/pytorch/torchtune README.md)."""
    whole = ("--optimizer", "paged_adamw8bit", "--update-in-backward", "--global-batch", "2")
    ran = fit(*TUNED, *whole)
    assert (ran.code, "optimizer paged_adamw8bit, states bf16, update in backward" in ran.out) == (
        0,
        True,
    )
    parts = fit(*TUNED, *whole, "--json").document["stages"][0]["parts"]
    assert sum(parts.values()) == pytest.approx(18.9, rel=0.1)
    summed = fit(*TUNED, *whole[:3], "--global-batch", "8")
    assert summed.code == 2
    assert "several micro-batches a step; raise --micro-batch" in summed.err


def test_what_would_fit_has_what_the_trainer_has_besides_the_layout(fit: Run) -> None:
    ran = fit(*TUNED, "--optimizer", "adamw8bit", "--update-in-backward", "--global-batch", "2")
    assert (ran.code, "\noptimizer=paged_adamw8bit " in ran.out) == (1, True)
    long = (
        "--model",
        "llama3.1-8b",
        "--cluster",
        "1xH100",
        "--seq",
        "8192",
        "--global-batch",
        "8",
    )
    hf = fit(*long, "--trainer", "hf", "--states", "bf16", "--micro-batch", "8")
    assert " loss=fused" in hf.out
    assert "loss=chunked" not in hf.out, "it has no such loss"


@pytest.mark.parametrize(
    ("flags", "lack"),
    [
        (("--states", "bf16-moments"), "states bf16-moments; trainers with it: nemo, megatron,"),
        (("--loss", "chunked"), "loss chunked; trainers with it: torchtune."),
        (("--update-in-backward",), "update in the backward pass; trainers with it: torchtune."),
        (("--optimizer", "paged_adamw"), "optimizer paged_adamw; trainers with it: deepspeed,"),
    ],
)
def test_a_trainer_without_the_words_is_refused(
    fit: Run, flags: tuple[str, ...], lack: str
) -> None:
    ran = fit(*LLAMA, "--cluster", "8xH100", "--trainer", "torchtitan", *flags)
    assert (ran.code, lack in ran.err) == (2, True), ran.err


def test_megatron_offloads_activations_without_pipelines_and_recomputation(fit: Run) -> None:
    away = (*LLAMA, "--cluster", "8xH100", "--trainer", "nemo", "--offload", "activations")
    ran = fit(*away)
    assert (ran.code, "of host memory per node" in ran.out) == (0, True)
    for more in (("--pp", "2"), ("--recompute", "full")):
        refused = fit(*away, *more)
        assert refused.code == 2
        assert "offloads activations only without --pp and --recompute" in refused.err


def test_a_no_names_what_would_fit_and_its_price_in_time(fit: Run) -> None:
    ran = fit(*TOO_LARGE)
    assert (ran.code, "what would fit" in ran.out) == (1, True)
    assert ran.err.startswith("autoconf-launch: it does not fit: a rank needs ")
    remedies = fit(*TOO_LARGE, "--json").document["remedies"]
    assert remedies
    assert all(remedy["step_time_s"] > 0 for remedy in remedies)


def test_the_parts_of_each_stage_add_up(fit: Run) -> None:
    document = fit(*FITS, "--json").document
    assert document["schema_version"] == 2
    assert [stage["stage"] for stage in document["stages"]] == [0, 1, 2, 3]
    for stage in document["stages"]:
        assert sum(stage["parts"].values()) == pytest.approx(stage["memory_gib"], abs=0.02)


def test_many_stages_stand_in_rows(fit: Run) -> None:
    arguments = ("--cluster", "16x8xA100-SXM-40GB", "--pp", "16", "--zero", "0")
    assert re.search(r"^stage 15 ", fit(*LLAMA, *arguments).out, re.MULTILINE)


def test_flags_describe_a_model_and_change_a_named_one(fit: Run) -> None:
    work = ("--cluster", "T4-16GB", "--seq", "128", "--global-batch", "1", "--precision", "fp16")
    assert fit(*SMALL, *work).code == 0
    assert fit(*FITS, "--layers", "16", "--json").document["parameters"] < 5e9


def test_a_memory_limit_takes_the_place_of_the_gpu_s(fit: Run) -> None:
    ran = fit(*FITS, "--memory-limit", "4GB")
    assert (ran.code, "It fits without --memory-limit 3.7 GiB (each" in ran.out) == (1, True)
    assert "larger GPUs" not in ran.out


def write(folder: Path, name: str, content: dict[str, Any]) -> str:
    (folder / name).write_text(json.dumps(content))
    return str(folder / name)


def test_a_configuration_file_describes_a_model(fit: Run, tmp_path: Path) -> None:
    config = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12}
    path = write(tmp_path, "config.json", {**config, "n_positions": 1024, "vocab_size": 50257})
    work = ("--cluster", "8xH100", "--seq", "1024", "--global-batch", "8", "--json")
    for model in (path, str(tmp_path)):
        assert fit("--model", model, *work).document["parameters"] == 124_439_808


def test_a_profiled_model_describes_itself(fit: Run, tmp_path: Path) -> None:
    blocks = [
        {"name": "embedding", "parameters": 512_000},
        {"name": "blocks", "count": 6, "parameters": 12 * 512 * 512},
    ]
    sizes = {"hidden_size": 512, "vocabulary_size": 1000, "sequence_length": 64}
    profile = {"grade": "measured", "blocks": blocks, **sizes}
    path = write(tmp_path, "model_info.json", profile)
    work = ("--cluster", "8xH100", "--seq", "64", "--global-batch", "8", "--json")
    found = fit("--model", path, *work).document["parameters"]
    assert found == pytest.approx(512_000 + 6 * 12 * 512 * 512, rel=0.01)


def test_a_file_describes_the_cluster(fit: Run, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes:\n- {gpu: H100, count: 1, gpus: 4}\n- {gpu: A100-SXM-40GB, gpus: 4}\n")
    work = ("--model", "gpt2", "--cluster", str(path), "--seq", "128", "--global-batch", "8")
    ran = fit(*work, "--json")
    assert ran.document["limit_gib"] < 40


def test_without_a_cluster_this_machine_is_meant(fit: Run) -> None:
    work = ("--model", "gpt2", "--seq", "128", "--global-batch", "2", "--json")
    local = fit(*work, "--cluster", "local").document
    found = fit(*work).document
    assert found["stages"] == local["stages"]
    assert found["layout"] == local["layout"]


@pytest.fixture
def reads_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read types with transformers in this process, which imports it once for all tests.

    The test of hostile modules keeps the process that a command starts.
    """
    pytest.importorskip("transformers")

    def run(argv: list[str], *, input: str, **_: Any) -> subprocess.CompletedProcess[str]:
        answer = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(answer):
            patch.setattr(sys, "stdin", io.StringIO(input))
            patch.setattr(sys, "path", [*sys.path])
            exec(argv[2], {})
        return subprocess.CompletedProcess(argv, 0, answer.getvalue(), "")

    starts = SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr("autoconf_launch.launcher.estimates.models.subprocess", starts)


@pytest.mark.usefixtures("reads_here")
@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "bart", "d_model": 64}, "transformers counts"),
        (
            {"model_type": "mamba2", "time_step_limit": [0.0, {"__float__": "Infinity"}]},
            "named A_log, conv",
        ),
        ({"model_type": "video_llama_3"}, "vision_config is not modelled"),
        ({"model_type": "dinov2", "hidden_size": 64}, "a dinov2 alone is not a language model"),
        ({"_class_name": "UNet2DConditionModel"}, "not modelled; known: FluxTransformer2DModel, "),
        ({"model_type": "nobody-knows-it"}, "transformers does not know; known: bert, "),
        (
            {"model_type": "xlm-roberta", "hidden_size": 64, "num_attention_heads": 4}
            | {"intermediate_size": 256, "vocab_size": 5000},
            "has 512 learned positions, so a sequence of 1,024 tokens fails",
        ),
    ],
)
def test_a_type_of_transformers_that_is_not_modelled_is_refused_with_the_reason(
    fit: Run, tmp_path: Path, config: dict[str, Any], says: str
) -> None:
    path = write(tmp_path, "config.json", config)
    ran = fit("--model", path, "--cluster", "8xH100", "--seq", "1k", "--global-batch", "8")
    assert (ran.code, ran.is_one_line, ran.out) == (2, True, ""), ran.err
    assert says in ran.err
    does_not_know = "positions" in says or "know" in says  # a list of known types follows
    assert does_not_know or "autoconf-launch fit --cluster C -- python" in ran.err


@pytest.mark.usefixtures("reads_here")
def test_a_t5_is_as_tied_as_the_installed_transformers_makes_it(fit: Run, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    shapes = {"d_model": 64, "num_layers": 2, "d_ff": 128, "vocab_size": 1000, "d_kv": 16}
    config = {"num_heads": 4, "tie_word_embeddings": False, "relative_attention_num_buckets": 32}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**shapes, **config))
    path = write(tmp_path, "config.json", {"model_type": "t5", **shapes, **config})
    work = ("--cluster", "8xH100", "--seq", "8", "--global-batch", "8", "--json")
    counted = sum(weight.numel() for weight in model.parameters())
    assert fit("--model", path, *work).document["parameters"] == counted


def test_no_module_of_the_current_folder_is_run_to_read_a_type(
    fit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, planted = write(tmp_path, "config.json", {"model_type": "no-such"}), tmp_path / "planted"
    for name in ("json", "transformers"):
        (tmp_path / f"{name}.py").write_text(f"open({str(planted)!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    ran = fit("--model", path, "--cluster", "8xH100", "--seq", "1", "--global-batch", "8")
    assert "which the installed transformers does not know; known: bert, " in ran.err
    assert not planted.exists()


def test_where_no_small_change_fits_the_first_larger_cluster_is_named(fit: Run, plan: Run) -> None:
    work = ("--model", "llama3.1-8b", "--seq", "4096", "--global-batch", "16")
    few = fit(*work, "--cluster", "2xRTX-4090")
    text = re.search(r"the first cluster that fits without offload is (\S+)\.\n", few.out)
    assert text is not None, few.out
    assert text[1] == "2x4xRTX-4090-24GB"
    named = fit(*work, "--cluster", "2xRTX-4090", "--json").document["smallest_cluster"]
    assert named == text[1]
    assert plan(*work, "--cluster", named).code == 0


QLORA = ("--model", "llama-65b", "--cluster", "A6000", "--zero", "0", "--recompute", "full")


def test_qlora_is_nf4_weights_with_a_rank(fit: Run) -> None:
    work = (*QLORA, "--seq", "512", "--global-batch", "1", "--lora-rank", "64")
    ran = fit(*work, "--weights", "nf4")
    assert (ran.code, "LoRA of rank 64 on nf4 weights" in ran.out) == (0, True)
    assert fit(*work).code == 1


AWAY = (
    *("--model", "llama2-70b", "--seq", "2048", "--global-batch", "64", "--recompute", "full"),
    *("--zero", "3", "--offload", "parameters", "--trainer", "huggingface"),
)


def test_host_memory_for_offload_is_named_and_compared(fit: Run, tmp_path: Path) -> None:
    ran = fit(*AWAY, "--cluster", "8xA100")
    assert ran.code == 0
    assert "Offload needs 1027.8 GiB of host memory per node; it has 1152.0 GiB." in ran.out
    document = fit(*AWAY, "--cluster", "8xA100", "--json").document
    assert (document["host_memory_gib"], document["host_limit_gib"]) == (1027.832, 1152.0)
    unknown = fit(*AWAY, "--cluster", "2x4xA100").out
    assert unknown.count("Host memory is not checked") == 1
    assert "ost memory" not in fit(*FITS).out
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes:\n- {gpu: A100, gpus: 8, host_memory_gib: 256}\n")
    small = fit(*AWAY, "--cluster", str(path))
    assert (small.code, "no: it does not fit" in small.out) == (1, True)
    assert small.err.endswith("host memory per node; it has 256.0 GiB.\n")


def test_a_cpu_has_no_host_memory_to_offload_to(fit: Run) -> None:
    work = ("--model", "gpt2", "--seq", "128", "--global-batch", "2", "--offload", "optimizer")
    ran = fit(*work, "--cluster", "local", "--precision", "fp32")
    assert ran.code == 1
    assert ran.err.endswith("the memory of its processes is the host's own.\n")


GPT2 = ("--model", "gpt2-large", "--seq", "1024", "--global-batch", "8")


def test_fp32_is_told_what_tf32_and_16_bits_would_gain(fit: Run) -> None:
    flags = (*GPT2, "--cluster", "A100", "--micro-batch", "8", "--precision")
    text, gains = fit(*flags, "fp32").out, fit(*flags, "fp32", "--json").document["faster_formats"]
    assert 3 < gains["tf32"] < gains["bf16"] < 20
    assert (
        f"TF32 would make a step {gains['tf32']:.1f}x faster "
        f"(torch.set_float32_matmul_precision('high')), bf16 {gains['bf16']:.1f}x."
    ) in text
    for precision, faster in (("tf32", {"bf16"}), ("bf16", set())):
        assert fit(*flags, precision, "--json").document["faster_formats"].keys() == faster


def test_megatron_computes_fp32_in_tf32(fit: Run) -> None:
    flags = (*GPT2, "--cluster", "H100", "--trainer")
    megatron, native = (
        [fit(*flags, name, "--precision", kind, "--json").document for kind in ("fp32", "tf32")]
        for name in ("megatron", "native")
    )
    assert megatron[0]["step_time_s"] == megatron[1]["step_time_s"]
    assert native[0]["step_time_s"] > 1.5 * native[1]["step_time_s"]
    assert native[0]["peak_memory_gib"] == native[1]["peak_memory_gib"]


LONG = ("--model", "llama3-8b", "--cluster", "1xRTX-A6000", "--seq", "8192", "--global-batch", "1")


def test_quantized_adapters_keep_the_trainer_and_need_less(fit: Run) -> None:
    flags = (*LONG, "--lora-rank", "16", "--recompute", "full", "--json")
    found = [fit(*flags, *more).document for more in ((), ("--weights", "nf4"))]
    assert [one["trainer"] for one in found] == ["huggingface", "huggingface"]
    assert found[1]["peak_memory_gib"] < found[0]["peak_memory_gib"]
    same = [one["stages"][0]["parts"] for one in found]
    for part in ("logits", "gradients", "optimizer"):
        assert same[0][part] == same[1][part]


def test_the_first_line_names_the_trainer(fit: Run) -> None:
    chosen, given = fit(*LONG).out, fit(*LONG, "--trainer", "deepspeed").out
    assert "trainer huggingface (default on RTX-A6000-48GB)" in chosen.splitlines()[0]
    assert "trainer deepspeed (as given)" in given.splitlines()[0]


def test_tensor_parallelism_shares_out_the_sequence_unless_told_otherwise(fit: Run) -> None:
    flags = (*LLAMA, "--cluster", "8xH100", "--tp", "8", "--json")
    shared, whole = (fit(*flags, *more).document for more in ((), ("--no-sequence-parallel",)))
    assert (shared["layout"]["sequence_parallel"], whole["layout"]["sequence_parallel"]) == (1, 0)
    assert shared["peak_memory_gib"] < whole["peak_memory_gib"]
    odd = fit(*with_value(flags, "--seq", "4095")).document
    assert not odd["layout"]["sequence_parallel"]
    large = ("--model", "llama3.1-405b", "--seq", "8192", "--global-batch", "256", "--pp", "16")
    remedies = fit(*large, "--cluster", "16x8xH100", "--json").document["remedies"]
    wider = [one for one in remedies if "tp=8" in one["changes"]]
    assert wider
    assert all(one["layout"]["sequence_parallel"] for one in wider)


def test_a_card_with_more_memory_than_its_namesake_fits_more(fit: Run, driver: Driver) -> None:
    driver(16380, names=("NVIDIA GeForce RTX 4060 Ti",))
    ran = fit(*GPT2)
    assert (ran.code, "on 1 x RTX-4060-Ti-16GB" in ran.out) == (0, True)
    driver(8188, names=("NVIDIA GeForce RTX 4060 Ti",))
    assert fit(*GPT2).code == 1


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA Graphics Device"])
def test_an_unknown_gpu_is_answered_from_its_memory_without_times(
    fit: Run, driver: Driver, name: str
) -> None:
    driver(24564, names=(name,))
    ran = fit(*GPT2)
    assert (ran.code, ran.err) == (0, "")
    assert f"No step time is predicted: our table of GPUs lacks {name}" in ran.out
    driver(8188, names=(name,))
    remedies = fit(*GPT2, "--json").document["remedies"]
    assert remedies
    assert all(remedy["step_time_s"] is None for remedy in remedies)


X9 = {"gpu": "X9", "gpus": 4, "peak_tflops": 400, "memory_gib": 60}
MEASURED = {
    "reached_tflops": 300,
    "attention_tflops": 200,
    "attention_backward_tflops": 160,
    "all_reduce_gb_per_s": 150,
    "all_reduce_us": 30,
}


def test_a_described_gpu_is_answered_with_a_band_that_says_what_was_never_checked(
    fit: Run, plan: Run, tmp_path: Path
) -> None:
    group = {**X9, "bandwidth_gb_per_s": 2000, "link_gb_per_s": 200}
    work = ("--model", "llama3-8b", "--seq", "4k", "--global-batch", "64", "--cluster")
    plain = write(tmp_path, "x9.json", {"nodes": [group]})
    measured = write(tmp_path, "measured.json", {"nodes": [{**group, **MEASURED}]})
    bands = []
    for path, is_assumed in ((plain, True), (measured, False)):
        fitted, ranked = fit(*work, path), plan(*work, path, "--json").document
        assert fitted.code == 1
        assert "Never checked on X9" in fitted.out
        assert ("Rates of products, attention and all-reduces" in fitted.out) is is_assumed
        assert ("doctor --measure-gpu" in " ".join(ranked["notes"])) is is_assumed
        bands.append(ranked["best"][0]["step_time_band"])
    assert bands[1] < 0.7 * bands[0]
    refused = fit(*work, "4xX9")
    assert refused.code == 2
    assert "GPU 'X9' is unknown; describe it with peak_tflops" in refused.err


PIPELINE = (
    *("--model", "deepseek-v3", "--seq", "4k", "--precision", "fp8_blockwise"),
    *("--cluster", "256x8xH800", "--global-batch", "16384", "--pp", "16", "--ep", "64"),
)


def test_dualpipe_has_a_shorter_step_and_twice_the_weights(fit: Run) -> None:
    plain = fit(*PIPELINE, "--trainer", "deepseek", "--json").document
    dual = fit(*PIPELINE, "--schedule", "dualpipe", "--json").document
    assert dual["trainer"] == "deepseek"
    assert dual["step_time_s"] < plain["step_time_s"]
    for name, factor in (("weights", 2), ("gradients", 2), ("optimizer", 1)):
        before, after = (one["stages"][1]["parts"][name] for one in (plain, dual))
        assert after == pytest.approx(factor * before, rel=1e-3)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--schedule", "zbv", "--vpp", "2"), "vpp=2 is not for schedule zbv"),
        (("--schedule", "zbv", "--micro-batch", "16"), "needs 2 micro-batches a step for each"),
        (("--schedule", "zbv", "--trainer", "nemo"), "--trainer nemo has no schedule zbv"),
        (("--schedule", "zb-h"), "did you mean 'zb-h"),
    ],
)
def test_a_schedule_that_cannot_run_is_refused_with_the_reason(
    fit: Run, more: tuple[str, ...], words: str
) -> None:
    refused = fit(*PIPELINE, *more)
    assert (refused.code, words in refused.err) == (2, True), refused.err


def test_a_no_for_a_cpu_asks_about_gpus_and_not_for_larger_ones(fit: Run) -> None:
    ran = fit("--model", "llama3-70b", "--seq", "8k", "--global-batch", "64", "--cluster", "local")
    assert ran.code == 1
    assert "ask about GPUs with --cluster" in ran.out
    assert "larger GPUs" not in ran.out


def test_a_sequence_beyond_the_learned_positions_is_refused(
    fit: Run, plan: Run, tmp_path: Path
) -> None:
    config = {"model_type": "roberta", "hidden_size": 64, "num_hidden_layers": 2}
    more = {"num_attention_heads": 4, "vocab_size": 1000, "max_position_embeddings": 514}
    path = write(tmp_path, "config.json", {**config, **more})
    for verb, model in ((fit, path), (plan, path), (fit, "gpt2")):
        work = ("--model", model, "--cluster", "8xH100", "--global-batch", "64", "--seq")
        refused = verb(*work, "4096")
        assert refused.code == 2
        assert "learned positions, so a sequence of 4,096 tokens fails" in refused.err
        assert verb(*work, "512").code == verb(*work, "4096", "--positions", "4096").code == 0


@pytest.mark.parametrize(
    ("flags", "trainer", "stage"),
    [
        ("--trainer torchtitan", "torchtitan", 3),
        ("--trainer huggingface --tp 2", "huggingface", 3),
        ("--trainer huggingface", "huggingface", 1),
        ("--lora-rank 8 --tp 2 --pp 2", "nemo", 1),
        ("--optimizer adamw8bit", "huggingface", 1),
        ("--offload parameters --zero 3", "deepspeed", 3),
    ],
)
def test_what_is_left_open_is_what_a_trainer_has(
    fit: Run, flags: str, trainer: str, stage: int
) -> None:
    document = fit(*LLAMA, "--cluster", "8xH100", "--json", *flags.split()).document
    assert (document["trainer"], document["layout"].get("zero_stage", 0)) == (trainer, stage)


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"model_type": "vit", "hidden_size": 1024, "num_attention_heads": 16}, 197),
        ({"_class_name": "FluxTransformer2DModel", "num_layers": 2, "num_single_layers": 4}, 4608),
        ({"model_type": "whisper"}, 1500),
    ],
)
def test_a_model_of_images_or_sound_says_how_many_tokens_a_sample_has(
    fit: Run, tmp_path: Path, config: dict[str, Any], tokens: int
) -> None:
    path = write(tmp_path, "config.json", config)
    work = ("--model", path, "--cluster", "8xH100", "--global-batch", "64")
    assert f"global batch 64 of {tokens} tokens" in fit(*work).out
    longer = fit(*work, "--seq", "1k")
    assert "global batch 64 of 1024 tokens" in longer.out


def test_a_sequence_is_needed_of_a_model_of_any_length(fit: Run) -> None:
    ran = fit("--model", "llama3-8b", "--cluster", "8xH100", "--global-batch", "64")
    assert (ran.code, ran.is_one_line) == (2, True)
    assert "--seq is missing, and llama3-8b reads samples of any length" in ran.err
    ran = fit(
        "--model", "whisper-tiny", "--cluster", "8xH100", "--global-batch", "8", "--seq", "2k"
    )
    assert "reads at most 1500 tokens of sound" in ran.err


def test_images_are_of_a_model_that_sees_them(fit: Run, tmp_path: Path) -> None:
    text = {"hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8}
    vision = {"hidden_size": 512, "num_heads": 8, "out_hidden_size": 1024}
    config = {"model_type": "qwen2_5_vl", "text_config": text, "vision_config": vision}
    path = write(tmp_path, "config.json", config)
    work = ("--cluster", "8xH100", "--seq", "8k", "--global-batch", "64", "--json")
    one, four = (
        fit("--model", path, *work, "--images", str(n)).document["peak_memory_gib"] for n in (1, 4)
    )
    assert four > one
    refused = fit("--model", "llama3-8b", *work, "--images", "2")
    assert "llama3-8b has no vision tower" in refused.err


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--precision", "fp32", "--states", "bf16"), "is for 16-bit training"),
        (("--freeze", "embedding,attention,mlp,head"), "nothing is trained"),
        (("--dispatcher", "deepep"), "has none; omit it"),
        (("--schedule", "zb-h1", "--trainer", "zero-bubble"), "but --pp is 1"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(
    fit: Run, flags: tuple[str, ...], why: str
) -> None:
    work = ("--model", "llama3.1-8b", "--cluster", "8xH100", "--seq", "4096")
    ran = fit(*work, "--global-batch", "64", *flags)
    assert (ran.code, why in ran.err) == (2, True)


def test_chips_with_one_memory_have_no_other_to_offload_to(fit: Run) -> None:
    work = (
        "--model",
        "llama3-8b",
        "--seq",
        "2048",
        "--global-batch",
        "4",
        "--trainer",
        "megatron",
    )
    ran = fit(*work, "--cluster", "GB10", "--offload", "optimizer")
    assert (ran.code, "the host's own" in ran.err) == (1, True)
