"""Visibilities of a data set that lines of flags name, and which of them were not flagged before."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from biro.errors import DataError
from biro.io.data_set.index import PartitionRows, RowIndex
from biro.io.flag_commands.commands import AntennaPair, ChannelRange, FlagCommand, TimeRange
from biro.observation.correlations import PARALLEL_HANDS
from biro.observation.selection import select_names

DAY = 86400.0
ROUNDING = 0.06
"""Times are printed to a tenth of a second, so that one that is copied is off by half of that, s."""
CHUNK_CELLS = 1 << 24
"""Visibilities whose flags are looked at together."""
Mask = NDArray[np.bool_]
FlagsOf = Callable[[PartitionRows], Mask]
"""Which visibilities (n_row, n_chan, n_corr) of some rows do not count before."""


@dataclass
class LineCount:
    """What one line has flagged.

    Attributes
    ----------
    line : FlagCommand
    n_named : int
        Visibilities that it names.
    n_flagged : int
        Those among them that were not flagged, neither before nor by a line above.
    why : str
        What it names that the data do not have; empty where it names what is there.
    """

    line: FlagCommand
    n_named: int = 0
    n_flagged: int = 0
    why: str = ""


@dataclass(frozen=True)
class NewFlags:
    """New flags of rows of one field and data description; `bits` are those of `part`, packed."""

    part: PartitionRows
    bits: NDArray[np.uint8]


@dataclass
class FlaggedCells:
    """What lines have flagged of a set."""

    counts: list[LineCount]
    cells: list[NewFlags] = field(default_factory=list)


def find_cells(
    index: RowIndex,
    lines: Sequence[FlagCommand],
    flags_of: FlagsOf,
    *,
    stations: Mapping[int, int] | None = None,
) -> FlaggedCells:
    """The visibilities that lines name, counted line by line.

    Autocorrelations count like others. A line that names an antenna, a field or a spectral window which the
    set does not have flags nothing, and its count says why.

    Parameters
    ----------
    index : RowIndex
    lines : sequence of FlagCommand
    flags_of : function
    stations : mapping, optional
        Antennas by the numbers of stations that AIPS has. Default: the number less 1.
    """
    names = _Names(index, stations or {}, _in_year(index, lines))
    counts = [LineCount(line) for line in lines]
    named: dict[tuple[int, int], list[tuple[LineCount, PartitionRows]]] = {}
    for count in counts:
        try:
            for part in names.parts(count.line):
                named.setdefault((part.field_id, part.data_desc_id), []).append((count, part))
        except DataError as error:
            count.why = str(error)
    found = FlaggedCells(counts)
    for parts in named.values():
        for cells in _of_partition(parts, flags_of):
            found.cells.append(cells)
    return found


def _of_partition(named: list[tuple[LineCount, PartitionRows]], flags_of: FlagsOf) -> Iterator[NewFlags]:
    """New flags of the rows of one field and data description, in blocks."""
    rows = np.unique(np.concatenate([part.rows for _, part in named]))
    like = named[0][1]
    whole = replace(like, chan=np.arange(like.shape[0]), corr=np.arange(like.shape[1]))
    size = max(1, CHUNK_CELLS // max(1, like.shape[0] * like.shape[1]))
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        part = replace(whole, rows=block, inside=np.ones((len(block), 1), bool))
        before = flags_of(part)
        new = np.zeros(before.shape, bool)
        for count, line_part in named:
            here = np.isin(line_part.rows, block)
            place = np.ix_(np.searchsorted(block, line_part.rows[here]), line_part.chan, line_part.corr)
            cells = np.broadcast_to(line_part.inside[here][:, :, None], before[place].shape)
            fresh = cells & ~before[place] & ~new[place]
            count.n_named += int(np.count_nonzero(cells))
            count.n_flagged += int(np.count_nonzero(fresh))
            new[place] |= fresh
        if new.any():
            yield NewFlags(part, np.packbits(new))


def _first_day(index: RowIndex) -> float:
    """Midnight before the first time, UTC."""
    first = float(np.min(index.columns.time)) + index.metadata["utc_offset"]
    return float(np.floor(first / DAY) * DAY)


def _in_year(index: RowIndex, lines: Sequence[FlagCommand]) -> float | None:
    """What days of AIPS lines count from where they are days of the year; None where from the first day.

    AIPS counts days from the first of the data. Days that lie behind all data so, but not as days of the
    year, are those; a file has one kind.
    """
    spans = [span for line in lines for span in line.spans or () if span.since == "aips"]
    if not spans:
        return None
    day = _first_day(index)
    last = float(np.max(index.columns.time)) + index.metadata["utc_offset"]
    year = np.datetime64("1858-11-17") + np.timedelta64(round(day / DAY), "D")
    begin = year.astype("datetime64[Y]").astype("datetime64[D]") - np.timedelta64(1, "D")
    since = float((begin - np.datetime64("1858-11-17")) / np.timedelta64(1, "s"))
    as_days, as_year = (
        sum(1 for s in spans if np.isfinite(s.low) and base + s.low <= last and base + s.high >= day)
        for base in (day, since)
    )
    return since if as_year > as_days else None


class _Names:
    """Masks over rows and channels of what lines name."""

    def __init__(self, index: RowIndex, stations: Mapping[int, int], in_year: float | None) -> None:
        self.index, self.stations = index, stations
        self.bases = {"mjd": 0.0, "first day": _first_day(index)}
        self.bases["aips"] = self.bases["first day"] if in_year is None else in_year
        self.antennas = index.metadata["antenna_names"]

    def parts(self, line: FlagCommand) -> Iterator[PartitionRows]:
        """What a line names in each field and data description."""
        index, columns = self.index, self.index.columns
        rows = np.flatnonzero(self._rows(line))
        cells = self._windows(line)
        there = sorted({name for i in range(len(index.descriptions)) for name in index.corr_type(i)})
        if not _correlations(line.correlations, there).size:
            wanted = ", ".join(line.correlations or ())
            raise DataError(f"no correlation {wanted} in the data; there are {', '.join(there)}")
        pairs = columns.field_id.astype(np.int64) * len(index.descriptions) + columns.data_desc_id
        for pair in np.unique(pairs[rows]):
            field_id, data_desc_id = divmod(int(pair), len(index.descriptions))
            spw = index.descriptions[data_desc_id][0]
            shape = index.cell_shape(data_desc_id)
            chan = cells[spw]
            corr = _correlations(line.correlations, index.corr_type(data_desc_id))
            own = rows[pairs[rows] == pair]
            inside = self._inside(line, own, spw, chan)
            kept = inside.any(axis=1)
            if chan.size and corr.size and kept.any():
                yield PartitionRows(field_id, data_desc_id, spw, own[kept], shape, chan, corr, inside[kept])

    def _inside(self, line: FlagCommand, rows: NDArray[np.int64], spw: int, chan: NDArray[np.int64]) -> Mask:
        """Which channels of some rows are in the ranges of baseline lengths."""
        if line.uv_ranges is None:
            return np.ones((len(rows), 1), bool)
        freq = np.array(self.index.metadata["spws"][spw]["chan_freq"])[chan]
        inside = np.zeros((len(rows), len(chan)), bool)
        for each in line.uv_ranges:
            inside |= each.mask(self.index.columns.uvw[rows], freq)
        return inside

    def _rows(self, line: FlagCommand) -> Mask:
        columns, metadata = self.index.columns, self.index.metadata
        mask = np.ones(self.index.n_row, bool)
        if line.fields is not None:
            names = [each["name"] for each in metadata["fields"]]
            mask &= _chosen(line.fields, names, "field")[columns.field_id]
        if line.scans is not None:
            mask &= np.any(
                [(columns.scan_number >= low) & (columns.scan_number <= high) for low, high in line.scans],
                axis=0,
            )
        if line.pairs:
            mask &= self._of_pairs(line.pairs)
        if line.spans is not None:
            mask &= np.any([self._in_span(span) for span in line.spans], axis=0)
        return mask

    def _of_pairs(self, pairs: Sequence[AntennaPair]) -> Mask:
        taken = [self._of_pair(pair) for pair in pairs if not pair.is_left_out]
        left_out = [self._of_pair(pair) for pair in pairs if pair.is_left_out]
        mask = np.any(taken, axis=0) if taken else np.ones(self.index.n_row, bool)
        return np.asarray(mask & ~np.any(left_out, axis=0) if left_out else mask)

    def _of_pair(self, pair: AntennaPair) -> Mask:
        one, other = self.index.columns.antenna1, self.index.columns.antenna2
        first, second = self._split(pair.joined) if pair.joined else (pair.first, pair.second)
        in_first, in_second = self._antennas(first), self._antennas(second)
        mask = (in_first[one] & in_second[other]) | (in_first[other] & in_second[one])
        if pair.autos == "with":
            return mask
        return np.asarray(mask & ((one == other) if pair.autos == "only" else (one != other)))

    def _split(self, joined: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Two antennas of a name such as "FD-HN", where names may have hyphens, too."""
        parts = joined.split("-")
        splits = [("-".join(parts[:i]).strip(), "-".join(parts[i:]).strip()) for i in range(1, len(parts))]
        if not splits:
            raise DataError(f"baseline {joined!r} is not two names with a hyphen between them, as FD-HN")
        known = [split for split in splits if all(end in (*self.antennas, "*") for end in split)]
        first, second = (known or splits)[0]
        return (first,), (second,)

    def _antennas(self, items: Sequence[str | int]) -> Mask:
        mask = np.zeros(len(self.antennas), bool)
        plain = []
        for item in items:
            station = re.fullmatch(r"station (\d+)", str(item))
            if station is None:
                plain.append(item)
                continue
            number = int(station[1])
            at = self.stations.get(number, -1) if self.stations else number - 1
            if not 0 <= at < len(mask):
                raise DataError(f"no antenna has the number {number} in AIPS; there are {len(mask)} antennas")
            mask[at] = True
        return mask | _chosen(plain, self.antennas, "antenna") if plain or not items else mask

    def _in_span(self, span: TimeRange) -> Mask:
        columns, base = self.index.columns, self.bases[span.since]
        time = columns.time + self.index.metadata["utc_offset"]
        low, high = base + span.low, base + span.high
        if span.low != span.high:
            return np.asarray((time >= low - ROUNDING) & (time <= high + ROUNDING))
        near = np.asarray(np.abs(time - low) <= ROUNDING)
        return near if near.any() else np.asarray(np.abs(time - low) <= 0.5 * columns.interval)

    def _windows(self, line: FlagCommand) -> list[NDArray[np.int64]]:
        """Channels of each spectral window."""
        spws = self.index.metadata["spws"]
        names = [each["name"] for each in spws]
        chosen = [np.zeros(len(each["chan_freq"]), bool) for each in spws]
        for window in (ChannelRange(),) if line.windows is None else line.windows:
            own = _chosen(window.spws or (), names, "spectral window")
            for i in np.flatnonzero(own):
                for some in (slice(None),) if window.channels is None else window.channels:
                    chosen[i][some] = True
        if line.windows is not None and not any(each.any() for each in chosen):
            most = max(map(len, chosen)) - 1
            raise DataError(f"no such channels; the window has channels 0 to {most}")
        return [np.flatnonzero(each) for each in chosen]


