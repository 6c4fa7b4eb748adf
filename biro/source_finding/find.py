"""Find sources in a dirty image, fit them to the visibilities, and propose a sky model with priors."""

from __future__ import annotations

import logging
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np

from biro.diagnosis.diagnosis import Diagnosis, diagnose
from biro.diagnosis.partition_fit import residual_over_thermal
from biro.diagnosis.verdict_text import HOLDS, TOO_SMALL
from biro.display.formatting import FLUXES, number_of, unit_for
from biro.display.progress import Bar, bar, showing
from biro.errors import InputError
from biro.imaging.imager import ImagingOptions
from biro.likelihood.likelihood import Likelihood
from biro.likelihood.noise_range import with_noise_range
from biro.models import Noise, SkyModel
from biro.observation.correlations import STOKES_NAMES, share_of_i
from biro.observation.flags import warn_of_reading
from biro.observation.noise import measure_noise
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.smearing import lines_of
from biro.observation.stokes import PSEUDO_I, form_stokes
from biro.run.interrupt import StopFlag, stop_on_signal
from biro.run.log_file import NOTICE
from biro.source_finding.fitting.beam_factors import seen_through
from biro.source_finding.fitting.component import Component
from biro.source_finding.fitting.source_fit import Stopped
from biro.source_finding.found_sources import FoundSources
from biro.source_finding.outliers import count
from biro.source_finding.phase_coherence import phase_coherence
from biro.source_finding.proposed_model import limits_of, propose, propose_population
from biro.source_finding.search import Search

log = logging.getLogger(__name__)
MOST_ROUNDS = 3
"""How often other outliers are left out, at most."""


def find_sources(
    observation: Observation,
    *,
    threshold: float | None = None,
    max_sources: int = 50,
    add_circle: int = 0,
    beam: SkyModel | None = None,
    progress: bool = True,
    **options: Unpack[ImagingOptions],
) -> FoundSources:
    """Find the sources of an observation one after the other, and propose a model with priors for `biro fit`.

    A point and a circular Gaussian are fitted to the visibilities at the highest peaks of the dirty image of
    the residuals, and other shapes of earlier sources are tried; what lowers chi2 most is kept, all sources
    are fitted together, and what is not needed any more is left out. The likelihood is that of thermal noise
    together with errors of the antennas' gains, which are integrated out
    (`biro.source_finding.fitting.gain_errors.GainErrors`): structure that is not found yet is no error of
    gains, and errors of gains are no structure. The last fit is by least squares, and errors of gains are in
    its errors. A change is kept if it raises 2 ln L by more than n ln 2N for its n
    parameters (the Bayesian information criterion) and, for a new source, 2 ln(beams in the image). At the
    end the model is kept after whose last source no other one is worth its parameters, judged with
    residuals as alike in neighbouring times as they then are. The search is made twice, with ellipses at once
    and with ellipses last, unless the first leaves thermal noise alone. At the end of each, outliers are left
    out (`biro.source_finding.outliers.outliers_of`), and the search goes on without them.

    SIGINT or SIGTERM ends the search, with the best model that was found so far as the result; so does an
    error, once a source was found. After the search they end the check of the model and keep the model.

    Parameters
    ----------
    observation : Observation
        Of one phase centre. Stokes I is fitted, positive sources only; smeared as the data are where that
        exceeds the noise, as in a fit.
    threshold : float, optional
        In robust rms of the residual image: with it, sources are added while the highest peak is above it
        and chi2 falls, whether or not they are significant.
    max_sources : int
        1 to 100.
    add_circle : int
        Circular Gaussians that are added after the end of the search, significant or not; 0 to 100.
    beam : SkyModel, optional
        A model whose beam, pointing and feeds sources are seen through, with fixed values; its sources do not
        count. The fluxes are then those of the sky, and the proposed model has the beam. Without it they
        are apparent: what the beam leaves.
    progress : bool
        Show a bar on stderr of what takes longer than two seconds.
    **options
        Fields of `biro.imaging.imager.Imaging` except stokes: weighting, robust, cell, size, backend, ...

    Returns
    -------
    FoundSources

    Raises
    ------
    InputError
        As `biro.image`; a beam that is to be fitted; or there is no source.
    RunInterrupted
        SIGINT or SIGTERM came before a source was found.
    ModelError
        A beam that cannot be used with these data.
    """
    if threshold is not None and not threshold > 0.0:
        raise InputError(f"threshold must be above 0, got {threshold}")
    if not 1 <= max_sources <= 100:
        raise InputError(f"max_sources must be 1 to 100, got {max_sources}")
    if not 0 <= add_circle <= 100:
        raise InputError(f"add_circle must be 0 to 100, got {add_circle}")
    warn_of_reading(observation)
    observation = observation.whole("the search for sources")
    thermal = measure_noise(observation.partitions, stokes_i=True).ratio
    search: Search | None = None
    with showing(progress), stop_on_signal() as flag, bar("finding", "steps") as shown:
        try:
            search = Search(observation, options, beam, stop=lambda: bool(flag))
            reason = _search(search, threshold, max_sources, thermal, shown)
            reason += _circles(search, add_circle, shown)
            reason += _finished(search)
        except Exception as error:
            if search is None or not search.has_any:
                if isinstance(error, Stopped):
                    flag.raise_interrupted("no source was found before the interruption")
                raise
            search.stop()
            found = _result(search, beam, "the search was interrupted")
            return _unfinished(found, error, flag, "")
        if not any(each.flux > 0.0 for each in search.components):
            raise InputError(_no_source(search, reason))
        return _checked(search, _result(search, beam, reason), beam, flag)


