"""Measurements of this user's earlier tunes, by model and hardware.

One JSON object per line in ``measurements.jsonl`` in the user's data folder, readable only by
them: a digest of model and hardware, a candidate, its step time, and a random word that the times
of one tune share. Unreadable lines are skipped; a file that others may write is not read.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autoconf_launch.autotuner.strategies import PastTime
from autoconf_launch.core import ClusterSpec, ModelSpec, decode, encode

_FILE = "measurements.jsonl"
_MOST = 64
_MOST_BYTES = 4 << 20
"""Read from the end of the file."""
_LONGEST_S = 1e9


def past_file() -> Path | None:
    """The file; None if the environment names no folder of the user."""
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    home = Path(os.environ.get("HOME", ""))
    folder = data if data.is_absolute() else home / ".local" / "share"
    return folder / "autoconf-launch" / _FILE if folder.is_absolute() else None


def key_of(spec: ModelSpec, cluster: ClusterSpec, dialect: str) -> str:
    """Digest of the parts that must be equal: model shapes, devices, and dialect."""
    blocks = [
        (b.count, b.parameters, b.frozen_parameters, b.activation_bytes) for b in spec.blocks
    ]
    shape = (blocks, spec.parameter_bytes_each, spec.hidden_size, spec.layers)
    devices = [device.name for device in cluster.devices]
    parts = (*shape, spec.sequence_length, spec.vocabulary_size, devices, dialect)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def read_past(key: str) -> tuple[PastTime, ...]:
    """The latest times of this key, the oldest first; none if the file cannot be trusted."""
    path = past_file()
    if path is None:
        return ()
    try:
        data = _own_bytes(path)
    except OSError:
        return ()
    found = (_of_line(line, key) for line in data.splitlines())
    return tuple(one for one in found if one is not None)[-_MOST:]


def remember(key: str, times: Sequence[PastTime]) -> None:
    """Append the times of one tune; a folder that cannot be written is ignored."""
    path, study = past_file(), secrets.token_hex(8)
    plain = [replace(one, study=study) for one in times if _is_plain(one)]
    lines = [json.dumps({"key": key, "time": encode(one)}) for one in plain]
    if path is None or not lines:
        return
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        try:
            os.write(descriptor, "".join(f"{line}\n" for line in lines).encode())
        finally:
            os.close(descriptor)
    except OSError:
        return


def _own_bytes(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        others = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid() or others:
            return b""
        file.seek(max(0, about.st_size - _MOST_BYTES))
        return file.read(_MOST_BYTES)


def _of_line(line: bytes, key: str) -> PastTime | None:
    try:
        read = json.loads(line)
        if read["key"] != key:
            return None
        one = decode(PastTime, read["time"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return one if 0.0 < one.step_s < _LONGEST_S else None


def _is_plain(one: PastTime) -> bool:
    """Whether no word of the user's is in it, which may be anything."""
    return not any(isinstance(value, str) for _, value in one.candidate.extras)
