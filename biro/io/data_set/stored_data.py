"""What each format implements: a data set whose rows are known, and which reads visibilities by partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from biro.io.data_set.index import PartitionRows, RowIndex


class StoredVisibilities(NamedTuple):
    """Visibilities of one partition as a file holds them.

    Attributes
    ----------
    vis : complex64 or complex128 (n_row, n_chan, n_corr), Jy
    weight : float32 or float64 (n_row, n_chan, n_corr), 1/Jy^2
    flag : bool (n_row, n_chan, n_corr) or None
        None where the file has no flags.
    missing : bool (n_row,)
        Rows without a value.
    weight_origin : str
    """

    vis: NDArray[np.complexfloating]
    weight: NDArray[np.floating]
    flag: NDArray[np.bool_] | None
    missing: NDArray[np.bool_]
    weight_origin: str


class DataSet(Protocol):
    """A data set whose rows are known; its visibilities are read partition by partition.

    Attributes
    ----------
    index : RowIndex
    column : str
        What the visibilities are called.
    is_blank : bool
        Whether no visibility of the set differs from 0.
    other_columns : sequence of str
        What else could be read.
    """

    index: RowIndex
    column: str

    @property
    def is_blank(self) -> bool: ...
    @property
    def other_columns(self) -> Sequence[str]: ...

    def notes(self, parts: Sequence[PartitionRows]) -> Iterator[str]:
        """What is odd about the set, or about these rows of it, apart from its fields and uvw."""
        ...

    def visibilities(self, part: PartitionRows) -> StoredVisibilities:
        """Read one partition."""
        ...
