"""Assign every visibility to a subgrid (an item of work), once per observation."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays import Rows
from rime_kernels.compile.jit import serial_loop
from rime_kernels.compile.types import Array, Scalar
from rime_kernels.gridding.grid import ImageGrid
from rime_kernels.physics.phase import SPEED_OF_LIGHT

# Rows that one item may have, where `Limits` do not say: enough to make up for its subgrid, few enough that
# items are alike.
_MAX_ROWS = 128
# Rows of a piece of a run by which the number of items is judged: no item has more.
_PIECE_ROWS = 512
# Shares of a subgrid's reach that its channels may take; the rest is left to time. The best is taken.
_SHARES = np.array([1.0, 0.75, 0.5, 0.35, 0.25])


class SortedRows(NamedTuple):
    """Rows in the order of baseline and time, with coordinates for the grid.

    Attributes
    ----------
    order : int32 (n_row,)
        Row numbers.
    uvw : float64 (n_row, 3), m
        u' and v' of `scalars` and w; of the opposite sign where `is_flipped`.
    shift : float64 (n_row,), m
        u l0 + v m0 + w (n0 - 1), the phase of the image's middle; never flipped.
    antenna1, antenna2, slot : int32 (n_row,)
        Antennas change places where `is_flipped`.
    is_flipped : bool (n_row,)
        Whether antennas and uvw are exchanged, V(-u) = V(u)^H: then no w is negative, and half as many
        W-layers are needed.
    scale : float64 (n_chan,), 1/m
        nu/c.
    """

    order: NDArray[np.int32]
    uvw: NDArray[np.float64]
    shift: NDArray[np.float64]
    antenna1: NDArray[np.int32]
    antenna2: NDArray[np.int32]
    slot: NDArray[np.int32]
    is_flipped: NDArray[np.bool_]
    scale: NDArray[np.float64]

    @property
    def w_range(self) -> tuple[float, float]:
        """Smallest and largest w, wavelengths."""
        w = np.outer([self.uvw[:, 2].min(), self.uvw[:, 2].max()], [self.scale.min(), self.scale.max()])
        return float(w.min()), float(w.max())


class Limits(NamedTuple):
    """How far from the middle of a subgrid, and of a W-layer, visibilities may lie.

    Attributes
    ----------
    field : float
        F: padded field, direction cosines; cells per wavelength of u.
    reach : float
        Largest distance of a visibility from the subgrid's middle, cells.
    w_reach : float
        Largest distance of w from that of the layer, wavelengths; infinite for a single layer.
    w_first, w_step : float
        w of the first layer, and from one to the next, wavelengths.
    n_layer : int
    max_rows : int
        The most rows of an item.
    """

    field: float
    reach: float
    w_reach: float
    w_first: float
    w_step: float
    n_layer: int
    max_rows: int = _MAX_ROWS


class Plan(NamedTuple):
    """Items of work (the visibilities of one subgrid), ordered by W-layer; each visibility is in one item.

    Attributes
    ----------
    first_row, n_row, first_chan, n_chan : int32 (n_item,)
        Rows count in the order of `SortedRows`.
    x, y : int32 (n_item,)
        The grid cell in the subgrid's middle, from -G/2; the subgrid begins S/2 cells before.
    w : float64 (n_item,)
        w in the middle of the item's, wavelengths.
    layer, antenna1, antenna2, slot, flip : int32 (n_item,)
        W-layer, antennas (of flipped rows already changed), slot of the A-terms, 1 for flipped rows.
    layer_start : int32 (n_layer + 1,)
        Where the items of each layer begin.
    layer_w : float64 (n_layer,), wavelengths
    """

    first_row: NDArray[np.int32]
    n_row: NDArray[np.int32]
    first_chan: NDArray[np.int32]
    n_chan: NDArray[np.int32]
    x: NDArray[np.int32]
    y: NDArray[np.int32]
    w: NDArray[np.float64]
    layer: NDArray[np.int32]
    antenna1: NDArray[np.int32]
    antenna2: NDArray[np.int32]
    slot: NDArray[np.int32]
    flip: NDArray[np.int32]
    layer_start: NDArray[np.int32]
    layer_w: NDArray[np.float64]

    @property
    def n_item(self) -> int:
        return int(self.first_row.size)


def sort_rows(rows: Rows, grid: ImageGrid, slot_of_time: NDArray[np.int32] | None, flip: bool) -> SortedRows:
    """Rows by baseline and time; with `flip`, those of negative w turned round."""
    is_flipped = (rows.uvw[:, 2] < 0.0) & flip
    p = np.where(is_flipped, rows.antenna2, rows.antenna1)
    q = np.where(is_flipped, rows.antenna1, rows.antenna2)
    # By baseline, then time: neighbours in this order lie close in uv, so that items can hold many rows.
    order = np.lexsort((rows.time_index, is_flipped, q, p)).astype(np.int32)
    u, v, w = rows.uvw[order].T
    shift = u * grid.l0 + v * grid.m0 - w * (grid.l0**2 + grid.m0**2) / (1.0 + grid.n0)
    # Coordinates of the plane tangent at the image's centre: w then multiplies a curvature that is flat
    # there.
    tilted = np.stack([-(u - w * grid.l0 / grid.n0), v - w * grid.m0 / grid.n0, w], axis=1)
    sign = np.where(is_flipped, -1.0, 1.0)[order, None]
    slot = np.zeros(rows.n_time, np.int32) if slot_of_time is None else slot_of_time
    return SortedRows(
        order, tilted * sign, shift, p[order].astype(np.int32), q[order].astype(np.int32),
        slot[rows.time_index[order]].astype(np.int32), is_flipped[order], rows.chan_freq / SPEED_OF_LIGHT,
    )  # fmt: skip


def on_grid(rows: SortedRows, field: float) -> SortedRows:
    """The rows with U and V in cells times c/nu, instead of u' and v' in metres."""
    return rows._replace(uvw=rows.uvw * [field, field, 1.0])


def runs(rows: SortedRows) -> NDArray[np.int64]:
    """Where the runs of rows of one baseline, slot and direction begin, and the end of the last."""
    keys = np.stack([rows.antenna1, rows.antenna2, rows.slot, rows.is_flipped.astype(np.int32)])
    is_new = np.any(np.diff(keys, axis=1) != 0, axis=0)
    return np.concatenate([[0], 1 + np.flatnonzero(is_new), [rows.order.size]]).astype(np.int64)


def count_items(rows: SortedRows, limits: Limits, sample: NDArray[np.int64]) -> tuple[float, float]:
    """Items that a plan would have, and their rows, from pieces of runs (`sample_runs`)."""
    share = (sample[:, 1] - sample[:, 0]).sum() / rows.order.size
    n_item, n_row = _cover(sample, rows.uvw, rows.scale, limits, _SHARES, limits.max_rows, *_room(0))
    return float(n_item / share), float(n_row / share)


def sample_runs(rows: SortedRows, n_row: int) -> NDArray[np.int64]:
    """Where pieces of runs from all over the observation begin and end: about n_row rows.

    Pieces are as long as the longest items that there are, so that these can be counted in them.
    """
    starts = runs(rows)
    pieces = np.concatenate(
        [
            np.stack([cuts := np.arange(a, z, _PIECE_ROWS), np.minimum(cuts + _PIECE_ROWS, z)], axis=1)
            for a, z in pairwise(starts)
        ]
    )
    n_piece = min(len(pieces), max(1, round(n_row * len(pieces) / rows.order.size)))
    chosen = np.random.default_rng(0).permutation(len(pieces))[:n_piece]
    return np.ascontiguousarray(pieces[np.sort(chosen)])


def make_plan(rows: SortedRows, limits: Limits) -> Plan:
    """Cover times and channels of each baseline by items, as few as a greedy search finds.

    Every visibility lies within `reach` of the middle of its item's subgrid along both axes, and its w within
    `w_reach` of that of its layer; slots of A-terms are never straddled.
    """
    starts = runs(rows)
    pairs = np.stack([starts[:-1], starts[1:]], axis=1)
    n_item, _ = _cover(pairs, rows.uvw, rows.scale, limits, _SHARES, limits.max_rows, *_room(0))
    # Two passes: one counts the items, the other writes them into arrays of that size.
    items, w = _room(n_item)
    _cover(pairs, rows.uvw, rows.scale, limits, _SHARES, limits.max_rows, items, w)
    # Of one layer, neighbours on the grid follow each other: they are in the cache together.
    order = np.lexsort((items[:, 0], items[:, 4] // 16, items[:, 5] // 16, items[:, 6]))
    items = items[order]
    used, layer = np.unique(items[:, 6], return_inverse=True)
    first, n_row, chan, n_chan, x, y = (np.ascontiguousarray(column) for column in items.T[:6])
    return Plan(
        first, n_row, chan, n_chan, x, y, w[order], layer.astype(np.int32), rows.antenna1[first],
        rows.antenna2[first], rows.slot[first], rows.is_flipped[first].astype(np.int32),
        np.searchsorted(layer, np.arange(used.size + 1)).astype(np.int32),
        np.asarray(limits.w_first + limits.w_step * used, np.float64),
    )  # fmt: skip


def only(
    rows: SortedRows, plan: Plan, wanted: NDArray[np.int64]
) -> tuple[SortedRows, Plan, NDArray[np.int64]]:
    """The items of a plan that have visibilities of some rows, with all of their own rows.

    Parameters
    ----------
    rows : SortedRows
    plan : Plan
    wanted : int64 (n_wanted,)
        Row numbers.

    Returns
    -------
    SortedRows, Plan
        Of these items alone; their rows are numbered anew, in the order of their numbers.
    int64 (n_kept,)
        Those numbers, which rise.
    """
    is_wanted = np.zeros(rows.order.size, bool)
    is_wanted[wanted] = True
    n_before = np.concatenate([[0], np.cumsum(is_wanted[rows.order])])
    stop = plan.first_row + plan.n_row
    items = np.flatnonzero(n_before[stop] > n_before[plan.first_row])
    # Rows of these items: +1 where an item begins, -1 behind its end, then a running sum.
    steps = np.zeros(rows.order.size + 1, np.int64)
    np.add.at(steps, plan.first_row[items], 1)
    np.add.at(steps, stop[items], -1)
    is_kept = np.cumsum(steps)[:-1] > 0
    kept = np.sort(rows.order[is_kept]).astype(np.int64)
    of_rows = ("uvw", "shift", "antenna1", "antenna2", "slot", "is_flipped")
    own = {name: np.ascontiguousarray(getattr(rows, name)[is_kept]) for name in of_rows}
    order = np.searchsorted(kept, rows.order[is_kept]).astype(np.int32)
    of_items = {name: getattr(plan, name)[items] for name in Plan._fields if not name.startswith("layer_")}
    used, layer = np.unique(of_items.pop("layer"), return_inverse=True)
    first_row = (np.cumsum(is_kept) - 1)[of_items.pop("first_row")].astype(np.int32)
    some = Plan(
        **of_items,
        first_row=first_row,
        layer=layer.astype(np.int32),
        layer_start=np.searchsorted(layer, np.arange(used.size + 1)).astype(np.int32),
        layer_w=np.ascontiguousarray(plan.layer_w[used]),
    )
    return rows._replace(order=order, **own), some, kept


def _room(n_item: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Room for items: first row, rows, first channel, channels, x, y, layer; and w."""
    return np.empty((n_item, 7), np.int32), np.empty(n_item)


