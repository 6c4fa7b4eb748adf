"""How many closures there are, and what is left out, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from biro.errors import InputError
from biro.likelihood.closures.legs import SNR_LIMIT
from biro.likelihood.closures.partition_closures import PartitionClosures
from biro.observation.observation import Observation
from biro.observation.partition import Partition

BLIND = (
    "closures do not constrain the flux scale (total flux density) or the absolute position, whose "
    "posteriors only repeat the priors. Set both to constants, or ignore their uncertainties"
)
"""What closures cannot see."""
TOGETHER = 0.7
"""Share of the rows of baselines without short gaps, below which `ClosureCounts.lines` names it."""
SHORT_GAP = 8
"""Most time slots from a row of a baseline to its next, between which rows count as missing."""


@dataclass(frozen=True)
class ClosureCounts:
    """Numbers of closures of an observation.

    Attributes
    ----------
    n_phase, n_amplitude : int
        Independent closure phases and log closure amplitudes.
    n_set : int
        Times, channels and parallel hands that have closures; groups of antennas without a link count apart.
    n_small_set : int
        Those of them without closure amplitudes.
    n_leg : int
        Visibilities that closures are made of.
    n_faint, n_cross, n_idle : int
        Visibilities left out: below `SNR_LIMIT`, cross hands, and of too few antennas.
    n_idle_set : int
        Sets of too few antennas.
    n_row, n_without_gaps : int
        Rows of two different antennas, and how many their baselines would have without short gaps.
    """

    n_phase: int
    n_amplitude: int
    n_set: int
    n_small_set: int
    n_leg: int
    n_faint: int
    n_cross: int
    n_idle: int
    n_idle_set: int
    n_row: int
    n_without_gaps: int

    @classmethod
    def of(cls, observation: Observation, closures: Sequence[PartitionClosures]) -> ClosureCounts:
        """The numbers of all partitions together."""
        assert len(closures) == len(observation.partitions)
        sets = [each.sets for each in closures]
        rows = [_rows(part) for part in observation.partitions]
        return cls(
            n_phase=sum(each.n_phase for each in closures),
            n_amplitude=sum(each.n_amplitude for each in closures),
            n_set=sum(each.n_set for each in sets),
            n_small_set=sum(int((each.n_amplitude == 0).sum()) for each in sets),
            n_leg=sum(len(each.legs) for each in sets),
            n_faint=sum(each.legs.n_faint for each in sets),
            n_cross=sum(each.legs.n_cross for each in sets),
            n_idle=sum(each.n_idle for each in sets),
            n_idle_set=sum(each.n_idle_set for each in sets),
            n_row=sum(n for n, _ in rows),
            n_without_gaps=sum(n for _, n in rows),
        )

    def refuse_none(self) -> None:
        """Refuse data without any closure.

        Raises
        ------
        InputError
        """
        if self.n_phase + self.n_amplitude:
            return
        if not self.n_idle + self.n_faint + self.n_cross:
            raise InputError("no closures: all visibilities are flagged or have no weight")
        if not self.n_idle + self.n_faint:
            raise InputError(
                "no closures: the data have cross hands only; closures need parallel hands (RR, LL, XX, "
                "YY) or Stokes I"
            )
        if not self.n_idle:
            raise InputError(
                f"no closures: all {self.n_faint} visibilities are below {SNR_LIMIT:g} sigma; average in "
                "time (--average-time)"
            )
        raise InputError(
            "no closures: no three antennas have usable visibilities on all their baselines at the same "
            f"time (closure phases need three antennas, closure amplitudes four){self._of_faint()}"
        )

    def lines(self) -> list[str]:
        """What is fitted, what is left out, and what closures cannot see."""
        found = (
            f"closures: {self.n_phase} independent closure phases and {self.n_amplitude} log closure "
            "amplitudes "
            f"from {self.n_leg} visibilities ({self.n_set} combinations of time, channel and correlation), "
            "with their full covariance"
        )
        left = [
            (
                self.n_faint,
                f"visibilities below {SNR_LIMIT:g} sigma (their phases are not normally distributed)",
            ),
            (self.n_cross, "visibilities of cross hands"),
            (
                self.n_idle,
                f"visibilities of fewer than three connected antennas ({self.n_idle_set} combinations)",
            ),
        ]
        out = "; ".join(f"{n} {what}" for n, what in left if n)
        lines = [found, *([f"left out: {out}"] if out else [])]
        if self.n_small_set:
            lines.append(
                f"{self.n_small_set} combinations have no closure amplitude (fewer than four connected "
                "antennas)"
            )
        if self.n_row < TOGETHER * self.n_without_gaps:
            lines.append(
                f"baselines have visibilities at only {self.n_row / self.n_without_gaps:.0%} of the times "
                "from their first to their last: the times of baselines differ, or rows are missing. "
                "Average in time (--average-time) to get more closures"
            )
        return [*lines, BLIND]

    def _of_faint(self) -> str:
        if not self.n_faint:
            return ""
        return (
            f"; {self.n_faint} visibilities are below {SNR_LIMIT:g} sigma: average in time (--average-time)"
        )


def _rows(part: Partition) -> tuple[int, int]:
    """Rows of two different antennas, and how many these baselines would have without short gaps."""
    cross = part.antenna1 != part.antenna2
    pair = part.antenna1[cross].astype(np.int64) * part.n_antenna + part.antenna2[cross]
    slot = part.time_index[cross]
    order = np.lexsort((slot, pair))
    step = np.diff(slot[order])[np.diff(pair[order]) == 0]
    return len(slot), len(slot) + int((step[(step > 1) & (step <= SHORT_GAP)] - 1).sum())
