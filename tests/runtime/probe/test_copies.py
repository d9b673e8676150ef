"""Hooks of ours on a model that is copied, saved or compiled to TorchScript."""

import copy
import pickle

import torch
from torch import Tensor, nn

from autoconf_launch.runtime.model import SharedByCopies, stay_out_of_scripts


class Listener(SharedByCopies):
    def __init__(self) -> None:
        self.heard = 0

    def after(self, module: nn.Module, arguments: object, result: object) -> None:
        self.heard += 1


def of_user(module: nn.Module, arguments: tuple[Tensor], result: Tensor) -> Tensor:
    return result + 1


def test_a_copy_is_heard_by_the_same_listener() -> None:
    listener, model = Listener(), nn.Linear(2, 2)
    model.register_forward_hook(listener.after)
    copy.deepcopy(model)(torch.ones(2))
    assert listener.heard == 1


def test_one_that_is_loaded_is_heard_by_nobody() -> None:
    listener, model = Listener(), nn.Linear(2, 2)
    model.register_forward_hook(listener.after)
    pickle.loads(pickle.dumps(model))(torch.ones(2))
    assert listener.heard == 0


def test_torchscript_has_the_users_hooks_and_not_ours(put_back: None) -> None:
    listener, inside = Listener(), nn.Linear(2, 2)
    for hook in (listener.after, of_user, listener.after):
        inside.register_forward_hook(hook)
    hooks = list(inside._forward_hooks.items())
    stay_out_of_scripts()
    scripted = torch.jit.script(nn.Sequential(inside))
    assert torch.equal(scripted(torch.ones(2)), inside(torch.ones(2)))
    assert (list(inside._forward_hooks.items()), listener.heard) == (hooks, 2)
