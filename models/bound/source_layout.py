"""Where each number of the kernels' source arrays comes from: index tables into the slots."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.light_curves import LightCurve
from biro.models.bound.positions.motion import limits_of, moving
from biro.models.bound.shapes.parts import POINT, PROFILE, ROUND, SourceSlots, parts
from biro.models.bound.shapes.profiles import FIRST_REGISTERED, ProfileTables
from biro.models.bound.slots import ZERO, ModelSlots
from biro.models.bound.spectrum_slots import SpectrumSlots, Term
from biro.models.bound.spectrum_slots import tables as of_terms
from biro.models.components.fractions import FRACTIONS, Fraction
from biro.models.components.partition_view import PartitionView
from biro.models.components.shapes.shaped import ShapedSource, ValueLimits
from biro.models.components.sky import SkyDescription
from biro.models.components.source import Source, si_value
from biro.models.components.spectrum import STOKES
from biro.models.errors import ModelError
from biro.models.quantities import units
from rime_kernels.physics import form_codes

Index = NDArray[np.int64]

_IMAGE_DIMENSIONS = {"scale": units.NUMBER, "east": units.ANGLE, "north": units.ANGLE}


class SourceLayout:
    """Index tables of the sources and images of a sky model: points, then Gaussians, then profiles.

    A source that is made of several appears as often, with its position, its spectrum and its name.

    Parameters
    ----------
    sky : SkyDescription
    slots : ModelSlots
        Every quantity of the sources and images is added to them.

    Attributes
    ----------
    names : list of str
        In the order of the arrays; `owners` are the sources of the model that they are, or are parts of.
    seen : bool (n_source,)
        Whether a source is seen through the beam of the model.
    n_time : int
        Time slots of the brightness, 1 where it is constant.
    position : int (n_source, 2)
        East and north, or right ascension and declination; `by_offset` (n_source,) tells which.
    motions : list of MotionSlots or None
        How each source moves; `moving` (n,) has those that do.
    stokes : int (n_time, n_source, 4)
        I, Q, U, V, of which `fractions` replace some.
    curves : list of LightCurve
        Sources with knots in time, whose I, Q, U, V are 0 in `stokes`.
    fractions : list of (Fraction, int (n, 1 + n_key))
        Those that any source has: sources, and the slots of their quantities.
    terms : int (n_source, 4, n_term)
        Terms of the spectra; their values are multiplied by `term_scale`, `term_offset` and the values of
        the slots `term_plus` are added to them; these have the same shape.
    spectral_form : int32 (n_source,) or None
        As `Sources.spectral_form`.
    faraday : int (n_source, 4)
        Of `Sources.faraday`, to which `faraday_offset` is added; `turned` (n_source,) tells which have any.
    bounds : list of Bounds
        What quantities of spectra must lie within.
    bands : dict of int to (float, float), Hz
        Frequencies at which the spectra of some sources are given.
    frames : list of str
        Frame of the velocities of each source's line; empty where that is the frame of the data.
    shape : int (n_gaussian + n_profile, 3)
        emaj, emin or ratio, pa; `by_ratio`, as long, tells which.
    has_angle, is_local : bool, as long
        Whether a shape looks different when it is turned; whether its angles are from the source's own north.
    turns_north : int (n,)
        Rows of `shape` for which both are true.
    blur : int (n_gaussian + n_profile,)
        Full width of a circle that a Gaussian is convolved with.
    profiles : ProfileTables
        Of the sources that are neither points nor Gaussians.
    limits : list of (int, ValueLimits)
        Slots, and between which values they must lie.
    weights : list of (int, Weight)
        Sources that have a share of a flux.
    image : int (n_image, 3)
        Factor of each image, and how far east and north it is moved; `moves_image` tells whether any is.
    """

    def __init__(
        self,
        sky: SkyDescription,
        slots: ModelSlots,
    ) -> None:
        ref_freq = None if sky.ref_freq is None else si_value(sky.ref_freq, units.FREQUENCY)
        # Parameters are numbered in the order of the file; arrays have points first.
        tables = [part for source in sky.sources for part in _parts(source, ref_freq, slots)]
        tables.sort(key=lambda table: table.rank)
        self.names, self.owners = [table.name for table in tables], [table.owner for table in tables]
        self.seen = np.array([table.seen for table in tables], dtype=bool)
        shaped = [table for table in tables if table.rank != POINT]
        self.position = np.array([table.position for table in tables], dtype=np.int64).reshape(-1, 2)
        self.by_offset = np.array([table.by_offset for table in tables], dtype=bool)
        self.motions = [table.motion for table in tables]
        self.moving = moving(self.motions)
        self.shape = np.array([table.shape for table in shaped], dtype=np.int64).reshape(-1, 3)
        self.by_ratio = np.array([table.by_ratio for table in shaped], dtype=bool)
        self.has_angle = np.array([_has_angle(table) for table in shaped], dtype=bool)
        self.is_local = np.array([table.local for table in shaped], dtype=bool)
        self.turns_north = np.flatnonzero(self.has_angle & self.is_local)
        self.blur = np.array([table.blur for table in shaped], dtype=np.int64)
        self.profiles = ProfileTables([table for table in tables if table.rank == PROFILE])
        self.limits = [limit for table in tables for limit in table.limits]
        self.limits += [(slot, ValueLimits(*limits)) for slot, limits in limits_of(self.motions)]
        self.weights = [(i, table.weight) for i, table in enumerate(tables) if table.weight is not None]
        self._brightness(tables)
        self._spectra([table.spectrum for table in tables])
        self.moves_image = any(image.is_moved for image in sky.images)
        keys = [
            [
                slots.add(image.name, key, getattr(image, key), dimension)
                for key, dimension in _IMAGE_DIMENSIONS.items()
            ]
            for image in sky.images
        ]
        self.image: Index = np.array(keys, dtype=np.int64).reshape(-1, 3)

    @property
    def has_functions(self) -> bool:
        """Whether any source is a function of the user's own."""
        return bool((self.profiles.kind >= FIRST_REGISTERED).any())

    def check(self, partition: PartitionView) -> None:
        """Refuse data of other times than lists of brightness have, or beyond the band of a spectrum."""
        if self.n_time > 1 and partition.time.size != self.n_time:
            raise ModelError(
                f"brightness lists have {self.n_time} elements, but partition {partition.label!r} "
                f"has {partition.time.size} times"
            )
        freq = partition.chan_freq / 1e9
        for i, (low, high) in self.bands.items():
            if freq.min() * 1e9 < low or freq.max() * 1e9 > high:
                raise ModelError(
                    f"source {self.names[i]!r}: its table has {low / 1e9:g} .. {high / 1e9:g} "
                    f"GHz, partition {partition.label!r} {freq.min():g} .. {freq.max():g} GHz; add knots"
                )

    def doppler(self, partition: PartitionView) -> tuple[float, ...] | None:
        """Frequencies of the data over those in the frame of each source's line; None where all are 1."""
        frames = set(self.frames) - {""}
        if not frames:
            return None
        if partition.doppler is None:
            raise ModelError(
                f"velocity_frame: the frequency frame of partition {partition.label!r} is unknown; remove "
                "velocity_frame"
            )
        factor = {frame: partition.doppler(frame) for frame in frames} | {"": 1.0}
        return tuple(factor[frame] for frame in self.frames)

    def _brightness(self, tables: list[SourceSlots]) -> None:
        lengths = {
            len(s): (table.name, k)
            for table in tables
            for k, s in table.stokes.items()
            if len(s) > 1 and table.times is None
        }
        if len(lengths) > 1:
            (n1, (name1, key1)), (n2, (name2, key2)) = list(lengths.items())[:2]
            raise ModelError(
                f"brightness lists must be of one length: {name1}.{key1} has {n1} elements, "
                f"{name2}.{key2} has {n2}"
            )
        self.n_time, self.curves = next(iter(lengths), 1), list[LightCurve]()
        self.stokes = np.full((self.n_time, len(tables), 4), ZERO, dtype=np.int64)
        for i, table in enumerate(tables):
            if table.times is not None:
                self.curves.append(_curve(i, table))
                continue
            for key, found in table.stokes.items():
                self.stokes[:, i, STOKES.index(key)] = found
        self.fractions: list[tuple[Fraction, Index]] = []
        for fraction in FRACTIONS:
            rows = [(i, *t.fractions[fraction]) for i, t in enumerate(tables) if fraction in t.fractions]
            if rows:
                self.fractions.append((fraction, np.array(rows, dtype=np.int64)))

    def _spectra(self, spectra: list[SpectrumSlots]) -> None:
        table = of_terms([row for spectrum in spectra for row in spectrum.terms])
        shape = len(spectra), len(STOKES), table.slot.shape[1]
        self.terms, self.term_scale, self.term_offset, self.term_plus = (x.reshape(shape) for x in table)
        self.ref_freq = np.array([spectrum.ref_freq for spectrum in spectra], dtype=np.float64)
        form = np.array([spectrum.form for spectrum in spectra], dtype=np.int32)
        self.log_spectrum = form != form_codes.POLYNOMIAL
        self.spectral_form = form if (form > form_codes.POWER_LAW).any() else None
        # A source that is made of several appears several times.
        self.bounds = list(dict.fromkeys(bounds for spectrum in spectra for bounds in spectrum.bounds))
        self.frames = [spectrum.frame for spectrum in spectra]
        self.bands = {i: spectrum.band for i, spectrum in enumerate(spectra) if spectrum.band is not None}
        self.turned = np.array([spectrum.faraday is not None for spectrum in spectra], dtype=bool)
        faraday = of_terms([spectrum.faraday or [Term()] * 4 for spectrum in spectra])
        self.faraday, self.faraday_offset = faraday.slot, faraday.offset


def _parts(source: Source, ref_freq: float | None, slots: ModelSlots) -> list[SourceSlots]:
    table = SourceSlots(source, ref_freq, slots)
    return parts(table, source, slots) if isinstance(source, ShapedSource) else [table]


def _has_angle(table: SourceSlots) -> bool:
    """Whether a source looks different when it is turned."""
    return table.shape[0] != table.shape[1] or table.kind not in ROUND


def _curve(source: int, table: SourceSlots) -> LightCurve:
    """The knots of a source; what has one value has the same at all knots."""
    assert table.times is not None
    stokes = np.full((len(table.times), len(STOKES)), ZERO, dtype=np.int64)
    for key, found in table.stokes.items():
        stokes[:, STOKES.index(key)] = found
    return LightCurve(source, table.times, table.between, stokes)
