"""The parameters of ``search``; all other words are keys of hydra's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.asked import (
    ON,
    Header,
    ValueUnit,
    VerbQuestion,
    at_least,
    parameter,
    question,
    read_flags,
)


@question
class SearchRequest(VerbQuestion):
    """``search`` of the command line; overrides are ``key=value`` words, as hydra reads them."""

    overrides: tuple[str, ...] = parameter(
        "", "keys of the search", ValueUnit(metavar="key=value", place="*"), default=()
    )
    dry_run: bool = parameter(
        "run", "print candidates and jobs; launch nothing", ON, default=False
    )
    submit_only: bool = parameter(
        "run",
        "queue all runs in Slurm, and a last job that writes the results",
        ON,
        default=False,
    )
    collect: bool = parameter(
        "run", "write the results of runs that were submitted", ON, default=False
    )
    folder: Path | None = parameter(
        "run",
        "a conf/ folder of your own",
        ValueUnit(metavar="DIR", read=Path),
        default=None,
        flag="--config-dir --config-path",
    )
    fresh: bool = parameter("run", "move old results aside", ON, default=False)
    top: int | None = parameter(
        "output",
        "candidates that are listed; default: output_top_n (10), 0: all",
        at_least(0),
        default=None,
    )
    json: bool = parameter("output", "print one JSON document", ON, default=False)
    quiet: bool = parameter("output", "print no line for each run", ON, default=False)
    header = Header(
        verb="search",
        usage="autoconf-launch search [flags] search_config=gpt3/5b [key=value ...]",
        description="Search for the fastest configuration of a model; keys are those of NVIDIA's "
        "AutoConfigurator. It runs the candidates here, by jobs of Slurm or inside Base Command.",
        examples=(
            "autoconf-launch search --dry-run --top 5 search_config=gpt3/5b",
            "autoconf-launch search search_config=gpt3/0.126b cluster_type=local",
            "autoconf-launch search search_config=llama/llama3_8b grid=nemo \\",
            "    search_config.train_settings.num_nodes=8",
        ),
        groups=("run", "output"),
    )
    exclusive = (("--submit-only", "--collect"), ("--json", "--top"))

    def contradictions(self) -> Iterator[str]:
        """A sentence on a run that moves nothing, too."""
        yield from super().contradictions()
        if self.dry_run and self.fresh:
            yield "--dry-run moves nothing; omit --fresh"
        if self.dry_run and self.collect:
            yield "--dry-run writes nothing, but --collect writes results; omit --dry-run"


def parse_search(arguments: Sequence[str]) -> SearchRequest:
    """Read the flags; all other words are overrides.

    Raises:
        ConfigError: an unknown flag, or a folder without config.yaml.
    """
    asked = read_flags(SearchRequest, arguments)
    folder = asked.folder
    if folder is not None and not (folder / "config.yaml").is_file():
        raise ConfigError(f"--config-dir {folder} has no config.yaml; give a folder that has one.")
    return asked
