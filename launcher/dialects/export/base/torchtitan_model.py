"""Which of torchtitan's models stands for a base configuration's, and how wide. Not: its file.

torchtitan 0.2 and 0.3 (PyPI) have gated decoders with rotary positions and no biases; ``qwen3``
takes any width of a head, tied embeddings and experts, but has no pipeline in 0.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd

from autoconf_launch.autotuner.recommend.pretraining import Pretraining
from autoconf_launch.core import ConfigError

from .split_rules import with_whole_steps

_PLAIN, _ANY = "llama3", "qwen3"
_MULTIPLE = 64


def require_decoder(base: Pretraining) -> None:
    """Raises ConfigError for another model: torchtitan trains nothing else."""
    if base.family.name in ("bert", "t5", "mt5"):
        raise ConfigError(
            f"torchtitan trains decoders, but {base.name} is of family {base.family.name}; export "
            "to nemo1, nemo2 or megatron."
        )


def host_of(base: Pretraining) -> str:
    """Its model of torchtitan 0.2."""
    model = base.model
    is_plain = not model.experts and not model.tied and model.head * model.heads == model.hidden
    return _PLAIN if is_plain else _ANY


def as_it_splits(
    base: Pretraining, model: str, *, pipelines: bool
) -> tuple[Pretraining, tuple[str, ...]]:
    """The training on the same GPUs in degrees that torchtitan takes, and what they replace.

    Args:
        base: the training as it is asked for.
        model: what has no pipeline, in words.
        pipelines: whether it can be split by layers.
    """
    split, groups, notes = base.split, base.model.groups, []
    stages, tensor = split.pipeline, split.tensor
    if stages > 1 and not pipelines:
        notes.append(
            f"{stages} pipeline stages: torchtitan has none for {model}, so that these ranks "
            "shard weights and data, too"
        )
        stages = 1
    if groups % tensor:
        tensor = gcd(groups, tensor)
        notes.append(
            f"tensor_parallel = {split.tensor}: it must divide {groups} groups of keys and "
            f"values, so {tensor} stands for it"
        )
    if not notes:
        return base, ()
    changed = replace(split, pipeline=stages, tensor=tensor)
    fitting, more = with_whole_steps(replace(base, split=changed))
    return fitting, (*notes, *more)


def samples_at_once(base: Pretraining) -> int:
    """``local_batch_size``: of a pipeline all that a replica sees of a step."""
    split = base.split
    return split.global_batch // split.data if split.pipeline > 1 else split.micro_batch


def gated_width(base: Pretraining) -> int:
    """Width of a gated MLP with as many weights: an ungated one has two matrices, not three."""
    model = base.model
    if model.gated:
        return model.ffn
    return max(1, round(2 * model.ffn / 3 / _MULTIPLE)) * _MULTIPLE


def stand_ins(base: Pretraining) -> Iterator[str]:
    """What no model of torchtitan has."""
    model = base.model
    if not model.gated:
        yield (
            f"a perceptron of two matrices, {model.ffn} wide: a gated one with as many weights, "
            f"{gated_width(base)} wide, stands for it"
        )
    if model.biases or model.learned_positions:
        yield "biases, LayerNorm or learned positions: RMSNorm and rotary ones stand for them"
    if model.hidden_dropout or model.attention_dropout:
        yield f"dropout of {max(model.hidden_dropout, model.attention_dropout):g}: there is none"
    if base.schedule.constant_steps:
        yield (
            f"constant_steps = {base.schedule.constant_steps}: the rate falls until the last step"
        )
