from itertools import zip_longest
from pathlib import Path

import pytest

from autoconf_launch.core import (
    ConfigError,
    GradientSum,
    Loss,
    Offload,
    Precision,
    Recompute,
    States,
    WeightFormat,
    Workload,
)
from autoconf_launch.launcher.measurements import MeasurementFile
from autoconf_launch.launcher.measurements.measured_runs import (
    nearest_architecture,
    network_bytes_per_s,
    row_layout,
    runs_of,
    trainer_of,
    with_recompute,
    workload_of,
)
from autoconf_launch.launcher.measurements.row import read_measurements
from autoconf_launch.tuning_spaces import TRAINERS, trainer

TABLES = Path(__file__).parents[3] / "benchmarks" / "ground_truth"

NAMES = (
    "source,model,params_b,layers,hidden,heads,kv_heads,ffn_hidden,seq,vocab,gpu,n_gpus,"
    "gpus_per_node,interconnect,tp,pp,vpp,dp,cp,ep,mbs,gbs,recompute,sequence_parallel,"
    "zero_dist_opt,precision,step_time_s,mem_gb,note,trainer,arch,experts,experts_per_token,"
    "expert_ffn,shared_experts"
)
VALUES = (
    "a lab,gpt,1.3,24,2048,16,16,8192,2048,51200,A100-SXM-80GB,8,"
    "8,NVLink,2,2,1,2,1,1,1,16,full,0,1,bf16,1.5"
)
ROW = dict(zip_longest(NAMES.split(","), VALUES.split(","), fillvalue=""))


def read(folder: Path, *changes: dict[str, str]) -> MeasurementFile:
    """A table of the row above, each time with some cells changed."""
    rows = [{**ROW, **change} for change in changes]
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    path = folder / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return read_measurements(path)


def test_a_row_says_its_layout(tmp_path: Path) -> None:
    (one,) = read(tmp_path, {}).measurements
    assert (one.layout.tensor_parallel, one.layout.data_parallel, one.accumulation) == (2, 2, 8.0)
    assert one.layout.recompute is Recompute.FULL
    assert one.assumed == ()


def test_an_empty_optional_setting_is_assumed(tmp_path: Path) -> None:
    (one,) = read(tmp_path, {"recompute": "", "vpp": ""}).measurements
    assert one.assumed == ("recompute", "vpp")
    assert one.layout.recompute is Recompute.NONE


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        ({"n_gpus": "16"}, "tp x pp x dp x cp is 8, but n_gpus is 16"),
        ({"n_gpus": "16", "heads": "", "kv_heads": ""}, "tp x pp x dp x cp is 8"),
        ({"hidden": "-1"}, "hidden is '-1'"),
        ({"precision": "fp88"}, "precision is 'fp88'; did you mean 'fp8'?"),
        ({"precision": "mxfp7"}, "precision is 'mxfp7'; did you mean 'mxfp8'?"),
        ({"arch": "lama3-8b"}, "did you mean 'llama3-8b'?"),
        ({"arch": "deepseek-v9"}, "arch is 'deepseek-v9'"),
        ({"arch": "llama3-70b"}, "hidden is 2048, but llama3-70b has 8192; correct one of them"),
        ({"experts": "8"}, "experts_per_token is empty, but is required with experts"),
        ({"experts": "8", "experts_per_token": "9", "expert_ffn": "4"}, "is more than experts=8"),
        ({"hidden": "nan"}, "hidden is 'nan'"),
        ({"hidden": "1e99"}, "hidden is '1e99'"),
        ({"layers": "2.5"}, "must be a whole number"),
        ({"heads": "15"}, "kv_heads=16 does not divide heads=15"),
        ({"recompute": "some"}, "none, selective or full"),
        ({"zero_dist_opt": "7"}, "zero_dist_opt is '7'"),
        ({"gbs": "1"}, "dp=2 is more than gbs=1"),
        ({"mem_gb": "OOM"}, "it ran out of memory, but has a step time"),
        ({"step_time_s": "0"}, "step_time_s is '0'"),
    ],
)
def test_a_bad_row_is_named_with_its_line_and_the_others_count(
    tmp_path: Path, cells: dict[str, str], text: str
) -> None:
    file = read(tmp_path, {}, cells)
    (problem,) = file.bad
    assert (problem.line, len(file.measurements), file.skipped) == (3, 1, ())
    assert text in problem.text


@pytest.mark.parametrize(
    "cell", ["layers", "hidden", "heads", "ffn_hidden", "seq", "vocab", "mbs"]
)
def test_a_row_that_does_not_say_what_ran_is_skipped_and_not_guessed(
    tmp_path: Path, cell: str
) -> None:
    file = read(tmp_path, {cell: ""}, {})
    assert (file.rows, len(file.measurements)) == (2, 1)
    (problem,) = file.skipped
    assert problem.text.startswith(f"no {cell}")
    if cell == "layers":
        assert problem.text.endswith("model 'gpt' is unknown; did you mean 'gpt2'?")


