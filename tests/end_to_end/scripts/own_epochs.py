"""A training on our engine that evaluates and saves after each epoch, or now and then."""

import argparse
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

from autoconf_launch import runtime

parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("--local_rank", type=int, default=0)
parser.add_argument("--eval-every", type=int, default=1000)
parser.add_argument("--save-every", type=int, default=1000)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--eval-megabytes", type=int, default=0, help="for each sample of a batch")
arguments = parser.parse_args()
torch.manual_seed(0)


def loss_of(model: torch.nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
engine = runtime.initialize(model, arguments.config, loss_fn=loss_of)
data = TensorDataset(torch.randn(16384, 64), torch.randint(0, 8, (16384,)))
loader = DataLoader(data, batch_size=engine.samples_per_step, shuffle=True, drop_last=True)
few = DataLoader(TensorDataset(*data[:16]), batch_size=8)


@torch.no_grad()
def evaluate() -> None:
    engine.module.eval()
    kept = []
    for inputs, _ in few:
        engine.module(inputs)
        kept.append(torch.ones(engine.samples_per_step * arguments.eval_megabytes, 1 << 17))
    engine.module.train()


step = 0
for epoch in range(arguments.epochs):
    for batch in loader:
        engine.step(batch)
        step += 1
        if step % arguments.eval_every == 0:
            evaluate()
        if step % arguments.save_every == 0 and engine.rank == 0:
            torch.save(engine.module.state_dict(), f"step{step}.pt")
    evaluate()
    if engine.rank == 0:
        torch.save(engine.module.state_dict(), f"epoch{epoch}.pt")
sys.stdout.write(f"trained with {engine.samples_per_step}\n")
