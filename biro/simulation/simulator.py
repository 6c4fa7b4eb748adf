"""Simulated observations: the visibilities of a sky as a telescope would see them, with known noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from biro.choices import Feeds, SmearingMode
from biro.display.arguments import SKY, takes
from biro.display.formatting import in_unit
from biro.display.progress import doing
from biro.distributed.blocks import Vis, Weight, split
from biro.distributed.placement import ProcessGroup, processes_of
from biro.distributed.remote_data import Model
from biro.errors import InputError
from biro.io.data_set.plausible import HIGHEST, is_frequency
from biro.models import Feeds as FeedRotation
from biro.models import Gain, GainSolutions, SkyModel
from biro.models.components.direction import parse_direction
from biro.observation.feeds.pointing import DishPointing
from biro.observation.observation import Observation
from biro.observation.selection import to_mjd_seconds
from biro.simulation.gains import GainScatter
from biro.simulation.prediction import predict
from biro.simulation.telescopes import Telescope
from biro.simulation.telescopes import telescope as telescope_by_name
from biro.simulation.uvw import DAY, earth_orientation, transit
from rime_kernels.choices import Backend, GaussianFrame

if TYPE_CHECKING:
    from mpi4py import MPI

STREAM = 2
"""Set beside the seed and the number of a block: the stream of noise of all blocks but the first."""
LONGEST_TRACK = 3.2e9
"""Seconds that a track may take."""
LEAST_NOISE, MOST_NOISE = 1e-15, 1e15
"""Jy: 1/noise^2 is a number in single precision, in which a Measurement Set has its weights."""
BYTES_PER_VISIBILITY = 100
"""Memory that simulating takes at least: values in double precision, noise, weights, and their copies."""
T = TypeVar("T")
CORRELATIONS: Mapping[str, tuple[str, ...]] = {
    "linear": ("XX", "XY", "YX", "YY"),
    "circular": ("RR", "RL", "LR", "LL"),
}


@dataclass(frozen=True)
class Track:
    """The times at which a field is observed.

    Attributes
    ----------
    start : str or float
        Start of the first integration: "2026-03-01T18:00:00" (UTC) or MJD in seconds; or a day alone,
        "2026-03-01", for a track whose middle is the time at which the phase centre culminates on that day.
    duration, integration : float, s, or text as "4 h"
        The last integration ends at start + duration or before.
    """

    start: str | float
    duration: float
    integration: float

    def __init__(self, start: str | float, duration: float | str, integration: float | str) -> None:
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "duration", in_unit(duration, "s", "duration"))
        object.__setattr__(self, "integration", in_unit(integration, "s", "integration"))
        if not (0.0 < self.integration <= self.duration < np.inf):
            raise InputError(
                "a track needs 0 < integration <= duration, in seconds, got integration "
                f"{self.integration} and duration {self.duration}"
            )
        if self.duration > LONGEST_TRACK:
            raise InputError(
                f"a track may be {LONGEST_TRACK:g} s long (100 years), got {self.duration:g} s: the turn "
                "of the earth is not known so far ahead"
            )

    def times(self, phase_centre: tuple[float, float], position: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mid-points of the integrations, float64 (n_time,), MJD s, for a telescope at an ITRF position."""
        start = to_mjd_seconds(self.start)
        if isinstance(self.start, str) and len(self.start.strip()) == len("2026-03-01"):
            start = transit(start / DAY, phase_centre, position) - 0.5 * self.duration
        return np.asarray(start + self.integration * (np.arange(self.n_time) + 0.5), dtype=np.float64)

    @property
    def n_time(self) -> int:
        """Number of integrations, those at which the field is not up included."""
        return int(np.floor(self.duration / self.integration * (1.0 + 1e-12)))


