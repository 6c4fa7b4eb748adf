"""theta to the arrays of the kernels, and their derivatives back: what can be decided beforehand is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biro.models.beam import AnyBeam
from biro.models.columns import Columns, Constant, Function, Table, settle
from biro.models.direction import Centre, Directions, TangentPlanes
from biro.models.index import as_slice
from biro.models.instrument import InstrumentLayout, PointingSlots
from biro.models.layout import SourceLayout
from biro.models.memory import Reused
from biro.models.slots import Resolved
from rime_kernels.arrays import Beam, Sources

Array = NDArray[np.float64]


class SourceGradient(Protocol):
    """Derivatives of a number with respect to the arrays of `Sources`, shaped as these (float64).

    `rime_kernels` makes them of chi-squared.
    """

    @property
    def lm(self) -> Array: ...
    @property
    def stokes(self) -> Array: ...
    @property
    def spectral_terms(self) -> Array: ...
    @property
    def shape(self) -> Array: ...
    @property
    def beam_scale(self) -> Array | None: ...
    @property
    def pointing(self) -> Array | None: ...
    @property
    def template_scale(self) -> Array | None: ...
    @property
    def template_shift(self) -> Array | None: ...


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

    def pull_back(self, columns: Array, slopes: Array, into: Array) -> None:
        """With p, chi and v: dQ = cos(2 chi) (p dI + I dp) - 2 p I sin(2 chi) dchi, and so on."""
        slopes = slopes.copy()
        intensity = self._stokes(columns)[..., 0]
        if self._linear is not None:
            rows, fraction, twice = self._linear, self._fraction(columns), 2 * self._angle(columns)
            by_q, by_u = slopes[:, :, rows, 1], slopes[:, :, rows, 2]
            along = np.cos(twice) * by_q + np.sin(twice) * by_u
            across = np.cos(twice) * by_u - np.sin(twice) * by_q
            self._over_times(self._fraction, columns, intensity[:, :, rows] * along, into)
            self._over_times(self._angle, columns, 2 * fraction * intensity[:, :, rows] * across, into)
            slopes[:, :, rows, 0] += fraction * along
        if self._circular is not None:
            rows = self._circular
            by_v = slopes[:, :, rows, 3]
            self._over_times(self._v_fraction, columns, intensity[:, :, rows] * by_v, into)
            slopes[:, :, rows, 0] += self._v_fraction(columns) * by_v
        # Q, U and V that follow from I have no columns of their own.
        self._stokes.pull_back(columns, slopes, into)

    @staticmethod
    def _over_times(table: Table, columns: Array, slopes: Array, into: Array) -> None:
        table.pull_back(columns, slopes.sum(axis=1, keepdims=True), into)


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

    def pull_back(self, columns: Array, slopes: Array, into: Array) -> None:
        """Derivatives with respect to terms as the model has them."""
        self._terms.pull_back(columns, slopes if self._scale is None else slopes * self._scale, into)


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

    def pull_back(self, columns: Array, slopes: Array, into: Array) -> None:
        """With a ratio r of the axes, d(emin) = r d(emaj) + emaj dr."""
        if self._by_ratio is not None:
            slopes, rows = slopes.copy(), self._by_ratio
            given, by_emin = self._shape(columns), slopes[:, rows, 1].copy()
            slopes[:, rows, 0] += given[:, rows, 1] * by_emin
            slopes[:, rows, 1] = given[:, rows, 0] * by_emin
        self._shape.pull_back(columns, slopes, into)


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

    def zeros(self, n_batch: int) -> Array:
        """As what `pull_back` takes: (n_centre, n_batch, n_source, 2)."""
        n_centre, _, n_source, _ = self._fixed.shape
        return np.zeros((n_centre, n_batch, n_source, 2))

    def pull_back(self, columns: Array, slopes: Array, into: Array) -> None:
        """Derivatives with respect to offsets, or ra and dec, from those to (l, m) about each centre.

        `slopes` is (n_centre, n_batch, n_source, 2).
        """
        if self._any_free:
            position = self._position(columns)
            found = self._directions.pull_back(position, slopes[:, :, self._rows])
            self._position.pull_back(columns, found, into)


class Template:
    """Factors and shifts of the images (n_batch, n_image, 3)."""

    def __init__(self, layout: SourceLayout, columns: Columns) -> None:
        self._template = Table(columns, layout.image)

    def __call__(self, columns: Array) -> Array:
        return self._template(columns)

    def pull_back(self, columns: Array, slopes: Array, into: Array) -> None:
        """As they are."""
        self._template.pull_back(columns, slopes, into)


class BeamScale:
    """`arrays.Beam.scale`, float64 (n_batch,)."""

    def __init__(self, beam: AnyBeam, slot: int, columns: Columns) -> None:
        self._beam, self._value = beam, Table(columns, np.array(slot))

    def __call__(self, columns: Array) -> Array:
        return self._beam.scale(self._value(columns))

    def pull_back(self, columns: Array, slopes: Array, into: Array) -> None:
        """Derivatives with respect to the number that the beam has."""
        self._value.pull_back(columns, slopes * self._beam.scale_slope(self._value(columns)), into)


class PointingErrors:
    """Pointing error of each antenna and time, rad (n_batch, n_time or 1, n_antenna, 2)."""

    def __init__(self, slots: PointingSlots, columns: Columns) -> None:
        self._coefficient, self._powers = Table(columns, slots.table), slots.powers

    def __call__(self, columns: Array) -> Array:
        return np.einsum("tp,bpax->btax", self._powers, self._coefficient(columns))

    def pull_back(self, columns: Array, slopes: Array, into: Array) -> None:
        """Derivatives with respect to the coefficients of the polynomials."""
        self._coefficient.pull_back(columns, np.einsum("tp,btax->bpax", self._powers, slopes), into)


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

    def pull_back(self, theta: Array, gradients: Iterable[SourceGradient], weight: Array) -> Array:
        """Derivatives with respect to theta, (n_batch, n_param): the adjoint of `sources`.

        Parameters
        ----------
        theta : float64 (n_batch, n_param)
        gradients : of each partition
        weight : float64 (n_batch, n_partition)
            What the derivatives of each are multiplied by before they are summed.
        """
        columns = self._columns.of(theta)
        into = np.zeros((len(theta), self._columns.n_free))
        lm, sums = self._positions.zeros(len(theta)), dict[Function, Array]()
        for (key, _), gradient, factor in zip(self._partitions, gradients, weight.T, strict=True):
            lm[key[0]] += factor[:, None, None] * gradient.lm
            for step, slopes in self._steps(key[1], gradient):
                product = slopes * factor.reshape(-1, *(1,) * (slopes.ndim - 1))
                sums[step] = sums[step] + product if step in sums else product
        self._positions.pull_back(columns, lm, into)
        for step, slopes in sums.items():
            step.pull_back(columns, slopes, into)
        return self._columns.pull_back(into)

    def _steps(self, i_pointing: int, gradient: SourceGradient) -> Iterator[tuple[Function, Array]]:
        """What made the arrays of a partition, positions aside, with the derivatives with respect to each."""
        yield self._stokes, gradient.stokes
        yield self._terms, gradient.spectral_terms
        yield self._shape, gradient.shape
        if self._template is not None and gradient.template_scale is not None:
            scale, shift = gradient.template_scale, gradient.template_shift
            moved = np.zeros((*scale.shape, 2)) if shift is None else shift
            yield self._template, np.concatenate([scale[..., None], moved], axis=-1)
        errors = self._pointings[i_pointing]
        if self._kind is not None and gradient.beam_scale is not None:
            yield self._scale, gradient.beam_scale
            if errors is not None and gradient.pointing is not None:
                yield errors, gradient.pointing

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
