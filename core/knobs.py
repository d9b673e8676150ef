"""The one registry of knobs: everything that a configuration can tune has one row here.

A knob is a field of ``Layout`` or an extra, which only some frameworks have. Documents, the JSON
Schema, shipped spaces, tables, names of candidates, predictions and the runtime read its row.
A new extra of our runtime is a row of ``EXTRAS`` and the module that applies it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from .errors import ConfigError, nearest_known, still_open
from .layout import KnobValue, Offload, Recompute
from .raw_config import KeyPath, RawConfig

LayoutValue: TypeAlias = bool | int | float | str | tuple[int, ...] | None
ZERO_STAGES = (0, 1, 2, 3)
FIRST_FSDP_STAGE = 2
"""The first ZeRO stage that FSDP2 trains; below it DDP does, if all parallelism is of data."""
PIPELINE_SCHEDULES = ("gpipe", "1f1b", "interleaved")
"""Orders of a pipeline's passes; the last one is for ranks with several stages."""
_ONE_SPLIT: dict[str, Any] = {"default": None, "interned": True}
OFFLOAD_EXTRAS = ("offload_optimizer.device", "offload_param.device")
"""Extras of a framework that place a part of the model's state; "none" is the GPU."""
_SHARD_COUNTS = ("shard_ranks", "reshard_after_forward")
_OF_DEEPSPEED = (
    ("reduce_bucket_size", "rbs"),
    ("allgather_bucket_size", "abs"),
    ("overlap_comm", "oc"),
    ("reduce_scatter", "rs"),
    ("contiguous_gradients", "cg"),
    ("allgather_partitions", "ap"),
    *zip(OFFLOAD_EXTRAS, ("oo", "op"), strict=True),
)
_COUNT_OR_ALL: dict[str, Any] = {"values": (True,), "least": 2, "default": True}


class Naming(Enum):
    """When a knob is part of a candidate's name."""

    ALWAYS = "always"
    UNLESS_DEFAULT = "unless default"
    NEVER = "never"
    """It follows from the other knobs and the number of ranks."""


