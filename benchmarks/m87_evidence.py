"""Compare the evidences of a ring, a crescent, a disc and two Gaussians for one day of the EHT's data of M87.

    python benchmarks/m87_evidence.py [--data FOLDER] [--average-time '2 min'] [--seeds 2] [--n-live 200]
                                      [--only NAME ...] [--systematic 0.02] [--quick] [--output FILE]

Closures of SR1_M87_2017_100_lo_hops_netcal_StokesI.uvfits (10 April 2017), averaged, with a systematic error
of each amplitude beside the noise, sampled by dynesty. Every model has a Gaussian of 10 mas besides, which
only stations at one place see, and a flux and a place that are fixed, since closures see neither. For each
model: ln Z; chi2/N at the highest likelihood found; and for rings the diameter and the real part of beta_1,
which is negative where the south is brighter. Figures are means over the seeds, with the larger of a run's
own error and half the difference between runs, for dynesty knows of its own modes alone. A quick run has
data that are simulated from a ring in place of those of M87, and evidences that are worth nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from common.options import make_parser, output_path
from common.results import write_lines
from common.tables import markdown_table
from common.types import Line, Options

from biro.inference.posterior.posterior import Posterior
from biro.inference.samplers.sampling import sample
from biro.io.reading import read
from biro.likelihood.likelihood import Likelihood
from biro.models.files.toml import from_toml
from biro.observation.observation import Observation

FILE = "SR1_M87_2017_100_lo_hops_netcal_StokesI.uvfits"
ROOT = Path(__file__).parents[1]
OPTIONS: Options = {"n_live": 200}
QUICK: Options = {"n_live": 15, "dlogz": 300.0}
"""Of a quick run."""


def uniform(low: float, high: float, unit: str | None = None, kind: str = "uniform") -> str:
    """Return a prior as a model file has it."""
    return f'{{ prior = "{kind}", low = {low}, high = {high}' + (f', unit = "{unit}" }}' if unit else " }")


def source(name: str, kind: str, place: str = '"0 uas"', **keys: str) -> str:
    """Return a source as a model file has it, of 0.5 Jy unless a flux is given."""
    keys = {"I": '"0.5 Jy"'} | keys
    head = f'\n[[source]]\nname = "{name}"\ntype = "{kind}"\neast = {place}\nnorth = {place}\n'
    return head + "".join(f"{key} = {value}\n" for key, value in keys.items())


def ring(n_order: int) -> str:
    """Return a ring whose brightness has this many orders in angle."""
    beta = f"[{', '.join([uniform(-1, 1)] * n_order)}]"
    return source("ring", "m-ring", diameter=uniform(20, 80, "uas"), blur=BLUR, beta_re=beta, beta_im=beta)


def gaussian(name: str, **keys: str) -> str:
    """Return an elliptical Gaussian."""
    size = uniform(5, 100, "uas", "log-uniform")
    return source(name, "gaussian", **keys, emaj=size, ratio=uniform(0.05, 1), pa=uniform(0, 180, "deg"))


BLUR = uniform(1, 40, "uas")
FAINT = uniform(0.005, 1, "Jy", "log-uniform")
LARGE = source("large", "gaussian", I=uniform(0.1, 5, "Jy", "log-uniform"), fwhm='"10 mas"')
KNOT, KNOT_2 = (gaussian(name, place=uniform(-60, 60, "uas"), I=FAINT) for name in ("knot", "knot2"))
CRESCENT = source(
    "crescent",
    "crescent",
    diameter=uniform(20, 120, "uas"),
    blur=BLUR,
    inner_ratio=uniform(0, 1),
    offset=uniform(0, 1),
    floor=uniform(0, 1),
    hole_pa=uniform(0, 360, "deg"),
)
MODELS = {
    "disc": source("disc", "disc", diameter=uniform(20, 120, "uas"), blur=BLUR),
    "two Gaussians": gaussian("first") + KNOT,
    "ring, m = 1": ring(1),
    "crescent": CRESCENT,
    "ring, m = 1, 2": ring(2),
    "three Gaussians": gaussian("first") + KNOT + KNOT_2,
    "crescent and a Gaussian": CRESCENT + KNOT,
    "ring, m = 1, 2, and a Gaussian": ring(2) + KNOT,
}
"""Model files, without the large Gaussian and the noise, which all have."""


def simulated() -> Observation:
    """Return a small set in place of M87: seven stations at random places, which see a ring."""
    rng = np.random.default_rng(1)
    place = rng.uniform(-4e6, 4e6, (7, 3)) * [1, 1, 0]
    p, q = np.triu_indices(7, 1)
    turn = [[[np.cos(a), np.sin(a), 0], [-np.sin(a), np.cos(a), 0], [0, 0, 1]] for a in (0.0, 0.3, 0.6)]
    uvw = np.concatenate((place[p] - place[q]) @ np.array(turn))
    time_s = 5e9 + np.repeat([0.0, 600.0, 1200.0], p.size)
    p, q = np.tile(p, 3), np.tile(q, 3)

    def observed(vis: np.ndarray) -> Observation:
        return Observation.from_arrays(
            vis, uvw, p, q, time_s, np.array([2.27e11]), ["I"], weight=0.005**-2, interval=120.0
        )

    beta = "beta_re = [-0.25]\nbeta_im = [0.1]\n"
    truth = source("ring", "m-ring", diameter='"43 uas"', blur='"10 uas"') + beta
    empty = observed(np.zeros((uvw.shape[0], 1, 1), complex))
    (vis,) = Likelihood(empty, from_toml(truth + "\n[noise]\nfactor = 1\n"), backend="cpu").predict([])
    return observed(vis + 0.005 * (rng.normal(size=vis.shape) + 1j * rng.normal(size=vis.shape)))


def likelihood(observation: Observation, name: str, systematic: float) -> Likelihood:
    """Return the likelihood of closures of a model."""
    noise = f"\n[noise]\nfactor = 1\nsystematic = {systematic}\n"
    return Likelihood(observation, from_toml(MODELS[name] + LARGE + noise), gains="closures", backend="cpu")


def of_ring(posterior: Posterior) -> Line:
    """Return median, lower and upper end of 68 % of the diameter of a ring and of the real part of beta_1."""
    if "ring.diameter" not in posterior.names:
        return {}
    table = posterior.summary()
    side = "ring.beta_re[0]" if "ring.beta_re[0]" in posterior.names else "ring.beta_re"  # of one order
    rows = {"diameter_uas": table["ring.diameter"], "beta_1_re": table[side]}
    return {key: [row.median, row.low_68, row.high_68] for key, row in rows.items()}


def one_run(observation: Observation, name: str, seed: int, systematic: float) -> Line:
    """Sample one model once; a line of the results."""
    target = likelihood(observation, name, systematic)
    start = time.perf_counter()
    posterior = sample(target, "dynesty", seed=seed, progress=False, **OPTIONS)
    return {
        "model": name,
        "seed": seed,
        "n_param": target.n_param,
        "n_data": int(target.n_data.sum()),
        "log_evidence": posterior.log_evidence,
        "error": posterior.log_evidence_err,
        "reduced_chi2": float(target.chi2(posterior.best_fit).sum() / target.n_data.sum()),
        **of_ring(posterior),
        "seconds": round(time.perf_counter() - start, 1),
    }


def shown(line: Line) -> str:
    words = f"{line['model']:34} ln Z {line['log_evidence']:9.2f} +- {line['error']:.2f}"
    return words + f"  chi2/N {line['reduced_chi2']:7.3f}  {line['seconds']:6.1f} s"


def with_error(values: Sequence[float], errors: Sequence[float], digits: int) -> str:
    """Return the mean over runs, and the larger of their errors and of half the difference between them."""
    error = max(*errors, 0.5 * (max(values) - min(values)))
    return f"{np.mean(values):.{digits}f} ± {error:.{digits}f}"


def of_rows(lines: Sequence[Line], key: str, digits: int) -> str:
    """Return a quantity of a ring, or a dash where there is no ring."""
    if key not in lines[0]:
        return "-"
    median, low, high = np.transpose([line[key] for line in lines])
    return with_error(median, 0.5 * (high - low), digits)


def table(lines: Sequence[Line]) -> str:
    """Return the table that the tutorial on M87 has: a row for each model, in the order of the lines."""
    rows = []
    for name in dict.fromkeys(line["model"] for line in lines):
        some = [line for line in lines if line["model"] == name]
        rows.append(
            [
                *(name, str(some[0]["n_param"]), f"{min(line['reduced_chi2'] for line in some):.2f}"),
                with_error([line["log_evidence"] for line in some], [line["error"] for line in some], 1),
                *(of_rows(some, key, digits) for key, digits in (("diameter_uas", 1), ("beta_1_re", 3))),
            ]
        )
    figures = ["parameters", "χ²/N at the maximum", "ln Z", "diameter, µas", "Re β₁"]
    return markdown_table(["sky, with a large Gaussian", *figures], rows)


def arguments() -> argparse.Namespace:
    parser = make_parser(__doc__)
    folder = os.environ.get("BIRO_TEST_DATA")
    default = Path(folder) if folder else ROOT.parent / "shared" / "data"
    parser.add_argument("--data", type=Path, default=default, help=f"folder that has {FILE}")
    parser.add_argument("--average-time", default="2 min")
    parser.add_argument("--systematic", type=float, default=0.02, help="fraction of each amplitude")
    parser.add_argument("--only", nargs="+", choices=list(MODELS), default=list(MODELS), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=2, help="runs of each model")
    parser.add_argument("--n-live", type=int, default=OPTIONS["n_live"], help="live points of dynesty")
    args = parser.parse_args()
    OPTIONS["n_live"] = args.n_live
    if args.quick:
        OPTIONS.update(QUICK)
        args.only, args.seeds = ["ring, m = 1"], 1
    return args


def main() -> int:
    args = arguments()
    observation = simulated() if args.quick else read(args.data / FILE, average_time=args.average_time)
    lines: list[Line] = []

    def runs() -> Iterator[Line]:
        for name in args.only:
            for seed in range(1, args.seeds + 1):
                lines.append(one_run(observation, name, seed, args.systematic))
                yield lines[-1]

    data = "simulated" if args.quick else FILE
    about = {"data": data, "average_time": args.average_time, "systematic": args.systematic, **OPTIONS}
    write_lines(output_path(args, "m87", "evidence.jsonl"), about, runs(), shown)
    print(f"\n{table(lines)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
