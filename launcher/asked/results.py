"""``show``, ``compare``, ``export``, ``validate``: results, and tables of measurements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from autoconf_launch.autotuner.cost import AUTO_TRAINER

from ..exporters import BASE_EXPORTERS, EXPORTERS
from .parameters import Header, VerbQuestion, parameter, question
from .training import TRAINER
from .units import FILE, ON, ValueUnit, at_least

TABLE_FORMS = ("table", "md")
LINE_FORMS = ("csv", "json")
_JSON = "print one JSON document"
_FOLDER = ValueUnit(metavar="RESULTS", read=Path, place="1")
_COUNT = at_least(1)


@question
class ShowCommand(VerbQuestion):
    """``show`` of the command line."""

    results: Path = parameter("", "the results folder of the run", _FOLDER)
    details: bool = parameter(
        "what is shown",
        "add what could still be gained, what was skipped and where a step's time goes",
        ON,
        default=False,
    )
    follow: bool = parameter(
        "what is shown", "keep printing until the tuning ends", ON, default=False
    )
    format: str | None = parameter(
        "form",
        "default: table",
        ValueUnit(known=(*TABLE_FORMS, *LINE_FORMS)),
        default=None,
    )
    json: bool = parameter("form", "the same as --format json", ON, default=False)
    html: Path | None = parameter(
        "form", "write charts and all trials as one HTML file", FILE, default=None
    )
    header = Header(
        verb="show",
        usage="autoconf-launch show RESULTS [flags]",
        description="Show a tuning run, while it runs and after.",
        examples=(
            "autoconf-launch show autotuning_results",
            "autoconf-launch show autotuning_results --follow",
            "autoconf-launch show autotuning_results --html report.html",
            "autoconf-launch show spaces --config ds_config.json",
        ),
        groups=("what is shown", "form"),
    )
    exclusive = (("--format", "--json"), ("--format", "--html"), ("--json", "--html"))

    @property
    def form(self) -> str:
        return "json" if self.json else self.format or "table"

    def contradictions(self) -> Iterator[str]:
        """Sentences on flags that the form of the answer has no place for, too."""
        yield from super().contradictions()
        if self.html is not None and (self.follow or self.details):
            flag = "--follow" if self.follow else "--details"
            yield f"--html writes all of a tune as it is now; omit {flag}"
        if self.details and self.form in LINE_FORMS:
            yield f"--details adds to a table, but the form is {self.form}; omit one of them"
        if self.follow and self.form == "md":
            yield "--follow prints line by line, but md is one table; use table, csv or json"


@question
class ShowSpacesCommand(VerbQuestion):
    """``show spaces`` of the command line, alongside the launcher's flags."""

    config: str | None = parameter(
        "", "the configuration that is tuned", ValueUnit(metavar="FILE"), default=None
    )
    json: bool = parameter("", _JSON, ON, default=False)
    header = Header(
        verb="show spaces",
        usage="autoconf-launch show spaces [--json] [--config FILE | launcher flags and training "
        "command]",
        description="Show what a tune would search. Takes launcher flags and the training "
        "command, or --config alone.",
        examples=(
            "autoconf-launch show spaces --config ds_config.json",
            "autoconf-launch show spaces --num_gpus 8 train.py --batch_size 8",
        ),
    )


@question
class CompareCommand(VerbQuestion):
    """``compare`` of the command line."""

    a: Path = parameter("", "a results folder", replace(_FOLDER, metavar="A"))
    b: Path = parameter("", "another one", replace(_FOLDER, metavar="B"))
    json: bool = parameter("", _JSON, ON, default=False)
    header = Header(
        verb="compare",
        usage="autoconf-launch compare A B [--json]",
        description="Compare two tuning runs; ratios are of B over A, above 1 where B is faster.",
        examples=("autoconf-launch compare before/autotuning_results autotuning_results",),
    )


@question
class ExportCommand(VerbQuestion):
    """``export`` of the command line."""

    results: Path | None = parameter(
        "",
        "the results folder of a tuning run, or what recommend --base-config wrote",
        ValueUnit(metavar="RESULTS|BASE.yaml", read=Path, place="?"),
        default=None,
    )
    to: str | None = parameter(
        "",
        f"{', '.join(EXPORTERS)}; of a base configuration {', '.join(BASE_EXPORTERS)}",
        ValueUnit(metavar="FRAMEWORK", known=tuple(EXPORTERS)),
        default=None,
    )
    sbatch: str | None = parameter(
        "",
        "write a job with these options of sbatch, whose command stands after --",
        ValueUnit(metavar="'OPTIONS'"),
        default=None,
    )
    output: Path | None = parameter(
        "", "write to FILE, not to the screen", FILE, default=None, flag="-o --output"
    )
    json: bool = parameter("", _JSON, ON, default=False)
    header = Header(
        verb="export",
        usage="autoconf-launch export RESULTS|BASE.yaml --to FRAMEWORK [-o FILE] [--json]\n"
        "       autoconf-launch export --sbatch 'OPTIONS' [-o FILE] -- [flags] train.py [args]",
        description="Write an optimum, or a base configuration, for another framework; or a job "
        "of Slurm in which a tune goes on until it is through.",
        examples=(
            "autoconf-launch export autotuning_results --to hf_trainer",
            "autoconf-launch export base.yaml --to megatron -o train.args",
            "autoconf-launch export --sbatch '-N 2 -t 4:00:00' -o tune.sh -- \\",
            "    --launcher slurm --autotuning=tune train.py --config config.json",
        ),
    )
    exclusive = (("--json", "-o/--output"),)


@question
class ValidateQuestion(VerbQuestion):
    """Comparison of predictions with tables of measurements."""

    trainer: str = parameter(
        "",
        "framework of rows without a column trainer; default auto: by source, then GPU",
        TRAINER,
        default=AUTO_TRAINER,
    )
    calibrate: int | None = parameter(
        "correction",
        "fit the correction factors on N random rows of each model, score the others",
        _COUNT,
        default=None,
    )
    seed: int = parameter(
        "correction", "seed of that draw; default 0", at_least(0, "K"), default=0
    )

    def contradictions(self) -> Iterator[str]:
        """A sentence on a seed that draws nothing, too."""
        yield from super().contradictions()
        if self.seed and self.calibrate is None:
            yield "--seed draws the rows of --calibrate; give --calibrate too"


@question
class ValidateCommand(ValidateQuestion):
    """``validate`` of the command line."""

    files: tuple[Path, ...] = parameter(
        "", "a table of measurements", ValueUnit(metavar="FILE.csv", read=Path, place="+")
    )
    rows: bool = parameter(
        "output", "print each row: predicted, measured, error", ON, default=False
    )
    csv: Path | None = parameter("output", "write the same to a file", FILE, default=None)
    json: bool = parameter("output", _JSON, ON, default=False)
    header = Header(
        verb="validate",
        usage="autoconf-launch validate FILE.csv [FILE.csv ...] [flags]",
        description="Predict every row of measured tables and report the errors.",
        examples=(
            "autoconf-launch validate measured.csv",
            "autoconf-launch validate measured.csv --rows",
            "autoconf-launch validate measured.csv --calibrate 3 --json",
        ),
        groups=("correction", "output"),
    )
