"""How brightness changes with frequency (physics: section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed, Series, quantity, read_entry, series
from biro.models.quantities.strict import did_you_mean, short_repr
from biro.models.quantities.units import FREQUENCY, NUMBER, VELOCITY, factor
from rime_kernels.physics import form_codes

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


# ---- forms that are more than a polynomial

# Profiles of lines and ways between the knots of a table, with the codes of the kernels.
PROFILES = {"gaussian": form_codes.GAUSSIAN_LINE, "lorentzian": form_codes.LORENTZIAN_LINE}
INTERPOLATIONS = {"log": form_codes.LOG_TABLE, "linear": form_codes.LINEAR_TABLE}
# At most one of these; `free_free` and a line with `height` act on a polynomial of logarithms.
SHAPES = ("free_free", "self_absorption", "line", "table")
_LINE_KEYS = ("profile", "freq", "velocity", "rest_freq", "fwhm", "height", "velocity_frame")
VELOCITY_FRAMES = ("LSRK", "BARY", "TOPO")
_TABLE_KEYS = ("freq", "value", "interpolation")
MAX_KNOTS = 200


def _keys(value: object, allowed: tuple[str, ...], example: str) -> Mapping[str, object]:
    """A table with no other keys."""
    if not isinstance(value, Mapping):
        raise ModelError(f"expected a table such as {example}, found {short_repr(value)}")
    for key in value:
        if key not in allowed:
            hint = did_you_mean(key, allowed)
            raise ModelError(f"unknown key {short_repr(key)}{hint}; allowed: {', '.join(allowed)}")
    return value


def _choice(key: str, given: object, allowed: Mapping[str, int]) -> str:
    if not isinstance(given, str) or given not in allowed:
        raise ModelError(f"{key}: one of {', '.join(allowed)}, found {short_repr(given)}")
    return given


def _frequency(key: str, value: object) -> Fixed:
    """A positive frequency that is not fitted."""
    found = read_entry(key, quantity, value, FREQUENCY)
    if not isinstance(found, Fixed) or not found.value > 0:
        raise ModelError(f"{key}: must be a positive number, found {short_repr(value)}")
    return found


def read_line(value: object) -> dict[str, object]:
    """A spectral line: { profile = "gaussian", freq = ..., fwhm = ..., height = ... }.

    The centre is `freq`, or `velocity` with a `rest_freq`, where v = c (1 - freq/rest_freq), as radio has it.
    Then `fwhm` is a velocity too, and `velocity_frame` says in which frame: "LSRK", "BARY" or "TOPO"; without
    it, that of the data. `height`, over the flux at ref_freq, is given where there is a continuum.

    Raises
    ------
    ModelError
        Unknown or missing keys, or what is no quantity of its dimension.
    """
    given = _keys(value, _LINE_KEYS, '{ freq = "1420.4 MHz", fwhm = "0.1 MHz" }')
    found: dict[str, object] = {"profile": _choice("profile", given.get("profile", "gaussian"), PROFILES)}
    if ("freq" in given) == ("velocity" in given) or ("velocity" in given) != ("rest_freq" in given):
        raise ModelError("the centre is freq, or velocity with rest_freq")
    if "fwhm" not in given:
        raise ModelError("fwhm is missing")
    width = VELOCITY if "velocity" in given else FREQUENCY
    for key, dimension in (("freq", FREQUENCY), ("velocity", VELOCITY), ("fwhm", width), ("height", NUMBER)):
        if key in given:
            found[key] = read_entry(key, quantity, given[key], dimension)
    if "rest_freq" in given:
        found["rest_freq"] = _frequency("rest_freq", given["rest_freq"])
    if "velocity_frame" in given:
        frame = given["velocity_frame"]
        if "velocity" not in given:
            raise ModelError("velocity_frame needs velocity, but the centre is given as freq")
        if frame not in VELOCITY_FRAMES:
            raise ModelError(
                f"velocity_frame: one of {', '.join(VELOCITY_FRAMES)}, found {short_repr(frame)}"
                f"{did_you_mean(frame, VELOCITY_FRAMES)}"
            )
        found["velocity_frame"] = frame
    return found


def read_table(value: object) -> dict[str, object]:
    """A spectrum by its knots: { freq = [...], value = [...], interpolation = "log" }.

    `value`, over I, may be fitted; `freq` is fixed and ascends. Between knots the logarithm of the value is
    linear in that of the frequency ("log"), or the value in the frequency ("linear").

    Raises
    ------
    ModelError
        Unknown or missing keys, fewer than two knots, unequal numbers, frequencies that do not ascend.
    """
    given = _keys(value, _TABLE_KEYS, '{ freq = ["1 GHz", "2 GHz"], value = [1.0, 0.6] }')
    for key in ("freq", "value"):
        if not isinstance(given.get(key), (list, tuple)) and not hasattr(given.get(key), "__array__"):
            raise ModelError(f"{key}: expected a list, found {short_repr(given.get(key))}")
    freq = tuple(_frequency("freq", each) for each in read_entry("freq", series, given["freq"], FREQUENCY))
    values = read_entry("value", series, given["value"], NUMBER)
    if not 2 <= len(freq) <= MAX_KNOTS or len(freq) != len(values):
        raise ModelError(
            f"2 to {MAX_KNOTS} knots, each with freq and value; found {len(freq)} and {len(values)}"
        )
    hertz = [each.value * factor(each.unit, FREQUENCY) for each in freq]
    if any(second <= first for first, second in pairwise(hertz)):
        raise ModelError("freq: must ascend")
    interpolation = _choice("interpolation", given.get("interpolation", "log"), INTERPOLATIONS)
    return {"freq": freq, "value": values, "interpolation": interpolation}


def check_combination(given: Mapping[str, object]) -> None:
    """Refuse keys of a spectrum that do not go together; `given` has all of them, None where absent.

    Raises
    ------
    ModelError
        Says which.
    """
    shapes = [key for key in SHAPES if given[key] is not None]
    form = next((key for key in FORMS if given[key] is not None), None)
    if len(shapes) > 1:
        raise ModelError(f"one of {', '.join(SHAPES)} at a time, found {' and '.join(shapes)}")
    if given["thick_index"] is not None and shapes != ["self_absorption"]:
        raise ModelError("thick_index: needs self_absorption")
    if not shapes:
        return
    (shape,) = shapes
    if shape == "self_absorption":
        _check_thin(given["spectral_index"])
    elif shape == "table" and form is not None:
        raise ModelError(f"table and {form} both define the spectrum; remove one")
    elif form == "polynomial":
        raise ModelError(f"{shape}: is only for spectral_index or log10_spectrum, found polynomial")
    line = given["line"]
    if isinstance(line, Mapping) and form is not None and "height" not in line:
        raise ModelError(f"line: a line on a continuum ({form}) needs height, in units of I")


def _check_thin(index: object) -> None:
    if not isinstance(index, tuple) or len(index) != 1:
        raise ModelError("self_absorption: needs spectral_index, one number below 0: that of the thin side")
    if isinstance(index[0], Fixed) and not index[0].value < 0:
        raise ModelError(f"spectral_index: must be below 0 with self_absorption, found {index[0].value}")


def read_rm_reference(value: object) -> str:
    """Where Q and U are given: "zero" wavelength, or "ref_freq"."""
    return _choice("rm_reference", value, {"zero": 0, "ref_freq": 1})
