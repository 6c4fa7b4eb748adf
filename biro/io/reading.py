"""Read observed data of any format; what a file holds decides, not its name."""

from __future__ import annotations

import gzip
import inspect
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, cast

from biro.display.arguments import PATHS, takes
from biro.display.formatting import check_names
from biro.display.progress import showing
from biro.distributed.placement import ProcessGroup, processes_of
from biro.errors import DataError, InputError
from biro.files.other_formats import name_folder, name_start, refuse_other_hdf5
from biro.io.data_set.assembly import assemble
from biro.io.data_set.open_set import OpenSet, naming
from biro.io.data_set.options import SetOptions
from biro.io.data_set.shared_reading import folder_for, read_together
from biro.io.measurement_set import read_ms
from biro.io.measurement_set.read import open_set
from biro.io.measurement_set.storage import TIME_LIMIT, ask_storage
from biro.io.msv4.read import open_msv4
from biro.io.uvdata.read import open_mir, open_miriad, open_uvh5
from biro.io.uvfits.read import open_uvfits
from biro.models.files.foreign import read_file
from biro.observation.join import distinct_paths, join
from biro.observation.observation import Observation

if TYPE_CHECKING:
    from mpi4py import MPI

FITS, HDF5, MIRIAD, MIR, ZARR = b"SIMPLE  =", b"\x89HDF", b"(MIRIAD)", b"(MIR)", b"(Zarr)"
FOLDERS = (
    (MIRIAD, ("visdata", "vartable")),
    (MIR, ("bl_read", "sch_read")),
    (ZARR, (".zgroup",)),
    (ZARR, ("zarr.json",)),
)
"""Marks of folders that are no Measurement Sets, and the files that tell them."""
OPENERS: dict[bytes, OpenSet] = {
    FITS: open_uvfits,
    HDF5: open_uvh5,
    MIRIAD: open_miriad,
    MIR: open_mir,
    ZARR: open_msv4,
}
"""What opens a set that is no Measurement Set of version 2."""


SCANS_AND_COLUMNS = ("column", "weight_column", "scans")
"""Options that UVFITS and the formats of pyuvdata have no use for."""


@takes(path=PATHS)
def read(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    comm: MPI.Intracomm | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **options: Unpack[SetOptions],
) -> Observation:
    """Read calibrated visibilities of a Measurement Set or a file, or of several as one observation.

    Parameters
    ----------
    path : path, or several
        What it holds decides how it is read: a Measurement Set of version 2 or 4 (Zarr), UVFITS (compressed
        by gzip or not), UVH5, MIRIAD or MIR. Several are read with the same options and joined, see
        `biro.join`.
    comm : mpi4py.MPI.Intracomm, optional
        Processes of MPI, each of which reads and keeps a part of the rows, for a likelihood with the same
        `comm`. Only the first goes on: the others serve it here until the likelihood is closed, or the first
        ends, and then end. Where interference is looked for (`flagger`), its files are gone
        through once for each block of baselines before.
    cache : path of a folder, optional
        For data that memory has no room for: visibilities and weights are written into files of this folder,
        which are mapped into memory. The next call finds them there, as long as the data set and the options
        are the same; delete what is in the folder when you no longer need it. What a likelihood computes with
        lies there, too, in files without names that are gone with the process. Data are read in parts, so
        that they can neither be flagged anew nor have weights of the scatter.
    progress : bool
        Show a bar on stderr of what takes longer than two seconds.
    **options
        As those of `biro.read_ms`; column, weight_column and scans are for Measurement Sets alone.

    Returns
    -------
    Observation

    Raises
    ------
    DataError
        As `biro.read_ms` and `biro.read_uvfits` raise it; or a file of another kind.
    InputError
        An option that is not understood, or that a format does not have; a path that is given twice.

    Examples
    --------
    >>> read("obs.uvfits", fields="3C273", uv_range="1 klambda..", average_time="30 s")
    >>> read(["day1.ms", "day2.uvfits"], correlations="RR,LL")
    """
    check_names(options, [*SetOptions.__annotations__], "read")
    folder = None if cache is None else folder_for(cache, options)
    processes = processes_of(comm, in_files=folder is not None)
    with showing(progress):
        return join([_read_one(each, options, processes, folder) for each in distinct_paths(path, "read")])