def test_columns_of_a_model_that_is_named_need_not_be_there(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(
        "model,seq,gpu,n_gpus,tp,pp,dp,mbs,gbs,step_time_s\n"
        "llama3-8b,4096,H100-SXM-80GB,8,2,1,4,1,64,3\n"
        "lama3-8b,4096,H100-SXM-80GB,8,2,1,4,1,64,3\n"
    )
    file = read_measurements(path)
    assert [one.shape.hidden for one in file.measurements] == [4096]
    assert [(problem.line, problem.text) for problem in file.skipped] == [
        (3, "no layers, and model 'lama3-8b' is unknown; did you mean 'llama3-8b'?")
    ]


def test_identical_lines_are_warned_of_and_count(tmp_path: Path) -> None:
    file = read(tmp_path, {}, {})
    assert [(warning.line, warning.text) for warning in file.warnings] == [
        (3, "it is the same as line 2")
    ]
    assert len(file.measurements) == 2


def test_settings_that_ran_and_did_not_contradict_each_other(tmp_path: Path) -> None:
    file = read(tmp_path, {}, {"step_time_s": "", "mem_gb": "OOM"}, {"mbs": "2"})
    assert [problem.line for problem in file.bad] == [2, 3]
    assert len(file.measurements) == 1


UNIT = NAMES.replace("step_time_s", "step_time_ms")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "none.csv cannot .*: No such file or directory.$"),
        (
            f"{UNIT}\n",
            r"lacks the columns step_time_s \(column 'step_time_ms' is not read; did you mean "
            "'step_time_s'",
        ),
        ("a,b\n1,2\n", "lacks the columns"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / "none.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        read_measurements(path)


def test_a_row_with_too_few_cells_is_bad(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(f"{NAMES}\na,b\n")
    assert [problem.line for problem in read_measurements(path).bad] == [2]


@pytest.mark.parametrize(
    ("text", "gbit_per_s"),
    [
        ("8x200Gb/s HDR IB (Selene)", 1600),
        ("NVLink3 intra; 4x Omni-Path 100Gb/s per node", 400),
        ("NVLink2; Omni-Path 100Gb/s x4 per node (Jean Zay)", 400),
        ("NVLink4; 400 Gb/s RDMA per GPU", 3200),
        ("1600 Gb/s per node RoCE", 1600),
        ("NVSwitch; 800 Gb/s per node", 800),
        ("4x g4dn.12xlarge (16x T4, 50 Gb/s)", 50),
        ("NVLink", None),
        ("", None),
    ],
)
def test_the_words_of_an_interconnect_give_the_cards_of_a_node(
    text: str, gbit_per_s: float | None
) -> None:
    found = network_bytes_per_s(text, 8)
    assert found == (None if gbit_per_s is None else gbit_per_s * 1e9 / 8)


def test_the_number_of_parameters_tells_a_gated_perceptron(tmp_path: Path) -> None:
    llama = {"params_b": "8.03", "layers": "32", "hidden": "4096", "heads": "32"}
    llama |= {"kv_heads": "8", "ffn_hidden": "14336", "vocab": "128256"}
    plain, gated = read(tmp_path, {}, llama).measurements
    assert not nearest_architecture(plain.shape).gated
    assert nearest_architecture(gated.shape).gated
    assert not nearest_architecture(gated.shape).tied_embeddings


BRIDGE = "github:NVIDIA-NeMo/Megatron-Bridge release {} NeMo Container"


@pytest.mark.parametrize(
    ("cells", "trainer"),
    [
        ({"source": "github:mosaicml/llm-foundry scripts/train"}, "llm-foundry"),
        ({"source": "github:bigscience-workshop/bigscience tr11"}, "megatron-deepspeed"),
        (
            {"source": "github:DachengLi1/AMP src/results", "precision": "fp16"},
            "megatron-deepspeed",
        ),
        ({"source": "arXiv:2104.04473 Table 1", "precision": "fp16"}, "megatron-2021"),
        ({"precision": "fp16"}, "megatron"),
        ({"precision": "fp8"}, "nemo"),
        ({}, "megatron"),
        *(
            ({"note": note}, "megatron")
            for note in ("as DeepSpeed", "NeMo was slower", "torchtitan", "Megatron")
        ),
        ({"source": "github:mosaicml/llm-foundry", "trainer": "DeepSpeed"}, "deepspeed"),
        ({"source": BRIDGE.format("25.11")}, "nemo-2025"),
        ({"source": BRIDGE.format("26.04.01")}, "nemo-2025"),
        ({"source": BRIDGE.format("26.06")}, "nemo"),
    ],
)
def test_its_column_a_known_source_or_the_gpu_names_the_training_code(
    tmp_path: Path, cells: dict[str, str], trainer: str
) -> None:
    (one,) = read(tmp_path, cells).measurements
    assert trainer_of(one) == trainer
    old = trainer in ("megatron-deepspeed", "megatron-2021")
    assert workload_of(one).software.flash_attention != old


def test_recomputation_that_is_not_stated_is_selective_where_that_makes_room() -> None:
    table = read_measurements(TABLES / "megatron_bridge.csv").measurements
    kinds = {
        (one.shape.name, one.gpu, one.layout.micro_batch): one.layout.recompute
        for one in with_recompute(table)
    }
    assert kinds["GPT OSS 120B", "B200", 4] is Recompute.SELECTIVE
    assert kinds["GPT OSS 120B", "H100-SXM-80GB", 1] is Recompute.NONE
    assert kinds["LLAMA3_70B", "GB200", 2] is Recompute.NONE
    stated = read_measurements(TABLES / "simumax_b200.csv").measurements
    assert with_recompute(stated) == stated


@pytest.mark.parametrize("code", TRAINERS)
def test_a_row_has_the_kernels_that_a_plan_of_it_has(tmp_path: Path, code: str) -> None:
    (one,) = read(tmp_path, {"trainer": code}).measurements
    plain = Workload(model=nearest_architecture(one.shape), sequence_length=one.shape.seq)
    assert workload_of(one) == trainer(trainer_of(one)).apply_to(plain)


def test_a_row_without_sequence_parallelism_has_its_code_s_habit(tmp_path: Path) -> None:
    codes = ({"sequence_parallel": "", "trainer": code} for code in ("nemo", "llm-foundry"))
    nemo, foundry = read(tmp_path, *codes).measurements
    assert row_layout(nemo).sequence_parallel
    assert not row_layout(foundry).sequence_parallel


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("bf16", Precision.BF16),
        ("amp_fp16", Precision.FP16),
        ("tf32", Precision.TF32),
        ("fp8", Precision.FP8),
        ("fp8-rowwise", Precision.FP8_ROWWISE),
        ("FP8_MX", Precision.MXFP8),
        ("fp8-cs", Precision.FP8_CURRENT),
        ("NVFP4", Precision.NVFP4),
        ("", Precision.BF16),
    ],
)
def test_tables_names_of_precisions_are_known(
    tmp_path: Path, name: str, precision: Precision
) -> None:
    (one,) = read(tmp_path, {"precision": name}).measurements
    assert one.precision is precision


