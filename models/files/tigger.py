"""Tigger ASCII lists (.lsm.txt): columns separated by white space, named by a line "#format: name ...".

As in Tigger, the last of several columns of one name counts, position angles are from the north at the
source, the spectrum is (nu / freq0)^(spi + spi2 ln(nu / freq0) + ...) for all Stokes alike, columns of
unknown names are skipped, and tags are not kept. As in Meow, Q and U are those at freq0 and turn by
2 rm (lambda^2 - lambda0^2); without freq0 they are those at the wavelength 0.
"""

from __future__ import annotations

import logging
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
from biro.models.files.text import naming, read_text, write_text
from biro.models.quantities.parameter import read_entry
from biro.models.sky import SkyModel

_log = logging.getLogger("biro.models")
_DEFAULT = "name ra_h ra_m ra_s dec_d dec_m dec_s i q u v spi rm emaj_s emin_s pa_d freq0 tags..."
_MARK = "#format:"
_DEG = math.pi / 180
_ANGLES = {"rad": 1.0, "d": _DEG, "m": _DEG / 60, "s": _DEG / 3600}
_CURVATURE = ("spi", *(f"spi{i}" for i in range(2, 10)))


def is_tigger(text: str) -> bool:
    """Whether a text begins as a Tigger ASCII list does."""
    return text.lstrip().lower().startswith(_MARK)


def read_tigger(path: str | Path) -> SkyModel:
    """The sources of a Tigger ASCII list as a model without priors.

    Without a "#format:" line the columns are Tigger's own default.

    Raises
    ------
    ModelError
        Names the file, the line, the column and what was found.
    """
    text = read_text(path)
    with naming(path):
        return to_model(_components(text))


def _components(text: str) -> list[ListComponent]:
    lines = text.splitlines()
    columns = _columns(text.lstrip().splitlines()[0][len(_MARK) :] if is_tigger(text) else _DEFAULT)
    found: list[ListComponent] = []
    default_freq: float | None = None
    for number, line in enumerate(lines, start=1):
        fields = line.split("#")[0].split()
        if not fields:
            continue
        component = read_entry(
            f"line {number}", _Row(fields, columns, len(found) + 1, default_freq).component
        )
        default_freq = default_freq or component.ref_freq
        found.append(component)
    return found


def _columns(text: str) -> dict[str, int]:
    names = [name.removesuffix("...").lower() for name in text.split()]
    columns = {name: index for index, name in enumerate(names)}
    repeated = [name for name in columns if names.count(name) > 1 and name.lstrip("-_") not in ("", "dummy")]
    if repeated:
        _log.info("#format: has the columns %s more than once; biro uses the last one", ", ".join(repeated))
    for what, known in (
        ("right ascension", ("ra_h", "ra_d", "ra_rad")),
        ("declination", ("dec_d", "dec_rad")),
        ("flux", ("i",)),
    ):
        if not set(known) & set(columns):
            raise ModelError(f"#format: no column for the {what}; one of {', '.join(known)}")
    return columns


