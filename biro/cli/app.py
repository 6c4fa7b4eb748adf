"""The command line: `biro info`, `fit`, `predict`, `image`, `find`, `simulate`, `compare` and so on.

Nothing heavy is imported until a command runs, so that `biro --help` is quick.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from biro import __version__
from biro.cli import find, image, predict, sbc, tune
from biro.cli.options import (
    EXIT_CODES,
    AnyPrecision,
    Backend,
    BackendOption,
    Feeds,
    JsonFlag,
    MemoryOption,
    Observed,
    Sampler,
    at_terminal,
    guard,
    keyword_options,
    print_json,
    quantity,
    say,
    takes_reading_options,
)

app = typer.Typer(
    name="biro",
    help="Bayesian sky-model inference for radio interferometry.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories of `biro fit`.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"biro {__version__}")
        raise typer.Exit(0)


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the trace of an error.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say what is chosen and why.")] = False,
) -> None:
    """Bayesian sky-model inference for radio interferometry."""
    import logging

    guard.debug = debug
    logging.basicConfig(format="%(name)s: %(message)s", stream=sys.stderr, force=True)
    # The level of the handler, not of the logger: a run's log.txt has everything.
    logging.getLogger().handlers[0].setLevel(logging.INFO if verbose else logging.WARNING)
    for name in ("biro", "rime_kernels"):
        logging.getLogger(name).setLevel(logging.INFO)


def main(argv: list[str] | None = None) -> None:
    """Entry point of the `biro` command; --debug, --verbose and -v may stand anywhere before `--`."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    words = list(sys.argv[1:] if argv is None else argv)
    end = words.index("--") if "--" in words else len(words)
    everywhere = {"--debug", "--verbose", "-v"}
    moved = [word for word in words[:end] if word in everywhere]
    app(moved + [word for word in words[:end] if word not in everywhere] + words[end:], prog_name="biro")


@app.command(epilog=EXIT_CODES)
@guard
@takes_reading_options()
def info(obs: Observed, as_json: JsonFlag = False, *, reading: dict[str, Any]) -> None:
    """Say what a Measurement Set holds and how noisy it is."""
    from biro.measurement_set.read import read_ms

    summary = read_ms(obs, **reading).summary()
    if as_json:
        print_json(summary.to_dict())
    else:
        typer.echo(str(summary))


