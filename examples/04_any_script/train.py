"""Classify upright and lying stripes in noisy pictures: plain PyTorch with its own arguments.

    python train.py --batch_size 4 --grad_accum 16

It knows nothing of autoconf-launch; see README.md for how it is tuned all the same.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

SIDE = 16


class Stripes(Dataset[tuple[Tensor, int]]):
    """Pictures that are drawn on access; each index always gives the same picture."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        random = torch.Generator().manual_seed(index)
        start, width = torch.rand(2, generator=random).tolist()
        wave = torch.sin(torch.arange(SIDE) * (0.5 + width) + 6 * start).expand(SIDE, SIDE)
        upright = index % 2
        noise = torch.randn(SIDE, SIDE, generator=random)
        return ((wave if upright else wave.T) + 0.5 * noise).unsqueeze(0), upright


def network() -> nn.Sequential:
    """Two convolutions that halve the picture, and a decision."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * (SIDE // 4) ** 2, 2),
    )


def main() -> None:
    """Train, and say how long it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--grad_accum", type=int, default=16, help="batches of one update")
    parser.add_argument("--num_workers", type=int, default=0, help="processes that draw")
    parser.add_argument("--pictures", type=int, default=2048)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = network().to(device)
    loader = DataLoader(
        Stripes(args.pictures), args.batch_size, shuffle=True, num_workers=args.num_workers
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    began_s, right = time.perf_counter(), 0
    for number, (pictures, labels) in enumerate(loader, start=1):
        labels = labels.to(device)
        guesses = model(pictures.to(device))
        loss = F.cross_entropy(guesses, labels) / args.grad_accum
        loss.backward()
        right += int((guesses.argmax(1) == labels).sum())
        if number % args.grad_accum == 0:
            optimizer.step()
            optimizer.zero_grad()
    took_s = time.perf_counter() - began_s
    print(f"{right} of {args.pictures} right in {took_s:.1f} s", flush=True)


if __name__ == "__main__":
    main()
