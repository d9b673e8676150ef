"""``plan`` on several clusters, and for the number of GPUs."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from ..conftest import Driver
from .verb import Run

WORK = ("--model", "llama3.1-8b", "--seq", "8k", "--global-batch", "64")
TWO = (*WORK, "--cluster", "8xA100-SXM-80GB", "--cluster", "8xH100")


def test_several_clusters_are_one_table_the_fastest_first(plan: Run) -> None:
    ran = plan(*TWO, "--tokens", "1T")
    rows = [line.split() for line in ran.out.splitlines() if "x" in line[:14]]
    assert [row[1] for row in rows] == ["8xH100", "8xA100-SXM-80GB"]
    for title in ("cluster", "GPUs", "layout", "tokens/s/GPU", "MFU", "time", "$"):
        assert title in ran.out
    assert "Prices per GPU hour: 8xH100 $3.99" in ran.out
    assert "The default for 8xH100 alone is --trainer nemo." in ran.out


def test_each_row_is_the_first_of_that_cluster_alone(plan: Run) -> None:
    """With the trainer that all clusters have."""
    document = plan(*TWO, "--tokens", "1T", "--json").document
    found = document["clusters"]
    assert [one["cluster"] for one in found] == ["8xH100", "8xA100-SXM-80GB"]
    for one in found:
        flags = ("--cluster", one["cluster"], "--trainer", document["trainer"], "--tokens", "1T")
        assert plan(*WORK, *flags, "--json").document["best"][0] == one["best"]


def test_the_cheapest_cluster_is_first_where_cost_counts(plan: Run, tmp_path: Path) -> None:
    path = tmp_path / "cheap.yaml"
    path.write_text("nodes:\n- {gpu: A100-SXM-80GB, gpus: 8, usd_per_hour: 4}\n")
    clusters = ("--cluster", "8xH100", "--cluster", str(path))
    by_time = plan(*WORK, *clusters, "--json").document["clusters"]
    by_cost = plan(*WORK, *clusters, "--json", "--objective", "cost").document["clusters"]
    assert by_time[0]["cluster"] == "8xH100"
    assert by_cost[0]["cluster"] == str(path)
    assert by_cost[0]["usd_per_gpu_hour"] == 0.5


def test_a_cluster_without_a_layout_says_why_and_stands_last(plan: Run) -> None:
    work = ("--model", "llama3.1-70b", "--seq", "8k", "--global-batch", "64", "--tokens", "1T")
    ran = plan(*work, "--cluster", "8xH100", "--cluster", "64x8xH100", "--deadline", "40d")
    assert ran.code == 0
    assert "8xH100: no layout is within the limits: the fastest that fits takes" in ran.out
    assert ran.out.index(" 64x8xH100 ") < ran.out.index(" 8xH100 ")


def test_where_no_cluster_has_a_layout_the_code_is_3(plan: Run) -> None:
    ran = plan(*TWO, "--tokens", "1T", "--deadline", "1h")
    assert (ran.code, ran.err.count("\n")) == (3, 1)
    assert "no cluster has a layout" in ran.err


def test_the_file_has_a_line_for_each_cluster(plan: Run, tmp_path: Path) -> None:
    path = tmp_path / "clusters.csv"
    plan(*TWO, "--csv", str(path))
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["cluster"] for row in rows] == ["8xH100", "8xA100-SXM-80GB"]
    assert {row["gpus"] for row in rows} == {"8"}
    assert {row["why_nothing"] for row in rows} == {""}


def test_the_file_keeps_a_cluster_without_a_layout_and_its_reason(
    plan: Run, tmp_path: Path
) -> None:
    path = tmp_path / "clusters.csv"
    work = ("--model", "llama3.1-70b", "--seq", "8k", "--global-batch", "64", "--tokens", "1T")
    limit = ("--cluster", "8xH100", "--cluster", "64x8xH100", "--deadline", "40d")
    document = plan(*work, *limit, "--csv", str(path), "--json").document
    with path.open(newline="") as file:
        first, last = csv.DictReader(file)
    assert (first["rank"], first["cluster"], first["why_nothing"]) == ("1", "64x8xH100", "")
    assert (last["rank"], last["cluster"], last["step_time_s"]) == ("", "8xH100", "")
    assert last["why_nothing"] == document["clusters"][1]["why"]
    assert last["why_nothing"].startswith("no layout is within the limits")
    assert document["notes"]
    assert "skypilot" in document["clusters"][0]["price_source"]


def test_the_same_cluster_twice_is_one(plan: Run) -> None:
    ran = plan(*WORK, "--cluster", "8xH100", "--cluster", "8xH100", "--json")
    assert "best" in ran.document


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--explain",), "--explain is about the layouts of one cluster; give one --cluster"),
        (("--export", "native", "-o", "x"), "--export is about the layouts of one cluster"),
        (("--top", "5"), "--top is about the layouts of one cluster"),
        (("--cluster", "8xH1000"), "did you mean"),
        (("--cluster", "8xV100"), "V100-SXM-32GB does not compute in bf16"),
    ],
)
def test_what_several_clusters_do_not_have_is_refused(
    plan: Run, flags: tuple[str, ...], says: str
) -> None:
    ran = plan(*TWO, *flags)
    assert (ran.code, ran.is_one_line) == (2, True), ran.err
    assert says in ran.err


def test_fit_takes_one_cluster(fit: Run) -> None:
    ran = fit(*TWO)
    assert (ran.code, ran.is_one_line) == (2, True)
    assert "--cluster is given twice" in ran.err


NEEDED = (*WORK, "--cluster", "8xH100", "--gpus-needed")


def test_the_fewest_gpus_fit_with_headroom_and_one_less_does_not(plan: Run) -> None:
    ran = plan(*NEEDED, "--json")
    count = ran.document["gpus_needed"]
    assert ran.document["best"][0]["free_memory"] >= 0.1
    fewer = plan(*WORK, "--cluster", f"{count - 1}xH100", "--json")
    layouts = [row for row in fewer.document["best"] if row["candidate"]["offload"] == "none"]
    assert not any(row["free_memory"] >= 0.1 for row in layouts)


def test_the_fewest_gpus_meet_the_deadline_and_a_node_less_does_not(plan: Run) -> None:
    flags = ("--tokens", "1T", "--deadline", "30d")
    ran = plan(*NEEDED, *flags, "--json")
    count = ran.document["gpus_needed"]
    assert count % 8 == 0
    assert ran.document["best"][0]["training_days"] <= 30
    fewer = plan(*WORK, "--cluster", f"{count // 8 - 1}x8xH100", *flags)
    assert fewer.code == 3
    text = plan(*NEEDED, *flags).out
    assert text.startswith(f"Fewest GPUs: {count} x H100-SXM-80GB ({count // 8} nodes of 8), ")


def test_one_gpu_is_one_of_a_usual_node(plan: Run) -> None:
    flags = (*WORK, "--tokens", "1T", "--deadline", "30d", "--gpus-needed", "--json")
    one = plan(*flags, "--cluster", "H100").document
    node = plan(*flags, "--cluster", "8xH100").document
    assert one["gpus_needed"] == node["gpus_needed"]
    assert [row["step_time_s"] for row in one["best"]] == [
        row["step_time_s"] for row in node["best"]
    ]


def test_a_limit_that_no_number_keeps_names_the_nearest(plan: Run) -> None:
    ran = plan(*NEEDED, "--tokens", "1T", "--max-cost", "1000")
    assert (ran.code, ran.err.count("\n")) == (3, 1)
    assert "no number of H100-SXM-80GB is within the limits: the nearest, " in ran.err
    assert "--max-cost is $1,000" in ran.err


def test_kinds_of_gpus_are_compared_by_how_many_are_needed(plan: Run) -> None:
    flags = ("--tokens", "1T", "--deadline", "60d", "--gpus-needed", "--json")
    found = plan(*TWO, *flags).document["clusters"]
    assert all(one["best"]["training_days"] <= 60 for one in found)
    counts = {one["cluster"].split("x")[-1]: one["gpus"] for one in found}
    assert counts["H100-SXM-80GB"] < counts["A100-SXM-80GB"]


def test_several_nodes_are_refused_as_the_count_is_the_answer(plan: Run) -> None:
    ran = plan(*WORK, "--cluster", "4x8xH100", "--gpus-needed")
    assert (ran.code, ran.is_one_line) == (2, True)
    assert "--gpus-needed counts nodes itself; give one with --cluster, not 4" in ran.err


def test_a_cpu_has_no_gpus_to_count(plan: Run) -> None:
    ran = plan(*WORK, "--cluster", "2xlocal", "--gpus-needed")
    assert (ran.code, ran.is_one_line) == (2, True)
    assert "--gpus-needed counts GPUs, but --cluster local is a CPU here" in ran.err


def test_what_other_formats_gain_is_said_once_for_the_first_cluster(plan: Run) -> None:
    out = plan(*TWO, "--precision", "fp32").out
    assert out.count("TF32 would make a step") == 1
    assert "Never checked on fp32" in out


def test_a_gpu_without_rates_cannot_be_planned_for(plan: Run, driver: Driver) -> None:
    driver(24564, names=("NVIDIA Graphics Device",))
    ran = plan(*WORK, "--cluster", "local")
    assert (ran.code, ran.is_one_line) == (4, True)
    assert "NVIDIA Graphics Device, is not in our table" in ran.err
