"""A data-parallel loop as torchrun starts it, which knows nothing of us."""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8, help="of each rank")
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--num_workers", type=int, default=0)
arguments = parser.parse_args()
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
wrapped = DistributedDataParallel(model)
data = TensorDataset(torch.randn(2048, 64), torch.randint(0, 8, (2048,)))
sampler: DistributedSampler[int] = DistributedSampler(data)
loader = DataLoader(data, arguments.batch_size, sampler=sampler, num_workers=arguments.num_workers)
optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
steps = 0
for epoch in range(arguments.epochs):
    sampler.set_epoch(epoch)
    for inputs, classes in loader:
        loss = torch.nn.functional.cross_entropy(wrapped(inputs), classes)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        steps += 1
if dist.get_rank() == 0:
    sys.stdout.write(f"{steps} steps of {arguments.batch_size} on {os.environ['WORLD_SIZE']}\n")
dist.destroy_process_group()
