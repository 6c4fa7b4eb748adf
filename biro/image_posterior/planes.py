"""Planes of images beyond Stokes I at one frequency: all correlations, and frequencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.image_posterior.operator import ImageOperator
from biro.image_posterior.problem import ImageProblem
from biro.imaging.frequency_nodes import choose_nodes
from biro.models import ImagePrior, SkyModel
from biro.models.components.antenna_terms.feeds import basis_of
from biro.models.quantities import units
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from rime_kernels.choices import Backend

Array = NDArray[np.float64]
CORRELATIONS = {"circular": ("RR", "RL", "LR", "LL"), "linear": ("XX", "XY", "YX", "YY")}
"""All correlations of feeds, in the order of the elements of their matrix."""
STEEPEST, SPECTRUM_ERROR = 3.0, 1e-3
"""Spectral index up to which brightness between planes is right to this relative error."""


def choose_frequencies(parts: Sequence[Partition]) -> Array:
    """Frequencies of the planes of an image with a spectrum, float64 (n_freq,), Hz, ascending.

    A channel lies on the polynomial through all planes. They are as many as spectra (nu/nu0)^+-`STEEPEST`
    need for a relative error of `SPECTRUM_ERROR`.

    Raises
    ------
    InputError
        There is one frequency.
    """
    chan_freq = np.unique(np.concatenate([part.chan_freq for part in parts]))
    if len(chan_freq) == 1:
        raise InputError(
            f"spectral_index: the data have one frequency, {chan_freq[0] / 1e9:.6g} GHz, and so no spectrum; "
            "leave spectral_index out"
        )
    middle = float(chan_freq.mean())

    def steep(freq: float) -> Array:
        return (freq / middle) ** np.array([-STEEPEST, STEEPEST])

    found = choose_nodes(steep, np.arange(len(chan_freq)), chan_freq, SPECTRUM_ERROR)
    return np.sort(np.concatenate([nodes.freq for nodes in found]))


def reference_frequency(sky: SkyModel, observation: Observation) -> float:
    """nu0 of spectra, Hz: that of the model, or the mean of the channels by weight."""
    if sky.ref_freq is not None:
        return float(sky.ref_freq.value * units.factor(sky.ref_freq.unit or "Hz", units.FREQUENCY))
    parts = observation.partitions
    sums = [(part.weight.sum(axis=(0, 2), dtype=np.float64), part.chan_freq) for part in parts]
    return float(sum(weight @ freq for weight, freq in sums) / sum(weight.sum() for weight, _ in sums))


def check_correlations(partitions: Sequence[Partition], labels: Sequence[str]) -> None:
    """Refuse data of which a polarised image cannot be fitted.

    Raises
    ------
    InputError
        Stokes parameters, mixed feeds, or no cross hands.
    """
    for part, label in zip(partitions, labels, strict=True):
        if basis_of(part.corr_type) is None:
            raise InputError(
                f"a polarised image needs RR, RL, LR, LL or XX, XY, YX, YY; partition {label!r} has "
                f'{" ".join(part.corr_type)}. Read the data without --stokes, or write stokes = "I"'
            )
    if not any(part.weight[..., _is_cross(part)].any() for part in partitions):
        raise InputError(
            'a polarised image needs cross hands (RL, LR or XY, YX), and none counts; write stokes = "I"'
        )


def _is_cross(part: Partition) -> NDArray[np.bool_]:
    return np.array([name[0] != name[-1] for name in part.corr_type])


def with_all_correlations(part: Partition) -> Partition:
    """A partition with the four correlations of its feeds; those that it lacks have weight 0.

    Leakage makes each correlation of all four.
    """
    basis = basis_of(part.corr_type)
    assert basis is not None
    names = CORRELATIONS[basis]
    if part.corr_type == names:
        return part
    shape = (*part.vis.shape[:2], 4)
    vis, weight = np.zeros(shape, part.vis.dtype), np.zeros(shape, part.weight.dtype)
    for i, name in enumerate(part.corr_type):
        vis[..., names.index(name)], weight[..., names.index(name)] = part.vis[..., i], part.weight[..., i]
    return replace(part, vis=vis, weight=weight, corr_type=names, corr_id=np.zeros(0, np.int64))


def planes_operator(
    problem: ImageProblem,
    observation: Observation,
    reference: float,
    backend: Backend,
    memory_limit: int | str | None,
) -> ImageOperator:
    """The operator of all planes of an image, whose pixels state what was chosen of them.

    Parameters
    ----------
    problem : ImageProblem
    observation : Observation
        With all correlations that are fitted.
    reference : float, Hz
        Frequency of the image.
    backend : "auto", "cpu" or "cuda"
    memory_limit : int, str or None
    """
    prior = problem.prior
    freq = choose_frequencies(observation.partitions) if prior.spectral_index is not None else None
    old = problem.operator.field
    chosen = (*old.chosen, *_lines(prior, reference, freq))
    return ImageOperator(
        observation, replace(old, chosen=chosen), freq=freq, backend=backend, memory_limit=memory_limit
    )


def _lines(prior: ImagePrior, reference: float, freq: Array | None) -> list[str]:
    """What was assumed of planes, in words."""
    lines = []
    if prior.stokes == "IQU":
        lines.append('Stokes V is taken as 0; stokes = "IQUV" fits it')
    if prior.is_polarised:
        lines.append("Q/I and U/I are the same at all frequencies: no Faraday rotation")
    if freq is not None:
        lines.append(
            f"brightness is that at {reference / 1e9:.6g} GHz; spectra through {len(freq)} planes are right "
            f"to {SPECTRUM_ERROR:g} for spectral indices up to {STEEPEST:g}"
        )
    return lines