@dataclass(frozen=True)
class Channels:
    """Contiguous channels of equal width.

    Attributes
    ----------
    first : float, Hz, or text as "1.4 GHz"
        Centre of the first.
    width : float, Hz, or text
    number : int
    """

    first: float
    width: float
    number: int = 1

    def __init__(self, first: float | str, width: float | str, number: int = 1) -> None:
        object.__setattr__(self, "first", in_unit(first, "Hz", "frequency of the first channel"))
        object.__setattr__(self, "width", in_unit(width, "Hz", "width of channels"))
        object.__setattr__(self, "number", number)
        if not (0.0 < self.first < np.inf and 0.0 < self.width < np.inf and self.number >= 1):
            raise InputError(
                "channels need a first frequency > 0 Hz, a width > 0 Hz and a number >= 1, got "
                f"{self.first}, {self.width}, {self.number}"
            )
        if not is_frequency(self.first + self.width * self.number):
            raise InputError(
                f"{self.number} channels of {self.width:g} Hz from {self.first:g} Hz on end above "
                f"{HIGHEST:g} Hz, which is not a radio frequency"
            )

    @property
    def freq(self) -> NDArray[np.float64]:
        """Centres, float64 (n_chan,), Hz."""
        return np.asarray(self.first + self.width * np.arange(self.number), dtype=np.float64)


