"""A pipeline whose last stage reports how many micro-batches' logits were alive at once."""

from __future__ import annotations

import json
import sys
import weakref

import torch
from tiny import Tiny, config, global_batches, share  # type: ignore[import-not-found]
from torch import Tensor, nn

from autoconf_launch.runtime.engine import initialize

MICRO_BATCHES = 8
logits: list[weakref.ref[Tensor]] = []
alive = [0]


def count(head: nn.Module, inputs: object, made: Tensor) -> None:
    logits.append(weakref.ref(made))
    alive.append(sum(one() is not None for one in logits))


def build() -> nn.Module:
    model: nn.Module = Tiny(layers=4)
    model.get_submodule("head").register_forward_hook(count)
    return model


torch.set_num_threads(1)
parallelism = json.loads(sys.argv[1])
engine = initialize(
    build, config(gradient_accumulation_steps=MICRO_BATCHES, parallelism=parallelism)
)
for batch in global_batches(engine.samples_per_step, 2):
    engine.step(share(batch, 0, engine.samples_per_step))
sys.stdout.write(json.dumps({"made": len(logits), "alive": max(alive)}))
