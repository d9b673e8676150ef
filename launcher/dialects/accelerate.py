"""Variables and configuration keys of Hugging Face Accelerate, by version.

Checked against ``utils/launch.py``, ``utils/dataclasses.py``, ``parallelism_config.py`` and
``commands/config`` of accelerate 0.21.0, 0.27.2, 0.34.2, 1.0.1, 1.6.0, 1.10.1 and 1.15.0 (PyPI).

``accelerate launch`` passes its settings as variables, so candidates are variables; the
micro-batch is an argument of the script.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autoconf_launch.autotuner.space import LayoutValue
from autoconf_launch.core import (
    ConfigError,
    Optimizer,
    Precision,
    Recompute,
    Workload,
)

from ..script import ScriptSource
from ..spelling import (
    FrameworkFacts,
    LaunchInputs,
    Reading,
    Rendered,
    Spelled,
    Spelling,
    TableDialect,
    TrialNeeds,
    Variable,
    Version,
    find_row,
    installed_version,
    move_asides,
    scalar,
)
from .any_script import batch_rows, recognition_notes

ACCUMULATION_VARIABLE = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"
USE_FSDP = "ACCELERATE_USE_FSDP"
USE_DEEPSPEED = "ACCELERATE_USE_DEEPSPEED"
DEEPSPEED_STAGE = "ACCELERATE_DEEPSPEED_ZERO_STAGE"
DEEPSPEED_FILE = "ACCELERATE_DEEPSPEED_CONFIG_FILE"
"""A number in this file overrides the variable of the same setting."""
FSDP_VERSION = "FSDP_VERSION"
FSDP_VERSION_SINCE = (1, 6)
_STRATEGY = "FSDP_SHARDING_STRATEGY"
_RESHARD = "FSDP_RESHARD_AFTER_FORWARD"
_RECOMPUTE = "FSDP_ACTIVATION_CHECKPOINTING"
RECOMPUTE_SINCE = (0, 34)
USE_PARALLELISM = "ACCELERATE_USE_PARALLELISM_CONFIG"
PARALLELISM_SINCE = (1, 10)
_DEGREES = {
    "tensor_parallel": "PARALLELISM_CONFIG_TP_SIZE",
    "context_parallel": "PARALLELISM_CONFIG_CP_SIZE",
}
_STAGES = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3, "1": 3, "2": 2}
"""ZeRO stages of FSDP 1's strategies; FSDP 2 says true (3) or false (2) in ``_RESHARD``."""
_PRECISION = "ACCELERATE_MIXED_PRECISION"
FSDP_ALONE = (("FSDP_AUTO_WRAP_POLICY", "TRANSFORMER_BASED_WRAP"),)
"""Variables that FSDP needs when it is turned on, unless the user sets them."""
FILE_SECTIONS = {
    "fsdp_config": ("", "FSDP_"),
    "parallelism_config": ("", "PARALLELISM_CONFIG_"),
    "deepspeed_config": ("ACCELERATE_DEEPSPEED_", "ACCELERATE_DEEPSPEED_"),
}
"""Sections of the configuration file: a key in capitals behind the first is a variable, which
begins with the second."""
KEYS = {
    "mixed_precision": _PRECISION,
    "use_cpu": "ACCELERATE_USE_CPU",
    "gradient_accumulation_steps": ACCUMULATION_VARIABLE,
    "gradient_clipping": "ACCELERATE_GRADIENT_CLIPPING",
    "deepspeed_config_file": DEEPSPEED_FILE,
    "zero3_init_flag": "ACCELERATE_DEEPSPEED_ZERO3_INIT",
    "zero3_save_16bit_model": "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
    "fsdp_transformer_layer_cls_to_wrap": "FSDP_TRANSFORMER_CLS_TO_WRAP",
}
"""Keys, at the top or in a section, whose variable has another name."""
_FRAMEWORK = FrameworkFacts(
    package="accelerate",
    oldest=(0, 21),
    newest=(1, 15),
    readers=("accelerate",),
    variables=("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_"),
)
KINDS = {
    "FSDP": ((USE_FSDP, "true"),),
    "DEEPSPEED": ((USE_DEEPSPEED, "true"),),
}
"""Variables that ``distributed_type`` sets."""
LAUNCH_SWITCHES = (
    "--quiet",
    "-q",
    "--cpu",
    "--multi_gpu",
    "--tpu",
    "--enable_cpu_affinity",
    "--dynamo_use_fullgraph",
    "--dynamo_use_dynamic",
    "--dynamo_use_regional_compilation",
    "--use_deepspeed",
    "--use_fsdp",
    "--use_parallelism_config",
    "--use_megatron_lm",
    "--same_network",
    "-m",
    "--module",
    "--no_python",
    "--tpu_cluster",
    "--no_tpu_cluster",
    "--tpu_use_sudo",
    "--downcast_bf16",
    "--fp8_use_autocast_during_eval",
    "--debug",
)
"""Flags of ``accelerate launch`` that take no value."""
TURNED_ON = {
    "--cpu": "ACCELERATE_USE_CPU",
    "--use_fsdp": USE_FSDP,
    "--use_deepspeed": USE_DEEPSPEED,
    "--use_parallelism_config": USE_PARALLELISM,
    "--debug": "ACCELERATE_DEBUG_MODE",
}
LAUNCH_VARIABLES = {
    "--mixed_precision": _PRECISION,
    "--zero_stage": DEEPSPEED_STAGE,
    "--offload_optimizer_device": "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
    "--offload_param_device": "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE",
    "--gradient_accumulation_steps": ACCUMULATION_VARIABLE,
    "--gradient_clipping": "ACCELERATE_GRADIENT_CLIPPING",
    "--deepspeed_config_file": DEEPSPEED_FILE,
    "--dynamo_backend": "ACCELERATE_DYNAMO_BACKEND",
    "--dynamo_mode": "ACCELERATE_DYNAMO_MODE",
    "--fsdp_transformer_layer_cls_to_wrap": "FSDP_TRANSFORMER_CLS_TO_WRAP",
}
"""Flags that are variables; flags that begin with ``LAUNCH_SAME`` are the same words in
capitals."""
LAUNCH_SAME = ("--fsdp_", "--parallelism_config_")
PROCESSES, MACHINES, CONFIG_FILE = "--num_processes", "--num_machines", "--config_file"


