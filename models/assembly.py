"""theta to the arrays of the kernels: everything that can be decided before the first call is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from biro.models.beam import AnyBeam
from biro.models.columns import Columns, Constant, Table, settle
from biro.models.direction import Centre, Directions, TangentPlanes
from biro.models.index import as_slice
from biro.models.instrument import InstrumentLayout, PointingSlots
from biro.models.layout import SourceLayout
from biro.models.memory import Reused
from biro.models.slots import Resolved
from rime_kernels.arrays import Beam, Sources

Array = NDArray[np.float64]


class Brightness:
    """Stokes I, Q, U, V, Jy (n_batch, n_time, n_source, 4)."""

    def __init__(self, layout: SourceLayout, columns: Columns) -> None:
        self._stokes = Table(columns, layout.stokes)
        rows, fraction, angle = layout.linear.T
        self._linear = as_slice(rows) if rows.size else None
        # An axis of length one for the times.
        self._fraction, self._angle = Table(columns, fraction[None]), Table(columns, angle[None])
        rows, fraction = layout.circular.T
        self._circular = as_slice(rows) if rows.size else None
        self._v_fraction = Table(columns, fraction[None])

    def __call__(self, columns: Array) -> Array:
        stokes = self._stokes(columns)
        if self._linear is not None:
            rows = self._linear
            polarised = self._fraction(columns) * stokes[:, :, rows, 0]
            twice = 2 * self._angle(columns)
            stokes[:, :, rows, 1] = polarised * np.cos(twice)
            stokes[:, :, rows, 2] = polarised * np.sin(twice)
        if self._circular is not None:
            rows = self._circular
            stokes[:, :, rows, 3] = self._v_fraction(columns) * stokes[:, :, rows, 0]
        return stokes


class SpectralTerms:
    """Terms in the kernels' form (n_batch, n_source, 4, n_term)."""

    def __init__(self, layout: SourceLayout, columns: Columns) -> None:
        self._terms = Table(columns, layout.terms)
        self._scale = None if (layout.term_scale == 1).all() else layout.term_scale

    def __call__(self, columns: Array) -> Array:
        terms = self._terms(columns)
        if self._scale is not None:
            terms *= self._scale
        return terms


class Shapes:
    """emaj, emin, pa, rad (n_batch, n_gaussian, 3)."""

    def __init__(self, layout: SourceLayout, columns: Columns) -> None:
        self._shape = Table(columns, layout.shape)
        rows = np.flatnonzero(layout.by_ratio)
        self._by_ratio = as_slice(rows) if rows.size else None

    def __call__(self, columns: Array) -> Array:
        shape = self._shape(columns)
        if self._by_ratio is not None:
            shape[:, self._by_ratio, 1] *= shape[:, self._by_ratio, 0]
        return shape


class Positions:
    """Direction cosines (n_batch, n_source, 2) about each centre, NaN below the horizon.

    Sources that stay where they are have been looked at once.
    """

    def __init__(
        self, layout: SourceLayout, resolved: Resolved, columns: Columns, planes: TangentPlanes
    ) -> None:
        free = np.asarray(resolved.is_free(layout.position).any(axis=1))
        if np.count_nonzero(free) > np.count_nonzero(~free):
            free[:] = True  # to work out the few others again costs less than to put them in between
        rows = np.flatnonzero(free)
        position = resolved.base[layout.position][None]
        position[:, rows] = 0.0
        self._fixed = Directions(layout.by_offset, planes).lm(position)
        self._constant = [Constant(lm) for lm in self._fixed]
        self._rows = as_slice(rows)
        self._all_free, self._any_free = bool(free.all()), bool(free.any())
        self._position = Table(columns, layout.position[rows])
        self._directions = Directions(layout.by_offset[rows], planes)
        self._memory = Reused()

    def __call__(self, columns: Array) -> list[Array]:
        if not self._any_free:
            return [constant(columns) for constant in self._constant]
        moving = self._directions.lm(self._position(columns))
        if self._all_free:
            return list(moving)
        n_centre, _, n_source, _ = self._fixed.shape
        lm = self._memory.empty(n_centre, columns.shape[0], n_source, 2)
        lm[:] = self._fixed
        lm[:, :, self._rows] = moving
        return list(lm)


class Template:
    """Factors and shifts of the images (n_batch, n_image, 3)."""

    def __init__(self, layout: SourceLayout, columns: Columns) -> None:
        self._template = Table(columns, layout.image)

    def __call__(self, columns: Array) -> Array:
        return self._template(columns)


