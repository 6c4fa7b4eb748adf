"""By how much correlated residuals make the errors of components larger."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.diagnosis.correlated_errors import error_ratios
from biro.observation.stokes import PSEUDO_I, form_stokes
from biro.source_finding.fitting.component import Component, n_param
from biro.source_finding.fitting.visibility_data import MAX_ANTENNA, Vis, VisibilityData

Array = NDArray[np.float64]
MOST_DERIVATIVES = 1 << 23
"""Visibilities times parameters of which derivatives are held; of more, they are of every n-th baseline."""
LEAST_BASELINES = 16
"""Baselines that derivatives are of at least: of fewer, they would not tell the parameters apart."""


def correlated_error_ratios(
    data: VisibilityData, components: Sequence[Component], left: Sequence[Vis], noise: float
) -> Array:
    """By how much the error of each parameter grows, float64 (n_param,), 1 or more.

    A fit of the model states the same ratios (`biro.diagnosis.correlated_errors.error_ratios`).

    Parameters
    ----------
    data : VisibilityData
    components : sequence of Component
    left : sequence of complex128 (n,), Jy
        Residuals in the order of the chunks.
    noise : float
        Rms of the noise over that by weights.
    """
    n = sum(n_param(component, data.spectral) for component in components)
    if not n or not noise > 0.0:
        return np.ones(n)
    every = np.unique(np.concatenate([chunk.baseline for chunk in data.chunks]))
    step = min(-(-n * data.n_vis // MOST_DERIVATIVES), max(1, len(every) // LEAST_BASELINES))
    every = every[::step]  # whole baselines, because errors may last for all times
    values, derivatives = _values(data, components, left, noise, every)
    part, row, chan = data.places
    taken = np.isin(np.concatenate([chunk.baseline for chunk in data.chunks]), every)
    parts, _ = form_stokes(data.partitions, PSEUDO_I)
    models, residuals, slopes, rows = [], [], [], []
    for i, one in enumerate(parts):
        pair = one.antenna1.astype(np.int64) * MAX_ANTENNA + one.antenna2
        rows.append(np.flatnonzero(np.isin(pair, every)))
        here = part == i
        model, residual = np.zeros((2, *one.vis.shape), np.complex128)
        model[row[here], chan[here], 0], residual[row[here], chan[here], 0] = values[:, here]
        models.append(model)
        residuals.append(residual)
        here, of_rows = here[taken], np.zeros((n, rows[-1].size, *one.vis.shape[1:]), np.complex128)
        place = np.searchsorted(rows[-1], row[taken][here])
        of_rows[:, place, chan[taken][here], 0] = derivatives[:, here]
        slopes.append([*of_rows])
    return np.fmax(1.0, error_ratios(parts, residuals, slopes, models, rows))


def _values(
    data: VisibilityData,
    components: Sequence[Component],
    left: Sequence[Vis],
    noise: float,
    every: NDArray[np.int64],
) -> tuple[Vis, Vis]:
    """V and r sqrt(w) / s (2, n_vis), and dV/dtheta sqrt(w) / s (n_param, n) of some baselines."""
    n = sum(n_param(component, data.spectral) for component in components)
    of_all, of_some = [], []
    for chunk, r in zip(data.chunks, left, strict=True):
        model, jacobian = chunk.jacobian(components, data.spectral)
        of_all.append(np.stack([model, r * chunk.root / noise]))
        of_some.append(jacobian[:n, np.isin(chunk.baseline, every)] / noise)
    return np.concatenate(of_all, axis=1), np.concatenate(of_some, axis=1)
