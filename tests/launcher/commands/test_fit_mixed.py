"""``fit`` on mixed clusters, and of layouts that say what lies where."""

import pytest

from .verb import Run

WORK = ("--model", "gpt2-xl", "--seq", "1024", "--global-batch", "64")
MIX = (*WORK, "--cluster", "1x8xA100-SXM-40GB+2x4xA10G-24GB")


def test_each_stage_is_held_against_its_own_gpu(run: Run) -> None:
    ran = run("fit", *MIX, "--pp", "2", "--micro-batch", "4", "--pipeline-split", "47,1", "--json")
    stages = ran.document["stages"]
    assert [stage["nodes"] for stage in stages] == ["8xA100-SXM-40GB", "4xA10G-24GB"]
    assert [stage["layers"] for stage in stages] == [47, 1]
    assert stages[0]["peak_memory_gib"] > stages[1]["limit_gib"]
    assert (ran.code, ran.document["verdict"]) == (0, "yes")


def test_the_same_layers_do_not_fit_on_the_smaller_gpu(run: Run) -> None:
    split = ("--pp", "2", "--micro-batch", "4", "--pipeline-split", "47,1")
    ran = run("fit", *MIX, *split, "--placement", "8-15,0-7")
    assert ran.code == 1
    assert "The fullest rank (stage 0) needs" in ran.out
    assert "of 22.1 GiB" in ran.out


def test_a_step_is_what_plan_says_of_the_row(run: Run) -> None:
    row = run("plan", *MIX, "--json").document["best"][1]
    layout = row["candidate"]
    flags = ["--placement", ",".join(map(str, layout["placement"] or range(16)))]
    if layout["pipeline_split"]:
        flags += ["--pipeline-split", ",".join(map(str, layout["pipeline_split"]))]
    for flag, name in (
        ("--tp", "tensor_parallel"),
        ("--pp", "pipeline_parallel"),
        ("--zero", "zero_stage"),
        ("--recompute", "recompute"),
    ):
        flags += [flag, str(layout[name])]
    if layout["micro_batch_split"]:
        flags += ["--micro-batch-split", ",".join(map(str, layout["micro_batch_split"]))]
    else:
        flags += ["--micro-batch", str(layout["micro_batch"])]
    assert run("fit", *MIX, *flags, "--json").document["step_time_s"] == pytest.approx(
        row["step_time_s"]
    )


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


@pytest.mark.parametrize(
    ("flags", "match"),
    [
        (("--pp", "2", "--pipeline-split", "47,2"), "adds up to 49, but the model has 48 layers"),
        (("--pp", "2", "--pipeline-split", "48,0"), "leaves stage 1 empty"),
        (("--pp", "2", "--pipeline-split", "16,16,16"), "has 3 stages, but --pp is 2"),
        (("--pipeline-split", "a,b"), "must be whole numbers, such as 14,5,5"),
        (("--micro-batch-split", "4,3"), "must be a multiple of its 2 ranks"),
        (("--micro-batch-split", "4,4"), "has 2 micro-batches, but there are 16"),
        (("--placement", "0-7,0-7"), "has slot 0 twice"),
        (("--placement", "0-6,8-15,16"), "has slot 16, but the cluster's are 0 to 15"),
        (("--placement", "0-3,8-11"), "misses slot 4 of node 0"),
        (("--placement", "0-3,8-11,4-7,12-15"), "has the ranks of node 0 apart"),
        (("--tp", "5"), "does not divide"),
    ],
)
def test_impossible_splits_and_placements_are_one_sentence(
    run: Run, flags: tuple[str, ...], match: str
) -> None:
    ran = run("fit", *MIX, *flags)
    assert ran.code == 2
    assert ran.is_one_line
    assert match in ran.err


def test_the_first_line_says_how_many_gpus_of_each_kind_there_are(run: Run) -> None:
    first = run("fit", *MIX, "--pp", "2").out.partition("\n")[0]
    assert "on 8 x A100-SXM-40GB + 8 x A10G-24GB" in first


def test_micro_batches_of_several_sizes_need_a_trainer_that_has_them(run: Run) -> None:
    split = ",".join(["7"] * 8 + ["1"] * 8)
    ran = run("fit", *MIX, "--micro-batch-split", split, "--trainer", "huggingface")
    assert ran.code == 2
    assert "Trainer huggingface has no --micro-batch-split" in ran.err
