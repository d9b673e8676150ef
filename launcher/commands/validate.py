"""``validate FILE.csv…``: errors of predictions against measurements."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from autoconf_launch.core import ConfigError

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
        ConfigError: wrong arguments, a file that is not a table of measurements, or only rows that
            contradict themselves; everything has been yielded by then.
    """
    flags = read_flags(ValidateCommand, arguments)
    calibration = calibration_of(flags)
    scored = score_files(flags.files, calibration, flags.trainer)
    if flags.csv:
        save_file(flags.csv, lambda file: rows_csv(scored, file), "--csv")
    everything = together([one for _, one in scored])
    if flags.json:
        document = validation_document(scored, everything, calibration)
        yield json.dumps(document, indent=2, allow_nan=False)
    else:
        yield from problem_lines([file for file, _ in scored])
        yield from unit_warnings(scored)
        yield from validation_lines(scored, everything)
        if flags.rows:
            yield from row_lines(scored)
    if everything.rows and everything.rows == sum(len(file.bad) for file, _ in scored):
        names = ", ".join(str(file) for file in flags.files)
        raise ConfigError(
            f"{names}: no row can be compared, as all of them are wrong; correct them."
        )
