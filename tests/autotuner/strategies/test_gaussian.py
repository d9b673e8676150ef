import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.strategies.gaussian import fit_process

LINE = np.arange(8.0)[:, None]
"""Features of two measured rows, then of six others that lie ever further away."""


def test_a_row_near_a_measured_one_is_believed_to_be_like_it() -> None:
    belief = fit_process(LINE, np.array([0.0, 0.3]), spread=0.2)
    assert belief.mean_C[0] > belief.mean_C[5] > 0


def test_a_row_far_away_is_less_sure() -> None:
    belief = fit_process(LINE, np.array([0.0, 0.3]), spread=0.2)
    assert (np.diff(belief.spread_C) > 0).all()


def test_a_row_that_counts_as_measured_is_surer_and_so_are_its_neighbours() -> None:
    before = fit_process(LINE, np.array([0.0, 0.1]), spread=0.2)
    after = before.after(2)
    change = before.spread_C - after.spread_C
    assert np.argmax(change) == 2
    assert (change > 0).all()


def test_a_row_that_counts_as_measured_changes_no_expectation() -> None:
    before = fit_process(LINE, np.array([0.0, 0.1]), spread=0.2)
    assert np.array_equal(before.mean_C, before.after(2).mean_C)


def test_measurements_that_agree_make_all_rows_surer() -> None:
    few, many = np.arange(4.0)[:, None], np.arange(12.0)[:, None]
    far = fit_process(np.vstack([few, [[50.0]]]), np.zeros(4), spread=0.2)
    sure = fit_process(np.vstack([many, [[50.0]]]), np.zeros(12), spread=0.2)
    assert sure.scale < far.scale < 0.2**2


def test_measurements_that_disagree_make_all_rows_less_sure() -> None:
    wild = np.array([0.0, 2.0, -2.0, 2.0])
    assert fit_process(LINE, wild, spread=0.2).scale > 0.2**2


def test_one_factor_for_all_rows_leaves_the_scale_as_it_is() -> None:
    belief = fit_process(LINE, np.full(3, np.log(3.0)), spread=0.2)
    assert belief.scale < 0.2**2
    assert np.allclose(belief.mean_C, np.log(3.0), atol=0.05)


def test_rows_without_features_share_what_they_have_in_common() -> None:
    belief = fit_process(np.zeros((3, 0)), np.array([0.1, 0.1]), spread=0.2)
    assert 0 < belief.mean_C[0] < 0.1


@given(
    st.lists(st.floats(-3, 3), min_size=1, max_size=12),
    st.lists(st.floats(-20, 20), min_size=13, max_size=13),
)
def test_beliefs_are_finite(targets: list[float], places: list[float]) -> None:
    features = np.array(places)[:, None]
    belief = fit_process(features, np.array(targets), spread=0.1)
    for _ in range(5):
        belief = belief.after(0)
    assert np.isfinite(belief.mean_C).all()
    assert (belief.spread_C > 0).all()
