"""The adapter of emcee: an affine-invariant ensemble, half of its walkers in one likelihood call."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import emcee
import numpy as np
from emcee.backends import Backend
from numpy.typing import NDArray

from biro.display.formatting import number_of
from biro.display.progress import SEARCH, bar
from biro.errors import RunError
from biro.inference.maximum.maximum import STARTS, maximise
from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.samples import Provenance
from biro.inference.samplers.context import RunContext
from biro.inference.samplers.emcee_chain import FILE, ChainFile, last_state
from biro.inference.samplers.ensemble_start import find_mode, scatter
from biro.inference.samplers.normal_approximation import MaximumFile, draws_within
from biro.inference.samplers.options import EnsembleOptions
from biro.inference.target.checked import Target
from biro.inference.target.protocol import has_gradient
from biro.run.interrupt import StopFlag
from biro.run.log_file import NOTICE

log = logging.getLogger(__name__)

WINDOW = 5.0
"""The autocorrelation function is summed up to this many autocorrelation times (Sokal 1996)."""


def run_emcee(target: Target, options: EnsembleOptions, context: RunContext) -> Posterior:
    """Sample with emcee; the chain is kept in the run directory, where there is one."""
    chain = ChainFile(context.folder / FILE, context.run_id) if context.folder else None
    seed, kept = context.provenance.seed, MaximumFile(context.folder)
    run = EnsembleRun(target, options, seed, chain, kept, context.starts)
    backend = run.run(context.stop, progress=context.progress)
    target.warn_of_nan()
    return run.posterior(backend, context.provenance)


class EnsembleRun:
    """One run of emcee on a target.

    Moves are differential evolution (ter Braak 2006) and, one in five, emcee's stretch move; both leave
    the posterior as it is under any linear change of parameters. One move in twenty is by the whole
    difference
    of two walkers, which takes a walker from one maximum to another. emcee's snooker move is not used: its
    jumps scale with the distance, its acceptance does not, and -2 ln L of a Gaussian in 5 dimensions
    came out at 4.5 instead of 5.

    Parameters
    ----------
    target : Target
    options : EnsembleOptions
        Resolved.
    seed : int
    chain : ChainFile or None
        Where the chain is kept; None keeps it in memory only.
    maximum_file : MaximumFile
        Where the maximum about which the walkers begin is kept.
    starts : int or float64 (n_start, n_param)
        Of the climb to it.
    """

    def __init__(
        self,
        target: Target,
        options: EnsembleOptions,
        seed: int,
        chain: ChainFile | None,
        maximum_file: MaximumFile,
        starts: int | NDArray[np.float64] = STARTS,
    ) -> None:
        self._target = target
        self._options = options
        self._seed = seed
        self._chain, self._maximum_file, self._starts = chain, maximum_file, starts
        self._centre = np.zeros(target.n_param)

    def run(self, stop: StopFlag, *, progress: bool) -> Backend:
        """Sample until the chain is long enough; returns it.

        Raises
        ------
        RunInterrupted
            `stop` was set; the chain has been saved.
        LikelihoodError
            No start was found, or the likelihood returned NaN, +inf or another shape.
        """
        backend, state = self._begin(stop, progress=progress)
        sampler = emcee.EnsembleSampler(
            self._options.n_walker,
            self._target.n_param,
            self._log_posterior,
            backend=backend,
            vectorize=True,
            moves=[
                (emcee.moves.DEMove(), 0.75),
                (emcee.moves.DEMove(gamma0=1.0), 0.05),
                (emcee.moves.StretchMove(), 0.2),
            ],
        )
        # emcee wraps a function so as to print every exception, with all that it was called with.
        sampler.log_prob_fn = self._log_posterior
        old_tau = np.full(self._target.n_param, np.inf)
        with bar("emcee", "steps", initial=backend.iteration, show=progress) as shown:
            for look in looks(self._options.max_steps):
                if look > backend.iteration:
                    n_step = look - backend.iteration
                    try:
                        for moved in sampler.sample(state, iterations=n_step, skip_initial_state_check=True):
                            state = moved
                            shown.update()
                            self._after_step(backend, stop)
                    finally:
                        self._save(backend, now=True)
                elif 2 * look < backend.iteration:
                    continue  # a resumed chain: its early looks decide nothing
                tau = chain_tau(backend.chain[:look])
                shown.set_postfix_str(_words(backend, tau, look), refresh=False)
                stable = np.all(np.abs(tau - old_tau) < self._options.tau_change * tau)
                if stable and look > self._options.n_tau * tau.max():
                    break
                old_tau = tau
        return backend

    def posterior(self, backend: Backend, provenance: Provenance) -> Posterior:
        """Samples without burn-in (5 tau), thinned by half of the shortest tau."""
        n_step, n_walker = backend.iteration, self._options.n_walker
        tau = chain_tau(backend.chain[:n_step])
        n_burn = min(int(np.ceil(5 * tau.max())), n_step // 2)
        thin = max(1, int(tau.min() / 2))
        steps = slice(n_burn, n_step, thin)
        theta = self._target.wrapped(backend.chain[steps].reshape(-1, self._target.n_param))
        log_likelihood = backend.blobs[steps].reshape(-1)
        return Posterior(
            columns=self._target.columns,
            samples=theta,
            log_likelihood=log_likelihood,
            log_prior=backend.log_prob[steps].reshape(-1) - log_likelihood,
            provenance=provenance,
            effective=np.minimum((n_step - n_burn) * n_walker / tau, float(len(theta))),
            n_walker=n_walker,
            tau=tau,
            diagnostics={
                "n_step": float(n_step),
                "n_burn": float(n_burn),
                "thin": float(thin),
                "acceptance": float(backend.accepted.mean() / n_step),
                "steps_per_tau": float(n_step / tau.max()),
                "converged": float(n_step > self._options.n_tau * tau.max()),
                **self._facts,
            },
        )

    def _begin(self, stop: StopFlag, *, progress: bool) -> tuple[Backend, emcee.State]:
        backend = self._chain.restore() if self._chain else None
        if backend is not None and self._chain is not None and self._chain.centre is not None:
            self._centre = self._chain.centre
            if backend.shape != (self._options.n_walker, self._target.n_param):
                raise RunError(f"{self._chain.path} holds the chain of another run; give another directory")
            log.log(NOTICE, "continuing from step %d", backend.iteration)
            return backend, last_state(backend)
        walkers, self._centre = self._start(stop, progress=progress)
        if self._chain is not None:
            self._chain.centre = self._centre
        backend = Backend()
        backend.reset(self._options.n_walker, self._target.n_param)
        random_state = np.random.RandomState(self._seed).get_state()
        return backend, emcee.State(self._near(walkers), random_state=random_state)

    def _start(self, stop: StopFlag, *, progress: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Walkers about the maximum, and that; nothing is kept of a search that is stopped."""
        with bar(SEARCH, "calls", show=progress) as shown:

            def watch(best: float) -> None:
                shown.set_postfix_str(f"best so far {best:.2f}", refresh=False)
                shown.update()
                if stop:
                    stop.raise_interrupted("no step was saved. The same command starts again")

            n_walker = self._options.n_walker
            likelihood = self._target.likelihood
            if has_gradient(likelihood):
                maximum = maximise(likelihood, seed=self._seed, starts=self._starts, watch=watch)
                self._maximum_file.keep(maximum)
                drawn = maximum.particles
                if drawn is not None and len(drawn.theta) >= n_walker:
                    rng = np.random.default_rng([self._seed, 1])
                    return rng.permutation(drawn.theta)[:n_walker], maximum.best_fit
                if not maximum.unidentified:
                    walkers = draws_within(self._target, maximum, n_walker, self._seed, tails=False).theta
                    if len(walkers) == n_walker:
                        return self._target.wrapped(walkers), maximum.best_fit
            if np.ndim(self._starts) > 0:
                log.log(
                    NOTICE,
                    "a search of the prior found a better place than the start, so walkers begin there",
                )
            # Without gradients, or where the data leave a direction open, whose width is that of a step.
            start = find_mode(self._target, self._seed, watch)
            walkers = scatter(self._target, start, n_walker, self._seed)
            return walkers, self._target.theta(start.mode[None])[0]

    @property
    def _facts(self) -> dict[str, float]:
        """What is known of the modes; walkers that began at draws of the posterior began in all of them."""
        facts = self._maximum_file.facts
        tempered = facts.get("n_tempered", 0.0) >= self._options.n_walker
        return {name: value for name, value in facts.items() if not (tempered and name == "missed_mass")}

    def _near(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Theta with parameters that wrap moved to within half a period of the centre."""
        turns = np.rint((theta - self._centre) / self._target.period)
        return np.where(self._target.wraps, theta - turns * self._target.period, theta)

    def _log_posterior(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log posterior and log likelihood, (n, 2).

        A parameter that wraps is sampled in one period centred on the mode, so that no walker
        meets the ends of its prior near the mode.
        """
        result = np.full((len(theta), 2), -np.inf)
        away = (np.abs(theta - self._centre) > 0.5 * self._target.period) & self._target.wraps
        near = ~away.any(axis=1)
        if near.any():
            theta = self._target.wrapped(theta[near])
            log_prior, log_likelihood = self._target.log_prior_and_likelihood(theta)
            result[near] = np.stack([log_likelihood + log_prior, log_likelihood], axis=1)
        return result

    def _after_step(self, backend: Backend, stop: StopFlag) -> None:
        self._save(backend, now=bool(stop))
        if stop:
            stop.raise_interrupted(
                f"{number_of(backend.iteration, 'step')} saved. The same command continues from there"
            )

    def _save(self, backend: Backend, *, now: bool) -> None:
        if self._chain is not None:
            self._chain.append(backend, now=now)


def looks(max_steps: int) -> Iterator[int]:
    """Chain lengths at which convergence is looked at: 100, 200, then 10 % further each time.

    The same lengths whether a run was interrupted or not, so that it ends alike.
    """
    n = min(100, max_steps)
    while n < max_steps:
        yield n
        n = max(n + 100, int(1.1 * n))
    yield max_steps


def chain_tau(chain: NDArray[np.float64]) -> NDArray[np.float64]:
    """Integrated autocorrelation times (n_param,), in steps, without the first fifth of the chain.

    tau = 1 + 2 sum_t rho(t), summed to the first t >= 5 tau (Sokal 1996), with rho the autocorrelation
    about the mean of all walkers, averaged over walkers (Goodman & Weare 2010).

    Parameters
    ----------
    chain : float64 (n_step, n_walker, n_param)
    """
    rest = chain[len(chain) // 5 :]
    n_step, _, n_param = rest.shape
    tau = np.empty(n_param)
    for i in range(n_param):
        x = rest[:, :, i] - rest[:, :, i].mean()
        power = np.abs(np.fft.rfft(x, n=2 * n_step, axis=0)) ** 2
        covariance = np.fft.irfft(power.sum(axis=1))[:n_step]
        if not covariance[0] > 0:
            tau[i] = n_step
            continue
        sums = 2.0 * np.cumsum(covariance / covariance[0]) - 1.0
        enough = np.arange(n_step) >= WINDOW * sums
        tau[i] = sums[np.argmax(enough) if enough.any() else n_step - 1]
    return np.maximum(tau, 1.0)


def _words(backend: Backend, tau: NDArray[np.float64], look: int) -> str:
    acceptance = backend.accepted.mean() / backend.iteration
    best = backend.blobs[: backend.iteration].max()
    done = look / tau.max()
    return f"tau {tau.max():.0f}, {done:.0f} tau done, accepted {acceptance:.0%}, best lnL {best:.2f}"
