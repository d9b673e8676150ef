from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import DEFAULT_PHYSICS, Physics
from autoconf_launch.autotuner.space import FailedTrial, Record
from autoconf_launch.core import ConfigError, Failure, FailureKind
from autoconf_launch.launcher.results import Fingerprint, Journal, SpaceLine

from ..autotuner.builders import launch, measurement, trial_of
from .conftest import import_benchmark

recorded = import_benchmark("recorded_landscapes")
read_landscapes, parse_group_by = recorded.read_landscapes, recorded.parse_group_by

TABLES = Path(__file__).parents[2] / "benchmarks" / "ground_truth"
MULTI = TABLES / "vtrain_multi_node.csv"


def change(tmp_path: Path, **cells: str) -> Path:
    """Six rows of a published table, the last one with other cells."""
    lines = MULTI.read_text().splitlines()[:7]
    names = lines[0].split(",")
    last = lines[-1].split(",")
    for name, text in cells.items():
        last[names.index(name)] = text
    path = tmp_path / "table.csv"
    path.write_text("\n".join([*lines[:-1], ",".join(last)]) + "\n")
    return path


@pytest.mark.parametrize(
    ("table", "groups", "configs"),
    [
        ("vtrain_single_node", 44, 620),
        ("vtrain_multi_node", 2, 62),
        ("amp_homogeneous_t4", 1, 52),
        ("amp_heterogeneous_v100_t4", 1, 26),
    ],
)
def test_published_tables_have_their_groups(table: str, groups: int, configs: int) -> None:
    found = read_landscapes(TABLES / f"{table}.csv", others=False).groups
    large = [len(group) for group in found if len(group) >= 8]
    assert (len(large), sum(large)) == (groups, configs)


