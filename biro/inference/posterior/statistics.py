"""Statistics of weighted samples: quantiles, circular where a parameter wraps, and R-hat of several runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.inference.posterior.samples import Samples


def quantiles(
    values: NDArray[np.float64],
    weight: NDArray[np.float64],
    levels: Sequence[float],
    period: float | None = None,
) -> list[float]:
    """Weighted quantiles; those of a parameter that wraps are taken about its circular mean.

    A value x with period P is the angle 2 pi x / P; quantiles are those of `continuous` values.

    Parameters
    ----------
    values, weight : float64 (n_sample,)
    levels : sequence of float, ascending
    period : float, optional
    """
    if period is None:
        return _weighted_quantiles(values, weight, levels)
    return _weighted_quantiles(continuous(values, weight, period), weight, levels)


def continuous(
    values: NDArray[np.float64], weight: NDArray[np.float64], period: float
) -> NDArray[np.float64]:
    """Values moved by whole periods to within half a period of their circular mean, the median in its range.

    That is the range which the values span: the prior's, so that tables and pictures show the same numbers.
    """
    moved = unwrap(values, weight, period)
    (middle,) = _weighted_quantiles(moved, weight, (0.5,))
    return np.asarray(moved - period * math.floor((middle - values.min()) / period))


def mean_and_sd(posterior: Samples) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of each parameter, float64 (n_param,); circular where it wraps."""
    weight, values = posterior.weight, posterior.samples.copy()
    for i, column in enumerate(posterior.columns):
        if column.period is not None:
            values[:, i] = continuous(values[:, i], weight, column.period)
    mean = weight @ values
    return mean, np.sqrt(weight @ (values - mean) ** 2)


def unwrap(values: NDArray[np.float64], weight: NDArray[np.float64], period: float) -> NDArray[np.float64]:
    """Values moved by whole periods to within half a period of their circular mean."""
    turn = 2.0 * np.pi / period
    centre = np.angle(np.sum(weight * np.exp(1j * turn * values))) / turn
    moved: NDArray[np.float64] = values - period * np.rint((values - centre) / period)
    return moved


def _weighted_quantiles(
    values: NDArray[np.float64], weight: NDArray[np.float64], levels: Sequence[float]
) -> list[float]:
    order = np.argsort(values, kind="stable")
    middle = np.cumsum(weight[order]) - 0.5 * weight[order]
    return np.interp(levels, middle / weight.sum(), values[order]).tolist()


def r_hat(posteriors: Sequence[Samples]) -> dict[str, float]:
    """Gelman-Rubin statistic of several independent runs of the same problem, by parameter.

    R = sqrt(((n - 1)/n W + B/n) / W), with W the mean variance within a run, B/n the variance of
    the runs' means, n the smallest number of samples (Gelman et al., Bayesian Data Analysis, 3rd
    edition, section 11.4). Walkers of one ensemble are not independent runs and give no R.

    Raises
    ------
    InputError
        Fewer than two runs, equal seeds, or other parameters, data or model.
    """
    if len(posteriors) < 2:
        raise InputError(f"R-hat needs at least 2 independent runs, got {len(posteriors)}")
    first = posteriors[0]
    for other in posteriors[1:]:
        if other.names != first.names or other.provenance.data_digest != first.provenance.data_digest:
            raise InputError("R-hat needs runs of the same model on the same data")
    if len({p.provenance.seed for p in posteriors}) < len(posteriors):
        raise InputError("R-hat needs independent runs, but two of them have the same seed")
    runs = [p.equal_weight() for p in posteriors]
    n = min(len(run.samples) for run in runs)
    result = {}
    for i, column in enumerate(first.columns):
        values = [run.samples[:, i] for run in runs]
        if column.period is not None:
            joined = np.concatenate(values)
            moved = unwrap(joined, np.ones(len(joined)), column.period)
            values = np.split(moved, np.cumsum([len(v) for v in values])[:-1])
        result[column.name] = _r_hat(values, n)
    return result


def r_hat_of(chains: NDArray[np.float64]) -> float:
    """Gelman-Rubin statistic R (`r_hat`) of one parameter in independent chains, float64 (n_chain, n).

    1 where the parameter does not vary, and infinite where it varies between the chains only.
    """
    if not np.ptp(chains) > 0.0:
        return 1.0
    varies = chains.shape[1] > 1 and bool((np.ptp(chains, axis=1) > 0.0).any())
    return _r_hat(chains, chains.shape[1]) if varies else np.inf


def _r_hat(values: Sequence[NDArray[np.float64]] | NDArray[np.float64], n: int) -> float:
    within = np.mean([v.var(ddof=1) for v in values])
    between = np.var([v.mean() for v in values], ddof=1)
    return float(np.sqrt(((n - 1) / n * within + between) / within))
