"""Options of torchtitan, by version.

Checked against ``config_manager.py`` of torchtitan 0.1.0, ``config/job_config.py`` of 0.2.0 and
0.2.2, ``config/configs.py`` of 0.3.0 (PyPI); older names against ``train_configs/`` of
pytorch/torchtitan at ed24d730cb3e. Up to 0.2 they are in a TOML file or behind ``--`` on the
command line, which wins; from 0.3 on there is no file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from autoconf_launch.autotuner.space import LayoutValue
from autoconf_launch.core import ConfigError, KeyPath, RawConfig, Recompute

from ..script import NamedFile, ScriptSource
from ..spelling import (
    GLOBAL_BATCH,
    Argument,
    FrameworkFacts,
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
    edit_toml,
    find_argument,
    held_place,
    held_value,
    installed_version,
    parse_toml,
    scalar,
    set_argument,
    with_path_argument,
)

FILE_FLAGS = ("--job.config_file", "--job.config-file")
WITHOUT_FILE = (0, 3)
SCRIPT = "torchtitan.train"
LOCAL_BATCH_KEY = "training.local_batch_size"
GLOBAL_BATCH_KEY = "training.global_batch_size"
PIPELINE_MICRO_BATCH = "parallelism.pipeline_parallel_microbatch_size"
TITAN_DEGREES = {
    "tensor_parallel": "parallelism.tensor_parallel_degree",
    "pipeline_parallel": "parallelism.pipeline_parallel_degree",
    "context_parallel": "parallelism.context_parallel_degree",
    "expert_parallel": "parallelism.expert_parallel_degree",
}
EXPERT_SINCE = (0, 2)
REPLICATE = "parallelism.data_parallel_replicate_degree"
SHARD = "parallelism.data_parallel_shard_degree"
RESHARD = "parallelism.fsdp_reshard_after_forward"
RECOMPUTE_MODE = "activation_checkpoint.mode"
"""Up to 0.2; from 0.3 on the chosen configuration contains it."""
RECOMPUTE_DEFAULT = "selective"
_MICRO_BATCH_DEFAULT = 8
OLDER = {
    LOCAL_BATCH_KEY: "training.batch_size",
    REPLICATE: "training.data_parallel_replicate_degree",
    SHARD: "training.data_parallel_shard_degree",
    RESHARD: "training.fsdp_reshard_after_forward",
    TITAN_DEGREES["tensor_parallel"]: "training.tensor_parallel_degree",
    TITAN_DEGREES["context_parallel"]: "experimental.context_parallel_degree",
    TITAN_DEGREES["pipeline_parallel"]: "experimental.pipeline_parallel_degree",
}
"""Names before 0.1, as files of that time have them; there was no accumulation."""
STEPS = "training.steps"
DUMP_FOLDER = "job.dump_folder"
SAVES = ("checkpoint.enable", "checkpoint.enable_checkpoint")
_SAVE_EVERY = "checkpoint.interval"
EVALUATES = ("validation.enable", "validation.enabled")
"""The second names are from 0.1."""
EVALUATE_EVERY, EVALUATE_STEPS = "validation.freq", "validation.steps"
ALL_STEPS, MOST_STEPS = -1, 10
"""Steps of an evaluation: all of them, and at most these in a verification run."""
OFF_IN_TRIALS = (
    "metrics.enable_tensorboard",
    "metrics.enable_wandb",
    "profiling.enable_profiling",
)
"""Keys of the file that are set to false if it has them, with the keys above."""
OFFLOAD = "training.enable_cpu_offload"
DTYPE = "training.dtype"
SCHEDULE = "parallelism.pipeline_parallel_schedule"
INTERLEAVED = "Interleaved1F1B"


_FILE = "torchtitan.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreeWords(Spelled):
    """Replicate and shard degrees with the reshard policy, as a ZeRO stage."""

    replicate: tuple[Place, ...]
    shard: tuple[Place, ...]
    reshard: tuple[Place, ...]
    ranks: int
    knob: str = "zero_stage"
    called: tuple[str, ...] = (f"--{SHARD}",)

    def read(self, inputs: LaunchInputs) -> LayoutValue:
        if self.ranks == 1 or scalar(held_value(self.shard, inputs, -1)) == 1:
            return 0
        return 2 if held_value(self.reshard, inputs, "default") == "never" else 3

    def value_of(self, word: Any) -> LayoutValue:
        if word not in (0, 2, 3):
            raise ConfigError(
                f"torchtitan supports ZeRO stages 0 (DDP), 2 and 3 only, got {word!r}."
            )
        return int(word)

    def put(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        if value == 0:
            inputs = held_place(self.shard, inputs).put(inputs, 1)
            return held_place(self.replicate, inputs).put(inputs, self.ranks)
        if scalar(held_value(self.shard, inputs, -1)) == 1:
            inputs = held_place(self.shard, inputs).put(inputs, -1)
            inputs = held_place(self.replicate, inputs).put(inputs, 1)
        return held_place(self.reshard, inputs).put(inputs, "never" if value == 2 else "default")


class TorchtitanDialect(TableDialect):
    """torchtitan's own trainer."""

    name = "torchtitan"
    framework = FrameworkFacts(
        package="torchtitan", oldest=(0, 1), newest=(0, 3), unproven="torchtitan"
    )
    checks = ("micro_batch", "zero_stage")

    def detects(self, source: ScriptSource) -> bool:
        path = source.script.replace("/", ".").removesuffix(".py")
        return path.endswith(SCRIPT) or _file(source) is not None

    def table(self, source: ScriptSource, ranks: int) -> tuple[Spelled, ...]:
        version = _version(source)
        degrees = tuple(
            Spelling(knob=knob, places=_places(source, name), default=1)
            for knob, name in TITAN_DEGREES.items()
            if knob != "expert_parallel" or version >= EXPERT_SINCE
        )
        inputs = self.inputs(source)
        pipelined = any(r.knob == "pipeline_parallel" and r.read(inputs) != 1 for r in degrees)
        data = ranks
        for row in degrees:
            data //= int(row.read(inputs) or 1) if row.knob != "expert_parallel" else 1  # type: ignore[arg-type]
        rows: list[Spelled] = [*_batch_rows(source, inputs, pipelined=pipelined), *degrees]
        if version < WITHOUT_FILE:
            rows.append(_recompute_row(source))
        replicate, shard, reshard = (_places(source, name) for name in (REPLICATE, SHARD, RESHARD))
        rows.append(
            DegreeWords(
                places=(*replicate, *shard, *reshard),
                replicate=replicate,
                shard=shard,
                reshard=reshard,
                ranks=data,
                free=(0, 2, 3) if data > 1 else (),
            )
        )
        return tuple(rows)

    def places(
        self, source: ScriptSource, setting: str, *, switch: bool = False
    ) -> tuple[Place, ...]:
        return _places(source, setting, switch=switch)

    def inputs(self, source: ScriptSource) -> LaunchInputs:
        file = _file(source)
        return LaunchInputs(
            arguments=source.script_args,
            environment=source.environment,
            document=parse_toml(file.text) if file else RawConfig({}),
        )

    def as_config(self, reading: Reading, inputs: LaunchInputs) -> RawConfig:
        return inputs.document if _file(reading.source) else super().as_config(reading, inputs)

    def files(
        self, source: ScriptSource, inputs: LaunchInputs, config_path: str
    ) -> tuple[LaunchInputs, tuple[RenderedFile, ...]]:
        file = _file(source)
        if file is None:
            return inputs, ()
        path = f"{config_path.rpartition('/')[0] or '.'}/{_FILE}"
        arguments = with_path_argument(inputs.arguments, file.position, path)
        made = RenderedFile(name=_FILE, text=_edit_text(file.text, inputs.document))
        return replace(inputs, arguments=arguments), (made,)

    def in_trial(self, rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
        """No tracker; all that is dumped, checkpoints too, goes below the trial's folder."""
        rendered = super().in_trial(rendered, source, needs)
        steps, folder = needs.steps + 1, needs.output if needs.saves else needs.folder
        for file in rendered.files:
            held = parse_toml(file.text)
            changed = _aside(held, needs)
            for key, value in ((STEPS, steps), (DUMP_FOLDER, folder)):
                changed = changed.with_value(_path(key), value)
            made = replace(file, text=_edit_text(file.text, changed))
            rendered = replace(rendered, files=(made,))
        for key, value in ((STEPS, str(steps)), (DUMP_FOLDER, folder)):
            given = find_argument(rendered.script_args, (f"--{key}",))
            if given is not None or (key == STEPS and not rendered.files):
                arguments = set_argument(rendered.script_args, f"--{key}", value)
                rendered = replace(rendered, script_args=arguments)
        return rendered


def _edit_text(text: str, document: RawConfig) -> str:
    edits = parse_toml(text).diff(document)
    return edit_toml(text, [(edit.path, edit.after) for edit in edits])


def _aside(held: RawConfig, needs: TrialNeeds) -> RawConfig:
    changed, off = held, list(OFF_IN_TRIALS)
    if needs.saves and _is_on(held, SAVES):
        changed = changed.with_value(_path(_SAVE_EVERY), needs.save_after)
    else:
        off += SAVES
    if needs.evaluates and _is_on(held, EVALUATES):
        changed = changed.with_value(_path(EVALUATE_EVERY), needs.evaluate_after)
        steps = held.get(_path(EVALUATE_STEPS))
        few = steps if type(steps) is int and steps != ALL_STEPS else MOST_STEPS
        changed = changed.with_value(_path(EVALUATE_STEPS), min(few, MOST_STEPS))
    else:
        off += EVALUATES
    for key in off:
        changed = changed.with_value(_path(key), value=False) if _path(key) in held else changed
    return changed


def _is_on(held: RawConfig, keys: tuple[str, ...]) -> bool:
    return any(held.get(_path(key)) is True for key in keys)


def _path(key: str) -> KeyPath:
    return tuple(key.split("."))


def _version(source: ScriptSource) -> tuple[int, int]:
    version = installed_version(source, TorchtitanDialect.framework.package)
    if version is not None:
        return version
    module = find_argument(source.script_args, ("--module",))
    return WITHOUT_FILE if module else (0, 2)


def _file(source: ScriptSource) -> NamedFile | None:
    named = (f for f in source.files if f.flag in FILE_FLAGS and f.position is not None)
    return next(named, None)


def _places(source: ScriptSource, name: str, *, switch: bool = False) -> tuple[Place, ...]:
    """The command line wins; if no place has the setting, the file is written."""
    name = OLDER.get(name, name) if _is_old(source) else name
    argument, key = Argument((f"--{name}",), switch=switch), Key(tuple(name.split(".")))
    if _file(source) is None:
        return (argument,)
    return (argument, key) if argument.get(LaunchInputs(arguments=source.script_args)) else (key,)


def _is_old(source: ScriptSource) -> bool:
    older, file = OLDER[LOCAL_BATCH_KEY], _file(source)
    given = find_argument(source.script_args, (f"--{older}",)) is not None
    return given or (file is not None and tuple(older.split(".")) in parse_toml(file.text))


def _batch_rows(
    source: ScriptSource, inputs: LaunchInputs, *, pipelined: bool
) -> tuple[Spelled, ...]:
    local = _places(source, LOCAL_BATCH_KEY)
    total = _places(source, GLOBAL_BATCH_KEY)
    known = None if _version(source) >= WITHOUT_FILE else _MICRO_BATCH_DEFAULT
    micro = Spelling(knob="micro_batch", places=local, default=known)
    if pipelined:
        places = _places(source, PIPELINE_MICRO_BATCH)
        micro = Spelling(knob="micro_batch", places=places, default=1)
    if _is_old(source):
        return (micro,)
    stated = scalar(held_value(total, inputs, -1))
    if stated == -1 and pipelined:
        raise ConfigError(
            f"{GLOBAL_BATCH_KEY} is not set, but pipeline stages are; give it, so that "
            "micro-batches can change within it."
        )
    if stated == -1:
        return (micro, _UnsetBatch(places=total))
    return (micro, Spelling(knob=GLOBAL_BATCH, places=total))


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnsetBatch(Spelled):
    """The global batch if the user leaves it to torchtitan: one micro-batch of each rank."""

    knob: str = GLOBAL_BATCH
    called: tuple[str, ...] = (GLOBAL_BATCH_KEY,)

    def read(self, inputs: LaunchInputs) -> LayoutValue:
        stated = scalar(held_value(self.places, inputs, -1))
        return None if stated == -1 else int(stated)

    def value_of(self, word: Any) -> LayoutValue:
        return int(word)

    def put(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        return held_place(self.places, inputs).put(inputs, value)


def _recompute_row(source: ScriptSource) -> Spelling:
    kinds = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
    return Spelling(
        knob="recompute",
        places=_places(source, RECOMPUTE_MODE),
        words=tuple((kind.value, kind) for kind in kinds),
        default=Recompute(RECOMPUTE_DEFAULT),
        free=kinds,
    )