@app.command(epilog=EXIT_CODES)
@guard
@takes_reading_options()
def fit(
    obs: Observed,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Sky model with priors (TOML).")],
    run: Annotated[
        Path, typer.Option("--output", "-o", metavar="RUN", help="Run directory, made or resumed.")
    ],
    sampler: Annotated[
        Sampler, typer.Option(help="dynesty finds the evidence too; none finds the maximum, in seconds.")
    ] = Sampler.emcee,
    seed: Annotated[
        int | None, typer.Option(help="Same seed, same samples. Drawn and recorded if absent.")
    ] = None,
    backend: BackendOption = Backend.auto,
    precision: Annotated[
        AnyPrecision, typer.Option(help="Of the sums over sources; auto measures whether single will do.")
    ] = AnyPrecision.double,
    memory_limit: MemoryOption = None,
    set_option: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Option of the sampler, as n_live=1000."),
    ] = None,
    pictures: Annotated[bool, typer.Option(help="Write pictures and report into RUN.")] = True,
    as_json: JsonFlag = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Sample the posterior of a sky model.

    Everything goes into RUN; the same command goes on with a run that was interrupted.
    """
    from biro.likelihood.likelihood import Likelihood
    from biro.measurement_set.read import read_ms
    from biro.models import read_model
    from biro.samplers.sampling import sample

    options = keyword_options(set_option or [])
    sky = read_model(model)
    observation = read_ms(obs, **reading)
    asked: Any = _precision_of(run) if precision is AnyPrecision.auto else precision.value
    likelihood = Likelihood(
        observation,
        sky,
        backend=backend.value,
        precision=asked,
        memory_limit=memory_limit,
    )
    say(_what_is_fitted(likelihood))
    if asked == "auto":
        say(f"precision {likelihood.precision_reason}")
    plan = likelihood.plan(_batch_of(sampler.value, options, likelihood.n_param))
    say(plan)
    posterior = sample(
        likelihood,
        sampler.value,
        run_dir=run,
        seed=seed,
        progress=at_terminal(),
        facts={"observation": str(obs.absolute()), "reading": reading, "plan": plan.splitlines()},
        **options,
    )
    if as_json:
        print_json(posterior.summary().to_dict())
    else:
        typer.echo(str(posterior.summary()))
    if pictures:
        _draw(run, posterior, likelihood)


app.command(epilog=EXIT_CODES)(sbc.sbc)
app.command(epilog=EXIT_CODES)(predict.predict)
app.command(epilog=EXIT_CODES)(image.image)
app.command(epilog=EXIT_CODES)(find.find)


@app.command(epilog=EXIT_CODES)
@guard
def simulate(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Measurement Set to make.")],
    sky: Annotated[Path, typer.Argument(metavar="SKY", help="TOML model without priors, or component list.")],
    telescope: Annotated[
        str,
        typer.Option(
            help="VLA-A, -B, -C, -D, MeerKAT, KAT-7, WSRT, or an antenna file (CSV or CASA's .cfg)."
        ),
    ],
    phase_centre: Annotated[str, typer.Option(help="ICRS, as '05h00m00s -45d00m00s' or '75 deg -45 deg'.")],
    start: Annotated[
        str, typer.Option(help="UTC, as 2026-03-01T18:00; a day alone puts the track around culmination.")
    ],
    duration: Annotated[str, typer.Option(help="As '4 h'.")],
    integration: Annotated[str, typer.Option(help="As '30 s'.")],
    freq: Annotated[str, typer.Option(help="Centre of the first channel, as '1.4 GHz'.")],
    chan_width: Annotated[str, typer.Option(help="As '1 MHz'.")],
    n_chan: Annotated[int, typer.Option(help="Number of channels.")] = 1,
    feeds: Annotated[Feeds, typer.Option(help="Polarisation basis.")] = Feeds.linear,
    noise: Annotated[str, typer.Option(help="Of the real and of the imaginary part, as '10 mJy'.")] = "0",
    sefd: Annotated[str | None, typer.Option(help="Noise from this SEFD instead, as '400 Jy'.")] = None,
    elevation_limit: Annotated[float, typer.Option(help="Leave out times lower than this, deg.")] = 10.0,
    seed: Annotated[int | None, typer.Option(help="Same seed, same noise.")] = None,
    backend: BackendOption = Backend.auto,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
) -> None:
    """Make a new Measurement Set of a sky, with noise."""
    import secrets

    from biro.errors import InputError
    from biro.measurement_set.read import create_ms
    from biro.simulation.prediction import read_any_sky
    from biro.simulation.simulator import Channels, Track, radiometer_noise
    from biro.simulation.simulator import simulate as simulate_sky

    if out.exists() and not overwrite:
        raise InputError(f"{out}: exists already; choose another name or give --overwrite")
    seconds, width = quantity(integration, "s", "--integration"), quantity(chan_width, "Hz", "--chan-width")
    sigma = quantity(noise, "Jy", "--noise")
    seed = secrets.randbelow(2**31) if seed is None else seed
    if sefd is not None:
        sigma = radiometer_noise(quantity(sefd, "Jy", "--sefd"), width, seconds)
    model, values = read_any_sky(sky)
    track = Track(start, quantity(duration, "s", "--duration"), seconds)
    observation = simulate_sky(
        telescope,
        model,
        phase_centre=phase_centre,
        times=track,
        channels=Channels(quantity(freq, "Hz", "--freq"), width, n_chan),
        feeds=feeds.value,
        noise=sigma,
        seed=seed,
        elevation_limit=elevation_limit,
        values=values,
        backend=backend.value,
    )
    create_ms(out, observation, overwrite=overwrite)
    part = observation.partitions[0]
    noted = f"noise {sigma:.6g} Jy (seed {seed})" if sigma else "no noise"
    say(f"{out}: {part.n_row} rows, {len(part.times)} times, {part.n_chan} channels, {noted}")
    below = int(track.duration / track.integration + 1e-9) - len(part.times)
    if below > 0:
        say(f"{below} times are left out, where the field is lower than {elevation_limit:g} deg")


@app.command(epilog=EXIT_CODES)
@guard
def compare(runs: Runs, as_json: JsonFlag = False) -> None:
    """Evidences and Bayes factors of runs."""
    from biro.posterior.comparison import compare as compare_posteriors
    from biro.posterior.posterior import Posterior

    table = compare_posteriors({str(run): Posterior.load(run / "posterior.nc") for run in runs})
    if as_json:
        print_json(table.to_dict())
    else:
        typer.echo(str(table))


@app.command(epilog=EXIT_CODES)
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
    _draw(run, posterior, _likelihood_of(run, obs, posterior.provenance.data_digest))


@app.command(epilog=EXIT_CODES)
@guard
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where to write.")] = Path(
        "demo"
    ),
    seed: Annotated[int, typer.Option(help="Same seed, same demo.")] = 1,
) -> None:
    """Simulate, fit two models, compare, and write a report."""
    from biro.cli.demo import run_demo

    run_demo(output, seed=seed, progress=at_terminal(), say=typer.echo)


app.command(epilog=EXIT_CODES)(tune.tune)


def _precision_of(run: Path) -> Any:
    """What "auto" means for a run: what it was begun with, if it was; a GPU may choose other than a CPU."""
    from biro.run.record import read_facts

    return (read_facts(run).get("likelihood") or {}).get("precision", "auto")


def _batch_of(sampler: str, options: dict[str, Any], n_param: int) -> int:
    """Parameter vectors that a sampler hands over at once."""
    from biro.samplers.options import KINDS, parse

    kind: Any = KINDS[sampler]
    return int(parse(kind, options, n_param).n_together)


def _what_is_fitted(likelihood: Any) -> str:
    n_part, chosen = len(likelihood.n_vis), likelihood.description()
    parts = "1 partition" if n_part == 1 else f"{n_part} partitions"
    forms = " and ".join(dict.fromkeys(chosen["form"]))
    free = "1 free parameter" if likelihood.n_param == 1 else f"{likelihood.n_param} free parameters"
    return (
        f"{free}, {likelihood.n_vis.sum()} visibilities in {parts}; "
        f"{chosen['backend']}, {chosen['precision']} precision, {forms} form (-v says why)"
    )


def _likelihood_of(run: Path, obs: Path | None, data_digest: str) -> Any:
    """The likelihood that a run sampled: the same data, model, precision and frame of Gaussians."""
    from biro.errors import BiroError, InputError
    from biro.likelihood.likelihood import Likelihood
    from biro.measurement_set.read import read_ms
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
    was = facts.get("likelihood") or {}
    likelihood = Likelihood(
        observation,
        read_model(run / "model.toml"),
        backend="cpu" if was.get("backend") == "cpu" else "auto",
        precision=was.get("precision", "double"),
        gaussian_frame=was.get("gaussian_frame", "tangent"),
        memory_limit=was.get("memory_limit"),
        image_accuracy=was.get("image_accuracy", 1e-5),
    )
    if likelihood.description().get("images") != was.get("images"):
        raise InputError(f"{run}: the images that its model.toml names have changed; put them back")
    return likelihood


def _draw(run: Path, posterior: Any, likelihood: Any) -> None:
    """Pictures as files of their own, and the report with all of them."""
    from biro.plots.report import png, standard_pictures, write_report

    drawn = {caption: png(figure) for caption, figure in standard_pictures(posterior, likelihood).items()}
    for caption, data in drawn.items():
        (run / f"{caption.split()[0].strip(':,').lower()}.png").write_bytes(data)
    say(f"report: {write_report(run, posterior, likelihood, title=run.name, pictures=drawn)}")
