"""Make an observation of the parts of a data set that are selected, whatever format the set has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from biro.distributed.placement import ProcessGroup
from biro.errors import DataError
from biro.io.data_set.exclusion import Exclusion
from biro.io.data_set.headers import header_of
from biro.io.data_set.index import PartitionRows
from biro.io.data_set.orientation import sign_notes
from biro.io.data_set.request import ReadRequest
from biro.io.data_set.stored_data import DataSet
from biro.observation.averaging import average
from biro.observation.flags import describe_causes
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.partition_header import BYTES_AS_READ, PartitionHeader
from biro.observation.stokes import take_hands

Described = list[tuple[PartitionRows, PartitionHeader]]
"""Which rows of a set a partition has, and what is known of it before its visibilities are read."""


class ReadData(NamedTuple):
    """What was read of a partition, or of some of its rows.

    Attributes
    ----------
    vis : complex64 or complex128 (n_row, n_chan, n_corr), Jy
    weight : float32 or float64 (n_row, n_chan, n_corr), 1/Jy^2
    weight_origin : str
        Column that the weights came from.
    """

    vis: NDArray[np.complexfloating]
    weight: NDArray[np.floating]
    weight_origin: str


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
        self.excluded = Exclusion(data, request.treatment)

    def observation(self) -> Observation:
        index, metadata, counts = self.index, self.index.metadata, self.excluded.counts
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
            self.check_memory(BYTES_AS_READ * sum(header.size for _, header in described))
            partitions = [Partition.of(header, **self.read(part)._asdict()) for part, header in described]
        else:
            partitions = self._fill(self, described)
        notes += self.excluded.interference_notes()
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

    def check_memory(self, needed: float, remedy: str = "") -> None:
        """Refuse to read what needs more bytes than this process has memory for.

        Raises
        ------
        InputError
        """
        self.check_room(ProcessGroup(None), [needed], remedy)

    def check_room(self, processes: ProcessGroup, needed: Sequence[float], remedy: str = "") -> None:
        """Refuse to read more than there is memory for.

        Parameters
        ----------
        processes : ProcessGroup
            Those that read.
        needed : sequence of float
            Bytes, of each process.
        remedy : str
            What to do, where that is not usual.

        Raises
        ------
        InputError
        """
        processes.check_memory(
            needed,
            f"{self.index.source}: reading it",
            lambda _, n_machine: (
                remedy
                or (
                    "keep the data in files (--cache DIR, cache= in Python), share them among MPI processes "
                    f"on {n_machine} machines of this size (mpiexec biro), or select less"
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
        wants_all = self.request.selection.autocorrelations
        found = []
        for part in self.index.select(self.request.selection) if selected is None else selected:
            own = part if wants_all else self.excluded.without_autocorrelations(part)
            convention = self.request.treatment.convention
            found.append((own, header_of(self.index, own, convention, self.data.column)))
        return found

    def read(self, part: PartitionRows, flag: NDArray[np.bool_] | None = None) -> ReadData:
        """Visibilities and weights of a partition or of some of its rows; weights that do not count are 0.

        `flag` says where interference was found, where that was looked for before.
        """
        read = self.data.visibilities(part)
        self.excluded.apply(part, read, flag)
        return ReadData(read.vis, read.weight, read.weight_origin)


def _weight_origin(partitions: list[Partition]) -> str:
    origins = {part.weight_origin for part in partitions}
    if len(origins) == 1:
        return origins.pop()
    return ", ".join(f"{part.weight_origin} ({part.field}/spw{part.spw_id})" for part in partitions)
