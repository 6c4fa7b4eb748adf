"""How visibilities of a model vary with time and frequency: where in steps, and how fast between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from biro.inference.target.protocol import DifferentiableLikelihood
from biro.models import BoundModel
from biro.models.components.partition_view import SampledTimes
from rime_kernels.arrays import Sources
from rime_kernels.jones_beam import JonesBeam

Array = NDArray[np.float64]
Index = NDArray[np.int64]
N_DRAW, N_GAIN = 256, 16
"""Draws of the prior that tell how far from the phase centre there may be brightness, and how gains turn."""


class ComparableLikelihood(DifferentiableLikelihood, Protocol):
    """What is asked of a likelihood, beside what the climb to its maximum asks."""

    @property
    def gains(self) -> str:
        """How gains are treated."""

    @property
    def model(self) -> BoundModel:
        """The model of the parameters of theta."""

    @property
    def full_model(self) -> BoundModel:
        """The model with the parameters that are integrated over or solved for."""

    @property
    def image_outlines(self) -> Sequence[Mapping[str, Array]]:
        """Corners of the images about each phase centre, direction cosines (4, 2)."""

    @property
    def full(self) -> ComparableLikelihood:
        """The likelihood with parameters in place of what is integrated over or solved for."""

    def completed(self, theta: Array) -> Array:
        """theta of `full`, with what is integrated over or solved for at its best values."""

    def fisher(self, theta: Array) -> Array:
        """The Fisher information, (n_param, n_param)."""

    def predict(self, theta: Array) -> list[NDArray[np.complexfloating]]:
        """Model visibilities of each partition, for one theta."""

    def log_likelihood(self, theta: Array) -> Any:
        """ln L, (n_batch,)."""

    def log_likelihood_and_gradient(self, theta: Array) -> tuple[Any, Array]:
        """ln L and its derivatives, for one theta."""


@dataclass(frozen=True, eq=False)
class Variation:
    """How visibilities of a partition vary.

    Attributes
    ----------
    distance : float, direction cosines
        Of the farthest brightness from the phase centre.
    times, channels : int64 (n_time,), (n_chan,), or None
        Numbers between which there is a step (`BoundModel.steps`); None: there are none.
    per_second, per_hertz : float, rad/s, rad/Hz
        How fast phases of gains turn on a baseline between steps.
    in_time : bool
        Whether anything varies with time but where baselines are.
    """

    distance: float
    times: Index | None = None
    channels: Index | None = None
    per_second: float = 0.0
    per_hertz: float = 0.0
    in_time: bool = True


def variations(likelihood: ComparableLikelihood) -> list[Variation]:
    """How the visibilities of each partition vary under the prior."""
    model = likelihood.full_model
    steps = [model.steps(i) for i in range(len(model.partitions))]
    return [
        Variation(distance, *numbers, *turn, in_time=_in_time(sources))
        for distance, numbers, turn, sources in zip(
            _distances(likelihood), steps, _turns_of_gains(model, steps), _typical(model), strict=True
        )
    ]


def _typical(model: BoundModel) -> list[Sources]:
    """The sources of each partition in the middle of the prior."""
    return model.at(model.prior_transform(np.full((1, model.n_param), 0.5))).sources()


def _in_time(sources: Sources) -> bool:
    """Whether brightness, beams or matrices of antennas have times."""
    terms, beam = sources.antenna_terms, sources.beam
    n_time = [sources.stokes.shape[1]]
    if terms is not None:
        n_time.append(terms.jones.shape[1])
    if beam is not None and beam.pointing is not None:
        n_time.append(beam.pointing.shape[1])
    if isinstance(beam, JonesBeam):
        n_time += [len(beam.angle), len(beam.feed_angle), len(np.atleast_2d(beam.antenna_class))]
    return bool(max(n_time) > 1)


def _distances(likelihood: ComparableLikelihood) -> list[float]:
    """How far from the phase centre of each partition there may be brightness, in direction cosines."""
    model = likelihood.model
    draws = np.random.default_rng(0).random((N_DRAW, model.n_param))
    all_sources, farthest = model.at(model.prior_transform(draws)).sources(), []
    for sources, outlines in zip(all_sources, likelihood.image_outlines, strict=True):
        moved = 0.0 if sources.template_shift is None else _farthest(sources.template_shift)
        of_images = max(map(_farthest, outlines.values()), default=0.0) + moved
        farthest.append(max(_farthest(sources.lm), of_images))
    return farthest


def _farthest(places: Array) -> float:
    """The largest distance from the origin of some places (..., 2)."""
    return float(np.hypot(places[..., 0], places[..., 1]).max(initial=0.0))


def _turns_of_gains(model: BoundModel, steps: Sequence[tuple[Index, Index]]) -> list[tuple[float, float]]:
    """How fast phases of gains turn between steps, rad/s and rad/Hz, on a baseline of each partition.

    Twice what the fastest antenna does in some draws of the prior.
    """
    pairs = [_neighbours(numbers) for _, numbers in steps]
    samples = [
        SampledTimes(np.arange(view.time.size), pair)
        for view, pair in zip(model.partitions, pairs, strict=True)
    ]
    theta = model.prior_transform(np.random.default_rng(0).random((N_GAIN, model.n_param)))
    at_pairs, found = model.taken(samples), []
    for i, (view, (numbers, _)) in enumerate(zip(at_pairs.partitions, steps, strict=True)):
        gains = [at_pairs.gains(theta, i, chan) for chan in range(view.chan_freq.size)]
        by_freq = np.abs(np.angle(gains[-1] * gains[0].conj())).max(initial=0.0)
        across = float(np.abs(view.chan_freq[-1] - view.chan_freq[0]))
        by_time = np.abs(np.angle(gains[0][:, 1:] * gains[0][:, :-1].conj())).max(axis=(0, 2, 3), initial=0.0)
        per_second = np.where(np.diff(numbers) == 0, by_time / np.diff(view.time), 0.0)
        per_hertz = by_freq / across if across else 0.0
        found.append((2.0 * float(per_second.max(initial=0.0)), 2.0 * float(per_hertz)))
    return found


def _neighbours(numbers: Index) -> Index:
    """Two neighbouring channels without a step between them, near the middle; one if there are none."""
    alike = np.flatnonzero(np.diff(numbers) == 0)
    return np.array([0]) if not alike.size else alike[alike.size // 2] + np.arange(2)
