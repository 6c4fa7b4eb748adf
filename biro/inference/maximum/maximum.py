"""The maximum of a posterior, with errors and evidence from its curvature."""

from __future__ import annotations

import json
import logging
import secrets
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.diagnosis.diagnosis import diagnose
from biro.diagnosis.partition_fit import PartitionFit, fit_lines
from biro.display.arguments import takes_likelihood
from biro.display.formatting import Tabular, digits_after_point, first_few
from biro.display.progress import SEARCH, bar, end_of, showing
from biro.errors import InputError, LikelihoodError
from biro.files.atomic import write_atomic
from biro.files.json_value import JsonValue
from biro.inference.maximum.climbs import Climbs
from biro.inference.maximum.laplace import Laplace
from biro.inference.maximum.modes import (
    COUNTS,
    Mode,
    exchange_warning,
    missed_warning,
    modes_warning,
)
from biro.inference.maximum.newton import ENOUGH
from biro.inference.maximum.objective import Objective
from biro.inference.maximum.segments.climb import N_START, SegmentClimb
from biro.inference.maximum.segments.laplace import SegmentLaplace
from biro.inference.maximum.segments.precision import many_segments
from biro.inference.maximum.skewed import Interval, Skewed, skewed
from biro.inference.maximum.starts import starting_points
from biro.inference.maximum.switched_off import switched_off
from biro.inference.maximum.tempering.exploration import Explored, explore
from biro.inference.maximum.tempering.particles import Particles
from biro.inference.target.checked import Target
from biro.inference.target.protocol import DifferentiableLikelihood, Watch, doubts_of_maximum
from biro.models.quantities.parameter import Column

log = logging.getLogger(__name__)

STARTS = 16
_LISTED, _SHOWN = 5, 4
"""Modes that the table lists, and parameters that it shows of each."""
_NONE_SKEWED = Skewed({}, None)
_ENDS = {-1: "at its lower end", 0: "", 1: "at its upper end"}


