"""Models of difmap (.mod, .mfit): components in polar coordinates about a centre, one a line.

    flux [Jy]  radius [mas]  theta [deg]  major [mas]  axial ratio  phi [deg]  type  frequency [Hz]  index

Only the flux must be there. theta and phi go from north through east; radius and theta stand for direction
cosines, as east and north of a model file do. Type 0 is a point, 1 a Gaussian whose full width at half
maximum is `major`, 2 a uniform disk, 3 an optically thin sphere and 4 a ring whose diameter it is; without a
type a component is a Gaussian where it has a size. A number ends in "v" where
difmap was to fit it. phi is from the north of the map's centre. Comments begin with "!", and one of them
states the centre, rounded: "! Center RA: 10 33 51.43, Dec: +60 51 07.33 (2000.0)".
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from biro.models.components.direction import Centre, parse_direction, radec_to_lm
from biro.models.components.shapes.discs import DiscSource, RingSource, SphereSource
from biro.models.components.source import PHASE_CENTRE, GaussianSource, PointSource, Source
from biro.models.errors import ModelError
from biro.models.files.components import (
    ListComponent,
    as_ellipse,
    from_model,
    parse_float,
    sexagesimal,
)
from biro.models.files.text import naming, read_text, write_text
from biro.models.quantities.parameter import Fixed, read_entry
from biro.models.sky import SkyModel

_log = logging.getLogger("biro.models")
MAS = math.pi / 648e6
COLUMNS = ("flux", "radius", "theta", "major", "axial ratio", "phi", "type", "frequency", "spectral index")
_MARKED = (
    ("I",),
    ("east", "north"),
    ("east", "north"),
    ("emaj",),
    ("ratio",),
    ("pa",),
    (),
    (),
    ("spectral_index",),
)
DEFAULTS = (0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0)
"""Of columns that a line leaves out at its end."""
POINT, GAUSSIAN = 0, 1
TYPES = ("delta", "Gaussian", "uniform disk", "optically thin sphere", "ring", "rectangle", "SZ")
SHAPES: dict[int, type[Source]] = {
    POINT: PointSource,
    GAUSSIAN: GaussianSource,
    2: DiscSource,
    3: SphereSource,
    4: RingSource,
}
_CENTRE = re.compile(
    r"!\s*Center RA:\s*(\d+)\s+(\d+)\s+([\d.]+),?\s*Dec:\s*([+-]?\d+)\s+(\d+)\s+([\d.]+)\s*\((\d+\.?\d*)\)"
)


def is_difmap(text: str) -> bool:
    """Whether a text begins as difmap writes its models: with a comment that "!" begins."""
    return text.lstrip().startswith("!")


def read_difmap(path: str | Path) -> SkyModel:
    """The components of a difmap model as a model without priors.

    Numbers stay as they are. Offsets, which follow from radius and angle, have four decimals more than the
    radius and at least nine digits of it.

    The centre of the file, where it states one of J2000, becomes that of the model, with what the file rounds
    away as its `centre_error`; without it, positions are offsets from the phase centre of the data. Numbers
    that difmap was to fit are fixed like all others; `read_marks` tells which they are.

    Raises
    ------
    ModelError
        Names the file, the line, the column and what was found; or a shape that sources here cannot have.
    """
    text = read_text(path)
    with naming(path):
        sources: list[Source] = []
        for number, fields in _rows(text):
            sources.append(read_entry(f"line {number}", _source, f"c{len(sources) + 1}", fields))
        if not sources:
            raise ModelError("no components in the file")
        centre, error = _centre(text.splitlines()) or (None, None)
        return SkyModel(sources, centre=centre, centre_error=error)


def read_marks(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Which quantities difmap was to fit, by the name of the source: those that a "v" marks.

    A radius or an angle theta that is marked stands for east and north.
    """
    found: dict[str, tuple[str, ...]] = {}
    for number, (_, fields) in enumerate(_rows(read_text(path)), start=1):
        keys = [key for field, of in zip(fields, _MARKED, strict=False) if field.endswith("v") for key in of]
        if keys:
            found[f"c{number}"] = tuple(dict.fromkeys(keys))
    return found


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Number of a line, and its fields, of each line with a component."""
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.partition("!")[0].split()
        if fields:
            yield number, fields


def _centre(lines: list[str]) -> tuple[Centre, Fixed] | None:
    """Where the comments put the centre, rad, and one unit of its last digits; None where it is not J2000."""
    for line in lines:
        match = _CENTRE.match(line.strip())
        if match is None:
            continue
        if float(match[7]) != 2000.0:
            _log.info("biro ignores the centre of the list, whose equinox is %s", match[7])
            return None
        ra, dec = ":".join(match.group(1, 2, 3)), ":".join(match.group(4, 5, 6))
        centre = parse_direction(f"{ra} {dec}")
        of_ra, of_dec = (10.0 ** -len(match[i].partition(".")[2]) for i in (3, 6))
        error = math.hypot(15 * of_ra * math.cos(centre[1]), of_dec)
        return centre, Fixed(round(1.05 * error, 1 - math.floor(math.log10(error))), "arcsec")
    return None


def _source(name: str, fields: list[str]) -> Source:
    """The component of a line."""
    if len(fields) > len(COLUMNS):
        raise ModelError(
            f"expected at most {len(COLUMNS)} columns ({', '.join(COLUMNS)}), found {len(fields)}"
        )
    numbers = [
        float(read_entry(column, parse_float, field.removesuffix("v")))
        for column, field in zip(COLUMNS, fields, strict=False)
    ]
    flux, radius, theta, major, ratio, phi, kind, freq, index = (*numbers, *DEFAULTS[len(numbers) :])
    if len(numbers) <= COLUMNS.index("type"):
        kind = GAUSSIAN if major > 0 else POINT
    if kind not in SHAPES:
        known = f" ({TYPES[int(kind)]})" if kind in range(len(TYPES)) else ""
        allowed = ", ".join(f"{code} ({TYPES[code]})" for code in SHAPES)
        raise ModelError(f"type: one of {allowed}, found {kind:g}{known}")
    angle, decimals = math.radians(theta), _decimals(fields[1] if len(fields) > 1 else "0", radius)
    given: dict[str, object] = {
        "east": Fixed(round(radius * math.sin(angle), decimals), "mas"),
        "north": Fixed(round(radius * math.cos(angle), decimals), "mas"),
        "I": Fixed(flux, "Jy"),
    }
    if index:
        if not freq > 0:
            raise ModelError(f"frequency: must be positive with a spectral index, found {freq:g}")
        given |= {"spectral_index": Fixed(index), "ref_freq": Fixed(freq, "Hz")}
    if kind == POINT or as_ellipse(major, major * ratio, phi) is None:
        return PointSource(name, **given)
    return SHAPES[int(kind)](name, **given, **_shape(major, ratio, phi))


def _decimals(text: str, radius: float) -> int:
    """Decimals of offsets: four more than those of the radius, and at least nine digits of it."""
    stated = -int(Decimal(text.removesuffix("v")).as_tuple().exponent)
    return max(stated + 4, 9 - math.floor(math.log10(abs(radius))) if radius else 0)


def _shape(major: float, ratio: float, phi: float) -> dict[str, object]:
    """Axes of an ellipse in mas and its position angle in deg; difmap's ratio may be more than 1."""
    if ratio > 1:
        major, ratio, phi = major * ratio, 1 / ratio, phi + 90.0
    return {
        "emaj": Fixed(major, "mas"),
        "ratio": Fixed(ratio),
        "pa": Fixed(phi, "deg"),
        "frame": PHASE_CENTRE,
    }


