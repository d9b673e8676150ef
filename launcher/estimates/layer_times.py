"""Measured layers from a file: ``plan --layer-times FILE``."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoconf_launch.autotuner.mixed import MeasuredLayers
from autoconf_launch.core import Architecture, ConfigError
from autoconf_launch.tuning_spaces import known_accelerator

from ..input_file import input_text

_COLUMNS = ("model", "gpu", "tp", "layer_index", "fwd_time_s")


@dataclass(frozen=True, slots=True)
class _Line:
    model: str
    gpu: str
    tensor: int
    index: int
    seconds: float


def read_layer_times(
    path: Path, model: Architecture, gpus: Collection[str]
) -> Mapping[str, MeasuredLayers]:
    """Forward passes of one sample for each GPU of a cluster.

    A file may have several models; the one whose name is part of this model's is taken. Its first
    entry is the embedding, the last one the head; in an encoder-decoder, which has no head in such
    files, each half begins with an embedding.

    Raises:
        ConfigError: the file cannot be read, lacks a column, the model or a GPU, or has another
            number of layers.
    """
    lines = _of_model(_read(path), path, model)
    found: dict[str, MeasuredLayers] = {}
    for gpu in sorted(gpus):
        here = [line for line in lines if known_accelerator(line.gpu) == gpu]
        if not here:
            known = ", ".join(sorted({line.gpu for line in lines}))
            raise ConfigError(f"{path} has no layers measured on {gpu}; it has {known}.")
        found[gpu] = _layers(here, path, model)
    return found


def _read(path: Path) -> list[_Line]:
    try:
        reader = csv.DictReader(io.StringIO(input_text(path)))
        rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        not_text = "it is not text" if isinstance(error, UnicodeDecodeError) else str(error)
        why = error.strerror if isinstance(error, OSError) else not_text
        raise ConfigError(f"--layer-times {path} cannot be read: {why}.") from error
    missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise ConfigError(
            f"--layer-times {path} lacks the column {missing[0]}; it needs {', '.join(_COLUMNS)}."
        )
    return [_line(row, path, number) for number, row in rows]


def _line(row: Mapping[str, str | None], path: Path, number: int) -> _Line:
    try:
        tensor, index = int(row["tp"] or ""), int(row["layer_index"] or "")
        seconds = float(row["fwd_time_s"] or "")
    except ValueError as error:
        raise ConfigError(f"{path}, line {number}: {error}; it must be a number.") from error
    if not (0 < seconds < math.inf and tensor > 0 and index >= 0):
        raise ConfigError(f"{path}, line {number}: tp and fwd_time_s must be above 0.")
    gpu = re.sub(r"\s*\(.*\)$", "", row["gpu"] or "")
    return _Line(row["model"] or "", gpu, tensor, index, seconds)


def _of_model(lines: Sequence[_Line], path: Path, model: Architecture) -> list[_Line]:
    names = sorted({line.model for line in lines})
    own = [name for name in names if _plain(name) in _plain(model.name)] or names
    if len(own) != 1:
        raise ConfigError(
            f"--layer-times {path} has layers of {', '.join(names) or 'no model'}, but the model "
            f"is {model.name}; keep its lines alone."
        )
    return [line for line in lines if line.model == own[0]]


def _plain(name: str) -> str:
    return re.sub(r"[-_ .]", "", name.lower())


def _layers(lines: Sequence[_Line], path: Path, model: Architecture) -> MeasuredLayers:
    tensor = sorted({line.tensor for line in lines})
    split = [_split([one for one in lines if one.tensor == n], path, model) for n in tensor]
    first, layer, last = zip(*split, strict=True)
    return MeasuredLayers(tensor=tuple(tensor), first_s=first, layer_s=layer, last_s=last)


def _split(lines: Iterable[_Line], path: Path, model: Architecture) -> tuple[float, float, float]:
    """Embedding, mean layer and head of one GPU and one number of tensor ranks."""
    seconds = [line.seconds for line in sorted(lines, key=lambda line: line.index)]
    layers = model.encoder_layers + model.layers
    if len(seconds) != layers + 2:
        raise ConfigError(
            f"--layer-times {path} has {len(seconds)} entries for a GPU and tp, but {model.name} "
            f"has {layers} layers and 2 ends."
        )
    if model.encoder_layers:
        second = model.encoder_layers + 1
        body = seconds[1:second] + seconds[second + 1 :]
        return seconds[0] + seconds[second], sum(body) / layers, math.nan
    return seconds[0], sum(seconds[1:-1]) / layers, seconds[-1]