@takes(sky=SKY)
def simulate(
    telescope: Telescope | str,
    sky: SkyModel,
    *,
    phase_centre: tuple[float, float] | str,
    times: Track | None = None,
    channels: Channels | None = None,
    start: str | float | None = None,
    duration: float | str | None = None,
    integration: float | str | None = None,
    freq: float | str | None = None,
    chan_width: float | str | None = None,
    n_chan: int = 1,
    feeds: Feeds | None = None,
    noise: float | str = 0.0,
    sefd: float | str | None = None,
    seed: int | None = None,
    elevation_limit: float = 0.0,
    gains: GainScatter | None = None,
    values: Mapping[str, float] | None = None,
    gaussian_frame: GaussianFrame = "tangent",
    backend: Backend = "auto",
    smearing: SmearingMode = "off",
    comm: MPI.Intracomm | None = None,
    progress: bool = True,
) -> Observation:
    """Simulate the observation of a sky by a telescope, with Gaussian noise.

    There is a row for every pair of antennas, antenna1 < antenna2, at every time, with uvw from
    `biro.simulation.uvw.earth_orientation`, so that the phase is that of physics, section 2. There is no
    primary beam other than that of the model. Dishes point to the phase centre, or to the direction that the
    model gives as the centre of its beam.

    Parameters
    ----------
    telescope : Telescope or str
        An array, its name, or an antenna file; see `biro.simulation.telescopes.telescope`.
    sky : SkyModel
    phase_centre : (float, float), rad, or str
        ICRS right ascension and declination; or text as in "05h00m00s -45d00m00s".
    times : Track, optional
        In place of start, duration and integration.
    channels : Channels, optional
        In place of freq, chan_width and n_chan.
    start, duration, integration : optional
        The times, as `Track` takes them: "2026-03-01", "4 h", "30 s".
    freq, chan_width, n_chan : optional
        Centre of the first channel, width and number, as `Channels` takes them: "1.4 GHz", "1 MHz", 16.
    feeds : "linear" or "circular", optional
        Default: those of the telescope (`Telescope.feeds`), circular for VLA and EVN, linear for the others.
    noise : float, Jy, or text as "10 mJy"
        Standard deviation of the real part and of the imaginary part of each visibility; the weights
        are 1/noise^2. With 0 there is no noise, and the weights are 1.
    sefd : float, Jy, or text as "400 Jy", optional
        Noise by `radiometer_noise` of this system equivalent flux density, in place of `noise`.
    seed : int, optional
        The same seed gives the same noise. None: other noise each time.
    elevation_limit : float, deg
        Times at which the phase centre is lower, seen from the middle of the array, are left out.
    gains : GainScatter, optional
        Gains that are drawn, with the seed, beside those of the model; `gains.draw(observation, seed)` of the
        simulated observation gives the same again. They act on the feeds, as in raw data: linear
        feeds rotate on the sky in these data, unless the model has [feeds] (`raw_sky`).
    values : mapping name -> float, optional
        Values of the free parameters, where the model has any, in their own units.
    gaussian_frame : "tangent" or "uv"
        In which plane elliptical Gaussians lie (physics: section 5).
    backend : "auto", "cpu" or "cuda"
    smearing : "auto", "on" or "off"
        Whether visibilities are averages over integrations and channels. "auto": where that changes more than
        the noise, 1 Jy where there is none, so that a fit of them chooses alike
        (`biro.observation.smearing.choose`). "off" is said by the observation (`Partition.guessed`): models
        of it are not averaged either.
    comm : mpi4py.MPI.Intracomm, optional
        Processes of MPI, each of which simulates the visibilities of some times; they are the same, to the
        bit, as one process simulates. The first alone returns: the others serve it, and end with it.
    progress : bool
        Show a bar on stderr of what takes longer than two seconds.

    Returns
    -------
    Observation

    Raises
    ------
    InputError
        The phase centre is never up, the model has free parameters without values, or an argument is
        out of its range.
    ModelError
        A source cannot be seen from this phase centre.
    """
    times = _one_of(times, Track, "times", start=start, duration=duration, integration=integration)
    channels = _one_of(channels, Channels, "channels", freq=freq, chan_width=chan_width, n_chan=n_chan)
    noise = in_unit(noise, "Jy", "noise")
    if sefd is not None:
        if noise != 0.0:
            raise InputError("simulate takes noise or sefd, got both")
        noise = radiometer_noise(in_unit(sefd, "Jy", "sefd"), channels.width, times.integration)
    if feeds is not None and feeds not in CORRELATIONS:
        raise InputError(f"feeds must be 'linear' or 'circular', got {feeds!r}")
    if noise != 0.0 and not LEAST_NOISE <= noise <= MOST_NOISE:
        raise InputError(
            f"noise must be 0, or {LEAST_NOISE:g} to {MOST_NOISE:g} Jy, whose weights a Measurement Set can "
            f"hold; got {noise}"
        )
    if gains is not None and seed is None:
        raise InputError("random gains need a seed, by which biro can draw them again")
    if seed is not None and not 0 <= seed < 2**63:
        raise InputError(f"seed must be from 0 to 2^63 - 1, got {seed}")
    if isinstance(telescope, str):
        telescope = telescope_by_name(telescope)
    feeds = feeds or telescope.feeds
    centre = parse_direction(phase_centre)
    processes = processes_of(comm)
    _check_size(telescope, times, channels, processes)
    time, antenna_uvw = _tracked(telescope, centre, times, elevation_limit)
    seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
    blank = _blank(telescope, time, antenna_uvw, channels, CORRELATIONS[feeds], centre)
    if gains is not None:
        sky = _with_gains(raw_sky(sky, feeds), gains.draw(blank, seed))
    blank = _weighted(_pointed(blank, sky), times.integration, noise, channels, processes)
    if smearing == "off":
        part = replace(blank.partitions[0], guessed=("interval", "chan_width"))
        blank = replace(blank, partitions=(part,))
    with doing("simulating", show=progress):
        (predicted,) = predict(
            blank, sky, values=values, gaussian_frame=gaussian_frame, backend=backend, smearing=smearing
        )
        return _with_noise(blank, predicted, DrawnNoise(noise, seed, blank.partitions[0].n_row))


def _one_of(made: T | None, kind: Callable[..., T], name: str, **parts: object) -> T:
    """What was made already, or made of its parts, in their order; one of the two must be given."""
    default = {"n_chan": 1}
    given = [part for part, value in parts.items() if value is not None and value != default.get(part)]
    lacking = [part for part, value in parts.items() if value is None]
    if (made is None) == bool(lacking) or (made is not None and given):
        raise InputError(
            f"simulate needs {', '.join(parts)}, or {name} in their place, "
            f"got {', '.join([*given, *([name] if made is not None else [])]) or 'none of these'}"
        )
    return kind(*parts.values()) if made is None else made


