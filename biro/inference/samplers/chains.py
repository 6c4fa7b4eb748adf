"""What the chains of NUTS say of their draws: R-hat and effective numbers, in one mode or in several.

Chains that stay in separate regions of a posterior (`biro.inference.samplers.regions`) cannot tell how much
each region counts. Their draws are weighted by the evidence of the regions (`biro.inference.maximum.bridge`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.inference.maximum.bridge import effective_of_modes, error_of_largest, evidence_of_mode
from biro.inference.maximum.modes import Mode, shares
from biro.inference.samplers.regions import Regions
from biro.inference.target.checked import Target

Array = NDArray[np.float64]
_NO_WRAP = np.zeros(1, bool)


class ChainStatistics(NamedTuple):
    """R-hat, the highest of all parameters, and effective numbers (n_param,), bulk and tail."""

    r_hat: float
    bulk: Array
    tail: Array

    @property
    def effective(self) -> Array:
        """The smaller of both, (n_param,)."""
        return np.minimum(self.bulk, self.tail)


class ModeWeights(NamedTuple):
    """Weights of draws of chains that stayed in separate regions.

    Attributes
    ----------
    log_weight : float64 (n_chain,)
        Of each draw of a chain, not normalised.
    statistics : ChainStatistics
        R-hat within the regions; effective numbers with the errors of the regions' evidence.
    facts : dict
        For the diagnostics: `n_explored`, the number of regions, and `share_error`, one sigma of the part of
        the evidence that the largest has.
    """

    log_weight: Array
    statistics: ChainStatistics
    facts: dict[str, float]


def mode_of_chain(modes: Sequence[Mode], n_chain: int) -> NDArray[np.int64]:
    """The mode in which each chain begins, int64 (n_chain,): as many in each, the others by evidence."""
    parts, count = shares(modes), np.full(len(modes), n_chain // len(modes))
    for _ in range(n_chain % len(modes)):
        count[np.argmax(parts / count)] += 1
    return np.repeat(np.arange(len(modes)), count)[:n_chain]


def chain_statistics(chains: Array, wraps: NDArray[np.bool_], period: Array) -> ChainStatistics:
    """R-hat and effective numbers (Vehtari et al. 2021) of draws (n_chain, n, n_param).

    One chain is compared with itself, its first half with its second.
    """
    import arviz

    values = unwound(chains, wraps, period)
    if len(values) == 1:
        half = values.shape[1] // 2
        values = np.concatenate([values[:, :half], values[:, half : 2 * half]])
    data = arviz.convert_to_dataset(values)
    r_hat = float(np.max(arviz.rhat(data)["x"].values))
    bulk, tail = (np.asarray(arviz.ess(data, method=method)["x"].values) for method in ("bulk", "tail"))
    return ChainStatistics(r_hat, bulk, tail)


def weights_of_regions(
    target: Target, regions: Regions, chains: Array, log_posterior: Array, seed: int
) -> ModeWeights | None:
    """Weights of chains, each of which has stayed in one of several regions; None where they are not known.

    Parameters
    ----------
    target : Target
    regions : Regions
        Two or more.
    chains : float64 (n_chain, n, n_param)
        Draws, in the ranges of their priors.
    log_posterior : float64 (n_chain, n)
    seed : int
        Of the draws about the modes.
    """
    n_param = chains.shape[-1]
    home = regions.of(chains[:, -1])
    explored = np.unique(home)
    each = [chain_statistics(chains[home == k], target.wraps, target.period) for k in explored]
    found = []
    for k, statistics in zip(explored, each, strict=True):
        draws = chains[home == k].reshape(-1, n_param), log_posterior[home == k].ravel()
        # Of the density, too, which bridge sampling averages over: it has fewer than the parameters.
        of_density = chain_statistics(log_posterior[home == k][..., None], _NO_WRAP, np.ones(1))
        n_effective = float(min(statistics.effective.min(), of_density.effective.min()))
        rng = np.random.default_rng([seed, 2, int(k)])
        members = np.flatnonzero(regions.group == k).tolist()
        found.append(evidence_of_mode(target, regions.modes, members, draws, n_effective, rng))
    height, errors = np.array(found).T
    if not np.isfinite(errors).all():
        return None
    part = np.exp(height - np.logaddexp.reduce(height))
    per_chain = dict(zip(explored.tolist(), part / np.bincount(home)[explored], strict=True))
    values = unwound(chains, target.wraps, target.period)
    groups = [values[home == k].reshape(-1, n_param) for k in explored]
    means, variances = (np.array([of(values, axis=0) for values in groups]) for of in (np.mean, np.var))
    bulk, tail = (
        np.minimum(effective_of_modes(part, errors, means, variances, np.array(numbers)), log_posterior.size)
        for numbers in ([of.bulk for of in each], [of.tail for of in each])
    )
    facts = {"n_explored": float(len(explored)), "share_error": error_of_largest(part, errors)}
    return ModeWeights(
        np.log([per_chain[k] for k in home.tolist()]),
        ChainStatistics(max(of.r_hat for of in each), bulk, tail),
        facts,
    )


def unwound(chains: Array, wraps: NDArray[np.bool_], period: Array) -> Array:
    """Draws (n_chain, n, n_param) whose periodic parameters are within half a period of their mean direction.

    Chains that went round a different number of times are the same; R-hat shall not tell them apart.
    """
    phase = chains * (2.0 * np.pi / period)
    middle = np.arctan2(np.sin(phase).mean(axis=(0, 1)), np.cos(phase).mean(axis=(0, 1)))
    near = (middle + np.mod(phase - middle + np.pi, 2.0 * np.pi) - np.pi) * (period / (2.0 * np.pi))
    return np.where(wraps, near, chains)
