"""A language model with settings that are its names, and a budget of tokens for each step.

``configurator.py`` beside it sets them from files and ``--NAME=VALUE``; ranks join their gradients
by hand.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.nn import functional

max_seq_len = 32
device_batch_size = 4
total_batch_size = 512  # tokens of an optimizer step, over all ranks
num_iterations = 200
learning_rate = 0.01
exec(Path(__file__).with_name("configurator.py").read_text())

ddp_world_size = int(os.environ.get("WORLD_SIZE", "1"))
if ddp_world_size > 1:
    torch.distributed.init_process_group("gloo")
tokens_per_fwdbwd = device_batch_size * max_seq_len
world_tokens_per_fwdbwd = tokens_per_fwdbwd * ddp_world_size
assert total_batch_size % world_tokens_per_fwdbwd == 0
grad_accum_steps = total_batch_size // world_tokens_per_fwdbwd
torch.manual_seed(0)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(256, 64)
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True) for _ in range(2)
        )
        self.head = torch.nn.Linear(64, 256)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        logits = self.head(hidden)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    while True:
        tokens = torch.randint(0, 256, (device_batch_size, max_seq_len + 1))
        yield tokens[:, :-1], tokens[:, 1:]


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
loader = batches()
x, y = next(loader)
for _ in range(num_iterations):
    for _ in range(grad_accum_steps):
        loss = model(x, y)
        torch.autograd.backward(loss / grad_accum_steps)
        x, y = next(loader)
    for weight in model.parameters() if ddp_world_size > 1 else ():
        assert weight.grad is not None
        torch.distributed.all_reduce(weight.grad)
        weight.grad.div_(ddp_world_size)
    optimizer.step()
    model.zero_grad(set_to_none=True)
if ddp_world_size > 1:
    torch.distributed.destroy_process_group()
sys.stdout.write(f"trained with {device_batch_size} x {grad_accum_steps}\n")
