"""A script that reads its batch from the file that it is given, of any format; keys may follow."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def read(path: str) -> Any:
    if path.endswith(".toml"):
        import tomllib

        return tomllib.loads(Path(path).read_text())
    if path.endswith(".json"):
        return json.loads(Path(path).read_text())
    from omegaconf import OmegaConf

    return OmegaConf.merge(OmegaConf.load(path), OmegaConf.from_cli(sys.argv[2:]))


def main() -> None:
    held = read(sys.argv[1])["train"]
    micro = held["micro_batch_size"]
    accumulation = held.get("accum") or held["global_batch_size"] // micro
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=float(held["lr"]))
    rows = DataLoader(TensorDataset(torch.randn(4096, 16)), batch_size=micro)
    done = 0
    for number, (row,) in enumerate(rows):
        time.sleep(0.04)  # fewer micro-batches are surely faster
        (model(row).square().mean() / accumulation).backward()
        if (number + 1) % accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
            done += 1
        if done == 8:
            break
    sys.stdout.write(f"trained with {micro} {accumulation}\n")


main()
