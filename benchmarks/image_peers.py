"""Compare samples of an image with those of NIFTy on the w-gridder of ducc0, for the same data and prior.

    python benchmarks/image_peers.py [--quick] [--size 64] [--times 30] [--method mgvi] [--output FILE]

VLA-C observes a sky drawn from the prior (correlated field), with a signal-to-noise ratio of 30 on the
strongest visibility. NIFTy's algorithm is the same in all lines, with the same random numbers; what
differs is where model visibilities come from:

    biro            biro's gridder, as `biro.fit_image` takes it for small data
    biro, PSF       the convolution with the PSF, as for large data
    NIFTy, ducc0    ducc0's w-gridder through jaxbind

Seconds are those of the CPU, with compilation of programs of JAX but without that of biro's kernels, which
is kept. Means are compared with those of biro, in standard deviations of the samples; a quick run compares
gradients of ln L alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from common.machine import machine, machine_slug, print_machine
from common.options import make_parser, output_path, parse
from common.results import write
from common.types import Line
from numpy.typing import NDArray

import biro
from biro.image_posterior.field import choose_field
from biro.image_posterior.operator import ImageOperator, with_data
from biro.image_posterior.sampling.jax_room import double_precision
from biro.models import PointSource, SkyModel
from biro.observation.stokes import PSEUDO_I, form_stokes
from biro.simulation import Channels, Track

Array = NDArray[np.float64]
TEXT = "{model:14}{n_vis:8}{gradient_s:12.4f}{apart:10.2g}"
SAMPLED = "{seconds:8.1f}{iterations:7}{reduced_chi2:9.4f}{sd_ratio:7.3f}"
SNR, ACCURACY = 30.0, 1e-6
NOTHING = SkyModel([PointSource("nothing", east="0 arcsec", north="0 arcsec", I="0 Jy")])


def operator_of(size: int, n_time: int) -> ImageOperator:
    """The rows of VLA-C and the pixels; data have no signal."""
    made = biro.simulate(
        "VLA-C", NOTHING, phase_centre="12h00m00s +40d00m00s",
        times=Track("2026-03-01", 6 * 3600.0, 6 * 3600.0 / n_time), channels=Channels(1.4e9, 1e6),
        noise=1.0, seed=1, progress=False,
    )  # fmt: skip
    parts, _ = form_stokes(made.partitions, PSEUDO_I)
    one = replace(made, partitions=tuple(parts))
    return ImageOperator(one, choose_field(one, size=size), backend="cpu", accuracy=ACCURACY)


def by_ducc(operator: ImageOperator, places: Sequence[NDArray[np.bool_]]) -> Callable[[Any], Any]:
    """R of one partition as a function of JAX, as `jax_operator.visibility_function` is, by ducc0."""
    import jaxbind
    from ducc0 import wgridder

    (part,), (place,), n = operator.observation.partitions, places, operator.field.size
    # ducc0's exponents are negative, and the first axis of its images is x: l = -(x - N/2) cell here.
    shared = {
        "uvw": part.uvw * [1.0, -1.0, 1.0], "freq": part.chan_freq, "pixsize_x": operator.field.cell,
        "pixsize_y": operator.field.cell, "epsilon": ACCURACY, "do_wgridding": True, "divide_by_n": False,
        "nthreads": 2,
    }  # fmt: skip

    def predict(out: Sequence[Array], given: Sequence[Array], _: Any) -> None:
        vis = wgridder.dirty2vis(dirty=np.ascontiguousarray(given[0].T), **shared)[place[..., 0]]
        out[0][0], out[0][1] = vis.real, vis.imag

    def adjoint(out: Sequence[Array], given: Sequence[Array], _: Any) -> None:
        vis = np.zeros(place.shape[:2], np.complex128)
        vis[place[..., 0]] = given[0][0] + 1j * given[0][1]
        out[0][:] = wgridder.vis2dirty(vis=vis, npix_x=n, npix_y=n, **shared).T

    n_used, real = int(place.sum()), np.dtype(np.float64)
    call = jaxbind.get_linear_call(
        predict, adjoint, lambda *_: (((2, n_used), real),), lambda *_: (((n, n), real),)
    )
    return lambda image: call(image)[0]


def models(operator: ImageOperator, prior: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names, and what makes each model."""
    from biro.image_posterior.sampling.models.convolved_model import ConvolvedModel
    from biro.image_posterior.sampling.models.visibility_model import VisibilityModel

    def of_ducc() -> VisibilityModel:
        made = VisibilityModel(operator, prior)
        made.predict = by_ducc(operator, made.used.places)
        return made

    yield "biro", lambda: VisibilityModel(operator, prior)
    yield "biro, PSF", lambda: ConvolvedModel(operator, prior)
    yield "NIFTy, ducc0", of_ducc


