"""What the engines hand over of a gradient: derivatives of chi2 with respect to what the loops read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Adjoint(NamedTuple):
    """Derivatives of chi2 = sum w |V - D|^2 with respect to brightnesses and to the arrays of `Inputs`.

    With R_S = sum over correlations c of conj(M_cS) w (V_c - D_c), the weighted residual in Stokes
    parameters (M: `Rows.stokes_to_corr`), P = E_p E_q K_pq envelope_pq and z = conj(P) sum_S B_S R_S:

        d chi2 / d B_S          = sum 2 Re(conj(P) R_S)
        d chi2 / d turns        = sum 4 pi Im(z)
        d chi2 / d ln(envelope) = sum 2 Re(z)                 as with respect to ln(E_p) and ln(E_q)

    Axes are those of `Inputs`: a sky without sources has one of no flux, one without pointing errors or
    templates axes of 1 that nobody reads.
    """

    chi2: NDArray[np.float64]  # (n_batch,)
    # (n_batch, n_time or 1, n_chan, n_source, n_stokes): of B at each channel, the beam that all antennas
    # share included in it; n_time as `Sources.stokes` has it, n_stokes 4, or 1 where nothing is polarised
    brightness: NDArray[np.float64]
    direction: NDArray[np.float64]  # (n_batch, n_source, 3): of l, m, n - 1 in the phases
    projection: NDArray[np.float64]  # (n_batch, n_gaussian, 2, 3): `Inputs.projection`
    # By way of the antennas' voltages, where there are pointing errors; 0 otherwise.
    beam_scale: NDArray[np.float64]  # (n_batch,)
    pointing: NDArray[np.float64]  # (n_batch, n_time or 1, n_antenna, 2), or (n_batch, 1, 1, 2)
    voltage_lm: NDArray[np.float64]  # (n_batch, n_source, 2): l, m in the voltages
    # (n_batch, n_template or 1, 4): scale, change of l, m, n. With a turnover w is divided by 1 + y in what
    # stands above, chi2 is sum ln(1 + y), and a last row begins with 2 sum y / (1 + y).
    template: NDArray[np.float64]
