"""Gains of antennas as functions of the parameters, with their derivative and its adjoint."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.antenna_terms.correlated import GaussMarkovSteps
from biro.models.bound.antenna_terms.gain_layout import GainQuantity
from biro.models.bound.memory import ReusedMemory
from biro.models.bound.si_values import IndexedValues, Scatter, SIValues
from biro.models.bound.slots import ZERO
from rime_kernels.cpu.vector_math import cos_sin

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]


class FittedGains:
    """g = product of amplitudes times exp(i sum of phases).

    complex128 (n_batch, n_time_block, n_antenna, n_chan_block, 2); the last axis is 1 where feeds share all.

    Parameters
    ----------
    factors : sequence of GainQuantity
    values : SIValues
    """

    def __init__(self, factors: Sequence[GainQuantity], values: SIValues) -> None:
        self._factors = [_FactorValues(factor, values) for factor in factors]
        self._memory = ReusedMemory()
        self._last: tuple[weakref.ref[Array], Complex] | None = None

    def __call__(self, values: Array) -> Complex:
        """The gains; derivatives ask for those of the same values once more, which are kept for them."""
        if self._last is not None and self._last[0]() is values:
            return self._last[1]
        self._last = None
        found = self._worked_out(values)
        found.flags.writeable = False
        self._last = weakref.ref(values), found
        return found

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_last": None}  # a weak reference cannot be sent to another process

    def _worked_out(self, values: Array) -> Complex:
        amplitude, phase = np.ones((1, 1, 1, 1, 1)), np.zeros((1, 1, 1, 1, 1))
        for one in self._factors:
            if one.is_amplitude:
                amplitude = amplitude * one(values)
            else:
                phase = phase + one(values)
        found = self._memory.complex(*np.broadcast_shapes(amplitude.shape, phase.shape))
        cos, sin = cos_sin(phase)
        np.multiply(amplitude, cos, out=found.real)
        np.multiply(amplitude, sin, out=found.imag)
        return found

    def push_forward(self, values: Array, changes: Array) -> Complex:
        """Changes of ln g."""
        total = np.zeros((1, 1, 1, 1, 1), np.complex128)
        for one in self._factors:
            change = one.push_forward(values, changes)
            total = total + (change / one(values) if one.is_amplitude else 1j * change)
        return np.asarray(total)

    def pull_back(self, values: Array, by_log: Complex, into: Array) -> None:
        """Add derivatives with respect to the values, from those to ln g.

        Parameters
        ----------
        by_log : complex128 (n_batch, n_time_block, n_antenna, n_chan_block, 2)
            Of d ln g of each feed the derivative is Re(by_log d ln g). The last axis may be 1 where feeds
            share all.
        """
        for one in self._factors:
            slopes = by_log.real / one(values) if one.is_amplitude else -by_log.imag
            one.pull_back(values, slopes, into)


class _FactorValues:
    """Values of one quantity, (n_batch, n_time_block, n_antenna, n_chan_block, 2), or 1 for both feeds."""

    def __init__(self, factor: GainQuantity, values: SIValues) -> None:
        table, self._chain = factor.states.table, factor.states.chain
        self._n_feed = 1 if np.array_equal(table[..., 0], table[..., 1]) else 2
        place = np.ix_(factor.segment, factor.antenna, factor.block, np.arange(self._n_feed))
        self.is_amplitude = factor.is_amplitude
        self._by = factor.by_time[:, None, None, None] * factor.by_chan[:, None]
        if self._chain is None:
            self._gathered = IndexedValues(values, table[place])
            # The slot of no parameter holds 0; no amplitude is 1.
            self._neutral = (table[place] == ZERO) * 1.0 if factor.is_amplitude else None
            return
        self._gathered, self._shape = IndexedValues(values, table), table.shape
        slots = self._chain.time_slot, self._chain.sd_slot
        self._time, self._sd = (
            IndexedValues(values, np.array([slot])) if slot != ZERO else None for slot in slots
        )
        self._place = np.arange(table.size).reshape(table.shape)[place]
        self._back = Scatter(self._place.reshape(-1), table.size)
        self._middle = np.broadcast_to(self._chain.middle[:, None], table.shape)[place]

    def __call__(self, values: Array) -> Array:
        if self._chain is None:
            found = self._gathered(values) * self._by
            return found if self._neutral is None else found + self._neutral
        return self._of_states(self._steps(values).states(self._gathered(values)))

    def push_forward(self, values: Array, changes: Array) -> Array:
        if self._chain is None:
            return np.asarray(self._gathered(changes) * self._by)
        steps = self._steps(values)
        added = steps.step * self._gathered(changes)
        for gathered, by in self._of_prior(values, steps):
            added = added + by * gathered(changes)[:, :, None, None, None]
        change = self._taken(steps.sums(added)) * self._by
        return np.asarray(change * self(values)) if self._chain.is_log else change

    def pull_back(self, values: Array, slopes: Array, into: Array) -> None:
        if slopes.shape[-1] > self._n_feed:
            slopes = slopes.sum(axis=-1, keepdims=True)
        slopes = slopes * self._by
        if self._chain is not None:
            if self._chain.is_log:
                slopes = slopes * self(values)
            shape = len(slopes), *self._shape
            states = np.zeros((len(slopes), math.prod(shape[1:])))
            self._back.add(states, slopes.reshape(len(slopes), -1))
            steps = self._steps(values)
            by_added = steps.sums_back(states.reshape(shape))
            for gathered, by in self._of_prior(values, steps):
                gathered.pull_back(values, np.sum(by_added * by, axis=(1, 2, 3, 4))[:, None], into)
            slopes = steps.step * by_added
        self._gathered.pull_back(values, slopes, into)

    def _steps(self, values: Array) -> GaussMarkovSteps:
        assert self._chain is not None
        if not self._chain.is_fitted:
            return self._chain.known
        time, sd = (None if one is None else one(values)[:, 0] for one in (self._time, self._sd))
        return self._chain.at(time, sd)

    def _of_prior(self, values: Array, steps: GaussMarkovSteps) -> Iterator[tuple[IndexedValues, Array]]:
        """The correlation time and the sd, where fitted, and derivatives of what steps add by each."""
        assert self._chain is not None
        for gathered, slopes in ((self._time, self._chain.by_time), (self._sd, self._chain.by_sd)):
            if gathered is not None:
                yield gathered, slopes(gathered(values)[:, 0], steps, self._gathered(values))

    def _of_states(self, states: Array) -> Array:
        assert self._chain is not None
        found = self._taken(states) + self._middle
        return np.exp(found) if self._chain.is_log else found * self._by

    def _taken(self, states: Array) -> Array:
        return (
            states.reshape(len(states), -1)
            .take(self._place.reshape(-1), axis=1)
            .reshape(-1, *self._place.shape)
        )
