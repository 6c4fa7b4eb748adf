"""Sampling: one small adapter per sampler, one entry point."""

from __future__ import annotations

import logging
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from biro.errors import BackendError, InputError
from biro.maximum.protocol import RecordedLikelihood
from biro.posterior.posterior import Posterior
from biro.posterior.samples import Provenance
from biro.run.directory import RunDirectory
from biro.run.interrupt import StopFlag, stop_on_signal
from biro.run.record import read_record, versions

log = logging.getLogger(__name__)

SAMPLERS = ("emcee", "dynesty", "dynesty-dynamic", "nuts", "none")
_DEVICE_PACKAGES = ("numba.cuda", "numba_cuda", "cuda.", "cupy")
"""Whose exceptions are the device's."""


def sample(
    likelihood: RecordedLikelihood,
    sampler: str = "emcee",
    *,
    run_dir: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    progress: bool = True,
    facts: Mapping[str, Any] | None = None,
    **options: Any,
) -> Posterior:
    """Sample the posterior of a likelihood.

    "emcee" finds the maximum, starts an ensemble about it and ends after 50 autocorrelation times;
    "dynesty" and "dynesty-dynamic" (nested sampling) find the evidence as well, from the whole prior.
    "nuts" follows the gradient from about the maximum: for many parameters (needs the extra `nuts`).
    "none" finds the maximum (`biro.maximise`) and gives draws of the normal distribution about it, with
    the evidence by importance sampling.
    The evidence is that of the normalised prior: where constraints cut the prior by rejection, it is
    divided by the prior mass that they leave.

    Parameters
    ----------
    likelihood : Likelihood
        Or anything else that is a `RecordedLikelihood` (`biro.maximum.protocol`).
    sampler : "emcee", "dynesty", "dynesty-dynamic", "nuts" or "none"
    run_dir : path, optional
        Keeps everything about the run. A run that was interrupted there goes on, a finished one is
        read; either only when data, model, sampler, options and seed are as they were. Where the
        posterior cannot be written (a full disk), it goes into the folder for temporary files, which is
        logged as an error, and is returned.
    seed : int, optional
        Drawn, and recorded, when not given.
    progress : bool
        Show a progress line on stderr.
    facts : mapping, optional
        More to be written into `run.json`.
    **options
        See `EnsembleOptions`, `NestedOptions`, `NutsOptions` and `MaximumOptions`.

    Raises
    ------
    InputError
        An unknown sampler or option, too few walkers, nothing to sample.
    RunError
        The run directory is in use, or belongs to a run that differs.
    RunInterrupted
        SIGINT or SIGTERM came; the same call goes on.
    LikelihoodError
        The likelihood is nowhere finite, or returned NaN, +inf or another shape; or ("none") the data do
        not tell parameters apart.
    BackendError
        The device failed in mid-run; what was sampled before is saved.
    """
    from biro.maximum.target import Target
    from biro.samplers.options import KINDS, as_dict, parse

    if sampler not in SAMPLERS:
        raise InputError(f"unknown sampler {sampler!r}; there are {', '.join(SAMPLERS)}")
    target = Target(likelihood)
    kind: Any = KINDS[sampler]
    resolved = parse(kind, options, target.n_param)
    if seed is None:
        seed = _recorded_seed(run_dir)
    if seed is None:
        seed = secrets.randbelow(2**31)
    if not 0 <= seed < 2**32:
        raise InputError(f"seed must be from 0 to 2^32 - 1, got {seed}")
    provenance = Provenance(
        sampler=sampler,
        seed=seed,
        options=as_dict(resolved),
        data_digest=likelihood.observation.digest(),
        model_digest=likelihood.model.digest(),
        model_toml=likelihood.model.to_toml(),
        versions=versions(),
    )
    if run_dir is None:
        with stop_on_signal() as stop, _device_errors("nothing was saved without run_dir"):
            return _run(target, resolved, provenance, None, stop, progress=progress)
    settings = {
        "sampler": sampler,
        "seed": seed,
        "options": as_dict(resolved),
        "data": provenance.data_digest,
        "model": provenance.model_digest,
        "likelihood": likelihood.digest(),
        "sampler version": provenance.versions.get(provenance.package),
    }
    record = {"likelihood": likelihood.description(), **(facts or {})}
    with (
        stop_on_signal() as stop,
        RunDirectory(
            run_dir, settings, may_change=kind.may_change, facts=record, model_toml=provenance.model_toml
        ) as run,
        _device_errors(
            f"{run.path} has what was sampled before: the same call goes on from there, "
            "on the CPU where the device does not come back"
        ),
    ):
        return _run_in(run, target, resolved, provenance, stop, progress=progress)


