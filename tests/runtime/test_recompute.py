import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from autoconf_launch.core import ConfigError, Layout, Recompute, ResolvedConfig
from autoconf_launch.runtime.parallel import Applied, DeviceMeshes, make_meshes, recompute
from autoconf_launch.runtime.rank import join

RECOMPUTING = (Recompute.SELECTIVE, Recompute.FULL)


@pytest.fixture
def mesh(alone: None) -> DeviceMeshes:
    return make_meshes(join({}).device, Layout())


def laid_out(
    model: nn.Module, mode: Recompute, mesh: DeviceMeshes, layers: int | None = None
) -> nn.Module:
    extras = (("recompute_layers", layers),) if layers else ()
    config = ResolvedConfig(layout=Layout(recompute=mode), extras=extras)
    return recompute.apply(Applied(module=model), mesh, config).module


def gradients(model: nn.Module, batch: tuple[Tensor, Tensor]) -> list[Tensor]:
    torch.autograd.backward(model(*batch))
    return [p.grad for p in model.parameters() if p.grad is not None]


def kept_bytes(model: nn.Module, batch: tuple[Tensor, Tensor]) -> int:
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(*batch)
    assert loss.requires_grad
    return sum(kept.values())


@pytest.mark.parametrize("mode", RECOMPUTING)
def test_gradients_stay_the_same(mode: Recompute, mesh: DeviceMeshes, tiny: Any) -> None:
    batch = tiny.global_batches(4, 1)[0]
    plain = gradients(tiny.Tiny(), batch)
    again = gradients(laid_out(tiny.Tiny(), mode, mesh), batch)
    assert all(torch.allclose(a, b) for a, b in zip(plain, again, strict=True))


def test_full_keeps_less_than_plain(mesh: DeviceMeshes, tiny: Any) -> None:
    batch = tiny.global_batches(4, 1)[0]
    full = kept_bytes(laid_out(tiny.Tiny(), Recompute.FULL, mesh), batch)
    assert full < kept_bytes(tiny.Tiny(), batch) / 2


@pytest.mark.parametrize("mode", RECOMPUTING)
def test_names_of_weights_stay(mode: Recompute, mesh: DeviceMeshes, tiny: Any) -> None:
    plain = list(tiny.Tiny().state_dict())
    assert list(laid_out(tiny.Tiny(), mode, mesh).state_dict()) == plain


@pytest.mark.parametrize("mode", list(Recompute))
def test_the_mode_is_seen_in_the_live_block(
    mode: Recompute, mesh: DeviceMeshes, tiny: Any
) -> None:
    model: Any = laid_out(tiny.Tiny(), mode, mesh)
    assert recompute.recompute_of(model.blocks[0]) is mode


def test_a_copy_recomputes_with_its_own_weights(mesh: DeviceMeshes, tiny: Any) -> None:
    batch = tiny.global_batches(4, 1)[0]
    model = laid_out(tiny.Tiny(), Recompute.FULL, mesh)
    gradients(copy.deepcopy(model), batch)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_model_without_repeated_blocks_is_refused(mesh: DeviceMeshes) -> None:
    with pytest.raises(ConfigError, match="no repeated blocks"):
        laid_out(nn.Linear(2, 2), Recompute.FULL, mesh)


def test_some_of_the_blocks_recompute_and_keep_as_much_less(mesh: DeviceMeshes, tiny: Any) -> None:
    batch = tiny.global_batches(4, 1)[0]
    some: Any = laid_out(tiny.Tiny(), Recompute.FULL, mesh, 1)
    found = recompute.recompute_of_blocks(some.blocks)
    assert found == (Recompute.FULL, (("recompute_layers", 1),))
    every = laid_out(tiny.Tiny(), Recompute.FULL, mesh)
    assert kept_bytes(every, batch) < kept_bytes(some, batch) < kept_bytes(tiny.Tiny(), batch)
    assert [p.shape for p in gradients(some, batch)] == [p.shape for p in some.parameters()]


def test_more_blocks_than_there_are_cannot_recompute(mesh: DeviceMeshes, tiny: Any) -> None:
    with pytest.raises(ConfigError, match="layers is 9, but there are only 3 repeated blocks"):
        laid_out(tiny.Tiny(), Recompute.FULL, mesh, 9)
