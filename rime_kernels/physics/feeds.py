"""Which feeds of two antennas each correlation is made of (physics: sections 3 and 6)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rime_kernels.errors import InputError
from rime_kernels.physics.brightness import stokes_to_corr

_KINDS = (("XX", "XY", "YX", "YY"), ("RR", "RL", "LR", "LL"))


def feeds_of(
    matrix: NDArray[np.complexfloating], what: str = "antenna terms"
) -> tuple[NDArray[np.complex128], tuple[int, ...]]:
    """The 2x2 matrix of all correlations of two feeds, and where in it those of some rows are.

    Parameters
    ----------
    matrix : complex (n_corr, 4)
        `Rows.stokes_to_corr`.
    what : str
        What needs feeds, for the error's text.

    Returns
    -------
    complex128 (4, 4)
        What makes XX, XY, YX, YY, or RR, RL, LR, LL, of I, Q, U, V.
    tuple of int, n_corr
        Which of the four each correlation is.

    Raises
    ------
    InputError
        Correlations that are not all of linear or all of circular feeds, such as Stokes parameters.
    """
    for kind in _KINDS:
        full = stokes_to_corr(kind)
        same = np.all(np.abs(full[None] - np.asarray(matrix)[:, None]) < 1e-6, axis=2)
        if same.any(axis=1).all():
            place = tuple(int(k) for k in np.argmax(same, axis=1))
            if len(set(place)) < len(place):
                raise InputError("antenna terms need each correlation once, got one twice; leave one out")
            return full, place
    raise InputError(
        f"{what} need data in the correlations of feeds (XX, XY, YX, YY or RR, RL, LR, LL), got Stokes "
        "parameters or other sums of them; read the correlations of the feeds"
    )
