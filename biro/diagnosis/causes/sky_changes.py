"""Changes of a sky model that may remove a misfit: quantities freed, other shapes, spectra, polarisation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from biro.diagnosis.causes.samples import ResidualSamples
from biro.models.components.shapes.discs import DiscSource, RingSource, SphereSource
from biro.models.components.shapes.galaxies import ExponentialSource
from biro.models.components.shapes.shaped import ShapedSource
from biro.models.components.source import DIMENSIONS, GaussianSource, PointSource, Source
from biro.models.components.toml_text import entry_lines
from biro.models.errors import ModelError
from biro.models.quantities import units
from biro.models.quantities.parameter import Fixed
from biro.models.quantities.prior import Prior, Uniform
from biro.models.sky import SkyModel

SHAPE, POSITION, FLUX = "shape of a source", "position of a source", "flux of a source"
SPECTRUM, POLARISATION = "spectrum of a source", "polarisation of a source"
PER_FWHM: dict[type[GaussianSource | ShapedSource], float] = {
    GaussianSource: 1.0,
    DiscSource: 1.70,
    RingSource: 1.20,
    SphereSource: 1.90,
    ExponentialSource: 0.245,
}
"""Sizes of shapes over the FWHM of the Gaussian with the same second moment, by which they look alike at
short baselines: per axis FWHM^2 / (8 ln 2), diameter^2 / 16, / 8 and / 20, and 3 scale_length^2."""
NOUNS = {"gaussian": "a Gaussian", "exponential": "an exponential disc"}
"""Names of shapes in a sentence, where these are not "a" and the type."""
ANGLES = {"pa": np.pi, "hole_pa": 2.0 * np.pi}
"""Position angles of shapes, with their periods in rad."""
ELLIPSES = (0.0, 45.0, 90.0, 135.0)
"""Position angles, deg, that ellipses begin with: ln L need not rise from a circle to the right one."""
SIZES = (0.4, 1.0, 2.5)
"""Sizes that a point begins to grow with, in beams."""
FLAT = 0.02
"""Relative width of the band below which a spectral index has no effect."""
OTHER_FORMS = ("line", "table", "free_free", "self_absorption")
MOST_SOURCES = 8
LEAST_COS = 1e-3
"""Cosine of a declination below which a right ascension is free all round."""
INDEX_RANGE = 5.0
"""Half the width of the priors of spectral indices and their gradients."""


@dataclass(frozen=True)
class SkyChange:
    """One change of a sky model.

    Attributes
    ----------
    kind : str
    sky : SkyModel
        Changed, with wide priors of what is new.
    source : str
        Name of the source.
    keys : tuple of str
        Entries of the source that are new or changed.
    n_new : int
        Numbers that the model has more.
    starts : tuple of dict of str to float
        Values of new parameters to begin with, by name.
    verdict, action : str
        What would be wrong with the model, and what to do, without the figures.
    removed : tuple of str
        Entries that the source has no longer.
    places : float
        How many places a new source was looked for at.
    """

    kind: str
    sky: SkyModel
    source: str
    keys: tuple[str, ...]
    n_new: int
    starts: tuple[Mapping[str, float], ...]
    verdict: str
    action: str
    removed: tuple[str, ...] = ()
    places: float = 1.0

    def lines(self) -> list[str]:
        """The changed entries as they stand in a model file."""
        source = next(each for each in self.sky.sources if each.name == self.source)
        return entry_lines(source, self.keys)


@dataclass(frozen=True)
class _Source:
    """A source of a model with what its changes need to know."""

    sky: SkyModel
    own: Any
    values: Mapping[str, float]
    beam: float
    freq: float

    def value(self, key: str) -> Fixed | None:
        """A quantity of the source at the best fit; None where it is tied, or there is none."""
        given = getattr(self.own, key, None)
        if isinstance(given, tuple):
            given = given[0] if len(given) == 1 else None
        if isinstance(given, Fixed):
            return given
        name = f"{self.own.name}.{key}"
        if isinstance(given, Prior) and name in self.values:
            return Fixed(self.values[name], given.unit)
        return None

    def beam_in(self, unit: str) -> float:
        """Half the width of the PSF in a unit of angle."""
        return self.beam / units.factor(unit, DIMENSIONS["fwhm"])

    def is_fixed(self, key: str) -> bool:
        """Whether a number is given that is not fitted."""
        given = getattr(self.own, key, None)
        return isinstance(given[0] if isinstance(given, tuple) and len(given) == 1 else given, Fixed)

    def change(
        self,
        kind: str,
        n_new: int,
        new: Mapping[str, Any],
        starts: list[dict[str, float]],
        verdict: str,
        action: str,
        of: type[Source] | None = None,
    ) -> Iterator[SkyChange]:
        """The change of the source to these entries; nothing where the model does not allow it."""
        given = {each.name: getattr(self.own, each.name) for each in fields(self.own)}
        kind_of = of or type(self.own)
        allowed = {each.name for each in fields(kind_of)}
        try:
            made = kind_of(**{key: value for key, value in (given | dict(new)).items() if key in allowed})
            sources = tuple(made if each is self.own else each for each in self.sky.sources)
            sky = replace(self.sky, sources=sources)
        except ModelError:  # others are tied to it, say
            return
        name = self.own.name
        own_starts = tuple({f"{name}.{key}": x for key, x in start.items()} for start in starts)
        keys = (*["type"] * (of is not None), *(key for key, value in new.items() if value is not None))
        removed = tuple(key for key, value in new.items() if value is None)
        yield SkyChange(kind, sky, name, keys, n_new, own_starts, verdict, action, removed)


def sky_changes(
    sky: SkyModel, values: Mapping[str, float], samples: ResidualSamples, beam: float
) -> Iterator[SkyChange]:
    """All changes of single sources; `beam` is half the width of the PSF, rad."""
    n_corr = len(samples.corr_names)
    seen = [name for name in "QUV" if n_corr > 1 and (samples.in_stokes(name) != 0).any()]
    wide = bool(np.ptp(np.log(samples.freq)) > FLAT)
    freq = float(np.median(samples.freq))
    for source in sky.sources[:MOST_SOURCES]:
        own = _Source(sky, source, values, beam, freq)
        yield from _positions(own)
        yield from _fluxes(own)
        yield from _shapes(own)
        if wide:
            yield from _spectra(own)
        yield from _polarisations(own, seen)


def _around(value: Fixed, half_width: float) -> Uniform:
    """A prior about a number, whose ends have no more digits than its width needs."""
    half_width = _short(half_width)
    low, high = (_short(value.value + sign * half_width, half_width) for sign in (-1.0, 1.0))
    return Uniform(low, high, value.unit)


def _up_to(high: float, unit: str) -> Uniform:
    return Uniform(0.0, _short(high), unit)


def _short(value: float, scale: float = 0.0) -> float:
    """A number rounded to two digits, or to a hundredth of a scale."""
    size = scale or abs(value)
    return round(value, 1 - math.floor(math.log10(size))) if size > 0.0 else value


def _positions(own: _Source) -> Iterator[SkyChange]:
    pair = ("ra", "dec") if own.own.ra is not None else ("east", "north")
    freed = [key for key in pair if own.is_fixed(key)]
    if not freed:
        return
    new, start = {}, {}
    for key in freed:
        value = own.value(key)
        assert value is not None
        half_turn = np.pi / units.factor(value.unit, DIMENSIONS[key])
        width = 10.0 * own.beam_in(value.unit)
        if key == "ra" and (dec := own.value("dec")) is not None:
            cos = math.cos(dec.value * units.factor(dec.unit, DIMENSIONS["dec"]))
            width = min(width / max(cos, LEAST_COS), half_turn)
        new[key] = _around(value, width)
        start[key] = value.value
    listed = " and ".join(freed)
    yield from own.change(
        POSITION,
        len(freed),
        new,
        [start],
        f"The fixed position of {own.own.name} is wrong",
        f"Free {listed} of {own.own.name}",
    )


def _fluxes(own: _Source) -> Iterator[SkyChange]:
    value = own.value("I")
    if value is None or not own.is_fixed("I"):
        return
    new = {"I": _around(value, 10.0 * abs(value.value) or 1.0)}
    yield from own.change(
        FLUX,
        1,
        new,
        [{"I": value.value}],
        f"The fixed flux density of {own.own.name} is wrong",
        f"Free I of {own.own.name}",
    )


def _size_key(kind: type[GaussianSource | ShapedSource]) -> str:
    return kind.size_key if issubclass(kind, ShapedSource) else "fwhm"


def _shapes(own: _Source) -> Iterator[SkyChange]:
    if isinstance(own.own, PointSource):
        yield from _grown(own)
    elif isinstance(own.own, GaussianSource | ShapedSource):
        yield from _freed_sizes(own)
        yield from _ellipses(own)
        yield from _other_kinds(own)


def _ellipse(size: Prior | Uniform) -> dict[str, object]:
    return {"emaj": size, "ratio": Uniform(0.0, 1.0), "pa": Uniform(0.0, 180.0, "deg")}


def _elliptical(size: float, factor: float = 1.25) -> list[dict[str, float]]:
    return [{"emaj": factor * size, "ratio": 0.6, "pa": angle} for angle in ELLIPSES]


def _grown(own: _Source) -> Iterator[SkyChange]:
    beam = own.beam * 180.0 * 3600.0 / np.pi
    size, name = _up_to(20.0 * beam, "arcsec"), own.own.name
    verdict, action = f"Source {name} is extended, but the model has a point", f"Write {name} as "
    circles = [{"fwhm": part * beam} for part in SIZES]
    yield from own.change(
        SHAPE, 1, {"fwhm": size}, circles, verdict, f"{action}a circular Gaussian", GaussianSource
    )
    yield from own.change(
        SHAPE,
        3,
        _ellipse(size),
        [start for part in SIZES for start in _elliptical(part * beam)],
        verdict,
        f"{action}an elliptical Gaussian",
        GaussianSource,
    )


def _freed_sizes(own: _Source) -> Iterator[SkyChange]:
    keys = ("emaj", "emin", "ratio", "pa", _size_key(type(own.own)), "blur", *getattr(own.own, "numbers", ()))
    freed = [key for key in dict.fromkeys(keys) if own.is_fixed(key)]
    if not freed:
        return
    new: dict[str, object] = {}
    start: dict[str, float] = {}
    for key in freed:
        value = own.value(key)
        assert value is not None
        new[key] = _prior_of_shape(own, key, value)
        start[key] = value.value
    sized = [key for key in freed if key not in ("ratio", "pa", *getattr(own.own, "numbers", ()))]
    starts = [start | {key: scale * max(start[key], 1e-300) for key in sized} for scale in (1.0, 0.6, 1.6)]
    name = own.own.name
    yield from own.change(
        SHAPE,
        len(freed),
        new,
        starts if sized else [start],
        f"The fixed size of {name} is wrong" if sized else f"The fixed shape of {name} is wrong",
        f"Free {' and '.join(freed)} of {name}",
    )


def _prior_of_shape(own: _Source, key: str, value: Fixed) -> Uniform:
    """A wide prior of one quantity of a shape, within the limits that the shape documents."""
    if key == "ratio":
        return Uniform(0.0, 1.0)
    if key in ANGLES:
        half = 0.5 * ANGLES[key] / units.factor(value.unit, DIMENSIONS[key])
        return Uniform(value.value - half, value.value + half, value.unit)
    limits = getattr(own.own, "numbers", {}).get(key)
    if limits is None:
        return _up_to(3.0 * value.value + 10.0 * own.beam_in(value.unit), value.unit)
    if math.isinf(limits.high):
        return _around(value, INDEX_RANGE)
    return Uniform(limits.low, limits.high)


def _ellipses(own: _Source) -> Iterator[SkyChange]:
    key, name = _size_key(type(own.own)), own.own.name
    given, value = getattr(own.own, key, None), own.value(key)
    if given is None or value is None or not value.value > 0.0:
        return
    prior = given if isinstance(given, Prior) else _up_to(5.0 * value.value, value.unit)
    starts = [*_elliptical(value.value), *_elliptical(max(value.value, own.beam_in(value.unit)), 1.6)]
    yield from own.change(
        SHAPE,
        2 + own.is_fixed(key),
        {key: None} | _ellipse(prior),
        starts,
        f"Source {name} is elliptical, but the model has a circle",
        f"Free ratio and pa of {name}",
    )


def _other_kinds(own: _Source) -> Iterator[SkyChange]:
    kind, name = type(own.own), own.own.name
    if kind not in PER_FWHM:
        return
    old = next((key for key in (_size_key(kind), "emaj") if getattr(own.own, key, None) is not None), "")
    value = own.value(old)
    if value is None or not value.value > 0.0:
        return
    for other, per_fwhm in PER_FWHM.items():
        if other is kind:
            continue
        scale = per_fwhm / PER_FWHM[kind]
        size = scale * max(value.value, 0.3 * own.beam_in(value.unit))
        key = _size_key(other) if old != "emaj" else "emaj"
        new: dict[str, object] = {old: None, key: _up_to(5.0 * size, value.unit)}
        if old == "emaj" and own.own.emin is not None:
            minor = own.value("emin")
            if minor is None or not isinstance(own.own.emin, Prior):
                continue
            new["emin"] = None
            new["ratio"] = Uniform(0.0, 1.0)
        starts = [{key: part * size} for part in (1.0, 0.75, 1.35)]
        if "ratio" in new:
            minor = own.value("emin")
            assert minor is not None
            starts = [start | {"ratio": min(1.0, minor.value / value.value)} for start in starts]
        noun = _noun(other)
        if old == "emaj":
            noun = f"an elliptical {noun.partition(' ')[2]}"
        yield from own.change(
            SHAPE,
            1,
            new,
            starts,
            f"Source {name} is not {_noun(kind)}",
            f"Write {name} as {noun}",
            other,
        )


def _noun(kind: type[GaussianSource | ShapedSource]) -> str:
    return NOUNS.get(kind.type, f"a {kind.type}")


def _spectra(own: _Source) -> Iterator[SkyChange]:
    source, name = own.own, own.own.name
    forms = source.spectrum()
    shapes = any(
        getattr(source, key) is not None for key in ("line", "table", "free_free", "self_absorption")
    )
    if shapes or (forms is not None and forms[0] != "spectral_index"):
        return
    at: dict[str, object] = {}
    if own.sky.ref_freq is None and source.ref_freq is None:
        at = {"ref_freq": Fixed(_short(own.freq / 1e9), "GHz")}
    key = "spectral_index"
    if forms is None:
        new = {key: Uniform(-INDEX_RANGE, INDEX_RANGE)} | at
        verdict = f"The spectrum of {name} is not flat"
        yield from own.change(SPECTRUM, 1, new, [{key: -0.7}], verdict, f"Free {key} of {name}")
        return
    if not isinstance(forms[1], tuple) or len(forms[1]) != 1:
        return
    value = own.value(key)
    if value is None:
        return
    if own.is_fixed(key):
        verdict = f"The fixed spectral index of {name} is wrong"
        new = {key: _around(value, INDEX_RANGE)}
        yield from own.change(SPECTRUM, 1, new, [{key: value.value}], verdict, f"Free {key} of {name}")
        return
    new = {key: (forms[1][0], Uniform(-INDEX_RANGE, INDEX_RANGE))}
    start = {f"{key}[0]": value.value, f"{key}[1]": 0.0}
    yield from own.change(
        SPECTRUM, 1, new, [start], f"The spectrum of {name} is curved", f"Add a second {key} term to {name}"
    )


def _polarisations(own: _Source, seen: list[str]) -> Iterator[SkyChange]:
    source, name, flux = own.own, own.own.name, own.value("I")
    if flux is None:
        return
    linear = source.pol_fraction is None and getattr(source, "beta_pol_re", None) is None
    circular = source.v_fraction is None and getattr(source, "beta_v_re", None) is None
    for keys, is_allowed in ((("Q", "U"), linear), (("V",), circular)):
        freed = [key for key in keys if key in seen and not isinstance(_only(getattr(source, key)), Prior)]
        if not is_allowed or not freed or any(own.value(k) is None and getattr(source, k) for k in freed):
            continue
        values = {key: own.value(key) or Fixed(0.0, flux.unit) for key in freed}
        width = abs(flux.value) or 1.0
        new = {key: _around(x, width) for key, x in values.items()}
        listed = " and ".join(freed)
        is_absent = all(not getattr(source, key) for key in freed)
        yield from own.change(
            POLARISATION,
            len(freed),
            new,
            [{key: x.value for key, x in values.items()}],
            f"Source {name} has Stokes {listed}, but the model has none"
            if is_absent
            else f"The fixed Stokes {listed} of {name} is wrong",
            f"Free {listed} of {name}",
        )


def _only(series: Any) -> Any:
    return series[0] if isinstance(series, tuple) and len(series) == 1 else series
