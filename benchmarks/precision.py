"""Compare ln L in single and in double precision on real data sets, within 3 sigma of the maximum.

    python benchmarks/precision.py [--device cpu|cuda] [--quick] [--data shared/data]

For each data set and model: d = ln L (single) - ln L (double) at the maximum and at 400 points about it, half
of them draws of the normal distribution with its curvature, half on the edge of the region that holds 99.7 %
of it. What `precision="auto"` measures and chooses stands beside it.
"""

from __future__ import annotations

import os
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import chi2.cases
import numpy as np
from chi2.whole import observation
from common.options import make_parser, output_path
from common.results import write_lines
from common.types import Line
from numpy.typing import NDArray
from scipy import stats

import biro
from biro.inference.maximum.maximum import Maximum
from biro.likelihood.precision import choose_precision
from biro.models.files.toml import from_toml
from biro.observation.observation import Observation
from rime_kernels import device
from rime_kernels.choices import Backend, Precision

ROOT = Path(__file__).parents[1]
FIXED = "\n[noise]\nfactor = 1\n"
FLUX = """
[[source]]
name = "a"
type = "point"
east = "1 arcmin"
north = "2 arcmin"
I = { prior = "uniform", low = -20, high = 20, unit = "Jy" }
"""
N_POINT, N_QUICK = 400, 4
"""Points at which the precisions are compared."""
M87 = """
[[source]]
name = "ring"
type = "gaussian"
east = "0 uas"
north = "0 uas"
I = { prior = "uniform", low = 0, high = 3, unit = "Jy" }
fwhm = { prior = "uniform", low = 20, high = 80, unit = "uas" }
"""


@dataclass(frozen=True)
class Case:
    """A data set, the model that it is fitted with (in words, and as a file), and its observation."""

    data: str
    words: str
    model: str
    observe: Callable[[], Observation]


def real_cases(folder: Path) -> list[Case]:
    """Return the real data sets with their models, the noise fitted and as stated."""
    sys.path.insert(0, str(ROOT / "tests" / "biro"))
    import real

    circular, linear = ("RR", "LL"), ("XX", "YY")
    core = real.CORE_3C273
    j1033 = real.j1033_core("ellipse") + real.j1033_blob("a", -1.0) + real.j1033_blob("b", -3.7)
    models = [
        ("VLA 3C273", "core and knot", "vla_3c273_x", circular, core + real.JET_3C273),
        ("VLA 3C273", "core and two Gaussians", "vla_3c273_x", circular, core + real.TWO_JETS_3C273),
        ("VLBA J1033+6051", "three Gaussians", "vlba_j1033p6051_ku", circular, j1033),
        ("WSRT 3C343.1", "two points", "wsrt_3c343.1", linear, real.WSRT_3C343),
        ("EHT M87", "Gaussian, phases uncalibrated", "SR1_M87", circular, M87),
    ]
    return [
        Case(name, f"{words}, {noise}", text + more, partial(read_archive, folder, archive, corr))
        for name, words, archive, corr, text in models
        for noise, more in (("noise fitted", ""), ("noise as stated", FIXED))
    ]


def read_archive(folder: Path, archive: str, correlations: tuple[str, ...]) -> Observation:
    """Read the Measurement Set in an archive below a folder."""
    (path,) = sorted(folder.rglob(f"{archive}*.tgz"))
    with tempfile.TemporaryDirectory() as unpacked:
        with tarfile.open(path) as file:
            file.extractall(unpacked, filter="data")
        return biro.read_ms(next(Path(unpacked).iterdir()), correlations=correlations)


def quick_case() -> Case:
    """Return a point and noise at three baselines and two times, which needs no reference data."""
    sizes = chi2.cases.Case("quick", n_antenna=3, n_time=2, n_chan=1, n_point=1, polarised=False)
    return Case("three antennas", "a flux", FLUX + FIXED, partial(observation, sizes))


def points(found: Maximum, n: int) -> NDArray[np.float64]:
    """Return the maximum and draws about it; the second half of them are moved to the edge of 3 sigma."""
    theta = found.laplace.draws(np.random.default_rng(1), n)
    size = np.sqrt(np.maximum(-2.0 * found.laplace.log_density(theta), 1e-9))
    edge = np.sqrt(stats.chi2.ppf(0.9973, theta.shape[1]))
    theta[n // 2 :] = found.best_fit + (edge / size[n // 2 :])[:, None] * (theta[n // 2 :] - found.best_fit)
    return np.concatenate([found.best_fit[None], theta])


def measured(case: Case, backend: Backend, n_point: int) -> Line:
    """Compare single with double precision at the maximum of a case and about it; a line of the results."""
    obs, sky = case.observe(), from_toml(case.model)
    double = biro.Likelihood(obs, sky, backend=backend, precision="double")
    single = biro.Likelihood(obs, sky, backend=backend, precision="single")
    # The simulator takes minutes to climb to a maximum.
    climbs_on: Backend = "cpu" if device.simulated() else backend

    def likelihood_of(data: Observation, precision: Precision) -> biro.Likelihood:
        return biro.Likelihood(data, sky, precision=precision, backend=climbs_on)

    found = biro.maximise(likelihood_of(obs, "double"), seed=1)
    theta = points(found, n_point)
    theta = theta[np.isfinite(double.log_prior(theta))]
    difference = single.log_likelihood(theta) - double.log_likelihood(theta)
    choose_precision(obs, likelihood_of)  # compiled
    start = time.perf_counter()
    choice = choose_precision(obs, likelihood_of)
    return {
        "data": case.data,
        "model": case.words,
        "n_param": double.n_param,
        "n_vis": int(double.n_vis.sum()),
        "n_point": len(theta),
        "forms": [each.description()["form"][0] for each in (single, double)],
        "reduced_chi2": float(found.chi2.sum() / (2.0 * found.n_vis.sum())),
        "at_maximum": float(difference[0]),
        "largest": float(np.abs(difference - difference[0]).max()),
        "auto": choice.precision,
        "auto_difference": choice.difference,
        "auto_seconds": round(time.perf_counter() - start, 3),
    }


def shown(line: Line) -> str:
    words = f"{line['data']:16} {line['model']:46} {line['n_vis']:7} visibilities"
    return f"{words}  at most {line['largest']:.2g}  auto: {line['auto']} ({line['auto_difference']:.2g})"


def main() -> int:
    parser = make_parser(__doc__, device=True)
    folder = os.environ.get("BIRO_TEST_DATA")
    parser.add_argument(
        "--data", type=Path, default=Path(folder) if folder else ROOT.parent / "shared" / "data"
    )
    args = parser.parse_args()

    def lines() -> Iterator[Line]:
        for case in [quick_case()] if args.quick else real_cases(args.data):
            yield measured(case, args.device, N_QUICK if args.quick else N_POINT)

    output = output_path(args, "trust", f"precision_{args.device}.jsonl")
    write_lines(output, {"device": args.device}, lines(), shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
