"""``fit`` on mixed clusters, and of layouts that say what lies where."""

import pytest

from .verb import Run, flags_of

WORK = ("--model", "gpt2-xl", "--seq", "1024", "--global-batch", "64")
MIX = (*WORK, "--cluster", "1x8xA100-SXM-40GB+2x4xA10G-24GB")


def test_each_stage_is_held_against_its_own_gpu(run: Run) -> None:
    words = (*MIX, "--pp", "2", "--micro-batch", "4", "--pipeline-split", "47,1")
    ran = run("fit", *words, "--json")
    stages = ran.document["stages"]
    assert [stage["nodes"] for stage in stages] == ["8xA100-SXM-40GB", "4xA10G-24GB"]
    assert [stage["layers"] for stage in stages] == [47, 1]
    assert stages[0]["peak_memory_gib"] > stages[1]["limit_gib"]
    assert (ran.code, ran.document["verdict"]) == (0, "yes")
    swapped = run("fit", *words, "--placement", "8-15,0-7")
    assert swapped.code == 1
    assert "on 8 x A100-SXM-40GB + 8 x A10G-24GB" in swapped.out.partition("\n")[0]
    assert "The fullest rank (stage 0) needs" in swapped.out
    assert "of 22.1 GiB" in swapped.out


def test_a_step_is_what_plan_says_of_the_row(run: Run) -> None:
    row = run("plan", *MIX, "--json").best[1]
    flags = flags_of(
        {**row["candidate"], "placement": row["candidate"]["placement"] or [*range(16)]}
    )
    found = run("fit", *MIX, *flags, "--json").document
    assert found["step_time_s"] == pytest.approx(row["step_time_s"])


def test_fewer_samples_on_slow_gpus_shorten_a_step(run: Run) -> None:
    even = run("fit", *MIX, "--micro-batch", "4", "--json").document
    split = ",".join(["7"] * 8 + ["1"] * 8)
    uneven = run("fit", *MIX, "--micro-batch-split", split, "--json").document
    assert uneven["step_time_s"] < even["step_time_s"]
    assert uneven["layout"]["micro_batch"] == 4


def test_layers_of_equal_nodes_may_be_given(run: Run) -> None:
    words = (*WORK, "--cluster", "2x8xA100-SXM-40GB", "--pp", "2", "--micro-batch", "2")
    even, given = (
        run("fit", *words, *more, "--json").document
        for more in ((), ("--pipeline-split", "24,24"))
    )
    assert given["step_time_s"] == pytest.approx(even["step_time_s"], rel=0.02)
    assert given["peak_memory_gib"] == even["peak_memory_gib"]
