"""Sum up an observation in figures, as text for people and as a dict for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import (
    FLUXES,
    FREQUENCIES,
    LENGTHS,
    WAVELENGTHS,
    Printed,
    angle_text,
    frequency_text,
    percent,
    plain,
    range_text,
    sexagesimal,
    unit_for,
)
from biro.files.json_value import JsonValue
from biro.models.bound.antenna_terms.segments import cut, numbers_scans
from biro.models.components.partition_view import PartitionView
from biro.observation.averaging import Averaged, smearing_loss
from biro.observation.correlations import PARALLEL_HANDS
from biro.observation.feeds import ionosphere
from biro.observation.feeds.feeds import FeedAngles
from biro.observation.feeds.pointing import per_field, pointing_text
from biro.observation.feeds.statement import assumed
from biro.observation.flags import CAUSES
from biro.observation.noise import Noise, measure_noise
from biro.observation.noise_of_hands import noise_of_hands
from biro.observation.partition import Partition
from biro.observation.selection import to_utc
from biro.observation.stokes import FormedStokes
from biro.observation.unequal_noise import unequal_noise
from biro.observation.uv_extent import field_of_view, uv_extent

RATIO = 2.0
"""Measured noise over stated noise, or its inverse, above which the summary says that weights are off."""


@dataclass(frozen=True)
class PartitionSummary:
    """Figures of one partition; see `Summary` for the units."""

    label: str
    field: str
    spw: str
    phase_centre: tuple[float, float]
    frame: str
    chan_freq: tuple[float, float]
    chan_width: float
    n_chan: int
    freq_frame: str
    corr_type: tuple[str, ...]
    n_row: int
    n_time: int
    n_usable: int
    pointing: str = ""


@dataclass(frozen=True)
class Summary(Printed):
    """Figures of an observation.

    Attributes
    ----------
    source, telescope, column, weight_origin : str
    partitions : tuple of PartitionSummary
        phase_centre in rad (ICRS), chan_freq (lowest, highest) and chan_width in Hz; pointing says where the
        dishes pointed.
    antennas : tuple of str
        Those with a row.
    n_baseline, n_time : int
    interval : float, s
    time_range : (str, str)
        First and last time, UTC.
    uv_metres, uv_wavelengths : (float, float)
        Shortest and longest projected baseline among usable visibilities.
    resolution, field_of_view : float, rad
        1 / longest baseline in wavelengths; lambda / D at the lowest frequency (0: diameters not known).
    counts : mapping str -> int
        Visibilities by cause of exclusion, "usable" and "total".
    noise : mapping str -> Noise
        For each correlation, and "I" for Stokes I.
    formed : FormedStokes or None
        What Stokes parameters were formed, before averaging.
    averaged : Averaged or None
    n_averaged : int
        Usable visibilities after averaging.
    notes : tuple of str
    feeds : str
        What is assumed about the rotation of feeds, and how to change it.
    smearing : str
        What averages over integrations and channels take of a source at the edge of the field of view.
    ionosphere : str
        What an ionosphere could change across the band; empty where that is small.
    scans : str
        How many scans there are, and by what they are told apart.
    unequal : tuple of str
        How noise differs from what the weights describe: of Stokes I and its hands, and among correlations,
        antennas and lengths of baselines.
    """

    source: str
    telescope: str
    column: str
    weight_origin: str
    partitions: tuple[PartitionSummary, ...]
    antennas: tuple[str, ...]
    n_baseline: int
    n_time: int
    interval: float
    time_range: tuple[str, str]
    uv_metres: tuple[float, float]
    uv_wavelengths: tuple[float, float]
    resolution: float
    field_of_view: float
    counts: Mapping[str, int]
    noise: Mapping[str, Noise]
    formed: FormedStokes | None
    averaged: Averaged | None
    n_averaged: int
    notes: tuple[str, ...]
    feeds: str = ""
    smearing: str = ""
    ionosphere: str = ""
    scans: str = ""
    unequal: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, JsonValue]:
        """Plain dicts, lists and numbers, for JSON; what is not known (NaN) becomes None."""
        figures = asdict(self, dict_factory=dict) | {"counts": dict(self.counts)}
        return {name: _nan_to_none(value) for name, value in figures.items()}

    def __str__(self) -> str:
        return "\n".join(_lines(self))


class Described(Protocol):
    """The attributes of an `Observation` that a summary is made of."""

    @property
    def source(self) -> str: ...
    @property
    def telescope(self) -> str: ...
    @property
    def column(self) -> str: ...
    @property
    def weight_origin(self) -> str: ...
    @property
    def partitions(self) -> tuple[Partition, ...]: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def antenna_names(self) -> tuple[str, ...]: ...
    @property
    def dish_diameter(self) -> NDArray[np.float64]: ...
    @property
    def utc_offset(self) -> float: ...
    @property
    def counts(self) -> Mapping[str, int]: ...
    @property
    def formed(self) -> FormedStokes | None: ...
    @property
    def averaged(self) -> Averaged | None: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    @property
    def feed_angles(self) -> tuple[FeedAngles, ...]: ...
    @property
    def partition_views(self) -> tuple[PartitionView, ...]: ...


def summarise(observation: Described) -> Summary:
    """The figures of an observation."""
    parts = observation.partitions
    used = sorted({int(i) for part in parts for a in (part.antenna1, part.antenna2) for i in np.unique(a)})
    baselines = {tuple(sorted(pair)) for part in parts for pair in _antenna_pairs(part)}
    times = np.unique(np.concatenate([part.times for part in parts]))
    low, high = (to_utc(time, observation.utc_offset) for time in (times[0], times[-1]))
    extent, noise = uv_extent(parts), _noise(parts)
    bounded = {name for name, item in noise.items() if item.is_bound}
    unequal = unequal_noise(parts, observation.antenna_names, bounded=bounded)
    return Summary(
        source=observation.source,
        telescope=observation.telescope,
        column=observation.column,
        weight_origin=observation.weight_origin,
        partitions=tuple(map(_summarise_partition, observation.labels, parts)),
        antennas=tuple(observation.antenna_names[i] for i in used),
        n_baseline=len(baselines),
        n_time=len(times),
        interval=float(np.median([part.interval for part in parts])),
        time_range=(low, high),
        uv_metres=extent.metres,
        uv_wavelengths=extent.wavelengths,
        resolution=1 / extent.wavelengths[1] if extent.wavelengths[1] else 0.0,
        field_of_view=max(field_of_view(part, observation.dish_diameter) for part in parts),
        counts=dict(observation.counts),
        noise=noise,
        formed=observation.formed,
        averaged=observation.averaged,
        n_averaged=sum(part.n_usable for part in parts),
        notes=observation.notes,
        feeds=feed_statement(observation),
        smearing=smearing_statement(observation),
        ionosphere=ionosphere_statement(observation),
        scans=scan_statement(observation),
        unequal=(*_remark_of_hands(parts), *unequal),
    )


def feed_statement(observation: Described) -> str:
    """What is assumed about the rotation of feeds where no model applies it."""
    pairs = zip(observation.partitions, observation.feed_angles, strict=True)
    return assumed(
        [each for part, each in pairs if not set(part.corr_type) <= set("IQUV")], observation.column
    )


def scan_statement(observation: Described) -> str:
    """How many scans there are, and whether SCAN_NUMBER or pauses tell them apart."""
    views = observation.partition_views
    n_scan = cut("scan", views).middle.size
    if numbers_scans(views):
        return f"{n_scan}, by SCAN_NUMBER"
    return f"{n_scan}, from time gaps and changes of the field (no usable SCAN_NUMBER)"


def smearing_statement(observation: Described) -> str:
    """Amplitude that time and bandwidth smearing cost a source at the edge of the field of view."""
    parts = observation.partitions
    view = max(field_of_view(part, observation.dish_diameter) for part in parts)
    extent = uv_extent(parts)
    # Where no dish is known, a source ten resolutions away.
    radius = view / 2 if view else 10.0 / extent.wavelengths[1] if extent.wavelengths[1] else 0.0
    losses = []
    for part in parts:
        each = float(part.averaged_over.max())
        width = np.zeros(1) if "chan_width" in part.guessed else part.chan_width
        each = 0.0 if "interval" in part.guessed else each
        losses.append(smearing_loss(part, width, each, radius))
    own = " (each row has its own interval)" if any(part.row_interval is not None for part in parts) else ""
    return (
        f"time and bandwidth smearing{own} lowers the amplitude of a source {angle_text(radius)} from the "
        f"phase centre ({'half the field of view' if view else 'ten times the resolution'}) by up to "
        f"{percent(max(losses))}. A fit models smearing where the loss exceeds the noise"
        f"{_exposure_text(parts)}"
    )


def ionosphere_statement(observation: Described) -> str:
    """What an ionosphere that no model has could change; empty where that is small, or data have no feeds."""
    parts = [part for part in observation.partitions if not set(part.corr_type) <= set("IQUV")]
    if not parts:
        return ""
    polarised = any(not set(part.corr_type) <= {"RR", "LL"} for part in parts)
    freq = np.concatenate([part.chan_freq for part in parts])
    return ionosphere.assumed(freq, uv_extent(parts).metres[1], polarised)


def _exposure_text(parts: Sequence[Partition]) -> str:
    """Where EXPOSURE is less than INTERVAL, and that it counts; empty where it is the same."""
    pairs = [(part.averaged_over, part.row_intervals) for part in parts]
    exposure, interval = (np.concatenate(each) for each in zip(*pairs, strict=True))
    shorter = exposure < interval
    if not shorter.any():
        return ""
    typical = float(np.median(exposure[shorter])), float(np.median(interval[shorter]))
    return (
        f". EXPOSURE is below INTERVAL in {percent(float(shorter.mean()))} of the rows ({typical[0]:.3g} of "
        f"{typical[1]:.3g} s). biro treats them as averages over EXPOSURE"
    )


def _antenna_pairs(part: Partition) -> list[list[int]]:
    """Distinct pairs of antenna1 and antenna2."""
    pairs: list[list[int]] = np.unique(np.stack([part.antenna1, part.antenna2]), axis=1).T.tolist()
    return pairs


def _noise(parts: Sequence[Partition]) -> dict[str, Noise]:
    names = list(dict.fromkeys(name for part in parts for name in part.corr_type))
    noise = {name: measure_noise(parts, name) for name in names}
    if "I" not in noise and all(set(part.corr_type) & set(PARALLEL_HANDS) for part in parts):
        noise["I"] = measure_noise(parts, stokes_i=True)
    return noise


def _remark_of_hands(parts: Sequence[Partition]) -> list[str]:
    """A line on Stokes I that is noisier than its hands are; nothing where it is not."""
    found = noise_of_hands(parts)
    remark = "" if found is None else found.remark()
    return [remark] if remark else []


def _summarise_partition(label: str, part: Partition) -> PartitionSummary:
    return PartitionSummary(
        label=label,
        field=part.field,
        spw=part.spw,
        phase_centre=part.phase_centre,
        frame=part.frame,
        chan_freq=(float(part.chan_freq.min()), float(part.chan_freq.max())),
        chan_width=float(np.median(part.chan_width)),
        n_chan=part.n_chan,
        freq_frame=part.freq_frame,
        corr_type=part.corr_type,
        n_row=part.n_row,
        n_time=len(part.times),
        n_usable=part.n_usable,
        pointing=pointing_text(part.pointing, part.phase_centre),
    )


def _nan_to_none(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: _nan_to_none(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_nan_to_none(item) for item in value]
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value


def _lines(summary: Summary) -> list[str]:
    s = summary
    lines = [
        f"{s.source}",
        f"  telescope     {s.telescope}, {len(s.antennas)} antennas, {s.n_baseline} baselines:"
        f" {' '.join(s.antennas)}",
        f"  time          {s.time_range[0]} to {s.time_range[1]} UTC, {s.n_time} times of {s.interval:.4g} s",
        f"  uv            {range_text(*s.uv_metres, LENGTHS)}, {range_text(*s.uv_wavelengths, WAVELENGTHS)}",
        f"  resolution    {angle_text(s.resolution)} (wavelength / longest baseline), field of view"
        f" {angle_text(s.field_of_view) if s.field_of_view else 'not known (no dish diameters)'}",
        f"  scans         {s.scans}",
        f"  column        {s.column}, weights from "
        f"{'the file' if s.weight_origin == 'UVFITS' else s.weight_origin}",
        *_partition_lines(s.partitions),
        f"  pointing      {per_field((part.field, part.pointing) for part in s.partitions)}",
        *_count_lines(s.counts),
        f"  feeds         {s.feeds}",
        f"  smearing      {s.smearing}",
        *([f"  ionosphere    {s.ionosphere}"] if s.ionosphere else []),
        *([f"  Stokes        {s.formed}"] if s.formed is not None else []),
        *_noise_lines(s.noise),
        *(f"    {line}" for line in s.unequal),
    ]
    if s.averaged is not None:
        lines += [
            f"  averaged      {s.averaged.seconds:g} s x {s.averaged.channels} channels: {s.n_averaged}"
            f" visibilities; loses at most {100 * s.averaged.loss:.2g} % at"
            f" {angle_text(s.averaged.radius)} from the phase centre"
        ]
    return lines + [f"  note          {note}" for note in s.notes]


def _partition_lines(partitions: Sequence[PartitionSummary]) -> list[str]:
    lines = []
    for part in partitions:
        ra, dec = sexagesimal(*part.phase_centre)
        low, high = part.chan_freq
        span = range_text(low, high, FREQUENCIES, 6)
        stored = "" if part.frame in ("ICRS", "J2000") else f" (stored as {part.frame})"
        lines.append(
            f"  {part.label}: {ra} {dec} ICRS{stored}; {span} {part.freq_frame}, {part.n_chan} x"
            f" {frequency_text(part.chan_width)}; {' '.join(part.corr_type)};"
            f" {part.n_row} rows, {part.n_time} times, {part.n_usable} usable visibilities"
        )
    return lines


def _count_lines(counts: Mapping[str, int]) -> list[str]:
    usable, total = counts["usable"], max(1, counts["total"])
    lines = [f"  visibilities  {usable} of {counts['total']} usable ({100 * usable / total:.1f} %)"]
    for cause in CAUSES:
        if counts.get(cause):
            lines.append(f"    {cause:<18}{counts[cause]:>12}  {100 * counts[cause] / total:5.1f} %")
    return lines


def _span(values: Sequence[float]) -> str:
    """The least and the largest of values: "0.021 to 0.039"; one where they look alike."""
    low, high = plain(min(values)), plain(max(values))
    return low if low == high else f"{low} to {high}"


def _noise_lines(noise: Mapping[str, Noise]) -> list[str]:
    known = {name: item for name, item in noise.items() if np.isfinite(item.measured)}
    if not known:
        return ["  noise         not measured: no neighbouring times"]
    unit = unit_for((value for item in known.values() for value in (item.measured, item.stated)), FLUXES)
    lines = [
        "  noise         rms of the real part and of the imaginary part of one visibility, from the median "
        "(outliers do not count)",
        f"    {'':<18}{'measured':>20}{'from weights':>16}{'ratio':>10}",
    ]
    for name, item in known.items():
        measured, stated = (f"{unit.text(value)} {unit.name}" for value in (item.measured, item.stated))
        measured = f"{'at most ' * item.is_bound}{measured}"
        lines.append(f"    {name:<18}{measured:>20}{stated:>16}{item.ratio:>10.3g}")
    if any(item.is_bound for item in known.values()):
        lines.append(
            "    at most: data change between neighbouring times by more than noise, because the sky turns "
            "or gains change"
        )
    ratios = [item.ratio for item in known.values() if np.isfinite(item.ratio)]
    if any(not 1.0 / RATIO <= ratio <= RATIO for ratio in ratios):
        lines.append(
            f"    WEIGHTS: the thermal noise, measured from neighbouring samples, is {_span(ratios)} times "
            "the noise from the weights. A model without a [noise] table needs no change, because biro fits "
            "a noise factor. Do not set [noise] factor = 1: chi2/dof and uncertainties would be wrong"
        )
    return lines
