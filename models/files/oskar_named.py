"""Sky files of OSKAR with named columns (OSKAR 2.12 and later, its documentation of sky models).

A format line names the columns, as in lists of BBS, with defaults: "Format = RaD, DecD, I, RefFreq='1e8'".
Unlike there, fields may stand between white space, Ra and Dec without a unit are in rad and RaD and DecD in
deg, the spectrum is that of all Stokes parameters, PolarizationAngle is in deg, and Orientation is from the
source's own north. A source is a Gaussian where it has both axes. With SpectralCurvature q the spectrum is
x^a e^(q ln(x)^2), x = nu / nu0.
"""

from __future__ import annotations

import cmath
import math
import re
from collections.abc import Mapping

from biro.models.components.beam import SPEED_OF_LIGHT
from biro.models.errors import ModelError
from biro.models.files.bbs import format_of, spectrum_of, split_fields, unquoted
from biro.models.files.components import ListComponent, as_ellipse, parse_float, within_turn
from biro.models.quantities import units
from biro.models.quantities.parameter import read_entry
from biro.models.quantities.strict import short_repr

_ARCSEC = math.pi / 648000
# Names of columns, in lower case; what ends in * may go on. The first that fits counts.
_NAMES: dict[str, tuple[str, ...]] = {
    "ra": ("ra",),
    "dec": ("dec",),
    "ra_deg": ("rad", "ra_deg"),
    "dec_deg": ("decd", "dec_deg"),
    "i": ("i", "i_*", "stokesi", "stokes_i*", "int_flux*", "fint*"),
    "q": ("q", "q_*", "stokesq", "stokes_q*"),
    "u": ("u", "u_*", "stokesu", "stokes_u*"),
    "v": ("v", "v_*", "stokesv", "stokes_v*"),
    "referencefrequency": ("referencefreq*", "reference_freq*", "reffreq*", "ref_freq*"),
    "frequencyincrement": ("frequencyinc*", "frequency_inc*", "freqinc*", "freq_inc*"),
    "spectralindex": ("spectralindex", "spectral_index", "spec_idx", "alpha*"),
    "logarithmicsi": ("logarithmicsi", "log_spec_idx"),
    "majoraxis": ("majoraxis", "maj*"),
    "minoraxis": ("minoraxis", "min*"),
    "semimajor": ("semimajoraxis", "semi_maj*", "a", "a_*"),
    "semiminor": ("semiminoraxis", "semi_min*", "b", "b_*"),
    "orientation": ("orientation", "positionangle", "pos_ang*", "pa", "pa_*"),
    "rotationmeasure": ("rotationmeasure", "rot_meas*", "rm*"),
    "polarizationangle": ("polarizationangle", "polarisationangle", "pol_ang*"),
    "polarizedfraction": ("polarizedfraction", "polarisedfraction", "pol_frac*"),
    "referencewavelength": ("referencewave*", "reference_wave*", "ref_wave*"),
    "spectralcurvature": ("spectralcurv*", "spectral_curv*", "spec_curv*"),
    "linewidth": ("linewidth", "line_width*"),
    "name": ("name",),
}
# Columns that no list of BBS has: these, or the end of the file's name, tell whose list it is.
_OWN = ("ra_deg", "dec_deg", "frequencyincrement", "semimajor", "semiminor", "spectralcurvature", "linewidth")
Row = Mapping[str, str]


def has_named_columns(text: str) -> bool:
    """Whether a text has a format line, before any source."""
    return _heading(text) is not None


def is_oskar_named(text: str) -> bool:
    """Whether the format line has columns that OSKAR alone knows."""
    found = _heading(text)
    return found is not None and any(key in _OWN for key, _ in _columns(found[1]))


def _heading(text: str) -> tuple[int, str] | None:
    """The number of the format line, and what stands in it."""
    for number, line in enumerate(text.splitlines()[:200], start=1):
        found = format_of(line)
        if found is not None:
            return number, found.strip().removeprefix("(").removesuffix(")")
    return None


def components_of(text: str) -> list[ListComponent]:
    """The sources of a text with a format line.

    Raises
    ------
    ModelError
        Names the line, the column and what was found.
    """
    start, heading = _heading(text) or (0, "")
    columns = read_entry(f"line {start}", _checked, heading)
    found: list[ListComponent] = []
    for number, line in enumerate(text.splitlines()[start:], start=start + 1):
        row = read_entry(f"line {number}", _row, line, columns)
        if row:
            found.append(read_entry(f"line {number}", _component, f"s{len(found) + 1}", row))
    return found


def _columns(heading: str) -> list[tuple[str, str]]:
    """Key, "" for columns that are not known, and default of each column."""
    return [
        (_key(name.strip().lower()), unquoted(default))
        for name, _, default in (field.partition("=") for field in _fields(heading))
    ]


def _key(name: str) -> str:
    for key, names in _NAMES.items():
        if any(name.startswith(one[:-1]) if one.endswith("*") else name == one for one in names):
            return key
    return ""


