"""Make an observation of the parts of a data set that are selected, whatever format the set has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import check_names
from biro.distributed.capacity import check_memory
from biro.distributed.ranks import MpiRanks
from biro.errors import DataError, InputError
from biro.flagging.find import FlaggedData, FoundInterference, causes_text, find_interference
from biro.flagging.strategy import Strategy, StrategyLike, read_strategy
from biro.io.data_set.index import PartitionRows, RowIndex
from biro.io.data_set.intervals import exposure_of, interval_of, of_all_baselines, row_interval_of
from biro.io.data_set.metadata import FieldMetadata
from biro.io.data_set.options import DataOptions, SetOptions
from biro.io.data_set.orientation import sign_notes
from biro.io.data_set.repeated import crossed_hands, repeated
from biro.observation.averaging import Averaging, average
from biro.observation.distributed_data import RemoteArray
from biro.observation.feeds.feeds import FeedMetadata
from biro.observation.feeds.pointing import DishPointing
from biro.observation.flags import apply_flags, describe_causes, empty_counts
from biro.observation.observation import Observation
from biro.observation.partition import BYTES_AS_READ, Convention, Partition
from biro.observation.selection import Selection
from biro.observation.stokes import take_hands
from biro.observation.weighting import Weighting


@dataclass(frozen=True)
class ReadingOptions:
    """What is done with data of any format, apart from selecting and averaging.

    Attributes
    ----------
    convention : "casa" or "fourier"
        "fourier" negates uvw (physics: section 2).
    allow_unusable : bool
        Return the rows even when no visibility among them is usable, and correlations as they are stored
        (to predict into them).
    flagger : Strategy, name or path, optional
        How interference is looked for; default: not at all.
    keep_values : bool
        Keep the values of visibilities that do not count, with a weight of 0.
    """

    convention: Convention = "casa"
    allow_unusable: bool = False
    flagger: StrategyLike | None = None
    keep_values: bool = False

    def __post_init__(self) -> None:
        if self.convention not in ("casa", "fourier"):
            raise InputError(f"convention must be 'casa' or 'fourier', got {self.convention!r}")
        if self.flagger is not None:
            object.__setattr__(self, "flagger", read_strategy(self.flagger))


@dataclass(frozen=True)
class ReadRequest:
    """What is wanted of a data set."""

    selection: Selection
    weighting: Weighting
    averaging: Averaging
    treatment: ReadingOptions

    @classmethod
    def of(cls, caller: str, options: DataOptions | SetOptions, also: Sequence[str] = ()) -> ReadRequest:
        """Sort the keyword arguments of a function that reads.

        Parameters
        ----------
        caller : str
            Name of the function, for messages.
        options : DataOptions
        also : names
            Of arguments that the function has beside those of `DataOptions`.

        Raises
        ------
        InputError
            An option that is not there or not understood.
        """
        check_names(options, [*DataOptions.__annotations__, *also], caller)
        given: dict[str, object] = dict(options)
        # Each class checks its values itself.
        own: dict[type, dict[str, Any]] = {
            type_: {item.name: given[item.name] for item in fields(type_) if item.name in given}
            for type_ in (Selection, Weighting, Averaging, ReadingOptions)
        }
        stated = Selection(**own[Selection])
        selection = options.get("selection")
        if selection is not None and stated.stated:
            raise InputError(f"give either selection= or {', '.join(stated.stated)}, not both")
        return cls(
            selection or stated,
            Weighting(**own[Weighting]),
            Averaging(**own[Averaging]),
            ReadingOptions(**own[ReadingOptions]),
        )


Described = list[tuple[PartitionRows, Partition]]
"""Which rows of a set a partition has, and the partition without its visibilities."""


class StoredVisibilities(NamedTuple):
    """Visibilities of one partition as a file holds them.

    Attributes
    ----------
    vis : complex64 or complex128 (n_row, n_chan, n_corr), Jy
    weight : float32 or float64 (n_row, n_chan, n_corr), 1/Jy^2
    flag : bool (n_row, n_chan, n_corr) or None
        None where the file has no flags.
    missing : bool (n_row,)
        Rows without a value.
    weight_origin : str
    """

    vis: NDArray[np.complexfloating]
    weight: NDArray[np.floating]
    flag: NDArray[np.bool_] | None
    missing: NDArray[np.bool_]
    weight_origin: str


class DataSet(Protocol):
    """A data set whose rows are known; its visibilities are read partition by partition.

    Attributes
    ----------
    index : RowIndex
    column : str
        What the visibilities are called.
    is_blank : bool
        Whether no visibility of the set differs from 0.
    other_columns : sequence of str
        What else could be read.
    """

    index: RowIndex
    column: str

    @property
    def is_blank(self) -> bool: ...
    @property
    def other_columns(self) -> Sequence[str]: ...

    def notes(self, parts: Sequence[PartitionRows]) -> Iterator[str]:
        """What is odd about the set, or about these rows of it, apart from its fields and uvw."""
        ...

    def visibilities(self, part: PartitionRows) -> StoredVisibilities:
        """Read one partition."""
        ...


class FillsPartitions(Protocol):
    """Gives partitions their visibilities and weights, and adds to the counts of an assembly."""

    def __call__(self, assembly: ObservationAssembly, described: Described, /) -> list[Partition]: ...


def assemble(
    data: DataSet, request: ReadRequest, merge: bool = True, fill: FillsPartitions | None = None
) -> Observation:
    """Read what is selected, with flags applied and every visibility that is left out counted.

    Parameters
    ----------
    data : DataSet
    request : ReadRequest
    merge : bool
        Whether parallel hands that are copies of one another are counted once, as Stokes I.
    fill : FillsPartitions, optional
        What reads the partitions. Default: this process, all of each.

    Returns
    -------
    Observation

    Raises
    ------
    DataError
        A selection that matches nothing, a phase centre that cannot be used, or no usable visibility.
    """
    return ObservationAssembly(data, request, merge, fill).observation()


class ObservationAssembly:
    """The partitions of one data set, and the counts of what is left out of them."""

    def __init__(
        self, data: DataSet, request: ReadRequest, merge: bool = True, fill: FillsPartitions | None = None
    ) -> None:
        self._fill = fill
        self.data = data
        self.index = data.index
        self.request = request
        self.merge = merge
        self.counts = empty_counts()
        self.interference: Counter[str] = Counter()

    def observation(self) -> Observation:
        index, metadata, counts = self.index, self.index.metadata, self.counts
        treatment = self.request.treatment
        selected = index.select(self.request.selection)
        notes = [
            *self._field_notes(selected),
            *self.data.notes(selected),
            *index.uvw_notes(selected),
            *sign_notes(index, selected, treatment.convention),
            *index.scan_notes(),
        ]
        described = self.described(selected)
        if self._fill is None:
            self.check_memory([BYTES_AS_READ * sum(like.vis.size for _, like in described)])
            partitions = [self.read(part, like) for part, like in described]
        else:
            partitions = self._fill(self, described)
        notes += self._interference_notes()
        counts["not selected"] += index.n_visibilities - counts["total"]
        counts["total"] = index.n_visibilities
        if not treatment.allow_unusable:
            if not counts["usable"]:
                is_empty = counts["no data"] or counts["exactly zero"]
                others = ", ".join(self.data.other_columns) if is_empty else ""
                raise DataError(
                    f"{index.source}: 0 of {counts['total']} visibilities usable: {describe_causes(counts)}"
                    + (f"; {self.data.column} was read (--column, column= names {others})" if others else "")
                )
            partitions = [part for part in partitions if part.n_usable]
        else:
            partitions = [part for part in partitions if part.n_row]
        diameter = np.array(metadata["dish_diameter"], np.float64)
        weighted = [self.request.weighting.of(part) for part in partitions]
        partitions = [part for part, _ in weighted]
        remarks = [self.request.weighting.note, *(remark for _, remark in weighted)]
        notes += [remark for remark in remarks if remark]
        hands = None
        if not treatment.allow_unusable:
            hands = take_hands(partitions, self.request.selection.stokes, self.merge)
        partitions = partitions if hands is None else hands.partitions
        partitions, averaged = average(partitions, self.request.averaging, diameter)
        return Observation(
            partitions=tuple(partitions),
            antenna_names=tuple(metadata["antenna_names"]),
            antenna_positions=np.array(metadata["antenna_positions"], np.float64).reshape(-1, 3),
            telescope=metadata["telescope"],
            source=index.source,
            column=self.data.column,
            weight_origin=_weight_origin(partitions),
            counts=counts,
            time_scale=metadata["time_scale"],
            utc_offset=metadata["utc_offset"],
            dish_diameter=diameter,
            convention=treatment.convention,
            averaged=averaged,
            formed=hands.formed if hands else None,
            notes=(*notes, *(hands.notes if hands else ())),
        )

    def check_memory(self, needed: Sequence[float], ranks: MpiRanks | None = None, remedy: str = "") -> None:
        """Refuse to read more than there is memory for.

        Parameters
        ----------
        needed : sequence of float
            Bytes that each rank is to hold; of this process alone, one number.
        ranks : MpiRanks, optional
        remedy : str
            What to do, where that is not usual.

        Raises
        ------
        InputError
        """
        check_memory(
            ranks,
            needed,
            f"{self.index.source}: reading it",
            lambda _, n_machine: (
                remedy
                or (
                    "keep the data in files (--cache DIR, cache= in Python), share them among MPI processes "
                    "on "
                    f"{n_machine} machines of this size (mpiexec biro), or select less"
                )
            ),
        )

    def _field_notes(self, selected: list[PartitionRows]) -> Iterator[str]:
        """What is odd about fields; one whose phase centre cannot be used is refused."""
        for field_id in sorted({part.field_id for part in selected}):
            field, name = self.index.metadata["fields"][field_id], self.index.field_names[field_id]
            if field["problem"]:
                raise DataError(f"{self.index.source}: field {name}: {field['problem']}")
            if field["note"]:
                yield f"field {name}: {field['note']}"

    def described(self, selected: Sequence[PartitionRows] | None = None) -> Described:
        """All that is known of each partition before it is read; by default of those that are selected.

        Autocorrelations that are not selected are counted here and not read.
        """
        found = []
        for part in self.index.select(self.request.selection) if selected is None else selected:
            own = part if self.request.selection.autocorrelations else self._without_autocorrelations(part)
            found.append((own, self._described(own)))
        return found

    def read(self, part: PartitionRows, like: Partition, flag: NDArray[np.bool_] | None = None) -> Partition:
        """A partition, or some of its rows: what is described as `like`, with visibilities and weights.

        `flag` says where interference was found, where that was looked for before.
        """
        return self.applied(part, like, self.data.visibilities(part), flag)

    def found_in(self, part: PartitionRows, rows: NDArray[np.int64]) -> FoundInterference:
        """The interference in some rows of a partition, all those of some of its baselines."""
        strategy = self.request.treatment.flagger
        assert strategy is not None, "interference is looked for"
        some = replace(part, rows=part.rows[rows], inside=part.inside[rows])
        read = self.data.visibilities(some)
        self._leave_out(some, read)
        samples = samples_of(self.index, some, read.vis, read.weight > 0)
        samples = samples._replace(**of_all_baselines(self.index, part))
        return find_interference(samples, read_strategy(strategy))

    def applied(
        self,
        part: PartitionRows,
        like: Partition,
        read: StoredVisibilities,
        flag: NDArray[np.bool_] | None = None,
    ) -> Partition:
        """A partition as `read` gives it, of visibilities that were read; weights that do not count are 0."""
        self._leave_out(part, read)
        if flag is not None:
            self._flag_found(flag, read.vis, read.weight)
        elif self.request.treatment.flagger is not None:
            self._flag(part, read.vis, read.weight, read_strategy(self.request.treatment.flagger))
        return replace(like, vis=read.vis, weight=read.weight, weight_origin=read.weight_origin)

    def _described(self, part: PartitionRows) -> Partition:
        """A partition without its visibilities."""
        index, columns, treatment = self.index, self.index.columns, self.request.treatment
        rows = part.rows
        uvw = np.nan_to_num(columns.uvw[rows], nan=0.0, posinf=0.0, neginf=0.0)
        time = columns.time[rows]
        slot_time = index.slot_time(rows)
        spw = index.metadata["spws"][part.spw_id]
        field = index.metadata["fields"][part.field_id]
        corr_type = index.corr_type(part.data_desc_id)
        interval, row_interval = interval_of(columns, rows), row_interval_of(columns, rows)
        nothing = RemoteArray((len(rows), len(part.chan), len(part.corr)), np.dtype(np.complex64))
        lasts = np.full(len(rows), interval) if row_interval is None else row_interval
        return Partition(
            field=index.field_names[part.field_id],
            spw=index.spw_names[part.spw_id],
            field_id=part.field_id,
            spw_id=part.spw_id,
            data_desc_id=part.data_desc_id,
            phase_centre=(field["direction"][0], field["direction"][1]),
            pointing=_pointing(field),
            uvw=-uvw if treatment.convention == "fourier" else uvw,
            antenna1=columns.antenna1[rows],
            antenna2=columns.antenna2[rows],
            time=time,
            time_index=np.unique(slot_time, return_inverse=True)[1].reshape(-1).astype(np.int32),
            slot_time=None if index.slots.time is None else slot_time,
            chan_freq=np.array(spw["chan_freq"])[part.chan],
            chan_width=np.abs(np.array(spw["chan_width"])[part.chan]),
            freq_frame=spw["frame"],
            corr_type=tuple(corr_type[i] for i in part.corr),
            vis=cast(Any, nothing),
            weight=cast(Any, nothing),
            row_id=rows.astype(np.int64),
            n_antenna=len(index.metadata["antenna_names"]),
            interval=interval,
            chan_id=part.chan,
            corr_id=part.corr,
            frame=field["frame"],
            feeds=self._feeds(part.spw_id),
            row_interval=row_interval,
            exposure=exposure_of(columns, rows, lasts),
            scan_number=columns.scan_number[rows] if index.numbers_scans else None,
        )

    def _feeds(self, spw_id: int) -> FeedMetadata:
        metadata = self.index.metadata
        angles = np.array(metadata["receptor_angles"][spw_id], np.float64)  # None becomes NaN
        return FeedMetadata(tuple(metadata["mounts"]), angles, self.data.column == "CORRECTED_DATA")

    def _without_autocorrelations(self, part: PartitionRows) -> PartitionRows:
        """The rows of two different antennas; the others are counted."""
        columns = self.index.columns
        same = columns.antenna1[part.rows] == columns.antenna2[part.rows]
        n_left_out = int(np.count_nonzero(same)) * len(part.chan) * len(part.corr)
        self.counts["autocorrelation"] += n_left_out
        self.counts["total"] += n_left_out
        return replace(part, rows=part.rows[~same], inside=part.inside[~same])

    def _leave_out(self, part: PartitionRows, read: StoredVisibilities) -> None:
        """Set weights, and visibilities unless they are kept, to 0 where they do not count."""
        columns = self.index.columns
        missing = read.missing | ~np.isfinite(columns.uvw[part.rows]).all(axis=1)
        excluded = [
            ("not selected", ~part.inside[:, :, None]),
            ("no data", missing[:, None, None]),
            ("FLAG_ROW", columns.flag_row[part.rows][:, None, None]),
        ]
        if read.flag is not None:
            excluded.append(("FLAG", read.flag))
        if not self.request.treatment.allow_unusable:
            excluded += self._unmeasured(part, read, excluded)
        apply_flags(read.vis, read.weight, excluded, self.counts, self.request.treatment.keep_values)

    def _unmeasured(
        self, part: PartitionRows, read: StoredVisibilities, excluded: Sequence[tuple[str, NDArray[np.bool_]]]
    ) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """What looks like data and is none (physics: section 7)."""
        without_uvw = self.index.without_uvw[part.rows]
        if without_uvw.any():
            yield "UVW is zero", without_uvw[:, None, None]
        copies = self.index.first_copy
        if copies is not None:
            usable = np.isfinite(read.vis) & np.isfinite(read.weight) & (read.weight > 0)
            for _, mask in excluded:
                usable &= ~mask
            names = self.index.corr_type(part.data_desc_id)
            crossed = crossed_hands([names[i] for i in part.corr])
            turned = self.index.turned[part.rows]
            yield "repeated row", repeated(part.rows, copies, read.vis, usable, turned, crossed)
        zero = read.vis == 0
        if zero.any() and not self.data.is_blank:
            yield "exactly zero", zero

    def _flag(
        self,
        part: PartitionRows,
        vis: NDArray[np.complexfloating],
        weight: NDArray[np.floating],
        strategy: Strategy,
    ) -> None:
        """Set what interference is found in to 0, and count it."""
        found = find_interference(samples_of(self.index, part, vis, weight > 0), strategy)
        self.note_causes(found)
        self._flag_found(found.flag, vis, weight)

    def note_causes(self, found: FoundInterference) -> None:
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

    def _interference_notes(self) -> Iterator[str]:
        """What a flagger found."""
        flagger = self.request.treatment.flagger
        if flagger is None:
            return
        lone = self.interference["not judged"]
        yield f"flagger {read_strategy(flagger).name}: {causes_text(self.interference)}" + (
            f"; {lone} visibilities not judged (too few others on their baseline)" if lone else ""
        )


def _pointing(field: FieldMetadata) -> DishPointing | None:
    """Where the dishes pointed in a field."""
    given = field["pointing"]
    if given is None:
        return None
    ra, dec = given["centre"]
    if not given["time"]:
        return DishPointing((ra, dec), given["origin"])
    return DishPointing((ra, dec), given["origin"], np.array(given["time"]), np.array(given["offset"]))


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


def _weight_origin(partitions: list[Partition]) -> str:
    origins = {part.weight_origin for part in partitions}
    if len(origins) == 1:
        return origins.pop()
    return ", ".join(f"{part.weight_origin} ({part.field}/spw{part.spw_id})" for part in partitions)
