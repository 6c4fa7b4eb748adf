"""What flagging found: counts by cause, shares by antenna, channel and time, and what pictures need."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import Printed
from biro.files.json_value import JsonValue
from biro.flagging.find import CAUSES, CLEAR, GIVEN, FlaggedData, FoundInterference
from rime_kernels.choices import Backend
from rime_kernels.flagging.percentiles import line_percentiles

Array = NDArray[np.float64]
ScalarT = TypeVar("ScalarT", bound=np.generic)
SHOWN = CAUSES[2:]
"""Causes of what was found."""
PERCENTS = (5.0, 25.0, 50.0, 75.0, 95.0)
"""Of the amplitudes of each channel, which a report has."""


@dataclass(frozen=True, eq=False)
class PartitionFlags:
    """What was found in one field and data description.

    Attributes
    ----------
    label : str
    time : float64 (n_time,), s
        Distinct times, MJD.
    chan_freq : float64 (n_chan,), Hz
    total, before, after : int64 (n_time, n_chan)
        Visibilities of all baselines and correlations, those flagged before, and those flagged now.
    sum_before, sum_after : float64 (n_time, n_chan), Jy
        Sums of the amplitudes of those that were not flagged before, and that are not now.
    of_antenna : float64 (2, n_antenna)
        Visibilities of each antenna that are flagged now, and all of them.
    baselines : int32 (n_baseline, 2)
        Numbers of the antennas of each baseline, the lower first.
    by_baseline : float64 (n_baseline,)
        Share of the visibilities of each that is flagged now.
    percentiles_before, percentiles_after : float32 (n_chan, 5), Jy
        Amplitudes that `PERCENTS` of those of a channel do not exceed, among what was not flagged before,
        and what is not now; NaN where nothing is left, and where baselines were looked at in groups.
    """

    label: str
    time: Array
    chan_freq: Array
    total: NDArray[np.int64]
    before: NDArray[np.int64]
    after: NDArray[np.int64]
    sum_before: Array
    sum_after: Array
    of_antenna: Array
    baselines: NDArray[np.int32]
    by_baseline: Array
    percentiles_before: NDArray[np.float32]
    percentiles_after: NDArray[np.float32]

    @classmethod
    def of(
        cls,
        label: str,
        samples: FlaggedData,
        found: FoundInterference,
        n_antenna: int,
        backend: Backend = "cpu",
    ) -> PartitionFlags:
        """Sum up one partition."""
        time = samples.all_times
        index = np.searchsorted(time, samples.time)
        shape = len(time), samples.vis.shape[1]
        clear, given = found.code == CLEAR, found.code == GIVEN
        with np.errstate(invalid="ignore"):
            amplitude = np.abs(samples.vis)
        finite = np.isfinite(amplitude)

        def by_time(values: NDArray[np.generic], out: NDArray[ScalarT]) -> NDArray[ScalarT]:
            np.add.at(out, index, values.sum(axis=2))
            return out

        whole, real = np.int64, np.float64

        n_corr = samples.vis.shape[2]
        flagged = (~clear).sum(axis=(1, 2))
        sums = np.zeros((2, n_antenna))
        for antenna in (samples.antenna1, samples.antenna2):
            np.add.at(sums[0], antenna, flagged)
            np.add.at(sums[1], antenna, n_corr * shape[1])
        pairs = np.sort(np.stack([samples.antenna1, samples.antenna2], axis=1), axis=1)
        baselines, of_baseline = np.unique(pairs, axis=0, return_inverse=True)
        own = np.bincount(of_baseline.ravel(), flagged, len(baselines))
        by_channel = _by_channel(amplitude)
        before, after = (
            line_percentiles(by_channel, _by_channel(~kept), PERCENTS, backend=backend)
            for kept in (~given, clear)
        )
        return cls(
            label,
            time,
            samples.chan_freq,
            np.bincount(index, minlength=shape[0])[:, None] * n_corr * np.ones(shape, np.int64),
            by_time(given, np.zeros(shape, whole)),
            by_time(~clear, np.zeros(shape, whole)),
            by_time(np.where(finite & ~given, amplitude, 0.0), np.zeros(shape, real)),
            by_time(np.where(clear, amplitude, 0.0), np.zeros(shape, real)),
            sums,
            baselines,
            own / np.maximum(1, np.bincount(of_baseline.ravel()) * n_corr * shape[1]),
            before,
            after,
        )

    @property
    def by_antenna(self) -> Array:
        """Share of the visibilities of each antenna that is flagged now, (n_antenna,); NaN without any."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.of_antenna[0] / self.of_antenna[1])

    def joined(self, other: PartitionFlags) -> PartitionFlags:
        """With other baselines of the same partition. Percentiles are of all or none, and so become NaN."""
        added = {
            name: getattr(self, name) + getattr(other, name)
            for name in ("total", "before", "after", "sum_before", "sum_after", "of_antenna")
        }
        unknown = np.full_like(self.percentiles_before, np.nan)
        return replace(
            self,
            baselines=np.concatenate([self.baselines, other.baselines]),
            by_baseline=np.concatenate([self.by_baseline, other.by_baseline]),
            percentiles_before=unknown,
            percentiles_after=unknown,
            **added,
        )


def _by_channel(cells: NDArray[ScalarT]) -> NDArray[ScalarT]:
    """Values (n_row, n_chan, n_corr) as (n_chan, n_row n_corr)."""
    return np.moveaxis(cells, 1, 0).reshape(cells.shape[1], -1)