def _with_own(signature: inspect.Signature) -> inspect.Signature:
    """A signature with the arguments that `read` has beside others before those that have no name."""
    own = [inspect.signature(read).parameters[name] for name in ("comm", "cache")]
    *others, keywords = signature.parameters.values()
    return signature.replace(parameters=[*others, *own, keywords])


# What `help` shows: the arguments that it takes, by name.
read.__signature__ = _with_own(inspect.signature(read_ms))  # type: ignore[attr-defined]


def _read_one(
    path: str | os.PathLike[str], options: SetOptions, processes: ProcessGroup, folder: str | None
) -> Observation:
    """One data set."""
    opener = _opener(Path(path), options.get("time_limit", TIME_LIMIT))
    if opener is None:
        if not processes.is_shared:
            return read_ms(path, **options)
        return read_together(open_set, path, options, processes, folder)
    own = cast(SetOptions, {**options})
    for name in ("weight_column",) if opener is open_msv4 else SCANS_AND_COLUMNS:
        if own.pop(name, None) is not None:  # type: ignore[misc]
            raise InputError(f"{path}: this format has no {name}; only Measurement Sets do")
    own.pop("time_limit", None)
    if processes.is_shared:
        return read_together(opener, path, own, processes, folder)
    with opener(path, own) as (data, request), naming(path, "data"):
        return assemble(data, request)


def _opener(place: Path, time_limit: float) -> OpenSet | None:
    """What opens a set, None for a Measurement Set; a file of another kind is refused."""
    try:
        start = ask_storage(place, time_limit, "looking at it", lambda: _start(place))
    except OSError as error:
        raise DataError(f"{place}: cannot be accessed: {error.strerror or error}") from None
    if start is None:
        return None
    for begin, opener in OPENERS.items():
        if start.startswith(begin):
            if begin == HDF5:
                refuse_other_hdf5(place)
            return opener
    if other := name_start(start):
        raise DataError(f"{place}: {other}")
    if is_text(start):
        raise DataError(
            f"{place}: a text file, neither UVFITS nor a Measurement Set. A model is given after the data"
        )
    raise DataError(
        f"{place}: neither UVFITS, UVH5 nor a Measurement Set (which is a directory; unpack archives)"
    )


def format_of(path: str | os.PathLike[str], time_limit: float = TIME_LIMIT) -> str:
    """What a path holds: "Measurement Set", "UVFITS", or "other".

    Raises
    ------
    DataError
        It holds no data.
    """
    opener = _opener(Path(path), time_limit)
    if opener is None:
        return "Measurement Set"
    return "UVFITS" if opener is open_uvfits else "other"


def check_is_data(place: Path) -> None:
    """Refuse a file that is no data set.

    Raises
    ------
    DataError
    """
    _opener(place, TIME_LIMIT)


def is_text(start: bytes) -> bool:
    """Whether the first bytes of a file are those of a text."""
    try:
        return bool(start.strip()) and all(c.isprintable() or c.isspace() for c in start.decode("ascii"))
    except UnicodeDecodeError:
        return False


def _start(place: Path) -> bytes | None:
    """The first bytes of a file, unpacked, or a mark of a folder in `OTHERS`; None where there is neither."""
    if not place.is_file():
        if place.is_dir() and not (place / "table.dat").exists() and (other := name_folder(place)):
            raise DataError(f"{place}: {other}")
        return next(
            (mark for mark, names in FOLDERS if all((place / name).is_file() for name in names)), None
        )
    start = read_file(place, only=16)
    if start.startswith(b"\x1f\x8b"):
        try:
            with gzip.open(place) as packed:
                return packed.read(16)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            return start
    return start