@dataclass(frozen=True, slots=True)
class ForeignWords:
    """The setting of a framework that is a knob of ours.

    Attributes:
        dialect: name of the dialect that reads and writes it.
        setting: argument, variable or dotted key that has the value; empty if only a switch does.
        switch: setting that is ``words[1]`` for every value but the knob's default, for which it
            is ``words[0]``; empty without one.
        words: words of the switch.
        on: value that the switch means without the setting.
    """

    dialect: str
    setting: str
    switch: str = ""
    words: tuple[bool | str, bool | str] = (False, True)
    on: KnobValue = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """A tunable. Values are ordered: whole numbers by size, others as ``values`` lists them.

    Attributes:
        name: field of ``Layout``, or name of an extra.
        tag: its abbreviation in names of candidates.
        key: its dotted key in a document of our runtime; empty if only other dialects have it.
        meaning: its effect, for people.
        values: words and truth values that it takes, in order.
        least: smallest whole number that it takes; None: whole numbers only if ``values`` is None.
        default: value that an omitted key means, and that a name omits.
        naming: when it is part of a name.
        interned: values are tuples, which a table keeps once and refers to by number.
        opens_all: the key takes "all", which searches every degree.
        degree: key of the degree that must be above 1 for this knob to act.
        searched: values that ``"fast": false`` searches.
        stages: ZeRO stages that have it.
        needs_ranks: it cannot act on a single data-parallel rank.
        software: flag of ``Software`` that any value but the default sets, which is what the
            knob changes in predicted memory and time.
        applied_by: module with ``apply`` and ``look``, below the package; empty for a field of
            ``Layout`` or another framework's knob.
        elsewhere: spellings of an extra by other frameworks.
    """

    name: str
    tag: str
    key: str = ""
    meaning: str = ""
    values: tuple[LayoutValue, ...] | None = None
    least: int | None = None
    default: Any = 1
    naming: Naming = Naming.UNLESS_DEFAULT
    interned: bool = False
    opens_all: bool = False
    degree: str = ""
    searched: tuple[KnobValue, ...] = ()
    stages: tuple[int, ...] = ZERO_STAGES
    needs_ranks: bool = False
    software: str = ""
    applied_by: str = ""
    elsewhere: tuple[ForeignWords, ...] = ()

    @property
    def path(self) -> KeyPath:
        """The key's place in a document."""
        return tuple(self.key.split("."))

    @property
    def is_number(self) -> bool:
        """True if its values are whole numbers, which a table keeps as they are."""
        return not self.interned and all(type(value) is int for value in self.values or ())

    def read(self, value: object) -> KnobValue:
        """An extra's value from a document.

        Raises:
            ConfigError: the knob cannot have this value.
        """
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        for known in self.values or ():
            if value == known and type(value) is type(known):
                return known  # type: ignore[return-value]
        if type(value) is int and self.least is not None and value >= self.least:
            return value
        domain = [str(known).lower() for known in self.values or ()]
        if self.least is not None:
            domain.append(f"a whole number of at least {self.least}")
        raise ConfigError(f"{self.key} is {value!r}, but must be {' or '.join(domain)}.")

    @property
    def needs_replicas(self) -> bool:
        """True if the knob belongs to DDP or its sharded optimizer, which need whole copies."""
        return max(self.stages) < FIRST_FSDP_STAGE

    def obstacle(
        self,
        *,
        zero_stage: int,
        data_parallel: int,
        value: KnobValue = None,
        model_ranks: int | None = None,
    ) -> str | None:
        """The reason why an extra cannot be applied there, as a phrase; None if it can.

        ``model_ranks`` have a part of the weights each; None: not known yet.
        """
        if zero_stage not in self.stages:
            has = " and ".join(map(str, self.stages))
            plural = "s" if len(self.stages) > 1 else ""
            return f"only ZeRO stage{plural} {has} can apply it, not stage {zero_stage}"
        if self.needs_replicas and (model_ranks or 1) > 1:
            return "DDP, which has it, does not train a model that several ranks share"
        if self.needs_ranks and data_parallel == 1:
            return "one data-parallel rank has no gradients to average"
        if self.name in _SHARD_COUNTS and type(value) is int:
            if zero_stage < FIRST_FSDP_STAGE and model_ranks == 1:
                return "ZeRO 1 of whole copies shards the optimizer over all ranks"
            if not 1 < value < data_parallel or data_parallel % value:
                all_ranks = f"the {data_parallel} data-parallel ranks that shard"
                return f"{value} must divide {all_ranks} and be less than them"
        return None


def _degree(name: str, tag: str, meaning: str) -> Knob:
    key = f"parallelism.{name.removesuffix('_parallel')}"
    every = '"all": every degree is searched'
    return Knob(name=name, tag=tag, key=key, meaning=f"{meaning}; {every}", opens_all=True)


def _in_zero(name: str, tag: str, meaning: str, module: str, **rest: Any) -> Knob:
    """An extra of our runtime in the section of ZeRO."""
    key, applied_by = f"zero_optimization.{name}", f"runtime.parallel.{module}"
    return Knob(name=name, tag=tag, key=key, meaning=meaning, applied_by=applied_by, **rest)


