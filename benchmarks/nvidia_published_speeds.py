"""NVIDIA's published training speeds against the best layouts that ``recommend`` predicts.

    python benchmarks/nvidia_published_speeds.py [--write]

NVIDIA publishes speeds of a model on a number of GPUs, older speeds without a layout. So a ratio
contains the error of a prediction, the age of the software, and layouts that were not the best.
``--write`` puts them into ``tuning_spaces/recommend/published_speeds.csv``, from which
``recommend`` takes its error band.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from nvidia_tuned_ranks import model_of

from autoconf_launch.autotuner.cost.weights import active_parameters
from autoconf_launch.autotuner.sizing.forecast import Achieved, Task, achieved_speed
from autoconf_launch.core import Precision
from autoconf_launch.launcher.estimates import usual_training
from autoconf_launch.tuning_spaces.clusters import usable_bytes
from autoconf_launch.tuning_spaces.machines import machine

PUBLISHED = Path(__file__).parent / "nemo" / "published_speeds.csv"
RESULT = Path(__file__).parents[1] / "tuning_spaces" / "recommend" / "published_speeds.csv"
COLUMNS = ("config", "gpu", "precision", "gpus", "tokens_per_s_per_gpu", "predicted", "ratio")


def main() -> None:
    """Predict, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    flags = parser.parse_args()
    with PUBLISHED.open(newline="", encoding="utf-8") as file:
        rows = [compare(row) for row in csv.DictReader(file)]
    for row in rows:
        print(*row, sep=",")
    if flags.write:
        with RESULT.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


def compare(row: dict[str, str]) -> tuple[str, ...]:
    """A row of the result."""
    nodes = machine(row["gpu"])
    gpus = int(row["nodes"]) * nodes.gpus_per_node
    predicted = predict(row).tokens_per_s / gpus
    ratio = float(row["tokens_per_s_per_gpu"]) / predicted
    named = (row["config"], row["gpu"], row["precision"], str(gpus), row["tokens_per_s_per_gpu"])
    return (*named, f"{predicted:.5g}", f"{ratio:.4f}")


def predict(row: dict[str, str]) -> Achieved:
    """The best layout with exactly the published batch."""
    model = model_of(row)
    found = achieved_speed(
        Task(
            training=usual_training(
                model, int(row["sequence"]), machine(row["gpu"]), Precision(row["precision"])
            ),
            nodes=int(row["nodes"]),
            memory_bytes=usable_bytes(row["gpu"]),
            global_batch=int(row["global_batch"]),
            is_batch_given=True,
            active_parameters=active_parameters(model),
        )
    )
    assert found is not None, row["config"]
    return found


if __name__ == "__main__":
    main()
