"""Arrange rows and data in the order of the CPU's vectors, once per observation."""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays.mapped import mapped
from rime_kernels.inputs import Constants
from rime_kernels.physics.phase import SPEED_OF_LIGHT

T = TypeVar("T", bound=np.generic)

# Rows come in squares of so many antennas, whose terms the L1 cache of a core holds.
_SQUARE = 8
# What antenna terms cost, in sums over two antennas.
_TERM_COST = 2.0
# Bytes of data that are rearranged at a time.
_COPY_BYTES = 64 << 20
# Bytes from which arrays lie in large pages, and of such a page.
_LARGE, _PAGE = 1 << 20, 2 << 20


class Lanes(NamedTuple):
    """The rows of an observation as vectors of n lanes.

    An *entry* is what one vector of the loops holds in one *block* of channels:

    - along channels: one row; a block is n channels;
    - along time: one baseline in n time slots; a block is one channel;
    - along rows: n rows of one time slot; a block is one channel.

    Entries lie in *slots* that share antenna terms: one time slot, or n of them. Arrays that end in
    an axis of 1 or n have 1 where all lanes are alike.
    """

    slot_entry: NDArray[np.int64]  # (n_slot + 1,): where the entries of each slot begin
    slot_time: NDArray[np.int64]  # (n_slot, 1 or n)
    antenna_uvw: NDArray[np.float64]  # (n_slot, n_antenna, 3, 1 or n), m
    row: NDArray[np.int64]  # (n_entry, 1 or n); -1 for none
    antenna: NDArray[np.int64]  # (n_entry, 2, 1 or n)
    uvw: NDArray[np.float64]  # (n_entry, 3, 1 or n), m
    chan: NDArray[np.int64]  # (n_block, n); -1 for none
    scale: NDArray[np.float64]  # (n_block, n): nu/c
    data: NDArray[np.floating]  # (n_block, n_entry, n_corr, 3 + 2 n_template, n), or one element

    @property
    def axis(self) -> str:
        """What the lanes lie along."""
        if self.row.shape[1] == 1:
            return "channels"
        return "time" if self.slot_time.shape[1] > 1 else "rows"


class Nodes(NamedTuple):
    """The places in integrations and channels whose mean a smeared visibility is: `smearing.average`.

    Without smearing there is one, in the middle. Node k is at time k // n_freq and frequency k % n_freq.
    """

    weight: NDArray[np.float64]  # (n_time n_freq,)
    antenna_uvw: NDArray[np.float64]  # (n_time, ...): as in Lanes
    uvw: NDArray[np.float64]  # (n_time, ...)
    scale: NDArray[np.float64]  # (n_freq, ...)


def one_node(lanes: Lanes) -> Nodes:
    """The middle of integrations and channels, where visibilities are that are not smeared."""
    return Nodes(np.ones(1), lanes.antenna_uvw[None], lanes.uvw[None], lanes.scale[None])


class _Cut(NamedTuple):
    """One possible arrangement of the rows in lanes."""

    slot_time: NDArray[np.int64]  # as in Lanes
    slot: NDArray[np.int64]  # (n_entry,), ascending
    row: NDArray[np.int64]  # as in Lanes
    n_block: int


