"""What is wrong where a model does not fit: the descriptions of the residuals that explain most, in turn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from biro.diagnosis.causes.bright_places import BrightPlaces, place_candidates, places_of
from biro.diagnosis.causes.brightness import brightness_candidates
from biro.diagnosis.causes.correlation import (
    CHANNEL,
    DUPLICATES,
    HANDS,
    TIME,
    Correlation,
    correlation_candidates,
    in_time,
)
from biro.diagnosis.causes.evidence import FAMILIES, Candidate
from biro.diagnosis.causes.fitted_sky import FittedSky, OtherModels
from biro.diagnosis.causes.freed_sky import sky_candidates
from biro.diagnosis.causes.gains.candidates import gain_candidates
from biro.diagnosis.causes.geometry import geometry_candidates
from biro.diagnosis.causes.offsets import offset_candidates
from biro.diagnosis.causes.outliers import outlier_candidates
from biro.diagnosis.causes.polarisation import polarisation_candidates
from biro.diagnosis.causes.samples import ResidualSamples
from biro.diagnosis.causes.sky_changes import FLUX as FLUX_OF_SOURCE
from biro.diagnosis.causes.sky_changes import POSITION
from biro.diagnosis.causes.source import source_candidates
from biro.diagnosis.causes.uneven_noise import uneven_candidates
from biro.diagnosis.finding import Finding
from biro.diagnosis.flag_target import FlagTarget
from biro.diagnosis.residual_data import ResidualData
from biro.run.interrupt import asked_to_stop

SIGNIFICANCE = 5.0
"""Standard deviations, places and choices counted, below which nothing is found."""
UNLIKELY = 2.87e-7
"""Chance of a normal number beyond five standard deviations."""
MOST_FOUND, MOST_WITH_SKY = 6, 2
"""Findings, and those for which changes of the sky model are fitted."""
LEAST_SHARE = 0.1
"""Part of the excess that a finding must explain: less is what the fit did to make up for the others."""
LEAST_FACTOR = 1.1
"""Factor of the errors below which a correlation is left alone."""
MOSTLY = 0.5
"""Part of the excess above which a cause stands alone: what it leaves may be its own remainder."""
MIN_SAMPLES = 8
TIE = 5.0
"""Difference of ln L below which two explanations are both named: odds of 150 to 1."""
COHERENT = "coherent residuals"
CATCH_ALL, NARROW = "closure errors", 0.5
"""What explains nearly all that changes slowly, and the part of it from which another cause goes first."""
GAIN, FLUX = "antenna gain", "flux of the model"
OF_DATA, NARROW_SKY = ("offset", "baseline", CATCH_ALL, *FAMILIES["noise"]), 0.3
"""Faults of data, and the part of what they explain from which a cause in the sky goes first."""
MOST_OF_ONE = 0.5
"""Part of what a cause in the sky explains that one baseline has at most: a source is seen by several."""
OF_SKY = ("source", "polarisation", "spectrum", POSITION, FLUX_OF_SOURCE, FLUX, "position of the model")
"""Families of changes of a sky that does not change with time."""
NEARLY = {GAIN: 0.99} | dict.fromkeys(("gain drift", "bandpass", "baseline", CATCH_ALL), 0.95)
"""Part of what these explain from which steady gains with fewer numbers take their place."""
OF_FLUX = (*NEARLY, "variable flux", "flux by channel", "spectrum of the model")
MOSTLY_FLUX = 0.8
"""Part of what those explain from which one factor of all fluxes, which a prior holds, takes their place."""
AXES = (TIME, CHANNEL, HANDS)


@dataclass(frozen=True)
class _Step:
    """A candidate that was taken, with its significance and texts."""

    candidate: Candidate
    significance: float
    drop: float
    texts: tuple[str, str]


def find_causes(
    data: Sequence[ResidualData],
    antenna_names: Sequence[str],
    *,
    has_outliers: bool = False,
    target: FlagTarget | None = None,
    utc_offset: float = 0.0,
    others: OtherModels | None = None,
) -> list[Finding]:
    """What explains the residuals, the kind that explains most first; empty where they are white noise.

    Every description (a source, gains, a flux that varies, outliers, correlated noise, ...) is fitted to the
    residuals by least squares. That which raises ln L most, less half ln n for each of its numbers
    (Schwarz 1978) and less the logarithm of the number of choices, is taken out; what is left is
    described again, until nothing is left beyond five standard deviations. Noise of any level that is white
    gives none: the significance counts against the scatter of the residuals themselves.

    Parameters
    ----------
    data : sequence of ResidualData
    antenna_names : sequence of str
    has_outliers : bool
        The noise of the model has outliers (Student's t): these are no misfit.
    target : FlagTarget, optional
        The data set, for the commands of remedies that flag a part of it.
    utc_offset : float, s
        UTC minus the times of the data.
    others : OtherModels, optional
        Other sky models at these data: changes of the model that explain residuals go before faults of data.

    Returns
    -------
    list of Finding
        `explained` is the part of chi2 above thermal noise, for all but outliers of what these leave of it.
        The noise is that of differences of neighbouring times of what is left, where there are enough, else
        the scatter of what is left. It is 1
        for noise that is correlated and no larger than thermal noise, and 0 for "coherent residuals", whose
        cause is not identified.
    """
    sky = None if others is None else FittedSky(others, data, others.sky, others.values)
    samples = replace(ResidualSamples.of(data, antenna_names), target=target, utc_offset=utc_offset, sky=sky)
    if samples.n < MIN_SAMPLES or not samples.square > 0.0:
        return []
    steps, left = _steps(samples, places_of(samples.fair, data), has_outliers)
    return _findings(samples, left, steps)


def _steps(
    samples: ResidualSamples, places: Sequence[BrightPlaces], has_outliers: bool
) -> tuple[list[_Step], ResidualSamples]:
    steps: list[_Step] = []
    known: tuple[str, ...] = ()
    inflation = 1.0
    while len(steps) < MOST_FOUND and not asked_to_stop():
        if len(steps) == MOST_WITH_SKY:
            samples = replace(samples, sky=None)
        best, other = _best(samples, places, known, inflation, has_outliers)
        if best is None:
            break
        after, drop = best.after(), best.drop
        if best.inflation > 1.0:
            known = (*known, best.kind)
        elif best.is_linear:
            drop = samples.square - after.square
            if drop <= 0.0:
                break
        steps.append(_Step(best, best.significance(inflation), drop, _texts(best, other)))
        inflation *= max(best.inflation, 1.0)
        samples = after
    return steps, samples


def _texts(best: Candidate, other: Candidate | None) -> tuple[str, str]:
    """Verdict and remedy; with another verdict where that one explains the residuals nearly as well."""
    verdict, remedy = best.texts()
    if other is None:
        return verdict, remedy
    second = other.texts()[0]
    return f"{verdict} Almost as likely: {second[0].lower()}{second[1:]}", remedy


def _best(
    samples: ResidualSamples,
    places: Sequence[BrightPlaces],
    known: tuple[str, ...],
    inflation: float,
    has_outliers: bool,
) -> tuple[Candidate | None, Candidate | None]:
    """The candidate that explains most, and one of another family that does nearly as well.

    Many small errors, as closure errors of all baselines, may be certain although their numbers cost more
    than they gain. Where nothing else is found, the least likely by chance is taken, if it is certain beside
    a correlation that is too small to be found, too. Where noise is correlated, many numbers are never
    certain.
    """
    sure = [
        each
        for each in candidates(samples, places, known)
        if not (has_outliers and each.family == "outliers")
        and not 1.0 < each.inflation < LEAST_FACTOR**2
        and each.significance(inflation) > SIGNIFICANCE
    ]
    if any(each.family != "outliers" for each in sure):
        of_sky = sky_candidates(samples.fair)
        sure += [each for each in of_sky if each.significance(inflation) > SIGNIFICANCE]
    certain = [(each, each.net(samples.n_real, inflation)) for each in sure]
    paid = any(net > 0.0 for _, net in certain)
    if not paid:
        unseen = LEAST_FACTOR**2
        certain = [
            (each, net) for each, net in certain if inflation == 1.0 and each.chance(unseen) < UNLIKELY
        ]
    certain = _without_details(certain, samples)
    by_family: dict[str, tuple[float, Candidate]] = {}
    for each, net in certain:
        score = net if paid else -each.log_p / inflation
        if score > by_family.get(each.family, (0.0, each))[0]:
            by_family[each.family] = score, each
    ranked = sorted(by_family.values(), key=lambda pair: -pair[0])
    if not ranked:
        return None, None
    ranked = _narrower(_before_noise(_narrower(ranked, samples), samples), samples)
    tie = len(ranked) > 1 and ranked[0][0] - ranked[1][0] < TIE
    return ranked[0][1], ranked[1][1] if tie else None


def _without_details(
    certain: list[tuple[Candidate, float]], samples: ResidualSamples
) -> list[tuple[Candidate, float]]:
    """Without what explains little more than something steady does, with more numbers.

    A model that was fitted beside wrong gains is wrong itself, and gains that vary or factors of baselines
    make up for a part of that. A flux that a prior holds differs from the data at all times.
    """
    variance = samples.square / samples.n_real

    def is_detail(each: Candidate) -> bool:
        parts = {GAIN: NEARLY.get(each.kind), FLUX: MOSTLY_FLUX if each.kind in OF_FLUX else None}
        own = each.drop - each.n_term * variance
        return any(
            other.n_term < each.n_term and other.drop - other.n_term * variance > part * own
            for other, net in certain
            if net > 0.0 and (part := parts.get(other.kind)) is not None
        )

    return [(each, net) for each, net in certain if not is_detail(each)]


def _narrower(
    ranked: list[tuple[float, Candidate]], samples: ResidualSamples
) -> list[tuple[float, Candidate]]:
    """Without a fault of the data that is first, where the sky or a narrower cause explains much of it.

    Structure that the model lacks looks like errors of baselines, constant offsets and uneven noise, and a
    sky explains little of these where they are real, but for a source that the shortest baseline alone sees:
    that one has no such advantage. Errors of all baselines look like whatever there is.
    """
    first = ranked[0][1]
    if first.kind not in OF_DATA:
        return ranked
    of_any = NARROW if first.kind == CATCH_ALL else math.inf

    def least(each: Candidate) -> float:
        return NARROW_SKY if each.family in OF_SKY and _is_broad(each, samples) else of_any

    narrow = [pair for pair in ranked[1:] if pair[1].is_linear and pair[1].drop > first.drop * least(pair[1])]
    return _narrower(narrow, samples) if narrow else ranked


def _is_broad(each: Candidate, samples: ResidualSamples) -> bool:
    """Whether several baselines see what a cause explains, as they see a source."""
    fair = samples.fair
    drops = np.bincount(fair.baseline, np.abs(fair.residual) ** 2 - np.abs(each.after().residual) ** 2)
    return bool(np.count_nonzero(drops) < 3 or drops.max() < MOST_OF_ONE * drops.sum())


def _before_noise(
    ranked: list[tuple[float, Candidate]], samples: ResidualSamples
) -> list[tuple[float, Candidate]]:
    """Without correlated noise, where it is first and terms explain most of what changes slowly.

    One number describes such noise, and gains that change need hundreds; but noise is no explanation. Were
    the residuals noise, terms that follow it would explain a part of it all the same, as many of its
    independent values as there are terms.
    """
    first = ranked[0][1]
    if first.kind not in AXES:
        return ranked
    slow = 1.0 - _thermal(samples, ()) * samples.n_real / samples.square or 1.0

    def explains_most(each: Candidate) -> bool:
        by_chance = slow * min(each.n_term * min(first.inflation, each.n_time) / samples.n_real, 1.0)
        return each.is_linear and each.drop / samples.square - by_chance > MOSTLY * (slow - by_chance)

    return [each for each in ranked if each[0] > 0.0 and explains_most(each[1])] or ranked


def candidates(
    samples: ResidualSamples, places: Sequence[BrightPlaces], known: tuple[str, ...]
) -> Iterator[Candidate]:
    yield from outlier_candidates(samples)
    fair = samples.fair
    yield from correlation_candidates(fair, known)
    yield from brightness_candidates(fair)
    yield from polarisation_candidates(fair)
    yield from offset_candidates(fair)
    yield from gain_candidates(fair)
    yield from uneven_candidates(fair)
    yield from source_candidates(fair, places)
    yield from place_candidates(fair, places)
    yield from geometry_candidates(fair, places)


def _findings(samples: ResidualSamples, left: ResidualSamples, steps: Sequence[_Step]) -> list[Finding]:
    """Findings with the shares that they explain, and correlations that are no noise under one head."""
    excess = samples.square - samples.n_real * _thermal(left, steps)
    by_chance = 5.0 * np.sqrt(2.0 * samples.n_real) * samples.square / samples.n_real
    is_excess = bool(excess > by_chance)
    whole = excess if is_excess else max(sum(step.drop for step in steps), 1e-300)
    least = 5.0 * np.sqrt(2.0 / samples.n_real) * left.square if is_excess else 0.0
    shares, of_others = _shares(steps, whole, least)
    axes = [step for step in steps if step.candidate.kind in AXES]
    rest = max(0.0, 1.0 - of_others) if is_excess else 1.0
    mostly = is_excess and of_others > MOSTLY
    found = []
    for share, step in zip(shares, steps, strict=True):
        each = step.candidate
        noise = each.inflation > 1.0
        if noise and (mostly or (len(axes) > 1 and step in axes)):
            continue
        if not noise and share < LEAST_SHARE:
            continue
        factor = float(np.sqrt(max(each.inflation, 1.0)))
        found.append(Finding(each.kind, step.significance, rest if noise else share, *step.texts, factor))
    if len(axes) > 1 and not mostly:
        found.append(_coherent(axes))
    return sorted(found, key=lambda each: -each.explained)


def _shares(steps: Sequence[_Step], whole: float, least: float) -> tuple[list[float], float]:
    """Parts that add to 1 at most: of outliers in the whole excess, of all others in what outliers leave.

    Outliers have most of the excess of many data, and would hide all else. And the part that all explain.
    """
    lost = min(whole, sum(step.drop for step in steps if step.candidate.family == "outliers"))
    left = {True: whole, False: max(whole - lost, least, 1e-300)}
    free = {True: 1.0, False: 1.0}
    shares = []
    for step in steps:
        is_bad = step.candidate.family == "outliers"
        shares.append(min(free[is_bad], max(0.0, step.drop / left[is_bad])))
        free[is_bad] -= shares[-1]
    return shares, 1.0 - free[True] * free[False]


def _coherent(axes: Sequence[_Step]) -> Finding:
    words = {TIME: "neighbouring times", CHANNEL: "neighbouring channels", HANDS: "the two hands"}
    listed = " and of ".join(words[step.candidate.kind] for step in axes)
    factor = float(np.sqrt(np.prod([step.candidate.inflation for step in axes])))
    return Finding(
        COHERENT,
        max(step.significance for step in axes),
        0.0,
        f"The residuals of {listed} are correlated, by missing structure or by correlated noise. biro "
        "could not tell which.",
        "Look at the residual image and at the residuals of each antenna (`biro.plots.antenna_residuals`).",
        factor,
    )


def _thermal(left: ResidualSamples, steps: Sequence[_Step]) -> float:
    """Variance of the noise of a real part, from differences of neighbouring times of what is left.

    With a correlation rho of neighbours, the mean square of differences is 2 (1 - rho) times the variance.
    Copies of rows are no neighbours; the variance is that of what is left.
    """
    whole = left.square / left.n_real
    if any(step.candidate.kind == DUPLICATES for step in steps):
        return whole
    found: Correlation = in_time(left)
    if not len(found.rho) or found.rho[0] < 5.0 * found.error[0]:
        return whole
    return whole * (1.0 - float(found.rho[0]))
