"""Options that several commands share, and their meaning: choices, reading options, quantities with units."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from biro.choices import (
    AxisKind,
    Density,
    Gains,
    SmearingMode,
    SpectralFrame,
    Weighting,
    Weights,
)
from rime_kernels.choices import Backend, Convention, GaussianFrame, GridderName

if TYPE_CHECKING:
    from rime_kernels.engine.device_threads import Devices

ReadingOptions = dict[str, Any]
"""Keyword arguments of `biro.read`; their values have many types, and `read` checks them."""
SamplerOptions = dict[str, Any]
"""Keyword arguments of a sampler; which there are, and their types, depends on the sampler."""
_READ = "Which data to read"
"""Heading of the reading options in the help of a command."""


# The parser is Path alone, because that of typer looks at the file, and hangs where storage does not answer.
Observed = Annotated[Path, typer.Argument(metavar="OBS", parser=Path, help="Measurement Set or UVFITS file.")]
ObservedSets = Annotated[
    list[Path],
    typer.Argument(
        metavar="OBS",
        parser=Path,
        help="Measurement Set or UVFITS file. biro joins several into one data set.",
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
BackendOption = Annotated[
    Backend, typer.Option(help="Where to compute. auto: on a GPU if one works, else on the CPU.")
]
EngineOption = Annotated[
    GridderName,
    typer.Option(
        help="Gridder: image-domain gridding (idg) or W-projection. auto takes the one that should be faster."
    ),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        metavar="BYTES",
        help=(
            "Maximum memory, for example '8 GB': that of a GPU, or on the CPU that of a fit with its data. "
            "Default: 80 % of the free memory of a GPU, no limit on the CPU."
        ),
    ),
]
DevicesOption = Annotated[
    str | None,
    typer.Option(
        metavar="GPUS",
        help=(
            "GPUs that share the data: 'all', how many (2 takes the first two), or their numbers separated "
            "by commas (0,1). Default: one GPU."
        ),
    ),
]
PlaneDevicesOption = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="GPUS",
        help=(
            "With --cube: GPUs that share the planes: 'all', how many (2 takes the first two), or their "
            "numbers separated by commas (0,1). Default: one GPU."
        ),
    ),
]
FrameOption = Annotated[
    GaussianFrame,
    typer.Option(
        help=(
            "Plane in which the sizes and position angles of Gaussians are defined: the tangent plane of the "
            "phase centre (CASA) or the uv plane (DP3). They differ by 1 % at 2 deg from the phase centre."
        )
    ),
]
SkyFrameOption = Annotated[
    GaussianFrame | None,
    typer.Option(
        help=(
            "Plane in which the sizes and position angles of Gaussians are defined: the tangent plane of the "
            "phase centre (CASA) or the uv plane (DP3). They differ by 1 % at 2 deg from the phase centre. "
            "Default: as in the run, or tangent."
        )
    ),
]
SmearingOption = Annotated[
    SmearingMode,
    typer.Option(
        help=(
            "Apply time and bandwidth smearing to the model. auto: where the loss of amplitude exceeds the "
            "noise of all data together."
        )
    ),
]
GainsOption = Annotated[
    Gains,
    typer.Option(
        help=(
            "How to treat antenna gains. sample: fit the gains that have priors, like other parameters; "
            "without a [gain] table biro takes the data as calibrated. marginalise: integrate over gains "
            "with "
            "priors (Laplace approximation). solve: maximise over gains, as self-calibration does (only with "
            "--sampler none). closures: fit closure phases and log closure amplitudes, which do not depend "
            "on gains."
        )
    ),
]
WeightingOption = Annotated[Weighting, typer.Option(help="Imaging weights.")]
RobustOption = Annotated[
    float | None, typer.Option(help="Briggs robust parameter, -2 (uniform) to 2 (natural). Default: 0.")
]
CellOption = Annotated[
    str | None, typer.Option(help="Pixel size, for example '0.2 arcsec'. Default: a fifth of the beam.")
]
SizeOption = Annotated[
    int | None,
    typer.Option(help="Number of pixels along a side. Default: twice the field of view, at most 2048."),
]


def _of_cube(*names: str, text: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=text, metavar=metavar, rich_help_panel="Spectral cubes")


CubeFlag = Annotated[
    bool,
    _of_cube("--cube", text="Make a cube with a plane for each channel: NAME.fits and NAME-psf.fits."),
]
SpectralFrameOption = Annotated[
    SpectralFrame | None,
    _of_cube(
        text="Frame of the frequency axis. biro interpolates the channels to it. Default: that of the data."
    ),
]
ChannelsPerPlaneOption = Annotated[
    int | None, _of_cube(text="Channels averaged into each plane. Default: 1.")
]
RestFreqOption = Annotated[
    str | None,
    _of_cube(text="Rest frequency of the line, for example '1420.40575 MHz'.", metavar="FREQUENCY"),
]
AxisOption = Annotated[
    AxisKind | None,
    _of_cube(
        text="Spectral axis of the cube: frequency (default) or radio velocity, which needs --rest-freq."
    ),
]
DensityOption = Annotated[
    Density | None,
    _of_cube(text="For uniform and briggs weights: uv density of each plane (default) or of the whole cube."),
]


CacheOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help=(
            "Store the visibilities in files in this directory instead of memory. Later runs read the files "
            "again. biro does not delete them."
        ),
    ),
]


def _option(text: str, kind: object = str | None, metavar: str | None = None) -> object:
    return Annotated[kind, typer.Option(help=text, metavar=metavar, rich_help_panel=_READ)]


def _list(text: str, metavar: str) -> object:
    """An option of several values: separated by commas, or given several times."""
    return _option(text, list[str] | None, metavar)


def _flag(name: str, text: str) -> object:
    return Annotated[bool, typer.Option(name, help=text, rich_help_panel=_READ)]


READING: dict[str, tuple[object, object]] = {
    "column": (
        _option(
            "Visibility column. Default: CORRECTED_DATA if it exists, else DATA; biro solve: DATA.",
            metavar="COLUMN",
        ),
        None,
    ),
    "weight_column": (
        _option("Weight column. Default: WEIGHT_SPECTRUM, else WEIGHT, else from SIGMA.", metavar="COLUMN"),
        None,
    ),
    "fields": (_list("Field names or ids, separated by commas.", "FIELD,..."), None),
    "spws": (_list("Names or ids of spectral windows, separated by commas.", "SPW,..."), None),
    "scans": (_list("Scan numbers, separated by commas.", "SCAN,..."), None),
    "antennas": (
        _list("Antenna names or ids, separated by commas; '!NAME' excludes one.", "ANTENNA,..."),
        None,
    ),
    "time_range": (
        _option(
            "Times in UTC, for example '2017-04-10T00:30..2017-04-10T02:00'. Either end may be left out.",
            metavar="START..STOP",
        ),
        None,
    ),
    "uv_range": (
        _option(
            "uv distances, for example '100 m..5 km' or '1 klambda..'. Either end may be left out.",
            metavar="LOW..HIGH",
        ),
        None,
    ),
    "channels": (
        _list(
            "Channels of each spectral window: 'start:stop:step' (stop is not included), or numbers "
            "separated by commas.",
            "CHANNELS",
        ),
        None,
    ),
    "correlations": (
        _list("Correlations, separated by commas, for example 'XX,YY'.", "CORRELATION,..."),
        None,
    ),
    "stokes": (
        _option(
            "Stokes parameters to form: I, IQUV, QU, ..., or pseudoI (I also from one parallel hand where "
            "the other is flagged; valid for an unpolarised sky).",
            metavar="STOKES",
        ),
        None,
    ),
    "autocorrelations": (_flag("--autocorrelations", "Keep autocorrelations."), False),
    "weights": (
        _option(
            "stated: weights as in the data. scatter: rescaled to the scatter measured on each baseline, as "
            "CASA's statwt does. equal: the same weight for all.",
            Weights,
        ),
        "stated",
    ),
    "taper": (
        _option(
            "uv distance at which the taper halves the weights, for example '50 klambda'.",
            metavar="DISTANCE",
        ),
        None,
    ),
    "average_time": (
        _option("Average in time over at most this, for example '30 s'.", metavar="TIME"),
        None,
    ),
    "average_channels": (_option("Average this many channels into one.", int, "N"), 1),
    "smearing_radius": (
        _option(
            "Distance from the phase centre for which biro states the smearing loss, for example '10 "
            "arcmin'. "
            "Default: half the field of view, or 10 beams where dish diameters are not known.",
            metavar="ANGLE",
        ),
        None,
    ),
    "convention": (
        _option(
            "Sign of the phase, with u, v, w as stored. casa: exp(+2 pi i (ul + vm + w(n - 1))), as CASA, "
            "DP3 "
            "and WSClean use it. fourier: the opposite sign.",
            Convention,
        ),
        "casa",
    ),
    "flagger": (
        _option(
            "Find RFI and exclude it while reading. Strategy: meerkat, wsrt, long-baseline, or a TOML file.",
            metavar="STRATEGY",
        ),
        None,
    ),
    "time_limit": (_option("Longest time to wait for a locked Measurement Set.", float, "SECONDS"), 30.0),
}
"""Annotation and default of each reading option, by the name of the argument of `biro.read`."""


def takes_reading_options(*left_out: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that gives a command the options of `biro.read`.

    The command takes them together as its argument `reading`; typer sees each as an option of its own.

    Parameters
    ----------
    *left_out : str
        Names of options that the command does not have.
    """
    names = [name for name in READING if name not in left_out]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_reading(**arguments: object) -> None:
            stated = {name: arguments.pop(name) for name in names}
            command(**arguments, reading=read_options(stated))

        signature = inspect.signature(command, eval_str=True)
        own = [parameter for name, parameter in signature.parameters.items() if name != "reading"]
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, (kind, default) in READING.items()
            if name in names
        ]
        parameters = [*own, *added]
        with_reading.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        with_reading.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return with_reading

    return decorate


