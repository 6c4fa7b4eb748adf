"""Fitted gains as sums of coordinates: what integrals over gains, and maxima, are taken in.

    ln g = sum of c x + i sum of c' x'

with a coordinate for each parameter of a gain: x = ln amplitude, and x' a phase (rad), a delay (s) or a rate
(Hz), with c = 1, 2 pi (nu - nu_0) or 2 pi (t - t_0). Log-normal priors are normal in x. Where segments are
correlated, coordinates are the values of the segments and not the steps between them, which has no influence
on an integral: the prior is then normal in x_k - keep x_(k-1). Standard deviations and correlation times
of these priors may be parameters (`normal_priors`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.antenna_terms.correlated import Chain
from biro.models.bound.antenna_terms.gain_layout import GainQuantity
from biro.models.bound.antenna_terms.layout import TermSlots
from biro.models.bound.antenna_terms.normal_priors import NONE, ChainPrior, FittedPriors, NormalPriors
from biro.models.bound.slots import ZERO, ResolvedSlots
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Parameter
from biro.models.quantities.prior import LogNormal, LogUniform, Normal, Prior

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True, eq=False)
class LogTerm:
    """One quantity of the gains of a partition.

    Attributes
    ----------
    is_phase : bool
        Whether its coordinates make phases, or ln amplitudes.
    coordinate : int64 (n_time_block, n_antenna, n_chan_block, 2)
        Of each feed, or `NONE` where an antenna has none.
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


class PriorLinks(NamedTuple):
    """Priors that couple coordinates: x_a - middle_a - keep (x_b - middle_b) is normal.

    `later` (a) and `earlier` (b), int64 (n_link,) each.
    """

    later: Index
    earlier: Index


@dataclass(frozen=True, eq=False)
class LogGains:
    """The coordinates of all fitted gains of a bound model.

    Attributes
    ----------
    names : tuple of str
        Of the parameters, in the order of coordinates.
    each : list of PartitionGains
        Of each partition.
    middle : float64 (n,)
        The mean of the normal prior of each coordinate.
    is_circle : bool (n,)
        Phases with a uniform prior over one turn.
    is_angle : bool (n,)
        Phases, of any prior; no delays and rates.
    links : PriorLinks
    priors : FittedPriors
        The normal priors of coordinates and links.
    log_flat : float
        ln of the density of the priors that are not normal.
    log_uniform : bool
        Whether there are log-uniform priors, whose ends the coordinates do not know.
    """

    names: tuple[str, ...]
    each: list[PartitionGains]
    middle: Array
    is_circle: NDArray[np.bool_]
    is_angle: NDArray[np.bool_]
    links: PriorLinks
    priors: FittedPriors
    log_flat: float
    log_uniform: bool
    _is_log: NDArray[np.bool_]
    _scale: Array
    _first: NDArray[np.bool_]
    """Coordinates that begin a chain of steps with a standard normal prior."""

    def parameters(self, x: Array, priors: NormalPriors) -> Array:
        """Values of the parameters, in the units of the model, float64 (n_draw, n), of coordinates."""
        found: Array = np.where(self._is_log, np.exp(np.minimum(x, 700.0)), x) / self._scale
        away = x - self.middle
        own = self._first
        found[:, own] = (away * np.sqrt(priors.weight))[:, own]
        later, earlier = self.links
        linked = away[:, later] - priors.keep * away[:, earlier]
        found[:, later] = linked * np.sqrt(priors.link_weight)
        return found


def log_gains(terms: Sequence[TermSlots], resolved: ResolvedSlots) -> LogGains:
    """The coordinates of the fitted gains of all partitions.

    Raises
    ------
    ModelError
        A prior that is not normal in x, nor uniform in ln amplitude or over the circle.
    """
    tables = {factor.states.key: factor for slots in terms for factor in slots.factors}
    used = np.unique(np.concatenate([np.unique(factor.states.table) for factor in tables.values()]))
    used = used[used != ZERO]
    order = {int(slot): k for k, slot in enumerate(used)}
    number = np.full(resolved.base.size, NONE, np.int64)
    number[used] = np.arange(used.size)
    prior = _Priors(used.size, resolved)
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
        prior.is_circle,
        prior.is_angle,
        prior.links(),
        prior.normal(),
        prior.log_flat,
        prior.log_uniform,
        prior.is_log & ~prior.in_chain,
        np.where(prior.in_chain & ~prior.is_circle, 1.0, scale),
        prior.first,
    )


