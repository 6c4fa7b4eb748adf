"""An observation as the rest of the toolkit sees it: frozen arrays, conventions settled."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.models.components.frame import Frame
from rime_kernels.arrays import Rows

if TYPE_CHECKING:
    from biro.observation.averaging import Averaged
    from biro.observation.summary import Summary

Convention = Literal["casa", "fourier"]


def _freeze(holder: object) -> None:
    """Make every array of a frozen dataclass read-only (a view, so the maker's own array stays as it is)."""
    for item in fields(holder):  # type: ignore[arg-type]
        value = getattr(holder, item.name)
        if isinstance(value, np.ndarray):
            view = value.view()
            view.flags.writeable = False
            object.__setattr__(holder, item.name, view)


def _remade(holder: object, **changed: Any) -> tuple[Any, tuple[()]]:
    """How pickle makes it anew, so that its arrays are read-only there, too."""
    values = {item.name: getattr(holder, item.name) for item in fields(holder)}  # type: ignore[arg-type]
    return partial(type(holder), **(values | changed)), ()


@dataclass(frozen=True, eq=False)
class Partition:
    """One field seen through one data description.

    Attributes
    ----------
    field, spw : str
        Names (the id as text where the set has no name, or gives one name twice).
    field_id, spw_id, data_desc_id : int
    phase_centre : (float, float), rad
        ICRS.
    uvw : float64 (n_row, 3), m
        As stored, negated when read with convention="fourier".
    antenna1, antenna2 : int32 (n_row,)
    time : float64 (n_row,), s
        MJD, TIME column (mid-point), on the time scale that the observation names.
    time_index : int32 (n_row,)
        Index of each row's time among the sorted distinct times.
    chan_freq, chan_width : float64 (n_chan,), Hz
    freq_frame : str
        "TOPO", "LSRK", ...
    corr_type : tuple of str
        "XX", "XY", ... or "RR", ... as stored.
    vis : complex64 or complex128 (n_row, n_chan, n_corr), Jy
        0 where the weight is 0.
    weight : float32 or float64 (n_row, n_chan, n_corr), 1/Jy^2
        1/sigma^2 of the real and of the imaginary part; 0 for what does not count.
    row_id : int64 (n_row,)
        Row numbers in the Measurement Set; after averaging in time, the first row of those averaged.
    n_antenna : int
        Length of the antenna axis; 0 means the largest antenna number + 1.
    interval : float, s
        Integration time of a row; 0 where it is not known.
    chan_id, corr_id : int64 (n_chan,), (n_corr,)
        Which stored channels and correlations these are; None means all, in order. After averaging
        in frequency, the first channel of those averaged.
    weight_origin : str
        Column that the weights of this partition came from.
    frame : str
        Frame that the set gives the phase centre (and so UVW's axes) in, "J2000", "B1950_VLA", ...
    """

    field: str
    spw: str
    field_id: int
    spw_id: int
    data_desc_id: int
    phase_centre: tuple[float, float]
    uvw: NDArray[np.float64]
    antenna1: NDArray[np.int32]
    antenna2: NDArray[np.int32]
    time: NDArray[np.float64]
    time_index: NDArray[np.int32]
    chan_freq: NDArray[np.float64]
    chan_width: NDArray[np.float64]
    freq_frame: str
    corr_type: tuple[str, ...]
    vis: NDArray[np.complexfloating]
    weight: NDArray[np.floating]
    row_id: NDArray[np.int64]
    n_antenna: int = 0
    interval: float = 0.0
    chan_id: NDArray[np.int64] | None = None
    corr_id: NDArray[np.int64] | None = None
    weight_origin: str = ""
    frame: str = "ICRS"

    def __post_init__(self) -> None:
        if not self.n_antenna and self.antenna1.size:
            largest = max(int(self.antenna1.max()), int(self.antenna2.max()))
            object.__setattr__(self, "n_antenna", largest + 1)
        _freeze(self)

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return _remade(self)

    @property
    def n_row(self) -> int:
        return int(self.vis.shape[0])

    @property
    def n_chan(self) -> int:
        return int(self.vis.shape[1])

    @property
    def n_corr(self) -> int:
        return int(self.vis.shape[2])

    @cached_property
    def times(self) -> NDArray[np.float64]:
        """Sorted distinct times, float64 (n_time,), s; `time_index` points into them."""
        times = np.unique(self.time)
        times.flags.writeable = False
        return times

    @cached_property
    def n_usable(self) -> int:
        """Complex samples with weight > 0."""
        return int(np.count_nonzero(self.weight))

    @cached_property
    def rows(self) -> Rows:
        """What the kernels need of this partition."""
        from rime_kernels.physics.brightness import stokes_to_corr

        return Rows(
            uvw=self.uvw,
            antenna1=self.antenna1,
            antenna2=self.antenna2,
            time_index=self.time_index,
            chan_freq=self.chan_freq,
            stokes_to_corr=stokes_to_corr(self.corr_type),
            n_antenna=self.n_antenna,
            n_time=len(self.times),
        )


@dataclass(frozen=True, eq=False)
class Observation:
    """Calibrated visibilities with weights, in partitions that are never mixed.

    Attributes
    ----------
    partitions : tuple of Partition
    antenna_names : tuple of str
    antenna_positions : float64 (n_antenna, 3), m, ITRF
    telescope : str
    source : str
        Path it was read from, or a word for where the arrays came from.
    column : str
        "DATA", "CORRECTED_DATA", ...
    weight_origin : str
        Which column the weights came from.
    counts : mapping str -> int
        Visibilities by cause of exclusion, and "usable", "total" (before averaging).
    time_scale : str
        Of every time: "UTC", "TAI", ...
    utc_offset : float, s
        To be added to a time to make it UTC.
    dish_diameter : float64 (n_antenna,), m
        0 where it is not known.
    convention : "casa" or "fourier"
        "fourier": uvw were negated (physics: section 2).
    averaged : Averaged or None
        What averaging was done while reading.
    notes : tuple of str
        What the reader found worth saying.
    """

    partitions: tuple[Partition, ...]
    antenna_names: tuple[str, ...]
    antenna_positions: NDArray[np.float64]
    telescope: str
    source: str
    column: str
    weight_origin: str
    counts: Mapping[str, int]
    time_scale: str = "UTC"
    utc_offset: float = 0.0
    dish_diameter: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    convention: Convention = "casa"
    averaged: Averaged | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", MappingProxyType(dict(self.counts)))
        _freeze(self)

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return _remade(self, counts=dict(self.counts))

    def __repr__(self) -> str:
        n_part, n_usable = len(self.partitions), sum(part.n_usable for part in self.partitions)
        parts = f"{n_usable} usable visibilities in {n_part} partition(s)"
        return f"<Observation {self.source}: {parts}; summary() tells more>"

    @property
    def n_antenna(self) -> int:
        return len(self.antenna_names)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """A name for each partition, unique among them: "3C273/spw0"."""
        return _unique_labels(self.partitions)

    @cached_property
    def frames(self) -> tuple[Frame, ...]:
        """What a sky model must know of each partition."""
        return tuple(
            Frame(
                label=label,
                field=part.field,
                spw=part.spw,
                phase_centre=part.phase_centre,
                time=part.times,
                chan_freq=part.chan_freq,
                antenna_names=self.antenna_names,
            )
            for label, part in zip(self.labels, self.partitions, strict=True)
        )

    def digest(self) -> str:
        """sha256 of all that a likelihood can see: arrays, frequencies, directions, names; not the path."""
        sha = hashlib.sha256()
        for part in self.partitions:
            for item in fields(part):
                _feed(sha, item.name, getattr(part, item.name))
        _feed(sha, "antenna_names", self.antenna_names)
        return sha.hexdigest()

    def summary(self) -> Summary:
        """Figures about the data for people and programs; see `biro.observation.summary.Summary`."""
        from biro.observation.summary import summarise

        return summarise(self)

    @classmethod
    def from_arrays(
        cls,
        vis: ArrayLike,
        uvw: ArrayLike,
        antenna1: ArrayLike,
        antenna2: ArrayLike,
        time: ArrayLike,
        chan_freq: ArrayLike,
        corr_type: Sequence[str],
        *,
        weight: ArrayLike = 1.0,
        flag: ArrayLike = False,
        phase_centre: tuple[float, float] = (0.0, 0.0),
        **about: Any,
    ) -> Observation:
        """An observation of one field and one spectral window from plain arrays (copied).

        Parameters
        ----------
        vis : complex64 or complex128 (n_row, n_chan, n_corr), Jy
        uvw : float64 (n_row, 3), m
            Signs as the UVW column of a Measurement Set has them (physics: section 2), unless
            convention="fourier" is given.
        antenna1, antenna2 : int (n_row,)
        time : float64 (n_row,), s
            MJD, UTC. Equal times make one time slot.
        chan_freq : float64 (n_chan,), Hz
        corr_type : sequence of str
            One of "XX", "XY", "YX", "YY", "RR", "RL", "LR", "LL", "I", "Q", "U", "V" per correlation.
        weight : float, broadcast against vis, 1/Jy^2
            1/sigma^2 of the real and of the imaginary part alike; (n_row, 1, 1) or (n_row, 1, n_corr) for
            weights per row.
        flag : bool, broadcast against vis
        phase_centre : (float, float), rad
            ICRS right ascension and declination.
        **about
            Any of `biro.observation.from_arrays.About`: chan_width, antenna_names,
            antenna_positions, dish_diameter, telescope, field, spw, interval, freq_frame,
            autocorrelations, convention, source.

        Raises
        ------
        InputError
            Shapes that do not fit, values that are not finite, unknown correlations, or nothing usable.
        """
        from biro.observation.from_arrays import About, observation_from_arrays

        data = {"vis": vis, "uvw": uvw, "antenna1": antenna1, "antenna2": antenna2, "time": time}
        data |= {"chan_freq": chan_freq, "weight": weight, "flag": flag}
        return observation_from_arrays(data, tuple(corr_type), phase_centre, About.of(about))


def _unique_labels(partitions: Sequence[Partition]) -> tuple[str, ...]:
    """field/spwN, with ids added only as far as two partitions would share a name."""
    fields_of_name: dict[str, set[int]] = {}
    for part in partitions:
        fields_of_name.setdefault(part.field, set()).add(part.field_id)
    labels = []
    for part in partitions:
        name = part.field if len(fields_of_name[part.field]) == 1 else f"{part.field}#{part.field_id}"
        labels.append(f"{name}/spw{part.spw_id}")
    return tuple(
        label if labels.count(label) == 1 else f"{label}/dd{part.data_desc_id}"
        for label, part in zip(labels, partitions, strict=True)
    )


def _feed(sha: Any, name: str, value: Any) -> None:
    """Add one named value to a hash so that no two different values run into each other."""
    if isinstance(value, np.ndarray):
        sha.update(f"{name}:{value.dtype.str}{value.shape};".encode())
        sha.update(np.ascontiguousarray(value).data)
    else:
        sha.update(f"{name}={value!r};".encode())
