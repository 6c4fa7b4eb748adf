"""Groups of a UVFITS file: random parameters of all of them, and visibilities of some, read in blocks."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from biro.display.progress import bar
from biro.errors import DataError
from biro.io.uvfits.header import GroupHeader

Number = TypeVar("Number", bound=np.generic)
BLOCK_BYTES = 32 << 20
"""Bytes of a file that are worked on at a time."""


class RandomGroups:
    """The groups of a file, which are read when they are asked for.

    Parameters
    ----------
    file : Path, or BytesIO with the content of a file that was compressed
    start : int
        Where the first group begins, bytes.
    header : GroupHeader

    Raises
    ------
    DataError
        There are no groups, or the file is shorter than they are.
    """

    def __init__(self, file: Path | io.BytesIO, start: int, header: GroupHeader) -> None:
        self.header = header
        shape = (header.n_group, header.group_size)
        if math.prod(shape) == 0:
            raise DataError("there are no groups in this file")
        size = file.stat().st_size if isinstance(file, Path) else len(file.getbuffer())
        end = start + math.prod(shape) * header.dtype.itemsize
        if size < end:
            raise DataError(f"the file has {size} bytes, its header asks for {end}; it is cut off")
        self.stored: NDArray[np.generic]
        if isinstance(file, Path):
            self.stored = np.memmap(file, header.dtype, "r", start, shape)
        else:
            self.stored = np.frombuffer(file.getvalue(), header.dtype, math.prod(shape), start).reshape(shape)
        self.block = max(1, BLOCK_BYTES // (header.group_size * header.dtype.itemsize))

    def parameters(self) -> NDArray[np.float64]:
        """Random parameters of all groups as stored, float64 (n_group, n_parameter)."""
        n_parameter = len(self.header.parameters)
        values = np.empty((self.header.n_group, n_parameter))
        for start in range(0, self.header.n_group, self.block):
            rows = slice(start, start + self.block)
            values[rows] = self.stored[rows, :n_parameter]
        return values

    def visibilities(
        self, groups: NDArray[np.int64], i_if: int, chan: NDArray[np.int64], corr: Sequence[str]
    ) -> tuple[NDArray[np.complexfloating], NDArray[np.floating]]:
        """Visibilities and weights, negative where AIPS has flagged, of some groups.

        Parameters
        ----------
        groups : int64 (n_row,)
        i_if : int
        chan : int64 (n_chan,)
        corr : sequence of str
            Names of correlations.

        Returns
        -------
        vis : complex64, or complex128 of a file of float64 (n_row, n_chan, n_corr)
        weight : float32 or float64 (n_row, n_chan, n_corr)
        """
        real: type[np.floating] = np.float64 if self.header.dtype.itemsize == 8 else np.float32
        stored = self.header.correlations
        which = [stored.index(name) for name in corr]
        shape = (len(groups), len(chan), len(corr))
        vis: NDArray[np.complexfloating] = np.empty(shape, np.result_type(real, np.complex64))
        weight: NDArray[np.floating] = np.empty(shape, real)
        with bar("reading visibilities", "rows", total=len(groups)) as shown:
            for start in range(0, len(groups), self.block):
                rows = slice(start, start + self.block)
                values = self._scaled(groups[rows])[:, i_if][:, chan][:, :, which]
                vis[rows].real = values[..., 0]
                vis[rows].imag = values[..., 1]
                weight[rows] = values[..., 2] * self.header.weight_scale
                shown.update(len(values))
        return vis, weight

    def has_signal(self) -> bool:
        """Whether any visibility differs from 0."""
        for start in range(0, self.header.n_group, self.block):
            groups = np.arange(start, min(start + self.block, self.header.n_group))
            if self._scaled(groups)[..., :2].any():
                return True
        return False

    def _scaled(self, groups: NDArray[np.int64]) -> NDArray[np.float64]:
        """Numbers of some groups, float64 (n_row, n_if, n_chan, n_corr, 3)."""
        header = self.header
        array = self.stored[groups, len(header.parameters) :]
        values = array.astype(np.float64) * header.scale + header.zero
        if header.blank is not None:
            values[array == header.blank] = np.nan
        return turned(values, header)


def turned(stored: NDArray[Number], header: GroupHeader) -> NDArray[Number]:
    """A view of the arrays of groups (n_group, n_number) as (n_group, n_if, n_chan, n_corr, 3).

    All other axes have one pixel.
    """
    names = [axis.name for axis in reversed(header.axes)]
    array = stored.reshape(len(stored), *(axis.length for axis in reversed(header.axes)))
    there = [name for name in ("IF", "FREQ", "STOKES", "COMPLEX") if name in names]
    wanted = [names.index(name) + 1 for name in there]
    others = [i + 1 for i in range(len(names)) if i + 1 not in wanted]
    view = array.transpose(0, *wanted, *others)
    for _ in others:
        view = view[..., 0]
    return view if "IF" in there else view[:, None]
