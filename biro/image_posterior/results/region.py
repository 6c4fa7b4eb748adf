"""Regions of an image, read from the syntax of DS9 or of CASA."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import FLUXES, Printed, unit_for
from biro.errors import InputError
from biro.files.json_value import JsonValue
from biro.image_posterior.field import ImageField
from biro.models import ModelError
from biro.models.components.direction import parse_direction, radec_to_lm
from biro.models.quantities import units

Array = NDArray[np.float64]
FINE = 5
"""Points along a side of a pixel at which a region is looked at: a pixel counts by its share inside."""
_SKY = ("fk5", "icrs", "j2000")
_FRAMES = ("image", "offset", *_SKY)
_DS9_UNITS = {'"': "arcsec", "'": "arcmin", "d": "deg", "r": "rad", "p": "pix", "i": "pix"}
EXAMPLE = (
    "'offset; circle(0 mas, 1.5 mas, 0.5 mas)', 'icrs; circle(12:30:49.42, +12:23:28.0, 0.5\")', "
    "'image; circle(65, 65, 10)' as in DS9, or 'circle [[64pix, 64pix], 10pix]' as in CASA"
)
Inside = Callable[[Array, Array], NDArray[np.bool_]]


@dataclass(frozen=True)
class Region:
    """A part of the sky.

    Attributes
    ----------
    text : str
        What a person wrote.
    kind : "circle", "ellipse", "box", "annulus", "polygon" or "line"
    """

    text: str
    kind: str
    _words: tuple[tuple[str, ...], ...]
    _frame: str

    def mask(self, field: ImageField) -> Array:
        """The share of each pixel that lies inside, float64 (N, N).

        Raises
        ------
        InputError
            Numbers or units that the shape does not have, a line, or a region outside of the image.
        """
        if self.is_line:
            raise InputError(
                f"region {self.text!r} is a line, which has no area and no flux; draw its profile"
            )
        found = self._points(field)[1:-1, 1:-1]
        share = found.reshape(field.size, FINE, field.size, FINE).mean(axis=(1, 3))
        if not share.any():
            raise InputError(f"region {self.text!r} lies outside of the image; {field}")
        return np.asarray(share, np.float64)

    @property
    def is_line(self) -> bool:
        """Whether it is a line, along which an image has a profile."""
        return self.kind == "line"

    def ends(self, field: ImageField) -> Array:
        """Both ends of a line, float64 (2, 2): direction cosines l and m of each."""
        return np.array([self._place(pair, field) for pair in self._words])

    def is_cut(self, field: ImageField) -> bool:
        """Whether points of the region lie beyond the rim of the image."""
        found = self._points(field)
        return bool(found[[0, -1]].any() or found[:, [0, -1]].any())

    def _points(self, field: ImageField) -> NDArray[np.bool_]:
        """Which points are inside: FINE along a side of each pixel, and one more beyond each edge."""
        n = field.size * FINE
        axis = ((np.arange(-1, n + 1) + 0.5) / FINE - 0.5 - field.size // 2) * field.cell
        return np.asarray(self._inside(field)(-axis[None, :], axis[:, None]))

    def _inside(self, field: ImageField) -> Inside:
        """Whether points, direction cosines l and m, are inside."""
        if self.kind == "polygon":
            return _polygon(np.array([self._place(pair, field) for pair in self._words]))
        l0, m0 = self._place(self._words[0], field)
        lengths = [self._length(word, field) for word in self._words[1][:2]]
        self._check_lengths(lengths)
        if self.kind == "circle":
            return lambda l, m: np.hypot(l - l0, m - m0) <= lengths[0]
        if self.kind == "annulus":
            return lambda l, m: (
                (np.hypot(l - l0, m - m0) <= lengths[1]) & (np.hypot(l - l0, m - m0) > lengths[0])
            )
        # Angles turn from the first axis of the region: west in DS9, counted towards north.
        angle = np.deg2rad(_degrees(self._words[1][2], self.text)) if len(self._words[1]) > 2 else 0.0

        def turned(l: Array, m: Array) -> tuple[Array, Array]:
            x, y = -(l - l0), m - m0
            return x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)

        if self.kind == "ellipse":
            return lambda l, m: np.hypot(turned(l, m)[0] / lengths[0], turned(l, m)[1] / lengths[1]) <= 1.0
        return lambda l, m: (
            (np.abs(turned(l, m)[0]) <= 0.5 * lengths[0]) & (np.abs(turned(l, m)[1]) <= 0.5 * lengths[1])
        )

    def _check_lengths(self, lengths: Sequence[float]) -> None:
        """Refuse sizes that no shape has; the inner radius of an annulus may be 0."""
        words = ", ".join(self._words[1][:2])
        if self.kind == "annulus":
            if not 0.0 <= lengths[0] < lengths[1]:
                raise InputError(
                    f"region {self.text!r}: expected an inner radius below the outer one, got {words}"
                )
        elif not min(lengths) > 0.0:
            raise InputError(f"region {self.text!r}: expected lengths above 0, got {words}")

    def _place(self, pair: Sequence[str], field: ImageField) -> tuple[float, float]:
        """Direction cosines of a point."""
        first = 1.0 if self._frame == "image" else 0.0
        values = [_number(word) for word in pair]
        if all(value is not None and value[1] in ("pix", "") for value in values) and self._frame in (
            "image",
            "casa",
        ):
            x, y = (value[0] - first - field.size // 2 for value in values if value is not None)
            return -x * field.cell, y * field.cell
        if self._frame == "offset":
            east, north = (self._length(word, field) for word in pair)
            return east, north
        words = [f"{word} deg" if re.fullmatch(r"[-+.\deE]+", word) else word for word in pair]
        try:
            ra, dec = parse_direction(tuple(words))
            return radec_to_lm(ra, dec, field.centre)
        except ModelError as error:
            raise InputError(f"region {self.text!r}: {error}") from None

    def _length(self, word: str, field: ImageField) -> float:
        """A length or an offset, direction cosines."""
        found = _number(word)
        if found is None:
            raise InputError(
                f"region {self.text!r}: expected a length such as 10pix or 0.5arcsec, got {word!r}"
            )
        value, unit = found
        if unit == "pix" or (not unit and self._frame in ("image", "casa")):
            return value * field.cell
        try:
            return value * units.factor(unit or "deg", units.ANGLE)
        except ModelError as error:
            raise InputError(f"region {self.text!r}: {error}") from None


@dataclass(frozen=True)
class RegionFlux(Printed):
    """The flux of a region.

    Attributes
    ----------
    text : str
        The region as it was written.
    flux : float, Jy
        Mean over samples, or that of the one image.
    error : float or None, Jy
        Standard deviation over samples; None for an image without samples.
    samples : float64 (n_sample,), Jy
    n_pixel : float
        Pixels inside, parts of pixels included.
    peak : float, Jy/pixel
    is_cut : bool
        Whether a part of the region lies outside of the image, so that the flux is that of the rest.
    """

    text: str
    flux: float
    error: float | None
    samples: Array
    n_pixel: float
    peak: float
    is_cut: bool = False

    def __str__(self) -> str:
        unit = unit_for([self.flux, self.error or 0.0], FLUXES)
        about = f"{self.text}: {self.n_pixel:.4g} pixels{', cut by the edge of the image' * self.is_cut}"
        if self.error is None:
            return (
                f"{about}, {unit.text(self.flux, 4)} {unit.name}, without an error: there is the most "
                'probable image alone. Fit with prior = "correlated-field" (and no method = "map") for errors'
            )
        return f"{about}, {unit.text(self.flux, 4)} +- {unit.text(self.error, 2)} {unit.name}"

    def to_dict(self) -> dict[str, JsonValue]:
        """Figures for JSON, in Jy."""
        return {
            "region": self.text,
            "flux": self.flux,
            "error": self.error,
            "n_pixel": self.n_pixel,
            "is_cut": self.is_cut,
            "samples": [float(value) for value in self.samples],
        }


def parse_region(text: str) -> Region:
    """The region that a text describes, in the syntax of DS9 or of CASA.

    A frame stands before a shape of DS9, as "icrs; circle(...)": "icrs" (or fk5, j2000) for directions,
    "image" for pixels that are counted from 1, and "offset" for offsets east and north of the image's centre.
    Shapes of CASA, as "circle [[x, y], r]", have units; their pixels are counted from 0. A line has two ends:
    "line(x1, y1, x2, y2)", or "line [[x1, y1], [x2, y2]]".

    Raises
    ------
    InputError
        A text that is not understood.
    """
    plain = text.strip()
    frame, _, rest = plain.rpartition(";")
    frame = frame.strip().lower()
    made = _casa(plain, text) if "[" in plain and not frame else _ds9(frame or "image", rest.strip())
    if made is None:
        raise InputError(f"region {text!r} is not understood; write {EXAMPLE}")
    kind, words, frame = made
    return Region(text, kind, tuple(tuple(word) for word in words), frame)


_Parsed = tuple[str, list[list[str]], str]


def _ds9(frame: str, text: str) -> _Parsed | None:
    found = re.fullmatch(r"(\w+)\s*\(([^()]*)\)", text)
    if found is None or frame not in _FRAMES:
        return None
    kind, words = found.group(1).lower(), [word.strip() for word in found.group(2).split(",")]
    if kind == "polygon" and len(words) >= 6 and len(words) % 2 == 0:
        return kind, [words[i : i + 2] for i in range(0, len(words), 2)], frame
    if kind == "line" and len(words) == 4:
        return kind, [words[:2], words[2:]], frame
    allowed = {"circle": (3,), "ellipse": (4, 5), "box": (4, 5), "annulus": (4,)}
    if len(words) not in allowed.get(kind, ()):
        return None
    return kind, [words[:2], words[2:]], frame


def _casa(plain: str, text: str) -> _Parsed | None:
    found = re.fullmatch(r"(\w+)\s*\[(.*)\]", plain, re.DOTALL)
    if found is None:
        return None
    kind, inner = found.group(1).lower(), found.group(2)
    pairs = [[word.strip() for word in pair.split(",")] for pair in re.findall(r"\[([^\[\]]*)\]", inner)]
    after = [word.strip() for word in re.sub(r"\[[^\[\]]*\]", "", inner).split(",") if word.strip()]
    if not pairs or any(len(pair) != 2 for pair in pairs):
        return None
    if kind == "poly" and len(pairs) >= 3:
        return "polygon", pairs, "casa"
    if kind == "circle" and len(pairs) == 1 and len(after) == 1:
        return kind, [pairs[0], after], "casa"
    if kind in ("annulus", "line") and len(pairs) == 2 and not after:
        return kind, pairs, "casa"
    if kind in ("ellipse", "centerbox", "rotbox") and len(pairs) == 2 and len(after) <= 1:
        # CASA counts position angles from north through east; boxes and DS9 from the x axis.
        turn = [f"{_degrees(after[0], text) + 90.0 * (kind == 'ellipse')!r}"] if after else []
        return "ellipse" if kind == "ellipse" else "box", [pairs[0], [*pairs[1], *turn]], "casa"
    if kind == "box" and len(pairs) == 2:
        (x1, y1), (x2, y2) = pairs
        return "polygon", [[x1, y1], [x2, y1], [x2, y2], [x1, y2]], "casa"
    return None


def _degrees(word: str, text: str) -> float:
    """An angle of a shape, deg."""
    found = _number(word)
    try:
        if found is not None:
            return float(np.rad2deg(found[0] * units.factor(found[1] or "deg", units.ANGLE)))
    except ModelError:
        pass  # a unit that angles do not have
    raise InputError(f"region {text!r}: expected an angle such as 30deg, got {word!r}")


def _number(word: str) -> tuple[float, str] | None:
    """A number and its unit, "" where there is none; None for other text."""
    found = re.fullmatch(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([a-zA-Z\"']*)", word)
    if found is None:
        return None
    unit = found.group(2)
    return float(found.group(1)), _DS9_UNITS.get(unit, unit)


def _polygon(corners: Array) -> Inside:
    """Whether points are inside of a polygon: an odd number of its edges cross the ray to the east."""

    def inside(l: Array, m: Array) -> NDArray[np.bool_]:
        found = np.zeros(np.broadcast_shapes(l.shape, m.shape), np.bool_)
        for (l1, m1), (l2, m2) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
            if m1 != m2:
                found ^= ((m1 > m) != (m2 > m)) & (l < (l2 - l1) * (m - m1) / (m2 - m1) + l1)
        return found

    return inside
