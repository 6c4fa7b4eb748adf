"""By how much correlated residuals make the errors of components larger."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from biro.diagnosis.correlated_errors import factor_of
from biro.observation.stokes import PSEUDO_I, form_stokes
from biro.source_finding.fitting.component import Component, n_param
from biro.source_finding.fitting.visibility_data import Vis, VisibilityData

MOST_DERIVATIVES = 1 << 25
"""Visibilities times parameters of which derivatives are held; of more, every n-th baseline is taken."""


def correlated_error_factor(
    data: VisibilityData, components: Sequence[Component], left: Sequence[Vis], noise: float
) -> float:
    """The factor of `biro.diagnosis.correlated_errors.factor_of`, which a fit of the model states, too; >= 1.

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
        return 1.0
    every = np.unique(np.concatenate([chunk.baseline for chunk in data.chunks]))
    step = -(-n * data.n_vis // MOST_DERIVATIVES)
    kept = [np.searchsorted(every, chunk.baseline) % step == 0 for chunk in data.chunks]
    some = [
        np.stack([r * chunk.root, *chunk.jacobian(components, data.spectral)[1][:n]])[:, these]
        for chunk, r, these in zip(data.chunks, left, kept, strict=True)
    ]
    values, taken = np.concatenate(some, axis=1), np.concatenate(kept)
    part, row, chan = (place[taken] for place in data.places)
    parts, _ = form_stokes(data.partitions, PSEUDO_I)
    residuals, slopes = [], []
    for i, one in enumerate(parts):
        here = part == i
        grid = np.zeros((n + 1, *one.vis.shape), np.complex128)
        grid[:, row[here], chan[here], 0] = values[:, here] / noise
        residuals.append(grid[0])
        slopes.append([*grid[1:]])
    return max(1.0, float(np.nan_to_num(factor_of(parts, residuals, slopes).rms, nan=1.0)))
