"""Tables from TensorBoard's files of runs that were made elsewhere."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch import AutoConfigurator, ConfigError
from autoconf_launch.nemo.configurator.results import point_of

from ..report.logged import log_steps

_STEPS = 11


def configurator(logs: Path, **arguments: Any) -> AutoConfigurator:
    start: dict[str, Any] = {
        "model": "gpt3_5b",
        "grid": "nemo",
        "num_nodes": 16,
        "seq_length": 2048,
        "global_batch_size": 2048,
        "tensor_parallel_sizes": [1, 2],
        "micro_batch_sizes": [1, 2],
    }
    return AutoConfigurator(path_to_logs=logs, **{**start, **arguments})


def names(found: AutoConfigurator) -> list[str]:
    return list(found.generate_configs()[1])


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def ran(logs: Path, name: str, step_s: float) -> None:
    log_steps(logs / name, [9 * step_s, *[step_s] * _STEPS])


def test_measured_runs_are_sorted_by_their_step(tmp_path: Path) -> None:
    found = configurator(tmp_path)
    for name, step_s in zip(names(found), (5.0, 3.0, 4.0, 2.0), strict=True):
        ran(tmp_path, name, step_s)
    ran(tmp_path, "theirs_5b_16nodes_tp_4_pp_2_cp_1_ep_1_mbs_3_vp_None", 9.0)
    table = rows(found.get_results(path_to_save=tmp_path / "out").summary)
    assert [row["Time per Step"] for row in table] == ["2.0", "3.0", "4.0", "5.0", "9.0"]
    assert [(row["TP"], row["MBS"]) for row in table[:2]] == [("2", "2"), ("1", "2")]
    assert [table[-1][name] for name in ("TP", "PP", "MBS", "VP")] == ["4", "2", "3", ""]


def test_each_run_without_a_measurement_is_in_the_other_table(tmp_path: Path) -> None:
    found = configurator(tmp_path)
    nothing = found.get_results()
    assert nothing.summary == tmp_path / "final_results/nemo2/final_summary_16nodes.csv"
    assert rows(nothing.summary) == []
    assert nothing.text.startswith("No configuration was measured")
    ran(tmp_path, names(found)[2], 3.0)
    full = tmp_path / names(found)[1]
    full.mkdir()
    (full / "log-node0").write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    results = found.get_results(path_to_save=tmp_path / "out")
    (row,) = rows(results.summary)
    assert (row["TP"], row["MBS"]) == ("2", "1")
    failed = rows(results.failed)
    assert [(row["TP"], row["MBS"]) for row in failed] == [("1", "1"), ("1", "2"), ("2", "2")]
    assert failed[1]["Error Message"].startswith("out_of_memory: torch.OutOfMemoryError")
    assert "A100-SXM-80GB by its memory" in results.text, "the price is published"


def test_the_text_lists_the_fastest_with_days(tmp_path: Path) -> None:
    found = configurator(tmp_path, num_tokens_in_b=300, usd_per_gpu_hour=2.0)
    for name in names(found):
        ran(tmp_path, name, 5.0)
    text = found.get_results(path_to_save=tmp_path, output_top_n=2).text
    assert text.count("Config #") == 2
    assert "4.139 days to train, 25,431 USD" in text


def test_runs_that_were_not_asked_for_are_in_no_table(tmp_path: Path) -> None:
    found = configurator(tmp_path)
    base, candidates = found.generate_configs()
    first, *others = candidates
    for name in others:
        ran(tmp_path, name, 3.0)
    for name, tables in ((others[-1], (1, 0)), (first, (0, 1))):
        some = {name: candidates[name]}
        results = found.get_results(base, some, str(tmp_path / "out"), 5, "nemo_error")
        assert (len(rows(results.summary)), len(rows(results.failed))) == tables


def test_a_run_whose_name_says_no_degrees_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'mine', whose name does not say its degrees"):
        configurator(tmp_path).get_results(train_config={"mine": {}})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama_8b_2nodes_tp_2_pp_4_cp_1_ep_1_mbs_3_vp_8", (2, 4, 1, 1, 3, 8, None, None, None)),
        ("x_tp_1_pp_1_mbs_2", (1, 1, 1, 1, 2, None, None, None, None)),
        (
            "x_tp_1_pp_1_mbs_2_act_ckpt_8_num_mbs_act_None",
            (1, 1, 1, 1, 2, None, 8, None, None),
        ),
        (
            "gpt3_5b_16nodes_tp_1_pp_4_mbs_2_act_ckpt_8_num_mbs_act_3_act_per_pipe_2",
            (1, 4, 1, 1, 2, None, 8, 3, 2),
        ),
        ("x_tp_1_pp_1", None),
        ("final_results", None),
    ],
)
def test_degrees_are_read_from_names(name: str, expected: tuple[int | None, ...] | None) -> None:
    found = point_of(name)
    values = found and (
        *(*found.layout.mesh, found.layout.micro_batch, found.virtual, found.recompute_layers),
        *(found.recompute_micro_batches, found.recompute_layers_per_pipeline),
    )
    assert values == expected


@pytest.mark.parametrize(
    ("gpu_memory_gb", "step_s", "is_possible"),
    [(80, 2.0, True), (80, 1.0, False), (40, 2.0, False), (40, 4.0, True)],
)
def test_a_speed_above_the_gpu_s_peak_is_not_a_measurement(
    gpu_memory_gb: int, step_s: float, is_possible: bool, tmp_path: Path
) -> None:
    """Steps of 2 s are 535 TFLOP/s per GPU: an H100 has 989, an A100 with 40 GB 312."""
    found = configurator(tmp_path, gpu_memory_gb=gpu_memory_gb)
    for name in names(found):
        ran(tmp_path, name, step_s)
    results = found.get_results()
    assert bool(rows(results.summary)) is is_possible
    assert all("above the peak of" in row["Error Message"] for row in rows(results.failed))
    assert bool(rows(results.failed)) is not is_possible


@pytest.mark.parametrize("logs", ["logs", "./logs", "sub/../logs", ".", "link/logs"])
def test_logs_in_a_relative_folder_get_both_tables(
    logs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("sub")
    found = configurator(Path(logs))
    first, *_ = names(found)
    ran(Path(logs), first, 9.0)
    for _ in range(2):
        results = found.get_results()
    assert len(rows(results.summary)) == 1
    assert rows(results.failed)
    to = found.get_results(path_to_save="tables").summary
    assert to.resolve().parent == tmp_path / "tables"
