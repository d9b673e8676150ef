"""``plan`` on several clusters, and for the number of GPUs."""

from __future__ import annotations

from pathlib import Path

from ..conftest import Driver
from .verb import Run, table

WORK = ("--model", "llama3.1-8b", "--seq", "8k", "--global-batch", "64")
TWO = (*WORK, "--cluster", "8xA100-SXM-80GB", "--cluster", "8xH100")


def test_several_clusters_are_one_table_the_fastest_first(plan: Run) -> None:
    """Each row is the first of that cluster with the trainer that all clusters have."""
    ran = plan(*TWO, "--tokens", "1T")
    rows = [line.split() for line in ran.out.splitlines() if "x" in line[:14]]
    assert [row[1] for row in rows] == ["8xH100", "8xA100-SXM-80GB"]
    for title in ("cluster", "GPUs", "layout", "tokens/s/GPU", "MFU", "time", "$"):
        assert title in ran.out
    assert "Prices per GPU hour: 8xH100 $3.99" in ran.out
    assert "The default for 8xH100 alone is --trainer nemo." in ran.out
    document = plan(*TWO, "--tokens", "1T", "--json").document
    for one, row in zip(document["clusters"], rows, strict=True):
        assert one["cluster"] == row[1]
        flags = ("--cluster", one["cluster"], "--trainer", document["trainer"], "--tokens", "1T")
        assert plan(*WORK, *flags, "--json").best[0] == one["best"]
    gains = plan(*TWO, "--precision", "fp32").out
    assert gains.count("TF32 would make a step") == 1
    assert "Never checked on fp32" in gains


def test_the_cheapest_cluster_is_first_where_cost_counts(plan: Run, tmp_path: Path) -> None:
    path = tmp_path / "cheap.yaml"
    path.write_text("nodes:\n- {gpu: A100-SXM-80GB, gpus: 8, usd_per_hour: 4}\n")
    clusters = ("--cluster", "8xH100", "--cluster", str(path))
    by_time = plan(*WORK, *clusters, "--json").document["clusters"]
    by_cost = plan(*WORK, *clusters, "--json", "--objective", "cost").document["clusters"]
    assert by_time[0]["cluster"] == "8xH100"
    assert by_cost[0]["cluster"] == str(path)
    assert by_cost[0]["usd_per_gpu_hour"] == 0.5


def test_where_no_cluster_has_a_layout_the_code_is_3(plan: Run) -> None:
    ran = plan(*TWO, "--tokens", "1T", "--deadline", "1h")
    assert (ran.code, ran.err.count("\n")) == (3, 1)
    assert "no cluster has a layout" in ran.err


def test_a_cluster_without_a_layout_stands_last_with_its_reason(plan: Run, tmp_path: Path) -> None:
    path = tmp_path / "clusters.csv"
    work = ("--model", "llama3.1-70b", "--seq", "8k", "--global-batch", "64", "--tokens", "1T")
    asked = (*work, "--cluster", "8xH100", "--cluster", "64x8xH100", "--deadline", "40d")
    ran = plan(*asked)
    assert ran.code == 0
    assert "8xH100: no layout is within the limits: the fastest that fits takes" in ran.out
    assert ran.out.index(" 64x8xH100 ") < ran.out.index(" 8xH100 ")
    document = plan(*asked, "--csv", str(path), "--json").document
    first, last = table(path)
    assert (first["rank"], first["cluster"], first["why_nothing"]) == ("1", "64x8xH100", "")
    assert (first["gpus"], last["gpus"]) == ("512", "8")
    assert (last["rank"], last["cluster"], last["step_time_s"]) == ("", "8xH100", "")
    assert last["why_nothing"] == document["clusters"][1]["why"]
    assert document["notes"]
    assert "skypilot" in document["clusters"][0]["price_source"]


def test_the_same_cluster_twice_is_one(plan: Run) -> None:
    ran = plan(*WORK, "--cluster", "8xH100", "--cluster", "8xH100", "--json")
    assert "best" in ran.document


NEEDED = (*WORK, "--cluster", "8xH100", "--gpus-needed")


def test_the_fewest_gpus_fit_with_headroom_and_one_less_does_not(plan: Run) -> None:
    ran = plan(*NEEDED, "--json")
    assert ran.best[0]["free_memory"] >= 0.1
    fewer = plan(*WORK, "--cluster", f"{ran.document['gpus_needed'] - 1}xH100", "--json").best
    layouts = [row for row in fewer if row["candidate"]["offload"] == "none"]
    assert not any(row["free_memory"] >= 0.1 for row in layouts)


def test_the_fewest_gpus_meet_the_deadline_and_a_node_less_does_not(plan: Run) -> None:
    flags = ("--tokens", "1T", "--deadline", "30d")
    ran = plan(*NEEDED, *flags, "--json")
    count = ran.document["gpus_needed"]
    assert count % 8 == 0
    assert ran.best[0]["training_days"] <= 30
    assert plan(*WORK, "--cluster", f"{count // 8 - 1}x8xH100", *flags).code == 3
    start = f"Fewest GPUs: {count} x H100-SXM-80GB ({count // 8} nodes of 8), "
    assert plan(*NEEDED, *flags).out.startswith(start)
    one = plan(*WORK, "--cluster", "H100", "--gpus-needed", *flags, "--json")
    assert one.document["gpus_needed"] == count
    assert [row["step_time_s"] for row in one.best] == [row["step_time_s"] for row in ran.best]


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


def test_a_gpu_without_rates_cannot_be_planned_for(plan: Run, driver: Driver) -> None:
    driver(24564, names=("NVIDIA Graphics Device",))
    ran = plan(*WORK, "--cluster", "local")
    assert (ran.code, ran.is_one_line) == (4, True)
    assert "NVIDIA Graphics Device, is not in our table" in ran.err
