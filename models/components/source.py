"""What a user writes for a source: position, brightness, spectrum, shape."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from biro.models.components.fractions import FRACTIONS
from biro.models.components.light_curve import read_between, read_times
from biro.models.components.motion import MOTION_KEYS, read_epoch, read_orbit
from biro.models.components.spectrum import (
    FORMS,
    SHAPES,
    STOKES,
    Terms,
    check_combination,
    read_line,
    read_rm_reference,
    read_table,
    read_terms,
)
from biro.models.errors import ModelError
from biro.models.quantities import units
from biro.models.quantities.parameter import Fixed, QuantityLike, Series, quantity, read_entry, series
from biro.models.quantities.strict import Entry, key_names, short_repr, strict
from biro.models.quantities.units import (
    ANGLE,
    DECLINATION,
    FLUX,
    FREQUENCY,
    NUMBER,
    PROPER_MOTION,
    RIGHT_ASCENSION,
    ROTATION_MEASURE,
    Dimension,
)

_SOURCE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+\-]{0,63}\Z")
LOCAL, PHASE_CENTRE = "source", "phase_centre"
"""Whose north angles are from: the source's own, or the m axis of the phase centre (physics: section 5)."""
ROTATION_KEYS = ("rm", "rm_width", "rm_scatter")
RESERVED = ("noise", "beam", "pointing", "feeds", "leakage", "gain", "ionosphere")

DIMENSIONS: dict[str, Dimension] = {
    "ra": RIGHT_ASCENSION,
    "dec": DECLINATION,
    "east": ANGLE,
    "north": ANGLE,
    "pm_east": PROPER_MOTION,
    "pm_north": PROPER_MOTION,
    "I": FLUX,
    "Q": FLUX,
    "U": FLUX,
    "V": FLUX,
    "pol_fraction": NUMBER,
    "pol_angle": ANGLE,
    "v_fraction": NUMBER,
    "v_index": NUMBER,
    "free_free": FREQUENCY,
    "self_absorption": FREQUENCY,
    "thick_index": NUMBER,
    "rm": ROTATION_MEASURE,
    "rm_width": ROTATION_MEASURE,
    "rm_scatter": ROTATION_MEASURE,
    "emaj": ANGLE,
    "emin": ANGLE,
    "ratio": NUMBER,
    "pa": ANGLE,
    "fwhm": ANGLE,
    "diameter": ANGLE,
    "effective_radius": ANGLE,
    "scale_length": ANGLE,
    "core_radius": ANGLE,
    "core_fwhm": ANGLE,
    "scale": ANGLE,
    "size": ANGLE,
    "blur": ANGLE,
    "hole_pa": ANGLE,
    "axis_pa": ANGLE,
    "limb_darkening": NUMBER,
    "inner_ratio": NUMBER,
    "offset": NUMBER,
    "floor": NUMBER,
    "n": NUMBER,
    "beta": NUMBER,
    "core_fraction": NUMBER,
    "gradient_along": NUMBER,
    "gradient_across": NUMBER,
    "ref_freq": FREQUENCY,
}
"""What each quantity is measured in; a field of a source with one of these names is such a quantity."""


def read_frame(value: object) -> str:
    """Read whose north the angles of a source are from.

    Raises
    ------
    ModelError
        Neither "source" nor "phase_centre".
    """
    if value not in (LOCAL, PHASE_CENTRE):
        raise ModelError(
            f'expected "{LOCAL}" (angles from the north at the source) or "{PHASE_CENTRE}" (from that at the '
            f"phase centre), found {short_repr(value)}"
        )
    return str(value)


def _read_beam(value: object) -> bool:
    if not isinstance(value, bool):
        raise ModelError(f"must be true or false, found {short_repr(value)}")
    return value


