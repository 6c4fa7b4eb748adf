"""Read UVH5, MIRIAD and MIR data sets through pyuvdata.

Every phase centre and spectral window is a partition of its own. pyuvdata gives visibilities and uvw of the
opposite sign to those that CASA writes; both are turned back here, so that physics: section 2 holds. Weights
are pyuvdata's numbers of samples (`nsample_array`), which have no absolute scale in most files.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.error import URLError

import numpy as np
from numpy.typing import NDArray

from biro.errors import DataError
from biro.files.foreign_text import visible_texts
from biro.io.data_set.directions import make_field
from biro.io.data_set.index import IndexColumns, PartitionRows, RowIndex
from biro.io.data_set.metadata import FieldMetadata, Metadata
from biro.io.data_set.open_set import INSTALL_FORMATS, Place, naming
from biro.io.data_set.options import SetOptions
from biro.io.data_set.request import ReadRequest
from biro.io.data_set.stored_data import DataSet, StoredVisibilities

if TYPE_CHECKING:
    from pyuvdata import UVData

FileType = Literal["uvh5", "miriad", "mir"]
NAMES: dict[FileType, str] = {"uvh5": "UVH5", "miriad": "MIRIAD", "mir": "MIR (SMA)"}
MJD_ZERO = 2400000.5
"""Julian date at which the modified Julian date is 0, d."""
CORRELATIONS = {
    1: "I", 2: "Q", 3: "U", 4: "V",
    -1: "RR", -2: "LL", -3: "RL", -4: "LR",
    -5: "XX", -6: "YY", -7: "XY", -8: "YX",
}  # fmt: skip
"""Names of the numbers of polarizations, which are those of FITS (AIPS memo 117)."""


@contextmanager
def _open(path: Place, file_type: FileType, options: SetOptions) -> Iterator[tuple[DataSet, ReadRequest]]:
    """Open a set, and sort the options with which it is read (`biro.io.data_set.open_set.OpenSet`)."""
    request = ReadRequest.of("read", options)
    with naming(path, NAMES[file_type]):
        data = _UVDataSet(Path(path), file_type)
    yield data, request


# Functions of the module, since other processes of MPI find them by their names.
@contextmanager
def open_uvh5(path: Place, options: SetOptions) -> Iterator[tuple[DataSet, ReadRequest]]:
    """Open a UVH5 file; its visibilities are read when they are needed."""
    with _open(path, "uvh5", options) as opened:
        yield opened


@contextmanager
def open_miriad(path: Place, options: SetOptions) -> Iterator[tuple[DataSet, ReadRequest]]:
    """Open a MIRIAD data set, which is read whole."""
    with _open(path, "miriad", options) as opened:
        yield opened


@contextmanager
def open_mir(path: Place, options: SetOptions) -> Iterator[tuple[DataSet, ReadRequest]]:
    """Open a MIR data set of the SMA, which is read whole."""
    with _open(path, "mir", options) as opened:
        yield opened


def _uvdata(file_type: FileType) -> UVData:
    """An empty data set of pyuvdata."""
    try:
        from pyuvdata import UVData
    except ImportError as error:
        raise DataError(
            f"{NAMES[file_type]}, read by pyuvdata, which cannot be imported ({error}); {INSTALL_FORMATS}"
        ) from None
    return UVData()


@contextmanager
def without_sites() -> Iterator[None]:
    """Let pyuvdata do without the list of telescopes that astropy downloads: it knows some itself.

    Raises
    ------
    DataError
        It does not know this one.
    """
    from astropy.coordinates import EarthLocation
    from astropy.coordinates.sites import SiteRegistry

    loaded = EarthLocation._site_registry  # by the user, with a network
    if loaded is None:
        registry = SiteRegistry()
        registry.add_site(["greenwich"], EarthLocation.from_geodetic(0.0, 51.4779))
        EarthLocation._site_registry = registry  # an empty one would be downloaded
    try:
        yield
    except (KeyError, ValueError) as error:
        if "known_telescopes_dict" not in str(error):
            raise
        raise DataError(
            "the file does not say where its telescope is. pyuvdata looks it up in a list that astropy "
            "downloads once: read the file once with a network, EarthLocation.get_site_names() of astropy"
        ) from None
    finally:
        EarthLocation._site_registry = loaded


class _UVDataSet:
    """A data set of pyuvdata: what its header holds, and its visibilities partition by partition.

    A row is one baseline, time and spectral window; windows of one baseline and time follow one another.
    """

    column = "DATA"
    other_columns = ()

    def __init__(self, path: Path, file_type: FileType) -> None:
        self._path, self._type = path, file_type
        self._set = self._read(read_data=False)
        whole = self._set
        numbers = np.zeros(whole.Nfreqs, int) if whole.flex_spw_id_array is None else whole.flex_spw_id_array
        self._channels = [np.flatnonzero(numbers == number) for number in whole.spw_array]
        self._fields = {int(key): i for i, key in enumerate(whole.phase_center_catalog)}
        self.index = RowIndex(cast(Metadata, visible_texts(self._metadata())), self._columns(), str(path))

    def _read(self, **options: object) -> UVData:
        """The set, or a part of it. Only UVH5 is read in parts."""
        if self._type != "uvh5":
            options = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                result = _uvdata(self._type)
                result.read(os.fspath(self._path), file_type=self._type, **options)
            except URLError:
                with without_sites():
                    result = _uvdata(self._type)
                    result.read(os.fspath(self._path), file_type=self._type, **options)
        return result

    def _correlations(self) -> list[list[str]]:
        """Names of the correlations of each spectral window."""
        single = self._set.flex_spw_polarization_array
        if single is not None:  # each window has one polarization
            return [[_correlation(number)] for number in single]
        every = [_correlation(number) for number in self._set.polarization_array]
        return [every] * len(self._channels)

    def _metadata(self) -> Metadata:
        whole, telescope = self._set, self._set.telescope
        diameters = telescope.antenna_diameters
        feeds = telescope.feed_angle
        n_antenna = len(telescope.antenna_names)
        mounts = [""] * n_antenna if telescope.mount_type is None else telescope.mount_type
        angles: list[float | None] = [None] * n_antenna if feeds is None else feeds[:, 0].tolist()
        centre = np.array([value.to_value("m") for value in telescope.location.geocentric])
        return {
            "antenna_names": [str(name).strip() for name in telescope.antenna_names],
            "antenna_positions": (telescope.antenna_positions + centre).tolist(),
            "dish_diameter": [0.0] * n_antenna if diameters is None else diameters.tolist(),
            "fields": [self._field(entry) for entry in whole.phase_center_catalog.values()],
            "spws": [
                {
                    "name": "",
                    "chan_freq": whole.freq_array[chan].tolist(),
                    "chan_width": whole.channel_width[chan].tolist(),
                    "frame": "TOPO",
                }
                for chan in self._channels
            ],
            "corr_types": self._correlations(),
            "data_descriptions": [[i, i] for i in range(len(self._channels))],
            "telescope": str(telescope.name),
            "time_scale": "UTC",
            "utc_offset": 0.0,
            "uvw_frame": "",
            "mounts": [str(mount) for mount in mounts],
            "receptor_angles": [angles for _ in self._channels],
        }

    def _field(self, entry: dict[str, Any]) -> FieldMetadata:
        """A phase centre of the catalog."""
        name, kind = str(entry["cat_name"]), entry["cat_type"]
        if kind != "sidereal":
            problem = (
                f"it is {kind}, so that its visibilities have no phase centre on the sky: phase them to"
                " one first (UVData.phase)"
            )
            return {
                "name": name,
                "direction": [0.0, 0.0],
                "frame": "",
                "problem": problem,
                "note": None,
                "pointing": None,
            }
        frame, epoch = str(entry["cat_frame"]), entry["cat_epoch"]
        equinox = 2000.0 if frame == "icrs" else float(epoch) if frame in ("fk5", "fk4") else 0.0
        direction = tuple(float(np.degrees(cast(float, entry[key]))) for key in ("cat_lon", "cat_lat"))
        mjd = float(self._set.time_array[0]) - MJD_ZERO
        return make_field(
            name, cast(tuple[float, float], direction), equinox, str(self._set.telescope.name), mjd
        )

    def _columns(self) -> IndexColumns:
        whole, n_window = self._set, len(self._channels)
        place = {int(number): i for i, number in enumerate(whole.telescope.antenna_numbers)}

        def each(values: NDArray[Any], lookup: dict[int, int] | None = None) -> NDArray[Any]:
            found = values if lookup is None else np.array([lookup[int(value)] for value in values], np.int32)
            return np.repeat(found, n_window, axis=0)

        interval = each(np.asarray(whole.integration_time, np.float64))
        scan = np.zeros(whole.Nblts, np.int32) if whole.scan_number_array is None else whole.scan_number_array
        n_row = whole.Nblts * n_window
        return IndexColumns(
            antenna1=each(whole.ant_1_array, place),
            antenna2=each(whole.ant_2_array, place),
            field_id=each(whole.phase_center_id_array, self._fields),
            data_desc_id=np.tile(np.arange(n_window, dtype=np.int32), whole.Nblts),
            scan_number=each(np.asarray(scan, np.int32)),
            flag_row=np.zeros(n_row, bool),
            time=each((np.asarray(whole.time_array, np.float64) - MJD_ZERO) * 86400.0),
            interval=interval,
            exposure=interval,
            uvw=each(-np.asarray(whole.uvw_array, np.float64)),
        )

    @property
    def is_blank(self) -> bool:
        """Whether no visibility differs from 0."""
        if self._set.data_array is not None:
            return not np.any(self._set.data_array)
        blocks = np.array_split(np.arange(self._set.Nblts), 1 + self._set.Nblts // 100_000)
        return not any(np.any(self._read(blt_inds=block).data_array) for block in blocks)

    def notes(self, parts: Sequence[PartitionRows]) -> Iterator[str]:
        """What is odd about units and weights."""
        if str(self._set.vis_units).lower() != "jy":
            yield f"the unit of the visibilities is {self._set.vis_units!r}; biro takes them as Jy"
        yield "weights are pyuvdata's nsample_array, which is not in 1/Jy^2; fit a noise factor"

    def visibilities(self, part: PartitionRows) -> StoredVisibilities:
        """Read the visibilities of one partition."""
        rows, chan = part.rows // len(self._channels), self._channels[part.spw_id][part.chan]
        if self._type == "uvh5":
            ordered, back = np.unique(rows, return_inverse=True)
            whole = self._read(blt_inds=ordered, freq_chans=np.sort(chan))
            inside = np.ix_(back, np.argsort(np.argsort(chan)), self._polarizations(part))
        else:
            whole = self._set
            inside = np.ix_(rows, chan, self._polarizations(part))
        return StoredVisibilities(
            np.conj(whole.data_array[inside]),
            np.asarray(whole.nsample_array[inside]),
            np.asarray(whole.flag_array[inside]),
            np.zeros(len(part.rows), bool),
            "nsample_array",
        )

    def _polarizations(self, part: PartitionRows) -> NDArray[np.int64]:
        """Places of the correlations of a partition along the axis of polarizations."""
        return np.zeros(1, np.int64) if self._set.flex_spw_polarization_array is not None else part.corr


def _correlation(number: int) -> str:
    """The name of a correlation."""
    return CORRELATIONS.get(int(number), f"polarization {int(number)}")
