"""The words after ``search`` to a request. Not: what the overrides mean (compose, settings)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.flags import VerbParser


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """What is asked.

    Attributes:
        overrides: ``key=value`` words, as hydra reads them.
        folder: the user's own ``conf/``; None: ours.
        fresh: old results are moved aside instead of gone on with.
    """

    overrides: tuple[str, ...]
    folder: Path | None
    dry_run: bool
    json: bool
    fresh: bool
    quiet: bool


def parse_search(arguments: Sequence[str]) -> SearchRequest:
    """Read the flags; all other words are overrides.

    Raises:
        ConfigError: an unknown flag, or a folder without config.yaml.
    """
    parser = _make_parser()
    flags, others = parser.parse_known_args(arguments)
    wrong = next((word for word in others if word.startswith("-")), None)
    if wrong is not None:
        parser.error(f"unknown flag {wrong}")
    folder: Path | None = flags.config_dir
    if folder is not None and not (folder / "config.yaml").is_file():
        raise ConfigError(f"--config-dir {folder} has no config.yaml; give a folder that has one.")
    return SearchRequest(
        overrides=(*flags.overrides, *others),
        folder=folder,
        dry_run=flags.dry_run,
        json=flags.json,
        fresh=flags.fresh,
        quiet=flags.quiet,
    )


def _make_parser() -> VerbParser:
    parser = VerbParser(
        prog="autoconf-launch search",
        usage="autoconf-launch search [flags] search_config=gpt3/5b [key=value ...]",
        description="Search for the fastest configuration of a model; keys are those of NVIDIA's "
        "AutoConfigurator, such as cluster_type=local, grid=nemo, "
        "search_config.train_settings.num_nodes=8.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("overrides", nargs="*", metavar="key=value")
    add("--dry-run", action="store_true", help="print candidates and jobs; launch and write none")
    add(
        "--config-dir",
        "--config-path",
        type=Path,
        metavar="DIR",
        help="a conf/ folder of your own",
    )
    add("--json", action="store_true", help="print one JSON document")
    add("--fresh", action="store_true", help="move old results aside")
    add("--quiet", action="store_true", help="print no line for each run")
    return parser
