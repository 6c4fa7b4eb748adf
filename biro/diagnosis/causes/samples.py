"""Residuals of all partitions as one list of samples, in units of the noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biro.diagnosis.causes.fitted_sky import FittedSky
from biro.diagnosis.causes.tangents import IS_TURNED, free_mixture
from biro.diagnosis.flag_target import FlagTarget
from biro.diagnosis.residual_data import ResidualData
from biro.observation.correlations import MIXED_HANDS, STOKES_NAMES
from biro.observation.partition import Partition
from biro.observation.selection import to_utc
from rime_kernels.physics.brightness import stokes_to_corr
from rime_kernels.physics.phase import SPEED_OF_LIGHT

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
Index = NDArray[np.int64]
Mask = NDArray[np.bool_]
MOST = 1 << 17
"""Visibilities that are looked at: tests are linear in their number, and take seconds for so many."""
RUN = 16
"""Neighbouring times and channels that are left out, or kept, together."""
ARRAYS = ("residual", "model", "root", "part", "row", "chan", "corr", "worst")
OF_EACH = (
    *("antenna1", "antenna2", "baseline", "time", "freq", "chan_width", "relative_width", "interval"),
    *("uvw", "channel", "correlation", "is_parallel"),
)
"""What is computed of the place of each sample by itself, whatever its value is."""
OF_PLACES = (*OF_EACH, "turnable", "n_antenna", "times", "slot", "corr_names", "factors")
"""What is computed of the places of all samples, whatever their values are."""
LINEAR = ("XX", "XY", "YX", "YY")
N_WORST = 64
"""Largest residuals of those left out, which are kept all the same."""


@dataclass(frozen=True, eq=False)
class ResidualSamples:
    """Residuals with what is known of where each was measured; n of them, each with a weight above 0.

    Attributes
    ----------
    parts : tuple of Partition
    names : tuple of str
        Of antennas.
    residual, model : complex128 (n,)
        (D - V) sqrt(w) / s and V sqrt(w) / s; real and imaginary parts of noise have variance 1.
    root : float64 (n,), 1/Jy
        sqrt(w) / s.
    part, row, chan, corr : int64 (n,)
        The visibility is `parts[part].vis[row, chan, corr]`.
    worst : bool (n,)
        Which are looked at for their large residuals alone: they are no fair sample of large data.
    turns : tuple of complex128 (n_time, n_antenna, 2, 2) or None
        Of each part, P of feeds whose rotation was taken out of data of linear feeds.
    target : FlagTarget or None
        The data set in which samples can be flagged.
    utc_offset : float, s
        UTC minus the times of the data.
    sky : FittedSky or None
        The sky model, where it is known, whose changes may explain residuals.
    """

    parts: tuple[Partition, ...]
    names: tuple[str, ...]
    residual: Complex
    model: Complex
    root: Array
    part: Index
    row: Index
    chan: Index
    corr: Index
    worst: Mask
    turns: tuple[Complex | None, ...] = ()
    target: FlagTarget | None = field(default=None, kw_only=True)
    utc_offset: float = field(default=0.0, kw_only=True)
    sky: FittedSky | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls, data: Sequence[ResidualData], names: Sequence[str], most: int = MOST) -> ResidualSamples:
        """Samples of some partitions; where they are more than `most`, some runs of times and channels."""
        size = sum(each.partition.vis.size for each in data)
        columns: list[list[NDArray[np.generic]]] = [[] for _ in range(8)]
        for i, each in enumerate(data):
            part = each.partition
            scaled = each.scaled / each.factor
            root = np.sqrt(part.weight, dtype=np.float64) / each.factor
            with np.errstate(invalid="ignore", over="ignore"):
                model = each.model * root
                usable = (root > 0) & np.isfinite(root) & np.isfinite(scaled) & np.isfinite(model)
            worst = np.zeros(usable.shape, bool)
            if size > most:
                kept = _kept(part, size / most, usable.shape)
                worst = ~kept & _largest(np.abs(np.where(usable, scaled, 0.0)))
                usable &= kept | worst
            row, chan, corr = np.nonzero(usable)
            numbers = (np.full(len(row), i), row, chan, corr, worst[usable])
            of_part = (scaled[usable], model[usable], root[usable], *numbers)
            for column, values in zip(columns, of_part, strict=True):
                column.append(values)
        whole = [np.concatenate(column) for column in columns]
        kinds = (np.complex128, np.complex128, np.float64, *[np.int64] * 4, np.bool_)
        arrays: dict[str, NDArray[Any]] = {
            name: values.astype(kind, copy=False)
            for name, values, kind in zip(ARRAYS, whole, kinds, strict=True)
        }
        parts, turns = tuple(each.partition for each in data), tuple(each.turn for each in data)
        return cls(
            parts=parts, names=tuple(names), turns=turns, target=None, utc_offset=0.0, sky=None, **arrays
        )

    @property
    def n(self) -> int:
        """Number of visibilities."""
        return len(self.residual)

    @cached_property
    def factors(self) -> Array:
        """u^a v^b of `POWERS`, with u and v over the largest of them, float64 (6, n)."""
        u, v = self.uvw[:2] / max(float(np.abs(self.uvw[:2]).max(initial=0.0)), 1e-300)
        return np.array([np.ones(self.n), u, v, u * u, u * v, v * v])

    @cached_property
    def changes(self) -> Complex:
        """F V of `biro.diagnosis.causes.tangents`, complex128 (6, n)."""
        changes = np.zeros((len(self.factors), self.n), np.complex128)
        for of_k, factor, is_turned in zip(changes, self.factors, IS_TURNED, strict=True):
            of_k[:] = factor * (1j * self.model if is_turned else self.model)
        return changes

    @cached_property
    def mixture(self) -> Array:
        """Changes of the model that the fit was free to make, as mixtures of F V, float64 (n_tangent, 6).

        The fit of the sky makes up for part of what is wrong by its flux, place or size: `free_mixture`.
        """
        parts = parts_of(self.changes)
        return free_mixture(parts @ parts.T, parts @ parts_of(self.residual), self.square, self.n_real)

    @cached_property
    def tangent_part(self) -> Array:
        """Products of the residuals with `tangents`, float64 (n_tangent,): 0 where the fit was free."""
        return np.asarray(self.mixture @ (parts_of(self.changes) @ parts_of(self.residual)))

    def sums(self, template: Complex, group: Index, n_group: int) -> Complex:
        """Sums over groups of a conjugated template times residuals and tangents, (n_group, 1 + n_tangent).

        Parameters
        ----------
        template : complex128 (n,)
        group : int64 (n,)
        n_group : int
        """
        found = np.empty((n_group, 1 + len(self.mixture)), np.complex128)
        found.real = self.real_sums(template, group, n_group)
        found.imag = self.real_sums(1j * template, group, n_group)  # Re(conj(i t) x) = Im(conj(t) x)
        return found

    def real_sums(self, template: Complex, group: Index, n_group: int) -> Array:
        """Real parts of `sums`, float64 (n_group, 1 + n_tangent)."""
        conjugate = template.conj()
        own = np.bincount(group, (conjugate * self.residual).real, n_group)
        if not len(self.mixture):
            return np.asarray(own[:, None])
        product = conjugate * self.model
        real, minus_imag = product.real.copy(), -product.imag  # of i F V with F turned by i
        of_factors = [
            np.bincount(group, factor * (minus_imag if is_turned else real), n_group)
            for factor, is_turned in zip(self.factors, IS_TURNED, strict=True)
        ]
        return np.concatenate([own[None], self.mixture @ np.array(of_factors)]).T

    def changed(self, amounts: Array) -> ResidualSamples:
        """The samples with the model changed along its tangents by amounts, float64 (n_tangent,)."""
        change = self.polynomial(amounts @ self.mixture) * self.model
        return self.with_values(residual=self.residual - change, model=self.model + change)

    def polynomial(self, coefficients: Array) -> Complex:
        """sum_k c_k F_k, complex128 (n,)."""
        found = np.empty(self.n, np.complex128)
        found.real = coefficients[~IS_TURNED] @ self.factors[~IS_TURNED]
        found.imag = coefficients[IS_TURNED] @ self.factors[IS_TURNED]
        return found

    def with_values(self, **values: Any) -> ResidualSamples:
        """The samples with other residuals, or another model; what is known of their places is kept."""
        made = replace(self, **values)
        made.__dict__.update({name: self.__dict__[name] for name in OF_PLACES if name in self.__dict__})
        return made

    @property
    def n_real(self) -> int:
        """Number of real and imaginary parts."""
        return 2 * self.n

    @cached_property
    def square(self) -> float:
        """Sum |r|^2 over the samples."""
        return float(np.vdot(self.residual, self.residual).real)

    def only(self, which: Mask) -> ResidualSamples:
        """Some of the samples; what is known of the place of each is kept."""
        at = np.flatnonzero(which)  # indices are faster than a mask
        made = replace(self, **{name: getattr(self, name)[at] for name in ARRAYS})
        known = {name: self.__dict__[name] for name in OF_EACH if name in self.__dict__}
        made.__dict__.update({name: values.take(at, axis=-1) for name, values in known.items()})
        return made

    @property
    def fair(self) -> ResidualSamples:
        """The samples without those that were chosen for their large residuals."""
        return self.only(~self.worst) if self.worst.any() else self

    @cached_property
    def turnable(self) -> Index:
        """Samples that can be turned to the frame of the feeds: int64 (n_four, 4), XX, XY, YX, YY each."""
        key = np.stack([self.part, self.row, self.chan])
        first = np.flatnonzero((key[:, : -len(LINEAR) + 1] == key[:, len(LINEAR) - 1 :]).all(axis=0))
        have = np.array([turn is not None for turn in self.turns], bool)
        first = first[have[self.part[first]]] if len(have) else first[:0]
        found = first[:, None] + np.arange(len(LINEAR))
        for i in np.flatnonzero(have).tolist():
            here = self.part[first] == i
            found[here] = found[here][:, [self.parts[i].corr_type.index(name) for name in LINEAR]]
        return found

    def in_feeds(self) -> ResidualSamples:
        """Samples in the frame of the feeds, P V P^H, in which gains of linear feeds are diagonal."""
        four = self.turnable
        turned = self._turned(self.residual / self.root), self._turned(self.model / self.root)
        variance = (1.0 / self.root**2)[four].reshape(-1, 2, 2)
        first, second = self._turns
        variance = np.abs(first) ** 2 @ variance @ np.swapaxes(np.abs(second) ** 2, -1, -2)
        root = self.root.copy()
        root[four] = 1.0 / np.sqrt(variance.reshape(-1, 4))
        which = np.zeros(self.n, bool)
        which[four] = True
        return replace(self, residual=turned[0] * root, model=turned[1] * root, root=root).only(which)

    def with_feeds(self, feeds: ResidualSamples) -> ResidualSamples:
        """The samples with the model and the residuals of `in_feeds`, turned back."""
        which = np.zeros(self.n, bool)
        which[self.turnable] = True
        found = []
        for own, other in ((self.residual, feeds.residual), (self.model, feeds.model)):
            whole = np.zeros(self.n, np.complex128)
            whole[which] = other / feeds.root
            found.append(np.where(which, self._turned(whole, back=True) * self.root, own))
        return self.with_values(residual=found[0], model=found[1])

    @property
    def _turns(self) -> tuple[Complex, Complex]:
        """P of the two antennas of each of `turnable`, complex128 (n_four, 2, 2)."""
        at = self.turnable[:, 0]
        ends = (np.empty((len(at), 2, 2), np.complex128), np.empty((len(at), 2, 2), np.complex128))
        for i, (part, turn) in enumerate(zip(self.parts, self.turns, strict=True)):
            here = self.part[at] == i
            if turn is not None and here.any():
                row = self.row[at[here]]
                for end, antenna in zip(ends, (part.antenna1, part.antenna2), strict=True):
                    end[here] = turn[part.time_index[row], antenna[row]]
        return ends

    def _turned(self, values: Complex, *, back: bool = False) -> Complex:
        first, second = self._turns
        if back:
            first, second = (np.swapaxes(end, -1, -2).conj() for end in (first, second))
        four = values[self.turnable].reshape(-1, 2, 2)
        out = values.copy()
        out[self.turnable] = (first @ four @ np.swapaxes(second, -1, -2).conj()).reshape(-1, 4)
        return out

    def less(self, what: Complex) -> ResidualSamples:
        """The samples with a part of their residuals, complex (n,), taken out."""
        return self.with_values(residual=self.residual - what)

    def scaled(self, by: Array) -> ResidualSamples:
        """The samples with the noise of each that many times larger, float64 (n,)."""
        return self.with_values(residual=self.residual / by, model=self.model / by, root=self.root / by)

    def _of_rows(self, name: str) -> NDArray[np.generic]:
        out = np.empty(self.n, getattr(self.parts[0], name).dtype if self.parts else float)
        for i, part in enumerate(self.parts):
            here = self.part == i
            out[here] = getattr(part, name)[self.row[here]]
        return out

    @cached_property
    def antenna1(self) -> Index:
        """First antenna of each sample."""
        return self._of_rows("antenna1").astype(np.int64)

    @cached_property
    def antenna2(self) -> Index:
        """Second antenna of each sample."""
        return self._of_rows("antenna2").astype(np.int64)

    @cached_property
    def n_antenna(self) -> int:
        """Length of the axis of antennas."""
        return max(len(self.names), *(part.n_antenna for part in self.parts), 1)

    @cached_property
    def baseline(self) -> Index:
        """antenna1 n_antenna + antenna2."""
        return self.antenna1 * self.n_antenna + self.antenna2

    @cached_property
    def time(self) -> Array:
        """Time slot of each sample, s."""
        return self._of_rows("time_of_slots").astype(np.float64)

    @cached_property
    def times(self) -> Array:
        """Distinct times, s."""
        return np.unique(self.time)

    @cached_property
    def slot(self) -> Index:
        """Number of each sample's time among the distinct times of all partitions."""
        return np.searchsorted(self.times, self.time)

    @cached_property
    def freq(self) -> Array:
        """Channel width of each sample, Hz."""
        return self._of_channels("chan_freq")

    @cached_property
    def chan_width(self) -> Array:
        """Width that each sample is averaged over, Hz; 0 where it is not known."""
        return self._of_channels("chan_width")

    @cached_property
    def relative_width(self) -> Array:
        """Channel width over frequency."""
        return self.chan_width / self.freq

    def _of_channels(self, name: str) -> Array:
        out = np.empty(self.n)
        for i, part in enumerate(self.parts):
            here = self.part == i
            known = name not in part.guessed
            out[here] = getattr(part, name)[self.chan[here]] if known else 0.0
        return out

    @cached_property
    def interval(self) -> Array:
        """Time that each sample is averaged over, s; 0 where it is not known."""
        out = np.zeros(self.n)
        for i, part in enumerate(self.parts):
            if "interval" not in part.guessed:
                here = self.part == i
                out[here] = part.averaged_over[self.row[here]]
        return out

    @cached_property
    def uvw(self) -> Array:
        """Baselines in wavelengths, float64 (3, n)."""
        out = np.empty((3, self.n))
        for i, part in enumerate(self.parts):
            here = self.part == i
            out[:, here] = part.uvw[self.row[here]].T
        out *= self.freq / SPEED_OF_LIGHT
        return out

    @cached_property
    def channel(self) -> Index:
        """Number of each sample's channel among those of all partitions."""
        first = np.cumsum([0, *(part.n_chan for part in self.parts)])
        return np.asarray(first[self.part] + self.chan, np.int64)

    @cached_property
    def corr_names(self) -> tuple[str, ...]:
        """Distinct correlations of all partitions."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.corr_type))

    @cached_property
    def correlation(self) -> Index:
        """Number of each sample's correlation in `corr_names`."""
        out = np.empty(self.n, np.int64)
        for i, part in enumerate(self.parts):
            table = np.array([self.corr_names.index(name) for name in part.corr_type])
            here = self.part == i
            out[here] = table[self.corr[here]]
        return out

    @cached_property
    def is_parallel(self) -> Mask:
        """Whether each sample has Stokes I in it."""
        return np.asarray(self.in_stokes("I") != 0)

    @cached_property
    def is_mixed(self) -> Mask:
        """Whether each sample is of a circular and a linear feed."""
        return np.isin(self.corr_names, MIXED_HANDS)[self.correlation]

    def in_stokes(self, name: str) -> Complex:
        """What 1 Jy of a Stokes parameter gives the correlation of each sample (physics: section 3)."""
        table = stokes_to_corr(self.corr_names)[:, STOKES_NAMES.index(name)]
        return np.asarray(table[self.correlation])

    def is_of(self, field: tuple[float, float]) -> Mask:
        """Whether each sample has that phase centre."""
        return np.asarray(np.array([part.phase_centre == field for part in self.parts])[self.part])

    def utc(self, time: float) -> str:
        """UTC of a time of the data, as text."""
        return to_utc(float(time), self.utc_offset)

    def utc_of_cell(self, cell: int, length: int) -> str:
        """UTC of the middle of a cell of `length` neighbouring times, as text."""
        return self.utc(self.times[min(cell * length + length // 2, len(self.times) - 1)])

    def position(self, place: int) -> tuple[str, str, str, str]:
        """Antennas, time in UTC, channel with its frequency, and correlation of one sample."""
        from biro.display.formatting import frequency_text

        part = self.parts[self.part[place]]
        ends = f"{self.antenna(self.antenna1[place])}-{self.antenna(self.antenna2[place])}"
        chan = int(self.chan[place])
        stored = chan if part.chan_id is None or not len(part.chan_id) else int(part.chan_id[chan])
        of_spw = f" of spw {part.spw}" if len({each.spw for each in self.parts}) > 1 else ""
        channel = f"channel {stored}{of_spw} ({frequency_text(part.chan_freq[chan])})"
        return ends, self.utc(self.time[place]), channel, part.corr_type[self.corr[place]]

    def antenna(self, number: int) -> str:
        """Name of an antenna."""
        return self.names[number] if number < len(self.names) else str(number)


def parts_of(values: Complex) -> Array:
    """Real and imaginary parts of values (..., n) in turns, float64 (..., 2 n), without a copy."""
    return np.ascontiguousarray(values).view(np.float64)


def _kept(part: Partition, too_many: float, shape: tuple[int, ...]) -> Mask:
    """Which visibilities of a large partition are looked at, whatever they are."""
    of_time = np.arange(len(part.times)) // RUN
    step = min(max(1, round(too_many)), int(of_time[-1]) + 1 if len(of_time) else 1)
    kept = np.zeros(shape, bool)
    rows = (of_time % step == 0)[part.time_index]
    of_chan = np.arange(part.n_chan) // RUN
    chan_step = min(max(1, round(too_many / step)), int(of_chan[-1]) + 1)
    channels = of_chan % chan_step == 0
    kept[np.ix_(rows, channels)] = True
    rest = too_many / (step * chan_step)
    if rest > 1.5:
        pair = np.unique(
            part.antenna1.astype(np.int64) * part.n_antenna + part.antenna2, return_inverse=True
        )[1]
        kept[pair % round(rest) != 0] = False
    return kept


def _largest(size: Array) -> Mask:
    """The largest of some residuals."""
    found = np.zeros(size.size, bool)
    found[np.argpartition(size.reshape(-1), -min(N_WORST, size.size))[-N_WORST:]] = True
    return found.reshape(size.shape)


def spacing(parts: Sequence[Partition]) -> float:
    """Typical time between neighbouring times, s; 0 of a single time."""
    steps = [part.spacing for part in parts if part.spacing]
    return float(np.median(steps)) if steps else 0.0
