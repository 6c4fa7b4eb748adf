"""Residuals that gains of antennas explain: of one antenna, of some or all, steady or drifting."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from biro.diagnosis.causes.evidence import Candidate, linear
from biro.diagnosis.causes.gains.sums import RIDGE, UNCHANGED, Normal, PairSums
from biro.diagnosis.causes.least_squares import NormalBlock, SolvedTerms, solve_beside
from biro.diagnosis.causes.samples import Array, Index, ResidualSamples
from biro.display.formatting import percent, plain

Parts = tuple[bool, bool]
PARTS: tuple[Parts, ...] = ((True, False), (False, True), (True, True))
"""Amplitudes alone, phases alone, both."""
MOST_FEW = 2000
"""n_cell n_antenna above which single antennas are not looked for."""
MOST_ANTENNAS = 3
"""Antennas that are looked for one by one; of more, all are."""
MOST_WORK = 3e7
"""n_group n_antenna^3 above which gains of so short intervals are left out."""
KNOWN = 0.2
"""Error below which a gain is spoken of."""
N_STEP = 10
CONVERGED = 1e-6
"""Part of sum |r|^2 by which a step lowers it at least."""
NEARLY_MOST = 0.7
"""Part of the largest mean square of an antenna's errors from which another is named beside it."""
LIKELY = 3.0
"""Standard deviations to first order from which gains are solved for as factors."""


@dataclass(frozen=True, eq=False)
class Cells:
    """What samples are cut into: a gain of an antenna is one number in each.

    Attributes
    ----------
    name : "steady", "time", "channel"
    sums : PairSums
        Over the samples of each.
    of_group : int64 (n_group,)
        The cell of each group of samples, which is a time and correlation, or a channel.
    n_time : int
        Neighbouring times in a cell.
    by_feed : bool
        Whether feeds have gains of their own.
    """

    name: str
    sums: PairSums
    of_group: Index
    n_time: int = 0
    by_feed: bool = False

    @property
    def n_cell(self) -> int:
        """How many there are, with samples or without."""
        return self.sums.n_cell

    @cached_property
    def n_used(self) -> int:
        """Cells with samples."""
        return self.sums.n_used

    @cached_property
    def normal(self) -> Normal:
        """Equations of gains about 1."""
        return Normal.of(self.sums)

    def of_samples(self, samples: ResidualSamples) -> Index:
        """The cell of each sample."""
        return self.of_group[samples.channel if self.name == "channel" else _group(samples)]


def _group(samples: ResidualSamples) -> Index:
    """Time and correlation of each sample, as one number."""
    return np.asarray(samples.slot * len(samples.corr_names) + samples.correlation)


def solve_for(normal: Normal, antennas: Sequence[int], wanted: Parts) -> SolvedTerms:
    """Errors of the gains of some antennas, of their amplitudes or phases or both."""
    k = list(antennas)
    blocks = []
    for which in np.flatnonzero(wanted):
        block = normal.blocks[which]
        matrix = block.matrix[:, k][:, :, k]
        if which and len(k) > MOST_ANTENNAS:  # the sum of all phases, which nothing depends on, is 0
            matrix = matrix + np.einsum("gii->g", matrix)[:, None, None] / len(k) ** 2
        blocks.append(NormalBlock(matrix, block.side[:, k], block.cross[:, k]))
    return solve_beside(blocks, normal.part)


