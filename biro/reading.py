"""Read observed data of any format; what a file holds decides, not its name."""

from __future__ import annotations

import gzip
import inspect
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, cast

from biro.data_set.options import DataOptions, SetOptions
from biro.data_set.shares import folder_for, read_by_ranks
from biro.errors import DataError, InputError
from biro.formatting import check_names
from biro.measurement_set import read_ms
from biro.measurement_set.read import open_set
from biro.measurement_set.storage import TIME_LIMIT, ask_storage
from biro.observation.join import distinct_paths, join
from biro.observation.observation import Observation
from biro.ranks.alone import alone
from biro.ranks.ranks import Ranks
from biro.ranks.start import start
from biro.uvfits.read import open_uvfits, read_uvfits

if TYPE_CHECKING:
    from mpi4py import MPI

MIRIAD, ZARR = b"(MIRIAD)", b"(Zarr)"
OTHERS = {
    b"\x89HDF": "HDF5; if it is UVH5, pyuvdata makes UVFITS of it, UVData.from_file(path).write_uvfits(name)",
    MIRIAD: "a data set of MIRIAD, whose task fits (op=uvout) makes UVFITS of it",
    ZARR: "Zarr; if it is a Measurement Set of version 4, take the one of version 2 that it was made of",
}
"""What else there may be by its first bytes, or a mark for a folder, and what to do with it."""


def read(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    comm: MPI.Intracomm | None = None,
    cache: str | os.PathLike[str] | None = None,
    **options: Unpack[SetOptions],
) -> Observation:
    """Read calibrated visibilities of a Measurement Set or a UVFITS file, or of several as one observation.

    Parameters
    ----------
    path : path, or several
        What it holds decides how it is read: a folder is a Measurement Set, a file that begins as FITS does
        (compressed by gzip or not) is UVFITS. Several are read with the same options and joined, see
        `biro.join`.
    comm : mpi4py.MPI.Intracomm, optional
        Ranks of MPI, each of which reads and holds a part of the rows, for a likelihood with the same `comm`.
        Only rank 0 goes on: the others serve it here until the likelihood is closed, or rank 0 ends, and then
        end. Where interference is looked for (`flagger`), its files are gone
        through once for each block of baselines before.
    cache : path of a folder, optional
        For data that memory has no room for: visibilities and weights are written into files of this folder,
        which are mapped into memory. The next call finds them there, as long as the data set and the options
        are the same; delete what is in the folder when you no longer need it. What a likelihood computes with
        lies there, too, in files without names that are gone with the process. Data are read in parts, so
        that they can neither be flagged anew nor have weights of the scatter.
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
    check_names(options, list(inspect.signature(read_ms).parameters)[1:], "read")
    folder = None if cache is None else folder_for(cache, options)
    ranks = start(comm) if comm is not None else alone() if folder is not None else None
    return join([_read_one(each, options, ranks, folder) for each in distinct_paths(path, "read")])


def _with_own(signature: inspect.Signature) -> inspect.Signature:
    """A signature with the arguments that `read` has beside others behind these."""
    own = [inspect.signature(read).parameters[name] for name in ("comm", "cache")]
    return signature.replace(parameters=[*signature.parameters.values(), *own])


# What `help` shows: the arguments that it takes, by name.
read.__signature__ = _with_own(inspect.signature(read_ms))  # type: ignore[attr-defined]


def _read_one(
    path: str | os.PathLike[str], options: SetOptions, ranks: Ranks | None, folder: str | None
) -> Observation:
    """One data set."""
    if not _is_fits(Path(path), options.get("time_limit", TIME_LIMIT)):
        if ranks is None:
            return read_ms(path, **options)
        return read_by_ranks(open_set, path, options, ranks, folder)
    own = {**options}
    for name in ("column", "weight_column", "scans"):
        if own.pop(name, None) is not None:
            raise InputError(f"{path}: UVFITS has no {name}; only Measurement Sets do")
    own.pop("time_limit", None)
    if ranks is not None:
        return read_by_ranks(open_uvfits, path, cast(SetOptions, own), ranks, folder)
    return read_uvfits(path, **cast(DataOptions, own))


def _is_fits(place: Path, time_limit: object) -> bool:
    """Whether there is a FITS file; a file of another kind is refused, all else is left to `read_ms`."""
    limit = time_limit if isinstance(time_limit, int | float) and time_limit > 0 else TIME_LIMIT
    try:
        start = ask_storage(place, limit, "looking at it", lambda: _start(place))
    except OSError as error:
        raise DataError(f"{place}: cannot be looked at: {error.strerror or error}") from None
    if start is None:
        return False
    if start.startswith(b"SIMPLE  ="):
        return True
    for begin, what in OTHERS.items():
        if start.startswith(begin):
            raise DataError(f"{place}: {what}")
    if is_text(start):
        raise DataError(
            f"{place}: text, neither UVFITS nor a Measurement Set; if it is a model, it comes behind the data"
        )
    raise DataError(
        f"{place}: a file, but neither UVFITS nor a Measurement Set, which is a folder (unpack an archive)"
    )


def check_is_data(place: Path) -> None:
    """Refuse a file that is no data set.

    Raises
    ------
    DataError
    """
    _is_fits(place, TIME_LIMIT)


def is_text(start: bytes) -> bool:
    """Whether the first bytes of a file are those of a text."""
    try:
        return bool(start.strip()) and all(c.isprintable() or c.isspace() for c in start.decode("ascii"))
    except UnicodeDecodeError:
        return False


def _start(place: Path) -> bytes | None:
    """The first bytes of a file, unpacked, or a mark of a folder in `OTHERS`; None where there is neither."""
    if not place.is_file():
        marks = ((MIRIAD, ("visdata", "vartable")), (ZARR, (".zgroup",)), (ZARR, ("zarr.json",)))
        return next((mark for mark, names in marks if all((place / name).is_file() for name in names)), None)
    with open(place, "rb") as file:
        start = file.read(16)
    if start.startswith(b"\x1f\x8b"):
        try:
            with gzip.open(place) as packed:
                return packed.read(16)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            return start
    return start
