"""Whether errors of sampled images hold what they claim: skies drawn from the prior, observed and fitted.

    python benchmarks/image_calibration.py [--skies 50] [--size 32] [--coverage VLA EHT] [--method hmc]
                                           [--workers N] [--time-limit S] [--quick] [--output FILE]

Each sky is drawn from the prior that the fit assumes (correlated field: spectrum, flux and pixels are drawn),
observed with 600 to 700 visibilities of a VLA-like or EHT-like coverage with noise of 1/30 of the median
flux, and sampled. What should hold: 68.3 % of pixels (ln I), of fluxes of 16 square regions, of the power
spectrum of ln I at 4 scales and of the numbers of the spectrum lie within the central interval of that
probability; pulls have mean 0; chi2/2N averaged over the samples is 1. "Determined" pixels have an error of
ln I below 0.5.
Errors are those between skies. Results go to FILE (benchmarks/results/image_calibration/MACHINE.json).
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from common.machine import machine, machine_slug
from common.options import output_path, parse
from common.processes import each_in_turn, make_pool_parser, one_thread_each
from common.results import write
from common.tables import markdown_table
from numpy.typing import NDArray
from scipy import stats

import biro
from biro.image_posterior.field import choose_field
from biro.image_posterior.operator import ImageOperator, with_data
from biro.image_posterior.sampling.jax_room import double_precision
from biro.models import PointSource, SkyModel
from biro.observation.stokes import PSEUDO_I, form_stokes
from biro.simulation import Channels, Track
from biro.simulation.telescopes import Telescope

Array = NDArray[np.float64]
# Stations of the Event Horizon Telescope, ITRF in metres, rounded to 100 m.
STATIONS = {
    "ALMA": (2225100, -5440100, -2481700),
    "SMT": (-1828800, -5054400, 3427900),
    "LMT": (-768700, -5988500, 2063300),
    "JCMT": (-5464600, -2493000, 2150700),
    "PV": (5088800, -301700, 3825000),
    "PDB": (4524000, 468000, 4460300),
    "KP": (-1995700, -5037300, 3357300),
    "GLT": (1500700, -1191800, 6066400),
}
NOISE, SCALES = 1.0 / 30.0, (1, 2, 4, 8)
INSIDE = float(stats.norm.cdf(1.0) - stats.norm.cdf(-1.0))
DETERMINED = 0.5
NOTHING = SkyModel([PointSource("nothing", east="0 arcsec", north="0 arcsec", I="0 Jy")])


def observed(coverage: str) -> biro.Observation:
    """Stokes I of a coverage: 702 rows (VLA, two times) or 616 (EHT, a day)."""
    if coverage == "VLA":
        times, freq = Track("2026-03-01", 4 * 3600.0, 7200.0), 1.4e9
        telescope: Any = "VLA-C"
        centre = "12h00m00s +40d00m00s"
    else:
        places = np.array(list(STATIONS.values()), float)
        telescope = Telescope("EHT", tuple(STATIONS), places, np.full(len(STATIONS), 20.0))
        times, freq, centre = Track("2026-03-01T00:00", 86400.0, 1800.0), 230e9, "12h30m49s +12d23m28s"
    made = biro.simulate(
        telescope, NOTHING, phase_centre=centre, times=times, channels=Channels(freq, 1e6), noise=1.0, seed=1,
        elevation_limit=15.0, progress=False,
    )  # fmt: skip
    parts, _ = form_stokes(made.partitions, PSEUDO_I)
    return replace(made, partitions=tuple(parts))


class Coverage:
    """A coverage with all that is compiled once.

    Parameters
    ----------
    name : "VLA" or "EHT"
    size : int
    """

    def __init__(self, name: str, size: int) -> None:
        from biro.image_posterior.sampling.compact import CompactModel, find_modes
        from biro.image_posterior.sampling.jax_operator import UsedData
        from biro.image_posterior.sampling.sky_priors import CorrelatedField

        observation = observed(name)
        operator = ImageOperator(observation, choose_field(observation, size=size))
        weights = [np.where(w > 0, NOISE**-2, 0.0) for w in operator.weights]
        self.operator, self.prior = with_data(operator, operator.data, weights), CorrelatedField(size, 1.0)
        modes = find_modes(self.operator, UsedData(weights), 10.0)
        if modes is None:
            raise SystemExit(f"{name}, {size} x {size}: too many modes for chains; give a smaller --size")
        self.model = CompactModel(self.operator, self.prior, modes)

    def drawn(self, rng: np.random.Generator) -> tuple[Array, list[NDArray[np.complexfloating]]]:
        """Numbers of a sky of the prior, and its noisy visibilities, complex (n_row, n_chan, 1), Jy."""
        xi = rng.normal(size=self.prior.n)
        vis = self.operator.predict(np.asarray(self.prior.image(xi))[None])
        noisy = [v + NOISE * (rng.normal(size=v.shape) + 1j * rng.normal(size=v.shape)) for v in vis]
        return xi, noisy


@cache
def coverage_of(name: str, size: int) -> Coverage:
    return Coverage(name, size)


def fitted(case: tuple[str, int], size: int, options: dict[str, Any]) -> dict[str, Any]:
    """Draw a sky, fit it, and compare: a line of the results."""
    with double_precision():
        return _fitted(case, size, options)


def _fitted(case: tuple[str, int], size: int, options: dict[str, Any]) -> dict[str, Any]:
    import jax

    from biro.image_posterior.sampling.chains import sample_chains
    from biro.image_posterior.sampling.draws import Settings
    from biro.image_posterior.sampling.variational import sample

    (name, seed), began = case, time.perf_counter()
    made, rng = coverage_of(name, size), np.random.default_rng([seed, ord(name[0])])
    xi, noisy = made.drawn(rng)
    made.model.take_data(noisy)
    start, settings = 0.1 * rng.normal(size=made.model.n), Settings(seed=seed, **options)
    run = sample_chains if settings.method == "hmc" else sample
    found = run(made.model, start, settings)
    of_samples, of_truth = (_quantities(made, at) for at in (found.samples, xi[None]))
    pulls = {key: pulls_of(values, of_truth[key][0]) for key, values in of_samples.items()}
    determined = of_samples["pixels"].std(axis=0) < DETERMINED
    pulls["determined pixels"] = pulls["pixels"][determined]
    energies = np.asarray(jax.lax.map(made.model.likelihood(), found.samples))
    return {
        "coverage": name,
        "seed": seed,
        "inside": {
            key: float(np.mean(np.abs(value) < 1.0)) if value.size else None for key, value in pulls.items()
        },
        "rms_pull": {key: rms(value) if value.size else None for key, value in pulls.items()},
        "mean_pull": {key: float(np.mean(value)) if value.size else None for key, value in pulls.items()},
        "chi2": float(energies.mean()) / made.model.n_data,
        "chi2_of_truth": float(made.model.likelihood()(xi)) / made.model.n_data,
        "converged": bool(found.converged),
        "r_hat": getattr(found, "r_hat", None),
        "effective": getattr(found, "effective", None),
        "steps": found.blocks[-1].steps if settings.method == "hmc" else len(found.iterations),
        "seconds": round(time.perf_counter() - began, 1),
    }


def _quantities(made: Coverage, states: Any) -> dict[str, Array]:
    """What is compared, of states (n, n_numbers)."""
    import jax

    images = np.asarray(jax.lax.map(made.prior.image, states))
    spectra = np.asarray(jax.lax.map(made.prior.spectrum, states))
    n, size = len(images), images.shape[-1]
    regions = images.reshape(n, 4, size // 4, 4, size // 4).sum(axis=(2, 4)).reshape(n, -1)
    at = np.searchsorted(made.prior.wavenumbers, SCALES)
    log_images = np.log(images).reshape(n, -1)
    return {
        "pixels": log_images,
        "regions": np.log(regions),
        "total flux": np.log(images.sum(axis=(1, 2)))[:, None],
        "spectrum": np.log(spectra[:, at]),
        "flexibility, sd, slope": np.asarray(states)[:, 1:4],
        "sd of ln I": log_images.std(axis=1)[:, None],
    }


def pulls_of(samples: Array, truth: Array) -> Array:
    """Pulls of a normal distribution that has the truth at the same place among the samples, by its rank."""
    below = (samples < truth).mean(axis=0)
    half = 0.5 / len(samples)
    return np.asarray(stats.norm.ppf(np.clip(below, half, 1.0 - half)))


def rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Means of all skies of a coverage with their errors."""
    found: dict[str, Any] = {}
    for name in sorted({line["coverage"] for line in lines}):
        own = [line for line in lines if line["coverage"] == name]
        made: dict[str, Any] = {"skies": len(own), "converged": sum(line["converged"] for line in own)}
        for what in ("inside", "rms_pull", "mean_pull"):
            values = {
                key: [line[what][key] for line in own if line[what][key] is not None] for key in own[0][what]
            }
            made[what] = {key: _with_error(some) for key, some in values.items() if some}
        for what in ("chi2", "chi2_of_truth", "seconds"):
            made[what] = _with_error([line[what] for line in own])
        found[name] = made
    return found


