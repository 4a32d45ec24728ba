"""The Gaussian process behind the sampler, against finite differences and scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from cbe.study.search.gaussian_process import GaussianProcess

Array = np.ndarray[Any, Any]
GROUPS = np.array([0, 1, 2, 2])  # the last two coordinates are of one parameter


def data(count: int = 25, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    places = rng.random((count, len(GROUPS)))
    return places, np.sin(3 * places[:, 0]) + places[:, 1] ** 2 - places[:, 2] * places[:, 3]


def fitted(theta: Array, more_noise: Array | None = None) -> GaussianProcess:
    """One with given hyperparameters, in logarithms."""
    places, values = data()
    model = GaussianProcess(GROUPS)
    model._theta = theta
    noise = np.ones(len(values)) if more_noise is None else more_noise
    return model.fit(places, values, noise, keep=True)


THETA = np.log([0.5, 1.2, 2.0, 1.5, 0.05])  # three length scales, signal, noise


def test_the_gradient_of_the_loss_agrees_with_finite_differences() -> None:
    model = fitted(THETA, np.where(np.arange(25) % 3, 1.0, 4.0))
    for theta in (THETA, THETA + 0.7, THETA - 0.4):
        _, gradient = model._loss(theta)
        assert gradient == pytest.approx(approx_fprime(theta, lambda at: model._loss(at)[0], 1e-6), rel=1e-3)


@pytest.mark.parametrize("noisier", [False, True])
def test_predictions_agree_with_scikit_learn(noisier: bool) -> None:
    places, values = data()
    more = np.where(np.arange(25) % 3, 1.0, 4.0) if noisier else np.ones(25)
    scales, signal, noise = np.exp(THETA[:-2]), np.exp(THETA[-2]), np.exp(THETA[-1])
    kernel = ConstantKernel(signal, "fixed") * Matern(scales[GROUPS], "fixed", nu=2.5)
    theirs = GaussianProcessRegressor(kernel, alpha=noise * more + 1e-8, optimizer=None, normalize_y=True)
    theirs.fit(places, values)
    others, _ = data(40, seed=1)
    mean, deviation = theirs.predict(others, return_std=True)
    found = fitted(THETA, more).predict(others)
    assert found[0] == pytest.approx(mean) and found[1] == pytest.approx(deviation)


def test_predictions_pass_through_values_without_noise_and_are_sure_there() -> None:
    places, values = data()
    mean, deviation = fitted(np.log([0.5, 1.2, 2.0, 1.5, 1e-6])).predict(places)
    assert mean == pytest.approx(values, abs=1e-3) and deviation.max() < 0.01


def test_far_from_all_values_the_prediction_is_their_mean() -> None:
    _, values = data()
    mean, deviation = fitted(THETA).predict(np.full((1, 4), 1e3))
    assert mean == pytest.approx(values.mean())
    assert deviation == pytest.approx(values.std() * np.sqrt(1.5))


def test_a_fit_predicts_what_it_has_not_seen_and_finds_what_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    places = rng.random((80, 2))
    values = np.sin(6 * places[:, 0]) + 0.05 * rng.standard_normal(80)
    model = GaussianProcess(np.array([0, 1])).fit(places[:60], values[:60], np.ones(60))
    mean, _ = model.predict(places[60:])
    assert np.abs(mean - values[60:]).mean() < 0.15
    scales, *_ = model._hyperparameters()
    assert scales[1] > 2 * scales[0]


def test_a_noisier_value_counts_for_less() -> None:
    place = np.array([[0.5]])
    model = GaussianProcess(np.array([0]))
    both = np.vstack([place, place])
    mean, _ = model.fit(both, np.array([0.0, 1.0]), np.array([1.0, 4.0]), keep=True).predict(place)
    assert mean[0] < 0.3


@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0], [0.1, 0.1, 0.1]])
def test_values_that_are_all_the_same_are_predicted(values: list[float]) -> None:
    places = np.array([[0.1], [0.5], [0.9]])
    mean, deviation = GaussianProcess(np.array([0])).fit(places, np.array(values), np.ones(3)).predict(places)
    assert mean == pytest.approx(values) and np.isfinite(deviation).all()
