"""The contract of exporters; a new one joins by its row in EXPORTERS."""

from __future__ import annotations

import pytest

from autoconf_launch.autotuner.sizing import Family, ModelQuestion, RunPlan, choose_model
from autoconf_launch.core import Candidate, Layout, RawConfig, Recompute
from autoconf_launch.launcher.estimates import base_document
from autoconf_launch.launcher.export import Exported, Optimum, export_base, export_optimum
from autoconf_launch.launcher.exporters import BASE_EXPORTERS, EXPORTERS, LAYOUT_EXPORTERS
from autoconf_launch.tuning_spaces import generation_of, tables

from .toy_words import toy

LAYOUT = Layout(data_parallel=4, zero_stage=3, micro_batch=2, recompute=Recompute.SELECTIVE)
OPTIMUM = Optimum(name="z3", candidate=Candidate(layout=LAYOUT, extras=(("unheard_of", 7),)))


@pytest.fixture(scope="module")
def document() -> RawConfig:
    """A base configuration that recommend writes."""
    family = Family("llama")
    question = ModelQuestion(
        family=family, size_b=8.0, vocabulary=32000, sequence=4096, gpu_memory_gb=80
    )
    plan = RunPlan(days=6.0, nodes=20, gpus_per_node=8, tokens_b=300.0)
    return base_document(choose_model(tables(generation_of(family)), question), plan, None)


def require_honest(exported: Exported) -> None:
    """Each sentence on a setting that is left out is a line of comment in the text."""
    assert exported.text.endswith("\n")
    assert exported.suffix.startswith(".")
    assert exported.precisions
    for sentence in exported.left_out:
        assert f"not expressed: {sentence}\n" in exported.text
    assert {*exported.changed} <= {*exported.left_out}


@pytest.mark.parametrize("name", LAYOUT_EXPORTERS)
def test_a_layout_is_exported_with_an_account_of_the_rest(name: str) -> None:
    require_honest(export_optimum(OPTIMUM, name))


@pytest.mark.parametrize("name", [name for name in LAYOUT_EXPORTERS if name != "native"])
def test_a_knob_that_no_framework_has_changes_the_layout(name: str) -> None:
    assert "unheard_of = 7" in "".join(export_optimum(OPTIMUM, name).changed)


@pytest.mark.parametrize("name", BASE_EXPORTERS)
def test_a_base_configuration_is_exported_with_an_account_of_the_rest(
    name: str, document: RawConfig
) -> None:
    require_honest(export_base(document, name))


def test_an_exporter_of_another_package_passes() -> None:
    require_honest(toy(OPTIMUM))
    assert "zero_stage = 3" in toy(OPTIMUM).changed[0]


def test_each_exporter_takes_a_layout_or_a_base_configuration() -> None:
    assert {*EXPORTERS} == {*LAYOUT_EXPORTERS, *BASE_EXPORTERS}
