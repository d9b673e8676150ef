"""A training whose memory is 10 GiB for each sample of a batch."""

import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=1)
parser.add_argument("--grad_accum", type=int, default=16)
parser.add_argument("--sample_mib", type=int, default=10 << 10)
options = parser.parse_args()

model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    for _ in range(options.grad_accum):
        size = (options.batch_size, options.sample_mib << 20)
        held = torch.empty(size, dtype=torch.uint8, device="cuda")
        model(torch.ones(options.batch_size, 8, device="cuda")).sum().backward()
        del held
    optimizer.step()
    optimizer.zero_grad()
