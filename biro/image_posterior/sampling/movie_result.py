"""What samples of a movie make: images of all frames, and whether the data show a change in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

from biro.files.json_value import JsonValue
from biro.image_posterior.frames import FramesOperator
from biro.image_posterior.problem import ImageProblem
from biro.image_posterior.sampling.jax_operator import real_parts
from biro.image_posterior.sampling.movie_prior import MovieField

if TYPE_CHECKING:
    from biro.image_posterior.sampled_model import AnyModel

Array = NDArray[np.float64]
SEEN = 3.0
"""Significance of the changes, in standard deviations, from which on they are seen."""
_MOST = 64
"""Samples of which changes are predicted, at most."""


@dataclass(frozen=True, eq=False)
class OfFrames:
    """What samples make of frames.

    Attributes
    ----------
    mean : float64 (n_frame, 1, N, N), Jy/pixel
    arrays, facts, remarks
        See `FittedImage`.
    """

    mean: Array
    arrays: dict[str, NDArray[Any]]
    facts: dict[str, JsonValue]
    remarks: tuple[str, ...]


def movie_of(problem: ImageProblem, model: AnyModel, states: Any) -> OfFrames:
    """Images of all frames, of states (n_sample, n)."""
    prior, operator = model.prior, problem.operator
    assert isinstance(prior, MovieField)
    assert isinstance(operator, FramesOperator)
    sky = states[:, model.at.sky]
    images = np.asarray(jax.lax.map(prior.image, sky))
    numbers = np.asarray(jax.vmap(prior.time_numbers)(sky))
    times = operator.times
    arrays = {"frames": images, "frame_edges": times.edges + times.utc_offset, "frame_n_data": times.counts}
    is_map = len(states) == 1
    spread = [None, None] if is_map else numbers.std(axis=0, ddof=1).tolist()
    change: dict[str, JsonValue] = {
        "sd_in_time": {"mean": float(numbers[:, 0].mean()), "sd": spread[0]},
        "slope_in_time": {"mean": float(numbers[:, 1].mean()), "sd": spread[1]},
    }
    remarks: tuple[str, ...] = ()
    if not is_map:
        found = significance(operator, images[:: -(-len(images) // _MOST)])
        change["significance"] = found
        if found is not None and found < SEEN:
            remarks = (
                f"NO CHANGE SEEN: the frames differ by no more than their errors ({found:.2g} standard "
                f"deviations, {SEEN:g} are needed). Differences between frames are those of the prior",
            )
    return OfFrames(images.mean(axis=0)[:, None], arrays, {"change": change}, remarks)


def significance(operator: FramesOperator, images: Array) -> float | None:
    """How far changes between frames are above their errors, in standard deviations.

    With d the visibilities, in units of the noise, of the difference of each frame from the mean of all
    frames, m their mean over the posterior and S their covariance,

        z = (|m|^2 - tr S) / sqrt(2 tr S^2)

    has mean 0 and sd 1 for a constant source, where the prior allows any change (|m|^2 is a weighted sum of
    chi2 of one degree then). A narrower prior makes it less.

    Parameters
    ----------
    operator : FramesOperator
    images : float64 (n_sample, n_frame, N, N), Jy/pixel
        Variational samples are pairs about their mean, one after the other.

    Returns
    -------
    float or None
        None for fewer than four samples, which have no covariance.
    """
    if len(images) < 4:
        return None
    changes = images - images.mean(axis=1, keepdims=True)
    root = [np.sqrt(weight) for weight in operator.weights]
    made = []
    for one in changes:
        vis = operator.predict(one[:, None])
        made.append(np.concatenate([real_parts(v * w).ravel() for v, w in zip(vis, root, strict=True)]))
    given = np.array(made)
    mean = given.mean(axis=0)
    away = given - mean
    products = away @ away.T
    n = len(away)
    trace = float(np.trace(products)) / (n - 1)
    # Products of independent samples have the expectation tr S^2; members of a pair are not independent.
    pair = np.arange(n) // 2
    square = float((products**2)[pair[:, None] != pair].mean())
    return float((mean @ mean - trace) / max(np.sqrt(2.0 * square), 1e-300))
