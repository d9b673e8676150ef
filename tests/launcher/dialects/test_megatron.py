from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.core import ConfigError, Recompute
from autoconf_launch.launcher.dialects import MegatronDialect
from autoconf_launch.launcher.dialects.megatron import layout_text
from autoconf_launch.launcher.spelling import TrialNeeds

from .sources import overridden, render_with, say_of, script

DATA = Path(__file__).parents[2] / "data" / "dialects"
DIALECT = MegatronDialect()
NEEDS = TrialNeeds(folder="trial", steps=7)
SPLIT = ("--micro-batch-size", "1", "--num-layers", "24", "--pipeline-model-parallel-size", "4")


def lines(name: str) -> tuple[str, ...]:
    return tuple((DATA / name).read_text().split())


def arguments_of(*words: str, ranks: int = 16, **changes: Any) -> tuple[str, ...]:
    return render_with(DIALECT, script(*words), ranks, **changes).script_args


def test_a_trial_is_as_the_golden_file_says() -> None:
    source = script(*lines("megatron.txt"))
    made = render_with(
        DIALECT,
        source,
        16,
        data_parallel=2,
        tensor_parallel=4,
        pipeline_parallel=2,
        virtual_pipeline=1,
        micro_batch=2,
        accumulation=32,
        recompute=Recompute.FULL,
        sequence_parallel=True,
        zero_stage=0,
    )
    assert DIALECT.in_trial(made, source, NEEDS).script_args == lines("megatron_trial.txt")


def test_the_layout_is_read_from_the_command_line() -> None:
    found = DIALECT.read(script(*lines("megatron.txt")), world_size=16).baseline.layout
    assert (found.tensor_parallel, found.pipeline_parallel, found.data_parallel) == (2, 4, 2)
    assert (found.virtual_pipeline, found.zero_stage) == (2, 1)
    assert (found.micro_batch, found.accumulation) == (1, 64)
    assert found.recompute is Recompute.SELECTIVE


def test_layers_of_a_chunk_are_its_number_in_other_words() -> None:
    words = (*SPLIT, "--num-layers-per-virtual-pipeline-stage", "3")
    assert DIALECT.read(script(*words), world_size=4).baseline.layout.virtual_pipeline == 2
    assert arguments_of(*words, ranks=4, virtual_pipeline=3)[-1] == "2"
    with pytest.raises(ConfigError, match="24 layers cannot be split into 20 equal chunks"):
        arguments_of(*words, ranks=4, virtual_pipeline=5)


@pytest.mark.parametrize(
    ("split", "words"),
    [
        (
            (5, 7, 7, 5),
            (
                "--decoder-first-pipeline-num-layers",
                "5",
                "--decoder-last-pipeline-num-layers",
                "5",
            ),
        ),
        ((5, 6, 7, 6), ("--pipeline-model-parallel-layout", "Ettttt|tttttt|ttttttt|ttttttL")),
        (None, ()),
    ],
)
def test_an_uneven_pipeline_is_its_ends_or_a_layout(
    split: tuple[int, ...] | None, words: tuple[str, ...]
) -> None:
    made = arguments_of(*SPLIT, ranks=4, pipeline_split=split)
    assert made[len(SPLIT) :] == words
    found = DIALECT.read(script(*made), world_size=4).baseline.layout.pipeline_split
    assert found == split


def test_a_layout_with_repetitions_is_read() -> None:
    words = (*SPLIT, "--pipeline-model-parallel-layout", "Et*3|t*7,t|(t)t|ttL")
    assert DIALECT.read(script(*words), world_size=4).baseline.layout.pipeline_split == (
        3,
        8,
        2,
        2,
    )


def test_a_layout_text_has_embedding_and_loss() -> None:
    assert layout_text((1, 2, 1)) == "Et|tt|tL"


def test_older_words_for_recomputation_are_replaced() -> None:
    words = ("--micro-batch-size", "1", "--recompute-activations")
    assert arguments_of(*words, ranks=1, recompute=Recompute.FULL)[2:] == (
        "--recompute-granularity",
        "full",
        "--recompute-method",
        "uniform",
        "--recompute-num-layers",
        "1",
    )


def test_degrees_are_searched_where_they_are_listed() -> None:
    source = say_of(script(*SPLIT), knobs=(("--tensor-model-parallel-size", (1, 2)),))
    (degrees,) = (
        c for c in DIALECT.read(source, world_size=8).choices if c.knob == "tensor_parallel"
    )
    assert degrees.values == (1, 2)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--recompute-granularity", "some"), "--recompute-granularity is 'some'"),
        (("--global-batch-size", "7"), "--global-batch-size is 7, but micro-batch 2"),
        (("--tensor-model-parallel-size", "3"), "world size 4 is not a multiple of tensor 3"),
        (("--num-virtual-stages-per-pipeline-rank", "0"), "must be a whole number"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        DIALECT.read(script("--micro-batch-size", "2", *words), world_size=4)


@pytest.mark.parametrize(
    ("words", "searched"),
    [
        ((), (0, 1)),
        (("--use-distributed-optimizer", "--overlap-param-gather"), None),
        (("--use-distributed-optimizer", "--use-precision-aware-optimizer"), None),
        (("--use-torch-fsdp2",), None),
    ],
)
def test_the_distributed_optimizer_stays_where_other_arguments_need_it_so(
    words: tuple[str, ...], searched: tuple[int, ...] | None
) -> None:
    source = script("--micro-batch-size=1", *words)
    user = DIALECT.read(overridden(source, "fast", "false"), world_size=2)
    choices = {choice.knob: choice.values for choice in user.choices}
    assert choices.get("zero_stage") == searched