def _pointed(blank: Observation, sky: SkyModel) -> Observation:
    """With dishes that point to where the model centres its beam."""
    part, centre = blank.partitions[0], None if sky.beam is None else sky.beam.centre
    towards = part.phase_centre if centre is None or isinstance(centre, str) else centre
    return replace(blank, partitions=(replace(part, pointing=DishPointing(towards, "simulated")),))


def _weighted(
    blank: Observation, integration: float, noise: float, channels: Channels, processes: ProcessGroup
) -> Observation:
    """With all channels, integrations of this length, and the weights of this noise.

    By these weights smearing is chosen.
    """
    (part,) = blank.partitions
    weight = noise**-2 if noise > 0.0 else 1.0
    part = replace(
        part,
        chan_freq=channels.freq,
        chan_width=np.full(channels.number, channels.width),
        interval=integration,
        guessed=(),
    )
    empty = processes.empty_blocks(part)
    sizes = [part.n_row if rows is None else rows.size for rows in empty.rows]
    part = part.distributed_over(empty.made(_constant, part.shape[1:], weight, each=sizes))
    counts = {name: n * channels.number for name, n in blank.counts.items()}
    return replace(blank, partitions=(part,), counts=counts)


def _constant(n_row: int, shape: tuple[int, int], weight: float) -> tuple[Vis, Weight]:
    """Visibilities of 0, which take no memory, and equal weights of so many rows."""
    return np.broadcast_to(np.complex128(0.0), (n_row, *shape)), np.full((n_row, *shape), weight)


def raw_sky(sky: SkyModel, feeds: Feeds) -> SkyModel:
    """The sky as raw data have it: linear feeds rotate on it, where the model does not state what they do.

    Rotation P and gains G of the two linear feeds do not commute (physics: section 6), so that only G P, in
    this order, is what an instrument does. Circular feeds are left as they are: there the two commute.
    """
    if sky.feeds is not None or feeds == "circular":
        return sky
    return replace(sky, feeds=FeedRotation(rotation="present"))


def _with_gains(sky: SkyModel, drawn: GainSolutions) -> SkyModel:
    return replace(sky, gain=(*sky.gains, Gain(table=drawn)))


def _with_noise(blank: Observation, predicted: Model, noise: DrawnNoise) -> Observation:
    """The observation with what was predicted for it, and noise."""
    (part,) = blank.partitions
    stored = part.stored
    each = zip(split(predicted, stored.rows), split(np.arange(part.n_row), stored.rows), strict=True)
    made, _ = stored.replaced(_noisy, noise, each=list(each))
    part = part.distributed_over(made)
    return replace(blank, partitions=(part,), source="simulated", column="DATA")


def _noisy(
    _: Vis, weight: Weight, of_block: tuple[Vis, NDArray[np.int64]], noise: DrawnNoise
) -> tuple[Vis, Weight, None]:
    """Predicted visibilities with the noise of their rows, in place of those of a block."""
    predicted, rows = of_block
    return noise.added(predicted, rows), weight, None


