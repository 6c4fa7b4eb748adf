"""Transfer visibilities and images between host and GPU, batch after batch, while kernels run."""

from __future__ import annotations

import numpy as np
from numba import prange
from numpy.typing import DTypeLike, NDArray

from rime_kernels import device
from rime_kernels.compile.call_lock import locked
from rime_kernels.compile.jit import loop
from rime_kernels.compile.types import Array, DeviceArray, Stream
from rime_kernels.errors import BackendError
from rime_kernels.gridding.cuda.items import FIRST_CHAN, FIRST_ROW, N_CHAN, N_ROW

# While kernels work on one batch, another is being transferred, and the host fills or empties a third.
N_BUFFER = 3
# Bytes of the pieces in which images travel, and of a page of the host's memory.
_PIECE, _PAGE = 16 << 20, 4096


class Images:
    """Copies images to the device and back, piece by piece through page-locked memory.

    All threads of the host copy and convert: from plain memory transfers have a tenth of the bus's speed.

    Parameters
    ----------
    stream : stream
        Of the kernels that come before or after.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._free = [device.cuda.event() for _ in range(2)]
        self._host: dict[np.dtype[np.floating], list[NDArray[np.floating]]] = {}

    def send(self, host: NDArray[np.float64], there: DeviceArray) -> None:
        """Copy to a device array as large, in its type."""
        pieces, flat, into = self._pieces(there.dtype, host.size), host.reshape(-1), there.reshape(host.size)
        for i, (first, stop) in enumerate(pieces):
            buffer = self._buffer(there.dtype, i)
            if i > 1:
                self._free[i % 2].synchronize()
            copy(flat[first:stop], buffer)
            into[first:stop].copy_to_device(buffer[: stop - first], stream=self._stream)
            self._free[i % 2].record(self._stream)
        self._stream.synchronize()

    def fetch(self, there: DeviceArray, host: NDArray[np.float64]) -> None:
        """Copy from a device array as large, once the kernels launched so far are done."""
        pieces, flat, source = (
            self._pieces(there.dtype, host.size),
            host.reshape(-1),
            there.reshape(host.size),
        )
        for i, (first, stop) in enumerate([*pieces, (host.size, host.size)]):
            if first < stop:
                buffer = self._buffer(there.dtype, i)
                source[first:stop].copy_to_host(buffer[: stop - first], stream=self._stream)
                self._free[i % 2].record(self._stream)
            if i:
                self._free[(i - 1) % 2].synchronize()
                before, end = pieces[i - 1]
                copy(self._buffer(there.dtype, i - 1)[: end - before], flat[before:end])

    def _pieces(self, dtype: np.dtype[np.floating], size: int) -> list[tuple[int, int]]:
        step = _PIECE // dtype.itemsize
        return [(first, min(first + step, size)) for first in range(0, size, step)]

    def _buffer(self, dtype: np.dtype[np.floating], i: int) -> NDArray[np.floating]:
        if dtype not in self._host:
            self._host[dtype] = [_pinned(_PIECE // dtype.itemsize, dtype) for _ in range(2)]
        return self._host[dtype][i % 2]


def _pinned(size: int, dtype: DTypeLike) -> NDArray[np.floating]:
    """A flat array of the host in page-locked memory, which transfers need not copy first."""
    try:
        host: NDArray[np.floating] = device.cuda.pinned_array(size, dtype)
    except Exception as error:
        raise BackendError("the host has too little memory that can be page-locked for transfers") from error
    return host


class Buffers:
    """Page-locked buffers of the host and as many on the device, used in turn, with a stream for transfers.

    Parameters
    ----------
    n_vis, n_corr : int
        Of the largest batch.
    kind : type
        float32 or float64.
    work : stream
        Of the kernels.
    """

    def __init__(self, n_vis: int, n_corr: int, kind: type, work: Stream) -> None:
        self.shape, self._size = (n_vis, n_corr), 2 * n_vis * n_corr
        self._host = [_pinned(self._size, kind) for _ in range(N_BUFFER)]
        self._device = [device.empty((self._size,), kind) for _ in range(N_BUFFER)]
        self._work, self._bus = work, device.streams(1)[0]
        self._ready, self._moved = ([device.cuda.event() for _ in range(N_BUFFER)] for _ in range(2))

    def host(self, i: int, n: int) -> NDArray[np.floating]:
        """Real and imaginary parts of the first n on the host's side of buffer i mod N_BUFFER, flat."""
        return self._host[i % N_BUFFER][: 2 * n * self.shape[1]]

    def on_device(self, i: int, n: int) -> DeviceArray:
        """The device's side."""
        return self._device[i % N_BUFFER][: 2 * n * self.shape[1]]

    def send(self, i: int, n: int) -> None:
        """Copy to the device; the kernels that come wait for it."""
        self.on_device(i, n).copy_to_device(self.host(i, n), stream=self._bus)
        self._moved[i % N_BUFFER].record(self._bus)
        self._moved[i % N_BUFFER].wait(self._work)

    def used(self, i: int) -> None:
        """Mark that no kernel after those launched so far needs the buffer."""
        self._ready[i % N_BUFFER].record(self._work)

    def wait_until_used(self, i: int) -> None:
        """Wait for these kernels; the buffer can then be filled again."""
        self._ready[i % N_BUFFER].synchronize()

    def fetch(self, i: int, n: int) -> None:
        """Copy to the host, after the kernels launched so far."""
        self._ready[i % N_BUFFER].record(self._work)
        self._ready[i % N_BUFFER].wait(self._bus)
        self.on_device(i, n).copy_to_host(self.host(i, n), stream=self._bus)
        self._moved[i % N_BUFFER].record(self._bus)

    def wait_until_fetched(self, i: int) -> None:
        """Wait for the copy."""
        self._moved[i % N_BUFFER].synchronize()