@serial_loop
def _layer_of(w: float, limits: Limits) -> int:
    found = int(np.rint((w - limits.w_first) / limits.w_step)) if limits.n_layer > 1 else 0
    return min(max(found, 0), limits.n_layer - 1)


@serial_loop
def _fits(box: tuple[float, ...], limits: Limits) -> bool:
    """Whether one subgrid holds a box (least and largest u, v in cells, w in wavelengths)."""
    for axis in range(2):
        low, high = box[2 * axis], box[2 * axis + 1]
        # A subgrid's middle is a whole cell.
        middle = np.rint(0.5 * (low + high))
        if high - middle > limits.reach or middle - low > limits.reach:
            return False
    layer = limits.w_first + limits.w_step * _layer_of(0.5 * (box[4] + box[5]), limits)
    return box[5] - layer <= limits.w_reach and layer - box[4] <= limits.w_reach


@serial_loop
def _grow(
    box: tuple[float, ...], uvw: Array, row: int, low: float, high: float, field: float
) -> tuple[float, ...]:
    """The box with a row at scales low ... high."""
    u, v, w = uvw[row, 0] * field, uvw[row, 1] * field, uvw[row, 2]
    return (
        min(box[0], min(u * low, u * high)), max(box[1], max(u * low, u * high)),
        min(box[2], min(v * low, v * high)), max(box[3], max(v * low, v * high)),
        min(box[4], min(w * low, w * high)), max(box[5], max(w * low, w * high)),
    )  # fmt: skip


