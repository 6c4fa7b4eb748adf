"""Noise of correlations, antennas and lengths of baselines that differs from what the weights describe."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import LENGTHS, first_few, unit_for
from biro.observation.correlations import PARALLEL_HANDS
from biro.observation.noise import MIN_DIFFERENCES, neighbours, places, sigma_of, some_rows
from biro.observation.partition import Partition

Array = NDArray[np.float64]
Index = NDArray[np.int64]
CONTRAST, SIGNIFICANCE = 1.1, 5.0
"""Ratio of scatters, and standard deviations of it, below which nothing is said."""
UNEQUAL = "UNEQUAL NOISE"
"""How each line begins."""
UNEQUAL_LENGTHS = f"{UNEQUAL}: relative to the weights, noise on baselines "
"""How the line about lengths of baselines begins, which a misfit looks like."""
_FIRST, _SECOND = (-1.0, 1.0), (1.0, -2.0, 1.0)
_N_LENGTH = 4


@dataclass(frozen=True)
class _Steps:
    """Differences between neighbouring times, in units of the noise that the weights state.

    Attributes
    ----------
    value : complex128 (n,)
    corr : str (n,)
    first, second : int (n,)
        Antennas.
    length : float64 (n,), m
    """

    value: NDArray[np.complex128]
    corr: NDArray[np.str_]
    first: Index
    second: Index
    length: Array

    def only(self, kept: NDArray[np.bool_]) -> _Steps:
        """Some of them."""
        return _Steps(*(getattr(self, each.name)[kept] for each in fields(self)))

    def scaled(self, by: Array) -> _Steps:
        """Differences divided by numbers (n,)."""
        return _Steps(self.value / by, self.corr, self.first, self.second, self.length)


@dataclass(frozen=True)
class _Group:
    """How some differences scatter: sigma over that of all, and its standard deviation as ln."""

    ratio: float
    error: float

    @property
    def is_off(self) -> bool:
        off = abs(math.log(self.ratio)) if self.ratio > 0.0 else 0.0
        return off > max(math.log(CONTRAST), SIGNIFICANCE * self.error)


def unequal_noise(
    partitions: Sequence[Partition],
    antenna_names: Sequence[str],
    models: Sequence[NDArray[np.complexfloating]] | None = None,
    factors: Sequence[float] | Array | None = None,
    *,
    of_correlations: bool = True,
    bounded: Collection[str] = (),
) -> list[str]:
    """A line for each way in which noise differs beyond the weights, with the entry of [noise] that helps.

    Noise is what differences between neighbouring times show (`biro.observation.noise.measure_noise`): of two
    correlations, of one antenna's baselines, of short or of long ones. A difference must be over a tenth and
    over five standard deviations. Those among correlations are taken out before antennas are compared, and
    those among antennas before lengths are. Second differences must agree: where they are less, the sky,
    gains or a misfit change between two times, and nothing is said.

    Parameters
    ----------
    partitions : sequence of Partition
    antenna_names : sequence of str
    models : sequence of complex (n_row, n_chan, n_corr), Jy, optional
        What is to be subtracted; by default nothing.
    factors : sequence of float, optional
        Noise factors of the partitions; 1 by default.
    of_correlations : bool
        Whether a line about correlations is wanted.
    bounded : collection of str
        Correlations whose differences are more than noise, so that nothing is said of their noise.
    """
    steps, again = (_steps(partitions, models, factors, kernel) for kernel in (_FIRST, _SECOND))
    steps, again = (each.only(~np.isin(each.corr, list(bounded))) for each in (steps, again))
    is_known = (
        models is None or len(again.value) >= MIN_DIFFERENCES
    )  # few residuals have no second differences
    if len(steps.value) < MIN_DIFFERENCES or (is_known and _turns(steps, again)):
        return []
    names = dict.fromkeys(steps.corr.tolist())
    lines, of_corr = [], {name: _group(steps, steps.corr == name) for name in names}
    if is_known:
        of_corr = {name: each for name, each in of_corr.items() if not _turns(steps, again, name)}
    of_names, per = _of_correlations(of_corr) if of_correlations else ([], "")
    lines += of_names
    scatter = {name: sigma_of(steps.value[steps.corr == name]) for name in of_corr}
    if not all(scatter.values()):
        return lines
    kept = np.isin(steps.corr, list(scatter))
    if not kept.any():
        return lines
    steps = steps.only(kept)
    steps = steps.scaled(np.array([scatter[name] for name in steps.corr]))
    found, by = _of_antennas(steps, antenna_names, per)
    return lines + found + _of_lengths(steps.scaled(by))


def _steps(
    partitions: Sequence[Partition],
    models: Sequence[NDArray[np.complexfloating]] | None,
    factors: Sequence[float] | Array | None,
    kernel: Sequence[float],
) -> _Steps:
    """First or second differences of all partitions, by their coefficients."""
    size, columns = sum(part.vis.size for part in partitions), []
    for i, part in enumerate(partitions):
        rows, channels = some_rows(part, size)
        vis, weight = part.taken(rows, channels)
        vis = vis - (0.0 if models is None else models[i][:, channels][rows])
        weight = weight.astype(np.float64)
        of_part = neighbours(part, rows, len(kernel))
        taken = places(rows, of_part)
        counts = np.logical_and.reduce([weight[k] > 0 for k in taken])
        value = np.tensordot(kernel, [vis[k] for k in taken], 1)
        with np.errstate(divide="ignore"):
            variance = np.tensordot(np.square(kernel), [1.0 / weight[k] for k in taken], 1)
        factor = 1.0 if factors is None else float(factors[i])
        row, chan, corr = np.nonzero(counts)
        where = of_part[0][row]
        columns.append(
            (
                value[row, chan, corr] / (factor * np.sqrt(variance[row, chan, corr])),
                np.array(part.corr_type)[corr],
                part.antenna1[where].astype(np.int64),
                part.antenna2[where].astype(np.int64),
                np.hypot(part.uvw[where, 0], part.uvw[where, 1]),
            )
        )
    return _Steps(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def _group(steps: _Steps, which: NDArray[np.bool_]) -> _Group:
    """Scatter of the differences that are chosen; the variance of ln sigma is about 1 / n."""
    n, whole = int(np.count_nonzero(which)), sigma_of(steps.value)
    if n < MIN_DIFFERENCES or not whole > 0.0:
        return _Group(1.0, math.inf)
    return _Group(sigma_of(steps.value[which]) / whole, 1.0 / math.sqrt(n))


def _turns(first: _Steps, second: _Steps, corr: str | None = None) -> bool:
    """Whether second differences are that much less than first ones that these are no noise."""
    pair = [each.value if corr is None else each.value[each.corr == corr] for each in (first, second)]
    one, other = (sigma_of(values) for values in pair)
    return not other * CONTRAST > one


def _of_correlations(groups: dict[str, _Group]) -> tuple[list[str], str]:
    """What is said of correlations, and the groups of [noise] per that have factors of their own then."""
    if not any(group.is_off for group in groups.values()):
        return [], ""
    names = sorted(groups, key=lambda name: -groups[name].ratio)
    parallel = [name for name in names if name in (*PARALLEL_HANDS, "I")]
    cross = [name for name in names if name not in parallel]
    alike = all(
        groups[kind[0]].ratio < CONTRAST * groups[kind[-1]].ratio for kind in (parallel, cross) if kind
    )
    by_hands = bool(parallel and cross and alike)
    listed = ", ".join(f"{name} ({groups[name].ratio:.2f})" for name in names)
    per = "hands" if by_hands else "correlation"
    return [
        f"{UNEQUAL}: relative to the weights and the mean, the noise of correlations is {listed}. Fit a "
        f'noise factor for each with [noise] per = "{per}"'
    ], per


def _of_antennas(steps: _Steps, names: Sequence[str], beside: str = "") -> tuple[list[str], Array]:
    """What is said of antennas, and what their noise multiplies each difference by.

    Least squares of ln sigma_pq = a_p + a_q + a over baselines, weighted by the numbers of differences.
    """
    pair = steps.first * len(names) + steps.second
    found, place, count = np.unique(pair, return_inverse=True, return_counts=True)
    known = np.flatnonzero((count >= MIN_DIFFERENCES) & (found // len(names) != found % len(names)))
    if len(known) < 2:
        return [], np.ones(len(pair))
    order = np.split(np.argsort(place, kind="stable"), np.cumsum(count)[:-1])
    log_sigma = np.log([max(sigma_of(steps.value[order[k]]), 1e-300) for k in known])
    matrix = np.zeros((len(known), len(names)))
    ends = np.stack([found[known] // len(names), found[known] % len(names)])
    matrix[np.arange(len(known)), ends] = 1.0
    root = np.sqrt(count[known].astype(np.float64))
    middle = np.average(log_sigma, weights=root**2)
    inverse = np.linalg.pinv(root[:, None] * matrix)
    own = inverse @ (root * (log_sigma - middle))
    own -= np.median(own[np.unique(ends)])
    error = np.sqrt(np.sum(inverse**2, axis=1))
    groups = {name: _Group(math.exp(own[i]), error[i]) for i, name in enumerate(names) if i in ends}
    off = sorted((n for n, g in groups.items() if g.is_off), key=lambda n: -abs(math.log(groups[n].ratio)))
    by = np.exp(own[steps.first] + own[steps.second])
    if not off:
        return [], by
    listed = first_few([f"{name} ({groups[name].ratio:.2f})" for name in off], ", ")
    both = f'["{beside}", "antenna"], which includes the factors above' if beside else '"antenna"'
    return [
        f"{UNEQUAL}: relative to the weights and the other antennas, the noise of antennas is {listed}. Fit "
        f"a noise factor for each with [noise] per = {both}"
    ], by


def _of_lengths(steps: _Steps) -> list[str]:
    """What is said of short and long baselines: a quarter of all differences each."""
    edges = np.quantile(steps.length, np.arange(1, _N_LENGTH) / _N_LENGTH)
    short, long = steps.length < edges[0], steps.length >= edges[-1]
    unit = unit_for(edges, LENGTHS)
    for which, edge, word in ((short, edges[0], "below"), (long, edges[-1], "above")):
        group = _group(steps, which)
        if group.is_off and group.ratio > 1.0:
            text = f"{unit.text(float(edge))} {unit.name}"
            return [
                f"{UNEQUAL_LENGTHS}{word} {text} is "
                f"{group.ratio:.2f} times that on all. "
                f'Fit the added noise with [noise] additive and edges = ["{text}"]'
            ]
    return []
