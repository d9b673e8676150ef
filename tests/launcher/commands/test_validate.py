import json
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.commands.validate import validate

from .verb import table

TABLES = Path(__file__).parents[3] / "benchmarks" / "ground_truth"


def score(*arguments: str) -> Any:
    return json.loads("".join(validate([*arguments, "--json"])))


@pytest.fixture
def small_table(tmp_path: Path) -> Path:
    """The first rows of a published table, with one more GPU than there is."""
    lines = (TABLES / "vtrain_multi_node.csv").read_text().splitlines()
    path = tmp_path / "small.csv"
    path.write_text("\n".join([*lines[:8], lines[8].replace("A100-SXM-80GB", "Z9000")]) + "\n")
    return path


def test_the_document_says_what_was_predicted_and_what_was_not(small_table: Path) -> None:
    document = score(str(small_table))
    one = document["files"]["small.csv"]
    assert document["schema_version"] == 1
    assert (one["rows"], one["predicted"], one["skipped"]) == (8, 7, {"unknown GPU": 1})
    assert " ".join(one["step_time"]) == (
        "mape median_ape spearman top1_regret_mean top1_regret_max groups"
    )
    assert " ".join(one["fits"]) == (
        "failed_rows failed_rows_flagged failed_rows_safe ran_rows ran_rows_flagged"
    )
    assert 1 < document["all"]["step_time"]["mape"] < 30


def test_calibration_leaves_its_rows_out_and_its_seed_decides_which(small_table: Path) -> None:
    first, again, other, every = (
        score(str(small_table), "--calibrate", rows, "--seed", seed)["all"]
        for rows, seed in (("3", "1"), ("3", "1"), ("3", "2"), ("50", "1"))
    )
    assert first == again
    assert first["step_time"]["mape"] != other["step_time"]["mape"]
    assert every["step_time"]["mape"] is None


def test_several_tables_are_scored_apart_and_together(small_table: Path) -> None:
    document = score(str(small_table), str(TABLES / "bigscience_a100.csv"))
    rows = [one["rows"] for one in document["files"].values()]
    assert document["all"]["rows"] == sum(rows)


def test_a_table_of_wrong_rows_only_is_an_error_after_its_text(tmp_path: Path) -> None:
    lines = (TABLES / "vtrain_multi_node.csv").read_text().splitlines()
    path, wrong = tmp_path / "bad.csv", lines[3].replace(",6144,", ",-6144,")
    path.write_text("\n".join([*lines[:3], wrong]) + "\n")
    assert "bad.csv:4: skipped: hidden is '-6144'" in "\n".join(validate([str(path)]))
    path.write_text("\n".join([lines[0], wrong]) + "\n")
    for words in ([str(path)], [str(path), "--json"]):
        pieces = validate(words)
        assert "hidden is '-6144'" in next(pieces)
        with pytest.raises(ConfigError, match="all of them are wrong"):
            list(pieces)


@pytest.mark.parametrize(
    ("table", "most"),
    [
        ("vtrain_single_node", 8.0),
        ("vtrain_multi_node", 9.0),
        ("bigscience_a100", 8.0),
        ("llmfoundry_fsdp_a100", 6.5),
        ("torchtitan", 8.5),
        ("nemo_24_07_h100", 8.5),
        ("amp_homogeneous_t4", 12.0),
    ],
)
def test_published_tables_are_predicted_as_well_as_before(table: str, most: float) -> None:
    document = score(str(TABLES / f"{table}.csv"))
    assert document["all"]["step_time"]["mape"] < most


def test_each_row_stands_beside_its_prediction(small_table: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    text = "\n".join(validate([str(small_table), "--rows", "--csv", str(path)]))
    rows = table(path)
    assert [row["line"] for row in rows] == [str(line) for line in range(2, 9)]
    for row in rows:
        ratio = float(row["predicted_s"]) / float(row["measured_s"])
        assert float(row["time_error_percent"]) == pytest.approx(100 * (ratio - 1), abs=0.01)
        assert f" {row['layout']} " in text


def test_steps_in_milliseconds_and_a_column_that_is_nearly_one_of_ours_are_named(
    small_table: Path,
) -> None:
    lines = small_table.read_text().splitlines()
    place = lines[0].split(",").index("step_time_s")
    rows = [line.split(",") for line in lines[1:]]
    scaled = [",".join([*row[:place], f"{row[place]}e3", *row[place + 1 :]]) for row in rows]
    head = lines[0].replace(",recompute,", ",recomput,", 1)
    small_table.write_text("\n".join([head, *scaled]) + "\n")
    (warning, *others) = validate([str(small_table)])
    assert warning == (
        "small.csv:1: warning: column 'recomput' is not read; did you mean 'recompute'?"
    )
    said = "are they milliseconds? step_time_s must be in seconds."
    assert said in "\n".join([warning, *others])
