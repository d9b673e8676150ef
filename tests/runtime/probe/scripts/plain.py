"""A plain loop over a DataLoader, as in a thousand tutorials."""
# mypy: disable-error-code="no-untyped-call, no-any-return, attr-defined"
# ruff: noqa: T201

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--samples", type=int, default=1000)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--accumulation", type=int, default=1)


def main() -> None:
    options = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters())
    data = TensorDataset(torch.randn(options.samples, 16), torch.randint(0, 2, (options.samples,)))
    loader = DataLoader(data, batch_size=options.batch_size, num_workers=options.workers)
    for number, (inputs, labels) in enumerate(loader, start=1):
        loss = nn.functional.cross_entropy(model(inputs), labels) / options.accumulation
        loss.backward()
        if number % options.accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
    print("reached the end")


if __name__ == "__main__":
    main()
