"""``search``: the fastest layout to train a model with, and the one that writes its text best.

``search [flags] search_config=gpt3/5b [key=value …]``: keys of NVIDIA's AutoConfigurator.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from autoconf_launch.core import ConfigError, NothingFeasibleError

from ..search import prepare_training, search_training
from ..search_flags import SearchRequest, parse_search
from .inference_half import search_inference
from .prepared import PreparedInference, prepare_inference


def search(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print; lines on single runs go to standard error as they come.

    Raises:
        ConfigError: wrong arguments, keys, sizes or paths: before anything is launched.
        NothingFeasibleError: nothing could be measured, or no point is within the bound; results
            of both halves are written by then.
    """
    request = parse_search(arguments)
    yield from _search(request, tuple(arguments))
    if request.dry_run and not request.json:
        yield "Nothing was launched or written (--dry-run)."


def _search(request: SearchRequest, words: tuple[str, ...]) -> Iterator[str]:
    prepared = prepare_training(request)
    settings = prepared.settings
    inference = None
    if settings.runs_inference:
        try:
            inference = prepare_inference(prepared.question, dry_run=request.dry_run)
        except ConfigError as error:
            is_asked = any("inference" in key or key == "engine" for key in settings.given)
            if is_asked or not settings.runs_training:
                raise
            prepared = replace(prepared, notes=(*prepared.notes, f"No inference search: {error}"))
    if inference is None:
        yield from search_training(prepared, request, words)
    elif not settings.runs_training:
        yield from search_inference(inference, request)
    elif request.json:
        document = json.loads("".join(search_training(prepared, request, words)))
        document["inference"] = json.loads("".join(search_inference(inference, request)))
        yield json.dumps(document, indent=2)
    else:
        yield from _both(search_training(prepared, request, words), inference, request)


def _both(
    training: Iterator[str], inference: PreparedInference, request: SearchRequest
) -> Iterator[str]:
    """Both halves, the second also where the first one measured nothing."""
    failed: NothingFeasibleError | None = None
    try:
        yield from training
    except NothingFeasibleError as error:
        failed = error
    yield ""
    yield from search_inference(inference, request)
    if failed is not None:
        raise failed
