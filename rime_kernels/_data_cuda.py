"""Data and weights on the device: there for good where they fit, streamed slab by slab where not."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from rime_kernels import device
from rime_kernels._inputs import Constants
from rime_kernels._launch_cuda import Layout, Slab

# Bytes of rows that are uploaded at a time to be laid out, and the share of the data's budget beside the data
# that they may take: no more than the work has, which is not there yet.
_ARRANGE_BYTES = 256 << 20
_ARRANGE_SHARE = 1 / 3


class Data:
    """Data and weights of a layout, in slabs.

    Where all of it fits into `budget` bytes there is one slab, on the device. Otherwise it stays in
    pinned memory of the host, and `load` brings a slab into one of two buffers, on the stream
    that will read it: while one slab is summed the next comes.
    """

    def __init__(self, fixed: Constants, layout: Layout, budget: int) -> None:
        whole = layout.slab(0, layout.n_unit)
        self._types = fixed.vis.dtype, fixed.weight.dtype
        self._item_bytes = sum(dtype.itemsize for dtype in self._types)
        self.n_byte = layout.n_datum(whole) * self._item_bytes
        self.resident = self.n_byte <= budget
        half = budget // (2 * self._item_bytes)
        self.slabs = [whole] if self.resident else cut(layout, whole.unit, layout.n_datum, half)
        self._sizes = [layout.n_datum(slab) for slab in self.slabs]
        n_buffer = 1 if self.resident else 2
        self._buffers = [self._empty(max(self._sizes)) for _ in range(n_buffer)]
        self._host: list[list[Any]] = []
        self._fill(fixed, layout, min(_ARRANGE_BYTES, int(_ARRANGE_SHARE * budget)) // self._item_bytes)

    def load(self, i: int, stream: Any) -> tuple[Any, Any]:
        """Data and weights of slab i on the device, once the stream gets there."""
        vis, weight = self._views(self._buffers[i % len(self._buffers)], self._sizes[i])
        if not self.resident:
            for buffer, host in zip((vis, weight), self._host[i], strict=True):
                buffer.copy_to_device(host, stream=stream)
        return vis, weight

    def _fill(self, fixed: Constants, layout: Layout, n_datum: int) -> None:
        """Lay every slab out, on the device, from parts of at most so many data."""
        for i, slab in enumerate(self.slabs):
            vis, weight = self._views(self._buffers[i % len(self._buffers)], self._sizes[i])
            first = 0
            for part in cut(layout, slab.unit, layout.n_datum, n_datum):
                n = layout.n_datum(part)
                rows = [device.upload(value[part.place]) for value in (fixed.vis, fixed.weight)]
                into = vis[first : first + n], weight[first : first + n]
                layout.arrange(part, rows[0], rows[1], *into)
                first += n
            if not self.resident:
                self._host.append([device.pinned_copy(value) for value in (vis, weight)])

    def _empty(self, size: int) -> list[Any]:
        return [device.empty(max(1, size), dtype) for dtype in self._types]

    def _views(self, arrays: list[Any], size: int) -> tuple[Any, Any]:
        vis, weight = (array if array.size == size else array[:size] for array in arrays)
        return vis, weight


def cut(layout: Layout, unit: slice, size: Callable[[Slab], float], limit: float) -> list[Slab]:
    """Slabs of these units, each of at most this size or as small as there are; none without rows.

    `size` must not fall when a slab grows at its end. Rows may be crowded in few of the units.
    """

    def upto(stop: int) -> Slab:
        return layout.slab(first, min(stop, unit.stop))

    slabs, first, step = [], unit.start, layout.unit_step
    while first < unit.stop:
        stops = range(first + step, unit.stop + step, step)
        n_fitting = bisect_right(stops, limit, key=lambda stop: size(upto(stop)))
        slabs.append(upto(stops[max(0, n_fitting - 1)]))
        first = slabs[-1].unit.stop
    return [slab for slab in slabs if slab.place.stop > slab.place.start]
