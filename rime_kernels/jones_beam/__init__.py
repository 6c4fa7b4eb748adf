"""`JonesBeam`: voltage beams as full 2x2 Jones matrices on a grid, and the feed rotation inside them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rime_kernels import check
from rime_kernels.errors import InputError

_OPTIONAL = "pointing", "turn", "wavelength2", "applies"
# Axes of arrays that have derivatives or angles; sizes are shared between them.
_SHAPES: dict[str, tuple[type, check.Shape]] = {
    "coefficient": (np.complex128, ("class", "chan", "y", "x", 2, 2)),
    "grid": (np.float64, (4,)),
    "antenna_class": (np.int32, ("time of antenna_class", "antenna")),
    "angle": (np.float64, ("time of angle", "antenna")),
    "feed_angle": (np.float64, ("time of feed_angle", "antenna", "chan")),
    "scale": (np.float64, ("batch",)),
    "pointing": (np.float64, ("batch of pointing", "time of pointing", "antenna", 2)),
    "turn": (np.float64, ("batch of turn", "antenna", 2)),
    "wavelength2": (np.float64, ("chan",)),
    "applies": (np.bool_, ("source",)),
}


@dataclass(frozen=True, eq=False)
class JonesBeam:
    """Voltage beams E as 2x2 Jones matrices of direction, and the feed rotation P (physics: section 6).

        V_pq = sum over sources of  envelope_pq  E_p P_p K_p B K_q^* P_q^H E_q^H

        (l', m') = (l, m) - pointing of the antenna
        x = (l' cos a - m' sin a) / scale,   y = (l' sin a + m' cos a) / scale       a: angle
        E(x, y) = sum over 4 x 4 nodes of coefficient b(x node) b(y node),           b: cubic B-spline
        P is a rotation by phi = feed_angle + turn_0 - turn_1 lambda^2

    With a the parallactic angle, y points to the zenith and x 90 deg east of it. Outside the grid E is
    that of its edge. Feeds are X, Y or R, L, whichever the rows have; a matrix'
    first index is the feed of the antenna.

    Attributes
    ----------
    coefficient : complex128 (n_class, n_chan, n_y + 2, n_x + 2, 2, 2)
        Coefficients of E's cubic B-splines at the rows' channels, one more node at each side of the grid.
    grid : float64 (4,), rad
        x of the first node (that has a coefficient before it), spacing in x; the same of y.
    antenna_class : int32 (n_antenna,), or (n_time or 1, n_antenna)
        Which of the beams an antenna has, in each time slot where it has one after the other.
    angle : float64 (n_time or 1, n_antenna), rad
        How far the antenna's frame is turned on the sky, north through east.
    feed_angle : float64 (n_time or 1, n_antenna), or (n_time or 1, n_antenna, n_chan), rad
        Of P; 0 where P is not to be applied. By channel where the ionosphere turns, too.
    scale : float64 (n_batch or 1,)
        Lengths on the sky are divided by it: 1 for the grid as it is.
    pointing : float64 (n_batch or 1, n_time or 1, n_antenna, 2), rad, or None
        Where beams point, (dl, dm) of each antenna and time.
    turn : float64 (n_batch or 1, n_antenna, 2), or None
        What turns the feeds of an antenna beyond `feed_angle`, and has derivatives: an angle, rad, and a
        rotation measure above it, rad/m2.
    wavelength2 : float64 (n_chan,), m2, or None
        lambda^2 of the rows' channels; needed with `turn`.
    applies : bool (n_source,), or None
        False for sources that are not seen through the beam: E = 1 for these, while P stays. None: all are.

    Raises
    ------
    InputError
        A wrong shape or type, less than 2 x 2 nodes, a spacing that is not positive, coefficients, grid or
        angles that are not finite, a class that is none.
    """

    coefficient: NDArray[np.complex128]
    grid: NDArray[np.float64]
    antenna_class: NDArray[np.int32]
    angle: NDArray[np.float64]
    feed_angle: NDArray[np.float64]
    scale: NDArray[np.float64]
    pointing: NDArray[np.float64] | None = None
    turn: NDArray[np.float64] | None = None
    wavelength2: NDArray[np.float64] | None = None
    applies: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        sizes: dict[str, int] = {}
        for name, (dtype, shape) in _SHAPES.items():
            given = getattr(self, name)
            if name == "antenna_class" and np.ndim(given) == 1:
                shape = shape[1:]
            if name == "feed_angle" and np.ndim(given) == 2:
                shape = shape[:2]
            if given is not None or name not in _OPTIONAL:
                object.__setattr__(self, name, check.array(f"beam.{name}", given, dtype, shape, sizes))
        for name in ("coefficient", "grid", "angle", "feed_angle"):
            check.finite(f"beam.{name}", getattr(self, name))
        if (self.turn is None) != (self.wavelength2 is None):
            raise InputError("beam.turn and beam.wavelength2 go together: give both or neither")
        n_y, n_x = sizes["y"] - 2, sizes["x"] - 2
        if n_y < 2 or n_x < 2:
            raise InputError(f"a beam needs at least 2 x 2 nodes within its borders, got {n_y} x {n_x}")
        if not (self.grid[1] > 0.0 and self.grid[3] > 0.0):
            raise InputError(f"the spacing of beam.grid must be positive (rad), got {self.grid[1::2]}")
        low, high = int(self.antenna_class.min(initial=0)), int(self.antenna_class.max(initial=0))
        if low < 0 or high >= sizes["class"]:
            raise InputError(f"beam.antenna_class must lie in 0 .. {sizes['class'] - 1}, got {low} .. {high}")

    @classmethod
    def unchecked(
        cls,
        template: JonesBeam,
        *,
        scale: NDArray[np.float64],
        pointing: NDArray[np.float64] | None,
        turn: NDArray[np.float64] | None,
    ) -> JonesBeam:
        """This beam with other contiguous arrays of the right shapes, unchecked: see `Sources.unchecked`."""
        new = object.__new__(cls)
        new.__dict__.update(template.__dict__, scale=scale, pointing=pointing, turn=turn)
        return new

    @property
    def motion(self) -> NDArray[np.float64]:
        """`motion_of` its pointing errors and turns."""
        return motion_of(self.pointing, self.turn)

    @property
    def feed_angles(self) -> NDArray[np.float64]:
        """`feed_angle` with an axis of channels, (n_time or 1, n_antenna, n_chan or 1)."""
        return self.feed_angle if self.feed_angle.ndim == 3 else self.feed_angle[..., None]

    def copy(self) -> JonesBeam:
        """This beam in arrays of its own, checked; coefficients, which nothing changes, are shared."""
        names = [name for name in _SHAPES if name != "coefficient" and getattr(self, name) is not None]
        return replace(self, **{name: getattr(self, name).copy() for name in names})

    def entries(self, start: int, stop: int) -> JonesBeam:
        """The entries start .. stop - 1 of the batch; what has one entry stays."""
        batch, pointing, turn = slice(start, stop), self.pointing, self.turn
        if pointing is not None and len(pointing) > 1:
            pointing = pointing[batch]
        if turn is not None and len(turn) > 1:
            turn = turn[batch]
        scale = self.scale[batch] if self.scale.size > 1 else self.scale
        return JonesBeam.unchecked(self, scale=scale, pointing=pointing, turn=turn)

    def check_batch(self, n_batch: int, n_source: int) -> None:
        """Refuse arrays whose axes are not those of sources.

        Raises
        ------
        InputError
            Another number of entries of the batch, or of sources.
        """
        sizes = {"scale": len(self.scale)}
        if self.pointing is not None:
            sizes["pointing"] = len(self.pointing)
        if self.turn is not None:
            sizes["turn"] = len(self.turn)
        for name, size in sizes.items():
            if size not in (1, n_batch):
                raise InputError(f"beam.{name} must have 1 or batch = {n_batch} entries, got {size}")
        if self.applies is not None and self.applies.size != n_source:
            raise InputError(f"beam.applies must have shape (source = {n_source},), got {self.applies.shape}")

    def check_axes(self, n_time: int, n_antenna: int, n_chan: int) -> None:
        """Refuse arrays whose time, antenna or channel axes are not those of the rows.

        Raises
        ------
        InputError
            Another number of antennas or channels, or of times that is not 1.
        """
        if self.coefficient.shape[1] != n_chan:
            raise InputError(
                f"beam.coefficient must have n_chan = {n_chan} channels, got {self.coefficient.shape[1]}"
            )
        if self.antenna_class.shape[-1] != n_antenna:
            raise InputError(
                f"beam.antenna_class must have n_antenna = {n_antenna} antennas, "
                f"got {self.antenna_class.shape[-1]}"
            )
        times = {"angle": self.angle.shape[0], "feed_angle": self.feed_angle.shape[0]}
        if self.antenna_class.ndim == 2:
            times["antenna_class"] = self.antenna_class.shape[0]
        if self.pointing is not None:
            times["pointing"] = self.pointing.shape[1]
        for name, size in times.items():
            if size not in (1, n_time):
                raise InputError(f"beam.{name} must have 1 or n_time = {n_time} time slots, got {size}")


def motion_of(
    pointing: NDArray[np.float64] | None, turn: NDArray[np.float64] | None, n_batch: int = 1
) -> NDArray[np.float64]:
    """Pointing errors, and turns after them, as kernels read them; or changes of both.

    Parameters
    ----------
    pointing : float64 (n_batch or 1, n_time or 1, n_antenna, 2), or None for 0
    turn : float64 (n_batch or 1, n_antenna, 2), or None
    n_batch : int
        Entries where there are no pointing errors.

    Returns
    -------
    float64 (n_batch or 1, n_time or 1, n_antenna or 1, 4)
        Without `turn` the last axis is that of `pointing`, 2.
    """
    if pointing is None:
        pointing = np.zeros((n_batch, 1, 1, 2))
    if turn is None:
        return pointing
    shape = np.broadcast_shapes(pointing.shape, turn[:, None].shape)
    both = np.broadcast_to(pointing, shape), np.broadcast_to(turn[:, None], shape)
    return np.concatenate(both, axis=-1)