def make_lanes(fixed: Constants, n: int, factored: bool, folder: str | None = None) -> Lanes:
    """Choose the arrangement with the least work, and copy rows and data into its order.

    Data lie in a file of the folder, where one is given.
    """
    cut = _cheapest(fixed, n, factored)
    n_chan = fixed.chan_freq.size
    if cut.row.shape[1] == 1:
        chan = np.arange(cut.n_block * n).reshape(-1, n)
    else:
        chan = np.repeat(np.arange(n_chan)[:, None], n, axis=1)
    freq = fixed.chan_freq[np.minimum(chan, n_chan - 1)]
    chan = np.where(chan < n_chan, chan, -1)
    used = np.maximum(cut.row, 0)
    antenna = np.stack([fixed.antenna1[used], fixed.antenna2[used]], axis=1).astype(np.int64)
    if factored:
        # Lanes without a row have the baseline of the others.
        some = np.argmax(cut.row >= 0, axis=1)
        antenna = np.take_along_axis(antenna, some[:, None, None], axis=2)
    n_slot = len(cut.slot_time)
    antenna_uvw = (
        fixed.antenna_uvw[cut.slot_time].transpose(0, 2, 3, 1) if factored else np.zeros((1, 1, 3, 1))
    )
    return Lanes(
        np.searchsorted(cut.slot, np.arange(n_slot + 1)).astype(np.int64),
        cut.slot_time,
        copied(antenna_uvw, np.float64),
        cut.row,
        antenna,
        copied(np.where(cut.row[:, None] >= 0, fixed.uvw[used].transpose(0, 2, 1), 0.0), np.float64),
        chan,
        copied(freq / SPEED_OF_LIGHT, np.float64),
        _data(fixed, cut.row, chan, folder),
    )


def _cheapest(fixed: Constants, n: int, factored: bool) -> _Cut:
    n_antenna = fixed.antenna_uvw.shape[1]
    cuts = [_along_channels(fixed, n), _along_time(fixed, n) if factored else _along_rows(fixed, n)]

    def cost(cut: _Cut) -> float:
        terms = _TERM_COST * n_antenna * len(cut.slot_time) if factored else 0.0
        return cut.n_block * (len(cut.row) + terms)

    return min(cuts, key=cost)


