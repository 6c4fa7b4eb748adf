"""Why the noise of Stokes I differs from that of two independent parallel hands with correct weights.

With sigma_1 and sigma_2 the noise of the hands over that by their weights w_1 and w_2, rho its correlation,
and I = (w_1 V_1 + w_2 V_2) / (w_1 + w_2), whose weight is w_1 + w_2, the noise of I over that by weight is

    sqrt[(w_1 sigma_1^2 + w_2 sigma_2^2 + 2 rho sqrt(w_1 w_2) sigma_1 sigma_2) / (w_1 + w_2)].

It is sqrt(1 + rho) times that of the hands where the weights are equal. It is larger without correlation,
too, where a hand has a larger weight but no less noise, and where the hands differ and the ratio of their
weights changes from one time to the next. The plain mean (V_1 + V_2) / 2 has neither of the two, so that it
distinguishes weights from correlation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.observation.correlations import PARALLEL_HANDS
from biro.observation.noise import (
    BY_TIME,
    CHANCE,
    FIRST,
    MIN_DIFFERENCES,
    OF_CHANNEL,
    Complex,
    Kind,
    differences,
    neighbour_runs,
    sigma_of,
    some_rows,
    thermal_noise,
)
from biro.observation.partition import Partition

Array = NDArray[np.float64]
CORRELATION = 0.2
"""Correlation of the noise of two hands up to which nothing is said: errors are 10 % too small."""
EXCESS = math.sqrt(1.0 + CORRELATION)
"""Noise of Stokes I over that of the hands, both over that by weights, which this correlation makes."""
PART = 0.05
"""Part of the visibilities beyond each of the two ratios of weights that a remark states."""


@dataclass(frozen=True)
class NoiseOfHands:
    """Noise of the parallel hands and of their means, each over that by weights, where both hands count.

    Attributes
    ----------
    names : (str, str)
    n : int
        Complex differences of neighbours that it is measured on.
    hands : float
        Root mean square of that of the two hands.
    weighted : float
        That of the weighted mean, whose weight is w1 + w2.
    steady : float
        That of the weighted mean whose weights are held from one sample to its neighbour.
    plain : float
        That of the plain mean, whose weight is 4 / (1/w1 + 1/w2).
    correlation : float
    weight_ratio : (float, float)
        w1/w2 below which, and above which, one in twenty is.
    is_bound : bool
        Whether neighbours differ by more than noise.
    """

    names: tuple[str, str]
    n: int
    hands: float
    weighted: float
    steady: float
    plain: float
    correlation: float
    weight_ratio: tuple[float, float]
    is_bound: bool

    @property
    def error(self) -> float:
        """Standard error of the correlation, and of the logarithm of a ratio of two of the noises, at most.

        ln of a robust sigma of n complex differences has the error `OF_CHANNEL` / sqrt(n).
        """
        return OF_CHANNEL * math.sqrt(2.0 / self.n)

    def remark(self) -> str:
        """Why Stokes I is noisier than its hands are, and what to do; "" where it is not."""
        limit = max(EXCESS, math.exp(CHANCE * self.error)) * self.hands
        if not self.weighted > limit > 0.0:
            return ""
        both = " and ".join(self.names)
        head = f"I: {self.weighted:#.3g} times the noise from the weights, {both} {self.hands:#.3g} times"
        shared = max(0.0, self.correlation) * self.hands**2
        if self.correlation > CHANCE * self.error and self.weighted**2 - shared < limit**2:
            return f"{head}, because {self._common()}"
        if self.plain < limit:
            return (
                f"{head}, because {self._weights()}. Use --stokes I, the plain mean of {both}, which has "
                f"{self.plain:#.3g} times the noise from its weights"
            )
        explained = math.sqrt(self.hands**2 + shared)
        return (
            f"{head}. biro did not find the cause: the correlation {self.correlation:.2f} of {both} explains "
            f"{explained:#.3g} times, and their plain mean has {self.plain:#.3g} times"
        )

    def _common(self) -> str:
        if self.is_bound:
            return (
                "the sky or gains change from one time to the next in both hands (correlation "
                f"{self.correlation:.2f})"
            )
        factor = math.sqrt(1.0 + self.correlation)
        return (
            f"the noise of the hands is correlated ({self.correlation:.2f}). A fit of both hands would give "
            f"errors {factor:.2f} times too small. Use --stokes I"
        )

    def _weights(self) -> str:
        low, high = self.weight_ratio
        ratio = f"{low:.2g} to {high:.2g}"
        if self.weighted**2 - self.steady**2 > self.steady**2 - self.hands**2:
            return (
                f"the hands differ (gains or polarisation), and the ratio of their weights ({ratio}) changes "
                "from one time to the next"
            )
        return f"the ratio of the weights of the hands ({ratio}) does not follow their noise"


def noise_of_hands(partitions: Sequence[Partition]) -> NoiseOfHands | None:
    """Compare the noise of Stokes I with that of the hands, from the differences that measure the noise.

    Parameters
    ----------
    partitions : sequence of Partition

    Returns
    -------
    NoiseOfHands or None
        None where a partition has not two parallel hands, these are not the same two in all, or where both
        have too few neighbours.
    """
    names = {tuple(name for name in part.corr_type if name in PARALLEL_HANDS) for part in partitions}
    if len(names) != 1 or len(pair := names.pop()) != 2:
        return None
    found: dict[Kind, list[Complex]] = {}
    ratios = []
    size = sum(part.vis.size for part in partitions)
    for part in partitions:
        rows, channels = some_rows(part, size)
        vis, weight = (
            values[..., [part.corr_type.index(name) for name in pair]]
            for values in part.taken(rows, channels)
        )
        both = np.asarray((weight > 0.0).all(axis=2))
        counted = weight[both]
        ratios.append(counted[:, 0] / counted[:, 1])
        for axis, places in neighbour_runs(part, rows, vis.shape[1]):
            counts = np.logical_and.reduce([both[k] for k in places])
            samples = [vis[k][counts].astype(np.complex128) for k in places]
            weights = [weight[k][counts].astype(np.float64) for k in places]
            for kind, each in _scaled(samples, weights):
                found.setdefault((axis, kind), []).append(each)
    values_of = {kind: np.concatenate(some) for kind, some in found.items()}
    return _compared((pair[0], pair[1]), values_of, np.concatenate(ratios))


def _scaled(vis: Sequence[Complex], weight: Sequence[Array]) -> Iterator[tuple[str, Complex]]:
    """Each kind of difference, over its noise by weights: hand 1, hand 2, and weighted, steady, plain means.

    Parameters
    ----------
    vis : two or three of complex128 (n, 2), Jy
        Neighbours.
    weight : two or three of float64 (n, 2), 1/Jy^2

    Yields
    ------
    str, complex128 (n, 5)
    """
    total = [w.sum(axis=1, keepdims=True) for w in weight]
    share = [w / t for w, t in zip(weight, total, strict=True)]
    held = np.mean(share, axis=0)
    mean = [np.sum(a * v, axis=1, keepdims=True) for a, v in zip(share, vis, strict=True)]
    for (name, of_hands, norm), (_, of_mean, _) in zip(differences(vis), differences(mean), strict=True):
        variance = np.tensordot(np.square(norm), np.reciprocal(weight), 1)
        of_i = np.sqrt(np.tensordot(np.square(norm), np.reciprocal(total), 1))
        steady = np.sum(held * of_hands, axis=1, keepdims=True)
        plain = of_hands.sum(axis=1, keepdims=True) / np.sqrt(variance.sum(axis=1, keepdims=True))
        yield (
            name,
            np.concatenate([of_hands / np.sqrt(variance), of_mean / of_i, steady / of_i, plain], axis=1),
        )


def _compared(names: tuple[str, str], values: dict[Kind, Complex], ratios: Array) -> NoiseOfHands | None:
    """The comparison, of the kind of differences that measures the noise of the weighted mean."""
    enough = {kind: each for kind, each in values.items() if len(each) >= MIN_DIFFERENCES}
    if (BY_TIME, FIRST) not in enough:
        return None
    number = {kind: len(each) for kind, each in enough.items()}
    chosen = thermal_noise({kind: sigma_of(each[:, 2]) for kind, each in enough.items()}, number)
    assert chosen is not None, "there are differences of times"
    first, second, *means = enough[chosen.kind].T
    one, other, weighted, steady, plain = (sigma_of(each) for each in (first, second, *means))
    if not min(one, other) > 0.0:
        return None
    same, opposite = (sigma_of(first / one + sign * second / other) ** 2 for sign in (1.0, -1.0))
    low, high = np.quantile(ratios, (PART, 1.0 - PART)).tolist()
    return NoiseOfHands(
        names,
        number[chosen.kind],
        math.hypot(one, other) / math.sqrt(2.0),
        weighted,
        steady,
        plain,
        correlation=(same - opposite) / (same + opposite),
        weight_ratio=(low, high),
        is_bound=chosen.is_bound,
    )
