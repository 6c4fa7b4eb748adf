"""Whether samples of images hold what they claim: skies drawn from the prior, observed and fitted.

    python benchmarks/image_posterior.py [--skies 50] [--size 32] [--coverage VLA EHT] [--method geovi]
                                         [--quick] [--output FILE]

Each sky is drawn from the prior that the fit assumes (correlated field: spectrum, flux and pixels are drawn),
observed with a few hundred visibilities of a VLA-like or EHT-like coverage with a signal-to-noise ratio of 30
on the strongest, and sampled. What should hold: 68 % of pixels (ln I), of fluxes of 16 square regions, and of
the power spectrum of ln I at 5 scales lie within one standard deviation (of Student's t, for the number of
samples), and chi2/2N is 1. Results go to FILE (benchmarks/results/image_posterior/MACHINE.json).
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace

import numpy as np
from common.machine import machine, machine_slug
from common.options import make_parser, output_path
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
SNR, SCALES = 30.0, (1, 2, 4, 8)
NOTHING = SkyModel([PointSource("nothing", east="0 arcsec", north="0 arcsec", I="0 Jy")])


def observed(coverage: str) -> biro.Observation:
    """Rows of a coverage: 702 (VLA, two times) or a few hundred (EHT)."""
    if coverage == "VLA":
        times, freq = Track("2026-03-01T18:00", 4 * 3600.0, 7200.0), 1.4e9
        telescope, centre = "VLA-C", "12h00m00s +40d00m00s"
    else:
        telescope = Telescope(
            "EHT", tuple(STATIONS), np.array(list(STATIONS.values()), float), np.full(len(STATIONS), 20.0)
        )
        times, freq, centre = Track("2026-03-01T00:00", 86400.0, 1800.0), 230e9, "12h30m49s +12d23m28s"
    return biro.simulate(
        telescope, NOTHING, phase_centre=centre, times=times, channels=Channels(freq, 1e6), noise=1.0, seed=1,
        elevation_limit=np.deg2rad(15.0), progress=False,
    )  # fmt: skip


def stokes_i(observation: biro.Observation) -> biro.Observation:
    """Stokes I alone, as images are fitted to."""
    parts, _ = form_stokes(observation.partitions, PSEUDO_I)
    return replace(observation, partitions=tuple(parts))


class Coverage:
    """A coverage with all that is compiled once.

    Parameters
    ----------
    name : "VLA" or "EHT"
    size : int
    """

    def __init__(self, name: str, size: int) -> None:
        from biro.image_posterior.sampling.sky_priors import CorrelatedField

        self.name, self.size = name, size
        observation = stokes_i(observed(name))
        self.operator = ImageOperator(observation, choose_field(observation, size=size))
        self.prior = CorrelatedField(size, 1.0)
        self.model = None

    def one(self, seed: int, settings: dict[str, object]) -> dict[str, object]:
        """Draw a sky, fit it, and compare."""
        import jax

        from biro.image_posterior.sampling.variational import Settings, sample
        from biro.image_posterior.sampling.visibility_model import VisibilityModel

        rng, start = np.random.default_rng(seed), time.perf_counter()
        xi = rng.normal(size=self.prior.n)
        truth = np.asarray(self.prior.image(xi))
        vis = self.operator.predict(truth[None])
        # The model is that of unit noise, so that the sky is what differs: its flux is in units of it.
        strongest = max(float(np.abs(v).max()) for v in vis)
        if self.model is None:
            self.noise = strongest / SNR
            weights = [np.where(w > 0, self.noise**-2, 0.0) for w in self.operator.weights]
            self.model = VisibilityModel(with_data(self.operator, vis, weights), self.prior)
        noisy = [v + self.noise * (rng.normal(size=v.shape) + 1j * rng.normal(size=v.shape)) for v in vis]
        self.model.take_data(noisy)
        found = sample(self.model, 0.1 * rng.normal(size=self.model.n), Settings(seed=seed, **settings))
        images = np.asarray(jax.vmap(self.prior.image)(found.samples))
        spectra = np.asarray(jax.vmap(self.prior.spectrum)(found.samples))
        true_spectrum = np.asarray(self.prior.spectrum(xi))
        at = np.searchsorted(self.prior.wavenumbers, SCALES)
        pulls = {
            "pixels": pulls_of(np.log(images), np.log(truth)),
            "regions": pulls_of(np.log(regions(images)), np.log(regions(truth[None])[0])),
            "spectrum": pulls_of(np.log(spectra[:, at]), np.log(true_spectrum[at])),
        }
        limit = stats.t.ppf(stats.norm.cdf(1.0), len(images) // 2)
        model = self.model.operator.predict(images.mean(axis=0)[None])
        chi2 = (
            sum(float((np.abs(d - m) ** 2).sum()) for d, m in zip(noisy, model, strict=True)) / self.noise**2
        )
        return {
            "coverage": self.name,
            "seed": seed,
            "snr": strongest / self.noise,
            "inside": {key: float(np.mean(np.abs(value) < limit)) for key, value in pulls.items()},
            "rms_pull": {key: float(np.sqrt(np.mean(value**2))) for key, value in pulls.items()},
            "chi2_of_mean": chi2 / (2 * self.model.n_data),
            "chi2_of_samples": found.iterations[-1].reduced_chi2,
            "iterations": len(found.iterations),
            "converged": found.converged,
            "seconds": round(time.perf_counter() - start, 1),
        }


def regions(images: Array) -> Array:
    """Fluxes of 4 x 4 squares of each image."""
    n, size = len(images), images.shape[-1]
    return images.reshape(n, 4, size // 4, 4, size // 4).sum(axis=(2, 4)).reshape(n, -1)


def pulls_of(samples: Array, truth: Array) -> Array:
    """Truth less mean, in standard deviations about the mean, which mirrored samples have by construction."""
    return np.asarray((truth - samples.mean(axis=0)) / samples.std(axis=0))


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--skies", type=int, default=50)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--coverage", nargs="+", choices=("VLA", "EHT"), default=["VLA", "EHT"])
    parser.add_argument("--method", choices=("geovi", "mgvi"), default="geovi")
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=16)
    args = parser.parse_args()
    if args.quick:
        args.skies, args.size, args.coverage, args.samples, args.iterations = 1, 16, ["EHT"], 4, 2
        args.method = "mgvi"
    settings = {"method": args.method, "n_samples": args.samples, "n_iterations": args.iterations}
    lines, path = [], output_path(args, "image_posterior", f"{machine_slug(machine('cpu'))}.json")
    with double_precision():
        for name in args.coverage:
            coverage = Coverage(name, args.size)
            for seed in range(1, args.skies + 1):
                lines.append(coverage.one(seed, settings))
                print(json.dumps(lines[-1]), flush=True)
                write(path, args, lines)
    return 0


def write(path: object, args: object, lines: list[dict[str, object]]) -> None:
    """Write what there is so far."""
    summary = {}
    for name in dict.fromkeys(line["coverage"] for line in lines):
        own = [line for line in lines if line["coverage"] == name]
        summary[name] = {
            key: {kind: float(np.mean([line[key][kind] for line in own])) for kind in own[0][key]}
            for key in ("inside", "rms_pull")
        } | {key: float(np.mean([line[key] for line in own])) for key in ("chi2_of_samples", "chi2_of_mean")}
    made = {
        "machine": machine("cpu"),
        "options": {k: str(v) for k, v in vars(args).items()},
        "summary": summary,
    }
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(made | {"skies": lines}, indent=1) + "\n")
    else:
        print(json.dumps(summary))


if __name__ == "__main__":
    sys.exit(main())
