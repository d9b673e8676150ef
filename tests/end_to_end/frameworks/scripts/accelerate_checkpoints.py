"""A training as those of diffusers: a folder for each checkpoint, the oldest ones removed."""
# mypy: ignore-errors
# ruff: noqa: T201, PTH103, PTH118, PTH123, PTH208

import argparse
import json
import os
import shutil

import torch
from accelerate import Accelerator
from safetensors.torch import save_file

parser = argparse.ArgumentParser()
parser.add_argument("--train_batch_size", type=int, default=4)
parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
parser.add_argument("--output_dir", default="out")
parser.add_argument("--checkpointing_steps", type=int, default=2)
arguments = parser.parse_args()
accelerator = Accelerator(
    cpu=True, gradient_accumulation_steps=arguments.gradient_accumulation_steps
)
os.makedirs(arguments.output_dir, exist_ok=True)


def save_model(models, weights, folder) -> None:
    folder = os.path.join(folder, "unet")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({"channels": 16}, file)
    state = accelerator.unwrap_model(models[0]).state_dict()
    save_file(state, os.path.join(folder, "diffusion_pytorch_model.safetensors"))
    weights.pop()


accelerator.register_save_state_pre_hook(save_model)
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.AdamW(model.parameters())
data = torch.utils.data.DataLoader(torch.randn(160, 16), batch_size=arguments.train_batch_size)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
step = 0
for inputs in data:
    with accelerator.accumulate(model):
        loss = model(inputs).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    if accelerator.sync_gradients:
        step += 1
        if step % arguments.checkpointing_steps == 0:
            folders = os.listdir(arguments.output_dir)
            saved = sorted(folders, key=lambda name: int(name.rpartition("-")[2]))
            for name in saved[:-1]:
                shutil.rmtree(os.path.join(arguments.output_dir, name))
            accelerator.save_state(os.path.join(arguments.output_dir, f"checkpoint-{step}"))
print(f"trained {step} steps of {arguments.train_batch_size} samples")
