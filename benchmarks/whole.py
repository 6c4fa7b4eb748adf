"""The whole way from a parameter vector to a number: `Likelihood.log_likelihood`, and emcee around it.

Needs what biro needs (pydantic, astropy, emcee), which the kernels do not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np
from cases import LINEAR, SAMPLED, Case, field
from ours import NotMeasuredError
from timing import measure, seconds_of

N_WALKER = 256
# Seconds that the steps of emcee may take, and more than which one step may not.
_SECONDS, _LONGEST_STEP = 5.0, 20.0
_FREE = '{{ prior = "uniform", low = {low}, high = {high}, unit = "{unit}" }}'


def likelihood(case: Case, precision: str, backend: str, *, free_places: bool) -> Any:
    """A `biro.Likelihood` on the data of a case: fluxes free, and places too where asked for."""
    try:
        import biro
        from biro.models.files.toml import from_toml
        from biro.observation.observation import Observation

        rows, data = field(case).rows, field(case)
        corr_type = LINEAR if case.polarised else ["I"]
        columns = rows.uvw, rows.antenna1, rows.antenna2, 10.0 * rows.time_index
        observation = Observation.from_arrays(
            data.vis, *columns, rows.chan_freq, corr_type, weight=data.weight
        )
        model = from_toml(_model(case, free_places))
        return biro.Likelihood(observation, model, backend=backend, precision=precision, form=case.form)
    except ImportError as error:
        raise NotMeasuredError(f"biro cannot be imported whole: {error}") from None


def _model(case: Case, free_places: bool) -> str:
    """Points of free flux within a degree, and a noise that is known."""
    place = _FREE.format(low=-30, high=30, unit="arcmin")
    rng, text = np.random.default_rng(3), "[noise]\nfactor = 1\n"
    for i in range(case.n_point):
        east, north = (f'"{x:.3f} arcmin"' for x in rng.uniform(-30, 30, 2))
        if free_places:
            east = north = place
        text += f'\n[[source]]\nname = "s{i}"\ntype = "point"\neast = {east}\nnorth = {north}\n'
        text += f"I = {_FREE.format(low=0, high=10, unit='Jy')}\n"
        if case.polarised:
            text += 'Q = "0.1 Jy"\nU = "0.05 Jy"\nV = "0.01 Jy"\n'
    return text


def whole_call(case: Case, precision: str, backend: str, repeat: int) -> dict[str, Any]:
    """Seconds of `log_likelihood` of a batch, with `Rime.chi2` inside."""
    target = likelihood(case, precision, backend, free_places=True)
    unit = np.random.default_rng(4).uniform(size=(case.n_batch, target.n_param))
    theta = target.prior_transform(unit)
    vectors = theta[0] if case.n_batch == 1 else theta
    timing = measure(lambda: target.log_likelihood(vectors), repeat)
    return {"whole_us": 1e6 * timing.median, "whole_likelihoods_per_s": case.n_batch / timing.median}


@contextmanager
def _clock_of_chi2() -> Iterator[list[float]]:
    """Seconds of every `Rime.chi2` meanwhile."""
    from biro.likelihood import likelihood

    inner, found = likelihood.chi2_together, []

    def chi2_together(rimes: Any, sources: Any, *rest: Any) -> Any:
        ready = list(sources)
        start = time.perf_counter()
        try:
            return inner(rimes, ready, *rest)
        finally:
            found.append(time.perf_counter() - start)

    likelihood.chi2_together = chi2_together
    try:
        yield found
    finally:
        likelihood.chi2_together = inner


def sampled(case: Case, precision: str, backend: str, n_walker: int = N_WALKER) -> dict[str, Any]:
    """Some steps of emcee: which share of the wall time is not spent in `Rime.chi2`."""
    try:
        import emcee
    except ImportError as error:
        raise NotMeasuredError(str(error)) from None
    target = likelihood(case, precision, backend, free_places=False)
    rng = np.random.default_rng(5)
    theta = target.prior_transform(0.5 + 1e-3 * rng.normal(size=(n_walker, target.n_param)))
    target.log_posterior(theta[:1])  # compiles
    expected = n_walker * seconds_of(lambda: target.log_posterior(theta[:1]))
    if expected > _LONGEST_STEP:
        raise NotMeasuredError(f"one step would take {expected:.0f} s")
    sampler = emcee.EnsembleSampler(n_walker, target.n_param, target.log_posterior, vectorize=True)
    state = sampler.run_mcmc(theta, 1)
    n_step = max(3, int(_SECONDS / seconds_of(lambda: sampler.run_mcmc(state, 1))))
    with _clock_of_chi2() as inside:
        wall = seconds_of(lambda: sampler.run_mcmc(state, n_step))
    line = {**asdict(case), "name": f"{case.name}, {SAMPLED}", "precision": precision, "n_row": case.n_row}
    line |= {"n_walker": n_walker, "n_param": target.n_param, "n": n_step, "median_ms": 1e3 * wall / n_step}
    return {**line, "share_outside": 1.0 - sum(inside) / wall}
