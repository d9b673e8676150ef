"""Reads numbers from TensorBoard's event files of runs made elsewhere. Not: files of our own runs.

The package tensorboard is imported when a file is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autoconf_launch.core import ConfigError

_START = "events.out.tfevents"


def event_files(folder: Path) -> tuple[Path, ...]:
    """All of them below a folder, sorted; none where there is no such folder."""
    return tuple(sorted(path for path in folder.rglob(f"{_START}*") if path.is_file()))


def read_numbers(files: Sequence[Path], tags: Sequence[str]) -> Mapping[str, tuple[float, ...]]:
    """The numbers under each tag, by their steps; where a step was made again, the later one.

    A file that ends in the middle of a record gives what stands before it.

    Raises:
        ConfigError: the package tensorboard is not installed.
    """
    found: dict[str, dict[int, tuple[float, float]]] = {tag: {} for tag in tags}
    for path in files:
        for event, tag, value in _values(path):
            if tag not in found:
                continue
            known = found[tag].get(event.step)
            if known is None or known[0] <= event.wall_time:
                found[tag][event.step] = (event.wall_time, value)
    return {tag: tuple(by[step][1] for step in sorted(by)) for tag, by in found.items()}


def _values(path: Path) -> Iterator[tuple[Any, str, float]]:
    loader, to_array = _library()
    for event in loader.EventFileLoader(str(path)).Load():
        for value in event.summary.value:
            kind = value.metadata.plugin_data.plugin_name
            if value.HasField("tensor") and kind == "scalars":
                yield event, value.tag, float(to_array(value.tensor).item())


def _library() -> tuple[Any, Any]:
    if find_spec("tensorboard") is None:
        raise ConfigError(
            "Results of runs made elsewhere stand in TensorBoard's files, and the package "
            "tensorboard is not installed; pip install 'autoconf-launch[tensorboard]'."
        )
    loader = import_module("tensorboard.backend.event_processing.event_file_loader")
    return loader, import_module("tensorboard.util.tensor_util").make_ndarray
