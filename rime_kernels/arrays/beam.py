"""`Beam`: a voltage beam that all antennas share, real and round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rime_kernels import check

BeamKind = Literal["cos3", "gaussian", "airy"]


@dataclass(frozen=True, eq=False)
class Beam:
    """A scalar, real antenna beam E(x) of x = scale nu r, r = |(l, m) - pointing| (physics: section 6).

    Attributes
    ----------
    kind : "cos3", "gaussian" or "airy"
        cos^3(min(x, 1.0881)); exp(-2 ln2 x^2); 2 J1(x) / x. Voltage patterns: power is the square.
    scale : float64 (n_batch,), 1 / (rad Hz)
        cos3: C (65e-9 for WSRT); gaussian: 1 / (power FWHM at nu0 * nu0); airy: pi diameter / c.
    pointing : float64 (n_batch, n_time or 1, n_antenna, 2), rad, or None
        Pointing error (dl, dm) of each antenna and time.

    Raises
    ------
    InputError
        An unknown kind, or a wrong shape or type.
    """

    kind: BeamKind
    scale: NDArray[np.float64]
    pointing: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        check.one_of("the kind of beam", self.kind, get_args(BeamKind))
        sizes: dict[str, int] = {}
        check.coerce(self, "scale", np.float64, ("batch",), sizes)
        if self.pointing is not None:
            check.coerce(self, "pointing", np.float64, ("batch", "time", "antenna", 2), sizes)

    @classmethod
    def unchecked(
        cls, kind: BeamKind, scale: NDArray[np.float64], pointing: NDArray[np.float64] | None = None
    ) -> Beam:
        """A beam of contiguous arrays that have the right shapes and types: see `Sources.unchecked`."""
        new = object.__new__(cls)
        new.__dict__.update(kind=kind, scale=scale, pointing=pointing)
        return new

    def copy(self) -> Beam:
        """A beam with these values in arrays of its own, checked."""
        return Beam(self.kind, self.scale.copy(), None if self.pointing is None else self.pointing.copy())

    def entries(self, start: int, stop: int) -> Beam:
        """The entries start .. stop - 1 of the batch."""
        pointing = None if self.pointing is None else self.pointing[start:stop]
        return Beam.unchecked(self.kind, self.scale[start:stop], pointing)
