"""Read a UVFITS file as an observation."""

from __future__ import annotations

import io
import itertools
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, cast

import numpy as np

from biro.display.arguments import PATH, takes
from biro.display.progress import showing
from biro.errors import DataError
from biro.files.fits_table import check_whole
from biro.files.fits_vetting import vet
from biro.files.foreign_text import visible_texts
from biro.files.memory import free_memory
from biro.io.data_set.assembly import assemble
from biro.io.data_set.directions import make_field, utc_offset
from biro.io.data_set.index import PartitionRows, RowIndex
from biro.io.data_set.metadata import FieldMetadata, Metadata
from biro.io.data_set.open_set import naming
from biro.io.data_set.options import DataOptions, SetOptions
from biro.io.data_set.request import ReadRequest
from biro.io.data_set.stored_data import DataSet, StoredVisibilities
from biro.io.uvfits.groups import RandomGroups
from biro.io.uvfits.header import parse_header
from biro.io.uvfits.rows import RandomParameters, index_columns
from biro.io.uvfits.subarrays import true_times
from biro.io.uvfits.tables import (
    FrequencyWindow,
    SourceRow,
    find_tables,
    read_antennas,
    read_sources,
    read_windows,
)
from biro.observation.observation import Observation

if TYPE_CHECKING:
    from astropy.io.fits import HDUList, Header

FREQUENCY_FRAMES = {"LSRK": "LSRK", "LSRD": "LSRD", "BARYCENT": "BARY", "GEOCENTR": "GEO"}
"""Frames of frequencies by SPECSYS; others, and none, are taken as those of the telescope, as CASA does."""


@takes(path=PATH)
def read_uvfits(
    path: str | os.PathLike[str], *, progress: bool = True, **options: Unpack[DataOptions]
) -> Observation:
    """Read calibrated visibilities of a UVFITS file: random groups, as AIPS, difmap and ehtim write them.

    Every source and every IF (under each frequency id) is a partition of its own, as in the Measurement Set
    that CASA's importuvfits makes of the file; so are the order of correlations (RR, RL, LR, LL) and row
    numbers, a row for each group and IF. Visibilities and uvw keep the signs of the file. Antennas go by
    their names in the table AIPS AN. A negative weight is a flag ("FLAG"); the others are weights.

    Parameters
    ----------
    path : path of the file, which may be compressed by gzip
    progress : bool
        Show a bar on stderr of what takes longer than two seconds.
    **options
        As those of `biro.read_ms`, without scans, which the format does not number, and without column,
        weight_column and time_limit, which belong to Measurement Sets.

    Returns
    -------
    Observation

    Raises
    ------
    DataError
        No such file, not UVFITS, cut off, without a parameter or a table that is needed, a selection that
        matches nothing, or no usable visibility.
    InputError
        An option that is not understood.

    Examples
    --------
    >>> read_uvfits("J1033+6051.uvf", spws=[0, 1], uv_range="10 Mlambda..")
    """
    with (
        showing(progress),
        open_uvfits(path, cast(SetOptions, options)) as (data, request),
        naming(path, "UVFITS"),
    ):
        return assemble(data, request)


@contextmanager
def open_uvfits(path: str | os.PathLike[str], options: SetOptions) -> Iterator[tuple[DataSet, ReadRequest]]:
    """A file whose groups are read when they are asked for, and its options sorted.

    See `biro.io.data_set.open_set.OpenSet`.
    """
    request = ReadRequest.of("read_uvfits", options)
    with naming(path, "UVFITS"), opened(Path(path)) as (file, hdus):
        data = _UVFITS(file, hdus, str(path))
    yield data, request


def stations_of(data: DataSet) -> dict[int, int]:
    """Indices of the antennas of the first subarray by the numbers of their stations."""
    assert isinstance(data, _UVFITS)
    return {number: at for (subarray, number), at in data.antennas.numbers.items() if subarray == 1}


@contextmanager
def opened(place: Path) -> Iterator[tuple[Path | io.BytesIO, HDUList]]:
    """A file whose headers have been looked at, and its units."""
    from astropy.io import fits

    if not place.exists():
        raise DataError("no such file")
    if not place.is_file():
        raise DataError(f"a {'folder' if place.is_dir() else 'pipe or a device'}, not a UVFITS file")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = vet(place, free_memory())
        with fits.open(file, mode="readonly", memmap=False, lazy_load_hdus=True) as hdus:
            yield file, hdus


