"""A loop that writes as people's do: a log before it, JSON beside checkpoints, a dated folder.

``--by_hand`` changes the weights without an optimizer.
"""
# mypy: ignore-errors
# ruff: noqa: T201, PTH103, PTH104, PTH108, PTH110, PTH118, PTH123, SIM115

import argparse
import atexit
import csv
import json
import os
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
parser.add_argument("--output", default="../output")
parser.add_argument("--by_hand", action="store_true")
arguments = parser.parse_args()

folder = os.path.join(arguments.output, time.strftime("%Y%m%d-%H%M%S"))
os.makedirs(folder, exist_ok=True)
log = open("train.log", "a")
log.write("starting\n")
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.AdamW(model.parameters())
data = torch.utils.data.DataLoader(torch.randn(320, 16), batch_size=arguments.batch_size)


def save_as_timm_does() -> None:
    temporary, last = (os.path.join(folder, name) for name in ("tmp.pth.tar", "last.pth.tar"))
    torch.save(model.state_dict(), temporary)
    if os.path.exists(last):
        os.unlink(last)
    os.rename(temporary, last)
    os.link(last, os.path.join(folder, f"checkpoint-{time.monotonic_ns()}.pth.tar"))
    with open(os.path.join(folder, "summary.csv"), "a") as file:
        csv.writer(file).writerow([1.0])


def save_over_the_last() -> None:
    os.makedirs("checkpoint", exist_ok=True)
    with open("checkpoint/config.json", "w") as file:
        json.dump({"of": "a trial"}, file)
    torch.save(model.state_dict(), "checkpoint/model.bin")
    with open("checkpoint/history.txt", "a") as file:
        file.write("of a trial\n")
    assert json.load(open("checkpoint/config.json")) == {"of": "a trial"}
    assert len(torch.load("checkpoint/model.bin")) == 2


for inputs in data:
    loss = model(inputs).pow(2).mean()
    model.zero_grad()
    loss.backward()
    if arguments.by_hand:
        with torch.no_grad():
            for weight in model.parameters():
                weight -= 0.01 * weight.grad
    else:
        optimizer.step()
    save_as_timm_does()
    save_over_the_last()
model.eval()
with torch.no_grad():
    model(torch.randn(8, 16))
with open(os.path.join(arguments.output, "results.json"), "w") as file:
    json.dump({"loss": float(loss)}, file)
atexit.register(lambda: open("at_the_end.txt", "w").write("good-bye"))
print("done")
