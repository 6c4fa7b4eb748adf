"""The result of a solver: gains with errors, tables that models read, and corrected data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biro.calibration.statement import as_dict, in_words
from biro.calibration.window import Complex, Index, WindowSolution
from biro.diagnosis.feed_frame import to_feeds, turned_weight
from biro.display.formatting import Printed
from biro.errors import InputError
from biro.files.json_value import JsonValue
from biro.io.gain_files import write_gains
from biro.models.bound.antenna_terms.segments import Segments
from biro.models.components.antenna_terms.gain_solutions import GainSolutions
from biro.observation.observation import Observation
from rime_kernels.gain_solving import Reason

_FEED = {"X": 0, "R": 0, "Y": 1, "L": 1}


@dataclass(frozen=True, eq=False)
class SolvedGains(Printed):
    """Gains of antennas that make a sky fit an observation best: data are g_p V g_q^* of the model's V.

    Attributes
    ----------
    observation : Observation
        What they were solved from.
    windows : tuple of WindowSolution
        One for each spectral window.
    segments : Segments
        The solution intervals: that of each time of each partition.
    settings : dict
        Mode, intervals, feeds and the rest, as they were asked for.
    reference : str
        The antenna that phases are relative to, wherever it has data enough.
    turns : tuple of complex128 (n_time, n_antenna, 2, 2) or None
        Of each partition, the rotation of the feeds between which the gains act
        (`biro.diagnosis.feed_frame`).
    taken_out : tuple of complex128 (n_time, n_antenna, 2, 2) or None
        Of each partition, the rotation that `corrected` takes out besides the gains; empty for none.
    fits : bool
        Whether nothing shows that the sky with these gains does not fit (`biro.calibration.misfit`).
    verdict : tuple of str
        What is wrong where they do not fit, and what to do; the text begins with it.
    remarks : tuple of str
        What else is to be said.
    """

    observation: Observation
    windows: tuple[WindowSolution, ...]
    segments: Segments
    settings: dict[str, JsonValue]
    reference: str
    turns: tuple[Complex | None, ...]
    taken_out: tuple[Complex | None, ...] = ()
    fits: bool = True
    verdict: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        return in_words(self)

    def to_dict(self) -> dict[str, JsonValue]:
        """The table of gains and verdict as a dictionary, for programs."""
        return as_dict(self)

    def interval_of(self, i_partition: int) -> Index:
        """The solution interval of each row of a partition, int64 (n_row,)."""
        part = self.observation.partitions[i_partition]
        return np.asarray(self.segments.of_time[i_partition][part.time_index])

    def solutions(self) -> GainSolutions:
        """The gains at all times of the data, as `[gain] table` of a model takes them.

        They are given at each time, so that an interpolation changes nothing where there are data; and at
        each channel where blocks of channels were solved apart. A feed that was not observed gets the gain of
        the other.

        Raises
        ------
        InputError
            Two spectral windows have a frequency in common.
        """
        return self._expanded()[0]

    def save(self, path: Path) -> None:
        """Write them into a .npz file, which `[gain] table` and `biro.read_gains` read, with errors beside.

        Raises
        ------
        InputError
            The file cannot be written, or two spectral windows have a frequency in common.
        """
        gains, extra = self._expanded()
        write_gains(path, gains.later(self.observation.utc_offset), extra)

    def corrected(self) -> Iterator[Complex]:
        """Data with the gains taken out, D / (g_p g_q^*), complex128 (n_row, n_chan, n_corr) by partition.

        If biro found that raw data of linear feeds contain their rotation, it is taken out as well:
        P^H (D / (g_p g_q^*)) P, as the sky without [feeds] expects. Partitions that lack one of the four
        correlations cannot be turned and keep their rotation. Visibilities without a usable gain are
        left as they are; `n_uncorrected` says how many.
        """
        for i, part in enumerate(self.observation.partitions):
            factor, usable = self.factor(i)
            before, after = self._frames(i)
            vis = part.vis if before is None else to_feeds(part, before, part.vis)
            vis = vis / factor
            if after is None:
                yield np.where(usable, vis, part.vis)
                continue
            whole = to_feeds(part, after, vis, back=True)
            yield np.where(usable.all(axis=-1, keepdims=True), whole, part.vis)

    def _frames(self, i: int) -> tuple[Complex | None, Complex | None]:
        """Rotation of the data of a partition into the frame in which gains act, and that back out of it."""
        turn = self.turns[i]
        return turn, turn if turn is not None or not self.taken_out else self.taken_out[i]

    def amplitudes(self) -> Iterator[NDArray[np.float64]]:
        """|g_p g_q^*|, float64 (n_row, n_chan, n_corr) by partition; 0 where there is no usable gain."""
        for i in range(len(self.observation.partitions)):
            factor, usable = self.factor(i)
            yield np.where(usable, np.abs(factor), 0.0)

    def weight_factors(self) -> Iterator[NDArray[np.float64]]:
        """Weights of corrected data over those of the data, float64 (n_row, n_chan, n_corr) by partition.

        They are |g_p g_q|^2: the noise of D / (g_p g_q^*) is that of D over |g_p g_q|, as in CASA's applycal
        with calwt=True. Where the data are turned besides, variances are propagated through the rotation, for
        equal weights of the four correlations. The factor is 1 where there is no usable gain.
        """
        for i, part in enumerate(self.observation.partitions):
            (factor, usable), (_, after) = self.factor(i), self._frames(i)
            scale = np.where(usable, np.abs(factor) ** 2, 1.0)
            if after is not None:
                turned = turned_weight(part, after, scale, back=True)
                scale = np.where(usable.all(axis=-1, keepdims=True), turned, 1.0)
            yield scale

    @property
    def n_uncorrected(self) -> int:
        """Visibilities with weight that a gain is lacking for."""
        parts = enumerate(self.observation.partitions)
        return sum(int(np.count_nonzero((part.weight > 0) & ~self.factor(i)[1])) for i, part in parts)

    def factor(self, i: int) -> tuple[Complex, NDArray[np.bool_]]:
        """g_p g_q^* of each visibility of a partition, and whether both gains are there.

        Both are (n_row, n_chan, n_corr), complex128 and bool.
        """
        part, window = self.observation.partitions[i], self.window_of(i)
        interval = self.interval_of(i)
        (first, here), (second, there) = (
            window.of_rows(interval, antenna) for antenna in (part.antenna1, part.antenna2)
        )
        # Gains on Stokes parameters are common to both feeds.
        feeds = [[_FEED.get(name[k], 0) for name in part.corr_type] for k in (0, -1)]
        factor = first[..., feeds[0]] * second[..., feeds[1]].conj()
        return factor, here[..., feeds[0]] & there[..., feeds[1]]

    def window_of(self, i: int) -> WindowSolution:
        """The window that a partition belongs to."""
        return next(window for window in self.windows if i in window.partitions)

    def _expanded(self) -> tuple[GainSolutions, dict[str, NDArray[np.generic]]]:
        """Gains at all times and channels, and what stands beside them in a file, in the same shape."""
        parts = self.observation.partitions
        times = np.unique(np.concatenate([part.times for part in parts]))
        freqs = [w.chan_freq if w.block_freq.size > 1 else w.block_freq for w in self.windows]
        order = np.argsort(np.concatenate(freqs), kind="stable")
        freq = np.concatenate(freqs)[order]
        if np.any(np.diff(freq) <= 0.0):
            raise InputError(
                "two spectral windows overlap in frequency, which a gain table cannot hold; solve each on "
                "its own (spws=, --spws)"
            )
        found: dict[str, list[NDArray[np.generic]]] = {}
        for window in self.windows:
            for name, values in self._at_times(window, times).items():
                found.setdefault(name, []).append(values)
        joined = {name: np.concatenate(each, axis=2)[:, :, order] for name, each in found.items()}
        number = np.concatenate([np.full(axis.size, i) for i, axis in enumerate(freqs)])[order]
        reason = joined.pop("reason")
        gains = GainSolutions(
            "",
            times,
            freq,
            self.observation.antenna_names,
            joined.pop("gain").astype(np.complex128),
            np.asarray(reason == Reason.SOLVED),
            number.astype(np.int64),
            int(np.count_nonzero(reason > Reason.NO_DATA)),
        )
        return gains, joined | {"reason": reason}

    def _at_times(self, window: WindowSolution, times: NDArray[np.float64]) -> dict[str, NDArray[np.generic]]:
        """Arrays (n_time, n_antenna, n_freq, 2) of a window."""
        interval = np.full(times.size, -1)
        for i in window.partitions:
            part = self.observation.partitions[i]
            interval[np.searchsorted(times, part.times)] = self.segments.of_time[i]
        block = window.block if window.block_freq.size > 1 else np.zeros(1, np.int64)
        other = [0, 0] if window.feeds == (0,) else [1, 1] if window.feeds == (1,) else [0, 1]
        found: dict[str, NDArray[np.generic]] = {}
        for name in ("gain", "log_amplitude_error", "phase_error", "snr", "reason"):
            values = getattr(window, name)[..., other][interval][:, block]
            values[interval < 0] = {"gain": 1, "reason": int(Reason.NO_DATA)}.get(name, 0)
            found[name] = np.moveaxis(values, 1, 2)
        return found
