"""Stokes I of data and model at the best fit: what the pictures of visibilities are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.constants import c

from biro.errors import InputError
from biro.observation.correlations import PARALLEL_HANDS
from biro.observation.noise import measure_noise
from biro.observation.partition import Partition

if TYPE_CHECKING:
    from biro.likelihood.likelihood import Likelihood

PARALLEL = (*PARALLEL_HANDS, "I")
"""Correlations of which the weighted mean is Stokes I."""
_UV_UNITS = ((1e9, "Gλ"), (1e6, "Mλ"), (1e3, "kλ"), (1.0, "λ"))

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StokesI:
    """Stokes I of one partition.

    Attributes
    ----------
    label, field : str
    data, model : complex128 (n_row, n_chan), Jy
        0 where the weight is 0.
    weight : float64 (n_row, n_chan), 1/Jy^2
        That of the fit: of the data over the noise factor squared.
    thermal : float
        Noise that changes from one time to the next, in units of the fitted one; 1 where it is more than
        that, or is not known. Where a model does not fit, the fitted noise holds sources that it lacks.
    distance : float64 (n_row, n_chan)
        uv distance, wavelengths.
    time : float64 (n_row,), s
    antenna1, antenna2 : int32 (n_row,)
    freq : float, Hz
        Mean of the channels.
    interval : float, s
        From one time to the next: the integration time, or what is usual where it is not known.
    """

    label: str
    field: str
    data: NDArray[np.complex128]
    model: NDArray[np.complex128]
    weight: Array
    thermal: float
    distance: Array
    time: Array
    antenna1: NDArray[np.int32]
    antenna2: NDArray[np.int32]
    freq: float
    interval: float


def has_stokes_i(likelihood: Likelihood) -> bool:
    """Whether any partition has a correlation that Stokes I is made of."""
    return any(set(part.corr_type) & set(PARALLEL) for part in likelihood.observation.partitions)


def stokes_i(likelihood: Likelihood, theta: Array) -> list[StokesI]:
    """Stokes I of data and model of each partition that has a parallel hand: their weighted mean.

    Parameters
    ----------
    likelihood : Likelihood
    theta : float64 (n_param,)

    Raises
    ------
    InputError
        No partition has one, or all of theirs are flagged.
    """
    models = likelihood.predict(theta)
    factors = np.atleast_1d(likelihood.noise_factor(theta))
    found = []
    for i, (part, model) in enumerate(zip(likelihood.observation.partitions, models, strict=True)):
        hands = [k for k, corr in enumerate(part.corr_type) if corr in PARALLEL]
        weight = part.weight[:, :, hands].astype(np.float64)
        total = weight.sum(axis=2)
        if not total.any():
            continue
        divisor = np.where(total > 0, total, 1.0)
        data, fitted = ((weight * values[:, :, hands]).sum(axis=2) / divisor for values in (part.vis, model))
        factor = float(factors[i])
        found.append(
            StokesI(
                label=likelihood.observation.labels[i],
                field=part.field,
                data=data,
                model=fitted,
                weight=total / factor**2,
                thermal=_thermal(part, factor),
                distance=_distance(part),
                time=part.time_of_slots,
                antenna1=part.antenna1,
                antenna2=part.antenna2,
                freq=float(part.chan_freq.mean()),
                interval=part.interval or part.spacing,
            )
        )
    if not found:
        raise InputError(f"no parallel hands ({', '.join(PARALLEL)}) in the data, so no Stokes I to show")
    return found


def _thermal(part: Partition, factor: float) -> float:
    ratio = measure_noise([part], stokes_i=True).ratio
    return min(ratio / factor, 1.0) if np.isfinite(ratio) else 1.0


def uv_unit(reach: float) -> tuple[float, str]:
    """Size in wavelengths, and name, of a unit for uv distances up to `reach`."""
    return next(item for item in _UV_UNITS if reach >= item[0] or item[0] == 1.0)


def _distance(part: Partition) -> Array:
    """uv distance in wavelengths, (n_row, n_chan)."""
    return np.hypot(part.uvw[:, 0], part.uvw[:, 1])[:, None] * part.chan_freq / c