def _checked(heading: str) -> list[tuple[str, str]]:
    columns = _columns(heading)
    keys = [key for key, _ in columns if key]
    for key in keys:
        if keys.count(key) > 1:
            raise ModelError(
                f"the format has more than one column of {key}, as fluxes at several frequencies; those are "
                "not read: write a table of the spectrum in a model file"
            )
    for what, names in (("a right ascension", ("ra", "ra_deg")), ("a declination", ("dec", "dec_deg"))):
        if not set(names) & set(keys):
            raise ModelError(f"the format lacks {what}")
    if "i" not in keys:
        raise ModelError("the format lacks I")
    return columns


def _fields(text: str) -> list[str]:
    """Fields between commas or white space that are in no quotes and no brackets."""
    found: list[str] = []
    for part in split_fields(re.sub(r"\s*=\s*", "=", text)):
        found += [field for field in split_fields(part, " \t") if field] or [""]
    return found


def _row(line: str, columns: list[tuple[str, str]]) -> dict[str, str]:
    """Text of every column by its key; the default where it is blank. Nothing of a line without a source."""
    text = line.partition("#")[0].strip()
    if not text:
        return {}
    fields = _fields(text)
    if len(fields) != len(columns):
        raise ModelError(f"expected {len(columns)} columns, as the format has, found {len(fields)}")
    return {key: unquoted(field) or default for field, (key, default) in zip(fields, columns, strict=True)}


def _number(row: Row, key: str) -> float:
    text = row.get(key, "")
    if text.startswith(("[", "(")):
        if len(split_fields(text[1:-1])) > 1:
            raise ModelError(f"{key}: has several values, which are not read; write a table in a model file")
        text = text[1:-1].strip()
    return read_entry(key, parse_float, text) if text else 0.0


def _angle(row: Row, key: str) -> float:
    """A right ascension or declination, rad."""
    name, unit = (key, "rad") if key in row else (f"{key}_deg", "deg")
    text = row[name]
    degrees = units.sexagesimal(text, key == "ra")
    if degrees is None:
        value, given = read_entry(name, units.number, text)
        return float(value * units.factor(given or unit, units.ANGLE))
    return math.radians(degrees)


def _component(name: str, row: Row) -> ListComponent:
    for key, what in (
        ("linewidth", "a spectral line"),
        ("frequencyincrement", "fluxes at several frequencies"),
    ):
        if row.get(key):
            raise ModelError(f"{key}: {what} is not read; write a line or a table in a model file")
    dec = read_entry("dec", _angle, row, "dec")
    if not abs(dec) <= math.pi / 2 * (1 + 1e-12):
        raise ModelError(f"dec: must lie within -90 .. 90 deg, found {math.degrees(dec):g} deg")
    i, q, u, v = (_number(row, key) for key in "iquv")
    freq = _number(row, "referencefrequency")
    terms, log_spectrum = _spectrum(row, i, freq)
    rotation = _number(row, "rotationmeasure") if freq > 0 else 0.0
    linear, at_reference = _linear(row, complex(q, u), i, rotation)
    sizes = [_number(row, f"{key}axis") or 2 * _number(row, f"semi{key}") for key in ("major", "minor")]
    pa = math.radians(_number(row, "orientation"))
    return ListComponent(
        name=row.get("name", "") or name,
        ra=within_turn(read_entry("ra", _angle, row, "ra")),
        dec=dec,
        stokes=(i, linear.real, linear.imag, v),
        terms=(terms,) * 4,
        log_spectrum=log_spectrum,
        ref_freq=freq if freq > 0 and (terms or rotation) else None,
        shape=as_ellipse(sizes[0] * _ARCSEC, sizes[1] * _ARCSEC, pa) if all(sizes) else None,
        rm=rotation if linear else 0.0,
        rm_at_ref_freq=at_reference,
    )


def _spectrum(row: Row, flux: float, freq: float) -> tuple[tuple[float, ...], bool]:
    """Terms for the kernels, and whether they are logarithmic; OSKAR has none without a frequency."""
    if not freq > 0:
        return (), True
    curvature = _number(row, "spectralcurvature")
    keys = ("spectralindex", "logarithmicsi", "referencefrequency")
    given = {key: row.get(key, "") for key in keys} | ({"logarithmicsi": "true"} if curvature else {})
    terms, log_spectrum, _ = spectrum_of(given, flux)
    return ((*(terms[:1] or (0.0,)), curvature) if curvature else terms), log_spectrum


def _linear(row: Row, given: complex, flux: float, rotation: float) -> tuple[complex, bool]:
    """Q + iU, and whether they are those at the reference frequency, not at the wavelength 0."""
    has_angle = bool(row.get("polarizationangle") and row.get("polarizedfraction"))
    if has_angle and (rotation or not (row.get("q") and row.get("u"))):
        twice = 2 * math.radians(_number(row, "polarizationangle"))
        return cmath.rect(flux * _number(row, "polarizedfraction"), twice), False
    wave = _number(row, "referencewavelength")
    if not (rotation and wave):
        return given, True
    if not math.isclose(wave, SPEED_OF_LIGHT / _number(row, "referencefrequency"), rel_tol=1e-6):
        raise ModelError(
            f"referencewavelength: {short_repr(row['referencewavelength'])} is not that of the reference "
            "frequency, and Q and U at another one are not read; give PolarizationAngle and PolarizedFraction"
        )
    return given, True
