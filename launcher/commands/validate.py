"""``validate FILE.csv…``: how wrong predictions are on measurements."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from ..asked import ValidateCommand, read_flags
from ..measurements import calibration_of, score_files, together
from ..report import (
    problem_lines,
    row_lines,
    rows_csv,
    save_file,
    unit_warnings,
    validation_document,
    validation_lines,
)


def validate(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: wrong arguments, or a file is not a table of measurements.
    """
    flags = read_flags(ValidateCommand, arguments)
    calibration = calibration_of(flags)
    scored = score_files(flags.files, calibration, flags.trainer)
    if flags.csv:
        save_file("--csv", flags.csv, lambda file: rows_csv(scored, file))
    everything = together([one for _, one in scored])
    if flags.json:
        document = validation_document(scored, everything, calibration)
        yield json.dumps(document, indent=2, allow_nan=False)
        return
    yield from problem_lines([file for file, _ in scored])
    yield from unit_warnings(scored)
    yield from validation_lines(scored, everything)
    if flags.rows:
        yield from row_lines(scored)
