"""Jones matrices A = G D P of the antennas of a partition, with their derivative and its adjoint."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.antenna_terms.fitted_gains import FittedGains
from biro.models.bound.antenna_terms.ionosphere import DISPERSION
from biro.models.bound.antenna_terms.layout import TermSlots
from biro.models.bound.antenna_terms.rotation import rotation
from biro.models.bound.memory import ReusedMemory
from biro.models.bound.si_values import IndexedValues, SIValues
from biro.models.bound.slots import ResolvedSlots
from biro.models.components.beam import SPEED_OF_LIGHT
from rime_kernels.arrays import AntennaTerms

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]


class Jones:
    """A = G D P Z F or P^H G D P Z F, (n_batch, n_time_block, n_antenna, n_chan_block, 2, 2).

        G = diag(g_0, g_1),  D = [[1, d_0], [d_1, 1]]
        P = diag(e^-i phi, e^+i phi)  or, of linear feeds,  [[cos phi, sin phi], [-sin phi, cos phi]]

    (physics: section 6), and of the ionosphere (`antenna_terms.ionosphere`)

        F = P(-RM lambda^2),  Z = exp(i DISPERSION TEC / nu)

    P^H, by which rotation was taken out of the data, is without offsets, and P and F are 1 where the beam has
    them.

    Parameters
    ----------
    slots : TermSlots
    values : SIValues
    """

    def __init__(self, slots: TermSlots, values: SIValues) -> None:
        self._slots, self._memory = slots, ReusedMemory()
        self._known = slots.gain[None, ..., None]
        if np.array_equal(slots.gain[..., 0], slots.gain[..., 1]):
            self._known = self._known[..., :1, :]
        self._none_known = bool(np.all(self._known == 1.0))
        self._fitted = FittedGains(slots.factors, values) if slots.factors else None
        taken_out = self._rotated(slots.angle[None]) if slots.taken_out else None
        self._left = None if taken_out is None else taken_out.conj().swapaxes(-1, -2)
        self._offset = None if slots.offset is None or slots.in_beam else IndexedValues(values, slots.offset)
        self._leakage = None if slots.leakage is None else IndexedValues(values, slots.leakage)
        self._tec = None if slots.tec is None else IndexedValues(values, slots.tec)
        self._rm = None if slots.rm is None or slots.in_beam else IndexedValues(values, slots.rm)
        with np.errstate(divide="ignore", invalid="ignore"):  # without an ionosphere
            self._wave2, self._phase = (SPEED_OF_LIGHT / slots.freq) ** 2, 1j * DISPERSION / slots.freq
        n_block = 0 if slots.leakage is None else len(slots.leakage)
        self._into_block = (slots.leakage_block[None, :] == np.arange(n_block)[:, None]).astype(np.float64)
        is_fitted = any(each is not None for each in (self._offset, self._tec, self._rm))
        self._known_rotation = None if is_fitted else self._rotation_at(np.zeros((1, 0)))
        others = self._leakage is None and self._left is None and not is_fitted
        # Matrices that are gains and nothing else.
        self._is_gain = others and bool(np.all(self._known_rotation == np.eye(2)))

    @property
    def stays_diagonal(self) -> bool:
        """Whether the matrices are diagonal for every theta: no leakage, and no rotation of linear feeds."""
        if self._is_gain:
            return True
        return self._leakage is None and self._slots.basis == "circular"

    def __call__(self, values: Array) -> Complex:
        if self._is_gain:
            gain = self.gain(values)[..., 0]
            found = self._memory.complex(len(gain), *self._shape)
            found[..., 0, 0], found[..., 1, 1] = gain[..., 0], gain[..., -1]
            found[..., 0, 1], found[..., 1, 0] = 0.0, 0.0
            return found
        return self._whole(self._with_leakage(self._rotation(values), values))

    def push_forward(self, values: Array, changes: Array) -> Complex:
        """d A = G (d ln G D P + dD P + D dP/dphi dphi) and so on."""
        found = np.zeros((1, 1, 1, 1, 2, 2), np.complex128)
        if self._fitted is not None:
            by_log = self._fitted.push_forward(values, changes)[..., None]
            found = found + by_log * self._with_leakage(self._rotation(values), values)
        if self._offset is not None:
            turned = self._turning(values) * self._offset(changes)[:, None, :, None, None, None]
            found = found + self._with_leakage(turned, values)
        if self._rm is not None:
            by = -self._rm(changes)[:, None, :, None, None, None] * self._wave2[:, None, None]
            found = found + self._with_leakage(self._turning(values) * by, values)
        if self._tec is not None:
            by_tec = self._tec(changes)[:, None, :, None, None, None] * self._phase[:, None, None]
            found = found + self._with_leakage(self._rotation(values) * by_tec, values)
        if self._leakage is not None:
            swapped = self._rotation(values)[..., ::-1, :]
            found = found + self.gain(values) * self._terms(self._leakage(changes))[..., None] * swapped
        shape = (len(changes), *self._shape)
        return self._whole(np.broadcast_to(found, shape))

    def pull_back(self, values: Array, slopes: Complex, into: Array) -> None:
        """Derivatives with respect to all parameters; `slopes` are d/dRe A + i d/dIm A.

        Of a real x it is sum Re(conj(slopes) dA/dx).
        """
        if self._left is not None:
            slopes = self._left.conj().swapaxes(-1, -2) @ slopes
        if self._is_gain:
            if self._fitted is not None:
                gain, first, second = self.gain(values)[..., 0], slopes[..., 0, 0], slopes[..., 1, 1]
                one_for_both = gain.shape[-1] == 1
                both = (first + second)[..., None] if one_for_both else np.stack([first, second], axis=-1)
                self._fitted.pull_back(values, np.conj(both, out=both) * gain, into)
            return
        conjugated = slopes.conj()
        if self._fitted is not None:
            whole = self._with_leakage(self._rotation(values), values)
            self._fitted.pull_back(values, np.sum(conjugated * whole, axis=-1), into)
        if self._offset is not None or self._rm is not None:
            turned = self._with_leakage(self._turning(values), values)
            by_angle = np.sum((conjugated * turned).real, axis=(1, 4, 5))  # (batch, antenna, chan)
            if self._offset is not None:
                self._offset.pull_back(values, by_angle.sum(axis=2), into)
            if self._rm is not None:
                self._rm.pull_back(values, -by_angle @ self._wave2, into)
        if self._tec is not None:
            whole = self._with_leakage(self._rotation(values), values)
            by_phase = np.sum(conjugated * whole, axis=(1, 4, 5))
            self._tec.pull_back(values, (by_phase @ self._phase).real, into)
        if self._leakage is not None:
            swapped = self._rotation(values)[..., ::-1, :]
            by_term = np.sum(
                conjugated * self.gain(values) * swapped, axis=(1, 5)
            )  # (batch, antenna, chan, feed)
            by_block = np.einsum("bafi,kf->bkai", by_term, self._into_block)
            # dA is proportional to d(real) + i d(imag).
            by_parts = np.stack([by_block.real, -by_block.imag], axis=-1)
            self._leakage.pull_back(values, by_parts, into)

    def gain(self, values: Array) -> Complex:
        """G, (n_batch or 1, n_time_block, n_antenna, n_chan_block, 2, 1); one feed may stand for both."""
        if self._fitted is None:
            return self._known
        fitted = self._fitted(values)[..., None]
        return fitted if self._none_known else np.asarray(self._known * fitted)

    @property
    def _shape(self) -> tuple[int, ...]:
        slots = self._slots
        n_time = max(len(slots.angle), len(slots.gain))
        return n_time, slots.angle.shape[1], len(slots.leakage_block), 2, 2

    def _angle(self, values: Array) -> Array:
        angle = self._slots.angle[None]
        return angle if self._offset is None else angle + self._offset(values)[:, None]

    def _rotation(self, values: Array) -> Complex:
        """P Z F, (n_batch or 1, n_time_block, n_antenna, 1 or n_chan_block, 2, 2)."""
        return self._rotation_at(values) if self._known_rotation is None else self._known_rotation

    def _rotation_at(self, values: Array) -> Complex:
        """P Z F, computed anew."""
        known = self._slots.known
        in_beam = self._slots.in_beam
        turn = np.zeros((1, 1, 1)) if in_beam else self._angle(values)
        if known is None:
            return self._rotated(turn)
        tec, rm = (
            one[None, ..., None] if own is None else one[None, ..., None] + own(values)[:, None, :, None]
            for one, own in zip(known, (self._tec, self._rm), strict=True)
        )
        turned = turn[..., None] - (0.0 if in_beam else rm * self._wave2)
        matrix = rotation(turned, self._slots.basis)
        return np.asarray(matrix * np.exp(tec * self._phase)[..., None, None])

    def _rotated(self, angle: Array) -> Complex:
        """The matrices of rotations by angles (..., n_antenna), rad."""
        return rotation(angle, self._slots.basis)[..., None, :, :]

    def _turning(self, values: Array) -> Complex:
        """The derivative of P with respect to phi."""
        turned = self._rotation(values)
        if self._slots.basis == "circular":
            return np.asarray(turned * np.array([-1j, 1j]))
        return np.asarray(turned @ np.array([[0.0, 1.0], [-1.0, 0.0]]))  # P(phi + 90 deg)

    def _with_leakage(self, right: Complex, values: Array) -> Complex:
        """G D times a matrix."""
        if self._leakage is not None:
            right = right + self._terms(self._leakage(values))[..., None] * right[..., ::-1, :]
        found = self.gain(values) * right
        return np.asarray(np.broadcast_to(found, (len(found), *self._shape)))

    def _whole(self, matrix: Complex) -> Complex:
        """A matrix with P^H on its left, where rotation was taken out."""
        return np.ascontiguousarray(matrix if self._left is None else self._left @ matrix)

    def _terms(self, parts: Array) -> Complex:
        """d_0, d_1 of each antenna and block of channels, (n_batch, 1, n_antenna, n_chan_block, 2)."""
        terms = (parts[..., 0] + 1j * parts[..., 1])[:, self._slots.leakage_block]
        return np.asarray(terms.transpose(0, 2, 1, 3)[:, None])


def gains_of(slots: TermSlots, resolved: ResolvedSlots, theta: Array, chan: int) -> Complex:
    """G of a partition at one channel, complex128 (n_batch, n_time, n_antenna, 2), of theta."""
    values = SIValues(resolved)
    jones = Jones(slots, values)
    gain = jones.gain(values.of(theta))[..., 0]
    block = min(int(slots.chan_block[chan]), gain.shape[3] - 1)
    found = gain[:, :, :, block]
    n_time = max(len(slots.angle), gain.shape[1])
    found = np.broadcast_to(found, (len(theta), n_time, found.shape[2], 2))
    return np.asarray(found[:, slots.time_block])


class PartitionTerms:
    """The antenna terms of a partition; worked out once where they depend on no parameter.

    Parameters
    ----------
    slots : TermSlots
    resolved : ResolvedSlots
    values : SIValues
    """

    def __init__(self, slots: TermSlots, resolved: ResolvedSlots, values: SIValues) -> None:
        self._blocks = slots.time_block, slots.chan_block
        self._jones: Jones | None = None
        self._fixed: AntennaTerms | None = None
        trial = SIValues(resolved)
        jones = Jones(slots, trial)
        if trial.follow_theta:
            self._jones = Jones(slots, values)
        else:
            constant = jones(trial.of(np.zeros((1, len(resolved.parameters))))).copy()
            constant.flags.writeable = False  # so that a GPU keeps them from call to call
            self._fixed = AntennaTerms.unchecked(constant, *self._blocks, jones.stays_diagonal)

    @property
    def change_nothing(self) -> bool:
        """Whether all matrices are 1 for every theta."""
        return self._fixed is not None and bool(np.all(self._fixed.jones == np.eye(2)))

    def __call__(self, values: Array) -> AntennaTerms:
        """The matrices, those of a batch of one where they are the same for every theta."""
        if self._jones is None:
            assert self._fixed is not None
            return self._fixed
        return AntennaTerms.unchecked(self._jones(values), *self._blocks, self._jones.stays_diagonal)

    def push_forward(self, values: Array, changes: Array) -> Complex | None:
        """Changes of the matrices; None where no parameter changes them."""
        return None if self._jones is None else self._jones.push_forward(values, changes)

    def pull_back(self, values: Array, slopes: Complex, into: Array) -> None:
        """Derivatives with respect to the values, from those to the matrices."""
        if self._jones is not None:
            self._jones.pull_back(values, slopes, into)
