"""DistributedDataParallel as the tutorials show it, under any launcher that sets RANK."""
# mypy: disable-error-code="no-untyped-call, no-any-return, attr-defined"
# ruff: noqa: T201

import argparse
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--accumulation", type=int, default=1)
parser.add_argument("--zero", action="store_true")
parser.add_argument("--fail-on-rank", type=int, default=-1)


def main() -> None:
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)))
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters())
    if options.zero:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)
    data = TensorDataset(torch.randn(640, 16), torch.randint(0, 2, (640,)))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    for number, (inputs, labels) in enumerate(loader, start=1):
        last = number % options.accumulation == 0
        with contextlib.nullcontext() if last else model.no_sync():
            loss = nn.functional.cross_entropy(model(inputs), labels) / options.accumulation
            if number == 4 and dist.get_rank() == options.fail_on_rank:
                torch.empty(1 << 60)
            loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    print("reached the end")


if __name__ == "__main__":
    main()
