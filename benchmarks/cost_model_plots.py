"""The plots of the documents: predicted against measured steps, memory, and FASOP's clusters.

    python benchmarks/cost_model_plots.py [--folder docs/images]

Needs matplotlib, which nothing else does. The same code and tables give the same bytes.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autoconf_launch.autotuner.planner import Planned
from autoconf_launch.launcher.estimates import (
    FitAnswer,
    PlanAnswer,
    fit_answer,
    parse_fit,
    parse_plan,
    plan_answer,
)
from autoconf_launch.launcher.measurements.row import read_measurements
from autoconf_launch.launcher.measurements.validation import Validation, validate_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TABLES = Path(__file__).parent / "ground_truth"
IMAGES = Path(__file__).parents[1] / "docs" / "images"
TITLES = {
    "vtrain_single_node": "vTrain, 2 to 8 A100",
    "vtrain_multi_node": "vTrain, 256 and 512 A100",
    "llmfoundry_fsdp_a100": "llm-foundry FSDP, A100",
    "bigscience_a100": "BigScience, 384 A100",
    "megatron_sc21": "Megatron SC21, A100",
    "torchtitan": "torchtitan, H100 and H200",
    "nemo_24_07_h100": "NeMo, H100",
    "amp_homogeneous_t4": "AMP, 16 T4",
    "bigscience_v100": "BigScience, V100 (±40 %)",
}
"""Tables with a panel each, in order."""
GROUPS = {
    "weights": ("weights", "gathered"),
    "gradients": ("gradients",),
    "optimizer": ("optimizer", "update"),
    "activations": (
        "norms",
        "attention",
        "scores",
        "mlp",
        "dropout",
        "adapters",
        "inputs",
        "embedding",
        "working",
    ),
    "logits": ("logits",),
    "communication": ("communication",),
    "context, fragmentation": ("context", "fragmentation"),
}
"""Parts of ``fit`` that share a colour."""
_COLUMNS = 3
_BAND = 0.1
_SHOWN = (0.45, 1.45)
_GB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A layout that people know: flags of ``fit``, and the row that measured it, if one did."""

    label: str
    flags: str
    table: str = ""
    line: int = 0


_BIGSCIENCE = "--cluster 48x8xA100-SXM-80GB --seq 2048 --global-batch 2048 --recompute full "
_BIGSCIENCE += "--trainer megatron-deepspeed --vocabulary 250880"
_200B = "--hidden 14400 --heads 96 --ffn 57600"
_TITAN = "--cluster 8xH100-96GB-HBM2e-500W --seq 8192 --trainer torchtitan"
LAYOUTS = (
    Known(
        label="BLOOM 176B, 384 A100\ntp 4, pp 12, ZeRO 1",
        flags=f"--model bloom-176b {_BIGSCIENCE} --tp 4 --pp 12 --micro-batch 2",
    ),
    Known(
        label="BigScience 194B, 384 A100\ntp 8, pp 6, micro-batch 4",
        flags=f"--layers 78 {_200B} {_BIGSCIENCE} --tp 8 --pp 6 --micro-batch 4 --precision fp16",
        table="bigscience_a100",
        line=17,
    ),
    Known(
        label="BigScience 184B, 384 A100\ntp 4, pp 6 (ran out)",
        flags=f"--layers 100 --hidden 12288 --heads 64 --ffn 49152 {_BIGSCIENCE} --tp 4 --pp 6",
    ),
    Known(
        label="Llama 3.1 8B, 8 A100\nplain data parallel",
        flags="--model llama3.1-8b --cluster 8xA100-SXM-80GB --seq 8192 --global-batch 8 "
        "--zero 0 --recompute full",
    ),
    Known(
        label="Llama 3.1 8B, 8 H100 (96 GB)\nFSDP, micro-batch 2",
        flags=f"--model llama3.1-8b {_TITAN} --global-batch 16 --zero 3 --micro-batch 2 "
        "--recompute selective",
        table="torchtitan",
        line=2,
    ),
    Known(
        label="Llama 3.1 70B, 256 H100 (96 GB)\ntp 8, FSDP, micro-batch 16",
        flags="--model llama3.1-70b --cluster 32x8xH100-96GB-HBM2e-500W --seq 8192 "
        "--trainer torchtitan --global-batch 512 --tp 8 --zero 3 --micro-batch 16 "
        "--recompute full --sequence-parallel --precision fp8",
        table="torchtitan",
        line=12,
    ),
)


