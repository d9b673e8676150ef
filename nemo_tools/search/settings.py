"""Settings of a search, as types, from a composed document."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from autoconf_launch.core import ConfigError, Degrees, RawConfig
from autoconf_launch.launcher.request import TrackingChoice
from autoconf_launch.tuning_spaces import usual_of

from .compose import TRAIN, Composed
from .inference_settings import InferenceSettings, read_inference
from .reader import Reader, absolute_path

_MINIMUM = "minimum"
_OLD_TOOL = "bignlp_hp_tool_path"
_USUAL_SEQUENCE = 2048


class ClusterKind(str, Enum):
    """System that launches the runs."""

    BCM = "bcm"
    BCP = "bcp"
    LOCAL = "local"


class GridKind(str, Enum):
    """The source of the candidates that are searched."""

    PLANNER = "planner"
    NEMO = "nemo"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """``search_config.train_settings``; None where a choice is left to us.

    Attributes:
        family: of the model, by the folder of its search configuration.
        limit_runs: 0 for all candidates.
        search_nodes: of each run; 0 for the fewest that the candidates need (BigNLP's way).
        custom_config: as it is written.
        degrees: to search; ``recompute_layers`` may have 0, for none.
    """

    family: str
    size_b: float | None
    nodes: int
    gpus_per_node: int
    gpu_memory_gb: float
    max_days: float | None
    limit_runs: int
    top_n: int
    max_steps: int
    max_minutes: float
    tflops_per_gpu: float
    tokens_b: float
    vocabulary: int
    sequence: int
    global_batch: int | None
    custom_config: str | None
    logs: Path
    search_nodes: int
    degrees: Degrees


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """``cluster``: what Slurm is asked for, and what the planner assumes.

    Attributes:
        gpus_per_node: of this machine where runs are local; None: all.
        gpu: name for the planner; None: by its memory.
        sbatch_args: further options of sbatch, each as it is written after ``#SBATCH``.
        trains_with_ours: runs are of our runtime, not of NeMo in a container.
    """

    kind: ClusterKind
    partition: str | None = None
    account: str | None = None
    exclusive: bool = True
    overcommit: bool = False
    gpus_per_task: int | None = None
    gpus_per_node: int | None = None
    gpu: str | None = None
    usd_per_gpu_hour: float | None = None
    mem: str | None = None
    job_name_prefix: str = ""
    srun_args: tuple[str, ...] = ()
    nodelist: str | None = None
    exclude: tuple[str, ...] = ()
    comment: str | None = None
    qos: str | None = None
    gres: str | None = None
    sbatch_args: tuple[str, ...] = ()
    trains_with_ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSettings:
    """Folders and the container, as they are written; None where nobody gave one."""

    tool: str | None
    results: str
    data: str | None
    container: str | None
    mounts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """All of it.

    Attributes:
        choice: name of the search configuration.
        given: keys of the command line.
    """

    choice: str
    train: TrainSettings
    cluster: ClusterSettings
    paths: PathSettings
    tracking: TrackingChoice
    grid: GridKind
    runs_training: bool
    runs_inference: bool
    given: frozenset[str]
    notes: tuple[str, ...]
    inference: InferenceSettings = field(default_factory=lambda: read_inference(RawConfig({})))


def read_settings(composed: Composed) -> SearchSettings:
    """Check every value.

    Raises:
        ConfigError: one is of the wrong kind or missing; the message names its key.
    """
    document = composed.document
    top = Reader(document, ())
    kinds = tuple(kind.value for kind in ClusterKind)
    grids = tuple(grid.value for grid in GridKind)
    return SearchSettings(
        choice=composed.choice,
        train=_train(composed),
        inference=read_inference(document),
        cluster=_cluster(document, ClusterKind(top.one_of("cluster_type", kinds, "bcm"))),
        paths=_paths(top, composed),
        tracking=_tracking(Reader(document, ("wandb",))),
        grid=GridKind(top.one_of("grid", grids, GridKind.PLANNER.value)),
        runs_training=top.flag("run_training_hp_search", True),
        runs_inference=top.flag("run_inference_hp_search", True),
        given=composed.given,
        notes=composed.notes,
    )


def _tracking(read: Reader) -> TrackingChoice:
    """Weights & Biases where the settings want it; the key is the file's first line."""
    if not read.flag("enable", False):
        return TrackingChoice()
    key_file, project = read.text("api_key_file"), read.text("project")
    return TrackingChoice(trackers=("wandb",), project=project, wandb_key_file=key_file)


def _train(composed: Composed) -> TrainSettings:
    document = composed.document
    read = Reader(document, TRAIN)
    family = composed.choice.partition("/")[0]
    usual = usual_of(family)
    logs = read.text("logs")
    return TrainSettings(
        family=family,
        size_b=read.optional_number("model_size_in_b"),
        nodes=read.whole("num_nodes"),
        gpus_per_node=read.whole("gpus_per_node", 8),
        gpu_memory_gb=read.number("gpu_memory_gb", 80),
        max_days=read.optional_number("max_training_days"),
        limit_runs=read.whole("limit_search_runs", 100, least=0),
        top_n=read.whole("output_top_n", 10),
        max_steps=read.whole("max_steps_per_run", 50),
        max_minutes=read.number("max_minutes_per_run", 20),
        tflops_per_gpu=read.number("tflops_per_gpu", 140),
        tokens_b=read.number("num_tokens_in_b"),
        vocabulary=read.whole("vocab_size"),
        sequence=read.whole("seq_length", usual[1] if usual else _USUAL_SEQUENCE),
        global_batch=read.optional_whole("global_batch_size"),
        custom_config=read.text("custom_config"),
        logs=absolute_path(logs or f"{document.get(('base_results_dir',))}/{composed.choice}"),
        search_nodes=_search_nodes(document, read),
        degrees=_degrees(read),
    )


def _search_nodes(document: RawConfig, read: Reader) -> int:
    """The BigNLP HP tool searched on as few nodes as it could, unless told otherwise."""
    if read.text("override_search_num_nodes") == _MINIMUM:
        return 0
    own = read.optional_whole("override_search_num_nodes")
    if own is not None:
        return own
    is_bignlp = document.get((_OLD_TOOL,)) is not None
    return 0 if is_bignlp else read.whole("num_nodes")


def _degrees(read: Reader) -> Degrees:
    least = read.optional_whole("min_model_parallel_size")
    most = read.optional_whole("max_model_parallel_size")
    if least is not None and most is not None and least > most:
        raise ConfigError(
            f"min_model_parallel_size is {least}, but must be at most max_model_parallel_size = "
            f"{most}."
        )
    return Degrees(
        tensor_parallel=read.sizes("tensor_parallel_sizes"),
        pipeline_parallel=read.sizes("pipeline_parallel_sizes"),
        micro_batch=read.sizes("micro_batch_sizes"),
        context_parallel=read.sizes("context_parallel_sizes"),
        expert_parallel=read.sizes("expert_parallel_sizes"),
        recompute_layers=read.sizes("act_ckpt_layers", least=0),
        least_product=least,
        most_product=most,
    )


def _cluster(document: RawConfig, kind: ClusterKind) -> ClusterSettings:
    read = Reader(document, ("cluster",))
    return ClusterSettings(
        kind=kind,
        partition=read.text("partition"),
        account=read.text("account"),
        exclusive=read.flag("exclusive", False),
        overcommit=read.flag("overcommit", False),
        gpus_per_task=read.optional_whole("gpus_per_task"),
        gpus_per_node=read.optional_whole("gpus_per_node"),
        gpu=read.text("gpu"),
        usd_per_gpu_hour=read.optional_number("usd_per_gpu_hour"),
        mem=read.text("mem"),
        job_name_prefix=read.text("job_name_prefix") or "",
        srun_args=read.texts("srun_args"),
        nodelist=read.text("nodelist"),
        exclude=read.texts("exclude"),
        comment=read.text("comment"),
        qos=read.text("qos"),
        gres=read.text("gres"),
        sbatch_args=read.texts("sbatch_args"),
        trains_with_ours=read.one_of("train_with", ("nemo", "ours"), "nemo") == "ours",
    )


def _paths(top: Reader, composed: Composed) -> PathSettings:
    """A data folder below a tool that nobody named is nobody's."""
    named = composed.has_paths or bool({"data_dir", "launcher_scripts_path"} & composed.given)
    tool = top.text("auto_configurator_path") if composed.has_paths else None
    data = top.text("data_dir") if named else None
    return PathSettings(
        tool=str(absolute_path(tool)) if tool else None,
        results=str(absolute_path(top.text("base_results_dir") or ".")),
        data=str(absolute_path(data)) if data else None,
        container=top.text("training_container"),
        mounts=top.texts("container_mounts"),
    )
