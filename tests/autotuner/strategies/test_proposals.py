import math
from importlib.metadata import EntryPoint, EntryPoints

import numpy as np
import pytest

from autoconf_launch.autotuner import (
    OBJECTIVES,
    CandidateTable,
    Measurement,
    Prediction,
    PredictionTable,
    Record,
    Trial,
    load_strategy,
    strategies,
)
from autoconf_launch.core import Candidate, Layout

SEED = 0


def candidate(micro: int) -> Candidate:
    return Candidate(layout=Layout(micro_batch=micro))


def pool(*micro_batches: int) -> CandidateTable:
    return CandidateTable.from_candidates([candidate(micro) for micro in micro_batches])


def measured(number: int, micro: int, step_s: float, predicted_s: float | None = None) -> Record:
    trial = Trial(number=number, name=str(number), candidate=candidate(micro), space="z0")
    return Record(
        trial=trial,
        outcome=Measurement(step_s=(step_s,), samples_per_step=micro, world_size=1),
        wall_s=0.0,
        prediction=Prediction(peak_bytes=None, step_s=predicted_s, band=None, how=""),
    )


def predictions(*steps_s: float) -> PredictionTable:
    unknown = np.full(len(steps_s), math.nan)
    return PredictionTable(
        peak_bytes_C=unknown, step_s_C=np.array(steps_s, float), band=None, how=""
    )


def test_grid_search_takes_the_pool_in_order() -> None:
    assert load_strategy("gridsearch").propose(pool(3, 1, 2), None, (), (), 2, SEED) == (0, 1)


def test_random_search_draws_anew_for_each_trial() -> None:
    history = [tuple(measured(n, 99, 1.0) for n in range(count)) for count in range(6)]
    search = load_strategy("random")
    firsts = {search.propose(pool(*range(1, 9)), None, h, (), 1, SEED) for h in history}
    assert len(firsts) > 1


def test_the_model_begins_with_the_best_predicted_cost_of_a_sample() -> None:
    found = load_strategy("model_based").propose(
        pool(1, 2, 4), predictions(1.0, 1.5, 4.0), (), (), 3, SEED
    )
    assert found == (1, 0, 2)


def test_the_model_begins_with_the_shortest_step_where_latency_counts() -> None:
    search = load_strategy("model_based", OBJECTIVES["latency"])
    assert search.propose(pool(1, 2, 4), predictions(1.0, 1.5, 4.0), (), (), 3, SEED) == (0, 1, 2)


def test_without_predictions_the_model_begins_in_order() -> None:
    assert load_strategy("model_based").propose(pool(4, 2, 1), None, (), (), 3, SEED) == (0, 1, 2)


def test_the_model_learns_which_side_is_faster() -> None:
    history = tuple(measured(n, micro, 1.0) for n, micro in enumerate((1, 2, 4, 8, 16, 32)))
    found = load_strategy("model_based").propose(pool(3, 12, 64), None, history, (), 3, SEED)
    assert found == (2, 1, 0)


def test_the_model_keeps_a_prediction_that_is_wrong_by_one_factor() -> None:
    history = tuple(
        measured(n, micro, 3.0 * predicted_s, predicted_s)
        for n, (micro, predicted_s) in enumerate(((1, 1.0), (2, 1.0), (4, 4.0)))
    )
    found = load_strategy("model_based").propose(
        pool(8, 16, 32), predictions(9.0, 14.0, 40.0), history, (), 3, SEED
    )
    assert found == (1, 0, 2)


def test_other_packages_add_strategies_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint(
        name="theirs",
        value="autoconf_launch.autotuner.strategies.grid:GridSearch",
        group=strategies.ENTRY_POINTS,
    )
    monkeypatch.setattr(strategies, "entry_points", lambda group: EntryPoints([entry]))
    assert load_strategy("theirs").propose(pool(1), None, (), (), 1, SEED) == (0,)
