"""Trainer arguments of Lightning 2, as LightningCLI and variables spell them.

Checked against ``pytorch/trainer/trainer.py``, ``pytorch/strategies`` and
``pytorch/utilities/argparse.py`` of lightning 2.0.9, 2.1.4 and 2.6.6 (PyPI).
"""

from __future__ import annotations

from dataclasses import replace

from autoconf_launch.core import KeyPath

from ..script import LIGHTNING_PACKAGES, ScriptSource
from ..spelling import (
    Argument,
    FrameworkFacts,
    Key,
    Place,
    Reading,
    Rendered,
    Spelled,
    Spelling,
    TableDialect,
    TrialNeeds,
    Variable,
    document_values,
    find_argument,
    put_argument,
)
from .any_script import batch_rows, recognition_notes

CLI = "--trainer."
_VARIABLE = "PL_TRAINER_"
"""A Trainer takes settings that its call omits from variables with this prefix, in capitals."""
_ACCUMULATION = "accumulate_grad_batches"
_STRATEGY = "strategy"
_STAGES: tuple[tuple[str, int], ...] = (
    ("auto", 0),
    ("ddp", 0),
    ("fsdp", 3),
    ("deepspeed_stage_1", 1),
    ("deepspeed_stage_2", 2),
    ("deepspeed_stage_3", 3),
    ("single_device", 0),
    ("ddp_find_unused_parameters_true", 0),
    ("ddp_find_unused_parameters_false", 0),
    ("ddp_spawn", 0),
    ("fsdp_cpu_offload", 3),
    ("deepspeed", 2),
    ("deepspeed_stage_1_offload", 1),
    ("deepspeed_stage_2_offload", 2),
    ("deepspeed_stage_3_offload", 3),
)
"""Names of strategies; the first name of a stage is written."""
DATA_KEYS = (
    ("data", "batch_size"),
    ("data", "init_args", "batch_size"),
    ("model", "batch_size"),
    ("model", "init_args", "batch_size"),
)
MONITORS = ("LearningRateMonitor", "DeviceStatsMonitor")
"""Callbacks that refuse a Trainer without a logger."""
CHECKPOINTERS = ("ModelCheckpoint",)
"""Callbacks that refuse a Trainer that saves nothing."""
_PRECISION = "precision"
VALIDATES = "validation_step"
_EVALUATION = ("val_check_interval", "check_val_every_n_epoch", "None")
"""Batches between two evaluations, counted across epochs if the second setting is None."""
EPOCH = ("limit_train_batches", "max_epochs", "-1")
"""Batches of an epoch, with as many epochs as the steps need."""
CLI_WORDS = {"False": "false", "True": "true", "None": "null"}
"""Python's words in variables as YAML's words, which a LightningCLI reads."""


