"""What ``AutoConfigurator`` was asked, as one value: model, machines, batch, base configuration.

Not: candidates (candidates), nor runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from autoconf_launch.autotuner.recommend.base_config import RunPlan, base_config
from autoconf_launch.autotuner.recommend.batch_size import BaseBatch
from autoconf_launch.autotuner.recommend.families import Family
from autoconf_launch.autotuner.recommend.model_size import Budget, model_size_b
from autoconf_launch.autotuner.recommend.recipe_layout import recipe_document
from autoconf_launch.core import ConfigError, RawConfig

from .bases import chosen_model, model_notes, recommended_batch, table_batch
from .checks import AUTO, number, plain_paths, plain_tokenizer, whole
from .layouts import batch_path, is_nemo1, overlaid, with_data
from .model_facts import ModelDefaults, ModelFacts, model_facts
from .recipe import Recipe, read_recipe

_SECTIONS = frozenset({"trainer", "data", "optim", "log", "resume", "peft", "name"})
"""Of a recipe's document, beside its model."""
_OF_NO_CONFIG = frozenset({"class", "family", "model_size_in_b", "name"})


class Arguments(Protocol):
    """What is read of an ``AutoConfigurator``."""

    recipe: object
    model: object
    mode: str
    num_nodes: int | None
    gpus_per_node: int | None
    seq_length: int | None
    global_batch_size: int | str | None
    data_paths: object
    tokenizer_path: object
    gpu_memory_gb: float
    num_tokens_in_b: float
    tflops_per_gpu: float
    max_training_days: float
    vocab_size: int
    calculate_model_size: bool
    usd_per_gpu_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The training that is to be made fast.

    Attributes:
        base: its configuration, in the recipe's own layout or that of NeMo 2.0.
        is_batch_given: whether the user chose the global batch.
        data: paths as they were given, weights between them; None without any.
        notes: what was recommended, and what no rule covers.
    """

    facts: ModelFacts
    plan: RunPlan
    gpu_memory_gb: float
    tflops_per_gpu: float
    batch: BaseBatch
    is_batch_given: bool
    base: RawConfig
    data: Any
    tokenizer: str | None
    usd_per_gpu_hour: float | None
    notes: tuple[str, ...]

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.plan.nodes * self.plan.gpus_per_node

    @property
    def global_batch(self) -> int:
        """Samples of a step."""
        return self.batch.global_batch


def training_of(asked: Arguments) -> Training:
    """Read recipe and arguments; an argument wins over the recipe.

    Raises:
        ConfigError: a value is wrong, or nothing says which model is trained.
    """
    recipe = read_recipe(asked.recipe, asked.model)
    machines = _Machines(asked, recipe)
    usual = ModelDefaults(
        vocabulary=whole("vocab_size", asked.vocab_size),
        sequence=machines.sequence,
        gpu_memory_gb=number("gpu_memory_gb", asked.gpu_memory_gb),
        calculated=_calculated(asked, machines.nodes * machines.gpus_per_node),
    )
    facts = model_facts(recipe, usual)
    batch, note = _batch(asked, recipe, facts)
    data = plain_paths(asked.data_paths or recipe.get("data_paths", "data.paths"))
    tokenizer = plain_tokenizer(asked.tokenizer_path or recipe.get("tokenizer_path"))
    plan = RunPlan(
        days=number("max_training_days", asked.max_training_days),
        nodes=machines.nodes,
        gpus_per_node=machines.gpus_per_node,
        tokens_b=number("num_tokens_in_b", asked.num_tokens_in_b),
    )
    return Training(
        facts=facts,
        plan=plan,
        gpu_memory_gb=asked.gpu_memory_gb,
        tflops_per_gpu=asked.tflops_per_gpu,
        batch=batch,
        is_batch_given=not note,
        base=with_data(_base(recipe, facts, batch, plan, asked.gpu_memory_gb), data, tokenizer),
        data=data,
        tokenizer=tokenizer,
        usd_per_gpu_hour=asked.usd_per_gpu_hour,
        notes=tuple(
            text
            for text in (machines.note, *_size_notes(asked, facts), *facts.notes, note)
            if text
        ),
    )


def with_batch(training: Training, batch: int, note: str) -> Training:
    """The same with another global batch, and a note on it."""
    return replace(
        training,
        batch=replace(training.batch, global_batch=batch),
        base=training.base.with_value(batch_path(training.base), batch),
        notes=(*training.notes, note),
    )


class _Machines:
    """Nodes, GPUs and sequence; ``note`` says which of them nobody gave."""

    def __init__(self, asked: Arguments, recipe: Recipe) -> None:
        self._assumed: list[str] = []
        found = recipe.whole("num_nodes", "trainer.num_nodes")
        self.nodes = self._known("num_nodes", asked.num_nodes, found, 1)
        found = recipe.whole("gpus_per_node", "trainer.devices", "num_gpus_per_node")
        self.gpus_per_node = self._known("gpus_per_node", asked.gpus_per_node, found, 8)
        found = recipe.whole(
            *("seq_length", "data.seq_length", "model.config.seq_length", "model.seq_length"),
            *("model.encoder_seq_length", "model.data.seq_length"),
        )
        self.sequence = self._known("seq_length", asked.seq_length, found, 2048)

    @property
    def note(self) -> str:
        if not self._assumed:
            return ""
        return f"Assumed, since nothing says so: {', '.join(self._assumed)}."

    def _known(self, name: str, given: int | None, found: int | None, usual: int) -> int:
        if given is not None:
            return whole(name, given)
        if found is None:
            self._assumed.append(f"{name} {usual}")
        return found or usual


def _calculated(asked: Arguments, gpus: int) -> Callable[[Family], float] | None:
    """What gives a size for the days, where one is to be calculated."""
    if not asked.calculate_model_size:
        return None
    budget = Budget(
        gpus=gpus,
        tflops_per_gpu=number("tflops_per_gpu", asked.tflops_per_gpu),
        tokens_b=number("num_tokens_in_b", asked.num_tokens_in_b),
    )
    days = number("max_training_days", asked.max_training_days)

    def size_b(family: Family) -> float:
        found = model_size_b(family.name, budget, days)
        if found > 0:
            return found
        raise ConfigError(
            f"In {days:g} days {gpus} GPUs train less than 0.01 B parameters on "
            f"{budget.tokens_b:g} B tokens; give more days or fewer tokens."
        )

    return size_b


def _size_notes(asked: Arguments, facts: ModelFacts) -> Iterator[str]:
    if asked.calculate_model_size:
        yield (
            f"A {facts.family.name} model of {facts.size_b:g} B is what the machines train on "
            f"{asked.num_tokens_in_b:g} B tokens in {asked.max_training_days:g} days, if each GPU "
            f"achieves {asked.tflops_per_gpu:g} TFLOP/s."
        )


def _batch(asked: Arguments, recipe: Recipe, facts: ModelFacts) -> tuple[BaseBatch, str]:
    """The given batch, or a recommended one and a note on it."""
    value = asked.global_batch_size
    found = recipe.whole("global_batch_size", "data.global_batch_size", "model.global_batch_size")
    given = found if value in (None, AUTO) else whole("global_batch_size", value)
    table = table_batch(facts, asked.gpu_memory_gb)
    if given is not None:
        return replace(table, global_batch=given, note=""), ""
    return recommended_batch(facts, table, asked.gpu_memory_gb)


def _base(
    recipe: Recipe, facts: ModelFacts, batch: BaseBatch, plan: RunPlan, gpu_memory_gb: float
) -> RawConfig:
    """The recipe's own document if it is a whole one, else ours with what the recipe has."""
    given = recipe.document
    if is_nemo1(given):
        own = given
    else:
        made = base_config(chosen_model(facts, batch, gpu_memory_gb), plan)
        own = overlaid(recipe_document(made), _sections(given))
    for path, value in (
        (batch_path(own), batch.global_batch),
        (("trainer", "num_nodes"), plan.nodes),
        (("trainer", "devices"), plan.gpus_per_node),
        *model_notes(facts, plan.tokens_b),
    ):
        own = own.with_value(path, value)
    return own if is_nemo1(own) else own.with_value(("data", "seq_length"), facts.sequence)


def _sections(given: RawConfig) -> RawConfig:
    """What of a document has a place in a recipe; short forms such as ``num_nodes`` do not."""
    document: Mapping[str, Any] = given.to_dict()
    kept = {name: value for name, value in document.items() if name in _SECTIONS}
    model = document.get("model")
    if isinstance(model, Mapping):
        kept["model"] = model if "config" in model else _as_config(model)
    return RawConfig(kept)


def _as_config(model: Mapping[str, Any]) -> dict[str, Any]:
    """A model that is written without its section."""
    config = {name: value for name, value in model.items() if name not in _OF_NO_CONFIG}
    return {"config": config, **({"class": model["class"]} if "class" in model else {})}
