"""A plain loop that evaluates and saves after each epoch, and knows nothing of us."""

import argparse
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--eval-megabytes", type=int, default=0, help="for each sample of a batch")
arguments = parser.parse_args()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
data = TensorDataset(torch.randn(16384, 64), torch.randint(0, 8, (16384,)))
loader = DataLoader(data, batch_size=arguments.batch_size, shuffle=True)
few = DataLoader(TensorDataset(*data[:16]), batch_size=8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


@torch.no_grad()
def evaluate() -> None:
    model.eval()
    kept = []
    for inputs, _ in few:
        model(inputs)
        kept.append(torch.ones(arguments.batch_size * arguments.eval_megabytes, 1 << 17))
    model.train()


for epoch in range(3):
    for inputs, classes in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), classes)
        torch.autograd.backward(loss)
        optimizer.step()
    evaluate()
    torch.save(model.state_dict(), f"epoch{epoch}.pt")
sys.stdout.write(f"trained with {arguments.batch_size}\n")
