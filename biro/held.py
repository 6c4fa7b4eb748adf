"""Visibilities and weights of a partition that lie elsewhere: each shard with the process that holds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from rime_kernels.engine.sharded import HeldData

T = TypeVar("T")
Vis = NDArray[np.complexfloating]
Weight = NDArray[np.floating]


class Held(HeldData, Protocol):
    """What a partition asks of the processes that hold its visibilities and weights.

    Functions are those of modules: they are done where the data are, and see those of one shard.
    """

    def by_shard(
        self, function: Callable[..., T], *arguments: object, each: Sequence[Any] | None = None
    ) -> list[T]:
        """What `function` makes of vis, weight, the item of `each` if given, and `arguments`, by shard."""
        ...

    def replaced(
        self, function: Callable[..., tuple[Vis, Weight, T]], *arguments: object
    ) -> tuple[Held, list[T]]:
        """Visibilities and weights that a function makes of those of each shard, held in the same way.

        What it gives as a third is returned, by shard.
        """
        ...


class Elsewhere:
    """Stands for an array that lies elsewhere: its shape and type are known, its values are not.

    Parameters
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype, self.size = shape, dtype, int(np.prod(shape))

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("these values are held by ranks: ask by_shard, taken or whole of the partition")
