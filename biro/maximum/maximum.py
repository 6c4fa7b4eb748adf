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

from biro.errors import InputError, LikelihoodError
from biro.files.atomic import write_atomic
from biro.files.json_value import JsonValue
from biro.formatting import align, digits_after_point
from biro.maximum.ascent import Ascent
from biro.maximum.climb import climb
from biro.maximum.laplace import Laplace
from biro.maximum.newton import ENOUGH, newton
from biro.maximum.protocol import DifferentiableLikelihood, Watch
from biro.maximum.search import search
from biro.maximum.starts import starting_points
from biro.maximum.target import Target
from biro.models.quantities.parameter import Column

log = logging.getLogger(__name__)

STARTS = 16
SEARCHABLE = 64
"""Parameters up to which differential evolution finds anything."""
AGREE = 0.5
"""Starts whose log-posterior is lower than the best by less than this have found the same maximum."""
_ENDS = {-1: "at its lower end", 0: "", 1: "at its upper end"}


@dataclass(frozen=True, eq=False)
class Maximum:
    """The result of `biro.maximise`; `str` prints a table, `to_dict` is for JSON.

    Attributes
    ----------
    columns : tuple of Column
        Parameters, in the order of theta.
    laplace : Laplace
        The normal distribution about the maximum.
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
        Starts; climbs that went on to the end; how many of these ended at this maximum.
    searched : bool
        Whether the climbs did not agree, so that another began where a search of the prior had ended.
    n_gradient : int
        Gradients that were evaluated.
    seed : int
    """

    columns: tuple[Column, ...]
    laplace: Laplace
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
    searched: bool
    n_gradient: int
    seed: int

    @property
    def names(self) -> tuple[str, ...]:
        """Parameter names."""
        return tuple(column.name for column in self.columns)

    @property
    def best_fit(self) -> NDArray[np.float64]:
        """The maximum, (n_param,), in the units of the model file."""
        return self.laplace.theta.copy()

    @property
    def error(self) -> NDArray[np.float64]:
        """One sigma of each parameter, (n_param,); NaN where the data say nothing about it.

        For a parameter at an end of its prior, the distance from there that holds 68 %.
        """
        return self.laplace.error

    @property
    def covariance(self) -> NDArray[np.float64]:
        """(n_param, n_param); 0 for parameters at an end of their prior, NaN where the data say nothing."""
        return self.laplace.covariance.copy()

    @property
    def log_evidence(self) -> float | None:
        """ln Z by Laplace's method; None where the data do not tell parameters apart."""
        return self.laplace.log_evidence(self.log_posterior)

    @property
    def reduced_chi2(self) -> NDArray[np.float64]:
        """chi2 / 2N of each partition, for the weights as stated: 1 where they are right and the model is.

        NaN for a partition without visibilities.
        """
        return self.chi2 / np.where(self.n_vis > 0, 2.0 * self.n_vis, np.nan)

    @property
    def unidentified(self) -> list[str]:
        """Combinations of parameters that can change within the prior without the data noticing."""
        return self.laplace.combinations(self.names)

    @property
    def agreement(self) -> str:
        """How many of those that looked for it found this maximum, in words."""
        words = "starts, one of them from a search of the prior," if self.searched else "starts"
        return f"{self.n_agree} of {self.n_end} {words} found it"

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

    def to_dict(self) -> dict[str, JsonValue]:
        """Plain numbers and text, None for what is not known; parameters by name."""
        table = zip(self.columns, self.laplace.theta, self.error, self.laplace.side, strict=True)
        parts = zip(self.labels, self.chi2, self.n_vis, self.reduced_chi2, self.noise_factor, strict=True)
        return {
            "parameters": {
                c.name: {"unit": c.unit, "value": float(x), "error": _finite(e), "at": _ENDS[int(side)]}
                for c, x, e, side in table
            },
            "covariance": [[_finite(x) for x in row] for row in self.laplace.covariance],
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
                }
                for label, chi2, n_vis, reduced, factor in parts
            ],
            "unidentified": self.unidentified,
            "converged": self.converged,
            "left": self.left,
            "n_start": self.n_start,
            "n_end": self.n_end,
            "n_agree": self.n_agree,
            "searched": self.searched,
            "n_gradient": self.n_gradient,
            "seed": self.seed,
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
            known = f"{error:.{digits}f}" if np.isfinite(error) else "-"
            rows.append([column.name, column.unit, f"{x:.{digits}f}", known, _ENDS[int(side)]])
        return rows

    def notes(self) -> list[str]:
        """Lines below the table: evidence, chi-squared of each partition, what is to be watched."""
        lines = [
            f"log-posterior {self.log_posterior:.3f}, log-likelihood {self.log_likelihood:.3f}; "
            + self.agreement
        ]
        if self.log_evidence is not None:
            lines.append(f"log-evidence {self.log_evidence:.3f} (Laplace)")
        for label, chi2, n_vis, factor in zip(
            self.labels, self.reduced_chi2, self.n_vis, self.noise_factor, strict=True
        ):
            fit = f"chi2/2N {chi2:.4g} of {n_vis} visibilities, noise factor {factor:.4g}"
            lines.append(f"{label}: {fit if n_vis else 'no visibilities'}")
        lines += [f"NOT KNOWN from these data: {words}" for words in self.unidentified]
        if not self.converged:
            lines.append(f"NOT CONVERGED: another step would still add {self.left:.2g} to the log-posterior")
        return lines

    def __str__(self) -> str:
        return "\n".join([align(self.cells()), *self.notes()])


