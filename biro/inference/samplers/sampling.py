"""`biro.sample`: runs any of the samplers, in a run directory or in memory."""

from __future__ import annotations

import logging
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from biro.diagnosis.diagnosis import diagnose
from biro.display.arguments import takes_likelihood
from biro.display.progress import showing
from biro.errors import BackendError, InputError
from biro.inference.posterior.gain_integral import with_integral
from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.restored import exact, restored
from biro.inference.posterior.samples import Provenance
from biro.inference.posterior.start_point import Start, start_point, start_text
from biro.inference.posterior.statistics import mean_and_sd
from biro.inference.samplers.add_maximum import with_peak
from biro.inference.samplers.context import RunContext
from biro.inference.samplers.option_base import SamplerOptions
from biro.inference.samplers.options import (
    EXACT,
    EnsembleOptions,
    ExactOptions,
    MaximumOptions,
    NestedOptions,
    NutsOptions,
    check_sampler,
    parse_options,
)
from biro.inference.samplers.tempering.options import TemperingOptions
from biro.inference.target.checked import Target
from biro.inference.target.protocol import (
    RecordedLikelihood,
    RecordedModel,
    full_of,
    integrates,
    treatment_of_gains,
)
from biro.models.components.antenna_terms.gain import is_of_prior
from biro.run.directory import RunDirectory
from biro.run.interrupt import stop_on_signal
from biro.run.log_file import NOTICE
from biro.run.record import read_record, versions

log = logging.getLogger(__name__)

_ASKED_FOR_MORE = ("nuts", "tempering")
"""Samplers of which a finished run may be asked for more draws."""
_DEVICE_PACKAGES = ("numba.cuda", "numba_cuda", "cuda.", "cupy")
"""Packages whose exceptions mean that the device failed."""


@takes_likelihood
def sample(
    likelihood: RecordedLikelihood,
    sampler: str = "emcee",
    *,
    run_dir: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    progress: bool = True,
    start: Start | None = None,
    facts: Mapping[str, object] | None = None,
    **options: object,
) -> Posterior:
    """Sample the posterior of a likelihood.

    "emcee" finds the maximum, starts an ensemble about it and ends after 50 autocorrelation times;
    "dynesty" and "dynesty-dynamic" (nested sampling) find the evidence as well, from the whole prior.
    "tempering" (parallel tempering) finds it, too, and moves between modes: chains of all temperatures from
    the prior to the posterior swap their states.
    "nuts" follows the gradient from about the maximum: for many parameters (needs the extra `nuts`).
    "none" finds the maximum (`biro.maximise`) and gives draws of the normal distribution about it, with the
    evidence by importance sampling. Parameters that the likelihood integrates over (`marginalise` in the
    model) are drawn for each sample afterwards; where it integrates over all, there is nothing to sample:
    draws and evidence are exact, whatever the sampler (of gains, Laplace's approximation). The evidence is
    that of the normalised prior: where constraints cut the prior by rejection, it is divided by the prior
    mass that they leave.

    Parameters
    ----------
    likelihood : Likelihood
        Or anything else that is a `RecordedLikelihood` (`biro.inference.target.protocol`).
    sampler : "emcee", "dynesty", "dynesty-dynamic", "tempering", "nuts" or "none"
    run_dir : path, optional
        Keeps everything about the run. A run that was interrupted there goes on, a finished one is
        read; either only when data, model, sampler, options and seed are as they were. Where the
        posterior cannot be written (a full disk), it goes into the folder for temporary files, which is
        logged as an error, and is returned.
    seed : int, optional
        Drawn, and recorded, when not given.
    progress : bool
        Show bars on stderr (`biro.display.progress`).
    start : Maximum, Posterior or dict of numbers by name, optional
        An earlier fit, or values in the units of the model: emcee, NUTS and "none" climb to the maximum from
        there, and not from draws of the prior. Parameters that it lacks begin in the middle of their prior.
        Nested sampling and tempering begin with the whole prior in any case. A run that goes on keeps the
        start it had.
    facts : mapping, optional
        More to be written into `run.json`.
    **options
        See `EnsembleOptions`, `NestedOptions`, `TemperingOptions`, `NutsOptions` and `MaximumOptions`.

    Raises
    ------
    InputError
        An unknown sampler or option, too few walkers, nothing to sample, a start that the model does not
        allow.
    RunError
        The run directory is in use, or belongs to a run that differs.
    RunInterrupted
        SIGINT or SIGTERM came; with `run_dir` the same call goes on.
    LikelihoodError
        The likelihood is nowhere finite, or returned NaN, +inf or another shape; or ("none") the data do
        not tell parameters apart.
    BackendError
        The device failed in mid-run; what was sampled before is saved.
    """
    check_sampler(sampler)
    target, resolved = _target(likelihood, sampler, options)
    sampler = EXACT if isinstance(resolved, ExactOptions) else sampler
    provenance = _provenance(likelihood, sampler, resolved, run_seed(seed, run_dir))
    point = None if start is None or sampler == EXACT else start_point(likelihood, start)
    _say_start(resolved, start)
    if run_dir is None:
        with (
            showing(progress),
            stop_on_signal(saves=False) as stop,
            _device_errors("nothing was saved, because there is no run_dir"),
        ):
            return _run(likelihood, target, resolved, RunContext(provenance, stop, progress, start=point))
    settings = {
        "sampler": sampler,
        "seed": provenance.seed,
        "options": resolved.as_dict(),
        "data": provenance.data_digest,
        "model": provenance.model_digest,
        "likelihood": likelihood.digest(),
        "sampler version": provenance.versions.get(provenance.package),
    }
    record = {"likelihood": likelihood.description(), **(facts or {})}
    if point is not None:
        names = [parameter.name for parameter in likelihood.parameters]
        record["start"] = dict(zip(names, point.tolist(), strict=True))
    with (
        showing(progress),
        stop_on_signal() as stop,
        RunDirectory(
            run_dir, settings, may_change=resolved.may_change, facts=record, model_toml=provenance.model_toml
        ) as run,
        _device_errors(
            f"{run.path} has the samples so far. The same call continues from there (on the CPU if the "
            "device does not recover)"
        ),
    ):
        context = RunContext(provenance, stop, progress, start=point)
        return _run_in(run, likelihood, target, resolved, context)