_PRECISIONS = {"bf16": Precision.BF16, "fp16": Precision.FP16}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingWords(Spelled):
    """FSDP's or DeepSpeed's variables as a ZeRO stage; ``versioned``: FSDP 2 is available."""

    versioned: bool
    knob: str = "zero_stage"
    called: tuple[str, ...] = (USE_FSDP, _STRATEGY, _RESHARD, DEEPSPEED_STAGE)

    def read(self, inputs: LaunchInputs) -> LayoutValue:
        if _is_on(inputs, USE_DEEPSPEED):
            return self.value_of(scalar(inputs.variable(DEEPSPEED_STAGE) or 2))
        if not _is_on(inputs, USE_FSDP):
            return 0
        reshard = inputs.variable(_RESHARD)
        if inputs.variable(FSDP_VERSION) == "2":
            return 2 if str(reshard).lower() == "false" else 3
        return self.value_of(inputs.variable(_STRATEGY) or reshard or "FULL_SHARD")

    def value_of(self, word: Any) -> LayoutValue:
        stage = word if type(word) is int else _STAGES.get(str(word).upper())
        if stage not in (0, 1, 2, 3):
            known = ", ".join(_STAGES)
            raise ConfigError(f"{_STRATEGY} is {word!r}, which is not known here; {known}.")
        return int(stage)

    def put(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        if _is_on(inputs, USE_DEEPSPEED):
            return inputs.with_variable(DEEPSPEED_STAGE, str(value))
        if value == 0:
            return inputs.with_variable(USE_FSDP, "false")
        if value not in (2, 3):
            raise ConfigError(f"FSDP supports ZeRO stages 2 and 3 only, got {value}.")
        inputs = inputs.with_variable(USE_FSDP, "true")
        for name, usual in FSDP_ALONE:
            if inputs.variable(name) is None:
                inputs = inputs.with_variable(name, usual)
        if not self.versioned or inputs.variable(FSDP_VERSION) == "1":
            word = "FULL_SHARD" if value == 3 else "SHARD_GRAD_OP"
            return inputs.with_variable(_STRATEGY, word)
        inputs = inputs.with_variable(FSDP_VERSION, "2")
        return inputs.with_variable(_RESHARD, "true" if value == 3 else "false")


class AccelerateDialect(TableDialect):
    """Scripts that make their own Accelerator."""

    name, framework = "accelerate", _FRAMEWORK
    checks = ("micro_batch", "accumulation", "zero_stage")

    def detects(self, source: ScriptSource) -> bool:
        facts = source.facts
        return facts.imports("accelerate") and "Accelerator" in facts.called

    def table(self, source: ScriptSource, ranks: int) -> tuple[Spelled, ...]:
        version = installed_version(source, _FRAMEWORK.package) or _FRAMEWORK.newest
        rows: list[Spelled] = list(batch_rows(source, ranks))
        accumulation = _accumulation(source)
        if accumulation and (
            _is_set(source, ACCUMULATION_VARIABLE)
            or not (find_row(rows, "accumulation") is not None)
        ):
            rows = [row for row in rows if row.knob != "accumulation"]
            rows.append(accumulation)
        is_fixed = _is_set(source, DEEPSPEED_FILE) and _is_set(source, DEEPSPEED_STAGE)
        free = (0, 2, 3) if ranks > 1 and not is_fixed else ()
        rows.append(ShardingWords(versioned=version >= FSDP_VERSION_SINCE, free=free))
        return (*rows, *_memory_rows(source, version))

    def workload(self, reading: Reading) -> Workload:
        given = str(reading.inputs.variable(_PRECISION)).lower()
        precision = _PRECISIONS.get(given, Precision.FP32)
        return Workload(precision=precision, optimizer=Optimizer())

    def in_trial(self, rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
        return move_asides(super().in_trial(rendered, source, needs), source, needs)

    def detections(self, reading: Reading) -> tuple[str, ...]:
        return recognition_notes(reading)


def _is_on(inputs: LaunchInputs, name: str) -> bool:
    return str(inputs.variable(name)).lower() in ("true", "1")


def _is_set(source: ScriptSource, name: str) -> bool:
    return name in dict(source.environment)


def _accumulation(source: ScriptSource) -> Spelling | None:
    """The variable outweighs the script's number, but only ``accumulate`` acts on it."""
    facts = source.facts
    if source.text and "accumulate" not in facts.called:
        return None
    keyword = facts.keyword("Accelerator", "gradient_accumulation_steps")
    default = keyword.value if keyword else 1
    return Spelling(
        knob="accumulation",
        places=(Variable(ACCUMULATION_VARIABLE),),
        default=default if type(default) is int else 1,
    )


def _memory_rows(source: ScriptSource, version: Version) -> tuple[Spelling, ...]:
    rows = []
    if version >= RECOMPUTE_SINCE and _is_set(source, _RECOMPUTE):
        words = (("false", Recompute.NONE), ("true", Recompute.FULL))
        places = (Variable(_RECOMPUTE),)
        rows.append(Spelling(knob="recompute", places=places, words=words))
    if version >= PARALLELISM_SINCE and _is_set(source, USE_PARALLELISM):
        rows += [
            Spelling(knob=knob, places=(Variable(name),), default=1)
            for knob, name in _DEGREES.items()
        ]
    return tuple(rows)
