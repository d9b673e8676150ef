"""What ``AutoConfigurator`` was asked, as one value: the question that a search answers.

Not: candidates (candidates), nor runs (here).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from autoconf_launch.autotuner.sizing import ChosenModel, RunPlan, run_name
from autoconf_launch.core import RawConfig

from ..search import (
    ClusterKind,
    ClusterSettings,
    DescribedModel,
    PathSettings,
    SearchQuestion,
    SearchSettings,
    TrainSettings,
    WandbSettings,
    number,
    whole_number,
)
from .arguments import (
    Arguments,
    Machines,
    SearchBounds,
    calculated,
    given_batch,
    notes_on_size,
    plain_paths,
    plain_tokenizer,
)
from .bases import StatedTraining, base_for_ranks, base_of, chosen_model, table_batch
from .model_facts import ModelDefaults, model_facts
from .recipe import Recipe, read_recipe

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
        model: of the question, with its counts.
        given: by recipe and arguments.
        is_batch_given: whether the user chose the global batch.
    """

    question: SearchQuestion
    model: ChosenModel
    given: StatedTraining
    is_batch_given: bool

    @property
    def plan(self) -> RunPlan:
        """Machines, days, tokens and steps."""
        return _plan(self.question.settings.train, self.given)


def training_of_recipe(asked: Arguments, bounds: SearchBounds) -> RecipeTraining:
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
        calculated=calculated(asked, machines.gpus),
    )
    facts, given, samples = (
        model_facts(recipe, usual),
        _given(asked, recipe),
        given_batch(asked, recipe),
    )
    batch = table_batch(facts, asked.gpu_memory_gb)
    if samples is not None:
        batch = replace(batch, global_batch=samples, note="")
    model = chosen_model(facts, given, batch, asked.gpu_memory_gb)
    settings = _settings(asked, bounds, _train(asked, bounds, machines, model))
    notes = (
        *(machines.note, *notes_on_size(asked, facts.family, facts.size_b)),
        *(*facts.notes, _left_out_note(recipe)),
    )
    base = base_of(given, model, _plan(settings.train, given))
    training = RecipeTraining(
        question=_question(settings, model, base, tuple(note for note in notes if note)),
        model=model,
        given=given,
        is_batch_given=samples is not None,
    )
    return training if samples is not None else _recommended(training)


def with_batch(training: RecipeTraining, batch: int, note: str) -> RecipeTraining:
    """The same with another global batch, as many steps as its tokens need, and a note on it."""
    model, question = training.model, training.question
    changed = replace(
        model,
        asked=replace(model.asked, batch=batch),
        batch=replace(model.batch, global_batch=batch, note=""),
    )
    base = base_of(training.given, changed, training.plan)
    train = replace(question.settings.train, global_batch=batch)
    settings = replace(question.settings, train=train)
    notes = (*question.notes, note)
    return replace(training, question=_question(settings, changed, base, notes), model=changed)


def for_ranks(training: RecipeTraining) -> SearchQuestion:
    """The question with the base configuration that ranks of this machine read."""
    base = base_for_ranks(training.question.base, training.model, training.plan)
    return replace(training.question, base=base)


def _recommended(training: RecipeTraining) -> RecipeTraining:
    """With a note on the batch that nobody gave."""
    table = training.model.batch
    said = f". {table.note}" if table.note else ", as NeMo 2.0 has for this size."
    note = f"No global batch was given: {table.global_batch}{said}"
    question = training.question
    return replace(training, question=replace(question, notes=(*question.notes, note)))


def _given(asked: Arguments, recipe: Recipe) -> StatedTraining:
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
    asked, shape = model.asked, model.shape
    return SearchQuestion(
        settings=settings,
        family=asked.family,
        size_b=asked.size_b,
        name=run_name(asked.family.name, asked.size_b),
        base=base,
        model=DescribedModel(
            layers=shape.layers,
            hidden=shape.hidden,
            heads=shape.heads,
            ffn=shape.ffn,
            global_batch=model.batch.global_batch,
            method=None,
        ),
        architecture=model.architecture,
        nodes=settings.train.nodes,
        gpus_per_node=settings.train.gpus_per_node,
        notes=notes,
    )


def _settings(asked: Arguments, bounds: SearchBounds, train: TrainSettings) -> SearchSettings:
    """Those of a search on this machine, which asks for no tracker and no container."""
    return SearchSettings(
        choice=f"{train.family}/{_CHOICE}",
        train=train,
        cluster=ClusterSettings(kind=ClusterKind.LOCAL, usd_per_gpu_hour=asked.usd_per_gpu_hour),
        paths=PathSettings(
            tool=None, results=str(bounds.logs), data=None, container=None, mounts=()
        ),
        wandb=WandbSettings(enabled=False, key_file=None, project=None),
        grid=bounds.grid,
        runs_training=True,
        runs_inference=False,
        given=frozenset(),
        notes=(),
    )


def _train(
    asked: Arguments, bounds: SearchBounds, machines: Machines, model: ChosenModel
) -> TrainSettings:
    return TrainSettings(
        family=model.asked.family.name,
        size_b=model.asked.size_b,
        nodes=machines.nodes,
        gpus_per_node=machines.gpus_per_node,
        gpu_memory_gb=asked.gpu_memory_gb,
        max_days=number("max_training_days", asked.max_training_days),
        limit_runs=bounds.limit_runs,
        top_n=_TOP,
        max_steps=bounds.max_steps,
        max_minutes=bounds.max_minutes,
        tflops_per_gpu=asked.tflops_per_gpu,
        tokens_b=number("num_tokens_in_b", asked.num_tokens_in_b),
        vocabulary=model.asked.vocabulary,
        sequence=model.asked.sequence,
        global_batch=model.batch.global_batch,
        custom_config=None,
        logs=bounds.logs,
        search_nodes=machines.nodes,
        degrees=bounds.degrees,
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