class DrawnNoise(NamedTuple):
    """Gaussian noise of visibilities, the same whichever rows are asked for.

    It is drawn in blocks of rows, each with a stream of random numbers of its own.

    Attributes
    ----------
    sigma : float, Jy
        Standard deviation of the real part and of the imaginary part.
    seed : int
    n_row : int
        Of the observation.
    block : int
        Visibilities of a block at most, but for those of a single row.
    """

    sigma: float
    seed: int
    n_row: int
    block: int = 1 << 22

    def added(self, vis: Vis, rows: NDArray[np.int64]) -> NDArray[np.complex128]:
        """Visibilities (n_row, n_chan, n_corr) with the noise of these rows of an observation."""
        total = vis.astype(np.complex128)
        if not self.sigma:
            return total
        size = max(1, self.block // int(np.prod(vis.shape[1:])))
        for number in np.unique(rows // size):
            own, first = np.flatnonzero(rows // size == number), int(number) * size
            drawn = self._drawn(int(number), (min(size, self.n_row - first), *vis.shape[1:]))
            total[own] += drawn[rows[own] - first]
        return total

    def _drawn(self, number: int, shape: tuple[int, ...]) -> NDArray[np.complex128]:
        rng = np.random.default_rng([self.seed, STREAM, number] if number else self.seed)
        real, imaginary = rng.standard_normal(shape), rng.standard_normal(shape)
        return np.asarray(self.sigma * (real + 1j * imaginary), np.complex128)


def _check_size(telescope: Telescope, times: Track, channels: Channels, processes: ProcessGroup) -> None:
    """Refuse an observation that memory has no room for, before any time is worked out."""
    n_antenna = len(telescope.antenna_names)
    n_baseline = n_antenna * (n_antenna - 1) // 2
    n_vis = float(times.n_time) * n_baseline * channels.number * 4
    n = processes.n_process
    needed = [n_vis * BYTES_PER_VISIBILITY / n] * n
    needed[0] += float(times.n_time) * n_antenna * 100
    processes.check_memory(
        needed,
        f"an observation of {times.n_time:.3g} times, {n_baseline} baselines and "
        f"{channels.number:.3g} channels",
        lambda _, n_machine: (
            "use a shorter track, longer integrations or fewer channels"
            + (f", or MPI processes on {n_machine} such machines" if n > 1 else "")
        ),
    )


def radiometer_noise(sefd: float, channel_width: float, integration: float) -> float:
    """Standard deviation, Jy, of the real part and of the imaginary part of one correlation.

        sigma = SEFD / sqrt(2 width integration)

    for two equal antennas without correlator losses (Thompson, Moran & Swenson, Interferometry and
    Synthesis in Radio Astronomy, section 6.2).

    Parameters
    ----------
    sefd : float, Jy
        System equivalent flux density of one antenna and polarisation.
    channel_width : float, Hz
    integration : float, s
    """
    if not (sefd > 0.0 and channel_width > 0.0 and integration > 0.0):
        raise InputError(
            "SEFD, channel width and integration must be > 0, got "
            f"{sefd} Jy, {channel_width} Hz, {integration} s"
        )
    return float(sefd / np.sqrt(2.0 * channel_width * integration))


def _tracked(
    telescope: Telescope, centre: tuple[float, float], track: Track, elevation_limit: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times at which the phase centre is up, and the uvw of each antenna at each of them."""
    time = track.times(centre, telescope.centre)
    earth = earth_orientation(time, centre)
    elevation = np.rad2deg(earth.elevation(telescope.centre))
    is_up = elevation >= elevation_limit
    if not is_up.any():
        raise InputError(
            f"from {telescope.name} the phase centre is never above {elevation_limit:g} deg during this "
            f"track: at most {elevation.max():.1f} deg; a date alone as start centres the track on the"
            " highest elevation"
        )
    return time[is_up], earth.antenna_uvw(telescope.positions)[is_up]


def _blank(
    telescope: Telescope,
    time: NDArray[np.float64],
    antenna_uvw: NDArray[np.float64],
    channels: Channels,
    corr_type: tuple[str, ...],
    centre: tuple[float, float],
) -> Observation:
    """The observation with visibilities of 0, of the first channel."""
    antenna1, antenna2 = np.triu_indices(len(telescope.antenna_names), k=1)
    n_row = len(time) * len(antenna1)
    return Observation.from_arrays(
        vis=np.zeros((n_row, 1, len(corr_type)), dtype=np.complex128),
        uvw=(antenna_uvw[:, antenna1] - antenna_uvw[:, antenna2]).reshape(n_row, 3),
        antenna1=np.tile(antenna1, len(time)),
        antenna2=np.tile(antenna2, len(time)),
        time=np.repeat(time, len(antenna1)),
        chan_freq=channels.freq[:1],
        corr_type=corr_type,
        phase_centre=centre,
        chan_width=channels.width,
        antenna_names=telescope.antenna_names,
        antenna_positions=telescope.positions,
        dish_diameter=telescope.diameter,
        telescope=telescope.name,
        field="simulated",
        mounts=telescope.mount,
    )
