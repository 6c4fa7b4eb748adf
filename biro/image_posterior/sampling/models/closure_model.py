"""Closures of an image in JAX: residuals that are independent and have unit variance.

With leg values x = ln D - ln V, their variances S and what antennas do to them, B, closures are the part of x
that no antenna changes. For each set of antennas

    r = K x,    K B = 0,    K S K^T = 1,    r^T r = (A x)^T (A S A^T)^-1 A x

where A is any complete set of closures (`biro.likelihood.closures.covariance`). K = Q^T S^(-1/2), where the
columns of Q are orthonormal and span what S^(-1/2) B does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.ops import segment_sum
from numpy.typing import NDArray

from biro.errors import InputError
from biro.image_posterior.sampling.jax_operator import UsedData
from biro.likelihood.closures.counts import ClosureCounts
from biro.likelihood.closures.partition_closures import PartitionClosures
from biro.likelihood.closures.sets import ClosureSets
from biro.observation.observation import Observation

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_MOST = 20_000_000
"""Entries of all K at most, 16 bytes each."""


class _Rows(NamedTuple):
    """K as entries of a sparse matrix (n, n_leg), ordered by row."""

    row: Index
    leg: Index
    value: Array
    n: int


class ClosureModel:
    """Residuals of closure phases and log closure amplitudes of model visibilities.

    Parameters
    ----------
    observation : Observation
        Stokes I.
    used : UsedData
        The samples of model visibilities.
    fraction : float
        Systematic error of each visibility, a fraction of its amplitude.
    factor : float
        What the noise is larger by than stated.

    Attributes
    ----------
    closures : list of PartitionClosures
    factor : float
    lines : list of str
        What is fitted and what is left out.
    n_each : list of int
        Closures of each partition.

    Raises
    ------
    InputError
        There are no closures, or too many.
    """

    def __init__(
        self, observation: Observation, used: UsedData, fraction: float = 0.0, factor: float = 1.0
    ) -> None:
        self.factor = factor
        plain = [PartitionClosures.of(part) for part in observation.partitions]
        legs = [each.sets.legs for each in plain]
        self.closures = [
            each.with_noise(own.variance + fraction**2, own.thermal)
            for each, own in zip(plain, legs, strict=True)
        ]
        counts = ClosureCounts.of(observation, self.closures)
        counts.refuse_none()
        _refuse_many(self.closures)
        self.lines = counts.lines()[:-1]
        self.n_each = [each.n_data for each in self.closures]
        number = used.put(np.arange(1, used.n + 1))
        self._legs = [place[each.at] - 1 for place, each in zip(number, self.closures, strict=True)]
        self._rows = [
            (_whitening(each.sets, -1.0, each.n_phase), _whitening(each.sets, 1.0, each.n_amplitude))
            for each in self.closures
        ]

    @property
    def n(self) -> int:
        """Number of closures."""
        return sum(self.n_each)

    def residuals(self, vis: Any) -> Any:
        """Residuals (n,) of visibilities of the model, real and imaginary parts (2, n_data), Jy.

        Those of each partition: closure phases and then log closure amplitudes. Closure phases are turned to
        within half a turn of 0.
        """
        found = []
        for each, places, (of_phase, of_amplitude) in zip(self.closures, self._legs, self._rows, strict=True):
            real, imag = vis[0][places], vis[1][places]
            phase = _closed(each.sets, each.log_data.imag - jnp.arctan2(imag, real))
            amplitude = each.log_data.real - 0.5 * jnp.log(real**2 + imag**2)
            found += [_times(of_phase, phase), _times(of_amplitude, amplitude)]
        return jnp.concatenate(found) / self.factor


def _closed(sets: ClosureSets, phase: Any) -> Any:
    """Phases of legs (n_leg,) less those of antennas that make them 0 along the trees, within half a turn."""
    antenna = jnp.zeros(sets.n_set * sets.width)
    for step in sets.steps:
        antenna = antenna.at[step.node].set(antenna[step.parent] + step.sign * phase[step.leg])
    closed = phase - antenna[sets.first] + antenna[sets.second]
    return closed - 2.0 * jnp.pi * jnp.rint(closed / (2.0 * jnp.pi))


def _times(rows: _Rows, values: Any) -> Any:
    return segment_sum(rows.value * values[rows.leg], rows.row, rows.n, indices_are_sorted=True)


def _whitening(sets: ClosureSets, sign: float, n: int) -> _Rows:
    """K of all sets, for phases (sign -1) or log amplitudes (+1)."""
    incidence, owner = sets.incidence(sign).tocsr(), sets.first // max(sets.width, 1)
    weight = sets.legs.variance**-0.5
    counts = sets.n_phase if sign < 0 else sets.n_amplitude
    order = np.argsort(owner, kind="stable")
    row: list[Index] = []
    leg: list[Index] = []
    value: list[Array] = []
    start = 0
    for s, own in zip(range(sets.n_set), np.split(order, np.cumsum(sets.n_leg_of_set)[:-1]), strict=False):
        columns = slice(s * sets.width, (s + 1) * sets.width)
        antennas = weight[own, None] * incidence[own][:, columns].toarray()
        basis = np.linalg.svd(antennas)[0][:, len(own) - counts[s] :]
        row.append(np.repeat(np.arange(start, start + counts[s]), len(own)))
        leg.append(np.tile(own, counts[s]))
        value.append((basis.T * weight[own]).ravel())
        start += int(counts[s])
    assert start == n
    nothing = np.zeros(0, np.int64)
    return _Rows(
        np.concatenate([nothing, *row]), np.concatenate([nothing, *leg]), np.concatenate([[], *value]), n
    )


def _refuse_many(closures: Sequence[PartitionClosures]) -> None:
    """Refuse closures whose matrices do not fit into memory."""
    size = sum(
        int((each.sets.n_leg_of_set * (each.sets.n_phase + each.sets.n_amplitude)).sum()) for each in closures
    )
    if size > _MOST:
        n = sum(each.n_data for each in closures)
        raise InputError(
            f"{n} closures need {16 * size / 1e9:.2g} GB here, {16 * _MOST / 1e9:.2g} GB is the limit; "
            'average in time (--average-time), or calibrate the data and leave gains = "closures" out'
        )
