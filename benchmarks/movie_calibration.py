"""Whether errors of movies hold what they claim: changing skies drawn from the prior, observed and fitted.

    python benchmarks/movie_calibration.py [--skies 12] [--size 16] [--frames 4] [--method hmc] [--still]
                                           [--time-limit S] [--quick] [--output FILE]

Each sky is drawn from the prior that the fit assumes (correlated field of space and time), observed with the
616 visibilities of an EHT-like day with noise of 1/30 of the median flux, and sampled. With --still the sky
is drawn without changes. What should hold: 68.3 % of pixels of all frames (ln I), of their total fluxes, of
the changes of these from the mean of all frames, and of the sd and slope in time lie within the central
interval of that probability; chi2/2N averaged over the samples is 1. The significance of changes should be
below 3 for skies without changes. Errors are those between skies. Results go to FILE
(benchmarks/results/movie_calibration/MACHINE.json).
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
from common.machine import machine, machine_slug
from common.options import output_path, parse
from common.processes import make_pool_parser
from common.results import write
from image_calibration import NOISE, Array, observed, pulls_of, rms, summary, table

from biro.image_posterior.field import choose_field
from biro.image_posterior.frames import FramesOperator, choose_frames
from biro.image_posterior.operator import with_data
from biro.image_posterior.sampling.jax_room import double_precision
from biro.models import ImagePrior


class Day:
    """A day of the EHT with all that is compiled once.

    Parameters
    ----------
    size : int
    n_frame : int
    """

    def __init__(self, size: int, n_frame: int) -> None:
        from biro.image_posterior.sampling.compact import CompactModel, find_modes
        from biro.image_posterior.sampling.jax_operator import UsedData
        from biro.image_posterior.sampling.movie_prior import MovieField
        from biro.image_posterior.sampling.sky_priors import CorrelatedField

        observation = observed("EHT")
        times = choose_frames(observation, ImagePrior("x", prior="correlated-field", frames=n_frame))
        if times is None:
            raise SystemExit("--frames: give 2 or more")
        operator = FramesOperator(observation, choose_field(observation, size=size), times)
        weights = [np.where(w > 0, NOISE**-2, 0.0) for w in operator.weights]
        self.operator = with_data(operator, operator.data, weights)
        self.prior = MovieField(CorrelatedField(size, 1.0), size, n_frame)
        modes = find_modes(self.operator, UsedData(weights), 10.0)
        if modes is None:
            raise SystemExit("too many modes for chains; give a smaller --size or fewer --frames")
        self.model = CompactModel(self.operator, self.prior, modes)


def fitted(day: Day, seed: int, options: dict[str, Any], *, is_still: bool) -> dict[str, Any]:
    """Draw a sky, fit it, and compare: a line of the results."""
    import jax

    from biro.image_posterior.sampling.chains import ChainDraws, sample_chains
    from biro.image_posterior.sampling.draws import Settings
    from biro.image_posterior.sampling.movie_result import significance
    from biro.image_posterior.sampling.variational import sample

    began, rng = time.perf_counter(), np.random.default_rng([seed, 77])
    xi = rng.normal(size=day.prior.n)
    if is_still:
        xi[day.prior.still.n + 2 :] = 0.0
    vis = day.operator.predict(np.asarray(day.prior.image(xi))[:, None])
    noisy = [v + NOISE * (rng.normal(size=v.shape) + 1j * rng.normal(size=v.shape)) for v in vis]
    day.model.take_data(noisy)
    settings = Settings(seed=seed, **options)
    run = sample_chains if settings.method == "hmc" else sample
    found = run(day.model, 0.1 * rng.normal(size=day.prior.n), settings)
    of_samples, of_truth = (_quantities(day, at) for at in (found.samples, xi[None]))
    pulls = {key: pulls_of(values, of_truth[key][0]) for key, values in of_samples.items()}
    if is_still:
        del pulls["sd, slope in time"]  # which the sky does not have
    name = "sd, slope in time"
    images = np.asarray(jax.lax.map(day.prior.image, found.samples[:: max(1, len(found.samples) // 64)]))
    energies = np.asarray(jax.lax.map(day.model.likelihood(), found.samples))
    return {
        "coverage": "EHT, still" if is_still else "EHT",
        "seed": seed,
        "inside": {key: float(np.mean(np.abs(value) < 1.0)) for key, value in pulls.items()},
        "rms_pull": {key: rms(value) for key, value in pulls.items()},
        "mean_pull": {key: float(np.mean(value)) for key, value in pulls.items()},
        "significance": significance(day.operator, images),
        "sd_in_time": [float(of_samples[name][:, 0].mean()), float(of_truth[name][0, 0])],
        "chi2": float(energies.mean()) / day.model.n_data,
        "chi2_of_truth": float(day.model.likelihood()(xi)) / day.model.n_data,
        "converged": bool(found.converged),
        "steps": found.blocks[-1].steps if isinstance(found, ChainDraws) else len(found.iterations),
        "seconds": round(time.perf_counter() - began, 1),
    }


def _quantities(day: Day, states: Any) -> dict[str, Array]:
    """What is compared, of states (n, n_numbers)."""
    import jax

    images = np.asarray(jax.lax.map(day.prior.image, states))
    fluxes = np.log(images.sum(axis=(2, 3)))
    return {
        "pixels": np.log(images).reshape(len(images), -1),
        "flux of frames": fluxes,
        "change of flux": fluxes - fluxes.mean(axis=1, keepdims=True),
        "sd, slope in time": np.asarray(jax.vmap(day.prior.time_numbers)(states)),
    }


def main() -> int:
    parser = make_pool_parser(__doc__)
    parser.add_argument("--skies", type=int, default=12)
    parser.add_argument("--first", type=int, default=1, help="seed of the first sky")
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--frames", type=int, default=4)
    parser.add_argument("--method", choices=("hmc", "geovi", "mgvi"), default="hmc")
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--steps", type=int, default=3200)
    parser.add_argument("--still", action="store_true", help="skies without changes")
    args = parse(parser)
    if args.quick:
        args.skies, args.frames, args.method, args.samples = 1, 2, "mgvi", 4
    options = {"method": args.method, "n_samples": args.samples}
    options |= {"n_steps": args.steps} if args.method == "hmc" else {}
    options |= {"n_iterations": 1, "n_pairs": 1} if args.quick else {}
    path = output_path(args, "movie_calibration", f"{machine_slug(machine('cpu'))}.json")
    about = {"machine": machine("cpu"), "options": {key: str(value) for key, value in vars(args).items()}}
    began, lines = time.monotonic(), []
    with double_precision():
        day = Day(args.size, args.frames)
        for seed in range(args.first, args.first + args.skies):
            if time.monotonic() - began > args.time_limit:
                break
            lines.append(fitted(day, seed, options, is_still=args.still))
            print(json.dumps(lines[-1]), flush=True)
            write(path, about | {"summary": summary(lines), "lines": lines})
    print(table(summary(lines)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
