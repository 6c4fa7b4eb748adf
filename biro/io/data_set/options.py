"""Names and types of the keyword arguments with which data sets of any format are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from biro.choices import Weights
from biro.flagging.strategy import StrategyLike
from biro.observation.averaging import Averaging
from biro.observation.selection import Channels, Items, Length, Moment, Selection
from biro.observation.weighting import Weighting
from rime_kernels.choices import Convention


class DataKeywords(TypedDict, total=False):
    """The fields of `Selection` (but scans), `Weighting` and `Averaging` as keyword arguments."""

    fields: Items | None
    spws: Items | None
    antennas: Items | None
    time_range: str | tuple[Moment | None, Moment | None] | None
    uv_range: str | tuple[Length | None, Length | None] | None
    channels: Channels | None
    correlations: str | Iterable[str] | None
    stokes: str | None
    autocorrelations: bool
    weights: Weights
    taper: Length | None
    average_time: str | float | None
    average_channels: int
    smearing_radius: str | float | None


class SetKeywords(DataKeywords, total=False):
    """The fields of `Selection`, `Weighting` and `Averaging` as keyword arguments."""

    scans: int | str | Iterable[int] | None


class DataOptions(DataKeywords, total=False):
    """What `biro.read_uvfits` takes; `biro.read_ms` says what each means."""

    selection: Selection | None
    weighting: Weighting | None
    averaging: Averaging | None
    convention: Convention
    allow_unusable: bool
    flagger: StrategyLike | None


class SetOptions(DataOptions, total=False):
    """What `biro.read` takes; those here are of Measurement Sets."""

    column: str | None
    weight_column: str | None
    scans: int | str | Iterable[int] | None
    time_limit: float


class ColumnOptions(SetOptions, total=False):
    """What `biro.io.measurement_set.read_columns` takes."""

    keep_values: bool
