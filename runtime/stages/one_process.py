"""Whether a model can be cut into stages: tried with two of them inside one process."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from autoconf_launch.core import DegreeLimits, Precision, even_pipeline_split

from ..model import evaluation_mode
from .cut import blocks_to_cut, find_places, make_stages
from .stage import Stage, StageError

_TOLERANCES = {Precision.FP32: 1e-4}
_ROUNDED = 1e-2


def stage_split(
    model: nn.Module, loss: Callable[[nn.Module], Tensor], precision: Precision
) -> DegreeLimits:
    """How many stages there can be, or why there is no pipeline of this model.

    Losses and gradients of two stages are compared with those of the whole model, in evaluation
    mode; gradients are gone afterwards.

    Args:
        model: left as it is.
        loss: of any micro-batch.
        precision: of the pass, by which small differences count as none.
    """
    try:
        blocks = len(blocks_to_cut(model).keys)
        with evaluation_mode(model):
            _compare(model, loss, _TOLERANCES.get(precision, _ROUNDED))
    except StageError as error:
        return DegreeLimits(key="pipeline", missing=f"{error.why}; set it to 1.")
    except Exception as error:
        text = (str(error) or type(error).__name__).splitlines()[0]
        failed = f"{type(model).__name__} fails in two stages ({text}); set it to 1."
        return DegreeLimits(key="pipeline", missing=failed)
    finally:
        model.zero_grad(set_to_none=True)
    return DegreeLimits(key="pipeline", most=("repeated blocks", blocks))


def _compare(model: nn.Module, loss: Callable[[nn.Module], Tensor], tolerance: float) -> None:
    model.zero_grad(set_to_none=True)
    whole = loss(model)
    torch.autograd.backward(whole)
    expected = torch.stack((whole.detach().float(), _norm(model)))
    model.zero_grad(set_to_none=True)
    counts = even_pipeline_split(len(blocks_to_cut(model).keys), 2)
    stages = make_stages(model, find_places(model, counts), (0, 1), in_place=False)
    found = torch.stack((_staged_loss(stages, loss), _norm(model)))
    for what, one, other in zip(("loss", "gradient"), found, expected, strict=True):
        if not torch.allclose(one, other, rtol=tolerance, atol=tolerance):
            raise StageError(
                f"the {what} of two stages is {float(one):.6g} where the whole model's is "
                f"{float(other):.6g}, as more than one hidden state goes from block to block"
            )


def _staged_loss(stages: tuple[Stage, ...], loss: Callable[[nn.Module], Tensor]) -> Tensor:
    first, last = stages
    number = torch.tensor([0])
    for stage in stages:
        stage.loss = lambda _, model=stage.model: loss(model)
    entry = last.begin_at_first_block()
    try:
        hidden = first(number, number)
        received = hidden.detach().requires_grad_(hidden.requires_grad)
        ended: Tensor = last(received, number)
        torch.autograd.backward(ended)
        if hidden.requires_grad:
            hidden.backward(received.grad)
        last.require_unused_copies()
    finally:
        entry.remove()
    return ended.detach().float().reshape(())


def _norm(model: nn.Module) -> Tensor:
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    return torch.nn.utils.get_total_norm(gradients).float()