def compared(size: int, n_time: int, settings: dict[str, Any] | None) -> Iterator[Line]:
    """A line for each model; without settings of gradients alone."""
    import jax

    from biro.image_posterior.sampling.draws import Settings
    from biro.image_posterior.sampling.sky_priors import CorrelatedField
    from biro.image_posterior.sampling.variational import sample

    empty, rng = operator_of(size, n_time), np.random.default_rng(1)
    prior = CorrelatedField(size, 1.0)
    truth = np.asarray(prior.image(rng.normal(size=prior.n)))
    (vis,) = empty.predict(truth[None])
    noise = float(np.abs(vis).max()) / SNR
    noisy = vis + noise * (rng.normal(size=vis.shape) + 1j * rng.normal(size=vis.shape))
    operator = with_data(empty, [noisy], [np.where(empty.weights[0] > 0, noise**-2, 0.0)])
    start, first = 0.1 * rng.normal(size=prior.n), None
    for name, make in models(operator, prior):
        try:
            model = make()
        except ImportError as error:
            yield {"model": name, "left_out": str(error)}
            continue
        call = jax.jit(jax.value_and_grad(lambda xi, model=model: model.likelihood()(xi)))
        gradient = np.asarray(call(start)[1])
        began = time.process_time()
        for _ in range(3):
            call(start)[1].block_until_ready()
        line: Line = {"model": name, "n_vis": model.n_data, "size": size}
        line |= {"gradient_s": (time.process_time() - began) / 3}
        if settings is None:
            first = gradient if first is None else first
            yield line | {"apart": float(np.linalg.norm(gradient - first) / np.linalg.norm(first))}
            continue
        began, between = time.process_time(), getattr(model, "major_cycle", None)
        if between is not None:
            between(start)
        found = sample(model, start, Settings(seed=3, **settings), between=between)
        seconds = time.process_time() - began
        images = np.log(np.asarray(jax.vmap(prior.image)(found.samples)))
        first = first or (images.mean(axis=0), images.std(axis=0))
        yield line | {
            "seconds": seconds, "iterations": len(found.iterations),
            "reduced_chi2": found.iterations[-1].reduced_chi2,
            "apart": float(np.sqrt(np.mean(((images.mean(axis=0) - first[0]) / first[1]) ** 2))),
            "sd_ratio": float(np.mean(images.std(axis=0) / first[1])),
        }  # fmt: skip


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--method", choices=("mgvi", "geovi"), default="mgvi")
    parser.add_argument("--iterations", type=int, default=6)
    args = parse(parser)
    settings = {"method": args.method, "n_samples": 8, "n_pairs": 4, "n_iterations": args.iterations}
    if args.quick:
        args.size, args.times, settings = 16, 1, None
    about, lines = machine("cpu"), []
    print_machine(about)
    head = f"{'model':14}{'n_vis':>8}{'gradient s':>12}{'apart':>10}"
    print(head + (f"{'CPU s':>8}{'moves':>7}{'chi2/2N':>9}{'sd':>7}" if settings else ""))
    with double_precision():
        for line in compared(args.size, args.times, settings):
            lines.append(line)
            if "left_out" in line:
                print(f"{line['model']:14} left out: {line['left_out']}")
            else:
                print(TEXT.format(**line) + (SAMPLED.format(**line) if settings else ""), flush=True)
            found = {"quick": args.quick, "machine": about, "settings": settings, "models": lines}
            write(output_path(args, "image_peers", f"{machine_slug(about)}.json"), found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
