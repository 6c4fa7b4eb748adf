"""What flagging found: counts by cause, shares by antenna, channel and time, and what pictures need."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from biro.files.json_value import JsonValue
from biro.flagging.find import CAUSES, CLEAR, GIVEN, Found, Samples

Array = NDArray[np.float64]
ScalarT = TypeVar("ScalarT", bound=np.generic)
SHOWN = CAUSES[2:]
"""Causes of what was found."""


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
    by_antenna : float64 (n_antenna,)
        Share of the visibilities of each antenna that is flagged now; NaN of those without any.
    """

    label: str
    time: Array
    chan_freq: Array
    total: NDArray[np.int64]
    before: NDArray[np.int64]
    after: NDArray[np.int64]
    sum_before: Array
    sum_after: Array
    by_antenna: Array

    @classmethod
    def of(cls, label: str, samples: Samples, found: Found, n_antenna: int) -> PartitionFlags:
        """Sum up one partition."""
        time, index = np.unique(samples.time, return_inverse=True)
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
        with np.errstate(invalid="ignore"):
            share = sums[0] / sums[1]
        return cls(
            label,
            time,
            samples.chan_freq,
            np.bincount(index, minlength=shape[0])[:, None] * n_corr * np.ones(shape, np.int64),
            by_time(given, np.zeros(shape, whole)),
            by_time(~clear, np.zeros(shape, whole)),
            by_time(np.where(finite & ~given, amplitude, 0.0), np.zeros(shape, real)),
            by_time(np.where(clear, amplitude, 0.0), np.zeros(shape, real)),
            share,
        )


@dataclass(frozen=True, eq=False)
class FlagReport:
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

    def __str__(self) -> str:
        total = max(1, self.counts["total"])

        def line(name: str, n: int) -> str:
            return f"  {name:<22}{n:>14}  {100 * n / total:7.3f} %"

        state = f"flags before are kept as {self.version}" if self.written else "nothing was written"
        lines = [f"{self.source}: strategy {self.strategy}; {state}"]
        lines += [line("visibilities", self.counts["total"]), line("flagged before", self.counts["given"])]
        lines += [line("found", self.n_found)]
        lines += [line(f"  {cause}", self.counts[cause]) for cause in SHOWN if self.counts[cause]]
        if self.counts["not judged"]:
            lines.append(line("not judged", self.counts["not judged"]))
            lines.append("  (not judged: too few visibilities of a baseline for a noise)")
        shares = sorted(self.by_antenna().items(), key=lambda item: -item[1])[:5]
        if shares:
            text = ", ".join(f"{name} {100 * share:.1f} %" for name, share in shares)
            lines.append(f"  flagged now, by antenna, the most first: {text}")
        return "\n".join(lines)


@dataclass
class Tally:
    """Adds up partitions to a report."""

    counts: Counter[str] = field(default_factory=Counter)
    partitions: list[PartitionFlags] = field(default_factory=list)

    def add(self, label: str, samples: Samples, found: Found, n_antenna: int) -> None:
        """Add one partition."""
        self.counts.update(found.counts)
        self.counts["not judged"] += found.n_unjudged
        self.counts["total"] += found.code.size
        self.partitions.append(PartitionFlags.of(label, samples, found, n_antenna))

    def report(self, source: str, strategy: str, version: str, names: list[str]) -> FlagReport:
        """The report; `version` is empty where nothing was written."""
        counts = {cause: self.counts[cause] for cause in (*CAUSES, "not judged", "total")}
        return FlagReport(
            source, strategy, bool(version), version, counts, tuple(self.partitions), tuple(names)
        )
