"""A LightningCLI script, as people write it."""
# mypy: ignore-errors

import lightning as L
import torch
from lightning.pytorch.cli import LightningCLI
from torch.utils.data import DataLoader, TensorDataset


class Classifier(L.LightningModule):
    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(32, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 8)
        )

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        inputs, classes = batch
        loss = torch.nn.functional.cross_entropy(self.net(inputs), classes)
        self.log("loss", loss)
        return loss

    def on_train_end(self) -> None:
        size = self.trainer.datamodule.batch_size
        batch = size * self.trainer.accumulate_grad_batches * self.trainer.world_size
        self.print(f"trained {self.trainer.global_step} steps of {batch} samples")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Numbers(L.LightningDataModule):
    def __init__(self, batch_size: int = 4) -> None:
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self) -> DataLoader:
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(512, 32, generator=generator)
        classes = torch.randint(0, 8, (512,), generator=generator)
        return DataLoader(TensorDataset(inputs, classes), batch_size=self.batch_size, shuffle=True)


if __name__ == "__main__":
    LightningCLI(Classifier, Numbers, seed_everything_default=0)
