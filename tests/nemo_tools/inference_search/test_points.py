"""The points of an inference search: NVIDIA's rules, ours, and why a point is not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.nemo.inference_search.points import nodes_necessary, padded_vocabulary

from .asked import ALONE, BENCHMARK, INFERENCE, RUN, SMALL, ask_for

ORACLE: dict[str, Any] = json.loads((Path(__file__).parent / "nvidia_points.json").read_text())


def name_of(row: dict[str, Any]) -> str:
    return str(row["model"])


@pytest.mark.parametrize("row", ORACLE["nodes_necessary"], ids=str)
def test_a_stage_has_nodes_of_its_own_by_nvidia_s_rule(row: dict[str, int]) -> None:
    assert nodes_necessary(row["gpus_per_node"], row["tp"], row["pp"]) == row["nodes"]


@pytest.mark.parametrize("row", ORACLE["inference_filter"], ids=name_of)
def test_nvidia_s_grid_has_nvidia_s_points(row: dict[str, Any]) -> None:
    size = row["model"].removeprefix("gpt3_")
    batches = row["n_jobs"] // len(row["kept_tp_pp"])
    lists = (
        f"{RUN}.tensor_parallel_sizes={row['tp']}".replace(" ", ""),
        f"{RUN}.pipeline_parallel_sizes={row['pp']}".replace(" ", ""),
        f"{BENCHMARK}.batch_sizes={[1 << n for n in range(batches)]}".replace(" ", ""),
    )
    (search,) = ask_for(f"search_config=gpt3/{size}", "grid=nemo", ALONE, *lists).searches
    meshes = {(one.layout.tensor_parallel, one.layout.pipeline_parallel) for one in search.points}
    assert sorted(meshes) == sorted(map(tuple, row["kept_tp_pp"]))
    assert len(search.points) == row["n_jobs"]


@pytest.mark.parametrize(("vocabulary", "padded"), [(51200, 51200), (50257, 50304), (1, 128)])
def test_a_vocabulary_that_divides_is_not_padded_by_a_block(vocabulary: int, padded: int) -> None:
    assert padded_vocabulary(vocabulary) == padded


def test_points_of_more_ranks_than_slots_stay_with_the_reason() -> None:
    prepared = ask_for(*SMALL)
    (search,) = prepared.searches
    assert len(search.points) == 8
    refused = [one for one in search.points if one.why_not]
    assert {one.why_not for one in refused} == {
        *("needs 3 ranks, but there are 2 slots.", "needs 6 ranks, but there are 2 slots.")
    }
    assert [one.why_not for one in search.points[-4:]] == [one.why_not for one in refused]
    assert search.points[0].task.precision.value == "fp32"
    assert "data_type is fp16; runs on this CPU compute in fp32." in prepared.notes
    (search,) = ask_for(*SMALL, f"{RUN}.tensor_parallel_sizes=[1,5]").searches
    assert any("tp=5 must divide" in one.why_not for one in search.points)
    assert any(not one.why_not for one in search.points)


def test_the_most_throughput_of_a_gpu_comes_first_in_our_grid_and_a_bound_removes_none(
    tmp_path: Path,
) -> None:
    logs = f"{INFERENCE}.logs={tmp_path}/here/../there"
    (search,) = ask_for("search_config=gpt3/5b", ALONE, logs).searches
    assert search.folder == tmp_path / "there" / "inference"
    promised = [
        one.predicted.samples_per_s_per_gpu
        for one in search.points
        if one.predicted is not None and not one.why_not
    ]
    assert promised == sorted(promised, reverse=True)
    assert len(promised) == 42
    bound = f"{INFERENCE}.max_latency_ms=200"
    (search,) = ask_for("search_config=gpt3/5b", ALONE, bound).searches
    late = [one.predicted is not None and one.predicted.latency_s > 0.2 for one in search.points]
    assert late == sorted(late)
    assert len(late) == 42


def test_auto_gives_all_valid_degrees_and_powers_of_two() -> None:
    auto = (f"{RUN}.tensor_parallel_sizes=auto", f"{RUN}.pipeline_parallel_sizes=auto")
    (search,) = ask_for(*SMALL, *auto, f"{BENCHMARK}.batch_sizes=auto").searches
    assert {one.gpus for one in search.points} == {1, 2}
    assert {1, 2, 4, 8} <= {one.layout.micro_batch for one in search.points}


def test_several_lengths_are_searches_with_a_folder_each() -> None:
    lengths = (f"{BENCHMARK}.input_len=[8,16]", f"{BENCHMARK}.output_len=[4]")
    searches = ask_for(*SMALL, *lengths).searches
    assert [one.folder.name for one in searches] == ["in8_out4", "in16_out4"]
    assert {one.folder.parent.name for one in searches} == {"inference"}
    assert [one.points[0].task.input_len for one in searches] == [8, 16]


def test_keys_of_bignlp_win_over_those_of_nemo() -> None:
    words = ("input_seq_len=10", "output_seq_len=5", "max_batch_sizes=[3]", "top_n=2")
    prepared = ask_for(*SMALL, *(f"{INFERENCE}.{word}" for word in words))
    assert {one.layout.micro_batch for one in prepared.searches[0].points} == {3}
    assert prepared.settings.lengths == ((10, 5),)
    assert prepared.settings.top_n == 2


def test_keys_that_change_no_time_are_said_to() -> None:
    prepared = ask_for(*SMALL, f"{BENCHMARK}.topk=1")
    assert any(note.startswith("topk changes no time") for note in prepared.notes)
    given = (f"+{INFERENCE}.start_id=1", f"{INFERENCE}.end_id=2")
    prepared = ask_for("search_config=gpt3/5b", ALONE, *given)
    assert any(note.startswith("start_id, end_id change no time") for note in prepared.notes)
    assert not any("change no time" in note for note in ask_for(*SMALL).notes)


def test_beams_are_said_and_need_the_cache_of_as_many_sequences() -> None:
    def first(beams: int) -> tuple[float, float, float]:
        prepared = ask_for("search_config=gpt3/5b", ALONE, f"{BENCHMARK}.beam_width={beams}")
        assert any("beam_width is" in note for note in prepared.notes) is (beams > 1)
        point = prepared.searches[0].points[0]
        assert point.name == "gpt3_5b_tp1_pp1_bs256"
        assert point.predicted is not None
        return point.predicted.peak_bytes, point.predicted.token_s, point.predicted.ttft_s

    peak, token_s, ttft_s = first(1)
    more_peak, more_token_s, same_ttft_s = first(4)
    assert more_peak > 1.1 * peak
    assert more_token_s > 1.5 * token_s
    assert same_ttft_s == ttft_s
