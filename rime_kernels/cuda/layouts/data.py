"""Data, weights and templates on the device: kept there if they fit, else streamed slab by slab."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from rime_kernels import device
from rime_kernels.compile.types import DeviceArray, Stream
from rime_kernels.cuda.kernels.arguments import DataColumns
from rime_kernels.cuda.layouts.launch import Layout, Slab
from rime_kernels.inputs import Constants

# Bytes of rows that are uploaded at a time to be laid out, and the share of the data's budget beside the data
# that they may take: no more than the work has, which is not there yet.
_ARRANGE_BYTES = 256 << 20
_ARRANGE_SHARE = 1 / 3


# An array of bytes, of the host or the device.
Bytes: TypeAlias = Any


class Data:
    """Data, weights and templates of a layout, in slabs.

    Where all of it fits into `budget` bytes there is one slab, laid out on the device for good. Otherwise
    rows stay in pinned memory of the host, and `load` brings those of a slab into one of two buffers
    and lays them out, on the stream that will read them: while one slab is summed the next comes. Without
    `pinned` they come from where they lie, as in files that are mapped into memory, which takes longer.
    """

    def __init__(self, fixed: Constants, layout: Layout, budget: int, *, pinned: bool = True) -> None:
        whole = layout.slab(0, layout.n_unit)
        self.layout, self.pinned = layout, pinned
        self._values = [fixed.vis, fixed.weight, *fixed.template]
        self._item_bytes = sum(each.dtype.itemsize for each in self._values)
        self.n_byte = self.size(fixed, layout)
        self.resident = self.n_byte <= budget
        if self.resident:
            self.slabs = [whole]
            self._columns = [self._buffer(layout.n_datum(whole))]
            part_bytes = min(_ARRANGE_BYTES, int(_ARRANGE_SHARE * budget))
            self._fill(part_bytes // self._item_bytes)
        else:
            self._stream_rows(budget // (2 * self._item_bytes), pinned)
        del self._values

    @staticmethod
    def size(fixed: Constants, layout: Layout) -> int:
        """Bytes that data, weights and templates of a layout take in all."""
        item_bytes = sum(each.dtype.itemsize for each in (fixed.vis, fixed.weight, *fixed.template))
        return layout.n_datum(layout.slab(0, layout.n_unit)) * item_bytes

    def load(self, i: int, stream: Stream) -> DataColumns:
        """What there is of slab i on the device, laid out, once the stream gets there."""
        if not self.resident:
            copies, parts = self._ways[i]
            for host, there in copies:
                there.copy_to_device(host, stream=stream)
            for k, (rows, out) in enumerate(parts):
                self.layout.arrange(self.slabs[i], rows, out, stream, turned=_turned(k))
        return self._columns[i]

    def _fill(self, n_datum: int) -> None:
        """Lay everything out, from parts of at most so many data."""
        first = 0
        for part in cut(self.layout, self.slabs[0].unit, self.layout.n_datum, n_datum):
            n = self.layout.n_datum(part)
            for k, out in enumerate(self._parts(self._columns[0], first, n)):
                rows = device.upload(self._values[k][part.place])
                self.layout.arrange(part, rows, out, 0, turned=_turned(k))
            first += n

    def _stream_rows(self, limit: int, pinned: bool) -> None:
        """Pin the rows of each slab, and make the two buffers; a slab and its rows are within the limit.

        All values of pinned rows lie in one block, which takes one transfer.
        """
        n_each = self._values[0].shape[1] * self._values[0].shape[2]

        def size(slab: Slab) -> int:
            return self.layout.n_datum(slab) + n_each * (slab.place.stop - slab.place.start)

        self.slabs = cut(self.layout, slice(0, self.layout.n_unit), size, limit)
        sizes = [self.layout.n_datum(slab) for slab in self.slabs]
        n_rows = [slab.place.stop - slab.place.start for slab in self.slabs]
        n_byte = max(n_rows) * n_each * self._item_bytes
        buffers = [self._buffer(max(sizes)) for _ in range(2)]
        blocks = [device.empty((n_byte,), np.uint8) for _ in range(2)]
        # Views are made once: each takes as long as a launch.
        self._columns = [buffers[i % 2] for i in range(len(sizes))]
        self._ways = []
        for i, (slab, n, n_row) in enumerate(zip(self.slabs, sizes, n_rows, strict=True)):
            host = [x[slab.place] for x in self._values]
            rows = self._rows_in(blocks[i % 2], n_row)
            copies = list(zip(host, rows, strict=True))
            if pinned:
                block = np.empty(n_row * n_each * self._item_bytes, np.uint8)
                for into, values in zip(self._rows_in(block, n_row), host, strict=True):
                    into[...] = values
                copies = [(device.pinned_copy(block), blocks[i % 2][: block.size])]
            self._ways.append((copies, list(zip(rows, self._parts(buffers[i % 2], 0, n), strict=True))))

    def _rows_in(self, block: Bytes, n_row: int) -> list[Bytes]:
        """Where values of so many rows lie in a block of bytes: large ones first, so that all are aligned."""
        shape, found, first = (n_row, *self._values[0].shape[1:]), {}, 0
        for k in sorted(range(len(self._values)), key=lambda k: -self._values[k].dtype.itemsize):
            dtype = self._values[k].dtype
            stop = first + math.prod(shape) * dtype.itemsize
            found[k], first = block[first:stop].view(dtype).reshape(shape), stop
        return [found[k] for k in range(len(self._values))]

    def _buffer(self, n: int) -> DataColumns:
        """Columns for n data, their content undefined."""
        vis, weight, *template = (x.dtype for x in self._values)
        templates = device.empty((max(1, len(template) * n),), vis)
        return DataColumns(
            device.empty((n,), vis), device.empty((n,), weight), templates, n if template else 0
        )

    def _parts(self, columns: DataColumns, first: int, n: int) -> list[DeviceArray]:
        """Where n data from `first` on lie: those of each of the values."""
        starts = [first + t * columns.stride for t in range(len(self._values) - 2)]
        return [
            *(x[first : first + n] for x in (columns.vis, columns.weight)),
            *(columns.template[start : start + n] for start in starts),
        ]


class DataByLayout:
    """Data of each arrangement that calls have asked for, as far as memory is there.

    Attributes
    ----------
    budget : int
        Bytes that they may take together.
    held : dict of Data
        By `arrangement` of their layout.
    """

    def __init__(self, budget: int, *, pinned: bool) -> None:
        self.budget, self._pinned = budget, pinned
        self.held: dict[object, Data] = {}

    def of(self, fixed: Constants, layout: Layout) -> tuple[Data, bool]:
        """Data for this layout, and whether those of others made room for them."""
        if layout.arrangement in self.held:
            return self.held[layout.arrangement], False
        others_go = bool(self.held) and Data.size(fixed, layout) > self._rest
        if others_go:
            self.clear()
        data = Data(fixed, layout, self._rest, pinned=self._pinned)
        self.held[layout.arrangement] = data
        return data, others_go

    def limit(self, budget: int) -> None:
        """Give them this budget; all are given back where they take more."""
        self.budget = budget
        if self._rest < 0:
            self.clear()

    def clear(self) -> None:
        """Give all of them back."""
        self.held.clear()

    @property
    def _rest(self) -> int:
        return self.budget - sum(each.n_byte for each in self.held.values())


def _turned(k: int) -> float:
    """Weights say by their sign that antennas have changed sides."""
    return -1.0 if k == 1 else 1.0


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