def test_groups_share_what_was_asked_for_and_the_rest_are_knobs(tmp_path: Path) -> None:
    assert [group.name for group in read_landscapes(MULTI).groups] == [
        "vtrain-gpt-18.4, 256 x A100-SXM-80GB, global batch 1024",
        "vtrain-gpt-39.1, 512 x A100-SXM-80GB, global batch 1536",
    ]
    found = read_landscapes(MULTI, ("gpu",)).groups
    assert [group.name for group in found] == ["gpu A100-SXM-80GB"]
    assert len(found[0]) == 62
    names = {name for name, _ in read_landscapes(MULTI, ("gpu",)).groups[0].table.columns}
    assert {"model", "n_gpus", "layers"} <= names
    assert "precision" not in names
    found = read_landscapes(MULTI, parse_group_by("model,gpu,n_gpus,gbs,tp")).groups
    assert len(found) > 2
    assert all(len(set(group.table["tensor_parallel"].tolist())) == 1 for group in found)
    with pytest.raises(ConfigError, match="--group-by has 'modle'; did you mean 'model'"):
        parse_group_by("gpu, modle")
    path = change(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    last = change(other, gpus_per_node="4").read_text().splitlines()[-1]
    path.write_text(path.read_text() + last + "\n")
    assert (
        len(read_landscapes(path).groups[0])
        == len(read_landscapes(change(tmp_path)).groups[0]) + 1
    )
    assert read_landscapes(TABLES / "amp_heterogeneous_v100_t4.csv").unpredicted == ()


def test_predictions_stand_above_their_bound_and_are_the_sum_of_their_parts() -> None:
    for group in read_landscapes(MULTI).groups:
        assert group.predictions is not None
        assert group.predictions.least_step_s_C is not None
        assert (group.predictions.least_step_s_C < group.predictions.step_s_C).all()
    for group in read_landscapes(MULTI).groups:
        assert group.predictions is not None
        total_s = sum(seconds for _, seconds in group.predictions.parts)
        assert np.allclose(total_s, group.predictions.step_s_C)


def test_other_models_correct_predictions_without_seeing_times_of_their_own(
    tmp_path: Path,
) -> None:
    for alone, by_others in zip(
        read_landscapes(MULTI, others=False).groups, read_landscapes(MULTI).groups, strict=True
    ):
        assert alone.predictions is not None
        assert by_others.predictions is not None
        assert (alone.predictions.step_s_C != by_others.predictions.step_s_C).all()
        assert "corrected by other models" in by_others.predictions.how
        assert "corrected" not in alone.predictions.how
    by = ("gpu", "n_gpus")
    plain, others = (read_landscapes(MULTI, by, others=x).groups for x in (False, True))
    for one, other in zip(plain, others, strict=True):
        assert one.predictions is not None
        assert other.predictions is not None
        assert one.predictions.step_s_C.tolist() == other.predictions.step_s_C.tolist()
    before = read_landscapes(change(tmp_path)).groups[0].predictions
    after = read_landscapes(change(tmp_path, step_time_s="999")).groups[0].predictions
    assert before is not None
    assert after is not None
    assert np.array_equal(before.step_s_C, after.step_s_C)
    assert np.isfinite(before.step_s_C).all()
    slow = replace(DEFAULT_PHYSICS, sustained=DEFAULT_PHYSICS.sustained / 2)

    def physics_of(model: str) -> Physics:
        return slow if "18.4" in model else DEFAULT_PHYSICS

    plain, slower = (
        read_landscapes(MULTI, physics_of=constants, others=False)
        for constants in (lambda model: DEFAULT_PHYSICS, physics_of)
    )
    ratios = [
        b.predictions.step_s_C / a.predictions.step_s_C
        for a, b in zip(plain.groups, slower.groups, strict=True)
        if a.predictions and b.predictions
    ]
    assert (ratios[0] > 1.2).all()
    assert (ratios[1] == 1.0).all()


@pytest.mark.parametrize(("times", "fits"), [(("", "9"), False), (("", "9", "9"), True)])
def test_repeats_of_which_most_failed_are_out_of_memory(
    tmp_path: Path, times: tuple[str, ...], fits: bool
) -> None:
    whole = read_landscapes(change(tmp_path)).groups[0]
    path = change(tmp_path, step_time_s=times[0])
    lines = path.read_text().splitlines()
    for time_s in times[1:]:
        other = tmp_path / "other"
        other.mkdir(exist_ok=True)
        lines.append(change(other, step_time_s=time_s).read_text().splitlines()[-1])
    path.write_text("\n".join(lines))
    found = read_landscapes(path)
    assert len(found.groups[0]) == len(whole)
    assert int(np.isnan(found.groups[0].step_s_C).sum()) == (0 if fits else 1)
    assert found.notes == ()


def test_rows_and_columns_that_cannot_be_are_refused_or_left_out(tmp_path: Path) -> None:
    group = read_landscapes(change(tmp_path, step_time_s="")).groups[0]
    assert np.isnan(group.step_s_C).sum() == 1
    found = read_landscapes(change(tmp_path, gpu="Slate-1"))
    assert [text.partition("(")[2] for text in found.unpredicted] == [
        "unknown GPU 'Slate-1'); the measured values count."
    ]
    found = read_landscapes(change(tmp_path, heads="7"))
    assert len(found.notes) == 1
    assert found.notes[0].startswith("table.csv:7: skipped: ")
    found = read_landscapes(change(tmp_path, step_time_s="", gbs="512"))
    assert len(found.groups) == 1
    (note,) = found.notes
    assert "global batch 512: none of its rows has a time" in note
    with pytest.raises(ConfigError, match=r"step_time_s is 'OOM'.*leave it empty"):
        read_landscapes(change(tmp_path, step_time_s="OOM"))
    path = tmp_path / "table.csv"
    path.write_text("model,gpu\na,b\n")
    with pytest.raises(ConfigError, match=r"table\.csv:1: it lacks the columns seq"):
        read_landscapes(path)
    path = change(tmp_path)
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([f"{header},step_time_s", *(f"{row},1" for row in rows)]))
    with pytest.raises(ConfigError, match=":1: it has the column step_time_s twice"):
        read_landscapes(path)


@pytest.mark.parametrize("text", ["-1.5", "0", "soon"])
def test_a_time_that_cannot_be_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"table\.csv:7: step_time_s is '{text}'"):
        read_landscapes(change(tmp_path, step_time_s=text))


def record(
    number: int, micro: int, step_s: float | None, kind: FailureKind | None = None
) -> Record:
    words = f"dp=2 micro={micro} acc={8 // micro}"
    trial = trial_of(number, words, f"z0_gas1_tmbspg{number}")
    failed = FailedTrial(failure=Failure(kind=kind or FailureKind.OUT_OF_MEMORY, detail=""))
    outcome = measurement(step_s, step_s, samples=16) if step_s else failed
    return launch(trial, outcome, 1.0, peak_bytes=10 * micro, band=0.3)


def journal(tmp_path: Path, *records: Record) -> Path:
    path = tmp_path / "journal.jsonl"
    path.unlink(missing_ok=True)
    fingerprint = Fingerprint(
        script="", arguments=(), config="", hardware=("cpu (x86), limit None",) * 2, versions=()
    )
    with Journal(path) as opened:
        opened.write_header(fingerprint)
        for one in records:
            opened.write_record(one)
    return path


