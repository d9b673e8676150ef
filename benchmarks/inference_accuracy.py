"""Predicted text generation against published latencies and NVIDIA's estimator.

    python benchmarks/inference_accuracy.py [--write]

No GPU is needed; it takes some seconds. ``--write`` puts the tables into
``benchmarks/results/inference_accuracy.md``.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from search_landscapes import markdown

from autoconf_launch.autotuner.inference import (
    Generation,
    GenerationTable,
    PointColumns,
    engine_habits,
    estimate_generation,
    generation_bands,
)
from autoconf_launch.autotuner.planner.calibration import spearman
from autoconf_launch.autotuner.space import Floats
from autoconf_launch.core import Architecture
from autoconf_launch.tuning_spaces import build_architecture, machine, named_model

HERE = Path(__file__).parent
TABLES = HERE / "ground_truth" / "inference"
RESULT = HERE / "results" / "inference_accuracy.md"
DENSE = ("llama3.1-8b", "qwen3-32b", "llama3.1-70b")
_GPT = {"vocabulary": 51200, "positions": 2048}
_T5 = {"gated": True, "head": 64, "positions": 512}
SHAPES: dict[str, dict[str, int]] = {
    "GPT 5B": {"layers": 24, "hidden": 4096, "heads": 32, **_GPT},
    "GPT 20B": {"layers": 44, "hidden": 6144, "heads": 48, **_GPT},
    "GPT 89B": {"layers": 48, "hidden": 12288, "heads": 96, **_GPT},
    "GPT 175B": {"layers": 96, "hidden": 12288, "heads": 96, **_GPT},
    "GPT 530B": {"layers": 105, "hidden": 20480, "heads": 128, **_GPT},
    "380M": {"layers": 12, "hidden": 768, "heads": 12, "ffn": 2048, **_T5},
    "3B": {"layers": 24, "hidden": 2048, "heads": 32, "ffn": 5120, **_T5},
    "11B": {"layers": 24, "hidden": 4096, "heads": 64, "ffn": 10240, **_T5},
    "23B": {"layers": 36, "hidden": 5120, "heads": 80, "ffn": 10880, **_T5},
    "41B": {"layers": 48, "hidden": 6144, "heads": 96, "ffn": 10880, **_T5},
}
"""NeMo's shapes of these sizes; layers of T5 and mT5 are counted in each half. FasterTransformer's
guide states the shapes of GPT."""
VOCABULARIES = {"T5": 29000, "mT5": 250000}
CALIBRATED = ("GPT 20B", 1, 1, 80, 200)
"""Model, tensor ranks, batch and lengths of the one row by which A100 reads weights of products of
few rows at 0.74 of its memory's rate; it is not scored."""
SPEED_POINTS = 100_000
PREAMBLE = """# Predicted text generation

Made by `python benchmarks/inference_accuracy.py --write`. Nothing was fitted on these rows but one
number on one row, named below. Tables and their sources: `benchmarks/ground_truth/inference/`. An
error is predicted over published less one, MAPE its mean size.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A published latency of a batch; ``latency_ms`` is None if it ran out of memory."""

    table: str
    model: str
    gpu: str
    tp: int
    pp: int
    batch: int
    input_len: int
    output_len: int
    latency_ms: float | None

    @property
    def key(self) -> tuple[object, ...]:
        """Fields that identify a row of a table, on one stage."""
        return self.model, self.tp, self.batch, self.input_len, self.output_len


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kernels:
    """Rows of NVIDIA's estimator; columns of one length."""

    model_R: tuple[str, ...]
    gpu_R: tuple[str, ...]
    numbers_R4: Floats
    """Tensor ranks, batch, tokens in and out."""
    published_R2: Floats
    """Milliseconds to the first token, and per token after it."""
    predicted_R2: Floats


