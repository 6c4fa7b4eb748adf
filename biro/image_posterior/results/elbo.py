"""Lower bounds of the evidence of fitted images: in their facts, and compared with each other."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from biro.display.formatting import Tabular
from biro.errors import InputError
from biro.image_posterior.problem import FittedImage, ImageProblem
from biro.image_posterior.results.result import ImagePosterior

if TYPE_CHECKING:
    from biro.image_posterior.operator import ImageOperator
    from biro.image_posterior.sampling.elbo import Elbo

N_SIGMA = 2.0
"""Errors of a difference below which two images are not told apart."""
LIMITS = (
    "The ELBO is a lower bound of ln evidence. It compares priors on one data set, where the posterior is "
    "near the form of the samples.",
    "The distance to ln evidence is not known, and differs between priors. Differences of a few say nothing, "
    "nor does the error, which is that of sampling.",
)


def with_elbo(
    fitted: FittedImage, found: Elbo, problem: ImageProblem, operator: ImageOperator
) -> FittedImage:
    """What an engine returned, with the lower bound of ln evidence among its facts.

    The constants of the likelihood are in it, - N ln(2 pi) + sum of ln w (physics: section 7), but for those
    of a single-dish map, which are equal for all priors.

    Parameters
    ----------
    fitted : FittedImage
    found : Elbo
        Without these constants.
    problem : ImageProblem
    operator : ImageOperator
        With the weights of the likelihood.
    """
    used = [weight[weight > 0.0] for weight in operator.weights]
    constant = sum(float(np.log(one).sum()) - len(one) * math.log(2.0 * math.pi) for one in used)
    # JSON has no infinity, which one pair of samples has.
    error = found.error if math.isfinite(found.error) else None
    fact = {"value": found.value + constant, "error": error, "data": _digest(problem)}
    return replace(fitted, facts=fitted.facts | {"elbo": fact})


def _digest(problem: ImageProblem) -> str:
    """A digest of visibilities, their weights, and the samples of a map."""
    found = hashlib.sha256(problem.observation.digest().encode())
    if problem.single_dish is not None:
        found.update(problem.single_dish.data.tobytes() + problem.single_dish.weight.tobytes())
    return found.hexdigest()


@dataclass(frozen=True)
class ImageStanding:
    """One image: its lower bound of ln evidence, and how far that is below the highest.

    Attributes
    ----------
    name, prior : str
    elbo, elbo_err : float
    below, below_err : float
        Difference from the highest, at most 0; its error is that of sampling.
    remarks : tuple of str
        Of the result, which stand above its own figures.
    """

    name: str
    prior: str
    elbo: float
    elbo_err: float
    below: float
    below_err: float
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class ImageComparison(Tabular):
    """Images in the order of their ELBO, the highest first; `str` prints the table, `to_dict` is for JSON."""

    standings: tuple[ImageStanding, ...]

    def to_dict(self) -> dict[str, object]:
        """Plain numbers and text; images by name."""
        return {
            "images": {
                one.name: {k: v for k, v in vars(one).items() if k != "name"} for one in self.standings
            }
        }

    def cells(self) -> list[list[str]]:
        """Header and rows as text."""
        rows = [["image", "prior", "ELBO", "+-", "below the highest", "+-"]]
        for one in self.standings:
            numbers = one.elbo, one.elbo_err, one.below, one.below_err
            rows.append([one.name, one.prior, *(f"{number:.2f}" for number in numbers)])
        return rows

    def notes(self) -> list[str]:
        """How the table is read."""
        tied = [one.name for one in self.standings[1:] if -one.below < N_SIGMA * one.below_err]
        if not tied:
            return [*LIMITS]
        return [f"{', '.join(tied)}: within {N_SIGMA:g} errors of the highest, not told apart.", *LIMITS]

    def warnings(self) -> list[str]:
        """Remarks of the results, each once with the images that have it."""
        of: dict[str, list[str]] = {}
        for one in self.standings:
            for line in one.remarks:
                of.setdefault(line, []).append(one.name)
        return [f"{', '.join(names)}: {line}" for line, names in of.items()]


def compare_images(images: Mapping[str, ImagePosterior]) -> ImageComparison:
    """The lower bounds of the evidence of images that were fitted to the same data.

    Parameters
    ----------
    images : mapping of str to ImagePosterior

    Raises
    ------
    InputError
        Fewer than two, one without ELBO or its error, other data, or other methods.
    """
    for name, image in images.items():
        if "elbo" not in image.facts:
            raise InputError(
                f"{name}: has no ELBO; fit it with --set elbo=1 (in Python, elbo=True) and samples of geoVI "
                "or MGVI. Or compare chi2/2N of images on data that were not fitted"
            )
    if len(images) < 2:
        raise InputError(f"a comparison needs at least 2 runs, got {len(images)}")
    first = next(iter(images))
    for name, image in images.items():
        if _facts(image)["elbo"]["error"] is None:
            raise InputError(
                f"{name}: the error of its ELBO is not known, as one pair of samples has ended; fit it again "
                "with more n_samples"
            )
        if _facts(image)["elbo"]["data"] != _facts(images[first])["elbo"]["data"]:
            raise InputError(
                f"{name}: was fitted to other data than {first}; the ELBO compares priors on the same data "
                "(selection, flags, weights, Stokes parameters, map)"
            )
        one, other = (_facts(each)["method"] for each in (image, images[first]))
        if one != other:
            raise InputError(f"{name}: has samples of {one}, {first} of {other}; fit both with one method")
    found = {name: _facts(image)["elbo"] for name, image in images.items()}
    order = sorted(images, key=lambda name: -float(found[name]["value"]))
    best = found[order[0]]
    return ImageComparison(
        tuple(
            ImageStanding(
                name=name,
                prior=images[name].prior,
                elbo=found[name]["value"],
                elbo_err=found[name]["error"],
                below=found[name]["value"] - best["value"],
                below_err=0.0 if name == order[0] else math.hypot(found[name]["error"], best["error"]),
                remarks=images[name].remarks,
            )
            for name in order
        )
    )


def _facts(image: ImagePosterior) -> dict[str, Any]:
    return cast("dict[str, Any]", image.facts)
