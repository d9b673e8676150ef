from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from autoconf_launch.core import RawConfig, ResultsFolderError
from autoconf_launch.nemo.report import (
    write_final_results,
    write_nemo2_tables,
)

from .found import OUT_OF_MEMORY, outcome, point, rows, run


def test_all_files_of_a_search_are_there_and_the_optimum_is_the_fastest(tmp_path: Path) -> None:
    best = run("best", 4.0, config=RawConfig({"model": {"micro_batch_size": 4}}))
    found = outcome(run("slow", 9.0), best, run("middle", 5.0))
    optimum, *_ = write_final_results(tmp_path, found)
    files = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert files == {
        "final_results/final_summary_16nodes.csv",
        "final_results/failed_jobs_16nodes.csv",
        "final_results/optimal_config_5b_16nodes.yaml",
        "final_results/top_10.log",
        "final_results/nemo2/final_summary_16nodes.csv",
        "final_results/nemo2/failed_jobs_16nodes.csv",
    }
    assert yaml.safe_load(optimum.read_text()) == {"model": {"micro_batch_size": 4}}
    table = rows(tmp_path / "final_results" / "final_summary_16nodes.csv")
    assert [row["Time per Step"] for row in table] == ["4.0", "5.0", "9.0"]
    summary, failed = write_nemo2_tables(tmp_path / "new", found)
    assert (len(rows(summary)), len(rows(failed))) == (3, 0)
    assert summary == tmp_path / "new" / "final_summary_16nodes.csv"


def config(nodes: int, micro_batch: int) -> RawConfig:
    return RawConfig({"trainer": {"num_nodes": nodes}, "model": {"micro_batch_size": micro_batch}})


@pytest.mark.parametrize(
    ("sizes", "optimum", "said"),
    [
        (
            (("fast", 4.0, 4), ("good", 5.0, 2), ("slow", 9.0, 1)),
            (48, 2),
            "Optimal config: good\nfast is faster but does not divide 48 nodes.\n",
        ),
        (
            (("only", 4.0, 4),),
            (2, 4),
            "No measured layout divides 48 nodes: it is for the 2 measured.",
        ),
    ],
    ids=["another divides", "none divides"],
)
def test_the_optimum_is_the_fastest_that_divides_the_training_s_nodes(
    tmp_path: Path, sizes: tuple[tuple[str, float, int], ...], optimum: tuple[int, int], said: str
) -> None:
    """Runs on 2 x 8 GPUs for a training on 48 x 8."""
    runs = (
        run(
            name,
            step_s,
            point=point(micro_batch=micro),
            global_batch=3840,
            config=config(48, micro),
        )
        for name, step_s, micro in sizes
    )
    found = outcome(*runs, nodes=2, base=config(48, 1))
    best, *others = write_final_results(tmp_path, found)
    assert yaml.safe_load(best.read_text()) == config(*optimum).to_dict()
    (text,) = (path.read_text() for path in others if path.name == "top_10.log")
    assert said in text


def test_a_search_that_started_nothing_says_so(tmp_path: Path) -> None:
    write_final_results(tmp_path, outcome(notes=("The limit of minutes was reached.",)))
    text = (tmp_path / "final_results" / "top_10.log").read_text()
    assert text == (
        "No configuration was measured, so there is no best one.\n"
        "The limit of minutes was reached.\n"
    )


def test_an_optimum_of_an_earlier_search_does_not_stay_beside_failures(tmp_path: Path) -> None:
    (best, *_) = write_final_results(tmp_path, outcome(run("a", 5.0)))
    write_final_results(tmp_path, outcome(run("a", failure=OUT_OF_MEMORY)))
    assert not best.exists()
    folder = tmp_path / "final_results"
    assert rows(folder / "final_summary_16nodes.csv") == []
    (row,) = rows(folder / "failed_jobs_16nodes.csv")
    assert row["Error Message"] == "out_of_memory: Rank 3 held 79 of 80 GiB."
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]


@pytest.mark.parametrize(("top", "listed"), [(2, 2), (10, 3), (0, 3)])
def test_the_ranking_lists_as_many_as_asked(tmp_path: Path, top: int, listed: int) -> None:
    write_final_results(tmp_path, outcome(run("a", 3.0), run("b", 2.0), run("c", 1.0)), top=top)
    text = (tmp_path / "final_results" / f"top_{top or 'all'}.log").read_text()
    assert text.count("Config #") == listed
    assert "Optimal config: c" in text


def test_the_ranking_has_days_cost_spread_and_teraflops_of_a_gpu(tmp_path: Path) -> None:
    one = run("a", 5.0, step_spread_s=0.25)
    two = run("b", 5.05, step_spread_s=0.5)
    write_final_results(tmp_path, outcome(one, two, usd_per_gpu_hour=2.0, price="as given"))
    text = (tmp_path / "final_results" / "top_10.log").read_text()
    assert "a with 5.0000s +- 0.25s per global step over 45 steps" in text
    assert "4.139 days to train, 25,431 USD" in text
    assert "(214.07 model TFLOPS / GPU" in text
    assert "as fast as the first within the noise" in text


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "final_results").write_text("")
    with pytest.raises(ResultsFolderError, match="final_results"):
        write_final_results(tmp_path, outcome(run("a", 5.0)))
