"""Visibilities of baselines and closures of antennas, averaged in time, data and model alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.closures.legs import SNR_LIMIT
from biro.plots.stokes_i import StokesI

MOST_POINTS = 60
"""Points in time of one curve, about."""
MOST_ANTENNAS = 16
"""Antennas, those with the most signal to noise, of which all triangles are looked at."""
_MOST_SAMPLES = 10_000_000
"""Bispectra that are looked at; of larger data, fewer antennas are taken."""
_GAP = 5.0
"""A pause of so many intervals ends a scan."""

Array = NDArray[np.float64]
Complex = NDArray[np.complexfloating]


@dataclass(frozen=True, eq=False)
class TimeCurve:
    """Averages of one field against time.

    Attributes
    ----------
    time : float64 (n,), s
    scan : int64 (n,)
        Number of the stretch without a gap that a point belongs to.
    data, model : complex128 (n,)
        Means with the same weights.
    sigma : float64 (n,)
        Standard deviation of the real part of a mean of the data.
    """

    time: Array
    scan: NDArray[np.int64]
    data: Complex
    model: Complex
    sigma: Array

    @property
    def phase_err(self) -> Array:
        """Error of the phase of the data, at most 180 degrees."""
        return np.degrees(self.sigma / np.maximum(np.abs(self.data), self.sigma / np.pi + 1e-300))


@dataclass(frozen=True, eq=False)
class TimeCurves:
    """What is known of a baseline, triangle or quadrangle: a curve for each field, and how well it is fitted.

    Attributes
    ----------
    antennas : tuple of int
    curves : tuple of TimeCurve
    fields : tuple of str
        Of each curve.
    reduced_chi2 : float
        Of the samples of a baseline, over 2 N; of the closures of a triangle or quadrangle, over N.
    """

    antennas: tuple[int, ...]
    curves: tuple[TimeCurve, ...]
    fields: tuple[str, ...]
    reduced_chi2: float


def baseline_curves(
    groups: Sequence[StokesI], pairs: Sequence[tuple[int, ...]] | None, most: int
) -> list[TimeCurves]:
    """Averages of baselines against time.

    Parameters
    ----------
    groups : sequence of StokesI
    pairs : sequence of (int, int) or None
        Antennas; None for those with the largest reduced chi-squared.
    most : int
        How many, where none are named.
    """
    totals: dict[tuple[int, int], Array] = {}
    for group in groups:
        chi2 = (group.weight * np.abs(group.data - group.model) ** 2).sum(axis=1)
        count = (group.weight > 0).sum(axis=1)
        for pair, rows in _rows_of_pairs(group).items():
            sums = np.array([chi2[rows].sum(), count[rows].sum()])
            totals[pair] = totals.get(pair, np.zeros(2)) + sums
    reduced = {pair: chi2 / (2.0 * n) for pair, (chi2, n) in totals.items() if n > 0}
    if pairs is None:
        if not reduced:
            return []
        # Few samples scatter: a baseline must have a tenth of what is usual.
        enough = 0.1 * np.median([totals[pair][1] for pair in reduced])
        full = [pair for pair in reduced if totals[pair][1] >= enough]
        chosen = sorted(full, key=lambda pair: -reduced[pair])[:most]
        pairs = sorted(chosen)
    found = []
    for a, b in pairs:
        key = (min(a, b), max(a, b))
        if key in reduced:
            curves = {field: _baseline(members, (a, b)) for field, members in _by_field(groups).items()}
            found.append(_curves((a, b), curves, partial(_known, reduced[key])))
    return found


def triangle_curves(
    groups: Sequence[StokesI], triangles: Sequence[tuple[int, ...]] | None, most: int
) -> list[TimeCurves]:
    """Averages of bispectra V_ab V_bc V_ca against time, of three antennas each.

    Parameters
    ----------
    groups : sequence of StokesI
    triangles : sequence of (int, int, int) or None
        Antennas; None for those whose closure phases the model fits worst, of the antennas with the most
        signal to noise.
    most : int
        How many, where none are named.
    """
    chosen = None if triangles is not None else list(combinations(_best_antennas(groups, 3), 3))
    return _closure_curves(
        groups, triangles or chosen or [], _triangle, _phase_chi2, most, all_=chosen is None
    )


def quadrangle_curves(
    groups: Sequence[StokesI], quadrangles: Sequence[tuple[int, ...]] | None, most: int
) -> list[TimeCurves]:
    """Averages of ln |V_ab V_cd / (V_ad V_bc)| against time, of four antennas each, as real parts.

    Parameters
    ----------
    groups : sequence of StokesI
    quadrangles : sequence of (int, int, int, int) or None
        Antennas; None for those whose log closure amplitudes the model fits worst, of the antennas with the
        most signal to noise.
    most : int
        How many, where none are named.
    """
    chosen = None
    if quadrangles is None:
        fours = combinations(_best_antennas(groups, 4), 4)
        # Of the three ways to halve four antennas, the ratios of two at a time.
        chosen = [four for a, b, c, d in fours for four in ((a, b, c, d), (a, b, d, c), (a, c, b, d))]
    return _closure_curves(
        groups, quadrangles or chosen or [], _quadrangle, _amplitude_chi2, most, all_=chosen is None
    )


def _closure_curves(
    groups: Sequence[StokesI],
    candidates: Sequence[tuple[int, ...]],
    curve_of: Callable[[Sequence[_StokesITable], Sequence[int], float], TimeCurve],
    chi2_of: Callable[[Sequence[TimeCurve]], float],
    most: int,
    *,
    all_: bool,
) -> list[TimeCurves]:
    """Curves of these antennas, all of them or those that the model fits worst."""
    tables = {
        field: ([_StokesITable(group) for group in members], _interval(members))
        for field, members in _by_field(groups).items()
    }
    found = []
    for antennas in candidates:
        curves = {
            field: curve_of(members, antennas, interval) for field, (members, interval) in tables.items()
        }
        if any(len(curve.time) for curve in curves.values()):
            found.append(_curves(tuple(antennas), curves, chi2_of))
    if not all_:
        found = sorted(found, key=lambda one: -one.reduced_chi2)[:most]
        found.sort(key=lambda one: one.antennas)
    return found


def _curves(
    antennas: tuple[int, ...], by_field: dict[str, TimeCurve], chi2_of: Callable[[Sequence[TimeCurve]], float]
) -> TimeCurves:
    """The curves that have points."""
    kept = {field: curve for field, curve in by_field.items() if len(curve.time)}
    curves = tuple(kept.values())
    return TimeCurves(antennas, curves, tuple(kept), chi2_of(curves))


def _known(value: float, _: Sequence[TimeCurve]) -> float:
    return value


def _phase_chi2(curves: Sequence[TimeCurve]) -> float:
    """Mean square of closure phases, data - model, over their errors; as chords, so that none is above 2."""
    terms = [
        np.abs(np.exp(1j * np.angle(curve.data)) - np.exp(1j * np.angle(curve.model))) ** 2
        / np.radians(curve.phase_err) ** 2
        for curve in curves
    ]
    return float(np.mean(np.concatenate(terms)))


def _amplitude_chi2(curves: Sequence[TimeCurve]) -> float:
    """Mean square of log closure amplitudes, data - model, over their errors."""
    terms = [((curve.data - curve.model).real / curve.sigma) ** 2 for curve in curves]
    return float(np.mean(np.concatenate(terms)))


def _best_antennas(groups: Sequence[StokesI], size: int) -> list[int]:
    """The antennas with the most signal to noise, as many as all sets of `size` of them can be looked at."""
    power: dict[int, float] = {}
    for group in groups:
        signal = (group.weight * np.abs(group.data) ** 2).sum(axis=1)
        for antenna in (group.antenna1, group.antenna2):
            for i, value in enumerate(np.bincount(antenna, signal)):
                if value > 0:
                    power[i] = power.get(i, 0.0) + float(value)
    per_baseline = sum(len(np.unique(group.time)) * group.data.shape[1] for group in groups)
    counts = range(5, MOST_ANTENNAS + 1)
    n_antenna = max((n for n in counts if math.comb(n, size) * per_baseline <= _MOST_SAMPLES), default=5)
    return sorted(sorted(power, key=lambda i: -power[i])[:n_antenna])


def _by_field(groups: Sequence[StokesI]) -> dict[str, list[StokesI]]:
    fields: dict[str, list[StokesI]] = {}
    for group in groups:
        fields.setdefault(group.field, []).append(group)
    return fields


def _rows_of_pairs(group: StokesI) -> dict[tuple[int, int], NDArray[np.int64]]:
    """Rows of each baseline, (lower antenna, higher antenna); none of autocorrelations."""
    low, high = np.minimum(group.antenna1, group.antenna2), np.maximum(group.antenna1, group.antenna2)
    n = int(high.max()) + 1
    code = low.astype(np.int64) * n + high
    order = np.argsort(code, kind="stable")
    distinct, first = np.unique(code[order], return_index=True)
    pieces = np.split(order, first[1:])
    pairs = [(int(value) // n, int(value) % n) for value in distinct]
    return {pair: rows for pair, rows in zip(pairs, pieces, strict=True) if pair[0] != pair[1]}


def _baseline(groups: Sequence[StokesI], pair: tuple[int, int]) -> TimeCurve:
    """Weighted means of V_ab, a and b in this order."""
    time: list[Array] = []
    weight: list[Array] = []
    sums: tuple[list[Complex], list[Complex]] = ([], [])
    for group in groups:
        for first, second, turn in ((*pair, False), (*pair[::-1], True)):
            rows = np.flatnonzero((group.antenna1 == first) & (group.antenna2 == second))
            w = group.weight[rows]
            time.append(group.time[rows])
            weight.append(w.sum(axis=1))
            for values, kept in zip((group.data, group.model), sums, strict=True):
                total = (w * values[rows]).sum(axis=1)
                kept.append(np.conj(total) if turn else total)
    all_weight = np.concatenate(weight)
    # The variance of the real part of sum w V is sum w.
    columns = (np.concatenate(time), all_weight, all_weight)
    return _curve(columns, np.concatenate(sums[0]), np.concatenate(sums[1]), _interval(groups))


def _interval(groups: Sequence[StokesI]) -> float:
    """The longest interval of partitions, s."""
    return max(group.interval for group in groups)


class _StokesITable:
    """Stokes I of one partition by baseline and time slot, so that three baselines meet in time."""

    def __init__(self, group: StokesI) -> None:
        self.times, slot = np.unique(group.time, return_inverse=True)
        self._group = group
        self._rows: dict[tuple[int, int], NDArray[np.int64]] = {}
        for pair, rows in _rows_of_pairs(group).items():
            found = np.full(len(self.times), -1, np.int64)
            found[slot[rows]] = rows
            self._rows[pair] = found

    def visibilities(self, a: int, b: int) -> tuple[Complex, Complex, Array] | None:
        """Data, model and weight of V_ab, (n_time, n_chan); weight 0 where there is none."""
        rows = self._rows.get((min(a, b), max(a, b)))
        if rows is None:
            return None
        there = (rows >= 0)[:, None]
        weight = np.where(there, self._group.weight[rows], 0.0)
        turned = (self._group.antenna1[rows] != a)[:, None]
        data, model = (
            np.where(turned, np.conj(values[rows]), values[rows])
            for values in (self._group.data, self._group.model)
        )
        return data, model, weight

    def sides(self, pairs: Sequence[tuple[int, int]]) -> list[tuple[Complex, Complex, Array]]:
        """`visibilities` of these pairs; empty where one of them was not correlated."""
        found = [self.visibilities(*pair) for pair in pairs]
        return [] if any(side is None for side in found) else [side for side in found if side is not None]


def _quadrangle(tables: Sequence[_StokesITable], abcd: Sequence[int], interval: float) -> TimeCurve:
    """Means of log closure amplitudes, of data and of the model with the same weights.

    The variance of ln |V| is (s / |V|)^2, s^2 that of each part, where |V| is well above s (Blackburn et al.
    2020): a side below `SNR_LIMIT` leaves its sample out. Each is weighted by 1 / sum (s_i / |V_i|)^2.
    """
    a, b, c, d = abcd
    parts = []
    for table in tables:
        known = table.sides(((a, b), (c, d), (a, d), (b, c)))
        if not known:
            continue
        power = np.array([weight * np.abs(data) ** 2 for data, _, weight in known])
        used = np.all(power >= SNR_LIMIT**2, axis=0) & np.all([model != 0.0 for _, model, _ in known], axis=0)
        variance = np.sum(1.0 / np.where(used, power, 1.0), axis=0)
        w = np.where(used, 1.0 / variance, 0.0)
        logs = [[np.log(np.where(used, np.abs(side[k]), 1.0)) for side in known] for k in (0, 1)]
        data, model = ((w * (x[0] + x[1] - x[2] - x[3])).sum(1) + 0j for x in logs)
        parts.append((table.times, w.sum(1), w.sum(1), data, model))
    return _joined(parts, interval)


def _triangle(tables: Sequence[_StokesITable], abc: Sequence[int], interval: float) -> TimeCurve:
    """Means of bispectra, of data and of the model with the same weights.

    With visibilities V_i = T_i + noise of variance s_i^2 of each part, the bispectrum is prod T_i on average,
    and its variance of each part is (prod (|T_i|^2 + 2 s_i^2) - prod |T_i|^2) / 2, because the three are
    independent. |V_i|^2 - 2 s_i^2 stands for |T_i|^2 in it, which it is on average whatever the model says.
    Each bispectrum is weighted by 1 / sum s_i^2.
    """
    a, b, c = abc
    parts = []
    for table in tables:
        known = table.sides(((a, b), (b, c), (c, a)))
        if not known:
            continue
        used = np.all([weight > 0 for *_, weight in known], axis=0)
        variance = [1.0 / np.where(used, weight, 1.0) for *_, weight in known]
        data, model = (np.prod([side[k] for side in known], axis=0) for k in (0, 1))
        powers = [np.abs(side[0]) ** 2 for side in known]
        w = np.where(used, 1.0 / np.sum(variance, axis=0), 0.0)
        true = np.prod([power - 2.0 * s for power, s in zip(powers, variance, strict=True)], axis=0)
        least = 8.0 * np.prod(variance, axis=0)  # where there is noise alone
        spread = 0.5 * np.maximum(np.prod(powers, axis=0) - true, least)
        parts.append((table.times, w.sum(1), (w**2 * spread).sum(1), (w * data).sum(1), (w * model).sum(1)))
    return _joined(parts, interval)


def _joined(parts: Sequence[tuple[NDArray[Any], ...]], interval: float) -> TimeCurve:
    """The curve of what `_curve` takes, of each partition."""
    if not parts:
        nothing = np.zeros(0)
        return TimeCurve(nothing, nothing.astype(np.int64), nothing + 0j, nothing + 0j, nothing)
    *sums, data, model = (np.concatenate(column) for column in zip(*parts, strict=True))
    return _curve(sums, data, model, interval)


def _curve(sums: Sequence[Array], data: Complex, model: Complex, interval: float) -> TimeCurve:
    """Means in time from times, sums of weights and of variances, and sums of weighted values."""
    used = sums[1] > 0
    time, weight, variance = (each[used] for each in sums)
    if not len(time):
        return TimeCurve(time, time.astype(np.int64), data[used], model[used], time)
    point, scan = _points(time, interval)
    distinct, index = np.unique(point, return_inverse=True)
    n = len(distinct)

    def total(values: NDArray[np.floating]) -> Array:
        return np.bincount(index, values, minlength=n).astype(np.float64)

    w = total(weight)

    def mean(values: Complex) -> Complex:
        return np.asarray((total(values.real) + 1j * total(values.imag)) / w, np.complex128)

    scan_of_point = np.zeros(n, np.int64)
    scan_of_point[index] = scan
    sigma = np.sqrt(total(variance)) / w
    return TimeCurve(total(weight * time) / w, scan_of_point, mean(data[used]), mean(model[used]), sigma)


def _points(time: Array, interval: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which averaged point, and which scan, each time belongs to; no point is of two scans."""
    slots, index = np.unique(time, return_inverse=True)
    step = np.diff(slots)
    # Windows may have times that differ by less than an interval.
    long = step > _GAP * max(interval, 1e-9)
    scan = np.concatenate([[0], np.cumsum(long)]).astype(np.int64)
    width = max(float(step[~long].sum()) / MOST_POINTS, interval, 1e-9)
    first = slots[np.searchsorted(scan, scan)]
    inside = np.floor((slots - first) / width + 0.5).astype(np.int64)
    point = scan * (inside.max() + 1) + inside
    return point[index], scan[index]
