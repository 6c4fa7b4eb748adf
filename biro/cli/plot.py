"""`biro plot`, `biro watch` and `biro compare`: pictures of runs, and their evidences."""

from __future__ import annotations

import hashlib
import html
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from biro.cli.guard import after_result, guard, print_json, refuse_folder_of_runs, say
from biro.cli.options import CacheOption, JsonFlag
from biro.run.environment import plain_pictures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from biro.image_posterior.results.elbo import ImageComparison
    from biro.inference.posterior.comparison import Comparison
    from biro.inference.posterior.posterior import Posterior
    from biro.likelihood.likelihood import Likelihood
    from biro.source_finding.populations.posterior import PopulationPosterior

_DRAWN = re.compile(rb'<meta name="biro-posterior" content="([0-9a-f]{64}) ([a-z ]*)">')
"""In the head of a report: which posterior it is of, and the names of its pictures."""
LIVE = "live.html"
"""The page of a run that is watched."""
LONGEST_PAUSE = 86400.0
"""Seconds between pictures, at most."""
_SHARE = 4.0
"""A watch waits at least so many times as long as it has drawn."""
Format = Literal["png", "pdf"]
"""What kind of files pictures are."""


@guard
def plot(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory of `biro fit`.")],
    obs: Annotated[
        list[Path] | None,
        typer.Option(
            help="New path of the data, if they were moved. Give all data sets, in the order of the fit."
        ),
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            help=(
                "Draw only the corner plot and the traces of these parameters, separated by commas: 'jet.I', "
                "'jet' (all of that source) or '*.I' (a pattern)."
            )
        ),
    ] = None,
    format_: Annotated[
        Format, typer.Option("--format", help="Format of the plots. With pdf, biro writes no report.")
    ] = "png",
    cache: CacheOption = None,
) -> None:
    """Redraw the plots and the report of a run.

    With --parameters, biro draws only the corner plot and the traces of these parameters. With --format pdf,
    it writes only PDF files, neither PNG files nor the report. An image that was fitted has its pictures
    redrawn from its samples.
    """
    from biro.errors import InputError
    from biro.inference.posterior.posterior import Posterior
    from biro.plots.labels import chosen_columns
    from biro.plots.standard import of_posterior

    refuse_folder_of_runs(run)
    if (run / "image.npz").exists():
        if obs or parameters:
            option = "--obs" if obs else "--parameters"
            raise InputError(
                f"{option}: pictures of an image are drawn from {run / 'image.npz'}; leave it out"
            )
        _draw_image(run, format_)
        return
    if (run / "population.npz").exists():
        from biro.source_finding.populations.posterior import PopulationPosterior

        if obs or parameters:
            option = "--obs" if obs else "--parameters"
            raise InputError(
                f"{option}: pictures of a population are drawn from {run / 'population.npz'}; leave it out"
            )
        draw_population(run, PopulationPosterior.load(run), format_)
        say(f"written into {run}: {', '.join(sorted(path.name for path in run.glob(f'*.{format_}')))}")
        return
    posterior = Posterior.load(run / "posterior.nc")
    names = [name.strip() for text in parameters or [] for name in text.split(",") if name.strip()] or None
    chosen_columns(posterior, names)  # so that a name that is wrong is refused before the data are read
    if names is not None:
        plain_pictures()
        write_pictures(run, of_posterior(posterior, names), format_)
        return
    likelihood = likelihood_of(run, obs, posterior.provenance.data_digest, cache=cache)
    draw_run(run, posterior, likelihood, format_)


def _draw_image(run: Path, format_: Format) -> None:
    """Draw all pictures of an image that was fitted again."""
    from biro.image_posterior.results.pictures import write_pictures
    from biro.image_posterior.results.result import read_result

    image = read_result(run)
    plain_pictures()
    with after_result(f"the image is in {run / 'image.npz'}", f"free disk space, then: biro plot {run}"):
        for path in write_pictures(image, run, format_):
            say(f"written: {path}")


def draw_population(run: Path, found: PopulationPosterior, format_: Format = "png") -> None:
    """Draw the pictures of a population, and those of the parameters beside it."""
    from biro.files.atomic import write_figure
    from biro.plots.standard import of_posterior

    with after_result(f"the result is in {run}", f"draw with biro plot {run}"):
        plain_pictures()
        for name, figure in found.sources.pictures().items():
            write_figure((run / name).with_suffix(f".{format_}"), figure, dpi=150)
        write_pictures(run, of_posterior(found.posterior, None), format_)


