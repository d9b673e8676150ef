"""Writes ``final_results/`` of a search. Not: what stands in the tables (tables, top_text)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from autoconf_launch.core import ResultsFolderError

from .figures import optimum
from .outcome import SearchOutcome
from .tables import Columns, failed_csv, summary_csv
from .top_text import top_text

FINAL_RESULTS = "final_results"
NEMO2 = "nemo2"
"""Folder inside for the tables of NeMo 2.0, whose names are those of 1.0."""
_TOP = 10


def write_final_results(
    logs: Path, outcome: SearchOutcome, *, top: int = _TOP
) -> tuple[Path, ...]:
    """Write every table, the best configuration and the ranking below ``logs/final_results``.

    Each file is written whole or not at all. Where nothing was measured there is no optimal
    configuration, and one of an earlier search is removed.

    Args:
        logs: folder of the search, made if it is not there.
        outcome: with any number of successes and failures.
        top: how many configurations the ranking lists; 0 lists all.

    Returns:
        The files, the best configuration first if there is one.

    Raises:
        ResultsFolderError: the folder cannot be written.
    """
    folder = logs / FINAL_RESULTS
    best = folder / _optimal_name(outcome)
    texts = dict(_optimal(best, outcome))
    texts |= _tables(folder, outcome, (Columns.NEMO1_SUMMARY, Columns.NEMO1_FAILED))
    texts[folder / f"top_{top or 'all'}.log"] = top_text(outcome, top)
    texts |= _tables(folder / NEMO2, outcome, (Columns.NEMO2_SUMMARY, Columns.NEMO2_FAILED))
    _write(texts, absent=() if best in texts else (best,))
    return tuple(texts)


def write_nemo2_tables(folder: Path, outcome: SearchOutcome) -> tuple[Path, Path]:
    """Write the two tables of NeMo 2.0 into a folder: measured runs, failed ones.

    Raises:
        ResultsFolderError: the folder cannot be written.
    """
    texts = _tables(folder, outcome, (Columns.NEMO2_SUMMARY, Columns.NEMO2_FAILED))
    _write(texts)
    summary, failed = texts
    return summary, failed


def _tables(
    folder: Path, outcome: SearchOutcome, columns: tuple[Columns, Columns]
) -> dict[Path, str]:
    end = f"{outcome.nodes}nodes.csv"
    return {
        folder / f"final_summary_{end}": summary_csv(outcome, columns[0]),
        folder / f"failed_jobs_{end}": failed_csv(outcome, columns[1]),
    }


def _optimal_name(outcome: SearchOutcome) -> str:
    return f"optimal_config_{outcome.size_b:.10g}b_{outcome.nodes}nodes.yaml"


def _optimal(path: Path, outcome: SearchOutcome) -> Iterator[tuple[Path, str]]:
    if (best := optimum(outcome)) is not None:
        yield path, yaml.safe_dump(best.config.to_dict(), sort_keys=False, width=99)


def _write(texts: Mapping[Path, str], absent: tuple[Path, ...] = ()) -> None:
    for path in (*texts, *absent):
        try:
            if path in absent:
                path.unlink(missing_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_whole(path, texts[path])
        except OSError as error:
            raise ResultsFolderError(
                f"{path} cannot be written ({error.strerror or error}); choose another folder."
            ) from error


def _write_whole(path: Path, text: str) -> None:
    """Readers see the file complete or as it was before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
