"""WSClean and BBS (makesourcedb, DP3) text component lists.

A format line names the columns in any order, with defaults: "Format = Name, Type, Ra, Dec, I,
ReferenceFrequency='150e6', ..." or "# (Name, Type, ...) = format". Spectra are those of DP3, x = nu / nu0:

    LogarithmicSI true   I x^(c0 + c1 log10 x + ...)
    LogarithmicSI false  I + c0 (x - 1) + c1 (x - 1)^2 + ...      terms in Jy

and, as in DP3, they act on Stokes I alone; Q, U and V are flat. With a RotationMeasure, Q and U follow I:
I p cos 2 chi and I p sin 2 chi with p = PolarizedFraction and chi = PolarizationAngle + RM lambda^2, rad,
or p and chi are found from Q and U at the ReferenceWavelength (m; that of ReferenceFrequency by default).

Orientation is from the m axis of the phase centre, or from the source's own north where OrientationIsAbsolute
is true (DP3, documentation of makesourcedb).
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from biro.models.components.beam import SPEED_OF_LIGHT
from biro.models.components.source import LOCAL, PHASE_CENTRE
from biro.models.errors import ModelError
from biro.models.files.components import (
    ListComponent,
    as_ellipse,
    from_model,
    parse_float,
    sexagesimal,
    to_model,
)
from biro.models.files.text import naming, read_text, write_text
from biro.models.quantities import units
from biro.models.quantities.parameter import read_entry
from biro.models.quantities.strict import did_you_mean, short_repr
from biro.models.sky import SkyModel

_log = logging.getLogger("biro.models")
_ARCSEC = math.pi / 648000
_USED = (
    "name", "type", "patch", "ra", "dec", "i", "q", "u", "v", "referencefrequency", "spectralindex",
    "logarithmicsi", "majoraxis", "minoraxis", "orientation", "rotationmeasure", "polarizedfraction",
    "reftype", "polarizationangle", "referencewavelength", "orientationisabsolute",
)  # fmt: skip
_SKIPPED = ("category", "dummy")
_WRITTEN = (
    "Name, Type, Ra, Dec, I, Q, U, V, SpectralIndex, LogarithmicSI, ReferenceFrequency, "
    "MajorAxis, MinorAxis, Orientation, OrientationIsAbsolute"
)
_ALIAS = {"spinx": "spectralindex", "reffreq": "referencefrequency"}
_TRUTH = {
    "true": True,
    "t": True,
    "1": True,
    "yes": True,
    "false": False,
    "f": False,
    "0": False,
    "no": False,
}


def read_bbs(path: str | Path) -> SkyModel:
    """The sources of a WSClean/BBS component list as a model without priors.

    Patch lines are counted (in the log) and otherwise ignored: their sources stand by themselves.

    Raises
    ------
    ModelError
        Names the file, the line, the column and what was found.
    """
    text = read_text(path)
    with naming(path):
        return to_model(_components(text))


def _components(text: str) -> list[ListComponent]:
    columns: dict[str, tuple[int, str]] | None = None
    n_patch = 0
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if columns is None and (named := format_of(line)) is not None:
            columns = read_entry(f"line {number}", _columns, named)
            continue
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if columns is None:
            raise ModelError(
                f"line {number}: no format line before the first source, "
                "such as 'Format = Name, Type, Ra, Dec, I'"
            )
        row = read_entry(f"line {number}", _row, line, columns)
        if _is_patch(row, columns, line):
            n_patch += 1
            continue
        found.append(read_entry(f"line {number}", _component, row))
    if n_patch:
        _log.info("%d patches ignored; biro reads their sources one by one", n_patch)
    return found


def format_of(line: str) -> str | None:
    """The columns of "Format = ..." or "# (...) = format"; None for other lines."""
    text = line.strip().removeprefix("#").strip()
    first, equals, rest = text.partition("=")
    if equals and first.strip().lower() == "format":
        return rest.strip()
    before, equals, last = text.rpartition("=")
    if equals and last.strip().lower() == "format":
        return before.strip().removeprefix("(").removesuffix(")")
    return None


def split_fields(text: str, between: str = ",") -> list[str]:
    """Parts between commas, or other characters, that are in no quotes and no brackets."""
    parts, start, depth, quote = [], 0, 0, ""
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "[(":
            depth += 1
        elif c in "])":
            depth -= 1
        elif c in between and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    if quote or depth:
        raise ModelError(f"quotes or brackets do not match in {short_repr(text)}")
    return [part.strip() for part in (*parts, text[start:])]


def unquoted(text: str) -> str:
    """A text without white space and quotes around it."""
    text = text.strip()
    return text[1:-1].strip() if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _columns(format_text: str) -> dict[str, tuple[int, str]]:
    """Index and default of each column."""
    columns: dict[str, tuple[int, str]] = {}
    for index, field in enumerate(split_fields(format_text)):
        name, _, default = field.partition("=")
        key = name.strip().lower()
        key = _ALIAS.get(key, key)
        if key in _SKIPPED or key.startswith("shapelet"):
            continue
        if key not in _USED:
            known = (*_USED, *_SKIPPED)
            raise ModelError(
                f"unknown column {short_repr(name.strip())}{did_you_mean(key, known)}; "
                f"known: {', '.join(known)}"
            )
        if key in columns:
            raise ModelError(f"column {short_repr(name.strip())} occurs twice")
        columns[key] = index, unquoted(default)
    missing = [key for key in ("ra", "dec", "i") if key not in columns]
    if missing:
        raise ModelError(f"the format lacks {', '.join(missing)}")
    return columns


def _row(line: str, columns: Mapping[str, tuple[int, str]]) -> dict[str, str]:
    """Text of every known column; the default, or nothing, where it is blank."""
    parts = split_fields(line)
    row = dict.fromkeys(_USED, "")
    for key, (index, default) in columns.items():
        row[key] = (unquoted(parts[index]) if index < len(parts) else "") or default
    return row


def _is_patch(row: Mapping[str, str], columns: Mapping[str, tuple[int, str]], line: str) -> bool:
    """Whether a line defines a patch: neither name nor type, whatever default the format gives the type."""
    if row["name"]:
        return False
    written = {"type": (columns["type"][0], "")} if "type" in columns else {}
    return not _row(line, written)["type"]


def _number(row: Mapping[str, str], key: str) -> float:
    return read_entry(key, parse_float, row[key]) if row[key] else 0.0


def _component(row: Mapping[str, str]) -> ListComponent:
    kind = (row["type"] or "POINT").upper()
    if kind not in ("POINT", "GAUSSIAN"):
        raise ModelError(f"type: POINT or GAUSSIAN, found {short_repr(row['type'])}")
    if row["reftype"].upper() not in ("", "J2000", "ICRS"):
        raise ModelError(f"reftype: J2000, found {short_repr(row['reftype'])}")
    rotation = _number(row, "rotationmeasure")
    if not rotation and _number(row, "polarizedfraction") != 0:
        raise ModelError("polarizedfraction: is not supported without RotationMeasure; give Q and U")
    shape = None
    if kind == "GAUSSIAN":
        axes = _number(row, "majoraxis") * _ARCSEC, _number(row, "minoraxis") * _ARCSEC
        shape = as_ellipse(*axes, math.radians(_number(row, "orientation")))
    stokes = tuple(_number(row, key) for key in "iquv")
    terms, log_spectrum, ref_freq = spectrum_of(row, stokes[0])
    own: tuple[float, ...] = ()
    if rotation:
        linear = _linear(row, stokes, rotation, (terms, log_spectrum, ref_freq))
        stokes, own = (stokes[0], linear.real, linear.imag, stokes[3]), terms
    return ListComponent(
        name=row["name"],
        ra=read_entry("ra", _direction, row["ra"], True),
        dec=read_entry("dec", _direction, row["dec"], False),
        stokes=stokes,
        terms=(terms, own, own, ()),
        log_spectrum=log_spectrum,
        ref_freq=ref_freq,
        shape=shape,
        frame=LOCAL if _truth(row, "orientationisabsolute", "false") else PHASE_CENTRE,
        rm=rotation,
    )


def _linear(
    row: Mapping[str, str],
    stokes: tuple[float, ...],
    rotation: float,
    spectrum: tuple[tuple[float, ...], bool, float | None],
) -> complex:
    """Q + iU of a source with a rotation measure at the wavelength 0, where I is that of the list."""
    flux, q, u = stokes[:3]
    terms, log_spectrum, ref_freq = spectrum
    if not (row["q"] or row["u"]):
        if not (row["polarizedfraction"] and row["polarizationangle"]):
            raise ModelError("rotationmeasure: needs Q and U, or PolarizedFraction and PolarizationAngle")
        angle = 2 * _number(row, "polarizationangle")
        return flux * _number(row, "polarizedfraction") * complex(math.cos(angle), math.sin(angle))
    wave = _number(row, "referencewavelength")
    if not wave:
        if not row["referencefrequency"] or not _number(row, "referencefrequency") > 0:
            raise ModelError("rotationmeasure: needs a ReferenceWavelength, or a positive ReferenceFrequency")
        wave = SPEED_OF_LIGHT / _number(row, "referencefrequency")
    x = SPEED_OF_LIGHT / wave / (ref_freq or SPEED_OF_LIGHT / wave)
    if log_spectrum:
        share = x ** sum(term * math.log(x) ** k for k, term in enumerate(terms))
    else:
        share = 1 + sum(term * (x - 1) ** (k + 1) for k, term in enumerate(terms))
    if share == 0:
        raise ModelError("rotationmeasure: I is 0 at the ReferenceWavelength")
    back = 2 * rotation * wave**2
    return complex(q, u) / share * complex(math.cos(back), -math.sin(back))


def _direction(text: str, hours: bool) -> float:
    """Radians of 12:29:06.7, 12h29m06.7s, +02.03.08.6, +02d03m08.6s, or a number with unit."""
    dotted = re.fullmatch(r"([+-]?\d{1,3})\.(\d{1,2})\.(\d{1,2}(?:\.\d*)?)", text)
    if dotted and not hours:
        text = ":".join(dotted.groups())
    degrees = units.sexagesimal(text, hours)
    if degrees is not None:
        angle = math.radians(degrees)
    else:
        number, unit = units.number(text)
        if unit is None:
            raise ModelError(
                f"expected {'12:29:06.7' if hours else '+02.03.08.6'} or a number with unit, "
                f"found {short_repr(text)}"
            )
        angle = number * units.factor(unit, units.ANGLE)
    if not abs(angle) <= (2 * math.pi * (1 + 1e-12) if hours else math.pi / 2):
        raise ModelError(f"out of range: {short_repr(text)}")
    return angle


def spectrum_of(row: Mapping[str, str], flux: float) -> tuple[tuple[float, ...], bool, float | None]:
    """Terms for the kernels, whether they are logarithmic, and the reference frequency."""
    inside = row["spectralindex"].strip()
    inside = inside[1:-1] if inside.startswith("[") and inside.endswith("]") else inside
    texts = [text for text in (unquoted(part) for part in split_fields(inside)) if text]
    terms = np.array([read_entry("spectralindex", parse_float, text) for text in texts])
    logarithmic = _truth(row, "logarithmicsi", "true")
    ref_freq = _number(row, "referencefrequency") if row["referencefrequency"] else None
    if not terms.any():
        return (), True, ref_freq if ref_freq and ref_freq > 0 else None
    if ref_freq is None or not ref_freq > 0:
        raise ModelError("referencefrequency: a spectrum needs a positive one")
    if logarithmic:
        return tuple(float(t) for t in terms * np.log(10.0) ** -np.arange(terms.size)), True, ref_freq
    if flux == 0:
        raise ModelError(
            "i: is 0 with linear spectral terms, which are relative to it here; "
            "give the flux at another ReferenceFrequency"
        )
    with np.errstate(over="ignore"):
        relative = tuple(float(t) for t in terms / flux)
    if not all(map(math.isfinite, relative)):
        raise ModelError(f"spectralindex: linear terms are too large for i = {flux:g}")
    return relative, False, ref_freq


def _truth(row: Mapping[str, str], key: str, default: str) -> bool:
    found = _TRUTH.get(row[key].lower() or default)
    if found is None:
        raise ModelError(f"{key}: true or false, found {short_repr(row[key])}")
    return found


def write_bbs(model: SkyModel, path: str | Path) -> None:
    """Write a model without priors as a component list that WSClean and DP3 read.

    Raises
    ------
    ModelError
        Something that such a list cannot say: a prior, brightness that varies in time, a spectrum of Q, U, V.
    """
    with naming(path):
        lines = [_line(component) for component in from_model(model)]
    write_text(path, "\n".join([f"Format = {_WRITTEN}", *lines]) + "\n")


def _line(component: ListComponent) -> str:
    flux = component.stokes[0]
    for key, value, terms in zip("QUV", component.stokes[1:], component.terms[1:], strict=True):
        if value != 0 and terms:
            raise ModelError(
                f"{component.name}: {key} has a spectrum, but a BBS list stores spectra of I only"
            )
    kernel = np.array(component.terms[0])
    written = kernel * np.log(10.0) ** np.arange(kernel.size) if component.log_spectrum else kernel * flux
    emaj, emin, pa = component.shape or (0.0, 0.0, 0.0)
    absolute = "true" if component.frame == LOCAL else "false"
    fields = [
        component.name,
        "GAUSSIAN" if component.shape else "POINT",
        sexagesimal(component.ra % (2 * math.pi), 15, (":", ":"), signed=False),
        sexagesimal(component.dec, 1, (".", "."), signed=True),
        *(repr(value) for value in component.stokes),
        "[" + ",".join(repr(float(term)) for term in written) + "]",
        "true" if component.log_spectrum else "false",
        repr(component.ref_freq) if component.ref_freq is not None else "",
        *(
            (repr(emaj / _ARCSEC), repr(emin / _ARCSEC), repr(math.degrees(pa)), absolute)
            if component.shape
            else ("", "", "", "")
        ),
    ]
    return ", ".join(fields)
