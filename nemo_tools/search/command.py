"""``search``: the fastest configuration of a model, by short real runs. Not: its single parts.

``search [flags] search_config=gpt3/5b [key=value …]``: keys of NVIDIA's AutoConfigurator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .cluster_files import write_cluster_search
from .flags import parse_search
from .local_search import run_search
from .prepare import dry_run_document, dry_run_text, prepare


def search(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print; lines on single runs go to standard error as they come.

    Raises:
        ConfigError: wrong arguments, keys, sizes or paths: before anything is launched.
        NothingFeasibleError: an inference search alone is asked for, or no candidate could be
            measured; its results are written by then.
    """
    request = parse_search(arguments)
    prepared = prepare(request)
    if request.dry_run:
        yield from dry_run_text(prepared) if not request.json else [dry_run_document(prepared)]
    elif prepared.machines is not None:
        yield from write_cluster_search(prepared, request)
    else:
        yield from run_search(prepared, request)