def test_journals_are_landscapes_by_the_name_of_their_folder(tmp_path: Path) -> None:
    path = journal(tmp_path, record(0, 1, 2.0), record(1, 2, 1.0), record(2, 4, None))
    (group,) = read_landscapes(path).groups
    assert group.name == f"{tmp_path.name}, 2 x cpu (x86), global batch 16"
    found = dict(zip(group.table["micro_batch"].tolist(), group.step_s_C.tolist(), strict=True))
    assert (found[1], found[2]) == (2.0, 1.0)
    assert np.isnan(found[4])
    assert group.predictions is not None
    assert group.predictions.band == 0.3
    path = journal(tmp_path, record(0, 1, 2.0), record(1, 2, 1.0), record(2, 4, None))
    found = read_landscapes(path, ("mbs", "gbs"))
    assert [group.name for group in found.groups] == [
        f"{tmp_path.name}, mbs {micro}, gbs 16" for micro in (1, 2)
    ]
    assert found.notes == (
        f"{path}: skipped: {tmp_path.name}, mbs 4, gbs 16: none of its trials ran.",
    )
    path = journal(tmp_path, record(0, 1, 2.0), record(1, 2, 1.0))
    (group,) = read_landscapes(path, ("model", "gpu", "seq")).groups
    assert (group.name, len(group)) == (tmp_path.name, 2)
    names = []
    for name in ("autotuning_results", "autotuning_results.1", "mine"):
        folder = tmp_path / "project" / name
        folder.mkdir(parents=True)
        journal(folder, record(0, 1, 2.0))
        names.append(read_landscapes(folder).groups[0].name.partition(",")[0])
    assert names == ["project", "project/autotuning_results.1", "mine"]


def test_journals_hold_repeats_and_measured_trials_of_all_spaces(tmp_path: Path) -> None:
    journal(tmp_path, record(0, 1, 2.0))
    assert len(read_landscapes(tmp_path).groups) == 1
    path = journal(tmp_path, record(0, 1, 2.0), record(1, 2, None, FailureKind.CRASHED))
    assert len(read_landscapes(path).groups[0]) == 1
    with pytest.raises(ConfigError, match="has no measured trial"):
        read_landscapes(journal(tmp_path, record(0, 1, None)))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ConfigError, match="is not a journal"):
        read_landscapes(empty)
    first = record(0, 1, 2.0)
    again = replace(record(0, 1, 4.0), trial=replace(first.trial, final=True))
    (group,) = read_landscapes(journal(tmp_path, first, again)).groups
    assert group.step_s_C.tolist() == [3.0]
    first, second = record(0, 1, 2.0), record(1, 2, 3.0)
    path = journal(tmp_path, first, second)
    with Journal(path) as opened:
        opened.write_space(
            SpaceLine(digest="a", baseline=first.trial.name, left_out=(second.trial.name,))
        )
    assert len(read_landscapes(path).groups[0]) == 2
    path = journal(tmp_path, record(0, 1, 2.0))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        for name in ("parts", "least_step_s"):
            (line.get("prediction") or {}).pop(name, None)
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    assert len(read_landscapes(path).groups[0]) == 1


@pytest.mark.parametrize("step_s", [[], [0.0], [-1.0], [float("nan")], [1e308, 1e308]])
def test_times_of_a_journal_that_cannot_be_are_refused_with_their_line(
    tmp_path: Path, step_s: list[float]
) -> None:
    path = journal(tmp_path, record(0, 1, 2.0))
    *lines, last = path.read_text().splitlines()
    changed = json.loads(last)
    changed["measurement"]["step_s"] = step_s
    path.write_text("\n".join([*lines, json.dumps(changed)]) + "\n")
    with pytest.raises(ConfigError, match=rf"journal.jsonl:{len(lines) + 1}: .*step_s is \["):
        read_landscapes(path)


@pytest.mark.parametrize("line", [b"\xff\xfe", b"[]", b"{", b'{"name": "z"}'])
def test_a_line_that_is_of_no_journal_is_refused_with_its_number(
    tmp_path: Path, line: bytes
) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(
        ConfigError, match=r"journal\.jsonl:1: this line does not belong in a journal"
    ):
        read_landscapes(path)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is empty"),
        (b"\n\nmodel,gpu\n", ":1: it is blank, but must have the names of the columns"),
        (b"\x00\xff\xfe", "cannot be read"),
        (b"a;b;c\n1;2;3\n", ":1: it has no comma; is it separated by ';'"),
        (b"a\tb\n1\t2\n", ":1: it has no comma; is it separated by tabs"),
    ],
)
def test_what_is_no_table_is_refused_by_name(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "some.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"some\.csv ?{text}"):
        read_landscapes(path)
