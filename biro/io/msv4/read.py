"""Read Measurement Sets of version 4 (Zarr), as xradio writes them.

Source of names and meanings: the schema of version 4.0 (https://xradio.readthedocs.io, "Measurement Set v4").
A set of partitions ("processing set") has a group for each spectral window and polarization setup. UVW,
visibilities and their signs are those of the version 2 that a set was made of (physics: section 2).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from biro.errors import DataError
from biro.files.foreign_text import visible_texts
from biro.io.data_set.directions import make_field, utc_offset
from biro.io.data_set.index import IndexColumns, PartitionRows, RowIndex
from biro.io.data_set.metadata import FieldMetadata, Metadata
from biro.io.data_set.open_set import INSTALL_FORMATS, Place, naming
from biro.io.data_set.options import SetOptions
from biro.io.data_set.request import ReadRequest
from biro.io.data_set.stored_data import DataSet, StoredVisibilities

if TYPE_CHECKING:
    from xarray import DataTree

UNIX_ZERO = 40587.0 * 86400.0
"""Time at which Unix time is 0, MJD in s."""
EQUINOX = {"icrs": 2000.0, "fk5": 2000.0, "fk4": 1950.0}
"""Equinox of the frames of directions that the schema has; others are refused."""


@contextmanager
def open_msv4(path: Place, options: SetOptions) -> Iterator[tuple[DataSet, ReadRequest]]:
    """Open a Zarr store, and sort the options with which it is read (`biro.io.data_set.open_set.OpenSet`).

    `column` names the correlated data (VISIBILITY, VISIBILITY_CORRECTED); by default they are the corrected
    ones where there are any.
    """
    own = {**options}
    column = own.pop("column", None)
    request = ReadRequest.of("read", cast(SetOptions, own))
    with naming(path, "a Measurement Set of version 4"), _tree(path) as tree:
        yield _MSv4(tree, None if column is None else str(column), os.fspath(path)), request


@contextmanager
def _tree(path: Place) -> Iterator[DataTree]:
    try:
        import xarray
        import zarr  # noqa: F401  xarray names no package where this one is missing
    except ImportError as error:
        raise DataError(
            "Zarr (Measurement Set of version 4), read by xarray and zarr, which cannot be imported "
            f"({error}); {INSTALL_FORMATS}"
        ) from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with xarray.open_datatree(os.fspath(path), engine="zarr", chunks=None) as tree:
            yield tree


class _Part:
    """One group of a store: all rows of one spectral window and polarization setup."""

    def __init__(self, name: str, node: DataTree, column: str | None) -> None:
        self.node = node
        groups = node.attrs.get("data_groups", {})
        for group in groups.values():
            if group["correlated_data"] == column:
                break
        else:
            names = ", ".join(group["correlated_data"] for group in groups.values())
            if column is not None:
                raise DataError(f"{name} has no column {column}; there are {names or 'none'}")
            group = groups.get("corrected", groups.get("base"))
            if group is None:
                raise DataError(f"{name} has no data group 'base'; there are {names or 'none'}")
        self.group = group
        self.column = str(group["correlated_data"])
        uvw = np.asarray(node[group.get("uvw", "UVW")].values, np.float64).reshape(-1, 3)
        self.rows = np.flatnonzero(~np.isnan(uvw).all(axis=1))
        self.uvw = uvw[self.rows]
        self.n_baseline = node.sizes["baseline_id"]

    def values(self, name: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """What the group `name` refers to in some rows; times without any of these are not read."""
        times, place = np.unique(rows // self.n_baseline, return_inverse=True)
        of_times = np.asarray(self.node[self.group[name]].isel(time=times).values)
        found: NDArray[Any] = of_times[place, rows % self.n_baseline]
        return found

    def of_time(self, name: str) -> NDArray[Any]:
        """A coordinate of times, one value for each row."""
        found: NDArray[Any] = np.asarray(self.node[name].values)[self.rows // self.n_baseline]
        return found

    def of_baseline(self, name: str) -> NDArray[Any]:
        """A coordinate of baselines, one value for each row."""
        found: NDArray[Any] = np.asarray(self.node[name].values)[self.rows % self.n_baseline]
        return found


class _MSv4:
    """A store: what its groups hold beside visibilities, which are read partition by partition."""

    def __init__(self, tree: DataTree, column: str | None, source: str) -> None:
        nodes = {"the set": tree} if "data_groups" in tree.attrs else dict(tree.children)
        self.parts = [
            _Part(name, node, column)
            for name, node in nodes.items()
            if node.attrs.get("type") == "visibility" and node.sizes.get("time", 0)
        ]
        if not self.parts:
            raise DataError("no group of type 'visibility'; expected a processing set of interferometry")
        self.column = "CORRECTED_DATA" if self.parts[0].column == "VISIBILITY_CORRECTED" else "DATA"
        self._antennas = self._collect("antenna_xds", "antenna_name")
        self._fields = self._collect("field_and_source", "field_name")
        self._start = np.cumsum([0, *(len(part.rows) for part in self.parts)])
        self.index = RowIndex(cast(Metadata, visible_texts(self._metadata())), self._columns(), source)

    def _subset(self, part: _Part, name: str) -> DataTree:
        return cast("DataTree", part.node[part.group.get(name, name)])

    def _collect(self, subset: str, key: str) -> dict[str, tuple[DataTree, int]]:
        """Names of antennas or fields of all groups, and where each is described."""
        found: dict[str, tuple[DataTree, int]] = {}
        for part in self.parts:
            node = self._subset(part, subset)
            for i, name in enumerate(np.atleast_1d(node[key].values)):
                found.setdefault(str(name), (node, i))
        return found

    def _of_antennas(self, name: str, default: object) -> list[Any]:
        return [
            np.asarray(node[name].values)[i].tolist() if name in node else default
            for node, i in self._antennas.values()
        ]

    def _metadata(self) -> Metadata:
        time = self.parts[0].node["time"]
        telescope = str(self._subset(self.parts[0], "antenna_xds").attrs.get("overall_telescope_name", ""))
        scale = str(time.attrs.get("scale", "utc")).upper()
        angles = [_first(each) for each in self._of_antennas("ANTENNA_RECEPTOR_ANGLE", None)]
        return {
            "antenna_names": list(self._antennas),
            "antenna_positions": self._of_antennas("ANTENNA_POSITION", [0.0, 0.0, 0.0]),
            "dish_diameter": self._of_antennas("ANTENNA_DISH_DIAMETER", 0.0),
            "fields": [self._field(name, *place, telescope) for name, place in self._fields.items()],
            "spws": [
                {
                    "name": str(part.node["frequency"].attrs.get("spectral_window_name", "")),
                    "chan_freq": np.atleast_1d(part.node["frequency"].values).tolist(),
                    "chan_width": self._widths(part),
                    "frame": str(part.node["frequency"].attrs.get("observer", "TOPO")).upper(),
                }
                for part in self.parts
            ],
            "corr_types": [
                [str(name) for name in np.atleast_1d(part.node["polarization"].values)] for part in self.parts
            ],
            "data_descriptions": [[i, i] for i in range(len(self.parts))],
            "telescope": telescope,
            "time_scale": scale,
            "utc_offset": utc_offset(float(np.atleast_1d(time.values)[0] + UNIX_ZERO) / 86400.0, scale),
            "uvw_frame": "",
            "mounts": self._of_antennas("mount", ""),
            "receptor_angles": [angles for _ in self.parts],
        }

    @staticmethod
    def _widths(part: _Part) -> list[float]:
        frequency = part.node["frequency"]
        if "CHANNEL_WIDTH" in part.node:
            return cast(list[float], np.atleast_1d(part.node["CHANNEL_WIDTH"].values).tolist())
        return [float(frequency.attrs["channel_width"]["data"])] * frequency.size

    @staticmethod
    def _field(name: str, node: DataTree, i: int, telescope: str) -> FieldMetadata:
        centre = node["FIELD_PHASE_CENTER_DIRECTION"]
        ra, dec = (float(value) for value in np.degrees(np.asarray(centre.values).reshape(-1, 2)[i]))
        name_of_pointing, pointing = "FIELD_REFERENCE_CENTER_DIRECTION", None
        if name_of_pointing in node:
            there = np.degrees(np.asarray(node[name_of_pointing].values).reshape(-1, 2)[i])
            pointing = float(there[0]), float(there[1])
        equinox = EQUINOX.get(str(centre.attrs.get("frame", "icrs")).lower(), 0.0)
        return make_field(name, (ra, dec), equinox, telescope, 51544.5, pointing, name_of_pointing)

    def _columns(self) -> IndexColumns:
        antenna = {name: i for i, name in enumerate(self._antennas)}
        field = {name: i for i, name in enumerate(self._fields)}
        scans = {str(name) for part in self.parts for name in np.unique(part.of_time("scan_name"))}
        numbered = all(name.isdigit() for name in scans)
        scan = {name: int(name) if numbered else i for i, name in enumerate(sorted(scans))}

        def every(values: list[NDArray[Any]], lookup: dict[str, int] | None = None) -> NDArray[Any]:
            joined = np.concatenate(values)
            return joined if lookup is None else np.array([lookup[str(value)] for value in joined], np.int32)

        lasts = every([self._exposure(part) for part in self.parts])
        return IndexColumns(
            antenna1=every([part.of_baseline("baseline_antenna1_name") for part in self.parts], antenna),
            antenna2=every([part.of_baseline("baseline_antenna2_name") for part in self.parts], antenna),
            field_id=every([part.of_time("field_name") for part in self.parts], field),
            data_desc_id=np.repeat(np.arange(len(self.parts), dtype=np.int32), np.diff(self._start)),
            scan_number=every([part.of_time("scan_name") for part in self.parts], scan),
            flag_row=np.zeros(self._start[-1], bool),
            time=every([part.of_time("time").astype(np.float64) for part in self.parts]) + UNIX_ZERO,
            interval=lasts,
            exposure=lasts,
            uvw=every([part.uvw for part in self.parts]),
        )

    @staticmethod
    def _exposure(part: _Part) -> NDArray[np.float64]:
        """How long each row was integrated, s."""
        if "EFFECTIVE_INTEGRATION_TIME" in part.node:
            stated = np.asarray(part.node["EFFECTIVE_INTEGRATION_TIME"].values, np.float64).ravel()[part.rows]
            return np.where(np.isfinite(stated), stated, 0.0)
        stated = part.node["time"].attrs.get("integration_time", {"data": 0.0})["data"]
        return np.full(len(part.rows), float(stated))

    @property
    def is_blank(self) -> bool:
        """Whether no visibility differs from 0."""
        return not any(np.any(part.node[part.column].values) for part in self.parts)

    @property
    def other_columns(self) -> Sequence[str]:
        """Names of the correlated data that could be read instead."""
        groups = self.parts[0].node.attrs["data_groups"].values()
        return [name for group in groups if (name := group["correlated_data"]) != self.parts[0].column]

    def notes(self, parts: Sequence[PartitionRows]) -> Iterator[str]:
        """What the format does not keep."""
        yield "Measurement Sets of version 4 have no INTERVAL; biro uses EFFECTIVE_INTEGRATION_TIME"

    def visibilities(self, part: PartitionRows) -> StoredVisibilities:
        """Read the visibilities of one partition."""
        group = self.parts[part.data_desc_id]
        rows = group.rows[part.rows - self._start[part.data_desc_id]]

        def selected(name: str) -> NDArray[Any]:
            return group.values(name, rows)[:, part.chan][:, :, part.corr]

        weight = selected("weight")
        return StoredVisibilities(
            selected("correlated_data"),
            np.where(np.isnan(weight), 0, weight),
            selected("flag").astype(bool),
            np.zeros(len(part.rows), bool),
            "WEIGHT",
        )


def _first(angles: list[float] | None) -> float | None:
    """The angle of the first receptor."""
    return float(angles[0]) if angles else None