def cells_of(samples: ResidualSamples) -> Iterator[Cells]:
    """Ways to cut samples for gains, from the coarsest to the finest."""
    n_time, n_hand, n = len(samples.times), len(samples.corr_names), samples.n_antenna
    of_times = PairSums.of(samples, _group(samples), n_time * n_hand)
    time, hand = np.divmod(np.arange(n_time * n_hand), n_hand)
    ways = [("steady", 0, n_time)]
    length = n_time // 2
    while length >= 1 and -(-n_time // length) * n**3 <= MOST_WORK:
        ways.append(("time", length, length))
        length //= 2
    for name, n_together, length in ways:
        cell, n_cell = time // length, -(-n_time // length)
        yield Cells(name, of_times.merged(cell, n_cell), cell, n_together)
        if n_hand > 1:
            by_hand = cell * n_hand + hand
            yield Cells(name, of_times.merged(by_hand, n_cell * n_hand), by_hand, n_together, True)
    n_chan = int(samples.channel.max()) + 1 if samples.n else 0
    if n_chan > 1 and n_chan * n**3 <= MOST_WORK:
        yield Cells("channel", PairSums.of(samples, samples.channel, n_chan), np.arange(n_chan))


def gain_candidates(samples: ResidualSamples) -> Iterator[Candidate]:
    """Gains of antennas that differ from what the model has."""
    has_turns = bool(len(samples.turnable))
    yield from _in_frame(Frame(samples, in_feeds=False), (False,) if has_turns else (False, True))
    if has_turns:
        yield from _in_frame(Frame(samples, in_feeds=True), (True,))


def _in_frame(frame: Frame, by_feed: tuple[bool, ...]) -> Iterator[Candidate]:
    own = frame.own
    if not own.n or not np.abs(own.model).any():
        return
    ends = np.unique(np.concatenate([own.antenna1, own.antenna2]))
    if len(ends) < 3:
        return
    for cells in cells_of(own):
        if cells.by_feed not in by_feed:
            continue
        tried = [*_all_antennas(frame, cells, ends), *_few_antennas(frame, cells, ends)]
        first = [_candidate(each, each.linear_drop) for each in tried]
        likely = [each for each in first if each.significance() > LIKELY]
        if cells.name != "steady" and likely:
            likely = [max(likely, key=lambda each: each.net(frame.samples.n_real))]
        for fit, each in zip(tried, first, strict=True):
            yield _candidate(fit, fit.drop) if each in likely else each


def _all_antennas(frame: Frame, cells: Cells, ends: Index) -> Iterator[GainFit]:
    present = [
        int((np.einsum("gii->gi", block.matrix) > RIDGE * (1.0 + 1e-12)).sum())
        for block in cells.normal.blocks
    ]
    antennas = tuple(ends.tolist())
    for wanted in PARTS:
        drop = solve_for(cells.normal, antennas, wanted).drop
        # One amplitude is the flux of the model, and one phase of each cell is free.
        n_term = wanted[0] * (present[0] - 1) + wanted[1] * (present[1] - cells.n_used)
        yield GainFit(frame, cells, antennas, wanted, drop, max(n_term, 1))


def _few_antennas(frame: Frame, cells: Cells, ends: Index) -> Iterator[GainFit]:
    """One antenna, then another beside it, ...: each time the one that explains most."""
    if cells.n_cell * len(ends) > MOST_FEW:
        return
    chosen: tuple[int, ...] = ()
    for k in range(min(MOST_ANTENNAS, len(ends) - 2)):
        made = [
            GainFit(
                frame,
                cells,
                (*chosen, antenna),
                wanted,
                solve_for(cells.normal, (*chosen, antenna), wanted).drop,
                cells.n_used * (k + 1) * sum(wanted),
                len(ends) ** (k + 1.0),
            )
            for antenna in ends.tolist()
            if antenna not in chosen
            for wanted in PARTS
        ]
        if not made:
            return
        chosen = max(made, key=lambda each: each.net).antennas
        yield from (each for each in made if each.antennas == chosen)


def _candidate(fit: GainFit, drop: float) -> Candidate:
    # Of all samples, so that candidates that change others can be compared.
    whole = fit.frame.samples
    gain, log_p = linear(whole.square, drop, fit.n_term, whole.n_real, fit.places)
    name = fit.cells.name
    return Candidate(
        "antenna gain" if name == "steady" else "gain drift" if name == "time" else "bandpass",
        drop,
        gain,
        fit.n_term,
        log_p,
        fit.after,
        partial(_texts, fit),
        n_time=fit.cells.n_time or math.inf,
    )


@dataclass(frozen=True, eq=False)
class Frame:
    """Samples in the frame in which gains are factors of correlations: that of the sky, or of the feeds.

    Attributes
    ----------
    samples : ResidualSamples
        In the frame of the data.
    in_feeds : bool
        Gains of the two feeds differ where rotation was taken out of data of linear feeds.
    """

    samples: ResidualSamples
    in_feeds: bool

    @cached_property
    def whole(self) -> ResidualSamples:
        """The samples in this frame."""
        return self.samples.in_feeds() if self.in_feeds else self.samples

    @cached_property
    def own(self) -> ResidualSamples:
        """Parallel hands of those."""
        chosen = self.whole.is_parallel
        return self.whole if chosen.all() else self.whole.only(chosen)

    def after(self, own: ResidualSamples) -> ResidualSamples:
        """The samples in the frame of the data, with the model and the residuals of parallel hands here."""
        which = self.whole.is_parallel
        model, residual = self.whole.model.copy(), self.whole.residual.copy()
        model[which], residual[which] = own.model, own.residual
        whole = self.whole.with_values(model=model, residual=residual)
        return self.samples.with_feeds(whole) if self.in_feeds else whole


class SolvedGains(NamedTuple):
    """Gains beside a changed sky.

    Attributes
    ----------
    logs : float64 (2, n_cell, n_antenna)
        ln amplitudes and phases.
    x : float64 (6,)
        The model is sum_k x_k F_k V (`biro.diagnosis.causes.tangents`).
    errors : float64 (2, n_cell, n_antenna of those)
    square : float
        sum |r|^2.
    """

    logs: Array
    x: Array
    errors: Array
    square: float


@dataclass(frozen=True, eq=False)
class GainFit:
    """Gains as factors, exp(a + i b), of some antennas in each cell, by Gauss-Newton beside the sky.

    Attributes
    ----------
    frame : Frame
    cells : Cells
    antennas : tuple of int
    wanted : two bool
        Amplitudes, phases.
    linear_drop : float
        By how much sum |r|^2 decreases to first order.
    n_term : int
    places : float
        Choices of antennas.
    """

    frame: Frame
    cells: Cells
    antennas: tuple[int, ...]
    wanted: Parts
    linear_drop: float
    n_term: int
    places: float = 1.0

    @cached_property
    def solved(self) -> SolvedGains:
        """Gains that lower sum |r|^2 most, by Gauss-Newton."""
        cells, antennas, places = self.cells, list(self.antennas), np.flatnonzero(self.wanted)
        logs, x = np.zeros((2, cells.n_cell, cells.sums.n_antenna)), UNCHANGED
        errors = np.zeros((2, cells.n_cell, len(antennas)))
        normal = cells.normal
        best, square = (logs, x), normal.square
        for _ in range(N_STEP):
            solved = solve_for(normal, antennas, self.wanted)
            logs = logs.copy()
            for which, term, error in zip(places, solved.terms, solved.errors, strict=True):
                logs[which][:, antennas] += np.clip(term, -1.0, 1.0)
                errors[which] = error
            x = x + solved.tangent @ normal.mixture
            normal = Normal.of(cells.sums, logs, x)
            fall = square - normal.square
            if fall > 0.0:
                best, square = (logs, x), normal.square
            if fall < CONVERGED * square:
                break
        return SolvedGains(*best, errors, square)

    @property
    def net(self) -> float:
        """Gain of ln L to first order, less half ln n for each number."""
        whole = self.frame.samples
        gain, _ = linear(whole.square, self.linear_drop, self.n_term, whole.n_real, self.places)
        return gain - 0.5 * self.n_term * math.log(whole.n_real)

    @property
    def drop(self) -> float:
        """By how much sum |r|^2 decreases below what the sky reaches alone."""
        own = self.frame.own
        return own.square - float(np.sum(own.tangent_part**2)) - self.solved.square

    def after(self) -> ResidualSamples:
        """The samples without what these gains explain."""
        own, cell = self.frame.own, self.cells.of_samples(self.frame.own)
        gain = np.exp(self.solved.logs[0] + 1j * self.solved.logs[1])
        of_rows = gain[cell, own.antenna1] * gain[cell, own.antenna2].conj()
        model = own.polynomial(self.solved.x) * of_rows * own.model
        return self.frame.after(own.with_values(model=model, residual=own.model + own.residual - model))


def _texts(fit: GainFit) -> tuple[str, str]:
    own, cells, antennas, wanted = fit.frame.own, fit.cells, fit.antennas, fit.wanted
    parts, errors = fit.solved.logs[:, :, list(antennas)], fit.solved.errors
    few = len(antennas) <= MOST_ANTENNAS
    if not few:  # a common amplitude is a flux, which is steady, and a common phase is nothing
        common = np.median(parts, axis=2, keepdims=True)
        if cells.name == "time":
            common[0] = np.median(parts[0])
        parts = parts - common
    errors = errors * np.sqrt(own.square / own.n_real)
    weight = np.array(wanted)[:, None, None] * (errors < KNOWN) / np.maximum(errors, 1e-9) ** 2
    if not weight.any():
        weight = np.array(wanted)[:, None, None] / np.maximum(errors, 1e-9) ** 2
    # Mean squares of amplitude and of phase, each over the cells, so that the better known counts no more.
    strength = np.sum(np.sum(weight * parts**2, axis=1) / np.maximum(np.sum(weight, axis=1), 1e-300), axis=0)
    order = np.argsort(-strength)
    changes = " from channel to channel" if cells.name == "channel" else ""
    if cells.name == "time":
        changes = _span(own, cells)
    feeds = ", and differently in the two feeds" if cells.by_feed else ""
    sizes = [_size(parts[:, :, [k]], weight[:, :, [k]], wanted) for k in range(len(antennas))]
    if few:
        names = list(enumerate(own.corr_names))
        there = [(i, name) for i, name in names if i in own.correlation]
        hands = there if cells.by_feed and cells.name == "steady" else [(0, "")]
        sizes = [
            "; ".join(
                f"{hand} {_size(parts[:, [i], k : k + 1], weight[:, [i], k : k + 1], wanted)}".strip()
                if cells.name == "steady"
                else sizes[k]
                for i, hand in hands
            )
            for k in range(len(antennas))
        ]
        listed = " and ".join(f"{own.antenna(antennas[k])} ({sizes[k]})" for k in order)
        noun, are, change = ("gains", "are", "change") if len(antennas) > 1 else ("gain", "is", "changes")
        verb = f"{are} wrong" if cells.name == "steady" else f"{change}{changes}"
        return f"The {noun} of {listed} {verb}{feeds}.", _remedy(own, cells, wanted)
    whole = _size(parts, weight, wanted)
    largest = [k for k in order[:MOST_ANTENNAS] if strength[k] > NEARLY_MOST * strength[order[0]]]
    most = " and ".join(f"{own.antenna(antennas[k])}, {sizes[k]}" for k in largest)
    verb = "are wrong" if cells.name == "steady" else f"change{changes}"
    return f"The gains of the antennas {verb}{feeds}, by {whole} rms (largest {most}).", _remedy(
        own, cells, wanted
    )


def _remedy(own: ResidualSamples, cells: Cells, wanted: Parts) -> str:
    """What to do, with the lines of a model that can follow such gains."""
    if cells.name == "channel":
        return "Calibrate the bandpass with `biro solve`, and give its table to [gain]."
    per = f', per = "{_segment(own, cells)}"' if cells.name == "time" else ""
    keys = ['feeds = "separate"'] * cells.by_feed
    keys += [f'amplitude = {{ prior = "log-normal", sd = 0.1{per} }}'] * wanted[0]
    keys += [f'phase = {{ prior = "uniform"{per} }}'] * wanted[1]
    solve = "" if cells.name == "time" else ", or calibrate the data with `biro solve`"
    return f"Fit gains ([gain] {' and '.join(keys)}) with `--gains marginalise`{solve}."


def _segment(own: ResidualSamples, cells: Cells) -> str:
    """Segments of a prior that follow a change: scans where none is longer than the change takes."""
    if cells.n_time <= 1:
        return "integration"
    longest = 0
    for part in own.parts:
        scans = part.scan_of_time
        counts = np.unique(scans, return_counts=True)[1] if scans is not None else [len(part.times)]
        longest = max(longest, *counts)
    return "scan" if longest <= cells.n_time else "integration"


def _span(own: ResidualSamples, cells: Cells) -> str:
    seconds = float(np.median(np.diff(own.times))) * cells.n_time
    return f" with time, within {plain(seconds, 3)} s"


def _size(parts: Array, weight: Array, wanted: Parts) -> str:
    """Amplitude and phase of one gain, or their rms over several, weighted by how well each is known."""
    texts = []
    for value, each, is_in, is_phase in zip(parts, weight, wanted, (False, True), strict=True):
        if not is_in:
            continue
        total = max(float(each.sum()), 1e-300)
        size = float(value[0, 0]) if value.size == 1 else math.sqrt(float(np.sum(each * value**2)) / total)
        sign = "+" if value.size == 1 else ""
        texts.append(
            f"phase {plain(math.degrees(size), 2, sign)} deg"
            if is_phase
            else f"amplitude {percent(math.expm1(size), 2, sign)}"
        )
    return ", ".join(texts)
