"""Stokes parameters of visibilities, with their weights: formed while reading, and for images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import Printed
from biro.errors import InputError
from biro.observation.correlations import PARALLEL_HANDS, STOKES_NAMES, share_of_i
from biro.observation.partition import Partition
from rime_kernels.physics.brightness import stokes_to_corr

PSEUDO_I = "pseudoI"
"""Stokes I as the weighted mean of the parallel hands that are there."""
BLOCK_VISIBILITIES = 1 << 22
"""Visibilities that are in double precision at a time."""
Vis = NDArray[np.complexfloating]
Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class FormedStokes(Printed):
    """Which Stokes visibilities were formed of correlations while reading, and how many.

    Attributes
    ----------
    stokes : str
        "I", "IQUV", "pseudoI", ...
    n_formed : int
        Stokes visibilities that count.
    n_incomplete : int
        Those left out because some, but not all, of the correlations that they need count.
    n_one_hand : int
        "pseudoI" that comes from one hand alone; these are among `n_formed`.
    """

    stokes: str
    n_formed: int
    n_incomplete: int = 0
    n_one_hand: int = 0

    def __str__(self) -> str:
        text = f"{self.stokes}: {self.n_formed} visibilities formed"
        if self.n_incomplete:
            text += (
                f"; {self.n_incomplete} left out, because a correlation that they need is flagged or missing"
            )
        if self.n_one_hand:
            text += (
                f"; {self.n_one_hand} of these from one parallel hand only, which assumes an unpolarised sky"
            )
        return text


def parse_stokes(text: str) -> str:
    """Which Stokes parameters a text asks for: "pseudoI", or some of the letters I, Q, U, V, in this order.

    Raises
    ------
    InputError
        Any other text.
    """
    plain = "".join(c for c in text if c not in ", -") if isinstance(text, str) else ""
    if plain.lower() == PSEUDO_I.lower():
        return PSEUDO_I
    letters = plain.upper()
    if not letters or not set(letters) <= set(STOKES_NAMES) or len(set(letters)) < len(letters):
        raise InputError(f"stokes must be letters of IQUV, as 'I' or 'IQUV', or {PSEUDO_I!r}, got {text!r}")
    return "".join(name for name in STOKES_NAMES if name in letters)


def form_stokes(partitions: Sequence[Partition], stokes: str) -> tuple[list[Partition], FormedStokes]:
    """Partitions of Stokes parameters in place of correlations.

    A Stokes parameter is the combination of correlations which it follows from whatever the sky is (physics:
    section 3): I = (XX + YY)/2 or (RR + LL)/2, V = (RR - LL)/2 or (XY - YX)/2i, and so on. Its weight is one
    over its variance, 4 / (1/w1 + 1/w2) for two correlations of weights w1 and w2. It counts where all of
    its correlations do. Stokes parameters that are stored as such stay as they are.

    "pseudoI" is Stokes I of a sky that is not polarised, of which each parallel hand is a measurement: their
    weighted mean with the sum of their weights, or the one hand that counts.

    Parameters
    ----------
    partitions : sequence of Partition
    stokes : str
        As `parse_stokes` reads it.

    Raises
    ------
    InputError
        The correlations of a partition do not determine these parameters.
    """
    wanted = parse_stokes(stokes)
    names = ("I",) if wanted == PSEUDO_I else tuple(wanted)
    formed, n_partial, none = [], 0, np.zeros(0, np.int64)
    for part in partitions:
        _check_determined(part, wanted)
        done, counts = part.replaced(_formed, part.corr_type, wanted, corr_type=names, corr_id=none)
        formed.append(done)
        n_partial += sum(counts)
    left_out = (0, n_partial) if wanted == PSEUDO_I else (n_partial, 0)
    return formed, FormedStokes(wanted, sum(part.n_usable for part in formed), *left_out)


def _formed(
    vis: Vis, weight: NDArray[np.floating], corr_type: Sequence[str], wanted: str
) -> tuple[Vis, NDArray[np.floating], int]:
    """Stokes visibilities and weights of some rows, and how many lack some of their correlations."""
    shape = (*vis.shape[:2], 1 if wanted == PSEUDO_I else len(wanted))
    values, weights, n_partial = np.empty(shape, vis.dtype), np.empty(shape, weight.dtype), 0
    step = max(1, BLOCK_VISIBILITIES // max(1, vis[:1].size))
    for start in range(0, len(vis), step):
        rows = slice(start, start + step)
        values[rows], weights[rows], partial = _combined(corr_type, vis[rows], weight[rows], wanted)
        n_partial += int(np.count_nonzero(partial))
    return values, weights, n_partial


@dataclass(frozen=True)
class SelectedCorrelations:
    """Partitions whose correlations are those that a reader was asked for, and what was done to them.

    Attributes
    ----------
    partitions : list of Partition
    formed : FormedStokes or None
    notes : list of str
        Hands that are copies of one another.
    """

    partitions: list[Partition]
    formed: FormedStokes | None
    notes: list[str]


def take_hands(
    partitions: Sequence[Partition], stokes: str | None, merge: bool = True
) -> SelectedCorrelations:
    """What a reader does with correlations once flags are applied, before it averages.

    Hands that are copies of one another are counted once (`merge_copies`; not without `merge`); then Stokes
    parameters are formed, where they are asked for. An average over hands with different flags would be of
    different times.

    Raises
    ------
    InputError
        As `form_stokes`, or no Stokes visibility counts.
    """
    merged, notes = merge_copies(partitions) if merge else (list(partitions), [])
    if stokes is None:
        return SelectedCorrelations(merged, None, notes)
    parts, formed = form_stokes(merged, stokes)
    if not formed.n_formed:
        raise InputError(
            f"no visibility has all correlations that Stokes {formed.stokes} needs ({formed.n_incomplete} "
            "have some of them)"
        )
    return SelectedCorrelations([part for part in parts if part.n_usable], formed, notes)


def merge_copies(partitions: Sequence[Partition]) -> tuple[list[Partition], list[str]]:
    """Stokes I in place of parallel hands that are copies of one another, and remarks about them.

    Programs that store Stokes I as RR = LL give each hand half of the weight of I. Taken as two measurements
    they make errors sqrt(2) too small wherever a noise factor is fitted: there are twice as many of them, of
    half the scatter that their weights say. I has the sum of the weights, which is right for a fixed factor,
    too. Hands are copies where they are equal in every visibility that both have. Where cross hands count,
    which tell of polarisation, nothing is changed.
    """
    merged, n_copied = [], dict.fromkeys((True, False), 0)
    for part in partitions:
        pair = [i for i, name in enumerate(part.corr_type) if name in PARALLEL_HANDS]
        copied = part.by_block(_n_copied, pair) if len(pair) == 2 else []
        n = 0 if None in copied else sum(each or 0 for each in copied)
        has_cross = bool(n) and any(part.by_block(_has_others, pair))
        n_copied[has_cross] += n
        merged.append(form_stokes([part], PSEUDO_I)[0][0] if n and not has_cross else part)
    words = {
        False: "biro reads them as Stokes I, once, with the sum of their weights",
        True: (
            "biro counts them twice, because the data have cross hands, too. With a fitted noise factor, "
            "uncertainties come out sqrt(2) too small. Use --stokes I (stokes='I' in Python)"
        ),
    }
    text = "the two parallel hands of {} visibilities are identical (Stokes I stored twice): {}"
    return merged, [text.format(n, words[has_cross]) for has_cross, n in n_copied.items() if n]


def _n_copied(vis: Vis, weight: NDArray[np.floating], pair: Sequence[int]) -> int | None:
    """How many visibilities of a block both hands have; None where they are not equal in all of them."""
    first, second = pair
    n_copied = 0
    step = max(1, (1 << 16) // max(1, vis.shape[1]))
    for start in range(0, len(vis), step):
        rows = slice(start, start + step)
        both = (weight[rows, :, first] > 0) & (weight[rows, :, second] > 0)
        if (vis[rows, :, first] != vis[rows, :, second])[both].any():
            return None
        n_copied += int(np.count_nonzero(both))
    return n_copied


def _has_others(_: Vis, weight: NDArray[np.floating], pair: Sequence[int]) -> bool:
    """Whether correlations other than these two count."""
    return bool(np.delete(weight, pair, axis=2).any())


def stokes_planes(stokes: str) -> str:
    """The letters of the planes of an image: "I" for "pseudoI".

    Raises
    ------
    InputError
        A text that is not understood, or letters whose codes in FITS (1 to 4) are not equally far apart.
    """
    wanted = parse_stokes(stokes)
    names = "I" if wanted == PSEUDO_I else wanted
    if len(set(np.diff([STOKES_NAMES.index(name) for name in names]))) > 1:
        raise InputError(f"an image of Stokes {names} has no regular axis in FITS; use IQUV")
    return names


def stokes_visibilities(part: Partition, vis: Vis, stokes: str) -> tuple[Vis, Array]:
    """Stokes visibilities for an image, and the weight that they share.

    As `form_stokes` makes them; their weight is one over the mean of their variances, and 0 where one of
    them does not count.

    Parameters
    ----------
    part : Partition
        Its weights are used, not its visibilities.
    vis : complex (n_row, n_chan, n_corr), Jy
    stokes : str
        "I", "IQUV", "pseudoI", ...

    Returns
    -------
    vis : complex (n_row, n_chan, n_stokes), Jy
        0 where the weight is.
    weight : float64 (n_row, n_chan), 1/Jy^2

    Raises
    ------
    InputError
        These Stokes parameters do not follow from the correlations of the partition.
    """
    wanted = parse_stokes(stokes)
    _check_determined(part, wanted)
    values, weight, _ = _combined(part.corr_type, vis, part.weight, wanted)
    complete = np.asarray((weight > 0).all(axis=2))
    shared = _inverse(_inverse(weight).mean(axis=2)) * complete
    return values * complete[..., None], shared


def _inverse(values: Array) -> Array:
    """1 over each value, and 0 for 0."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values != 0)


