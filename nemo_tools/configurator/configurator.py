"""``AutoConfigurator``: NeMo 2.0's interface to a training search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.core import KeyPath as Keys

from ..report import FINAL_RESULTS, NEMO2, SearchOutcome, SearchRun, top_text, write_nemo2_tables
from ..search import (
    GridKind,
    SearchCandidate,
    SearchQuestion,
    candidate_document,
    layout_edits,
    run_edits,
    training_document,
    whole_from,
)
from .bases import recipe_edits
from .candidates import Candidates, nemo2_candidates, planner_candidates, price_elsewhere
from .model_facts import RunBounds, bound_edits, with_bounds
from .results import expected_run, point_of, read_runs, run_here, seen_here
from .training import (
    RecipeArguments,
    RecipeTraining,
    for_ranks,
    require_paths,
    training_of_recipe,
)

_NEMO_ALONE = (
    "grid=nemo searches as NeMo does: context and expert degrees that are not given are 1, no "
    "layer is recomputed, and there is one global batch; grid=planner searches them."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResults:
    """Both tables of a search, and what they say.

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

    Arguments are those of NeMo 2.0, then those of its guide; ``recipe`` is a YAML file, a
    mapping, or any object with such attributes. An argument wins over the recipe. Sizes that are
    "auto" are searched, context and expert degrees too, which NeMo leaves at 1.

    Attributes:
        recipe: may hold ``model``, ``num_nodes``, ``seq_length``, ``data_paths``,
            ``tokenizer_path``, ``global_batch_size``, or a whole recipe's sections.
        path_to_logs: folder with a folder for each run.
        gpu_memory_gb: of one GPU.
        num_tokens_in_b, max_training_days: of the whole training, for days, cost and sizes.
        max_minutes_per_run, max_steps_per_run: what ends a run of the search.
        vocab_size: where the recipe has none; None is that of a known model, else 32000.
        calculate_model_size: recommend a size for the days instead of the recipe's.
        model: a name (``llama3-8b``), a mapping or an object; None takes the recipe's.
        global_batch_size: None or "auto" searches the one that NeMo recommends, half and twice it.
        grid: ``planner`` is every layout that the planner sees fit, the most promising first;
            ``nemo`` is NeMo's grid where a rule of NeMo's covers the model.
        limit_search_runs: how many of the planner's; 0 takes all.
        usd_per_gpu_hour: None takes a published price of the GPU with this memory.
        notes: what was recommended or assumed, in sentences.

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
                *bound_edits(question.base, one.name, self._bounds(one)),
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
            train_config: runs to look for, by name; None takes all candidates and what else is
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
        document = candidate_document(self._question, one, self._question.nodes)
        return with_bounds(document, one.name, self._bounds(one))

    def _bounds(self, one: SearchCandidate) -> RunBounds:
        return RunBounds(
            log_folder=str(self.logs / one.name),
            max_steps=self.max_steps_per_run,
            max_minutes=self.max_minutes_per_run,
            is_finetune=self.is_finetune,
        )


def _candidates(asked: RecipeArguments, training: RecipeTraining) -> Candidates:
    if training.question.settings.grid is GridKind.PLANNER:
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