def _target(
    likelihood: RecordedLikelihood, sampler: str, options: Mapping[str, object]
) -> tuple[Target, SamplerOptions]:
    """What is sampled, and how; where all parameters are integrated over, nothing is."""
    if treatment_of_gains(likelihood) == "solve" and sampler != "none":
        raise InputError(
            'gains="solve" (--gains solve) works only with sampler "none" and biro.maximise, because a '
            f'profile likelihood has no evidence; use gains="marginalise" with sampler {sampler!r}'
        )
    if integrates(likelihood) and not likelihood.parameters:
        return Target(likelihood.full), ExactOptions()
    target = Target(likelihood)
    return target, parse_options(sampler, options, target.n_param)


def _say_start(options: SamplerOptions, start: Start | None) -> None:
    """Say what the sampler starts from."""
    if isinstance(options, ExactOptions):
        log.log(
            NOTICE,
            "nothing to sample, because all parameters are marginalised. Draws and evidence are exact for "
            "linear parameters, and a Laplace approximation for gains",
        )
        return
    if isinstance(options, NestedOptions | TemperingOptions):
        name = "dynesty" if isinstance(options, NestedOptions) else "tempering"
        unused = "" if start is None else f" and does not use {start_text(start)}"
        log.log(NOTICE if unused else logging.INFO, "%s starts from the prior%s", name, unused)
        return
    begin = "draws from the prior" if start is None else start_text(start)
    then = {EnsembleOptions: ". Walkers begin around it", NutsOptions: ". Chains begin around it"}
    level = logging.INFO if start is None else NOTICE
    log.log(level, "searching the maximum from %s%s", begin, then.get(type(options), ""))


def run_seed(seed: int | None, run_dir: str | os.PathLike[str] | None) -> int:
    """The seed that was given, or that of the run that is resumed, or a new one.

    Raises
    ------
    InputError
        A seed out of range.
    """
    record = read_record(Path(run_dir)) if seed is None and run_dir is not None else None
    if record is not None:
        seed = record["settings"].get("seed")
    if seed is None:
        seed = secrets.randbelow(2**31)
    if not 0 <= seed < 2**32:
        raise InputError(f"seed must be from 0 to 2^32 - 1, got {seed}")
    return seed


def _provenance(
    likelihood: RecordedLikelihood, sampler: str, options: SamplerOptions, seed: int
) -> Provenance:
    model: RecordedModel = getattr(likelihood, "full_model", likelihood.model)
    return Provenance(
        sampler=sampler,
        seed=seed,
        options=options.as_dict(),
        data_digest=getattr(likelihood, "data_digest", likelihood.observation.digest)(),
        model_digest=model.digest(),
        model_toml=model.to_toml(),
        versions=versions(),
    )