def _chosen(items: Sequence[str | int], names: Sequence[str], label: str) -> Mask:
    """Mask of names by name, id, "a~b" of ids or a pattern with *; all where there are no items."""
    if not items:
        return np.ones(len(names), bool)
    left_out = [str(item)[1:] for item in items if str(item).startswith("!") and item not in names]
    if left_out:
        return ~_chosen(left_out, names, label)
    mask = np.zeros(len(names), bool)
    for item in items:
        ids = re.fullmatch(r"(\d+)\s*~\s*(\d+)", str(item))
        if item in names:
            mask |= np.array([name == item for name in names])
        elif ids:
            mask[int(ids[1]) : int(ids[2]) + 1] = True
        elif "*" in str(item) and any(fnmatchcase(name, str(item)) for name in names):
            mask |= np.array([fnmatchcase(name, str(item)) for name in names])
        elif any(name.upper() == str(item).upper() for name in names):  # files of VLBI write At and AT
            mask |= np.array([name.upper() == str(item).upper() for name in names])
        else:
            mask |= select_names(item, names, label)
    return mask


def _correlations(wanted: Sequence[str] | None, there: Sequence[str]) -> NDArray[np.int64]:
    """Indices of the correlations that a line names."""
    if wanted is None:
        return np.arange(len(there))
    groups = {"parallel": PARALLEL_HANDS, "cross": ("RL", "LR", "XY", "YX")}
    names = {name for each in wanted for name in groups.get(each, (each,))}
    return np.array([i for i, name in enumerate(there) if name in names], np.int64)
