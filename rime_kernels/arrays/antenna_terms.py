"""`AntennaTerms`: Jones matrices of the antennas that no direction enters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rime_kernels import check
from rime_kernels.errors import InputError


@dataclass(frozen=True, eq=False)
class AntennaTerms:
    """Jones matrices A of the antennas that no direction enters: V_pq = A_p X_pq A_q^H (physics: section 6).

    X is the sum over sources and templates, A the product of gains, leakage and the rotation of the feeds.
    Data in Stokes parameters need A = g 1, a gain that is common to both feeds: V_pq = g_p g_q^* X_pq for
    each of I, Q, U, V. Derivatives with respect to the elements of such a matrix belong together: that by g
    is their sum along the diagonal, and the others mean nothing.

    Attributes
    ----------
    jones : complex128 (n_batch or 1, n_time_block, n_antenna, n_chan_block, 2, 2)
        First index of the matrix: the feed of the antenna (X, Y or R, L, as the correlations of the rows have
        them); second: what comes in. A GPU keeps those of one entry from call to call where the array cannot
        be written to (`jones.flags.writeable = False`); others are sent with each call.
    time_block : int32 (n_time,)
        The block of each time slot of the rows.
    chan_block : int32 (n_chan,)
        The block of each channel.
    stays_diagonal : bool
        The matrices are diagonal for all parameters, as gains are, and derivatives by their other elements
        are not asked for: a GPU works with the diagonal alone, and gives 0 for these.

    Raises
    ------
    InputError
        A wrong shape or type, a block that `jones` does not have, or matrices that are not diagonal although
        they should stay so. Other values are not checked: NaN makes NaN in its entry of the batch.
    """

    jones: NDArray[np.complex128]
    time_block: NDArray[np.int32]
    chan_block: NDArray[np.int32]
    stays_diagonal: bool = False

    def __post_init__(self) -> None:
        sizes: dict[str, int] = {}
        axes = ("batch", "time_block", "antenna", "chan_block", 2, 2)
        check.coerce(self, "jones", np.complex128, axes, sizes)
        for name, axis in (("time_block", "time"), ("chan_block", "chan")):
            check.coerce(self, name, np.int32, (axis,), sizes)
            if not getattr(self, name).size:
                raise InputError(f"{name} must have the block of each {axis}, got none")
            check.index(name, getattr(self, name), f"n_{name}", sizes[name])
        if self.stays_diagonal and not self.diagonal:
            raise InputError(
                "stays_diagonal needs matrices that are 0 off the diagonal, got others; leave it out where "
                "there is leakage or rotation between the feeds"
            )

    @classmethod
    def unchecked(
        cls,
        jones: NDArray[np.complex128],
        time_block: NDArray[np.int32],
        chan_block: NDArray[np.int32],
        stays_diagonal: bool = False,
    ) -> AntennaTerms:
        """Terms of contiguous arrays that have the right shapes and types: see `Sources.unchecked`."""
        new = object.__new__(cls)
        new.__dict__.update(
            jones=jones, time_block=time_block, chan_block=chan_block, stays_diagonal=stays_diagonal
        )
        return new

    @cached_property
    def diagonal(self) -> bool:
        """Whether all elements off the diagonal are 0."""
        return not (np.any(self.jones[..., 0, 1]) or np.any(self.jones[..., 1, 0]))

    @cached_property
    def scalar(self) -> bool:
        """Whether all matrices are a number times 1."""
        same = np.array_equal(self.jones[..., 0, 0], self.jones[..., 1, 1], equal_nan=True)
        return self.diagonal and same

    def entries(self, start: int, stop: int) -> AntennaTerms:
        """The entries start .. stop - 1 of the batch, or the one of all entries."""
        if len(self.jones) == 1:
            return self
        part = self.jones[start:stop]
        return AntennaTerms.unchecked(part, self.time_block, self.chan_block, self.stays_diagonal)

    def copy(self) -> AntennaTerms:
        """Terms with these values in arrays of their own, checked."""
        blocks = self.time_block.copy(), self.chan_block.copy()
        return AntennaTerms(self.jones.copy(), *blocks, self.stays_diagonal)
