"""A script that takes RANK for a start on GPUs, and reads its batch from the environment."""

import os

import torch
from torch import distributed, nn

if "RANK" in os.environ:
    distributed.init_process_group("nccl", device_id=torch.device("cuda", 0))
batch_size = int(os.environ.get("BATCH_SIZE", "4"))
model = nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(30):
    model(torch.randn(batch_size, 16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