@serial_loop
def _group_end(first: int, scale: Array, spread: float) -> tuple[Scalar, Scalar, Scalar]:
    """Channels first .. stop - 1 whose scales differ by at most `spread`, and their extremes."""
    low = high = scale[first]
    stop = first + 1
    while stop < scale.size:
        lower, higher = min(low, scale[stop]), max(high, scale[stop])
        if higher - lower > spread:
            break
        low, high, stop = lower, higher, stop + 1
    return stop, low, high


@serial_loop
def _write(
    items: Array,
    w: Array,
    n: int,
    first_row: int,
    n_row: int,
    chan: int,
    n_chan: int,
    box: tuple[float, ...],
    limits: Limits,
) -> None:
    items[n, 0], items[n, 1], items[n, 2], items[n, 3] = first_row, n_row, chan, n_chan
    items[n, 4], items[n, 5] = np.rint(0.5 * (box[0] + box[1])), np.rint(0.5 * (box[2] + box[3]))
    w[n] = 0.5 * (box[4] + box[5])
    items[n, 6] = _layer_of(w[n], limits)


@serial_loop
def _cover_run(
    start: int, stop: int, uvw: Array, scale: Array, limits: Limits, spread: float, max_rows: int,
    items: Array, w: Array, n: int,
) -> tuple[Scalar, Scalar]:  # fmt: skip
    """Cover rows start .. stop - 1, channels in groups of at most `spread`; where items end, and groups."""
    empty = (np.inf, -np.inf, np.inf, -np.inf, np.inf, -np.inf)
    zero: Scalar = np.int64(0)  # of the type of later channels, or Numba would compile what is called twice
    chan = n_group = zero
    while chan < scale.size:
        end, low, high = _group_end(chan, scale, spread)
        # Greedy: an item takes rows while its box fits; for one axis (time) that gives the fewest.
        box: tuple[float, ...] = empty
        first = start
        for row in range(start, stop):
            larger = _grow(box, uvw, row, low, high, limits.field)
            if row > first and (row - first == max_rows or not _fits(larger, limits)):
                if items.shape[0] > 0:
                    _write(items, w, n, first, row - first, chan, end - chan, box, limits)
                n, first = n + 1, row
                larger = _grow(empty, uvw, row, low, high, limits.field)
            box = larger
        if items.shape[0] > 0:
            _write(items, w, n, first, stop - first, chan, end - chan, box, limits)
        n, chan, n_group = n + 1, end, n_group + 1
    return n, n_group


