"""Every key of DeepSpeed's configuration is treated as documented."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.core import ConfigError, Precision, RawConfig
from autoconf_launch.launcher.dialects import DeepSpeedDialect
from autoconf_launch.launcher.dialects.deepspeed_keys import Treatment, treatments
from autoconf_launch.launcher.script import ScriptSource
from autoconf_launch.launcher.spelling import UserSettings

from .sources import require_facts, script

DIALECT = DeepSpeedDialect()
FILE = Path(__file__).parents[2] / "data" / "dialects" / "deepspeed_0.19.8.json"
PUBLISHED: dict[str, Any] = json.loads(FILE.read_text())
BATCH = {"train_micro_batch_size_per_gpu": 2}


def keys_of(kind: str) -> set[tuple[str, ...]]:
    sections: dict[str, list[str]] = PUBLISHED[kind]
    return {
        (*filter(None, section.split(".")), name)
        for section, names in sections.items()
        for name in names
    }


def source(document: dict[str, Any], *, version: str | None = None) -> ScriptSource:
    made = script("--deepspeed", "--deepspeed_config", "ds.json")
    versions = (("deepspeed", version),) if version else ()
    return dataclasses.replace(
        made, config=RawConfig(document), config_argument=2, versions=versions
    )


def read(document: dict[str, Any], *, version: str | None = None, ranks: int = 8) -> UserSettings:
    return DIALECT.read(source({**BATCH, **document}, version=version), world_size=ranks)


def document_with(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    return RawConfig({}).with_value(path, value).to_dict()


@pytest.mark.parametrize("path", sorted(keys_of("keys") | keys_of("removed")), ids=".".join)
def test_every_key_of_deepspeed_has_a_treatment(path: tuple[str, ...]) -> None:
    assert path in dict(treatments())


def test_only_keys_that_deepspeed_removed_are_treated_as_removed() -> None:
    removed = {path for path, treatment in treatments() if treatment is Treatment.REMOVED}
    assert removed == keys_of("removed")


@pytest.mark.parametrize("path", sorted(keys_of("removed")), ids=".".join)
def test_a_removed_key_is_refused_where_deepspeed_refuses_it(path: tuple[str, ...]) -> None:
    document, name = document_with(path, {}), ".".join(path)
    with pytest.raises(ConfigError, match=f"^DeepSpeed 0.19.8 refuses {name}; remove it.$"):
        read(document, version="0.19.8")
    older = read(document, version="0.18.3")
    assert f"DeepSpeed 0.19.8 and later refuse {name}; remove it before an update." in (
        older.warnings
    )


@pytest.mark.parametrize(
    ("path", "value", "default"),
    [
        *(
            (path, True, False)
            for path in (
                *("fp16.auto_cast", "fp16.fp16_master_weights_and_grads"),
                *("bf16.bf16_master_weights_and_grads", "bf16.bf16_optimizer_states"),
                *("torch_autocast.enabled", "compile.deepcompile", "expert_parallel.enabled"),
                *(
                    "hybrid_engine.enabled",
                    "zero_optimization.zero_quantized_nontrainable_weights",
                ),
            )
        ),
        ("data_types.grad_accum_dtype", "bf16", "auto"),
        ("zero_optimization.zero_hpz_partition_size", 8, 1),
        ("zero_optimization.offload_optimizer.device", "cpu", "none"),
        ("zero_optimization.offload_param.device", "nvme", "none"),
        ("zero_optimization.offload_optimizer.ratio", 0.3, 1.0),
    ],
)
def test_what_changes_memory_is_never_passed_on_silently(
    path: str, value: Any, default: Any
) -> None:
    for given, said in (
        (value, (f"{path} can change memory and speed in ways that predictions omit; the trials "
                 "measure them.",)),
        (default, ()),
    ):  # fmt: skip
        document = document_with(tuple(path.split(".")), given)
        assert read({**document, "train_batch_size": 16}).notes == said


def test_keys_without_an_effect_on_layout_batch_or_memory_are_passed_on() -> None:
    passed: dict[str, Any] = {
        path[0]: {} if path[0] in ("aio", "checkpoint", "comms_logger", "timers") else 1
        for path, treatment in treatments()
        if treatment is Treatment.PASSED and len(path) == 1 and path[0] != "flops_profiler"
    }
    user = read({**passed, "train_batch_size": 16})
    assert (user.notes, user.warnings) == ((), ())
    made = DIALECT.render(user.baseline, source({**BATCH, **passed}), "t.json").config.to_dict()
    assert {name: made[name] for name in passed} == passed


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (
            {"train_micro_batch_size": 4},
            "train_micro_batch_size is not a key of DeepSpeed 0.19.8; did you mean "
            "'train_micro_batch_size_per_gpu'?",
        ),
        (
            {"zero_optimisation": {"stage": 2}},
            "zero_optimisation is not a key of DeepSpeed 0.19.8; did you mean "
            "'zero_optimization'?",
        ),
        (
            {"zero_optimization": {"stag": 2}},
            "zero_optimization.stag is not a key of DeepSpeed 0.19.8; did you mean 'stage'?",
        ),
        (
            {"zero_optimization": {"colour": 2}},
            "zero_optimization.colour is not a key of DeepSpeed 0.19.8, which refuses it; remove "
            "it.",
        ),
        (
            {"reduce_bucket_size": 1000},
            "reduce_bucket_size belongs in zero_optimization; DeepSpeed ignores it where it is.",
        ),
        (
            {"data_parallel_size": 4},
            "DeepSpeed reads data_parallel_size only beside sequence_parallel_size.",
        ),
        (
            {"tensor_parallel": {"tp": {"tp_size": 2}}},
            "DeepSpeed trains without tensor parallelism, as tensor_parallel.tp.tp_size is 2 but "
            "tensor_parallel.autotp_size is not set; set it to split the model.",
        ),
        (
            {"managed_gradient_accumulation": False},
            "managed_gradient_accumulation is false, so the script itself decides after how many "
            "micro-batches the optimizer steps; let it read gradient_accumulation_steps.",
        ),
    ],
)
def test_a_key_that_is_not_what_it_seems_gets_a_sentence(
    document: dict[str, Any], says: str
) -> None:
    kept = {} if "train_micro_batch_size" in document else BATCH
    user = DIALECT.read(source({**kept, **document}), world_size=8)
    assert user.warnings == (says,)


def test_keys_of_the_script_itself_pass() -> None:
    assert read({"seed": 1, "my_model": {"layers": [1, 2]}, "lr": 3}).warnings == ()


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"fp16": True}, r'^fp16 is True, but must be a section .*such as {"enabled": true}\.$'),
        ({"bf16": "auto"}, r"^bf16 is 'auto', but must be a section"),
        ({"optimizer": "Adam"}, r"^optimizer is 'Adam', but must be a section"),
        (
            {"zero_optimization": {"offload_optimizer": True}},
            r"^zero_optimization\.offload_optimizer is True, but must be a section",
        ),
        (
            {"tensor_parallel": {"autotp_size": "auto"}},
            r"^tensor_parallel\.autotp_size is 'auto', but is never searched",
        ),
        ({"sequence_parallel_size": [1, 2]}, r"is \[1, 2\], but is never searched"),
        ({"zero_optimization": 2}, r"^zero_optimization is 2, but must be a section"),
        (
            {"fp16": {"enabled": True}, "bfloat16": {"enabled": True}},
            "both true, but DeepSpeed takes only one of them",
        ),
        (
            {"zero_optimization": {"cpu_offload": True, "offload_optimizer": {"device": "cpu"}}},
            "cpu_offload is the old name of zero_optimization.offload_optimizer",
        ),
        ({"elasticity": {"enabled": True}}, r"elasticity\.enabled is true, so DeepSpeed chooses"),
        (
            {"data_efficiency": {"data_sampling": {"dynamic_batching": {"enabled": True}}}},
            "dynamic_batching.enabled is true, so DeepSpeed chooses the batch by itself",
        ),
        (
            {"sequence_parallel_size": 4, "data_parallel_size": 4},
            "data_parallel_size 4 x sequence_parallel_size 4 is 16, but there are 8 ranks",
        ),
        (
            {"tensor_parallel": {"autotp_size": 3}},
            r"^tensor_parallel\.autotp_size 3 does not divide the 8 ranks",
        ),
        (
            {"tensor_parallel": {"autotp_size": 2, "tp": {"tp_size": 4}}},
            r"autotp_size is 2, but tensor_parallel\.tp\.tp_size is 4; remove tp_size",
        ),
    ],
)
def test_what_deepspeed_refuses_is_refused_first(document: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read(document)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"cpu_offload": True}, {"offload_optimizer": {"device": "cpu"}}),
        ({"cpu_offload_param": True}, {"offload_param": {"device": "cpu"}}),
        ({"cpu_offload": False}, {}),
    ],
)
def test_old_names_of_offload_are_read_and_written_as_the_new_ones(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    def document(keys: dict[str, Any]) -> dict[str, Any]:
        return {**BATCH, "zero_optimization": {"stage": 3, **keys}}

    read_old, read_new = (DIALECT.read(source(document(k)), world_size=2) for k in (old, new))
    assert read_old.baseline == read_new.baseline
    made = DIALECT.render(read_old.baseline, source(document(old)), "t.json").config
    assert made.get(("zero_optimization",)) == {"stage": 3, **new}


@pytest.mark.parametrize(
    ("document", "facts"),
    [
        ({"bfloat16": {"enabled": True}}, {"precision": Precision.BF16}),
        (
            {"bfloat16": {"enabled": True}, "bf16": {"enabled": False}},
            {"precision": Precision.FP32},
        ),
        ({"bf16": {"enabled": "true"}}, {"precision": Precision.BF16}),
        ({"fp16": {"enabled": True}}, {"precision": Precision.FP16}),
        (
            {"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}},
            {"precision": Precision.FP32},
        ),
        ({"zero_optimization": {"stage": "2"}}, {"zero_stage": 2}),
    ],
)
def test_the_precision_is_read_under_either_name_and_a_stage_in_quotes(
    document: dict[str, Any], facts: dict[str, Any]
) -> None:
    require_facts(read(document), **facts)


@pytest.mark.parametrize("stated", [64, 128])
def test_a_batch_is_understood_with_or_without_its_tensor_ranks(stated: int) -> None:
    document = {
        "train_batch_size": stated,
        "train_micro_batch_size_per_gpu": 16,
        "tensor_parallel": {"autotp_size": 2},
    }
    user = read(document)
    assert (user.baseline.layout.global_batch, user.batch_rule.pinned) == (64, 64)
    made = DIALECT.render(user.baseline, source(document), "t.json").config.to_dict()
    assert "train_batch_size" not in made
    assert (made["train_micro_batch_size_per_gpu"], made["gradient_accumulation_steps"]) == (16, 1)


@pytest.mark.parametrize(
    ("document", "split"),
    [
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4}, (4, 2)),
        ({"train_batch_size": 64, "gradient_accumulation_steps": 2}, (4, 2)),
        ({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}, (4, 2)),
        ({"train_batch_size": 64, "sequence_parallel_size": 2}, (16, 1)),
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": "auto"}, (8, 1)),
        ({"tensor_parallel": {"autotp_size": 0}, "train_batch_size": 64}, (8, 1)),
    ],
)
def test_two_of_three_batch_keys_are_enough(
    document: dict[str, Any], split: tuple[int, int]
) -> None:
    found = DIALECT.read(source(document), world_size=8).baseline.layout
    assert (found.micro_batch, found.accumulation) == split


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({}, "60, but must be a multiple of 8 (8 data-parallel ranks), such as 56 or 64."),
        (
            {"gradient_accumulation_steps": 3},
            "60, but must be a multiple of 24 (gradient_accumulation_steps 3 x 8 data-parallel "
            "ranks), such as 48 or 72.",
        ),
        (
            {"train_micro_batch_size_per_gpu": 16},
            "60, but must be a multiple of 128 (train_micro_batch_size_per_gpu 16 x 8 "
            "data-parallel ranks), such as 128.",
        ),
    ],
)
def test_a_batch_that_cannot_be_shared_names_only_given_numbers(
    document: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        DIALECT.read(source({"train_batch_size": 60, **document}), world_size=8)
    assert str(caught.value) == f"train_batch_size is {says}"


def test_a_list_that_is_a_value_itself_is_not_searched() -> None:
    document = {"zero_optimization": {"stage": 3, "leaf_module": {"classes": ["A", "B"]}}}
    user = read(document)
    assert not [choice for choice in user.choices if choice.knob.startswith("leaf_module")]
    made = DIALECT.render(user.baseline, source({**BATCH, **document}), "t.json").config
    assert made.get(("zero_optimization", "leaf_module", "classes")) == ["A", "B"]