def _along_channels(fixed: Constants, n: int) -> _Cut:
    p, q, time = fixed.antenna1, fixed.antenna2, fixed.time_index
    order = np.lexsort((q, p, q // _SQUARE, p // _SQUARE, time)).astype(np.int64)
    slot_time = np.arange(fixed.antenna_uvw.shape[0])[:, None]
    return _Cut(slot_time, time[order].astype(np.int64), order[:, None], -(-fixed.chan_freq.size // n))


def _along_time(fixed: Constants, n: int) -> _Cut:
    n_time, n_antenna = fixed.antenna_uvw.shape[:2]
    p, q, time = (x.astype(np.int64) for x in (fixed.antenna1, fixed.antenna2, fixed.time_index))
    again = _place_in_run((time * n_antenna + p) * n_antenna + q)
    keys = np.stack([again, q, p, q // _SQUARE, p // _SQUARE, time // n])
    order = np.lexsort(keys)
    is_new = np.any(np.diff(keys[:, order], axis=1, prepend=-1) != 0, axis=0)
    entry = np.cumsum(is_new) - 1
    row = np.full((entry[-1] + 1, n), -1, np.int64)
    row[entry, time[order] % n] = order
    slot_time = np.arange(-(-n_time // n) * n).reshape(-1, n)
    return _Cut(np.minimum(slot_time, n_time - 1), time[order][is_new] // n, row, fixed.chan_freq.size)


def _along_rows(fixed: Constants, n: int) -> _Cut:
    time = fixed.time_index.astype(np.int64)
    order = np.argsort(time, kind="stable")
    lane = _place_in_run(time)[order] % n
    entry = np.cumsum(lane == 0) - 1
    row = np.full((entry[-1] + 1, n), -1, np.int64)
    row[entry, lane] = order
    slot_time = np.arange(fixed.antenna_uvw.shape[0])[:, None]
    return _Cut(slot_time, time[order][lane == 0], row, fixed.chan_freq.size)


def _place_in_run(code: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each element, the number of equal elements before it."""
    order = np.argsort(code, kind="stable")
    sorted_code = code[order]
    place = np.empty(code.size, np.int64)
    place[order] = np.arange(code.size) - np.searchsorted(sorted_code, sorted_code)
    return place


def _data(
    fixed: Constants, row: NDArray[np.int64], chan: NDArray[np.int64], folder: str | None
) -> NDArray[np.floating]:
    """Real and imaginary part of the data, weight, both parts of each template, in the order of the lanes.

    0 where there is no row or channel, and data where there are none.
    """
    real, n_corr, n_template = fixed.weight.dtype, fixed.matrix.shape[0], len(fixed.template)
    shape = fixed.uvw.shape[0], fixed.chan_freq.size, n_corr
    if fixed.vis.shape != shape and not n_template:
        return aligned((1, 1, 1, 1, 1), real)
    weight, vis = np.broadcast_to(fixed.weight, shape), np.broadcast_to(fixed.vis, shape)
    size = chan.shape[0], row.shape[0], n_corr, 3 + 2 * n_template, chan.shape[1]
    out = aligned(size, real) if folder is None else mapped(size, real, folder)
    for target, laid_out in _parts(row, chan, out):
        for k, each in enumerate((vis, *fixed.template)):
            values, first = laid_out(each), 2 * k + (k > 0)
            target[..., first, :], target[..., first + 1, :] = values.real, values.imag
        target[..., 2, :] = laid_out(weight)
    return out


def _parts(
    row: NDArray[np.int64], chan: NDArray[np.int64], out: NDArray[np.generic]
) -> Iterator[tuple[NDArray[np.generic], Callable[[NDArray[np.generic]], NDArray[np.generic]]]]:
    """Parts of `out`, each with what brings values (n_row, n_chan, n_corr) into the order of its lanes."""
    step = max(1, _COPY_BYTES // out[:, 0].nbytes)
    for start in range(0, row.shape[0], step):
        rows, chans = row[start : start + step], chan[:, None]
        exists = ((rows >= 0) & (chans >= 0))[..., None]
        places = np.maximum(rows, 0), np.maximum(chans, 0)

        def laid_out(
            values: NDArray[np.generic],
            exists: NDArray[np.bool_] = exists,
            places: tuple[NDArray[np.int64], NDArray[np.int64]] = places,
        ) -> NDArray[np.generic]:
            return np.moveaxis(np.where(exists, values[places], 0), -1, -2)

        yield out[:, start : start + step], laid_out


def with_data(lanes: Lanes, vis: NDArray[np.complexfloating]) -> Lanes:
    """Lanes of the same rows with other data (n_row, n_chan, n_corr)."""
    out = copied(lanes.data, lanes.data.dtype)
    for target, laid_out in _parts(lanes.row, lanes.chan, out):
        values = laid_out(vis)
        target[..., 0, :], target[..., 1, :] = values.real, values.imag
    return lanes._replace(data=out)


def aligned(shape: tuple[int, ...], dtype: type[T] | np.dtype[T]) -> NDArray[T]:
    """Zeros that begin where a cache line does: a vector that lies across two lines is read twice.

    Large ones lie in large pages of memory where the system has them: loops that read all data once for each
    call wait for the addresses of small pages as long as for the data.
    """
    size, step = math.prod(shape) * np.dtype(dtype).itemsize, 64
    if size >= _LARGE and hasattr(mmap, "MADV_HUGEPAGE"):
        step = _PAGE
        n_byte = (-(-size // step) + 1) * step  # whole pages from the first that begins in it
        pages = mmap.mmap(-1, n_byte, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # a system without large pages
            pages.madvise(mmap.MADV_HUGEPAGE)
        raw: NDArray[np.uint8] = np.frombuffer(pages, np.uint8)
    else:
        raw = np.zeros(size + step, np.uint8)
    start = -raw.__array_interface__["data"][0] % step  # sooner told than `ctypes.data`
    return raw[start : start + size].view(dtype).reshape(shape)


def copied(values: NDArray[np.generic], dtype: type[T] | np.dtype[T]) -> NDArray[T]:
    """A contiguous copy that begins where a cache line does."""
    out = aligned(values.shape, dtype)
    out[...] = values
    return out
