"""A Measurement Set's index columns and subtables, checked, and the partitions they fall into."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biro.errors import MeasurementSetError
from biro.measurement_set.process import MeasurementSetProcess
from biro.observation.partition import KNOWN_CORRELATIONS
from biro.observation.selection import (
    Selection,
    UVRange,
    select_channels,
    select_correlations,
    select_names,
    select_scans,
    select_times,
)

# casacore's Stokes::StokesTypes, from 0.
STOKES = (
    *(
        "undefined",
        "I",
        "Q",
        "U",
        "V",
        "RR",
        "RL",
        "LR",
        "LL",
        "XX",
        "XY",
        "YX",
        "YY",
        "RX",
        "RY",
        "LX",
        "LY",
    ),
    *(
        "XR",
        "XL",
        "YR",
        "YL",
        "PP",
        "PQ",
        "QP",
        "QQ",
        "RCircular",
        "LCircular",
        "Linear",
        "Ptotal",
        "Plinear",
    ),
    *("PFtotal", "PFlinear", "Pangle"),
)


def unique_names(names: list[str]) -> list[str]:
    """The names, or the id as text for those that say nothing or that several share."""
    plain = [name.strip() for name in names]
    return [
        name if name and name.lower() != "none" and plain.count(name) == 1 else str(i)
        for i, name in enumerate(plain)
    ]


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of one field and data description, with the channels and correlations wanted.

    Attributes
    ----------
    field_id, data_desc_id, spw_id : int
    rows : int64 (n_row,)
        Row numbers, in the order of the set.
    shape : (n_chan, n_corr)
        Of a stored cell.
    chan, corr : int64
        Indices wanted.
    inside : bool (n_row, n_chan wanted or 1)
        Whether a visibility is in the range of wavelengths wanted.
    """

    field_id: int
    data_desc_id: int
    spw_id: int
    rows: NDArray[np.int64]
    shape: tuple[int, int]
    chan: NDArray[np.int64]
    corr: NDArray[np.int64]
    inside: NDArray[np.bool_]


