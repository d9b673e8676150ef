"""A step that takes as long as its batch is large, and an evaluation that nobody waits for."""

import argparse
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4)
parser.add_argument("--samples", type=int, default=4000)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--step-s", type=float, default=0.0)
parser.add_argument("--sample-s", type=float, default=0.005)
parser.add_argument("--evaluation-s", type=float, default=60.0)
parser.add_argument("--lr", type=float, default=0.01)
arguments = parser.parse_args()

data = TensorDataset(torch.randn(arguments.samples, 8), torch.randn(arguments.samples, 1))
model = torch.nn.Linear(8, 1)
rate = arguments.lr
optimizer = torch.optim.SGD(model.parameters(), lr=rate)
loader = DataLoader(data, batch_size=arguments.batch_size, shuffle=True)
for _ in range(arguments.epochs):
    for inputs, targets in loader:
        optimizer.zero_grad()
        (model(inputs) - targets).pow(2).mean().backward()
        time.sleep(arguments.step_s + arguments.sample_s * len(inputs))
        optimizer.step()
model.eval()
with torch.no_grad():
    for inputs, _ in DataLoader(data, batch_size=arguments.batch_size):
        model(inputs)
        time.sleep(arguments.evaluation_s / len(data) * len(inputs))
