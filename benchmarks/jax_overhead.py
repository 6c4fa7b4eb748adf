"""Measure what a call of a likelihood through JAX takes more than one of biro.

    python benchmarks/jax_overhead.py [--quick] [--output FILE]

A compiled program of JAX calls `biro.jax`, and beside it biro is called alone, in turns. The goal is at most
100 us more for each call, a batch being one. `pure_callback` is JAX's own way to call Python, for the same
function. "empty" is a program with the same arguments and results that calls nothing: what JAX itself takes
(82 us on an H200, 130 us with a call of Python that returns at once). The device is chosen as for the other
programs, and JAX is on the same.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from common.machine import machine, machine_slug
from common.options import make_parser, output_path, parse
from common.results import write
from common.timing import in_turns
from common.types import Line

import biro
from biro.models import PointSource, SkyModel, Uniform
from biro.simulation import Channels, Track

MOST = 100.0
"""Microseconds that a call through JAX should take more."""


def likelihood(backend: str, n_source: int, n_time: int) -> biro.Likelihood:
    """VLA-C, one channel, points with free places and fluxes."""
    names = [f"s{i}" for i in range(n_source)]
    place = Uniform(-20, 20, "arcsec")
    sky = SkyModel([PointSource(name, east=place, north=place, I=Uniform(0, 1, "Jy")) for name in names])
    truth = SkyModel(
        [
            PointSource(name, east=f"{3 * i} arcsec", north="0 arcsec", I="0.2 Jy")
            for i, name in enumerate(names)
        ]
    )
    observation = biro.simulate(
        "VLA-C",
        truth,
        phase_centre="12h00m00s +40d00m00s",
        times=Track("2026-03-01", 60.0 * n_time, 60.0),
        channels=Channels(1.4e9, 2e6),
        noise=0.3,
        seed=1,
    )
    return biro.Likelihood(observation, sky, backend=backend)


def measured(one: biro.Likelihood, repeat: int) -> list[Line]:
    """Measure values, gradients, and gradients of a batch, beside biro alone and `pure_callback`."""
    import jax

    import biro.jax

    jax.config.update("jax_enable_x64", True)
    function, n = biro.jax.likelihood(one).log_likelihood, one.n_param
    theta = one.prior_transform(np.random.default_rng(1).uniform(0.1, 0.9, (4, n)))
    number = jax.ShapeDtypeStruct((), np.float64)
    vector = jax.ShapeDtypeStruct((n,), np.float64)

    def callback(own: Callable[..., Any], result: Any) -> Callable[[Any], Any]:
        return lambda x: jax.pure_callback(
            lambda t: own(np.asarray(t)), result, x, vmap_method="broadcast_all"
        )

    value, gradient = one.log_likelihood, one.log_likelihood_and_gradient
    both = jax.value_and_grad(function), callback(gradient, (number, vector)), lambda x: (x.sum(), 2.0 * x)
    calls = {
        "value": (value, (function, callback(value, number), lambda x: x.sum()), theta[0]),
        "gradient": (gradient, both, theta[0]),
        "gradients of 4": (gradient, tuple(map(jax.vmap, both)), theta),
    }
    return [line_of(name, one, *call, repeat) for name, call in calls.items()]


def line_of(
    name: str,
    one: biro.Likelihood,
    own: Callable[..., Any],
    programs: tuple[Any, ...],
    theta: Any,
    repeat: int,
) -> Line:
    """Time biro and the programs in turns, after the first call of each."""
    import jax
    import jax.numpy as jnp

    on_device, compiled = jnp.asarray(theta), [jax.jit(each) for each in programs]
    ways: list[Callable[[], Any]] = [lambda: own(theta)]
    ways += [lambda each=each: jax.block_until_ready(each(on_device)) for each in compiled]
    values = [
        np.asarray(answer[0] if isinstance(answer, tuple) else answer) for answer in (way() for way in ways)
    ]
    own_us, jax_us, callback_us, empty_us = (1e6 * seconds for seconds in in_turns(ways, repeat))
    line = {"call": name, "n_vis": int(one.n_vis.sum()), "n_param": one.n_param, "n": repeat}
    line |= {"own_us": own_us, "jax_us": jax_us, "callback_us": callback_us, "empty_us": empty_us}
    return line | {
        "difference": float(np.abs(values[1] - values[0]).max()),
        "reached": jax_us - own_us <= MOST,
    }


def main() -> int:
    args = parse(make_parser(__doc__, device=True, repeat=400))
    if args.device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    about, lines = machine(args.device), []
    found = {"device": args.device, "quick": args.quick, "machine": about, "calls": lines}
    print(f"{'call':16}{'visibilities':>13}{'biro us':>10}{'JAX more':>10}{'callback more':>15}{'empty':>8}")
    for n_source, n_time in [(1, 2)] if args.quick else [(2, 2), (10, 60)]:
        for line in measured(likelihood(args.device, n_source, n_time), args.repeat):
            lines.append(line)
            more = [line[key] - line["own_us"] for key in ("jax_us", "callback_us")]
            print(
                f"{line['call']:16}{line['n_vis']:13}{line['own_us']:10.1f}{more[0]:10.1f}{more[1]:15.1f}"
                f"{line['empty_us']:8.1f}"
            )
            write(output_path(args, "jax_overhead", f"{machine_slug(about)}.json"), found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
