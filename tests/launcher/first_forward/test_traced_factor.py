"""A script's own pass corrects the formulas of its model's shapes; no script runs here."""

from dataclasses import replace

import pytest

from autoconf_launch.autotuner.cost import forward_flops_per_token, parameters
from autoconf_launch.core import (
    BlockSpec,
    Bystander,
    Grade,
    Layout,
    ModelSpec,
    OperationCost,
    Precision,
    TracedPeak,
    Workload,
)
from autoconf_launch.launcher.estimates import FitAnswer, FitRequest, fit_answer, parse_fit
from autoconf_launch.launcher.first_forward import TracedScript
from autoconf_launch.launcher.first_forward.answers import (
    PiecesQuestion,
    layout_peak_bytes,
    traced_factor,
)
from autoconf_launch.tuning_spaces import (
    named_model,
    trainer,
)

from .made import find

GPT = named_model("gpt2")
LENGTH, SAMPLES = 1024, 4
WEIGHTS = parameters(GPT)
KEPT = 3 << 30
ONE_GPU = parse_fit(["--cluster", "A100"], of_script=True).training


def traced_script() -> TracedScript:
    """A GPT-2 whose pass keeps 3 GiB for each of 4 samples."""
    block = BlockSpec(name="all", count=1, parameters=WEIGHTS, flops=1e9, activation_bytes=KEPT)
    sizes = {size: 4 * WEIGHTS + KEPT * size for size in (SAMPLES, 2 * SAMPLES)}
    peaks = [
        TracedPeak(phase=phase, micro_batch=size, peak_bytes=size_bytes + more)
        for size, size_bytes in sizes.items()
        for phase, more in (("forward", 0), ("backward", 4 * WEIGHTS))
    ]
    found = find(
        model=ModelSpec(grade=Grade.TRACED, blocks=(block,), sequence_length=LENGTH),
        micro_batch=SAMPLES,
        peaks=tuple(peaks),
        precision=Precision.FP32,
        state_bytes=8 * WEIGHTS,
    )
    return TracedScript(name="train.py", found=found, architecture=GPT)


def plain() -> Workload:
    workload = Workload(model=GPT, sequence_length=LENGTH, precision=Precision.FP32)
    return trainer("huggingface").apply_to(replace(workload, global_batch=SAMPLES))


def test_the_answer_is_what_the_trace_of_the_same_pass_says() -> None:
    script, training = traced_script(), replace(ONE_GPU, workload=plain())
    layout = Layout(micro_batch=SAMPLES)
    expected = layout_peak_bytes(PiecesQuestion(script=script, training=training), layout)
    factor = traced_factor(script, training)
    assert factor > 1.5
    workload = replace(plain(), activation_factor=factor)
    request = FitRequest(training=replace(training, workload=workload), layout=layout)
    assert float(fit_answer(request).memory.peak_C[0]) == pytest.approx(expected, rel=1e-3)


def test_models_and_tensors_besides_are_two_parts() -> None:
    found = [
        Bystander(name="Teacher", parameters=10, size_bytes=40),
        Bystander(name="Encoder", parameters=5, size_bytes=20),
        Bystander(name="tensors", parameters=0, size_bytes=7),
    ]
    script = traced_script()
    script = replace(script, found=replace(script.found, bystanders=tuple(found)))
    assert script.beside == (("other models", 60), ("other tensors", 7))


def test_they_are_on_every_rank_whatever_is_sharded() -> None:
    beside = (("other models", 1 << 30),)
    layout = Layout(micro_batch=1, zero_stage=3)
    eight = parse_fit(["--cluster", "8xA100"], of_script=True).training
    workload = replace(plain(), global_batch=8)
    without, with_others = (
        fit_answer(
            FitRequest(
                training=replace(eight, workload=replace(workload, beside=some)), layout=layout
            )
        )
        for some in ((), beside)
    )
    more = float(with_others.memory.peak_C[0] - without.memory.peak_C[0])
    assert more == pytest.approx(1 << 30)


def test_a_loss_on_pairs_of_answers_trains_two_sequences_a_sample() -> None:
    forward = SAMPLES * LENGTH * forward_flops_per_token(plain())
    teacher = OperationCost(flops=2 * forward, moved_bytes=0)
    for count in (1, 2):
        trained = OperationCost(flops=3 * count * forward, moved_bytes=0)
        script = traced_script()
        found = replace(script.found, operations=(teacher, trained), frozen_operations=(teacher,))
        assert replace(script, found=found).sequences_per_sample == count


def test_a_pair_takes_the_time_and_memory_of_two_samples() -> None:
    def answer(micro_batch: int, sequences: int, *flags: str) -> FitAnswer:
        words = ["--cluster", "4xA100", "--micro-batch", str(micro_batch), *flags]
        request = parse_fit(words, of_script=True)
        workload = replace(plain(), global_batch=8 * micro_batch, sequences_per_sample=sequences)
        training = replace(request.training, workload=workload)
        return fit_answer(replace(request, training=training, is_zero_open=False))

    for flags in ((), ("--pp", "2"), ("--pp", "2", "--pipeline-split", "5,7")):
        pair, two = answer(1, 2, *flags), answer(2, 1, *flags)
        assert pair.step_s == two.step_s
        assert pair.memory.peak_C.tolist() == two.memory.peak_C.tolist()
