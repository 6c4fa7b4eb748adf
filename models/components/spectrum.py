"""How brightness changes with frequency (physics: section 4)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from biro.models.errors import ModelError
from biro.models.quantities.parameter import Series, read_entry, series
from biro.models.quantities.strict import did_you_mean, short_repr
from biro.models.quantities.units import NUMBER

STOKES = ("I", "Q", "U", "V")
# The keys of the three forms, x = nu / nu0:
#   spectral_index   S0 x^(a0 + a1 ln x + ...)
#   log10_spectrum   S0 x^(b0 + b1 log10 x + ...): log10 S = log10 S0 + b0 log10 x + b1 log10^2 x + ...
#   polynomial       S0 (1 + c1 (x - 1) + c2 (x - 1)^2 + ...)
FORMS = ("spectral_index", "log10_spectrum", "polynomial")
MAX_TERMS = 20

# Terms of all four Stokes parameters alike, or of each by name.
Terms = Series | dict[str, Series]


def read_terms(value: object) -> Terms:
    """Terms of a spectrum: one, a list, or a table { I = ..., Q = ... } for each Stokes parameter.

    Stokes parameters that such a table leaves out follow I.

    Raises
    ------
    ModelError
        Not numbers, priors or ties; unknown Stokes names; more than 20 terms.
    """
    if isinstance(value, Mapping) and not {"prior", "tie"} & set(value):
        unknown = [key for key in value if key not in STOKES]
        if unknown:
            found, hint = short_repr(unknown[0]), did_you_mean(unknown[0], STOKES)
            raise ModelError(f"unknown Stokes parameter {found}{hint}; I, Q, U or V")
        if "I" not in value:
            raise ModelError("a spectrum given by Stokes parameter needs I")
        return {key: read_entry(key, _terms, value[key]) for key in STOKES if key in value}
    return _terms(value)


def _terms(value: object) -> Series:
    terms = series(value, NUMBER)
    if len(terms) > MAX_TERMS:
        raise ModelError(f"at most {MAX_TERMS} spectral terms, found {len(terms)}")
    return terms


def term_scale(form: str, n_term: int) -> NDArray[np.float64]:
    """What the terms of a form are multiplied by to become those of the kernels (float64 (n_term,)).

    log10 x = ln x / ln 10, so b_k log10^k x = b_k / ln(10)^k ln^k x.
    """
    if form == "log10_spectrum":
        return np.asarray(np.log(10.0) ** -np.arange(n_term, dtype=np.float64))
    return np.ones(n_term)
