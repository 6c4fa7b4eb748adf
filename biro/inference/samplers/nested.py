"""The adapter of dynesty: nested sampling, static or dynamic, with proposals evaluated in batches."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any, TypeAlias

import numpy as np
from dynesty import DynamicNestedSampler
from dynesty.dynamicsampler import DynamicSamplerStatesEnum as Stage
from numpy.typing import NDArray

from biro.display.formatting import number_of
from biro.display.progress import Bar, bar
from biro.errors import LikelihoodError
from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.samples import Provenance
from biro.inference.samplers.add_maximum import with_mode_weights
from biro.inference.samplers.context import RunContext
from biro.inference.samplers.dynesty_checkpoint import FILE, Checkpoint
from biro.inference.samplers.options import NestedOptions
from biro.inference.target.batching import BatchingPool, ask
from biro.inference.target.checked import Target
from biro.run.interrupt import StopFlag
from biro.run.log_file import NOTICE

log = logging.getLogger(__name__)

# dynesty has no types: its results, and its record of one iteration.
Dynesty: TypeAlias = Any

_SAVED_IN = (Stage.INBASE, Stage.INBATCH)
"""Stages between whose iterations a sampler's state is whole (dynesty saves in these, too)."""


def run_dynesty(target: Target, options: NestedOptions, context: RunContext) -> Posterior:
    """Sample with dynesty; its state is kept in the run directory, where there is one."""
    checkpoint = Checkpoint(context.folder / FILE, context.run_id) if context.folder else None
    dynamic = context.provenance.sampler == "dynesty-dynamic"
    run = NestedRun(target, options, context.provenance.seed, checkpoint, dynamic=dynamic)
    sampler = run.run(context.stop, progress=context.progress)
    target.warn_of_nan()
    return with_mode_weights(target, run.posterior(sampler, context.provenance), options.n_live)


class NestedRun:
    """One run of dynesty on a target.

    dynesty works in the unit cube; parameters, constraints and likelihood are evaluated for whole
    batches. A static run is the baseline of a dynamic one without batches added to it.

    Parameters
    ----------
    target : Target
    options : NestedOptions
        Resolved.
    seed : int
    checkpoint : Checkpoint or None
    dynamic : bool
        Add batches where they help the posterior, up to `n_effective`.
    """

    def __init__(
        self,
        target: Target,
        options: NestedOptions,
        seed: int,
        checkpoint: Checkpoint | None,
        *,
        dynamic: bool,
    ) -> None:
        self._target = target
        self._options = options
        self._seed = seed
        self._checkpoint = checkpoint
        self._dynamic = dynamic

    def run(self, stop: StopFlag, *, progress: bool) -> DynamicNestedSampler:
        """Sample to the end; returns the finished sampler.

        Raises
        ------
        RunInterrupted
            `stop` was set; the state has been saved.
        LikelihoodError
            The likelihood returned what it must not, or is finite nowhere.
        """
        with (
            BatchingPool(self._target.log_likelihood_of_unit, self._options.batch) as pool,
            bar("dynesty", "iterations", show=progress) as shown,
            warnings.catch_warnings(),
            _errors_of_dynesty(),
        ):
            warnings.filterwarnings("ignore", category=UserWarning, module="dynesty")
            warnings.filterwarnings("ignore", message="All the initial likelihood values are the same")
            restored = self._checkpoint.restore(pool) if self._checkpoint else None
            if restored is not None:
                log.log(NOTICE, "continuing from iteration %d", restored.it)
            sampler = restored or self._new(pool)
            # dynesty wraps a likelihood so as to print every exception; ours pass through 64 threads.
            sampler.loglikelihood.loglikelihood = ask
            if sampler.internal_state != Stage.RUN_DONE:
                sampler.run_nested(
                    resume=restored is not None,
                    dlogz_init=self._options.dlogz,
                    n_effective=self._options.n_effective,
                    maxbatch=None if self._dynamic else 0,
                    print_func=_Watch(self, sampler, stop, shown),
                    save_bounds=False,
                )
            log.info("%d likelihood calls of %.1f rows", pool.n_call, pool.n_row / max(pool.n_call, 1))
        if self._checkpoint:
            self._checkpoint.save(sampler, now=True)
        if not np.ptp(sampler.results.logl) > 0:
            log.warning(
                "the likelihood is the same everywhere, so the result is the prior. Check the selection "
                "of the data and the model"
            )
        return sampler

    def posterior(self, sampler: DynamicNestedSampler, provenance: Provenance) -> Posterior:
        """Weighted samples, and the evidence of the normalised prior.

        With prior mass m left by the constraints that the unit cube does not build in, the prior is
        pi(theta) / m where allowed, so that ln Z = ln Z(dynesty) - ln m.
        """
        results = sampler.results
        mass_error = self._target.likelihood.model.log_constraint_mass_error
        theta = self._target.theta(np.asarray(results.samples, dtype=np.float64))
        log_weight = np.asarray(results.logwt) - results.logz[-1]
        log_weight -= np.logaddexp.reduce(log_weight)
        heavy = log_weight > log_weight.max() - 60.0  # points of less weight than e-60 change no number
        log_likelihood = np.asarray(results.logl, dtype=np.float64)[heavy]
        effective = 1.0 / np.sum(np.exp(2.0 * log_weight[heavy]))
        return Posterior(
            columns=self._target.columns,
            samples=theta[heavy],
            log_weight=log_weight[heavy],
            log_likelihood=log_likelihood,
            log_prior=self._target.log_prior(theta[heavy]),
            provenance=provenance,
            effective=np.full(self._target.n_param, effective),
            log_evidence=float(results.logz[-1]) - self._target.likelihood.log_constraint_mass,
            log_evidence_err=float(np.hypot(self._evidence_error(results), mass_error)),
            diagnostics={
                "n_iteration": float(len(results.logl)),
                "n_call": float(sampler.ncall),
                "efficiency_percent": float(sampler.eff),
                "information_nat": float(results.information[-1]),
                "converged": 1.0,
            },
        )

    def _evidence_error(self, results: Dynesty) -> float:
        """What dynesty says, and no less than sqrt(H / n_live), H the information, n_live of the baseline.

        The two are alike for a static run. Walks of the batches that a dynamic run adds begin at what it
        had: the scatter of ln Z stays near that of the baseline, 1.6 times what dynesty says (docs/trust.md).
        """
        least = np.sqrt(max(float(results.information[-1]), 0.0) / self._options.n_live)
        return max(float(results.logzerr[-1]), float(least))

    def save(self, sampler: DynamicNestedSampler, *, now: bool) -> bool:
        """Save if it is time to and the state is whole; whether it is whole."""
        whole = sampler.internal_state in _SAVED_IN
        if whole and self._checkpoint:
            self._checkpoint.save(sampler, now=now)
        return whole

    def _new(self, pool: BatchingPool) -> DynamicNestedSampler:
        options = self._options
        wraps = np.flatnonzero(self._target.wraps).tolist()
        return DynamicNestedSampler(
            ask,
            _same,
            self._target.n_param,
            nlive=options.n_live,
            bound=options.bound,
            sample=options.method,
            walks=options.walks if options.method == "rwalk" else None,
            periodic=wraps or None,
            rstate=np.random.default_rng(self._seed),
            pool=pool,
            queue_size=options.batch,
            use_pool={"prior_transform": False, "update_bound": False, "stop_function": False},
        )


