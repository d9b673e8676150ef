"""A base configuration's file as a training, and as our own runtime's configuration.

Both layouts are read by full path, so that a file that a user has edited determines the export.
Not: how a framework spells it (export).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from autoconf_launch.core import ConfigError, KeyPath, Layout, RawConfig, dotted_name

from .families import Family
from .shapes import EXPERTS_PER_TOKEN, Form, Shape, form_of, key_value_heads

_RECIPE_STRATEGY = ("trainer", "strategy")
_TRAINER: Mapping[str, KeyPath] = {
    "steps": ("trainer", "max_steps"),
    "nodes": ("trainer", "num_nodes"),
    "gpus_per_node": ("trainer", "devices"),
    "clip": ("trainer", "gradient_clip_val"),
}
_SCHED = ("model", "optim", "sched")
_NEMO1: Mapping[str, KeyPath] = {
    **_TRAINER,
    "layers": ("model", "num_layers"),
    "hidden": ("model", "hidden_size"),
    "heads": ("model", "num_attention_heads"),
    "groups": ("model", "num_query_groups"),
    "head": ("model", "kv_channels"),
    "ffn": ("model", "ffn_hidden_size"),
    "sequence": ("model", "data", "seq_length"),
    "decoder_sequence": ("model", "data", "seq_length_dec"),
    "vocabulary": ("autoconf", "vocab_size"),
    "experts": ("model", "num_moe_experts"),
    "experts_per_token": ("model", "moe_router_topk"),
    "init_std": ("model", "init_method_std"),
    "hidden_dropout": ("model", "hidden_dropout"),
    "attention_dropout": ("model", "attention_dropout"),
    "activation": ("model", "activation"),
    "biases": ("model", "bias"),
    "tied": ("model", "share_embeddings_and_output_weights"),
    "positions": ("model", "position_embedding_type"),
    "learning_rate": ("model", "optim", "lr"),
    "weight_decay": ("model", "optim", "weight_decay"),
    "epsilon": ("model", "optim", "eps"),
    "betas": ("model", "optim", "betas"),
    "least_rate": (*_SCHED, "min_lr"),
    "warmup_steps": (*_SCHED, "warmup_steps"),
    "warmup_ratio": (*_SCHED, "warmup_ratio"),
    "constant_steps": (*_SCHED, "constant_steps"),
    "schedule": (*_SCHED, "name"),
    "global_batch": ("model", "global_batch_size"),
    "micro_batch": ("model", "micro_batch_size"),
    "tensor": ("model", "tensor_model_parallel_size"),
    "pipeline": ("model", "pipeline_model_parallel_size"),
    "virtual": ("model", "virtual_pipeline_model_parallel_size"),
    "context": ("model", "context_parallel_size"),
    "expert": ("model", "expert_model_parallel_size"),
    "sequence_parallel": ("model", "sequence_parallel"),
}
_ENCODER = "encoder"
_COSINE = "CosineAnnealing"
_GATED = "glu"
_LEARNED = "learned_absolute"
_DROPOUT = 0.1
"""Hidden and attention dropout of NeMo's GPT, T5 and BERT; its other families have none."""
_BETAS = (0.9, 0.95)
_Pair: TypeAlias = tuple[float, float]
_EPSILON = 1e-8
"""torch's and Apex's own."""
_MOST = 1 << 50
"""No size is above this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedModel:
    """Shape and form; layers of an encoder-decoder count one stack.

    Attributes:
        decoder_sequence: of an encoder-decoder; None for other models.
        vocabulary: None if it follows from the tokenizer.
    """

    shape: Shape
    form: Form
    sequence: int
    decoder_sequence: int | None
    vocabulary: int | None
    init_std: float
    hidden_dropout: float
    attention_dropout: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSchedule:
    """Steps and rates; at the end the least rate is kept for ``constant_steps``.

    ``is_cosine`` is False for T5's straight fall.
    """

    steps: int
    warmup_steps: int
    constant_steps: int
    learning_rate: float
    least_rate: float
    is_cosine: bool
    weight_decay: float
    betas: tuple[float, float]
    epsilon: float
    clip: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSplit:
    """Batch and layout on the machines of the file; how many replicas there are follows."""

    nodes: int
    gpus_per_node: int
    global_batch: int
    layout: Layout

    @property
    def data(self) -> int:
        """Replicas; at least 1, even if the file's degrees need more GPUs than it has."""
        tensor, pipeline, context, _ = self.layout.mesh
        return max(1, self.nodes * self.gpus_per_node // (tensor * pipeline * context))

    @property
    def virtual(self) -> int | None:
        """Virtual pipeline stages; None without any."""
        return self.layout.virtual_pipeline if self.layout.virtual_pipeline > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretraining:
    """Everything that an export says."""

    name: str
    family: Family
    model: TrainedModel
    schedule: RateSchedule
    split: BatchSplit


def pretraining(document: RawConfig) -> Pretraining:
    """Read a base configuration of either layout.

    Raises:
        ConfigError: it is none, or lacks a value; the message has its key.
    """
    if ("model", "config") not in document and ("model", "optim") not in document:
        raise ConfigError(
            "This is not a base configuration: it has neither model.config nor model."
        )
    reader = _reader_of(document)
    family = Family(_family_name(document))
    return Pretraining(
        name=_name(document, family),
        family=family,
        model=_model(reader, family),
        schedule=_schedule(reader),
        split=_split(reader),
    )


def _name(document: RawConfig, family: Family) -> str:
    name = str(document.get(("run", "name"), document.get(("name",), family.name)))
    if not name or not name.isprintable():
        raise ConfigError(f"The name is {name!r}, but must be one printable line.")
    return name


_RECIPE_MODEL, _RECIPE_OPTIM = ("model", "config"), ("optim", "config")
_RECIPE: Mapping[str, KeyPath] = {
    **_TRAINER,
    "layers": (*_RECIPE_MODEL, "num_layers"),
    "hidden": (*_RECIPE_MODEL, "hidden_size"),
    "heads": (*_RECIPE_MODEL, "num_attention_heads"),
    "groups": (*_RECIPE_MODEL, "num_query_groups"),
    "head": (*_RECIPE_MODEL, "kv_channels"),
    "ffn": (*_RECIPE_MODEL, "ffn_hidden_size"),
    "sequence": ("data", "seq_length"),
    "vocabulary": (*_RECIPE_MODEL, "vocab_size"),
    "gated": (*_RECIPE_MODEL, "gated_linear_unit"),
    "biases": (*_RECIPE_MODEL, "add_bias_linear"),
    "tied": (*_RECIPE_MODEL, "share_embeddings_and_output_weights"),
    "experts": (*_RECIPE_MODEL, "num_moe_experts"),
    "experts_per_token": (*_RECIPE_MODEL, "moe_router_topk"),
    "init_std": (*_RECIPE_MODEL, "init_method_std"),
    "hidden_dropout": (*_RECIPE_MODEL, "hidden_dropout"),
    "attention_dropout": (*_RECIPE_MODEL, "attention_dropout"),
    "learning_rate": (*_RECIPE_OPTIM, "lr"),
    "weight_decay": (*_RECIPE_OPTIM, "weight_decay"),
    "epsilon": (*_RECIPE_OPTIM, "adam_eps"),
    "beta1": (*_RECIPE_OPTIM, "adam_beta1"),
    "beta2": (*_RECIPE_OPTIM, "adam_beta2"),
    "least_rate": ("optim", "lr_scheduler", "min_lr"),
    "warmup_steps": ("optim", "lr_scheduler", "warmup_steps"),
    "constant_steps": ("optim", "lr_scheduler", "constant_steps"),
    "schedule": ("optim", "lr_scheduler", "name"),
    "global_batch": ("data", "global_batch_size"),
    "micro_batch": ("data", "micro_batch_size"),
    "tensor": (*_RECIPE_STRATEGY, "tensor_model_parallel_size"),
    "pipeline": (*_RECIPE_STRATEGY, "pipeline_model_parallel_size"),
    "virtual": (*_RECIPE_STRATEGY, "virtual_pipeline_model_parallel_size"),
    "context": (*_RECIPE_STRATEGY, "context_parallel_size"),
    "expert": (*_RECIPE_STRATEGY, "expert_model_parallel_size"),
    "sequence_parallel": (*_RECIPE_STRATEGY, "sequence_parallel"),
}
RECIPE_PATHS = tuple(_RECIPE.values())
"""Places of values in a recipe."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """A document by the names of the values that are read."""

    document: RawConfig
    paths: Mapping[str, KeyPath]

    def get(self, name: str, default: Any = None) -> Any:
        """The value; of T5's two stacks the encoder's, which the decoder's equals."""
        path = self.paths.get(name)
        if path is None:
            return default
        stack = (path[0], _ENCODER, *path[1:])
        value = self.document.get(path, self.document.get(stack))
        return default if value is None else value

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number of at least 0; without a default it must be there."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._wrong(name, value, "a whole number")
        if value > _MOST:
            raise self._wrong(name, value, f"at most {_MOST}")
        return value

    def count(self, name: str, default: int | None = None) -> int:
        """A whole number of at least 1, as :meth:`whole`."""
        value = self.whole(name, default)
        if value < 1:
            raise self._wrong(name, value, "at least 1")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A number, also as a text like ``1e-4``, which YAML 1.1 takes for one."""
        value = self.get(name, default)
        with suppress(TypeError, ValueError, OverflowError):
            if math.isfinite(number := float(value)):
                return number
        raise self._wrong(name, value, "a number")

    def rate(self, name: str) -> float:
        """A number above 0, as :meth:`number`."""
        value = self.number(name)
        if value <= 0:
            raise self._wrong(name, value, "above 0")
        return value

    def pair(self, name: str, names: tuple[str, str], default: tuple[float, float]) -> _Pair:
        """Two numbers: a list, or a value each."""
        listed = self.get(name)
        if listed is None:
            return self.number(names[0], default[0]), self.number(names[1], default[1])
        if isinstance(listed, (list, tuple)) and len(listed) == len(default):
            with suppress(TypeError, ValueError, OverflowError):
                return float(listed[0]), float(listed[1])
        raise self._wrong(name, listed, "a list of two numbers")

    def _wrong(self, name: str, value: Any, kind: str) -> ConfigError:
        where = dotted_name(self.paths[name])
        if value is None:
            return ConfigError(f"The base configuration lacks {where}.")
        return ConfigError(f"{where} is {value!r}, but must be {kind}.")


def _reader_of(document: RawConfig) -> _Reader:
    is_recipe = ("model", "config") in document or ("optim", "config") in document
    return _Reader(document, _RECIPE if is_recipe else _NEMO1)


def _family_name(document: RawConfig) -> str:
    given = document.get(("autoconf", "family"), document.get(("family",)))
    if given is None:
        raise ConfigError(
            "The base configuration does not say its family; set autoconf.family to gpt3, t5, …"
        )
    return str(given)


def _model(reader: _Reader, family: Family) -> TrainedModel:
    form = form_of(family)
    heads, hidden = reader.whole("heads"), reader.whole("hidden")
    sequence = reader.whole("sequence")
    shorter = reader.whole("decoder_sequence", sequence)
    dropout = _DROPOUT if form.learned_positions else 0.0
    return TrainedModel(
        shape=Shape(
            layers=reader.whole("layers"),
            hidden=hidden,
            heads=heads,
            ffn=reader.whole("ffn"),
            kv=reader.whole("head", hidden // max(heads, 1)),
            learning_rate=reader.rate("learning_rate"),
        ),
        form=replace(
            form,
            gated=_is_gated(reader, form),
            biases=bool(reader.get("biases", form.biases)),
            tied=bool(reader.get("tied", form.tied)),
            learned_positions=_learned_positions(reader, form),
            groups=reader.whole("groups", _groups(reader, family, heads)),
            experts=reader.whole("experts", form.experts),
            experts_per_token=reader.whole("experts_per_token", EXPERTS_PER_TOKEN),
        ),
        sequence=sequence,
        decoder_sequence=shorter if family.is_encoder_decoder else None,
        vocabulary=None if reader.get("vocabulary") is None else reader.whole("vocabulary"),
        init_std=reader.number("init_std"),
        hidden_dropout=reader.number("hidden_dropout", dropout),
        attention_dropout=reader.number("attention_dropout", dropout),
    )


def _groups(reader: _Reader, family: Family, heads: int) -> int:
    """Default of a silent file: NeMo 1.0 gives each head its own keys and values."""
    return key_value_heads(family, heads) if reader.paths is _RECIPE else heads


def _is_gated(reader: _Reader, form: Form) -> bool:
    """NeMo 1.0 has it in the activation's name, such as ``fast-swiglu``."""
    activation = reader.get("activation")
    if activation is None:
        return bool(reader.get("gated", form.gated))
    return _GATED in str(activation)


def _learned_positions(reader: _Reader, form: Form) -> bool:
    given = reader.get("positions")
    return form.learned_positions if given is None else given == _LEARNED


def _schedule(reader: _Reader) -> RateSchedule:
    steps = reader.whole("steps")
    ratio = reader.number("warmup_ratio", 0.0)
    return RateSchedule(
        steps=steps,
        warmup_steps=reader.whole("warmup_steps", int(ratio * steps)),
        constant_steps=reader.whole("constant_steps", 0),
        learning_rate=reader.rate("learning_rate"),
        least_rate=reader.number("least_rate"),
        is_cosine=reader.get("schedule", _COSINE) == _COSINE,
        weight_decay=reader.number("weight_decay", 0.0),
        betas=reader.pair("betas", ("beta1", "beta2"), _BETAS),
        epsilon=reader.number("epsilon", _EPSILON),
        clip=reader.number("clip", 1.0),
    )


def _split(reader: _Reader) -> BatchSplit:
    layout = Layout(
        tensor_parallel=reader.count("tensor", 1),
        pipeline_parallel=reader.count("pipeline", 1),
        virtual_pipeline=reader.whole("virtual", 1) or 1,
        context_parallel=reader.count("context", 1),
        expert_parallel=reader.count("expert", 1),
        micro_batch=reader.count("micro_batch"),
        sequence_parallel=bool(reader.get("sequence_parallel", False)),
    )
    return BatchSplit(
        nodes=reader.count("nodes", 1),
        gpus_per_node=reader.count("gpus_per_node", 1),
        global_batch=reader.count("global_batch"),
        layout=layout,
    )


def builtin_document(base: RawConfig, *, micro_batch: int | None = None) -> RawConfig:
    """Batch, optimizer, schedule and precision as ``runtime.initialize`` reads them.

    Degrees of model parallelism are dropped: the training here is only data-parallel.

    Args:
        base: a base configuration of either layout.
        micro_batch: samples of one pass; by default the file's, at most the global batch.

    Raises:
        ConfigError: the file lacks a value that is needed.
    """
    reader = _reader_of(base)
    batch, schedule = reader.whole("global_batch"), _schedule(reader)
    optimizer = {
        "lr": schedule.learning_rate,
        "betas": list(schedule.betas),
        "weight_decay": schedule.weight_decay,
    }
    has_ratio = reader.get("warmup_ratio") is not None
    return RawConfig(
        {
            "train_batch_size": batch,
            "train_micro_batch_size_per_gpu": min(
                batch, micro_batch or reader.whole("micro_batch")
            ),
            "gradient_clipping": float(reader.get("clip") or 0.0),
            "bf16": {"enabled": str(base.get(("trainer", "precision"))).startswith("bf16")},
            "optimizer": {"type": "AdamW", "params": optimizer},
            "scheduler": _line(schedule) if has_ratio else _cosine(schedule),
            "autotuning": {"enabled": True},
        }
    )


def _line(schedule: RateSchedule) -> dict[str, Any]:
    """T5's schedule falls in a line."""
    params = {
        "total_num_steps": schedule.steps,
        "warmup_min_lr": schedule.least_rate,
        "warmup_max_lr": schedule.learning_rate,
        "warmup_num_steps": schedule.warmup_steps,
        "warmup_type": "linear",
    }
    return {"type": "WarmupDecayLR", "params": params}


def _cosine(schedule: RateSchedule) -> dict[str, Any]:
    """A cosine down to the least rate, which the constant steps keep."""
    params = {
        "total_num_steps": max(1, schedule.steps - schedule.constant_steps),
        "warmup_num_steps": schedule.warmup_steps,
        "warmup_type": "linear",
        "cos_min_ratio": schedule.least_rate / schedule.learning_rate,
    }
    return {"type": "WarmupCosineLR", "params": params}
