"""Add up the records of units on the device, in float64 and in an order that does not depend on slabs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.types import DeviceArray, Stream
from rime_kernels.cuda.kernels import moments as parts

# Totals that are worth a thread each, and the most groups that units are summed in to have so many.
_TOTALS, _MAX_GROUP = 65536, 64


class UnitGroups(NamedTuple):
    """Runs of units: where each begins, on the host and on the device; int32 (n_group + 1,)."""

    starts: NDArray[np.int32]
    on_device: DeviceArray

    @property
    def n_group(self) -> int:
        return self.starts.size - 1

    def meeting(self, first: int, stop: int) -> tuple[int, int]:
        """The first group that contains units first .. stop - 1, and the number of such groups.

        A group without units is counted with the group after it.
        """
        low, high = (int(x) for x in np.searchsorted(self.starts, [first, stop]))
        if self.starts[low] != first:
            low -= 1
        if stop == self.starts[-1]:
            high = self.n_group  # with groups behind that have no units
        return low, high - low


def grouped(time: NDArray[np.int32], n_time: int, n_total: int) -> UnitGroups:
    """Units of these times, ascending, by time; or in as many groups as it takes to fill a device."""
    if n_time > 1:
        starts = np.searchsorted(time, np.arange(n_time + 1))
    else:
        n_group = max(1, min(_MAX_GROUP, time.size, _TOTALS // n_total))
        starts = np.arange(n_group + 1) * time.size // n_group
    found = starts.astype(np.int32)
    return UnitGroups(found, device.upload(found))


def collect(
    groups: UnitGroups,
    first: int,
    stop: int,
    n_copy: int,
    records: DeviceArray,
    totals: DeviceArray,
    main: Stream = 0,
    items: slice | None = None,
) -> None:
    """Add the records of these units to the totals (n_batch, n_group, n_column, n_item) of their groups.

    `records` (n_batch, units, n_column, n_copy, n_item), flat; `items` are those that are added, or all. On
    the stream that waits for all others, and they for it, or the only one: units come in their order.
    """
    low, n_group = groups.meeting(first, stop)
    first_item, stop_item, _ = (items or slice(None)).indices(totals.shape[3])
    n_here = stop_item - first_item
    n_total = totals.shape[0] * n_group * totals.shape[2] * n_here
    if n_total:
        device.launch_each(
            parts.make_collect(), n_total, main, first, stop - first, low, n_group, n_copy, first_item,
            n_here, groups.on_device, records, totals,
        )  # fmt: skip


def add_up(
    values: DeviceArray, shape: tuple[int, int], out: DeviceArray, main: Stream, each: int = 1, kept: int = 1
) -> None:
    """The sums over the second axis of values of this shape and one axis more, into `out`, on the device.

    Of each so many values the first `kept` are summed.
    """
    values = values.reshape(*shape, values.size // (shape[0] * shape[1]))
    into = out.reshape(shape[0], values.shape[2] // each * kept)
    device.launch_each(parts.make_row_totals(), into.size, main, values, each, kept, into)
