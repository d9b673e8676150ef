"""Published prices of GPUs, each with its date and source. Not: what a step costs."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FILE = Path(__file__).parent / "prices.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one GPU costs; ``as_of`` is a date, or ``recalled`` where nobody checked it."""

    gpu: str
    usd_per_gpu_hour: float
    cloud: str
    instance: str
    region: str
    as_of: str
    source: str


def prices(gpu: str) -> tuple[Price, ...]:
    """Known prices of a GPU, the newest first and among those the lowest."""
    found = [price for price in _all() if price.gpu == gpu]
    cheapest = sorted(found, key=lambda price: price.usd_per_gpu_hour)
    return tuple(sorted(cheapest, key=_year, reverse=True))


def price(gpu: str) -> Price | None:
    """The first of them; None where no price is known."""
    return next(iter(prices(gpu)), None)


def _year(price: Price) -> int:
    return int(price.as_of[:4]) if price.as_of[:4].isdigit() else 0


@cache
def _all() -> tuple[Price, ...]:
    with _FILE.open(newline="", encoding="utf-8") as file:
        return tuple(
            Price(
                gpu=row["gpu"],
                usd_per_gpu_hour=float(row["usd_per_hour"]) / int(row["gpus"]),
                cloud=row["cloud"],
                instance=row["instance"],
                region=row["region"],
                as_of=row["as_of"],
                source=row["source"],
            )
            for row in csv.DictReader(file)
        )
