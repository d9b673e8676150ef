"""The keys of a DeepSpeed configuration, and DeepSpeed's reading of a document.

Source:
    DeepSpeed 0.19.8: runtime/config.py, runtime/zero/config.py, runtime/zero/offload_config.py,
    runtime/precision_config.py, runtime/tensor_parallel/config.py; __init__.py for the degrees.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from autoconf_launch.core import ConfigError, KeyPath, RawConfig, dotted_name, integer_value
from autoconf_launch.core import config_keys as keys

from ..script import ScriptSource
from ..spelling import TRUE_WORDS

DEEPSPEED_MONITORS = ("wandb", "tensorboard", "csv_monitor", "comet")
_ZERO_ALIASES = (("cpu_offload", "offload_optimizer"), ("cpu_offload_param", "offload_param"))
_SWITCHES: tuple[KeyPath, ...] = (
    ("compile", "deepcompile"),
    ("data_efficiency", "enabled"),
    ("expert_parallel", "enabled"),
    ("hybrid_engine", "enabled"),
    ("weight_quantization", "quantized_initialization"),
)
"""Switches of sections that are treated as a whole."""
_BATCH_SWITCHES: tuple[KeyPath, ...] = (
    ("elasticity", "enabled"),
    ("data_efficiency", "data_sampling", "dynamic_batching", "enabled"),
)
"""Switches that let DeepSpeed choose batches by itself."""
_MAPPINGS = (
    *("bf16", "bfloat16", "fp16", "tensor_parallel", "optimizer", "scheduler"),
    *("data_types", "torch_autocast", "activation_checkpointing", "compile", "data_efficiency"),
    *("expert_parallel", "hybrid_engine", "pipeline", "aio", "checkpoint", "flops_profiler"),
    *("comms_logger", "timers", *DEEPSPEED_MONITORS),
)
_ZERO_MAPPINGS = ("offload_optimizer", "offload_param", "leaf_module", "zenflow")
_REMOVED_IN = (0, 19, 8)
_TOP = "top"
_NEAR = 0.8
_UNSAID: tuple[Any, ...] = (None, False, 0, 1, "auto", "none", {}, [])
MODEL_RANKS: tuple[tuple[str, KeyPath], ...] = (
    ("tensor_parallel", ("tensor_parallel", "autotp_size")),
    ("context_parallel", ("sequence_parallel_size",)),
)
"""Degrees of a file that leave fewer data-parallel ranks (DeepSpeed 0.19.8, __init__.py,
initialize; runtime/config.py, DeepSpeedConfig)."""
_TENSOR, _CONTEXT = (path for _, path in MODEL_RANKS)
_DATA: KeyPath = ("data_parallel_size",)
_TP_SIZES: tuple[KeyPath, ...] = tuple(
    ("tensor_parallel", name, "tp_size") for name in ("tp", "tensor_parallel")
)


class Treatment(Enum):
    """Treatment of a key."""

    KNOWN = "known"
    """Read: it decides batch, layout or precision, or is a knob that a list searches."""
    MEASURED = "measured"
    """Passed on with a note: it changes memory or batch shape in ways that predictions omit."""
    PASSED = "passed"
    """Passed on: it has next to no effect on layout, batch or memory."""
    REMOVED = "removed"
    """Refused by DeepSpeed 0.19.8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGroup:
    """The keys of one section by their treatment; ``is_closed``: DeepSpeed refuses others."""

    known: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    is_closed: bool = True

    def treatments(self) -> Iterator[tuple[str, Treatment]]:
        for treatment in Treatment:
            yield from ((name, treatment) for name in getattr(self, treatment.value))


def _read_keys() -> Iterator[tuple[KeyPath, KeyGroup]]:
    sections = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    for name, words in sections.items():
        is_closed = words.pop("is_closed", True)
        groups = {treatment: tuple(text.split()) for treatment, text in words.items()}
        path = () if name == _TOP else tuple(name.split("."))
        yield path, KeyGroup(**groups, is_closed=is_closed)


DEEPSPEED_KEYS: Mapping[KeyPath, KeyGroup] = MappingProxyType(dict(_read_keys()))
"""Every key; a missing section is treated as a whole."""


def treatments() -> Iterator[tuple[KeyPath, Treatment]]:
    """Every key with its treatment."""
    for section, rows in DEEPSPEED_KEYS.items():
        for name, treatment in rows.treatments():
            yield (*section, name), treatment


def is_on(document: RawConfig, path: KeyPath) -> bool:
    """True if a switch is true, in any word that DeepSpeed accepts."""
    return str(document.get(path)).lower() in TRUE_WORDS


def precision_section(document: RawConfig) -> str:
    """``bf16``, or the old name if only that is present."""
    return "bfloat16" if ("bfloat16",) in document and ("bf16",) not in document else "bf16"


