"""The sampler "tempering": warm-up, steps until there are enough draws, posterior and evidence."""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import number_of
from biro.display.progress import bar
from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.samples import Provenance
from biro.inference.posterior.statistics import r_hat_of
from biro.inference.posterior.table import LEAST_TRIPS, MOST_REJECTED
from biro.inference.samplers.add_maximum import with_modes
from biro.inference.samplers.context import RunContext
from biro.inference.samplers.ensemble import chain_tau, looks
from biro.inference.samplers.tempering.cube import CubeProblem
from biro.inference.samplers.tempering.evidence import stepping_stone
from biro.inference.samplers.tempering.options import TemperingOptions
from biro.inference.samplers.tempering.problem import Problem
from biro.inference.samplers.tempering.state_file import FILE, TemperedState, TemperedStateFile
from biro.inference.samplers.tempering.warm_up import warm_up
from biro.inference.target.checked import Target
from biro.run.interrupt import StopFlag
from biro.run.log_file import NOTICE

log = logging.getLogger(__name__)
Array = NDArray[np.float64]

R_HAT = 1.01
"""Chains whose R-hat is below this agree (Vehtari et al. 2021)."""
_WITHOUT_TRIPS = 4.0
"""A run with so many times the effective draws that are wanted ends without enough round trips."""


def run_tempering(target: Target, options: TemperingOptions, context: RunContext) -> Posterior:
    """Sample by parallel tempering; its state is kept in the run directory, where there is one."""
    file = TemperedStateFile(context.folder / FILE, context.run_id) if context.folder else None
    run = TemperingRun(CubeProblem(target), options, context.provenance.seed, file)
    state = run.run(context.stop, progress=context.progress)
    target.warn_of_nan()
    if not np.ptp(state.log_likelihood[-1][1:]) > 0.0:
        log.warning(
            "the likelihood is the same everywhere, so the result is the prior. Check the selection of the "
            "data and the model"
        )
    return with_modes(target, posterior_of(run, target, state, context.provenance))


class TemperingRun:
    """One run of non-reversible parallel tempering.

    Walker w of all rungs is one replica: swaps are between neighbours of the same w, so that replicas are
    independent of each other after the warm-up, and R-hat may compare them.

    Parameters
    ----------
    problem : Problem
    options : TemperingOptions
        Resolved.
    seed : int
    file : TemperedStateFile or None
        Where the state is kept; None keeps it in memory only.
    """

    def __init__(
        self, problem: Problem, options: TemperingOptions, seed: int, file: TemperedStateFile | None
    ) -> None:
        self._problem, self._options, self._seed, self._file = problem, options, seed, file

    def run(self, stop: StopFlag, *, progress: bool) -> TemperedState:
        """Sample until there are enough effective draws and round trips; returns the state.

        Raises
        ------
        RunInterrupted
            `stop` was set; the state has been saved.
        LikelihoodError
            The likelihood returned what it must not, or is finite nowhere.
        """
        state = self._file.read(self._problem, self._options.n_walker) if self._file else None
        if state is None:
            state = self._warm_up(stop, progress=progress)
            self._save(state)
        else:
            log.log(NOTICE, "continuing from step %d", len(state))
        with bar("tempering", "steps", initial=len(state), show=progress) as shown:
            for look in looks(self._options.max_steps):
                if look > len(state):
                    # What ends a step half-way leaves the file as it is: only whole steps are kept.
                    while len(state) < look:
                        self._step(state, stop)
                        shown.update()
                    self._save(state)
                elif look < len(state):
                    continue  # of a resumed run
                found = self._statistics(state, look)
                shown.set_postfix_str(_words(found), refresh=False)
                if found["converged"] or self._is_hopeless(found):
                    break
        return state

    def _is_hopeless(self, found: dict[str, float]) -> bool:
        """Whether there are so many effective draws that only round trips are missing, which may stay so."""
        return found["n_effective"] >= _WITHOUT_TRIPS * self._options.n_effective and found["r_hat"] < R_HAT

    def _warm_up(self, stop: StopFlag, *, progress: bool) -> TemperedState:
        rng = np.random.default_rng(self._seed)
        with bar("adapting the temperatures", "steps", show=progress) as shown:

            def watch(best: float) -> None:
                shown.set_postfix_str(f"best lnL {best:.2f}", refresh=False)
                shown.update()
                if stop:
                    stop.raise_interrupted("no step was saved. The same command starts again")

            ensemble, moves = warm_up(self._problem, self._options.n_walker, rng, watch)
        log.info("%d temperatures of %d walkers", len(ensemble.beta), self._options.n_walker)
        return TemperedState(ensemble, moves, rng)

    def _step(self, state: TemperedState, stop: StopFlag) -> None:
        for _ in range(self._problem.moves_per_step):
            state.ensemble.move(state.moves, state.rng)
        state.keep()
        if self._file is not None and self._file.is_due:
            self._save(state)
        if stop:
            self._save(state)
            stop.raise_interrupted(
                f"{number_of(len(state), 'step')} saved. The same command continues from there"
            )

    def _save(self, state: TemperedState) -> None:
        if self._file is not None:
            self._file.save(state)

    def _statistics(self, state: TemperedState, n_step: int) -> dict[str, float]:
        """What the draws of the first steps say of the run."""
        chains = self._followed(state, n_step)
        tau = _tau_of(chains)
        n_burn = _burn_in(tau, n_step)
        effective = (n_step - n_burn) * self._options.n_walker / float(tau.max())
        ensemble = state.ensemble
        r_hat = max(r_hat_of(values) for values in chains[n_burn:].transpose(2, 1, 0))
        n_trip, worst = float(ensemble.n_trip), float(ensemble.rejection.max())
        is_enough = effective >= self._options.n_effective and r_hat < R_HAT
        is_enough &= n_trip >= LEAST_TRIPS and worst < MOST_REJECTED
        return {
            "n_step": float(n_step),
            "n_burn": float(n_burn),
            "n_rung": float(len(ensemble.beta)),
            "barrier": float(ensemble.rejection.sum()),
            "most_rejected": worst,
            "n_round_trip": n_trip,
            "acceptance": float(ensemble.acceptance[-1]),
            "n_call": float(ensemble.n_call),
            "n_effective": effective,
            "r_hat": r_hat,
            "converged": float(is_enough),
        }

    def _followed(self, state: TemperedState, n_step: int) -> Array:
        """What has to converge, float64 (n_step, n_walker, n_followed + 2).

        These are numbers of the draws of the posterior (`Problem.followed`); their ln L; and the deviations
        that the error of ln Z follows from, to which all rungs contribute.
        """
        draws = self._problem.followed(np.array(state.draws[:n_step]))
        height = np.array(state.log_likelihood[:n_step])
        deviation = stepping_stone(state.ensemble.beta, height)[1]
        return np.concatenate([draws, height[:, -1, :, None], deviation[..., None]], axis=2)

    def result(self, state: TemperedState) -> TemperedResult:
        """Draws without burn-in (5 tau), thinned by half of the shortest tau, and the evidence."""
        n_walker, n_step = self._options.n_walker, len(state)
        facts = self._statistics(state, n_step)
        tau = _tau_of(self._followed(state, n_step))
        n_burn = int(facts["n_burn"])
        steps = slice(n_burn, n_step, max(1, int(tau[:-2].min() / 2)))
        log_z, deviation = stepping_stone(state.ensemble.beta, np.array(state.log_likelihood[n_burn:]))
        # By the autocorrelation of each chain, and not less than by the scatter of the chains' means.
        by_time = deviation.var() * float(chain_tau(deviation[..., None])[0]) / deviation.size
        by_chain = deviation.mean(axis=0).var(ddof=1) / n_walker
        rows = np.array(state.draws[steps])
        return TemperedResult(
            rows=rows.reshape(-1, rows.shape[-1]),
            log_likelihood=np.array([of[-1] for of in state.log_likelihood[steps]]).reshape(-1),
            tau=tau[:-2],
            effective=np.minimum((n_step - n_burn) * n_walker / tau[:-2], float(rows[..., 0].size)),
            log_evidence=log_z,
            log_evidence_err=float(np.sqrt(max(by_time, by_chain))),
            diagnostics=facts,
        )


