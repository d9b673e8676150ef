"""NVIDIA's tools have these defects, ours must not: those that no other test here shows.

Numbered as found in NeMo-Framework-Launcher's auto_configurator (24.07 to 24.12, main 26e42fa)
and in NeMo 2.0 (``nemo/collections/llm/tools/auto_configurator``, main 8cfedd7).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoconf_launch import AutoConfigurator
from autoconf_launch.autotuner.sizing import (
    BatchRow,
    Family,
    ModelQuestion,
    base_batch,
)
from autoconf_launch.tuning_spaces import tables

# NeMo 1.0


@pytest.mark.parametrize(
    ("model", "nodes", "sequence", "batch", "degrees"),
    [
        ("gpt3_175b", 64, 2048, 2048, "_tp_4_pp_8_cp_1_ep_1_mbs_1_"),
        ("gpt3_20b", 8, 2048, 256, "_tp_2_pp_1_cp_1_ep_1_mbs_2_"),
        ("llama3-8b", 1, 8192, 128, "_tp_1_pp_1_cp_2_ep_1_mbs_1_"),
        ("llama3-70b", 8, 8192, 128, "_tp_4_pp_4_cp_2_ep_1_mbs_1_"),
        ("llama2-13b", 2, 4096, 128, "_tp_1_pp_4_cp_1_ep_1_mbs_1_"),
    ],
)
def test_8_the_planner_has_what_nvidia_tuned_and_its_own_grid_has_not(
    tmp_path: Path, model: str, nodes: int, sequence: int, batch: int, degrees: str
) -> None:
    """NVIDIA's grid misses 21 of the 55 configurations that it ships."""
    work: dict[str, Any] = {"num_nodes": nodes, "seq_length": sequence, "global_batch_size": batch}
    found = AutoConfigurator(
        path_to_logs=tmp_path,
        model=model,
        **work,
        context_parallel_sizes="auto",
        limit_search_runs=0,
    )
    assert any(degrees in f"{name}_" for name in found.generate_configs()[1])


def test_11_no_row_of_the_batch_tables_is_dead() -> None:
    """NVIDIA's row for T5 up to 0.5 B at 40 GB is overwritten by the next one."""
    for row in tables().batches:
        assert _answer(row) == (row.global_batch, row.tensor, row.pipeline)


def _answer(row: BatchRow) -> tuple[int, int | None, int | None]:
    family = "mt5" if row.family == "t5/mt5" else row.family
    asked = ModelQuestion(
        vocabulary=51200,
        family=Family(family),
        size_b=row.bound_b,
        sequence=row.sequence,
        gpu_memory_gb=row.gpu_memory_gb,
    )
    found = base_batch(tables().batches, asked)
    return found.global_batch, found.tensor, found.pipeline


# NeMo 2.0


def test_k_expert_and_context_ranks_count_in_nemo2_s_candidates_too(tmp_path: Path) -> None:
    """NVIDIA's second check leaves them out here as well."""
    sizes: dict[str, Any] = {"tensor_parallel_sizes": [2], "pipeline_parallel_sizes": [1]}
    sizes |= {"context_parallel_sizes": [4], "micro_batch_sizes": [8]}
    work: dict[str, Any] = {"num_nodes": 128, "seq_length": 4096, "grid": "nemo"}
    work["global_batch_size"] = 2048
    found = AutoConfigurator(path_to_logs=tmp_path, model="llama3-70b", **work, **sizes)
    (name,) = found.generate_configs()[1]
    assert "_tp_2_pp_1_cp_4_ep_1_mbs_8_" in name
