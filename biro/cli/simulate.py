"""`biro simulate`: make a new Measurement Set of a sky, with noise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from biro.choices import Feeds, SmearingMode
from biro.cli.guard import after_result, guard, refuse_existing, say
from biro.cli.options import BackendOption, SkyFrameOption, SmearingOption, quantity
from biro.cli.sky import is_sky_model, read_sky_or_run

if TYPE_CHECKING:
    from biro.models import SkyModel
    from biro.observation.observation import Observation
    from biro.observation.partition import Partition
    from biro.simulation.gains import GainScatter
    from biro.simulation.interference import Interference


@guard
def simulate(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Measurement Set to make.")],
    sky: Annotated[Path, typer.Argument(metavar="SKY", help="TOML model without priors, or component list.")],
    telescope: Annotated[
        str,
        typer.Option(
            help=(
                "VLA-A, VLA-B, VLA-C, VLA-D, MeerKAT, KAT-7, WSRT, EVN, or an antenna file (CSV or CASA "
                ".cfg)."
            )
        ),
    ],
    phase_centre: Annotated[
        str, typer.Option(help="Phase centre (ICRS), for example '05h00m00s -45d00m00s' or '75 deg -45 deg'.")
    ],
    start: Annotated[
        str,
        typer.Option(
            help=(
                "First time in UTC, for example 2026-03-01T18:00. A date without a time centres the track on "
                "the transit of the phase centre."
            )
        ),
    ],
    duration: Annotated[str, typer.Option(help="Length of the track, for example '4 h'.")],
    integration: Annotated[str, typer.Option(help="Integration time, for example '30 s'.")],
    freq: Annotated[str, typer.Option(help="Centre of the first channel, for example '1.4 GHz'.")],
    chan_width: Annotated[str, typer.Option(help="Channel width, for example '1 MHz'.")],
    n_chan: Annotated[int, typer.Option(help="Number of channels.")] = 1,
    feeds: Annotated[
        Feeds | None,
        typer.Option(help="Polarisation basis. Default: that of the telescope (VLA and EVN: circular)."),
    ] = None,
    noise: Annotated[
        str,
        typer.Option(
            help=(
                "Thermal noise of a visibility (rms of the real and of the imaginary part), for example '10 "
                "mJy'."
            )
        ),
    ] = "0",
    sefd: Annotated[
        str | None, typer.Option(help="Compute the noise from this SEFD instead, for example '400 Jy'.")
    ] = None,
    elevation_limit: Annotated[
        float, typer.Option(help="Drop times at which the phase centre is below this elevation, in deg.")
    ] = 10.0,
    gain_amplitude: Annotated[
        float, typer.Option(help="Scatter of the gain amplitudes, relative to 1 (log-normal).")
    ] = 0.0,
    gain_phase: Annotated[
        str, typer.Option(help="Scatter of the gain phases, for example '20 deg' (normal).")
    ] = "0 deg",
    gain_interval: Annotated[
        str | None,
        typer.Option(
            help="Time over which gains are constant, for example '5 min'. Default: the whole observation."
        ),
    ] = None,
    rfi: Annotated[
        str | None,
        typer.Option(
            help="Add RFI of these kinds, separated by commas: line, burst, drifting band, power law, ..."
        ),
    ] = None,
    rfi_strength: Annotated[
        str, typer.Option(help="Amplitude of the RFI in a visibility, for example '10 Jy'.")
    ] = "10 Jy",
    seed: Annotated[
        int | None, typer.Option(help="Seed of noise, gains and RFI; the same seed repeats them.")
    ] = None,
    gaussian_frame: SkyFrameOption = None,
    smearing: SmearingOption = "auto",
    backend: BackendOption = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
) -> None:
    """Simulate a Measurement Set of a sky, with noise.

    biro writes the applied gains and the true RFI mask next to it.
    `mpiexec -n N biro simulate` shares the rows among N processes, each of which writes its own.
    """
    import secrets

    from biro.display.formatting import number_of
    from biro.distributed.world import world
    from biro.errors import InputError
    from biro.io.gain_files import write_gains
    from biro.io.measurement_set import create_ms
    from biro.simulation.npz import write_truth
    from biro.simulation.simulator import Channels, Track, radiometer_noise, raw_sky
    from biro.simulation.simulator import simulate as simulate_sky

    comm = world()
    scatter = _gain_scatter(gain_amplitude, gain_phase, gain_interval)
    if not out.name:
        raise InputError(f"{out}: a directory, expected the name of a Measurement Set")
    if is_sky_model(out):
        what = "a text file, which a set never replaces" if out.exists() else "the name of a sky model"
        raise InputError(f"{out}: {what}: OUT comes first, then the sky model")
    beside = out.with_suffix(".gains.npz")
    interference, truth_file = _interference(rfi, rfi_strength), out.with_suffix(".rfi.npz")
    written = {out: True, beside: scatter is not None, truth_file: interference is not None}
    refuse_existing([place for place, is_made in written.items() if is_made], overwrite)
    track = Track(start, quantity(duration, "s", "--duration"), quantity(integration, "s", "--integration"))
    channels = Channels(quantity(freq, "Hz", "--freq"), quantity(chan_width, "Hz", "--chan-width"), n_chan)
    sigma = quantity(noise, "Jy", "--noise")
    seed = secrets.randbelow(2**31) if seed is None else seed
    if sefd is not None:
        if sigma != 0.0:
            raise InputError("give either --noise or --sefd")
        sigma = radiometer_noise(quantity(sefd, "Jy", "--sefd"), channels.width, track.integration)
    named = read_sky_or_run(sky, gaussian_frame)
    assert named.model is not None
    observation = simulate_sky(
        telescope,
        named.model,
        phase_centre=phase_centre,
        times=track,
        channels=channels,
        feeds=feeds,
        noise=sigma,
        seed=seed,
        elevation_limit=elevation_limit,
        gains=scatter,
        values=named.values,
        gaussian_frame=named.gaussian_frame,
        backend=backend,
        smearing=smearing,
        comm=comm,
    )
    if interference is not None:
        observation, (truth,) = interference.add(observation, seed)
    create_ms(out, observation, overwrite=overwrite)
    with after_result(f"{out} is written", f"it has --seed {seed}"):
        if interference is not None:
            share = write_truth(truth_file, observation.partitions[0], truth)
            say(f"{truth_file}: mask of the interference ({100 * share:.3g} % of the visibilities)")
        if scatter is not None:
            write_gains(beside, scatter.draw(observation, seed))
            say(
                f"{beside}: the gains that were applied. To use them in a model, write "
                f'[gain] table = "{beside}"'
            )
    part = observation.partitions[0]
    basis: Feeds = "circular" if "RR" in part.corr_type else "linear"
    _say_feeds(observation, named.model, raw_sky(named.model, basis) if scatter is not None else named.model)
    noise_text = f"noise {sigma:.6g} Jy (seed {seed})" if sigma else "no noise"
    whose = f" (those of {observation.telescope})" if feeds is None else ""
    say(
        f"{out}: {number_of(part.n_row, 'row')}, {number_of(len(part.times), 'time')}, "
        f"{number_of(part.n_chan, 'channel')}, {basis} feeds{whose}, {noise_text}"
    )
    say(_average_text(part, smearing))
    n_below = int(track.duration / track.integration + 1e-9) - len(part.times)
    if n_below > 0:
        left = number_of(n_below, "time")
        say(f"{left} left out, because the field is below {elevation_limit:g} deg elevation")


def _say_feeds(observation: Observation, model: SkyModel, simulated: SkyModel) -> None:
    """State what the feeds do, where the model or the gains make them rotate."""
    from dataclasses import replace

    if simulated.feeds is None:
        return
    for line in observation.instrument_lines(replace(simulated, gain=None)):
        say(line)
    if model.feeds is None:
        say(
            "feeds: gains act on linear feeds, so these data are raw: they contain the parallactic rotation. "
            'A model of them needs [feeds] rotation = "present". Without it, `biro solve` states whether it '
            "finds the rotation in the data"
        )


def _average_text(part: Partition, smearing: SmearingMode) -> str:
    """Whether the visibilities are averages, over how much."""
    from biro.display.formatting import frequency_text

    if smearing == "off":
        return "no smearing: each visibility is at the centre of its integration and channel"
    width = frequency_text(float(part.chan_width.max()))
    where = ", as far as that exceeds the noise" if smearing == "auto" else ""
    return f"smearing {smearing}: visibilities are averages over {part.interval:.3g} s and {width}{where}"


def _interference(kinds: str | None, strength: str) -> Interference | None:
    """The interference that options ask for, None where they ask for none."""
    from biro.simulation.interference import Interference

    if kinds is None:
        return None
    names = tuple(kind.strip() for kind in kinds.split(",") if kind.strip())
    return Interference(names, quantity(strength, "Jy", "--rfi-strength"))


def _gain_scatter(amplitude: float, phase: str, interval: str | None) -> GainScatter | None:
    """The scatter of gains that options ask for, None where they ask for none."""
    from biro.errors import InputError
    from biro.simulation.gains import GainScatter

    angle = quantity(phase, "rad", "--gain-phase")
    if not (amplitude or angle):
        if interval is not None:
            raise InputError("--gain-interval needs --gain-amplitude or --gain-phase")
        return None
    seconds = None if interval is None else quantity(interval, "s", "--gain-interval")
    return GainScatter(amplitude, angle, seconds)
