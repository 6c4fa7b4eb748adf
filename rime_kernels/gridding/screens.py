"""A-terms (screens) on the pixels of subgrids: checked, and prepared for gridder and degridder."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rime_kernels import check
from rime_kernels.errors import InputError
from rime_kernels.physics.brightness import stokes_to_corr

_LINEAR, _CIRCULAR = ("XX", "XY", "YX", "YY"), ("RR", "RL", "LR", "LL")


class Screens(NamedTuple):
    """A-terms, and how planes of the grid follow from Stokes parameters and lead to correlations.

    With scalar screens (or none) a plane is a real combination of Stokes parameters, the same in the image,
    on the grid and in the sum over pixels; correlations are combinations of planes. With 2 x 2 screens
    planes are Stokes parameters in the image, and correlations from the subgrid's pixels on.

    Attributes
    ----------
    values : complex (n_slot, n_antenna, S, S), or (n_slot, n_antenna, S, S, 2, 2), or one element for none
    kind : 0, 1 or 2
        None, scalar, 2 x 2.
    from_stokes : float64 (n_plane, n_stokes)
        Planes of the image from its Stokes parameters.
    to_corr : complex128 (n_corr, n_sum)
        Correlations from the sums over pixels.
    feeds : complex128 (4, n_plane)
        Kind 2: elements XX, XY, YX, YY (or RR, RL, LR, LL) of the brightness from the planes.
    element : int64 (n_corr,)
        Kind 2: which of the elements each correlation is.
    """

    values: NDArray[np.inexact]
    kind: int
    from_stokes: NDArray[np.float64]
    to_corr: NDArray[np.complex128]
    feeds: NDArray[np.complex128]
    element: NDArray[np.int64]

    @property
    def n_plane(self) -> int:
        """Planes of image and grid."""
        return int(self.from_stokes.shape[0])

    @property
    def n_sum(self) -> int:
        """Planes of the sums over pixels."""
        return int(self.to_corr.shape[1])


def make_screens(
    screens: ArrayLike | None, matrix: NDArray[np.complex128], n_stokes: int, shape: tuple[int, int, int],
    complex_type: type,
) -> Screens:  # fmt: skip
    """Check screens of shape (n_slot, n_antenna, S, ...) and choose the planes.

    Raises
    ------
    InputError
        Another shape, numbers that are not finite, or 2 x 2 screens for correlations that are not those of
        feeds.
    """
    n_slot, n_antenna, size = shape
    values: NDArray[np.inexact]
    if screens is None:
        # Never read, but loops are compiled for arrays of six axes.
        kind, values = 0, np.zeros((1, 1, 1, 1, 1, 1), complex_type)
    else:
        sizes = {"slot": n_slot, "antenna": n_antenna, "S": size}
        kind = 2 if np.ndim(screens) == 6 else 1
        axes: tuple[int | str, ...] = ("slot", "antenna", "S", "S") + ((2, 2) if kind == 2 else ())
        found = check.array("screens", screens, np.complex128, axes, sizes)
        check.finite("screens", found)
        # Scalars become 1 x 1 matrices: one type of array, one compiled loop.
        values = found.astype(complex_type).reshape(*shape, size, *((2, 2) if kind == 2 else (1, 1)))
    if kind < 2:
        from_stokes, to_corr = _planes(matrix[:, :n_stokes])
        return Screens(values, kind, from_stokes, to_corr, np.zeros((4, 1), complex), np.zeros(1, np.int64))
    names, element = _elements(matrix)
    feeds = stokes_to_corr(names)[:, :n_stokes]
    n_corr = matrix.shape[0]
    return Screens(values, kind, np.eye(n_stokes), np.eye(n_corr, dtype=complex), feeds, element)


def _planes(matrix: NDArray[np.complex128]) -> tuple[NDArray[np.float64], NDArray[np.complex128]]:
    """The fewest real planes: the correlations where these are real, otherwise the Stokes parameters used."""
    used = np.flatnonzero(np.any(matrix != 0.0, axis=0))
    # Correlations of Q, U, V alone, from an image of I: one plane of zeros keeps the shapes.
    used = used if used.size else np.array([0])
    n_corr, n_stokes = matrix.shape
    # Each plane costs transforms: XX and YY of I, Q are two planes either way, XX alone is one.
    if n_corr < used.size and not np.any(matrix.imag):
        return np.ascontiguousarray(matrix.real), np.eye(n_corr, dtype=complex)
    return np.eye(n_stokes)[used], np.ascontiguousarray(matrix[:, used])


def _elements(matrix: NDArray[np.complex128]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The names of the feeds' correlations, and which of them each correlation is."""
    for names in (_LINEAR, _CIRCULAR):
        known = stokes_to_corr(names)
        # Close is enough: a matrix that was computed has rounding errors.
        same = np.all(np.abs(matrix[:, None] - known[None]) < 1e-12, axis=-1)
        if np.all(same.any(axis=1)):
            return names, same.argmax(axis=1).astype(np.int64)
    raise InputError(
        "2 x 2 screens act on feeds: stokes_to_corr must give some of XX, XY, YX, YY, or of RR, RL, LR, LL; "
        "use scalar screens for others"
    )
