"""Tables of published measurements (CSV). Not: what a row says, nor what it is scored against."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoconf_launch.core import ConfigError

from .row import COLUMNS, PublishedRow, Row, RowError, SkippedRowError, read_row

_SEE = "see benchmarks/ground_truth/README.md for what a table of measurements has"
_SEPARATORS = {";": "';'", "\t": "tabs", "|": "'|'"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A line that does not count, or counts with a warning."""

    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementFile:
    """A table; ``rows`` counts all of them.

    ``bad`` ones contradict themselves, or (``at_odds``) a repeat; ``skipped`` ones leave out what
    a prediction needs, of which ``partial`` ones say what ran.
    """

    name: str
    rows: int
    measurements: tuple[PublishedRow, ...]
    at_odds: tuple[PublishedRow, ...]
    partial: tuple[Row, ...]
    bad: tuple[Problem, ...]
    skipped: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


def read_measurements(path: Path) -> MeasurementFile:
    """Every row of a file.

    Raises:
        ConfigError: the file cannot be read, or is not such a table.
    """
    found, partial = list[PublishedRow](), list[Row]()
    bad, skipped, warnings = list[Problem](), list[Problem](), list[Problem]()
    seen: dict[tuple[str, ...], int] = {}
    count = 0
    for line, row in _lines(path):
        count += 1
        try:
            if None in row or None in row.values():
                raise RowError("it has another number of cells than the header")
            text = tuple(row.values())
            if text in seen:
                warnings.append(Problem(line=line, text=f"it is the same as line {seen[text]}"))
            seen.setdefault(text, line)
            one = read_row(line, row)
            if isinstance(one, PublishedRow):
                found.append(one)
            else:
                partial.append(one)
                skipped.append(Problem(line=line, text=f"no {one.lacks[0]}"))
        except SkippedRowError as reason:
            skipped.append(Problem(line=line, text=str(reason)))
        except RowError as error:
            bad.append(Problem(line=line, text=str(error)))
    bad += (contradicted := _contradictions(found))
    lines = {problem.line for problem in contradicted}
    return MeasurementFile(
        name=path.name,
        rows=count,
        measurements=tuple(m for m in found if m.line not in lines),
        at_odds=tuple(m for m in found if m.line in lines),
        partial=tuple(partial),
        bad=tuple(bad),
        skipped=tuple(skipped),
        warnings=tuple(warnings),
    )


def _lines(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            _refuse_header(path, reader.fieldnames)
            for row in reader:
                yield reader.line_num, row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise ConfigError(f"{path} cannot be read as a CSV table: {reason}.") from error


def _refuse_header(path: Path, header: Sequence[str] | None) -> None:
    """Names of columns that cannot be those of a table."""
    if header is None:
        raise ConfigError(f"{path} is empty; {_SEE}.")
    if not any(name.strip() for name in header):
        raise ConfigError(f"{path}:1: it is blank, but must have the names of the columns.")
    for sign, word in _SEPARATORS.items():
        if len(header) == 1 and sign in header[0]:
            raise ConfigError(
                f"{path}:1: it has no comma; is it separated by {word}? Write it with commas."
            )
    if missing := [name for name in COLUMNS if name not in header]:
        raise ConfigError(f"{path}:1: it lacks the columns {', '.join(missing)}; {_SEE}.")
    for name in sorted({name for name in header if header.count(name) > 1}):
        raise ConfigError(f"{path}:1: it has the column {name} twice; remove one.")


def _contradictions(found: list[PublishedRow]) -> list[Problem]:
    """Equal settings of which some ran and some did not have room."""
    outcomes: dict[tuple[object, ...], list[PublishedRow]] = {}
    for one in found:
        outcomes.setdefault(one.settings, []).append(one)
    problems: list[Problem] = []
    for same in outcomes.values():
        if len({one.step_time_s is None for one in same}) > 1:
            lines = ", ".join(str(one.line) for one in same)
            text = f"lines {lines} have the same settings, but some ran and some did not"
            problems += [Problem(line=one.line, text=text) for one in same]
    return problems
