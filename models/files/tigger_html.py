"""Tigger sky models (.lsm.html): HTML whose tags hold objects, with `mdltype` and `mdlval`.

A source has a name, a Position (ra, dec), a flux, Polarization (I, Q, U, V) or PolarizationWithRM (and rm,
freq0), and perhaps a shape, Gaussian (ex, ey, pa), and a spectrum, SpectralIndex (spi, freq0); all angles in
rad. They mean what they mean in a Tigger ASCII list (`tigger`); attributes of other names are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from biro.models.errors import ModelError
from biro.models.files.bbs import unquoted
from biro.models.files.components import (
    ListComponent,
    as_ellipse,
    parse_float,
    to_model,
    within_turn,
)
from biro.models.files.text import naming, read_text
from biro.models.quantities.parameter import read_entry
from biro.models.quantities.strict import short_repr
from biro.models.sky import SkyModel

_MOST_DEEP = 40


@dataclass
class _Object:
    """An object of the file: a value, or its arguments in order and attributes by name."""

    kind: str
    value: object = None
    arguments: list[_Object] = field(default_factory=list)
    attributes: dict[str, _Object] = field(default_factory=dict)


class _Parser(HTMLParser):
    """Collects the objects; a tag without `mdltype` holds none."""

    def __init__(self) -> None:
        super().__init__()
        self.top = _Object("")
        self._open: list[tuple[str, _Object | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        kind = given.get("mdltype")
        made = None
        if kind:
            made = _Object(kind, _value(given["mdlval"] or "", kind) if "mdlval" in given else None)
            parent = next((one for _, one in reversed(self._open) if one is not None), self.top)
            name = given.get("mdlattr")
            if name:
                parent.attributes[name] = made
            else:
                parent.arguments.append(made)
        if len(self._open) > _MOST_DEEP:
            raise ModelError("tags are nested too deeply for a Tigger model")
        self._open.append((tag, made))

    def handle_endtag(self, tag: str) -> None:
        while self._open:
            if self._open.pop()[0] == tag:
                break


def _value(text: str, kind: str) -> object:
    """A finite number where the type says so and there is one, otherwise the text without its quotes."""
    if kind in ("float", "int"):
        try:
            return parse_float(text.strip())
        except ModelError:  # refused where a source needs it
            return text
    return unquoted(text)


def is_tigger_html(text: str) -> bool:
    """Whether a text is HTML that holds a Tigger model."""
    head = text[:4096].lower()
    return head.lstrip().startswith("<html") and "mdltype" in head


def read_tigger_html(path: str | Path) -> SkyModel:
    """The sources of a Tigger model (.lsm.html) as a model without priors.

    Raises
    ------
    ModelError
        Names the file, the source and what was found.
    """
    text = read_text(path)
    with naming(path):
        parser = _Parser()
        parser.feed(text)
        parser.close()
        models = [one for one in parser.top.arguments if one.kind == "SkyModel"]
        sources = [one for model in models for one in model.arguments if one.kind == "Source"]
        return to_model(
            [read_entry(f"source {i}", _component, one) for i, one in enumerate(sources, start=1)]
        )


def _numbers(one: _Object, *names: str) -> list[float]:
    """Arguments of an object, in the order in which Tigger writes them; 0 for those that are not there."""
    found = [each.value for each in one.arguments[: len(names)]]
    found += [one.attributes[name].value if name in one.attributes else 0.0 for name in names[len(found) :]]
    for name, value in zip(names, found, strict=True):
        if not isinstance(value, float):
            raise ModelError(f"{one.kind}: {name}: expected a finite number, found {short_repr(value)}")
    return [value for value in found if isinstance(value, float)]


def _component(source: _Object) -> ListComponent:
    if len(source.arguments) < 3:
        raise ModelError("expected a name, a position and a flux")
    name, place, flux = source.arguments[:3]
    if place.kind != "Position" or flux.kind not in ("Polarization", "PolarizationWithRM"):
        raise ModelError(f"expected Position and Polarization, found {place.kind} and {flux.kind}")
    ra, dec = _numbers(place, "ra", "dec")
    if not abs(dec) <= math.pi / 2 * (1 + 1e-15):
        raise ModelError(f"dec: must lie within -90 .. 90 deg, found {math.degrees(dec):g} deg")
    *stokes, rotation, rm_freq = _numbers(flux, "I", "Q", "U", "V", "rm", "freq0")
    terms, ref_freq = _spectrum(source.attributes.get("spectrum"))
    turns = bool(rotation and (stokes[1] or stokes[2]))
    if turns and terms and rm_freq != ref_freq:
        raise ModelError("its rotation measure and its spectral index have different reference frequencies")
    return ListComponent(
        name=str(name.value),
        ra=within_turn(ra),
        dec=dec,
        stokes=tuple(stokes),
        terms=(terms,) * 4,
        ref_freq=ref_freq if terms else rm_freq if turns else None,
        shape=_shape(source.attributes.get("shape")),
        rm=rotation if turns else 0.0,
        rm_at_ref_freq=rm_freq > 0,
    )


def _shape(shape: _Object | None) -> tuple[float, float, float] | None:
    if shape is None:
        return None
    if shape.kind != "Gaussian":
        raise ModelError(
            f"its shape is {shape.kind}, which biro does not read, only Gaussian. Write an image as "
            "[[image]] in a "
            "model file"
        )
    return as_ellipse(*_numbers(shape, "ex", "ey", "pa"))


def _spectrum(spectrum: _Object | None) -> tuple[tuple[float, ...], float]:
    """Terms in natural logarithms, and the reference frequency."""
    if spectrum is None:
        return (), 0.0
    if spectrum.kind != "SpectralIndex":
        raise ModelError(f"its spectrum is {spectrum.kind}, which biro does not read, only SpectralIndex")
    index, *rest = spectrum.arguments or [_Object("float", 0.0)]
    several = _Object("spi", arguments=index.arguments or [index])
    terms = _numbers(several, *(f"spi{i + 1}" for i in range(len(several.arguments))))
    freq = _numbers(_Object("SpectralIndex", arguments=rest, attributes=spectrum.attributes), "freq0")[0]
    while terms and terms[-1] == 0:
        terms.pop()
    if terms and not freq > 0:
        raise ModelError(f"freq0: a spectral index needs a positive reference frequency, found {freq:g}")
    return tuple(terms), freq
