"""A plain training loop with its own arguments, which knows nothing of us."""

import argparse
import sys

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--test-batch-size", type=int, default=100)
parser.add_argument("--ignore", action="store_true", help="of --batch-size")
arguments = parser.parse_args()
size = 4 if arguments.ignore else arguments.batch_size
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
data = torch.utils.data.TensorDataset(torch.randn(4096, 64), torch.randint(0, 8, (4096,)))
loader = torch.utils.data.DataLoader(data, batch_size=size, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    for inputs, classes in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), classes)
        torch.autograd.backward(loss)
        optimizer.step()
sys.stdout.write(f"trained with {arguments.batch_size}\n")
