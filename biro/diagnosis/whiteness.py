"""How far residuals are from white noise, and the thermal noise that they contain.

With r the residuals in units of the stated noise, C(0) their mean square and C(k) that of products of samples
k steps apart, along the times of a baseline or along its channels,

    z = sum Re r_1 r_2^* / sqrt(sum |r_1 r_2|^2 / 2)

has the variance 1 for white noise, whatever the noise of single samples. The thermal noise is that of the
differences that `biro.observation.noise.thermal_noise` chooses; the mean square of first ones is C(0) - C(1).
What residuals of all channels and correlations have in common is tested by their means, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.diagnosis.residual_data import ResidualData
from biro.observation.noise import (
    BY_CHANNEL,
    BY_TIME,
    MIN_DIFFERENCES,
    Kind,
    differences,
    neighbour_runs,
    neighbours,
    sigma_of,
    thermal_noise,
)

Complex = NDArray[np.complex128]
CLIP = 5.0
"""Robust sigmas to which residuals are clipped: a few outliers must not decide what all others show."""
LEAST = 1e-4
"""Smallest part of the mean square of residuals that the thermal noise is taken to be."""
CERTAIN = 5.0
"""z above which residuals are certainly more than noise."""


@dataclass(frozen=True)
class Whiteness:
    """What residuals of a partition show of their own correlation.

    Attributes
    ----------
    scatter : float
        Robust sigma of the residuals in units of the stated noise; NaN of none.
    step : float
        The same of their differences between neighbouring times; NaN of fewer than 32.
    thermal : float
        Thermal rms over the rms of the residuals, 1 of white noise; NaN where it could not be measured.
    coherent : float
        Largest z of products of neighbouring times, in standard deviations; of neighbouring channels where
        there are too few times; 0 where there are too few of both.
    by_channel : float
        That of neighbouring channels.
    is_bound : bool
        Whether `thermal` is an upper limit, because residuals change between neighbours by more than noise.
    """

    scatter: float
    step: float
    thermal: float
    coherent: float
    by_channel: float
    is_bound: bool = False


def whiteness(data: ResidualData) -> Whiteness:
    """Measure the correlation of residuals between neighbouring times and channels."""
    counts = np.asarray(data.partition.weight > 0)
    own = data.scaled[counts]
    scatter, steps = sigma_of(own), _steps(data)
    step = sigma_of(steps) if len(steps) >= MIN_DIFFERENCES else math.nan
    clipped = clip(data.scaled, scatter)
    z = {BY_TIME: 0.0, BY_CHANNEL: 0.0}
    seen: set[str] = set()
    sigma: dict[Kind, float] = {}
    n: dict[Kind, int] = {}
    for axis, values in _neighbours(data, clipped, counts):
        if len(values[0]) >= MIN_DIFFERENCES:
            seen.add(axis)
            z[axis] = max(z[axis], _certainty(values))
            found = {(axis, kind): share for kind, share in shares(values)}
            sigma |= found
            n |= dict.fromkeys(found, len(values[0]))
    mean = np.sum(clipped, axis=(1, 2), keepdims=True)
    for axis, values in _neighbours(data, mean, np.asarray(counts.any(axis=(1, 2), keepdims=True))):
        if axis == BY_TIME and BY_TIME in seen and len(values[0]) >= MIN_DIFFERENCES:
            z[BY_TIME] = max(z[BY_TIME], _certainty(values))
    by = next((axis for axis in z if axis in seen), "")
    chosen = thermal_noise(sigma, n, z[by] > CERTAIN) if by else None
    if chosen is None:
        return Whiteness(scatter, step, math.nan, 0.0, z[BY_CHANNEL])
    power = _ratio(float(np.sum(np.abs(clipped[counts]) ** 2)), float(np.sum(np.abs(own) ** 2)))
    thermal = max(sigma[chosen.kind], math.sqrt(LEAST)) * math.sqrt(power)
    is_bound = chosen.is_bound and z[by] > CERTAIN
    return Whiteness(scatter, step, thermal, z[by], z[BY_CHANNEL], is_bound)


def clip(values: Complex, sigma: float) -> Complex:
    """Residuals whose moduli are at most `CLIP` robust sigmas."""
    size, limit = np.abs(values), CLIP * sigma
    if not limit > 0.0:
        return values
    return np.asarray(values * np.minimum(1.0, limit / np.maximum(size, limit)))


def _neighbours(
    data: ResidualData, values: Complex, counts: NDArray[np.bool_]
) -> Iterator[tuple[str, list[Complex]]]:
    """Pairs and triples of neighbouring times, then of channels, that all count: arrays complex (n,)."""
    part = data.partition
    for axis, places in neighbour_runs(part, np.arange(part.n_row), values.shape[1]):
        both = np.logical_and.reduce([counts[k] for k in places])
        yield axis, [values[k][both] for k in places]


def _certainty(values: Sequence[Complex]) -> float:
    """z of pairs, or of fringes that turn steadily through triples."""
    if len(values) == 2:
        return _z(values[0] * values[1].conj())
    first, second, third = values
    phase = np.divide(second.conj(), np.abs(second), out=np.zeros_like(second), where=second != 0)
    return _z(first * third * phase**2)


def shares(values: Sequence[Complex]) -> Iterator[tuple[str, float]]:
    """Rms that each kind of difference leaves, over that of noise with the powers of the same samples."""
    power = [float(np.mean(np.abs(each) ** 2)) for each in values]
    for kind, difference, factors in differences(values):
        whole = sum(c * c * each for c, each in zip(factors, power, strict=True))
        yield kind, math.sqrt(_ratio(float(np.mean(np.abs(difference) ** 2)), whole))


def _z(products: Complex) -> float:
    """Sum of the real parts over its standard deviation where the phases of products are random."""
    size = math.sqrt(0.5 * float(np.sum(np.abs(products) ** 2)))
    return float(np.sum(products.real)) / size if size > 0.0 else 0.0


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0.0 else 1.0


def _steps(data: ResidualData) -> Complex:
    """Differences of the residuals between neighbouring times, each with the variance of one of them."""
    part = data.partition
    before, after = neighbours(part, np.arange(part.n_row))
    both = (part.weight[before] > 0) & (part.weight[after] > 0)
    residual = part.vis - data.model
    difference = residual[after][both].astype(np.complex128) - residual[before][both]
    variance = sum(1.0 / part.weight[rows][both].astype(np.float64) for rows in (before, after))
    return np.asarray(difference / np.sqrt(variance))
