"""The arrays of the kernels as functions of the values, each with its derivative and the adjoint of that."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.instrument_layout import PointingSlots
from biro.models.bound.light_curves import Interpolated, KnotTable
from biro.models.bound.si_values import ArrayOfValues, IndexedValues, SIValues, SumOfValues
from biro.models.bound.slots import ZERO
from biro.models.bound.source_layout import SourceLayout
from biro.models.components.beam import AnyBeam
from biro.models.components.fractions import Fraction
from biro.models.components.jones_beam import GridBeam
from biro.models.components.spectrum import STOKES
from rime_kernels.arrays.slices import as_slice

Array = NDArray[np.float64]
Index = NDArray[np.int64]


def brightness(layout: SourceLayout, values: SIValues, knots: KnotTable | None = None) -> ArrayOfValues:
    """Stokes I, Q, U, V, Jy (n_batch, n_time, n_source, 4)."""
    given = IndexedValues(values, layout.stokes) if knots is None else Interpolated(values, knots)
    return Brightness(layout, values, given) if layout.fractions or layout.weights else given


class Brightness:
    """Stokes I, Q, U, V where some follow from I, or where parts of a source share its flux.

    Parameters
    ----------
    layout : SourceLayout
    values : SIValues
    stokes : IndexedValues or Interpolated
        What the model has of each source.
    """

    def __init__(self, layout: SourceLayout, values: SIValues, stokes: IndexedValues | Interpolated) -> None:
        self._stokes = stokes
        self._fractions = [StokesByFraction(fraction, table, values) for fraction, table in layout.fractions]
        self._shares = FluxShares(layout, values) if layout.weights else None

    def __call__(self, values: Array) -> Array:
        stokes = self._whole(values)
        return stokes if self._shares is None else self._shares.of(values, stokes)

    def _whole(self, values: Array) -> Array:
        """Before a source's flux is shared among its parts."""
        stokes = self._stokes(values)
        for fraction in self._fractions:
            fraction.fill(values, stokes)
        return stokes

    def push_forward(self, values: Array, changes: Array) -> Array:
        """Changes of I, Q, U, V with those of the values."""
        found = self._stokes.push_forward(values, changes)
        if self._fractions:
            intensity = self._stokes(values)[..., 0]
            for fraction in self._fractions:
                fraction.push_forward(values, changes, intensity, found)
        if self._shares is not None:
            return self._shares.push_forward(values, changes, self._whole(values), found)
        return found

    def pull_back(self, values: Array, slopes: Array, into: Array) -> None:
        """Derivatives with respect to the values, from those with respect to I, Q, U, V."""
        slopes = slopes.copy()
        if self._shares is not None:
            self._shares.pull_back(values, self._whole(values), slopes, into)
        if self._fractions:
            intensity = self._stokes(values)[..., 0]
            for fraction in self._fractions:
                fraction.pull_back(values, intensity, slopes, into)
        # Q, U and V that follow from I have no values of their own.
        self._stokes.pull_back(values, slopes, into)


class StokesByFraction:
    """Stokes parameters of some sources that follow from I by a `Fraction`.

    Parameters
    ----------
    fraction : Fraction
    table : int (n, 1 + n_key)
        Sources, and the slots of their quantities.
    values : SIValues
    """

    def __init__(self, fraction: Fraction, table: Index, values: SIValues) -> None:
        rows, *slots = table.T
        self._fraction, self._rows = fraction, as_slice(rows)
        # An axis of length one for the times.
        self._quantities = [IndexedValues(values, slot[None]) for slot in slots]
        self._stokes = [STOKES.index(name) for name in fraction.stokes]

    def fill(self, values: Array, stokes: Array) -> None:
        """Put the Stokes parameters that follow beside I."""
        quantities = [quantity(values) for quantity in self._quantities]
        found = self._fraction.of(stokes[:, :, self._rows, 0], *quantities)
        for k, column in zip(self._stokes, found, strict=True):
            stokes[:, :, self._rows, k] = column

    def push_forward(self, values: Array, changes: Array, intensity: Array, found: Array) -> None:
        """Put their changes beside that of I."""
        moves = [found[:, :, self._rows, 0], *(quantity(changes) for quantity in self._quantities)]
        for k, slopes in zip(self._stokes, self._slopes(values, intensity), strict=True):
            found[:, :, self._rows, k] = sum(a * b for a, b in zip(slopes, moves, strict=True))

    def pull_back(self, values: Array, intensity: Array, slopes: Array, into: Array) -> None:
        """Add what comes by way of them to the derivatives with respect to I, and to the quantities."""
        by_x: list[Array | float] = [0.0] * len(self._quantities)
        for k, (by_i, *by_quantity) in zip(self._stokes, self._slopes(values, intensity), strict=True):
            slope = slopes[:, :, self._rows, k]
            by_x = [total + one * slope for total, one in zip(by_x, by_quantity, strict=True)]
            slopes[:, :, self._rows, 0] += by_i * slope
        for quantity, total in zip(self._quantities, by_x, strict=True):
            quantity.pull_back(values, np.sum(total, axis=1, keepdims=True), into)

    def _slopes(self, values: Array, intensity: Array) -> tuple[tuple[Array | float, ...], ...]:
        quantities = [quantity(values) for quantity in self._quantities]
        return self._fraction.slopes(intensity[:, :, self._rows], *quantities)


