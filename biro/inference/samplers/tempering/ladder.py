"""The ladder of inverse temperatures, and the swaps of states between neighbouring rungs.

Rung k has the density L^beta_k times the prior: beta_0 = 0 (the prior) < ... < beta_K = 1 (the posterior).
Swaps of even and of odd pairs of rungs take turns, so that a state that has moved up goes on moving up while
its swaps are accepted: the number of round trips between prior and posterior then does not fall with the
number of rungs, as it does for swaps of random pairs. The mean rejections r_k add up to the communication
barrier Lambda = sum_k r_k, whatever the ladder, as long as that is fine; about 2 Lambda rungs with equal
rejections (of 1/2) give the most round trips for the computation (Syed, Bouchard-Cote, Deligiannidis & Doucet
2022, J. R. Statist. Soc. B 84, 321, sections 3 to 5).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_FEWEST, _MORE = 3, 2
"""Rungs at least, and beyond twice the barrier."""
NEW, HEATED, COOLED = 0, 1, 2
"""States of a walker that has not met the prior yet; that met it last; that met the posterior since."""


def log_acceptance(beta: Array, log_likelihood: Array) -> Array:
    """ln of the probability that neighbouring rungs swap, float64 (n_rung - 1, n_walker); at most 0.

    alpha = min(1, exp((beta_{k+1} - beta_k) (ln L_k - ln L_{k+1}))).

    Parameters
    ----------
    beta : float64 (n_rung,)
        Ascending, from 0 to 1.
    log_likelihood : float64 (n_rung, n_walker)
        -inf at the prior only.
    """
    gain = log_likelihood[:-1] - log_likelihood[1:]
    return np.asarray(np.minimum(np.diff(beta)[:, None] * gain, 0.0))


def swap(
    rng: np.random.Generator, log_alpha: Array, odd: bool, states: tuple[NDArray[np.generic], ...]
) -> NDArray[np.bool_]:
    """Swap even or odd pairs of rungs, in place; which were swapped, bool (n_rung - 1, n_walker).

    Parameters
    ----------
    rng : Generator
    log_alpha : float64 (n_rung - 1, n_walker)
        `log_acceptance`.
    odd : bool
        Whether the odd pairs (1, 2), (3, 4), ... take their turn, or the even ones (0, 1), (2, 3), ...
    states : tuple of arrays (n_rung, n_walker, ...)
        All that goes with a state.
    """
    accepted = np.log(rng.random(log_alpha.shape)) < log_alpha
    accepted[int(not odd) :: 2] = False
    rung, walker = np.nonzero(accepted)
    for of in states:
        of[rung, walker], of[rung + 1, walker] = of[rung + 1, walker], of[rung, walker].copy()
    return accepted


def count_trips(visited: NDArray[np.int8]) -> int:
    """How many walkers have come back to the prior from the posterior; notes who is at an end now.

    Parameters
    ----------
    visited : int8 (n_rung, n_walker)
        `NEW`, `HEATED` or `COOLED`; it is changed in place.
    """
    n_trip = int((visited[0] == COOLED).sum())
    visited[0] = HEATED
    visited[-1][visited[-1] == HEATED] = COOLED
    return n_trip


def rungs_of(barrier: float) -> int:
    """How many rungs suit a communication barrier."""
    return max(_FEWEST, int(np.ceil(2.0 * barrier)) + _MORE)


def equalised(beta: Array, rejection: Array, n_rung: int) -> Array:
    """The ladder of `n_rung` rungs whose rejections are equal, float64 (n_rung,).

    The barrier up to beta is interpolated linearly between the rungs of the ladder that it was measured with.

    Parameters
    ----------
    beta : float64 (n,)
    rejection : float64 (n - 1,)
        Mean rejections of its pairs.
    n_rung : int
    """
    barrier = np.concatenate([[0.0], np.cumsum(np.maximum(rejection, 1e-3))])
    found = np.interp(np.linspace(0.0, barrier[-1], n_rung), barrier, beta)
    found[0], found[-1] = 0.0, 1.0
    return np.asarray(found)
