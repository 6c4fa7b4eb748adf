"""One field seen through one data description: visibilities, weights and where they were measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from biro.deprecation import by_earlier_name
from biro.distributed.blocks import Blocks, Channels, LocalBlocks, Vis, Weight, some_of, split, taken
from biro.distributed.remote_data import DistributedData
from biro.observation.partition_header import PartitionHeader

T = TypeVar("T")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Partition(PartitionHeader):
    """One field seen through one data description.

    It has the attributes of its header besides (`PartitionHeader`).

    Attributes
    ----------
    vis : complex64 or complex128 (n_row, n_chan, n_corr), Jy
        0 where the weight is 0.
    weight : float32 or float64 (n_row, n_chan, n_corr), 1/Jy^2
        1/sigma^2 of the real and of the imaginary part; 0 for what does not count.
    weight_origin : str
        Column that the weights of this partition came from.
    tapered : bool
        Whether weights fall with uv distance, and so are less than the noise asks for.
    distributed : DistributedData or None
        What has visibilities and weights, where these are not in the memory of this process; `vis` and
        `weight` have a shape and a type then, but no values.
    """

    vis: NDArray[np.complexfloating]
    weight: NDArray[np.floating]
    weight_origin: str = ""
    tapered: bool = False
    distributed: DistributedData | None = None

    @classmethod
    def of(cls, header: PartitionHeader, **data: Any) -> Self:
        """The partition that a header describes.

        Parameters
        ----------
        header : PartitionHeader
        **data
            The attributes that a header lacks: vis, weight, ...
        """
        return cls(**{item.name: getattr(header, item.name) for item in fields(PartitionHeader)}, **data)

    @property
    def header(self) -> PartitionHeader:
        """What is known of the partition apart from its visibilities."""
        return PartitionHeader(**{item.name: getattr(self, item.name) for item in fields(PartitionHeader)})

    @cached_property
    def block_rows(self) -> tuple[NDArray[np.int64], ...]:
        """Rows of each block: whole time slots.

        They follow from the rows alone. Data outside the memory of this process that are yet to be averaged
        in time have other blocks, which the averages do not mix.
        """
        return super().block_rows if self.distributed is None else tuple(self.distributed.rows)

    @property
    def stored(self) -> Blocks:
        """Visibilities and weights as they lie: in memory one block of all rows, elsewhere `block_rows`."""
        return LocalBlocks((self.vis, self.weight)) if self.distributed is None else self.distributed

    @property
    def _blocks(self) -> Blocks:
        """Visibilities and weights in blocks that do not depend on where they are."""
        if self.distributed is None:
            return LocalBlocks((self.vis, self.weight), self.block_rows)
        return self.distributed

    def by_block(
        self, function: Callable[..., T], *arguments: object, each: Sequence[Any] | None = None
    ) -> list[T]:
        """What a function makes of the visibilities and weights of each block, in the order of blocks.

        Parameters
        ----------
        function : function of a module
            Of vis and weight, (n_row of the block, n_chan, n_corr), of the item of `each` if it is given, and
            of the arguments. It must not change the arrays.
        *arguments
            The same for all blocks.
        each : sequence, optional
            An item for each block, such as `split` gives them.
        """
        return self._blocks.by_block(function, *arguments, each=each)

    def split(self, values: Any) -> list[Any]:
        """An array with an axis of rows, or a model of the visibilities, in an item for each block."""
        return split(values, self.block_rows)

    def by_row(self, function: Callable[..., NDArray[Any]], *arguments: object) -> NDArray[np.float64]:
        """The number that a function as for `by_block` gives for each row, float64 (n_row,)."""
        found = np.zeros(self.n_row)
        for rows, values in zip(self.block_rows, self.by_block(function, *arguments), strict=True):
            found[rows] = values
        return found

    def taken(self, rows: NDArray[np.int64], channels: Channels) -> tuple[Vis, Weight]:
        """Visibilities and weights of some rows and channels, (n_taken, n_chan taken, n_corr).

        Parameters
        ----------
        rows : int64 (n_taken,)
            Each once, in any order.
        channels : slice or int64 (n_chan taken,)
        """
        if self.distributed is None:
            return some_of(self.vis, rows, channels), some_of(self.weight, rows, channels)
        likes = {0: self.vis, 1: self.weight}
        vis, weight = taken(self.distributed, self.block_rows, likes, rows, channels)
        return vis, weight

    def taken_weight(self, rows: NDArray[np.int64]) -> Weight:
        """Weights of some rows, (n_taken, n_chan, n_corr); see `taken`."""
        if self.distributed is None:
            return some_of(self.weight, rows, slice(None))
        return taken(self.distributed, self.block_rows, {1: self.weight}, rows, slice(None))[0]

    def replaced(
        self,
        function: Callable[..., tuple[Vis, Weight, T]],
        *arguments: object,
        each: Sequence[Any] | None = None,
        **described: Any,
    ) -> tuple[Partition, list[T]]:
        """The partition with what a function makes of the visibilities and weights of each block.

        Parameters
        ----------
        function : function of a module
            As for `by_block`. It returns vis and weight of the same rows, and what else is to be known.
        *arguments
            The same for all blocks.
        each : sequence, optional
            An item for each block.
        **described
            What else of the partition changes, as `corr_type`.

        Returns
        -------
        Partition
        list
            What else the function has returned, by block.
        """
        blocks = self._blocks if self.n_row else self.stored
        made, found = blocks.replaced(function, *arguments, each=each)
        return replace(self, **made.fields(self.n_row), **described), found

    def distributed_over(self, distributed: Blocks) -> Partition:
        """The partition with other visibilities and weights, wherever these are."""
        return replace(self, **distributed.fields(self.n_row))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            return by_earlier_name(self, name)

    def some(self, rows: NDArray[np.int64], channels: slice) -> Partition:
        """Some rows, ascending, and some channels, in the memory of this process."""
        every = (self.chan_freq[channels].size, rows.size) == (self.n_chan, self.n_row)
        if every and self.distributed is None:
            return self
        vis, weight = self.taken(rows, channels)
        return replace(
            self,
            **self.row_arrays(rows),
            chan_freq=self.chan_freq[channels],
            chan_width=self.chan_width[channels],
            chan_id=None if self.chan_id is None else self.chan_id[channels],
            vis=vis,
            weight=weight,
            distributed=None,
        )

    def whole(self) -> Partition:
        """The partition with its visibilities and weights in the memory of this process."""
        if self.distributed is None:
            return self
        vis, weight = self.taken(np.arange(self.n_row), slice(None))
        return replace(self, vis=vis, weight=weight, distributed=None)

    @cached_property
    def n_usable(self) -> int:
        """Complex samples with weight > 0."""
        return sum(self.by_block(_n_usable))

    @cached_property
    def row_weight(self) -> NDArray[np.float64]:
        """Sum of the weights of each row, float64 (n_row,), 1/Jy^2; 0 where nothing of it counts."""
        return self.by_row(_sum_of_row)

    def antenna_weight(self) -> NDArray[np.float64]:
        """Sum of the weights of each antenna at each time, float64 (n_time, n_antenna), 1/Jy^2."""
        total = np.zeros((len(self.times), self.n_antenna))
        for antenna in (self.antenna1, self.antenna2):
            np.add.at(total, (self.time_index, antenna), self.row_weight)
        return total


def _n_usable(_: Vis, weight: Weight) -> int:
    return int(np.count_nonzero(weight))


def _sum_of_row(_: Vis, weight: Weight) -> NDArray[np.float64]:
    return np.asarray(weight.sum(axis=(1, 2), dtype=np.float64))
