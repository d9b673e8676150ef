"""A script that starts its two ranks by itself, and cannot share its port with another one."""
# mypy: disable-error-code="no-untyped-call, attr-defined"

import argparse
import os
from pathlib import Path

import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, TensorDataset


def train(rank: int, arguments: argparse.Namespace) -> None:
    """Train as one rank, from the last checkpoint on."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(arguments.port)}
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    assert not Path("snapshot.pt").exists(), "another launch left its checkpoint"
    model = nn.parallel.DistributedDataParallel(nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(512, 16)), batch_size=arguments.batch_size)
    for (inputs,) in loader:
        model(inputs).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            torch.save(model.state_dict(), "snapshot.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--batch_size", type=int, default=4)
    given = parser.parse_args()
    torch.multiprocessing.spawn(train, args=(given,), nprocs=2)