class _UVFITS:
    """What a file holds, apart from its visibilities, which are read partition by partition."""

    column = "DATA"
    other_columns = ()

    def __init__(self, file: Path | io.BytesIO, hdus: HDUList, source: str) -> None:
        first = hdus[0].header
        group = parse_header(hdus)
        self.groups = RandomGroups(file, hdus[0].fileinfo()["datLoc"], group)
        self.n_if = group.axis("IF").length
        tables = {name: find_tables(hdus, name) for name in ("AIPS AN", "AIPS FQ", "AIPS SU")}
        check_whole(file, itertools.chain.from_iterable(tables.values()))
        self.antennas = read_antennas(tables["AIPS AN"])
        windows = read_windows(tables["AIPS FQ"], group.axis("FREQ"), self.n_if)
        self.sources = read_sources(tables["AIPS SU"])
        parameters = RandomParameters(self.groups)
        columns = index_columns(
            parameters, self.antennas, list(self.sources) or [1], list(windows), self.n_if
        )
        mjd = float(columns.time[0]) / 86400.0
        self.corr_type = group.ordered_correlations
        metadata = self._metadata(first, windows, mjd)
        subarray = np.repeat(parameters.baselines()[2], self.n_if)
        columns, self.moved = true_times(columns, subarray, metadata)
        self.index = RowIndex(cast(Metadata, visible_texts(metadata)), columns, source)

    def _metadata(self, header: Header, windows: dict[int, list[FrequencyWindow]], mjd: float) -> Metadata:
        antennas = self.antennas
        scale = antennas.time_system or "UTC"
        telescope = str(header.get("TELESCOP", "")).strip() or antennas.array or "UNKNOWN"
        frame = FREQUENCY_FRAMES.get(str(header.get("SPECSYS", "")).strip().upper(), "TOPO")
        every = [window for several in windows.values() for window in several]
        return {
            "antenna_names": antennas.names,
            "antenna_positions": antennas.positions.tolist(),
            "dish_diameter": antennas.diameters.tolist(),
            "fields": _fields(header, self.sources, telescope, mjd),
            "spws": [
                {
                    "name": "",
                    "chan_freq": window.chan_freq.tolist(),
                    "chan_width": window.chan_width.tolist(),
                    "frame": frame,
                }
                for window in every
            ],
            "corr_types": [self.corr_type],
            "data_descriptions": [[i, 0] for i in range(len(every))],
            "telescope": telescope,
            "time_scale": scale,
            "utc_offset": utc_offset(mjd, scale),
            "uvw_frame": "",
            "mounts": antennas.mounts,
            "receptor_angles": [list(antennas.receptor_angles) for _ in every],
        }

    @cached_property
    def is_blank(self) -> bool:
        """Whether no visibility differs from 0."""
        return not self.groups.has_signal()

    def notes(self, parts: Sequence[PartitionRows]) -> Iterator[str]:
        """What is odd about times and frequencies."""
        if self.antennas.time_system is None:
            yield "the file states no time system (no TIMESYS in AIPS AN); biro takes its times as UTC"
        yield from self.moved
        shifted = [source.name for source in self.sources.values() if source.has_offset]
        if shifted:
            yield f"FREQOFF in AIPS SU, the shift of frequencies of {', '.join(shifted)}, is not applied"

    def visibilities(self, part: PartitionRows) -> StoredVisibilities:
        """Read the visibilities of one partition; negative weights become flags."""
        names = [self.corr_type[i] for i in part.corr]
        i_if = part.spw_id % self.n_if
        vis, weight = self.groups.visibilities(part.rows // self.n_if, i_if, part.chan, names)
        flag = weight < 0
        missing = np.zeros(len(part.rows), bool)
        return StoredVisibilities(vis, np.abs(weight), flag, missing, "UVFITS")


def _fields(
    header: Header, sources: Mapping[int, SourceRow], telescope: str, mjd: float
) -> list[FieldMetadata]:
    """Fields from AIPS SU, or the one field that the header describes."""
    equinox = _equinox(header)
    if sources:
        return [
            make_field(
                source.name,
                (source.ra, source.dec),
                source.equinox if source.equinox > 0 else equinox,
                telescope,
                mjd,
                source.pointing,
                "RAOBS, DECOBS",
            )
            for source in sources.values()
        ]
    direction = {
        str(header.get(f"CTYPE{i}", "")).strip(): float(header.get(f"CRVAL{i}", 0.0))
        for i in range(2, int(header["NAXIS"]) + 1)
    }
    if not {"RA", "DEC"} <= direction.keys():
        raise DataError("no phase centre: the header has no axes RA and DEC, and there is no table AIPS SU")
    name = str(header.get("OBJECT", "")).strip()
    pointing = None
    if "OBSRA" in header and "OBSDEC" in header:
        pointing = _number(header["OBSRA"]), _number(header["OBSDEC"])
    place = direction["RA"], direction["DEC"]
    return [make_field(name, place, equinox, telescope, mjd, pointing, "OBSRA, OBSDEC")]


def _number(value: object) -> float:
    """A number of a header; NaN where it is text of another kind."""
    try:
        return float(str(value))
    except ValueError:
        return float("nan")


def _equinox(header: Header) -> float:
    """The equinox of a header: EQUINOX or EPOCH, as a number or as "J2000"; 2000 where there is none."""
    value = header.get("EQUINOX", header.get("EPOCH", 2000.0))
    try:
        return float(str(value).strip().lstrip("JjBb"))
    except ValueError:
        raise DataError(f"EQUINOX = {value!r} in the header; expected 2000 or 1950") from None