EMPTY = dict.fromkeys(("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab"), "")


def test_a_model_s_name_fills_the_columns_that_are_empty_and_says_so(tmp_path: Path) -> None:
    (one,) = read(tmp_path, {**EMPTY, "model": "Qwen3_30B_a3B (tokendrop)"}).measurements
    model = nearest_architecture(one.shape)
    assert (model.layers, model.hidden, model.kv_heads) == (48, 2048, 4)
    assert model.experts
    assert one.assumed == ("layers", "hidden", "heads", "ffn_hidden", "vocab")


def test_stated_layers_cut_a_named_model(tmp_path: Path) -> None:
    cut = {**EMPTY, "model": "cut to 4", "arch": "deepseek-v2", "layers": "4"}
    (one,) = read(tmp_path, cut).measurements
    model = nearest_architecture(one.shape)
    assert (model.layers, model.hidden, one.assumed[0]) == (4, 5120, "hidden")
    assert model.latent


MIXTRAL = {"model": "Mixtral-8x7B", "params_b": "46.7", "layers": "32", "hidden": "4096"}
MIXTRAL |= {"heads": "32", "kv_heads": "8", "ffn_hidden": "14336", "vocab": "32000"}
COUNTED = {"experts": "8", "experts_per_token": "2", "expert_ffn": "4096", "shared_experts": "1"}


@pytest.mark.parametrize(
    ("cells", "mixture"), [(COUNTED, (8, 2, 4096, 1)), (MIXTRAL, (8, 2, 14336, 0))]
)
def test_columns_of_experts_or_the_named_model_make_a_mixture(
    tmp_path: Path, cells: dict[str, str], mixture: tuple[int, ...]
) -> None:
    (one,) = read(tmp_path, cells).measurements
    experts = nearest_architecture(one.shape).experts
    assert experts
    assert (experts.count, experts.per_token, experts.ffn, experts.shared) == mixture


