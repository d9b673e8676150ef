"""A plain loop that evaluates and saves now and then, and knows nothing of us."""

import argparse
import sys
from pathlib import Path

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--eval-interval", type=int, default=500)
parser.add_argument("--save-interval", type=int, default=1000)
parser.add_argument("--eval-megabytes", type=int, default=0, help="for each sample of a batch")
arguments = parser.parse_args()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
data = torch.utils.data.TensorDataset(torch.randn(4096, 64), torch.randint(0, 8, (4096,)))
loader = torch.utils.data.DataLoader(data, batch_size=arguments.batch_size, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


@torch.no_grad()
def evaluate() -> None:
    model.eval()
    kept = []
    for start in (0, 8):
        model(data[start : start + 8][0])
        kept.append(torch.ones(arguments.batch_size * arguments.eval_megabytes, 1 << 17))
    model.train()


for step, (inputs, classes) in enumerate(loader, start=1):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(inputs), classes)
    torch.autograd.backward(loss)
    optimizer.step()
    if step % arguments.eval_interval == 0:
        evaluate()
    if step % arguments.save_interval == 0:
        Path("checkpoints").mkdir(exist_ok=True)
        torch.save(model.state_dict(), f"checkpoints/step{step}.pt")
sys.stdout.write(f"trained with {arguments.batch_size}\n")
