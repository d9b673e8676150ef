"""A base configuration as arguments of Megatron-LM's pretraining scripts.

Parsed and validated by ``megatron/training/arguments.py`` of Megatron-LM 0.6.0 (hetu-galvatron
2.4.0 has it, PyPI), built by megatron-core 0.16.1 (PyPI); names are those of NVIDIA/Megatron-LM at
000c4ac24f61.
"""

from __future__ import annotations

from collections.abc import Iterator

from autoconf_launch.autotuner.sizing import Pretraining, RateSchedule, TrainedModel
from autoconf_launch.core import RawConfig

from ..dialects import megatron as names
from .page import (
    NEMO_DEGREES,
    Exported,
    comments,
    groups_told,
    layers_per_stage,
    splits_sequence,
)

SCRIPTS = {"t5": "pretrain_t5.py", "mt5": "pretrain_t5.py", "bert": "pretrain_bert.py"}
_SCRIPT = "pretrain_gpt.py"
_GELU_GATED = frozenset({"t5", "mt5", "gemma"})
"""Families whose gate is a GELU, which Megatron-LM's arguments have no word for."""
_OF_FAMILY = {
    "qwen": ("--add-qkv-bias",),
    "qwen2": ("--add-qkv-bias",),
    "chatglm": ("--add-qkv-bias", "--rotary-percent 0.5"),
    "nemotron": ("--apply-layernorm-1p", "--rotary-percent 0.5"),
}
"""Flags of families, as NeMo's classes of them have it (nemo_toolkit 2.7.3)."""
_LAYER_NORM = frozenset({"gpt3", "t5", "mt5", "bert", "nemotron", "starcoder"})
_SQUARED_RELU = frozenset({"nemotron"})


def megatron(base: Pretraining, document: RawConfig) -> Exported:
    """One argument on each line."""
    left_out = (*groups_told(base), *_left_out(base))
    lines = [
        f"# for {SCRIPTS.get(base.family.name, _SCRIPT)}, with data and tokenizer of your own",
        *_model(base),
        *_schedule(base.schedule),
        *_split(base),
    ]
    return Exported(text=comments(left_out) + "\n".join(lines) + "\n", left_out=left_out)


def _model(base: Pretraining) -> Iterator[str]:
    model, family = base.model, base.family.name
    if model.decoder_sequence is not None:
        yield f"--encoder-num-layers {model.shape.layers}"
        yield f"--decoder-num-layers {model.shape.layers}"
        yield f"--encoder-seq-length {model.sequence}"
        yield f"--decoder-seq-length {model.decoder_sequence}"
    else:
        yield f"--num-layers {model.shape.layers}"
        yield f"--seq-length {model.sequence}"
    yield f"--hidden-size {model.shape.hidden}"
    yield f"--ffn-hidden-size {model.shape.ffn}"
    yield f"--num-attention-heads {model.shape.heads}"
    yield f"--kv-channels {model.shape.kv}"
    yield f"--hidden-dropout {model.hidden_dropout:g}"
    yield f"--attention-dropout {model.attention_dropout:g}"
    if model.form.groups != model.shape.heads:
        yield "--group-query-attention"
        yield f"--num-query-groups {model.form.groups}"
    yield f"--max-position-embeddings {model.sequence}"
    if model.vocabulary is not None:
        yield f"--vocab-size {model.vocabulary}"
    yield from _kind(model, family)
    if model.form.experts:
        yield f"--num-experts {model.form.experts}"
        yield f"--moe-router-topk {model.form.experts_per_token}"
    yield f"--init-method-std {model.init_std:g}"


def _kind(model: TrainedModel, family: str) -> Iterator[str]:
    """Positions, norms, gates, biases, ties."""
    if not model.form.learned_positions:
        yield "--position-embedding-type rope"
    if family not in _LAYER_NORM:
        yield "--normalization RMSNorm"
    if model.form.gated:
        yield "--swiglu"
    if family in _SQUARED_RELU:
        yield "--squared-relu"
    if not model.form.biases:
        yield "--disable-bias-linear"
    if not model.form.tied:
        yield "--untie-embeddings-and-output-weights"
    yield from _OF_FAMILY.get(family, ())


def _schedule(schedule: RateSchedule) -> Iterator[str]:
    """After ``lr-decay-iters`` the least rate stays, as NeMo's constant steps have it."""
    yield f"--train-iters {schedule.steps}"
    yield f"--lr {schedule.learning_rate:g}"
    yield f"--min-lr {schedule.least_rate:g}"
    yield f"--lr-decay-style {'cosine' if schedule.is_cosine else 'linear'}"
    yield f"--lr-decay-iters {max(1, schedule.steps - schedule.constant_steps)}"
    yield f"--lr-warmup-iters {schedule.warmup_steps}"
    yield f"--weight-decay {schedule.weight_decay:g}"
    yield f"--adam-beta1 {schedule.betas[0]:g}"
    yield f"--adam-beta2 {schedule.betas[1]:g}"
    yield f"--adam-eps {schedule.epsilon:g}"
    yield f"--clip-grad {schedule.clip:g}"


def _split(base: Pretraining) -> Iterator[str]:
    split = base.split
    yield f"{names.GLOBAL_BATCH_FLAG} {split.global_batch}"
    yield f"{names._MICRO_BATCH} {split.layout.micro_batch}"
    for knob in NEMO_DEGREES:
        yield f"{names._DEGREES[knob]} {getattr(split.layout, knob)}"
    yield from _virtual(base)
    if splits_sequence(base):
        yield names.SEQUENCE_PARALLEL
    yield names.DISTRIBUTED_OPTIMIZER
    yield "--bf16"


def _virtual(base: Pretraining) -> Iterator[str]:
    """Virtual stages by layers, which every version reads, where the stages are equal."""
    each = layers_per_stage(base)
    if each is not None:
        yield f"{names.VIRTUAL_LAYERS} {each}"
    elif base.split.virtual:
        yield f"{names.VIRTUAL_STAGES} {base.split.virtual}"


def _left_out(base: Pretraining) -> Iterator[str]:
    if base.model.form.gated and base.family.name in _GELU_GATED:
        yield (
            "a GELU-gated MLP: exported as --swiglu of equal size; --quick-geglu is nearer, "
            "where Megatron-LM has it"
        )
