"""Every name that a candidate is given can be read back from a journal, and no other one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.sizing import Family, GridQuestion
from autoconf_launch.autotuner.space import candidate_name
from autoconf_launch.core import Candidate, DecodeError, Layout, Offload, Recompute
from autoconf_launch.launcher.results import ResultsPaths
from autoconf_launch.launcher.results.paths import require_names
from autoconf_launch.nemo.candidate_grids import (
    NemoCandidate,
    nemo1_name,
    nemo2_name,
)

SIZES = st.integers(1, 10**6)
VALUES = st.one_of(
    st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=9), st.none()
)
LAYOUTS = st.builds(
    Layout,
    zero_stage=st.integers(0, 3),
    tensor_parallel=SIZES,
    pipeline_parallel=SIZES,
    micro_batch=SIZES,
    accumulation=SIZES,
    recompute=st.sampled_from(Recompute),
    offload=st.sampled_from(Offload),
    pipeline_split=st.none() | st.tuples(SIZES, SIZES),
)
EXTRAS = st.lists(st.tuples(st.text(min_size=1, max_size=9), VALUES), max_size=2).map(tuple)


@given(
    st.builds(Candidate, layout=LAYOUTS, extras=EXTRAS),
    st.sampled_from(["", "_again", "_final", "_soak"]),
)
def test_a_candidates_name_and_what_is_launched_again_is_one(
    candidate: Candidate, suffix: str
) -> None:
    name = candidate_name(candidate)
    if len(name) < 200:
        require_names(f"{name}{suffix}")


@given(
    st.sampled_from(["gpt3", "t5", "mt5", "bert", "mixtral", "my.own"]),
    st.floats(1e-3, 1e5),
    st.builds(
        NemoCandidate,
        layout=LAYOUTS,
        recompute_layers=st.none() | st.integers(0, 99),
        recompute_micro_batches=st.none() | st.integers(0, 99),
        recompute_layers_per_pipeline=st.none() | st.integers(0, 99),
        virtual=st.none() | st.integers(1, 99),
    ),
)
def test_a_run_of_a_search_has_one(family: str, size_b: float, one: NemoCandidate) -> None:
    model = GridQuestion(
        family=Family(family), size_b=size_b, layers=1, sequence=2048, gpu_memory_gb=80
    )
    name, newer = nemo1_name(model, 16, one), nemo2_name(model, 16, one)
    require_names(name, f"{name}_selective", f"{name}_selective_final")
    require_names(newer, f"{newer}_final", f"{newer}_act_ckpt_4", f"{newer}_gbs_512")
    require_names(f"{newer}_act_ckpt_full", f"{newer}_act_ckpt_selective_gbs_512_again")


@pytest.mark.parametrize("model", ["gpt3_5b", "my-model", "llama_0.5b", "a.b", "modèle"])
def test_a_run_of_an_inference_search_has_one(model: str) -> None:
    require_names(f"{model}_tp1_pp2_bs64", f"{model}_tp1_pp2_bs64_final")


def test_no_file_or_folder_of_the_results_has_one(tmp_path: Path) -> None:
    paths = ResultsPaths(results=tmp_path, exps=tmp_path)
    state = (paths.journal, paths.lease, paths.environment, paths.profile, paths.second_profile)
    for path in (*state, paths.tracking, *paths.optimum, paths.summary_text, paths.trials_csv):
        with pytest.raises(DecodeError, match="not the name of a trial"):
            require_names(path.name)
