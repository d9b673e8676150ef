"""Candidates and predictions as columns.

Shapes: C = candidates. A ``Candidate`` is one row, made only for those that are shown or run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autoconf_launch.core import KNOBS, LAYOUT_KNOBS, Candidate, Knob, Layout, global_batch

from .trial import Prediction, extra_order

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Selection: TypeAlias = Bools | Ints | Sequence[int]

ABSENT = -1
"""Code of an extra that a candidate does not have."""


@dataclass(frozen=True, slots=True, eq=False)
class CodedColumn:
    """A knob's column: numbers themselves, or positions in ``categories``."""

    codes: Ints
    categories: tuple[object, ...] | None = None

    def value(self, i: int) -> Any:
        """The value of row ``i``."""
        code = int(self.codes[i])
        return code if self.categories is None else self.categories[code]

    def take(self, rows: Ints | Bools) -> CodedColumn:
        return replace(self, codes=self.codes[rows])

    def code_of(self, value: object) -> int | None:
        """The code of ``value`` here; None if no row can have it."""
        if self.categories is None:
            return value if isinstance(value, int) else None
        found = [i for i, known in enumerate(self.categories) if _key(known) == _key(value)]
        return found[0] if found else None


@dataclass(frozen=True, slots=True, eq=False)
class CandidateTable:
    """A column for each canonical knob, in registry order, then one for each extra."""

    columns: tuple[tuple[str, CodedColumn], ...]

    @staticmethod
    def from_candidates(candidates: Sequence[Candidate]) -> CandidateTable:
        """A table with a row for each candidate, in order."""
        layouts = [candidate.layout for candidate in candidates]
        knobs = [(k.name, _column(k, [getattr(x, k.name) for x in layouts])) for k in KNOBS]
        given = [dict(candidate.extras) for candidate in candidates]
        names = sorted({name for extras in given for name in extras}, key=extra_order)
        extras = [(name, _intern([row.get(name, LEFT_OUT) for row in given])) for name in names]
        return CandidateTable((*knobs, *extras))

    def __len__(self) -> int:
        return len(self.columns[0][1].codes)

    def __getitem__(self, knob: str) -> Ints:
        """Values of a numeric knob, codes of another; all absent for an extra that no row has."""
        column = dict(self.columns).get(knob)
        return column.codes if column else np.full(len(self), ABSENT, np.int64)

    @property
    def global_batch_C(self) -> Ints:
        """Samples of one optimizer step: core's equation over columns."""
        micro: Any = self["micro_batch"]
        accumulation: Any = self["accumulation"]
        ranks: Any = self["data_parallel"]
        product: Any = global_batch(
            micro_batch=micro, accumulation=accumulation, data_parallel=ranks
        )
        return np.asarray(product, np.int64)

    def is_value(self, knob: str, value: object) -> Bools:
        """Rows that have this value; ``LEFT_OUT``: rows without it."""
        code = ABSENT if value is LEFT_OUT else dict(self.columns)[knob].code_of(value)
        return np.asarray(self[knob] == code, np.bool_)

    def numbers(self, extra: str, left_out: float) -> Floats:
        """Values of an extra that is a number or a truth value; ``left_out`` if a row lacks it."""
        column = dict(self.columns).get(extra, CodedColumn(self[extra], ()))
        values: tuple[Any, ...] = (*(column.categories or ()), left_out)
        return np.array([float(value) for value in values])[column.codes]

    def row(self, i: int) -> Candidate:
        layout = {name: c.value(i) for name, c in self.columns if name in LAYOUT_KNOBS}
        extras = tuple(
            (name, column.value(i))
            for name, column in self.columns
            if name not in LAYOUT_KNOBS and column.codes[i] != ABSENT
        )
        return Candidate(layout=Layout(**layout), extras=extras)

    def take(self, selection: Selection) -> CandidateTable:
        """Rows of a mask, or rows by number."""
        rows = _rows(selection)
        return CandidateTable(tuple((name, column.take(rows)) for name, column in self.columns))

    def find(self, candidate: Candidate) -> Ints:
        """Numbers of the rows that are this candidate."""
        return np.flatnonzero(self.matches(candidate))

    def matches(self, candidate: Candidate, *, but: Sequence[str] = ()) -> Bools:
        """Rows equal to ``candidate`` in every knob, those in ``but`` aside."""
        extras = dict(candidate.extras)
        same = np.ones(len(self), np.bool_)
        names = {name for name, _ in self.columns}
        if not extras.keys() <= names | set(but):
            return np.zeros(len(self), np.bool_)
        for name, column in self.columns:
            if name in but:
                continue
            value = getattr(candidate.layout, name) if name in LAYOUT_KNOBS else LEFT_OUT
            value = extras.get(name, value)
            code = ABSENT if value is LEFT_OUT else column.code_of(value)
            same &= np.False_ if code is None else column.codes == code
        return same

    def cross(self, knob: str, values: Sequence[object]) -> CandidateTable:
        """Each row once with each value of ``knob``, rows in their old order."""
        wide = self.take(np.repeat(np.arange(len(self)), len(values)))
        return wide.with_values(knob, list(values) * len(self))

    def with_values(self, knob: str, values: Sequence[object] | Ints) -> CandidateTable:
        """The table's rows with another value each for one knob."""
        row = LAYOUT_KNOBS.get(knob)
        column = _column(row, values) if row else _intern(values)
        changed = {**dict(self.columns), knob: column}
        extras = sorted((name for name in changed if name not in LAYOUT_KNOBS), key=extra_order)
        return CandidateTable(tuple((name, changed[name]) for name in (*LAYOUT_KNOBS, *extras)))

    def in_order(self, knobs: Sequence[str]) -> CandidateTable:
        """Rows sorted by these knobs, the first one weighing most; equal ones stay in order."""
        return self.take(np.lexsort([self[knob] for knob in reversed(knobs)]))

    def distinct(self) -> CandidateTable:
        """The first of each set of equal rows, in order."""
        codes = np.stack([column.codes for _, column in self.columns])
        _, first = np.unique(codes, axis=1, return_index=True)
        return self.take(np.sort(first))


