"""The two things the RIME is evaluated from: rows of an observation, and sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

BeamKind = Literal["cos3", "gaussian", "airy"]


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
    """

    uvw: NDArray[np.float64]
    antenna1: NDArray[np.int32]
    antenna2: NDArray[np.int32]
    time_index: NDArray[np.int32]
    chan_freq: NDArray[np.float64]
    stokes_to_corr: NDArray[np.complex128]
    n_antenna: int
    n_time: int


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
    """

    kind: BeamKind
    scale: NDArray[np.float64]
    pointing: NDArray[np.float64] | None = None


@dataclass(frozen=True, eq=False)
class Sources:
    """A batch of source lists: points first, then Gaussians.

    Attributes
    ----------
    lm : float64 (n_batch, n_source, 2)
        Direction cosines east and north of the phase centre.
    stokes : float64 (n_batch, n_time or 1, n_source, 4), Jy
        I, Q, U, V at `ref_freq`, of any sign; constant or per time slot.
    ref_freq : float64 (n_source,), Hz
    spectral_terms : float64 (n_batch, n_source, 4, n_term)
        For each Stokes parameter a0, a1, ... of (nu/nu0)^(a0 + a1 ln(nu/nu0) + ...) or,
        where `log_spectrum` is False, c1, c2, ... of 1 + c1 (nu/nu0 - 1) + c2 (nu/nu0 - 1)^2 + ...
        (physics: section 4); n_term may be 0: a flat spectrum.
    log_spectrum : bool (n_source,)
    shape : float64 (n_batch, n_gaussian, 3), rad
        emaj, emin (FWHM) and pa of the last n_gaussian sources (physics: section 5).
    beam : Beam or None
    """

    lm: NDArray[np.float64]
    stokes: NDArray[np.float64]
    ref_freq: NDArray[np.float64]
    spectral_terms: NDArray[np.float64]
    log_spectrum: NDArray[np.bool_]
    shape: NDArray[np.float64]
    beam: Beam | None = None

    @property
    def n_batch(self) -> int:
        return int(self.lm.shape[0])

    @property
    def n_source(self) -> int:
        return int(self.lm.shape[1])

    @property
    def n_gaussian(self) -> int:
        return int(self.shape[1])

    @property
    def n_point(self) -> int:
        return self.n_source - self.n_gaussian
