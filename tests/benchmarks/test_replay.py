from __future__ import annotations

import csv
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.core import ConfigError

from .conftest import BENCHMARKS, import_benchmark

replay = import_benchmark("replay").replay

TABLES = BENCHMARKS / "ground_truth"
MULTI = str(TABLES / "vtrain_multi_node.csv")
T4 = str(TABLES / "amp_homogeneous_t4.csv")
METRICS = {
    "trials_to_2pct",
    "trials_to_5pct",
    "regret_at_4",
    "regret_at_8",
    "regret_at_16",
    "out_of_memory_trials",
    "stopped_at",
    "final_regret",
}


@cache
def score(*arguments: str) -> Any:
    return json.loads("".join(replay([*arguments, "--json"])))


def test_the_document_has_every_metric_of_every_group() -> None:
    document = score(MULTI, "--seeds", "1")
    assert document["schema_version"] == 1
    assert len(document["groups"]) == 2
    for one in (*document["groups"].values(), document["all"]):
        assert METRICS | {"configs"} <= set(one)
        assert all(set(one[metric]) == {"mean", "worst"} for metric in METRICS)


def test_steps_in_milliseconds_are_suspected(tmp_path: Path) -> None:
    with Path(T4).open(newline="") as file:
        rows = list(csv.DictReader(file))
    path = tmp_path / "t4.csv"
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(
            {**row, "step_time_s": row["step_time_s"] and f"{row['step_time_s']}e3"}
            for row in rows
        )
    text = "\n".join(replay([str(path), "--seeds", "1"]))
    assert "t4.csv: warning: steps take" in text
    assert "are they milliseconds?" in text


def test_all_groups_are_counted_by_the_same_command_alike() -> None:
    document = score(MULTI, T4, "--seeds", "1", "--tuner", "gridsearch")
    assert document["all"]["configs"] == 15 + 47 + 52
    assert document["all"]["stopped_at"]["worst"] == max(
        one["stopped_at"]["worst"] for one in document["groups"].values()
    )
    again = score.__wrapped__(MULTI, "--seeds", "1")
    assert again == score(MULTI, "--seeds", "1")
    text = "\n".join(replay([MULTI, "--seeds", "1"]))
    assert "vtrain-gpt-18.4, 256 x A100-SXM-80GB, global batch 1024" in text
    assert "all 2 groups" in text


def test_the_default_tuner_needs_far_fewer_trials_than_chance_or_deepspeed() -> None:
    ours = score(MULTI, "--seeds", "1")["all"]["trials_to_2pct"]["mean"]
    assert ours <= 4
    assert score(MULTI, "--tuner", "random")["all"]["trials_to_2pct"]["mean"] > 2 * ours
    assert score(MULTI, "--tuner", "deepspeed")["all"]["trials_to_2pct"]["mean"] > 4


def test_other_models_of_a_table_correct_its_predictions() -> None:
    assert score(MULTI, "--seeds", "1") != score(MULTI, "--seeds", "1", "--constants-alone")
    assert score(T4, "--seeds", "1") == score(T4, "--seeds", "1", "--constants-alone")


def test_means_are_over_seeds_and_random_as_slow_as_expected() -> None:
    one, several = (
        score(T4, "--tuner", "random", "--seeds", seeds)["all"]["trials_to_2pct"]
        for seeds in ("1", "4")
    )
    assert one["mean"] == one["worst"]
    assert several["mean"] < several["worst"]
    # A single configuration of 52 is within 2 %: on average it is the 26.5th.
    found = score(T4, "--tuner", "random", "--seeds", "20")["all"]
    assert 20 < found["trials_to_2pct"]["mean"] < 32


def test_patience_gains_and_strategies_decide_when_a_walk_stops() -> None:
    short, long, staged = (
        score(T4, "--tuner", "gridsearch", "--seeds", "1", *more)["all"]["stopped_at"]["mean"]
        for more in (("--early-stopping", "2"), (), ("--strategy", "staged"))
    )
    assert short < long
    assert staged not in (short, long)
    early, late = (
        score(MULTI, "--seeds", "1", "--good-enough", share)["all"]["stopped_at"]["mean"]
        for share in ("30%", "0")
    )
    assert early < late
    found = score(T4, "--tuner", "gridsearch", "--trials", "3", "--seeds", "1")["all"]
    assert found["trials_to_2pct"] == {"mean": 53, "worst": 53}


def test_files_and_groups_count_as_often_as_they_are_named(tmp_path: Path) -> None:
    copy = tmp_path / "again.csv"
    copy.write_bytes(Path(MULTI).read_bytes())
    names = score(MULTI, str(copy), "--tuner", "gridsearch", "--seeds", "1")["groups"]
    assert len(names) == 4
    assert sum(name.startswith("again: ") for name in names) == 2
    found = score(MULTI, MULTI, "--seeds", "1", "--trials", "1")
    assert len(found["groups"]) == found["all"]["groups"] == 4
    path = tmp_path / "one.csv"
    path.write_text("\n".join(Path(MULTI).read_text().splitlines()[:2]))
    found = score(str(path))["all"]
    assert (found["configs"], found["stopped_at"]["worst"], found["final_regret"]["worst"]) == (
        1,
        1,
        0.0,
    )


@pytest.mark.parametrize("lines", [1, 3])
def test_where_no_row_has_a_time_there_is_nothing_to_replay(tmp_path: Path, lines: int) -> None:
    header, *rows = Path(T4).read_text().splitlines()
    column = header.split(",").index("step_time_s")
    failed = [row for row in rows if not row.split(",")[column]]
    path = tmp_path / "full.csv"
    path.write_text("\n".join([header, *failed[: lines - 1]]))
    with pytest.raises(ConfigError, match="nothing can be replayed"):
        score(str(path))


def test_lines_left_out_are_said_and_named_if_nothing_remains(tmp_path: Path) -> None:
    header, *rows = Path(MULTI).read_text().splitlines()
    path = tmp_path / "nameless.csv"
    path.write_text("\n".join([header, *(row.replace("A100-SXM-80GB", "") for row in rows[:3])]))
    with pytest.raises(ConfigError, match=r"nameless\.csv:2: skipped: no gpu\. \(and 2 more\)"):
        score(str(path))
    lines = Path(MULTI).read_text().splitlines()
    path = tmp_path / "short.csv"
    path.write_text("\n".join([*lines[:6], lines[6].replace("A100-SXM-80GB", "")]) + "\n")
    assert score(str(path), "--seeds", "1")["left_out"] == ["short.csv:7: skipped: no gpu."]
    assert "short.csv:7: skipped: no gpu." in replay([str(path), "--seeds", "1"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--tuner", "modelbased"), "--tuner is 'modelbased'.*did you mean 'model_based'"),
        (("--trials", "0"), "--trials is 0, but must be at least 1"),
        (("--early-stopping", "-1"), "--early-stopping is -1"),
        (("--seeds", "0"), "--seeds is 0"),
        (("--good-enough", "3"), "--good-enough is '3'"),
        (("--group-by", "modle"), "--group-by has 'modle'"),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments: tuple[str, ...], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        score(MULTI, *arguments)


def test_the_program_ends_with_the_reason_why_there_is_no_score(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("model,step_time_s\nx,-1\n")
    command = [sys.executable, str(BENCHMARKS / "replay.py"), str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "table.csv:1: it lacks the columns" in ended.stderr