class _Row:
    """One line of a list."""

    def __init__(
        self, fields: list[str], columns: dict[str, int], number: int, default_freq: float | None
    ) -> None:
        self._fields, self._columns = fields, columns
        self._number, self._default_freq = number, default_freq

    def _text(self, key: str) -> str | None:
        index = self._columns.get(key)
        return self._fields[index] if index is not None and index < len(self._fields) else None

    def _value(self, key: str) -> float | None:
        text = self._text(key)
        return None if text is None else float(read_entry(key, parse_float, text))

    def _need(self, key: str) -> float:
        value = self._value(key)
        if value is None:
            raise ModelError(f"{key}: is missing")
        return value

    def _angle(self, name: str) -> float | None:
        """Radians of the first column name_rad, name_d, name_m, name_s that is there."""
        for unit, scale in _ANGLES.items():
            value = self._value(f"{name}_{unit}")
            if value is not None:
                return value * scale
        return None

    def _sexagesimal(self, name: str, leading: dict[str, float]) -> float:
        """Radians; minutes and seconds are those of the leading unit, and take its sign.

        Seconds may be 60, as rounding writes them.
        """
        key, scale = next((f"{name}_{u}", s) for u, s in leading.items() if f"{name}_{u}" in self._columns)
        value = abs(self._need(key))
        for part, below, size in (("m", 60.0, 60), ("s", math.nextafter(60.0, 61.0), 3600)):
            given = self._value(f"{name}_{part}") or 0.0
            if not 0 <= given < below:
                raise ModelError(f"{name}_{part}: must be 0 or more and below 60, found {given:g}")
            value += given / size
        sign = self._text(f"{name}_sign") or self._text(key) or ""
        return -value * scale if sign.startswith("-") else value * scale

    def _stokes(self) -> tuple[float, ...]:
        i = self._need("i")
        q, u, v = (self._value(key) or 0.0 for key in "quv")
        fraction = self._text("pol_frac")
        if fraction is not None:
            p = read_entry("pol_frac", parse_float, fraction.removesuffix("%")) / (
                100 if fraction.endswith("%") else 1
            )
            angle = self._angle("pol_pa") or 0.0
            q, u, v = i * p * math.cos(2 * angle), i * p * math.sin(2 * angle), 0.0
        return i, q, u, v

    def _shape(self) -> tuple[float, float, float] | None:
        emaj, emin, pa = (self._angle(name) for name in ("emaj", "emin", "pa"))
        if emaj is None and emin is None:
            return None
        if emaj is None or emin is None or pa is None:
            raise ModelError("emaj, emin and pa go together; some are missing")
        return as_ellipse(emaj, emin, pa)

    def component(self) -> ListComponent:
        """The source of the line."""
        dec = self._sexagesimal("dec", {"d": _DEG, "rad": 1.0})
        if not abs(dec) <= math.pi / 2 * (1 + 1e-15):
            raise ModelError(f"dec: must lie within -90 .. 90 deg, found {math.degrees(dec)} deg")
        ra = within_turn(self._sexagesimal("ra", {"h": 15 * _DEG, "d": _DEG, "rad": 1.0}))
        stokes = self._stokes()
        terms = [self._value(key) or 0.0 for key in _CURVATURE]
        while terms and terms[-1] == 0:
            terms.pop()
        ref_freq = self._value("freq0") or self._default_freq
        if terms and (ref_freq is None or not ref_freq > 0):
            raise ModelError("freq0: a spectral index needs a positive reference frequency")
        return ListComponent(
            name=self._text("name") or f"s{self._number}",
            ra=ra,
            dec=dec,
            stokes=stokes,
            terms=(tuple(terms),) * 4,
            ref_freq=ref_freq if ref_freq and ref_freq > 0 else None,
            shape=self._shape(),
            rm=self._value("rm") or 0.0,
            rm_at_ref_freq=bool(ref_freq and ref_freq > 0),
        )


def write_tigger(model: SkyModel, path: str | Path) -> None:
    """Write a model without priors as a Tigger ASCII list, angles in full precision.

    Raises
    ------
    ModelError
        Something that such a list cannot say: a prior, a brightness that varies in time, a polynomial
        spectrum, spectra that differ between Stokes parameters, more than 9 spectral terms.
    """
    with naming(path):
        components = [one.in_frame(LOCAL, model.centre) for one in from_model(model)]
        n_term = max(len(component.terms[0]) for component in components)
        if n_term > len(_CURVATURE):
            raise ModelError(f"at most {len(_CURVATURE)} spectral terms, found {n_term}")
        spectral = _CURVATURE[:n_term]
        lines = [_line(component, n_term) for component in components]
    names = ["name", "ra_rad", "dec_rad", *"iquv", "emaj_rad", "emin_rad", "pa_rad", *spectral, "freq0"]
    write_text(path, "\n".join([f"{_MARK} {' '.join(names)}", *lines]) + "\n")


def _line(component: ListComponent, n_term: int) -> str:
    terms = component.terms[0]
    if terms and not component.log_spectrum:
        raise ModelError(f"{component.name}: a Tigger list has no polynomial spectra")
    for key, value, own in zip("QUV", component.stokes[1:], component.terms[1:], strict=True):
        if value != 0 and own != terms:
            raise ModelError(
                f"{component.name}: {key} has a spectrum unlike I, which a Tigger list cannot store"
            )
    numbers = [component.ra, component.dec, *component.stokes, *(component.shape or (0.0, 0.0, 0.0))]
    numbers += [*terms, *[0.0] * (n_term - len(terms)), component.ref_freq or 0.0]
    return " ".join([component.name, *(repr(float(number)) for number in numbers)])
