"""`biro convert`, and the sky that a command line names: a model file, a component list, a run's best fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from biro.cli.guard import guard, refuse_existing, say

if TYPE_CHECKING:
    from biro.cli.options import Frame
    from biro.models import SkyModel
    from biro.smearing import Mode


class Values(StrEnum):
    """Which values of a run."""

    best = "best"
    median = "median"


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
    """

    model: SkyModel | None = None
    values: dict[str, float] = field(default_factory=dict)
    gaussian_frame: Literal["tangent", "uv"] = "tangent"
    smearing: tuple[Mode, ...] = ()


def read_sky_or_run(path: Path, frame: Frame | None) -> NamedSky:
    """A sky model, values for its free parameters, and the frame of its Gaussians.

    Parameters
    ----------
    path : Path
        Whatever `biro.read_sky` takes; or a run directory, whose sample of highest likelihood gives the
        values.
    frame : Frame or None
        What was asked for; None stands for that of the run, and for "tangent" where there is none.

    Raises
    ------
    InputError, ModelError
        It is none of these.
    RunError
        The record of the run is broken.
    """
    from biro.errors import InputError
    from biro.models import read_model
    from biro.posterior.posterior import Posterior
    from biro.run.record import read_facts
    from biro.sky_files import is_component_list, read_sky

    if not path.is_dir() or is_component_list(path):
        return NamedSky(read_sky(path), gaussian_frame=frame.value if frame else "tangent")
    if not (path / "posterior.nc").is_file():
        raise InputError(
            f"{path}: a folder, but not the run directory of a finished fit (no posterior.nc), nor a "
            "component list of CASA (no table.dat)"
        )
    posterior = Posterior.load(path / "posterior.nc")
    facts = read_facts(path).get("likelihood") or {}
    recorded = facts.get("gaussian_frame", "tangent")
    chosen = cast(Literal["tangent", "uv"], frame.value if frame else recorded)  # predict refuses others
    smearing = tuple(facts.get("smearing") or ())
    return NamedSky(read_model(path / "model.toml"), posterior.best_values, chosen, smearing)


def read_found(run: Path, at: Values) -> SkyModel:
    """The sky model of a run with numbers in place of the priors of its sources.

    Raises
    ------
    InputError, ModelError, RunError
        As `read_sky_or_run`.
    """
    from biro.posterior.posterior import Posterior

    found = read_sky_or_run(run, None)
    values = found.values
    if at is Values.median:
        table = Posterior.load(run / "posterior.nc").summary()
        values = {name: table[name].median for name in values}
    assert found.model is not None  # a run has one
    return found.model.at(values)


@guard
def convert(
    sky: Annotated[
        Path,
        typer.Argument(metavar="SKY", help="Model file, component list of any format, or run directory."),
    ],
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help=".toml, .mod (difmap), .osm (OSKAR), .lsm.txt (Tigger), .skymodel or .txt (BBS).",
        ),
    ],
    apparent: Annotated[
        bool, typer.Option("--apparent", help="Fluxes are apparent: no source is seen through a beam.")
    ] = False,
    at: Annotated[
        Values, typer.Option(help="Of a run: the sample of highest likelihood, or the medians.")
    ] = Values.best,
    free: Annotated[
        bool, typer.Option("--free", help="Write priors: around fluxes, positions, sizes and angles.")
    ] = False,
    data: Annotated[
        list[Path] | None,
        typer.Option("--data", metavar="OBS", help="Of --free: data whose beam and noise the priors have."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
) -> None:
    """Write a sky model, a component list, or what a run found, in another format.

    Of a run, sources get the values of its best fit or the medians; OUT is a list or a model file.
    """
    from biro.errors import InputError
    from biro.list_priors import scales_of, with_priors
    from biro.models import write_sky
    from biro.reading import read
    from biro.sky_files import is_component_list, read_sky

    refuse_existing([out], overwrite)
    if free != bool(data):
        raise InputError("--free and --data go together: priors need the beam and the noise of data")
    if sky.is_dir() and not is_component_list(sky):
        if apparent:
            raise InputError("--apparent is of a list: a run knows through which beam its sources are seen")
        model = read_found(sky, at)
    else:
        model = read_sky(sky, beam=not apparent)
    if data:
        model = with_priors(model, *scales_of(read(data)))
    write_sky(model, out)
    n_source = len(model.sources)
    say(f"{out}: {n_source} source{'s' if n_source != 1 else ''}")
