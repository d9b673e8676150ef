"""Entries as a small study gives them, for every tracker alike."""

from __future__ import annotations

from autoconf_launch.launcher.trackers.base import (
    Entry,
    Parameters,
    Phase,
    TrackedBest,
    TrackedChoice,
    TrackedTrial,
)

PARAMETERS: Parameters = (
    ("zero_stage", 1),
    ("micro_batch", 8),
    ("sequence_parallel", True),
    ("recompute", "selective"),
    ("reduce_bucket_size", 5e7),
    ("offload_optimizer.device", "cpu"),
    ("pipeline_split", None),
)
MEASURED = (
    ("predicted_step_s", 0.25),
    ("step_s", 0.5),
    ("throughput_samples_per_s", 64.0),
    ("peak_bytes", 250_000_000.0),
)
BETTER = (*MEASURED[:2], ("throughput_samples_per_s", 128.0))
FULL = (("predicted_step_s", 0.125), ("peak_bytes", 2e9))


def trial(name: str, *, number: int = 0, failure: str | None = None) -> TrackedTrial:
    """A searched trial; a failed one has no step time."""
    return TrackedTrial(
        key=f"{name} search 1",
        run=f"gpt3_126m_{name}",
        number=number,
        phase=Phase.SEARCH,
        parameters=PARAMETERS,
        metrics=FULL if failure else MEASURED,
        failure=failure,
    )


def best(finished: int, name: str, metrics: tuple[tuple[str, float], ...]) -> TrackedBest:
    """The best after so many."""
    return TrackedBest(
        key=f"best {finished}", finished=finished, run=f"gpt3_126m_{name}", metrics=metrics
    )


CHOICE = TrackedChoice(
    key="choice b", run="gpt3_126m_z1_gas2_tmbspg8", parameters=PARAMETERS, metrics=BETTER
)
STUDY: tuple[Entry, ...] = (
    trial("z0_gas4_tmbspg1"),
    best(1, "z0_gas4_tmbspg1", MEASURED),
    trial("z1_gas2_tmbspg8", number=1),
    best(2, "z1_gas2_tmbspg8", BETTER),
    trial("z1_rbs5.0e+07_gas1_tmbspg16", number=2, failure="out_of_memory"),
    best(3, "z1_gas2_tmbspg8", BETTER),
    CHOICE,
)
