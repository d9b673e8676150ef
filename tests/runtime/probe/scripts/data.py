"""Scripts whose data come in another way; the first argument says how."""
# mypy: disable-error-code="no-untyped-call, no-any-return, attr-defined"
# ruff: noqa: T201

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

SEQUENCE, BATCH, WORDS = 7, 3, 20


def minimise(model: nn.Module, losses: Iterator[Tensor]) -> None:
    optimizer = torch.optim.AdamW(model.parameters())
    for loss in losses:
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(WORDS, 8), nn.LSTM(8, 8)
        self.head = nn.Linear(8, WORDS)

    def forward(self, words: Tensor, state: Any) -> tuple[Tensor, Any]:
        hidden, state = self.lstm(self.embed(words), state)
        return self.head(hidden), state


def batch_in_dimension_1() -> None:
    """As in torch's word language model: (time, batch), sliced from one long tensor."""
    model = Recurrent()
    data = torch.randint(0, WORDS, (40 * SEQUENCE, BATCH))

    def losses() -> Iterator[Tensor]:
        state = (torch.zeros(1, BATCH, 8), torch.zeros(1, BATCH, 8))
        for start in range(0, len(data) - SEQUENCE, SEQUENCE):
            logits, state = model(data[start : start + SEQUENCE], tuple(s.detach() for s in state))
            target = data[start + 1 : start + 1 + SEQUENCE]
            yield nn.functional.cross_entropy(logits.view(-1, WORDS), target.reshape(-1))

    minimise(model, losses())


def no_loader() -> None:
    """As in nanoGPT: random slices of one array."""
    model = nn.Sequential(nn.Embedding(WORDS, 8), nn.Linear(8, WORDS))
    data = torch.randint(0, WORDS, (500,))

    def losses() -> Iterator[Tensor]:
        for _ in range(50):
            starts = torch.randint(len(data) - SEQUENCE, (BATCH,)).tolist()
            words = torch.stack([data[start : start + SEQUENCE] for start in starts])
            yield nn.functional.cross_entropy(model(words).view(-1, WORDS), words.view(-1))

    minimise(model, losses())


@dataclass
class Graphs:
    """A custom batch object: nodes of several graphs in one table."""

    nodes: list[float]
    num_graphs: int


class OnGraphs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, graphs: Graphs) -> Tensor:
        return (torch.tensor(graphs.nodes) * self.weight).sum()


def batch_object() -> None:
    model = OnGraphs()
    minimise(
        model, (model(Graphs(nodes=[1.0, 2.0, 3.0, 4.0], num_graphs=BATCH)) for _ in range(50))
    )


class Joined:
    """A batch of samples with several rows each, as nodes of graphs or boxes of images."""

    def __init__(self, samples: list[Tensor]) -> None:
        self.rows = torch.cat(samples)

    def __len__(self) -> int:
        return len(self.rows)


class OnRows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, batch: Joined | Tensor) -> Tensor:
        rows = batch.rows if isinstance(batch, Joined) else batch
        return self.layer(rows).mean()


def rows_of_samples() -> None:
    model = OnRows()
    form, workers = sys.argv[2], int(sys.argv[3])
    samples = [torch.randn(2 + number % 5, 4) for number in range(300)]
    loader: DataLoader[Any] = DataLoader(
        samples,  # type: ignore[arg-type]
        batch_size=BATCH,
        collate_fn=Joined,
        num_workers=workers,
    )
    minimise(model, (model(batch if form == "object" else batch.rows) for batch in loader))


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)

    def forward(self, images: list[Tensor], targets: list[dict[str, Tensor]]) -> Tensor:
        return torch.stack([self.layer(image).mean() for image in images]).sum()


def images_of_unlike_sizes() -> None:
    model = Detector()
    images = [torch.randn(3, 8, 8 + more) for more in range(BATCH)]
    minimise(model, (model(images, [{}] * BATCH) for _ in range(50)))


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        for _ in range(200):
            yield torch.randn(4)


def iterable_with_workers() -> None:
    model = nn.Linear(4, 1)
    loader = DataLoader(Stream(), batch_size=BATCH, num_workers=2)
    minimise(model, (model(batch).sum() for batch in loader))


class Computes(Dataset[Tensor]):
    """Runs a network with gradients in the loader's workers."""

    def __init__(self) -> None:
        self.features = nn.Linear(4, 4)

    def __len__(self) -> int:
        return 200

    def __getitem__(self, number: int) -> Tensor:
        self.features(torch.randn(1, 4)).sum().backward()
        return torch.randn(4)


def trains_in_workers() -> None:
    model = nn.Linear(4, 1)
    loader = DataLoader(Computes(), batch_size=BATCH, num_workers=2, multiprocessing_context=how())
    minimise(model, (model(batch).sum() for batch in loader))


def how() -> str:
    return sys.argv[2] if len(sys.argv) > 2 else "fork"


def short_epoch() -> None:
    """An epoch; the second argument is its number of batches."""
    model = nn.Linear(4, 1)
    data = TensorDataset(torch.randn(BATCH * int(sys.argv[2]), 4))
    minimise(model, (model(batch).sum() for (batch,) in DataLoader(data, batch_size=BATCH)))


def fewer_samples_than_asked() -> None:
    """A batch as large as a sequence is long, of a data set that has fewer."""
    model = nn.Sequential(nn.Embedding(WORDS, 8), nn.Linear(8, WORDS))
    data = TensorDataset(torch.randint(0, WORDS, (BATCH, SEQUENCE)))
    loader = DataLoader(data, batch_size=SEQUENCE)
    minimise(model, (model(words).sum() for _ in range(50) for (words,) in loader))


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
    print("reached the end")
