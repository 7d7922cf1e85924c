"""Metrics over steps: bounded, averaged, in any order."""

import math

import pytest

from skyward_nb.view.series import MOST_POINTS, Series, extended, mean_of, thinned


def test_few_points_are_kept_as_they_are():
    series = extended(Series(), [(0, 3.0), (1, 2.0), (5, 1.0)])
    assert (series.steps, series.means, series.stride) == ((0, 1, 5), (3.0, 2.0, 1.0), 1)


def test_a_step_told_twice_is_averaged():
    assert extended(Series(), [(0, 1.0), (0, 3.0)]).means == (2.0,)


def test_steps_may_come_in_any_order_and_below_zero():
    series = extended(extended(Series(), [(3, 3.0)]), [(-2, 2.0), (1, 1.0)])
    assert (series.steps, series.means) == ((-2, 1, 3), (2.0, 1.0, 3.0))


def test_a_hundred_thousand_points_stay_few_and_true():
    series = Series()
    for start in range(0, 100_000, 1000):
        series = extended(series, [(i, float(i)) for i in range(start, start + 1000)])
    assert MOST_POINTS / 2 <= len(series.steps) <= MOST_POINTS
    assert sum(series.counts) == 100_000
    middle = (series.stride - 1) / 2
    for step, mean in zip(series.steps[:-1], series.means[:-1], strict=True):
        assert mean == pytest.approx(step + middle)


def test_far_steps_cost_no_more():
    series = extended(Series(), [(10**12 * i, 1.0) for i in range(5000)])
    assert len(series.steps) <= MOST_POINTS
    assert sum(series.counts) == 5000


def test_what_is_not_finite_is_counted_and_not_drawn():
    series = extended(Series(), [(0, 1.0), (1, math.nan), (2, math.inf)])
    assert (series.steps, series.missing) == ((0,), 2)


def test_the_mean_counts_every_rank_the_same():
    slow = extended(Series(), [(0, 4.0)])
    fast = extended(Series(), [(0, 0.0), (0, 0.0), (1, 1.0)])
    mean = mean_of([slow, fast])
    assert (mean.steps, mean.means) == ((0, 1), (2.0, 1.0))


def test_ranks_of_different_strides_have_a_mean():
    long = extended(Series(), [(i, 1.0) for i in range(10_000)])
    short = extended(Series(), [(i, 3.0) for i in range(100)])
    mean = mean_of([long, short])
    assert mean.means[0] == pytest.approx(2.0)
    assert mean.means[-1] == pytest.approx(1.0)


def test_a_thinned_series_has_the_same_values_in_fewer_points():
    series = extended(Series(), [(i, float(i)) for i in range(300)])
    thin = thinned(series, 40)
    assert len(thin.steps) <= 40
    assert sum(thin.counts) == 300
    assert thinned(series, 400) is series
