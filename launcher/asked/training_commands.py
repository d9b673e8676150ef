"""``fit`` and ``plan`` of the command line: parameters, and files of the answers."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from .parameters import Header, parameter, question
from .training import HABITS_GROUP, SHAPES_GROUP, FitQuestion, PlanQuestion
from .units import FILE, FOLDER, NAME, NAMED_PRICE, ON, choice, frameworks, whole

_MOST_ROWS = 1 << 24
_EXPORTED = ("megatron", "torchtitan", "nemo2", "deepspeed", "native")
"""Frameworks that ``plan`` writes a layout for."""


class CsvForm(str, Enum):
    """Columns of a plan's table."""

    FULL = "full"
    FASOP = "fasop"
    """FASOP's columns, with ``*`` between them."""


@question
class OnScreen:
    """The answer on the screen, and the script that it may be about."""

    json: bool = parameter("output", "print one JSON document", ON, default=False)
    time_limit: int | None = parameter(
        "model",
        "time for the script after -- to reach its first forward pass; default 600",
        whole(1, 7 * 86400, "SECONDS"),
        default=None,
    )


@question
class PlanFiles:
    """The answer in files, and parts of a mixed cluster: only a command has them."""

    csv: Path | None = parameter(
        "output", "write the table with all numbers of its rows", FILE, default=None
    )
    html: Path | None = parameter(
        "output", "write the answer with charts as one page", FILE, default=None
    )
    csv_form: CsvForm | str = parameter(
        "output",
        "of --csv: full, or fasop (FASOP's columns with * between them, every candidate, out of "
        "memory or not); default full",
        choice("form", CsvForm, "FORM"),
        default="full",
    )
    export: tuple[str, ...] = parameter(
        "output", "write a row's layout for these frameworks", frameworks(_EXPORTED), default=()
    )
    row: int | None = parameter(
        "output",
        "the row of the table that is exported; default 1, for native the first that runs",
        whole(1, _MOST_ROWS),
        default=None,
    )
    output: Path | None = parameter(
        "output", "folder of what is exported", FOLDER, default=None, flag="-o --output"
    )
    prices: tuple[tuple[str, float], ...] = parameter(
        "ranking",
        "USD an hour of a GPU by its name, such as A10G-24GB=0.9; may be repeated",
        NAMED_PRICE,
        default=(),
        flag="--price",
    )
    layer_times: Path | None = parameter(
        "ranking",
        "measured forward passes of layers in place of predicted ones, a CSV file",
        FILE,
        default=None,
    )
    pareto: bool = parameter(
        "ranking",
        "rank the front of time and money over all parts of the cluster",
        ON,
        default=False,
    )


@question
class FitCommand(OnScreen, FitQuestion):
    """``fit`` of the command line."""

    header = Header(
        verb="fit",
        usage="autoconf-launch fit --model M --seq S --global-batch B [--cluster C] [flags], or "
        "[--cluster C] [flags] -- python train.py …",
        description="Say whether a training fits, part by part, without a GPU.",
        examples=(
            "autoconf-launch fit --model llama3-8b --cluster 8xH100 --seq 8192 --global-batch 64 "
            "--recompute full",
            "autoconf-launch fit --model llama3-8b --cluster rtx4090 --seq 2048 "
            "--global-batch 8 --lora-rank 16 --recompute full",
            "autoconf-launch fit -- python train.py --batch_size 8",
        ),
        groups=("model", "training", "layout", "output", HABITS_GROUP, SHAPES_GROUP),
    )
    inference: bool = parameter(
        "output",
        "text generation instead of training; see fit --inference --help",
        ON,
        default=False,
    )


@question
class PlanCommand(PlanFiles, OnScreen, PlanQuestion):
    """``plan`` of the command line."""

    header = Header(
        verb="plan",
        usage="autoconf-launch plan --model M --cluster C --seq S --global-batch B [flags], or "
        "--cluster C [flags] -- python train.py …",
        description="Rank every layout of a training by its predicted step time, without a GPU.",
        examples=(
            "autoconf-launch plan --model llama3-70b --cluster 16x8xH100 --seq 8192 "
            "--global-batch 512 --tokens 2T",
            "autoconf-launch plan --model gpt3-175b --cluster 64x8xA100 --seq 2048 "
            "--global-batch 1536 --explain",
            "autoconf-launch plan --model llama3-70b --cluster 16x8xH100 --cluster 32x8xA100 "
            "--seq 8k --global-batch 512 --tokens 2T",
            "autoconf-launch plan --model llama3-70b --cluster 8xH100 --seq 8k --global-batch 512 "
            "--tokens 2T --deadline 30d --gpus-needed",
            "autoconf-launch plan --cluster 2x8xH100 -- python train.py --batch_size 8",
            "autoconf-launch plan --preset fasop/bert",
            "autoconf-launch plan --cluster-template > my-cluster.yaml",
        ),
        groups=(
            *("model", "training", "ranking", "real runs", "output"),
            *(HABITS_GROUP, SHAPES_GROUP),
        ),
    )
    preset: str | None = parameter(
        "",
        "a training with its cluster, such as fasop/bert; other flags change it",
        NAME,
        default=None,
    )
    inference: bool = parameter(
        "output",
        "text generation instead of training; see plan --inference --help",
        ON,
        default=False,
    )
    cluster_template: bool = parameter(
        "output", "print a cluster file with all its keys, and nothing else", ON, default=False
    )

    def contradictions(self) -> Iterator[str]:
        """Sentences, also on options whose file is not requested."""
        yield from super().contradictions()
        if self.csv is None and self.csv_form != CsvForm.FULL.value:
            yield "--csv-form says what --csv writes; give its file too"
        if self.prices and self.usd_per_gpu_hour is not None:
            yield "--price and --usd-per-gpu-hour exclude each other; give one of them"
        if self.export and self.output is None:
            yield "--export writes files; give their folder with -o DIR"
        if not self.export and (self.row, self.output) != (None, None):
            yield "--row and -o say what --export writes, and where; give --export too"