_PIPELINE, _BOTH = "parallelism.pipeline", (True, False)
KNOBS: tuple[Knob, ...] = (
    Knob(
        name="zero_stage",
        tag="z",
        key="zero_optimization.stage",
        meaning='ZeRO stage; omitted or "all": stages 0 to 3 are searched',
        values=ZERO_STAGES,
        default=0,
        naming=Naming.ALWAYS,
        opens_all=True,
        searched=ZERO_STAGES,
    ),
    Knob(
        name="data_parallel",
        tag="dp",
        key="parallelism.data",
        meaning="data-parallel ranks; follows from the others",
        naming=Naming.NEVER,
    ),
    _degree("tensor_parallel", "tp", "ranks that share out the products of one model copy"),
    _degree("pipeline_parallel", "pp", "ranks that have a part of the blocks each"),
    Knob(
        name="virtual_pipeline",
        tag="vp",
        key="parallelism.virtual_pipeline",
        meaning="pipeline stages of each rank",
        degree=_PIPELINE,
        searched=(1, 2),
    ),
    _degree("context_parallel", "cp", "ranks that share out the tokens of each sample"),
    _degree("expert_parallel", "ep", "data-parallel ranks that share out the experts"),
    Knob(
        name="sequence_parallel",
        tag="sp",
        key="parallelism.sequence_parallel",
        meaning="whether tensor ranks split norms and dropout along the sequence",
        values=(False, True),
        default=False,
        degree="parallelism.tensor",
        searched=(False, True),
    ),
    Knob(
        name="recompute",
        tag="ac",
        key="activation_checkpointing.mode",
        meaning="which activations are computed again in the backward pass",
        values=tuple(Recompute),
        default=Recompute.NONE,
    ),
    Knob(name="offload", tag="off", values=tuple(Offload), default=Offload.NONE),
    Knob(name="placement", tag="place", **_ONE_SPLIT),
    Knob(
        name="pipeline_split",
        tag="split",
        key="parallelism.pipeline_split",
        meaning="blocks of each pipeline stage; omitted: even",
        degree=_PIPELINE,
        **_ONE_SPLIT,
    ),
    Knob(
        name="micro_batch_split",
        tag="uneven",
        key="parallelism.micro_batch_split",
        meaning="micro-batch of each data-parallel rank; omitted: even",
        **_ONE_SPLIT,
    ),
    Knob(
        name="accumulation",
        tag="gas",
        key="gradient_accumulation_steps",
        meaning="forward passes of an optimizer step",
        naming=Naming.ALWAYS,
    ),
    Knob(
        name="micro_batch",
        tag="tmbspg",
        key="train_micro_batch_size_per_gpu",
        meaning="samples of one forward pass of a rank; the smallest to search from, or exactly "
        "the values of a list",
        naming=Naming.ALWAYS,
    ),
)
"""Fields of ``Layout`` in the order of names; extras come before the last two."""
LAYOUT_KNOBS = {knob.name: knob for knob in KNOBS}

