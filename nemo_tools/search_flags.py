"""The flags of ``search`` to a SearchRequest; all other words are keys of hydra's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.flags import VerbParser, parse_steps, unknown_flag


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """The request of a ``search`` command line.

    Attributes:
        overrides: ``key=value`` words, as hydra reads them.
        folder: the user's own ``conf/``; None: ours.
        fresh: old results are moved aside instead of gone on with.
        submit_only: queue all runs, and a last job that collects.
        collect: write the results of runs that were submitted.
        top: candidates that are listed, 0 for all; None: as output_top_n has it.
    """

    overrides: tuple[str, ...]
    folder: Path | None
    dry_run: bool
    json: bool
    fresh: bool
    quiet: bool
    submit_only: bool
    collect: bool
    top: int | None


def parse_search(arguments: Sequence[str]) -> SearchRequest:
    """Read the flags; all other words are overrides.

    Raises:
        ConfigError: an unknown flag, or a folder without config.yaml.
    """
    parser = search_parser()
    flags, others = parser.parse_known_args(arguments)
    if flags.dry_run and flags.fresh:
        parser.error("--dry-run moves nothing; omit --fresh")
    wrong = next((word for word in others if word.startswith("-")), None)
    if wrong is not None:
        where = f"{parser.prog} --help"
        raise unknown_flag(wrong.partition("=")[0], parser._option_string_actions, where)
    if flags.folder is not None and not (flags.folder / "config.yaml").is_file():
        raise ConfigError(
            f"--config-dir {flags.folder} has no config.yaml; give a folder that has one."
        )
    values = {one.name: getattr(flags, one.name) for one in fields(SearchRequest)}
    return SearchRequest(**{**values, "overrides": (*flags.overrides, *others)})


def search_parser() -> VerbParser:
    """Flags of ``search``."""
    parser = VerbParser(
        prog="autoconf-launch search",
        usage="autoconf-launch search [flags] search_config=gpt3/5b [key=value ...]",
        description="Search for the fastest configuration of a model; keys are those of NVIDIA's "
        "AutoConfigurator. It runs the candidates here, by jobs of Slurm or inside Base Command.",
        examples=(
            "autoconf-launch search --dry-run --top 5 search_config=gpt3/5b",
            "autoconf-launch search search_config=gpt3/0.126b cluster_type=local",
            "autoconf-launch search search_config=llama/llama3_8b grid=nemo \\",
            "    search_config.train_settings.num_nodes=8",
        ),
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="keys of the search")
    run_group = parser.add_argument_group("run")
    run = run_group.add_argument
    run("--dry-run", action="store_true", help="print candidates and jobs; launch nothing")
    queue = run_group.add_mutually_exclusive_group().add_argument
    queue_help = "queue all runs in Slurm, and a last job that writes the results"
    queue("--submit-only", action="store_true", help=queue_help)
    queue("--collect", action="store_true", help="write the results of runs that were submitted")
    folder_help = "a conf/ folder of your own"
    run("--config-dir", "--config-path", dest="folder", type=Path, metavar="DIR", help=folder_help)
    run("--fresh", action="store_true", help="move old results aside")
    output = parser.add_argument_group("output")
    form = output.add_mutually_exclusive_group().add_argument
    top_help = "candidates that are listed; default: output_top_n (10), 0: all"
    form("--top", type=parse_steps, metavar="N", help=top_help)
    form("--json", action="store_true", help="print one JSON document")
    output.add_argument("--quiet", action="store_true", help="print no line for each run")
    return parser
