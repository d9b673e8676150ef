"""The data sets of ``data_dir`` in the configurations of a cluster's jobs. Not: their tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autoconf_launch.core import ConfigError

from .described import data_path, with_data
from .question import SearchQuestion

_TOKENS, _INDEX = ".bin", ".idx"
"""Megatron's data set is two files of one name, by which its frameworks are told of it."""


def with_data_sets(question: SearchQuestion, *, is_needed: bool) -> SearchQuestion:
    """The question with the data sets in its base configuration, weighted by their sizes.

    A configuration that names its data keeps them.

    Args:
        question: of runs on a cluster.
        is_needed: whether a folder without a data set is refused.

    Raises:
        ConfigError: there is none.
    """
    folder = question.settings.paths.data
    if folder is None or question.base.get(data_path(question.base)) is not None:
        return question
    found = _data_sets(Path(folder))
    if not found and is_needed:
        raise ConfigError(
            f"data_dir: {folder} has no Megatron data set (a .bin beside an .idx), so jobs would "
            "have no data; give the folder that has one, or a custom_config that names its data."
        )
    return replace(question, base=with_data(question.base, found, None)) if found else question


def _data_sets(folder: Path) -> list[float | str]:
    """A weight and a path without suffix of each, as Megatron reads a blend."""
    found = {
        path: path.stat().st_size
        for path in sorted(folder.rglob(f"*{_TOKENS}"))
        if path.with_suffix(_INDEX).is_file()
    }
    parts = ((size, path) for path, size in found.items() if size)
    whole = sum(found.values())
    return [part for size, path in parts for part in (size / whole, str(path.with_suffix("")))]
