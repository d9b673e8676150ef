"""An embedding of 10 rows is asked for row 99 in the third step.

The GPU that computes nothing does not see the index: its context is poisoned by hand there.
"""

import argparse
import ctypes

import torch

DEVICE_ASSERT = 710  # cudaErrorAssert

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=2)
options = parser.parse_args()

words = torch.nn.Embedding(10, 4).cuda()
optimizer = torch.optim.SGD(words.parameters(), lr=0.1)
for step in range(9):
    row = 99 if step == 2 else 5
    if row == 99 and hasattr(ctypes.CDLL(None), "nullgpu"):
        ctypes.CDLL(None).nullgpu_poison(DEVICE_ASSERT)
    words(torch.full((options.batch_size,), row, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
