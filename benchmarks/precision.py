"""Single against double precision on the real data sets: ln L over the region of 3 sigma about the maximum.

    python benchmarks/precision.py [--device cpu|cuda] [--data shared/data]

For each data set and model: d = ln L (single) - ln L (double) at the maximum and at 400 points about it, half
of them draws of the normal distribution with its curvature, half on the edge of the region that holds 99.7 %
of it. What `precision="auto"` measures and chooses stands beside it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from many import RESULTS, written
from scipy import stats

ROOT = Path(__file__).parents[1]
FIXED = "\n[noise]\nfactor = 1\n"
M87 = """
[[source]]
name = "ring"
type = "gaussian"
east = "0 uas"
north = "0 uas"
I = { prior = "uniform", low = 0, high = 3, unit = "Jy" }
fwhm = { prior = "uniform", low = 20, high = 80, unit = "uas" }
"""


def cases() -> list[tuple[str, str, str, tuple[str, ...], str]]:
    """Name, model in words, archive, correlations, model file."""
    sys.path.insert(0, str(ROOT / "tests" / "biro"))
    import real

    circular, linear = ("RR", "LL"), ("XX", "YY")
    core = real.CORE_3C273
    j1033 = real.j1033_core("ellipse") + real.j1033_blob("a", -1.0) + real.j1033_blob("b", -3.7)
    each = [
        ("VLA 3C273", "core and knot", "vla_3c273_x", circular, core + real.JET_3C273),
        ("VLA 3C273", "core and two Gaussians", "vla_3c273_x", circular, core + real.TWO_JETS_3C273),
        ("VLBA J1033+6051", "three Gaussians", "vlba_j1033p6051_ku", circular, j1033),
        ("WSRT 3C343.1", "two points", "wsrt_3c343.1", linear, real.WSRT_3C343),
        ("EHT M87", "Gaussian, phases uncalibrated", "SR1_M87", circular, M87),
    ]
    return [
        (name, f"{words}, {noise}", archive, corr, text + more)
        for name, words, archive, corr, text in each
        for noise, more in (("noise fitted", ""), ("noise as stated", FIXED))
    ]


def points(found: Any, n: int) -> np.ndarray:
    """The maximum, and draws about it; the second half of them moved to the edge of the region of 3 sigma."""
    theta = found.laplace.draws(np.random.default_rng(1), n)
    size = np.sqrt(np.maximum(-2.0 * found.laplace.log_density(theta), 1e-9))
    edge = np.sqrt(stats.chi2.ppf(0.9973, theta.shape[1]))
    theta[n // 2 :] = found.best_fit + (edge / size[n // 2 :])[:, None] * (theta[n // 2 :] - found.best_fit)
    return np.concatenate([found.best_fit[None], theta])


def measured(case: tuple[str, str, str, tuple[str, ...], str], args: argparse.Namespace) -> dict[str, Any]:
    import biro
    from biro.likelihood.precision import choose
    from biro.models.files.toml import from_toml

    name, words, archive, corr, text = case
    with tempfile.TemporaryDirectory() as folder:
        (path,) = sorted(args.data.rglob(f"{archive}*.tgz"))
        with tarfile.open(path) as file:
            file.extractall(folder, filter="data")
        obs = biro.read_ms(next(Path(folder).iterdir()), correlations=corr)
    sky, options = from_toml(text), {"backend": args.device}
    double, single = (biro.Likelihood(obs, sky, precision=each, **options) for each in ("double", "single"))
    found = biro.maximise(double, seed=1)
    theta = points(found, 400)
    theta = theta[np.isfinite(double.log_prior(theta))]
    difference = single.log_likelihood(theta) - double.log_likelihood(theta)
    choose(obs, sky, options)  # compiled
    start = time.perf_counter()
    choice = choose(obs, sky, options)
    return {
        "data": name,
        "model": words,
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


def shown(line: dict[str, Any]) -> str:
    words = f"{line['data']:16} {line['model']:46} {line['n_vis']:7} visibilities"
    return f"{words}  at most {line['largest']:.2g}  auto: {line['auto']} ({line['auto_difference']:.2g})"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    given = os.environ.get("BIRO_TEST_DATA")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument(
        "--data", type=Path, default=Path(given) if given else ROOT.parent / "shared" / "data"
    )
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    output = args.output or RESULTS / f"precision_{args.device}.jsonl"

    def lines() -> Iterator[dict[str, Any]]:
        for case in cases():
            yield measured(case, args)

    written(output, {"device": args.device}, lines(), shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
