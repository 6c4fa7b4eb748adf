"""Measure what integrating over the fluxes of sources saves: evaluations for each effective sample, and time.

    python benchmarks/marginalised.py [--case 20I 50I 100I 100IQUV] [--sampler nuts emcee] [--seconds 240]
                                      [--quick] [--output FILE]

Points at fixed places, with normal priors on their fluxes, and a noise factor, seen by KAT-7: simulated with
noise, and fitted with the fluxes as parameters ("sampled") and marginalised. For each: parameters of
theta, milliseconds of a likelihood and of a gradient, and for each sampler the likelihoods (of NUTS:
gradients) that it asked for, burn-in included, over the effective samples of the worst parameter, those
restored included. The evidence is that of `sampler="none"`, which the normal approximation gives to some
0.01 for skies as linear as these. A last line of each case has one position free besides, so that
responses are worked out anew for each call. What has not finished after `--seconds` is reported as such.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial

import numpy as np
from common.machine import machine, machine_slug
from common.options import make_parser, output_path
from common.results import write
from common.timing import seconds_of
from common.types import Line
from many_parameters import OutOfTimeError, at_most

import biro
from biro.models import LogUniform, Noise, Normal, PointSource, SkyModel, Uniform
from biro.models.quantities.prior import Prior
from biro.simulation.simulator import Channels, Track, simulate

CASES = {
    "2I": (2, "I"),
    "20I": (20, "I"),
    "50I": (50, "I"),
    "100I": (100, "I"),
    "100IQUV": (100, "IQUV"),
}
FORMS = ("sampled", "marginalised", "one place free")
CELL = 240.0
"""arcsec between neighbouring places: about the resolution, so that fluxes are correlated."""


def sky(n: int, stokes: str, *, form: str, values: np.random.Generator | None = None) -> SkyModel:
    """Return the model with true values (`values` draws them) or with priors."""
    side = int(np.ceil(np.sqrt(n)))
    sources = []
    for k in range(n):
        east, north = (CELL * (place - 0.5 * side) + 31.0 for place in (k % side, k // side))

        def flux(key: str) -> str | Prior:
            sd = 1.0 if key == "I" else 0.1
            if values is not None:
                return f"{values.normal(0.5 * sd, 0.3 * sd)} Jy"
            return Normal(0.0, sd, "Jy", marginalise=form != "sampled")

        place = f"{east} arcsec"
        free = Uniform(east - 5.0, east + 5.0, "arcsec") if form == "one place free" and not k else place
        fluxes = {key: flux(key) for key in stokes}
        sources.append(PointSource(f"s{k}", east=free, north=f"{north} arcsec", **fluxes))
    return SkyModel(sources, noise=Noise(1.0 if values is not None else LogUniform(0.5, 2.0)))


def observed(n: int, stokes: str, args: argparse.Namespace) -> biro.Observation:
    """Simulate the data of a case."""
    return simulate(
        "KAT-7",
        sky(n, stokes, form="sampled", values=np.random.default_rng(3)),
        phase_centre="04h00m00s -30d00m00s",
        times=Track("2026-03-01", 600.0 * args.n_time, 600.0),
        channels=Channels(1.3e9, 2e8 / args.n_chan, args.n_chan),
        noise=args.noise,
        seed=7,
        backend="cpu",
    )


class Counted(biro.Likelihood):
    """A likelihood that counts parameter vectors, of values and of gradients."""

    n_asked = 0

    def log_likelihood(self, theta: object) -> object:  # type: ignore[override]
        self.n_asked += len(np.atleast_2d(np.asarray(theta)))
        return super().log_likelihood(theta)  # type: ignore[arg-type]

    def log_posterior_and_gradient(self, theta: object) -> object:  # type: ignore[override]
        self.n_asked += len(np.atleast_2d(np.asarray(theta)))
        return super().log_posterior_and_gradient(theta)  # type: ignore[arg-type]


def costs(likelihood: biro.Likelihood, repeat: int) -> dict[str, float]:
    """Measure milliseconds of a likelihood and of a gradient, one of eight that are worked out together."""
    theta = likelihood.prior_transform(np.random.default_rng(0).uniform(0.45, 0.55, (8, likelihood.n_param)))
    found = {}
    for name in ("log_likelihood", "log_posterior_and_gradient"):
        call = partial(getattr(likelihood, name), theta)
        call()  # compiles, and works out what does not change
        found[name] = 1e3 * float(np.median([seconds_of(call) for _ in range(repeat)])) / 8.0
    return found


def sampled(observation: biro.Observation, model: SkyModel, sampler: str, args: argparse.Namespace) -> Line:
    """Run one sampler: what it asked for, and what that gave."""
    likelihood = Counted(observation, model, backend="cpu")
    options = {"n_draw": args.n_draw, "n_tune": args.n_tune} if sampler == "nuts" else {}
    start = time.monotonic()
    try:
        with at_most(args.seconds):
            posterior = biro.sample(likelihood, sampler, seed=1, progress=False, **options)
    except OutOfTimeError:
        return {"finished": False, "seconds": args.seconds}
    except biro.BiroError as error:
        return {"finished": False, "error": str(error)}
    least = float(posterior.effective.min())
    line: Line = {
        "finished": True,
        "seconds": round(time.monotonic() - start, 1),
        "n_asked": likelihood.n_asked,
        "n_effective": round(least),
        "per_effective": likelihood.n_asked / least if least else float("nan"),
    }
    if posterior.log_evidence is not None:
        line |= {"log_evidence": posterior.log_evidence, "log_evidence_err": posterior.log_evidence_err}
        line["log_evidence_laplace"] = posterior.diagnostics.get("log_evidence_laplace")
        line["pareto_k"] = posterior.diagnostics.get("pareto_k")
    return line


def text(line: Line) -> str:
    """Return a line of the table."""
    head = f"{line['case']:>8} {line['form']:15} {line['n_param']:4d} outer {line['sampler']:6} "
    if not line["finished"]:
        return head + line.get("error", f"not finished in {line.get('seconds', 0):.0f} s")
    evidence = (
        f"; ln Z {line['log_evidence']:.3f} +- {line['log_evidence_err']:.3f}, "
        f"Laplace {line['log_evidence_laplace']:.3f}"
        if "log_evidence" in line
        else ""
    )
    return head + (
        f"{line['seconds']:6.1f} s, {line['n_asked']:7d} calls, {line['n_effective']:6d} effective, "
        f"{line['per_effective']:8.2f} calls each{evidence}"
    )


def arguments() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--case", nargs="+", choices=tuple(CASES), default=["20I", "50I", "100I", "100IQUV"])
    parser.add_argument(
        "--sampler", nargs="+", choices=("nuts", "emcee", "none"), default=["nuts", "emcee", "none"]
    )
    parser.add_argument("--seconds", type=float, default=240.0, help="that each sampler has")
    parser.add_argument("--n-time", type=int, default=24)
    parser.add_argument("--n-chan", type=int, default=2)
    parser.add_argument("--noise", type=float, default=1.0, help="Jy, of each visibility")
    parser.add_argument("--n-draw", type=int, default=500, help="of each of NUTS' four chains")
    parser.add_argument("--n-tune", type=int, default=300)
    args = parser.parse_args()
    if args.quick:
        vars(args).update({"case": ["2I"], "sampler": ["none"], "n_time": 3, "n_chan": 1})
    return args


def main() -> int:
    args = arguments()
    about = machine("cpu")
    output = output_path(args, "marginalised", f"{machine_slug(about)}.json")
    size = {name: getattr(args, name) for name in ("n_time", "n_chan", "noise", "n_draw", "n_tune")}
    lines: list[Line] = []
    for case in args.case:
        n, stokes = CASES[case]
        observation = observed(n, stokes, args)
        for form in FORMS:
            model = sky(n, stokes, form=form)
            likelihood = biro.Likelihood(observation, model, backend="cpu")
            ms = costs(likelihood, 1 if args.quick else 5)
            head: Line = {"case": case, "form": form, "n_param": likelihood.n_param, "ms": ms}
            words = ", ".join(f"{name} {value:.3g} ms" for name, value in ms.items())
            print(f"{case:>8} {form:15} {likelihood.n_vis.sum()} visibilities; {words}", flush=True)
            for sampler in args.sampler:
                lines.append(head | {"sampler": sampler} | sampled(observation, model, sampler, args))
                print(text(lines[-1]), flush=True)
                write(output, {"machine": about, "size": size, "lines": lines})
    print(f"written: {output}" if output else "not written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
