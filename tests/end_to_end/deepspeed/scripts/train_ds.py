"""A script for DeepSpeed as its guides have it, which knows nothing of us."""

# mypy: ignore-errors
import argparse
import sys

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--too_large", type=int, default=0, help="micro-batch for which rank 1 fails")
parser = deepspeed.add_config_arguments(parser)
arguments = parser.parse_args()
torch.manual_seed(0)
deepspeed.init_distributed(dist_backend="gloo")
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
data = torch.utils.data.TensorDataset(torch.randn(2048, 64), torch.randint(0, 8, (2048,)))
engine, _, loader, _ = deepspeed.initialize(
    args=arguments, model=model, model_parameters=model.parameters(), training_data=data
)
size = engine.train_micro_batch_size_per_gpu()
for _ in range(arguments.epochs):
    for inputs, classes in loader:
        loss = torch.nn.functional.cross_entropy(engine(inputs), classes)
        if engine.global_steps == 2 and engine.global_rank == 1 and size == arguments.too_large:
            torch.empty(1 << 50, dtype=torch.uint8)
        engine.backward(loss)
        engine.step()
if engine.global_rank == 0:
    accumulation, stage = engine.gradient_accumulation_steps(), engine.zero_optimization_stage()
    sys.stdout.write(f"{engine.global_steps} steps, stage {stage}, {size} x {accumulation}\n")
