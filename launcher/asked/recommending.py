"""``recommend``: machines and days, a model size, or a model, of which two say the third."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..exporters import BASE_EXPORTERS
from .parameters import Header, VerbQuestion, parameter, question
from .training import CLUSTER, MODEL, SEQUENCE_ABOUT, RealRuns
from .units import (
    ASSUMPTION,
    BILLIONS,
    FAMILY,
    FILE,
    MOST,
    MOST_DEGREE,
    NAME,
    ON,
    SEQUENCE,
    ValueUnit,
    decimal,
    frameworks,
    whole,
)

if TYPE_CHECKING:
    from autoconf_launch.autotuner.sizing import Goodput


@question
class RecommendQuestion(RealRuns, VerbQuestion):
    """Machines, and days, a size or a model."""

    family: str | None = parameter(
        "question", "gpt3, t5, mt5, bert, llama, …", FAMILY, default=None
    )
    tokens_b: float = parameter(
        "question", "to train on: 300B, 1.8T, …", BILLIONS, flag="--tokens"
    )
    gpus: int | None = parameter(
        "question", "in all; --cluster has them", whole(1, MOST_DEGREE), default=None
    )
    nodes: int | None = parameter(
        "question",
        "nodes that hold --gpus",
        whole(1, MOST_DEGREE),
        default=None,
        flag="--num-nodes",
    )
    tflops_per_gpu: float | None = parameter(
        "question",
        "TFLOP/s that each GPU achieves, not its datasheet's peak",
        decimal(1e-3, 1e6, "T"),
        default=None,
    )
    max_days: float | None = parameter(
        "question",
        "days to train in: for a model size, or the GPUs of one",
        decimal(1e-4, 1e5, "D"),
        default=None,
    )
    model_size_b: float | None = parameter(
        "question",
        "billions of parameters: predict the days; with --max-days the GPUs",
        decimal(1e-6, 1e6, "B"),
        default=None,
        flag="--model-size",
    )
    model: str | None = parameter(
        "question",
        "in place of --model-size: a name, a Hugging Face id or config.json",
        MODEL,
        default=None,
    )
    vocabulary: int | None = parameter(
        "model", "vocabulary size", whole(1, MOST, "V"), default=None, flag="--vocab"
    )
    sequence: int | None = parameter("model", SEQUENCE_ABOUT, SEQUENCE, default=None, flag="--seq")
    global_batch: int | None = parameter(
        "model", "samples per optimizer step", whole(1, MOST, "B"), default=None
    )
    cluster: str | None = parameter(
        "planner", "20x8xA100-SXM-80GB, a file, or local", CLUSTER, default=None
    )
    gpu_memory_gb: float | None = parameter(
        "planner", "of each GPU", decimal(1, 1e4, "GB"), default=None
    )
    usd_per_gpu_hour: float | None = parameter(
        "planner", "replaces our table of prices", decimal(0, 1e4, "USD"), default=None
    )
    goodput: Goodput | Sequence[tuple[str, float]] = parameter(
        "planner",
        "an assumption on failures and pauses, such as restart_s=600",
        ASSUMPTION,
        default=(),
        flag="--assume",
    )

    def assumed_goodput(self) -> Goodput:
        """Our assumptions on failures and pauses, changed by those that are given.

        Raises:
            ConfigError: one has an unknown name, or a value out of range.
        """
        from autoconf_launch.autotuner.sizing import Goodput, with_assumption  # with numpy

        if isinstance(self.goodput, Goodput):
            return self.goodput
        found = Goodput()
        for name, value in self.goodput:
            found = with_assumption(found, name, value)
        return found

    def contradictions(self) -> Iterator[str]:
        if self.model is not None and self.model_size_b is not None:
            yield "--model has a size; omit --model-size"
        if self.cluster is not None and self.nodes is not None:
            yield "--cluster says how many nodes there are; omit --num-nodes"
        yield from self.contradictory_runs()
        if gaps := "; ".join(self._gaps()):
            yield gaps

    def _gaps(self) -> Iterator[str]:
        if self.family is None and self.model is None:
            yield "give --family, or --model"
        if not self.tokens_b:
            yield "give --tokens, such as 2T"
        if (self.max_days or self.model_size_b or self.model) is None:
            yield (
                "give --max-days for a size, or --model-size or --model for the days; both for "
                "the number of GPUs"
            )
        if self.gpus is None and self.cluster is None:
            yield "give --gpus, or --cluster, such as 8xH100"
        if self.tflops_per_gpu is None and self.cluster is None:
            yield "give --tflops-per-gpu, or --cluster to have it predicted"


@question
class RecommendCommand(RecommendQuestion):
    """``recommend`` of the command line, with the base configuration that it writes."""

    header = Header(
        verb="recommend",
        usage="autoconf-launch recommend --family F --gpus N --tflops-per-gpu T --max-days D "
        "--tokens 300B [flags]",
        description="Recommend the model size that GPUs can train in a number of days, the days "
        "of a size, or the GPUs for a size and days, by our planner and by NVIDIA's formula; "
        "write its base configuration.",
        examples=(
            "autoconf-launch recommend --family llama --tokens 2T --cluster 16x8xH100 "
            "--max-days 30",
            "autoconf-launch recommend --family llama --tokens 2T --model-size 70 --max-days 30 "
            "--cluster 8xH100",
            "autoconf-launch recommend --family gpt3 --tokens 300B --gpus 160 "
            "--tflops-per-gpu 140 --model-size 5",
            "autoconf-launch recommend --family llama --tokens 1T --cluster 8x8xH100 "
            "--max-days 14 --base-config base.yaml --export nemo2",
        ),
        groups=("question", "model", "planner", "real runs", "output"),
    )
    base_config: Path | None = parameter(
        "output",
        "write the base configuration",
        ValueUnit(metavar="OUT.yaml", read=Path),
        default=None,
    )
    custom_config: Path | None = parameter(
        "output",
        "its keys override the base configuration; a whole one replaces it",
        FILE,
        default=None,
    )
    export: tuple[str, ...] = parameter(
        "output", "also write it for these frameworks", frameworks(BASE_EXPORTERS), default=()
    )
    wandb_project: str | None = parameter(
        "output", "that the base configuration logs to", NAME, default=None
    )
    json: bool = parameter("output", "print one JSON document", ON, default=False)
    html: Path | None = parameter(
        "output", "write the answer with charts as one page", FILE, default=None
    )

    def contradictions(self) -> Iterator[str]:
        """Sentences on changes of a file, even if it is not written."""
        if self.base_config is None:
            if self.custom_config is not None:
                yield "--custom-config changes what --base-config writes; give --base-config too"
            if self.wandb_project is not None:
                yield "--wandb-project is written into --base-config; give --base-config too"
            if self.export:
                yield "--export exports what --base-config writes; give --base-config too"
        yield from super().contradictions()
