"""Headers of partitions: all that is known of them before their visibilities are read."""

from __future__ import annotations

import numpy as np

from biro.io.data_set.index import PartitionRows, RowIndex
from biro.io.data_set.intervals import exposure_of, interval_of, row_interval_of
from biro.io.data_set.metadata import FieldMetadata
from biro.observation.feeds.feeds import FeedMetadata
from biro.observation.feeds.pointing import DishPointing
from biro.observation.partition_header import PartitionHeader
from rime_kernels.choices import Convention


def header_of(index: RowIndex, part: PartitionRows, convention: Convention, column: str) -> PartitionHeader:
    """What is known of a partition before its visibilities are read.

    Parameters
    ----------
    index : RowIndex
    part : PartitionRows
    convention : "casa" or "fourier"
    column : str
        What the visibilities are called.
    """
    columns = index.columns
    rows = part.rows
    uvw = np.nan_to_num(columns.uvw[rows], nan=0.0, posinf=0.0, neginf=0.0)
    time = columns.time[rows]
    slot_time = index.slot_time(rows)
    spw = index.metadata["spws"][part.spw_id]
    field = index.metadata["fields"][part.field_id]
    corr_type = index.corr_type(part.data_desc_id)
    interval, row_interval = interval_of(columns, rows), row_interval_of(columns, rows)
    lasts = np.full(len(rows), interval) if row_interval is None else row_interval
    return PartitionHeader(
        field=index.field_names[part.field_id],
        spw=index.spw_names[part.spw_id],
        field_id=part.field_id,
        spw_id=part.spw_id,
        data_desc_id=part.data_desc_id,
        phase_centre=(field["direction"][0], field["direction"][1]),
        pointing=_pointing(field),
        uvw=-uvw if convention == "fourier" else uvw,
        antenna1=columns.antenna1[rows],
        antenna2=columns.antenna2[rows],
        time=time,
        time_index=np.unique(slot_time, return_inverse=True)[1].reshape(-1).astype(np.int32),
        slot_time=None if index.slots.time is None else slot_time,
        chan_freq=np.array(spw["chan_freq"])[part.chan],
        chan_width=np.abs(np.array(spw["chan_width"])[part.chan]),
        freq_frame=spw["frame"],
        corr_type=tuple(corr_type[i] for i in part.corr),
        row_id=rows.astype(np.int64),
        n_antenna=len(index.metadata["antenna_names"]),
        interval=interval,
        chan_id=part.chan,
        corr_id=part.corr,
        frame=field["frame"],
        feeds=_feeds(index, part.spw_id, column),
        row_interval=row_interval,
        exposure=exposure_of(columns, rows, lasts),
        scan_number=columns.scan_number[rows] if index.numbers_scans else None,
    )


def _feeds(index: RowIndex, spw_id: int, column: str) -> FeedMetadata:
    metadata = index.metadata
    angles = np.array(metadata["receptor_angles"][spw_id], np.float64)  # None becomes NaN
    return FeedMetadata(tuple(metadata["mounts"]), angles, column == "CORRECTED_DATA")


def _pointing(field: FieldMetadata) -> DishPointing | None:
    """Where the dishes pointed in a field."""
    given = field["pointing"]
    if given is None:
        return None
    ra, dec = given["centre"]
    if not given["time"]:
        return DishPointing((ra, dec), given["origin"])
    return DishPointing((ra, dec), given["origin"], np.array(given["time"]), np.array(given["offset"]))
