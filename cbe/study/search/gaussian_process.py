"""A Gaussian process over points of a search space, small enough to be fitted between two trials.

Its kernel is Matérn 5/2 with a length scale for each parameter. Hyperparameters are fitted by maximum a
posteriori (Rasmussen and Williams 2006, chapters 4 and 5). Values are standardised first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

Array = np.ndarray[Any, Any]

ITERATIONS = 15  # of a fit, which goes on from the last one
_ROOT5 = math.sqrt(5)


# What is believed of the logarithm of each hyperparameter: mean and standard deviation.
LENGTH = (0.0, 1.0)  # in units of a parameter's range
SIGNAL = (0.0, 0.7)  # variance of what is explained
NOISE = (math.log(0.1), 1.0)  # variance of what is not


class GaussianProcess:
    """Predicts values and how sure they are; `groups` names the dimensions that share a length scale.

    Hyperparameters are fitted again whenever there is a tenth more to fit them to.
    """

    def __init__(self, groups: Array) -> None:
        self._groups = groups
        believed = np.array([*[LENGTH] * len(np.unique(groups)), SIGNAL, NOISE])
        self._means, self._deviations = believed.T
        self._theta = self._means.copy()
        self._due = 0  # values with which the hyperparameters are to be fitted again

    def fit(self, places: Array, values: Array, more_noise: Array, keep: bool = False) -> GaussianProcess:
        """Takes in values at places, and by what factor each one is noisier than others.

        The hyperparameters are fitted too where that is due, unless they are to be kept.
        """
        self._places, self._mean, self._scale = places, float(values.mean()), float(values.std()) or 1.0
        self._more, self._values = more_noise, (values - self._mean) / self._scale
        squares = (places[:, None, :] - places[None, :, :]) ** 2
        count = len(self._means) - 2
        self._squares = np.stack([squares[:, :, self._groups == n].sum(axis=2) for n in range(count)])
        if not keep and len(values) >= self._due:
            self._maximise()
            self._due = math.ceil(1.1 * len(values))
        self._factor = cho_factor(self._covariance()[0], lower=True)
        self._solved = cho_solve(self._factor, self._values)
        return self

    @property
    def fitted(self) -> list[float]:
        """The hyperparameters, and with how many values they are to be fitted again."""
        return [*map(float, self._theta), self._due]

    def take_up(self, fitted: Sequence[float] | None) -> None:
        """Goes on with hyperparameters that another process has fitted."""
        if fitted is not None and len(fitted) == len(self._means) + 1:  # else of another search space
            self._theta, self._due = np.array(fitted[:-1]), int(fitted[-1])

    def _maximise(self) -> None:
        low, high = self._means - 3 * self._deviations, self._means + 3 * self._deviations
        found = minimize(
            self._loss,
            self._theta,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(low, high, strict=True)),
            options={"maxiter": ITERATIONS},
        )
        self._theta = found.x

    def predict(self, places: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the values without noise."""
        scales, signal, _ = self._hyperparameters()
        weights = 1 / scales[self._groups]
        ours, theirs = self._places * weights, places * weights
        squares = (ours**2).sum(1)[:, None] + (theirs**2).sum(1)[None, :] - 2 * ours @ theirs.T
        cross = signal * _matern(np.sqrt(np.maximum(squares, 0)))
        mean = cross.T @ self._solved
        variance = signal - np.einsum("ij,ij->j", cross, cho_solve(self._factor, cross))
        return self._mean + self._scale * mean, self._scale * np.sqrt(np.maximum(variance, 1e-12))

    def _hyperparameters(self) -> tuple[Array, float, float]:
        values = np.exp(self._theta)
        return values[:-2], float(values[-2]), float(values[-1])

    def _covariance(self) -> tuple[Array, Array, Array]:
        """Of the values; without noise; and what both become by a change of squared distances."""
        scales, signal, noise = self._hyperparameters()
        distance = np.sqrt(np.tensordot(1 / scales**2, self._squares, axes=1))
        known = signal * _matern(distance)
        slope = signal * 5 / 3 * (1 + _ROOT5 * distance) * np.exp(-_ROOT5 * distance)
        return known + np.diag(noise * self._more + 1e-8), known, slope

    def _loss(self, theta: Array) -> tuple[float, Array]:
        """Minus the logarithm of the posterior of the hyperparameters, and its gradient."""
        self._theta = theta
        scales, _, noise = self._hyperparameters()
        covariance, known, slope = self._covariance()
        factor = cho_factor(covariance, lower=True)
        solved = cho_solve(factor, self._values)
        away = (theta - self._means) / self._deviations
        loss = self._values @ solved / 2 + np.log(np.diag(factor[0])).sum() + away @ away / 2
        outer = cho_solve(factor, np.eye(len(solved))) - np.outer(solved, solved)
        by_scale = np.tensordot(self._squares, outer * slope, axes=2) / scales**2
        by_noise = noise * (np.diag(outer) * self._more).sum()
        gradient = np.array([*by_scale, (outer * known).sum(), by_noise]) / 2
        return float(loss), gradient + away / self._deviations


def _matern(distance: Array) -> Array:
    scaled = _ROOT5 * distance
    return (1 + scaled + scaled**2 / 3) * np.exp(-scaled)