def main() -> None:
    """Print the result, and write it if requested."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    flags = parser.parse_args()
    text = "\n".join(report())
    print(text)
    if flags.write:
        RESULT.write_text(f"{PREAMBLE}\n{text}\n", encoding="utf-8")


def report() -> Iterator[str]:
    """Lines of the result."""
    rows, kernels = read_latencies(), read_kernels()
    yield from ("## Beside what was asked", "", *_verdicts(rows, kernels), "")
    yield from ("## NVIDIA's 12 published latencies", "", *_published(rows), "")
    yield from ("## FasterTransformer's own tables", "", *_guide(rows), "")
    yield from ("## NVIDIA's estimator from measured kernels", "", *_estimator(kernels), "")
    yield from ("## Anchors", "", *_anchors())


def read_latencies() -> tuple[Latency, ...]:
    """All rows of FasterTransformer."""
    with (TABLES / "fastertransformer.csv").open(newline="", encoding="utf-8") as file:
        return tuple(
            Latency(
                table=row["table"],
                model=row["model"],
                gpu=row["gpu"],
                tp=int(row["tp"]),
                pp=int(row["pp"]),
                batch=int(row["batch"]),
                input_len=int(row["input_len"]),
                output_len=int(row["output_len"]),
                latency_ms=float(row["latency_ms"]) if row["latency_ms"] else None,
            )
            for row in csv.DictReader(file)
        )


def read_kernels() -> Kernels:
    """All rows of the estimator, with our predictions."""
    with (TABLES / "aiconfigurator.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = ("tp", "batch", "input_len", "output_len")
    predicted = []
    for row in rows:
        table = predict(
            named_model(row["model"]),
            row["gpu"],
            "vllm",
            point=(int(row["tp"]), 1, int(row["batch"])),
            lengths=(int(row["input_len"]), int(row["output_len"])),
        )
        predicted.append((1e3 * table.ttft_s_C[0], 1e3 * table.token_s_C[0]))
    return Kernels(
        model_R=tuple(row["model"] for row in rows),
        gpu_R=tuple(row["gpu"] for row in rows),
        numbers_R4=np.array([[float(row[name]) for name in names] for row in rows]),
        published_R2=np.array([[float(row["ttft_ms"]), float(row["token_ms"])] for row in rows]),
        predicted_R2=np.array(predicted),
    )


def predict(
    model: Architecture,
    gpu: str,
    engine: str,
    *,
    point: tuple[int, int, int],
    lengths: tuple[int, int],
) -> GenerationTable:
    """The prediction for a point of tensor ranks, stages and batch."""
    tensor, pipeline, batch = (np.array([number]) for number in point)
    return estimate_generation(
        PointColumns(tensor_C=tensor, pipeline_C=pipeline, batch_C=batch),
        Generation(model=model, input_tokens=lengths[0], output_tokens=lengths[1]),
        machine(gpu),
        engine_habits(engine),
    )


def predict_latency(row: Latency) -> GenerationTable:
    """A published row by FasterTransformer."""
    return predict(
        architecture(row.model),
        row.gpu,
        "fastertransformer",
        point=(row.tp, row.pp, row.batch),
        lengths=(row.input_len, row.output_len),
    )


def architecture(name: str) -> Architecture:
    """A model of the tables."""
    family, _, size = name.partition(" ")
    if name in SHAPES:
        return build_architecture(name, SHAPES[name])
    shapes = SHAPES[size]
    both = {"encoder_layers": shapes["layers"], "vocabulary": VOCABULARIES[family]}
    return build_architecture(name, {**shapes, **both})


def latency_errors(rows: Sequence[Latency]) -> Floats:
    """Predicted over published less one, of rows that have a latency."""
    return np.array(
        [
            1e3 * float(predict_latency(row).latency_s_C[0]) / row.latency_ms - 1.0
            for row in rows
            if row.latency_ms is not None
        ]
    )


def kernel_errors(kernels: Kernels, keep: Callable[[int], bool] = lambda row: True) -> Floats:
    """Errors of both times of some rows."""
    rows = [row for row in range(len(kernels.model_R)) if keep(row)]
    return np.asarray(kernels.predicted_R2[rows] / kernels.published_R2[rows] - 1.0)


def points_per_s() -> float:
    """Points of Llama 3.1 8B predicted in a second, time and memory, in one call."""
    rng = np.random.default_rng(0)
    points = PointColumns(
        tensor_C=2 ** rng.integers(0, 4, SPEED_POINTS),
        pipeline_C=2 ** rng.integers(0, 4, SPEED_POINTS),
        batch_C=rng.integers(1, 512, SPEED_POINTS),
    )
    asked = Generation(model=named_model("llama3.1-8b"), input_tokens=2048, output_tokens=128)
    on, engine = machine("A100-SXM-80GB"), engine_habits("vllm")
    started = time.perf_counter()
    _ = estimate_generation(points, asked, on, engine).peak_bytes_C
    return SPEED_POINTS / (time.perf_counter() - started)


def _verdicts(rows: Sequence[Latency], kernels: Kernels) -> Iterator[str]:
    launcher = [row for row in rows if row.table == "launcher"]
    errors = latency_errors(launcher)
    published = np.array([row.latency_ms for row in launcher], dtype=np.float64)
    ttft, token = 100 * np.abs(_dense_errors(kernels)).mean(axis=0)
    rank = spearman(published * (1.0 + errors), published)
    speed = points_per_s()
    mape = 100 * float(np.abs(errors).mean())
    lines = (
        ("NVIDIA's 12 published latencies: MAPE", "< 25 %", f"{mape:.1f} %", mape < 25),
        ("… Spearman", "> 0.9", f"{rank:.2f}", rank > 0.9),
        ("NVIDIA's estimator: time per token, MAPE", "< 25 %", f"{token:.1f} %", token < 25),
        ("… time to the first token, MAPE", "< 30 %", f"{ttft:.1f} %", ttft < 30),
        ("points predicted a second", "> 100,000", f"{speed:,.0f}", speed > 1e5),
    )
    cells = [
        [what, asked, found, "" if good else "**miss**"] for what, asked, found, good in lines
    ]
    yield markdown(cells, ("what", "asked", "reached", ""))
    late = [
        f"{row.model} ({100 * error:+.0f} %)"
        for row, error in zip(launcher, errors, strict=True)
        if abs(error) > 0.25
    ]
    yield ""
    yield (
        f"Single published latencies beyond 25 %: {', '.join(late)}. A layer of mT5 380M has so "
        "little to read that the host's launches bound it, which are not predicted for "
        "FasterTransformer."
    )


def _published(rows: Sequence[Latency]) -> Iterator[str]:
    cells = []
    for row in rows:
        if row.table != "launcher" or row.latency_ms is None:
            continue
        found = predict_latency(row)
        latency_ms = 1e3 * float(found.latency_s_C[0])
        cells.append(
            [
                row.model,
                f"{row.tp} x {row.pp}",
                f"{row.latency_ms:.0f}",
                f"{latency_ms:.0f}",
                f"{100 * (latency_ms / row.latency_ms - 1):+.0f} %",
                *(f"{1e3 * float(seconds[0]):.1f}" for _, seconds in found.parts),
            ]
        )
    names = ("prefill", "decode", "all-reduces", "sends")
    yield markdown(cells, ("model", "tp x pp", "ms published", "ms predicted", "error", *names))
    yield ""
    yield (
        "Batch 1, 60 tokens in, 20 out, A100-SXM-80GB; the last four columns are milliseconds of "
        "the prediction."
    )


def _guide(rows: Sequence[Latency]) -> Iterator[str]:
    scored = [row for row in rows if row.table == "guide" and row.key != CALIBRATED]
    timed = [row for row in scored if row.latency_ms is not None]
    cells = []
    for model, tp, pp in dict.fromkeys((row.model, row.tp, row.pp) for row in timed):
        own = [row for row in timed if (row.model, row.tp, row.pp) == (model, tp, pp)]
        errors = latency_errors(own)
        cells.append([model, f"{tp} x {pp}", *_scores(errors)])
    cells.append(["all", "", *_scores(latency_errors(timed))])
    yield markdown(cells, ("model", "tp x pp", "rows", "MAPE", "mean error"))
    late = [row for row in scored if row.latency_ms is None]
    over = [row for row in late if predict_latency(row).peak_bytes_C[0] > 80 * 2**30 * 0.9]
    fitting = [
        row for row in timed if row.pp == 1 and predict_latency(row).peak_bytes_C[0] > 80 * 2**30
    ]
    yield ""
    yield (
        f"Batches of 1 to 256. {len(over)} of {len(late)} rows that ran out of memory are "
        f"predicted above 90 % of it, {len(fitting)} of {len(timed)} that ran above all of it. "
        "GPT 20B on one A100 with batch 1, 80 in and 200 out gave the rate at which products of "
        "few rows read their weights there, and is not scored. On 3 stages FasterTransformer cuts "
        "large batches up to fill them; the prediction has one batch in flight."
    )


def _estimator(kernels: Kernels) -> Iterator[str]:
    cells = [
        [*names, *_pair_scores(_errors_of(kernels, names))]
        for names in dict.fromkeys(zip(kernels.model_R, kernels.gpu_R, strict=True))
    ]
    cells.append(["the three dense ones", "", *_pair_scores(_dense_errors(kernels))])
    header = ("TTFT: MAPE", "mean error", "per token: MAPE", "mean error")
    yield markdown(cells, ("model", "GPU", "rows", *header))
    yield ""
    by_tp = [[str(tp), *_pair_scores(_dense_errors(kernels, tp))] for tp in (1, 2, 4, 8)]
    yield markdown(by_tp, ("tp, dense ones", "rows", *header))
    for model, some in (("llama3.1-8b", "dense models"), ("mixtral-8x7b", "models with experts")):
        errors = kernel_errors(kernels, _keeps_dense(kernels, is_dense=model in DENSE))
        ttft, token = 100 * np.quantile(np.abs(errors), 0.9, axis=0)
        named = " and ".join(f"{100 * band:.0f}" for band in generation_bands(named_model(model)))
        yield ""
        yield (
            f"Nine of ten rows of {some} are within {ttft:.0f} % (TTFT) and {token:.0f} % (per "
            f"token); `plan --inference` names {named} %."
        )
    yield ""
    yield (
        "TTFT is too long in the mean: a prompt is computed at the clock of a long training here, "
        "while kernels were measured one by one. Mixtral's experts on one A100 take longer than "
        "predicted (vLLM 0.14's fused kernel). The lines of short all-reduces in "
        "`tuning_spaces/hardware/collectives.csv` are from the same collection as the estimator's."
    )


def _keeps_dense(kernels: Kernels, *, is_dense: bool) -> Callable[[int], bool]:
    return lambda row: (kernels.model_R[row] in DENSE) == is_dense


def _errors_of(kernels: Kernels, names: tuple[str, str]) -> Floats:
    return kernel_errors(kernels, lambda row: (kernels.model_R[row], kernels.gpu_R[row]) == names)


def _dense_errors(kernels: Kernels, tp: int | None = None) -> Floats:
    """Errors on dense models, only of rows with ``tp`` tensor ranks if it is given."""

    def keep(row: int) -> bool:
        return kernels.model_R[row] in DENSE and tp in (None, int(kernels.numbers_R4[row, 0]))

    return kernel_errors(kernels, keep)


def _anchors() -> Iterator[str]:
    asked = (
        ("A100-SXM-80GB", 60, 20, 1, 33.1, 11.9),
        ("A100-SXM-80GB", 60, 20, 4, 14.9, 4.3),
        ("H100-SXM-80GB", 2048, 128, 1, 354.0, 7.3),
    )
    cells = []
    for gpu, read, written, tp, ttft_ms, token_ms in asked:
        found = predict(
            named_model("llama3.1-8b"), gpu, "vllm", point=(tp, 1, 8), lengths=(read, written)
        )
        both = (1e3 * float(found.ttft_s_C[0]), 1e3 * float(found.token_s_C[0]))
        cells.append(
            [
                gpu,
                f"{read} + {written}",
                str(tp),
                f"{ttft_ms} → {both[0]:.1f}",
                f"{token_ms} → {both[1]:.1f}",
            ]
        )
    yield markdown(cells, ("GPU", "tokens", "tp", "TTFT, ms", "per token, ms"))
    yield ""
    yield "Llama 3.1 8B, batch 8: NVIDIA's estimator → predicted."


def _scores(errors: Floats) -> list[str]:
    size, mean = 100 * float(np.abs(errors).mean()), 100 * float(errors.mean())
    return [str(len(errors)), f"{size:.1f} %", f"{mean:+.1f} %"]


def _pair_scores(errors_R2: Floats) -> list[str]:
    ttft, token = (_scores(errors_R2[:, column]) for column in (0, 1))
    return [*ttft, *token[1:]]


if __name__ == "__main__":
    main()