def main() -> None:
    """Write all plots."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=IMAGES, help="where the images go")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    scores = {name: validate_table(read_measurements(TABLES / f"{name}.csv")) for name in TITLES}
    answers = [fit_answer(parse_fit(known.flags.split())) for known in LAYOUTS]
    measured = [measured_gb(known) for known in LAYOUTS]
    for name, figure in (
        ("step_time.svg", step_time_figure(scores)),
        ("memory.svg", memory_figure(answers, measured)),
        ("mixed_front.svg", front_figure(mixed("fasop/gpt2XL-pareto", "--pareto"))),
        ("mixed_stages.svg", stages_figure([mixed(name) for name in MIXED])),
    ):
        write(figure, folder / name)
        print(f"{folder / name}: {(folder / name).stat().st_size / 1000:.0f} kB")


def measured_gb(known: Known) -> float | None:
    """Measured memory in the layout's row; None if there is no table."""
    if not known.table:
        return None
    rows = read_measurements(TABLES / f"{known.table}.csv").measurements
    return next(row.memory_gb for row in rows if row.line == known.line)


def grouped_gb(answer: FitAnswer) -> dict[str, float]:
    """Parts of the fullest stage, by group; they add up to its total."""
    stage = int(answer.memory.total[:, 0].argmax())
    count = len(answer.memory.total)
    parts = {
        name: float(np.broadcast_to(sizes, (count, 1))[stage, 0]) / _GB
        for name, sizes in answer.memory.named
    }
    unknown = parts.keys() - {name for names in GROUPS.values() for name in names}
    assert not unknown, f"parts without a colour: {unknown}"
    return {group: sum(parts[name] for name in names) for group, names in GROUPS.items()}


