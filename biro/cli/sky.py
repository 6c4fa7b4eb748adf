"""`biro convert`, and the sky that a command line names: a model file, a component list, a run's best fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from biro.cli.guard import guard, refuse_existing, say

if TYPE_CHECKING:
    from biro.cli.options import Frame
    from biro.models import SkyModel


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
    """

    model: SkyModel | None = None
    values: dict[str, float] = field(default_factory=dict)
    gaussian_frame: Literal["tangent", "uv"] = "tangent"


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
    best = dict(zip(posterior.names, posterior.best_fit.tolist(), strict=True))
    recorded = (read_facts(path).get("likelihood") or {}).get("gaussian_frame", "tangent")
    chosen = cast(Literal["tangent", "uv"], frame.value if frame else recorded)  # predict refuses others
    return NamedSky(read_model(path / "model.toml"), best, chosen)


@guard
def convert(
    sky: Annotated[Path, typer.Argument(metavar="SKY", help="Model file or component list, of any format.")],
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
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
) -> None:
    """Write a sky model or component list in another format."""
    from biro.models import write_sky
    from biro.sky_files import read_sky

    refuse_existing([out], overwrite)
    model = read_sky(sky, beam=not apparent)
    write_sky(model, out)
    n_source = len(model.sources)
    say(f"{out}: {n_source} source{'s' if n_source != 1 else ''}")