def _finished(search: Search) -> str:
    """Fit the components to all data; what is to be said of those that this leaves out."""
    before = len(search.components)
    if before:
        search.finish()
    n = before - len(search.components)
    if not n:
        return ""
    return f". {number_of(n, 'source')} left out, because the flux is not above 0 once all data are fitted"


def _no_source(search: Search, reason: str) -> str:
    """Why there is no source, in one line."""
    if search.components:
        reason = "no component has a flux above 0 once all data are fitted"
    coherence = phase_coherence(search.data)
    why = "" if coherence is None else coherence.remark()
    return f"no source found: {reason}{f'. {why}' if why else ''}"


def _checked(search: Search, found: FoundSources, beam: SkyModel | None, flag: StopFlag) -> FoundSources:
    """Leave out what a diagnosis of the model calls outliers; what is found, with what does not fit.

    An error or a signal ends it with the model as it is.
    """
    try:
        misfit = _diagnosed(search.used, found)
        for _ in range(MOST_ROUNDS):
            if not (_names_outliers(misfit) and search.leave_out(local=False)):
                break
            found = _result(search, beam, found.reason + _finished(search))
            misfit = _diagnosed(search.used, found)
    except Exception as error:
        return _unfinished(found, error, flag, "the check of the model after the search was ")
    has_gains = any(finding.kind in ("antenna gain", "gain drift") for finding in misfit.findings)
    lines = tuple(line for line in misfit.warnings if not line.startswith((TOO_SMALL, HOLDS)))
    over_thermal, is_bound = residual_over_thermal(misfit.fits)
    return replace(
        found,
        misfit=lines,
        antennas={} if has_gains else found.antennas,
        thermal=found.noise_factor / over_thermal,
        is_bound=is_bound,
    )


def _unfinished(found: FoundSources, error: Exception, flag: StopFlag, what: str) -> FoundSources:
    """A result with what ended it before its time: a signal, which `flag` has, or an error."""
    if isinstance(error, Stopped):
        name = signal.Signals(flag.signal or signal.SIGINT).name
        return replace(found, stopped=f"{what}stopped by {name}")
    return replace(found, stopped=f"{what}stopped by an error ({error})", fault=error)


def _search(search: Search, threshold: float | None, max_sources: int, thermal: float, shown: Bar) -> str:
    """Search with and without ellipses at first, and keep the better model; why the search ended."""
    for ellipses in (True, False):
        log.log(
            NOTICE, "searching with %s", "elliptical Gaussians" if ellipses else "circular Gaussians first"
        )
        search.begin(ellipses=ellipses)
        reason = _steps(search, threshold, max_sources, shown)
        for _ in range(MOST_ROUNDS):
            if not search.leave_out():
                break
            n = count(search.left_out)
            log.log(NOTICE, "%s %s left out", number_of(n, "outlier"), "is" if n == 1 else "are")
            reason = _steps(search, threshold, max_sources, shown)
        if threshold is not None or not search.has_any:
            return reason
        if search.components:
            search.settle()
        if search.is_clean(thermal) or len(search.components) == 1:
            break
    search.choose()
    log.log(NOTICE, "best model: %s; fitting it to all data", _kinds_text(search.components))
    return reason


