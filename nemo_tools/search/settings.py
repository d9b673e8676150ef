"""Keys of NVIDIA's search configurations, each declared once with its unit and default.

Names come from BigNLP's and NeMo 1.0's YAML; errors have the full key. Inference settings in the
section itself are BigNLP's, and win over the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from autoconf_launch.core import (
    ConfigError,
    Degrees,
    KeyPath,
    Precision,
    RawConfig,
    dotted_name,
    nearest_known,
)
from autoconf_launch.launcher.asked import question
from autoconf_launch.launcher.request import TrackingChoice

from .question import GridKind, SearchScope

TRAIN: KeyPath = ("search_config", "train_settings")
INFERENCE_SECTION: KeyPath = ("search_config", "inference_settings")
_AUTO = (None, "auto", "null", "None")
"""Values that leave a choice to us, in all generations of NVIDIA's tools."""
_MOST = 2**40
"""No number of a search is above this."""
_PRECISIONS = {
    **{one.value: one for one in Precision},
    "float16": Precision.FP16,
    "bfloat16": Precision.BF16,
    "float32": Precision.FP32,
}
_LEAST_SEXAGESIMAL_S = 60
"""YAML reads 1:30:00 as 5400 and 1:00 as 60; what is less was typed without a unit."""
_TIME = re.compile(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)|(\d+):(\d\d)")
TIMELESS = {
    (*INFERENCE_SECTION, "benchmark", "topk"): 4,
    (*INFERENCE_SECTION, "benchmark", "topp"): 0.0,
    (*INFERENCE_SECTION, "start_id"): None,
    (*INFERENCE_SECTION, "end_id"): None,
}
"""Keys that change no time, with the values of NVIDIA's files, which are not worth a note."""
OLD_TOOL = "bignlp_hp_tool_path"
_FURTHER = (
    f"launcher_scripts_path fastertransformer_path {OLD_TOOL} bignlp_inference_path "
    "search_config_value cluster.type search_config.inference_settings.run.model_type"
)
"""Keys of NVIDIA's files that only other keys refer to."""


