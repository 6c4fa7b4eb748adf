"""Templates in predicted visibilities, added on the host: kernels have them in chi2 alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays import AntennaTerms
from rime_kernels.inputs import Constants
from rime_kernels.physics.feeds import feeds_of
from rime_kernels.physics.phase import SPEED_OF_LIGHT

# Visibilities that are seen through matrices at a time.
_N_VIS = 1 << 18


def add_templates(
    vis: NDArray[Any], fixed: Constants, factors: NDArray[np.float64], terms: AntennaTerms | None
) -> None:
    """Add all templates to model visibilities.

    Parameters
    ----------
    vis : complex (n_batch, n_row, n_chan, n_corr), Jy
        In the order in which rows were given; changed.
    fixed : Constants
        In the order of time.
    factors : float64 (n_batch, n_template or 1, 4)
        `Inputs.template`.
    terms : AntennaTerms or None
        The matrices that templates are seen through.
    """
    if not len(fixed.template):
        return
    step = max(1, _N_VIS // fixed.chan_freq.size) if terms is not None else len(fixed.order)
    for b, of_entry in enumerate(factors):
        for start in range(0, len(fixed.order), step):
            rows = slice(start, start + step)
            for factor, template in zip(of_entry, fixed.template, strict=False):
                part = vis.dtype.type(factor[0]) * _phases(fixed, rows, factor[1:]).astype(vis.dtype)
                part = part * template[rows]
                if terms is not None:
                    part = _seen(part, fixed, rows, terms, min(b, len(terms.jones) - 1))
                vis[b, fixed.order[rows]] += part.astype(vis.dtype)


def _phases(fixed: Constants, rows: slice, shift: NDArray[np.float64]) -> NDArray[np.complex128]:
    """exp(2 pi i (u, v, w) shift nu/c), complex128 (n_row, n_chan, 1), or one number for all."""
    if not shift.any():
        return np.ones((1, 1, 1), np.complex128)
    metres = fixed.uvw[rows] @ shift
    turns = metres[:, None, None] * (fixed.chan_freq / SPEED_OF_LIGHT)[:, None]
    return np.exp(2j * np.pi * (turns - np.rint(turns)))


def _seen(
    part: NDArray[Any], fixed: Constants, rows: slice, terms: AntennaTerms, entry: int
) -> NDArray[np.complex128]:
    """A_p X A_q^H, complex128 (n_row, n_chan, n_corr), of correlations X; those that lack are 0."""
    place = list(feeds_of(fixed.matrix)[1])
    full = np.zeros((*part.shape[:2], 4), np.complex128)
    full[..., place] = part
    block = terms.time_block[fixed.time_index[rows]][:, None]
    p, q = (
        terms.jones[entry][block, antenna[rows, None], terms.chan_block]
        for antenna in (fixed.antenna1, fixed.antenna2)
    )
    seen = p @ full.reshape(*part.shape[:2], 2, 2) @ q.conj().swapaxes(-1, -2)
    found: NDArray[np.complex128] = seen.reshape(full.shape)[..., place]
    return found
