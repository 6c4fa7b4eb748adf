"""By how much correlated residuals make the errors of components larger."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.diagnosis.correlated_errors import error_ratios
from biro.observation.stokes import PSEUDO_I, form_stokes
from biro.source_finding.fitting.component import Component, n_param
from biro.source_finding.fitting.visibility_data import Vis, VisibilityData

Array = NDArray[np.float64]
MOST_DERIVATIVES = 1 << 25
"""Visibilities times parameters of which derivatives are held; of more, every n-th baseline is taken."""


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
    step = -(-n * data.n_vis // MOST_DERIVATIVES)
    kept = [np.searchsorted(every, chunk.baseline) % step == 0 for chunk in data.chunks]
    some = []
    for chunk, r, these in zip(data.chunks, left, kept, strict=True):
        model, jacobian = chunk.jacobian(components, data.spectral)
        some.append(np.stack([model, r * chunk.root / noise, *jacobian[:n] / noise])[:, these])
    values, taken = np.concatenate(some, axis=1), np.concatenate(kept)
    part, row, chan = (place[taken] for place in data.places)
    parts, _ = form_stokes(data.partitions, PSEUDO_I)
    models, residuals, slopes = [], [], []
    for i, one in enumerate(parts):
        here = part == i
        grid = np.zeros((n + 2, *one.vis.shape), np.complex128)
        grid[:, row[here], chan[here], 0] = values[:, here]
        models.append(grid[0])
        residuals.append(grid[1])
        slopes.append([*grid[2:]])
    return np.fmax(1.0, error_ratios(parts, residuals, slopes, models))
