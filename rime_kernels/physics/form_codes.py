"""Codes of the forms of spectra, without Numba; `spectral_forms` has their formulas."""

from __future__ import annotations

# The first two are polynomials: `brightness.spectral_factor`.
POLYNOMIAL, POWER_LAW, FREE_FREE, SELF_ABSORBED, GAUSSIAN_LINE, LORENTZIAN_LINE = range(6)
LINEAR_TABLE, LOG_TABLE = 6, 7
N_FORM = 8
# Terms that a form beyond a polynomial has of its own; those of a power law follow.
N_OWN = 4
