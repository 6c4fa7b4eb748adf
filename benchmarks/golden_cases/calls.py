"""What `benchmarks/golden.py` calls, by name: each gives arrays by name of quantity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import biro
from biro.models import PointSource, SkyModel
from biro.models.files.toml import from_toml
from biro.simulation.gains import GainScatter
from biro.simulation.simulator import Channels, Track, simulate
from golden_cases.models import GAINS, NOISE, PLACE, POINTS, SHAPES, all_models, source

Values = dict[str, NDArray[Any]]
Call = Callable[[], Values]
LINEAR = PLACE.replace(
    'I = { prior = "uniform", low = "0.5 Jy", high = "2 Jy" }',
    'I = { prior = "normal", mean = "1 Jy", sd = "1 Jy", marginalise = true }',
)
MINUTES = 20
"""Length of the data, with one time each."""
N_THETA = 3
"""Entries of a batch."""
LIKELIHOODS: dict[str, tuple[str, dict[str, Any]]] = {
    "single precision": (POINTS, {"precision": "single"}),
    "row form": (POINTS + source(SHAPES["gaussian"], "g"), {"form": "row"}),
    "smeared": (POINTS + source(SHAPES["gaussian"], "g"), {"smearing": "on"}),
    "frame of uv": (source(SHAPES["gaussian"]), {"gaussian_frame": "uv"}),
    "cells": (POINTS, {"average": "cells"}),
    "closures": (POINTS, {"gains": "closures"}),
    "closures, noise of antennas": (POINTS + NOISE["of-antennas"], {"gains": "closures"}),
    "marginalised gains": (source("") + GAINS, {"gains": "marginalise"}),
    "solved gains": (source("") + GAINS, {"gains": "solve"}),
    "marginalised gains, noise of antennas": (
        source("") + GAINS + NOISE["of-antennas"],
        {"gains": "marginalise"},
    ),
    "linear fluxes": (source("", "a", LINEAR) + source("", "b", LINEAR), {}),
    "linear fluxes beside gains": (source("", "a", LINEAR) + GAINS, {"gains": "marginalise"}),
    "linear fluxes, additive noise": (source("", "a", LINEAR) + NOISE["additive"], {}),
}
"""Likelihoods that differ in more than the model."""
SAMPLERS: dict[str, dict[str, Any]] = {
    "none": {},
    "emcee": {"n_walker": 24, "max_steps": 60},
    "dynesty": {"n_live": 60, "dlogz": 1.0},
    "nuts": {"n_chain": 2, "n_tune": 60, "n_draw": 60},
}
"""Samplers, with options for short runs."""


@cache
def data(minutes: int, smearing: Literal["on", "off"] = "off") -> biro.Observation:
    """Simulated data of seven dishes: three sources, gains that scatter, noise."""
    sky = SkyModel(
        [
            PointSource("a", east="20 arcsec", north="-10 arcsec", I="1.5 Jy"),
            PointSource("b", east="-40 arcsec", north="30 arcsec", I="1 Jy"),
        ],
        centre=(1.3, -0.8),
    )
    return simulate(
        "KAT-7",
        sky,
        phase_centre=(1.3, -0.8),
        times=Track("2026-03-01T18:00", 60.0 * minutes, 60.0),
        channels=Channels(1.4e9, 1e6, 4),
        noise=0.1,
        seed=3,
        gains=GainScatter(0.05, 0.1, 300.0),
        backend="cpu",
        smearing=smearing,
    )


def thetas(likelihood: biro.Likelihood) -> NDArray[np.float64]:
    """Parameters at fixed places of the prior, float64 (N_THETA, n_param)."""
    cube = 0.3 + 0.4 * np.random.default_rng(11).random((N_THETA, likelihood.n_param))
    return np.asarray(likelihood.prior_transform(cube))


def likelihood_of(text: str, device: str, minutes: int, **options: Any) -> biro.Likelihood:
    """The likelihood of a model file."""
    sky = replace(from_toml(text), centre=(1.3, -0.8))
    return biro.Likelihood(data(minutes, options.get("smearing", "off")), sky, backend=device, **options)


def evaluated(text: str, device: str, minutes: int, **options: Any) -> Values:
    """ln L, its gradient, a product with the Fisher information, model visibilities."""
    with likelihood_of(text, device, minutes, **options) as likelihood:
        theta = thetas(likelihood)
        found: Values = {"ln L": np.asarray(likelihood.log_likelihood(theta))}
        if options.get("gains") not in ("solve",):
            found["gradient"] = np.asarray(likelihood.log_likelihood_and_gradient(theta)[1])
        if "student" not in text:
            found["fisher"] = np.asarray(likelihood.fisher(theta[0]))
        if not options.get("gains") and "marginalise" not in text and not options.get("average"):
            found["model"] = np.concatenate([vis.ravel() for vis in likelihood.predict(theta[0])])
    return found


def sampled(sampler: str, device: str, minutes: int) -> Values:
    """The draws of a short run."""
    with likelihood_of(source("") + "[noise]\nfactor = 1\n", device, minutes) as likelihood:
        run = biro.sample(likelihood, sampler, seed=5, progress=False, **SAMPLERS[sampler])
    return {"samples": run.samples, "ln L": run.log_likelihood}


def solved(device: str, minutes: int) -> Values:
    """Gains solved for a fixed sky."""
    sky = SkyModel([PointSource("a", east="20 arcsec", north="-10 arcsec", I="1.5 Jy")], centre=(1.3, -0.8))
    found = biro.solve_gains(data(minutes), sky, interval=300.0, backend=device)
    return {f"gains {i}": np.asarray(window.gain) for i, window in enumerate(found.windows)}


def imaged(device: str, minutes: int, **options: Any) -> Values:
    """A dirty image and its point spread function."""
    found = biro.image(data(minutes), progress=False, backend=device, stokes="I", size=128, **options)
    return {"image": found.dirty, "psf": found.psf}


def calls(device: str, minutes: int = MINUTES) -> dict[str, Call]:
    """All calls by name, with data of some minutes."""
    found: dict[str, Call] = {
        name: partial(evaluated, text, device, minutes) for name, text in all_models().items()
    }
    found |= {
        f"likelihood {name}": partial(evaluated, text, device, minutes, **options)
        for name, (text, options) in LIKELIHOODS.items()
    }
    found |= {f"sampler {name}": partial(sampled, name, device, minutes) for name in SAMPLERS}
    found["solve"] = partial(solved, device, minutes)
    found["image idg"] = partial(imaged, device, minutes, engine="idg")
    found["image wprojection"] = partial(imaged, device, minutes, engine="wprojection")
    return found


def timed(name: str, device: str) -> Callable[[], object]:
    """One evaluation of ln L and, where there is one, its gradient, of the likelihood of a call."""
    text, options = (
        (all_models()[name], {}) if name in all_models() else LIKELIHOODS[name.removeprefix("likelihood ")]
    )
    likelihood = likelihood_of(text, device, MINUTES, **options)
    theta = thetas(likelihood)
    if options.get("gains") == "solve":
        return lambda: likelihood.log_likelihood(theta)
    return lambda: likelihood.log_likelihood_and_gradient(theta)