def concat(tables: Sequence[CandidateTable]) -> CandidateTable:
    """All rows, table after table; an extra that a table lacks is absent in its rows."""
    extras = {name for t in tables for name, _ in t.columns if name not in LAYOUT_KNOBS}
    names = (*LAYOUT_KNOBS, *sorted(extras, key=extra_order))
    return CandidateTable(tuple((name, _join(name, tables)) for name in names))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictionTable:
    """Predictions of the cost models for each row; NaN if they cannot predict. See ``Prediction``.

    Attributes:
        least_step_s_C: seconds that no step of the row can come below.
        parts: names of parts of a step, with the seconds of each row.
        memory_parts: names of parts of the peak, with the bytes of each row.
        stage_parts: the same on every pipeline stage, an axis before the rows.
        limit_bytes: memory that a rank has.
        host_bytes_C: host memory that a node needs; None if no row offloads anything.
    """

    peak_bytes_C: Floats
    step_s_C: Floats
    band: float | None
    how: str
    least_step_s_C: Floats | None = None
    parts: tuple[tuple[str, Floats], ...] = ()
    memory_parts: tuple[tuple[str, Floats], ...] = ()
    stage_parts: tuple[tuple[str, Floats], ...] = ()
    limit_bytes: float | None = None
    host_bytes_C: Floats | None = None

    def __len__(self) -> int:
        return len(self.step_s_C)

    def row(self, i: int) -> Prediction:
        peak_bytes, step_s = float(self.peak_bytes_C[i]), float(self.step_s_C[i])
        sized, timed = not np.isnan(peak_bytes), not np.isnan(step_s)
        least_s = np.nan if self.least_step_s_C is None else float(self.least_step_s_C[i])
        return Prediction(
            peak_bytes=round(peak_bytes) if sized else None,
            step_s=step_s if timed else None,
            band=self.band if timed else None,
            how=self.how,
            least_step_s=None if np.isnan(least_s) else least_s,
            parts=tuple((name, float(seconds[i])) for name, seconds in self.parts if timed),
            memory_parts=tuple((name, round(b[i])) for name, b in self.memory_parts if sized),
        )

    def take(self, selection: Selection) -> PredictionTable:
        """Rows of a mask, or rows by number."""
        rows = _rows(selection)
        least_s, host_bytes = self.least_step_s_C, self.host_bytes_C
        return replace(
            self,
            host_bytes_C=None if host_bytes is None else host_bytes[rows],
            peak_bytes_C=self.peak_bytes_C[rows],
            step_s_C=self.step_s_C[rows],
            least_step_s_C=None if least_s is None else least_s[rows],
            parts=tuple((name, seconds[rows]) for name, seconds in self.parts),
            memory_parts=tuple((name, size[rows]) for name, size in self.memory_parts),
            stage_parts=tuple((name, size[:, rows]) for name, size in self.stage_parts),
        )


class _Missing:
    """Marks an extra that a candidate does not have."""


LEFT_OUT = _Missing()
"""The value of an extra that a candidate does not have."""


def _key(value: object) -> tuple[type, object]:
    """Equal only for values that are written alike: True is not 1."""
    return type(value), value


def _rows(selection: Selection) -> Ints | Bools:
    rows = np.asarray(selection)
    return rows if rows.dtype == np.bool_ else rows.astype(np.int64)


def _column(knob: Knob, values: Sequence[object] | Ints) -> CodedColumn:
    if knob.interned:
        return _intern(values)
    if knob.is_number:
        return CodedColumn(np.array(values, dtype=np.int64))
    position = {_key(known): i for i, known in enumerate(knob.values or ())}
    codes = np.array([position[_key(value)] for value in values], dtype=np.int64)
    return CodedColumn(codes, knob.values)


def _intern(values: Sequence[object] | Ints) -> CodedColumn:
    position: dict[tuple[type, object], int] = {}
    codes = [
        ABSENT if value is LEFT_OUT else position.setdefault(_key(value), len(position))
        for value in values
    ]
    return CodedColumn(np.array(codes, dtype=np.int64), tuple(value for _, value in position))


def _join(name: str, tables: Sequence[CandidateTable]) -> CodedColumn:
    columns = [dict(table.columns).get(name) for table in tables]
    knob = LAYOUT_KNOBS.get(name)
    if knob and not knob.interned:
        known = [column for column in columns if column]
        return CodedColumn(np.concatenate([c.codes for c in known]), known[0].categories)
    position: dict[tuple[type, object], int] = {}
    parts = [
        _recode(column, position) if column else table[name]
        for column, table in zip(columns, tables, strict=True)
    ]
    return CodedColumn(np.concatenate(parts), tuple(value for _, value in position))


def _recode(column: CodedColumn, position: dict[tuple[type, object], int]) -> Ints:
    """Codes in a shared list of categories, to which new ones are added."""
    known = column.categories or ()
    codes = [position.setdefault(_key(value), len(position)) for value in known]
    return np.array([*codes, ABSENT], dtype=np.int64)[column.codes]
