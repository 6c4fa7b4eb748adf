"""Derivatives of chi2 with respect to Jones matrices of antennas, from what samples leave for them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.arrays import AntennaTerms
from rime_kernels.compile.types import DeviceArray, Stream
from rime_kernels.cuda.kernels import antenna_sums as kernels
from rime_kernels.cuda.kernels.arguments import typed
from rime_kernels.cuda.kernels.samples import record_size
from rime_kernels.cuda.layouts.launch import Arrays, Layout, Slab, Tiles
from rime_kernels.inputs import Constants

# Sums that are worth a thread each: rows of a block are summed in so many groups as make as many.
_TOTALS, LEAST_ROWS = 65536, 256


class AntennaSums:
    """Sums for the matrices of one kind of call, on the device.

    A thread adds what some rows left for one number of the matrix of an antenna: row after row, and of each
    channel after channel of a block. Groups of rows of one block of times are added in their order. Where
    matrices stay diagonal, channels are added first.

    Parameters
    ----------
    fixed : Constants
        In the order of time.
    terms : AntennaTerms
        Of a call; blocks and sizes alone matter.
    layout : Tiles or Runs
        Of the kernel that leaves the samples.
    """

    def __init__(self, fixed: Constants, terms: AntennaTerms, layout: Layout) -> None:
        self._layout, self._variant, self._n_time = layout, layout.variant, terms.time_block.size
        self._n_time_block, self._n_antenna, self._n_chan_block = terms.jones.shape[1:4]
        self._n_chan = fixed.chan_freq.size
        # Templates that lack correlations need matrices that stay diagonal.
        self._stays_diagonal = len(fixed.template) > 0 and len(fixed.matrix) < 4
        starts, block = _groups(terms.time_block[fixed.time_index], self._n_antenna * self._n_chan_block * 8)
        self._starts, self.n_group = starts, block.size
        group = np.repeat(np.arange(block.size), np.diff(starts))
        antennas = np.stack([fixed.antenna1, fixed.antenna2], axis=1).astype(np.int64)
        entry = (group[:, None] * self._n_antenna + antennas).ravel()
        row_start, rows = _sorted(entry, self.n_group * self._n_antenna)
        tables = (
            starts, row_start, rows, *_sorted(terms.chan_block, self._n_chan_block),
            *_sorted(block, self._n_time_block), block, antennas[:, ::-1].ravel()[rows],
        )  # fmt: skip
        self._tables = typed(kernels.AntennaTables(*(device.upload(x.astype(np.int32)) for x in tables)))

    @property
    def _n_item(self) -> int:
        return int(self._n_antenna * self._n_chan_block * 8)

    @property
    def _tiles(self) -> Tiles | None:
        """The layout by which diagonal matrices have left what they did; None where rows have."""
        return self._layout if self._variant.staged and isinstance(self._layout, Tiles) else None

    @property
    def _n_corr(self) -> int:
        return len(self._layout.matrix) // 4

    def record_size(self, slab: Slab) -> int:
        """Numbers that the samples of a slab leave, of one entry of the batch."""
        if self._tiles is not None:
            return 2 * self._tiles.n_datum(slab)
        of_sample = record_size(self._variant, self._n_corr)
        return of_sample * self._n_chan * (slab.place.stop - slab.place.start)

    def record_bytes(self, slab: Slab) -> int:
        """Bytes of these, and of what becomes of them on the way to the totals."""
        n_row = slab.place.stop - slab.place.start
        of_rows = 16 * n_row * self._n_chan_block * self._n_corr if self._variant.diagonal else 0
        return self.record_size(slab) * np.dtype(self._variant.real).itemsize + of_rows

    def total_bytes(self) -> int:
        """Totals of one entry of the batch."""
        return 8 * self._n_item * (self.n_group + self._n_time_block)

    def shape(self, n_batch: int) -> tuple[int, int, int]:
        """What is fetched."""
        return n_batch, self._n_time_block, self._n_item

    def collect(
        self, workspace: device.Workspace, slab: Slab, arrays: Arrays, records: DeviceArray, main: Stream
    ) -> None:
        """Add what a slab left to the totals; slabs come in the order of their rows."""
        n_batch = len(records)
        first, stop = slab.place.start, slab.place.stop
        low = int(np.searchsorted(self._starts, first, side="right")) - 1
        n_group = int(np.searchsorted(self._starts, stop)) - low
        totals = self._totals(workspace, n_batch)
        if self._variant.diagonal:
            pairs = self._pairs_of_rows(workspace, slab, records, main)
            n_item = n_batch * n_group * self._n_antenna * self._n_chan_block * 2
            device.launch_each(
                kernels.make_collect_gains(self._layout.matrix), n_item, main, first, stop - first, low,
                n_group, self._tables, pairs, arrays.jones, self._n_time, totals,
            )  # fmt: skip
            return
        device.launch_each(
            kernels.make_collect_pairs(), n_batch * n_group * self._n_item, main, first, stop - first, low,
            n_group, self._tables, records, totals,
        )  # fmt: skip

    def _pairs_of_rows(
        self, workspace: device.Workspace, slab: Slab, records: DeviceArray, main: Stream
    ) -> DeviceArray:
        """Sums of each row over the channels of each block."""
        n_part, n_block, n_row = 2 * self._n_corr, self._n_chan_block, slab.place.stop - slab.place.start
        pairs = workspace.array("pairs of rows", (len(records), n_row, n_block, n_part), np.float64)
        if self._tiles is not None:
            (first, stop), place = self._tiles.layers(slab), self._tiles.place
            n_item = len(records) * (stop - first) * n_block * math.prod(place.shape[1:])
            device.launch_each(
                kernels.make_tile_pairs(), n_item, main, first, stop - first, slab.place.start, self._tables,
                place, records, pairs,
            )  # fmt: skip
            return pairs
        n_lane = min(4 if device.simulated() else 32, 1 << (-(-self._n_chan // n_block) - 1).bit_length())
        n_unit = max(1, device.threads_per_block() // (n_lane * n_part))
        n_grid = -(-len(records) * n_row * n_block // n_unit)
        kernel = kernels.make_row_pairs(self._n_corr, n_lane, n_unit)
        kernel[n_grid, n_unit * n_lane * n_part, main](self._tables, records, pairs)
        return pairs

    def add_up(self, workspace: device.Workspace, n_batch: int, out: DeviceArray, main: Stream) -> None:
        """Put the totals together, into `out` of this `shape`."""
        totals = self._totals(workspace, n_batch).reshape(n_batch, self.n_group, self._n_item)
        device.launch_each(kernels.make_add_groups(), out.size, main, self._tables, totals, out)

    def _totals(self, workspace: device.Workspace, n_batch: int) -> DeviceArray:
        shape = n_batch, self.n_group, self._n_antenna, self._n_chan_block, 8
        return workspace.array("totals of matrices", shape, np.float64)

    def jones(self, fetched: NDArray[np.float64]) -> NDArray[np.complex128]:
        """`Adjoint.jones` from what was fetched."""
        shape = len(fetched), self._n_time_block, self._n_antenna, self._n_chan_block
        found = fetched.view(np.complex128).reshape(*shape, 2, 2)
        return found * np.eye(2) if self._stays_diagonal else found


def blocks_of(terms: AntennaTerms | None) -> tuple[bytes, bytes, tuple[int, ...], bool] | None:
    """What calls have in common whose sums are the same: blocks of all times and channels, sizes, kind."""
    if terms is None:
        return None
    blocks = terms.time_block.tobytes(), terms.chan_block.tobytes()
    return *blocks, terms.jones.shape[1:], terms.stays_diagonal


def _groups(block: NDArray[np.int32], n_item: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Where runs of rows with the same block begin, (n_group + 1,), and the block of each.

    Runs are cut where that makes sums for more threads, but not below some rows.
    """
    n_cut = max(1, min(-(-_TOTALS // n_item), block.size // LEAST_ROWS))
    cuts = np.arange(n_cut) * block.size // n_cut
    starts = np.union1d(cuts, np.flatnonzero(np.diff(block)) + 1)
    return np.append(starts, block.size), block[starts]


def _sorted(key: NDArray[np.integer], n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the elements of each key 0 .. n - 1 begin once they are sorted, (n + 1,); and the order."""
    order = np.argsort(key, kind="stable")
    return np.searchsorted(key[order], np.arange(n + 1)), order