def maximise(
    likelihood: DifferentiableLikelihood,
    *,
    seed: int | None = None,
    starts: int | ArrayLike = STARTS,
    watch: Watch | None = None,
) -> Maximum:
    """The highest posterior density, with errors, covariance and evidence from its curvature.

    Many starts climb side by side with exact gradients, the best of them to the end. Where most of these end
    at different maxima, among fringes for instance, the prior is searched by differential evolution as well
    (up to 64 parameters). The result is a maximum of the density per unit of theta; it is a local one where
    neither climb nor search came near the highest.

    Parameters
    ----------
    likelihood : Likelihood
        Or anything else that is a `DifferentiableLikelihood` (`biro.maximum.protocol`).
    seed : int, optional
        Of the draws that starts are chosen from; drawn, and kept in the result, when not given.
    starts : int or float (n_start, n_param)
        How many, chosen among 64 times as many draws from the prior; or the points themselves.
    watch : function of the highest log-posterior so far, optional
        Called after each batch; what it raises ends the search.

    Raises
    ------
    InputError
        Nothing to fit, a start outside the prior.
    LikelihoodError
        No start is possible, or a derivative is not a number.
    """
    target = Target(likelihood)
    seed = secrets.randbelow(2**31) if seed is None else seed
    ascent = Ascent(likelihood, watch)
    first = starting_points(ascent, starts, np.random.default_rng(seed))
    ends, values = climb(ascent, first)
    few = len(ends) > 1 and 2 * _agreeing(values) <= len(ends)
    searched = np.ndim(starts) == 0 and few and target.n_param <= SEARCHABLE
    if searched:
        log.info("%d of %d starts agree: the prior is searched", _agreeing(values), len(ends))
        unit, _ = search(target, seed, watch)
        more, value = climb(ascent, target.theta(unit[None]))
        ends, values = np.concatenate([ends, more]), np.concatenate([values, value])
    rest = newton(ascent, ends[np.argmax(values)])
    if not np.isfinite(rest.log_posterior):
        raise LikelihoodError(f"none of the {len(first)} starts has a finite posterior")
    theta = rest.laplace.theta
    log_prior = float(likelihood.log_prior(theta[None])[0])
    maximum = Maximum(
        columns=target.columns,
        laplace=rest.laplace,
        log_posterior=rest.log_posterior,
        log_likelihood=rest.log_posterior - log_prior,
        log_prior=log_prior,
        chi2=likelihood.chi2(theta),
        n_vis=likelihood.n_vis,
        noise_factor=likelihood.noise_factor(theta),
        labels=tuple(likelihood.observation.labels),
        left=rest.left,
        converged=bool(rest.left < ENOUGH[likelihood.precision]),
        n_start=len(first),
        n_end=len(ends),
        n_agree=int(np.sum(values > max(values.max(), rest.log_posterior) - AGREE)),
        searched=searched,
        n_gradient=ascent.n_row,
        seed=int(seed),
    )
    log.info("maximum: log-posterior %.3f after %d gradients", maximum.log_posterior, maximum.n_gradient)
    for words in maximum.unidentified:
        log.warning("not known from these data: %s", words)
    return maximum


def _agreeing(values: NDArray[np.float64]) -> int:
    """How many of the climbs have ended at the highest of their maxima."""
    return int(np.sum(values > values.max() - AGREE))


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