def step_time_figure(scores: Mapping[str, Validation]) -> Figure:
    """A panel for each table, with its mean error; the grey band is 10 % to both sides."""
    from matplotlib.figure import Figure

    rows = -(-len(scores) // _COLUMNS)
    figure = Figure(figsize=(9.0, 2.0 * rows), layout="constrained")
    panels = figure.subplots(rows, _COLUMNS, squeeze=False, sharey=True).ravel()
    for panel in panels[len(scores) :]:
        panel.set_axis_off()
    for panel, (name, one) in zip(panels, scores.items(), strict=False):
        _draw_steps(panel, one)
        panel.set_title(f"{TITLES[name]}: {one.times.mape or 0.0:.1f} %", fontsize=9)
    figure.supxlabel("measured seconds of a step", fontsize=9)
    figure.supylabel("predicted over measured", fontsize=9)
    return figure


def _draw_steps(panel: Axes, one: Validation) -> None:
    measured = one.timed.measured_s_R
    ratio = one.timed.predicted_s_R / measured
    ends = [measured.min() / 1.3, measured.max() * 1.3]
    panel.axhspan(1 - _BAND, 1 + _BAND, color="0.88", lw=0)
    panel.axhline(1.0, color="0.5", lw=0.8)
    panel.plot(measured, ratio, "o", color="C0", ms=2.5, mew=0)
    panel.set_xscale("log")
    panel.set_xlim(*ends)
    panel.set_ylim(*_SHOWN)
    panel.minorticks_off()
    panel.tick_params(labelsize=7)


def memory_figure(answers: Sequence[FitAnswer], measured: Sequence[float | None]) -> Figure:
    """A bar for each layout, the limit of its GPUs as a line, the measured value as a diamond."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 0.75 * len(answers) + 1.2), layout="constrained")
    panel = figure.subplots()
    stacks = [grouped_gb(answer) for answer in answers]
    left = np.zeros(len(answers))
    places = np.arange(len(answers))
    for colour, group in enumerate(GROUPS):
        widths = np.array([stack[group] for stack in stacks])
        panel.barh(places, widths, 0.6, left, color=f"C{colour}", label=group)
        left += widths
    limits = np.array([answer.limit_bytes / _GB for answer in answers])
    panel.vlines(limits, places - 0.4, places + 0.4, color="black", lw=1.6, label="limit")
    known = [(size, i) for i, size in enumerate(measured) if size is not None]
    panel.plot(*np.array(known).T, "D", color="white", mec="black", ms=5, label="measured")
    panel.set_yticks(places, [one.label for one in LAYOUTS], fontsize=8)
    panel.invert_yaxis()
    panel.set_xlabel("GB (2^30 bytes) of the fullest rank", fontsize=9)
    figure.legend(fontsize=8, ncols=5, loc="outside upper center", frameon=False)
    return figure


MIXED = ("fasop/bert-heterogeneous", "fasop/gpt2XL-heterogeneous", "fasop/T5-heterogeneous")
_S_PER_DAY = 86400.0


def mixed(preset: str, *flags: str) -> PlanAnswer:
    """The plan of a preset."""
    return plan_answer(parse_plan(["--preset", preset, *flags]))


def days_and_usd(answer: PlanAnswer, rows: Sequence[Planned]) -> np.ndarray:
    """Time and money of the whole training: shape (2, rows)."""
    steps = answer.steps or 1
    points = [(steps * row.step_s / _S_PER_DAY, steps * (row.usd_per_step or 0)) for row in rows]
    return np.array(points).T


def front_figure(answer: PlanAnswer) -> Figure:
    """All parts of the cluster, and those that no other beats in time and money."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    panel = figure.subplots()
    panel.plot(*days_and_usd(answer, answer.plan.best), "o", color="0.75", ms=4, mew=0)
    front = days_and_usd(answer, answer.plan.best)
    panel.plot(*front, "o-", color="C0", ms=5)
    for row, (days, usd) in zip(answer.plan.best, front.T, strict=True):
        named = zip(row.counts, answer.kinds, strict=True)
        name = " + ".join(f"{count} x {kind.name}" for count, kind in named if count)
        panel.annotate(name, (days, usd), (6, 4), textcoords="offset points", fontsize=7)
    panel.set_xscale("log")
    panel.set_yscale("log")
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter("{x:,.0f}")
        axis.set_minor_formatter("{x:,.0f}")
    panel.tick_params(which="both", labelsize=7)
    panel.set_xlabel("days of the training", fontsize=9)
    panel.set_ylabel("USD", fontsize=9)
    return figure


def stages_figure(answers: Sequence[PlanAnswer]) -> Figure:
    """Layers of each stage of each preset's fastest pipeline, coloured by the stage's nodes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 1.7 * len(answers)), layout="constrained")
    panels = figure.subplots(len(answers), 1, squeeze=False)[:, 0]
    for panel, answer, preset in zip(panels, answers, MIXED, strict=True):
        row = next(row for row in answer.plan.best if len(row.stages) > 1)
        for number, stage in enumerate(row.stages):
            panel.bar(number, stage.layers, color=f"C{min(stage.kinds)}")
        model = answer.workload.architecture
        name = " + ".join(f"{n} x {k.name}" for n, k in zip(row.counts, answer.kinds, strict=True))
        layers = model.encoder_layers + model.layers
        panel.set_title(f"{preset}: {layers} layers on {name}", fontsize=9)
        panel.set_xticks(range(len(row.stages)))
        panel.tick_params(labelsize=7)
    figure.supxlabel("stage", fontsize=9)
    figure.supylabel("layers", fontsize=9)
    return figure


def write(figure: Figure, path: Path) -> None:
    """An SVG without a date and with fixed names inside."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
