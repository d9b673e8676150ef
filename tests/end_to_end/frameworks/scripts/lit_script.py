"""A Lightning script with additional flags, as people write it."""
# mypy: ignore-errors
# ruff: noqa: T201

import argparse

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Classifier(L.LightningModule):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(32, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 8)
        )

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        inputs, classes = batch
        loss = torch.nn.functional.cross_entropy(self.net(inputs), classes)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        inputs, classes = batch
        self.log("val", torch.nn.functional.cross_entropy(self.net(inputs), classes))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--accumulate_grad_batches", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--max_epochs", type=int, default=1)
    parser.add_argument("--devices", type=int, default=1)
    arguments = parser.parse_args()
    L.seed_everything(0)
    model = Classifier(arguments.hidden)
    data = TensorDataset(torch.randn(512, 32), torch.randint(0, 8, (512,)))
    loader = DataLoader(data, batch_size=arguments.batch_size, shuffle=True)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=arguments.devices,
        max_epochs=arguments.max_epochs,
        accumulate_grad_batches=arguments.accumulate_grad_batches,
        log_every_n_steps=1,
    )
    trainer.fit(model, loader, DataLoader(data, batch_size=64))
    batch = arguments.batch_size * trainer.accumulate_grad_batches * trainer.world_size
    if trainer.is_global_zero:
        print(f"trained {trainer.global_step} steps of {batch} samples")


main()
