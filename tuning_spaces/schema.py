"""JSON Schemas of a configuration and of a cluster file, for editors.

``python -m autoconf_launch.tuning_spaces.schema`` writes the shipped ones anew. They refuse
nothing that the program accepts: another framework's keys and names pass.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from autoconf_launch.autotuner.space import ALIASES, AutotuningSettings
from autoconf_launch.core import (
    OPTIMIZERS,
    PIPELINE_SCHEDULES,
    SCHEDULERS,
    SCHEMA_KEY,
    ZERO,
    ZERO_KNOBS,
    Recompute,
    ZeroKnob,
)
from autoconf_launch.core import config_keys as keys

from .clusters import ClusterFile
from .machines import accelerator_names

Schema: TypeAlias = dict[str, Any]
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MAPPINGS = "the script's argument for each key, as --arg KEY=FLAG says it"


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


_COUNT: Schema = {"type": "integer", "minimum": 1}
_SIZE: Schema = {"type": "number", "minimum": 0}
_TRUTH: Schema = {"type": "boolean"}
_AUTO: Schema = {"const": "auto"}


def _autotuning() -> tuple[Schema, Schema]:
    """The section of the typed settings, with its aliases; and what it refers to."""
    schema = AutotuningSettings.model_json_schema()
    properties = schema["properties"]
    for alias, name in ALIASES.items():
        about = f"another name of {name}: {properties[name]['description']}"
        properties[alias] = {**properties[name], "description": about}
    return schema, schema.pop("$defs")


def _batches() -> Schema:
    return {
        keys.MICRO_BATCH[0]: _describe(
            "samples of one forward pass of a rank; the smallest to search from, or exactly those "
            "of a list",
            _searchable(_COUNT),
        ),
        keys.ACCUMULATION[0]: _describe(
            "forward passes of an optimizer step", _searchable(_COUNT)
        ),
        keys.TRAIN_BATCH_SIZE[0]: _describe(
            "samples of an optimizer step over all ranks; pins the global batch", _or_auto(_COUNT)
        ),
    }


def _zero() -> Schema:
    stage = {"anyOf": [*_searchable({"enum": [0, 1, 2, 3]})["anyOf"], {"const": "all"}]}
    about = 'ZeRO stage; omitted or "all": stages 0 to 3 are searched'
    knobs = {name: _knob(knob) for name, knob in ZERO_KNOBS.items()}
    section = _section(
        "how optimizer state, gradients and weights are sharded",
        {keys.ZERO_STAGE[1]: _describe(about, stage), **knobs},
    )
    return {"anyOf": [section, {"const": "all"}], "description": section["description"]}


def _knob(knob: ZeroKnob) -> Schema:
    domain: list[Schema] = [{"const": flag} for flag in knob.flags]
    if knob.least is not None:
        domain.append({"type": "integer", "minimum": knob.least})
    stages = " and ".join(map(str, knob.stages))
    about = f"{knob.meaning} (ZeRO {stages})"
    return {**_describe(about, _searchable({"anyOf": domain})), "default": knob.default}


def _fp16() -> Schema:
    scale = _describe("of the loss; 0: it adapts", _or_auto(_SIZE))
    return _section("float16 training", {"enabled": _ENABLED, "loss_scale": scale})


def _recompute() -> Schema:
    mode = _searchable({"enum": [kind.value for kind in Recompute]})
    about = "which activations are computed again in the backward pass"
    layers = _describe("blocks of each stage whose mode is full; all", _searchable(_COUNT))
    properties = {keys.RECOMPUTE[1]: _describe(about, mode), keys.RECOMPUTED[1]: layers}
    return _section("recomputation", properties)


def _parallelism() -> Schema:
    schedules: Schema = {"enum": list(PIPELINE_SCHEDULES)}
    parts: Schema = {"type": "array", "items": _COUNT, "minItems": 1}
    about = {
        keys.VIRTUAL_PIPELINE: ("pipeline stages of each rank", _COUNT),
        keys.SEQUENCE_PARALLELISM: (
            "whether tensor ranks split norms and dropout along the sequence",
            _TRUTH,
        ),
        keys.PIPELINE_SCHEDULE: ("order of a pipeline's passes", schedules),
        keys.PIPELINE_SPLIT: ("blocks of each pipeline stage; omitted: even", parts),
        keys.MICRO_BATCH_SPLIT: ("micro-batch of each data-parallel rank; omitted: even", parts),
    }
    lists = {path[1]: _describe(text, _searchable(value)) for path, (text, value) in about.items()}
    data = _describe("data-parallel ranks; follows from the others", _COUNT)
    section = _section("degrees of parallelism", {keys.DATA[1]: data, **_degrees(), **lists})
    closed = {**section, "additionalProperties": False}
    return {"anyOf": [closed, {"const": "all"}], "description": section["description"]}


def _degrees() -> Schema:
    count = {"anyOf": [*_searchable(_COUNT)["anyOf"], {"const": "all"}]}
    about = {
        keys.TENSOR: "ranks that share out the products of one model copy",
        keys.PIPELINE: "ranks that have a part of the blocks each",
        keys.CONTEXT: "ranks that share out the tokens of each sample",
        keys.EXPERT: "data-parallel ranks that share out the experts",
    }
    every = '"all": every degree is searched'
    return {path[1]: _describe(f"{text}; {every}", count) for path, text in about.items()}


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
    """Schema of a value, a list of values to search, or "auto"."""
    return {"anyOf": [value, {"type": "array", "items": value, "minItems": 1}, _AUTO]}


def _or_auto(value: Schema) -> Schema:
    return {"anyOf": [value, _AUTO]}


def _known_name(known: Iterable[str]) -> Schema:
    """Any text; an editor offers the names that are known, of which there are aliases."""
    return {"anyOf": [{"enum": list(known)}, {"type": "string"}]}


_ENABLED = _describe("whether it is on", _or_auto(_TRUTH))
SCHEMAS: dict[str, Callable[[], Schema]] = {"config": config_schema, "cluster": cluster_schema}


def schema_text(name: str) -> str:
    """The schema of the present code."""
    return json.dumps(SCHEMAS[name](), indent=2) + "\n"


def shipped_schema(name: str) -> str:
    """The schema as the package ships it."""
    return files(__package__).joinpath(_file(name)).read_text("utf-8")


def _file(name: str) -> str:
    return f"{name}.schema.json"


if __name__ == "__main__":
    for each in SCHEMAS:
        Path(__file__).with_name(_file(each)).write_text(schema_text(each), "utf-8")
