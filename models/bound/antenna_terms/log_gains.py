"""Fitted gains as sums of coordinates: what integrals over gains, and maxima, are taken in.

    ln g = sum of c x + i sum of c' x'

with a coordinate for each parameter of a gain: x = ln amplitude, and x' a phase (rad), a delay (s) or a rate
(Hz), with c = 1, 2 pi (nu - nu_0) or 2 pi (t - t_0). Log-normal priors are normal in x. Where segments are
correlated, coordinates are the values of the segments and not the steps between them, which has no influence
on an integral: the prior is then normal in x_k - keep x_(k-1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.antenna_terms.correlated import Chain
from biro.models.bound.antenna_terms.gain_layout import Factor
from biro.models.bound.antenna_terms.layout import TermSlots
from biro.models.bound.slots import ZERO, ResolvedSlots
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Parameter
from biro.models.quantities.prior import LogNormal, LogUniform, Normal, Prior

Array = NDArray[np.float64]
Index = NDArray[np.int64]
NONE = -1
"""Stands where an antenna has no coordinate of a quantity."""
_LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True, eq=False)
class LogTerm:
    """One quantity of the gains of a partition.

    Attributes
    ----------
    is_phase : bool
        Whether its coordinates make phases, or ln amplitudes.
    coordinate : int64 (n_time_block, n_antenna, n_chan_block, 2)
        Of each feed, or `NONE`.
    factor : float64 (n_time_block, n_chan_block)
        c.
    """

    is_phase: bool
    coordinate: Index
    factor: Array


@dataclass(frozen=True, eq=False)
class PartitionGains:
    """The gains of a partition: what `LogTerm` are sums over, in blocks of times and channels.

    Attributes
    ----------
    terms : list of LogTerm
    time_block, chan_block : int (n_time,), (n_chan,)
    turned : bool
        Whether G stands between matrices with which it does not commute: gains of feeds that differ, in
        data of linear feeds from which the rotation was taken out.
    """

    terms: list[LogTerm]
    time_block: NDArray[np.int32]
    chan_block: NDArray[np.int32]
    turned: bool


class Links(NamedTuple):
    """Priors that couple coordinates: x_a - middle_a - keep (x_b - middle_b) is normal.

    `later` (a), `earlier` (b), int64, `keep` and `weight`, 1/variance, float64; (n_link,) each.
    """

    later: Index
    earlier: Index
    keep: Array
    weight: Array


@dataclass(frozen=True, eq=False)
class LogGains:
    """The coordinates of all fitted gains of a bound model.

    Attributes
    ----------
    names : tuple of str
        Of the parameters, in the order of coordinates.
    each : list of PartitionGains
        Of each partition.
    middle, weight : float64 (n,)
        The normal prior of each coordinate: mean and 1/variance; weight 0 for flat priors and what a link
        has the prior of.
    is_circle : bool (n,)
        Phases with a uniform prior over one turn.
    is_angle : bool (n,)
        Phases, of any prior; no delays and rates.
    links : Links
    log_norm : float
        ln of the prior's density where all its normal terms are at their means.
    log_uniform : bool
        Whether there are log-uniform priors, whose ends the coordinates do not know.
    """

    names: tuple[str, ...]
    each: list[PartitionGains]
    middle: Array
    weight: Array
    is_circle: NDArray[np.bool_]
    is_angle: NDArray[np.bool_]
    links: Links
    log_norm: float
    log_uniform: bool
    _is_log: NDArray[np.bool_]
    _scale: Array
    _first: NDArray[np.bool_]
    """Coordinates that begin a chain of steps with a standard normal prior."""

    def parameters(self, x: Array) -> Array:
        """Values of the parameters, in the units of the model, float64 (n_draw, n), of coordinates."""
        found: Array = np.where(self._is_log, np.exp(np.minimum(x, 700.0)), x) / self._scale
        away = x - self.middle
        own = self._first
        found[:, own] = (away * np.sqrt(self.weight))[:, own]
        later, earlier, keep, weight = self.links
        found[:, later] = (away[:, later] - keep * away[:, earlier]) * np.sqrt(weight)
        return found


def log_gains(terms: Sequence[TermSlots], resolved: ResolvedSlots) -> LogGains:
    """The coordinates of the fitted gains of all partitions.

    Raises
    ------
    ModelError
        A prior that is not normal in x, nor uniform in ln amplitude or over the circle; a correlation time
        or a standard deviation that is fitted.
    """
    tables = {factor.states.key: factor for slots in terms for factor in slots.factors}
    used = np.unique(np.concatenate([np.unique(factor.states.table) for factor in tables.values()]))
    used = used[used != ZERO]
    order = {int(slot): k for k, slot in enumerate(used)}
    number = np.full(resolved.base.size, NONE, np.int64)
    number[used] = np.arange(used.size)
    prior = _Priors(used.size)
    parameters = [resolved.parameters[resolved.forms[int(slot)].terms[0][0]] for slot in used]
    scale = np.array([resolved.forms[int(slot)].terms[0][1] for slot in used])
    for factor in tables.values():
        own = np.unique(factor.states.table)
        for slot in own[own != ZERO]:
            k = order[int(slot)]
            prior.is_log[k], prior.is_angle[k] = factor.is_amplitude, factor.key.endswith("phase")
            if factor.states.chain is None:
                prior.add(k, parameters[k], float(scale[k]))
        if factor.states.chain is not None:
            _refuse_fitted_prior(factor, resolved)
            prior.add_chain(number[factor.states.table], factor.states.chain, parameters)
    each = [
        PartitionGains(
            [_term(factor, number) for factor in slots.factors],
            slots.time_block,
            slots.chan_block,
            _is_turned(slots),
        )
        for slots in terms
    ]
    return LogGains(
        tuple(parameter.name for parameter in parameters),
        each,
        prior.middle,
        prior.weight,
        prior.is_circle,
        prior.is_angle,
        prior.links(),
        prior.log_norm,
        prior.log_uniform,
        prior.is_log & ~prior.in_chain,
        np.where(prior.in_chain & ~prior.is_circle, 1.0, scale),
        prior.first,
    )


def _refuse_fitted_prior(factor: Factor, resolved: ResolvedSlots) -> None:
    chain = factor.states.chain
    if chain is not None and chain.is_fitted:
        slot, what, fixed = chain.sd_slot, "standard deviation", "sd = 0.1"
        if chain.time_slot != ZERO:
            slot, what, fixed = chain.time_slot, "correlation time", "correlated = '10 min'"
        name = resolved.parameters[resolved.forms[slot].terms[0][0]].name
        raise ModelError(
            f"{name}: gains whose {what} has a prior are neither integrated over nor solved for; "
            f'fix it, {fixed}, or use gains="sample"'
        )


def _is_turned(slots: TermSlots) -> bool:
    """Whether gains of linear feeds differ, while P^H stands on the left of them."""
    if not slots.taken_out or slots.basis != "linear":
        return False
    tables = [factor.states.table for factor in slots.factors]
    return any(not np.array_equal(table[..., 0], table[..., 1]) for table in tables)


def _term(factor: Factor, number: Index) -> LogTerm:
    place = np.ix_(factor.segment, factor.antenna, factor.block, np.arange(2))
    by = factor.by_time[:, None] * factor.by_chan
    return LogTerm(not factor.is_amplitude, number[factor.states.table][place], by)


class _Priors:
    """Priors of n coordinates, gathered one after the other."""

    def __init__(self, n: int) -> None:
        self.middle, self.weight, self.log_norm = np.zeros(n), np.zeros(n), 0.0
        self.log_uniform = False
        self.is_circle, self.is_log, self.is_angle = (np.zeros(n, bool) for _ in range(3))
        self.in_chain, self.first = np.zeros(n, bool), np.zeros(n, bool)
        self._links: list[tuple[int, int, float, float]] = []

    def links(self) -> Links:
        later, earlier, keep, weight = zip(*self._links, strict=True) if self._links else ((), (), (), ())
        return Links(np.array(later, np.int64), np.array(earlier, np.int64), np.array(keep), np.array(weight))

    def add(self, k: int, parameter: Parameter, scale: float) -> None:
        """The prior of a parameter that is a coordinate of its own; `scale` is SI per unit of it."""
        prior: Prior = parameter.prior
        if isinstance(prior, LogNormal) and self.is_log[k]:
            self._normal(k, float(np.log(prior.median * scale)), float(prior.sd))
        elif isinstance(prior, LogUniform) and self.is_log[k]:
            self.log_norm -= float(np.log(np.log(prior.high / prior.low)))
            self.log_uniform = True
        elif isinstance(prior, Normal) and not self.is_log[k]:
            self._normal(k, float(prior.mean * scale), float(prior.sd * scale))
        elif parameter.period is not None and self.is_angle[k]:
            self._circle(k)
        else:
            raise ModelError(
                f"{parameter.name}: a gain that is integrated over, or solved for, has an amplitude with a "
                "log-normal or log-uniform prior, and a normal prior otherwise or a phase that is uniform "
                f"over 360 deg; found the prior {prior.family}"
            )

    def add_chain(self, coordinate: Index, chain: Chain, parameters: Sequence[Parameter]) -> None:
        """Priors of the segments of a process, coordinates (n_segment, n_antenna, n_chan_block, 2)."""
        done: set[int] = set()
        for antenna, block, feed in np.ndindex(coordinate.shape[1:]):
            column = coordinate[:, antenna, block, feed]
            rows = np.flatnonzero(column != NONE)
            if not rows.size or int(column[rows[0]]) in done:
                continue
            done.add(int(column[rows[0]]))
            steps, keeps = chain.step[rows, antenna, feed], chain.keep[rows, antenna, feed]
            self.in_chain[column[rows]] = True
            self.middle[column[rows]] = chain.middle[antenna, feed]
            first = int(column[rows[0]])
            if parameters[first].period is not None:
                self._circle(first)
            else:
                self._normal(first, float(chain.middle[antenna, feed]), float(steps[0]))
                self.first[first] = True
            for n in range(1, rows.size):
                weight = 1.0 / float(steps[n]) ** 2
                self._links.append((int(column[rows[n]]), int(column[rows[n - 1]]), float(keeps[n]), weight))
                self.log_norm += 0.5 * float(np.log(weight)) - 0.5 * _LOG_2PI

    def _normal(self, k: int, mean: float, sd: float) -> None:
        self.middle[k], self.weight[k] = mean, sd**-2
        self.log_norm -= float(np.log(sd)) + 0.5 * _LOG_2PI

    def _circle(self, k: int) -> None:
        self.is_circle[k] = True
        self.log_norm -= _LOG_2PI
