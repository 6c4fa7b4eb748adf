"""Index columns and metadata of a data set, checked, and the rows that a selection takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.errors import DataError
from biro.files.foreign_text import visible
from biro.io.data_set.metadata import Metadata
from biro.io.data_set.nothing_selected import RowsOfSet, why_no_row, why_no_visibility
from biro.io.data_set.plausible import is_baseline, is_frequency, is_time, is_width
from biro.observation.correlations import KNOWN_CORRELATIONS
from biro.observation.selection import (
    Selection,
    UVRange,
    check_stokes_stored,
    select_channels,
    select_correlations,
    select_names,
    select_scans,
    select_times,
)
from rime_kernels.arrays.time_slots import RowSlots, width_of_slots


def unique_names(names: list[str]) -> list[str]:
    """The names, or the id as text for those that say nothing or that several share."""
    stripped = [name.strip() for name in names]
    return [
        name if name and name.lower() != "none" and stripped.count(name) == 1 else str(i)
        for i, name in enumerate(stripped)
    ]


@dataclass(frozen=True, eq=False)
class PartitionRows:
    """Rows of one field and data description, with the channels and correlations that are selected.

    Attributes
    ----------
    field_id, data_desc_id, spw_id : int
    rows : int64 (n_row,)
        Row numbers, in the order of the set.
    shape : (n_chan, n_corr)
        Shape of a stored cell.
    chan, corr : int64 (n_chan selected,), (n_corr selected,)
        Indices within a stored cell.
    inside : bool (n_row, n_chan selected or 1)
        Whether a visibility is in the selected range of baseline lengths.
    """

    field_id: int
    data_desc_id: int
    spw_id: int
    rows: NDArray[np.int64]
    shape: tuple[int, int]
    chan: NDArray[np.int64]
    corr: NDArray[np.int64]
    inside: NDArray[np.bool_]


class IndexColumns(NamedTuple):
    """What rows are selected by, one value a row.

    Attributes
    ----------
    antenna1, antenna2, field_id, data_desc_id, scan_number : int32 (n_row,)
    flag_row : bool (n_row,)
    time : float64 (n_row,), MJD in s
    interval : float64 (n_row,), s
        0 where it is not known.
    exposure : float64 (n_row,), s
        How much of the interval was integrated; the interval where nothing else is known.
    uvw : float64 (n_row, 3), m
        NaN where it cannot be a baseline, in the columns of a `RowIndex`.
    """

    antenna1: NDArray[np.int32]
    antenna2: NDArray[np.int32]
    field_id: NDArray[np.int32]
    data_desc_id: NDArray[np.int32]
    scan_number: NDArray[np.int32]
    flag_row: NDArray[np.bool_]
    time: NDArray[np.float64]
    interval: NDArray[np.float64]
    exposure: NDArray[np.float64]
    uvw: NDArray[np.float64]


class RowIndex:
    """What a data set holds, before any visibility is read.

    Attributes
    ----------
    metadata : Metadata
    columns : IndexColumns
    source : str
        Path of the set, for people.

    Raises
    ------
    DataError
        No rows, or numbers of antennas, fields or data descriptions that the subtables do not have.
    """

    def __init__(self, metadata: Metadata, columns: IndexColumns, source: str) -> None:
        self.metadata = metadata
        self.columns = columns
        self.source = visible(source)
        self._check_ids()
        usable = is_baseline(columns.uvw)
        self.columns = columns._replace(uvw=np.where(usable[:, None], columns.uvw, np.nan))

    def _fail(self, problem: str) -> DataError:
        return DataError(f"{self.source}: {problem}")

    def _check_ids(self) -> None:
        """Refuse numbers that point beyond the rows of their subtables."""
        if not self.n_row:
            raise self._fail("the main table has no rows")
        n_antenna = len(self.metadata["antenna_names"])
        for name, ids, size in (
            ("ANTENNA1", self.columns.antenna1, n_antenna),
            ("ANTENNA2", self.columns.antenna2, n_antenna),
            ("FIELD_ID", self.columns.field_id, len(self.metadata["fields"])),
            ("DATA_DESC_ID", self.columns.data_desc_id, len(self.descriptions)),
        ):
            low, high = int(ids.min()), int(ids.max())
            if low < 0 or high >= size:
                raise self._fail(f"{name} runs from {low} to {high}, but its subtable has {size} rows")
        for number, (spw, pol) in enumerate(self.descriptions):
            if not (0 <= spw < len(self.metadata["spws"]) and 0 <= pol < len(self.metadata["corr_types"])):
                n_spw, n_pol = len(self.metadata["spws"]), len(self.metadata["corr_types"])
                raise self._fail(
                    f"data description {number} is of spectral window {spw} and polarization {pol}, but "
                    f"there are {n_spw} spectral windows and {n_pol} polarizations, counted from 0"
                )
        for number in np.unique(self.columns.data_desc_id).tolist():
            spw, pol = self.descriptions[number]
            n_chan, n_corr = self.cell_shape(number)
            if not (n_chan and n_corr):
                what = f"spectral window {spw} has no channels"
                if n_chan:
                    what = f"polarization {pol} has no correlations"
                raise self._fail(f"the rows of data description {number} hold no visibilities: {what}")

    @property
    def n_row(self) -> int:
        """Rows of the main table."""
        return len(self.columns.time)

    @property
    def descriptions(self) -> list[tuple[int, int]]:
        """(spectral window, polarization) of each data description."""
        return [(spw, pol) for spw, pol in self.metadata["data_descriptions"]]

    @cached_property
    def antenna_names(self) -> list[str]:
        """A name for each antenna, unique among them."""
        return unique_names(self.metadata["antenna_names"])

    @cached_property
    def field_names(self) -> list[str]:
        """A name for each field, unique among them."""
        return unique_names([item["name"] for item in self.metadata["fields"]])

    @cached_property
    def spw_names(self) -> list[str]:
        """A name for each spectral window, unique among them."""
        return unique_names([item["name"] for item in self.metadata["spws"]])

    def corr_type(self, data_desc_id: int) -> tuple[str, ...]:
        """Names of the correlations of a data description, as stored."""
        return tuple(self.metadata["corr_types"][self.descriptions[data_desc_id][1]])

    def cell_shape(self, data_desc_id: int) -> tuple[int, int]:
        """(n_chan, n_corr) that the subtables give a data description."""
        spw, pol = self.descriptions[data_desc_id]
        return len(self.metadata["spws"][spw]["chan_freq"]), len(self.metadata["corr_types"][pol])

    @cached_property
    def n_visibilities(self) -> int:
        """Visibilities of the whole set."""
        rows = np.bincount(self.columns.data_desc_id, minlength=len(self.descriptions))
        return sum(int(n) * int(np.prod(self.cell_shape(i))) for i, n in enumerate(rows))

    @cached_property
    def slots(self) -> RowSlots:
        """The time slot of each row of the set; where no time is odd, what is far from all is its own."""
        columns = self.columns
        time = np.where(is_time(columns.time), columns.time, 0.0)
        rows = time, columns.antenna1, columns.antenna2, columns.data_desc_id
        return RowSlots.of(time, width_of_slots(columns.interval, *rows))

    @cached_property
    def first_copy(self) -> NDArray[np.int64] | None:
        """The first row with the antennas, time, UVW, field and data description of each row.

        A row of antennas (q, p) and -UVW has those of (p, q) and UVW. Each row's own number where there is
        none before it; None where that holds for all rows.
        """
        columns, number = self.columns, self.slots.number.astype(np.int64)
        turned = self.turned[:, None]
        pair = np.sort(np.column_stack([columns.antenna1, columns.antenna2]).astype(np.int64), axis=1)
        key = (number * len(self.antenna_names) + pair[:, 0]) * len(self.antenna_names) + pair[:, 1]
        order = np.argsort(key, kind="stable")
        alike = np.diff(key[order]) == 0
        if not alike.any():
            return None
        uvw = np.where(turned, -columns.uvw, columns.uvw) + 0.0  # no -0, which would differ from 0
        of_rows = columns.field_id, columns.data_desc_id, columns.time, uvw
        several = np.zeros(self.n_row, bool)
        several[order[1:][alike]] = several[order[:-1][alike]] = True
        rows, first = np.flatnonzero(several), np.arange(self.n_row)
        values = np.column_stack([key[rows], *(each[rows] for each in of_rows)])
        _, begin, group = np.unique(values, axis=0, return_index=True, return_inverse=True)
        first[rows] = rows[begin][group.reshape(-1)]
        return first if (first != np.arange(self.n_row)).any() else None

    @cached_property
    def turned(self) -> NDArray[np.bool_]:
        """Rows whose first antenna is the later one of ANTENNA."""
        return np.asarray(self.columns.antenna1 > self.columns.antenna2)

    @cached_property
    def without_uvw(self) -> NDArray[np.bool_]:
        """Rows of two different antennas whose UVW is 0."""
        columns = self.columns
        return np.asarray((columns.antenna1 != columns.antenna2) & ~columns.uvw.any(axis=1))

    def slot_time(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Time of the slots of some rows, s."""
        return self.columns.time[rows] if self.slots.time is None else self.slots.time[rows]

    @cached_property
    def _scans_disagree(self) -> bool:
        """Whether rows of one time have several scan numbers, as those of subarrays may."""
        number = self.columns.scan_number
        slot = self.slots.number
        of_time = np.empty(int(slot.max()) + 1, number.dtype)
        of_time[slot] = number
        return bool((of_time[slot] != number).any())

    @cached_property
    def numbers_scans(self) -> bool:
        """Whether SCAN_NUMBER tells scans apart: there are several, of one value at each time.

        Where each time has a number of its own, as in some sets of the WSRT, it counts integrations.
        """
        n_scan, n_time = len(np.unique(self.columns.scan_number)), int(self.slots.number.max()) + 1
        return 1 < n_scan < n_time and not self._scans_disagree

    def scan_notes(self) -> Iterator[str]:
        """What is odd about SCAN_NUMBER, as notes."""
        if np.ptp(self.columns.scan_number) and self._scans_disagree:
            yield "rows of the same time have different SCAN_NUMBERs, so biro uses time gaps to define scans"

    def select(self, selection: Selection) -> list[PartitionRows]:
        """The rows that are selected, by field and data description; autocorrelations are among them.

        Raises
        ------
        DataError
            Nothing is selected; names and ids that are not there; times or frequencies that cannot be meant.
        """
        try:
            check_stokes_stored(selection.correlations, self._correlations())
            rows = self._selected_rows(selection)
        except DataError as error:
            raise self._fail(str(error)) from None
        self._check_times(rows)
        # One number for each pair: unique pairs take thirty times as long to find.
        fields = self.columns.field_id.astype(np.int64)
        pairs = (fields * len(self.descriptions) + self.columns.data_desc_id)[rows]
        parts = []
        for pair in np.unique(pairs):
            field_id, data_desc_id = divmod(int(pair), len(self.descriptions))
            part = self._partition_rows(field_id, data_desc_id, rows[pairs == pair], selection)
            if part is not None:
                parts.append(part)
        if not parts:
            raise self._fail(f"no data are selected: {self._why_nothing(selection, rows)}")
        return parts

    def _selected_rows(self, selection: Selection) -> NDArray[np.int64]:
        """Numbers of the rows that are selected; a range of baseline lengths is applied later."""
        return np.flatnonzero(np.logical_and.reduce(list(self._masks(selection).values())))

    def _masks(self, selection: Selection) -> dict[str, NDArray[np.bool_]]:
        """Which rows each part of a selection takes, by name; lengths of baselines are looked at later."""
        columns = self.columns
        fields = select_names(selection.fields, [f["name"] for f in self.metadata["fields"]], "field")
        spws = select_names(selection.spws, [s["name"] for s in self.metadata["spws"]], "spectral window")
        antennas = select_names(selection.antennas, self.metadata["antenna_names"], "antenna")
        return {
            "fields": fields[columns.field_id],
            "spectral windows": spws[[spw for spw, _ in self.descriptions]][columns.data_desc_id],
            "antennas": antennas[columns.antenna1] & antennas[columns.antenna2],
            "scans": select_scans(selection.scans, columns.scan_number),
            "times": select_times(selection.time_range, columns.time, self.metadata["utc_offset"]),
        }

    def _partition_rows(
        self, field_id: int, data_desc_id: int, rows: NDArray[np.int64], selection: Selection
    ) -> PartitionRows | None:
        """What is selected of the rows of one field and data description; None where that is nothing."""
        spw_id = self.descriptions[data_desc_id][0]
        corr = select_correlations(selection.correlations, self.corr_type(data_desc_id))
        if not corr.size:
            return None
        self._check_correlations(data_desc_id, corr)
        shape = self.cell_shape(data_desc_id)
        label = f"{self.source}: spectral window {self.spw_names[spw_id]}"
        chan = select_channels(selection.channels, shape[0], label)
        self._check_channels(spw_id, chan)
        inside = np.ones((len(rows), 1), bool)
        if selection.uv_range is not None:
            chan_freq = np.array(self.metadata["spws"][spw_id]["chan_freq"])[chan]
            inside = UVRange.of(selection.uv_range).mask(self.columns.uvw[rows], chan_freq)
            any_inside = inside.any(axis=1)
            rows, inside = rows[any_inside], inside[any_inside]
        if not rows.size:
            return None
        return PartitionRows(field_id, data_desc_id, spw_id, rows, shape, chan, corr, inside)

    def _check_correlations(self, data_desc_id: int, corr: NDArray[np.int64]) -> None:
        names = self.corr_type(data_desc_id)
        unknown = [names[i] for i in corr if names[i] not in KNOWN_CORRELATIONS]
        if unknown:
            raise self._fail(
                f"unknown correlation types {', '.join(unknown)} in data description {data_desc_id};"
                f" known are {', '.join(KNOWN_CORRELATIONS)} (correlations= selects among {', '.join(names)})"
            )

    def _correlations(self) -> list[str]:
        """Names of all correlations of the rows of the set."""
        return sorted({name for i in set(self.columns.data_desc_id) for name in self.corr_type(int(i))})

    def _check_times(self, rows: NDArray[np.int64]) -> None:
        bad = rows[~is_time(self.columns.time[rows])]
        if bad.size:
            raise self._fail(
                f"TIME is invalid in {bad.size} of {len(rows)} rows (row {bad[0]} has "
                f"{self.columns.time[bad[0]]:g} s); correct it, or exclude these rows "
                "(--time-range 1900-01-01..2100-01-01, time_range= in Python)"
            )

    def _check_channels(self, spw_id: int, chan: NDArray[np.int64]) -> None:
        window = self.metadata["spws"][spw_id]
        for name, values, check in (
            ("CHAN_FREQ", np.array(window["chan_freq"])[chan], is_frequency),
            ("CHAN_WIDTH", np.array(window["chan_width"])[chan], is_width),
        ):
            bad = np.flatnonzero(~check(values))
            if bad.size:
                raise self._fail(
                    f"spectral window {self.spw_names[spw_id]}: {name} is invalid in {bad.size} of "
                    f"{len(chan)} "
                    f"channels (channel {chan[bad[0]]} has {values[bad[0]]:g} Hz); correct it, or exclude "
                    "these channels (--channels, --spws; channels=, spws= in Python)"
                )

    def _why_nothing(self, selection: Selection, rows: NDArray[np.int64]) -> str:
        """Why nothing is selected; `rows` are left by all but correlations and the range of lengths."""
        columns = self.columns
        if rows.size:
            of_rows = np.unique(columns.data_desc_id[rows])
            names = sorted({name for i in of_rows for name in self.corr_type(int(i))})
            return why_no_visibility(selection, columns.uvw[rows], names)
        whole = RowsOfSet(columns.time, self.metadata["utc_offset"], self.antenna_names, self._contents())
        return why_no_row(whole, self._masks(selection))

    def _contents(self) -> str:
        """What a selection can name, for an error."""
        columns = self.columns
        names = self._correlations()
        scans = np.unique(columns.scan_number)
        return (
            f"fields {', '.join(self.field_names)}; spectral windows {', '.join(self.spw_names)};"
            f" {len(scans)} scans from {scans[0]} to {scans[-1]}; correlations {', '.join(names)}"
        )

    def uvw_notes(self, parts: list[PartitionRows]) -> Iterator[str]:
        """What is odd about UVW, as notes.

        Raises
        ------
        DataError
            UVW is zero in every row of two different antennas.
        """
        rows = np.concatenate([part.rows for part in parts])
        first, second = self.columns.antenna1[rows], self.columns.antenna2[rows]
        cross = first != second
        length = np.linalg.norm(self.columns.uvw[rows], axis=1)
        zero = int(np.count_nonzero(length[cross] == 0))
        if zero and zero == np.count_nonzero(cross):
            raise self._fail("UVW is zero in all rows; compute it first (CASA: fixvis, calcuvw)")
        if zero:
            yield f"UVW is zero in {zero} rows of two different antennas; these rows are excluded"
        if self.first_copy is not None:
            n_copy = int(np.count_nonzero(self.first_copy[rows] != rows))
            if n_copy:
                yield (
                    f"{n_copy} rows are duplicates (antennas, time and UVW of another row). biro uses "
                    "identical "
                    "visibilities once, and different ones as separate measurements"
                )
        positions = np.array(self.metadata["antenna_positions"]).reshape(-1, 3)
        distance = np.linalg.norm(positions[second] - positions[first], axis=1)
        off = cross & (np.abs(length - distance) > 0.01 * distance + 1.0)
        without_w = (self.columns.uvw[rows, 2] == 0.0) & (length > 0.0)
        flat = off & without_w & (length < distance)
        if distance[cross].any() and flat.any():
            off &= ~flat
            missing = np.sqrt(np.maximum(distance**2 - length**2, 0.0))[flat].max()
            yield (
                f"W is 0 in {np.count_nonzero(cross & without_w)} rows, where ANTENNA gives up to "
                f"{missing:.3g} m; biro uses UVW. That changes phases by 2 pi w (n - 1): nothing "
                "near the phase centre"
            )
        if distance[cross].any() and off.any():
            yield (
                f"baseline lengths of UVW and ANTENNA differ in {np.count_nonzero(off)} rows, by up to "
                f"{np.abs(length - distance)[off].max():.3g} m; biro uses UVW"
            )
