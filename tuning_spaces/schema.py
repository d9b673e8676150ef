"""JSON Schemas of a configuration and of a cluster file, for editors.

They refuse nothing that the program accepts: another framework's keys and names pass.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from autoconf_launch.autotuner.space import ALIASES, AutotuningSettings
from autoconf_launch.core import (
    OPTIMIZERS,
    RUNTIME_KNOBS,
    SCHEDULERS,
    SCHEMA_KEY,
    SPELLED,
    ZERO,
    ZERO_STAGES,
    KeyPath,
    Knob,
    Naming,
)
from autoconf_launch.core import config_keys as keys

from .clusters import ClusterFile
from .machines import accelerator_names

Schema: TypeAlias = dict[str, Any]
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MAPPINGS = "the script's argument for each key, as --arg KEY=FLAG says it"
_COUNT: Schema = {"type": "integer", "minimum": 1}
_SIZE: Schema = {"type": "number", "minimum": 0}
_TRUTH: Schema = {"type": "boolean"}
_AUTO: Schema = {"const": "auto"}


def cluster_schema() -> Schema:
    """Schema of the file of ``--cluster``."""
    schema = ClusterFile.model_json_schema()
    group = schema["$defs"]["NodeGroup"]["properties"]
    group["gpu"] |= _known_name(accelerator_names())
    return {SCHEMA_KEY: _DIALECT, **schema}


def config_schema() -> Schema:
    """Schema of the file of ``--config``; a key that can be searched takes a list, too."""
    section, definitions = _autotuning()
    properties = {
        SCHEMA_KEY: {"type": "string", "description": "of this schema"},
        **_batches(),
        keys.CLIPPING[0]: _describe("largest norm of all gradients; 0: none", _or_auto(_SIZE)),
        ZERO[0]: _zero(),
        keys.BF16[0]: _section("bfloat16 training", {"enabled": _ENABLED}),
        keys.FP16[0]: _fp16(),
        keys.OPTIMIZER[0]: _by_type("the optimizer, as DeepSpeed names it", sorted(OPTIMIZERS)),
        keys.SCHEDULER[0]: _by_type("the learning rate's schedule", sorted(SCHEDULERS)),
        **_knobs((), *RUNTIME_KNOBS),
        keys.RECOMPUTE[0]: _recompute(),
        keys.PARALLELISM[0]: _parallelism(),
        keys.AUTOTUNING[0]: section,
        **{path[0]: _words(_MAPPINGS) for path in keys.MAPPINGS},
    }
    return {
        SCHEMA_KEY: _DIALECT,
        "title": "Configuration of autoconf-launch",
        "description": "A training's configuration with DeepSpeed's names; a list of values is "
        "searched. Further keys are those of DeepSpeed, or the script's own.",
        "type": "object",
        "properties": properties,
        "$defs": definitions,
    }


def _autotuning() -> tuple[Schema, Schema]:
    schema = AutotuningSettings.model_json_schema()
    properties = schema["properties"]
    for alias, name in ALIASES.items():
        about = f"another name of {name}: {properties[name]['description']}"
        properties[alias] = {**properties[name], "description": about}
    return schema, schema.pop("$defs")


def _batches() -> Schema:
    return {
        **_knobs(keys.MICRO_BATCH[:-1], "micro_batch", "accumulation"),
        keys.TRAIN_BATCH_SIZE[0]: _describe(
            "samples of an optimizer step over all ranks; pins the global batch", _or_auto(_COUNT)
        ),
    }


def _zero() -> Schema:
    section = _section("how optimizer state, gradients and weights are sharded", _knobs(ZERO))
    return {"anyOf": [section, {"const": "all"}], "description": section["description"]}


def _knobs(section: KeyPath, *names: str) -> Schema:
    """The knobs of a section of the document, or only some of them, by key."""
    return {
        knob.path[-1]: _knob(knob)
        for knob in (*SPELLED.values(), *RUNTIME_KNOBS.values())
        if knob.path[:-1] == section and (not names or knob.name in names)
    }


def _knob(knob: Knob) -> Schema:
    if knob.applied_by:
        domain: list[Schema] = [{"const": value} for value in knob.values or ()]
        if knob.least is not None:
            domain.append({"type": "integer", "minimum": knob.least})
        stages = " and ".join(map(str, knob.stages))
        about = knob.meaning if knob.stages == ZERO_STAGES else f"{knob.meaning} (ZeRO {stages})"
        return {**_describe(about, _searchable({"anyOf": domain})), "default": knob.default}
    value = _COUNT
    if knob.interned:
        value = {"type": "array", "items": _COUNT, "minItems": 1}
    elif knob.values == (False, True):
        value = _TRUTH
    elif knob.values is not None:
        value = {"enum": [getattr(one, "value", one) for one in knob.values]}
    if knob.naming is Naming.NEVER:
        return _describe(knob.meaning, value)
    schema = _searchable(value)
    if knob.opens_all:
        schema = {"anyOf": [*schema["anyOf"], {"const": "all"}]}
    return _describe(knob.meaning, schema)


def _fp16() -> Schema:
    scale = _describe("of the loss; 0: it adapts", _or_auto(_SIZE))
    return _section("float16 training", {"enabled": _ENABLED, "loss_scale": scale})


def _recompute() -> Schema:
    return _section("recomputation", _knobs(keys.RECOMPUTE[:-1]))


def _parallelism() -> Schema:
    section = _section("degrees of parallelism", _knobs(keys.PARALLELISM))
    closed = {**section, "additionalProperties": False}
    return {"anyOf": [closed, {"const": "all"}], "description": section["description"]}


def _by_type(about: str, known: Iterable[str]) -> Schema:
    parameters = {"type": "object", "description": "its parameters; never searched"}
    return {
        **_section(
            about, {"type": _describe("its name", _known_name(known)), "params": parameters}
        ),
        "required": ["type"],
    }


def _section(about: str, properties: Schema) -> Schema:
    return {"type": "object", "description": about, "properties": properties}


def _words(about: str) -> Schema:
    return _describe(about, {"type": "object", "additionalProperties": {"type": "string"}})


def _describe(about: str, schema: Schema) -> Schema:
    return {"description": about, **schema}


def _searchable(value: Schema) -> Schema:
    return {"anyOf": [value, {"type": "array", "items": value, "minItems": 1}, _AUTO]}


def _or_auto(value: Schema) -> Schema:
    return {"anyOf": [value, _AUTO]}


def _known_name(known: Iterable[str]) -> Schema:
    """Any text; an editor offers the names that are known, of which there are aliases."""
    return {"anyOf": [{"enum": list(known)}, {"type": "string"}]}


_ENABLED = _describe("whether it is on", _or_auto(_TRUTH))
SCHEMAS: dict[str, Callable[[], Schema]] = {"config": config_schema, "cluster": cluster_schema}


def schema_text(name: str) -> str:
    """The schema as ``--schema`` prints it."""
    return json.dumps(SCHEMAS[name](), indent=2)