def test_one_sample_for_each_rank_leaves_one_micro_batch(tmp_path: Path) -> None:
    (one,) = read(tmp_path, {"mbs": "", "gbs": "2"}).measurements
    assert (one.layout.micro_batch, one.assumed) == (1, ("mbs",))


def test_rows_that_differ_in_memory_alone_or_in_a_16_bit_format_are_one_run(
    tmp_path: Path,
) -> None:
    codes = ({"trainer": code} for code in ("torchtitan-2025", "torchtitan", "deepspeed"))
    file = read(tmp_path, *codes)
    fused, plain, _ = (workload_of(one).software.logit_bytes for one in file.measurements)
    assert (fused, plain) == (6.0, None)
    names = ({"precision": name, "trainer": "nemo"} for name in ("bf16", "fp16", "tf32"))
    for table in (file, read(tmp_path, *names)):
        runs, _ = runs_of(table.measurements)
        assert [run.rows for run in runs] == [(0, 1), (2,)]


def test_columns_say_how_a_row_trains_and_its_name_and_note_never_do(tmp_path: Path) -> None:
    names = "optimizer,states,gradients,loss,lora_rank,weights,update_in_backward,offload,gated"
    values = "paged_adamw8bit,bf16,fp32,fused,8,nf4,1,activations,1"
    path = tmp_path / "table.csv"
    empty = "," * names.count(",")
    named = {**ROW, "model": "Llama LoRA", "note": "QLoRA with adamw8bit in bf16"}
    rows = (f"{','.join(named.values())},{more}" for more in (values, empty))
    lines = [f"{','.join(ROW)},{names}", *rows]
    path.write_text("\n".join(lines) + "\n")
    said, silent = read_measurements(path).measurements
    training = workload_of(said)
    assert (training.optimizer.name, training.optimizer.is_paged) == ("paged_adamw8bit", True)
    assert (training.states, training.gradients) == (States.BF16, GradientSum.FP32)
    assert (training.loss, training.lora_rank) == (Loss.FUSED, 8)
    assert (training.weight_format, training.updates_in_backward) == (WeightFormat.NF4, True)
    assert said.layout.offload is Offload.ACTIVATIONS
    assert training.architecture.gated
    plain = workload_of(silent)
    assert (plain.lora_rank, plain.states, plain.loss, plain.optimizer.name) == (
        *(None, None, None),
        "adamw",
    )


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        ("states\nbf17", "states is 'bf17'; did you mean 'bf16'"),
        ("weights\nnf4", "weights is 'nf4', but all are trained; give lora_rank"),
    ],
)
def test_a_wrong_word_on_states_is_a_bad_row(tmp_path: Path, cells: str, text: str) -> None:
    name, value = cells.split("\n")
    path = tmp_path / "table.csv"
    path.write_text(f"{','.join(ROW)},{name}\n{','.join(ROW.values())},{value}\n")
    (problem,) = read_measurements(path).bad
    assert text in problem.text


def test_a_table_of_memory_only_is_scored(tmp_path: Path) -> None:
    names = [name for name in ROW if name != "step_time_s"]
    cells = [
        {**ROW, "mem_gb": memory, "mbs": size} for memory, size in (("30.5", "1"), ("OOM", "2"))
    ]
    path = tmp_path / "table.csv"
    lines = [",".join(names), *(",".join(row[name] for name in names) for row in cells)]
    path.write_text("\n".join(lines) + "\n")
    ran, failed = read_measurements(path).measurements
    assert (ran.out_of_memory, failed.out_of_memory) == (False, True)
    assert (ran.step_time_s, ran.memory_gb) == (None, 30.5)


def test_a_row_that_cannot_be_predicted_is_skipped_with_the_reason(tmp_path: Path) -> None:
    table = read(
        tmp_path,
        {},
        {"step_time_s": "0.05"},
        {"model": "gpt-lora", "step_time_s": "0.1"},
        {"precision": "nvfp4"},
        {"model": "some-moe", "params_b": "30"},
    )
    runs, reasons = runs_of(table.measurements)
    assert reasons == {
        1: "faster than the peak of its GPUs",
        3: "A100-SXM-80GB does not compute in nvfp4",
        4: "no experts",
    }
    assert sorted(row for run in runs for row in run.rows) == [0, 2]


def test_a_column_names_the_dispatcher_and_other_tables_have_the_trainer_s(tmp_path: Path) -> None:
    mixture = {**MIXTRAL, "ep": "2", "trainer": "automodel", "step_time_s": "1000"}
    file = read(tmp_path, *({**mixture, "dispatcher": name} for name in ("torch", "deepep", "")))
    runs, _ = runs_of(file.measurements)
    assert [run.rows for run in runs] == [(0,), (1, 2)]
    assert not read(tmp_path, {**mixture, "dispatcher": "mpi"}).measurements