def with_current_keys(source: ScriptSource) -> ScriptSource:
    """The source with the old forms of ``zero_optimization`` as DeepSpeed reads them.

    True is stage 1, false is stage 0; ``cpu_offload`` is a device of ``offload_optimizer``.

    Source:
        DeepSpeed 0.19.8, runtime/zero/config.py (read_zero_config_deprecated, cpu_offload).

    Raises:
        ConfigError: DeepSpeed refuses the document, or chooses the batch by itself.
    """
    document = source.config
    zero = document.get(keys.ZERO)
    if isinstance(zero, bool):
        section = {"stage": int(zero)}
        if zero and ("allgather_size",) in document:
            section["allgather_bucket_size"] = document.get(("allgather_size",))
        document = document.with_value(keys.ZERO, section)
    if str(document.get(keys.ZERO_STAGE)).isdecimal():  # text that DeepSpeed takes for a number
        document = document.with_value(keys.ZERO_STAGE, int(document.get(keys.ZERO_STAGE)))
    for old, new in _ZERO_ALIASES:
        document = _with_offload(document, old, new)
    _refuse(source, document)
    return source if document is source.config else replace(source, config=document)


def _with_offload(document: RawConfig, old: str, new: str) -> RawConfig:
    path, current = (*keys.ZERO, old), (*keys.ZERO, new)
    given = document.get(path)
    if given is None:
        return document
    if current in document:
        raise ConfigError(
            f"{dotted_name(path)} is the old name of {dotted_name(current)}, and DeepSpeed takes "
            "only one of them; remove the old one."
        )
    values = given if isinstance(given, list) else [given]
    devices = ["cpu" if str(value).lower() in TRUE_WORDS else "none" for value in values]
    document = document.without(path)
    if devices == ["none"]:
        return document
    return document.with_value(
        (*current, "device"), devices if isinstance(given, list) else devices[0]
    )


def _refuse(source: ScriptSource, document: RawConfig) -> None:
    _require_sections(document)
    if is_on(document, keys.FP16) and is_on(document, (precision_section(document), "enabled")):
        raise ConfigError(
            "fp16.enabled and bf16.enabled are both true, but DeepSpeed takes only one of them; "
            "set one to false."
        )
    removed = _removed_keys(document) if _version(source) >= _REMOVED_IN else ()
    if removed:
        raise ConfigError(
            f"DeepSpeed {dict(source.versions)['deepspeed']} refuses {_enumeration(removed)}; "
            "remove it."
        )
    for path in _BATCH_SWITCHES:
        if is_on(document, path):
            raise ConfigError(
                f"{dotted_name(path)} is true, so DeepSpeed chooses the batch by itself and no "
                "other can be tried; set it to false."
            )


def _require_sections(document: RawConfig) -> None:
    zero = document.get(keys.ZERO, {})
    sections = {name: document.get((name,)) for name in _MAPPINGS}
    sections[keys.ZERO[0]] = None if zero == "all" else zero
    for name in _ZERO_MAPPINGS:
        given = document.get((*keys.ZERO, name))
        sections[dotted_name((*keys.ZERO, name))] = None if given == "auto" else given
    for where, given in sections.items():
        if given is not None and not isinstance(given, dict):
            example = (
                ', such as {"enabled": true}' if where in ("bf16", "bfloat16", "fp16") else ""
            )
            raise ConfigError(f"{where} is {given!r}, but must be a section ({{…}}){example}.")


def _version(source: ScriptSource) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", dict(source.versions).get("deepspeed", ""))[:3]))


def _removed_keys(document: RawConfig) -> tuple[KeyPath, ...]:
    return tuple(
        path
        for path, treatment in treatments()
        if treatment is Treatment.REMOVED and path in document
    )


def key_warnings(source: ScriptSource) -> tuple[str, ...]:
    """Sentences on keys that DeepSpeed refuses, ignores or does not have."""
    document = source.config
    found = [*_unknown_keys(document), *_idle_degrees(document)]
    if removed := _removed_keys(document):
        text = f"DeepSpeed 0.19.8 and later refuse {_enumeration(removed)}; remove it before an "
        found.insert(0, f"{text}update.")
    if document.get(("managed_gradient_accumulation",)) is False:
        found.append(
            "managed_gradient_accumulation is false, so the script itself decides after how many "
            "micro-batches the optimizer steps; let it read gradient_accumulation_steps."
        )
    return tuple(found)


def key_notes(document: RawConfig) -> tuple[str, ...]:
    """A sentence on keys that predictions ignore; none if no such key is set."""
    whole = {path[0] for path in _SWITCHES}
    measured = [
        path
        for path, treatment in treatments()
        if treatment is Treatment.MEASURED
        and (*path,) not in DEEPSPEED_KEYS
        and path[0] not in whole
        and _says_something(document.get(path))
    ]
    measured += [path for path in _SWITCHES if _says_something(document.get(path))]
    if not measured:
        return ()
    return (
        f"{_enumeration(measured)} can change memory and speed in ways that predictions "
        "omit; the trials measure them.",
    )


def _says_something(value: Any) -> bool:
    return value is True or value not in _UNSAID


