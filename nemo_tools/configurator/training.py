"""``AutoConfigurator``'s arguments as one value: the question that a search answers.

Machines, days and bounds of the search are read here; the model by model_facts. Not: candidates
(candidates), nor runs (results).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from autoconf_launch.autotuner.sizing import (
    Budget,
    ChosenModel,
    Family,
    ModelQuestion,
    RunPlan,
    recommended_size_b,
)
from autoconf_launch.core import ConfigError, Degrees, RawConfig, nearest_known
from autoconf_launch.launcher.request import TrackingChoice

from ..search import (
    ClusterKind,
    ClusterSettings,
    GridKind,
    PathSettings,
    SearchQuestion,
    SearchSettings,
    TrainSettings,
    is_whole,
    number,
    whole_number,
)
from .bases import StatedTraining, base_for_ranks, base_of, chosen_model, table_batch
from .model_facts import ModelDefaults, model_facts
from .recipe import Recipe, read_recipe

if TYPE_CHECKING:
    from .configurator import AutoConfigurator

AUTO = "auto"
Sizes: TypeAlias = "Sequence[int] | str | None"
_DATA_SUFFIXES = ("", ".bin", ".idx")
"""Megatron's data sets are named by the part of their files' names before the suffix."""


def sizes(name: str, value: object) -> tuple[int, ...] | None:
    """A list of sizes, each once; None for "auto" and None.

    Raises:
        ConfigError: it is neither.
    """
    if value is None or value == AUTO:
        return None
    listed = tuple(value) if isinstance(value, (list, tuple, range)) else ()
    if listed and all(is_whole(one, 1) for one in listed):
        return tuple(dict.fromkeys(listed))
    raise ConfigError(
        f'{name} is {value!r}, but must be "auto" or a list of whole numbers of at least 1, such '
        "as [1, 2, 4]."
    )


def size(name: str, value: object) -> int | None:
    """A checked size; None for "auto" and None.

    Raises:
        ConfigError: it is neither.
    """
    return None if value is None or value == AUTO else whole_number(name, value)


def one_of(name: str, value: object, known: Iterable[str]) -> str:
    """The value, checked to be one of the known words.

    Raises:
        ConfigError: it is another.
    """
    words = tuple(known)
    if isinstance(value, str) and value in words:
        return value
    raise ConfigError(f"{name} is {value!r}; {nearest_known(str(value), words)}")


def plain_paths(value: object) -> Any:
    """Paths of data as documents hold them: a text, a list or a mapping; None without any.

    Raises:
        ConfigError: the value is none of these.
    """
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return value
    if isinstance(value, (str, Path)):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain_paths(inner) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [plain_paths(inner) for inner in value]
    raise ConfigError(f"data_paths is {value!r}, but must be a path, a list or a mapping.")


def plain_tokenizer(value: object) -> str | None:
    """A path as a text, or None.

    Raises:
        ConfigError: it is neither.
    """
    if value is None or isinstance(value, (str, Path)):
        return None if value is None else str(value)
    raise ConfigError(f"tokenizer_path is {value!r}, but must be a file or a folder.")


def require_paths(data: Any, tokenizer: str | None) -> None:
    """See that data and tokenizer are there; weights between paths are skipped.

    Raises:
        ConfigError: one does not exist.
    """
    for path in _paths(data):
        if not any(Path(f"{path}{suffix}").exists() for suffix in _DATA_SUFFIXES):
            raise ConfigError(
                f"data_paths names {path}, which does not exist (nor {path}.bin); give data that "
                "is there."
            )
    if tokenizer is not None and not Path(tokenizer).exists():
        raise ConfigError(f"tokenizer_path is {tokenizer}, but there is no such file or folder.")


def _paths(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield from () if _is_weight(data) else (data,)
    elif isinstance(data, (dict, list)):
        for inner in data.values() if isinstance(data, dict) else data:
            yield from _paths(inner)


def _is_weight(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


class Machines:
    """Nodes, GPUs and tokens of a sample; ``note`` says which of them nobody gave."""

    def __init__(self, asked: AutoConfigurator, recipe: Recipe) -> None:
        self._assumed: list[str] = []
        found = recipe.whole("num_nodes", "trainer.num_nodes")
        self.nodes = self._given_or_found("num_nodes", asked.num_nodes, found, 1)
        found = recipe.whole("gpus_per_node", "trainer.devices", "num_gpus_per_node")
        self.gpus_per_node = self._given_or_found("gpus_per_node", asked.gpus_per_node, found, 8)
        found = recipe.whole(
            *("seq_length", "data.seq_length", "model.config.seq_length", "model.seq_length"),
            *("model.encoder_seq_length", "model.data.seq_length"),
        )
        self.sequence = self._given_or_found("seq_length", asked.seq_length, found, 2048)

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return self.nodes * self.gpus_per_node

    @property
    def note(self) -> str:
        """The assumptions as a sentence; "" if there are none."""
        if not self._assumed:
            return ""
        return f"Not given, so assumed: {', '.join(self._assumed)}."

    def _given_or_found(self, name: str, given: int | None, found: int | None, usual: int) -> int:
        if given is not None:
            return whole_number(name, given)
        if found is None:
            self._assumed.append(f"{name} {usual}")
        return found or usual


def given_batch(asked: AutoConfigurator, recipe: Recipe) -> int | None:
    """Samples of a step by the argument, else by the recipe; None where neither has them.

    Raises:
        ConfigError: it is not a whole number.
    """
    value = asked.global_batch_size
    if value not in (None, AUTO):
        return whole_number("global_batch_size", value)
    return recipe.whole("global_batch_size", "data.global_batch_size", "model.global_batch_size")


def size_calculator(asked: AutoConfigurator, gpus: int) -> Callable[[Family], float] | None:
    """Function that sizes a family for the training days; None if the size is given.

    Raises:
        ConfigError: a number of the formula is none; calling it, the budget gives no size.
    """
    if not asked.calculate_model_size:
        return None
    budget = Budget(
        gpus=gpus,
        tflops_per_gpu=number("tflops_per_gpu", asked.tflops_per_gpu),
        tokens_b=number("num_tokens_in_b", asked.num_tokens_in_b),
    )
    days = number("max_training_days", asked.max_training_days)
    return lambda family: recommended_size_b(family.name, budget, days)


def notes_on_size(asked: AutoConfigurator, model: ModelQuestion) -> Iterator[str]:
    """Why the model has this size, where it was calculated."""
    if asked.calculate_model_size:
        yield (
            f"A {model.family.name} model of {model.size_b:g} B is what the machines train on "
            f"{asked.num_tokens_in_b:g} B tokens in {asked.max_training_days:g} days, if each GPU "
            f"achieves {asked.tflops_per_gpu:g} TFLOP/s."
        )


_CHOICE = "recipe"
_TOP = 10
_MOST_NAMED = 8
_SEQUENCE = ("model", "config", "seq_length")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeTraining:
    """The training that is to be made fast.

    Attributes:
        question: its base is in the recipe's own layout, or in that of NeMo 2.0; its notes say
            what was assumed and recommended, and what no rule covers.
        given: by recipe and arguments.
        is_batch_given: whether the user chose the global batch.
    """

    question: SearchQuestion
    given: StatedTraining
    is_batch_given: bool

    @property
    def plan(self) -> RunPlan:
        """Machines, days, tokens and steps."""
        return _plan(self.question.settings.train, self.given)


def training_of_recipe(asked: AutoConfigurator, degrees: Degrees) -> RecipeTraining:
    """Read recipe and arguments; an argument wins over the recipe.

    Raises:
        ConfigError: a value is wrong, or nothing says which model is trained.
    """
    recipe = read_recipe(asked.recipe, asked.model)
    machines = Machines(asked, recipe)
    usual = ModelDefaults(
        vocabulary=None
        if asked.vocab_size is None
        else whole_number("vocab_size", asked.vocab_size),
        sequence=machines.sequence,
        gpu_memory_gb=number("gpu_memory_gb", asked.gpu_memory_gb),
        calculated=size_calculator(asked, machines.gpus),
    )
    facts, given = model_facts(recipe, usual), _stated_training(asked, recipe)
    batch, samples = table_batch(facts), given_batch(asked, recipe)
    if samples is not None:
        batch = replace(batch, global_batch=samples, note="")
    model = chosen_model(facts, given, batch)
    settings = _settings(asked, _train(asked, degrees, machines, model))
    notes = (
        *(machines.note, *notes_on_size(asked, facts.asked)),
        *(*facts.notes, _left_out_note(recipe)),
    )
    base = base_of(given, model, _plan(settings.train, given))
    training = RecipeTraining(
        question=_question(settings, model, base, tuple(note for note in notes if note)),
        given=given,
        is_batch_given=samples is not None,
    )
    return training if samples is not None else _with_batch_note(training)


def with_batch(training: RecipeTraining, batch: int, note: str) -> RecipeTraining:
    """The training with another global batch, the steps that its tokens need, and a note."""
    model, question = training.question.model, training.question
    changed = replace(
        model,
        asked=replace(model.asked, batch=batch),
        batch=replace(model.batch, global_batch=batch, note=""),
    )
    base = base_of(training.given, changed, training.plan)
    train = replace(question.settings.train, global_batch=batch)
    settings = replace(question.settings, train=train)
    notes = (*question.notes, note)
    return replace(training, question=_question(settings, changed, base, notes))


def for_ranks(training: RecipeTraining) -> SearchQuestion:
    """The question with the base configuration that ranks of this machine read."""
    base = base_for_ranks(training.question.base, training.question.model, training.plan)
    return replace(training.question, base=base)


def _with_batch_note(training: RecipeTraining) -> RecipeTraining:
    """The training with a note on the batch that nobody gave."""
    table = training.question.model.batch
    said = f". {table.note}" if table.note else ", as NeMo 2.0 has for this size."
    note = f"No global batch was given: {table.global_batch}{said}"
    question = training.question
    return replace(training, question=replace(question, notes=(*question.notes, note)))


def _stated_training(asked: AutoConfigurator, recipe: Recipe) -> StatedTraining:
    document = recipe.document
    if asked.seq_length is not None and _SEQUENCE in document:
        document = document.with_value(_SEQUENCE, asked.seq_length)
    return StatedTraining(
        document=document,
        is_model_calculated=asked.calculate_model_size,
        data=plain_paths(asked.data_paths or recipe.get("data_paths", "data.paths")),
        tokenizer=plain_tokenizer(asked.tokenizer_path or recipe.get("tokenizer_path")),
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


def _question(
    settings: SearchSettings, model: ChosenModel, base: RawConfig, notes: tuple[str, ...]
) -> SearchQuestion:
    return SearchQuestion(
        settings=settings,
        model=model,
        base=base,
        nodes=settings.train.nodes,
        gpus_per_node=settings.train.gpus_per_node,
        notes=notes,
    )


def _settings(asked: AutoConfigurator, train: TrainSettings) -> SearchSettings:
    """Settings of a search on this machine, which asks for no tracker and no container."""
    return SearchSettings(
        choice=f"{train.family}/{_CHOICE}",
        train=train,
        cluster=ClusterSettings(kind=ClusterKind.LOCAL, usd_per_gpu_hour=asked.usd_per_gpu_hour),
        paths=PathSettings(
            tool=None, results=str(asked.logs.absolute()), data=None, container=None, mounts=()
        ),
        tracking=TrackingChoice(),
        grid=GridKind(asked.grid),
        runs_training=True,
        runs_inference=False,
        given=frozenset(),
        notes=(),
    )


def _train(
    asked: AutoConfigurator, degrees: Degrees, machines: Machines, model: ChosenModel
) -> TrainSettings:
    return TrainSettings(
        family=model.asked.family.name,
        size_b=model.asked.size_b,
        nodes=machines.nodes,
        gpus_per_node=machines.gpus_per_node,
        gpu_memory_gb=asked.gpu_memory_gb,
        max_days=number("max_training_days", asked.max_training_days),
        limit_runs=asked.limit_search_runs,
        top_n=_TOP,
        max_steps=asked.max_steps_per_run,
        max_minutes=asked.max_minutes_per_run,
        tflops_per_gpu=asked.tflops_per_gpu,
        tokens_b=number("num_tokens_in_b", asked.num_tokens_in_b),
        vocabulary=model.asked.vocabulary,
        sequence=model.asked.sequence,
        global_batch=model.batch.global_batch,
        custom_config=None,
        logs=asked.logs.absolute(),
        search_nodes=machines.nodes,
        degrees=degrees,
    )


def _plan(train: TrainSettings, given: StatedTraining) -> RunPlan:
    assert train.max_days is not None
    return RunPlan(
        days=train.max_days,
        nodes=train.nodes,
        gpus_per_node=train.gpus_per_node,
        tokens_b=train.tokens_b,
        max_steps=given.max_steps,
    )