def _with_error(values: list[float]) -> list[float]:
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
    return [round(float(np.mean(values)), 5), round(error, 5)]


def table(found: dict[str, Any]) -> str:
    """The summary as a table."""
    rows = []
    for name, own in found.items():
        rows += [
            [name, key, f"{100 * inside[0]:.1f} +- {100 * inside[1]:.1f} %"]
            + [f"{own[what][key][0]:.3f} +- {own[what][key][1]:.3f}" for what in ("rms_pull", "mean_pull")]
            for key, inside in own["inside"].items()
        ]
        rows.append([name, "chi2/2N", f"{own['chi2'][0]:.3f} +- {own['chi2'][1]:.3f}", "", ""])
        rows.append([name, "converged", f"{own['converged']} of {own['skies']}", "", ""])
    return markdown_table(
        ["coverage", "quantity", f"inside ({100 * INSIDE:.1f} %)", "rms pull", "mean pull"], rows
    )


def main() -> int:
    parser = make_pool_parser(__doc__)
    parser.add_argument("--skies", type=int, default=50)
    parser.add_argument("--first", type=int, default=1, help="seed of the first sky")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--coverage", nargs="+", choices=("VLA", "EHT"), default=["VLA", "EHT"])
    parser.add_argument("--method", choices=("hmc", "geovi", "mgvi"), default="hmc")
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--steps", type=int, default=3200)
    args = parse(parser)
    if args.quick:
        args.skies, args.size, args.coverage, args.steps, args.workers = 1, 16, ["EHT"], 100, 1
    if args.workers > 1:
        one_thread_each()
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    options = {"method": args.method, "n_samples": args.samples}
    options |= {"n_steps": args.steps} if args.method == "hmc" else {}
    seeds = range(args.first, args.first + args.skies)
    cases = [(name, seed) for seed in seeds for name in args.coverage]
    path = output_path(args, "image_calibration", f"{machine_slug(machine('cpu'))}.json")
    about = {"machine": machine("cpu"), "options": {key: str(value) for key, value in vars(args).items()}}
    function, lines = partial(fitted, size=args.size, options=options), []
    for line in each_in_turn(function, cases, args.workers, args.time_limit):
        lines.append(line)
        print(json.dumps(line), flush=True)
        write(path, about | {"summary": summary(lines), "lines": lines})
    print(table(summary(lines)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
