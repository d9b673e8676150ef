"""A base configuration as torchtitan's TOML (0.2). Not: its model, which is Python there.

Keys checked against ``torchtitan/config/job_config.py`` and ``models/llama3/model/args.py`` of
torchtitan 0.2.2 (PyPI).
"""

from __future__ import annotations

from typing import Any

from autoconf_launch.autotuner.recommend.pretraining import Pretraining
from autoconf_launch.core import ConfigError, RawConfig

from ...spellings import torchtitan as names
from ...toml_text import toml_of
from ..page import Exported, comments

_MODEL = "llama3"


def torchtitan(base: Pretraining, document: RawConfig) -> Exported:
    """Its tables, after the flavor that a model of these shapes needs.

    Raises:
        ConfigError: the family is no decoder; torchtitan trains nothing else.
    """
    if base.family.name in ("bert", "t5", "mt5"):
        raise ConfigError(
            f"torchtitan trains decoders, but {base.name} is of family {base.family.name}; export "
            "to nemo1, nemo2 or megatron."
        )
    made = RawConfig({})
    for path, value in _values(base).items():
        made = made.with_value(tuple(path.split(".")), value)
    left_out = tuple(_left_out(base))
    text = f"{comments(left_out)}{_flavor(base)}{toml_of(made)}"
    return Exported(text=text, left_out=left_out)


def _values(base: Pretraining) -> dict[str, Any]:
    schedule, split = base.schedule, base.split
    pipelined = split.pipeline > 1
    local = split.global_batch // split.data if pipelined else split.micro_batch
    values: dict[str, Any] = {
        "model.name": _MODEL,
        "model.flavor": base.name,
        "optimizer.name": "AdamW",
        "optimizer.lr": schedule.learning_rate,
        "optimizer.beta1": schedule.betas[0],
        "optimizer.beta2": schedule.betas[1],
        "optimizer.eps": schedule.epsilon,
        "optimizer.weight_decay": schedule.weight_decay,
        "lr_scheduler.warmup_steps": schedule.warmup_steps,
        "lr_scheduler.decay_type": "cosine" if schedule.is_cosine else "linear",
        "lr_scheduler.min_lr_factor": round(schedule.least_rate / schedule.learning_rate, 6),
        names.STEPS: schedule.steps,
        "training.seq_len": base.model.sequence,
        "training.max_norm": schedule.clip,
        names.MICRO_BATCH: local,
        names.GLOBAL_BATCH: split.global_batch,
        names.REPLICATE: 1,
        names.SHARD: split.data,
        names.DEGREES["tensor_parallel"]: split.tensor,
        names.DEGREES["pipeline_parallel"]: split.pipeline,
        names.DEGREES["context_parallel"]: split.context,
        names.DEGREES["expert_parallel"]: split.expert,
    }
    if pipelined:
        values[names.PIPELINE_MICRO_BATCH] = split.micro_batch
    return values


def _flavor(base: Pretraining) -> str:
    """What to add to ``llama3_args``.

    Its perceptron is as wide as ``int(ffn_dim_multiplier * int(8 * dim / 3))``, rounded up to
    ``multiple_of``.
    """
    model = base.model
    plain = int(8 * model.hidden / 3)
    words = {
        "dim": model.hidden,
        "n_layers": model.layers,
        "n_heads": model.heads,
        "n_kv_heads": model.groups,
        "vocab_size": model.vocabulary,
        "ffn_dim_multiplier": round((model.ffn + 0.5) / plain, 8),
        "multiple_of": 1,
        "max_seq_len": model.sequence,
    }
    given = ", ".join(f"{name}={value}" for name, value in words.items() if value is not None)
    return (
        "# Shapes are Python there: add this flavor to torchtitan/models/llama3/__init__.py.\n"
        f'# "{base.name}": TransformerModelArgs({given})\n\n'
    )


def _left_out(base: Pretraining) -> list[str]:
    model, schedule, found = base.model, base.schedule, []
    if not model.gated or model.biases or model.learned_positions:
        found.append(
            f"{base.family.name}'s perceptron, biases or positions: Llama 3's stand for them"
        )
    if model.experts:
        found.append(f"{model.experts} experts: Llama 3 has none; a flavor of llama4 has")
    if schedule.constant_steps:
        found.append(
            f"constant_steps = {schedule.constant_steps}: the rate falls until the last step"
        )
    return found
