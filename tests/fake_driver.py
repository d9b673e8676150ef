"""An ``nvidia-smi`` that answers any query of fields, with what a test gives it."""

from __future__ import annotations

from pathlib import Path

USUAL = {
    "index": "0",
    "uuid": "GPU-11111111-2222-3333-4444-555555555555",
    "name": "NVIDIA H100 80GB HBM3",
    "memory.total": "81559",
    "driver_version": "535.104.05",
    "compute_mode": "Default",
    "mig.mode.current": "Disabled",
    "clocks.sm": "1980",
    "temperature.gpu": "45",
    "clocks_event_reasons.active": "0x0000000000000000",
    "ecc.errors.uncorrected.volatile.total": "0",
    "retired_pages.pending": "[N/A]",
}
_PROGRAM = """#!/bin/sh
answer=
case "$1" in
  --query-compute-apps=*) {apps} exit 0;;
  --query-remapped-rows=*) {rows} exit 0;;
  --query-gpu=*) fields=$(echo "${{1#*=}}" | tr , ' ');;
  *) exit 0;;
esac
for field in $fields; do
  case "$field" in
{cases}
    *) echo "Field \\"$field\\" is not a valid field to query."; exit 2;;
  esac
  answer="$answer${{answer:+, }}$value"
done
echo "$answer"
"""


def put_driver(folder: Path, *, apps: str = "", rows: str = "", **changes: str) -> Path:
    """Write the program; ``changes`` are fields with ``__`` for a point.

    ``apps`` and ``rows`` are the lines of the queries for processes and remapped rows.
    """
    fields = USUAL | {name.replace("__", "."): value for name, value in changes.items()}
    cases = "\n".join(f'    {name}) value="{value}";;' for name, value in fields.items() if value)
    lines = [f'echo "{line}";' if line else "" for line in (apps, rows)]
    program = folder / "nvidia-smi"
    program.write_text(_PROGRAM.format(apps=lines[0], rows=lines[1], cases=cases))
    program.chmod(0o755)
    return program
