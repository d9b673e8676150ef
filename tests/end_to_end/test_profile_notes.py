"""A model that cannot be traced, with the real command."""

from __future__ import annotations

import textwrap

from .conftest import SMALL, Place

UNTRACEABLE = """
import sys
import torch
from autoconf_launch import runtime


class Model(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x) * (1.0 if x.sum().item() else 2.0)


loss = lambda model, batch: model(batch).square().mean()
engine = runtime.initialize(Model(4, 4), sys.argv[2], loss_fn=loss)
while True:
    engine.step(torch.ones(engine.samples_per_step, 4))
"""


def test_why_a_model_was_not_traced_is_shown_as_a_warning(place: Place) -> None:
    config, script = place.write_config(SMALL), place.folder / "train.py"
    script.write_text(textwrap.dedent(UNTRACEABLE))
    argv = ("--num_gpus=1", "--no_local_rank", str(script), "--config", str(config))
    code, output = place.here("tune", "--dry-run", *argv)
    assert code == 0, output
    assert "warning: The model could not be traced on fake tensors" in output
    assert "DataDependentOutputException" in output