@locked
@loop
def copy(source: Array, into: Array) -> None:
    """Copy the numbers of one flat array to the beginning of another, converting them."""
    for i in prange(source.size):
        into[i] = source[i]


@locked
@loop
def touch(values: Array) -> None:
    """Write to each page of a flat array: all threads in order get memory faster than in no order."""
    step = max(1, _PAGE // values.itemsize)
    for i in prange(-(-values.size // step)):
        values[i * step] = 0


@locked
@loop
def scatter(
    found: Array, items: Array, start: Array, order: Array, first: int, stop: int, n_each: int, vis: Array
) -> None:
    """Copy the visibilities of items first ... stop - 1, one item behind the other, to their rows.

    `found` and `vis` (n_row, numbers of a row) hold real and imaginary parts, `n_each` of a channel. `items`
    is the table of items, `start` where the visibilities of each begin, `order` the rows' numbers.
    """
    for item in prange(first, stop):
        offset, row = (start[item] - start[first]) * n_each, items[item, FIRST_ROW]
        chan, n = items[item, FIRST_CHAN], items[item, N_CHAN] * n_each
        for k in range(items[item, N_ROW]):
            here, there = found[offset + k * n : offset + (k + 1) * n], vis[order[row + k], chan * n_each :]
            for j in range(n):
                there[j] = here[j]


@locked
@loop
def gather(
    vis: Array, weight: Array, has_weight: bool, items: Array, start: Array, order: Array, first: int,
    stop: int, n_each: int, out: Array,
) -> None:  # fmt: skip
    """Copy the visibilities of rows to items, as `scatter` reversed; times weights where `has_weight`."""
    for item in prange(first, stop):
        offset, row = (start[item] - start[first]) * n_each, items[item, FIRST_ROW]
        chan, n = items[item, FIRST_CHAN], items[item, N_CHAN] * n_each
        for k in range(items[item, N_ROW]):
            here, there = out[offset + k * n : offset + (k + 1) * n], vis[order[row + k], chan * n_each :]
            if has_weight:
                w = weight[order[row + k], chan * (n_each // 2) :]
                for j in range(n // 2):
                    # What has no weight may be NaN.
                    here[2 * j] = w[j] * there[2 * j] if w[j] > 0.0 else 0.0
                    here[2 * j + 1] = w[j] * there[2 * j + 1] if w[j] > 0.0 else 0.0
            else:
                for j in range(n):
                    here[j] = there[j]


def largest(vis: NDArray[np.floating], weight: NDArray[np.floating], has_weight: bool) -> float:
    """The largest of real and imaginary parts (n_row, numbers of a row), times their weights, without sign.

    What has no weight counts for nothing; NaN if any other is NaN.
    """
    found = np.empty(vis.shape[0])
    _fill_largest(vis, weight, has_weight, found)
    return float(found.max())


@locked
@loop
def _fill_largest(vis: Array, weight: Array, has_weight: bool, found: Array) -> None:
    for row in prange(vis.shape[0]):
        most = 0.0
        for k in range(vis.shape[1]):
            w = weight[row, k // 2] if has_weight else 1.0
            if w > 0.0:
                value = w * abs(vis[row, k])
                if value > most or value != value:
                    most = value
        found[row] = most
