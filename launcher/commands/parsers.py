"""The parsers of verbs with few flags; --help and completion read them without the verb."""

from __future__ import annotations

from pathlib import Path

from autoconf_launch.autotuner.cost import (
    AUTO_TRAINER,
)

from ..asked import TRAINER
from ..exporters import BASE_EXPORTERS, EXPORTERS
from ..flags import VerbParser, add_host_flags

_JSON = "print one JSON document"
TABLE_FORMS = ("table", "md")
LINE_FORMS = ("csv", "json")


def show_parser() -> VerbParser:
    """Flags of ``show``."""
    parser = VerbParser(
        prog="autoconf-launch show",
        usage="autoconf-launch show RESULTS [flags]",
        description="Show a tuning run, while it runs and after.",
        examples=(
            "autoconf-launch show autotuning_results",
            "autoconf-launch show autotuning_results --follow",
            "autoconf-launch show autotuning_results --html report.html",
            "autoconf-launch show spaces --config ds_config.json",
        ),
    )
    parser.add_argument("results", metavar="RESULTS", help="the results folder of the run")
    what = parser.add_argument_group("what is shown").add_argument
    details_help = "add what could still be gained, what was skipped and where a step's time goes"
    what("--details", action="store_true", help=details_help)
    what("--follow", action="store_true", help="keep printing until the tuning ends")
    forms = parser.add_argument_group("form").add_mutually_exclusive_group()
    form = forms.add_argument
    form("--format", choices=(*TABLE_FORMS, *LINE_FORMS), help="default: table")
    form("--json", action="store_true", help="the same as --format json")
    html_help = "write charts and all trials as one HTML file"
    form("--html", type=Path, metavar="FILE", help=html_help)
    return parser


def show_spaces_parser() -> VerbParser:
    """Flags of ``show spaces`` beside the launcher's."""
    parser = VerbParser(
        prog="autoconf-launch show spaces",
        usage="autoconf-launch show spaces [--json] [--config FILE | launcher flags and training "
        "command]",
        description="Show what a tune would search. Takes launcher flags and the training "
        "command, or --config alone.",
        examples=(
            "autoconf-launch show spaces --config ds_config.json",
            "autoconf-launch show spaces --num_gpus 8 train.py --batch_size 8",
        ),
    )
    parser.add_argument("--config", metavar="FILE", help="the configuration that is tuned")
    parser.add_argument("--json", action="store_true", help=_JSON)
    return parser


def compare_parser() -> VerbParser:
    """Flags of ``compare``."""
    parser = VerbParser(
        prog="autoconf-launch compare",
        usage="autoconf-launch compare A B [--json]",
        description="Compare two tuning runs; ratios are of B over A, above 1 where B is faster.",
        examples=("autoconf-launch compare before/autotuning_results autotuning_results",),
    )
    parser.add_argument("a", metavar="A", help="a results folder")
    parser.add_argument("b", metavar="B", help="another one")
    parser.add_argument("--json", action="store_true", help=_JSON)
    return parser


def doctor_parser() -> VerbParser:
    """Flags of ``doctor``."""
    parser = VerbParser(
        prog="autoconf-launch doctor",
        usage="autoconf-launch doctor [flags]",
        description="Measure what the hosts of a launch can do: ports between them, a matrix "
        "product in each slot, an all-reduce between each pair of hosts, clocks, the shared "
        "folder. Takes half a minute.",
        examples=(
            "autoconf-launch doctor",
            "autoconf-launch doctor --hostfile hosts.txt --save cluster.yaml",
        ),
    )
    add_host_flags(parser.add_argument_group("hosts and slots"))
    output = parser.add_argument_group("output").add_argument
    save_help = "write a cluster file for plan, with the measured rate between hosts"
    output("--save", type=Path, metavar="FILE", help=save_help)
    output("--json", action="store_true", help=_JSON)
    return parser


def validate_parser() -> VerbParser:
    """Flags of ``validate``."""
    parser = VerbParser(
        prog="autoconf-launch validate",
        usage="autoconf-launch validate FILE.csv [FILE.csv ...] [flags]",
        description="Predict every row of measured tables and report the errors.",
        examples=(
            "autoconf-launch validate measured.csv",
            "autoconf-launch validate measured.csv --rows",
            "autoconf-launch validate measured.csv --calibrate 3 --json",
        ),
    )
    parser.add_argument("files", metavar="FILE.csv", nargs="+", help="a table of measurements")
    trainer_help = "framework of rows without a column trainer; default auto: by source, then GPU"
    parser.add_argument(
        "--trainer", type=TRAINER.read, default=AUTO_TRAINER, metavar="NAME", help=trainer_help
    )
    correction = parser.add_argument_group("correction").add_argument
    fit_help = "fit the correction factors on N random rows of each model, score the others"
    correction("--calibrate", type=int, metavar="N", help=fit_help)
    correction("--seed", type=int, metavar="K", help="seed of that draw; default 0")
    output = parser.add_argument_group("output").add_argument
    output("--rows", action="store_true", help="print each row: predicted, measured, error")
    output("--csv", type=Path, metavar="FILE", help="write the same to a file")
    output("--json", action="store_true", help=_JSON)
    return parser


def export_parser() -> VerbParser:
    """Flags of ``export``."""
    frameworks = dict.fromkeys((*EXPORTERS, *BASE_EXPORTERS))
    parser = VerbParser(
        prog="autoconf-launch export",
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
    results_help = "the results folder of a tuning run, or what recommend --base-config wrote"
    parser.add_argument("results", metavar="RESULTS|BASE.yaml", nargs="?", help=results_help)
    to_help = f"{', '.join(frameworks)}; of a base configuration {', '.join(BASE_EXPORTERS)}"
    parser.add_argument("--to", metavar="FRAMEWORK", help=to_help)
    sbatch_help = "write a job with these options of sbatch, whose command stands after --"
    parser.add_argument("--sbatch", metavar="'OPTIONS'", help=sbatch_help)
    output = parser.add_mutually_exclusive_group().add_argument
    output("-o", "--output", metavar="FILE", help="write to FILE, not to the screen")
    output("--json", action="store_true", help=_JSON)
    return parser
