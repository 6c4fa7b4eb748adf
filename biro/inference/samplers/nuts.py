"""The adapter of nutpie: NUTS, Hamiltonian trajectories along the gradient, for many parameters."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import time
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import number_of
from biro.display.progress import SEARCH, Bar, bar
from biro.errors import InputError, LikelihoodError
from biro.inference.maximum.maximum import STARTS, maximise
from biro.inference.maximum.modes import Mode, modes_to_explore, shares
from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.samples import Provenance
from biro.inference.posterior.table import LEAST_BFMI
from biro.inference.samplers.chains import (
    ModeWeights,
    chain_statistics,
    mode_of_chain,
    weights_of_regions,
)
from biro.inference.samplers.context import RunContext
from biro.inference.samplers.coordinates.whitened import Whitened
from biro.inference.samplers.gate import BatchGate
from biro.inference.samplers.normal_approximation import MaximumFile
from biro.inference.samplers.nuts_draws import (
    FILE,
    RECORDER,
    NutsDraws,
    NutsDrawsFile,
    NutsProgress,
)
from biro.inference.samplers.options import NutsOptions
from biro.inference.samplers.regions import Regions
from biro.inference.target.checked import Target
from biro.inference.target.protocol import differentiable
from biro.run.interrupt import StopFlag
from biro.run.log_file import NOTICE

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
_BATCH = 256
# nutpie has no types: its module, sampler, model and trace.
Nutpie: TypeAlias = Any
CHECK_EVERY = 0.2
"""Seconds between two checks whether to stop."""
_SCATTER = 0.5
"""Sigmas by which the places where chains begin scatter about a mode."""
_TRIES = 100
"""Places about a mode that are tried for the begin of a chain."""
_MOST_MODES = 64
"""Modes in which chains begin, at most: each needs a chain."""
_PAIRS = 16
"""Modes up to which two chains at least begin in each, which R-hat compares."""
_TUNE_AGAIN = 50
"""Steps for tuning, at least, when a run goes on."""
R_HAT, N_EFFECTIVE = 1.01, 400.0
"""A run has converged below this, and above this many effective draws of each parameter."""


class OutsideError(Exception):
    """The density is zero here: nutpie ends the trajectory before this step."""

    is_recoverable = True


def run_nuts(target: Target, options: NutsOptions, context: RunContext) -> Posterior:
    """Sample with NUTS; the draws are kept in the run directory, where there is one."""
    file = NutsDrawsFile(context.folder / FILE, context.run_id) if context.folder else None
    seed, kept = context.provenance.seed, MaximumFile(context.folder)
    run = NutsRun(target, options, seed, file, kept, context.starts)
    density, z = run.run(context.stop, progress=context.progress)
    target.warn_of_nan()
    return run.posterior(density, z, context.provenance)


class NutsRun:
    """One run of NUTS on a target.

    Chains move side by side in threads of nutpie's; their gradients are worked out together. They begin
    about the maximum (`biro.maximise`), in coordinates in which its curvature is 1; nutpie adapts step and
    scales from there. Where there are several modes, chains begin in each of them, and there are as many
    chains as modes at least. Where chains do not cross between modes, each stays in the region of its own
    (`biro.inference.samplers.regions`), beyond which its density is zero, and its draws are weighted by the
    evidence of the region.

    Parameters
    ----------
    target : Target
    options : NutsOptions
    seed : int
    file : NutsDrawsFile or None
        Where draws are kept; None keeps them in memory only.
    maximum_file : MaximumFile
        Where the maximum about which the chains begin is kept.
    starts : int or float64 (n_start, n_param)
        Of the climb to it.
    """

    def __init__(
        self,
        target: Target,
        options: NutsOptions,
        seed: int,
        file: NutsDrawsFile | None,
        maximum_file: MaximumFile,
        starts: int | Array = STARTS,
    ) -> None:
        self._likelihood = differentiable(target.likelihood, "NUTS")
        self.nutpie_modules = nutpie_modules()
        self._target, self._options, self._seed = target, options, seed
        self._file, self._maximum_file, self._starts = file, maximum_file, starts
        self._modes: list[Mode] = []
        self._regions: Regions | None = None
        self._facts: dict[str, float] = {}

    def run(self, stop: StopFlag, *, progress: bool) -> tuple[Whitened, Array]:
        """Sample; the coordinates, and the draws in them, (n_chain, n_draw, n_param).

        Raises
        ------
        RunInterrupted
            `stop` was set; the draws have been saved.
        LikelihoodError
            No maximum was found, or a gradient is not a number.
        """
        n_draw, n_param = self._options.n_draw, self._target.n_param
        saved = self._file.read(self._options.n_chain, n_param) if self._file is not None else None
        if saved is None or self._maximum_file.facts.get("n_mode") != 1.0:
            self._modes = self._find_modes(stop, progress=progress)
        if len(self._modes) > 1:
            regions = Regions(self._target, self._modes)
            self._regions = regions if len(regions) > 1 else None
        if saved is None:
            alone = len(self._modes) == 1
            density = Whitened.about(self._likelihood, self._modes[0].laplace, straight=alone)
            before = self._beginning(density)
        else:
            frame, before = saved
            density = Whitened(self._likelihood, frame)
            tuned = f" and {before.n_tuned} for tuning" if before.n_tuned < self._options.n_tune else ""
            log.log(NOTICE, "continuing from draw %d%s of each chain", before.z.shape[1], tuned)
        done = before
        if before.z.shape[1] < n_draw:
            done = self._sample(density, before, stop, progress=progress)
        self._note(done, n_draw)
        return density, done.z[:, :n_draw]

    def _find_modes(self, stop: StopFlag, *, progress: bool) -> list[Mode]:
        with bar(SEARCH, "batches", show=progress) as shown:

            def watch(best: float) -> None:
                shown.set_postfix_str(f"best log-posterior {best:.2f}", refresh=False)
                shown.update()
                if stop:
                    stop.raise_interrupted("no draw was saved. The same command starts again")

            maximum = maximise(self._likelihood, seed=self._seed, starts=self._starts, watch=watch)
            self._maximum_file.keep(maximum)
            modes = modes_to_explore(maximum.modes)[:_MOST_MODES]
            if len(modes) < len(maximum.modes):
                self._facts["n_explored"] = float(len(modes))
                of = dict(zip(map(id, maximum.modes), shares(maximum.modes), strict=True))
                self._facts["unexplored"] = 1.0 - float(sum(of[id(mode)] for mode in modes))
            return modes

    def _beginning(self, density: Whitened) -> NutsProgress:
        """Before the first draw; with several modes, the places about them at which the chains begin."""
        n_dim, n_mode = self._target.n_param, len(self._modes)
        each = 2 if n_mode <= _PAIRS else 1
        n_chain = self._options.n_chain if n_mode == 1 else max(self._options.n_chain, each * n_mode)
        before = NutsProgress.none(n_chain, n_dim)
        if len(self._modes) == 1:
            return before
        if n_chain > self._options.n_chain:
            log.log(
                NOTICE, "using %d chains instead of %d for %d modes", n_chain, self._options.n_chain, n_mode
            )
        rng, begun = np.random.default_rng([self._seed, 1]), np.empty((n_chain, n_dim))
        for chain, i_mode in enumerate(mode_of_chain(self._modes, n_chain)):
            begun[chain] = self._place_about(int(i_mode), density, rng)
        return before._replace(last=begun)

    def _place_about(self, i_mode: int, density: Whitened, rng: np.random.Generator) -> Array:
        """A place about a mode, (n_dim,), in its region; not beyond a constraint, where none can begin."""
        about = Whitened.about(self._likelihood, self._modes[i_mode].laplace, straight=False)
        for _ in range(_TRIES):
            theta = about.theta(_SCATTER * rng.normal(size=(1, self._target.n_param)))
            z = density.z(theta)
            there = self._regions is None or self._regions.of(theta)[0] == self._regions.group[i_mode]
            if there and np.isfinite(density.value_and_gradient(z)).all():
                break
        return np.asarray(z[0])

    def _sample(
        self, density: Whitened, before: NutsProgress, stop: StopFlag, *, progress: bool
    ) -> NutsProgress:
        options, (n_chain, n_before) = self._options, before.z.shape[:2]
        n_tune = max(options.n_tune - before.n_tuned, min(options.n_tune, _TUNE_AGAIN))
        draws = NutsDraws(n_tune, before)
        # To nutpie a call that failed is a divergence, after which a chain stays where it is and goes on.
        gate = BatchGate(lambda z: self._answers(density, z), failed=draws.freeze)
        sampler = self.nutpie_modules.sample(
            self._model(gate, draws, before, density),
            draws=options.n_draw - n_before,
            tune=n_tune,
            chains=n_chain,
            cores=n_chain,
            seed=self._seed + n_before + before.n_tuned,
            target_accept=options.target_accept,
            maxdepth=options.max_depth,
            progress_bar=False,
            blocking=False,
            return_raw_trace=True,
        )
        total = n_chain * (n_tune + options.n_draw - n_before)
        with bar("NUTS", "draws", total=total, show=progress) as shown:
            trace = self._wait(sampler, gate, density, draws, stop, shown)
        draws.look(trace, gate.n_row)
        self._save(density, draws)
        self._facts["rows_per_call"] = gate.n_row / max(1, gate.n_call)
        return draws.progress_state()

    def _answers(self, density: Whitened, z: Array) -> Array:
        """Log density, its derivatives and the region of each z (n, n_dim), float64 (n, n_dim + 2)."""
        region = np.zeros(len(z)) if self._regions is None else self._regions.of(density.theta(z))
        return np.column_stack([density.value_and_gradient(z), region])

    def _wait(
        self,
        sampler: Nutpie,
        gate: BatchGate,
        density: Whitened,
        draws: NutsDraws,
        stop: StopFlag,
        shown: Bar,
    ) -> Nutpie:
        """Wait for the end of the draws and return nutpie's trace; save them now and then.

        Raises
        ------
        RunInterrupted
            `stop` was set; the draws have been saved.
        LikelihoodError
            A gradient is not a number, or nutpie gave up.
        """
        trace: Nutpie = None
        given_up: LikelihoodError | None = None  # by nutpie, where the very first calls fail, too
        try:
            while trace is None and gate.error is None and not stop:
                with contextlib.suppress(TimeoutError):
                    trace = sampler.wait(timeout=CHECK_EVERY)
                shown.update(draws.n_step - shown.n)
                if trace is None and self._file is not None and self._file.is_due:
                    draws.look(sampler.inspect(), gate.n_row)
                    self._save(density, draws)
        except RuntimeError as error:
            given_up = LikelihoodError(f"NUTS ended: {str(error).splitlines()[0]}")
        if trace is None or gate.error is not None:
            failed = gate.error or given_up
            draws.freeze()
            if given_up is None:
                draws.look(trace or sampler.inspect(), gate.n_row)
            self._save(density, draws)
            if trace is None and given_up is None:
                _end(sampler, gate)
            if failed is not None:
                raise failed
            progress_state = draws.progress_state()
            n, tuned = progress_state.z.shape[1], progress_state.n_tuned
            what = (
                f"{number_of(n, 'draw')} of each chain"
                if n
                else f"{number_of(tuned, 'step')} of tuning of each chain"
            )
            stop.raise_interrupted(f"{what} saved. The same command continues from there")
        return trace

    def _save(self, density: Whitened, draws: NutsDraws) -> None:
        if self._file is not None:
            self._file.save(density.frame, draws)

    def _model(self, gate: BatchGate, draws: NutsDraws, before: NutsProgress, density: Whitened) -> Nutpie:
        """What nutpie samples: each chain asks the gate, and hands over its draws.

        A run that goes on does so in units of the spread of its draws, so that little is left to tune, and
        with each chain from its own last draw. Chains of a posterior with several modes begin in these.
        """
        n_dim, scale = self._target.n_param, before.scale
        home = None if self._regions is None else self._regions.of(density.theta(before.last))

        def log_density(scaled: Array) -> tuple[float, Array]:
            try:
                answer = gate(scale * scaled)
            except Exception:  # `_wait` sees it in the gate; at errors of other kinds nutpie panics
                raise OutsideError from None
            if not np.isfinite(answer).all() or (home is not None and answer[-1] != home[draws.index]):
                raise OutsideError
            return float(answer[0]), scale * answer[1:-1]

        def start(seed: object) -> Array:
            rng = np.random.default_rng(np.abs(np.frombuffer(bytes(str(seed), "ascii"), np.uint8)))
            last = draws.begin(seed)
            return _SCATTER * rng.normal(size=n_dim) if last is None else np.asarray(last / scale)

        return self.nutpie_modules.compiled_pyfunc.from_pyfunc(
            n_dim, lambda: log_density, lambda *_: draws.recorder(), ["float64"], [()], [RECORDER],
            make_initial_point_fn=start,
        )  # fmt: skip

    def _note(self, done: NutsProgress, n_draw: int) -> None:
        """Note the diagnostics of the draws, those of earlier processes of the run included."""
        stats = done.stats[:, :n_draw]
        energy = stats["energy"]
        self._facts |= {
            "n_divergent": float(stats["diverging"].sum()),
            "n_outside": float(stats["outside"].sum()),
            "bfmi": float(np.min(np.mean(np.diff(energy) ** 2, axis=1) / np.var(energy, axis=1, ddof=1))),
            "step_size": float(stats["step_size"][:, -1].mean()),
            "depth": float(stats["depth"].mean()),
            "n_gradient": float(done.n_gradient),
        }

    def posterior(self, density: Whitened, z: Array, provenance: Provenance) -> Posterior:
        """All draws, with what R-hat and effective numbers (Vehtari et al. 2021) say about them."""
        target = self._target
        n_chain, n_draw, n_param = z.shape
        chains = density.theta(z.reshape(-1, n_param)).reshape(z.shape)
        # Step after step, as a posterior has its chains.
        theta = target.wrapped(chains.swapaxes(0, 1).reshape(-1, n_param))
        log_prior = target.log_prior(theta)
        log_likelihood = np.concatenate([
            target.log_likelihood(theta[i : i + _BATCH]) for i in range(0, len(theta), _BATCH)
        ])  # fmt: skip
        weights: ModeWeights | None = None
        if self._regions is not None:
            draws = theta.reshape(n_draw, n_chain, n_param).swapaxes(0, 1)
            height = (log_prior + log_likelihood).reshape(n_draw, n_chain).T
            weights = weights_of_regions(target, self._regions, draws, height, provenance.seed)
        told = weights.statistics if weights else chain_statistics(chains, target.wraps, target.period)
        effective = told.effective
        is_enough = told.r_hat < R_HAT and effective.min() > N_EFFECTIVE
        is_enough &= not self._facts.get("bfmi", 1.0) < LEAST_BFMI
        return Posterior(
            columns=target.columns,
            samples=theta,
            log_weight=np.tile(weights.log_weight, n_draw) - np.log(n_draw) if weights else None,
            log_likelihood=log_likelihood,
            log_prior=log_prior,
            provenance=provenance,
            effective=effective,
            n_walker=n_chain,
            tau=len(theta) / effective,
            diagnostics={
                "r_hat": told.r_hat,
                "n_effective_tail": float(told.tail.min()),
                "converged": float(is_enough),
                **self._facts,
                **self._maximum_file.facts,
                **(weights.facts if weights else {}),
            },
        )


def _end(sampler: Nutpie, gate: BatchGate) -> None:
    """End the threads of nutpie. A call in progress is waited for, unless a second signal comes."""
    gate.close()
    try:
        while gate.busy:
            time.sleep(0.01)  # here, where signals are heard: nutpie hears none while it ends
    except BaseException:
        sampler.cancel = lambda: None  # which would wait for that call after all
        atexit.register(_leave, sampler, gate)
        raise
    sampler.abort()


def _leave(sampler: Nutpie, gate: BatchGate) -> None:
    """End Python while threads of nutpie may still run, which Python's own way of ending would crash in."""
    if gate.busy:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)
    sampler.abort()


def nutpie_modules() -> Nutpie:
    try:
        import nutpie.compiled_pyfunc
    except ImportError as error:
        words = f"NUTS needs the package nutpie ({error}); in the checkout of biro: pip install '.[nuts]'"
        raise InputError(words) from None
    return nutpie
