"""The DeepSpeed file of a Trainer script (``--deepspeed FILE``), which Trainer itself completes.

Trainer fills "auto" from its arguments and refuses a number that differs from them; accelerate
requires a ZeRO section.

Source:
    transformers 5.23 ``integrations/deepspeed.py`` (``trainer_config_process``,
        ``trainer_config_finalize``), accelerate 1.x ``DeepSpeedPlugin.__post_init__``.

Checked against ``training_args.py`` of transformers 4.30.2, 4.36.2, 4.40.2, 4.41.2, 4.44.2,
4.45.2, 4.46.3, 4.57.1, 5.0.0 and 5.23.0 (PyPI).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from autoconf_launch.autotuner.space import ChoiceKind, LayoutValue
from autoconf_launch.core import (
    Candidate,
    ConfigError,
    KeyPath,
    Precision,
    RawConfig,
    Workload,
    dotted_name,
)
from autoconf_launch.core import config_keys as keys

from ..asked import UserWords
from ..script import ScriptSource
from ..spelling import (
    CANONICAL,
    NEWEST,
    FrameworkFacts,
    LaunchInputs,
    Place,
    Renamed,
    Rendered,
    Spelled,
    Spelling,
    UserSettings,
    Version,
    bare,
    find_argument,
    first_of_list,
    fixed_accumulation,
    on_varying_batch,
    refuse_lists,
    whole_number,
    with_listed,
)
from .deepspeed import (
    batch_rule,
    document_workload,
    further_choices,
    micro_batch_choice,
    on_open_batch,
    stage_choice,
    usual_values,
    with_further,
)
from .deepspeed_keys import (
    MODEL_RANKS,
    degree,
    has_tensor_ranks,
    key_notes,
    key_warnings,
    with_current_keys,
)

VERSIONS = FrameworkFacts(
    package="transformers", oldest=(4, 30), newest=(5, 23), readers=("transformers",)
)
BATCH_FLAG = "--per_device_train_batch_size"
_MICRO_BATCH_DEFAULT = 8
STEPS_FLAG = "--gradient_accumulation_steps"
RECOMPUTE_FLAGS = ("--gradient_checkpointing", "--activation_checkpointing")
FSDP = "--fsdp"
FSDP_STAGES = {"full_shard": 3, "shard_grad_op": 2, "true": 3}
"""Strategies of ``--fsdp`` as ZeRO stages; a bare ``--fsdp`` (from 5.0 on) is the first."""
FSDP_WRAP = "auto_wrap"
FSDP_OFFLOAD = "offload"
RENAMED = (
    Renamed(argument="--evaluation_strategy", gone_in=(4, 57), now="use --eval_strategy"),
    Renamed(argument="--no_cuda", gone_in=(5, 0), now="use --use_cpu"),
    Renamed(
        argument="--per_gpu_train_batch_size",
        gone_in=(5, 0),
        now=f"use {BATCH_FLAG} instead",
    ),
    Renamed(argument="--overwrite_output_dir", gone_in=(5, 0), now="remove it"),
    Renamed(argument="--logging_dir", gone_in=(5, 23), now="set TENSORBOARD_LOGGING_DIR"),
)
ADDED: tuple[tuple[str, Version], ...] = (
    ("--use_liger_kernel", (4, 45)),
    ("--eval_strategy", (4, 41)),
    ("--activation_checkpointing", (5, 23)),
)
"""Versions in which these were first seen."""
_KNOBS = (
    "--bf16",
    "--fp16",
    "--tf32",
    "--optim",
    "--torch_compile",
    "--fsdp",
    "--fsdp_config",
    "--deepspeed",
    "--ddp_bucket_cap_mb",
)
"""Arguments that ``--knob`` may list, in all versions; ``ADDED`` has more from its versions on."""
IN_TRIALS: tuple[tuple[str, str, Version, Version], ...] = (
    ("--save_strategy", "no", VERSIONS.oldest, NEWEST),
    ("--report_to", "none", VERSIONS.oldest, NEWEST),
    ("--push_to_hub", "false", VERSIONS.oldest, NEWEST),
    ("--load_best_model_at_end", "false", VERSIONS.oldest, NEWEST),
    ("--eval_strategy", "no", (4, 41), NEWEST),
    ("--eval_on_start", "false", (4, 44), NEWEST),
    ("--evaluation_strategy", "no", VERSIONS.oldest, (4, 41)),
)
"""Argument, value, first version, and the version before which it ends."""
EVALUATION_FLAGS = ("--eval_strategy", "--evaluation_strategy")
NOT_IN_TRIALS = ("--resume_from_checkpoint",)
"""A trial begins at the first step: resumed after its last one, it would measure nothing."""


_AUTO = "auto"
_FLAGS = ("deepspeed", "deepspeed_config")
_BATCH = (keys.MICRO_BATCH, keys.ACCUMULATION)
_OF_THE_LENGTH: tuple[KeyPath, ...] = (
    ("scheduler", "params", "total_num_steps"),
    ("scheduler", "params", "warmup_num_steps"),
)
"""Values that Trainer counts from the steps of the whole training, and compares."""
_ROWS = ("micro_batch", "zero_stage", "recompute")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedNumber(Spelled):
    """A number in the file and among the arguments, which must be the same in both.

    The file's number wins; "auto" there, or no key, means the arguments' number.
    """

    path: KeyPath
    argument: Spelling

    def names(self) -> tuple[str, ...]:
        return (*self.argument.names(), dotted_name(self.path))

    def read(self, inputs: LaunchInputs) -> LayoutValue:
        held = inputs.document.get(self.path)
        if held in (None, _AUTO):
            return self.argument.read(inputs)
        return self.value_of(held)

    def value_of(self, word: Any) -> LayoutValue:
        return whole_number(word, dotted_name(self.path))

    def write(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        """Write both places, as either may have another value."""
        return self.put(inputs, value)

    def put(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        if inputs.document.get(self.path) not in (_AUTO, value):
            document = inputs.document.with_value(self.path, value)
            inputs = replace(inputs, document=document)
        return self.argument.write(inputs, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDegree(Spelled):
    """A degree of model parallelism that only the file sets, and that is not searched."""

    path: KeyPath

    def names(self) -> tuple[str, ...]:
        return (dotted_name(self.path),)

    def read(self, inputs: LaunchInputs) -> LayoutValue:
        return degree(inputs.document, self.path)

    def value_of(self, word: Any) -> LayoutValue:
        return self.read(LaunchInputs(document=RawConfig({}).with_value(self.path, word)))

    def put(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        return inputs


def has_deepspeed_file(source: ScriptSource) -> bool:
    """True if the document is a DeepSpeed configuration, not a file of all arguments."""
    position = source.config_argument
    if position is None:
        return False
    words = source.script_args[max(0, position - 1) : position + 1]
    return any(word.partition("=")[0].lstrip("-").replace("-", "_") in _FLAGS for word in words)


def with_document_lists(source: ScriptSource) -> ScriptSource:
    """The source with each ``--knob`` that is a key of its file as a list in it."""
    if not has_deepspeed_file(source):
        return source
    source = with_current_keys(source)
    own = [
        knob
        for knob in source.words.knobs
        if (knob.name.startswith("-") or CANONICAL.get(knob.name, knob.name) in _ROWS)
    ]
    others = tuple(knob for knob in source.words.knobs if knob not in own)
    listed = with_listed(replace(source, words=UserWords(knobs=others)))
    return replace(listed, words=replace(source.words, knobs=tuple(own)))


def trainer_document(config: RawConfig) -> RawConfig:
    """The file as Trainer takes it: one value for each key, or "auto" for Trainer to fill.

    Raises:
        ConfigError: a list asks to search a setting that is not searched, or is empty.
    """
    document = config.without(keys.AUTOTUNING)
    for path in keys.MAPPINGS:
        document = document.without(path)
    for path in (keys.ZERO_STAGE, *_BATCH):
        document = first_of_list(document, path)
    if document.get(keys.ZERO_STAGE) in (None, _AUTO, "all"):
        section = document.get(keys.ZERO)
        others = section if isinstance(section, dict) else {}
        document = document.with_value(keys.ZERO, {**others, "stage": 0})
    for path in _BATCH:
        if path not in document:
            document = document.with_value(path, _AUTO)
    refuse_lists(document)
    return document


def trainer_batch_rows(
    source: ScriptSource, micro: tuple[Place, ...], accumulation: tuple[Place, ...]
) -> tuple[Spelled, ...]:
    """Rows of micro-batch and accumulation; a stated global batch leaves the latter open."""
    size = Spelling(knob="micro_batch", places=micro, default=_MICRO_BATCH_DEFAULT)
    steps = Spelling(knob="accumulation", places=accumulation, default=1)
    if not has_deepspeed_file(source):
        return (size, steps)
    if isinstance(source.config.get(keys.TRAIN_BATCH_SIZE), int):
        steps = replace(steps, default=None)
    return (
        SharedNumber(knob="micro_batch", path=keys.MICRO_BATCH, argument=size),
        SharedNumber(knob="accumulation", path=keys.ACCUMULATION, argument=steps),
        *(FileDegree(knob=knob, path=path) for knob, path in MODEL_RANKS),
    )


def with_file_choices(user: UserSettings, source: ScriptSource) -> UserSettings:
    """The settings of the arguments, with the choices that the file opens.

    Raises:
        ConfigError: a value of the file is invalid, or Trainer cannot apply it.
    """
    if user.settings.mp_size > 1:
        raise ConfigError(
            f"autotuning.mp_size is {user.settings.mp_size}, but only data parallelism is tuned "
            "for Trainer scripts; set it to 1 or remove it."
        )
    layout, config = user.baseline.layout, source.config
    today = layout.global_batch
    by_flag = {c.knob: c for c in user.choices if c.how is ChoiceKind.LISTED}
    stages = by_flag.get("zero_stage", stage_choice(config))
    micro = by_flag.get("micro_batch", micro_batch_choice(config, layout.micro_batch))
    others = [c for c in user.choices if c.knob not in ("zero_stage", "micro_batch")]
    rule = batch_rule(source, user.settings, today)
    is_number = config.get(keys.ACCUMULATION) not in (None, _AUTO)
    fixed = fixed_accumulation(config, layout.accumulation if is_number else None, rule)
    further = further_choices(source, user.settings, stages)
    extras = (*user.baseline.extras, *usual_values(further, layout.zero_stage))
    return replace(
        user,
        baseline=Candidate(layout=layout, extras=extras),
        choices=(stages, micro, *others, *fixed, *further),
        batch_rule=rule,
        warnings=(
            *user.warnings,
            *_argument_conflicts(source),
            *key_warnings(source),
        ),
        notes=(
            *user.notes,
            *on_varying_batch(fixed),
            *on_open_batch(source, rule, today),
            *key_notes(source.config),
        ),
    )


def with_file_values(
    rendered: Rendered, candidate: Candidate, source: ScriptSource, today: int
) -> Rendered:
    """The candidate's ZeRO knobs in the file, and values that depend on the number of steps.

    ``today`` is the global batch of the user's configuration.
    """
    arguments = {bare(knob.name) for knob in source.words.knobs}
    extras = tuple(pair for pair in candidate.extras if pair[0] not in arguments)
    document = with_further(rendered.config, source.config, extras)
    if has_tensor_ranks(document):
        document = document.without(keys.TRAIN_BATCH_SIZE)
    if candidate.layout.global_batch != today:
        document = with_length_of_trainer(document)
    return replace(rendered, config=document, before=None)


def with_length_of_trainer(document: RawConfig) -> RawConfig:
    """The document with values for Trainer to count itself, for a training of another length."""
    for path in _OF_THE_LENGTH:
        if path in document:
            document = document.with_value(path, _AUTO)
    return document


def with_file_workload(workload: Workload, document: RawConfig) -> Workload:
    """The workload of the arguments, unless the file states another."""
    own = document_workload(document)
    precision = workload.precision if own.precision is Precision.FP32 else own.precision
    optimizer = own.optimizer if own.optimizer.name else workload.optimizer
    return replace(workload, optimizer=optimizer, precision=precision)


def _argument_conflicts(source: ScriptSource) -> tuple[str, ...]:
    said = []
    for path, flag in (
        (keys.MICRO_BATCH, BATCH_FLAG),
        (keys.ACCUMULATION, STEPS_FLAG),
    ):
        held = first_of_list(source.config, path).get(path)
        given = find_argument(source.script_args, (flag,))
        if given and type(held) is int and given.value != str(held):
            said.append(
                f"{dotted_name(path)} is {held} in the DeepSpeed configuration and {flag} is "
                f"{given.value}; {held} is used for both."
            )
    return tuple(said)
