"""The dialect ``hf_trainer``: scripts around ``transformers.Trainer``.

Its arguments are on the command line or in one JSON or YAML file that replaces it; with
``--deepspeed FILE`` the ZeRO stage is in that file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from autoconf_launch.autotuner.space import LayoutValue
from autoconf_launch.core import (
    Candidate,
    ConfigError,
    Optimizer,
    Precision,
    RawConfig,
    Recompute,
    Workload,
)
from autoconf_launch.core import config_keys as keys

from ..config_file import parse_yaml
from ..script import ScriptSource
from ..spelling import (
    GLOBAL_BATCH,
    SWITCHED,
    Argument,
    Key,
    LaunchInputs,
    Place,
    Reading,
    Rendered,
    RenderedFile,
    Spelled,
    Spelling,
    TableDialect,
    TrialNeeds,
    UserSettings,
    Version,
    bare,
    find_argument,
    held_place,
    held_value,
    installed_version,
    scalar,
    set_argument,
    version_text,
    with_path_argument,
    without_arguments,
)
from . import hf_deepspeed as names
from .deepspeed import without_monitors
from .deepspeed_keys import model_ranks
from .hf_deepspeed import (
    has_deepspeed_file,
    trainer_batch_rows,
    trainer_document,
    with_document_lists,
    with_file_choices,
    with_file_values,
    with_file_workload,
    with_length_of_trainer,
)

Setting: TypeAlias = tuple[str, str]
"""An argument and its value."""
_PARSERS = frozenset({"HfArgumentParser", "TrlParser"})
"""Parsers that make TrainingArguments of the command line."""
_PARSE_FILES = frozenset({"parse_yaml_file", "parse_json_file", "parse_dict"})
_OF_A_FILE = ("output_dir", "per_device_train_batch_size")
"""Names that distinguish a file of arguments from a data file."""
_TRAINS = ("TrainingArguments", "Trainer")
_MADE = frozenset({"TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "DPOConfig"})
_SUFFIXES = (".json", ".yaml", ".yml")
_ARGUMENTS = "arguments"
"""Name of a trial's file if the user's arguments are in one."""


def aside_settings(
    source: ScriptSource,
    needs: TrialNeeds,
    version: Version,
    given: Callable[[str], object],
) -> tuple[Setting, ...]:
    """Settings of evaluation, saving and reporting in a trial: off, or once within its steps.

    ``given`` returns the user's value of an argument; None if they set none.
    """
    settings = dict(_of_version(names.IN_TRIALS, version))
    if needs.evaluates and _evaluates(source, given):
        after = str(needs.evaluate_after)
        flag = "--eval_strategy" if "--eval_strategy" in settings else "--evaluation_strategy"
        settings |= {flag: "steps", "--eval_steps": after, "--eval_delay": "0"}
    if needs.saves and _word(given("--save_strategy")) != "no":
        settings |= {"--save_strategy": "steps", "--save_steps": str(needs.save_after)}
    return tuple(settings.items())


def _of_version(
    table: Iterable[tuple[str, str, Version, Version]], version: Version
) -> tuple[Setting, ...]:
    return tuple((flag, value) for flag, value, since, until in table if since <= version < until)


def _evaluates(source: ScriptSource, given: Callable[[str], object]) -> bool:
    """True if it evaluates during training, or at the end with the trainer's dataset."""
    strategies = [given(flag) for flag in names.EVALUATION_FLAGS]
    if any(word is not None and _word(word) != "no" for word in strategies):
        return True
    afterwards = scalar(given("--do_eval")) is True
    return afterwards and any(
        keyword.name == "eval_dataset" and keyword.call.endswith("Trainer")
        for keyword in source.facts.keywords
    )


