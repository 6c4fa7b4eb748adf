"""Data and weights on the device: there for good where they fit, streamed slab by slab where not."""

from __future__ import annotations

from typing import Any

from rime_kernels import device
from rime_kernels._inputs import Constants
from rime_kernels._launch_cuda import Layout, Slab

# Bytes of rows that are uploaded at a time to be laid out.
_ARRANGE_BYTES = 256 << 20


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
        self.slabs = [whole] if self.resident else _cut(layout, budget // (2 * self._item_bytes))
        self._sizes = [layout.n_datum(slab) for slab in self.slabs]
        n_buffer = 1 if self.resident else 2
        self._buffers = [self._empty(max(self._sizes)) for _ in range(n_buffer)]
        self._host: list[list[Any]] = []
        self._fill(fixed, layout)

    def load(self, i: int, stream: Any) -> tuple[Any, Any]:
        """Data and weights of slab i on the device, once the stream gets there."""
        vis, weight = self._views(self._buffers[i % len(self._buffers)], self._sizes[i])
        if not self.resident:
            for buffer, host in zip((vis, weight), self._host[i], strict=True):
                buffer.copy_to_device(host, stream=stream)
        return vis, weight

    def _fill(self, fixed: Constants, layout: Layout) -> None:
        """Lay every slab out, on the device, from parts that fit there."""
        for i, slab in enumerate(self.slabs):
            vis, weight = self._views(self._buffers[i % len(self._buffers)], self._sizes[i])
            first = 0
            for part in _cut(layout, _ARRANGE_BYTES // self._item_bytes, slab.unit):
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


def _cut(layout: Layout, n_datum: int, unit: slice | None = None) -> list[Slab]:
    """Slabs of at most so many data each, or of the smallest size there is."""
    unit = unit or slice(0, layout.n_unit)
    step = max(1, int(layout.n_unit * n_datum / max(1, layout.n_datum(layout.slab(0, layout.n_unit)))))
    step = max(1, step // layout.unit_step) * layout.unit_step
    starts = range(unit.start, unit.stop, step)
    slabs = [layout.slab(first, min(first + step, unit.stop)) for first in starts]
    return [slab for slab in slabs if slab.place.stop > slab.place.start]
