"""``compile_mode`` on real ranks: blocks are compiled, and losses stay."""

import json
import shutil
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch

from autoconf_launch.core import RUNTIME_KNOBS, ConfigError
from autoconf_launch.runtime import initialize
from autoconf_launch.runtime.model import repeated_blocks
from autoconf_launch.runtime.parallel import found_extras

in_this_process = pytest.mark.usefixtures("alone")
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++")


def train(launch: Callable[..., Any], ranks: int, *cases: dict[str, Any]) -> list[dict[str, Any]]:
    """Losses and strategy of each case."""
    configs = [
        {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 2,
            "optimizer": {"type": "SGD", "params": {"lr": 0.5, "momentum": 0.9}},
            **case,
        }
        for case in cases
    ]
    ended = launch("train_all.py", json.dumps(configs), ranks=ranks)
    assert ended.exit_codes == (0,) * ranks, ended.errors
    answers: list[dict[str, Any]] = json.loads(ended.outputs[0])
    return answers


def mode_of(answer: dict[str, Any]) -> object:
    return dict(answer["applied"]["extras"])["compile_mode"]


@in_this_process
def test_compiled_blocks_train_with_the_losses_of_plain_ones(
    tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced by torch.compile; the C++ compiler, which takes 20 s, is left out."""
    traced: list[object] = []

    def run_as_traced(graph: Any, *inputs: object, **named: object) -> Any:
        traced.append(graph)
        return graph.forward

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", run_as_traced)
    batches = tiny.global_batches(4, 3)
    losses = []
    for mode in ("off", "default"):
        assert not traced
        engine = initialize(tiny.Tiny, tiny.config(compile_mode=mode))
        losses.append([float(engine.step(batch)) for batch in batches])
    assert traced
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)


@needs_compiler
@pytest.mark.slow
def test_blocks_compiled_by_inductor_train_likewise(launch: Callable[..., Any]) -> None:
    plain, compiled = train(launch, 1, {}, {"compile_mode": "default"})
    assert (mode_of(plain), mode_of(compiled)) == ("off", "default")
    assert compiled["losses"] == pytest.approx(plain["losses"], abs=1e-4)


@needs_compiler
@in_this_process
@pytest.mark.parametrize("mode", RUNTIME_KNOBS["compile_mode"].values or ())
def test_every_mode_reaches_the_compiler_and_is_seen_in_the_process(tiny: Any, mode: str) -> None:
    model = initialize(tiny.Tiny, tiny.config(compile_mode=mode)).module
    assert dict(found_extras(model, None))["compile_mode"] == mode
    for block in repeated_blocks(model):
        compiled: Any = block._compiled_call_impl
        settings = compiled.get_compiler_config() if compiled else None
        assert (settings is None) == (mode == "off")
        if settings is not None:
            wanted = torch._inductor.list_mode_options(mode)
            assert {name: settings[name] for name in wanted} == wanted
            assert settings["max_autotune"] == mode.startswith("max-autotune")


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        *({"zero_optimization": {"stage": stage}} for stage in range(4)),
        *({"activation_checkpointing": {"mode": mode}} for mode in ("selective", "full")),
        {"parallelism": {"pipeline": 2}},
        {"compile_mode": "max-autotune-no-cudagraphs"},
    ],
)
def test_every_layout_can_compile_its_blocks(
    launch: Callable[..., Any], case: dict[str, Any]
) -> None:
    mode = case.get("compile_mode", "default")
    plain, compiled = train(
        launch, 2, {**case, "compile_mode": "off"}, {**case, "compile_mode": mode}
    )
    assert (mode_of(plain), mode_of(compiled)) == ("off", mode)
    assert compiled["losses"] == pytest.approx(plain["losses"], abs=1e-4)


@in_this_process
def test_a_machine_without_a_compiler_is_named(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match=r"torch.compile needs a C\+\+ compiler \(.*\), which"):
        initialize(tiny.Tiny, tiny.config(compile_mode="default"))


@in_this_process
def test_an_unknown_mode_is_refused_with_the_known_ones(tiny: Any) -> None:
    with pytest.raises(ConfigError, match="compile_mode is 'fast', but must be off or default"):
        initialize(tiny.Tiny, tiny.config(compile_mode="fast"))


def test_every_knob_names_a_module_that_applies_it_and_looks_for_it() -> None:
    for knob in RUNTIME_KNOBS.values():
        module = import_module(f"autoconf_launch.{knob.applied_by}")
        assert callable(module.apply)
        assert callable(module.look)
