"""Visibilities averaged as they come; flagged ones count where nothing else does."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rime_kernels import check, device
from rime_kernels.errors import InputError
from rime_kernels.flagging.options import LEFT


class Mean(NamedTuple):
    """Averages of cells of integrations and channels.

    Attributes
    ----------
    vis : complex128 (n_row, n_cell, n_corr)
        Weighted mean, in the unit of the visibilities; 0 where no visibility has a weight.
    weight : float64 (n_row, n_cell, n_corr)
        Sum of the weights of what the mean is of.
    flag : bool (n_row, n_cell, n_corr)
        Whether all visibilities of the cell are flagged or without weight.
    """

    vis: NDArray[np.complex128]
    weight: NDArray[np.float64]
    flag: NDArray[np.bool_]


class Sums(Protocol):
    """Sums over the visibilities of cells, on the CPU or a GPU.

    `values` are sums of weight times visibility and of weights, where flagged visibilities keep 2^-64 of
    theirs, and whether all that has a weight was flagged.
    """

    def add(
        self, vis: NDArray[np.complex64], weight: NDArray[np.float32], flag: NDArray[np.bool_]
    ) -> None: ...

    def values(self) -> tuple[NDArray[np.complex128], NDArray[np.float64], NDArray[np.bool_]]: ...

    def clear(self) -> None: ...


class OnlineAverage:
    """Averages visibilities over integrations, as these come, and over groups of channels.

    A flagged visibility has 2^-64 of its weight. The mean of a cell is that of its visibilities that are not
    flagged, but a cell of which all are flagged has the mean of these, and its weight in full: it stays there
    to be looked at, with its flag.

    Parameters
    ----------
    shape : (n_row, n_chan, n_corr)
        Of one integration.
    channels : int
        Adjacent channels that are averaged together; the last group may be smaller.
    backend : "auto", "cpu" or "cuda"
        Where sums are kept. Both give the same, to the rounding of float64.

    Raises
    ------
    InputError
        Numbers that are not whole, or not above 0.
    BackendError
        "cuda" where there is no device.

    Examples
    --------
    >>> average = OnlineAverage((1, 4, 1), channels=2, backend="cpu")
    >>> average.add(np.ones((1, 4, 1)), np.ones((1, 4, 1)), [[[True], [True], [False], [False]]])
    >>> average.mean().weight.ravel(), average.mean().flag.ravel()
    (array([2., 2.]), array([ True, False]))
    """

    def __init__(
        self, shape: tuple[int, int, int], channels: int = 1, backend: device.Backend = "auto"
    ) -> None:
        for name, number in (*zip(("n_row", "n_chan", "n_corr"), shape, strict=True), ("channels", channels)):
            if not isinstance(number, int) or number < 1:
                raise InputError(f"{name} must be a whole number above 0, got {number!r}")
        self.shape, self.channels = shape, channels
        self._sums: Sums
        if device.resolve(backend)[0] == "cuda":
            from rime_kernels.flagging.cuda.averaging import DeviceSums

            self._sums = DeviceSums(shape, channels)
        else:
            self._sums = _HostSums(shape, channels)

    def add(self, vis: ArrayLike, weight: ArrayLike, flag: ArrayLike = False) -> None:
        """Add the visibilities of an integration.

        Parameters
        ----------
        vis : complex64 (n_row, n_chan, n_corr)
        weight : float32, broadcast against vis
            What is not above 0 or not finite leaves a visibility out; so does one that is not finite.
        flag : bool, broadcast against vis

        Raises
        ------
        InputError
            Another shape than that of the average.
        """
        value = check.array("vis", vis, np.complex64, ("n_row", "n_chan", "n_corr"))
        if value.shape != self.shape:
            raise InputError(f"vis must have the shape {self.shape} of the average, got {value.shape}")
        try:
            stated = np.broadcast_to(np.asarray(weight, np.float32), self.shape)
            flagged = np.broadcast_to(np.asarray(flag, bool), self.shape)
        except ValueError:
            raise InputError(f"weight and flag must fit the shape {self.shape} of vis") from None
        counts = (stated > 0.0) & np.isfinite(stated) & np.isfinite(value)
        used = np.where(counts, stated, np.float32(0.0))
        self._sums.add(np.where(counts, value, np.complex64(0.0)), used, np.ascontiguousarray(flagged))

    def mean(self) -> Mean:
        """The averages of what was added so far."""
        total, weight, flag = self._sums.values()
        vis = np.divide(total, weight, out=np.zeros_like(total), where=weight > 0.0)
        return Mean(vis, np.where(flag, weight / LEFT, weight), flag)

    def clear(self) -> None:
        """Begin again."""
        self._sums.clear()


class _HostSums:
    """Sums on the CPU."""

    def __init__(self, shape: tuple[int, int, int], channels: int) -> None:
        n_row, n_chan, n_corr = shape
        self._starts = np.arange(0, n_chan, channels)
        cells = n_row, len(self._starts), n_corr
        self._total, self._weight = np.zeros(cells, np.complex128), np.zeros(cells)
        self._flag = np.ones(cells, bool)

    def add(self, vis: NDArray[np.complex64], weight: NDArray[np.float32], flag: NDArray[np.bool_]) -> None:
        kept = np.where(flag, LEFT, 1.0) * weight
        self._total += np.add.reduceat(kept * vis, self._starts, axis=1)
        self._weight += np.add.reduceat(kept, self._starts, axis=1)
        self._flag &= np.logical_and.reduceat(flag | (weight == 0.0), self._starts, axis=1)

    def values(self) -> tuple[NDArray[np.complex128], NDArray[np.float64], NDArray[np.bool_]]:
        return self._total.copy(), self._weight.copy(), self._flag.copy()

    def clear(self) -> None:
        self._total[...], self._weight[...], self._flag[...] = 0.0, 0.0, True
