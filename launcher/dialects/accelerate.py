"""The dialect ``accelerate``: scripts around ``accelerate.Accelerator``. Not: HF Trainer scripts.

Accelerate takes everything that ``accelerate launch`` is told from variables, so that candidates
are variables; the micro-batch is an argument of the script.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autoconf_launch.autotuner.cost.facts import TrainingFacts
from autoconf_launch.autotuner.knobs import LayoutValue
from autoconf_launch.core import ConfigError, Precision, Recompute

from .any_script import batch_rows, taken
from .base import Rendered, TrialNeeds
from .own_asides import with_own_asides
from .script_facts import facts_of
from .script_source_facts import ScriptSource
from .sheet import Sheet, Variable, scalar
from .spelling import Spelled, Spelling, spelled
from .spellings import accelerate as names
from .table_dialect import Reading, TableDialect
from .versions import Version, check_version, installed

_PRECISIONS = {"bf16": Precision.BF16, "fp16": Precision.FP16}


@dataclass(frozen=True, slots=True)
class ShardingWords:
    """FSDP's or DeepSpeed's variables as a stage of ZeRO; ``versioned``: FSDP 2 is there."""

    versioned: bool
    free: tuple[LayoutValue, ...] = (0, 2, 3)
    knob: str = "zero_stage"

    def names(self) -> tuple[str, ...]:
        """See Spelled."""
        return (names.USE_FSDP, names.STRATEGY, names.RESHARD, names.DEEPSPEED_STAGE, self.knob)

    def read(self, sheet: Sheet) -> LayoutValue:
        """See Spelled."""
        if _is_on(sheet, names.USE_DEEPSPEED):
            return self.value_of(scalar(sheet.variable(names.DEEPSPEED_STAGE) or 2))
        if not _is_on(sheet, names.USE_FSDP):
            return 0
        reshard = sheet.variable(names.RESHARD)
        if sheet.variable(names.FSDP_VERSION) == "2":
            return 2 if str(reshard).lower() == "false" else 3
        return self.value_of(sheet.variable(names.STRATEGY) or reshard or "FULL_SHARD")

    def value_of(self, word: Any) -> LayoutValue:
        """See Spelled."""
        stage = word if type(word) is int else names.STAGES.get(str(word).upper())
        if stage not in (0, 1, 2, 3):
            known = ", ".join(names.STAGES)
            raise ConfigError(f"{names.STRATEGY} is {word!r}, which is not known here; {known}.")
        return int(stage)

    def write(self, sheet: Sheet, value: LayoutValue) -> Sheet:
        """See Spelled."""
        if self.read(sheet) == value:
            return sheet
        if _is_on(sheet, names.USE_DEEPSPEED):
            return sheet.with_variable(names.DEEPSPEED_STAGE, str(value))
        if value == 0:
            return sheet.with_variable(names.USE_FSDP, "false")
        if value not in (2, 3):
            raise ConfigError(f"zero_stage is {value}, but FSDP has stages 2 and 3 alone.")
        sheet = sheet.with_variable(names.USE_FSDP, "true")
        for name, usual in names.FSDP_ALONE:
            if sheet.variable(name) is None:
                sheet = sheet.with_variable(name, usual)
        if not self.versioned or sheet.variable(names.FSDP_VERSION) == "1":
            word = "FULL_SHARD" if value == 3 else "SHARD_GRAD_OP"
            return sheet.with_variable(names.STRATEGY, word)
        sheet = sheet.with_variable(names.FSDP_VERSION, "2")
        return sheet.with_variable(names.RESHARD, "true" if value == 3 else "false")


class AccelerateDialect(TableDialect):
    """Scripts that make an Accelerator of their own."""

    name = "accelerate"
    checks = ("micro_batch", "accumulation", "zero_stage")

    def detects(self, source: ScriptSource) -> bool:
        """It imports accelerate and calls Accelerator."""
        facts = facts_of(source.text)
        return facts.imports("accelerate") and "Accelerator" in facts.called

    def table(self, source: ScriptSource, ranks: int) -> tuple[Spelled, ...]:
        """See TableDialect."""
        version = installed(source, names.KNOWN.package) or names.KNOWN.newest
        rows: list[Spelled] = list(batch_rows(source, ranks))
        accumulation = _accumulation(source)
        if accumulation and (_is_set(source, names.ACCUMULATION) or not _has_own(rows)):
            rows = [row for row in rows if row.knob != "accumulation"]
            rows.append(accumulation)
        free = (0, 2, 3) if ranks > 1 else ()
        rows.append(ShardingWords(versioned=version >= names.FSDP_VERSION_SINCE, free=free))
        return (*rows, *_memory_rows(source, version))

    def facts(self, reading: Reading) -> TrainingFacts:
        """See TableDialect."""
        given = str(reading.sheet.variable(names.PRECISION)).lower()
        return TrainingFacts(precision=_PRECISIONS.get(given, Precision.FP32))

    def in_trial(self, rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
        """See own_asides; the probe keeps what is saved in the trial's folder."""
        return with_own_asides(super().in_trial(rendered, source, needs), source, needs)

    def remarks(self, reading: Reading) -> tuple[str, ...]:
        """See TableDialect."""
        return (*check_version(reading.source, names.KNOWN), *taken(reading))


def _is_on(sheet: Sheet, name: str) -> bool:
    return str(sheet.variable(name)).lower() in ("true", "1")


def _is_set(source: ScriptSource, name: str) -> bool:
    return name in dict(source.environment)


def _has_own(rows: list[Spelled]) -> bool:
    return spelled(rows, "accumulation") is not None


def _accumulation(source: ScriptSource) -> Spelling | None:
    """The variable outweighs the script's number, but only ``accumulate`` acts on it."""
    facts = facts_of(source.text)
    if source.text and "accumulate" not in facts.called:
        return None
    keyword = facts.keyword("Accelerator", "gradient_accumulation_steps")
    default = keyword.value if keyword else 1
    return Spelling(
        knob="accumulation",
        places=(Variable(names.ACCUMULATION),),
        default=default if type(default) is int else 1,
    )


def _memory_rows(source: ScriptSource, version: Version) -> tuple[Spelling, ...]:
    rows = []
    if version >= names.RECOMPUTE_SINCE and _is_set(source, names.RECOMPUTE):
        words = (("false", Recompute.NONE), ("true", Recompute.FULL))
        places = (Variable(names.RECOMPUTE),)
        rows.append(Spelling(knob="recompute", places=places, words=words))
    if version >= names.PARALLELISM_SINCE and _is_set(source, names.USE_PARALLELISM):
        rows += [
            Spelling(knob=knob, places=(Variable(name),), default=1)
            for knob, name in names.DEGREES.items()
        ]
    return tuple(rows)
