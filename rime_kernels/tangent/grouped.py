"""The Fisher information in blocks, where some changes are of single antennas in groups of rows.

A change of the matrix of one antenna reaches the rows of its baselines alone, and a row has few of them:
their products are summed row by row. Those of all other changes are matrix products.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays import AntennaTerms, Rows, Sources
from rime_kernels.cpu.antennas import AntennaSamples, LocalChanges, add_local_products
from rime_kernels.gradient import Gradient
from rime_kernels.tangent.columns import FixedInputs, check_change, columns_of, of_fluxes, through_feeds

Array = NDArray[np.float64]
Index = NDArray[np.int64]


class GroupedInformation(NamedTuple):
    """Re(J^H W J) of inner changes, which count in groups of rows, and outer ones, of all rows.

    Attributes
    ----------
    diagonal : float64 (n_group, n_inner, n_inner)
        Between inner changes, of the rows of each group.
    side : float64 (n_group, n_inner, n_outer)
        Between inner and outer changes.
    corner : float64 (n_outer, n_outer)
        Between outer changes, of all rows.
    """

    diagonal: Array
    side: Array
    corner: Array


def grouped_information(
    fixed: FixedInputs,
    weight: NDArray[np.floating],
    sources: Sources,
    change: Gradient,
    groups: Index,
    n_inner: int,
    n_byte: int,
) -> GroupedInformation:
    """The information by groups of rows, of changes about one list of sources.

    Parameters
    ----------
    fixed : FixedInputs
    weight : floating (n_row, n_chan, n_corr)
    sources : Sources
        A batch of one, with antenna terms.
    change : Gradient
        The first n_inner changes are of antenna terms alone.
    groups : int64 (n_row,)
        Of each row; -1 where inner changes do not count.
    n_inner : int
    n_byte : int
        Bytes of the columns of J that are made at a time, about.
    """
    n_change, n_group, terms = (
        check_change(sources, change),
        int(groups.max(initial=-1)) + 1,
        sources.antenna_terms,
    )
    assert terms is not None
    assert change.antenna_terms is not None
    outer = columns_of(fixed, sources, change.entries(n_inner, n_change)) if n_change > n_inner else None
    whole, bare, place = through_feeds(fixed, sources)
    full = columns_of(whole, bare, of_fluxes(bare))
    local = _local(change.antenna_terms[:n_inner])
    n_sample, n_outer = fixed.rows.n_chan * fixed.rows.n_corr, n_change - n_inner
    found = GroupedInformation(
        np.zeros((n_group, n_inner, n_inner)), np.zeros((n_group, n_inner, n_outer)),
        np.zeros((n_outer, n_outer)),
    )  # fmt: skip
    work = np.zeros((n_group, 2 * local.which.shape[2], n_sample), np.complex128)
    step = max(1, n_byte // (16 * n_sample * (n_outer + 2)))
    for start in range(0, fixed.rows.n_row, step):
        rows = slice(start, start + step)
        own = np.ascontiguousarray(weight[rows].reshape(-1, n_sample), np.float64)
        part = np.zeros((0, *own.shape), np.complex128)
        if outer is not None:
            part = outer.of(rows).reshape(n_outer, *own.shape)
            flat = (part * np.sqrt(own)).view(np.float64).reshape(n_outer, -1)
            found.corner[...] += flat @ flat.T
        starts, order = _by_group(groups[rows], n_group)
        add_local_products(
            _samples(fixed.rows, terms, rows), starts, order, terms.jones[0], local, full.of(rows)[0], place,
            own, part, work, found.diagonal, found.side,
        )  # fmt: skip
    return found


def _by_group(groups: Index, n_group: int) -> tuple[Index, Index]:
    """Where each group begins among rows that are sorted by group, and these rows; -1 is left out."""
    order = np.argsort(groups, kind="stable")
    return np.searchsorted(groups[order], np.arange(n_group + 1)), order


def _local(of_jones: NDArray[np.complex128]) -> LocalChanges:
    """Changes (n_inner, n_time_block, n_antenna, n_chan_block, 2, 2) by the antennas that they change."""
    number, time, antenna = np.nonzero(of_jones.any(axis=(3, 4, 5)))
    order = np.lexsort([number, antenna, time])
    number, time, antenna = number[order], time[order], antenna[order]
    place = time * of_jones.shape[2] + antenna
    _, first, count = np.unique(place, return_index=True, return_counts=True)
    within = np.arange(place.size) - np.repeat(first, count)
    n_local = int(count.max(initial=1))
    which = np.full((*of_jones.shape[1:3], n_local), -1, np.int64)
    which[time, antenna, within] = number
    found = np.zeros((*of_jones.shape[1:3], n_local, *of_jones.shape[3:]), np.complex128)
    found[time, antenna, within] = of_jones[number, time, antenna]
    return LocalChanges(which, found)


def _samples(rows: Rows, terms: AntennaTerms, which: slice) -> AntennaSamples:
    return AntennaSamples(
        rows.antenna1[which], rows.antenna2[which],
        np.ascontiguousarray(terms.time_block[rows.time_index[which]]), terms.chan_block,
    )  # fmt: skip