def is_whole(value: object, least: int) -> bool:
    """True if a value is an integer of at least ``least``; booleans are not integers."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= _MOST


@dataclass(frozen=True, slots=True)
class SettingUnit:
    """The values that a key may have, and their conversion.

    Attributes:
        is_text: a value is taken as it is written.
        known: words of which the nearest is offered; then ``must_be`` is not read.
    """

    must_be: str
    is_right: Callable[[Any], bool] = lambda value: True
    convert: Callable[[Any], Any] = lambda value: value
    is_text: bool = False
    known: Collection[str] = ()

    def read(self, name: str, value: Any) -> Any:
        value = str(value) if self.is_text else value
        if self.known and value not in self.known:
            raise ConfigError(f"{name} is {value!r}; {nearest_known(str(value), self.known)}")
        if not self.is_right(value):
            raise ConfigError(f"{name} is {value!r}, but must be {self.must_be}.")
        if isinstance(value, int) and value > _MOST:
            raise ConfigError(f"{name} is {value!r}, but must be at most {_MOST}.")
        return self.convert(value)


def whole_from(least: int) -> SettingUnit:
    """Unit of whole numbers."""
    return SettingUnit(f"a whole number of at least {least}", lambda value: is_whole(value, least))


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _sizes_from(least: int, must_be: str) -> SettingUnit:
    """Unit of lists of whole numbers, each once; a single one is a list of it."""

    def are_sizes(value: Any) -> bool:
        ones = _as_list(value)
        return bool(ones) and all(is_whole(one, least) and one <= _MOST for one in ones)

    return SettingUnit(must_be, are_sizes, lambda value: tuple(dict.fromkeys(_as_list(value))))


def _choice(kind: type[Enum]) -> SettingUnit:
    words = [one.value for one in kind]
    return SettingUnit(f"one of {', '.join(words)}", lambda value: value in words, kind)


def absolute(path: object) -> str:
    """A path without ``..``: such parts come from defaults next to the tool."""
    return os.path.abspath(str(path))  # noqa: PTH100 - resolve() would follow links


POSITIVE = SettingUnit(f"a number above 0, at most {_MOST}", _is_number, float)
WHOLE_NUMBER = whole_from(1)
_SIZES = _sizes_from(1, "auto, or a list of numbers of at least 1")
_SIZES_AND_NONE = _sizes_from(0, "auto, or a list of numbers of at least 0")
_LENGTHS = _sizes_from(1, "a number of at least 1, or a list of them")
_FLAG = SettingUnit("True or False", lambda value: isinstance(value, bool))
_TEXT = SettingUnit("", is_text=True)
_TEXTS = SettingUnit(
    "", convert=lambda value: tuple(str(one) for one in _as_list(value) if one not in _AUTO)
)
_FOLDER = SettingUnit("", convert=absolute)
_PATH = SettingUnit("", convert=lambda value: Path(absolute(value)))
_NODES = SettingUnit(
    WHOLE_NUMBER.must_be,
    lambda value: value == "minimum" or is_whole(value, 1),
    lambda value: 0 if value == "minimum" else value,
)


@dataclass(frozen=True, slots=True)
class _Key:
    names: tuple[str, ...]
    unit: SettingUnit
    is_literal: bool


def _key(names: str, unit: SettingUnit, default: Any = MISSING, *, literal: bool = False) -> Any:
    """A setting with a key of NVIDIA's.

    Args:
        names: below the section of its class, or whole after a dot; the first with a value counts.
        unit: reads its value.
        default: if no key has a value; without one, a search needs it.
        literal: auto is refused, since nothing can choose the value.
    """
    return field(default=default, metadata={"key": _Key(tuple(names.split()), unit, literal)})


class _Section:
    section: ClassVar[KeyPath] = ()


_S = TypeVar("_S", bound=_Section)


def _keys_of(kind: type[_Section]) -> Iterator[tuple[str, _Key, Any, tuple[KeyPath, ...]]]:
    for one in fields(kind):  # type: ignore[arg-type]
        if found := one.metadata.get("key"):
            paths = (
                tuple(name[1:].split(".")) if name[0] == "." else (*kind.section, *name.split("."))
                for name in found.names
            )
            yield one.name, found, one.default, tuple(paths)


def read_section(kind: type[_S], document: RawConfig, **given: Any) -> _S:
    """The settings of a class; ``given`` are fields without a key, and computed defaults."""
    for name, key, default, paths in _keys_of(kind):
        given[name] = _value(key, paths, document, given.get(name, default))
    return kind(**given)


def _value(key: _Key, paths: tuple[KeyPath, ...], document: RawConfig, default: Any) -> Any:
    for path in paths:
        value = document.get(path)
        is_auto = isinstance(value, str) and value in _AUTO and not key.is_literal
        if value is not None and not is_auto:
            return key.unit.read(dotted_name(path), value)
    if default is MISSING:
        raise ConfigError(f"{dotted_name(paths[0])} is not given, but search needs it.")
    return default


class ClusterKind(str, Enum):
    """System that launches the runs."""

    BCM = "bcm"
    BCP = "bcp"
    LOCAL = "local"


class _Trainer(str, Enum):
    NEMO = "nemo"
    OURS = "ours"


@question
class TrainSettings(_Section):
    """``search_config.train_settings``; None leaves a choice to us.

    Attributes:
        family: of the model, by the folder of its search configuration.
        limit_runs: 0 for all candidates.
        search_nodes: of each run; 0 for the fewest that the candidates need (BigNLP's way).
        custom_config: as it is written.
        recompute_layers: may have 0, for none.
    """

    section: ClassVar[KeyPath] = TRAIN
    family: str
    size_b: float | None = _key("model_size_in_b", POSITIVE, None)
    nodes: int = _key("num_nodes", WHOLE_NUMBER)
    gpus_per_node: int = _key("gpus_per_node", WHOLE_NUMBER, 8)
    gpu_memory_gb: float = _key("gpu_memory_gb", POSITIVE, 80)
    max_days: float | None = _key("max_training_days", POSITIVE, None)
    limit_runs: int = _key("limit_search_runs", whole_from(0), 100)
    top_n: int = _key("output_top_n", WHOLE_NUMBER, 10)
    max_steps: int = _key("max_steps_per_run", WHOLE_NUMBER, 50)
    max_minutes: float = _key("max_minutes_per_run", POSITIVE, 20)
    tflops_per_gpu: float = _key("tflops_per_gpu", POSITIVE, 140)
    tokens_b: float = _key("num_tokens_in_b", POSITIVE)
    vocabulary: int = _key("vocab_size", WHOLE_NUMBER)
    sequence: int = _key("seq_length", WHOLE_NUMBER, 2048)
    global_batch: int | None = _key("global_batch_size", WHOLE_NUMBER, None)
    custom_config: str | None = _key("custom_config", _TEXT, None)
    logs: Path = _key("logs", _PATH)
    search_nodes: int = _key("override_search_num_nodes", _NODES)
    least_product: int | None = _key("min_model_parallel_size", WHOLE_NUMBER, None)
    most_product: int | None = _key("max_model_parallel_size", WHOLE_NUMBER, None)
    tensor: tuple[int, ...] | None = _key("tensor_parallel_sizes", _SIZES, None)
    pipeline: tuple[int, ...] | None = _key("pipeline_parallel_sizes", _SIZES, None)
    micro_batch: tuple[int, ...] | None = _key("micro_batch_sizes", _SIZES, None)
    context: tuple[int, ...] | None = _key("context_parallel_sizes", _SIZES, None)
    expert: tuple[int, ...] | None = _key("expert_parallel_sizes", _SIZES, None)
    recompute_layers: tuple[int, ...] | None = _key("act_ckpt_layers", _SIZES_AND_NONE, None)

    @property
    def degrees(self) -> Degrees:
        return Degrees(
            tensor_parallel=self.tensor,
            pipeline_parallel=self.pipeline,
            micro_batch=self.micro_batch,
            context_parallel=self.context,
            expert_parallel=self.expert,
            recompute_layers=self.recompute_layers,
            least_product=self.least_product,
            most_product=self.most_product,
        )


@question
class ClusterSettings(_Section):
    """``cluster``: resources to request of Slurm, and the planner's GPU.

    Attributes:
        gpus_per_node: of this machine if runs are local; None: all.
        gpu: name for the planner; None: by its memory.
        sbatch_args: more options of sbatch, each as it is written after ``#SBATCH``.
    """

    section: ClassVar[KeyPath] = ("cluster",)
    kind: ClusterKind = _key(".cluster_type", _choice(ClusterKind), ClusterKind.BCM)
    partition: str | None = _key("partition", _TEXT, None)
    account: str | None = _key("account", _TEXT, None)
    exclusive: bool = _key("exclusive", _FLAG, False)
    overcommit: bool = _key("overcommit", _FLAG, False)
    gpus_per_task: int | None = _key("gpus_per_task", WHOLE_NUMBER, None)
    gpus_per_node: int | None = _key("gpus_per_node", WHOLE_NUMBER, None)
    gpu: str | None = _key("gpu", _TEXT, None)
    usd_per_gpu_hour: float | None = _key("usd_per_gpu_hour", POSITIVE, None)
    mem: str | None = _key("mem", _TEXT, None)
    job_name_prefix: str = _key("job_name_prefix", _TEXT, "")
    srun_args: tuple[str, ...] = _key("srun_args", _TEXTS, ())
    nodelist: str | None = _key("nodelist", _TEXT, None)
    exclude: tuple[str, ...] = _key("exclude", _TEXTS, ())
    comment: str | None = _key("comment", _TEXT, None)
    qos: str | None = _key("qos", _TEXT, None)
    gres: str | None = _key("gres", _TEXT, None)
    sbatch_args: tuple[str, ...] = _key("sbatch_args", _TEXTS, ())
    train_with: _Trainer = _key("train_with", _choice(_Trainer), _Trainer.NEMO)

    @property
    def is_local(self) -> bool:
        return self.kind is ClusterKind.LOCAL

    @property
    def trains_with_ours(self) -> bool:
        """True if runs are of our runtime, not of NeMo in a container."""
        return self.is_local or self.train_with is _Trainer.OURS


@question
class PathSettings(_Section):
    """Folders and the container, as they are written; None if the user gave none."""

    tool: str | None = _key("auto_configurator_path", _FOLDER, None)
    results: str = _key("base_results_dir", _FOLDER)
    data: str | None = _key("data_dir", _FOLDER, None)
    container: str | None = _key("training_container", _TEXT, None)
    mounts: tuple[str, ...] = _key("container_mounts", _TEXTS, ())


@question
class TrackingSettings(_Section):
    """Weights & Biases; the key is the file's first line."""

    section: ClassVar[KeyPath] = ("wandb",)
    is_wanted: bool = _key("enable", _FLAG, False)
    key_file: str | None = _key("api_key_file", _TEXT, None)
    project: str | None = _key("project", _TEXT, None)

    @property
    def choice(self) -> TrackingChoice:
        if not self.is_wanted:
            return TrackingChoice()
        return TrackingChoice(
            trackers=("wandb",), project=self.project, wandb_key_file=self.key_file
        )


def _with_colons(text: str) -> str:
    if not text.isdecimal() or int(text) < _LEAST_SEXAGESIMAL_S:
        return text
    minutes, seconds = divmod(int(text), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


_NAME = SettingUnit(
    "a name of letters, digits, dots and dashes, as folders have it",
    lambda value: bool(re.fullmatch(r"[\w.+-]+", value)),
    is_text=True,
)
_PRECISION = SettingUnit("", convert=_PRECISIONS.__getitem__, is_text=True, known=_PRECISIONS)
_TIME_LIMIT = SettingUnit(
    "a time such as 0:30:00 (hours, minutes, seconds)",
    lambda value: bool(_TIME.fullmatch(_with_colons(value))),
    _with_colons,
    is_text=True,
)
_MILLISECONDS = SettingUnit(POSITIVE.must_be, _is_number, lambda value: value / 1e3)


@question
class InferenceSettings(_Section):
    """Settings of an inference search; None leaves the choice to us.

    Attributes:
        name: of the model in names of folders; None: as the training's runs.
        vocabulary: tokens that the model knows; None: as in training.
        time_limit: of a run, as Slurm reads it.
        results: folder of the results; None: the training search's.
        input_lens, output_lens: tokens; each pair is a separate search.
        beam_width: sequences that are kept; 1 is greedy.
        without_effect: keys that are set and change nothing here.
        max_latency_s: bounds only the recommendation.
        top_n: points that are recommended.
        engine: by its name.
        container: of jobs; None: the training's.
    """

    section: ClassVar[KeyPath] = INFERENCE_SECTION
    name: str | None = _key("run.model_train_name", _NAME, None)
    vocabulary: int | None = _key("vocab_size", WHOLE_NUMBER, None)
    gpus_per_node: int | None = _key("run.gpus_per_node", WHOLE_NUMBER, None)
    precision: Precision = _key("run.data_type", _PRECISION, Precision.FP16)
    time_limit: str = _key("run.time_limit", _TIME_LIMIT, "0:30:00")
    results: Path | None = _key("logs run.results_dir", _PATH, None)
    tensor: tuple[int, ...] | None = _key(
        "tensor_parallel_sizes run.tensor_parallel_sizes", _SIZES, None
    )
    pipeline: tuple[int, ...] | None = _key(
        "pipeline_parallel_sizes run.pipeline_parallel_sizes", _SIZES, None
    )
    batches: tuple[int, ...] | None = _key("max_batch_sizes benchmark.batch_sizes", _SIZES, None)
    input_lens: tuple[int, ...] = _key(
        "input_seq_len benchmark.input_len", _LENGTHS, (60,), literal=True
    )
    output_lens: tuple[int, ...] = _key(
        "output_seq_len benchmark.output_len", _LENGTHS, (20,), literal=True
    )
    beam_width: int = _key("benchmark.beam_width", WHOLE_NUMBER, 1)
    max_latency_s: float | None = _key("max_latency_ms", _MILLISECONDS, None)
    top_n: int = _key("top_n", WHOLE_NUMBER, 10)
    engine: str | None = _key(".engine", _TEXT, None)
    container: str | None = _key(".inference_container", _TEXT, None)
    without_effect: tuple[str, ...] = ()

    @property
    def lengths(self) -> tuple[tuple[int, int], ...]:
        """Tokens that are read and written, for each search."""
        return tuple((read, written) for read in self.input_lens for written in self.output_lens)

    @property
    def time_limit_s(self) -> float:
        found = _TIME.fullmatch(self.time_limit)
        assert found is not None
        days, hours, minutes, seconds, alone_m, alone_s = (int(n or 0) for n in found.groups())
        return 86400.0 * days + 3600.0 * hours + 60.0 * (minutes + alone_m) + seconds + alone_s


@question
class SearchSettings(_Section):
    """All settings; ``choice`` names the configuration, ``given`` are the command line's keys."""

    choice: str
    train: TrainSettings
    cluster: ClusterSettings
    paths: PathSettings
    grid: GridKind = _key("grid", _choice(GridKind), GridKind.PLANNER)
    runs_training: bool = _key("run_training_hp_search", _FLAG, True)
    runs_inference: bool = _key("run_inference_hp_search", _FLAG, True)
    inference: InferenceSettings = field(default_factory=InferenceSettings)
    tracking: TrackingChoice = field(default_factory=TrackingChoice)
    given: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    @property
    def scope(self) -> SearchScope:
        train = self.train
        return SearchScope(
            degrees=train.degrees,
            grid=self.grid,
            limit_runs=train.limit_runs,
            search_nodes=train.search_nodes,
            max_steps=train.max_steps,
            max_minutes=train.max_minutes,
            logs=train.logs,
            gpu=self.cluster.gpu,
            usd_per_gpu_hour=self.cluster.usd_per_gpu_hour,
        )


def _all_keys() -> Iterator[KeyPath]:
    sections = (
        *(SearchSettings, PathSettings, ClusterSettings),
        *(TrainSettings, InferenceSettings, TrackingSettings),
    )
    for kind in sections:
        for _, _, _, paths in _keys_of(kind):
            yield from paths
    yield from TIMELESS
    yield from (tuple(name.split(".")) for name in _FURTHER.split())


KNOWN = frozenset(dotted_name(path[:end]) for path in _all_keys() for end in range(1, 5) if path)
"""Keys and sections by their full names."""