class LightningDialect(TableDialect):
    """Scripts that train with ``lightning.Trainer``."""

    name = "lightning"
    framework = FrameworkFacts(
        package="lightning",
        oldest=(2, 0),
        newest=(2, 6),
        readers=LIGHTNING_PACKAGES,
        variables=(_VARIABLE,),
    )
    checks = ("micro_batch", "accumulation", "zero_stage")

    def detects(self, source: ScriptSource) -> bool:
        makes = bool({"Trainer", "LightningCLI"} & source.called)
        packages = {target.partition(".")[0] for target in source.targets}
        return makes and (
            source.facts.imports(*LIGHTNING_PACKAGES) or bool(packages & {*LIGHTNING_PACKAGES})
        )

    def table(self, source: ScriptSource, ranks: int) -> tuple[Spelled, ...]:
        told = replace(source, files=()) if is_cli(source) else source  # whose flags outweigh them
        own = {row.knob: row for row in batch_rows(told, ranks)}
        rows: list[Spelled] = []
        micro = own.get("micro_batch")
        if is_cli(source):
            known = micro if isinstance(micro, Spelling) else None
            named = known.places if known else (Argument(("--data.batch_size",)),)
            default = known.default if known else None
            places = (*named, *_keys(*DATA_KEYS))
            micro = Spelling(knob="micro_batch", places=places, default=default, overrides=True)
        if micro:
            rows.append(micro)
        accumulation = _setting(source, _ACCUMULATION)
        if "accumulation" in own and (
            accumulation is None or isinstance(accumulation.places[0], Variable)
        ):
            rows.append(own["accumulation"])
        elif accumulation:
            rows.append(
                replace(accumulation, knob="accumulation", default=accumulation.default or 1)
            )
        strategy = _setting(source, _STRATEGY)
        if strategy:
            free = (0, 3) if ranks > 1 else ()
            words = _STAGES
            rows.append(replace(strategy, knob="zero_stage", words=words, default=0, free=free))
        return tuple(rows)

    def detections(self, reading: Reading) -> tuple[str, ...]:
        return recognition_notes(reading)

    def in_trial(self, rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
        """No logger and no checkpoint unless a callback needs one; all in the trial's folder.

        Lightning saves after an evaluation, or else after an epoch: a verification run moves the
        first or shortens the second.
        """
        rendered = super().in_trial(rendered, source, needs)
        called = source.called
        settings = {"max_steps": str(needs.steps + 1), "num_sanity_val_steps": "0"}
        settings["default_root_dir"] = needs.output
        if not called & set(MONITORS):
            settings["logger"] = "False"
        if not needs.saves and not called & set(CHECKPOINTERS):
            settings["enable_checkpointing"] = "False"
        if needs.evaluates and any(VALIDATES in text for text in (source.text, *source.modules)):
            settings |= _where_free(source, _EVALUATION, needs.evaluate_after, needs)
        elif needs.saves:
            settings |= _where_free(source, EPOCH, needs.save_after, needs)
        for name, value in settings.items():
            rendered = _with_setting(rendered, source, name, value)
        return rendered


def is_cli(source: ScriptSource) -> bool:
    """True if a LightningCLI reads the arguments."""
    given = any(argument.startswith(CLI) for argument in source.script_args)
    return given or "LightningCLI" in source.facts.called


def _where_free(
    source: ScriptSource, settings: tuple[str, str, str], after: int, needs: TrialNeeds
) -> dict[str, str]:
    """Two settings that belong together, unless the script's call decides any of them."""
    every, other, value = settings
    facts = source.facts
    said = any(_is_set(source, name) for name in (every, other))
    if not is_cli(source) and (said or "Trainer" in facts.spread):
        return {}
    return {every: str(after * needs.accumulation), other: value}


def _keys(*paths: KeyPath) -> tuple[Key, ...]:
    return tuple(Key(path) for path in (*paths, *(("fit", *path) for path in paths)))


def _setting(source: ScriptSource, name: str) -> Spelling | None:
    """The places of a Trainer setting; None if the script's own call decides it."""
    if is_cli(source):
        places: tuple[Place, ...] = (Argument((CLI + name,)), *_keys(("trainer", name)))
        return Spelling(knob=name, places=places, overrides=True)
    if (key := _composed_key(source, name)) is not None:
        return Spelling(knob=name, places=(Argument((key,)),), default=dict(source.composed)[key])
    if _is_set(source, name):
        return None
    if "Trainer" in source.facts.spread:
        paths = [path for path, _ in document_values(source).leaves() if path[-1:] == (name,)]
        if paths:
            return Spelling(knob=name, places=(Key(paths[-1]),))
    return Spelling(knob=name, places=(Variable(_VARIABLE + name.upper()),))


def _is_set(source: ScriptSource, name: str) -> bool:
    return source.facts.keyword("Trainer", name) is not None


def _composed_key(source: ScriptSource, name: str) -> str | None:
    """The key of hydra's configuration that gives Trainer a setting; None if there is none."""
    known = dict(source.composed)
    for key, value in source.composed:
        if key.endswith("._target_") and str(value).endswith(".Trainer"):
            setting = f"{key.removesuffix('_target_')}{name}"
            return setting if setting in known else None
    return None


def _with_setting(rendered: Rendered, source: ScriptSource, name: str, value: str) -> Rendered:
    if is_cli(source):
        flag = CLI + name
        given = find_argument(rendered.script_args, (flag,))
        word = CLI_WORDS.get(value, value)
        arguments = put_argument(rendered.script_args, given, flag, word)
        return replace(rendered, script_args=arguments)
    if (key := _composed_key(source, name)) is not None:
        given = find_argument(rendered.script_args, (key,))
        word = CLI_WORDS.get(value, value)
        return replace(rendered, script_args=put_argument(rendered.script_args, given, key, word))
    if _is_set(source, name):
        return rendered
    pair = (_VARIABLE + name.upper(), value)
    return replace(rendered, environment=(*rendered.environment, pair))
