"""Does the model fit? One diagnosis for the results of all samplers and of `biro.maximise`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.diagnosis.causes.all_causes import find_causes
from biro.diagnosis.causes.fitted_sky import OtherModels
from biro.diagnosis.correlated_errors import ErrorFactor, error_factor, shared_remark
from biro.diagnosis.data_faults import fault_lines, without_copies
from biro.diagnosis.feed_frame import turns_of
from biro.diagnosis.finding import Finding
from biro.diagnosis.flag_target import FlagTarget
from biro.diagnosis.partition_fit import CERTAIN, EFFECT, PartitionFit
from biro.diagnosis.prior_conflict import edge_conflicts, prior_conflicts
from biro.diagnosis.residual_data import ResidualData, without_tails
from biro.diagnosis.verdict_text import (
    HANDS,
    OF_FAULTS,
    OF_PRIORS,
    UNKNOWN_CAUSE,
    certainty,
    lines_of,
)
from biro.diagnosis.whiteness import whiteness
from biro.display.progress import doing
from biro.models.quantities.parameter import Column, Parameter
from biro.run.interrupt import asked_to_stop

Array = NDArray[np.float64]
STOPPED = "biro was stopped before it had tested all causes"
"""What is said of a misfit where a signal ended the tests."""
OF_CLOSURES = ("missing source", "missing extended source", "missing polarised source", "source of the model")
"""Kinds of misfit that residuals beside solved gains show as well."""


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a fit.

    Attributes
    ----------
    fits : tuple of PartitionFit
        How well each partition is fitted; none where a likelihood does not know chi-squared.
    warnings : tuple of str
        Lines above a table, the gravest first; none for most sound data.
    findings : tuple of Finding
        Kinds of misfit that the residuals show.
    error_factor : float
        By how much the errors are too small, in all; 1 where nothing is wrong with them.
    """

    fits: tuple[PartitionFit, ...] = ()
    warnings: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    error_factor: float = 1.0


class _LabelledData(Protocol):
    @property
    def labels(self) -> Sequence[str]:
        """One for each partition."""


class FittedLikelihood(Protocol):
    """What a diagnosis asks of a likelihood."""

    @property
    def observation(self) -> _LabelledData:
        """The data."""

    @property
    def n_vis(self) -> NDArray[np.int64]:
        """Usable complex visibilities of each partition."""

    def chi2(self, theta: Array) -> Array:
        """Chi-squared of each partition, for one theta."""

    def noise_factor(self, theta: Array) -> Array:
        """Noise factor of each partition, for one theta."""


class ResidualLikelihood(FittedLikelihood, Protocol):
    """A likelihood that shows its residuals."""

    def residual_data(self, theta: ArrayLike) -> list[ResidualData]:
        """Data and model of each partition, for one theta."""

    def residual_models(self, theta: ArrayLike) -> list[NDArray[np.complexfloating]]:
        """Model visibilities where `residual_data` has them."""


def diagnose(
    likelihood: object, theta: Array, mean: Array, sd: Array, columns: Sequence[Column]
) -> Diagnosis:
    """Compare residuals with thermal noise and weights, priors with the likelihood, and name what is wrong.

    Parameters
    ----------
    likelihood : Likelihood
        Or anything else: what it cannot show is not looked at.
    theta : float64 (n_param,)
        The best fit.
    mean, sd : float64 (n_param,)
        Of the posterior; NaN where they are not known.
    columns : sequence of Column
    """
    conflicts = _conflicts(likelihood, theta, mean, sd, columns)
    if not hasattr(likelihood, "chi2"):
        return Diagnosis(warnings=tuple(conflicts))
    with doing("testing the residuals"):
        seen = _seen_at(likelihood, theta)
        if not hasattr(likelihood, "residual_data"):
            return Diagnosis(seen.fits, (*conflicts, *lines_of(seen.fits, (), seen.remarks)))
        of_others, largest = _total(cast(ResidualLikelihood, likelihood), seen, theta, sd)
    factor = seen.of_copies * of_others
    # A line about copies has their factor, and says that errors are too small: none may say that they hold.
    said = factor if of_others > 1.0 else 1.0
    largest = largest if seen.of_copies == 1.0 else math.nan
    otherwise = STOPPED if seen.is_stopped else _otherwise(seen.faults, conflicts)
    remarks = [*seen.remarks, seen.shared] if seen.shared and said > EFFECT else seen.remarks
    lines = lines_of(seen.fits, seen.findings, remarks, said, largest, otherwise=otherwise)
    return Diagnosis(seen.fits, (*seen.faults, *conflicts, *lines), seen.findings, factor)


class _Diagnosed(NamedTuple):
    """What a diagnosis finds at one theta, whatever the posterior about it; see `Diagnosis`.

    `of_copies` is by how much copies of rows make errors too small, `shared` is a line on what residuals of
    several partitions have in common, `is_stopped` whether a signal ended the tests.
    """

    fits: tuple[PartitionFit, ...]
    remarks: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    faults: tuple[str, ...] = ()
    of_copies: float = 1.0
    shared: str = ""
    is_stopped: bool = False


