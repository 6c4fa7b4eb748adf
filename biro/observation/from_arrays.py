"""Check plain arrays and make a partition of them, with the same flags as data of a Measurement Set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.display.formatting import check_names
from biro.errors import InputError
from biro.files.foreign_text import visible_texts
from biro.models.components.antenna_terms.mounts import MOUNTS, mount_kind
from biro.observation.correlations import check_correlations
from biro.observation.feeds.feeds import FeedMetadata
from biro.observation.flags import apply_flags, describe_causes, empty_counts
from biro.observation.partition import Partition
from rime_kernels.arrays.time_slots import RowSlots, spacing_of_baselines, width_of_slots
from rime_kernels.choices import Convention

ScalarT = TypeVar("ScalarT", bound=np.generic)


@dataclass(frozen=True)
class ArrayMetadata:
    """What is known of plain arrays beyond what the likelihood needs; all of it has defaults.

    Attributes
    ----------
    chan_width : float64 (n_chan,) or float, Hz
        Default: the spacing of the channels (1 Hz for a single one).
    antenna_names : sequence of str
        Default "0", "1", ...
    antenna_positions : float64 (n_antenna, 3), m, ITRF
        Default zeros.
    dish_diameter : float64 (n_antenna,) or float, m
    telescope, field, spw, freq_frame, source : str
    interval : float, s
        Integration time of a row; default: the median spacing of the times of a baseline.
    autocorrelations : bool
        Keep rows whose two antennas are the same.
    convention : "casa" or "fourier"
        "fourier" negates uvw (physics: section 2).
    mounts : str or sequence of str
        Of all antennas, or of each: "alt-az", "equatorial", "nasmyth-right", "nasmyth-left" or "x-y"; by
        default they are not known.
    receptor_angle : float64 (n_antenna,) or float, rad
        Angle of the first receptor of each antenna.
    """

    chan_width: ArrayLike | None = None
    antenna_names: Sequence[str] | None = None
    antenna_positions: ArrayLike | None = None
    dish_diameter: ArrayLike = 0.0
    telescope: str = "UNKNOWN"
    field: str = "field"
    spw: str = "0"
    freq_frame: str = "TOPO"
    source: str = "arrays"
    interval: float | None = None
    autocorrelations: bool = False
    convention: Convention = "casa"
    mounts: str | Sequence[str] = ""
    receptor_angle: ArrayLike = 0.0

    def __post_init__(self) -> None:
        for name in ("telescope", "field", "spw", "freq_frame", "source", "antenna_names"):
            object.__setattr__(self, name, visible_texts(getattr(self, name)))

    @classmethod
    def of(cls, options: Mapping[str, object]) -> ArrayMetadata:
        """From keyword arguments; an unknown one is refused with its nearest neighbour."""
        check_names(options, [item.name for item in fields(cls)], "Observation.from_arrays")
        return cls(**options)  # type: ignore[arg-type]  # `check_arrays` looks at the values


@dataclass(frozen=True)
class CheckedArrays:
    """Plain arrays as an observation holds them.

    Attributes
    ----------
    partition : Partition
    counts : dict str -> int
        Visibilities by cause of exclusion, "usable" and "total".
    antenna_names : tuple of str
    antenna_positions : float64 (n_antenna, 3), m, ITRF
    dish_diameter : float64 (n_antenna,), m
        0 where it is not known.
    """

    partition: Partition
    counts: dict[str, int]
    antenna_names: tuple[str, ...]
    antenna_positions: NDArray[np.float64]
    dish_diameter: NDArray[np.float64]


def check_arrays(
    data: Mapping[str, ArrayLike],
    corr_type: tuple[str, ...],
    phase_centre: tuple[float, float],
    metadata: ArrayMetadata,
) -> CheckedArrays:
    """Check plain arrays and apply their flags; see `Observation.from_arrays` for the arrays and errors.

    Parameters
    ----------
    data : mapping
        vis, uvw, antenna1, antenna2, time, chan_freq, weight and flag.
    """
    check_correlations(corr_type, "corr_type")
    vis, weight, flag = _visibilities(data, corr_type)
    rows = _row_arrays(data, len(vis), metadata.convention)
    chan_freq, chan_width = _channels(data["chan_freq"], metadata.chan_width, vis.shape[1])
    names, positions, diameter = _antennas(rows, metadata)
    counts = empty_counts()
    autocorrelation = rows.antenna1 == rows.antenna2
    excluded = [("FLAG", flag)]
    if not metadata.autocorrelations:
        excluded.append(("autocorrelation", autocorrelation[:, None, None]))
    apply_flags(vis, weight, excluded, counts)
    if not counts["usable"]:
        raise InputError(f"0 of {counts['total']} visibilities usable: {describe_causes(counts)}")
    keep = np.ones(len(vis), bool) if metadata.autocorrelations else ~autocorrelation
    columns = rows.time[keep], rows.antenna1[keep], rows.antenna2[keep]
    interval = spacing_of_baselines(*columns) if metadata.interval is None else float(metadata.interval)
    slots = RowSlots.of(columns[0], width_of_slots(np.full(len(columns[0]), interval), *columns))
    partition = Partition(
        field=metadata.field,
        spw=metadata.spw,
        field_id=0,
        spw_id=0,
        data_desc_id=0,
        phase_centre=_direction(phase_centre),
        uvw=rows.uvw[keep],
        antenna1=rows.antenna1[keep],
        antenna2=rows.antenna2[keep],
        time=rows.time[keep],
        time_index=slots.number,
        slot_time=slots.time,
        chan_freq=chan_freq,
        chan_width=chan_width,
        freq_frame=metadata.freq_frame,
        corr_type=corr_type,
        vis=vis[keep],
        weight=weight[keep],
        row_id=np.flatnonzero(keep).astype(np.int64),
        n_antenna=len(names),
        interval=interval,
        weight_origin="given",
        feeds=_feeds(len(names), metadata),
        guessed=tuple(name for name in ("interval", "chan_width") if getattr(metadata, name) is None),
    )
    return CheckedArrays(partition, counts, names, positions, diameter)


def _visibilities(
    data: Mapping[str, ArrayLike], corr_type: tuple[str, ...]
) -> tuple[NDArray[np.complexfloating], NDArray[np.floating], NDArray[np.bool_]]:
    """vis, weight and flag as new arrays, all (n_row, n_chan, n_corr)."""
    vis = np.array(data["vis"])
    if vis.ndim != 3 or vis.shape[2] != len(corr_type):
        raise InputError(
            f"vis must have shape (row, chan, {len(corr_type)}) for {corr_type}, got {vis.shape}"
        )
    if vis.dtype not in (np.complex64, np.complex128):
        raise InputError(f"vis must be complex64 or complex128, got {vis.dtype}")
    real: type[np.floating] = np.float32 if vis.dtype == np.complex64 else np.float64
    weight = _broadcast("weight", data["weight"], vis.shape, real)
    return vis, weight, _broadcast("flag", data["flag"], vis.shape, np.bool_)


def _broadcast(name: str, value: ArrayLike, shape: tuple[int, ...], dtype: type[ScalarT]) -> NDArray[ScalarT]:
    array = np.asarray(value)
    try:
        return np.broadcast_to(array, shape).astype(dtype)
    except ValueError:
        raise InputError(
            f"{name} of shape {array.shape} does not broadcast to vis {shape};"
            f" give (row, 1, 1) or (row, 1, corr) for one value a row"
        ) from None


class _RowArrays(NamedTuple):
    """What plain arrays say of each row; see `Partition` for dtypes and units."""

    uvw: NDArray[np.float64]
    antenna1: NDArray[np.int32]
    antenna2: NDArray[np.int32]
    time: NDArray[np.float64]


def _row_arrays(data: Mapping[str, ArrayLike], n_row: int, convention: Convention) -> _RowArrays:
    """uvw, antennas and time, checked."""
    if convention not in ("casa", "fourier"):
        raise InputError(f"convention must be 'casa' or 'fourier', got {convention!r}")
    uvw = np.array(data["uvw"], np.float64)
    if uvw.shape != (n_row, 3):
        hint = "; transpose it?" if uvw.shape == (3, n_row) else ""
        raise InputError(f"uvw must have shape ({n_row}, 3) as vis has {n_row} rows, got {uvw.shape}{hint}")
    antenna1, antenna2 = (_antenna_numbers(name, data[name], n_row) for name in ("antenna1", "antenna2"))
    time = np.array(data["time"], np.float64)
    if time.shape != (n_row,):
        raise InputError(f"time must have shape ({n_row},), got {time.shape}")
    for name, array in (("uvw", uvw), ("time", time)):
        if not np.isfinite(array).all():
            raise InputError(f"{name} has values that are not finite; remove those rows")
    return _RowArrays(-uvw if convention == "fourier" else uvw, antenna1, antenna2, time)


def _antenna_numbers(name: str, value: ArrayLike, n_row: int) -> NDArray[np.int32]:
    numbers = np.asarray(value)
    if numbers.shape != (n_row,) or not np.issubdtype(numbers.dtype, np.integer):
        raise InputError(f"{name} must be integers of shape ({n_row},), got {numbers.dtype} {numbers.shape}")
    if n_row and numbers.min() < 0:
        raise InputError(f"{name} must not be negative, got {numbers.min()}")
    return numbers.astype(np.int32)


def _channels(
    freq: ArrayLike, width: ArrayLike | None, n_chan: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    chan_freq = np.array(freq, np.float64)
    if chan_freq.shape != (n_chan,):
        raise InputError(
            f"chan_freq must have shape ({n_chan},) as vis has {n_chan} channels, got {chan_freq.shape}"
        )
    if not (np.isfinite(chan_freq).all() and (chan_freq > 0).all()):
        raise InputError("chan_freq must be finite and positive, in Hz")
    if width is None:
        width = np.abs(np.gradient(chan_freq)) if n_chan > 1 else 1.0
    try:
        chan_width = np.broadcast_to(np.asarray(width, np.float64), (n_chan,)).copy()
    except ValueError:
        raise InputError(f"chan_width must be one number or ({n_chan},), got {np.shape(width)}") from None
    return chan_freq, chan_width


def _antennas(
    rows: _RowArrays, metadata: ArrayMetadata
) -> tuple[tuple[str, ...], NDArray[np.float64], NDArray[np.float64]]:
    """Names, positions and dish diameters of the antennas."""
    size = 1 + max((int(a.max()) for a in (rows.antenna1, rows.antenna2) if a.size), default=-1)
    if metadata.antenna_names is not None:
        names = tuple(metadata.antenna_names)
    elif metadata.antenna_positions is not None:
        names = tuple(str(i) for i in range(max(size, len(np.asarray(metadata.antenna_positions)))))
    else:
        names = tuple(str(i) for i in range(size))
    if len(names) < size:
        raise InputError(f"antenna_names has {len(names)} names, but antenna number {size - 1} is used")
    positions = (
        np.zeros((len(names), 3))
        if metadata.antenna_positions is None
        else np.array(metadata.antenna_positions)
    )
    if positions.shape != (len(names), 3):
        raise InputError(f"antenna_positions must have shape ({len(names)}, 3), got {positions.shape}")
    diameter = np.broadcast_to(np.asarray(metadata.dish_diameter, np.float64), (len(names),)).copy()
    return names, positions.astype(np.float64), diameter


def _feeds(n_antenna: int, metadata: ArrayMetadata) -> FeedMetadata:
    """Mounts and angles of feeds, checked."""
    given = metadata.mounts
    mounts = (given,) * n_antenna if isinstance(given, str) else tuple(given)
    if len(mounts) != n_antenna:
        raise InputError(f"mounts must be one text or {n_antenna}, one for each antenna, got {len(mounts)}")
    unknown = [mount for mount in mounts if mount and mount_kind(mount) not in MOUNTS]
    if unknown:
        raise InputError(f"mounts: each one of {', '.join(MOUNTS)}, got {unknown[0]!r}")
    angle = np.asarray(metadata.receptor_angle, np.float64)
    if angle.shape not in ((), (n_antenna,)) or not np.isfinite(angle).all():
        raise InputError(f"receptor_angle must be one number or ({n_antenna},), finite, got {angle.shape}")
    return FeedMetadata(mounts, np.broadcast_to(angle, (n_antenna,)).copy())


def _direction(centre: tuple[float, float]) -> tuple[float, float]:
    ra, dec = (float(angle) for angle in centre)
    if not (np.isfinite(ra) and abs(dec) <= np.pi / 2):
        raise InputError(f"phase_centre must be (ra, dec) in radians with |dec| <= pi/2, got ({ra}, {dec})")
    return ra, dec
