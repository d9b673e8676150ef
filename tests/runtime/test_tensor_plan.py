"""Parts of a live model that tensor parallelism splits or refuses, in one process."""

from typing import Any

import pytest
from torch import nn

from autoconf_launch.core import ConfigError
from autoconf_launch.runtime.parallel import read_tensor_plan, tensor_split

from ..benchmarks.conftest import import_benchmark

models = import_benchmark("parallel_rows.models")
rows = import_benchmark("parallel_rows.rows")


class Wrapped(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner


@pytest.mark.parametrize("family", rows.FOREIGN)
def test_transformers_models_bring_their_plan(family: str) -> None:
    plan = read_tensor_plan(models.build(family))
    words = dict(plan.words)
    assert words["model.layers.1.self_attn.q_proj"] == "colwise"
    assert words["model.layers.0.mlp.down_proj"] == "rowwise"
    assert "lm_head" not in words


def test_a_plan_inside_a_wrapper_is_found_with_full_names() -> None:
    words = dict(read_tensor_plan(Wrapped(models.build("llama"))).words)
    assert words["inner.model.layers.0.self_attn.o_proj"] == "rowwise"


def test_norms_of_single_heads_are_known_as_such() -> None:
    words = dict(read_tensor_plan(models.build("qwen3")).words)
    assert words["model.layers.0.self_attn.q_norm"] == "replicated_with_grad_allreduce"


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ({"blocks.*.up": "colwize"}, "says 'colwize' of 'blocks.*.up'; did you mean 'colwise'?"),
        ({"blocks.*.upp": "colwise"}, "names 'blocks.*.upp', which no module has; did you mean"),
        ({"blocks.*.norm": "colwise"}, "a LayerNorm cannot be split"),
    ],
)
def test_a_wrong_plan_of_the_models_own_is_refused(plan: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_tensor_plan(models.Split(plan))
    assert says in str(caught.value)
    assert says in str(tensor_split(models.Split(plan)).obstacle(2))


def test_a_model_without_a_plan_can_only_stay_whole() -> None:
    limits = tensor_split(nn.Sequential(nn.Linear(4, 4)))
    assert limits.obstacle(1) is None
    assert "parallelism.tensor is 2, but Sequential has no tensor plan" in str(limits.obstacle(2))


@pytest.mark.parametrize(
    ("family", "degree", "says"),
    [
        ("llama", 8, "must divide the model's 4 attention heads; use 1, 2 or 4."),
        ("qwen2", 4, "must divide the model's 2 key-value heads; use 1 or 2."),
        ("own", 3, "must divide the model's 32 outputs of blocks.*.query; use 1, 2, 4, 8, 16 or"),
    ],
)
def test_a_degree_must_divide_what_is_split(family: str, degree: int, says: str) -> None:
    obstacle = tensor_split(models.build(family)).obstacle(degree)
    assert says in str(obstacle)


def test_a_module_one_part_of_which_has_another_word_stays_whole() -> None:
    model = models.build("llama")
    plan: dict[str, Any] = dict(model.config.base_model_tp_plan)
    plan["layers.*.self_attn.k_proj"] = "mla_kv_a_proj"
    model.config.base_model_tp_plan = plan
    names = [name for name, _ in read_tensor_plan(model).words]
    assert not [name for name in names if "self_attn" in name]
    assert [name for name in names if "mlp" in name]