class TemperedResult(NamedTuple):
    """What a tempered run has found.

    Attributes
    ----------
    rows : float64 (n, n_row)
        Draws of the posterior, those of walkers together.
    log_likelihood : float64 (n,)
    tau, effective : float64 (n_followed,)
        Autocorrelation times in steps, and effective draws.
    log_evidence, log_evidence_err : float
        ln Z relative to the prior that was drawn from.
    diagnostics : dict
    """

    rows: Array
    log_likelihood: Array
    tau: Array
    effective: Array
    log_evidence: float
    log_evidence_err: float
    diagnostics: dict[str, float]


def posterior_of(
    run: TemperingRun, target: Target, state: TemperedState, provenance: Provenance
) -> Posterior:
    """The posterior of the parameters of an ordinary model, and its evidence."""
    found = run.result(state)
    theta, mass = target.wrapped(target.theta(found.rows)), target.likelihood.log_constraint_mass
    error = float(np.hypot(found.log_evidence_err, target.likelihood.model.log_constraint_mass_error))
    return Posterior(
        columns=target.columns,
        samples=theta,
        log_likelihood=found.log_likelihood,
        log_prior=target.log_prior(theta),
        provenance=provenance,
        effective=found.effective,
        n_walker=state.ensemble.rows.shape[1],
        tau=found.tau,
        log_evidence=found.log_evidence - mass,
        log_evidence_err=error,
        diagnostics=found.diagnostics,
    )


def _tau_of(chains: Array) -> Array:
    """Autocorrelation times; 1 of what is constant, which has converged.

    ln L is constant where the data say nothing, a number of sources where they leave no doubt. Replicas that
    do not move at all make no round trips.
    """
    tau = chain_tau(chains)
    tau[np.ptp(chains, axis=(0, 1)) == 0.0] = 1.0
    return tau


def _burn_in(tau: Array, n_step: int) -> int:
    return min(int(np.ceil(5.0 * tau.max())), n_step // 2)


def _words(found: dict[str, float]) -> str:
    return (
        f"{found['n_effective']:.0f} effective draws, {found['n_round_trip']:.0f} round trips of "
        f"{found['n_rung']:.0f} temperatures, R-hat {found['r_hat']:.3f}"
    )
