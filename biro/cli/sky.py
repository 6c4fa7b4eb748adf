"""`biro convert`, and the sky that a command line names: a model file, a component list, a run's best fit."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from biro.cli.guard import guard, refuse_existing, refuse_folder_of_runs, say
from rime_kernels.choices import GaussianFrame

if TYPE_CHECKING:
    from biro.choices import SmearingMode
    from biro.models import SkyModel
    from rime_kernels.choices import GaussianFrame

DATA_ENDS = (".ms", ".uvfits", ".uvf", ".uvh5", ".zarr", ".mir", ".fits")
"""Ends of the names of data that are not there."""
MODEL_ENDS = (".toml", ".mod", ".osm", ".txt", ".skymodel", ".bbs", ".html", ".csv")
"""Ends of the names of sky models and component lists."""


Values = Literal["best", "median"]
"""Which values of a run."""


@dataclass(frozen=True)
class NamedSky:
    """A sky that can be predicted.

    Attributes
    ----------
    model : SkyModel or None
        None where the sky is an image alone.
    values : dict of str to float
        Values of the free parameters by name, in the model's own units; empty for a file.
    gaussian_frame : "tangent" or "uv"
    smearing : tuple of str
        Whether a run averaged its model, "on" or "off" for each of its partitions; empty for a file.
    column : str
        The column that a run was fitted to; empty for a file, or where the record does not have it.
    """

    model: SkyModel | None = None
    values: dict[str, float] = field(default_factory=dict)
    gaussian_frame: GaussianFrame = "tangent"
    smearing: tuple[SmearingMode, ...] = ()
    column: str = ""


def read_sky_or_run(path: Path, frame: GaussianFrame | None) -> NamedSky:
    """A sky model, values for its free parameters, and the frame of its Gaussians.

    Parameters
    ----------
    path : Path
        Whatever `biro.read_sky` takes; or a run directory, whose sample of highest likelihood gives the
        values.
    frame : GaussianFrame or None
        What was asked for; None stands for that of the run, and for "tangent" where there is none.

    Raises
    ------
    InputError, ModelError
        It is none of these.
    RunError
        The record of the run is broken.
    """
    from biro.errors import InputError
    from biro.inference.posterior.posterior import Posterior
    from biro.io.sky_files import is_component_list, read_sky
    from biro.models import read_model
    from biro.run.record import read_facts

    if not path.is_dir() or is_component_list(path):
        return NamedSky(read_sky(path), gaussian_frame=frame if frame else "tangent")
    refuse_folder_of_runs(path)
    if not (path / "posterior.nc").is_file():
        raise InputError(
            f"{path}: a folder, but neither a finished run directory (no posterior.nc) nor a CASA "
            "component list (no table.dat)"
        )
    if (path / "population.npz").is_file():
        raise InputError(
            f"{path}: a run in which the number of sources was inferred; give {path / 'sky.toml'}, which has "
            "the sources with a probability above 0.5"
        )
    posterior = Posterior.load(path / "posterior.nc")
    facts = read_facts(path).get("likelihood") or {}
    recorded = facts.get("gaussian_frame", "tangent")
    chosen = cast(GaussianFrame, frame if frame else recorded)  # predict refuses others
    smearing = tuple(facts.get("smearing") or ())
    column = str(facts.get("column", ""))
    return NamedSky(read_model(path / "model.toml"), posterior.best_values, chosen, smearing, column)


def is_sky_model(path: Path) -> bool | None:
    """Whether a path is a sky model rather than data; None where nothing is there and its name does not say.

    Data are folders or binary files, models are text; what is not there is judged by the end of its name.
    """
    from biro.many_fits.models import is_model

    if path.exists():
        return is_model(path)
    suffix = path.suffix.lower()
    if suffix in DATA_ENDS:
        return False
    return True if suffix in MODEL_ENDS else None


def check_order(first: Path, sky: Path | None, option: str) -> None:
    """Refuse a command without a sky, and a sky model in the place of data.

    Parameters
    ----------
    first : Path
        The data.
    sky : Path or None
        The sky, or what stands for it.
    option : str
        What may be given in place of a sky.

    Raises
    ------
    InputError
    """
    from biro.errors import InputError

    if is_sky_model(first):
        what = "is missing" if sky is None else "comes first"
        kind = "a text file, as sky models are" if first.exists() else "the name of a sky model"
        raise InputError(f"{first}: {kind}, expected the data: OBS {what}, SKY is the word behind it")
    if sky is None:
        raise InputError(f"SKY is missing: give a sky model behind {first}, or {option}")


def read_found(run: Path, at: Values) -> SkyModel:
    """The sky model of a run with numbers in place of the priors of its sources.

    Raises
    ------
    InputError, ModelError, RunError
        As `read_sky_or_run`.
    """
    from biro.inference.posterior.posterior import Posterior

    found = read_sky_or_run(run, None)
    values = found.values
    if at == "median":
        table = Posterior.load(run / "posterior.nc").summary()
        values = {name: table[name].median for name in values}
    assert found.model is not None  # a run has one
    return found.model.at(values)


_IN_DIFMAP = ("I", "east", "north", "ra", "dec", "emaj", "emin", "pa")
"""Keys with a unit that a model of difmap has."""
_MARKED_AS = {"ra": "east", "dec": "north", "emin": "ratio"}
"""Keys that a model of difmap has under another name."""


def _free_of(run: Path) -> dict[str, dict[str, float]]:
    """The parameters that a run fitted, by source and key, with their errors in Jy, rad or without a unit."""
    from biro.inference.posterior.posterior import Posterior
    from biro.inference.posterior.statistics import mean_and_sd
    from biro.models.quantities import units

    posterior = Posterior.load(run / "posterior.nc")
    found: dict[str, dict[str, float]] = {}
    for column, sd in zip(posterior.columns, mean_and_sd(posterior)[1], strict=True):
        source, _, key = column.name.rpartition(".")
        key = key.partition("[")[0]
        dimension = units.FLUX if key == "I" else units.ANGLE
        scale = units.factor(column.unit, dimension) if key in _IN_DIFMAP and column.unit else 1.0
        found.setdefault(source, {})[_MARKED_AS.get(key, key)] = float(sd) * scale
    return found


@guard
def convert(
    sky: Annotated[
        Path,
        typer.Argument(
            metavar="SKY", help="Model file, component list (any format that biro reads), or run directory."
        ),
    ],
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help=(
                "File to write. Its ending gives the format: .toml, .mod (difmap), .osm (OSKAR), .lsm.txt "
                "(Tigger), .skymodel, .bbs or .txt (BBS)."
            ),
        ),
    ],
    apparent: Annotated[
        bool, typer.Option("--apparent", help="The fluxes are apparent (not corrected for the primary beam).")
    ] = False,
    at: Annotated[
        Values,
        typer.Option(help="With a run: values of the best fit (maximum of the posterior), or medians."),
    ] = "best",
    free: Annotated[
        bool,
        typer.Option(
            "--free",
            help=(
                "Make all fluxes, positions, sizes and position angles free, with priors around their "
                "values. Needs --data."
            ),
        ),
    ] = False,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            metavar="OBS",
            help="With --free: data set whose synthesized beam and noise set the widths of the priors.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
) -> None:
    """Convert a sky model, component list or run to another format.

    The sources of a run get the values of its best fit, or with --at median the medians.
    """
    from biro.display.formatting import number_of
    from biro.errors import InputError
    from biro.io.reading import read
    from biro.io.sky_files import is_component_list, read_sky
    from biro.models import write_sky
    from biro.models.files.difmap import read_marks
    from biro.source_finding.list_priors import other_field, scales_of, with_priors

    refuse_existing([out], overwrite)
    if free != bool(data):
        raise InputError(
            "--free and --data go together, because the priors need the beam and the noise of the data"
        )
    if sky.is_dir() and not is_component_list(sky):
        if apparent:
            raise InputError("--apparent is for lists. The model of a run states its beam already")
        model = read_found(sky, at)
        marked = _free_of(sky)
    else:
        model = read_sky(sky, beam=not apparent)
        marks = read_marks(sky) if sky.suffix.lower() in (".mod", ".mfit") else {}
        marked = {name: dict.fromkeys(keys, math.nan) for name, keys in marks.items()}
    if data:
        observation = read(data)
        if line := other_field(model, observation):
            say(line)
        model = with_priors(model, *scales_of(observation))
    write_sky(model, out, marked)
    what = number_of(len(model.sources), "source")
    if model.populations:
        what += f" and {number_of(len(model.populations), 'population')}"
    say(f"written: {out} ({what})")