def read_options(stated: Mapping[str, object]) -> ReadingOptions:
    """Arguments of `biro.read` from the text of a command line; defaults are left out.

    Raises
    ------
    InputError
        A list of scans or a range of times that cannot be understood.
    """
    options: ReadingOptions = {}
    for name, value in stated.items():
        if value is None or value is False or value in ("", []) or value == READING[name][1]:
            continue
        options[name] = _parse_reading_option(name, ",".join(value) if isinstance(value, list) else value)
    return options


def reading_words(reading: ReadingOptions) -> list[str]:
    """The words of a command line from which `read_options` makes these arguments."""
    words = []
    for name, value in reading.items():
        words.append("--" + name.replace("_", "-"))
        if name == "time_range":
            words.append("..".join(end or "" for end in value))
        elif value is not True:
            words.append(",".join(map(str, value)) if isinstance(value, list) else str(value))
    return words


def _parse_reading_option(name: str, value: object) -> object:
    if isinstance(value, str):
        if name in ("fields", "spws", "antennas"):
            return [part.strip() for part in value.split(",") if part.strip()]
        if name == "scans":
            return _scans(value)
        if name == "time_range":
            return _time_range(value)
    return value


def _scans(text: str) -> list[int]:
    from biro.observation.selection import read_scans

    return read_scans(text, "--scans")


def _time_range(text: str) -> tuple[str | None, str | None]:
    from biro.observation.selection import TIMES, range_ends

    return range_ends(text, "--time-range", TIMES)


def keyword_options(pairs: list[str]) -> SamplerOptions:
    """Options of a sampler from "name=value" texts: numbers where they are numbers.

    Raises
    ------
    InputError
        A text without "=".
    """
    from biro.errors import InputError

    options: SamplerOptions = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise InputError(f"--set {pair!r}: expected name=value, as in --set n_live=1000")
        options[name.strip().replace("-", "_")] = _number_or_text(text.strip())
    return options


def _number_or_text(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def quantity(text: str, unit: str, option: str) -> float:
    """A number in `unit` from the text of an option, as `biro.display.formatting.in_unit` reads it."""
    from biro.display.formatting import in_unit

    return in_unit(text, unit, option)


def devices_of(text: str | None) -> Devices | None:
    """The GPUs that `--devices` names.

    Raises
    ------
    InputError
        What names none.
    """
    from biro.errors import InputError

    if text is None:
        return None
    if text == "all":
        return "all"
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--devices takes all, how many GPUs, or their numbers as 0,1; got {text!r}"
        ) from None
    return numbers if "," in text else numbers[0]
