"""Has its configuration in its own code."""

# mypy: ignore-errors
import deepspeed
import torch

CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
}
model = torch.nn.Linear(64, 8)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
for _ in range(20):
    engine.backward(engine(torch.ones(2, 64)).square().mean())
    engine.step()