@contextmanager
def _errors_of_dynesty() -> Iterator[None]:
    """Errors that dynesty itself raises, as ours; those of a likelihood pass."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        *_, (frame, _) = walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").partition(".")[0] != "dynesty":
            raise
        words = " ".join(str(error).split())
        raise LikelihoodError(f"dynesty gave up: {words} Check the model and its priors") from error


class _Watch:
    """Called by dynesty at each iteration: progress, checkpoints, and the end when a signal came."""

    def __init__(self, run: NestedRun, sampler: DynamicNestedSampler, stop: StopFlag, shown: Bar) -> None:
        self._run, self._sampler, self._stop, self._shown = run, sampler, stop, shown
        self._worded = 0.0

    def __call__(self, result: Dynesty, n_iteration: int, n_call: int, **more: float | None) -> None:
        if not self._shown.disable and time.monotonic() - self._worded > 0.5:
            self._worded = time.monotonic()
            self._shown.set_postfix_str(_words(result, n_call, more), refresh=False)
        self._shown.update(n_iteration - self._shown.n)
        if self._run.save(self._sampler, now=bool(self._stop)) and self._stop:
            self._stop.raise_interrupted(
                f"{number_of(n_iteration, 'iteration')} saved. The same command continues from there"
            )


def _words(result: Dynesty, n_call: int, more: dict[str, float | None]) -> str:
    error = np.sqrt(result.logzvar) if 0.0 <= result.logzvar < 1e6 else np.nan
    text = f"lnZ {result.logz:.2f} +- {error:.2f}, {n_call} calls, efficiency {result.eff:.1f} %"
    if more.get("nbatch"):
        return f"batch {more['nbatch']}, {text}"
    return f"{text}, dlogz {result.delta_logz:.3g} (to {more.get('dlogz') or 0:g})"


def _same(unit: NDArray[np.float64]) -> NDArray[np.float64]:
    """dynesty's prior transform: none, because `Target` transforms whole batches."""
    return unit