def _is_turned(slots: TermSlots) -> bool:
    """Whether gains of linear feeds differ, while P^H stands on the left of them."""
    if not slots.taken_out or slots.basis != "linear":
        return False
    tables = [factor.states.table for factor in slots.factors]
    return any(not np.array_equal(table[..., 0], table[..., 1]) for table in tables)


def _term(factor: GainQuantity, number: Index) -> LogTerm:
    place = np.ix_(factor.segment, factor.antenna, factor.block, np.arange(2))
    by = factor.by_time[:, None] * factor.by_chan
    return LogTerm(not factor.is_amplitude, number[factor.states.table][place], by)


class _Priors:
    """Priors of n coordinates, gathered one after the other."""

    def __init__(self, n: int, resolved: ResolvedSlots) -> None:
        self._resolved = resolved
        self.middle, self.log_flat = np.zeros(n), 0.0
        self.log_uniform = False
        self.is_circle, self.is_log, self.is_angle = (np.zeros(n, bool) for _ in range(3))
        self.in_chain, self.first = np.zeros(n, bool), np.zeros(n, bool)
        self._weight, self._links = np.zeros(n), list[tuple[int, int]]()
        self._chains, self._numbers = list[ChainPrior](), list[int]()

    def links(self) -> PriorLinks:
        return PriorLinks(*np.array(self._links, np.int64).reshape(-1, 2).T)

    def normal(self) -> FittedPriors:
        """The normal priors, and the parameters that they follow."""
        terms = [self._resolved.forms[slot].terms[0] for slot in self._numbers]
        fitted = [self._resolved.parameters[i] for i, _ in terms]
        return FittedPriors(
            tuple(parameter.name for parameter in fitted),
            np.array([scale for _, scale in terms]),
            np.array([float(parameter.prior.transform(np.array(0.5))) for parameter in fitted]),
            self._weight,
            self._chains,
            len(self._links),
        )

    def add(self, k: int, parameter: Parameter, scale: float) -> None:
        """The prior of a parameter that is a coordinate of its own; `scale` is SI per unit of it."""
        prior: Prior = parameter.prior
        if isinstance(prior, LogNormal) and self.is_log[k]:
            self._normal(k, float(np.log(prior.median * scale)), float(prior.sd))
        elif isinstance(prior, LogUniform) and self.is_log[k]:
            self.log_flat -= float(np.log(np.log(prior.high / prior.low)))
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
        own, links = list[tuple[int, int]](), list[tuple[int, int]]()
        for antenna, block, feed in np.ndindex(coordinate.shape[1:]):
            column = coordinate[:, antenna, block, feed]
            rows = np.flatnonzero(column != NONE)
            if not rows.size or int(column[rows[0]]) in done:
                continue
            done.add(int(column[rows[0]]))
            self.in_chain[column[rows]] = True
            self.middle[column[rows]] = chain.middle[antenna, feed]
            before = NONE
            for row in rows:
                k, at = int(column[row]), int(np.ravel_multi_index((row, antenna, feed), chain.away.shape))
                if np.isfinite(chain.away[row, antenna, feed]):
                    links.append((len(self._links), at))
                    self._links.append((k, before))
                elif parameters[k].period is not None:
                    self._circle(k)
                else:
                    own.append((k, at))
                    self.first[k] = True
                before = k
        of_chain = (np.array(pairs, np.int64).reshape(-1, 2).T for pairs in (own, links))
        (own_at, link_at), numbers = of_chain, (chain.time_slot, chain.sd_slot)
        self._chains.append(ChainPrior(chain, *own_at, *link_at, *map(self._number, numbers)))

    def _number(self, slot: int) -> int:
        """Which of the fitted numbers this slot is."""
        if slot == ZERO:
            return NONE
        if slot not in self._numbers:
            self._numbers.append(slot)
        return self._numbers.index(slot)

    def _normal(self, k: int, mean: float, sd: float) -> None:
        self.middle[k], self._weight[k] = mean, sd**-2

    def _circle(self, k: int) -> None:
        self.is_circle[k] = True
        self.log_flat -= _LOG_2PI