_SEEN: WeakKeyDictionary[object, tuple[bytes, _Diagnosed]] = WeakKeyDictionary()


def _seen_at(likelihood: object, theta: Array) -> _Diagnosed:
    """What is seen at theta. It is kept for each likelihood: a sampler may end at the maximum it began at."""
    if not hasattr(likelihood, "residual_data"):
        return _looked_for(likelihood, theta)
    key, (last, seen) = theta.tobytes(), _SEEN.get(likelihood, (b"", _Diagnosed((), ())))
    if key != last:
        seen = _looked_for(likelihood, theta)
        if not seen.is_stopped:
            _SEEN[likelihood] = key, seen
    return seen


def _looked_for(likelihood: object, theta: Array) -> _Diagnosed:
    fits, remarks = fits_at(cast(FittedLikelihood, likelihood), theta), _remarks(likelihood, theta)
    if not hasattr(likelihood, "residual_data"):
        return _Diagnosed(tuple(fits), tuple(remarks))
    data = cast(ResidualLikelihood, likelihood).residual_data(theta)
    faults = fault_lines(data)
    data, of_copies = without_copies(data)
    fits = [measured(fit, each) if fit.n_vis else fit for fit, each in zip(fits, data, strict=True)]
    findings = _findings(likelihood, theta, data, fits)
    shared = "" if any(fit.n_closure for fit in fits) else shared_remark(data)
    return _Diagnosed(
        tuple(fits), tuple(remarks), tuple(findings), tuple(faults), of_copies, shared, asked_to_stop()
    )


def _otherwise(faults: Sequence[str], conflicts: Sequence[str]) -> str:
    """What to say of a misfit whose cause no test of the residuals found."""
    if faults:
        return OF_FAULTS
    return OF_PRIORS if conflicts else UNKNOWN_CAUSE


def fits_of(likelihood: object, theta: Array) -> tuple[PartitionFit, ...]:
    """`fits_at` of a likelihood that knows chi-squared; nothing of any other."""
    return tuple(fits_at(cast(FittedLikelihood, likelihood), theta)) if hasattr(likelihood, "chi2") else ()


def fits_at(likelihood: FittedLikelihood, theta: Array) -> list[PartitionFit]:
    """chi2, degrees of freedom and noise factor of each partition for one theta, without its residuals."""
    n_vis = likelihood.n_vis
    n_data: NDArray[np.int64] = getattr(likelihood, "n_data", 2 * n_vis)
    with np.errstate(invalid="ignore"):
        chi2 = np.maximum(likelihood.chi2(theta), 0.0)  # of an exact fit it may be below 0 by roundings
        reduced = np.where(n_data > 0, chi2 / np.maximum(n_data, 1), np.nan)
    noise_dof = getattr(likelihood, "noise_dof", None)
    has_tails = noise_dof is not None and noise_dof(theta) is not None
    is_closed = getattr(likelihood, "gains", "") == "closures"
    of_noise = _noise_parameters(likelihood)
    dof = _dof(likelihood, theta, n_data, len(theta) - len(of_noise))
    fitted = np.zeros(len(n_vis), bool)
    for together, _ in of_noise.values():
        fitted |= together
    columns = zip(likelihood.observation.labels, n_vis, n_data, reduced, dof, fitted, strict=True)
    return [
        PartitionFit(
            label,
            int(n),
            float(ratio),
            float(factor),
            has_tails=has_tails,
            n_closure=int(count) if is_closed else 0,
            dof=float(free),
            is_fitted=bool(is_fitted),
        )
        for (label, n, count, ratio, free, is_fitted), factor in zip(
            columns, likelihood.noise_factor(theta), strict=True
        )
    ]


def _noise_parameters(likelihood: object) -> dict[int, tuple[NDArray[np.bool_], float]]:
    return dict(getattr(getattr(likelihood, "model", None), "noise_parameters", {}))


def _dof(likelihood: object, theta: Array, n_data: NDArray[np.int64], n_param: int) -> Array:
    """Degrees of freedom of each partition; parameters are shared out by the size of their data."""
    counted = getattr(likelihood, "dof", None)
    if counted is not None:
        return np.asarray(counted(theta), np.float64)
    return np.asarray(n_data * (1.0 - n_param / max(1, int(n_data.sum()))))


def measured(fit: PartitionFit, data: ResidualData) -> PartitionFit:
    """The fit with what its residuals show."""
    found = whiteness(data)
    return replace(
        fit,
        scatter=found.scatter,
        step=found.step,
        thermal=found.thermal,
        is_bound=found.is_bound,
        coherent=found.coherent,
        by_channel=found.by_channel,
    )


def _remarks(likelihood: object, theta: Array) -> list[str]:
    remarks = getattr(likelihood, "remarks", None)
    return [] if remarks is None else list(remarks(theta))


