"""``AutoConfigurator``: NeMo 2.0's interface to a training search, and its candidates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.sizing import Grid, NoRule, nemo_grid
from autoconf_launch.core import ConfigError, Degrees, RawConfig, Recompute
from autoconf_launch.core import KeyPath as Keys
from autoconf_launch.launcher.estimates import ChosenPrice
from autoconf_launch.tuning_spaces import grid_rows

from ..candidate_grids import NemoCandidate, nemo2_name, nemo_candidates
from ..report import FINAL_RESULTS, NEMO2, SearchOutcome, SearchRun, top_text, write_nemo2_tables
from ..search import (
    CandidateList,
    GridKind,
    SearchCandidate,
    SearchQuestion,
    candidate_document,
    candidates_of,
    grid_question,
    layout_edits,
    run_edits,
    search_machines,
    training_document,
    whole_from,
)
from .bases import bound_edits, recipe_edits
from .model_facts import GENERATION, is_nemo1
from .results import expected_run, point_of, read_runs, run_here, seen_here
from .training import (
    RecipeArguments,
    RecipeTraining,
    for_ranks,
    require_paths,
    training_of_recipe,
    with_batch,
)

_NEMO_ALONE = (
    "grid=nemo searches as NeMo does: context and expert degrees that are not given are 1, no "
    "layer is recomputed, and there is one global batch; grid=planner searches them."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Candidates that can run, in order, and their training.

    ``training`` has another batch than requested if the recommended batch divides nowhere.
    """

    training: RecipeTraining
    points: tuple[SearchCandidate, ...]
    notes: tuple[str, ...] = ()


def nemo2_candidates(training: RecipeTraining, *, is_finetune: bool) -> Candidates | NoRule:
    """Every valid point of NeMo 2.0's grid, in its order, or the missing rule.

    Args:
        training: the training to speed up, with the user's lists.
        is_finetune: the products of model parallelism then follow from the lists.

    Raises:
        ConfigError: no point divides GPUs, batch, heads and layers.
    """
    question = training.question
    lists = question.scope.degrees
    grid = nemo_grid(grid_rows(GENERATION), grid_question(question), lists)
    if isinstance(grid, NoRule):
        return grid
    if is_finetune:
        grid = _products_of_lists(grid, lists, question.gpus)
    points = _points(grid, question)
    if not points and not training.is_batch_given:
        training = divisible(training)
        points = _points(grid, training.question)
    asked, shape = training.question, training.question.model.shape
    if not points:
        raise ConfigError(
            f"No candidate for {asked.family.name} of {asked.size_b:g} B divides {asked.nodes} x "
            f"{asked.gpus_per_node} GPUs, a global batch of {asked.global_batch}, {shape.heads} "
            f"heads and {shape.layers} layers within the sizes to search; take other sizes, "
            "nodes, or another global_batch_size."
        )
    model = grid_question(asked)
    return Candidates(
        training=training,
        points=tuple(
            SearchCandidate(name=nemo2_name(model, asked.nodes, one), point=one) for one in points
        ),
        notes=(grid.note,) if grid.note else (),
    )


def divisible(training: RecipeTraining) -> RecipeTraining:
    """The training with the nearest batch that all GPUs can share."""
    gpus, recommended = training.question.gpus, training.question.global_batch
    batch = max(1, round(recommended / gpus)) * gpus
    note = f"{recommended} does not divide over {gpus} GPUs; the global batch is {batch}."
    return with_batch(training, batch, note)


def _products_of_lists(grid: Grid, lists: Degrees, gpus: int) -> Grid:
    axes = grid.degrees.mesh_axes
    degrees = replace(
        grid.degrees,
        least_product=lists.least_product or min(gpus, math.prod(map(min, axes))),
        most_product=lists.most_product or min(gpus, math.prod(map(max, axes))),
    )
    return replace(grid, degrees=degrees)


def _points(grid: Grid, question: SearchQuestion) -> tuple[NemoCandidate, ...]:
    found = nemo_candidates(grid, grid_question(question))
    return tuple(sorted(found, key=lambda one: (*one.layout.mesh, one.layout.micro_batch)))


def planner_candidates(training: RecipeTraining, notes: tuple[str, ...] = ()) -> Candidates:
    """Every layout that the planner sees fit, cut to the limit; for any requested grid.

    Args:
        training: the training to speed up.
        notes: the reason for using the planner, before its own notes.

    Raises:
        ConfigError: none divides GPUs and batch, or none fits into memory.
    """
    question = training.question
    try:
        found = _list_candidates(question)
    except ConfigError:
        if training.is_batch_given or question.global_batch % question.gpus == 0:
            raise
        training = divisible(training)
        found = _list_candidates(training.question)
    lists = [found.candidates]
    if not training.is_batch_given and question.scope.grid is GridKind.PLANNER:
        lists += _other_batches(training)
        notes = (*notes, _searched_batches(lists))
    points = tuple(
        _with_nemo2_name(one, training.question)
        for turn in zip_longest(*lists)
        for one in turn
        if one
    )
    limit = question.scope.limit_runs or None
    return Candidates(training=training, points=points[:limit], notes=(*notes, *found.notes))


