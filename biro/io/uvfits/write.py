"""Write model visibilities, or flags, into a copy of a UVFITS file."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from biro.distributed.remote_data import Model, RemoteArray, rows_of
from biro.errors import DataError, InputError
from biro.files.atomic import atomic_path
from biro.files.foreign_text import visible
from biro.io.data_set.index import PartitionRows
from biro.io.data_set.open_set import naming
from biro.io.data_set.writable_models import Mode, check_as_stored, check_mode, checked_models
from biro.io.uvfits.groups import RandomGroups, turned
from biro.io.uvfits.header import GroupHeader, parse_header
from biro.io.uvfits.read import opened
from biro.observation.observation import Observation
from biro.observation.partition import Partition

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class CopyReport:
    """What a copy holds.

    Attributes
    ----------
    n_written : int
        Visibilities that were replaced, or to which the model was added.
    n_flagged : int
        Others, which are flagged in the copy: they are no model.
    """

    n_written: int
    n_flagged: int


def write_uvfits(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    observation: Observation,
    models: Iterable[NDArray[np.generic] | RemoteArray],
    *,
    mode: Mode = "replace",
) -> CopyReport:
    """Write a copy of a UVFITS file whose visibilities are those of a model, or have it added or subtracted.

    Header, tables, random parameters and weights are those of the file to the bit. What the observation does
    not select is flagged in the copy, by a negative weight. The file itself is not changed; the copy is there
    as a whole or not at all.

    Parameters
    ----------
    path : path of the UVFITS file
        Of floating-point numbers.
    out : path of the copy
        Replaced where it exists.
    observation : Observation
        As read from this file, without averaging.
    models : iterable of complex (n_row, n_chan, n_corr), Jy
        One for each partition, in its order; may be a generator.
    mode : "replace", "add" or "subtract"

    Returns
    -------
    CopyReport

    Raises
    ------
    DataError
        The file cannot be read, holds integers, or is not the one that was read; or there is no room.
    InputError
        A model of wrong shape, kind, or with values that are not finite; an observation that is averaged,
        joined, or of Stokes parameters that the file does not store; `out` is the file itself, or cannot be
        written.
    """
    check_mode(mode)
    check_as_stored(observation, "UVFITS")
    with _copied(path, out, mode, lambda header: _check(header, observation)) as copy:
        return copy.write(observation.partitions, models)


def write_flagged(
    path: str | os.PathLike[str], out: str | os.PathLike[str], flagged: Iterable[tuple[PartitionRows, Mask]]
) -> int:
    """Write a copy of a UVFITS file in which the weights of some visibilities are negative, which flags them.

    All else is that of the file to the bit. The file itself is not changed; the copy is there as a whole or
    not at all.

    Parameters
    ----------
    path : path of the UVFITS file
        Of floating-point numbers.
    out : path of the copy
        Replaced where it exists.
    flagged : iterable of (PartitionRows, bool (n_row, n_chan, n_corr))
        Rows of the file with all channels and correlations, and which visibilities of them to flag.

    Returns
    -------
    int
        Visibilities whose weight was positive and is negative now.

    Raises
    ------
    DataError, InputError
        As `write_uvfits` raises them.
    """
    with _copied(path, out, "replace", _check_numbers) as copy:
        return copy.flag(list(flagged))


@contextmanager
def _copied(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    mode: Mode,
    check: Callable[[GroupHeader], None],
) -> Iterator[_Copy]:
    """A copy of a file, to be changed; it is there under its name once it is whole."""
    place, copy = Path(path), Path(out)
    check_other(place, copy)
    with naming(path, "UVFITS"), opened(place) as (file, hdus):
        header = parse_header(hdus)
        start = hdus[0].fileinfo()["datLoc"]
        groups = RandomGroups(file, start, header)
        check(header)
        content = file.getvalue() if isinstance(file, io.BytesIO) else None
    with atomic_path(copy) as temporary:
        _check_room(copy, place.stat().st_size if content is None else len(content))
        if content is None:
            shutil.copyfile(place, temporary)
        else:
            temporary.write_bytes(content)
        with open(temporary, "r+b") as target:
            yield _Copy(target, start, groups, mode)


def check_other(place: Path, copy: Path) -> None:
    """Refuse a copy that is the file itself."""
    if copy.exists() and copy.samefile(place):
        raise InputError(f"{visible(str(copy))}: is the file that is read, which is never changed")


def _check_numbers(header: GroupHeader) -> None:
    if header.dtype.kind != "f":
        raise DataError("stores integers, which have no room for other visibilities; write .npz")


def _check(header: GroupHeader, observation: Observation) -> None:
    _check_numbers(header)
    n_row = header.n_group * header.axis("IF").length
    for label, part in zip(observation.labels, observation.partitions, strict=True):
        if part.n_row and part.row_id.max() >= n_row:
            raise DataError(f"has {n_row} rows, but {label} of the observation has others: another file?")


def _check_room(copy: Path, size: int) -> None:
    free = shutil.disk_usage(copy.absolute().parent).free
    if free < size:
        raise DataError(
            f"{visible(str(copy))}: needs {size / 1e6:.1f} MB, but {free / 1e6:.1f} MB are free on its disk: "
            "make room"
        )


class _Copy:
    """The groups of a copy, which are changed in blocks: read, changed, written back.

    They are not mapped into memory, because a process that writes to a mapped file on a full disk dies.
    """

    def __init__(self, file: BinaryIO, start: int, groups: RandomGroups, mode: Mode) -> None:
        self.file, self.start, self.header, self.mode = file, start, groups.header, mode
        self.block = groups.block

    def write(
        self, partitions: tuple[Partition, ...], models: Iterable[NDArray[np.generic] | RemoteArray]
    ) -> CopyReport:
        for part, model in checked_models(partitions, models):
            self._write_partition(part, model)
        n_flagged = self._flag_others(partitions)
        self.file.flush()
        return CopyReport(sum(part.vis.size for part in partitions), n_flagged)

    def _write_partition(self, part: Partition, model: Model) -> None:
        for first in range(0, self.header.n_group, self.block):
            rows, place = self._place(part, first)
            if not rows.size:
                continue
            numbers = self._read(first)
            view = turned(numbers[:, len(self.header.parameters) :], self.header)
            vis = rows_of(model, rows)
            for k, values in enumerate((vis.real, vis.imag)):
                complete = np.ix_(*place, np.array([k]))
                view[complete] = self._stored(values[:, None, :, :, None], view[complete])
            self._write(first, numbers)

    def _place(self, part: Partition, first: int) -> tuple[NDArray[np.int64], tuple[NDArray[np.int64], ...]]:
        """Rows of a partition in a block of groups, and their indices (group of it, IF, FREQ, STOKES)."""
        n_if = self.header.axis("IF").length
        stored, ordered = self.header.correlations, self.header.ordered_correlations
        which = np.array([stored.index(ordered[i]) for i in _all(part.corr_id, part.n_corr)])
        groups = part.row_id // n_if
        rows = np.flatnonzero((groups >= first) & (groups < first + self.block))
        chan = _all(part.chan_id, part.n_chan)
        return rows, (groups[rows] - first, np.array([part.spw_id % n_if]), chan, which)

    def _stored(self, model: NDArray[np.floating], there: NDArray[np.floating]) -> NDArray[np.floating]:
        """Numbers as the file stores them: value = stored * scale + zero."""
        header = self.header
        if self.mode == "replace":
            return (model - header.zero) / header.scale
        change = model.astype(np.float64) / header.scale
        return there + change if self.mode == "add" else there - change

    def _flag_others(self, partitions: Sequence[Partition]) -> int:
        """Make the weights of what is not written negative; how many were positive."""
        n_flagged = 0
        for first in range(0, self.header.n_group, self.block):
            others = ~self._none(first)
            for part in partitions:
                others[np.ix_(*self._place(part, first)[1])] = False
            n_flagged += self._make_negative(first, others)
        return n_flagged

    def flag(self, flagged: Sequence[tuple[PartitionRows, Mask]]) -> int:
        """Make the weights of some visibilities negative; how many were positive."""
        n_if, n_flagged = self.header.axis("IF").length, 0
        stored, ordered = self.header.correlations, self.header.ordered_correlations
        which = np.array([ordered.index(name) for name in stored])
        for first in range(0, self.header.n_group, self.block):
            chosen = self._none(first)
            for part, mask in flagged:
                group = part.rows // n_if - first
                here = np.flatnonzero((group >= 0) & (group < len(chosen)))
                chosen[group[here], part.spw_id % n_if] |= mask[here][:, :, which]
            n_flagged += self._make_negative(first, chosen)
        self.file.flush()
        return n_flagged

    def _none(self, first: int) -> Mask:
        """Zeros for a block of groups, (n_group, n_if, n_chan, n_corr)."""
        shape = [self.header.axis(name).length for name in ("IF", "FREQ", "STOKES")]
        return np.zeros((min(self.block, self.header.n_group - first), *shape), bool)

    def _make_negative(self, first: int, chosen: Mask) -> int:
        """Make some weights of a block of groups negative; how many were positive."""
        if not chosen.any():
            return 0
        numbers = self._read(first)
        weight = turned(numbers[:, len(self.header.parameters) :], self.header)[..., 2]
        # A weight is stored * scale + zero, and has to become the same with the other sign.
        value = weight * self.header.scale + self.header.zero
        chosen &= value > 0
        weight[chosen] = (-value[chosen] - self.header.zero) / self.header.scale
        self._write(first, numbers)
        return int(np.count_nonzero(chosen))

    def _read(self, first: int) -> NDArray[np.floating]:
        """Numbers of a block of groups, (n_group, group_size), in the byte order of the file."""
        n_group = min(self.block, self.header.n_group - first)
        size = n_group * self.header.group_size * self.header.dtype.itemsize
        self.file.seek(self._offset(first))
        numbers = np.frombuffer(bytearray(self.file.read(size)), self.header.dtype)
        return numbers.reshape(n_group, self.header.group_size)

    def _write(self, first: int, numbers: NDArray[np.floating]) -> None:
        self.file.seek(self._offset(first))
        self.file.write(numbers.tobytes())

    def _offset(self, first: int) -> int:
        return self.start + first * self.header.group_size * self.header.dtype.itemsize


def _all(index: NDArray[np.int64] | None, length: int) -> NDArray[np.int64]:
    return np.arange(length) if index is None else index