def _unknown_keys(document: RawConfig) -> Iterator[str]:
    for path, section in DEEPSPEED_KEYS.items():
        given = document.get(path) if path else document.to_dict()
        if path == ("bf16",):
            given = document.get((precision_section(document),))
        if not isinstance(given, dict):
            continue
        names = {name for name, _ in section.treatments()}
        if path == keys.RECOMPUTE[:1]:
            names |= keys.CHECKPOINTING_KEYS
        for name in given:
            if name not in names:
                yield from _unknown_key((*path, name), names - given.keys(), section)


def _unknown_key(path: KeyPath, names: set[str], section: KeyGroup) -> Iterator[str]:
    name, where = path[-1], dotted_name(path)
    close = difflib.get_close_matches(name.strip().lower(), names, n=1, cutoff=_NEAR)
    zero = {key for key, _ in DEEPSPEED_KEYS[keys.ZERO].treatments()}
    if not section.is_closed and name in zero:
        yield f"{where} belongs in zero_optimization; DeepSpeed ignores it where it is."
    elif section.is_closed or close:
        hint = f"; did you mean '{close[0]}'?" if close else ", which refuses it; remove it."
        yield f"{where} is not a key of DeepSpeed 0.19.8{hint}"


def model_ranks(document: RawConfig, *, world_size: int, mp_size: int = 1) -> tuple[int, int]:
    """Tensor and context degree by the document's keys; ``mp_size`` if no key sets tensor ranks.

    Raises:
        ConfigError: a degree is not a whole number, keys contradict each other, or the ranks do
            not divide.
    """
    tensor, context = (degree(document, path) for path in (_TENSOR, _CONTEXT))
    others = [(path, degree(document, path)) for path in _TP_SIZES]
    others.append((("autotuning", "mp_size"), mp_size))
    for path, value in others:
        if 1 < value != tensor > 1:
            raise ConfigError(
                f"{dotted_name(_TENSOR)} is {tensor}, but {dotted_name(path)} is {value}; remove "
                f"{path[-1]}."
            )
    data = degree(document, _DATA)
    if _CONTEXT in document and _DATA in document and data * context != world_size:
        raise ConfigError(
            f"data_parallel_size {data} x sequence_parallel_size {context} is {data * context}, "
            f"but there are {world_size} ranks; change one of them."
        )
    given = [(path, n) for path, n in ((_TENSOR, tensor), (_CONTEXT, context)) if n > 1]
    if given and world_size % (tensor * context):
        said = " x ".join(f"{dotted_name(path)} {n}" for path, n in given)
        raise ConfigError(
            f"{said} does not divide the {world_size} ranks; change it or --num_gpus."
        )
    return max(tensor, mp_size), context


def has_tensor_ranks(document: RawConfig) -> bool:
    """True if DeepSpeed itself splits the model, so that it counts the batch differently.

    If ``initialize`` gets no ``mpu``, it counts tensor ranks in ``train_batch_size``, too, though
    they read the same samples (0.19.8, runtime/config.py, DeepSpeedConfig). A launch omits the
    key: micro-batch and accumulation mean the same in both counts.
    """
    return degree(document, _TENSOR) > 1


def with_counted_batch(document: RawConfig, data_parallel: int) -> RawConfig:
    """The document with distinct samples in ``train_batch_size``; see has_tensor_ranks."""
    stated, micro = document.get(keys.TRAIN_BATCH_SIZE), document.get(keys.MICRO_BATCH)
    accumulation = document.get(keys.ACCUMULATION, 1)
    if not all(type(number) is int for number in (stated, micro, accumulation)):
        return document
    samples = micro * accumulation * data_parallel
    if stated != samples * degree(document, _TENSOR):
        return document
    return document.with_value(keys.TRAIN_BATCH_SIZE, samples)


def degree(document: RawConfig, path: KeyPath) -> int:
    """A degree of the document; 1 if it is omitted, or 0, which turns it off.

    Raises:
        ConfigError: it is not a whole number.
    """
    given = document.get(path)
    if isinstance(given, (str, list)):
        raise ConfigError(
            f"{dotted_name(path)} is {given!r}, but is never searched; give it one whole number."
        )
    if given == 0 and given is not False:
        return 1
    return int(integer_value(document, path, 1))


def _idle_degrees(document: RawConfig) -> Iterator[str]:
    if _DATA in document and _CONTEXT not in document:
        yield "DeepSpeed reads data_parallel_size only beside sequence_parallel_size."
    for path in _TP_SIZES:
        if degree(document, path) > 1 and degree(document, _TENSOR) == 1:
            yield (
                f"DeepSpeed trains without tensor parallelism, as {dotted_name(path)} is "
                f"{degree(document, path)} but {dotted_name(_TENSOR)} is not set; set it to split "
                "the model."
            )


def _enumeration(paths: Sequence[KeyPath]) -> str:
    *names, last = map(dotted_name, paths)
    return f"{', '.join(names)} and {last}" if names else last