@dataclass(frozen=True, eq=False)
class FlagReport(Printed):
    """What `biro.flag` found, and wrote.

    Attributes
    ----------
    source : str
        Path of the set.
    strategy : str
    written : bool
        Whether FLAG was changed.
    version : str
        Name of the version that keeps the flags as they were; empty where nothing was written.
    counts : dict str -> int
        Visibilities by cause (`biro.flagging.find.CAUSES`), "total" of those looked at, and "not judged", of
        those that were among too few others for a noise.
    partitions : tuple of PartitionFlags
    antenna_names : tuple of str
    """

    source: str
    strategy: str
    written: bool
    version: str
    counts: dict[str, int]
    partitions: tuple[PartitionFlags, ...] = ()
    antenna_names: tuple[str, ...] = ()

    @property
    def n_found(self) -> int:
        """Visibilities that are flagged now and were not before."""
        return sum(self.counts[cause] for cause in SHOWN)

    def by_antenna(self) -> dict[str, float]:
        """Share of the visibilities of each antenna that is flagged now, the mean over partitions."""
        if not self.partitions:
            return {}
        shares = np.array([part.by_antenna for part in self.partitions])
        there = np.isfinite(shares)
        names = zip(self.antenna_names, there.any(axis=0), strict=True)
        mean = np.where(there, shares, 0.0).sum(axis=0) / np.maximum(1, there.sum(axis=0))
        return {name: float(mean[i]) for i, (name, is_there) in enumerate(names) if is_there}

    def to_dict(self) -> dict[str, JsonValue]:
        """Counts and shares, for programs."""
        parts: list[JsonValue] = [
            {
                "label": part.label,
                "channels": (part.after.sum(axis=0) / np.maximum(1, part.total.sum(axis=0))).tolist(),
                "times": (part.after.sum(axis=1) / np.maximum(1, part.total.sum(axis=1))).tolist(),
                "baselines": self._by_baseline(part),
                "amplitudes": {
                    "percents": list(PERCENTS),
                    "before": _as_json(part.percentiles_before),
                    "after": _as_json(part.percentiles_after),
                },
            }
            for part in self.partitions
        ]
        return {
            "source": self.source,
            "strategy": self.strategy,
            "written": self.written,
            "version": self.version,
            "counts": {**self.counts},
            "by_antenna": {**self.by_antenna()},
            "partitions": parts,
        }

    def _by_baseline(self, part: PartitionFlags) -> dict[str, JsonValue]:
        """Shares by the names of two antennas."""
        names = self.antenna_names
        return {
            f"{names[first]}-{names[second]}": float(share)
            for (first, second), share in zip(part.baselines, part.by_baseline, strict=True)
        }

    def __str__(self) -> str:
        total = max(1, self.counts["total"])

        def line(name: str, n: int) -> str:
            return f"  {name:<22}{n:>14}  {100 * n / total:7.3f} %"

        state = f"previous flags saved as {self.version}" if self.written else "nothing was written"
        lines = [f"{self.source}: strategy {self.strategy}; {state}"]
        if self.counts["not judged"] >= self.counts["total"] - self.counts["given"] > 0:
            lines.append(
                "NO SEARCH WAS POSSIBLE: each baseline has too few visibilities to measure its noise"
            )
        lines += [line("visibilities", self.counts["total"]), line("flagged before", self.counts["given"])]
        lines += [line("found", self.n_found)]
        lines += [line(f"  {cause}", self.counts[cause]) for cause in SHOWN if self.counts[cause]]
        if self.counts["not judged"]:
            lines.append(line("not judged", self.counts["not judged"]))
            lines.append("  (not judged: too few visibilities on the baseline to measure the noise)")
        shares = sorted(self.by_antenna().items(), key=lambda item: -item[1])[:5]
        if shares:
            text = ", ".join(f"{name} ({100 * share:.1f} %)" for name, share in shares)
            lines.append(f"  most flagged antennas: {text}")
        return "\n".join(lines)


def _as_json(values: NDArray[np.float32]) -> JsonValue:
    """Lists of numbers, None for NaN."""
    return [[float(x) if np.isfinite(x) else None for x in line] for line in values]


@dataclass
class FlagCounts:
    """Adds up partitions to a report."""

    counts: Counter[str] = field(default_factory=Counter)
    partitions: list[PartitionFlags] = field(default_factory=list)

    def add(
        self,
        label: str,
        samples: FlaggedData,
        found: FoundInterference,
        n_antenna: int,
        backend: Backend = "cpu",
        *,
        goes_on: bool = False,
    ) -> None:
        """Add one partition, or (`goes_on`) more baselines of the one that came last."""
        self.counts.update(found.counts)
        self.counts["not judged"] += found.n_unjudged
        self.counts["total"] += found.code.size
        part = PartitionFlags.of(label, samples, found, n_antenna, backend)
        if goes_on:
            part = self.partitions.pop().joined(part)
        self.partitions.append(part)

    def report(self, source: str, strategy: str, version: str, names: list[str]) -> FlagReport:
        """The report; `version` is empty where nothing was written."""
        counts = {cause: self.counts[cause] for cause in (*CAUSES, "not judged", "total")}
        return FlagReport(
            source, strategy, bool(version), version, counts, tuple(self.partitions), tuple(names)
        )
