"""Whether residuals of the two parallel hands are as independent as a fit to both takes them to be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from biro.diagnosis.whiteness import clip
from biro.observation.correlations import PARALLEL_HANDS
from biro.observation.noise import sigma_of
from biro.observation.noise_of_hands import CORRELATION
from biro.observation.partition import Partition
from biro.observation.unequal_noise import unequal_noise

SCATTER = 1.2
"""Ratio of the scatter of the residuals of two hands below which nothing is said."""
N_RESIDUALS = 1 << 20
"""Visibilities that are looked at: with so many a correlation is known to better than 0.001."""
SIGNIFICANCE = 5.0
"""Standard deviations of either, for noise as the weights state it, below which nothing is said."""


@dataclass(frozen=True)
class ParallelHandResiduals:
    """Residuals of the parallel hands of a fit of Stokes I alone, in units of the fitted noise.

    Attributes
    ----------
    names : (str, str)
        "XX" and "YY", or "RR" and "LL".
    n_both : int
        Visibilities that both hands have.
    correlation : float
        Re sum r1 r2* / sqrt(sum |r1|^2 sum |r2|^2) over these.
    n : (int, int)
        Visibilities of each hand.
    scatter : (float, float)
        Rms of the real and of the imaginary part of each hand, outliers clipped.
    fourth : (float, float)
        <|r|^4> / <|r|^2>^2 of each hand: 2 of normal noise, more where there are outliers.
    """

    names: tuple[str, str]
    n_both: int
    correlation: float
    n: tuple[int, int]
    scatter: tuple[float, float]
    fourth: tuple[float, float] = (2.0, 2.0)

    @property
    def is_correlated(self) -> bool:
        """Beyond what so many independent residuals have by chance, whose correlation is 1 / sqrt(2 n)."""
        limit = max(CORRELATION, SIGNIFICANCE / math.sqrt(2.0 * max(1, self.n_both)))
        return abs(self.correlation) > limit

    @property
    def is_unequal(self) -> bool:
        """Beyond chance, for noise with tails and for few data alike.

        ln of a scatter has the variance (fourth - 1) / (4 n); the squared ratio of two, of normal noise, has
        the F distribution of 2 n1 and 2 n2 degrees of freedom, which matters for few data.
        """
        if not all(self.n) or not all(self.scatter):
            return False
        ratio = self.scatter[0] / self.scatter[1]
        error = math.sqrt(sum((m - 1.0) / (4.0 * n) for m, n in zip(self.fourth, self.n, strict=True)))
        n1, n2 = (2.0 * n for n in self.n)
        chance = min(special.fdtr(n1, n2, ratio**2), special.fdtrc(n1, n2, ratio**2))
        is_large = abs(math.log(ratio)) > max(math.log(SCATTER), SIGNIFICANCE * error)
        return bool(is_large and chance < special.ndtr(-SIGNIFICANCE))

    def remark(self) -> str:
        """What is wrong with the errors of a fit to both hands, and what to do; "" where nothing is."""
        both, found = " and ".join(self.names), []
        if self.is_correlated:
            found.append(f"are correlated ({self.correlation:.2f})")
        if self.is_unequal:
            found.append(
                f"differ in rms ({self.scatter[0]:.3g} and {self.scatter[1]:.3g} of the fitted noise)"
            )
        if not found:
            return ""
        text = f"residuals of {both} {' and '.join(found)}. "
        if self.correlation > 0.0 and self.is_correlated:
            text += f"Errors are about {math.sqrt(1.0 + self.correlation):.2f} times too small. "
        text += (
            "If both feeds of an antenna have the same gain errors, fit Stokes I (--stokes I, or "
            "stokes='I' in Python). If the gains of the feeds differ, fit them ([gain] feeds = \"ratio\")"
        )
        if self.is_unequal:
            text += '. Fit a noise factor for each with [noise] per = "correlation"'
        return text


def hand_residuals(
    partitions: Sequence[Partition],
    models: Sequence[NDArray[np.complexfloating]],
    factor: NDArray[np.float64],
) -> list[ParallelHandResiduals]:
    """Residuals of each pair of hands, all partitions together; none where the model tells the hands apart.

    Gains that differ between the feeds and that a model lacks leave residuals of this kind in both hands: an
    average of the hands makes one error of two, and no smaller one.

    Parameters
    ----------
    partitions : sequence of Partition
    models : sequence of complex (n_row, n_chan, n_corr), Jy
        Model visibilities of each partition.
    factor : float64 (n_partition,)
        Noise factor of each partition.
    """
    sums: dict[tuple[str, str], NDArray[np.float64]] = {}
    for part, model, s in zip(partitions, models, factor, strict=True):
        pair = [i for i, name in enumerate(part.corr_type) if name in PARALLEL_HANDS]
        if len(pair) != 2:
            continue
        first, second = pair
        if not np.array_equal(model[..., first], model[..., second]):
            return []
        names = (part.corr_type[first], part.corr_type[second])
        sums[names] = sums.get(names, np.zeros(10)) + _sums(part, model, pair, float(s))
    return [_hands(names, total) for names, total in sums.items()]


def residual_remarks(
    partitions: Sequence[Partition],
    antenna_names: Sequence[str],
    models: Sequence[NDArray[np.complexfloating]],
    factor: NDArray[np.float64],
) -> list[str]:
    """What residuals say against the errors of a fit: hands, and noise that the weights do not state.

    Parameters
    ----------
    partitions, models, factor
        As for `hand_residuals`.
    antenna_names : sequence of str
    """
    hands = hand_residuals(partitions, models, factor)
    of_correlations = not any(each.is_unequal for each in hands)
    unequal = unequal_noise(partitions, antenna_names, models, factor, of_correlations=of_correlations)
    return [*(each.remark() for each in hands), *unequal]


def _sums(
    part: Partition, model: NDArray[np.complexfloating], pair: Sequence[int], factor: float
) -> NDArray[np.float64]:
    """Where both hands count: number, r1 r2*, |r1|^2, |r2|^2; of each hand: |r|^2, |r|^4 and numbers."""
    weight = part.weight[..., pair].astype(np.float64)
    scaled = ((part.vis[..., pair] - model[..., pair]) * (np.sqrt(weight) / factor)).astype(np.complex128)
    counts = weight > 0
    for k in (0, 1):
        scaled[..., k] = clip(scaled[..., k], sigma_of(scaled[..., k][counts[..., k]]))
    square = np.abs(scaled) ** 2
    both = counts.all(axis=-1)
    product = (scaled[..., 0] * scaled[..., 1].conj()).real
    each = [square[..., k][counts[..., k]].sum() for k in (0, 1)]
    fourth = [(square[..., k][counts[..., k]] ** 2).sum() for k in (0, 1)]
    numbers = [np.count_nonzero(counts[..., k]) for k in (0, 1)]
    shared = [square[..., k][both].sum() for k in (0, 1)]
    return np.array(
        [np.count_nonzero(both), product[both].sum(), *shared, *each, *fourth, *numbers], np.float64
    )


def _hands(names: tuple[str, str], total: NDArray[np.float64]) -> ParallelHandResiduals:
    n_both, product, *squares = total.tolist()
    shared, each, fourth, numbers = squares[:2], squares[2:4], squares[4:6], squares[6:]
    scale = math.sqrt(shared[0] * shared[1])
    scatter = [math.sqrt(square / (2.0 * n)) if n else 0.0 for square, n in zip(each, numbers, strict=True)]
    return ParallelHandResiduals(
        names,
        int(n_both),
        product / scale if scale else 0.0,
        (int(numbers[0]), int(numbers[1])),
        (scatter[0], scatter[1]),
        (_fourth(each[0], fourth[0], numbers[0]), _fourth(each[1], fourth[1], numbers[1])),
    )


def _fourth(square: float, fourth: float, n: float) -> float:
    """<|r|^4> / <|r|^2>^2 from sums over n residuals; that of normal noise, of none."""
    return fourth * n / square**2 if square > 0.0 else 2.0