class BeamScale:
    """`arrays.Beam.scale`, float64 (n_batch,)."""

    def __init__(self, beam: AnyBeam, slot: int, columns: Columns) -> None:
        self._beam, self._value = beam, Table(columns, np.array(slot))

    def __call__(self, columns: Array) -> Array:
        return self._beam.scale(self._value(columns))


class PointingErrors:
    """Pointing error of each antenna and time, rad (n_batch, n_time or 1, n_antenna, 2)."""

    def __init__(self, slots: PointingSlots, columns: Columns) -> None:
        self._coefficient, self._powers = Table(columns, slots.table), slots.powers

    def __call__(self, columns: Array) -> Array:
        return np.einsum("tp,bpax->btax", self._powers, self._coefficient(columns))


class Assembly:
    """The sources of some partitions for a batch of parameter vectors.

    Brightness, spectra and shapes are the same arrays for all partitions, positions for those with one
    phase centre, pointing errors for those with the same antennas and times.

    Parameters
    ----------
    layout : SourceLayout
    instrument : InstrumentLayout
    resolved : Resolved
    origin : (float, float), rad
        Where offsets start.
    partitions : sequence of (phase centre, PointingSlots or None)
    """

    def __init__(
        self,
        layout: SourceLayout,
        instrument: InstrumentLayout,
        resolved: Resolved,
        origin: Centre,
        partitions: Sequence[tuple[Centre, PointingSlots | None]],
    ) -> None:
        self._columns = columns = Columns(resolved)
        self._stokes = settle(resolved, columns, partial(Brightness, layout))
        self._terms = settle(resolved, columns, partial(SpectralTerms, layout))
        self._shape = settle(resolved, columns, partial(Shapes, layout))
        self._template = settle(resolved, columns, partial(Template, layout)) if layout.image.size else None
        self._moves_template = layout.moves_image
        self._ref_freq, self._log_spectrum = layout.ref_freq, layout.log_spectrum
        self._polarised = _is_polarised(layout, resolved)
        self._kind = instrument.beam.kind if instrument.beam is not None else None
        if instrument.beam is not None:
            self._scale = settle(resolved, columns, partial(BeamScale, instrument.beam, instrument.scale))
        centres = list(dict.fromkeys(centre for centre, _ in partitions))
        self._positions = Positions(layout, resolved, columns, TangentPlanes(centres, origin))
        pointings = list(dict.fromkeys(slots for _, slots in partitions))
        self._pointings = [
            settle(resolved, columns, partial(PointingErrors, slots)) if slots is not None else None
            for slots in pointings
        ]
        keys = [(centres.index(centre), pointings.index(slots)) for centre, slots in partitions]
        # Which centre and which pointing a partition has, and whether it is the last one that has them.
        self._partitions = [(key, key not in keys[i + 1 :]) for i, key in enumerate(keys)]

    def positions(self, theta: Array) -> list[Array]:
        """Direction cosines (n_batch, n_source, 2) about each distinct phase centre."""
        return self._positions(self._columns.of(theta))

    def sources(self, theta: Array) -> Iterator[Sources]:
        """The sources of each partition; one object where all is the same. Nobody may write into them."""
        columns = self._columns.of(theta)
        lm = self._positions(columns)
        stokes, terms, shape = self._stokes(columns), self._terms(columns), self._shape(columns)
        scale = self._scale(columns) if self._kind is not None else None
        template = self._template(columns) if self._template is not None else None
        shift = template[..., 1:] if template is not None and self._moves_template else None
        made: dict[tuple[int, int], Sources] = {}
        for key, is_last in self._partitions:
            found = made.pop(key, None)
            if found is None:
                found = Sources.unchecked(
                    lm[key[0]],
                    stokes,
                    self._ref_freq,
                    terms,
                    self._log_spectrum,
                    shape,
                    self._beam(columns, scale, key[1]),
                    polarised=self._polarised,
                    template_scale=template[..., 0] if template is not None else None,
                    template_shift=shift,
                )
            if not is_last:
                made[key] = found
            yield found

    def _beam(self, columns: Array, scale: Array | None, i_pointing: int) -> Beam | None:
        if self._kind is None or scale is None:
            return None
        errors = self._pointings[i_pointing]
        return Beam.unchecked(self._kind, scale, errors(columns) if errors is not None else None)


def _is_polarised(layout: SourceLayout, resolved: Resolved) -> bool:
    """Whether any of Q, U, V can be other than 0."""
    others = layout.stokes[..., 1:]
    given = resolved.is_free(others) | (resolved.base[others] != 0)
    return bool(given.any() or layout.linear.size or layout.circular.size)
