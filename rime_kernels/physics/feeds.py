"""Which feeds of two antennas each correlation is made of (physics: sections 3 and 6)."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from rime_kernels.errors import InputError
from rime_kernels.physics.brightness import stokes_to_corr

# What makes the correlations of linear feeds of I, Q, U, V, those of circular feeds, and Stokes parameters.
_FEEDS = stokes_to_corr(("XX", "XY", "YX", "YY")), stokes_to_corr(("RR", "RL", "LR", "LL"))
_STOKES = stokes_to_corr(("I", "Q", "U", "V"))
_MIXED = stokes_to_corr(("RX", "RY", "LX", "LY")), stokes_to_corr(("XR", "XL", "YR", "YL"))


def feeds_of(
    matrix: NDArray[np.complexfloating], what: str = "antenna terms", *, stokes: bool = True
) -> tuple[NDArray[np.complex128], tuple[int, ...]]:
    """The 2x2 matrix of all correlations of two feeds, and where in it those of some rows are.

    Of rows in Stokes parameters it is [[I, Q], [U, V]]: what is the same number for both feeds multiplies
    these four alike, as it does correlations, and nothing else may be done to this matrix. The same holds
    for rows between circular and linear feeds, [[RX, RY], [LX, LY]] or [[XR, XL], [YR, YL]]: antenna terms
    have the feeds of one kind.

    Parameters
    ----------
    matrix : complex (n_corr, 4)
        `Rows.stokes_to_corr`.
    what : str
        What needs feeds, for the error's text.
    stokes : bool
        Whether rows in Stokes parameters, and those between circular and linear feeds, are taken, too.

    Returns
    -------
    complex128 (4, 4)
        What makes these four of I, Q, U, V.
    tuple of int, n_corr
        Which of the four each correlation is.

    Raises
    ------
    InputError
        Correlations that are not all of linear or all of circular feeds, nor all Stokes parameters.
    """
    known = _known_feeds(np.asarray(matrix, np.complex128).tobytes(), stokes)
    if known is not None:
        return known
    raise InputError(
        f"{what} need data in the correlations of feeds (XX, XY, YX, YY or RR, RL, LR, LL), got Stokes "
        "parameters, correlations of circular with linear feeds, or other sums of them; read the "
        "correlations of feeds of one kind"
    )


def is_of_feeds(full: NDArray[np.complexfloating]) -> bool:
    """Whether the matrix that `feeds_of` gives is that of feeds of one kind, on which Jones matrices act."""
    return any(np.array_equal(full, one) for one in _FEEDS)


@functools.lru_cache(maxsize=64)  # every call asks for its rows
def _known_feeds(matrix: bytes, stokes: bool) -> tuple[NDArray[np.complex128], tuple[int, ...]] | None:
    """`feeds_of`; None where no feeds have these correlations."""
    rows = np.frombuffer(matrix, np.complex128).reshape(-1, 4)
    for full in (*_FEEDS, _STOKES, *_MIXED) if stokes else _FEEDS:
        same = np.all(np.abs(full[None] - rows[:, None]) < 1e-6, axis=2)
        if same.any(axis=1).all():
            place = tuple(int(k) for k in np.argmax(same, axis=1))
            if len(set(place)) < len(place):
                raise InputError("antenna terms need each correlation once, got one twice; leave one out")
            return full, place
    return None
