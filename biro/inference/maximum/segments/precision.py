"""The precision of a posterior by segments: Fisher information, and the curvature of the prior.

The information stands for the second derivatives of ln L: it is their expectation, and where residuals are
noise they differ from it by little.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biro.inference.block_arrowhead.matrix import ArrowheadMatrix
from biro.inference.block_arrowhead.space import ArrowheadPrecision, ArrowheadSpace
from biro.inference.target.protocol import (
    SampledLikelihood,
    SegmentedLikelihood,
    SegmentedModel,
    segmented,
)

Array = NDArray[np.float64]
MANY = 300
"""Parameters from which on the precision is worked out by segments.

Its blocks cost about as much as ten gradients, whatever the number of segments, and differences of gradients
two of them for each parameter. Up to some hundred parameters these take seconds, and say more: the second
derivatives themselves, and combinations that the data do not determine.
"""
_STEP = 1e-4
"""Of differences of the slopes of priors, in units of the priors' widths."""
_APART = 1e-3
"""Of the width of its prior: a parameter is taken to be so far from the ends, where no y has an effect."""
_FLOOR = 0.05
"""Precision that is added to parameters y, in units of the scales of their priors, so that none has none."""


class TransformHere(Protocol):
    """A change of parameters at one place."""

    def pull_back(self, slopes: Array) -> Array:
        """Derivatives with respect to y from those with respect to theta."""


class Transform(Protocol):
    """A change of parameters theta <-> y, as `models.bound.prior.unconstrained` has one."""

    def at(self, y: Array, /) -> TransformHere:
        """The change at y."""

    def theta(self, y: Array, /) -> Array:
        """theta of y."""

    def of_theta(self, theta: Array, spread: Array | None = None, /) -> Array:
        """y of theta, moved away from limits by `spread`."""


def many_segments(likelihood: SampledLikelihood) -> SegmentedLikelihood | None:
    """The likelihood, where its parameters are so many that their precision is taken by segments."""
    found = segmented(likelihood)
    return found if found is not None and len(found.parameters) >= MANY else None


def space_of(likelihood: SegmentedLikelihood) -> ArrowheadSpace:
    """The states of its parameters."""
    assert likelihood.segments is not None, "many_segments has looked"
    return likelihood.segments


def posterior_arrowhead(likelihood: SegmentedLikelihood, theta: Array, width: Array) -> ArrowheadMatrix:
    """The precision at theta (n_param,), in the states of `space_of`.

    Parameters
    ----------
    likelihood : SegmentedLikelihood
    theta : float64 (n_param,)
    width : float64 (n_param,)
        Of the priors.
    """
    of_prior = prior_precision(likelihood.model, theta, width)
    return likelihood.fisher_by_segments(theta) + space_of(likelihood).of_diagonal(of_prior)


def prior_precision(model: SegmentedModel, theta: Array, width: Array) -> Array:
    """Minus the second derivatives of ln prior at theta by each parameter, 0 or above, float64 (n_param,)."""
    low, high = model.box
    ends = np.clip([theta - _STEP * width, theta + _STEP * width], low, high)
    below, above = model.log_prior_slope(ends)
    # A prior that falls less and less steeply has no precision.
    return np.asarray(np.maximum(np.nan_to_num((below - above) / (ends[1] - ends[0])), 0.0))


def unconstrained_precision(
    likelihood: SegmentedLikelihood,
    y: Array,
    width: Array,
    change: Transform | None = None,
    least: Array | float = _FLOOR,
) -> ArrowheadPrecision:
    """The precision of unconstrained parameters y (n_param,) about their values here.

    With a `change`, of others that follow from theta, those of the border among themselves. What is `least`
    is added to the precision of each.
    """
    model = likelihood.model
    change, space, n = change or model.unconstrained, space_of(likelihood), y.size
    border = space.layout.border
    inner = np.ones(n)
    inner[border] = 0.0
    rows = np.zeros((border.size, n))
    rows[np.arange(border.size), border] = 1.0
    theta = np.clip(model.wrap(change.theta(y)), *model.box)
    within = change.at(change.of_theta(theta, _APART * width))
    slopes = within.pull_back(inner)
    of_border = within.pull_back(rows)[:, border]
    seen = space.seen_from(slopes, of_border)
    arrowhead = posterior_arrowhead(likelihood, theta, width)
    return ArrowheadPrecision(seen, arrowhead + seen.of_diagonal(np.full(n, least)))
