"""Visibilities on their way between the host and the device, batch after batch, beside the kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from numba import prange

from rime_kernels import device
from rime_kernels._jit import loop
from rime_kernels.errors import BackendError
from rime_kernels.idg._tasks_cuda import FIRST_CHAN, FIRST_ROW, N_CHAN, N_ROW

# While one batch is worked on, another is on the bus, and the host fills or empties a third.
N_BUFFER = 3


class Buffers:
    """Pinned buffers of the host and as many on the device, used in turn, on a stream for transfers alone.

    Parameters
    ----------
    n_vis, n_corr : int
        Of the largest batch.
    kind : type
        complex64 or complex128.
    work : stream
        Of the kernels.
    """

    def __init__(self, n_vis: int, n_corr: int, kind: type, work: Any) -> None:
        self.shape, self.kind = (n_vis, n_corr), kind
        try:
            self._host = [device.cuda.pinned_array(self.shape, kind) for _ in range(N_BUFFER)]
        except Exception as error:
            raise BackendError("the host has no memory to pin for visibilities on their way") from error
        self._device = [device.empty(self.shape, kind) for _ in range(N_BUFFER)]
        self._work, self._bus = work, device.streams(1)[0]
        self._ready, self._moved = ([device.cuda.event() for _ in range(N_BUFFER)] for _ in range(2))

    def host(self, i: int, n: int) -> Any:
        """Real and imaginary parts of the first n on the host's side of buffer i mod N_BUFFER, flat."""
        whole = self._host[i % N_BUFFER]
        return whole.view(whole.real.dtype).ravel()[: 2 * n * self.shape[1]]

    def on_device(self, i: int, n: int) -> Any:
        """The device's side."""
        return self._device[i % N_BUFFER][:n]

    def send(self, i: int, n: int) -> None:
        """Copy to the device; the kernels that come wait for it."""
        self.on_device(i, n).copy_to_device(self._host[i % N_BUFFER][:n], stream=self._bus)
        self._moved[i % N_BUFFER].record(self._bus)
        self._moved[i % N_BUFFER].wait(self._work)

    def used(self, i: int) -> None:
        """Say that the kernels launched so far are the last that need the buffer."""
        self._ready[i % N_BUFFER].record(self._work)

    def wait_until_used(self, i: int) -> None:
        """Wait until those are done: then the buffer can be filled anew."""
        self._ready[i % N_BUFFER].synchronize()

    def fetch(self, i: int, n: int) -> None:
        """Copy to the host what the kernels launched so far leave."""
        self._ready[i % N_BUFFER].record(self._work)
        self._ready[i % N_BUFFER].wait(self._bus)
        self.on_device(i, n).copy_to_host(self._host[i % N_BUFFER][:n], stream=self._bus)
        self._moved[i % N_BUFFER].record(self._bus)

    def wait_until_fetched(self, i: int) -> None:
        """Wait for the copy."""
        self._moved[i % N_BUFFER].synchronize()


@functools.cache
def make_scatter() -> Callable[..., None]:
    """Copy the visibilities of items first ... stop - 1, one item behind the other, to their rows.

    `found` and `vis` (n_row, numbers of a row) hold real and imaginary parts, `n_each` of a channel. `items`
    is the table of items, `start` where the visibilities of each begin, `order` the rows' numbers.
    """

    @loop
    def scatter(
        found: Any, items: Any, start: Any, order: Any, first: int, stop: int, n_each: int, vis: Any
    ) -> None:
        for item in prange(first, stop):
            at, row = (start[item] - start[first]) * n_each, items[item, FIRST_ROW]
            chan, n = items[item, FIRST_CHAN], items[item, N_CHAN] * n_each
            for k in range(items[item, N_ROW]):
                here, there = found[at + k * n : at + (k + 1) * n], vis[order[row + k], chan * n_each :]
                for j in range(n):
                    there[j] = here[j]

    return scatter


@functools.cache
def make_gather() -> Callable[..., None]:
    """The other way round, times weights (n_row, half as many) where `has_weight`."""

    @loop
    def gather(
        vis: Any, weight: Any, has_weight: bool, items: Any, start: Any, order: Any, first: int, stop: int,
        n_each: int, out: Any,
    ) -> None:  # fmt: skip
        for item in prange(first, stop):
            at, row = (start[item] - start[first]) * n_each, items[item, FIRST_ROW]
            chan, n = items[item, FIRST_CHAN], items[item, N_CHAN] * n_each
            for k in range(items[item, N_ROW]):
                here, there = out[at + k * n : at + (k + 1) * n], vis[order[row + k], chan * n_each :]
                if has_weight:
                    w = weight[order[row + k], chan * (n_each // 2) :]
                    for j in range(n // 2):
                        # What has no weight may be NaN.
                        here[2 * j] = w[j] * there[2 * j] if w[j] > 0.0 else 0.0
                        here[2 * j + 1] = w[j] * there[2 * j + 1] if w[j] > 0.0 else 0.0
                else:
                    for j in range(n):
                        here[j] = there[j]

    return gather
