"""The points of predefined searches, by our rules and by NVIDIA's own checks."""

from __future__ import annotations

import itertools
from typing import Any

from autoconf_launch.autotuner.sizing import Budget, Family, Grid, GridQuestion, nemo_grid
from autoconf_launch.autotuner.sizing.model_size import model_size_b
from autoconf_launch.core import Degrees
from autoconf_launch.nemo.candidate_grids import NemoCandidate, nemo_candidates
from autoconf_launch.tuning_spaces import base_template, grid_rows, is_shipped
from autoconf_launch.tuning_spaces.recommend_tables import search_config

from .expected import model

Point = tuple[int, ...]


def candidates(name: str, memory_gb: int = 80) -> tuple[NemoCandidate, ...]:
    settings = search_config(name).get(("train_settings",))
    family = Family(name.partition("/")[0])
    gpus = settings["num_nodes"] * settings["gpus_per_node"]
    size_b = settings["model_size_in_b"] or recommend(family, gpus, settings)
    layers, heads, batch, method = shape(family, size_b, settings, memory_gb)
    question = GridQuestion(
        family=family,
        size_b=size_b,
        layers=layers,
        sequence=settings["seq_length"],
        gpu_memory_gb=memory_gb,
        is_shipped=is_shipped(family, size_b, settings["seq_length"]),
        heads=heads,
        global_batch=batch,
        gpus=gpus,
        method=method,
    )
    lists: dict[str, Any] = {
        ours: tuple(settings[f"{ours}_sizes"])
        for ours in ("context_parallel", "expert_parallel")
        if isinstance(settings[f"{ours}_sizes"], list)
    }
    grid = nemo_grid(grid_rows(1), question, Degrees(**lists))
    assert isinstance(grid, Grid)
    return nemo_candidates(grid, question)


def recommend(family: Family, gpus: int, settings: dict[str, Any]) -> float:
    budget = Budget(
        gpus=gpus,
        tflops_per_gpu=settings["tflops_per_gpu"],
        tokens_b=settings["num_tokens_in_b"],
    )
    return model_size_b(family.name, budget, settings["max_training_days"])


def shape(
    family: Family, size_b: float, settings: dict[str, Any], memory_gb: int
) -> tuple[int, int, int, str | None]:
    custom = settings["custom_config"]
    if custom:
        found = base_template(custom.rpartition("/")[2].removesuffix(".yaml")).get(("model",))
        method = found["activations_checkpoint_method"]
        batch = found["global_batch_size"]
        return found["num_layers"], found["num_attention_heads"], batch, method
    chosen = model(family.name, size_b, settings["seq_length"], gpu_memory_gb=memory_gb)
    method = "block" if family.is_encoder_decoder else None
    return chosen.shape.layers, chosen.shape.heads, chosen.batch.global_batch, method


def mesh(one: NemoCandidate) -> Point:
    return (*one.layout.mesh, one.layout.micro_batch)


def nemo_points(name: str, gpus: int) -> set[Point]:
    settings = search_config(name).get(("train_settings",))
    family, size_b = Family(name.partition("/")[0]), settings["model_size_in_b"]
    layers, heads, batch, _ = shape(family, size_b, settings, 80)
    axes = nemo_grid(
        grid_rows(1),
        GridQuestion(
            family=family,
            size_b=size_b,
            layers=layers,
            sequence=settings["seq_length"],
            gpu_memory_gb=80,
            is_shipped=is_shipped(family, size_b, settings["seq_length"]),
        ),
        Degrees(
            context_parallel=as_tuple(settings["context_parallel_sizes"]),
            expert_parallel=as_tuple(settings["expert_parallel_sizes"]),
        ),
    )
    assert isinstance(axes, Grid)
    found: set[Point] = set()
    sizes = axes.degrees.micro_batch or ()
    every = itertools.product(*axes.degrees.mesh_axes, sizes)
    for tensor, stages, context, expert, micro in every:
        product = tensor * stages * context * expert
        first = any(batch % (one * gpus / product) == 0 for one in sizes)
        second = batch % (micro * gpus / (tensor * stages)) == 0
        bounded = axes.degrees.allows_product(product)
        divides = heads % tensor == 0 and layers % stages == 0 and 1 in (context, expert)
        if first and second and bounded and divides:
            found.add((tensor, stages, context, expert, micro))
    return found


def as_tuple(value: Any) -> tuple[int, ...] | None:
    return tuple(value) if isinstance(value, list) else None