def _run_in(
    run: RunDirectory, target: Any, options: Any, provenance: Provenance, stop: StopFlag, *, progress: bool
) -> Posterior:
    """Sample in a run directory, or read what was sampled there."""
    if run.finished:
        posterior = Posterior.load(run.posterior_path)
        # More draws of NUTS are what was asked for; a longer chain of emcee is as long as it may become.
        enough = posterior.diagnostics.get("converged") and posterior.provenance.sampler != "nuts"
        if enough or dict(posterior.provenance.options) == dict(provenance.options):
            log.info("%s is finished; read from there", run.path)
            return posterior
    run.reopen(provenance.options)
    posterior = _run(target, options, provenance, (run.path, run.run_id), stop, progress=progress)
    try:
        posterior.save(run.posterior_path)
        run.finish()
    except OSError as error:  # a full disk must not cost what was sampled
        log.error(
            "%s cannot be written (%s); %s. The same command goes on from what the run has saved",
            run.posterior_path,
            error,
            _save_elsewhere(posterior, run.run_id),
        )
    return posterior


def _save_elsewhere(posterior: Posterior, run_id: str) -> str:
    """Save it on another disk, maybe, and say where."""
    try:
        path = Path(tempfile.gettempdir(), f"posterior-{run_id}.nc")
        posterior.save(path)
    except OSError:
        return "nor is there room for it elsewhere"
    return f"it is in {path}"


def _run(
    target: Any,
    options: Any,
    provenance: Provenance,
    folder: tuple[Path, str] | None,
    stop: StopFlag,
    *,
    progress: bool,
) -> Posterior:
    if provenance.sampler == "emcee":
        from biro.samplers.chain import FILE, ChainFile
        from biro.samplers.ensemble import EnsembleRun

        chain = ChainFile(folder[0] / FILE, folder[1]) if folder else None
        ensemble = EnsembleRun(target, options, provenance.seed, chain)
        backend = ensemble.run(stop, progress=progress)
        _say_what_was_not_a_number(target)
        return ensemble.posterior(backend, provenance)
    if provenance.sampler == "nuts":
        from biro.samplers.draws import FILE as DRAWS
        from biro.samplers.draws import DrawsFile
        from biro.samplers.nuts import NutsRun

        draws = DrawsFile(folder[0] / DRAWS, folder[1]) if folder else None
        nuts = NutsRun(target, options, provenance.seed, draws)
        density, z = nuts.run(stop, progress=progress)
        _say_what_was_not_a_number(target)
        return nuts.posterior(density, z, provenance)
    if provenance.sampler == "none":
        from biro.samplers.normal_approximation import about_maximum

        return about_maximum(
            target, options, provenance, folder[0] if folder else None, stop, progress=progress
        )
    from biro.samplers.nested import Checkpoint, NestedRun

    checkpoint = Checkpoint(folder[0] / "checkpoint.bin", folder[1]) if folder else None
    nested = NestedRun(
        target, options, provenance.seed, checkpoint, dynamic=provenance.sampler == "dynesty-dynamic"
    )
    finished = nested.run(stop, progress=progress)
    _say_what_was_not_a_number(target)
    return nested.posterior(finished, provenance)


def _say_what_was_not_a_number(target: Any) -> None:
    n_nan = getattr(target.likelihood, "nan_count", 0)
    if n_nan:
        log.warning(
            "%d likelihood values were not a number, and counted as impossible; is part of the prior absurd?",
            n_nan,
        )


@contextmanager
def _device_errors(what_now: str) -> Iterator[None]:
    """Turn what a device that fails in the middle of a run throws into one line that says how to go on."""
    try:
        yield
    except Exception as error:
        package = ".".join(type(error).__module__.split(".")[:2])
        if not isinstance(error, BackendError) and not package.startswith(_DEVICE_PACKAGES):
            raise
        words = str(error).strip() or type(error).__name__
        raise BackendError(f"the device failed: {words.splitlines()[0]}; {what_now}") from error


def _recorded_seed(run_dir: str | os.PathLike[str] | None) -> int | None:
    record = read_record(Path(run_dir)) if run_dir is not None else None
    return record["settings"].get("seed") if record else None