def likelihood_of(
    run: Path,
    obs: list[Path] | None,
    data_digest: str,
    backend: str | None = None,
    cache: Path | None = None,
) -> Likelihood:
    """The likelihood that a run sampled: the same data, model, precision and frame of Gaussians."""
    from biro.errors import BiroError, InputError
    from biro.io.reading import read
    from biro.likelihood.densities.gain_treatment import data_digest as data_digest_of
    from biro.likelihood.likelihood import Likelihood
    from biro.models import read_model
    from biro.run.record import read_facts

    facts = read_facts(run)
    place = obs or facts.get("observation")
    if place is None:
        raise InputError(f"{run} does not record its data; give them with --obs")
    unknown = f"{run}: run.json does not record how the data were read"
    if not isinstance(place, str | list):
        raise InputError(f"{unknown} (the data set is {place!r})")
    try:
        observation = read(place, **facts.get("reading", {}), cache=cache)
    except BiroError:
        raise
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{unknown} ({error})") from error
    recorded = facts.get("likelihood") or {}
    gains = recorded.get("gains", "sample")
    if data_digest_of(observation, gains) != data_digest:
        raise InputError(
            f"{observation.source}: the data differ from those of the fit in {run}; give the original data "
            "with --obs"
        )
    likelihood = Likelihood(
        observation,
        read_model(run / "model.toml"),
        backend="cpu" if "cpu" in (backend, recorded.get("backend")) else "auto",
        precision=recorded.get("precision", "double"),
        gaussian_frame=recorded.get("gaussian_frame", "tangent"),
        memory_limit=recorded.get("memory_limit"),
        image_accuracy=recorded.get("image_accuracy", 1e-5),
        smearing=recorded.get("smearing", "off"),  # which there was none of before it is recorded
        gains=gains,
    )
    if likelihood.description().get("images") != recorded.get("images"):
        raise InputError(f"{run}: the images named in its model.toml have changed; restore them")
    # Of the run; pictures are of all data.
    likelihood.choices.average.extend(map(str, recorded.get("average", [])))
    return likelihood


def draw_run(run: Path, posterior: Posterior, likelihood: Likelihood, format_: Format = "png") -> None:
    """Write the pictures of a run into its directory, each when it is drawn, and the report with all of them.

    Parameters
    ----------
    run : Path
    posterior : Posterior
    likelihood : Likelihood
        Of data outside the memory of this process, pictures show some times and channels.
    format_ : Format
        Of PDF files there is no report.
    """
    plain_pictures()
    from biro.plots import report
    from biro.plots.standard import each_picture

    if likelihood.observation.is_distributed:
        say("the pictures show a part of the times and channels, because the data are large")
        likelihood = likelihood.of_few()
    likelihood = likelihood.full
    drawn = write_pictures(run, each_picture(posterior, likelihood), format_)
    if format_ == "pdf":
        return
    with _room_for(run):
        head = _head(run, [_name(caption) for caption in drawn])
        page = report.write_report(run, posterior, likelihood, title=run.name, pictures=drawn, head=head)
    say(f"report: {page}")


def write_pictures(run: Path, pictures: Iterable[tuple[str, Figure]], format_: Format) -> dict[str, bytes]:
    """Write each picture into a file as it is drawn, with a line for each; the files by caption."""
    from biro.files.atomic import write_atomic
    from biro.plots import report

    draw = report.pdf if format_ == "pdf" else report.png
    drawn: dict[str, bytes] = {}
    try:
        for caption, figure in _each_drawn(pictures):
            path = run / f"{_name(caption)}.{format_}"
            drawn[caption] = draw(figure)
            with _room_for(run):
                write_atomic(path, drawn[caption])
            say(f"written: {path}")
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"the posterior is in {run / 'posterior.nc'}; {len(drawn)} pictures are written. `biro plot "
            f"{run}` draws all"
        ) from None
    return drawn


def _each_drawn(pictures: Iterable[tuple[str, Figure]]) -> Iterator[tuple[str, Figure]]:
    """The pictures, with a line of progress while one of them is drawn."""
    from biro.display.progress import doing

    remaining = iter(pictures)
    while True:
        with doing("drawing pictures"):
            found = next(remaining, None)
        if found is None:
            return
        yield found


def _room_for(run: Path) -> AbstractContextManager[None]:
    return after_result(
        f"the posterior is in {run / 'posterior.nc'}", f"free disk space, then: biro plot {run}"
    )