class FluxShares:
    """Parts of sources that have a share constant + factor * value of the flux."""

    def __init__(self, layout: SourceLayout, values: SIValues) -> None:
        self._rows = np.array([row for row, _ in layout.weights])
        self._constant = np.array([weight.constant for _, weight in layout.weights])
        self._factor = np.array([weight.factor for _, weight in layout.weights])
        self._value = IndexedValues(values, np.array([weight.slot for _, weight in layout.weights]))

    def _share(self, values: Array) -> Array:
        """With axes for time and Stokes parameters."""
        return np.asarray((self._constant + self._factor * self._value(values))[:, None, :, None])

    def of(self, values: Array, stokes: Array) -> Array:
        """The brightness of the parts; changes `stokes`."""
        stokes[:, :, self._rows] *= self._share(values)
        return stokes

    def push_forward(self, values: Array, changes: Array, whole: Array, found: Array) -> Array:
        """d(share * S) = share dS + S dshare; changes `found`, which is dS."""
        moves = (self._factor * self._value(changes))[:, None, :, None]
        found[:, :, self._rows] = (
            found[:, :, self._rows] * self._share(values) + whole[:, :, self._rows] * moves
        )
        return found

    def pull_back(self, values: Array, whole: Array, slopes: Array, into: Array) -> None:
        """The adjoint; `slopes` become those of the whole brightness."""
        of_parts = slopes[:, :, self._rows]
        by_share = (of_parts * whole[:, :, self._rows]).sum(axis=(1, 3))
        self._value.pull_back(values, by_share * self._factor, into)
        slopes[:, :, self._rows] = of_parts * self._share(values)


def spectral_terms(
    layout: SourceLayout, values: SIValues, doppler: tuple[float, ...] | None = None
) -> ArrayOfValues:
    """Terms in the kernels' form (n_batch, n_source, 4, n_term).

    Parameters
    ----------
    layout : SourceLayout
    values : SIValues
    doppler : tuple of float, optional
        Of each source, what the centre and the width of its line, the first two terms, are multiplied by.
    """
    scale, offset = layout.term_scale, layout.term_offset
    if doppler is not None:
        by = np.ones(scale.shape)
        by[..., :2] = np.array(doppler)[:, None, None]
        scale, offset = scale * by, offset * by
    terms = IndexedValues(values, layout.terms, scale, offset)
    if not (layout.term_plus != ZERO).any():
        return terms
    return SumOfValues(terms, IndexedValues(values, layout.term_plus))


def shapes(layout: SourceLayout, values: SIValues) -> ArrayOfValues:
    """emaj, emin, pa, rad (n_batch, n_gaussian + n_profile, 3)."""
    given = IndexedValues(values, layout.shape)
    by_ratio, blurred = np.flatnonzero(layout.by_ratio), np.flatnonzero(layout.blur != ZERO)
    if not by_ratio.size and not blurred.size:
        return given
    blur = IndexedValues(values, layout.blur[blurred, None])
    return Shapes(given, as_slice(by_ratio) if by_ratio.size else None, blurred, blur)


