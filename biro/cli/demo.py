"""`biro demo`: simulate an observation, fit two models, compare them, and write a report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from biro.cli.guard import guard
from biro.run.environment import plain_pictures

if TYPE_CHECKING:
    from biro.inference.posterior.comparison import Comparison
    from biro.inference.posterior.posterior import Posterior
    from biro.inference.posterior.table import Row
    from biro.likelihood.likelihood import Likelihood
    from biro.observation.observation import Observation

Say = Callable[[str], None]

PHASE_CENTRE = "05h00m00s -45d00m00s"
SEFD = 1200.0
"""Jy; about what KAT-7 had at 1.8 GHz."""
TRUTH = {
    "core.I": 20.0,
    "lobe.east": 6.0,
    "lobe.north": -3.0,
    "lobe.I": 15.0,
    "lobe.emaj": 2.5,
    "lobe.ratio": 0.5,
    "lobe.pa": 30.0,
    "noise.factor": 1.0,
}
"""Parameters of the simulated sky, in the units of the models: mJy, arcmin and deg."""

LOBE = """
[[source]]
name = "lobe"
type = "{kind}"
east = {{ prior = "uniform", low = -15, high = 15, unit = "arcmin" }}
north = {{ prior = "uniform", low = -15, high = 15, unit = "arcmin" }}
I = {{ prior = "uniform", low = 0, high = 100, unit = "mJy" }}
"""
SHAPE = """\
emaj = { prior = "uniform", low = 0.1, high = 10, unit = "arcmin" }
ratio = { prior = "uniform", low = 0.05, high = 1 }
pa = { prior = "uniform", low = 0, high = 180, unit = "deg" }
"""
CORE = """\
# A core at the phase centre and a lobe somewhere about it; the noise is fitted too.
[[source]]
name = "core"
type = "point"
east = "0 arcmin"
north = "0 arcmin"
I = { prior = "uniform", low = 0, high = 100, unit = "mJy" }
"""
MODELS = {
    "gaussian": CORE + LOBE.format(kind="gaussian") + SHAPE,
    "point": CORE + LOBE.format(kind="point"),
}


@guard
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Directory to write into.")
    ] = Path("demo"),
    seed: Annotated[
        int, typer.Option(help="Seed of the random numbers; the same seed repeats the demo.")
    ] = 1,
) -> None:
    """Simulate data, fit two models, compare them, write a report."""
    run_demo(output, seed=seed, progress=True, say=typer.echo)


def run_demo(
    output: str | Path, *, seed: int = 1, n_live: int = 200, progress: bool = False, say: Say = print
) -> dict[str, Posterior]:
    """Simulate KAT-7 data of a core and a lobe, fit the lobe as a Gaussian and as a point, and compare.

    Writes into `output`: the models (`*.toml`), the observation (`demo.ms`), a run directory for each
    model, and `report.html`. The same call again reads finished runs instead of sampling them.

    Parameters
    ----------
    output : path
        A folder, which is made where it does not exist.
    seed : int
        Seed of the noise and of the samplers.
    n_live : int
        Live points of the nested sampling.
    progress : bool
        Show the samplers' progress on stderr.
    say : function of one text
        Prints the account of what is done; by default on stdout.

    Raises
    ------
    InputError
        `output` cannot be written to.
    """
    from biro.inference.posterior.comparison import compare

    folder = _folder(output)
    observation = _observe(folder, seed)
    say(f"simulated (seed {seed}):\n{observation.summary()}\n")
    posteriors, likelihoods = {}, {}
    for name, text in MODELS.items():
        say(f"sampling the model {name!r} with dynesty ...")
        likelihoods[name] = _likelihood(folder, name, text, observation)
        posteriors[name] = _sample(folder / name, likelihoods[name], seed, n_live, progress)
    comparison = compare(posteriors)
    say(f"\n{truth_table(posteriors['gaussian'])}\n\n{comparison}\n")
    report = _report(folder, posteriors["gaussian"], likelihoods["gaussian"], comparison)
    say(f"report: {report}")
    return posteriors


def truth_table(posterior: Posterior) -> str:
    """The true value of each parameter beside its interval, as text."""
    from biro.display.formatting import align, digits_after_point

    rows = [["parameter", "unit", "truth", "median", "-68 %", "+68 %", "off by"]]
    for row in posterior.summary().rows:
        truth = TRUTH[row.name]
        digits = digits_after_point(0.5 * (row.high_68 - row.low_68))
        numbers = [row.median, row.low_68 - row.median]
        cells = [*(f"{number:.{digits}f}" for number in numbers), f"{row.high_68 - row.median:+.{digits}f}"]
        rows.append([row.name, row.unit, f"{truth:g}", *cells, f"{_pull(row, truth):+.1f} sigma"])
    return align(rows)


def _pull(row: Row, truth: float) -> float:
    difference = row.median - truth
    return difference / (row.median - row.low_68 if difference > 0 else row.high_68 - row.median)


def _folder(output: str | Path) -> Path:
    from biro.errors import InputError

    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror}; give another folder with -o") from None
    made = {folder / f"{name}.toml": text for name, text in MODELS.items()}
    theirs = [path for path, text in made.items() if path.exists() and path.read_bytes() != text.encode()]
    if not all(path.exists() for path in made):  # else an earlier demo made them
        theirs += [path for path in (folder / "demo.ms", folder / "report.html") if path.exists()]
    if theirs:
        raise InputError(f"{theirs[0]}: exists and is of no demo; give another folder with -o")
    return folder


def _observe(folder: Path, seed: int) -> Observation:
    """Simulate the observation, write it as a Measurement Set, and read that."""
    from biro.io.measurement_set import create_ms, read_ms
    from biro.models.files.toml import from_toml
    from biro.simulation.simulator import Channels, Track, radiometer_noise, simulate

    track = Track(start="2026-03-01", duration=4 * 3600.0, integration=600.0)
    channels = Channels(first=1.80e9, width=16e6, number=1)
    simulated = simulate(
        "KAT-7",
        from_toml(MODELS["gaussian"]),
        values=TRUTH,
        phase_centre=PHASE_CENTRE,
        times=track,
        channels=channels,
        noise=radiometer_noise(SEFD, channels.width, track.integration),
        seed=seed,
        elevation_limit=15.0,
    )
    create_ms(folder / "demo.ms", simulated, overwrite=True)
    return read_ms(folder / "demo.ms")


def _likelihood(folder: Path, name: str, text: str, observation: Observation) -> Likelihood:
    from biro.likelihood.likelihood import Likelihood
    from biro.models import read_model

    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return Likelihood(observation, read_model(path))


def _sample(run: Path, likelihood: Likelihood, seed: int, n_live: int, progress: bool) -> Posterior:
    from biro.inference.samplers.sampling import sample

    facts = {"observation": str((run.parent / "demo.ms").absolute()), "reading": {}}
    return sample(
        likelihood,
        "dynesty",
        run_dir=run,
        seed=seed,
        progress=progress,
        facts=facts,
        n_live=n_live,
        dlogz=0.1,
    )


def _report(folder: Path, posterior: Posterior, likelihood: Likelihood, comparison: Comparison) -> Path:
    from biro.plots.report import write_report
    from biro.plots.standard import standard_pictures

    plain_pictures()
    pictures = standard_pictures(posterior, likelihood, truth=TRUTH)
    return write_report(
        folder, posterior, likelihood, title="biro demo", comparison=comparison, pictures=pictures
    )
