"""Whether residuals are worth a closer look: quick tests of sums over antennas, baselines, times, channels.

With r the residuals in units of their rms, and a unit vector u of each sample (1, or the phase of the model),
sums over the samples of a group g are independent of each other for white noise, and

    sum over g of |sum r u^*|^2 / (n_g <|r|^2> / 2)

has the chi-squared distribution with two degrees of freedom for each group. Groups of antennas share
baselines, so that their sum scatters by sqrt(2) more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from biro.misfit.residual_data import ResidualData
from biro.misfit.whiteness import clip
from biro.observation.noise import sigma_of

Complex = NDArray[np.complex128]


def suspicion(data: ResidualData) -> float:
    """The largest of the tests, in standard deviations; 0 where there is nothing to test."""
    counts = np.asarray(data.partition.weight > 0)
    if np.count_nonzero(counts) < 2:
        return 0.0
    own = np.abs(data.scaled[counts])
    sigma = sigma_of(data.scaled[counts])
    if not sigma > 0.0:
        return 0.0
    values, size = clip(data.scaled, sigma), np.abs(data.model)
    power = float(np.mean(np.abs(values[counts]) ** 2))
    phase = np.divide(data.model.conj(), size, out=np.zeros(size.shape, np.complex128), where=size > 0.0)
    # Of n samples of noise the largest has the modulus sigma sqrt(2 ln n), give or take sigma / sqrt(2 ln n).
    expected = math.sqrt(2.0 * math.log(own.size + 1.0))
    found = [0.0, (float(own.max()) / sigma - expected) * expected / 1.5]
    for turned in (values, values * phase):
        for sums, n in _groups(data, turned, counts):
            known = n > 0
            chi2 = float(np.sum(np.abs(sums[known]) ** 2 / n[known])) / (0.5 * power)
            found.append(_normal(chi2, 2.0 * np.count_nonzero(known)))
    return max(found)


def _groups(
    data: ResidualData, values: Complex, counts: NDArray[np.bool_]
) -> Iterator[tuple[Complex, NDArray[np.int64]]]:
    """Sums and numbers of samples of each antenna, baseline, time, channel and correlation.

    Of an antenna, sums of the samples as its first antenna sees them.
    """
    part = data.partition
    rows, n_rows = values.sum(axis=(1, 2)), counts.sum(axis=(1, 2))
    pair = part.antenna1.astype(np.int64) * part.n_antenna + part.antenna2
    both = np.concatenate([part.antenna1, part.antenna2]).astype(np.int64)
    yield _summed(both, np.concatenate([rows, rows.conj()]), np.concatenate([n_rows, n_rows]))
    for index in (np.unique(pair, return_inverse=True)[1], part.time_index.astype(np.int64)):
        yield _summed(index, rows, n_rows)
    for axes in ((0, 2), (0, 1)):
        yield values.sum(axis=axes), counts.sum(axis=axes)


def _summed(
    index: NDArray[np.int64], values: Complex, n: NDArray[np.int64]
) -> tuple[Complex, NDArray[np.int64]]:
    sums = np.bincount(index, values.real) + 1j * np.bincount(index, values.imag)
    return sums, np.bincount(index, n).astype(np.int64)


def _normal(chi2: float, dof: float) -> float:
    """Standard deviations of a chi-squared (Wilson & Hilferty 1931); 0 of nothing."""
    if not dof:
        return 0.0
    part = 2.0 / (9.0 * dof)
    return float((np.cbrt(chi2 / dof) - (1.0 - part)) / math.sqrt(part))