class Shapes:
    """Shapes of which some second axes are ratios, and some are convolved with a circle.

    Convolved with a circle of width w, both axes e of a Gaussian become hypot(e, w).
    """

    def __init__(
        self,
        shape: IndexedValues,
        by_ratio: slice | Index | None,
        blurred: Index,
        blur: IndexedValues,
    ) -> None:
        self._shape, self._by_ratio, self._blurred, self._blur = shape, by_ratio, blurred, blur

    def __call__(self, values: Array) -> Array:
        shape = self._unblurred(values)
        if self._blurred.size:
            shape[:, self._blurred, :2] = np.hypot(shape[:, self._blurred, :2], self._blur(values))
        return shape

    def _unblurred(self, values: Array) -> Array:
        shape = self._shape(values)
        if self._by_ratio is not None:
            shape[:, self._by_ratio, 1] *= shape[:, self._by_ratio, 0]
        return shape

    def _shares(self, values: Array) -> tuple[Array, Array]:
        """e / hypot(e, w) and w / hypot(e, w), (n_batch, n_blurred, 2); 0 where both are 0."""
        axes, blur = self._unblurred(values)[:, self._blurred, :2], self._blur(values)
        whole = np.hypot(axes, blur)
        whole[whole == 0.0] = np.inf
        return axes / whole, blur / whole

    def push_forward(self, values: Array, changes: Array) -> Array:
        """With a ratio r of the axes, d(emin) = r d(emaj) + emaj dr; then d hypot(e, w)."""
        found = self._shape(changes)
        if self._by_ratio is not None:
            rows, given = self._by_ratio, self._shape(values)
            found[:, rows, 1] *= given[:, rows, 0]
            found[:, rows, 1] += given[:, rows, 1] * found[:, rows, 0]
        if self._blurred.size:
            rows, (of_axes, of_blur) = self._blurred, self._shares(values)
            found[:, rows, :2] = of_axes * found[:, rows, :2] + of_blur * self._blur(changes)
        return found

    def pull_back(self, values: Array, slopes: Array, into: Array) -> None:
        """The adjoint of that."""
        if self._blurred.size:
            slopes, (of_axes, of_blur) = slopes.copy(), self._shares(values)
            by_axes = slopes[:, self._blurred, :2]
            self._blur.pull_back(values, (by_axes * of_blur).sum(axis=-1, keepdims=True), into)
            slopes[:, self._blurred, :2] = by_axes * of_axes
        if self._by_ratio is not None:
            slopes, rows = slopes.copy(), self._by_ratio
            given, by_emin = self._shape(values), slopes[:, rows, 1].copy()
            slopes[:, rows, 0] += given[:, rows, 1] * by_emin
            slopes[:, rows, 1] = given[:, rows, 0] * by_emin
        self._shape.pull_back(values, slopes, into)


class BeamScale:
    """The scale of a beam, `arrays.Beam.scale` or `JonesBeam.scale`, float64 (n_batch,)."""

    def __init__(self, beam: AnyBeam | GridBeam, slot: int, values: SIValues) -> None:
        self._beam, self._value = beam, IndexedValues(values, np.array(slot))

    def __call__(self, values: Array) -> Array:
        return self._beam.scale(self._value(values))

    def push_forward(self, values: Array, changes: Array) -> Array:
        """By the derivative of the scale with respect to the number that the beam has."""
        return np.asarray(self._beam.scale_slope(self._value(values)) * self._value(changes))

    def pull_back(self, values: Array, slopes: Array, into: Array) -> None:
        """Derivatives with respect to the number that the beam has."""
        self._value.pull_back(values, slopes * self._beam.scale_slope(self._value(values)), into)


class PointingErrors:
    """Where each antenna points at each time, rad (n_batch, n_time or 1, n_antenna, 2).

    It is the centre of the beam, direction cosines about the phase centre, and the pointing error from there.
    """

    def __init__(self, slots: PointingSlots, values: SIValues) -> None:
        self._coefficient, self._powers = IndexedValues(values, slots.table), slots.powers
        self._centre = slots.centre

    def __call__(self, values: Array) -> Array:
        return self._errors(values) if self._centre is None else self._errors(values) + self._centre

    def _errors(self, values: Array) -> Array:
        return np.asarray(np.einsum("tp,bpax->btax", self._powers, self._coefficient(values)))

    def push_forward(self, values: Array, changes: Array) -> Array:
        """Changes of the pointing errors, which are linear in the coefficients."""
        return self._errors(changes)

    def pull_back(self, values: Array, slopes: Array, into: Array) -> None:
        """Derivatives with respect to the coefficients of the polynomials."""
        self._coefficient.pull_back(values, np.einsum("tp,btax->bpax", self._powers, slopes), into)
