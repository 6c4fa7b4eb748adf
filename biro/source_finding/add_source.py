"""A sky model with one source more, at the highest peak that a fit leaves in its residual image."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from biro.display.arguments import takes_likelihood
from biro.display.progress import doing, showing
from biro.errors import InputError
from biro.imaging.imager import ImagingOptions
from biro.likelihood.likelihood import Likelihood
from biro.models import SkyModel
from biro.models.components.direction import lm_to_radec, radec_to_lm
from biro.observation.observation import Observation
from biro.source_finding.fitting.beam_factors import SeenThrough
from biro.source_finding.fitting.component import Kind
from biro.source_finding.proposed_model import propose
from biro.source_finding.search import Search

if TYPE_CHECKING:
    from biro.inference.maximum.maximum import Maximum
    from biro.inference.posterior.posterior import Posterior

log = logging.getLogger(__name__)
KINDS = ("point", "circle", "ellipse")


@takes_likelihood
def add_source(
    fitted: Posterior | Maximum,
    likelihood: Likelihood | None = None,
    *,
    kind: Kind = "circle",
    name: str | None = None,
    progress: bool = True,
    **options: Unpack[ImagingOptions],
) -> SkyModel:
    """The sky model of a fit with a source added where the residual image has its highest peak.

    A point or a Gaussian is fitted there to the residual visibilities of Stokes I, while the fit stays as it
    is; its priors lie around the fitted values, as those of `biro.find_sources`. The priors of the other
    sources stay as they are. `biro.sample(likelihood, start=fitted)` begins with the fit as it was, and the
    new source in the middle of its prior.

    Parameters
    ----------
    fitted : Posterior or Maximum
        What `biro.sample` or `biro.maximise` gave; its best fit is subtracted from the data.
    likelihood : Likelihood, optional
        What was fitted. A posterior that `biro.sample` gave in this session knows it; one that was read from
        a file does not, nor does a maximum.
    kind : "point", "circle" or "ellipse"
    name : str, optional
        Of the new source; default: "s" and the first number that is free.
    progress : bool
        Show a bar on stderr of what takes longer than two seconds.
    **options
        Fields of `biro.imaging.imager.Imaging` except stokes, for the residual image.

    Raises
    ------
    InputError
        No likelihood, or one with other parameters; several phase centres; an unknown kind; no positive peak.
    ModelError
        A name that is taken.

    Examples
    --------
    >>> sky = biro.add_source(posterior)                              # doctest: +SKIP
    >>> likelihood = biro.Likelihood(observation, sky)                # doctest: +SKIP
    >>> posterior = biro.sample(likelihood, start=posterior)          # doctest: +SKIP
    """
    if kind not in KINDS:
        raise InputError(f"kind must be {', '.join(KINDS)}, got {kind!r}")
    likelihood = getattr(fitted, "likelihood", None) if likelihood is None else likelihood
    if not isinstance(likelihood, Likelihood):
        raise InputError("add_source needs the likelihood of the fit: add_source(fitted, likelihood)")
    names = [column.name for column in fitted.columns]
    if names == likelihood.full.parameter_names:
        likelihood = likelihood.full
    if names != list(likelihood.parameter_names):
        raise InputError(
            f"the fit has the parameters {', '.join(names)}, and the likelihood "
            f"{', '.join(likelihood.parameter_names)}; give the likelihood of the fit"
        )
    sky = likelihood.sky
    with showing(progress), doing("looking for a source"):
        residual, beams = _residual(likelihood, fitted.best_fit)
        search = Search(residual, options, beams=beams, of_residuals=True)
        found = search.at_peak(kind)
    if found is None:
        raise InputError("the residual image has no peak at which a positive source lowers chi2")
    free = (f"s{i}" for i in range(1, len(sky.sources) + 2))
    taken = {source.name for source in sky.sources}
    source = replace(found, name=name or next(label for label in free if label not in taken))
    origin = likelihood.model.origin
    if origin != search.centre:
        east, north = radec_to_lm(*lm_to_radec(source.east, source.north, search.centre), origin)
        source = replace(source, east=east, north=north)
    proposed = propose([source], origin, search.data.ref_freq, beam_size=search.beam_size)
    log.info("%s added: %.4g Jy", source.name, source.flux)
    # That of the model may lie far outside the band, where the flux is another one.
    (added,) = (replace(made, ref_freq=proposed.ref_freq) for made in proposed.sources)
    return replace(sky, sources=(*sky.sources, added))


def _residual(likelihood: Likelihood, theta: NDArray[np.float64]) -> tuple[Observation, SeenThrough | None]:
    """What a fit leaves of the data, without partitions of cross hands alone; and the beams that it found."""
    observation = likelihood.observation
    parts, beams = [], []
    for i, (part, model) in enumerate(zip(observation.partitions, likelihood.predict(theta), strict=True)):
        if not part.is_cross:
            parts.append(replace(part, vis=(part.vis - model).astype(part.vis.dtype, copy=False)))
            beams.append(likelihood.model.sources(theta, i).beam)
    found = SeenThrough(tuple(beams)) if any(beam is not None for beam in beams) else None
    return replace(observation, partitions=tuple(parts)), found