@guard
def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory of a fit that is running.")],
    obs: Annotated[
        list[Path] | None,
        typer.Option(
            help="New path of the data, if they were moved. Give all data sets, in the order of the fit."
        ),
    ] = None,
    every: Annotated[float, typer.Option(help="Shortest time between two updates, in seconds.")] = 20.0,
) -> None:
    """Show plots of a running fit in RUN/live.html, which reloads.

    The command ends when the fit is finished or its process has ended. It reads what the fit has saved, and
    computes on the CPU; it changes nothing in the run.
    """
    from biro.errors import InputError, RunError
    from biro.run.lock import holder_is_gone
    from biro.run.record import read_record

    if not 1.0 <= every <= LONGEST_PAUSE:
        raise InputError(f"--every must be 1 to {LONGEST_PAUSE:.0f} seconds, got {every:g}")
    refuse_folder_of_runs(run)
    record = read_record(run)
    if record is None:
        raise InputError(f"{run}: not a run directory (no run.json); start `biro fit -o {run}` first")
    if record["settings"].get("sampler") == "population":
        raise InputError(
            f"{run}: fits a population, which has no live plots; {run / 'log.txt'} has its steps"
        )
    if str(record["settings"].get("sampler")).startswith("image"):
        raise InputError(
            f"{run}: fits an image, which has no live plots; {run / 'log.txt'} has chi2 as it goes"
        )
    if hasattr(os, "nice"):
        os.nice(10)  # the run comes first
    plain_pictures()
    likelihood = likelihood_of(run, obs, str(record["settings"].get("data")), "cpu")
    say(
        f"watching {run}. Open {(run / LIVE).absolute()} in a browser. Ctrl-C stops watching; the fit "
        "continues"
    )
    seen: object = None
    while True:
        begun, is_gone = time.monotonic(), holder_is_gone(run / "lock")  # before what it has written is read
        try:
            state = _state(run)
            if state != seen and draw_live(run, likelihood, every):
                say(f"{run} is finished; last pictures: {run / LIVE}")
                return
            seen = state
        except (OSError, RunError) as error:  # a disk that is slow to show what was written
            if not run.is_dir():
                raise InputError(f"{run}: the run directory is gone") from None
            say(f"{run} cannot be read ({error}); biro tries again")
        if is_gone:
            raise RunError(
                f"{run}: the fit stopped before it was finished. {LIVE} shows what it saved. The same "
                "`biro fit` command resumes it"
            )
        time.sleep(max(every, _SHARE * (time.monotonic() - begun)))


def draw_live(run: Path, likelihood: Likelihood, every: float) -> bool:
    """Write the page of a run as it is now; whether the run is finished."""
    from biro.files.atomic import write_atomic
    from biro.inference.posterior.posterior import Posterior
    from biro.plots import report
    from biro.plots.progress_state import posterior_in_progress
    from biro.run.record import read_record

    record = read_record(run)
    finished = record is not None and record.get("finished") is not None
    posterior = Posterior.load(run / "posterior.nc") if finished else posterior_in_progress(run, likelihood)
    head = "" if finished else f'<meta http-equiv="refresh" content="{every:.0f}">'
    when = time.strftime("%H:%M:%S")
    try:
        if posterior is None:
            text = f"<h1>{html.escape(run.name)}</h1><p>{when}: no samples yet.</p>"
            write_atomic(run / LIVE, report.page(run.name, text, head).encode())
        else:
            title = f"{run.name}, {'finished' if finished else f'so far, at {when}'}"
            report.write_report(run / LIVE, posterior, likelihood.full, title=title, head=head)
    except OSError as error:  # a full disk, of which the run itself warns
        say(f"{run / LIVE} cannot be written ({error.strerror}); biro tries again")
        return False
    return finished


def _state(run: Path) -> object:
    """What changes as a run goes on: times and sizes of its files."""
    names = ("run.json", "chain.bin", "checkpoint.bin", "draws.npz", "posterior.nc")
    found = [(run / name).stat() for name in names if (run / name).is_file()]
    return [(each.st_mtime_ns, each.st_size) for each in found]


def is_drawn(run: Path) -> bool:
    """Whether the report and all its pictures are there, and of the posterior that is there now."""
    try:
        with open(run / "report.html", "rb") as file:
            start = file.read(1 << 14)
        found = _DRAWN.search(start)
        if found is None or found[1].decode() != _digest(run):
            return False
    except OSError:
        return False
    return all((run / f"{name}.png").is_file() for name in found[2].decode().split())


def _name(caption: str) -> str:
    """Name of a picture's file: the first word of its caption."""
    return caption.split()[0].strip(":,;").lower()


def _head(run: Path, names: Sequence[str]) -> str:
    """What `is_drawn` looks for; nothing where the posterior is not there to be hashed."""
    try:
        return f'<meta name="biro-posterior" content="{_digest(run)} {" ".join(names)}">'
    except OSError:
        return ""


def _digest(run: Path) -> str:
    """Digest of the posterior that a run directory holds, and of the version that drew it."""
    from biro._version import __version__

    with open(run / "posterior.nc", "rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    digest.update(__version__.encode())
    return digest.hexdigest()


Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories of `biro fit`.")]


@guard
def compare(runs: Runs, as_json: JsonFlag = False) -> None:
    """Compare runs by evidence and Bayes factor, or images by ELBO."""
    from biro.errors import InputError
    from biro.inference.posterior.comparison import compare as compare_posteriors
    from biro.inference.posterior.posterior import Posterior

    for run in runs:
        refuse_folder_of_runs(run)
    images = [run for run in runs if (run / "image.npz").exists()]
    table: Comparison | ImageComparison
    if images and len(images) < len(runs):
        raise InputError(
            f"{images[0]}: a fitted image, whose ELBO cannot be compared with evidences of other runs; "
            "compare images with each other"
        )
    if images:
        from biro.image_posterior.results.elbo import compare_images
        from biro.image_posterior.results.result import read_result

        table = compare_images({str(run): read_result(run) for run in runs})
    else:
        table = compare_posteriors({str(run): Posterior.load(run / "posterior.nc") for run in runs})
    if as_json:
        print_json(table.to_dict())
    else:
        typer.echo(str(table))
