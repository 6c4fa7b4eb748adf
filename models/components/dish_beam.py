"""Beams of dishes by formula as 2 x 2 Jones matrices: a width for each feed, squint, ellipses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY
from typing import ClassVar

from biro.models.components.antenna_terms.gain import FEEDS
from biro.models.components.beam import BEAMS, AnyBeam, GaussianBeam
from biro.models.components.jones_beam import EveryBeam, FitsBeam, GridBeam, KatBeam, ZernikeBeam
from biro.models.components.source import si_value
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed, QuantityLike, quantity, read_entry
from biro.models.quantities.strict import Entry, did_you_mean, short_repr, strict
from biro.models.quantities.units import ANGLE, FREQUENCY, NUMBER, Dimension

_FEEDS = [feed for feeds in FEEDS.values() for feed in feeds]
_OF_FEEDS: dict[str, Dimension] = {
    **{kind.key: kind.dimension for kind in BEAMS.values()},
    "ratio": NUMBER,
    "pa": ANGLE,
}


@strict
class DishBeam(GridBeam):
    """A diagonal Jones matrix of two voltage patterns by formula, sampled at the channels.

    With s = +1 for the first feed (X or R) and -1 for the second (Y or L), x and y in the frame of the
    antenna, and the pattern E of a `GaussianBeam`, `AiryBeam` or `Cos3Beam`,

        (dx, dy) = (x, y) - s (squint / 2) (ref_freq / nu) (sin squint_pa, cos squint_pa)
        a = dx sin pa + dy cos pa,   b = dx cos pa - dy sin pa
        E_feed = E(r nu),   r^2 = a^2 + (b / ratio)^2

    All numbers but `width` are fixed. Those marked * are one for both feeds, or a table by feed,
    {"x": ..., "y": ...} or {"r": ..., "l": ...}.

    Parameters
    ----------
    pattern : "gaussian", "airy" or "cos3"
    fwhm* : angle
        Of "gaussian": full width of the power beam at half maximum along `pa`, at ref_freq.
    diameter* : length
        Of "airy".
    coefficient* : inverse frequency
        Of "cos3", default that of `Cos3Beam`.
    ref_freq : frequency
        Of fwhm and squint.
    ratio* : number, default 1
        Width across `pa` over that along it.
    pa* : angle, default 0
        From y (the zenith, or north) through x (east).
    squint : angle, default 0
        From the centre of the second feed's beam to that of the first, at ref_freq.
    squint_pa : angle, default 0
        Its direction, as pa.
    extent : angle
        Half the side of the grid; default six times the half width at half power, at the lowest channel.
    width, turns
        As for `FitsBeam`.
    """

    kind: ClassVar[str] = "dish"
    _: KW_ONLY
    pattern: str = "gaussian"
    fwhm: Entry = None
    diameter: Entry = None
    coefficient: Entry = None
    ref_freq: QuantityLike = None
    ratio: Entry = 1.0
    pa: Entry = "0 deg"
    squint: QuantityLike = "0 deg"
    squint_pa: QuantityLike = "0 deg"
    extent: QuantityLike = None
    width: QuantityLike = 1.0
    turns: bool = True

    def __post_init__(self) -> None:
        if self.pattern not in BEAMS:
            hint = did_you_mean(self.pattern, BEAMS)
            raise ModelError(f"pattern: one of {', '.join(BEAMS)}, found {short_repr(self.pattern)}{hint}")
        key = BEAMS[self.pattern].key
        if self.pattern == "cos3" and self.coefficient is None:
            object.__setattr__(self, "coefficient", BEAMS["cos3"].coefficient)  # type: ignore[union-attr]
        given = [name for name in ("fwhm", "diameter", "coefficient") if getattr(self, name) is not None]
        if given != [key]:
            raise ModelError(
                f"{key}: pattern {self.pattern!r} has this for its width; found "
                f"{' and '.join(given) or 'none'}"
            )
        for name in (key, "ratio", "pa"):
            object.__setattr__(self, name, read_entry(name, _by_feed, getattr(self, name), _OF_FEEDS[name]))
        for name, dimension in (("ref_freq", FREQUENCY), ("squint", ANGLE), ("squint_pa", ANGLE)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, read_entry(name, _fixed, getattr(self, name), dimension))
        object.__setattr__(self, "width", read_entry("width", quantity, self.width, NUMBER))
        self._read_extent()
        self._check(key)

    def _check(self, key: str) -> None:
        if self.ref_freq is None and (self.pattern == "gaussian" or self.squint.value != 0):
            raise ModelError("ref_freq: is missing, at which fwhm and squint are given")
        tables = [getattr(self, name) for name in (key, "ratio", "pa")]
        named = {feed for table in tables if isinstance(table, Mapping) for feed in table}
        if named and named not in [set(feeds) for feeds in FEEDS.values()]:
            raise ModelError(
                f"numbers by feed are for x and y, or for r and l; found {', '.join(sorted(named))}"
            )
        positive = [self.ref_freq, *(item for name in (key, "ratio") for item in self._items(name))]
        for item in positive:
            if item is not None and not item.value > 0:
                raise ModelError(
                    f"{key}, ratio and ref_freq must be positive, found {item.value} {item.unit}"
                )

    def _items(self, name: str) -> list[Fixed]:
        value = getattr(self, name)
        return list(value.values()) if isinstance(value, Mapping) else [value]

    @property
    def basis(self) -> str | None:
        """The feeds that its numbers name: "linear" or "circular"; None where they name none."""
        tables = [getattr(self, name) for name in (BEAMS[self.pattern].key, "ratio", "pa")]
        named = {feed for table in tables if isinstance(table, Mapping) for feed in table}
        return next((basis for basis, feeds in FEEDS.items() if named & set(feeds)), None)

    def of_feed(self, i_feed: int) -> tuple[AnyBeam, float, float]:
        """The pattern of a feed (0 or 1), its ratio, and its position angle in rad."""
        kind = BEAMS[self.pattern]
        one = self._one(kind.key, i_feed)
        made = (
            GaussianBeam(fwhm=one, ref_freq=self.ref_freq)
            if kind is GaussianBeam
            else kind(**{kind.key: one})
        )
        return made, si_value(self._one("ratio", i_feed), NUMBER), si_value(self._one("pa", i_feed), ANGLE)

    def _one(self, name: str, i_feed: int) -> Fixed:
        value = getattr(self, name)
        if not isinstance(value, Mapping):
            return value  # type: ignore[no-any-return]
        assert self.basis is not None
        return value[FEEDS[self.basis][i_feed]]  # type: ignore[index, no-any-return]


def _fixed(value: Entry, dimension: Dimension) -> Fixed:
    made = quantity(value, dimension)
    if not isinstance(made, Fixed):
        raise ModelError("of this beam width alone can be fitted; give a number")
    return made


def _by_feed(value: Entry, dimension: Dimension) -> Fixed | dict[str, Fixed]:
    if not isinstance(value, Mapping) or {"prior", "tie"} & set(value):
        return _fixed(value, dimension)
    for feed in value:
        if feed not in _FEEDS:
            raise ModelError(f"unknown feed {short_repr(feed)}; expected x and y, or r and l")
    return {feed: read_entry(feed, _fixed, item, dimension) for feed, item in value.items()}


GRID_BEAMS: dict[str, type[GridBeam]] = {
    beam.kind: beam for beam in (FitsBeam, KatBeam, DishBeam, ZernikeBeam, EveryBeam)
}
"""Beams as 2 x 2 Jones matrices that a model file can say."""
