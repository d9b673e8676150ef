"""Reads its configuration by itself, as many scripts do; the batch is an argument of its own."""

# mypy: ignore-errors
import argparse
import json
import sys
from pathlib import Path

import deepspeed
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
parser.add_argument("--deepspeed", type=Path, required=True)
parser.add_argument("--per_device_train_batch_size", type=int, default=2)
parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
parser.add_argument("--always_stage", type=int, help="whatever the file says")
arguments = parser.parse_args()
config = json.loads(arguments.deepspeed.read_text())
if arguments.always_stage is not None:
    config["zero_optimization"]["stage"] = arguments.always_stage
torch.manual_seed(0)
deepspeed.init_distributed(dist_backend="gloo")
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
if engine.gradient_accumulation_steps() != arguments.gradient_accumulation_steps:
    raise ValueError("the file and the arguments differ in gradient_accumulation_steps")
data = TensorDataset(torch.randn(512, 64), torch.randint(0, 8, (512,)))
sampler: DistributedSampler[int] = DistributedSampler(data)
for inputs, classes in DataLoader(data, arguments.per_device_train_batch_size, sampler=sampler):
    loss = torch.nn.functional.cross_entropy(engine(inputs), classes)
    engine.backward(loss)
    engine.step()
if engine.global_rank == 0:
    sys.stdout.write(f"{engine.global_steps} steps to the end\n")
