"""``AutoConfigurator``'s arguments, and the training that they and the recipe state.

Names and units of arguments agree with the search's keys. The model is read by model_facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

from autoconf_launch.autotuner.sizing import Budget, ModelQuestion, RunPlan, recommended_size_b
from autoconf_launch.core import ConfigError, Degrees

from ..search import (
    POSITIVE,
    WHOLE_NUMBER,
    GridKind,
    SearchQuestion,
    SearchScope,
    SettingUnit,
    is_whole,
    whole_from,
)
from .bases import StatedTraining, base_for_ranks, base_of, chosen_model, table_batch
from .model_facts import ModelDefaults, model_facts
from .recipe import Recipe, read_recipe

AUTO = "auto"
Sizes: TypeAlias = "Sequence[int] | str | None"
_POSITIVE = (
    *("gpu_memory_gb", "num_tokens_in_b", "tflops_per_gpu", "max_training_days"),
    "usd_per_gpu_hour",
)
_WHOLE = (
    *("num_nodes", "gpus_per_node", "seq_length", "vocab_size", "global_batch_size"),
    *("min_model_parallel_size", "max_model_parallel_size", "max_minutes_per_run"),
)
_UNITS = {
    **dict.fromkeys(_POSITIVE, POSITIVE),
    **dict.fromkeys(_WHOLE, WHOLE_NUMBER),
    "limit_search_runs": whole_from(0),
    "max_steps_per_run": whole_from(10),
    "mode": SettingUnit("", known=("pretrain", "finetune")),
    "grid": SettingUnit("", known=[grid.value for grid in GridKind]),
}
_MAY_BE_AUTO = ("min_model_parallel_size", "max_model_parallel_size", "global_batch_size")
_FACTS: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "num_nodes": (1, ("num_nodes", "trainer.num_nodes")),
    "gpus_per_node": (8, ("gpus_per_node", "trainer.devices", "num_gpus_per_node")),
    "seq_length": (
        2048,
        (
            *("seq_length", "data.seq_length", "model.config.seq_length", "model.seq_length"),
            *("model.encoder_seq_length", "model.data.seq_length"),
        ),
    ),
}
"""Arguments that the recipe may have, with what is assumed without both."""
_BATCHES = ("global_batch_size", "data.global_batch_size", "model.global_batch_size")
_MOST_NAMED = 8
_SEQUENCE = ("model", "config", "seq_length")


@dataclass(eq=False)
class RecipeArguments:
    """Names, order and defaults: NeMo 2.0's, then its guide's, then ours."""

    recipe: object = None
    path_to_logs: str | Path | None = None
    mode: str = "pretrain"
    gpu_memory_gb: float = 80
    tensor_parallel_sizes: Sizes = AUTO
    pipeline_parallel_sizes: Sizes = AUTO
    micro_batch_sizes: Sizes = AUTO
    context_parallel_sizes: Sizes = AUTO
    expert_parallel_sizes: Sizes = AUTO
    min_model_parallel_size: int | str | None = AUTO
    max_model_parallel_size: int | str | None = AUTO
    num_tokens_in_b: float = 1400
    tflops_per_gpu: float = 140
    max_minutes_per_run: int = 30
    max_training_days: float = 2
    max_steps_per_run: int = 50
    vocab_size: int | None = None
    calculate_model_size: bool = False
    model: object = None
    num_nodes: int | None = None
    seq_length: int | None = None
    data_paths: object = None
    tokenizer_path: object = None
    global_batch_size: int | str | None = None
    gpus_per_node: int | None = None
    grid: str = "planner"
    limit_search_runs: int = 100
    usd_per_gpu_hour: float | None = None

    @property
    def is_finetune(self) -> bool:
        return self.mode == "finetune"

    @property
    def logs(self) -> Path:
        return Path(str(self.path_to_logs))

    def size(self, name: str) -> int | None:
        """A number that may be left to us: None for "auto"."""
        value = getattr(self, name)
        return None if value == AUTO else value

    def check(self) -> None:
        """Check everything that depends on no recipe."""
        for one in fields(self):
            value = getattr(self, one.name)
            is_open = value is None and one.default in (None, AUTO)
            is_auto = value == AUTO and one.name in _MAY_BE_AUTO
            if one.name in _UNITS and not (is_open or is_auto):
                _UNITS[one.name].read(one.name, value)
        if self.is_finetune and self.calculate_model_size:
            raise ConfigError(
                "calculate_model_size is for pretraining: a fine-tuned model has its size "
                "already; omit it."
            )
        if not isinstance(self.path_to_logs, (str, Path)) or not str(self.path_to_logs):
            raise ConfigError(
                f"path_to_logs is {self.path_to_logs!r}, but must be the folder for the runs' "
                "logs."
            )
        degrees = self.degrees
        if self.is_finetune and None in (degrees.tensor_parallel, degrees.pipeline_parallel):
            raise ConfigError(
                "For fine-tuning tensor_parallel_sizes and pipeline_parallel_sizes must be lists: "
                "NeMo's rules are for pretraining."
            )

    @property
    def degrees(self) -> Degrees:
        """Sizes to search; None for "auto"."""
        return Degrees(
            tensor_parallel=self._sizes("tensor_parallel_sizes"),
            pipeline_parallel=self._sizes("pipeline_parallel_sizes"),
            micro_batch=self._sizes("micro_batch_sizes"),
            context_parallel=self._sizes("context_parallel_sizes"),
            expert_parallel=self._sizes("expert_parallel_sizes"),
            least_product=self.size("min_model_parallel_size"),
            most_product=self.size("max_model_parallel_size"),
        )

    def _sizes(self, name: str) -> tuple[int, ...] | None:
        value = getattr(self, name)
        if value is None or value == AUTO:
            return None
        listed = tuple(value) if isinstance(value, (list, tuple, range)) else ()
        if listed and all(is_whole(one, 1) for one in listed):
            return tuple(dict.fromkeys(listed))
        raise ConfigError(
            f'{name} is {value!r}, but must be "auto" or a list of whole numbers of at least 1, '
            "such as [1, 2, 4]."
        )


def _plain_paths(value: object) -> Any:
    """Paths of data as documents hold them: a text, a list or a mapping; None without any."""
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return value
    if isinstance(value, (str, Path)):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain_paths(inner) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [_plain_paths(inner) for inner in value]
    raise ConfigError(f"data_paths is {value!r}, but must be a path, a list or a mapping.")


def _plain_tokenizer(value: object) -> str | None:
    if value is None or isinstance(value, (str, Path)):
        return None if value is None else str(value)
    raise ConfigError(f"tokenizer_path is {value!r}, but must be a file or a folder.")


def require_paths(data: Any, tokenizer: str | None) -> None:
    """Check that data and tokenizer exist; weights between paths are skipped."""
    for path in _paths(data):
        if not any(Path(f"{path}{suffix}").exists() for suffix in ("", ".bin", ".idx")):
            raise ConfigError(
                f"data_paths names {path}, which does not exist (nor {path}.bin); give data that "
                "is there."
            )
    if tokenizer is not None and not Path(tokenizer).exists():
        raise ConfigError(f"tokenizer_path is {tokenizer}, but there is no such file or folder.")


def _paths(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield from () if data.replace(".", "", 1).isdigit() else (data,)
    elif isinstance(data, (dict, list)):
        for inner in data.values() if isinstance(data, dict) else data:
            yield from _paths(inner)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeTraining:
    """The training to make fast.

    Attributes:
        question: its base has the recipe's own layout, or NeMo 2.0's; its notes state values
            that were assumed or recommended, and models that no rule covers.
        given: by recipe and arguments.
        plan: machines, days, tokens and steps of the whole training.
        is_batch_given: whether the user chose the global batch.
    """

    question: SearchQuestion
    given: StatedTraining
    plan: RunPlan
    is_batch_given: bool


def training_of_recipe(asked: RecipeArguments) -> RecipeTraining:
    """Read recipe and arguments; an argument wins over the recipe.

    Raises:
        ConfigError: a value is wrong, or nothing says which model is trained.
    """
    recipe = read_recipe(asked.recipe, asked.model)
    numbers: dict[str, int] = {}
    assumed = []
    for name, (usual, paths) in _FACTS.items():
        found = getattr(asked, name) or recipe.whole(*paths)
        numbers[name] = found or usual
        assumed += [] if found else [f"{name} {usual}"]
    facts = model_facts(recipe, _defaults(asked, numbers))
    given = _stated_training(asked, recipe)
    batch, samples = table_batch(facts), asked.size("global_batch_size") or recipe.whole(*_BATCHES)
    if samples is not None:
        batch = replace(batch, global_batch=samples, note="")
    model = chosen_model(facts, given, batch)
    plan = RunPlan(
        days=float(asked.max_training_days),
        nodes=numbers["num_nodes"],
        gpus_per_node=numbers["gpus_per_node"],
        tokens_b=float(asked.num_tokens_in_b),
        max_steps=given.max_steps,
    )
    assumption = f"Not given, so assumed: {', '.join(assumed)}." if assumed else ""
    said = f". {batch.note}" if batch.note else ", as NeMo 2.0 has for this size."
    open_batch = f"No global batch was given: {batch.global_batch}{said}"
    notes = (
        *(assumption, _size_note(asked, facts.asked), *facts.notes, _left_out_note(recipe)),
        "" if samples is not None else open_batch,
    )
    question = SearchQuestion(
        scope=_scope(asked, plan.nodes),
        model=model,
        base=base_of(given, model, plan),
        tokens_b=plan.tokens_b,
        nodes=plan.nodes,
        gpus_per_node=plan.gpus_per_node,
        notes=tuple(filter(None, notes)),
    )
    return RecipeTraining(
        question=question, given=given, plan=plan, is_batch_given=samples is not None
    )


def _scope(asked: RecipeArguments, nodes: int) -> SearchScope:
    return SearchScope(
        degrees=asked.degrees,
        grid=GridKind(asked.grid),
        limit_runs=asked.limit_search_runs,
        search_nodes=nodes,
        max_steps=asked.max_steps_per_run,
        max_minutes=asked.max_minutes_per_run,
        logs=asked.logs.absolute(),
        usd_per_gpu_hour=asked.usd_per_gpu_hour,
    )


def with_batch(training: RecipeTraining, batch: int, note: str) -> RecipeTraining:
    """The training with another global batch, the steps that its tokens need, and a note."""
    question, model = training.question, training.question.model
    model = replace(
        model,
        asked=replace(model.asked, batch=batch),
        batch=replace(model.batch, global_batch=batch, note=""),
    )
    base = base_of(training.given, model, training.plan)
    changed = replace(question, model=model, base=base, notes=(*question.notes, note))
    return replace(training, question=changed)


def for_ranks(training: RecipeTraining) -> SearchQuestion:
    """The question with the base configuration that ranks of this machine read."""
    base = base_for_ranks(training.question.base, training.question.model, training.plan)
    return replace(training.question, base=base)


def _defaults(asked: RecipeArguments, numbers: Mapping[str, int]) -> ModelDefaults:
    """Defaults of the model; its size follows from the training days on request."""
    budget = Budget(
        gpus=numbers["num_nodes"] * numbers["gpus_per_node"],
        tflops_per_gpu=asked.tflops_per_gpu,
        tokens_b=float(asked.num_tokens_in_b),
    )
    days = float(asked.max_training_days)
    return ModelDefaults(
        vocabulary=asked.vocab_size,
        sequence=numbers["seq_length"],
        gpu_memory_gb=asked.gpu_memory_gb,
        calculated=(lambda family: recommended_size_b(family.name, budget, days))
        if asked.calculate_model_size
        else None,
    )


def _stated_training(asked: RecipeArguments, recipe: Recipe) -> StatedTraining:
    document = recipe.document
    if asked.seq_length is not None and _SEQUENCE in document:
        document = document.with_value(_SEQUENCE, asked.seq_length)
    return StatedTraining(
        document=document,
        is_model_calculated=asked.calculate_model_size,
        data=_plain_paths(asked.data_paths or recipe.get("data_paths", "data.paths")),
        tokenizer=_plain_tokenizer(asked.tokenizer_path or recipe.get("tokenizer_path")),
    )


def _size_note(asked: RecipeArguments, model: ModelQuestion) -> str:
    if not asked.calculate_model_size:
        return ""
    return (
        f"A {model.family.name} model of {model.size_b:g} B is what the machines train on "
        f"{asked.num_tokens_in_b:g} B tokens in {asked.max_training_days:g} days, if each GPU "
        f"achieves {asked.tflops_per_gpu:g} TFLOP/s."
    )


def _left_out_note(recipe: Recipe) -> str:
    paths = recipe.left_out
    if not paths:
        return ""
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    return (
        f"Excluded from the configurations, since they are not data: "
        f"{', '.join(paths[:_MOST_NAMED])}{more}."
    )
