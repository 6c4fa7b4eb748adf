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

    Where all of it fits into `budget` bytes there is one slab, laid out on the device for good. Otherwise
    rows stay in pinned memory of the host, and `load` brings those of a slab into one of two buffers
    and lays them out, on the stream that will read them: while one slab is summed the next comes.
    """

    def __init__(self, fixed: Constants, layout: Layout, budget: int) -> None:
        whole = layout.slab(0, layout.n_unit)
        self._layout, self._types = layout, (fixed.vis.dtype, fixed.weight.dtype)
        self._item_bytes = sum(dtype.itemsize for dtype in self._types)
        self.n_byte = layout.n_datum(whole) * self._item_bytes
        self.resident = self.n_byte <= budget
        if self.resident:
            self.slabs = [whole]
            self._laid_out = [self._empty((layout.n_datum(whole),))]
            part_bytes = min(_ARRANGE_BYTES, int(_ARRANGE_SHARE * budget))
            self._fill(fixed, part_bytes // self._item_bytes)
        else:
            self._stream_rows(fixed, budget // (2 * self._item_bytes))

    def load(self, i: int, stream: Any) -> tuple[Any, Any]:
        """Data and weights of slab i on the device, laid out, once the stream gets there."""
        vis, weight = self._laid_out[i]
        if not self.resident:
            rows_vis, rows_weight = self._rows[i]
            for rows, host in zip((rows_vis, rows_weight), self._host[i], strict=True):
                rows.copy_to_device(host, stream=stream)
            self._layout.arrange(self.slabs[i], rows_vis, rows_weight, vis, weight, stream)
        return vis, weight

    def _fill(self, fixed: Constants, n_datum: int) -> None:
        """Lay everything out, from parts of at most so many data."""
        (vis, weight), first = self._laid_out[0], 0
        for part in cut(self._layout, self.slabs[0].unit, self._layout.n_datum, n_datum):
            n = self._layout.n_datum(part)
            rows_vis, rows_weight = (device.upload(x[part.place]) for x in (fixed.vis, fixed.weight))
            into = vis[first : first + n], weight[first : first + n]
            self._layout.arrange(part, rows_vis, rows_weight, into[0], into[1], 0)
            first += n

    def _stream_rows(self, fixed: Constants, limit: int) -> None:
        """Pin the rows of each slab, and make the two buffers; a slab and its rows are within the limit."""
        n_each = fixed.vis.shape[1] * fixed.vis.shape[2]

        def size(slab: Slab) -> int:
            return self._layout.n_datum(slab) + n_each * (slab.place.stop - slab.place.start)

        self.slabs = cut(self._layout, slice(0, self._layout.n_unit), size, limit)
        self._host = [
            [device.pinned_copy(x[slab.place]) for x in (fixed.vis, fixed.weight)] for slab in self.slabs
        ]
        sizes = [self._layout.n_datum(slab) for slab in self.slabs]
        shapes = [host[0].shape for host in self._host]
        longest = max(shape[0] for shape in shapes)
        laid_out = [self._empty((max(sizes),)) for _ in range(2)]
        rows = [self._empty((longest, *shapes[0][1:])) for _ in range(2)]
        # Views are made once: each takes as long as a launch.
        self._laid_out = [[x[:n] for x in laid_out[i % 2]] for i, n in enumerate(sizes)]
        self._rows = [[x[: shape[0]] for x in rows[i % 2]] for i, shape in enumerate(shapes)]

    def _empty(self, shape: tuple[int, ...]) -> list[Any]:
        return [device.empty(shape, dtype) for dtype in self._types]


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