def _steps(search: Search, threshold: float | None, max_sources: int, shown: Bar) -> str:
    """Take steps until there is no further one; why there is none."""
    while not (reason := search.step(threshold, max_sources)):
        _tell(search, shown)
    return reason


def _circles(search: Search, number: int, shown: Bar) -> str:
    """Add circles at the end; what is to be said where there is no place for one."""
    for _ in range(number):
        if not search.add_circle():
            return ". No further circle lowers chi2"
        _tell(search, shown)
    return ""


def _tell(search: Search, shown: Bar) -> None:
    """One line about what there is now, and how well it fits."""
    text = _kinds_text(search.components)
    chi2 = f"chi2/2N {search.reduced_chi2:.4g}{' of averaged data' * search.is_of_averages}"
    shown.set_postfix_str(f"{text}: {chi2}", refresh=False)
    shown.update()
    shown.clear()
    peak = search.residual.peak.value
    unit = unit_for([peak], FLUXES)
    height = f"{unit.text(peak)} {unit.name}/beam"
    log.log(NOTICE, "%s: %s, highest residual %s", text, chi2, height)


def _kinds_text(components: Sequence[Component]) -> str:
    """How many components of each kind there are."""
    kinds = Counter(component.kind for component in components)
    return ", ".join(f"{n} {kind}{'s' * (n != 1)}" for kind, n in kinds.items())


def _names_outliers(misfit: Diagnosis) -> bool:
    return any(finding.kind.startswith("bad") for finding in misfit.findings)


def _result(search: Search, beam: SkyModel | None, reason: str) -> FoundSources:
    """The sources, and the model that they propose."""
    observation = search.used
    search.data.smear(search.components)  # for what is said of it: nothing is new after the last step
    ratios = search.error_ratios()
    sources = search.sources(ratios)
    sky = propose(sources, search.centre, search.data.ref_freq, beam_size=search.beam_size)
    outliers, command = search.about_outliers()
    if outliers and not command:
        sky = replace(sky, noise=Noise(distribution="student-t"))
    sky = with_noise_range(seen_through(sky, beam), observation.partitions)
    return FoundSources(
        sources,
        sky,
        search.residual,
        float(np.sqrt(search.variance)),
        reason,
        search.reduced_chi2,
        float(np.sqrt(np.mean(ratios**2))),
        tuple(lines_of(search.data.smearing, observation.labels)),
        search.explained.gain_error,
        search.explained.noise,
        population=propose_population(
            sources, search.beam_size, 0.5 * search.residual.n_pixel * search.residual.cell
        ),
        gain_evidence=search.explained.evidence,
        antennas={observation.antenna_names[i]: errors for i, errors in search.antenna_errors.items()},
        n_outlier=count(search.left_out),
        outliers=outliers,
        flag_command=command,
        hands=_hands_of(observation),
        exchangeable=limits_of(sources, search.beam_size).exchangeable,
    )


def _hands_of(observation: Observation) -> str:
    """The hands that Stokes I is averaged of, in words; "" where it is stored or was formed as such."""
    names = dict.fromkeys(name for part in observation.partitions for name in part.corr_type)
    share = share_of_i(list(names))
    hands = [name for name, c in zip(names, share, strict=True) if c and name not in STOKES_NAMES]
    return " and ".join(hands) if len(hands) == 2 else ""


def _diagnosed(observation: Observation, found: FoundSources) -> Diagnosis:
    """What is wrong with weights or model in Stokes I, which the search fitted."""
    sky, start = found.sky, found.start
    if observation.formed is None:
        if sky.beam is None and sky.feeds is None:
            parts, formed = form_stokes(observation.partitions, PSEUDO_I)
            observation = replace(observation, partitions=tuple(parts), formed=formed)
        else:
            observation = replace(observation, partitions=tuple(map(_parallel, observation.partitions)))
    likelihood = Likelihood(observation, replace(sky, noise=Noise(factor=found.noise_factor)))
    theta = np.array([start[name] for name in likelihood.parameter_names])
    unknown = np.full(theta.shape, np.nan)
    return diagnose(likelihood, theta, unknown, unknown, ())


def _parallel(part: Partition) -> Partition:
    """A partition without its cross hands, in which an unpolarised sky has nothing."""
    index = np.flatnonzero(share_of_i(part.corr_type))
    if len(index) == len(part.corr_type):
        return part
    names = tuple(part.corr_type[i] for i in index)
    return replace(part, vis=part.vis[:, :, index], weight=part.weight[:, :, index], corr_type=names)
