"""`biro plot`: draw the pictures and the report of a run again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from biro.cli.guard import guard, say

if TYPE_CHECKING:
    from biro.likelihood.likelihood import Likelihood
    from biro.posterior.posterior import Posterior


@guard
def plot(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory of `biro fit`.")],
    obs: Annotated[
        Path | None, typer.Option(help="Where the Measurement Set is now, if it has moved.")
    ] = None,
) -> None:
    """Draw the pictures and the report of a run again."""
    from biro.posterior.posterior import Posterior

    posterior = Posterior.load(run / "posterior.nc")
    draw_run(run, posterior, _likelihood_of(run, obs, posterior.provenance.data_digest))


def _likelihood_of(run: Path, obs: Path | None, data_digest: str) -> Likelihood:
    """The likelihood that a run sampled: the same data, model, precision and frame of Gaussians."""
    from biro.errors import BiroError, InputError
    from biro.likelihood.likelihood import Likelihood
    from biro.measurement_set import read_ms
    from biro.models import read_model
    from biro.run.record import read_facts

    facts = read_facts(run)
    place = obs or facts.get("observation")
    if place is None:
        raise InputError(f"{run} does not say which Measurement Set it is of; give it with --obs")
    try:
        observation = read_ms(place, **facts.get("reading", {}))
    except BiroError:
        raise
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{run}: its run.json does not say how the data were read ({error})") from error
    if observation.digest() != data_digest:
        raise InputError(
            f"{place}: not the data that {run} was made from; give the Measurement Set as it was with --obs"
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
    from biro.plots.report import png, standard_pictures, write_report

    drawn = {caption: png(figure) for caption, figure in standard_pictures(posterior, likelihood).items()}
    for caption, data in drawn.items():
        (run / f"{caption.split()[0].strip(':,').lower()}.png").write_bytes(data)
    say(f"report: {write_report(run, posterior, likelihood, title=run.name, pictures=drawn)}")