EXTRAS: tuple[Knob, ...] = (
    Knob(
        name="pipeline_schedule",
        tag="sched",
        key="parallelism.pipeline_schedule",
        meaning="order of a pipeline's passes",
        values=PIPELINE_SCHEDULES,
        default=None,
        degree=_PIPELINE,
        searched=("1f1b", "gpipe"),
    ),
    *(Knob(name=name, tag=tag) for name, tag in _OF_DEEPSPEED),
    Knob(
        name="compile_mode",
        tag="cm",
        key="compile_mode",
        meaning="mode of torch.compile for the repeated blocks, which a first step waits for",
        values=("off", "default", "max-autotune-no-cudagraphs"),
        default="off",
        software="compiled",
        applied_by="runtime.parallel.compiled",
        elsewhere=(
            ForeignWords("hf_trainer", "--torch_compile_mode", switch="--torch_compile"),
            ForeignWords(
                "accelerate",
                "ACCELERATE_DYNAMO_MODE",
                switch="ACCELERATE_DYNAMO_BACKEND",
                words=("NO", "INDUCTOR"),
            ),
            ForeignWords("torchtitan", "", switch="compile.enable"),
        ),
    ),
    _in_zero(
        "bucket_cap_mb",
        "bcm",
        "MiB of gradients that DDP averages at once",
        "replicate",
        least=1,
        default=25,
        stages=(0, 1),
        needs_ranks=True,
        searched=(5, 25, 100),
        elsewhere=(ForeignWords("hf_trainer", "--ddp_bucket_cap_mb"),),
    ),
    _in_zero(
        "gradient_as_bucket_view",
        "gbv",
        "gradients live in DDP's buckets",
        "replicate",
        values=_BOTH,
        default=True,
        stages=(0, 1),
        needs_ranks=True,
        searched=_BOTH,
    ),
    _in_zero(
        "parameters_as_bucket_view",
        "pbv",
        "ZeroRedundancyOptimizer sends weights by buckets",
        "replicate",
        values=_BOTH,
        default=False,
        stages=(1,),
        searched=(False, True),
    ),
    _in_zero(
        "blocks_per_unit",
        "bpu",
        "repeated blocks that FSDP2 gathers at once",
        "fully_shard",
        least=1,
        stages=(2, 3),
        searched=(1, 2, 4),
    ),
    _in_zero(
        "forward_prefetch",
        "fp",
        "units that FSDP2 gathers ahead in the forward pass",
        "fully_shard",
        least=0,
        default=0,
        stages=(2, 3),
        searched=(0, 1, 2),
    ),
    _in_zero(
        "shard_ranks",
        "sr",
        "weights are sharded over all ranks, or over so many and copied over the others",
        "fully_shard",
        stages=(1, 2, 3),
        **_COUNT_OR_ALL,
    ),
    _in_zero(
        "reshard_after_forward",
        "raf",
        "after its forward pass a unit's weights return to shards over all ranks, or so many",
        "fully_shard",
        stages=(3,),
        **_COUNT_OR_ALL,
    ),
    _in_zero(
        "reshard_root",
        "rr",
        "weights outside of blocks return to shards after the forward pass",
        "fully_shard",
        values=_BOTH,
        default=True,
        stages=(3,),
        searched=_BOTH,
    ),
    Knob(
        name="recompute_layers",
        tag="acl",
        key="activation_checkpointing.layers",
        meaning="blocks of each stage whose mode is full; all",
        default=None,
    ),
)
"""Extras in the order of names and tables; those that only other dialects have lack a key."""
RUNTIME_KNOBS = {knob.name: knob for knob in EXTRAS if knob.applied_by}
"""Extras of our runtime that follow one rule; schedule and recomputed layers have their own."""
SPELLED = {knob.name: knob for knob in (*KNOBS, *EXTRAS) if knob.key and not knob.applied_by}
"""The other knobs of our runtime's documents."""


def read_runtime_knobs(
    raw: RawConfig, *, zero_stage: int, data_parallel: int, model_ranks: int = 1
) -> tuple[tuple[str, KnobValue], ...]:
    """The extras that a document names, with their values; see :meth:`Knob.obstacle`.

    Raises:
        ConfigError: a value is wrong, still a list, or cannot be applied at this stage.
    """
    extras: list[tuple[str, KnobValue]] = []
    shards = data_parallel
    for name, knob in RUNTIME_KNOBS.items():
        given = raw.get(knob.path)
        if given is None:
            continue
        if isinstance(given, list) or given == "auto":
            raise ConfigError(still_open(knob.key, given))
        value = knob.read(given)
        why = knob.obstacle(
            zero_stage=zero_stage,
            data_parallel=shards if name == "reshard_after_forward" else data_parallel,
            value=value,
            model_ranks=model_ranks,
        )
        if why:
            raise ConfigError(f"{knob.key} is {given!r}, but {why}; remove it.")
        if name == "shard_ranks" and type(value) is int:
            shards = value
        extras.append((name, value))
    return tuple(extras)


def parse_value(knob: str, value: object) -> LayoutValue:
    """A value from a user's document as this knob has it; extras pass unchanged.

    Raises:
        ConfigError: the knob cannot have this value.
    """
    row = LAYOUT_KNOBS.get(knob)
    if row is None:
        return value  # type: ignore[return-value]
    if row.values is not None:
        for known in row.values:
            if value == known and isinstance(value, bool) == isinstance(known, bool):
                return known
        names = (str(getattr(known, "value", known)) for known in row.values)
        hint = nearest_known(str(getattr(value, "value", value)), names)
        raise ConfigError(f"{knob} is {value!r}; {hint}")
    if row.interned and isinstance(value, (list, tuple)):
        return tuple(_whole(knob, part) for part in value)
    return None if row.interned and value is None else _whole(knob, value)


def _whole(knob: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{knob} is {value!r}, but must be a whole number of at least 1.")
    return value
