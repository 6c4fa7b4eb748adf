"""The posterior so far of a run that goes on in another process, from what that has saved, for pictures."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from biro.diagnosis.diagnosis import fits_of
from biro.errors import RunError
from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.restored import restored
from biro.inference.posterior.samples import Provenance
from biro.inference.samplers.normal_approximation import MaximumFile
from biro.inference.samplers.option_base import SamplerOptions
from biro.inference.samplers.options import (
    EXACT,
    EnsembleOptions,
    NestedOptions,
    NutsOptions,
    parse_options,
)
from biro.inference.samplers.tempering.options import TemperingOptions
from biro.inference.target.checked import Target
from biro.inference.target.protocol import RecordedLikelihood, full_of, integrates
from biro.run.record import RunRecord, read_record

# dynesty has no types: its sampler.
Dynesty: TypeAlias = Any

LEAST_STEPS = 20
"""Steps of emcee or tempering, draws of a chain of NUTS, or iterations of dynesty that are worth showing."""
_FEW = 400
"""Samples beside which parameters that a likelihood integrates over are drawn."""


def posterior_in_progress(folder: Path, likelihood: RecordedLikelihood) -> Posterior | None:
    """The samples that a run has saved, as a posterior; None where there are too few yet.

    Nothing in the folder is changed, and no lock is taken. Of dynesty these are its live points, until those
    that it has left behind describe the posterior, which is when the run is almost done.

    Parameters
    ----------
    folder : Path
        A run directory.
    likelihood : Likelihood
        Of the run's data and model.

    Raises
    ------
    RunError
        There is no run, or what it saved cannot be read or is of a likelihood that differs.
    """
    record = read_record(folder)
    if record is None:
        raise RunError(f"{folder}: not a run directory (no run.json)")
    settings: dict[str, Any] = dict(record["settings"])
    if settings["sampler"] == EXACT:
        return None
    target = Target(likelihood)
    options = parse_options(settings["sampler"], settings["options"], target.n_param)
    provenance = Provenance(
        sampler=settings["sampler"],
        seed=settings["seed"],
        options=options.as_dict(),
        data_digest=settings["data"],
        model_digest=settings["model"],
        model_toml=getattr(likelihood, "full_model", likelihood.model).to_toml(),
        versions=record.get("versions", {}),
    )
    found = _samples(folder, record, target, options, provenance)
    if found is None:
        return None
    # Whether it has converged is told at the end.
    diagnostics = {name: value for name, value in found.diagnostics.items() if name != "converged"}
    if integrates(likelihood):  # drawing for each sample may take as long as sampling
        found = restored(found.equal_weight(_FEW), likelihood)
    return replace(found, diagnostics=diagnostics, fits=fits_of(full_of(likelihood), found.best_fit))


def _samples(
    folder: Path, record: RunRecord, target: Target, options: SamplerOptions, provenance: Provenance
) -> Posterior | None:
    match options:
        case EnsembleOptions():
            from biro.inference.samplers.emcee_chain import FILE, ChainFile
            from biro.inference.samplers.ensemble import EnsembleRun

            chain = ChainFile(folder / FILE, record["run_id"])
            with _silent("biro.inference.samplers.emcee_chain"):  # about a block that is being written
                backend = chain.restore()
            if backend is None or backend.iteration < LEAST_STEPS:
                return None
            ensemble = EnsembleRun(target, options, provenance.seed, None, MaximumFile(folder))
            return ensemble.posterior(backend, provenance)
        case NestedOptions():
            return _nested(folder, record, target, options, provenance)
        case TemperingOptions():
            from biro.inference.samplers.tempering.cube import CubeProblem
            from biro.inference.samplers.tempering.run import TemperingRun, posterior_of
            from biro.inference.samplers.tempering.state_file import FILE as STATE
            from biro.inference.samplers.tempering.state_file import TemperedStateFile

            file = TemperedStateFile(folder / STATE, record["run_id"])
            problem = CubeProblem(target)
            state = file.read(problem, options.n_walker)
            if state is None or len(state) < LEAST_STEPS:
                return None
            tempered = TemperingRun(problem, options, provenance.seed, None)
            return posterior_of(tempered, target, state, provenance)
        case NutsOptions():
            from biro.inference.samplers.coordinates.whitened import Whitened
            from biro.inference.samplers.nuts import NutsRun
            from biro.inference.samplers.nuts_draws import FILE as DRAWS
            from biro.inference.samplers.nuts_draws import NutsDrawsFile
            from biro.inference.target.protocol import differentiable

            saved = NutsDrawsFile(folder / DRAWS, record["run_id"]).read(options.n_chain, target.n_param)
            if saved is None or saved[1].z.shape[1] < LEAST_STEPS:
                return None
            frame, progress = saved
            density = Whitened(differentiable(target.likelihood, "NUTS"), frame)
            run = NutsRun(target, options, provenance.seed, None, MaximumFile(folder))
            return run.posterior(density, progress.z, provenance)
    return None


def _nested(
    folder: Path, record: RunRecord, target: Target, options: NestedOptions, provenance: Provenance
) -> Posterior | None:
    """Points left behind, and live points, which share what is left of the prior volume.

    While nearly all weight is with a few of them, live points alone, all alike: where the sampler is now.
    """
    from dynesty import DynamicNestedSampler

    from biro.files.signed import read_signed
    from biro.inference.samplers.dynesty_checkpoint import FILE

    path = folder / FILE
    if not path.exists():
        return None
    payload = read_signed(path, record["run_id"])
    # Not by `Checkpoint`, which clears away temporary files of the run, that is of the process at work.
    with tempfile.TemporaryDirectory(prefix="biro-look-") as place:
        copy = Path(place, "sampler")
        copy.write_bytes(payload)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # it says how many threads the run has
            sampler: Dynesty = DynamicNestedSampler.restore(str(copy))
    results, live = sampler.results, sampler.sampler
    if len(results.logl) < LEAST_STEPS:
        return None
    n_live = len(live.live_logl)
    unit = np.concatenate([results.samples, live.live_v])
    log_likelihood = np.concatenate([results.logl, live.live_logl]).astype(np.float64)
    left = live.live_logl + float(results.logvol[-1]) - np.log(n_live)
    log_weight = np.concatenate([results.logwt, left]).astype(np.float64)
    if _effective(log_weight) < 0.5 * n_live:
        log_weight[:-n_live], log_weight[-n_live:] = -np.inf, 0.0
    log_weight -= np.logaddexp.reduce(log_weight)
    heavy = log_weight > log_weight.max() - 60.0
    theta = target.theta(unit[heavy])
    return Posterior(
        columns=target.columns,
        samples=theta,
        log_weight=log_weight[heavy],
        log_likelihood=log_likelihood[heavy],
        log_prior=target.log_prior(theta),
        provenance=provenance,
        effective=np.full(target.n_param, _effective(log_weight)),
        diagnostics={"n_iteration": float(len(results.logl))},
    )


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Drop what a logger says."""
    logger = logging.getLogger(name)
    logger.disabled, before = True, logger.disabled
    try:
        yield
    finally:
        logger.disabled = before


def _effective(log_weight: NDArray[np.float64]) -> float:
    """Effective number of samples."""
    return float(np.exp(2.0 * np.logaddexp.reduce(log_weight) - np.logaddexp.reduce(2.0 * log_weight)))