_READERS: dict[str, Callable[[object], object]] = {
    **dict.fromkeys(FORMS, read_terms),
    "line": read_line,
    "table": read_table,
    "rm_reference": read_rm_reference,
    "times": read_times,
    "between": read_between,
    "orbit": read_orbit,
    "epoch": read_epoch,
    "beam": _read_beam,
    "frame": read_frame,
}


def check_name(name: str) -> None:
    """Refuse names that parameters could not be called by."""
    if not _SOURCE_NAME.match(name) or name in RESERVED:
        raise ModelError(
            "a name has letters, digits and _ . + - (64 at most), begins with a letter, digit or _, "
            f"and is none of {', '.join(RESERVED)}"
        )


@dataclass(frozen=True)
class Source:
    """What points and Gaussians share; see `PointSource`."""

    name: str
    _: KW_ONLY
    ra: QuantityLike = None
    dec: QuantityLike = None
    east: QuantityLike = None
    north: QuantityLike = None
    pm_east: QuantityLike = None
    pm_north: QuantityLike = None
    orbit: Entry = None
    epoch: Entry = None
    I: QuantityLike
    Q: QuantityLike = None
    U: QuantityLike = None
    V: QuantityLike = None
    pol_fraction: QuantityLike = None
    pol_angle: QuantityLike = None
    v_fraction: QuantityLike = None
    v_index: QuantityLike = None
    spectral_index: Entry = None
    log10_spectrum: Entry = None
    polynomial: Entry = None
    free_free: QuantityLike = None
    self_absorption: QuantityLike = None
    thick_index: QuantityLike = None
    line: Entry = None
    table: Entry = None
    rm: QuantityLike = None
    rm_width: QuantityLike = None
    rm_scatter: QuantityLike = None
    rm_reference: Entry = None
    times: Entry = None
    between: Entry = None
    ref_freq: QuantityLike = None
    beam: Entry = True
    shape_keys: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        check_name(self.name)
        for key in key_names(type(self)):
            if key in STOKES:
                self._set(key, series, FLUX)
            elif key in _READERS:
                self._set(key, _READERS[key])
            elif key in DIMENSIONS:
                self._set(key, quantity, DIMENSIONS[key])
        self._check_position()
        self._check_polarisation()
        self._check_spectrum()
        self._check_rotation()
        self._check_shape()

    def _set(self, key: str, read: Callable[..., object], *args: object) -> None:
        value = getattr(self, key)
        if value is not None:
            object.__setattr__(self, key, read_entry(key, read, value, *args))

    def _check_position(self) -> None:
        given = [key for key in ("ra", "dec", "east", "north") if getattr(self, key) is not None]
        if given not in (["ra", "dec"], ["east", "north"]):
            raise ModelError(
                f"a position is ra and dec, or east and north; found {' and '.join(given) or 'none'}"
            )
        if self.epoch is not None and all(getattr(self, key) is None for key in (*MOTION_KEYS, "orbit")):
            raise ModelError("epoch: needs a motion; give pm_east and pm_north, or orbit")
        if isinstance(self.dec, Fixed) and abs(si_value(self.dec, DECLINATION)) > 1.5707963267948968:
            raise ModelError(f"dec: must lie within -90 .. 90 deg, found {self.dec.value} {self.dec.unit}")

    def _check_polarisation(self) -> None:
        for fraction in FRACTIONS:
            given, keys, stokes = [], " and ".join(fraction.keys), " and ".join(fraction.stokes)
            for key in fraction.keys:
                if (value := getattr(self, key)) is not None:
                    given.append(key)
                    _check_fraction(key, value, fraction.bounds.get(key))
            if given and any(getattr(self, key) is not None for key in fraction.stokes):
                itself = (
                    "V is given twice: by itself"
                    if len(fraction.stokes) == 1
                    else (f"{stokes} are given twice: by themselves")
                )
                raise ModelError(f"{itself} and by {keys}")
            if given and len(given) < len(fraction.keys):
                raise ModelError(f"{keys} go together; one is missing")
        lengths = {len(value) for _, value in self.light_curves()} - {1}
        if len(lengths) > 1:
            raise ModelError(f"I, Q, U, V vary over different numbers of times: {sorted(lengths)}")
        if self.between is not None and self.times is None:
            raise ModelError("between: sets the interpolation between times; give times")
        if self.times is not None and lengths != {len(self.times)}:
            found = lengths.pop() if lengths else 1
            raise ModelError(f"times: has {len(self.times)} knots, but I, Q, U, V have {found} elements")

    def _check_spectrum(self) -> None:
        forms = [key for key in FORMS if getattr(self, key) is not None]
        if len(forms) > 1:
            raise ModelError(f"one form of spectrum at a time, found {' and '.join(forms)}")
        check_combination({key: getattr(self, key) for key in (*FORMS, *SHAPES, "thick_index")})
        if self.v_index is not None:
            self._check_v_index(
                next((key for key in ("polynomial", *SHAPES[1:]) if getattr(self, key)), None)
            )
        if self.ref_freq is not None:
            if not isinstance(self.ref_freq, Fixed):
                raise ModelError(
                    "ref_freq: must be a number, because it only sets the frequency of the flux density"
                )
            if not si_value(self.ref_freq, FREQUENCY) > 0:
                raise ModelError(
                    f"ref_freq: must be positive, found {self.ref_freq.value} {self.ref_freq.unit}"
                )

    def _check_v_index(self, other: str | None) -> None:
        if all(getattr(self, key, None) is None for key in ("V", "v_fraction", "beta_v_re")):
            raise ModelError("v_index: is the spectral index of V/I, but the source has no V or v_fraction")
        if other is not None:
            raise ModelError(
                f"v_index: is only for a flat spectrum, spectral_index or log10_spectrum, found {other}"
            )
        spectrum = self.spectrum()
        if spectrum is not None and isinstance(spectrum[1], dict) and "V" in spectrum[1]:
            raise ModelError(f"the spectrum of V is given twice: by {spectrum[0]} and by v_index")

    def _check_rotation(self) -> None:
        given = [key for key in (*ROTATION_KEYS, "rm_reference") if getattr(self, key) is not None]
        linear = ("Q", "U", "pol_fraction", "beta_pol_re")  # the last one of some shapes alone
        if given and all(getattr(self, key, None) is None for key in linear):
            raise ModelError(f"{given[0]}: rotates Q and U, but the source has neither")
        if given == ["rm_reference"]:
            raise ModelError("rm_reference: needs rm")

    def _check_shape(self) -> None:
        """A point has none."""

    def light_curves(self) -> Iterator[tuple[str, Series]]:
        """The Stokes parameters that were given: name, and one quantity or one per time slot."""
        for key in STOKES:
            if getattr(self, key) is not None:
                yield key, getattr(self, key)

    def spectrum(self) -> tuple[str, Terms] | None:
        """Form and terms of the spectrum, or None where it is flat."""
        for key in FORMS:
            if getattr(self, key) is not None:
                return key, getattr(self, key)
        return None


