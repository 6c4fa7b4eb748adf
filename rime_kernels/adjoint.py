"""The derivatives of chi2 that an engine computes: with respect to the arrays that its loops read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Adjoint(NamedTuple):
    """Derivatives of chi2 = sum w |V - D|^2 with respect to the arrays of `Inputs`.

    With R_S = sum over correlations c of conj(M_cS) w (V_c - D_c), the weighted residual in Stokes
    parameters (M: `Rows.stokes_to_corr`), P = E_p E_q K_pq envelope_pq and z = conj(P) sum_S B_S R_S:

        d chi2 / d B_S          = sum 2 Re(conj(P) R_S)
        d chi2 / d turns        = sum 4 pi Im(z)
        d chi2 / d ln(envelope) = sum 2 Re(z)                 as with respect to ln(E_p) and ln(E_q)

    The envelope e of a profile is complex and may be 0: with y = conj(E_p E_q K_pq) sum_S B_S R_S,

        d chi2 / d x = sum 2 (d(Re e)/dx Re(y) + d(Im e)/dx Im(y))

    B = S0 E^2 spectrum, with E of the beam that all antennas share, has these at each channel. Axes are
    those of `Inputs`: a sky without sources may have one source without flux, one without pointing errors or
    templates has unused axes of length 1.
    """

    chi2: NDArray[np.float64]  # (n_batch,)
    # By way of B; n_time as `Sources.stokes` has it, n_stokes 4, or 1 where nothing is polarised.
    stokes: NDArray[np.float64]  # (n_batch, n_time or 1, n_source, n_stokes): of S0
    spectral_terms: NDArray[np.float64]  # (n_batch, n_source, n_stokes, n_term)
    argument: NDArray[np.float64]  # (n_batch, n_source): sum of nu times that of x = scale nu r, E = E(x)
    direction: NDArray[np.float64]  # (n_batch, n_source, 3): of l, m, n - 1 in the phases
    projection: NDArray[np.float64]  # (n_batch, n_shape, 2, 3): `Inputs.projection`
    # By way of the antennas' voltages, where there are pointing errors; 0 otherwise.
    beam_scale: NDArray[np.float64]  # (n_batch,)
    # (n_batch, n_time or 1, n_antenna, 2), or (n_batch, 1, 1, 2); 4 of `JonesBeam.motion`
    pointing: NDArray[np.float64]
    voltage_lm: NDArray[np.float64]  # (n_batch, n_source, 2): l, m in the voltages
    # (n_batch, n_template or 1, 4): scale, change of l, m, n. With a scaled_dof t, w is divided by
    # 1 + y, y = w |V - D|^2 / t, in all of the above, chi2 is sum ln(1 + y), and the last row begins with
    # 2 sum y / (1 + y).
    template: NDArray[np.float64]
    profile: NDArray[np.float64]  # (n_batch, n_profile or 1, 8): the parameters of the profiles
    # (n_batch, n_source, 4): `Sources.faraday`; (n_batch, 0, 4) where nothing turns
    faraday: NDArray[np.float64]
    # Of `AntennaTerms.jones`, complex128 with n_batch: of the real part, plus i times that of the imaginary.
    jones: NDArray[np.complex128] | None = None


def joined(parts: Sequence[Adjoint]) -> Adjoint:
    """The parts of a batch in one."""
    if len(parts) == 1:
        return parts[0]
    joined: list[Any] = [  # arrays; None only for the one that may be
        None if each[0] is None else np.concatenate(each) for each in zip(*parts, strict=True)
    ]
    return Adjoint(*joined)


def plus(total: Adjoint | None, term: Adjoint, factor: float = 1.0) -> Adjoint:
    """total + factor * term."""
    scaled: list[Any] = list(term)  # None of the last only
    if factor != 1.0:
        scaled = [None if value is None else factor * value for value in term]
    if total is not None:
        scaled = [None if b is None else a + b for a, b in zip(total, scaled, strict=True)]
    return Adjoint(*scaled)


def of_varied(adjoint: Adjoint, first: int, stop: int) -> Adjoint:
    """The derivatives with respect to sources first .. stop - 1, 0 of the others and of the beam.

    Loops may leave anything in the place of those that nobody asks for.
    """
    n_source = adjoint.direction.shape[1]

    def kept(name: str, axis: int = 1) -> NDArray[np.float64]:
        values: NDArray[np.float64] = getattr(adjoint, name)
        # Gaussians and profiles are the last of the sources.
        before = n_source - values.shape[axis] if name in _OF_SHAPES else 0
        own = (*[slice(None)] * axis, slice(max(0, first - before), max(0, stop - before)))
        found = np.zeros_like(values)
        found[own] = values[own]
        return found

    derivatives: dict[str, Any] = {name: kept(name, 2 if name == "stokes" else 1) for name in _OF_SOURCES}
    return adjoint._replace(
        **derivatives,
        beam_scale=np.zeros_like(adjoint.beam_scale),
        pointing=np.zeros_like(adjoint.pointing),
    )


_OF_SHAPES = "projection", "profile"
_OF_OTHERS = "chi2", "beam_scale", "pointing", "template", "jones"
_OF_SOURCES = tuple(name for name in Adjoint._fields if name not in _OF_OTHERS)
