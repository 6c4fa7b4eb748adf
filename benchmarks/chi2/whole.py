"""Measure whole calls of the likelihood of a case, and the time that emcee spends outside of them.

This needs what biro needs (pydantic, astropy, emcee), which the kernels do not.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict

import emcee
import numpy as np
from common.timing import measure, seconds_of
from common.types import Line, Value
from numpy.typing import NDArray

from biro.likelihood import engines
from biro.likelihood.likelihood import Likelihood
from biro.models.files.toml import from_toml
from biro.observation.observation import Observation
from chi2.cases import LINEAR, SAMPLED, Case, field
from chi2.ours import NotMeasuredError
from rime_kernels import Rime, Sources
from rime_kernels.choices import Backend, Precision

N_WALKER = 256
# Seconds that the steps of emcee may take, and more than which one step may not.
SECONDS, _LONGEST_STEP = 5.0, 20.0
_FREE = '{{ prior = "uniform", low = {low}, high = {high}, unit = "{unit}" }}'


def observation(case: Case) -> Observation:
    """Make the observation of a case, with times 10 s apart."""
    data = field(case)
    rows, corr_type = data.rows, LINEAR if case.polarised else ["I"]
    columns = rows.uvw, rows.antenna1, rows.antenna2, 10.0 * rows.time_index
    return Observation.from_arrays(data.vis, *columns, rows.chan_freq, corr_type, weight=data.weight)


def likelihood(case: Case, precision: Precision, backend: Backend, *, free_places: bool) -> Likelihood:
    """Make the likelihood of a case: fluxes are free, and places too where `free_places` says so."""
    model = from_toml(_model(case, free_places))
    return Likelihood(observation(case), model, backend=backend, precision=precision, form=case.form)


def _model(case: Case, free_places: bool) -> str:
    """Return a model of points of free flux within a degree, and of noise that is known."""
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


def whole_call(case: Case, precision: Precision, backend: Backend, repeat: int) -> Line:
    """Measure `log_likelihood` of a batch, with `Rime.chi2` inside."""
    target = likelihood(case, precision, backend, free_places=True)
    unit = np.random.default_rng(4).uniform(size=(case.n_batch, target.n_param))
    theta = target.prior_transform(unit)
    vectors = theta[0] if case.n_batch == 1 else theta
    timing = measure(lambda: target.log_likelihood(vectors), repeat)
    return {"whole_us": 1e6 * timing.median, "whole_likelihoods_per_s": case.n_batch / timing.median}


@contextmanager
def _clock_of_chi2() -> Iterator[list[float]]:
    """Note the seconds of every `Rime.chi2` meanwhile."""
    inner, found = engines.chi2_many, list[float]()

    def chi2_many(
        rimes: Sequence[Rime], sources: Iterable[Sources], *rest: Value
    ) -> list[NDArray[np.float64]]:
        ready = list(sources)
        start = time.perf_counter()
        try:
            return inner(rimes, ready, *rest)
        finally:
            found.append(time.perf_counter() - start)

    engines.chi2_many = chi2_many  # type: ignore[assignment]  # passes everything on
    try:
        yield found
    finally:
        engines.chi2_many = inner


def sampled(case: Case, precision: Precision, backend: Backend, n_walker: int = N_WALKER) -> Line:
    """Measure which share of the wall time of some steps of emcee is not spent in `Rime.chi2`."""
    target = likelihood(case, precision, backend, free_places=False)
    rng = np.random.default_rng(5)
    theta = target.prior_transform(0.5 + 1e-3 * rng.normal(size=(n_walker, target.n_param)))
    target.log_posterior(theta[:1])  # compiles
    expected = n_walker * seconds_of(lambda: target.log_posterior(theta[:1]))
    if expected > _LONGEST_STEP:
        raise NotMeasuredError(f"one step would take {expected:.0f} s")
    sampler = emcee.EnsembleSampler(n_walker, target.n_param, target.log_posterior, vectorize=True)
    state = sampler.run_mcmc(theta, 1)
    n_step = max(3, int(SECONDS / seconds_of(lambda: sampler.run_mcmc(state, 1))))
    with _clock_of_chi2() as inside:
        wall = seconds_of(lambda: sampler.run_mcmc(state, n_step))
    line = {**asdict(case), "name": f"{case.name}, {SAMPLED}", "precision": precision, "n_row": case.n_row}
    line |= {"n_walker": n_walker, "n_param": target.n_param, "n": n_step, "median_ms": 1e3 * wall / n_step}
    return {**line, "share_outside": 1.0 - sum(inside) / wall}
