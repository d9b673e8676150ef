"""Arguments of Megatron-LM's training scripts.

Checked against ``megatron/training/arguments.py`` of NVIDIA/Megatron-LM at 000c4ac24f61, and the
fields of ``ModelParallelConfig`` and ``TransformerConfig`` of megatron-core 0.16.1 (PyPI).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from autoconf_launch.autotuner.space import LayoutValue
from autoconf_launch.core import ConfigError, Recompute, States

from ..script import ScriptSource
from ..spelling import (
    GLOBAL_BATCH,
    Argument,
    FrameworkFacts,
    LaunchInputs,
    Place,
    Rendered,
    Spelled,
    Spelling,
    TableDialect,
    TrialNeeds,
    find_argument,
    scalar,
    set_argument,
    whole_number,
    without_arguments,
)

MEGATRON_MICRO_BATCH = "--micro-batch-size"
GLOBAL_BATCH_FLAG = "--global-batch-size"
MEGATRON_DEGREES = {
    "tensor_parallel": "--tensor-model-parallel-size",
    "pipeline_parallel": "--pipeline-model-parallel-size",
    "context_parallel": "--context-parallel-size",
    "expert_parallel": "--expert-model-parallel-size",
}
SEQUENCE_PARALLEL = "--sequence-parallel"
VIRTUAL_STAGES = "--num-virtual-stages-per-pipeline-rank"
VIRTUAL_LAYERS = "--num-layers-per-virtual-pipeline-stage"
LAYERS = "--num-layers"
FIRST_LAYERS = "--decoder-first-pipeline-num-layers"
LAST_LAYERS = "--decoder-last-pipeline-num-layers"
LAYOUT = "--pipeline-model-parallel-layout"
DISTRIBUTED_OPTIMIZER = "--use-distributed-optimizer"
NEED_DISTRIBUTED = ("--overlap-param-gather", "--use-precision-aware-optimizer")
"""Arguments that Megatron-LM refuses without the distributed optimizer."""
REFUSE_DISTRIBUTED = ("--use-torch-fsdp2",)
GRANULARITY = "--recompute-granularity"
METHOD = "--recompute-method"
NUM_LAYERS = "--recompute-num-layers"
RECOMPUTE_ACTIVATIONS = "--recompute-activations"
"""The older word for selective granularity."""
SAVE, SAVE_INTERVAL = "--save", "--save-interval"
EVALUATE_ITERATIONS, EVALUATE_INTERVAL = "--eval-iters", "--eval-interval"
MOST_ITERATIONS = 10
"""Iterations of an evaluation in a verification run: more would not need more memory."""
ITERATIONS_DEFAULT = 100
GONE_IN_TRIALS = (
    SAVE,
    SAVE_INTERVAL,
    "--tensorboard-dir",
    "--wandb-project",
    "--wandb-exp-name",
    "--wandb-save-dir",
)
EXIT_INTERVAL = "--exit-interval"
PACKAGES = ("megatron",)
MEGATRON_FSDP = "--use-megatron-fsdp"
SHARDING = "--data-parallel-sharding-strategy"
SHARDINGS = {2: "optim_grads", 3: "optim_grads_params"}
OPTIMIZER_OFFLOAD = "--optimizer-cpu-offload"
_HALF_MOMENTS = ("--exp-avg-dtype", "bf16", "--exp-avg-sq-dtype", "bf16")
STATES: Mapping[States | None, tuple[str, ...]] = MappingProxyType(
    {States.BF16_MOMENTS: ("--use-precision-aware-optimizer", *_HALF_MOMENTS)}
)
"""Arguments for formats of states (megatron/training/arguments.py)."""


_DISTRIBUTED = Argument((DISTRIBUTED_OPTIMIZER,), switch=True)
_FIRST, _LAST = Argument((FIRST_LAYERS,)), Argument((LAST_LAYERS,))
_LAYOUT = Argument((LAYOUT,))
_GRANULARITY, _METHOD = Argument((GRANULARITY,)), Argument((METHOD,))
_NUM_LAYERS = Argument((NUM_LAYERS,))
_OLD = Argument((RECOMPUTE_ACTIVATIONS,), switch=True)
_STAGES, _LAYERS_EACH = Argument((VIRTUAL_STAGES,)), Argument((VIRTUAL_LAYERS,))
_PIPELINE = Argument((MEGATRON_DEGREES["pipeline_parallel"],))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeWords(Spelled):
    """Granularity, method and number of layers as one knob."""

    free: tuple[LayoutValue, ...] = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
    knob: str = "recompute"
    called: tuple[str, ...] = (GRANULARITY,)
    places: tuple[Place, ...] = (_GRANULARITY, _METHOD, _NUM_LAYERS, _OLD)

    def read(self, inputs: LaunchInputs) -> LayoutValue:
        if _OLD.get(inputs) is not None:
            return Recompute.SELECTIVE
        return self.value_of(_GRANULARITY.get(inputs) or "none")

    def value_of(self, word: Any) -> LayoutValue:
        try:
            return Recompute(str(word))
        except ValueError:
            raise ConfigError(
                f"{GRANULARITY} is {word!r}, but must be full or selective."
            ) from None

    def put(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        for place in self.places:
            inputs = place.drop(inputs)
        if value is Recompute.NONE:
            return inputs
        inputs = _GRANULARITY.put(inputs, Recompute(value).value)
        if value is Recompute.FULL:
            inputs = _NUM_LAYERS.put(_METHOD.put(inputs, "uniform"), "1")
        return inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualWords(Spelled):
    """Model chunks of each rank, by their number or by their layers."""

    knob: str = "virtual_pipeline"
    called: tuple[str, ...] = (VIRTUAL_STAGES,)
    places: tuple[Place, ...] = (_STAGES, _LAYERS_EACH)

    def read(self, inputs: LaunchInputs) -> LayoutValue:
        if (each := _LAYERS_EACH.get(inputs)) is None:
            return self.value_of(_STAGES.get(inputs) or 1)
        return _layers(inputs) // (_stages(inputs) * int(each))

    def value_of(self, word: Any) -> LayoutValue:
        return whole_number(scalar(word), VIRTUAL_STAGES)

    def put(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        if _LAYERS_EACH.get(inputs) is None:
            return _STAGES.drop(inputs) if value == 1 else _STAGES.put(inputs, value)
        if value == 1:
            return _LAYERS_EACH.drop(inputs)
        chunks = _stages(inputs) * int(value)  # type: ignore[arg-type]
        if _layers(inputs) % chunks:
            raise ConfigError(
                f"{_layers(inputs)} layers cannot be split into {chunks} equal chunks."
            )
        return _LAYERS_EACH.put(inputs, _layers(inputs) // chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitWords(Spelled):
    """Layers of each pipeline stage: of the first and the last stage, or a layout of all."""

    knob: str = "pipeline_split"
    called: tuple[str, ...] = (LAYOUT,)
    places: tuple[Place, ...] = (_FIRST, _LAST, _LAYOUT)

    def read(self, inputs: LaunchInputs) -> LayoutValue:
        layout, stages = _LAYOUT.get(inputs), _stages(inputs)
        if layout is not None:
            return self.value_of(layout)
        first, last = (
            tuple(scalar(text) for text in (place.get(inputs),) if text is not None)
            for place in (_FIRST, _LAST)
        )
        if not (first or last) or stages < 2:
            return None
        middle = stages - len(first) - len(last)
        left = _layers(inputs) - sum(first) - sum(last)
        return (*first, *(left // middle if middle else 0,) * middle, *last)

    def value_of(self, word: Any) -> LayoutValue:
        return tuple(_count(part) for part in str(word).split("|"))

    def put(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        for place in self.places:
            inputs = place.drop(inputs)
        if not isinstance(value, tuple) or len(set(value)) == 1:
            return inputs
        if len(value) > _stages(inputs):  # a layout of virtual stages says their number, too
            return _LAYOUT.put(_LAYERS_EACH.drop(_STAGES.drop(inputs)), layout_text(value))
        first, *middle, last = value
        if len(set(middle)) == 1:
            return _LAST.put(_FIRST.put(inputs, first), last)
        return _LAYOUT.put(inputs, layout_text(value))


class MegatronDialect(TableDialect):
    """Megatron-LM's training scripts."""

    name = "megatron"
    framework = FrameworkFacts(
        package="megatron-core", oldest=(0, 8), newest=(0, 16), unproven="Megatron-LM"
    )

    def detects(self, source: ScriptSource) -> bool:
        if source.facts.imports(*PACKAGES):
            return True
        wanted = (MEGATRON_MICRO_BATCH, MEGATRON_DEGREES["tensor_parallel"])
        return all(find_argument(source.script_args, (name,)) for name in wanted)

    def table(self, source: ScriptSource, ranks: int) -> tuple[Spelled, ...]:
        return (
            Spelling(knob="micro_batch", places=(Argument((MEGATRON_MICRO_BATCH,)),)),
            Spelling(knob=GLOBAL_BATCH, places=(Argument((GLOBAL_BATCH_FLAG,)),)),
            *(
                Spelling(knob=knob, places=(Argument((name,)),), default=1)
                for knob, name in MEGATRON_DEGREES.items()
            ),
            VirtualWords(),
            SplitWords(),
            Spelling(
                knob="sequence_parallel",
                places=(Argument((SEQUENCE_PARALLEL,), switch=True),),
                words=((False, False), (True, True)),
                default=False,
            ),
            Spelling(
                knob="zero_stage",
                places=(_DISTRIBUTED,),
                words=((False, 0), (True, 1)),
                default=0,
                free=_stages_to_search(source, ranks),
            ),
            RecomputeWords(),
        )

    def in_trial(self, rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
        """Nothing is saved or evaluated except in a verification run; the script ends itself."""
        rendered = super().in_trial(rendered, source, needs)
        saves = needs.saves and find_argument(source.script_args, (SAVE,)) is not None
        arguments = without_arguments(rendered.script_args, GONE_IN_TRIALS)
        settings = {
            EVALUATE_ITERATIONS: str(_iterations(source) if needs.evaluates else 0),
            EXIT_INTERVAL: str(needs.steps + 1),
        }
        if needs.evaluates:
            settings[EVALUATE_INTERVAL] = str(needs.evaluate_after)
        if saves:
            settings |= {SAVE: needs.output, SAVE_INTERVAL: str(needs.save_after)}
        for flag, value in settings.items():
            arguments = set_argument(arguments, flag, value)
        return replace(rendered, script_args=arguments)


def _iterations(source: ScriptSource) -> int:
    given = find_argument(source.script_args, (EVALUATE_ITERATIONS,))
    asked = scalar(given.value) if given else ITERATIONS_DEFAULT
    return min(asked, MOST_ITERATIONS) if type(asked) is int else 0


def _stages_to_search(source: ScriptSource, ranks: int) -> tuple[LayoutValue, ...]:
    tied = (*NEED_DISTRIBUTED, *REFUSE_DISTRIBUTED)
    if ranks == 1 or any(find_argument(source.script_args, (flag,)) for flag in tied):
        return ()
    return (0, 1)


def layout_text(split: tuple[int, ...]) -> str:
    """Megatron's words for a split: ``Ettt|tttt|tttL``."""
    parts = ["t" * layers for layers in split]
    return "|".join(("E" + parts[0], *parts[1:-1], parts[-1] + "L"))


def _count(part: str) -> int:
    """Transformer layers of one stage: ``Et*3`` has three."""
    single = re.sub(r"t\*(\d+)", lambda match: "t" * int(match[1]), part)
    return single.count("t")


def _layers(inputs: LaunchInputs) -> int:
    given = find_argument(inputs.arguments, (LAYERS,))
    if given is None:
        raise ConfigError(f"{LAYERS} is not given, but the split of the pipeline needs it.")
    return whole_number(scalar(given.value), LAYERS)


def _stages(inputs: LaunchInputs) -> int:
    return whole_number(scalar(_PIPELINE.get(inputs) or 1), _PIPELINE.name)