@dataclass(frozen=True, eq=False, repr=False)
class Maximum(Tabular):
    """The result of `biro.maximise`; `str` prints a table, `to_dict` is for JSON.

    Attributes
    ----------
    columns : tuple of Column
        Parameters, in the order of theta.
    modes : tuple of Mode
        The maximum, and other maxima of similar evidence, the largest first.
    exchangeable : tuple of str
        Sources that can change places without any change of the posterior, a text for each group ("a, b").
    log_posterior, log_likelihood, log_prior : float
        At the maximum (not normalised: log_likelihood + log_prior).
    chi2 : float64 (n_partition,)
        With the weights as they are (noise factor 1).
    n_vis : int64 (n_partition,)
    noise_factor : float64 (n_partition,)
    labels : tuple of str
        Of the partitions.
    left : float
        What another step would add to the log-posterior.
    converged : bool
    n_start, n_end, n_agree : int
        Starts, with those that the search of the prior added; climbs that did not end far below the highest;
        how many of these ended at this place.
    n_search : int
        Searches of the prior, made where the climbs ended in different places; a climb began where each
        ended.
    n_gradient : int
        Gradients that were evaluated.
    seed : int
    fits : tuple of PartitionFit
        How well each partition is fitted.
    remarks : tuple of str
        What is wrong with model, data or priors (`biro.diagnosis.diagnosis`), as lines above the table.
    error_factor : float
        By how much the errors are too small, in all; 1 where nothing is wrong with them.
    missed_mass : float or None
        Estimated part of the posterior in modes that were not found; None where none were looked for, as from
        a start that was given.
    particles : Particles or None
        Draws of the posterior by tempering; None where that would have taken too long.
    skewed : Skewed
        Parameters whose posterior is far wider than its normal approximation, with their intervals.
    """

    columns: tuple[Column, ...]
    modes: tuple[Mode, ...]
    exchangeable: tuple[str, ...]
    log_posterior: float
    log_likelihood: float
    log_prior: float
    chi2: NDArray[np.float64]
    n_vis: NDArray[np.int64]
    noise_factor: NDArray[np.float64]
    labels: tuple[str, ...]
    left: float
    converged: bool
    n_start: int
    n_end: int
    n_agree: int
    n_search: int
    n_gradient: int
    seed: int
    fits: tuple[PartitionFit, ...] = ()
    remarks: tuple[str, ...] = ()
    error_factor: float = 1.0
    missed_mass: float | None = None
    particles: Particles | None = None
    skewed: Skewed = _NONE_SKEWED

    @property
    def names(self) -> tuple[str, ...]:
        """Parameter names."""
        return tuple(column.name for column in self.columns)

    @property
    def laplace(self) -> Laplace | SegmentLaplace:
        """The normal distribution about the maximum."""
        return self.modes[0].laplace

    @property
    def searched(self) -> bool:
        """Whether the prior was searched."""
        return self.n_search > 0

    @property
    def best_fit(self) -> NDArray[np.float64]:
        """The maximum, (n_param,), in the units of the model file."""
        return self.laplace.theta.copy()

    @property
    def best_values(self) -> dict[str, float]:
        """`best_fit` by names of parameters, as `SkyModel.at` and arguments called `values` take it."""
        return dict(zip(self.names, self.best_fit.tolist(), strict=True))

    @property
    def error(self) -> NDArray[np.float64]:
        """One sigma of each parameter, (n_param,); NaN where the data say nothing about it.

        For a parameter at an end of its prior, and one whose posterior is far from normal, the distance from
        the maximum that holds 68 %.
        """
        error = self.laplace.error
        for i, interval in self.skewed.intervals.items():
            error[i] = interval.error
        return error

    @property
    def intervals(self) -> dict[str, Interval]:
        """The intervals of parameters whose posterior is far wider than its normal approximation, by name."""
        return {self.names[i]: interval for i, interval in self.skewed.intervals.items()}

    @property
    def covariance(self) -> NDArray[np.float64]:
        """Mean products of distances from the maximum, (n_param, n_param); NaN where the data say nothing.

        They are those of the normal approximation. A parameter at an end of its prior has a one-sided
        density, and the others follow it.
        """
        return self.laplace.spread.copy()

    @property
    def log_evidence(self) -> float | None:
        """ln Z of all modes; None where the data do not tell parameters apart.

        It is that of Laplace's method, unless a parameter is far from normal (`skewed`).
        """
        if self.laplace.is_singular:
            return None
        value = self.skewed.log_evidence
        return self.log_evidence_laplace if value is None else value

    @property
    def log_evidence_laplace(self) -> float:
        """ln Z by Laplace's method, of all modes."""
        return float(np.logaddexp.reduce([mode.log_evidence for mode in self.modes]))

    @property
    def reduced_chi2(self) -> NDArray[np.float64]:
        """chi2 / 2N of each partition with the stated weights: about 1 if weights and model are right.

        Of N closures chi2 / N; NaN for a partition without data.
        """
        return np.array([fit.reduced_chi2 for fit in self.fits])

    @property
    def is_doubtful(self) -> bool:
        """Whether errors and evidence mislead, because modes are missing."""
        return self.missed_mass is not None and self.missed_mass > COUNTS

    @property
    def unidentified(self) -> list[str]:
        """Combinations of parameters that the data do not determine within the prior, as texts."""
        return self.laplace.combinations(self.names)

    @property
    def without_effect(self) -> dict[str, list[str]]:
        """Parameters that are 0 within their error, with those of their source that have no effect then.

        Position angle and axis ratio of a source without a size are such parameters, and the place of a
        source without brightness.
        """
        near = {
            column.name: column.low
            for column, x, sigma, side in zip(
                self.columns, self.laplace.theta, self.error, self.laplace.side, strict=True
            )
            if (x == 0.0 if side else np.isfinite(sigma) and abs(x) < sigma)
        }
        limits = [name for name, low in near.items() if low == 0.0]
        return switched_off(self.names, limits, near, self.laplace.open_directions(self.names).values())

    @property
    def agreement(self) -> str:
        """How many of the climbs ended at this place, as a text."""
        words = f"starts ({self.n_search} from a search of the prior)" if self.searched else "starts"
        return f"{self.n_agree} of {self.n_end} {words} reached this maximum"

    def __getitem__(self, name: str) -> float:
        """The value of one parameter.

        Raises
        ------
        InputError
            No such parameter.
        """
        if name not in self.names:
            raise InputError(f"no parameter {name!r}; there are {', '.join(self.names)}")
        return float(self.laplace.theta[self.names.index(name)])

    def __repr__(self) -> str:
        n, height = len(self.columns), self.log_posterior
        return f"<Maximum of {n} parameters, log-posterior {height:.3f}; print shows it>"

    def to_dict(self) -> dict[str, JsonValue]:
        """Plain numbers and text, None for what is not known; parameters by name."""
        table = zip(self.columns, self.laplace.theta, self.error, self.laplace.side, strict=True)
        intervals = self.intervals
        parts = zip(self.labels, self.chi2, self.n_vis, self.reduced_chi2, self.noise_factor, strict=True)
        return {
            "parameters": {
                c.name: {
                    "unit": c.unit,
                    "value": float(x),
                    "error": _finite(e),
                    "at": _ENDS[int(side)],
                    "interval_95": list(intervals[c.name][1:3]) if c.name in intervals else None,
                }
                for c, x, e, side in table
            },
            "covariance": self._covariance_record(),
            "log_posterior": self.log_posterior,
            "log_likelihood": self.log_likelihood,
            "log_prior": self.log_prior,
            "log_evidence": self.log_evidence,
            "partitions": [
                {
                    "label": label,
                    "chi2": float(chi2),
                    "n_vis": int(n_vis),
                    "reduced_chi2": _finite(reduced),
                    "noise_factor": float(factor),
                    "dof": _finite(fit.n_dof),
                    "residual_over_thermal": _finite(1.0 / fit.thermal),
                    "is_lower_limit": fit.is_bound,
                }
                for (label, chi2, n_vis, reduced, factor), fit in zip(parts, self.fits, strict=True)
            ],
            "warnings": self.warnings(),
            "error_factor": self.error_factor,
            "unidentified": self.unidentified,
            "converged": self.converged,
            "left": self.left,
            "n_start": self.n_start,
            "n_end": self.n_end,
            "n_agree": self.n_agree,
            "n_search": self.n_search,
            "missed_mass": self.missed_mass,
            "n_tempered": None if self.particles is None else len(self.particles.theta),
            "modes": [self._mode_record(mode) for mode in self.modes],
            "exchangeable": list(self.exchangeable),
            "n_gradient": self.n_gradient,
            "seed": self.seed,
        }

    def _covariance_record(self) -> JsonValue:
        """All of it; None where parameters are so many that it is worked out by segments."""
        if isinstance(self.laplace, SegmentLaplace):
            return None
        return [[_finite(x) for x in row] for row in self.laplace.spread]

    def _mode_record(self, mode: Mode) -> dict[str, JsonValue]:
        return {
            "log_posterior": mode.log_posterior,
            "log_evidence": _finite(mode.log_evidence),
            "parameters": dict(zip(self.names, mode.laplace.theta.tolist(), strict=True)),
            "errors": {n: _finite(e) for n, e in zip(self.names, mode.laplace.error, strict=True)},
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write `to_dict` as JSON, replacing what is there."""
        write_atomic(Path(path), (json.dumps(self.to_dict(), indent=2) + "\n").encode())

    def cells(self) -> list[list[str]]:
        """Header and rows as text, numbers rounded to what their errors support."""
        rows = [["parameter", "unit", "maximum", "+-", ""]]
        for column, x, error, side in zip(
            self.columns, self.laplace.theta, self.error, self.laplace.side, strict=True
        ):
            digits = digits_after_point(float(error))
            known = f"{error:.{digits}f}{'?' * self.is_doubtful}" if np.isfinite(error) else "-"
            told = [_ENDS[int(side)]] if side else []
            if column.name in self.intervals:
                told.append(_interval_text(self.intervals[column.name], int(side), digits))
            rows.append([column.name, column.unit, f"{x:.{digits}f}", known, ", ".join(told)])
        return rows

    def notes(self) -> list[str]:
        """Lines below the table: evidence, other modes, chi-squared of each partition."""
        lines = [
            f"log-posterior {self.log_posterior:.3f}, log-likelihood {self.log_likelihood:.3f}; "
            + self.agreement
        ]
        if self.log_evidence is not None:
            of = f" of all {len(self.modes)} modes" if len(self.modes) > 1 else ""
            how = "Laplace" if self.skewed.log_evidence is None else self._how
            lines.append(f"log-evidence {self.log_evidence:.3f}{'?' * self.is_doubtful} ({how}){of}")
        lines += [
            f"not normal: the posterior of {name} is {interval.ratio:.2g} times as wide as its normal "
            f"approximation. Its error and 95 % interval are from {self._how}"
            for name, interval in self.intervals.items()
        ]
        lines += [self._mode_text(i, mode) for i, mode in enumerate(self.modes[1:_LISTED], start=2)]
        if len(self.modes) > _LISTED:
            lines.append(f"... and {len(self.modes) - _LISTED} more modes (see `to_dict`)")
        return lines + fit_lines(self.fits)

    def warnings(self) -> list[str]:
        """Lines above the table: why its figures may mislead, the gravest first; mostly there are none."""
        lines = [
            f"DO NOT TRUST THE ERRORS: {column.name} is CUT OFF {_ENDS[int(side)]}. Widen the "
            "prior of [noise] factor"
            for column, side in zip(self.columns, self.laplace.side, strict=True)
            if side and column.name.startswith("noise.factor")
        ]
        if self.is_doubtful:
            lines.append(missed_warning(self.missed_mass or 0.0))
        lines += self.remarks
        lines += [exchange_warning(names) for names in self.exchangeable]
        if len(self.modes) > 1:
            whose = "of the first mode only"
            if self.intervals:
                whose = "of all of them where a 95 % interval is given, else " + whose
            lines.append(f"{modes_warning(len(self.modes))}. The errors below are {whose}")
        lines += self._open_lines()
        if not self.converged:
            lines.append(
                f"NOT CONVERGED: another step would raise the log-posterior by {self.left:.2g}. Give other "
                "starts, or use a sampler"
            )
        return lines

    def _open_lines(self) -> list[str]:
        """What the data do not constrain, and parameters that are 0 and leave others without any effect."""
        lines = []
        for name, others in self.without_effect.items():
            have = "has" if len(others) == 1 else "have"
            lines.append(
                f"UPPER LIMIT: {name} is 0 within its error, and {' and '.join(others)} then {have} no "
                f"effect. Quote the interval of {name} as an upper limit, or write a simpler source"
            )
        known = {name for others in self.without_effect.values() for name in others}
        directions = self.laplace.open_directions(self.names).items()
        rest = [text for text, names in directions if not known.issuperset(names)]
        if rest:
            lines.append(f"DEGENERATE: the data do not constrain {first_few(rest, '; ')}")
        return lines

    @property
    def _how(self) -> str:
        """Where the intervals of parameters that are far from normal come from."""
        return "the density along the parameter" if self.particles is None else "tempering"

    def _mode_text(self, number: int, mode: Mode) -> str:
        """One line: how high another mode is, and the parameters that differ from those of the first."""
        away = np.abs(mode.laplace.theta - self.laplace.theta) / np.maximum(self.laplace.error, 1e-300)
        cells = []
        for i in np.argsort(-np.nan_to_num(away), kind="stable")[:_SHOWN]:
            if away[i] > 1.0:
                digits = digits_after_point(float(mode.laplace.error[i]))
                cells.append(
                    f"{self.columns[i].name} {mode.laplace.theta[i]:.{digits}f} {self.columns[i].unit}"
                )
        height = f"log-posterior {mode.log_posterior:.3f}, log-evidence {mode.log_evidence:.3f}"
        return f"mode {number}: {height}, at {', '.join(cells)}"


@takes_likelihood
def maximise(
    likelihood: DifferentiableLikelihood,
    *,
    seed: int | None = None,
    starts: int | ArrayLike = STARTS,
    watch: Watch | None = None,
    progress: bool = True,
) -> Maximum:
    """The highest posterior density, with errors, covariance and evidence from its curvature.

    Thousands of gains of many segments are climbed by a precision in blocks of segments, from few starts
    (`biro.inference.maximum.segments`); their errors are those of the Fisher information.

    A parameter whose posterior is far wider than its normal approximation, as a flux of which the data give
    an upper limit alone, has the 95 % interval of the density itself (`biro.inference.maximum.skewed`).

    Many starts that cover the prior climb side by side with exact gradients. The rest of the posterior is
    then searched (`biro.inference.maximum.tempering.exploration`, up to 30 parameters), and the result states
    what part of it may lie in modes that were not found. The maximum is that of the density per unit of
    theta.

    Parameters
    ----------
    likelihood : Likelihood
        Or anything else that is a `DifferentiableLikelihood` (`biro.inference.target.protocol`).
    seed : int, optional
        Of the draws that starts are chosen from; drawn, and kept in the result, when not given.
    starts : int or float (n_start, n_param)
        How many, chosen among 64 times as many points of the prior; or the points themselves, beside which
        nothing is searched.
    watch : function of the highest log-posterior so far, optional
        Called after each batch; what it raises ends the search. Without one a bar is shown on stderr.
    progress : bool
        Show a bar on stderr of what takes longer than two seconds.

    Raises
    ------
    InputError
        Nothing to fit, a start outside the prior.
    LikelihoodError
        No start is possible, a derivative is not a number, or the curvature cannot be inverted.
    """
    with (
        showing(progress),
        bar(SEARCH, "batches", show=watch is None) as shown,
    ):

        def count(best: float) -> None:
            shown.set_postfix_str(f"best log-posterior {best:.2f}", refresh=False)
            shown.update()

        try:
            return _maximise(likelihood, seed, starts, watch or count)
        except np.linalg.LinAlgError as error:
            raise LikelihoodError(
                f"the curvature (Hessian) of the posterior cannot be inverted ({error}); look for "
                "degenerate parameters, and for priors that are much too wide or too narrow"
            ) from error


def _maximise(
    likelihood: DifferentiableLikelihood, seed: int | None, starts: int | ArrayLike, watch: Watch
) -> Maximum:
    """`maximise`, watched."""
    target = Target(likelihood)
    seed = secrets.randbelow(2**31) if seed is None else seed
    objective = Objective(likelihood, watch)
    many = many_segments(likelihood)
    if many is not None and np.ndim(starts) == 0:
        starts = min(int(np.asarray(starts)), N_START)
    first = starting_points(objective, starts, np.random.default_rng(seed))
    explored = Explored()
    climbs: Climbs | SegmentClimb
    if many is not None:
        climbs = SegmentClimb(objective, many, first.theta)
    else:
        climbs = Climbs(objective, target.columns, first.theta)
        if first.searched:  # the likelihood looked for these starts in the whole prior
            explored = Explored(first.missed_mass)
        elif np.ndim(starts) == 0:
            explored = explore(target, objective, climbs, len(first.theta), seed, watch)
    rest = climbs.rest
    theta = rest.laplace.theta
    end_of(SEARCH)
    diagnosis = diagnose(likelihood, theta, theta, rest.laplace.error, target.columns)
    log_prior = float(likelihood.log_prior(theta[None])[0])
    maximum = Maximum(
        columns=target.columns,
        modes=climbs.found.modes,
        exchangeable=climbs.found.exchangeable,
        log_posterior=rest.log_posterior,
        log_likelihood=rest.log_posterior - log_prior,
        log_prior=log_prior,
        chi2=likelihood.chi2(theta),
        n_vis=likelihood.n_vis,
        noise_factor=likelihood.noise_factor(theta),
        labels=tuple(likelihood.observation.labels),
        left=rest.left,
        converged=bool(rest.left < ENOUGH[likelihood.precision]),
        n_start=climbs.n_start,
        n_end=climbs.n_climb,
        n_agree=climbs.found.n_agree,
        n_search=explored.n_search,
        missed_mass=explored.missed_mass,
        particles=explored.particles,
        skewed=skewed(target, climbs.found.modes, explored.particles, climbs.found.exchangeable),
        n_gradient=objective.n_row,
        seed=int(seed),
        fits=diagnosis.fits,
        remarks=(*diagnosis.warnings, *doubts_of_maximum(likelihood)),
        error_factor=diagnosis.error_factor,
    )
    log.info("maximum: log-posterior %.3f after %d gradients", maximum.log_posterior, maximum.n_gradient)
    if maximum.unidentified:
        log.warning("not constrained by the data: %s", first_few(maximum.unidentified, "; "))
    return maximum


def _interval_text(interval: Interval, side: int, digits: int) -> str:
    """The 95 % interval in words."""
    low, high = f"{interval.low:.{digits}f}", f"{interval.high:.{digits}f}"
    return "95 %: " + {-1: f"below {high}", 0: f"{low} to {high}", 1: f"above {low}"}[side]


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