def _combined(
    corr_type: Sequence[str], vis: Vis, weight: NDArray[np.floating], wanted: str
) -> tuple[Vis, Array, Mask]:
    """Stokes visibilities and weights of some rows, and which of them lack some of their correlations.

    All are (n_row, n_chan, n_stokes); visibilities are 0 where the weight is.
    """
    double: Array = np.asarray(weight, np.float64)
    if wanted == PSEUDO_I:
        return _mean_of_hands(corr_type, vis, double)
    columns = []
    for coefficients in _inverse_matrix(corr_type)[[STOKES_NAMES.index(name) for name in wanted]]:
        used = coefficients != 0
        counts = double[..., used] > 0
        complete = np.asarray(counts.all(axis=2))
        variance = _inverse(double[..., used]) @ np.abs(coefficients[used]) ** 2
        value = (vis[..., used] @ coefficients[used].astype(vis.dtype)) * complete
        columns.append((value, _inverse(variance) * complete, counts.any(axis=2) & ~complete))
    values, weights, partial = (np.stack(arrays, axis=2) for arrays in zip(*columns, strict=True))
    return values, weights, partial


def _mean_of_hands(corr_type: Sequence[str], vis: Vis, weight: Array) -> tuple[Vis, Array, Mask]:
    """Weighted mean of the parallel hands, the sum of their weights, and where one of two is missing.

    It is the least-squares I of an unpolarised sky: sum of w c^* V over that of w |c|^2 (c: `share_of_i`).
    """
    share = share_of_i(corr_type)
    hands = share != 0
    weight = weight[..., hands]
    total = (weight @ np.abs(share[hands]) ** 2)[..., None]
    part = (weight * _inverse(total)).astype(vis.real.dtype) * share[hands].conj().astype(vis.dtype)
    mean = (vis[..., hands] * part).sum(axis=2, keepdims=True)
    n_hand = np.count_nonzero(weight, axis=2)[..., None]
    return mean, total, (n_hand > 0) & (n_hand < np.count_nonzero(hands))


