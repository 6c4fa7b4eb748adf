"""Sky files of OSKAR (.osm): lines of up to twelve numbers, separated by white space or commas.

    ra [deg]  dec [deg]  I  Q  U  V [Jy]  frequency [Hz]  spectral index  rotation measure [rad/m^2]
    major [arcsec]  minor [arcsec]  position angle [deg]

The first three must be there; the others are 0 where a line ends before them. The spectrum is a power law of
all Stokes parameters alike, Q and U are those at the frequency and turn by 2 RM (lambda^2 - lambda0^2), axes
are full widths at half maximum, position angles from the north at the source, and comments begin with "#".
Files with a format line have named columns: `oskar_named`.
"""

from __future__ import annotations

import math
from pathlib import Path

from biro.models.components.source import LOCAL
from biro.models.errors import ModelError
from biro.models.files.components import (
    ListComponent,
    as_ellipse,
    from_model,
    parse_float,
    to_model,
    within_turn,
)
from biro.models.files.oskar_named import components_of, has_named_columns
from biro.models.files.text import naming, read_text, write_text
from biro.models.quantities.parameter import read_entry
from biro.models.sky import SkyModel

ARCSEC = math.pi / 648000
COLUMNS = (
    *("ra", "dec", "I", "Q", "U", "V", "frequency", "spectral index", "rotation measure"),
    *("major axis", "minor axis", "position angle"),
)
HEADING = "# ra(deg) dec(deg) I Q U V(Jy) freq(Hz) index RM major(arcsec) minor(arcsec) pa(deg)"


def _fields(line: str) -> list[str]:
    return line.partition("#")[0].replace(",", " ").split()


def is_numbers(text: str) -> bool:
    """Whether the first line that is no comment holds three numbers or more, and nothing else."""
    fields = next(filter(None, map(_fields, text.splitlines())), [])
    try:
        return len([float(field) for field in fields]) >= 3
    except ValueError:
        return False


def is_oskar(text: str) -> bool:
    """Whether a text is lines of numbers below a comment that "#" begins."""
    return text.lstrip().startswith("#") and is_numbers(text)


def read_oskar(path: str | Path) -> SkyModel:
    """The sources of a sky file of OSKAR as a model without priors.

    Raises
    ------
    ModelError
        Names the file, the line, the column and what was found.
    """
    text = read_text(path)
    with naming(path):
        if has_named_columns(text):
            return to_model(components_of(text))
        found: list[ListComponent] = []
        for number, line in enumerate(text.splitlines(), start=1):
            fields = _fields(line)
            if fields:
                found.append(read_entry(f"line {number}", _component, f"s{len(found) + 1}", fields))
        return to_model(found)


def _component(name: str, fields: list[str]) -> ListComponent:
    """The source of a line."""
    if not 3 <= len(fields) <= len(COLUMNS):
        raise ModelError(f"expected 3 to {len(COLUMNS)} columns ({', '.join(COLUMNS)}), found {len(fields)}")
    given = (
        float(read_entry(column, parse_float, field)) for column, field in zip(COLUMNS, fields, strict=False)
    )
    numbers = [*given, *[0.0] * (len(COLUMNS) - len(fields))]
    ra, dec, i, q, u, v, freq, index, rotation, major, minor, pa = numbers
    if not abs(dec) <= 90:
        raise ModelError(f"dec: must lie within -90 .. 90 deg, found {dec:g} deg")
    turns = bool(rotation and (q or u))
    if (index or turns) and not freq > 0:
        what = "a spectral index" if index else "a rotation measure"
        raise ModelError(f"frequency: must be positive with {what}, found {freq:g}")
    return ListComponent(
        name=name,
        ra=within_turn(math.radians(ra)),
        dec=math.radians(dec),
        stokes=(i, q, u, v),
        terms=((index,) if index else (),) * 4,
        ref_freq=freq if index or turns else None,
        shape=as_ellipse(major * ARCSEC, minor * ARCSEC, math.radians(pa)),
        rm=rotation if turns else 0.0,
        rm_at_ref_freq=True,
    )


def write_oskar(model: SkyModel, path: str | Path) -> None:
    """Write a model without priors as a sky file of OSKAR, in full precision; names are not kept.

    Raises
    ------
    ModelError
        Something that such a file cannot say: a prior, a brightness that varies in time, a spectrum other
        than one power law of all Stokes parameters.
    """
    with naming(path):
        lines = [_line(one.in_frame(LOCAL, model.centre)) for one in from_model(model)]
    write_text(path, "\n".join([HEADING, *lines]) + "\n")


def _line(component: ListComponent) -> str:
    terms = component.terms[0]
    if len(terms) > 1 or (terms and not component.log_spectrum):
        raise ModelError(f"{component.name}: an OSKAR sky file stores power laws only")
    for key, value, own in zip("QUV", component.stokes[1:], component.terms[1:], strict=True):
        if value != 0 and own != terms:
            raise ModelError(
                f"{component.name}: {key} has another spectrum than I, which an OSKAR sky file cannot store"
            )
    emaj, emin, pa = component.shape or (0.0, 0.0, 0.0)
    numbers = [math.degrees(component.ra), math.degrees(component.dec), *component.stokes]
    numbers += [component.ref_freq or 0.0, terms[0] if terms else 0.0, 0.0]
    numbers += [emaj / ARCSEC, emin / ARCSEC, math.degrees(pa)]
    return " ".join(repr(float(number)) for number in numbers)
