"""How far residuals are from white noise, and the thermal noise that they contain.

With r the residuals in units of the stated noise, C(0) their mean square and C(k) that of products of samples
k steps apart, along the times of a baseline or along its channels,

    z = sum Re r_1 r_2^* / sqrt(sum |r_1 r_2|^2 / 2)

has the variance 1 for white noise, whatever the noise of single samples. The mean square of the thermal noise
is the least that any of these leaves:

    C(0) - C(1)                      of first differences, which remove what changes slowly
    C(0) - 4/3 C(1) + 1/3 C(2)       of second differences, which remove what turns slowly, too
    C(0) - Re <r_1 r_3 e^(-2 i a)>   of fringes that turn by any, but a constant angle per step

where a is the phase of r_2 between r_1 and r_3: the last mean is the power of such fringes, and 0 for noise.
What residuals of all channels and correlations have in common is tested by their means, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.misfit.residual_data import ResidualData
from biro.observation.noise import MIN_DIFFERENCES, neighbours, sigma_of

Complex = NDArray[np.complex128]
CLIP = 5.0
"""Robust sigmas to which residuals are clipped: a few outliers must not decide what all others show."""
LEAST = 1e-4
"""Smallest part of the mean square of residuals that the thermal noise is taken to be."""
BY_TIME, BY_CHANNEL = "neighbouring times", "neighbouring channels"


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
    by : str
        Which differences gave the thermal noise; "" where it could not be measured.
    """

    scatter: float
    step: float
    thermal: float
    coherent: float
    by_channel: float
    by: str


def whiteness(data: ResidualData) -> Whiteness:
    """Measure the correlation of residuals between neighbouring times and channels."""
    counts = np.asarray(data.partition.weight > 0)
    own = data.scaled[counts]
    scatter, steps = sigma_of(own), _steps(data)
    step = sigma_of(steps) if len(steps) >= MIN_DIFFERENCES else math.nan
    clipped = clip(data.scaled, scatter)
    z = {BY_TIME: 0.0, BY_CHANNEL: 0.0}
    least: dict[str, float] = {}
    for name, values in _neighbours(data, clipped, counts):
        if len(values[0]) >= MIN_DIFFERENCES:
            certainty, share = _pairs(*values) if len(values) == 2 else triples(*values)
            z[name] = max(z[name], certainty)
            least[name] = min(least.get(name, 1.0), share)
    mean = np.sum(clipped, axis=(1, 2), keepdims=True)
    for _, values in _neighbours(data, mean, np.asarray(counts.any(axis=(1, 2), keepdims=True))):
        if BY_TIME in least and len(values[0]) >= MIN_DIFFERENCES:
            z[BY_TIME] = max(z[BY_TIME], (_pairs if len(values) == 2 else triples)(*values)[0])
    by = next((name for name in z if name in least), "")
    if not by:
        return Whiteness(scatter, step, math.nan, 0.0, z[BY_CHANNEL], by)
    power = _ratio(float(np.sum(np.abs(clipped[counts]) ** 2)), float(np.sum(np.abs(own) ** 2)))
    return Whiteness(scatter, step, math.sqrt(max(least[by], LEAST) * power), z[by], z[BY_CHANNEL], by)


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
    part, n_chan = data.partition, values.shape[1]
    for n in (2, 3):
        rows = neighbours(part, np.arange(part.n_row), n)
        yield BY_TIME, _together([values[k] for k in rows], [counts[k] for k in rows])
    for n in (2, 3):
        if n_chan >= n:
            cuts = [slice(k, n_chan - n + 1 + k) for k in range(n)]
            yield BY_CHANNEL, _together([values[:, k] for k in cuts], [counts[:, k] for k in cuts])


def _together(values: list[Complex], counts: list[NDArray[np.bool_]]) -> list[Complex]:
    """Neighbours that all count, flat."""
    both = np.logical_and.reduce(counts)
    return [value[both] for value in values]


def _pairs(first: Complex, second: Complex) -> tuple[float, float]:
    """z of pairs, and the thermal mean square over that of all by first differences."""
    whole = 0.5 * _power(first, second)
    return _z(first * second.conj()), _ratio(whole - _mean(first * second.conj()), whole)


def triples(first: Complex, second: Complex, third: Complex) -> tuple[float, float]:
    """z of fringes that turn, and the thermal mean square by second differences and without such fringes."""
    whole = _power(first, second, third) / 3.0
    near = 0.5 * (_mean(first * second.conj()) + _mean(second * third.conj()))
    ends = 0.5 * _power(first, third)
    # Powers have the weights that they have in |r_1 - 2 r_2 + r_3|^2 / 6: no mean of few is below 0.
    bent = ends / 3.0 + _power(second) * 2.0 / 3.0 - 4.0 / 3.0 * near + _mean(first * third.conj()) / 3.0
    phase = np.divide(second.conj(), np.abs(second), out=np.zeros_like(second), where=second != 0)
    turn = first * third * phase**2
    return _z(turn), min(_ratio(bent, whole), _ratio(ends - max(_mean(turn), 0.0), whole))


def _power(*values: Complex) -> float:
    """Sum of the mean squares."""
    return float(sum(np.mean(np.abs(each) ** 2) for each in values))


def _mean(values: Complex) -> float:
    return float(np.mean(values.real)) if values.size else 0.0


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
