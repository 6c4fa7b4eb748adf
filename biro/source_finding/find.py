"""Find sources in a dirty image, fit them to the visibilities, and propose a sky model with priors."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Unpack

import numpy as np

from biro.errors import InputError
from biro.images.imager import ImagingOptions
from biro.likelihood.noise_range import with_noise_range
from biro.models import SkyModel
from biro.observation.observation import Observation
from biro.progress import Bar, bar
from biro.run.log_file import NOTICE
from biro.source_finding.beam_factors import seen_through
from biro.source_finding.found_sources import FoundSources
from biro.source_finding.proposed_model import propose
from biro.source_finding.search import Search

log = logging.getLogger(__name__)


def find_sources(
    observation: Observation,
    *,
    threshold: float | None = None,
    max_sources: int = 50,
    add_circle: int = 0,
    beam: SkyModel | None = None,
    **options: Unpack[ImagingOptions],
) -> FoundSources:
    """Find the sources of an observation one after the other, and propose a model with priors for `biro fit`.

    A point, a circular and an elliptical Gaussian are fitted to the visibilities at the highest peak of the
    dirty image of the residuals, and the shapes of earlier sources are tried again; what the data ask for
    most is kept, all sources are fitted together, and what is not needed any more is left out. A change is
    kept if it lowers 2N/c ln chi2 by more than n ln(2N/c) for its n parameters (the Bayesian information
    criterion) and, for a new source, 2 ln(beams in the image). N is the number of complex visibilities, and
    c of them count as one: the residuals of errors of calibration, and of structure not yet found, go up
    and down together in neighbouring times and channels (`biro.source_finding.coherence.Coherence`). The
    search ends where no change is kept.

    Parameters
    ----------
    observation : Observation
        Of one phase centre. Stokes I is fitted, positive sources only; smeared as the data are where that
        exceeds the noise, as in a fit.
    threshold : float, optional
        In robust rms of the residual image: with it, sources are added while the highest peak is above it
        and chi2 falls, whether or not the data ask for them.
    max_sources : int
        1 to 100.
    add_circle : int
        Circular Gaussians that are added after the end of the search, whatever the data ask for; 0 to 100.
    beam : SkyModel, optional
        A model whose beam, pointing and feeds sources are seen through, with fixed values; its sources do not
        count. The fluxes are then those of the sky, and the proposed model has the beam. Without it they
        are apparent: what the beam leaves.
    **options
        Fields of `biro.images.imager.Imaging` except stokes: weighting, robust, cell, n_pixel, backend, ...

    Returns
    -------
    FoundSources

    Raises
    ------
    InputError
        As `biro.image`; a beam that is to be fitted; or there is no source.
    ModelError
        A beam that cannot be used with these data.
    """
    if threshold is not None and not threshold > 0.0:
        raise InputError(f"threshold must be above 0, got {threshold}")
    if not 1 <= max_sources <= 100:
        raise InputError(f"max_sources must be 1 to 100, got {max_sources}")
    if not 0 <= add_circle <= 100:
        raise InputError(f"add_circle must be 0 to 100, got {add_circle}")
    observation = observation.whole("the search for sources")
    with bar("finding", "steps") as shown:
        search, reason = Search(observation, options, beam), ""
        while not reason:
            reason = search.step(threshold, max_sources)
            if not reason:
                _tell(search, shown)
        if threshold is None and search.settle():
            _tell(search, shown)
        for _ in range(add_circle):
            if not search.add_circle():
                reason += "; no further circle lowers chi2"
                break
            _tell(search, shown)
    if not search.components:
        raise InputError(f"no source found: {reason}")
    return _result(observation, search, beam, reason)


def _tell(search: Search, shown: Bar) -> None:
    """One line about what there is now, and how well it fits."""
    kinds = Counter(component.kind for component in search.components)
    text = ", ".join(f"{n} {kind}{'s' * (n != 1)}" for kind, n in kinds.items())
    shown.set_postfix_str(f"{text}: chi2/2N {search.reduced_chi2:.4g}", refresh=False)
    shown.update()
    shown.clear()
    peak = search.residual.peak.value
    log.log(NOTICE, "%s: chi2/2N %.5g, peak left %.3g Jy/beam", text, search.reduced_chi2, peak)


def _result(observation: Observation, search: Search, beam: SkyModel | None, reason: str) -> FoundSources:
    """The sources, and the model that they propose."""
    search.data.smear(search.components)  # for what is said of it: nothing is new after the last step
    sources = search.sources()
    sky = propose(sources, search.centre, search.data.ref_freq, beam_size=search.beam_size)
    sky = with_noise_range(seen_through(sky, beam), observation.partitions)
    return FoundSources(
        sources,
        sky,
        search.residual,
        float(np.sqrt(search.variance)),
        reason,
        search.reduced_chi2,
        search.coherence,
        tuple(dict.fromkeys(map(str, search.data.smearing))),
    )
