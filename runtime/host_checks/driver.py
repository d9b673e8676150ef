"""The GPUs of a host as NVIDIA's driver reports them; as a program it prints them as JSON.

Standard library only, as the launcher runs this file during trials. ``nvidia-smi`` refuses a whole
query for one field that it does not know, and the names of fields change, so unknown fields are
removed until it accepts the query.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TypeAlias

DriverRow: TypeAlias = "dict[str, int | str | None]"
"""Values by our names; None if this driver or card does not report one."""

_FIELDS = {
    "slot": ("index",),
    "uuid": ("uuid",),
    "name": ("name",),
    "driver": ("driver_version",),
    "compute_mode": ("compute_mode",),
    "mig_mode": ("mig.mode.current",),
    "sm_clock_mhz": ("clocks.sm",),
    "temperature_c": ("temperature.gpu",),
    "throttle_reasons": ("clocks_event_reasons.active", "clocks_throttle_reasons.active"),
    "uncorrected_errors": ("ecc.errors.uncorrected.volatile.total",),
    "retired_pending": ("retired_pages.pending",),
}
_SURE = ("slot", "uuid", "name", "sm_clock_mhz", "temperature_c")
"""Fields of every driver, if it does not say which one it refuses."""
_FORMAT = "--format=csv,noheader,nounits"
_PATIENCE_S = 20.0


def read_gpus() -> list[DriverRow]:
    """State of every GPU of this host; none without a driver that answers."""
    left = {name: list(fields) for name, fields in _FIELDS.items()}
    while left:
        query = ",".join(fields[0] for fields in left.values())
        code, text = _ask(f"--query-gpu={query}", _FORMAT)
        if code == 0:
            rows = (row for row in _rows(text) if len(row) == len(left) and row[0].isdecimal())
            return [dict(zip(left, map(_value, row), strict=True)) for row in rows]
        refused = [name for name, fields in left.items() if f'"{fields[0]}"' in text]
        if not refused and len(left) > len(_SURE):
            left = {name: [_FIELDS[name][0]] for name in _SURE}
        elif not refused:
            break
        for name in refused:
            del left[name][0]
        left = {name: fields for name, fields in left.items() if fields}
    return []


def users_of(uuid: str) -> list[str]:
    """Processes on a GPU, in words; a container may hide them."""
    code, text = _ask("--query-compute-apps=gpu_uuid,pid,process_name,used_memory", _FORMAT)
    rows = (row for row in _rows(text) if code == 0 and len(row) == 4 and row[0] == uuid)
    return [
        f"{os.path.basename(name)} (process {pid}, {memory} MiB)"  # noqa: PTH119
        for _, pid, name, memory in rows
    ]


def has_pending_rows(uuid: str) -> bool:
    """True if the memory of a GPU waits for a reset to replace faulty rows."""
    code, text = _ask("--query-remapped-rows=gpu_uuid,remapped_rows.pending", _FORMAT)
    return code == 0 and any(
        row[0] == uuid and row[1].lower() in ("1", "yes") for row in _rows(text) if len(row) == 2
    )


def _ask(*words: str) -> tuple[int, str]:
    """Exit code and all that was printed."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return 127, ""
    try:
        answer = subprocess.run(
            (program, *words), capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 127, ""
    return answer.returncode, answer.stdout + (answer.stderr if answer.returncode else "")


def _rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]


def _value(text: str) -> int | str | None:
    """A decimal or hexadecimal number, or words; None if not reported."""
    if text.strip("[]").lower() in ("", "n/a", "not supported", "unknown error"):
        return None
    try:
        return int(text, 0)
    except ValueError:
        return text


if __name__ == "__main__":
    json.dump(read_gpus(), sys.stdout)