def _run_in(
    run: RunDirectory,
    likelihood: RecordedLikelihood,
    target: Target,
    options: SamplerOptions,
    context: RunContext,
) -> Posterior:
    """Sample in a run directory, or read the posterior where the run is finished."""
    if run.finished:
        posterior = Posterior.load(run.posterior_path)
        # Asking for more draws of NUTS or tempering means just that; emcee's length is only its limit.
        asked = posterior.provenance.sampler in _ASKED_FOR_MORE
        enough = posterior.diagnostics.get("converged") and not asked
        if enough or dict(posterior.provenance.options) == dict(context.provenance.options):
            log.log(
                NOTICE, "%s is finished; reading its result (for a new fit give another directory)", run.path
            )
            return replace(posterior, likelihood=full_of(likelihood))
    run.reopen(context.provenance.options)
    posterior = _run(likelihood, target, options, replace(context, folder=run.path, run_id=run.run_id))
    try:
        posterior.save(run.posterior_path)
        run.finish()
    except OSError as error:  # a full disk must not cost what was sampled
        log.error(
            "%s cannot be written (%s); %s. The same command %s",
            run.posterior_path,
            error.strerror,
            _save_elsewhere(posterior, run.run_id),
            "continues from what the run has saved"
            if run.path.is_dir()
            else "starts again, because the folder is gone",
        )
    return posterior


def _save_elsewhere(posterior: Posterior, run_id: str) -> str:
    """Save a posterior in the folder for temporary files, where that has room, and say where it is."""
    try:
        path = Path(tempfile.gettempdir(), f"posterior-{run_id}.nc")
        posterior.save(path)
    except OSError:
        return "no other place has room for it"
    return f"it is in {path}"


def _run(
    likelihood: RecordedLikelihood, target: Target, options: SamplerOptions, context: RunContext
) -> Posterior:
    """Run a sampler, climb to the maximum beside its best sample, and look at the residuals there.

    What the likelihood integrates over is drawn afterwards: from then on it is that of all parameters.
    """
    doubts: Sequence[str] = []
    if isinstance(options, ExactOptions):
        assert integrates(likelihood)
        posterior = exact(likelihood, options.n_sample, context.provenance)
        posterior = with_integral(posterior, likelihood, np.zeros((1, 0)))
        doubts = likelihood.doubts(np.zeros(0))
    else:
        posterior = with_peak(target, _run_sampler(target, options, context))
        posterior = with_integral(posterior, likelihood)
        doubts = likelihood.doubts(posterior.best_fit) if integrates(likelihood) else []
        if isinstance(options, MaximumOptions) and treatment_of_gains(likelihood) != "marginalise":
            doubts = [*doubts, *_doubts_of_maximum(posterior.names)]
        posterior = restored(posterior, likelihood)
    if treatment_of_gains(likelihood) == "solve":
        posterior = replace(posterior, log_evidence=None, log_evidence_err=None)
    whole = full_of(likelihood)
    found = diagnose(whole, posterior.best_fit, *mean_and_sd(posterior), posterior.columns)
    return replace(
        posterior,
        fits=found.fits,
        remarks=(*doubts, *found.warnings),
        diagnostics={**posterior.diagnostics, "error_factor": found.error_factor},
        likelihood=whole,
    )


def _doubts_of_maximum(names: Sequence[str]) -> list[str]:
    """Parameters of which the normal approximation about the maximum says too little."""
    return [
        f"{name}: biased at the maximum (too {'large' if name.endswith('.sd') else 'short'}), so do not "
        "trust its error and the evidence. Use a sampler, or fix it"
        for name in names
        if is_of_prior(name)
    ]


def _run_sampler(target: Target, options: SamplerOptions, context: RunContext) -> Posterior:
    """Run the sampler that the options belong to. Its package is imported only now: some take a second."""
    match options:
        case EnsembleOptions():
            from biro.inference.samplers.ensemble import run_emcee

            return run_emcee(target, options, context)
        case NestedOptions():
            from biro.inference.samplers.nested import run_dynesty

            return run_dynesty(target, options, context)
        case TemperingOptions():
            from biro.inference.samplers.tempering.run import run_tempering

            return run_tempering(target, options, context)
        case NutsOptions():
            from biro.inference.samplers.nuts import run_nuts

            return run_nuts(target, options, context)
        case MaximumOptions():
            from biro.inference.samplers.normal_approximation import run_normal_approximation

            return run_normal_approximation(target, options, context)
    raise InputError(f"no sampler has {type(options).__name__}")


@contextmanager
def _device_errors(what_now: str) -> Iterator[None]:
    """Turn the exceptions of a device that fails in mid-run into one line that says how to go on."""
    try:
        yield
    except Exception as error:
        package = ".".join(type(error).__module__.split(".")[:2])
        if not isinstance(error, BackendError) and not package.startswith(_DEVICE_PACKAGES):
            raise
        words = str(error).strip() or type(error).__name__
        raise BackendError(f"the device failed ({words.splitlines()[0]}); {what_now}") from error