def _word(value: object) -> str:
    """YAML reads a bare ``no`` as false."""
    return "no" if value is False else str(value).lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class FsdpWords(Spelled):
    """``--fsdp`` as a ZeRO stage; words other than the strategy stay."""

    knob: str = "zero_stage"
    called: tuple[str, ...] = (names.FSDP,)

    def read(self, inputs: LaunchInputs) -> LayoutValue:
        return self.value_of(held_value(self.places, inputs, ""))

    def value_of(self, word: Any) -> LayoutValue:
        if type(word) is int and word in (0, 2, 3):
            return word
        words = str(word).lower().split()
        if words in ([], ["false"]):
            return 0
        stages = [names.FSDP_STAGES[word] for word in words if word in names.FSDP_STAGES]
        if len(stages) != 1:
            known = ", ".join(names.FSDP_STAGES)
            raise ConfigError(f"--fsdp is {word!r}, but must name one of {known} to be tuned.")
        return stages[0]

    def put(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        place = held_place(self.places, inputs)
        if value == 0:
            return place.drop(inputs)
        strategies = {stage: word for word, stage in reversed(names.FSDP_STAGES.items())}
        if value not in strategies:
            raise ConfigError(f"--fsdp supports ZeRO stages 2 and 3 only, got {value}.")
        kept = [w for w in str(place.get(inputs) or "").split() if w not in names.FSDP_STAGES]
        words = (strategies[value], *(kept or [names.FSDP_WRAP]))  # type: ignore[index]
        return place.put(inputs, " ".join(words))


class HfTrainerDialect(TableDialect):
    """Hugging Face Trainer scripts."""

    name, framework = "hf_trainer", names.VERSIONS
    checks = ("micro_batch", "accumulation", "zero_stage", "recompute")

    def detects(self, source: ScriptSource) -> bool:
        facts = source.facts
        names_ = {name.rpartition(".")[2] for name in facts.imported} | facts.called
        trains = facts.imports("trl") or any(name.endswith(_TRAINS) for name in names_)
        return bool(_PARSERS & names_) and trains

    def table(self, source: ScriptSource, ranks: int) -> tuple[Spelled, ...]:
        _refuse_of_other_versions(source)
        micro = _either(source, names.BATCH_FLAG)
        accumulation = _either(source, names.STEPS_FLAG)
        return (
            *trainer_batch_rows(source, micro, accumulation),
            Spelling(knob=GLOBAL_BATCH, places=(Key(keys.TRAIN_BATCH_SIZE),)),
            Spelling(
                knob="recompute",
                places=_either(source, *names.RECOMPUTE_FLAGS, switch=True),
                words=SWITCHED,
                default=Recompute.NONE,
                free=(Recompute.NONE, Recompute.FULL),
            ),
            _stage_row(source, ranks),
        )

    def places(
        self, source: ScriptSource, setting: str, *, switch: bool = False
    ) -> tuple[Place, ...]:
        return _either(source, setting, switch=switch)

    def read(self, source: ScriptSource, *, world_size: int) -> UserSettings:
        listed = with_document_lists(source)
        if has_deepspeed_file(source):
            model_ranks(listed.config, world_size=world_size)
        user = super().read(listed, world_size=world_size)
        return with_file_choices(user, listed) if has_deepspeed_file(source) else user

    def render(self, candidate: Candidate, source: ScriptSource, config_path: str) -> Rendered:
        listed = with_document_lists(source)
        rendered = super().render(candidate, listed, config_path)
        if not has_deepspeed_file(source):
            return rendered
        today = self.read(source, world_size=candidate.layout.world_size).baseline.layout
        return with_file_values(rendered, candidate, listed, today.global_batch)

    def inputs(self, source: ScriptSource) -> LaunchInputs:
        file = arguments_file(source)
        document = RawConfig(_parse_yaml(file.text, file.path)) if file else source.config
        if has_deepspeed_file(source):
            document = trainer_document(document)
        return LaunchInputs(
            arguments=source.script_args, environment=source.environment, document=document
        )

    def as_config(self, reading: Reading, inputs: LaunchInputs) -> RawConfig:
        if reading.source.config_argument is None and not arguments_file(reading.source):
            return super().as_config(reading, inputs)
        return inputs.document.without(keys.AUTOTUNING)

    def files(
        self, source: ScriptSource, inputs: LaunchInputs, config_path: str
    ) -> tuple[LaunchInputs, tuple[RenderedFile, ...]]:
        file = arguments_file(source)
        if file is None:
            arguments = with_path_argument(inputs.arguments, source.config_argument, config_path)
            return replace(inputs, arguments=arguments), ()
        name = f"{_ARGUMENTS}{_suffix(file.path)}"
        path = f"{config_path.rpartition('/')[0] or '.'}/{name}"
        arguments = with_path_argument(inputs.arguments, file.position, path)
        text = inputs.document.to_json() + "\n"  # JSON is YAML, too
        return replace(inputs, arguments=arguments), (RenderedFile(name=name, text=text),)

    def workload(self, reading: Reading) -> Workload:
        precision = Precision.FP32
        for flag, kind in (("--fp16", Precision.FP16), ("--bf16", Precision.BF16)):
            if scalar(held_value(_either(reading.source, flag), reading.inputs)) is True:
                precision = kind
        optim = held_value(_either(reading.source, "--optim"), reading.inputs) or "adamw"
        family = "AdamW" if str(optim).startswith("adamw") else str(optim)
        workload = Workload(optimizer=Optimizer.from_name(family), precision=precision)
        return with_file_workload(workload, reading.inputs.document)

    def in_trial(self, rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
        """No tracker or resuming; all output, checkpoints too, goes below the trial's folder."""
        rendered = super().in_trial(rendered, source, needs)
        version = installed_version(source, names.VERSIONS.package) or names.VERSIONS.newest
        inputs = self.inputs(source)

        def user_value(flag: str) -> object:
            return held_value(_either(source, flag), inputs)

        edits = (
            *aside_settings(source, needs, version, user_value),
            ("--max_steps", str(needs.steps + 1)),
            ("--output_dir", needs.output),
        )
        for flag, value in edits:
            rendered = _with_setting(rendered, flag, value)
        if has_deepspeed_file(source):
            document = with_length_of_trainer(without_monitors(rendered.config))
            rendered = replace(rendered, config=document)
        older = tuple(flag for flag in names.EVALUATION_FLAGS if flag not in dict(edits))
        return _without_settings(rendered, (*names.NOT_IN_TRIALS, *older))


def on_arguments_in_source(source: ScriptSource) -> str | None:
    """A sentence if a script makes its TrainingArguments itself; else None."""
    facts = source.facts
    if not facts.imports("transformers", "trl") or not facts.called & _MADE:
        return None
    return (
        "The script makes its TrainingArguments itself, and no argument of it sets the batch. Let "
        "HfArgumentParser make them or read the number from an argument (--arg "
        "train_micro_batch_size_per_gpu=--NAME), or have the batch of its DataLoaders changed: "
        "--dialect dataloader --allow-global-batch-change "
        "--knob 'train_micro_batch_size_per_gpu=[8, 16]'."
    )


def arguments_file(source: ScriptSource) -> Any:
    """The file with all arguments, as HfArgumentParser and trl's parser take it."""
    has_flags = any(word.startswith("-") for word in source.script_args)
    parses = not _PARSE_FILES.isdisjoint(source.facts.called)
    for file in source.files:
        if file.position is None or _suffix(file.path) not in _SUFFIXES:
            continue
        is_parsed = parses and any(name in file.text for name in _OF_A_FILE)
        if file.flag == "--config" or is_parsed or not (file.flag or has_flags):
            return file
    return None


def _with_setting(rendered: Rendered, flag: str, value: str) -> Rendered:
    if rendered.files:
        (file,) = rendered.files
        document = {**json.loads(file.text), flag.lstrip("-"): scalar(value)}
        text = json.dumps(document, indent=2) + "\n"
        rendered = replace(rendered, files=(replace(file, text=text),))
    is_given = find_argument(rendered.script_args, (flag,)) is not None
    if not is_given and (rendered.files or value == "false"):
        return rendered
    return replace(rendered, script_args=set_argument(rendered.script_args, flag, value))


def _without_settings(rendered: Rendered, flags: tuple[str, ...]) -> Rendered:
    arguments = without_arguments(rendered.script_args, flags)
    rendered = replace(rendered, script_args=arguments)
    if not rendered.files:
        return rendered
    (file,) = rendered.files
    dropped = {flag.lstrip("-") for flag in flags}
    kept = {key: held for key, held in json.loads(file.text).items() if key not in dropped}
    return replace(rendered, files=(replace(file, text=json.dumps(kept, indent=2) + "\n"),))


def _either(source: ScriptSource, *flags: str, switch: bool = False) -> tuple[Place, ...]:
    file = arguments_file(source)
    is_given = find_argument(source.script_args, flags, switch=switch) is not None
    takes_flags = file is None or bool(file.flag) or is_given
    argument = (Argument(flags, switch=switch),) if takes_flags else ()
    return (*argument, *(Key((flag.lstrip("-"),)) for flag in flags if file))


def _stage_row(source: ScriptSource, ranks: int) -> Spelled:
    if source.config_argument is not None:
        return Spelling(knob="zero_stage", places=(Key(keys.ZERO_STAGE),), default=0)
    return FsdpWords(places=_either(source, names.FSDP), free=(0, 2, 3) if ranks > 1 else ())


def _refuse_of_other_versions(source: ScriptSource) -> None:
    """Raise ConfigError for an argument that the installed version lacks."""
    version = installed_version(source, names.VERSIONS.package)
    if version is None:
        return
    listed = {bare(knob.name) for knob in source.words.knobs}
    problem = f"is not an argument of transformers {dict(source.versions)['transformers']}"
    for flag, gone_in, now in names.RENAMED:
        if version >= gone_in and find_argument(source.script_args, (flag,)):
            raise ConfigError(f"{flag} {problem} (gone in {version_text(gone_in)}); {now}.")
    for flag, since in names.ADDED:
        is_asked = bare(flag) in listed or find_argument(source.script_args, (flag,))
        if version < since and is_asked:
            raise ConfigError(f"{flag} {problem}; it came in {version_text(since)}.")


def _suffix(path: str) -> str:
    return f".{path.rpartition('.')[2].lower()}" if "." in path else ""


def _parse_yaml(text: str, name: str) -> dict[str, Any]:
    document = parse_yaml(text, name)
    return document if isinstance(document, dict) else {}