def _check_fraction(key: str, value: QuantityLike, bounds: tuple[float, float] | None) -> None:
    if bounds is not None and isinstance(value, Fixed):
        low, high = bounds
        if not low <= si_value(value, NUMBER) <= high:
            found = f"{value.value} {value.unit}".rstrip()
            raise ModelError(f"{key}: must lie within {low:g} .. {high:g}, found {found}")


def si_value(fixed: Fixed, dimension: Dimension) -> float:
    """A fixed quantity in the unit used inside."""
    return fixed.value * units.factor(fixed.unit, dimension)


@strict
class PointSource(Source):
    """An unresolved source.

    Every quantity is a number with unit ("1.5 Jy"), a prior, or the name of another quantity ("core.I").

    Parameters
    ----------
    name : str
        Unique; parameters are called "name.key".
    ra, dec : angle
        ICRS; or
    east, north : angle
        Offsets from the model's centre: direction cosines l, m about it (SIN), times the angle unit.
    pm_east, pm_north : angle per time, default 0
        Proper motion: how fast the position changes; pm_east is d(ra)/dt cos(dec).
    orbit : table
        Elements of an orbit about the position: `bound.positions.motion.orbit_offset`.
    epoch : date, "J2016.0", or time
        When the source is at its position; default the first time of the data.
    I : flux density, or a list of one per time slot
    Q, U, V : the same, default 0
    pol_fraction, pol_angle : number, angle
        Q = p I cos(2 chi), U = p I sin(2 chi), instead of Q and U; 0 <= p <= 1 whatever its prior.
    v_fraction : number
        V = v I, instead of V; -1 <= v <= 1.
    v_index : number, default 0
        Spectral index of V/I: V/I changes as (nu/nu0)^v_index.
    spectral_index, log10_spectrum, polynomial : number, list, or {"I": ..., "Q": ...}
        One of the three forms of physics: section 4; flat by default.
    free_free, self_absorption : frequency
        Where ionised gas before the source has the optical depth 1; of the peak of a synchrotron source, with
        thick_index : number, default 2.5. I is the flux density without the gas, and at the peak.
    line, table : tables
        A spectral line; the spectrum by its knots (docs/model_files.md).
    rm, rm_width, rm_scatter : rotation measure
        Q and U turn and fade with the wavelength: `rime_kernels.physics.brightness.faraday`.
    rm_reference : "zero" or "ref_freq"
        The wavelength at which Q and U are given, default 0.
    times, between : list of times, "linear" or "constant"
        Knots in time, of which lists I, Q, U, V have one element each, and the way between them.
    ref_freq : frequency
        Where the brightness is given; default that of the model.
    beam : bool, default True
        False for apparent fluxes: the source is not seen through the beam of the model.

    Raises
    ------
    ModelError
        Names the key, what was found and what is allowed.
    """

    label: ClassVar[str] = "source"
    type: ClassVar[str] = "point"


