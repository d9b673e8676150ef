"""Base configurations as our own runtime reads them."""

from __future__ import annotations

import pytest

from autoconf_launch.autotuner.sizing import (
    RunPlan,
    base_config,
    builtin_document,
    nemo1_document,
    recipe_document,
)
from autoconf_launch.core import ConfigError, RawConfig, resolve
from autoconf_launch.tuning_spaces import base_template

from .expected import model


def document(family: str) -> RawConfig:
    plan = RunPlan(days=5, nodes=1, gpus_per_node=8, tokens_b=300)
    base = base_config(model(family, 3), plan)
    if family in ("llama", "mixtral", "falcon"):
        return recipe_document(base)
    return nemo1_document(base_template(family), base)


@pytest.mark.parametrize("family", ["gpt3", "t5", "mt5", "bert", "llama", "mixtral", "falcon"])
def test_the_runtime_takes_every_family(family: str) -> None:
    base = document(family)
    config = resolve(builtin_document(base, micro_batch=2), world_size=1)
    section = ("data",) if ("data", "global_batch_size") in base else ("model",)
    assert config.layout.global_batch == base.get((*section, "global_batch_size"))
    assert config.layout.micro_batch == 2


def test_schedules_of_gpt_and_t5_end_as_nemo_s() -> None:
    params = builtin_document(document("gpt3")).get(("scheduler", "params"))
    base = document("gpt3")
    steps = base.get(("trainer", "max_steps"))
    constant = base.get(("model", "optim", "sched", "constant_steps"))
    assert params["total_num_steps"] == steps - constant
    assert params["cos_min_ratio"] == pytest.approx(0.1)
    scheduler = builtin_document(document("t5")).get(("scheduler",))
    assert scheduler["type"] == "WarmupDecayLR"
    assert scheduler["params"]["warmup_min_lr"] == pytest.approx(1e-5)


def test_a_file_that_lacks_a_value_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigError, match=r"lacks model\.optim\.lr"):
        builtin_document(document("gpt3").without(("model", "optim", "lr")))
