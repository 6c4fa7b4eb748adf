"""What a fit has found of a single-dish map beside visibilities: its chi2 and the scale of its fluxes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from biro.files.json_value import JsonValue
from biro.image_posterior.problem import FittedImage, ImageProblem

Array = NDArray[np.float64]
SCALE = "map_scale"
"""Array of a result: draws of the factor of the map's fluxes."""
MISFIT, SIGMA = 1.5, 4.0
"""chi2 of a map over its expectation, and its excess in standard deviations, above which it does not fit."""
FAR = 3.0
"""Standard deviations of the prior beyond which a scale of fluxes contradicts it."""


def with_map_facts(problem: ImageProblem, fitted: FittedImage) -> FittedImage:
    """What an engine returned, with facts and remarks on the map; as it was where there is no map."""
    dish = problem.single_dish
    if dish is None:
        return fitted
    mean = fitted.samples[:, 0].mean(axis=0)
    seen = np.asarray(dish.seen(mean))
    scales = fitted.arrays.get(SCALE)
    if scales is None:
        scales = np.array([dish.scale_of(dish.best_number(seen))])
    scale = float(scales.mean())
    chi2, n = dish.chi2(seen, scale), dish.n_independent
    sd = float(scales.std(ddof=1)) if len(scales) > 1 else None
    found: dict[str, JsonValue] = {
        "n_sample": len(dish.data),
        "n_independent": n,
        "chi2": chi2,
        "scale": scale,
        "scale_sd": sd,
    }
    remarks = []
    if chi2 > MISFIT * n and chi2 - n > SIGMA * np.sqrt(2.0 * n):
        remarks.append(
            f"THE MAP DOES NOT FIT: chi2/N of the single-dish map is {chi2 / n:.3g}, 1 is expected. The "
            "usual causes are sources outside of the image, another beam, and noise larger than stated"
        )
    off = np.log(scale / dish.scale) / dish.scale_sd if dish.scale_sd else 0.0
    if abs(off) > FAR:
        remarks.append(
            f"FLUX SCALES DISAGREE: the map has {scale:.3g} times the flux of the image, "
            f"{abs(off):.2g} standard deviations from its prior. Check calibrations, units and beam"
        )
    return replace(
        fitted,
        facts=fitted.facts | {"single_dish": found},
        arrays=fitted.arrays | {SCALE: scales},
        remarks=(*remarks, *fitted.remarks),
    )
