"""Flags applied to visibilities as they are read: what is left out has a weight of 0 and is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from biro.flagging.find import FlaggedData, FoundInterference, causes_text, find_interference
from biro.flagging.strategy import Strategy, read_strategy
from biro.io.data_set.index import PartitionRows, RowIndex
from biro.io.data_set.intervals import of_all_baselines
from biro.io.data_set.repeated import crossed_hands, repeated
from biro.io.data_set.request import ReadingOptions
from biro.io.data_set.stored_data import DataSet, StoredVisibilities
from biro.observation.flags import apply_flags, empty_counts


class Exclusion:
    """What is left out of a data set.

    Parameters
    ----------
    data : DataSet
    treatment : ReadingOptions

    Attributes
    ----------
    counts : dict of str to int
        Visibilities by cause of exclusion.
    interference : Counter of str
        Visibilities by cause for which interference was found.
    """

    def __init__(self, data: DataSet, treatment: ReadingOptions) -> None:
        self._data, self._index, self._treatment = data, data.index, treatment
        self.counts = empty_counts()
        self.interference: Counter[str] = Counter()

    def apply(
        self, part: PartitionRows, read: StoredVisibilities, flag: NDArray[np.bool_] | None = None
    ) -> None:
        """Set weights that do not count to 0, in place.

        `flag` says where interference was found, where that was looked for before.
        """
        self._leave_out(part, read)
        if flag is not None:
            self._flag_found(flag, read.vis, read.weight)
        elif self._treatment.flagger is not None:
            self._flag(part, read.vis, read.weight, read_strategy(self._treatment.flagger))

    def found_in(self, part: PartitionRows, rows: NDArray[np.int64]) -> FoundInterference:
        """The interference in some rows of a partition, all those of some of its baselines."""
        strategy = self._treatment.flagger
        assert strategy is not None, "interference is looked for"
        some = replace(part, rows=part.rows[rows], inside=part.inside[rows])
        read = self._data.visibilities(some)
        self._leave_out(some, read)
        samples = samples_of(self._index, some, read.vis, read.weight > 0)
        samples = samples._replace(**of_all_baselines(self._index, part))
        found = find_interference(samples, read_strategy(strategy))
        self._note_causes(found)
        return found

    def without_autocorrelations(self, part: PartitionRows) -> PartitionRows:
        """The rows of two different antennas; the others are counted."""
        columns = self._index.columns
        same = columns.antenna1[part.rows] == columns.antenna2[part.rows]
        n_left_out = int(np.count_nonzero(same)) * len(part.chan) * len(part.corr)
        self.counts["autocorrelation"] += n_left_out
        self.counts["total"] += n_left_out
        return replace(part, rows=part.rows[~same], inside=part.inside[~same])

    def _leave_out(self, part: PartitionRows, read: StoredVisibilities) -> None:
        """Set weights, and visibilities unless they are kept, to 0 where they do not count."""
        columns = self._index.columns
        missing = read.missing | ~np.isfinite(columns.uvw[part.rows]).all(axis=1)
        excluded = [
            ("not selected", ~part.inside[:, :, None]),
            ("no data", missing[:, None, None]),
            ("FLAG_ROW", columns.flag_row[part.rows][:, None, None]),
        ]
        if read.flag is not None:
            excluded.append(("FLAG", read.flag))
        if not self._treatment.allow_unusable:
            excluded += self._unmeasured(part, read, excluded)
        apply_flags(read.vis, read.weight, excluded, self.counts, self._treatment.keep_values)

    def _unmeasured(
        self, part: PartitionRows, read: StoredVisibilities, excluded: Sequence[tuple[str, NDArray[np.bool_]]]
    ) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """What looks like data and is none (physics: section 7)."""
        without_uvw = self._index.without_uvw[part.rows]
        if without_uvw.any():
            yield "UVW is zero", without_uvw[:, None, None]
        copies = self._index.first_copy
        if copies is not None:
            usable = np.isfinite(read.vis) & np.isfinite(read.weight) & (read.weight > 0)
            for _, mask in excluded:
                usable &= ~mask
            names = self._index.corr_type(part.data_desc_id)
            crossed = crossed_hands([names[i] for i in part.corr])
            turned = self._index.turned[part.rows]
            yield "repeated row", repeated(part.rows, copies, read.vis, usable, turned, crossed)
        zero = read.vis == 0
        if zero.any() and not self._data.is_blank:
            yield "exactly zero", zero

    def _flag(
        self,
        part: PartitionRows,
        vis: NDArray[np.complexfloating],
        weight: NDArray[np.floating],
        strategy: Strategy,
    ) -> None:
        """Set what interference is found in to 0, and count it."""
        found = find_interference(samples_of(self._index, part, vis, weight > 0), strategy)
        self._note_causes(found)
        self._flag_found(found.flag, vis, weight)

    def _note_causes(self, found: FoundInterference) -> None:
        """Remember why interference was found, to say it."""
        self.interference.update(found.counts | {"not judged": found.n_unjudged})

    def _flag_found(
        self, flag: NDArray[np.bool_], vis: NDArray[np.complexfloating], weight: NDArray[np.floating]
    ) -> None:
        n_found = int(np.count_nonzero(flag))
        self.counts["interference"] += n_found
        self.counts["usable"] -= n_found
        vis[flag] = 0
        weight[flag] = 0

    def interference_notes(self) -> Iterator[str]:
        """What a flagger found, in words."""
        flagger = self._treatment.flagger
        if flagger is None:
            return
        lone = self.interference["not judged"]
        yield f"flagger {read_strategy(flagger).name}: {causes_text(self.interference)}" + (
            f"; {lone} visibilities not judged (too few others on their baseline)" if lone else ""
        )


def samples_of(
    index: RowIndex, part: PartitionRows, vis: NDArray[np.complexfloating], usable: NDArray[np.bool_]
) -> FlaggedData:
    """The visibilities of a partition as flagging looks at them."""
    columns, spw = index.columns, index.metadata["spws"][part.spw_id]
    return FlaggedData(
        vis,
        usable,
        columns.antenna1[part.rows],
        columns.antenna2[part.rows],
        index.slot_time(part.rows),
        np.nan_to_num(columns.uvw[part.rows]),
        np.array(spw["chan_freq"])[part.chan],
        np.abs(np.array(spw["chan_width"])[part.chan]),
        exposure=columns.exposure[part.rows],
    )
