"""Voltage beams as 2 x 2 Jones matrices on a grid of directions and frequencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.models.errors import ModelError

if TYPE_CHECKING:
    from scipy.interpolate import CubicSpline

Array = NDArray[np.float64]
# A cubic spline needs so many nodes; more fit in no memory.
LEAST_NODES, MOST_NODES = 4, 4096
# Nodes that lie apart from an even spacing by more than this part of it are not evenly spaced.
_UNEVEN = 1e-6


@dataclass(frozen=True, eq=False)
class BeamCube:
    """Jones matrices E(x, y, nu) of an antenna at the nodes of a grid.

    x and y are direction cosines from the centre of the beam in the frame of the antenna: where the frame is
    not turned (parallactic angle 0) x runs east and y north, and y always runs towards the zenith for an
    alt-azimuth mount. Between nodes real and imaginary parts are cubic splines in x and y, and in frequency
    too where there are four planes or more (straight lines between fewer). Outside the planes'
    frequencies the nearest plane is taken, at directions times nu / nu_plane: a beam shrinks with frequency.

    Parameters
    ----------
    x, y : float64 (n_x,), (n_y,)
        Direction cosines of the nodes, ascending and evenly spaced; at least 4 of each.
    freq : float64 (n_freq,), Hz
        Ascending.
    jones : complex128 (n_freq, n_y, n_x, 2, 2)
        E; first index: feed of the antenna (X, Y or R, L), second: what comes in.
    name : str
        Where it comes from, for messages.

    Raises
    ------
    ModelError
        Shapes that do not fit, nodes that are not evenly spaced or not ascending, values that are not finite.
    """

    x: Array
    y: Array
    freq: Array
    jones: NDArray[np.complex128]
    name: str = "beam"

    def __post_init__(self) -> None:
        for key in ("x", "y", "freq"):
            object.__setattr__(self, key, np.ascontiguousarray(getattr(self, key), dtype=np.float64))
        object.__setattr__(self, "jones", np.ascontiguousarray(self.jones, dtype=np.complex128))
        shape = (self.freq.size, self.y.size, self.x.size, 2, 2)
        if self.jones.shape != shape:
            raise ModelError(f"{self.name}: jones must have shape {shape}, got {self.jones.shape}")
        for key in ("x", "y"):
            self._check_nodes(key, getattr(self, key))
        if not self.freq.size or not (np.all(self.freq > 0.0) and np.all(np.diff(self.freq) > 0.0)):
            raise ModelError(f"{self.name}: frequencies must be above 0 and ascend")
        bad = np.argwhere(~np.isfinite(self.jones))
        if len(bad):
            freq, at_y, at_x = self.freq[bad[0, 0]], *bad[0, 1:3]
            raise ModelError(
                f"{self.name}: {len(bad)} values are not finite, the first at {freq:g} Hz in row {at_y} and "
                f"column {at_x}; fill them, or cut the cube to where the beam is known"
            )

    def _check_nodes(self, key: str, nodes: Array) -> None:
        if not LEAST_NODES <= nodes.size <= MOST_NODES:
            raise ModelError(
                f"{self.name}: {key} must have {LEAST_NODES} to {MOST_NODES} nodes, got {nodes.size}"
            )
        steps = np.diff(nodes)
        if not np.all(steps > 0.0) or np.ptp(steps) > _UNEVEN * steps.mean():
            raise ModelError(f"{self.name}: nodes along {key} must ascend in even steps")

    @property
    def grid(self) -> Array:
        """x of the first node, spacing in x, y of the first node, spacing in y, float64 (4,)."""
        return np.array(
            [
                self.x[0],
                (self.x[-1] - self.x[0]) / (self.x.size - 1),
                self.y[0],
                (self.y[-1] - self.y[0]) / (self.y.size - 1),
            ]
        )

    @cached_property
    def coefficients(self) -> NDArray[np.complex128]:
        """Coefficients of the cubic B-splines, complex128 (n_freq, n_y + 2, n_x + 2, 2, 2).

        Those of the planes; the third derivative is continuous at the nodes next to the rim ("not a knot"),
        so that cubic polynomials are reproduced exactly.
        """
        return self._fitted(self.jones)

    def _fitted(self, jones: NDArray[np.complex128]) -> NDArray[np.complex128]:
        n_freq, n_y, n_x = jones.shape[:3]
        reals = np.ascontiguousarray(jones).view(np.float64)
        along_y = _spline_matrix(n_y) @ reals.reshape(n_freq, n_y, n_x * 8)
        both = _spline_matrix(n_x) @ along_y.reshape(n_freq, n_y + 2, n_x, 8)
        return both.reshape(n_freq, n_y + 2, n_x + 2, 2, 4).view(np.complex128)

    def at(self, freq: ArrayLike) -> NDArray[np.complex128]:
        """Coefficients as `coefficients` at other frequencies (Hz), (n, n_y + 2, n_x + 2, 2, 2).

        Beyond the planes' frequencies, of splines through the stretched beam at the nodes.
        """
        wanted = np.atleast_1d(np.asarray(freq, dtype=np.float64))
        found = self._planes(wanted)
        at_y, at_x = np.meshgrid(self.y, self.x, indexing="ij")
        for i in np.flatnonzero((wanted < self.freq[0]) | (wanted > self.freq[-1])):
            found[i] = self._fitted(self(at_x, at_y, float(wanted[i]))[None])[0]
        return found

    def _planes(self, freq: ArrayLike) -> NDArray[np.complex128]:
        """Coefficients at frequencies (Hz), those of the first or last plane beyond the planes."""
        wanted = np.clip(np.atleast_1d(np.asarray(freq, dtype=np.float64)), self.freq[0], self.freq[-1])
        index = np.searchsorted(self.freq, wanted)
        if np.array_equal(self.freq[index], wanted):
            return self.coefficients[index]
        if self.freq.size >= LEAST_NODES:
            return np.asarray(self._along_frequency(wanted))
        last = np.clip(np.searchsorted(self.freq, wanted, side="right"), 1, self.freq.size - 1)
        low, high = self.freq[last - 1], self.freq[last]
        part = ((wanted - low) / (high - low))[:, None, None, None, None]
        return np.asarray((1.0 - part) * self.coefficients[last - 1] + part * self.coefficients[last])

    def _plane(self, freq: float) -> NDArray[np.complex128]:
        """The plane of one frequency; the last one is kept, for many antennas and times ask for the same."""
        found = self._kept.get(freq)
        if found is None:
            found = self._planes(freq)[0]
            self._kept.clear()
            self._kept[freq] = found
        return found

    @cached_property
    def _kept(self) -> dict[float, NDArray[np.complex128]]:
        return {}

    @cached_property
    def _along_frequency(self) -> CubicSpline[np.complex128]:
        from scipy.interpolate import CubicSpline

        return CubicSpline(self.freq, self.coefficients, axis=0)

    def __call__(self, x: ArrayLike, y: ArrayLike, freq: float) -> NDArray[np.complex128]:
        """E at directions in the frame of the antenna, complex128 (..., 2, 2); clamped to the grid."""
        x0, step_x, y0, step_y = self.grid
        factor = freq / float(np.clip(freq, self.freq[0], self.freq[-1]))
        planes = self._plane(freq)
        at_x, weight_x = _taps((np.asarray(x, np.float64) * factor - x0) / step_x, self.x.size)
        at_y, weight_y = _taps((np.asarray(y, np.float64) * factor - y0) / step_y, self.y.size)
        found = np.zeros((*np.shape(at_x), 2, 2), complex)
        for j in range(4):
            for i in range(4):
                weight = (weight_y[j] * weight_x[i])[..., None, None]
                found += weight * planes[at_y + j, at_x + i]
        return found

    @cached_property
    def direction_error(self) -> float:
        """How far the spline in x and y is from the beam, estimated, relative to the largest |E|.

        Every second node is left out, and the spline through the others is compared with what was left out.
        The error of a cubic spline falls with the fourth power of the spacing, so that of the whole grid is
        taken to be a sixteenth of the largest difference. NaN where too few nodes are left to tell.
        """
        if min(self.x.size, self.y.size) < 2 * LEAST_NODES:
            return float("nan")
        coarse = BeamCube(self.x[::2], self.y[::2], self.freq, self.jones[:, ::2, ::2], self.name)
        n_y, n_x = 2 * coarse.y.size - 1, 2 * coarse.x.size - 1
        at_y, at_x = np.meshgrid(self.y[:n_y], self.x[:n_x], indexing="ij")
        differences = [
            np.abs(coarse(at_x, at_y, freq) - plane[:n_y, :n_x]).max()
            for freq, plane in zip(self.freq, self.jones, strict=True)
        ]
        return float(max(differences)) / 16.0 / self._peak

    @cached_property
    def frequency_error(self) -> float:
        """The error of the spline in frequency, between the planes; NaN where there are fewer than 7.

        A quarter of the largest difference, not a sixteenth: beams are often tabulated with kinks in
        frequency, at which a spline gains with the square of the spacing only.
        """
        if self.freq.size < 2 * LEAST_NODES - 1:
            return float("nan")
        coarse = BeamCube(self.x, self.y, self.freq[::2], self.jones[::2], self.name)
        left_out = self.freq[1::2][: coarse.freq.size - 1]
        difference = coarse._planes(left_out) - self.coefficients[1::2][: len(left_out)]
        return float(np.abs(difference).max()) / 4.0 / self._peak

    @property
    def _peak(self) -> float:
        return float(np.abs(self.jones).max()) or 1.0


@dataclass(frozen=True, eq=False)
class AntennaBeams:
    """Beams that differ from antenna to antenna, or change in time: cubes on one grid, and who has which.

    Parameters
    ----------
    cubes : tuple of BeamCube
        With the same nodes and frequencies.
    antenna_names : tuple of str
        Empty where all antennas, whatever they are called, have the first cube.
    time : float64 (n_time,), s
        MJD; the beam of a time is that of the nearest of these.
    which : int32 (n_time, n_name)
        The cube of each antenna.

    Raises
    ------
    ModelError
        Cubes of different grids, or indices of none.
    """

    cubes: tuple[BeamCube, ...]
    antenna_names: tuple[str, ...] = ()
    time: Array = field(default_factory=lambda: np.zeros(1))
    which: NDArray[np.int32] = field(default_factory=lambda: np.zeros((1, 0), np.int32))

    def __post_init__(self) -> None:
        first = self.cubes[0]
        for cube in self.cubes:
            if not all(np.array_equal(getattr(cube, key), getattr(first, key)) for key in ("x", "y", "freq")):
                raise ModelError(
                    f"{cube.name}: the beams of all antennas must have one grid and one list of frequencies"
                )
        shape = (self.time.size, len(self.antenna_names))
        if self.which.shape != shape or np.any((self.which < 0) | (self.which >= len(self.cubes))):
            raise ModelError(
                f"{first.name}: which must have shape {shape} and indices of {len(self.cubes)} cubes"
            )

    def classes(self, antenna_names: Sequence[str], time: Array) -> NDArray[np.int32]:
        """The cube of each antenna in each time slot, int32 (n_time or 1, n_antenna).

        Raises
        ------
        ModelError
            An antenna that has none.
        """
        if not self.antenna_names:
            return np.zeros((1, len(antenna_names)), np.int32)
        unknown = [name for name in antenna_names if name not in self.antenna_names]
        if unknown:
            raise ModelError(f"{self.cubes[0].name}: no beam was given for antenna {unknown[0]!r}")
        of_names = self.which[:, [self.antenna_names.index(name) for name in antenna_names]]
        if self.time.size == 1:
            return np.ascontiguousarray(of_names)
        return np.ascontiguousarray(of_names[np.abs(self.time[:, None] - time).argmin(axis=0)])


def _taps(place: Array, n_node: int) -> tuple[NDArray[np.int64], Array]:
    """First of four coefficients and the weights (4, ...) of the cubic B-spline at a place, in steps."""
    held = np.clip(place, 0.0, n_node - 1.0)
    first = np.minimum(np.floor(held).astype(np.int64), n_node - 2)
    t = held - first
    weights = [(1.0 - t) ** 3, 3.0 * t**3 - 6.0 * t**2 + 4.0, -3.0 * t**3 + 3.0 * t**2 + 3.0 * t + 1.0, t**3]
    return first, np.stack(weights) / 6.0


def _spline_matrix(n_node: int) -> Array:
    """The matrix (n + 2, n) from values at nodes to coefficients of uniform cubic B-splines.

    At node i the spline is (c_i + 4 c_i+1 + c_i+2) / 6. The two conditions that are missing make the third
    differences of the first and of the last five coefficients alike.
    """
    system = np.zeros((n_node + 2, n_node + 2))
    for i in range(n_node):
        system[i, i : i + 3] = np.array([1.0, 4.0, 1.0]) / 6.0
    fourth = np.array([1.0, -4.0, 6.0, -4.0, 1.0])
    system[n_node, :5], system[n_node + 1, -5:] = fourth, fourth
    return np.asarray(np.linalg.solve(system, np.eye(n_node + 2, n_node)))
