"""The dialect ``lightning``: Trainer settings through LightningCLI or variables. Not: Fabric."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import yaml

from autoconf_launch.core import RawConfig

from .any_script import batch_rows, taken
from .arguments import find_argument, put_argument
from .base import Rendered, TrialNeeds
from .script_facts import LIGHTNING_PACKAGES, facts_of
from .script_source_facts import NamedFile, ScriptSource
from .sheet import Argument, Key, Place, Sheet, Variable
from .spelling import Spelled, Spelling
from .spellings import lightning as names
from .table_dialect import Reading, TableDialect
from .versions import check_version

_SUFFIXES = (".yaml", ".yml", ".json")


class LightningDialect(TableDialect):
    """Scripts that train with ``lightning.Trainer``."""

    name = "lightning"
    checks = ("micro_batch", "accumulation", "zero_stage")

    def detects(self, source: ScriptSource) -> bool:
        """It imports lightning and makes a Trainer or a LightningCLI."""
        facts = facts_of(source.text)
        makes = bool({"Trainer", "LightningCLI"} & facts.called)
        return facts.imports(*LIGHTNING_PACKAGES) and makes

    def table(self, source: ScriptSource, ranks: int) -> tuple[Spelled, ...]:
        """See TableDialect."""
        own = {row.knob: row for row in batch_rows(source, ranks)}
        rows: list[Spelled] = []
        micro = own.get("micro_batch")
        if is_cli(source):
            known = micro if isinstance(micro, Spelling) else None
            named = known.places if known else (Argument(("--data.batch_size",)),)
            default = known.default if known else None
            places = (*named, *map(Key, names.DATA_KEYS))
            micro = Spelling(knob="micro_batch", places=places, default=default, overrides=True)
        if micro:
            rows.append(micro)
        accumulation = _setting(source, names.ACCUMULATION)
        if accumulation:
            rows.append(replace(accumulation, knob="accumulation", default=1))
        elif "accumulation" in own:
            rows.append(own["accumulation"])
        strategy = _setting(source, names.STRATEGY)
        if strategy:
            free = (0, 3) if ranks > 1 else ()
            words = names.STAGES
            rows.append(replace(strategy, knob="zero_stage", words=words, default=0, free=free))
        return tuple(rows)

    def sheet(self, source: ScriptSource) -> Sheet:
        """See TableDialect."""
        document: dict[str, Any] = {}
        for file in source.files:
            if _is_config(file) and isinstance(read := yaml.safe_load(file.text), dict):
                document |= read
        return Sheet(
            arguments=source.script_args,
            environment=source.environment,
            document=RawConfig(document.get("fit", document)),
        )

    def remarks(self, reading: Reading) -> tuple[str, ...]:
        """See TableDialect."""
        return (*check_version(reading.source, names.KNOWN), *taken(reading, ("micro_batch",)))

    def in_trial(self, rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
        """No logger and no checkpoint unless a callback needs one; all in the trial's folder.

        Lightning saves after an evaluation, or else after an epoch: a soak moves the one or
        shortens the other.
        """
        rendered = super().in_trial(rendered, source, needs)
        called = facts_of(source.text).called
        settings = {"max_steps": str(needs.steps + 1), "num_sanity_val_steps": "0"}
        settings["default_root_dir"] = needs.output
        if not called & set(names.MONITORS):
            settings["logger"] = "False"
        if not needs.saves and not called & set(names.CHECKPOINTERS):
            settings["enable_checkpointing"] = "False"
        if needs.evaluates and _validates(source):
            settings |= _where_free(source, names.EVALUATION, needs.evaluate_after, needs)
        elif needs.saves:
            settings |= _where_free(source, names.EPOCH, needs.save_after, needs)
        for name, value in settings.items():
            rendered = _with_setting(rendered, source, name, value)
        return rendered


def is_cli(source: ScriptSource) -> bool:
    """Whether a LightningCLI reads the arguments."""
    given = any(argument.startswith(names.CLI) for argument in source.script_args)
    return given or "LightningCLI" in facts_of(source.text).called


def _validates(source: ScriptSource) -> bool:
    """Whether its text, or that of its modules, has a validation."""
    return any(names.VALIDATES in text for text in (source.text, *source.modules))


def _where_free(
    source: ScriptSource, settings: tuple[str, str, str], after: int, needs: TrialNeeds
) -> dict[str, str]:
    """Two settings that belong together, unless the script's call decides any of them.

    Args:
        source: of the script.
        settings: the one that counts batches; another with its value.
        after: an optimizer step.
        needs: what the launch asks for.
    """
    every, other, value = settings
    facts = facts_of(source.text)
    said = any(facts.keyword("Trainer", name) is not None for name in (every, other))
    if not is_cli(source) and (said or "Trainer" in facts.spread):
        return {}
    return {every: str(after * needs.accumulation), other: value}


def _is_config(file: NamedFile) -> bool:
    return file.flag in ("--config", "-c") and file.path.endswith(_SUFFIXES)


def _setting(source: ScriptSource, name: str) -> Spelling | None:
    """Where a Trainer setting can be given; None where the script's own call decides it."""
    if is_cli(source):
        places: tuple[Place, ...] = (Argument((names.CLI + name,)), Key(("trainer", name)))
        return Spelling(knob=name, places=places, overrides=True)
    if facts_of(source.text).keyword("Trainer", name) is not None:
        return None
    return Spelling(knob=name, places=(Variable(names.VARIABLE + name.upper()),))


def _with_setting(rendered: Rendered, source: ScriptSource, name: str, value: str) -> Rendered:
    if is_cli(source):
        flag = names.CLI + name
        given = find_argument(rendered.script_args, (flag,))
        word = names.CLI_WORDS.get(value, value)
        arguments = put_argument(rendered.script_args, given, flag, word)
        return replace(rendered, script_args=arguments)
    if facts_of(source.text).keyword("Trainer", name) is not None:
        return rendered
    pair = (names.VARIABLE + name.upper(), value)
    return replace(rendered, environment=(*rendered.environment, pair))
