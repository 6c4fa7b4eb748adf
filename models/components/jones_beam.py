"""Beams as 2 x 2 Jones matrices on a grid, as a user writes them: files, functions, other packages."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import KW_ONLY
from typing import ClassVar

import numpy as np

from biro.models.components.antenna_terms.gain import FEEDS
from biro.models.components.beam import BEAMS, AnyBeam, GaussianBeam, read_centre
from biro.models.components.beam_cube import BeamCube
from biro.models.components.source import si_value
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed, QuantityLike, quantity, read_entry
from biro.models.quantities.strict import Entry, did_you_mean, read_path, short_repr, strict
from biro.models.quantities.units import ANGLE, FREQUENCY, NUMBER, TIME, Dimension

_FEEDS = [feed for feeds in FEEDS.values() for feed in feeds]
_OF_FEEDS: dict[str, Dimension] = {
    **{kind.key: kind.dimension for kind in BEAMS.values()},
    "ratio": NUMBER,
    "pa": ANGLE,
}


class GridBeam:
    """What beams on a grid share: a number that directions on the grid are multiplied by."""

    kind: ClassVar[str]
    label: ClassVar[str] = "beam"
    key: ClassVar[str] = "width"
    dimension: ClassVar[Dimension] = NUMBER

    def scale(self, value: np.ndarray) -> np.ndarray:
        """`JonesBeam.scale` of the number."""
        return value

    def scale_slope(self, value: np.ndarray) -> np.ndarray:
        """Derivative of `scale`."""
        return np.ones_like(value)

    @property
    def basis(self) -> str | None:
        """The feeds that its numbers are of, "linear" or "circular"; None where they do not say."""
        return None

    def _read_extent(self) -> None:
        """Read the half side of a grid, where one is given."""
        given = getattr(self, "extent", None)
        if given is not None:
            extent = read_entry("extent", quantity, given, ANGLE)
            if not isinstance(extent, Fixed) or not extent.value > 0:
                raise ModelError(f"extent: must be a positive angle, found {short_repr(given)}")
            object.__setattr__(self, "extent", extent)

    def _read_path(self, key: str, what: str) -> None:
        """Read the path of what the beam is made of, kept as an absolute one."""
        object.__setattr__(self, key, read_entry(key, read_path, getattr(self, key), what))


@strict
class FitsBeam(GridBeam):
    """Full 2 x 2 voltage beams E(x, y, nu) from eight FITS cubes, for all antennas or for some of them.

    The grid is that of the antenna's frame, which turns on the sky with the parallactic angle where the mount
    is alt-azimuth.

    Parameters
    ----------
    file : str, or BeamCube
        Path with $(corr) and $(reim) in it, such as "beam_$(corr)_$(reim).fits"; see `biro.read_beam`.
        Relative to the working directory, or to the folder of the model file; kept as an absolute path.
    antennas : mapping of str to str, or to BeamCube, optional
        Antennas that have others: names or patterns of names ("CS*"), and their files, on the same grid.
    width : number, prior or tie, default 1
        What directions on the grid are multiplied by: 1.02 makes the beam 2 % wider.
    turns : bool, default True
        Whether the beam turns on the sky as the mounts of the antennas say.
    centre : "pointing", "phase" or a direction, default "pointing"
        As for `Cos3Beam`; it turns about its centre.
    """

    kind: ClassVar[str] = "fits"
    _: KW_ONLY
    file: Entry
    width: QuantityLike = 1.0
    turns: bool = True
    centre: Entry = "pointing"
    antennas: Entry = None

    def __post_init__(self) -> None:
        read_centre(self)
        what = "a path with $(corr) and $(reim)"
        if not isinstance(self.file, BeamCube):
            self._read_path("file", what)
        if self.antennas is not None:
            if not isinstance(self.antennas, Mapping) or not self.antennas:
                raise ModelError(
                    "antennas: expected a table of names of antennas and their files, "
                    f"found {short_repr(self.antennas)}"
                )
            paths = {
                str(name): file
                if isinstance(file, BeamCube)
                else read_entry("antennas", read_path, file, what)
                for name, file in self.antennas.items()
            }
            object.__setattr__(self, "antennas", paths)
        object.__setattr__(self, "width", read_entry("width", quantity, self.width, NUMBER))


@strict
class KatBeam(GridBeam):
    """MeerKAT's voltage beam, from the package katbeam; real, without cross-hands.

    Parameters
    ----------
    model : str, default "MKAT-AA-L-JIM-2020"
    extent : angle, default "3 deg"
        Half the side of the grid on which it is sampled.
    width, turns, centre
        As for `FitsBeam`.
    """

    kind: ClassVar[str] = "katbeam"
    _: KW_ONLY
    model: str = "MKAT-AA-L-JIM-2020"
    extent: QuantityLike = "3 deg"
    width: QuantityLike = 1.0
    turns: bool = True
    centre: Entry = "pointing"

    def __post_init__(self) -> None:
        read_centre(self)
        self._read_extent()
        object.__setattr__(self, "width", read_entry("width", quantity, self.width, NUMBER))


@strict
class ZernikeBeam(GridBeam):
    """Voltage beams as sums of Zernike polynomials, from a TOML or FITS file of complex coefficients.

    Parameters
    ----------
    file : str
        See `biro.beams.zernike.read_zernike`.
    width, turns, centre
        As for `FitsBeam`.
    """

    kind: ClassVar[str] = "zernike"
    _: KW_ONLY
    file: Entry
    width: QuantityLike = 1.0
    turns: bool = True
    centre: Entry = "pointing"

    def __post_init__(self) -> None:
        read_centre(self)
        self._read_path("file", "the path of a TOML or FITS file of coefficients")
        object.__setattr__(self, "width", read_entry("width", quantity, self.width, NUMBER))


@strict
class FunctionBeam(GridBeam):
    """Voltage beams by a function of Python's; not in model files.

    Parameters
    ----------
    function : callable (x, y, freq), (x, y, freq, antenna) or (x, y, freq, antenna, time) -> (..., 2, 2)
        E at direction cosines x and y, float64 arrays of one shape, in the frame of the antenna; freq in Hz,
        antenna a name, time in s (MJD). It may return the same for several antennas.
    extent : angle
        Half the side of the grid on which it is sampled.
    time_step : time, optional
        How long a beam that depends on time is taken for constant; default: all times of the data differ.
    width, turns, centre
        As for `FitsBeam`. With `turns = False` x and y are l and m from the centre.
    """

    kind: ClassVar[str] = "function"
    _: KW_ONLY
    function: Entry
    extent: QuantityLike
    time_step: QuantityLike = None
    width: QuantityLike = 1.0
    turns: bool = True
    centre: Entry = "pointing"

    def __post_init__(self) -> None:
        read_centre(self)
        if not callable(self.function):
            raise ModelError(f"function: expected a function, found {short_repr(self.function)}")
        if self.n_argument not in (3, 4, 5):
            raise ModelError(
                "function: must take (x, y, freq), and antenna and time after these where E depends on them; "
                f"found {self.n_argument} arguments"
            )
        self._read_extent()
        _read_time_step(self)
        object.__setattr__(self, "width", read_entry("width", quantity, self.width, NUMBER))

    @property
    def n_argument(self) -> int:
        """How many arguments the function has that stand by their place."""
        try:
            given = inspect.signature(self.function).parameters.values()
        except (TypeError, ValueError):  # of compiled code that does not say
            return 3
        return sum(one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in given)


@strict
class EveryBeam(GridBeam):
    """Beams of LOFAR, SKA-low, MWA and others, from the package everybeam.

    They lie on the sky (l, m about the phase centre) and hold the rotation of the feeds: nothing is turned.

    Parameters
    ----------
    measurement_set : str
        From which everybeam takes the telescope; usually that of the data.
    extent : angle, default "5 deg"
    time_step : time, default "5 min"
        How long a beam is taken for constant.
    element_response_model : str, default "default"
        As everybeam names it: "hamaker", "lobes", "oskardipole", ...
    coeff_path : str
        Path of everybeam's coefficients, which MWA needs.
    differential : bool, default False
        Whether beams are divided by that of the direction in which the data were corrected.
    width : number, prior or tie, default 1
        As for `FitsBeam`.
    """

    kind: ClassVar[str] = "everybeam"
    turns: ClassVar[bool] = False
    centre: ClassVar[str] = "phase"
    _: KW_ONLY
    measurement_set: Entry
    extent: QuantityLike = "5 deg"
    time_step: QuantityLike = "5 min"
    element_response_model: str = "default"
    coeff_path: str = ""
    differential: bool = False
    width: QuantityLike = 1.0

    def __post_init__(self) -> None:
        self._read_path("measurement_set", "the path of a Measurement Set")
        self._read_extent()
        _read_time_step(self)
        object.__setattr__(self, "width", read_entry("width", quantity, self.width, NUMBER))


def _read_time_step(beam: FunctionBeam | EveryBeam) -> None:
    if beam.time_step is not None:
        step = read_entry("time_step", quantity, beam.time_step, TIME)
        if not isinstance(step, Fixed) or not step.value > 0:
            raise ModelError(f"time_step: must be a positive time, found {short_repr(beam.time_step)}")
        object.__setattr__(beam, "time_step", step)


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
    width, turns, centre
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
    centre: Entry = "pointing"

    def __post_init__(self) -> None:
        read_centre(self)
        if self.pattern not in BEAMS:
            hint = did_you_mean(self.pattern, BEAMS)
            raise ModelError(f"pattern: one of {', '.join(BEAMS)}, found {short_repr(self.pattern)}{hint}")
        key = BEAMS[self.pattern].key
        if self.pattern == "cos3" and self.coefficient is None:
            object.__setattr__(self, "coefficient", BEAMS["cos3"].coefficient)  # type: ignore[union-attr]
        given = [name for name in ("fwhm", "diameter", "coefficient") if getattr(self, name) is not None]
        if given != [key]:
            raise ModelError(
                f"{key}: pattern {self.pattern!r} needs {key} for its width; found "
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
            raise ModelError("ref_freq: is missing; it is the frequency of fwhm and squint")
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
        raise ModelError("only the width of this beam can be fitted; give a number")
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
