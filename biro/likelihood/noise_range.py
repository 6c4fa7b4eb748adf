"""The prior of a noise factor that the model leaves open: as wide as the scatter of the data asks for."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from biro.errors import InputError
from biro.models import BoundModel, SkyModel
from biro.models.components.noise import HIGHEST, LOWEST
from biro.observation.noise import MAX_SAMPLES, measure_noise
from biro.observation.partition import Partition
from biro.observation.weighting import WITH_TAPER

log = logging.getLogger(__name__)


def with_noise_range(sky: SkyModel, partitions: Sequence[Partition]) -> SkyModel:
    """The sky model, its noise factor with a prior that no scatter of these data is cut off by.

    A model that gives a factor, fixed or with a prior, stays as it is. Otherwise r is the measured noise over
    the stated noise (`measure_noise`), and R the rms of all visibilities over the stated noise, which is the
    factor that a sky without sources would need. The log-uniform prior reaches from a thousandth of the
    smallest to a thousand times the largest of 1 and the r of all partitions, in whole powers of ten, and at
    least to the largest R: 1e-3 .. 1e3 where the weights are about right. The stated noise stays within it,
    because r is only an upper limit where fringes turn between neighbouring times.

    Parameters
    ----------
    sky : SkyModel
    partitions : sequence of Partition
    """
    if sky.noise.factor is not None:
        return sky
    low, high = noise_range(partitions)
    if (low, high) != (LOWEST, HIGHEST):
        log.info("the prior of the noise factor is %.0e .. %.0e, from the scatter of the data", low, high)
    return replace(sky, noise=sky.noise.with_factor_between(low, high))


def refuse_tapered(model: BoundModel, partitions: Sequence[Partition]) -> None:
    """Refuse to fit noise to data whose weights are tapered.

    Raises
    ------
    InputError
    """
    terms = model.noise_terms
    fits_noise = model.noise_parameters or (terms is not None and terms.is_free.any())
    if fits_noise and any(part.tapered for part in partitions):
        raise InputError(
            f"TAPERED WEIGHTS: a fitted noise factor is too low, and errors are too small. {WITH_TAPER}"
        )


def noise_range(partitions: Sequence[Partition]) -> tuple[float, float]:
    """Ends of the default prior of noise factors; see `with_noise_range`."""
    measured, whole = [1.0], [1.0]
    for part in partitions:
        ratio, rms = measure_noise([part]).ratio, _relative_rms(part)
        if rms > 0.0:
            whole.append(rms)
            # Where there are no neighbouring times the noise may be anything up to the rms.
            measured.append(ratio if ratio > 0.0 else min(1.0, rms))
    # Visibilities that were made without noise scatter by their rounding alone, or not at all.
    low = LOWEST * 10.0 ** round(math.log10(max(min(measured), 1e-12)))
    high = HIGHEST * 10.0 ** round(math.log10(max(measured)))
    return low, max(high, 10.0 ** math.ceil(math.log10(max(whole))))


def _relative_rms(part: Partition) -> float:
    """Rms of the real and imaginary parts of visibilities, over the noise that their weights state."""
    step = max(1, round(part.vis.size / MAX_SAMPLES))
    vis, stated = part.taken(np.arange(0, part.n_row, step), slice(None))
    weight = stated.astype(np.float64)
    used = weight > 0
    if not used.any():
        return 0.0
    return float(np.sqrt(np.mean(weight[used] * np.abs(vis[used]).astype(np.float64) ** 2) / 2.0))
