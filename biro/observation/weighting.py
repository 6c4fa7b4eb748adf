"""Weights other than those that a data set states: equal, tapered, or from the scatter of the data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from biro.choices import Weights
from biro.distributed.blocks import Vis, Weight
from biro.errors import InputError
from biro.observation.noise import MIN_DIFFERENCES, measure_noise, scatter_of_baselines
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.selection import Length, read_length
from rime_kernels.physics.phase import SPEED_OF_LIGHT

WITH_TAPER = (
    "Set [noise] factor = 1, and if the weights of the data are not in 1/Jy^2, --weights scatter "
    '(weights="scatter" in Python)'
)
"""What to do about the noise factor where weights are tapered."""


@dataclass(frozen=True)
class Weighting:
    """What is done with weights while data are read, before anything is averaged.

    Attributes
    ----------
    weights : "stated", "scatter" or "equal"
        "stated": as the data set has them. "scatter": those of each baseline and correlation are multiplied
        by one factor, so that they agree with the differences between neighbouring times
        (`biro.observation.noise.measure_noise`); where there are too few of these, by the factor of all
        baselines. "equal": 1/Jy^2 for all that count.
    taper : str with a unit, or float (m), optional
        uv distance at which weights fall to a half: they are multiplied by 2^-(distance / taper)^2. A
        taper in wavelengths ("50 klambda") is applied channel by channel.
    """

    weights: Weights = "stated"
    taper: Length | None = None

    def __post_init__(self) -> None:
        if self.weights not in get_args(Weights):
            raise InputError(f"weights must be 'stated', 'scatter' or 'equal', got {self.weights!r}")
        if self.taper is not None and not 0.0 < read_length(self.taper)[0] < np.inf:
            raise InputError(f"taper must be a distance above 0, got {self.taper!r}")

    @property
    def note(self) -> str:
        """What a taper means for the errors of a fit; "" without one.

        Of weights that are t times what they should be, a fitted noise factor has the square mean(t): what
        the taper hardly touches counts as less noisy than it is. With the factor of the noise itself, the
        error of a mean is 1 / sqrt(sum w t), which is no less than sqrt(sum w t^2) / sum w t, for t <= 1.
        """
        if self.taper is None:
            return ""
        return (
            "TAPERED WEIGHTS: a fitted noise factor comes out too low, and uncertainties too small. "
            f"{WITH_TAPER}"
        )

    def of(self, part: Partition) -> tuple[Partition, str]:
        """A partition with these weights, and a remark ("" where there is none)."""
        origin, remark, before = part.weight_origin, "", part
        if self.weights == "equal":
            part, origin = part.replaced(_equal)[0], "nowhere (all are equal)"
        elif self.weights == "scatter":
            found = _factors(part)
            if found.is_measured:
                part, _ = part.replaced(_scaled, each=part.split(found.factor))
                origin = f"{origin}, rescaled to the scatter of each baseline"
            remark = found.remark(f"{part.field}/spw{part.spw_id}")
        if self.taper is not None:
            part, n_lost, n_usable = self._tapered(part)
            if n_lost:
                lost = (
                    f"{part.field}/spw{part.spw_id}: {n_lost} of {n_usable} visibilities lie "
                    "so far beyond the taper that their weight is 0; biro does not use them"
                )
                remark = f"{remark}; {lost}" if remark else lost
            place = self.taper if isinstance(self.taper, str) else f"{self.taper:g} m"
            origin = f"{origin}, tapered to a half at {place}"
        if part is before:
            return part, remark
        return replace(part, weight_origin=origin, tapered=self.taper is not None), remark

    def _tapered(self, part: Partition) -> tuple[Partition, int, int]:
        """A partition with tapered weights, how many of them became 0, and how many there were."""
        assert self.taper is not None
        scale, in_wavelengths = read_length(self.taper)
        distance = np.hypot(part.uvw[:, 0], part.uvw[:, 1])
        freq = part.chan_freq if in_wavelengths else None
        tapered, counts = part.replaced(_taper, scale, freq, each=part.split(distance))
        return tapered, sum(n_lost for n_lost, _ in counts), sum(n_usable for _, n_usable in counts)


def _equal(vis: Vis, weight: Weight) -> tuple[Vis, Weight, None]:
    """Weights of 1/Jy^2 of what counts."""
    return vis, np.where(weight > 0, 1.0, 0.0).astype(np.float32), None


def _scaled(vis: Vis, weight: Weight, factor: NDArray[np.float64]) -> tuple[Vis, Weight, None]:
    """Weights times a factor (n_row, n_corr) of each row and correlation."""
    return vis, (weight * factor[:, None, :]).astype(weight.dtype), None


def _taper(
    vis: Vis,
    weight: Weight,
    distance: NDArray[np.float64],
    scale: float,
    chan_freq: NDArray[np.float64] | None,
) -> tuple[Vis, Weight, tuple[int, int]]:
    """Weights times 2^-(distance / scale)^2, distances in wavelengths where frequencies are given."""
    length = distance[:, None]
    if chan_freq is not None:
        length = length * (chan_freq / SPEED_OF_LIGHT)
    tapered = (weight * np.exp2(-((length / scale) ** 2))[:, :, None]).astype(weight.dtype)
    n_usable = int(np.count_nonzero(weight > 0))
    return vis, tapered, (n_usable - int(np.count_nonzero(tapered > 0)), n_usable)


@dataclass(frozen=True, eq=False)
class _Factors:
    """What weights are multiplied by, so that they agree with the scatter.

    Attributes
    ----------
    factor : float64 (n_row, n_corr)
        1 for correlations whose scatter is not known.
    n_own, n_baseline : int
        Baselines whose scatter was measured in each correlation, and all of them.
    unknown : tuple of str
        Correlations with too few differences of neighbouring times even on all baselines together.
    """

    factor: NDArray[np.float64]
    n_own: int
    n_baseline: int
    unknown: tuple[str, ...]

    @property
    def is_measured(self) -> bool:
        """Whether there is a correlation whose weights are scaled."""
        return len(self.unknown) < int(self.factor.shape[1])

    def remark(self, label: str) -> str:
        """What was not scaled by a factor of its own; "" where all was."""
        words = []
        if self.unknown:
            words.append(
                f"weights of {', '.join(self.unknown)} stay as in the data: fewer than {MIN_DIFFERENCES} "
                "differences of neighbouring times do not measure the scatter"
            )
        if self.is_measured and self.n_own < self.n_baseline:
            words.append(
                f"{self.n_baseline - self.n_own} of {self.n_baseline} baselines have too few neighbouring "
                "times for a scatter of their own; biro rescales them to the scatter of all baselines"
            )
        return f"{label}: {'; '.join(words)}" if words else ""


def _factors(part: Partition) -> _Factors:
    """Factors from the scatter of each baseline, or of all where a baseline has too few differences."""
    baseline, ratio = scatter_of_baselines(part)
    own = np.isfinite(ratio) & (ratio > 0.0)
    unknown = []
    for i, (name, of_corr) in enumerate(zip(part.corr_type, own.T, strict=True)):
        middle = float(np.median(ratio[of_corr, i])) if of_corr.any() else _of_all_baselines(part, name)
        if not middle > 0.0:
            unknown.append(name)
        ratio[~of_corr, i] = middle if middle > 0.0 else 1.0
    return _Factors((1.0 / ratio**2)[baseline], int(own.all(axis=1).sum()), len(ratio), tuple(unknown))


def _of_all_baselines(part: Partition, corr: str) -> float:
    """Measured over stated noise of a correlation from all baselines together; NaN of too few differences."""
    noise = measure_noise([part], corr)
    return noise.ratio if noise.n_difference >= MIN_DIFFERENCES else np.nan


def with_systematic(observation: Observation, fraction: float, vis: Iterable[Vis]) -> Observation:
    """The observation with sigma^2 -> sigma^2 + (fraction |V|)^2 of each visibility in the weights.

    Parameters
    ----------
    observation : Observation
    fraction : float
        As 0.02.
    vis : iterable of complex (n_row, n_chan, n_corr), Jy
        V of each partition: what the model expects of the data. Of the data themselves, those that noise made
        smaller would count more; they are for closures, whose gains are not known.
    """
    if fraction == 0.0:
        return observation
    parts = []
    for part, model in zip(observation.partitions, vis, strict=True):
        power = np.abs(model).astype(np.float64) ** 2
        weight = part.weight / (1.0 + fraction**2 * part.weight * power)
        parts.append(replace(part, weight=weight.astype(part.weight.dtype)))
    return replace(observation, partitions=tuple(parts))