class Layout:
    """What a Measurement Set holds, before any visibility is read."""

    def __init__(self, child: MeasurementSetProcess) -> None:
        self.meta = child.call("metadata")
        child.send({"operation": "index"})
        self.index: dict[str, NDArray[Any]] = {}
        for name in child.receive()[0]["columns"]:
            array = child.receive()[1]
            assert array is not None
            self.index[name] = array
        self.source = str(child.path)
        self._check_ids()

    def _fail(self, problem: str) -> MeasurementSetError:
        return MeasurementSetError(f"{self.source}: {problem}")

    def _check_ids(self) -> None:
        if not self.n_row:
            raise self._fail("the main table has no rows")
        sizes = {
            "ANTENNA1": len(self.meta["antenna_names"]),
            "ANTENNA2": len(self.meta["antenna_names"]),
            "FIELD_ID": len(self.meta["fields"]),
            "DATA_DESC_ID": len(self.descriptions),
        }
        for name, size in sizes.items():
            low, high = int(self.index[name].min()), int(self.index[name].max())
            if low < 0 or high >= size:
                raise self._fail(f"{name} runs from {low} to {high}, but its subtable has {size} rows")
        for number, (spw, pol) in enumerate(self.descriptions):
            if not (0 <= spw < len(self.meta["spws"]) and 0 <= pol < len(self.meta["corr_types"])):
                raise self._fail(
                    f"data description {number} is of spectral window {spw} and polarization {pol}, but there"
                    f" are {len(self.meta['spws'])} and {len(self.meta['corr_types'])}"
                )

    @property
    def n_row(self) -> int:
        return len(self.index["TIME"])

    @property
    def descriptions(self) -> list[tuple[int, int]]:
        """(spectral window, polarization) of each data description."""
        return [(spw, pol) for spw, pol in self.meta["data_descriptions"]]

    @cached_property
    def field_names(self) -> list[str]:
        return unique_names([item["name"] for item in self.meta["fields"]])

    @cached_property
    def spw_names(self) -> list[str]:
        return unique_names([item["name"] for item in self.meta["spws"]])

    def corr_type(self, data_desc_id: int) -> tuple[str, ...]:
        """Names of the correlations of a data description, as stored."""
        codes = self.meta["corr_types"][self.descriptions[data_desc_id][1]]
        return tuple(STOKES[code] if 0 <= code < len(STOKES) else f"code {code}" for code in codes)

    def cell_shape(self, data_desc_id: int) -> tuple[int, int]:
        """(n_chan, n_corr) that the subtables give a data description."""
        spw, pol = self.descriptions[data_desc_id]
        return len(self.meta["spws"][spw]["chan_freq"]), len(self.meta["corr_types"][pol])

    @cached_property
    def n_visibilities(self) -> int:
        """Visibilities of the whole set."""
        rows = np.bincount(self.index["DATA_DESC_ID"], minlength=len(self.descriptions))
        return sum(int(n) * int(np.prod(self.cell_shape(i))) for i, n in enumerate(rows))

    def parts(self, selection: Selection) -> list[Part]:
        """The partitions of the rows selected, autocorrelations among them.

        Raises
        ------
        MeasurementSetError
            Nothing is selected, or names and ids that are not there.
        """
        rows = self._rows(selection)
        pairs = np.stack([self.index["FIELD_ID"], self.index["DATA_DESC_ID"]], axis=1)[rows]
        parts = []
        for field_id, data_desc_id in np.unique(pairs, axis=0) if len(rows) else ():
            mine = rows[(pairs == (field_id, data_desc_id)).all(axis=1)]
            part = self._part(int(field_id), int(data_desc_id), mine, selection)
            if part is not None:
                parts.append(part)
        if not parts:
            raise self._fail(f"no row is selected; the set has {self._contents()}")
        return parts

    def _rows(self, selection: Selection) -> NDArray[np.int64]:
        index = self.index
        mask = select_names(selection.fields, [f["name"] for f in self.meta["fields"]], "field")[
            index["FIELD_ID"]
        ]
        spws = select_names(selection.spws, [s["name"] for s in self.meta["spws"]], "spectral window")
        mask &= spws[[spw for spw, _ in self.descriptions]][index["DATA_DESC_ID"]]
        antennas = select_names(selection.antennas, self.meta["antenna_names"], "antenna")
        mask &= antennas[index["ANTENNA1"]] & antennas[index["ANTENNA2"]]
        mask &= select_scans(selection.scans, index["SCAN_NUMBER"])
        mask &= select_times(selection.time_range, index["TIME"], self.meta["utc_offset"])
        return np.flatnonzero(mask)

    def _part(
        self, field_id: int, data_desc_id: int, rows: NDArray[np.int64], selection: Selection
    ) -> Part | None:
        spw_id = self.descriptions[data_desc_id][0]
        corr = select_correlations(selection.correlations, self.corr_type(data_desc_id))
        if not corr.size:
            return None
        self._check_correlations(data_desc_id, corr)
        shape = self.cell_shape(data_desc_id)
        what = f"{self.source}: spectral window {self.spw_names[spw_id]}"
        chan = select_channels(selection.channels, shape[0], what)
        inside = np.ones((len(rows), 1), bool)
        if selection.uv_range is not None:
            chan_freq = np.array(self.meta["spws"][spw_id]["chan_freq"])[chan]
            inside = UVRange.of(selection.uv_range).mask(self.index["UVW"][rows], chan_freq)
            any_inside = inside.any(axis=1)
            rows, inside = rows[any_inside], inside[any_inside]
        if not rows.size:
            return None
        return Part(field_id, data_desc_id, spw_id, rows, shape, chan, corr, inside)

    def _check_correlations(self, data_desc_id: int, corr: NDArray[np.int64]) -> None:
        names = self.corr_type(data_desc_id)
        unknown = [names[i] for i in corr if names[i] not in KNOWN_CORRELATIONS]
        if unknown:
            raise self._fail(
                f"unknown correlation types {', '.join(unknown)} in data description {data_desc_id};"
                f" known are {', '.join(KNOWN_CORRELATIONS)} (correlations= selects among {', '.join(names)})"
            )

    def _contents(self) -> str:
        index = self.index
        names = sorted({name for i in set(index["DATA_DESC_ID"]) for name in self.corr_type(int(i))})
        scans = np.unique(index["SCAN_NUMBER"])
        return (
            f"fields {', '.join(self.field_names)}; spectral windows {', '.join(self.spw_names)};"
            f" {len(scans)} scans from {scans[0]} to {scans[-1]}; correlations {', '.join(names)}"
        )

    def doubtful_uvw(self, parts: list[Part]) -> Iterator[str]:
        """What is odd about UVW, as notes.

        Raises
        ------
        MeasurementSetError
            UVW is zero in every row of two different antennas.
        """
        rows = np.concatenate([part.rows for part in parts])
        first, second = self.index["ANTENNA1"][rows], self.index["ANTENNA2"][rows]
        cross = first != second
        length = np.linalg.norm(self.index["UVW"][rows], axis=1)
        zero = int(np.count_nonzero(length[cross] == 0))
        if zero and zero == np.count_nonzero(cross):
            raise self._fail("UVW is zero in every row; fill it in first (CASA: fixvis, calcuvw)")
        if zero:
            yield f"UVW is zero in {zero} rows of two different antennas"
        positions = np.array(self.meta["antenna_positions"]).reshape(-1, 3)
        true = np.linalg.norm(positions[second] - positions[first], axis=1)
        off = cross & (np.abs(length - true) > 0.01 * true + 1.0)
        if true[cross].any() and off.any():
            yield (
                f"UVW and ANTENNA disagree about the length of the baseline in {np.count_nonzero(off)} rows;"
                " UVW is used"
            )
