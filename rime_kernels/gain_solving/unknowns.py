"""What is solved for: which gains, of which feeds, how, and why a gain may have no solution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rime_kernels.errors import InputError

Mode = Literal["complex", "phase", "amplitude"]
MODES = ("complex", "phase", "amplitude")
_FEED = {"X": 0, "Y": 1, "R": 0, "L": 1}
_STOKES = {"I": (0, 0), "Q": (0, 1), "U": (0, 1), "V": (0, 1)}
"""Stokes I counts as a parallel hand, the others as cross hands."""


class Reason(IntEnum):
    """Why a gain has no solution, or none that can be used."""

    SOLVED = 0
    NO_DATA = 1
    FEW_BASELINES = 2
    UNCONNECTED = 3
    UNDETERMINED = 4
    NOT_CONVERGED = 5
    LOW_SNR = 6


@dataclass(frozen=True)
class SolveOptions:
    """How gains are solved for.

    Attributes
    ----------
    mode : "complex", "phase" or "amplitude"
        What of a gain is free; of "phase" amplitudes are 1, of "amplitude" phases are 0.
    min_baselines : int
        An antenna with fewer baselines to others that have as many is left out.
    max_iterations : int
        Steps of either method, after which a solution counts as not converged.

    Raises
    ------
    InputError
        Another mode, or a number below 1.
    """

    mode: Mode = "complex"
    min_baselines: int = 2
    max_iterations: int = 100

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InputError(f"mode must be {', '.join(MODES[:-1])} or {MODES[-1]}, got {self.mode!r}")
        for name in ("min_baselines", "max_iterations"):
            if not getattr(self, name) >= 1:
                raise InputError(f"{name} must be 1 or more, got {getattr(self, name)}")


@dataclass(frozen=True)
class Unknowns:
    """The gains of one solution interval as nodes, and the products that see them as edges.

    A group of feeds is solved apart from the others. Node n of a group is antenna n, where a group has one
    gain of each antenna, or feed n % 2 of antenna n // 2. Edges run over pairs of antennas p < q, in the
    order (0, 1), (0, 2), ..., and within a pair over the products that the group has of it.

    Attributes
    ----------
    n_antenna : int
    corr_type : tuple of str
        "XX", "XY", "YX", "YY" or "RR", "RL", "LR", "LL", some of these; of common feeds also
        "I", "Q", "U", "V".
    feeds : "separate" or "common"
        Whether the feeds of an antenna have gains of their own.
    cross_hands : bool
        Whether cross hands count. With separate feeds these then tie the phases of both feeds together, as
        the model's polarisation has them.

    Raises
    ------
    InputError
        Stokes parameters with gains of separate feeds, or no parallel hands.
    """

    n_antenna: int
    corr_type: tuple[str, ...]
    feeds: Literal["separate", "common"] = "separate"
    cross_hands: bool = False

    def __post_init__(self) -> None:
        if self.feeds not in ("separate", "common"):
            raise InputError(f"feeds must be separate or common, got {self.feeds!r}")
        of_feeds = all(len(name) == 2 and set(name) <= set(_FEED) for name in self.corr_type)
        if not of_feeds and (self.feeds != "common" or not set(self.corr_type) <= set(_STOKES)):
            raise InputError(
                "gains of separate feeds act on correlations of feeds (XX, RR, ...), got "
                f"{', '.join(self.corr_type)}: say feeds common, for gains that both feeds share, or read "
                "the data without forming Stokes parameters"
            )
        if not any(a == b for a, b in self._pairs):
            raise InputError(
                f"gains need parallel hands (XX, YY, RR, LL) or Stokes I, got {', '.join(self.corr_type)}"
            )

    @property
    def _pairs(self) -> Sequence[tuple[int, int]]:
        return [_STOKES.get(name) or (_FEED[name[0]], _FEED[name[-1]]) for name in self.corr_type]

    @property
    def is_joint(self) -> bool:
        """Whether both feeds of an antenna are in one group."""
        return self.feeds == "separate" and self.cross_hands and any(a != b for a, b in self._pairs)

    @property
    def n_group(self) -> int:
        """Groups of feeds that are solved apart: 2 of separate feeds without cross hands."""
        return 1 if self.is_joint or self.feeds == "common" else 2

    @property
    def n_node(self) -> int:
        """Gains of a group."""
        return (2 if self.is_joint else 1) * self.n_antenna

    @property
    def n_edge(self) -> int:
        """Products of a group."""
        return len(self.nodes[0])

    @cached_property
    def place(self) -> NDArray[np.int64]:
        """Group and product of a correlation, int64 (2, n_corr, 2); second for rows of antenna1 > antenna2.

        -1 for correlations that do not count.
        """
        found = np.full((2, len(self.corr_type), 2), -1)
        for corr, (a, b) in enumerate(self._pairs):
            if a != b and not self.cross_hands:
                continue
            for swapped, (i, j) in enumerate([(a, b), (b, a)]):
                if self.feeds == "common":
                    found[swapped, corr] = 0, 0
                else:
                    found[swapped, corr] = (0, 2 * i + j) if self.is_joint else (i, 0)
        return found

    @cached_property
    def nodes(self) -> NDArray[np.int64]:
        """The two nodes of each edge, int64 (2, n_edge)."""
        pair = np.array(np.triu_indices(self.n_antenna, 1))
        if not self.is_joint:
            return pair
        feed = np.array([[0, 0, 1, 1], [0, 1, 0, 1]])
        return np.asarray((2 * pair[:, :, None] + feed[:, None, :]).reshape(2, -1))

    def of_feeds(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        """Values (..., n_group, n_node) as (..., n_antenna, 2): those of antennas and feeds."""
        if self.is_joint:
            return values.reshape(*values.shape[:-2], self.n_antenna, 2)
        if self.feeds == "common":
            return np.repeat(np.moveaxis(values, -2, -1), 2, axis=-1)
        return np.moveaxis(values, -2, -1)
