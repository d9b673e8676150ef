"""Batches and first layouts by NVIDIA's tables, and ours where they end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.sizing import Family, ModelQuestion, base_batch
from autoconf_launch.tuning_spaces import tables

from .expected import model, rows


def question(family: str, size_b: float, sequence: int, memory_gb: float = 80) -> ModelQuestion:
    return ModelQuestion(
        vocabulary=51200,
        family=Family(family),
        size_b=size_b,
        sequence=sequence,
        gpu_memory_gb=memory_gb,
    )


@pytest.mark.parametrize("row", rows("expected_base_gbs_tp_pp_cp_ep.csv"), ids=str)
def test_batches_and_degrees_are_those_of_nemo(row: dict[str, str]) -> None:
    size_b, sequence = float(row["model_size_in_b"]), int(row["seq_len"])
    asked = question(row["family"], size_b, sequence, float(row["gpu_memory_gb"]))
    found = base_batch(tables().batches, asked)
    degrees = (found.tensor, found.pipeline, found.context, found.expert)
    assert found.global_batch == int(row["gbs"])
    assert ["" if n is None else str(n) for n in degrees] == [
        row[name] for name in ("tp", "pp", "cp", "ep")
    ]


@given(st.sampled_from([2048, 4096, 8192, 16384, 32768]), st.floats(0.05, 20.6))
def test_tokens_of_a_step_are_the_same_at_each_tabled_length(sequence: int, size_b: float) -> None:
    here = base_batch(tables().batches, question("gpt3", size_b, sequence))
    shortest = base_batch(tables().batches, question("gpt3", size_b, 2048))
    assert here.global_batch * sequence == shortest.global_batch * 2048


def test_batches_and_degrees_beside_the_tables_are_said() -> None:
    found = base_batch(tables().batches, question("gpt3", 5, 65536))
    assert found.global_batch * 65536 == 2048 * 2048
    assert (found.tensor, found.pipeline) == (None, None)
    assert "No table has a batch" in found.note
    found = base_batch(tables().batches, question("t5", 3, 512, 48))
    assert found.global_batch == 1920
    assert "48 GB" in found.note
    assert model("gpt3", 5, batch=96).batch.global_batch == 96
    batch = model("qwen", 7, sequence=8192).batch
    assert (batch.global_batch, batch.tensor, batch.pipeline) == (256, 2, 1)
    chosen = model("gemma", 7, sequence=8192, gpu_memory_gb=40)
    assert chosen.batch.tensor is None
    assert any("No table has degrees of parallelism" in note for note in chosen.notes)


@pytest.mark.parametrize(
    ("family", "size_b", "sequence", "memory_gb", "batch"),
    [
        ("qwen", 2.61, 2048, 80, 1024),
        ("qwen", 2.61, 4096, 80, 512),
        ("qwen", 2.61, 8192, 80, 128),
        ("llama", 0.9, 16384, 80, 32),
        ("mistral", 3.9, 16384, 80, 64),
        ("gemma", 22, 16384, 80, 128),
        ("nemotron", 3.9, 32768, 80, 32),
        ("starcoder", 7.5, 32768, 80, 64),
        ("mixtral", 46, 8192, 40, 2048),
        ("llama", 3.9, 4096, 40, 1024),
    ],
)
def test_families_of_nemo2_have_its_batches(
    family: str, size_b: float, sequence: int, memory_gb: float, batch: int
) -> None:
    """Sizes besides its grids; NeMo 1.0 keeps the tokens of a step instead."""
    chosen = model(family, size_b, sequence=sequence, gpu_memory_gb=memory_gb)
    assert chosen.batch.global_batch == batch
    assert "No table has a batch" not in " ".join(chosen.notes)


@pytest.mark.parametrize(("family", "size_b", "batch"), [("t5", 3, 240), ("bert", 2, 128)])
def test_beyond_what_nemo2_takes_a_step_reads_the_tokens_of_the_table(
    family: str, size_b: float, batch: int
) -> None:
    known = tables(2)
    found = base_batch(known.batches, question(family, size_b, 4096), known.grids)
    assert found.global_batch == batch
    assert "with 4096 tokens" in found.note