def _findings(
    likelihood: object,
    theta: Array,
    data: Sequence[ResidualData],
    fits: Sequence[PartitionFit],
) -> list[Finding]:
    """Kinds of misfit that are certain."""
    turned = _with_turns(likelihood, data)
    used = [each for each, fit in zip(turned, fits, strict=True) if fit.n_vis]
    if not used:
        return []
    names = getattr(getattr(likelihood, "observation", None), "antenna_names", ())
    has_tails = any(fit.has_tails for fit in fits)
    if has_tails:
        dof = likelihood.noise_dof(theta)  # type: ignore[attr-defined]
        of_used = [float(nu) for nu, fit in zip(dof, fits, strict=True) if fit.n_vis]
        used = [without_tails(each, nu) for each, nu in zip(used, of_used, strict=True)]
    observation = getattr(likelihood, "observation", None)
    found = find_causes(
        used,
        names,
        has_outliers=has_tails,
        target=FlagTarget.of(observation),
        utc_offset=float(getattr(observation, "utc_offset", 0.0)),
        others=_others(likelihood, theta, fits),
    )
    found = [each for each in found if each.significance > CERTAIN]
    if any(fit.n_closure for fit in fits):  # gains that were solved for are in these residuals
        found = [each for each in found if each.kind in OF_CLOSURES]
    if has_tails:  # such noise has places that scatter more
        found = [each for each in found if not each.kind.startswith(("noise", "bad"))]
    return found


def _others(likelihood: object, theta: Array, fits: Sequence[PartitionFit]) -> OtherModels | None:
    """Other sky models at the data of a likelihood.

    None where it knows of none, or a partition is empty; and of closures, whose residual visibilities have
    gains that were solved with the sky of the fit.
    """
    if not all(fit.n_vis for fit in fits) or any(fit.n_closure for fit in fits):
        return None
    if not hasattr(likelihood, "other_skies"):
        return None
    return cast(OtherModels, likelihood.other_skies(theta))


def _with_turns(likelihood: object, data: Sequence[ResidualData]) -> list[ResidualData]:
    """The data with the turns of their feeds, where gains of the two feeds act in another frame."""
    observation = getattr(likelihood, "observation", None)
    sky = getattr(getattr(likelihood, "model", None), "model", None)
    if observation is None or sky is None or len(observation.partitions) != len(data):
        return list(data)
    found = []
    turns = turns_of(observation, sky, separate=True)
    for each, whole, turn in zip(data, observation.partitions, turns, strict=True):
        at = np.searchsorted(whole.times, each.partition.times) if turn is not None else None
        found.append(each if at is None or turn is None else replace(each, turn=turn[at]))
    return found


def _total(likelihood: ResidualLikelihood, seen: _Diagnosed, theta: Array, sd: Array) -> tuple[float, float]:
    """By how much errors are too small in all, where something is wrong; else 1. And the largest, measured.

    The correlation of residuals and their size contain all factors at once. Where that is not measured,
    those that tests of the residuals state are multiplied; of duplicated rows and correlation in time the
    larger counts.
    """
    fits, findings, remarks = seen.fits, seen.findings, seen.remarks
    of_time = [f.error_factor for f in findings if f.kind in ("correlated in time", "duplicated rows")]
    others = [f.error_factor for f in findings if f.kind in ("correlated in frequency", "correlated hands")]
    product = max(of_time, default=1.0) * math.prod(others)
    wrong = certainty(fits) > CERTAIN or product > EFFECT or any(fit.by_channel > CERTAIN for fit in fits)
    off = [fit for fit in fits if fit.is_far and not fit.is_fitted]
    if not (wrong or off or findings or seen.shared or any(line.startswith(HANDS) for line in remarks)):
        return 1.0, math.nan
    if off:
        product *= max(fit.rms / fit.noise_factor for fit in off)
    measured = ErrorFactor()
    if not any(fit.n_closure or fit.has_tails for fit in fits):
        box = getattr(getattr(likelihood, "model", None), "box", None)
        if box is not None:
            data, _ = without_copies(likelihood.residual_data(theta))
            measured = error_factor(data, likelihood.residual_models, theta, sd, box)
    return float(np.nanmax([1.0, product, measured.rms])), measured.largest


def _height(likelihood: object, theta: Array) -> Callable[[Array], Array] | None:
    """ln L (n_batch,) with the noise of one theta, beyond the prior as well; None where nothing gives it.

    The noise is that of the weights and the factor, or that of the residuals where this is more.
    """
    if not hasattr(likelihood, "chi2"):
        return cast("Callable[[Array], Array] | None", getattr(likelihood, "log_likelihood", None))
    known = cast(FittedLikelihood, likelihood)
    fits = fits_at(known, theta)
    level = np.array([np.nanmax([f.noise_factor**2, f.chi2_per_dof]) for f in fits])
    return lambda batch: -0.5 * np.sum(known.chi2(batch) / level, axis=-1)


def _conflicts(
    likelihood: object, theta: Array, mean: Array, sd: Array, columns: Sequence[Column]
) -> list[str]:
    """Lines about priors that the likelihood contradicts."""
    parameters: Sequence[Parameter] = getattr(likelihood, "parameters", ())
    found = prior_conflicts(parameters, mean, sd)
    height = _height(likelihood, theta)
    if height is not None:
        found += edge_conflicts(columns, theta, sd, height)
    return [each.text for each in found]
