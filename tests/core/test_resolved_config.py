from typing import Any

import pytest

from autoconf_launch.core import ConfigError, Precision, RawConfig, Recompute, resolve


def test_a_contradicting_batch_prints_the_equation_with_its_operands() -> None:
    raw = RawConfig(
        {
            "train_batch_size": 32,
            "train_micro_batch_size_per_gpu": 4,
            "gradient_accumulation_steps": 3,
        }
    )
    with pytest.raises(ConfigError) as caught:
        resolve(raw, world_size=2)
    assert "train_batch_size is 32" in str(caught.value)
    assert "4 x gradient_accumulation_steps 3 x data-parallel ranks 2 = 24" in str(caught.value)


def test_sections_become_typed_values_with_their_degrees() -> None:
    raw = RawConfig(
        {
            "bf16": {"enabled": True},
            "zero_optimization": {"stage": 3},
            "activation_checkpointing": {"mode": "selective"},
            "optimizer": {"type": "adamw", "params": {"lr": 1e-3, "betas": [0.9, 0.95]}},
        }
    )
    config = resolve(raw, world_size=2)
    assert config.precision is Precision.BF16
    assert config.layout.zero_stage == 3
    assert config.layout.recompute is Recompute.SELECTIVE
    assert config.optimizer is not None
    assert config.optimizer.kind == "AdamW"
    raw = RawConfig({"parallelism": {"tensor": 2, "sequence_parallel": True}})
    layout = resolve(raw, world_size=8).layout
    assert (layout.data_parallel, layout.tensor_parallel, layout.world_size) == (4, 2, 8)
    assert layout.sequence_parallel
    raw = RawConfig({"activation_checkpointing": {"mode": "full", "layers": 2}})
    assert resolve(raw, world_size=1).extras == (("recompute_layers", 2),)
    raw = RawConfig({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4})
    assert resolve(raw, world_size=2).layout.accumulation == 4
    raw = RawConfig({"train_batch_size": 16, "parallelism": {"micro_batch_split": [5, 3]}})
    layout = resolve(raw, world_size=2).layout
    assert (layout.micro_batch, layout.accumulation, layout.global_batch) == (4, 2, 16)
    assert [layout.share(rank) for rank in (0, 1)] == [slice(0, 10), slice(10, 16)]
    assert [layout.loss_weight(rank) for rank in (0, 1)] == [1.25, 0.75]


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"train_micro_batch_size_per_gpu": [1, 2]}, "resolved by autoconf-launch"),
        ({"gradient_accumulation_steps": "auto"}, "resolved by autoconf-launch"),
        ({"train_micro_batch_size_per_gpu": 0}, "at least 1"),
        ({"train_micro_batch_size_per_gpu": True}, "at least 1"),
        ({"zero_optimization": {"stage": 4}}, "stages 0 to 3"),
        ({"bf16": {"enabled": True}, "fp16": {"enabled": True}}, "enable one of them"),
        ({"bf16": {"enabled": "yes"}}, "true or false"),
        ({"gradient_clipping": -1}, "at least 0"),
        ({"optimizer": {"type": "AdmW"}}, "did you mean 'AdamW'"),
        ({"scheduler": {"type": "Cosine"}}, "known: |did you mean"),
        ({"activation_checkpointing": {"mode": "some"}}, "activation_checkpointing.mode"),
        ({"activation_checkpointing": {"partition_activations": True}}, "cannot apply"),
        ({"parallelism": {"tensor": 4}}, "product is one of 1, 2"),
        ({"parallelism": {"tensor": [1, 2]}}, "resolved by autoconf-launch"),
        ({"parallelism": "all"}, "parallelism is 'all', but a launch needs one value"),
        ({"parallelism": {"tensor": 2, "data": 2}}, "leave 1 for data parallelism"),
        ({"parallelism": {"sequence_parallel": True}}, "parallelism.tensor to at least 2"),
        ({"parallelism": {"micro_batch_split": [5, 2, 1]}}, "one for each of the 2 data-parallel"),
        (
            {"train_micro_batch_size_per_gpu": 4, "parallelism": {"micro_batch_split": [5, 1]}},
            "adds up to 6, but must add up to train_micro_batch_size_per_gpu 4 x data-parallel",
        ),
        ({"parallelism": {"micro_batch_split": [5, 2]}}, "a multiple of the 2 data-parallel"),
        ({"parallelism": {"micro_batch_split": [[5, 3], [4, 4]]}}, "resolved by autoconf-launch"),
        (
            {"activation_checkpointing": {"layers": 2}},
            'layers is 2, but activation_checkpointing.mode is "none"; set that to "full"',
        ),
        (
            {"parallelism": {"tensor": 2}, "zero_optimization": {"bucket_cap_mb": 5}},
            "DDP, which has it, does not train a model that several ranks share",
        ),
        (
            {"parallelism": {"expert": 2}, "zero_optimization": {"bucket_cap_mb": 5}},
            "DDP, which has it, does not train a model that several ranks share",
        ),
        ({"parallelism": {"expert": 3}}, "must divide the 2 of them; use one of 1, 2"),
        ({"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}, "cannot offload"),
        ({"optimizer": {"type": "AdamW", "params": {"lr": [1e-3, 1e-4]}}}, "never searched"),
        (
            {"optimizer": {"type": "AdamW", "params": {"betas": [[0.9, 0.95], [0.9, 0.99]]}}},
            r"optimizer.params.betas is .* never searched",
        ),
        (
            {"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": [10, 20]}}},
            "scheduler.params.warmup_num_steps is",
        ),
    ],
)
def test_what_cannot_be_applied_is_refused_with_its_key(
    document: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        resolve(RawConfig(document), world_size=2)