def _inverse_matrix(corr_type: Sequence[str]) -> NDArray[np.complex128]:
    """What to multiply the correlations with, (4, n_corr), a row for each Stokes parameter."""
    # Elements are 0, 1, 1/2 or i/2, but for mixed feeds: what is rounded off are errors of the decomposition.
    found = np.linalg.pinv(stokes_to_corr(corr_type))
    rounded = np.round(found, 9)
    return np.asarray(np.where(np.abs(found - rounded) < 1e-12, rounded, found))


def _check_determined(part: Partition, wanted: str) -> None:
    """Refuse Stokes parameters that do not follow from the correlations of a partition."""
    if wanted == PSEUDO_I:
        if not share_of_i(part.corr_type).any():
            raise _undetermined(part, PSEUDO_I, [])
        return
    product = _inverse_matrix(part.corr_type) @ stokes_to_corr(part.corr_type)
    determined = [
        name
        for name, row, one in zip(STOKES_NAMES, product, np.eye(4), strict=True)
        if np.isclose(row, one).all()
    ]
    if not set(wanted) <= set(determined):
        raise _undetermined(part, wanted, determined)


def _undetermined(part: Partition, wanted: str, determined: Sequence[str]) -> InputError:
    """The error of a partition whose correlations do not determine what is wanted."""
    names, has_hand = ", ".join(part.corr_type), not set(PARALLEL_HANDS).isdisjoint(part.corr_type)
    if not determined and has_hand:
        determined = [f"{PSEUDO_I} (I of an unpolarised sky)"]
    could = f"; {', '.join(determined)} could be formed" if determined else ""
    return InputError(
        f"Stokes {wanted} does not follow from {names} (field {part.field}, spw {part.spw}){could}"
    )
