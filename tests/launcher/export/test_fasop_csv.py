"""``--csv-form fasop``: FASOP's columns, exactly."""

import ast
import csv
from pathlib import Path

import pytest

from autoconf_launch.launcher.cli import main

FIELDS = [
    *("mbs", "tp", "dp", "pp", "node placement", "num_a100", "num_a10", "partition"),
    *("estimated time (s/step)", "pipeline time", "DP all-reduce time"),
    *("embedding layer all-reduce time", "price_per_step", "is_oom", "oom_gpumem"),
    *("is_fsdp_oom", "fsdpoom_gpumem", "train_cost"),
]
WORK = ("--model", "gpt2", "--seq", "1024", "--global-batch", "64")


def lines_of(path: Path, *words: str) -> tuple[list[str], list[dict[str, str]]]:
    assert main(["plan", *words, "--csv", str(path), "--csv-form", "fasop"]) == 0
    with path.open(newline="") as file:
        reader = csv.DictReader(file, delimiter="*")
        return list(reader.fieldnames or []), list(reader)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[dict[str, str]]]:
    path = tmp_path_factory.mktemp("fasop") / "bert.csv"
    return lines_of(path, "--preset", "fasop/bert-heterogeneous")


def test_its_fields_stand_in_its_order(bert: tuple[list[str], list[dict[str, str]]]) -> None:
    assert bert[0] == FIELDS


def test_a_row_has_the_meaning_that_fasop_gives_it(
    bert: tuple[list[str], list[dict[str, str]]],
) -> None:
    assert bert[1]
    times = [float(line["estimated time (s/step)"]) for line in bert[1]]
    assert times == sorted(times)
    for line in bert[1]:
        nodes = ast.literal_eval(line["node placement"])
        assert nodes.count("p4d.24xlarge") == int(line["num_a100"])
        assert nodes.count("g5.24xlarge") == int(line["num_a10"])
        partition = ast.literal_eval(line["partition"])
        assert (len(partition), sum(partition)) == (int(line["pp"]), 24 + 2)
        parts = ("pipeline time", "DP all-reduce time", "embedding layer all-reduce time")
        seconds = sum(float(line[part]) for part in parts)
        assert seconds == pytest.approx(float(line["estimated time (s/step)"]))
        hourly = 32.7726 * int(line["num_a100"]) + 8.144 * int(line["num_a10"])
        usd = hourly * seconds / 3600
        assert float(line["price_per_step"]) == pytest.approx(usd)
        assert float(line["train_cost"]) == pytest.approx(12_500_000 * usd)
        assert line["is_oom"] == "False"


def test_other_gpus_have_columns_of_their_own(tmp_path: Path) -> None:
    cluster = ("--cluster", "1x8xV100-SXM-16GB+1x4xT4-16GB", "--precision", "fp16")
    fields, lines = lines_of(tmp_path / "out.csv", *WORK, *cluster)
    assert fields[4:10] == [
        *("node placement", "num_a100", "num_a10"),
        *("num_v100-sxm-16gb", "num_t4-16gb", "partition"),
    ]
    assert {line["num_a100"] for line in lines} == {"0"}
    assert {line["num_t4-16gb"] for line in lines} == {"0", "1"}
    assert {line["train_cost"] for line in lines} == {""}


def test_equal_nodes_have_it_too(tmp_path: Path) -> None:
    fields, lines = lines_of(tmp_path / "out.csv", *WORK, "--cluster", "2x8xA100-SXM-40GB")
    assert fields == FIELDS
    assert [line["num_a100"] for line in lines] == ["2", "1"]