def _other_batches(training: RecipeTraining) -> Iterator[tuple[SearchCandidate, ...]]:
    question = training.question
    batch = question.global_batch
    for other in (2 * batch, batch // 2):
        samples = replace(question.model.batch, global_batch=other)
        model = replace(question.model, batch=samples)
        try:
            yield _list_candidates(replace(question, model=model)).candidates
        except ConfigError:
            yield ()


def _searched_batches(lists: Sequence[Sequence[SearchCandidate]]) -> str:
    batches = sorted({one.layout.global_batch for listed in lists for one in listed})
    return (
        f"Global batches searched: {', '.join(map(str, batches))}, compared by samples/s. A "
        "larger one has fewer optimizer steps for the same tokens; the learning rate stays."
    )


def price_elsewhere(question: SearchQuestion) -> ChosenPrice | None:
    """Price of a GPU elsewhere: the given one, or one published for this GPU memory."""
    machines = search_machines(question)
    found = machines.price
    if found is None or question.scope.usd_per_gpu_hour is not None:
        return found
    return replace(found, how=f"{machines.gpu} by its memory; {found.how}")


def _with_nemo2_name(one: SearchCandidate, question: SearchQuestion) -> SearchCandidate:
    """The candidate under NeMo 2.0's name of its run, other searched values at the end."""
    name = nemo2_name(grid_question(question), question.nodes, one.point)
    if one.layout.recompute is not Recompute.NONE:
        name += f"_act_ckpt_{one.point.recompute_layers or one.layout.recompute.value}"
    if one.layout.global_batch != question.global_batch:
        name += f"_gbs_{one.layout.global_batch}"
    return replace(one, name=name)


def _list_candidates(question: SearchQuestion) -> CandidateList:
    question = replace(question, scope=replace(question.scope, grid=GridKind.PLANNER))
    machines = search_machines(question)
    note = (
        f"Candidates are ranked for {machines.gpu}, by gpu_memory_gb "
        f"({question.model.asked.gpu_memory_gb:g}); run() measures them on this machine's devices."
    )
    return candidates_of(question, replace(machines, notes=(note,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResults:
    """Both tables of a search, and their contents.

    Attributes:
        summary, failed: files of measured and of failed runs.
        text: the fastest configurations in words, with days and cost.
    """

    outcome: SearchOutcome
    summary: Path
    failed: Path
    text: str


@dataclass(eq=False)
class AutoConfigurator(RecipeArguments):
    """Candidates for a training, their short runs, and the fastest of them.

    Arguments come from NeMo 2.0, then from its guide; ``recipe`` is a YAML file, a mapping, or
    any object with such attributes. An argument wins over the recipe. Sizes that are
    "auto" are searched, context and expert degrees too, which NeMo leaves at 1.

    Attributes:
        recipe: may hold ``model``, ``num_nodes``, ``seq_length``, ``data_paths``,
            ``tokenizer_path``, ``global_batch_size``, or a whole recipe's sections.
        path_to_logs: folder with a folder for each run.
        gpu_memory_gb: of one GPU.
        num_tokens_in_b, max_training_days: of the whole training, for days, cost and sizes.
        max_minutes_per_run, max_steps_per_run: limits of each run of the search.
        vocab_size: if the recipe has none; None: the known model's size, else 32000.
        calculate_model_size: recommend a size for the days instead of the recipe's.
        model: a name (``llama3-8b``), a mapping or an object; None takes the recipe's.
        global_batch_size: None or "auto" searches NeMo's recommendation, half and twice it.
        grid: ``planner`` is every layout that the planner sees fit, the most promising first;
            ``nemo`` is NeMo's grid if a rule of NeMo's covers the model.
        limit_search_runs: how many of the planner's; 0 takes all.
        usd_per_gpu_hour: None takes a published price of the GPU with this memory.
        notes: recommended or assumed values, in sentences.

    Raises:
        ConfigError: a value is wrong, missing, or names nothing that is there.
    """

    notes: tuple[str, ...] = field(default=(), init=False, repr=False)
    _found: SearchOutcome | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.check()
        self._candidates = _candidates(self, training_of_recipe(self))
        self.notes = (*self._question.notes, *self._candidates.notes)

    def generate_configs(self) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """The base configuration, and each candidate's by the name of its run."""
        found = {one.name: self._config(one).to_dict() for one in self._candidates.points}
        return self._question.base.to_dict(), found

    def base_edits(self) -> tuple[tuple[Keys, Any], ...]:
        """Differences of the base configuration from the recipe, by path."""
        training = self._candidates.training
        return tuple(recipe_edits(training.given, training.question.model, training.plan))

    def edits(self) -> dict[str, tuple[tuple[Keys, Any], ...]]:
        """Differences of each candidate from the recipe, by the name of its run."""
        question, base = self._question, self.base_edits()
        return {
            one.name: (
                *base,
                *layout_edits(question, one),
                *run_edits(question, one, question.nodes),
                *self._bounds(one),
            )
            for one in self._candidates.points
        }

    def run(self) -> SearchOutcome:
        """Run the candidates on this machine and write ``final_results`` below the logs.

        Each run ends by ``max_steps_per_run`` or ``max_minutes_per_run``, whichever comes first;
        the fastest are measured again. What is trained on is a text made at run time, not
        ``data_paths``. An earlier run of the same is gone on with.

        Raises:
            ConfigError: the recipe is for several nodes, data or tokenizer are missing, or no
                candidate can run here.
            NothingFeasibleError: this machine cannot hold the model.
            HardwareError: this machine has not as many GPUs.
        """
        training = self._candidates.training
        require_paths(training.given.data, training.given.tokenizer)
        self._found = run_here(for_ranks(training), self._candidates.points, self.trainings)
        return self._found

    def get_results(
        self,
        base_config: Mapping[str, Any] | None = None,
        train_config: Mapping[str, Mapping[str, Any]] | None = None,
        path_to_save: str | Path | None = None,
        output_top_n: int = 10,
        log_file_prefix: str = "log-",
    ) -> SearchResults:
        """Write both tables, of :meth:`run` or of TensorBoard's files below ``path_to_logs``.

        An earlier run on this machine is read from its journal.

        Args:
            base_config: not needed; NeMo 2.0's call has it.
            train_config: runs to look for, by name; None takes all candidates and whatever else is
                in the logs.
            path_to_save: folder of the tables; None is ``final_results/nemo2`` in the logs.
            output_top_n: how many configurations the text lists; 0 lists all.
            log_file_prefix: how names of a failed run's logs begin, for its reason.

        Raises:
            ConfigError: TensorBoard's package is needed and not installed.
            ResultsFolderError: the folder cannot be written.
        """
        folder = Path(path_to_save or self.logs / FINAL_RESULTS / NEMO2)
        top = whole_from(0).read("output_top_n", output_top_n)
        expected = list(
            self._expected_runs()
            if train_config is None
            else _given_runs(self._question, train_config)
        )
        found = self._found or seen_here(
            for_ranks(self._candidates.training), self._candidates.points, self.trainings
        )
        if found is None:
            found = read_runs(
                self._question,
                self.logs,
                expected,
                log_prefix=log_file_prefix,
                price=price_elsewhere(self._question),
                with_others=train_config is None,
            )
        elif train_config is not None:
            names = {one.name for one in expected}
            found = replace(found, runs=tuple(run for run in found.runs if run.name in names))
        summary, failed = write_nemo2_tables(folder, found)
        return SearchResults(
            outcome=found, summary=summary, failed=failed, text=top_text(found, top)
        )

    @property
    def _question(self) -> SearchQuestion:
        return self._candidates.training.question

    @property
    def trainings(self) -> dict[str, RawConfig]:
        """Each candidate's whole training by the name of its run: without a run's limits."""
        return {one.name: one.config for one in self._expected_runs()}

    def _expected_runs(self) -> Iterator[SearchRun]:
        question = self._question
        for one in self._candidates.points:
            config = training_document(question, one)
            yield expected_run(question, one.name, one.point, config)

    def _config(self, one: SearchCandidate) -> RawConfig:
        question = self._question
        document = candidate_document(question, one, question.nodes).with_values(self._bounds(one))
        return document if is_nemo1(question.base) else document.without(("run",))

    def _bounds(self, one: SearchCandidate) -> Iterator[tuple[Keys, Any]]:
        folder = self.logs / one.name
        return bound_edits(self._question, one.name, folder, is_finetune=self.is_finetune)


def _candidates(asked: RecipeArguments, training: RecipeTraining) -> Candidates:
    if training.question.scope.grid is GridKind.PLANNER:
        return planner_candidates(training)
    found = nemo2_candidates(training, is_finetune=asked.is_finetune)
    if isinstance(found, Candidates):
        return replace(found, notes=(_NEMO_ALONE, *found.notes))
    return planner_candidates(training, notes=(found.sentence,))


def _given_runs(
    question: SearchQuestion, train_config: Mapping[str, Mapping[str, Any]]
) -> Iterator[SearchRun]:
    for name, document in train_config.items():
        point = point_of(name)
        if point is None:
            raise ConfigError(
                f"train_config has a run {name!r}, whose name does not say its degrees; name it "
                "as generate_configs does (…_tp_1_pp_1_cp_1_ep_1_mbs_4_vp_None)."
            )
        yield expected_run(question, name, point, RawConfig(document))
