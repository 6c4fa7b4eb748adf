"""Measure how long samples of a large image take, and which part of it the gridder has.

    python benchmarks/image_speed.py [--quick] [--size 1024] [--visibilities 1e6 1e7 1e8]
                                     [--method geovi mgvi] [--output FILE]

A sky drawn from the prior (correlated field) is observed by VLA-B for twelve hours with the visibilities
asked for, with noise a thousandth of the brightest pixel of the dirty image, and `biro.fit_image` takes 8
samples of it; before that, one major cycle is timed alone (with `--method` and nothing, only that). The
device is chosen as for the other programs: on a GPU, both the gridder and JAX are there. The goal is 300 s
for 1024 x 1024 pixels and 1e8 visibilities on an H200. Errors are those of the visibilities of the mean image
against those of the truth, in per cent of the rms of these: scales that no baseline measures do not count.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from common.machine import machine, machine_slug, print_machine
from common.options import make_parser, output_path, parse
from common.results import write
from common.types import Line
from numpy.typing import NDArray

import biro
from biro.image_posterior.field import ImageField
from biro.image_posterior.operator import ImageOperator
from biro.image_posterior.sampling.jax_room import double_precision
from biro.models import ImagePrior, Noise, PointSource, SkyModel
from biro.observation.stokes import PSEUDO_I, form_stokes
from biro.simulation import Channels, Track
from rime_kernels.gridding.gridder import Gridder

GOAL = 300.0
"""Seconds."""
CYCLE = (
    "{n_vis} visibilities, {size} pixels: major cycle {seconds:.2f} s ({gridder_seconds:.2f} s the gridder), "
    "PSF {psf_seconds:.2f} s"
)
FIT = (
    "    {method}: {seconds:.1f} s, gridder {gridder_seconds:.1f} s in {gridder_calls} calls, {iterations} "
    "iterations, chi2/2N {reduced_chi2:.4f}, error {error:.2f} %"
)
N_BASELINE, DYNAMIC_RANGE, PIXELS_OF_BEAM = 351, 1e3, 4.0
Array = NDArray[np.float64]


def observation(n_vis: float) -> biro.Observation:
    """Stokes I of VLA-B at 1.4 GHz over twelve hours, without signal and with weights of 1."""
    n_time = int(np.clip(np.sqrt(n_vis / N_BASELINE) * 2.5, 4, 1440))
    n_chan = max(1, round(n_vis / N_BASELINE / n_time))
    nothing = SkyModel([PointSource("nothing", east="0 arcsec", north="0 arcsec", I="0 Jy")])
    step = 12 * 3600.0 / n_time
    made = biro.simulate(
        "VLA-B", nothing, phase_centre="12h00m00s +60d00m00s", times=Track("2026-03-01", 12 * 3600.0, step),
        channels=Channels(1.4e9, 1e6), noise=1.0, seed=1, progress=False,
    )  # fmt: skip
    (part,), _ = form_stokes(made.partitions, PSEUDO_I)
    width = 2e8 / n_chan
    shape = (part.n_row, n_chan, 1)
    whole = replace(
        part, chan_freq=1.3e9 + width * (0.5 + np.arange(n_chan)), chan_width=np.full(n_chan, width),
        vis=np.zeros(shape, np.complex128), weight=np.ones(shape),
    )  # fmt: skip
    return replace(made, partitions=(whole,))


def observed(empty: biro.Observation, size: int, backend: str) -> tuple[biro.Observation, Array, float]:
    """The observation of a sky with noise, the sky, Jy/pixel, and the width of its pixels, rad."""
    from biro.image_posterior.sampling.sky_priors import CorrelatedField, FieldNumbers

    (part,) = empty.partitions
    longest = float(np.abs(part.uvw[:, :2]).max()) * part.chan_freq[-1] / 299792458.0
    cell = 1.0 / longest / PIXELS_OF_BEAM
    with double_precision():
        prior = CorrelatedField(size, 1.0, numbers=FieldNumbers((2.0, 0.1), (-4.0, 0.1), None))
        xi = np.random.default_rng(2).normal(size=prior.n)
        truth = np.array(prior.image(xi))
    # The field is periodic and its edges are not: leave them empty.
    edge = np.hanning(size) ** 0.5
    truth *= edge * edge[:, None]
    operator = ImageOperator(empty, ImageField(size, cell, part.phase_centre), backend=backend)
    (vis,) = operator.predict(truth[None])
    peak = float(operator.dirty([vis]).max())
    noise = peak / DYNAMIC_RANGE * np.sqrt(vis.size)
    rng, parts = np.random.default_rng(3), vis.view(np.float64)
    step = max(1, 2**24 // vis[0].size)
    for start in range(0, len(vis), step):
        some = parts[start : start + step]
        some += noise * rng.standard_normal(some.shape)
    weight = np.full(vis.shape, noise**-2)
    return replace(empty, partitions=(replace(part, vis=vis, weight=weight),)), truth, cell


@contextmanager
def gridding() -> Iterator[dict[str, float]]:
    """Seconds and calls of gridders while the block runs."""
    spent, before = {"seconds": 0.0, "calls": 0.0}, (Gridder.predict, Gridder.grid)

    def timed(method: object) -> object:
        def call(*args: object, **kwargs: object) -> object:
            began = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                spent["seconds"] += time.perf_counter() - began
                spent["calls"] += 1

        return call

    Gridder.predict, Gridder.grid = map(timed, before)
    try:
        yield spent
    finally:
        Gridder.predict, Gridder.grid = before


def cycle(data: biro.Observation, size: int, cell: float, backend: str) -> Line:
    """The time of a major cycle, residuals of an image gridded, and of the PSF of twice the field."""
    (part,) = data.partitions
    operator = ImageOperator(data, ImageField(size, cell, part.phase_centre), backend=backend)
    image = np.full((1, size, size), 1.0 / size**2)
    operator.adjoint(operator.residuals(operator.predict(image)), weighted=True)  # compiled
    with gridding() as spent:
        began = time.perf_counter()
        model = operator.predict(image)
        operator.chi2(model)
        operator.adjoint(operator.residuals(model), weighted=True)
        seconds = time.perf_counter() - began
    began = time.perf_counter()
    operator.psf  # noqa: B018
    psf_seconds = time.perf_counter() - began
    return {
        "n_vis": part.vis.size, "n_row": part.n_row, "n_chan": part.n_chan, "size": size, "seconds": seconds,
        "gridder_seconds": spent["seconds"], "psf_seconds": psf_seconds, "plan": operator.plan,
    }  # fmt: skip


def fit(
    data: biro.Observation, truth: Array, cell: float, method: str, backend: str, options: dict[str, int]
) -> Line:
    """Fit one observation with a method."""
    (part,), size = data.partitions, len(truth)
    prior = ImagePrior("sky", prior="correlated-field", size=size, cell=f"{np.degrees(cell) * 3600} arcsec")
    sky = SkyModel([], images=[prior], noise=Noise(factor=1.0))
    began = time.perf_counter()
    with gridding() as spent:
        found = biro.fit_image(
            data, sky, backend=backend, method=method, n_samples=8, progress=False, **options
        )
    seconds = time.perf_counter() - began
    line: Line = {"n_vis": part.vis.size, "size": size, "method": method, "seconds": seconds}
    line |= {"gridder_seconds": spent["seconds"], "gridder_calls": int(spent["calls"])}
    line |= {"iterations": len(found.facts["iterations"]), "converged": found.facts["converged"]}
    line |= {"reduced_chi2": float(sum(found.chi2)) / (2 * part.vis.size)}
    operator = ImageOperator(data, ImageField(size, cell, part.phase_centre), backend=backend)
    line |= {"error": error(operator, found.mean[0], truth)}
    line |= {"jax_bytes": jax_bytes(), "reached": seconds <= GOAL}
    line |= {"seconds_of_iterations": [one["seconds"] for one in found.facts["iterations"]]}
    return line | {"remarks": [text.split(":")[0] for text in found.remarks]}


def error(operator: ImageOperator, image: Array, truth: Array) -> float:
    """Rms of the difference of the visibilities of two images over that of the second, per cent."""
    (difference,) = operator.predict((image - truth)[None])
    (expected,) = operator.predict(truth[None])
    return float(100.0 * np.linalg.norm(difference) / np.linalg.norm(expected))


def jax_bytes() -> int | None:
    """The most memory that JAX has had so far on its device; None on a CPU."""
    import jax

    stats = jax.devices()[0].memory_stats()
    return None if stats is None else int(stats["peak_bytes_in_use"])


def main() -> int:
    parser = make_parser(__doc__, device=True)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--visibilities", type=float, nargs="+", default=[1e6, 1e7, 1e8])
    parser.add_argument("--method", nargs="*", choices=("mgvi", "geovi"), default=["mgvi", "geovi"])
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=24)
    args = parse(parser)
    if args.quick:
        args.size, args.visibilities, args.method = 32, [5e3], []
    about, cycles, fits = machine(args.device), [], []
    found = {"device": args.device, "quick": args.quick, "goal_s": GOAL, "machine": about}
    found |= {"cycles": cycles, "fits": fits}
    path = output_path(args, "image_speed", f"{machine_slug(about)}.json")
    print_machine(about)
    for n_vis in args.visibilities:
        data, truth, cell = observed(observation(n_vis), args.size, args.device)
        cycles.append(cycle(data, args.size, cell, args.device))
        print(CYCLE.format(**cycles[-1]), flush=True)
        write(path, found)
        for method in args.method:
            options = {"n_pairs": args.pairs, "n_iterations": args.iterations}
            fits.append(fit(data, truth, cell, method, args.device, options))
            print(FIT.format(**fits[-1]), flush=True)
            write(path, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