def write_difmap(
    model: SkyModel, path: str | Path, free: Mapping[str, Mapping[str, float]] | None = None
) -> None:
    """Write a model without priors as a difmap model.

    Positions are about the model's centre; a model of offsets alone needs none, and its file states none.
    Numbers have 15 digits, but one with an error that is known has four digits behind the first of the error.

    Parameters
    ----------
    model : SkyModel
    path : path
    free : mapping of source to mapping of key to error, optional
        Quantities that were fitted, with keys as `read_marks` has them; a "v" marks them in the file. Errors
        are in Jy, rad or without a unit; NaN where they are not known.

    Raises
    ------
    ModelError
        Something that such a file cannot say: a prior, Q, U or V, a brightness that varies in time, a
        spectrum other than a power law, positions without a centre.
    """
    with naming(path):
        centre = model.centre
        if centre is None:
            if any(source.ra is not None for source in model.sources):
                raise ModelError("positions of a difmap model are offsets; give [sky] centre")
            model = replace(model, centre=(0.0, 0.0))
        components = [one.in_frame(PHASE_CENTRE, centre) for one in from_model(model)]
        lines = [_line(one, model.centre, (free or {}).get(one.name, {})) for one in components]
    heading = [f"! {'  '.join(COLUMNS)}"]
    if centre is not None:
        ra, dec = sexagesimal(centre[0], 15, (" ", " "), False), sexagesimal(centre[1], 1, (" ", " "), True)
        heading.insert(0, f"! Center RA: {ra},  Dec: {dec} (2000.0)")
    write_text(path, "\n".join([*heading, *lines]) + "\n")


def _line(component: ListComponent, centre: Centre, free: Mapping[str, float]) -> str:
    terms = component.terms[0]
    if any(component.stokes[1:]):
        raise ModelError(f"{component.name}: a difmap model stores Stokes I only")
    if len(terms) > 1 or (terms and not component.log_spectrum):
        raise ModelError(f"{component.name}: a difmap model stores power laws only")
    east, north = radec_to_lm(component.ra, component.dec, centre)
    emaj, emin, pa = component.shape or (0.0, 0.0, 0.0)
    numbers = [
        component.stokes[0],
        math.hypot(east, north) / MAS,
        math.degrees(math.atan2(east, north)),
        emaj / MAS,
        emin / emaj if emaj else 1.0,
        math.degrees(pa),
        POINT if component.shape is None else GAUSSIAN,
        component.ref_freq or 0.0,
        terms[0] if terms else 0.0,
    ]
    radius = math.hypot(east, north)
    scale = (1.0, MAS, math.radians(1.0) * radius, MAS, 1.0, math.radians(1.0), 1.0, 1.0, 1.0)
    texts = []
    for number, keys, unit in zip(numbers, _MARKED, scale, strict=True):
        errors = [free[key] / unit if unit else math.nan for key in keys if key in free]
        error = min(errors, default=math.nan)
        digits = max(1, 4 - math.floor(math.log10(error))) if 0.0 < error < math.inf else None
        text = f"{number:.15g}" if digits is None else f"{number:.{digits}f}"
        texts.append(text + "v" * bool(errors))
    return " ".join(texts)
