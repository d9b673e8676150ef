"""An Accelerate script as people write it, with accumulation and a tracker."""
# mypy: ignore-errors

import argparse

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--eval_batch_size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--with_tracking", action="store_true")
    parser.add_argument("--validate", action="store_true")
    return parser.parse_args()


@torch.no_grad()
def validate(accelerator: Accelerator, model: torch.nn.Module, loader: DataLoader) -> None:
    model.eval()
    found = [accelerator.gather_for_metrics(model(inputs).argmax(-1)) for inputs, _ in loader]
    accelerator.print(f"validated {len(torch.cat(found))} samples")
    model.train()


def main() -> None:
    arguments = parse()
    accelerator = Accelerator(
        gradient_accumulation_steps=2,
        log_with="tensorboard" if arguments.with_tracking else None,
        project_dir="runs",
    )
    if arguments.with_tracking:
        accelerator.init_trackers("tune_me", config=vars(arguments))
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(32, arguments.hidden),
        torch.nn.ReLU(),
        torch.nn.Linear(arguments.hidden, 8),
    )
    data = TensorDataset(torch.randn(512, 32), torch.randint(0, 8, (512,)))
    loader = DataLoader(data, batch_size=arguments.batch_size, shuffle=True)
    few = DataLoader(TensorDataset(*data[:128]), batch_size=arguments.eval_batch_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader, few = accelerator.prepare(model, optimizer, loader, few)
    steps = 0
    for _ in range(arguments.epochs):
        for inputs, classes in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(inputs), classes)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            steps += accelerator.sync_gradients
            if arguments.with_tracking and accelerator.sync_gradients:
                accelerator.log({"loss": loss.item()}, step=steps)
        if arguments.validate:
            validate(accelerator, model, few)
        accelerator.save_state("checkpoint")
    batch = arguments.batch_size * accelerator.gradient_accumulation_steps
    accelerator.print(f"trained {steps} steps of {batch * accelerator.num_processes} samples")
    accelerator.end_training()


main()
