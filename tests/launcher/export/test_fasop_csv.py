"""``--csv-form fasop``: FASOP's columns, exactly."""

import ast
import csv
import json
from pathlib import Path

import numpy as np
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
def bert(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    path = tmp_path_factory.mktemp("fasop") / "bert.csv"
    fields, lines = lines_of(path, "--preset", "fasop/bert-heterogeneous")
    assert fields == FIELDS
    return lines


def test_a_row_has_the_meaning_that_fasop_gives_it(bert: list[dict[str, str]]) -> None:
    assert bert
    times = [float(line["estimated time (s/step)"]) for line in bert]
    assert times == sorted(times)
    for line in bert:
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
        if nodes == ["g5.24xlarge"] * len(nodes):
            assert line["is_oom"] == str(float(line["oom_gpumem"]) > 24 * 1.024**3)


def test_other_gpus_have_columns_of_their_own(tmp_path: Path) -> None:
    cluster = ("--cluster", "1x8xV100-SXM-16GB+1x4xT4-16GB", "--precision", "fp16")
    fields, lines = lines_of(tmp_path / "out.csv", *WORK, *cluster)
    own = ["num_v100-sxm-16gb", "num_t4-16gb"]
    assert fields[4:10] == ["node placement", "num_a100", "num_a10", *own, "partition"]
    assert {line["num_a100"] for line in lines} == {"0"}
    assert {line["num_t4-16gb"] for line in lines} == {"0", "1"}
    assert {line["train_cost"] for line in lines} == {""}


def test_equal_nodes_have_it_too_and_its_first_line_is_the_answers_first_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (*WORK, "--cluster", "2x8xA100-SXM-40GB", "--json")
    fields, lines = lines_of(tmp_path / "out.csv", *words)
    assert fields == FIELDS
    assert {line["num_a100"] for line in lines} == {"2", "1"}
    best = json.loads(capsys.readouterr().out)["best"][0]
    assert float(lines[0]["estimated time (s/step)"]) == best["step_time_s"]
    assert int(lines[0]["pp"]) == best["candidate"]["pipeline_parallel"]


def test_every_candidate_of_fasop_has_a_line_also_if_it_runs_out_of_memory(
    tmp_path: Path,
) -> None:
    """Tensor ranks, replicas and micro-batches that share 16 GPUs and a batch of 256."""
    path = tmp_path / "bert.csv"
    _, lines = lines_of(path, "--preset", "fasop/bert", "--top", "1")
    found = [
        tuple(int(line[name]) for name in ("tp", "dp", "mbs"))
        for line in lines
        if line["num_a10"] == "4"
    ]
    expected = {
        (tensor, data, micro)
        for tensor in (1, 2, 4)
        for data in (1, 2, 4, 8, 16)
        for micro in map(int, 2 ** np.arange(9))
        if tensor * data <= 16 and data * micro <= 256
    }
    assert len(found) == len(expected)
    assert set(found) == expected
    assert {line["is_oom"] for line in lines} == {"True", "False"}


def test_a_model_that_fits_nowhere_has_all_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "none.csv"
    words = ("--model", "llama3-70b", "--seq", "8k", "--global-batch", "16")
    files = ("--cluster", "1x4xA100-40GB", "--csv", str(path), "--csv-form", "fasop")
    assert main(["plan", *words, *files]) == 3
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file, delimiter="*"))
    assert lines
    assert {line["is_oom"] for line in lines} == {"True"}
