"""From theta to the sources of each partition, from changes of theta to theirs, and derivatives back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.antenna_terms.jones import PartitionTerms
from biro.models.bound.antenna_terms.layout import TermSlots
from biro.models.bound.instrument_layout import InstrumentLayout, PointingSlots
from biro.models.bound.jones_beams import PartitionBeam
from biro.models.bound.light_curves import KnotTable
from biro.models.bound.memory import ReusedMemory
from biro.models.bound.positions.bearing import TurnedShapes
from biro.models.bound.positions.places import FramePositions, PositionFrame
from biro.models.bound.shapes.profiles import SourceProfiles
from biro.models.bound.si_values import (
    ArrayOfValues,
    Constant,
    IndexedValues,
    SIValues,
    fold_constants,
)
from biro.models.bound.slots import ResolvedSlots
from biro.models.bound.source_arrays import (
    BeamScale,
    PointingErrors,
    brightness,
    shapes,
    spectral_terms,
)
from biro.models.bound.source_layout import SourceLayout
from biro.models.components.direction import Centre
from rime_kernels.arrays import Beam, BeamKind, Sources
from rime_kernels.gradient import Gradient
from rime_kernels.jones_beam import JonesBeam

Array = NDArray[np.float64]


Key: TypeAlias = tuple[int, int, int, int, int, int]
"""Which frame, pointing errors, matrices of antennas, beam, knots and Doppler factors a partition has."""


class PartitionInputs(NamedTuple):
    """What the sources of a partition depend on besides the model."""

    frame: PositionFrame
    pointing: PointingSlots | None
    terms: TermSlots | None
    beam: PartitionBeam | None
    knots: KnotTable | None
    doppler: tuple[float, ...] | None = None


class SourceAssembly:
    """The sources of some partitions for a batch of parameter vectors.

    Brightness and spectra are the same arrays for all partitions, positions and shapes for those with one
    phase centre and, where sources move, one time, pointing errors for those with the same antennas and
    times, and brightness with knots for those with the same times.

    Parameters
    ----------
    layout : SourceLayout
    instrument : InstrumentLayout
    resolved : ResolvedSlots
    origin : (float, float), rad
        Right ascension and declination from which offsets are counted.
    start : float, s
        The first time of all data.
    partitions : sequence of PartitionInputs

    Attributes
    ----------
    values : SIValues
        The numbers that the sources are made of.
    """

    def __init__(
        self,
        layout: SourceLayout,
        instrument: InstrumentLayout,
        resolved: ResolvedSlots,
        origin: Centre,
        start: float,
        partitions: Sequence[PartitionInputs],
    ) -> None:
        self.values = values = SIValues(resolved)
        self._memory = ReusedMemory()
        knots = list(dict.fromkeys(each.knots for each in partitions))
        self._stokes = [
            fold_constants(resolved, values, partial(brightness, layout, knots=one)) for one in knots
        ]
        dopplers = list(dict.fromkeys(each.doppler for each in partitions))
        self._terms = [
            fold_constants(resolved, values, partial(spectral_terms, layout, doppler=one)) for one in dopplers
        ]
        self._shape = fold_constants(resolved, values, partial(shapes, layout))
        self._profile_kind = layout.profiles.kind if layout.profiles.kind.size else None
        self._profile = (
            fold_constants(resolved, values, partial(SourceProfiles, layout.profiles))
            if self._profile_kind is not None
            else None
        )
        self._faraday: ArrayOfValues | None = None
        if layout.turned.any():
            turning = partial(IndexedValues, slots=layout.faraday, offset=layout.faraday_offset)
            self._faraday = fold_constants(resolved, values, turning)
        self._spectral_form = layout.spectral_form
        self._template = (
            fold_constants(resolved, values, partial(IndexedValues, slots=layout.image))
            if layout.image.size
            else None
        )
        self._moves_template = layout.moves_image
        self._ref_freq, self._log_spectrum = layout.ref_freq, layout.log_spectrum
        self._polarised = _is_polarised(layout, resolved)
        self._kind = instrument.beam.kind if instrument.beam is not None else None
        if instrument.beam is not None:
            self._scale = fold_constants(
                resolved, values, partial(BeamScale, instrument.beam, instrument.scale)
            )
        frames = list(dict.fromkeys(each.frame for each in partitions))
        self._positions = FramePositions(layout, resolved, values, frames, origin, start)
        self._turned = TurnedShapes(layout, resolved, self._shape, frames)
        pointings = list(dict.fromkeys(each.pointing for each in partitions))
        self._pointings = [
            fold_constants(resolved, values, partial(PointingErrors, slots)) if slots is not None else None
            for slots in pointings
        ]
        terms = list(dict.fromkeys(each.terms for each in partitions))
        antennas = [None if slots is None else PartitionTerms(slots, resolved, values) for slots in terms]
        self._antennas = [None if one is None or one.change_nothing else one for one in antennas]
        self._beams = list(dict.fromkeys(each.beam for each in partitions))
        self._turns = [
            None if slots is None else IndexedValues(values, slots)
            for slots in (None if one is None else one.turns_in_beam(resolved) for one in terms)
        ]
        self._varied = None if self._beam_varies else _varied(layout.owners, resolved)
        self._partitions: list[Key] = [
            (
                frames.index(each.frame),
                pointings.index(each.pointing),
                terms.index(each.terms),
                self._beams.index(each.beam),
                knots.index(each.knots),
                dopplers.index(each.doppler),
            )
            for each in partitions
        ]

    @property
    def has_antenna_terms(self) -> bool:
        """Whether matrices of the antennas are other than 1."""
        return any(one is not None for one in self._antennas)

    @property
    def _beam_varies(self) -> bool:
        """Whether any parameter changes the beam, or where antennas point."""
        if self._kind is None:
            return False
        errors = [self._scale, *[one for one in self._pointings if one is not None]]
        return any(one is not None for one in self._turns) or not all(isinstance(x, Constant) for x in errors)

    def positions(self, values: Array) -> list[Array]:
        """Direction cosines (n_batch, n_source, 2) in each distinct frame."""
        return self._positions(values)

    def sources(self, values: Array) -> list[Sources]:
        """The sources of each partition; partitions with the same sources share one object.

        They must not be written into."""
        lm = self._positions(values)
        stokes = [step(values) for step in self._stokes]
        terms, shape = [step(values) for step in self._terms], self._turned(values, lm)
        scale = self._scale(values) if self._kind is not None else None
        profile = self._profile(values) if self._profile is not None else None
        template = self._template(values) if self._template is not None else None
        faraday = None if self._faraday is None else self._faraday(values)
        shift = template[..., 1:] if template is not None and self._moves_template else None
        made: dict[Key, Sources] = {}
        jones = [None if antennas is None else antennas(values) for antennas in self._antennas]
        for key in self._partitions:
            if key not in made:
                made[key] = Sources.unchecked(
                    lm[key[0]],
                    stokes[key[4]],
                    self._ref_freq,
                    terms[key[5]],
                    self._log_spectrum,
                    shape[key[0]],
                    None if scale is None else self._beam(values, scale, key),
                    polarised=self._polarised,
                    template_scale=template[..., 0] if template is not None else None,
                    template_shift=shift,
                    profile=profile,
                    profile_kind=self._profile_kind,
                    antenna_terms=jones[key[2]],
                    spectral_form=self._spectral_form,
                    faraday=faraday,
                    varied=self._varied,
                )
        return [made[key] for key in self._partitions]

    def push_forward(self, values: Array, change: Array) -> Iterator[Gradient]:
        """The changes of the sources of each partition with changes of theta: the derivative of `sources`.

        Parameters
        ----------
        values : float64 (n_change, n_value) or (1, n_value)
        change : float64 (n_change, n_param)
        """
        changes = self.values.push_forward(change)

        def pushed(function: ArrayOfValues | None) -> Array | None:
            return None if function is None else function.push_forward(values, changes)

        lm = self._positions.push_forward(values, changes)
        stokes = [step.push_forward(values, changes) for step in self._stokes]
        terms = [step.push_forward(values, changes) for step in self._terms]
        places = self._positions(values) if self._turned.follows_positions else []
        shape = self._turned.push_forward(values, changes, places, lm)
        template, scale = pushed(self._template), pushed(self._scale if self._kind is not None else None)
        profile = pushed(self._profile)
        faraday = pushed(self._faraday)
        shift = template[..., 1:] if template is not None and self._moves_template else None
        jones = [None if one is None else one.push_forward(values, changes) for one in self._antennas]
        for i_frame, i_pointing, i_terms, _, i_knots, i_doppler in self._partitions:
            yield Gradient(
                lm[i_frame],
                stokes[i_knots],
                terms[i_doppler],
                shape[i_frame],
                beam_scale=scale,
                pointing=pushed(self._pointings[i_pointing]),
                turn=pushed(self._turns[i_terms]),
                template_scale=None if template is None else template[..., 0],
                template_shift=shift,
                antenna_terms=jones[i_terms],
                profile=profile,
                faraday=faraday,
            )

    def pull_back(self, values: Array, gradients: Iterable[Gradient], weight: Array) -> Array:
        """Derivatives with respect to theta, (n_batch, n_param): the adjoint of `sources`.

        Parameters
        ----------
        values : float64 (n_batch, n_value)
        gradients : of each partition
        weight : float64 (n_batch, n_partition)
            Factors of the derivatives of each partition before they are summed.
        """
        into = np.zeros((len(values), self.values.n_free))
        lm, sums = self._positions.zeros(len(values)), dict[ArrayOfValues, Array]()
        by_pa = np.zeros((*lm.shape[:2], self._turned.n_shape))
        of_antennas: dict[PartitionTerms, NDArray[np.complex128]] = {}
        for key, gradient, factor in zip(self._partitions, gradients, weight.T, strict=True):
            lm[key[0]] += factor[:, None, None] * gradient.lm
            by_pa[key[0]] += factor[:, None] * gradient.shape[..., 2]
            for step, slopes in self._steps(key, gradient):
                if isinstance(step, Constant):
                    continue
                product = slopes * factor.reshape(-1, *(1,) * (slopes.ndim - 1))
                sums[step] = sums[step] + product if step in sums else product
            antennas = self._antennas[key[2]]
            if antennas is not None and gradient.antenna_terms is not None:
                by_jones = self._times(gradient.antenna_terms, factor)
                of_antennas[antennas] = (
                    of_antennas[antennas] + by_jones if antennas in of_antennas else by_jones
                )
        if self._turned.follows_positions:
            self._turned.pull_back(self._positions(values), by_pa, lm)
        self._positions.pull_back(values, lm, into)
        for step, slopes in sums.items():
            step.pull_back(values, slopes, into)
        for antennas, by_jones in of_antennas.items():
            antennas.pull_back(values, by_jones, into)
        return self.values.pull_back(into)

    def _times(self, slopes: NDArray[np.complex128], factor: Array) -> NDArray[np.complex128]:
        """Derivatives with respect to matrices times the factor of each entry of the batch."""
        product = self._memory.complex(*slopes.shape)
        by = factor.reshape(-1, *(1,) * slopes.ndim)
        np.multiply(slopes[..., None].view(np.float64), by, out=product[..., None].view(np.float64))
        return product

    def _steps(self, key: Key, gradient: Gradient) -> Iterator[tuple[ArrayOfValues, Array]]:
        """Functions that made the arrays of a partition, and the derivatives to each array; no positions."""
        _, i_pointing, i_terms, _, i_knots, i_doppler = key
        yield self._stokes[i_knots], gradient.stokes
        yield self._terms[i_doppler], gradient.spectral_terms
        yield self._shape, gradient.shape
        if self._profile is not None and gradient.profile is not None:
            yield self._profile, gradient.profile
        if self._faraday is not None and gradient.faraday is not None:
            yield self._faraday, gradient.faraday
        if self._template is not None and gradient.template_scale is not None:
            scale, shift = gradient.template_scale, gradient.template_shift
            moved = np.zeros((*scale.shape, 2)) if shift is None else shift
            yield self._template, np.concatenate([scale[..., None], moved], axis=-1)
        errors = self._pointings[i_pointing]
        if self._kind is not None and gradient.beam_scale is not None:
            yield self._scale, gradient.beam_scale
            if errors is not None and gradient.pointing is not None:
                yield errors, gradient.pointing
            turns = self._turns[i_terms]
            if turns is not None and gradient.turn is not None:
                yield turns, gradient.turn

    def _beam(self, values: Array, scale: Array, key: Key) -> Beam | JonesBeam:
        _, i_pointing, i_terms, i_beam, *_ = key
        errors, turns, beam = self._pointings[i_pointing], self._turns[i_terms], self._beams[i_beam]
        pointing = errors(values) if errors is not None else None
        if beam is not None:
            turn = turns(values) if turns is not None else None
            return JonesBeam.unchecked(beam.jones_beam, scale=scale, pointing=pointing, turn=turn)
        return Beam.unchecked(cast(BeamKind, self._kind), scale, pointing)


def _varied(owners: Sequence[str], resolved: ResolvedSlots) -> tuple[int, int] | None:
    """`Sources.varied`: from the first source that has a parameter to behind the last that has one."""
    free = {name.split(".")[0] for name, slot in resolved.slot_of.items() if slot in resolved.forms}
    found = [i for i, owner in enumerate(owners) if owner in free]
    first, stop = (found[0], found[-1] + 1) if found else (0, 0)
    return None if stop - first == len(owners) else (first, stop)


def _is_polarised(layout: SourceLayout, resolved: ResolvedSlots) -> bool:
    """Whether any of Q, U, V can be other than 0."""
    curves = [curve.stokes[:, 1:].ravel() for curve in layout.curves]
    others = np.concatenate([layout.stokes[..., 1:].ravel(), *curves])
    given = resolved.is_free(others) | (resolved.base[others] != 0)
    return bool(given.any() or layout.fractions)