@strict
class GaussianSource(Source):
    """An elliptical Gaussian (physics: section 5); I is the integrated flux density.

    Parameters
    ----------
    name, ra, dec, east, north, I, Q, U, V, pol_fraction, pol_angle, v_fraction, spectral_index, \
    log10_spectrum, polynomial, ref_freq, beam
        As for `PointSource`.
    emaj, emin : angle
        Full widths at half maximum along the major and minor axis, emaj >= emin; or
    emaj, ratio : angle, number
        emin = ratio emaj, 0 <= ratio <= 1; or
    fwhm : angle
        A circular Gaussian, without pa.
    pa : angle
        Position angle of the major axis, from north through east.
    frame : "source" or "phase_centre"
        Whose north angles are from: that at the source, ICRS (default), or that at the phase centre of the
        data.

    Raises
    ------
    ModelError
        Names the key, what was found and what is allowed.
    """

    label: ClassVar[str] = "source"
    type: ClassVar[str] = "gaussian"
    shape_keys: ClassVar[tuple[str, ...]] = ("emaj", "emin", "ratio", "pa", "fwhm")
    _: KW_ONLY
    emaj: QuantityLike = None
    emin: QuantityLike = None
    ratio: QuantityLike = None
    pa: QuantityLike = None
    fwhm: QuantityLike = None
    frame: Entry = LOCAL

    def _check_shape(self) -> None:
        given = [key for key in self.shape_keys if getattr(self, key) is not None]
        if given not in (["emaj", "emin", "pa"], ["emaj", "ratio", "pa"], ["fwhm"]):
            raise ModelError(
                "a shape is emaj, emin, pa; or emaj, ratio, pa; or fwhm alone for a circle; "
                f"found {', '.join(given) or 'none'}"
            )
