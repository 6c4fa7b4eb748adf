"""The best gains of all groups on a device, from call to call."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.types import DeviceArray, Record
from rime_kernels.cuda.kernels.arguments import typed
from rime_kernels.gains.arrays import Anchor, GainCells, GainGroups
from rime_kernels.gains.cuda import climb, derivatives
from rime_kernels.gains.cuda.parts import Priors, State, shape_for
from rime_kernels.gains.cuda.tables import GroupTables, group_tables

Array = NDArray[np.float64]


class Found(NamedTuple):
    """A maximum.

    Attributes
    ----------
    x : float64 (n,)
        Coordinates, by groups.
    steps : float64 (n_group,)
    of_cells, of_priors : float
        What cells and what priors have of f (`rime_kernels.gains.curvature`).
    """

    x: Array
    steps: Array
    of_cells: float
    of_priors: float


class GroupSolver:
    """The search for the maximum, and the curvature there, by the kernels of this folder.

    Each search begins at the anchors that the CPU's searches have made (`rime_kernels.gains.maximum`), with
    the inverses of matrices that the last one has left.

    Parameters
    ----------
    cells : Cells
    groups : Groups
        As `tables.fits` has them.
    returns : bool (n,)
        Phases that are brought within half a turn of the means of their priors.

    Attributes
    ----------
    turn : int
        How many searches there were: what the device has is that of the last one.
    gain : device array, float64 (2 n_cell,)
        Real and imaginary parts of the gains of cells, after `slopes`.

    Raises
    ------
    DeviceMemoryError
        The device has too little free memory.
    """

    def __init__(self, cells: GainCells, groups: GainGroups, returns: NDArray[np.bool_]) -> None:
        tables, n_cell = group_tables(cells, groups, returns), cells.first.size - 1
        self.turn, self._n, self._n_group = 0, returns.size, tables.first.size - 1
        self._shape, self._workspace = shape_for(int(np.diff(groups.first).max())), device.Workspace()
        n_place, n_square = tables.cell.size, max(1, int(tables.square[-1]))
        self._tables = typed(GroupTables(*(device.upload(table) for table in tables)))
        self._has_inverse = device.upload(np.zeros(self._n_group, np.int32))
        sizes = {"inverse": n_square, "entries": 2 * n_place, "pairs": 3 * n_place, "signal": self._n}
        inverse, entries, pairs, signal = (self._array(name, size) for name, size in sizes.items())
        self._state = typed(State(inverse, self._has_inverse, entries, pairs, signal))
        n_answer = 3 * self._n_group + self._n
        self._answer = self._array("answer", n_answer)
        self._best = self._answer[3 * self._n_group :]
        self._start, self._room = self._array("start", self._n), self._array("room", self._n_group)
        self._anchor = self._workspace.array("anchor", (3, n_cell), np.float64)
        self._moved, self._numbers = self._array("moved", self._n), self._array("numbers", 3 * self._n_group)
        self._parts = [self._numbers[k * self._n_group : (k + 1) * self._n_group] for k in range(3)]
        self._slopes = self._workspace.array("slopes", (3, n_cell), np.float64)
        self.gain = self._array("gain", 2 * n_cell)
        self._priors: tuple[Array, Array, Record] | None = None
        self._sums: DeviceArray = None
        self._is_warm = False

    def place(self, anchor: Anchor) -> None:
        """Let the next searches begin at these maxima, if all groups have one."""
        self._is_warm = bool((anchor.room > 0.0).all())
        if not self._is_warm:
            return
        self._start.copy_to_device(anchor.x)
        # The last group of a device is that of cells without coordinates.
        self._room.copy_to_device(np.append(anchor.room, 0.0))
        self._anchor.copy_to_device(np.stack([anchor.power, anchor.real, anchor.imag]))
        self._has_inverse.copy_to_device(np.zeros(self._n_group, np.int32))

    def best(self, groups: GainGroups, sums: DeviceArray) -> Found | None:
        """The maximum for sums of cells on the device, float64 (3, n_cell); None where anchors are far off.

        `groups` are those at hand, with other priors at most.
        """
        self.turn += 1
        if not self._is_warm:
            return None
        self._sums = sums
        kernel = climb.make_climb(self._shape)
        arguments = self._tables, self._priors_of(groups), sums, self._state
        anchors = self._start, self._anchor, self._room
        kernel[self._n_group, self._shape.n_thread, 0](*arguments, *anchors, self._answer)
        found = self._answer.copy_to_host()
        steps, of_cells, of_priors = found[: 3 * self._n_group].reshape(3, -1)
        x = found[3 * self._n_group :]
        if not ((steps >= 0.0).all() and np.isfinite(x).all()):
            return None
        return Found(x, steps, float(of_cells.sum()), float(of_priors.sum()))

    def log_determinant(self, groups: GainGroups) -> float:
        """ln det(H + P) of all groups at the maximum; NaN where it is not positive."""
        self._invert(groups, 1, 0)
        return float(self._parts[0].copy_to_host().sum())

    def slopes(self, groups: GainGroups) -> tuple[float, float, tuple[DeviceArray, DeviceArray, DeviceArray]]:
        """`log_determinant`; the sum over cells of `derivatives.make_finish`; derivatives by sums of cells.

        The derivatives, (n_cell,) each, stay on the device, until they are asked for again.
        """
        shape, state, best = self._shape, self._state, self._best
        grid = self._n_group, shape.n_thread, 0
        self._invert(groups, 1, 0)
        derivatives.make_derive(shape)[grid](self._tables, self._sums, state, best, self._slopes, self._moved)
        self._invert(groups, 0, 1)
        derivatives.make_finish(shape)[grid](
            self._tables, self._sums, state, best, self._moved, self._slopes, self.gain, self._parts[2]
        )
        log, exact, by_scale = self._numbers.copy_to_host().reshape(3, -1).sum(axis=1).tolist()
        log = log if np.isfinite(exact) else np.nan
        return log, by_scale, (self._slopes[0], self._slopes[1], self._slopes[2])

    def _invert(self, groups: GainGroups, is_held: int, part: int) -> None:
        kernel, priors = derivatives.make_determinants(self._shape), self._priors_of(groups)
        arguments = self._tables, priors, self._sums, self._state, self._best, is_held, self._parts[part]
        kernel[self._n_group, self._shape.n_thread, 0](*arguments)

    def _priors_of(self, groups: GainGroups) -> Record:
        """Means and weights on the device, sent where they are others than before."""
        sent = self._priors
        if sent is None or sent[0] is not groups.middle or sent[1] is not groups.weight:
            middle, weight = self._workspace.fill("priors", [groups.middle, groups.weight])
            self._priors = groups.middle, groups.weight, typed(Priors(middle, weight))
        assert self._priors is not None
        return self._priors[2]

    def _array(self, name: str, size: int) -> DeviceArray:
        return self._workspace.array(name, (max(1, size),), np.float64)
