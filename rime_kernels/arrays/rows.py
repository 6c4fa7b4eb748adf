"""`Rows`: where and at which frequencies the sky was sampled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rime_kernels import check
from rime_kernels.errors import InputError


@dataclass(frozen=True, eq=False)
class Rows:
    """Where and at which frequencies the sky was sampled; rows come in any order and number.

    Attributes
    ----------
    uvw : float64 (n_row, 3), metres
        As the UVW column stores it (physics: section 2).
    antenna1, antenna2 : int32 (n_row,)
        Which antenna terms a row multiplies; any order, `antenna1 > antenna2` included.
    time_index : int32 (n_row,)
        Which time slot a row belongs to, from 0.
    chan_freq : float64 (n_chan,), Hz
    stokes_to_corr : complex128 (n_corr, 4)
        Correlation = this matrix times (I, Q, U, V); see `brightness.stokes_to_corr`.
    n_antenna, n_time : int
        Sizes of the antenna and time axes (at least the largest index + 1).

    Raises
    ------
    InputError
        A wrong shape or type, no rows, values that are not finite, a frequency that is not
        positive, an index outside its axis.
    """

    uvw: NDArray[np.float64]
    antenna1: NDArray[np.int32]
    antenna2: NDArray[np.int32]
    time_index: NDArray[np.int32]
    chan_freq: NDArray[np.float64]
    stokes_to_corr: NDArray[np.complex128]
    n_antenna: int
    n_time: int

    def __post_init__(self) -> None:
        sizes: dict[str, int] = {}
        check.coerce(self, "uvw", np.float64, ("row", 3), sizes)
        for name in ("antenna1", "antenna2", "time_index"):
            check.coerce(self, name, np.int32, ("row",), sizes)
        check.coerce(self, "chan_freq", np.float64, ("chan",), sizes)
        check.coerce(self, "stokes_to_corr", np.complex128, ("corr", 4), sizes)
        for axis in ("row", "chan", "corr"):
            if sizes[axis] == 0:
                raise InputError(f"at least one {axis} is needed, got none")
        for name in ("uvw", "chan_freq", "stokes_to_corr"):
            check.finite(name, getattr(self, name))
        if self.chan_freq.min() <= 0.0:
            raise InputError(f"chan_freq must be positive (Hz), got {self.chan_freq.min():g}")
        for name, size in (("antenna1", "n_antenna"), ("antenna2", "n_antenna"), ("time_index", "n_time")):
            check.index(name, getattr(self, name), size, getattr(self, size))

    @classmethod
    def from_columns(
        cls,
        uvw: ArrayLike,
        antenna1: ArrayLike,
        antenna2: ArrayLike,
        time: ArrayLike,
        chan_freq: ArrayLike,
        stokes_to_corr: ArrayLike,
    ) -> Rows:
        """Rows from columns as a Measurement Set has them: rows of equal time share a slot.

        Parameters
        ----------
        uvw, antenna1, antenna2, chan_freq, stokes_to_corr
            As the attributes.
        time : float64 (n_row,), s
            Any epoch; slots are numbered by ascending time.

        Raises
        ------
        InputError
            As the class; or a time that is not finite.
        """
        first = check.array("antenna1", antenna1, np.int32, ("row",))
        second = check.array("antenna2", antenna2, np.int32, ("row",))
        times = check.array("time", time, np.float64, ("row",))
        check.finite("time", times)
        distinct, time_index = np.unique(times, return_inverse=True)
        n_antenna = 1 + max(int(first.max(initial=0)), int(second.max(initial=0)))
        return cls(
            np.asarray(uvw),
            first,
            second,
            time_index.astype(np.int32),
            np.asarray(chan_freq),
            np.asarray(stokes_to_corr),
            n_antenna,
            max(1, distinct.size),
        )

    @property
    def n_row(self) -> int:
        """Number of rows."""
        return int(self.uvw.shape[0])

    @property
    def n_chan(self) -> int:
        """Number of channels."""
        return int(self.chan_freq.size)

    @property
    def n_corr(self) -> int:
        """Number of correlations."""
        return int(self.stokes_to_corr.shape[0])
