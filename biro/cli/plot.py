"""`biro plot`: draw the pictures and the report of a run again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from biro.cli.guard import after_result, guard, say
from biro.run.environment import plain_pictures

if TYPE_CHECKING:
    from biro.likelihood.likelihood import Likelihood
    from biro.posterior.posterior import Posterior


@guard
def plot(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory of `biro fit`.")],
    obs: Annotated[
        list[Path] | None,
        typer.Option(help="Where the data are now, if they have moved; of several sets all, in their order."),
    ] = None,
) -> None:
    """Draw the pictures and the report of a run again."""
    from biro.posterior.posterior import Posterior

    posterior = Posterior.load(run / "posterior.nc")
    draw_run(run, posterior, _likelihood_of(run, obs, posterior.provenance.data_digest))


def _likelihood_of(run: Path, obs: list[Path] | None, data_digest: str) -> Likelihood:
    """The likelihood that a run sampled: the same data, model, precision and frame of Gaussians."""
    from biro.errors import BiroError, InputError
    from biro.likelihood.likelihood import Likelihood
    from biro.models import read_model
    from biro.reading import read
    from biro.run.record import read_facts

    facts = read_facts(run)
    place = obs or facts.get("observation")
    if place is None:
        raise InputError(f"{run} does not say which data it is of; give it with --obs")
    try:
        observation = read(place, **facts.get("reading", {}))
    except BiroError:
        raise
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{run}: its run.json does not say how the data were read ({error})") from error
    if observation.digest() != data_digest:
        raise InputError(
            f"{observation.source}: not the data that {run} was made from; give what was observed as it was "
            "with --obs"
        )
    recorded = facts.get("likelihood") or {}
    likelihood = Likelihood(
        observation,
        read_model(run / "model.toml"),
        backend="cpu" if recorded.get("backend") == "cpu" else "auto",
        precision=recorded.get("precision", "double"),
        gaussian_frame=recorded.get("gaussian_frame", "tangent"),
        memory_limit=recorded.get("memory_limit"),
        image_accuracy=recorded.get("image_accuracy", 1e-5),
    )
    if likelihood.description().get("images") != recorded.get("images"):
        raise InputError(f"{run}: the images that its model.toml names have changed; put them back")
    return likelihood


def draw_run(run: Path, posterior: Posterior, likelihood: Likelihood) -> None:
    """Write the pictures of a run into its directory, each as a file, and the report with all of them."""
    from biro.files.atomic import write_atomic

    plain_pictures()
    from biro.plots.report import png, standard_pictures, write_report
    from biro.progress import counted

    pictures = standard_pictures(posterior, likelihood)
    counting = counted(pictures.items(), "drawing", "pictures", len(pictures))
    drawn = {caption: png(figure) for caption, figure in counting}
    with after_result(f"the posterior is in {run / 'posterior.nc'}", f"make room, then: biro plot {run}"):
        for caption, data in drawn.items():
            write_atomic(run / f"{caption.split()[0].strip(':,').lower()}.png", data)
        page = write_report(run, posterior, likelihood, title=run.name, pictures=drawn)
    say(f"report: {page}")