@serial_loop
def _cover(
    pairs: Array,
    uvw: Array,
    scale: Array,
    limits: Limits,
    shares: Array,
    max_rows: int,
    items: Array,
    w: Array,
) -> tuple[Scalar, Scalar]:
    """Cover each run; items are written if there is room for any. Their number, and that of their rows."""
    zero: Scalar = np.int64(0)  # of the type of n, or Numba would compile `_cover_run` twice
    n = n_row = zero
    none = items[:0]
    # A subgrid's middle is a whole cell, and w of a row may be half a step from its layer.
    w_room = 2.0 * limits.w_reach - limits.w_step if limits.n_layer > 1 else np.inf
    for run in range(pairs.shape[0]):
        start, stop = pairs[run]
        longest, w_longest = 0.0, 0.0
        for row in range(start, stop):
            longest = max(longest, max(abs(uvw[row, 0]), abs(uvw[row, 1])) * limits.field)
            w_longest = max(w_longest, abs(uvw[row, 2]))
        # A group of channels spreads a row by |u| times the spread of their scales: it has to fit a subgrid.
        widest = min((2.0 * limits.reach - 1.0) / (longest + 1e-300), w_room / (w_longest + 1e-300))
        best, fewest, n_group = widest, -1, 0
        # Wide groups of channels leave room for few times, narrow ones for many: some shares are tried.
        for share in shares:
            found, groups = _cover_run(
                start, stop, uvw, scale, limits, share * widest, max_rows, none, w, zero
            )
            if fewest < 0 or found < fewest:
                best, fewest, n_group = share * widest, found, groups
        if items.shape[0] > 0:
            _cover_run(start, stop, uvw, scale, limits, best, max_rows, items, w, n)
        n, n_row = n + fewest, n_row + n_group * (stop - start)
    return n, n_row
