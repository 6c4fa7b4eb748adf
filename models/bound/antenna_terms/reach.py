"""At which times and partitions each fitted gain changes something, and which follow each other in chains.

Most parameters of gains change the visibilities of one segment alone, so that those of different segments do
not mix in sums over visibilities. Where segments are correlated (`correlated`), this holds of the states x of
a chain, which the parameters step through: x_k = keep_k x_(k-1) + step_k e_k. Where the correlation time
or the standard deviation is fitted, keep and step follow it, and the parameters count everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.antenna_terms.gain_layout import GainQuantity
from biro.models.bound.antenna_terms.layout import TermSlots
from biro.models.bound.slots import ResolvedSlots
from biro.models.components.partition_view import PartitionView

Array = NDArray[np.float64]
Index = NDArray[np.int64]
NONE = -1


@dataclass(frozen=True, eq=False)
class Reach:
    """The cells at which each parameter changes something; of parameters without a cell everywhere.

    Attributes
    ----------
    n_param, n_cell : int
        A cell is some times of a partition at which the same parameters count. Cells are in the order of
        time, those of partitions that share no chain one after the other.
    parameter, cell : int64 (n_pair,)
        A parameter, and a cell at which it changes something; where it is a step of a chain, at which its
        state does.
    cell_of_time : tuple of int64 (n_time,)
        The cell of each time of each partition.
    before : int64 (n_param,)
        Of a step of a chain the parameter that is the step before; else `NONE`.
    keep, step : float64 (n_param,)
        x = keep x_before + step theta; 0 and 1 of parameters that are no steps.
    """

    n_param: int
    n_cell: int
    parameter: Index
    cell: Index
    cell_of_time: tuple[Index, ...]
    before: Index
    keep: Array
    step: Array

    @property
    def links(self) -> Index:
        """Pairs of parameters that follow each other in a chain, int64 (n_link, 2)."""
        after = np.flatnonzero(self.before != NONE)
        return np.stack([self.before[after], after], axis=1)


def reach_of(
    terms: Sequence[TermSlots], partitions: Sequence[PartitionView], resolved: ResolvedSlots
) -> Reach:
    """The reach of all parameters of a model.

    Parameters
    ----------
    terms : sequence of TermSlots
        Of each partition, or none at all.
    partitions : sequence of PartitionView
    resolved : ResolvedSlots
    """
    n_param = len(resolved.parameters)
    elsewhere = _used_elsewhere(terms, resolved)
    of_slot = np.full(resolved.base.size, NONE, np.int64)
    for slot, form in resolved.forms.items():
        if form.is_multiple and form.terms[0][0] not in elsewhere:
            of_slot[slot] = form.terms[0][0]
    of_slot[_of_fitted_times(terms)] = NONE
    before, keep, step = np.full(n_param, NONE, np.int64), np.zeros(n_param), np.ones(n_param)
    for factor in {id(one.states): one for own in terms for one in own.factors}.values():
        _add_chain(factor, of_slot, resolved, (before, keep, step))
    blocks = [own.time_block.astype(np.int64) for own in terms] or [
        np.zeros(view.time.size, np.int64) for view in partitions
    ]
    first_cell, n_cell = _cells(terms, partitions, blocks)
    pairs = [np.empty((0, 2), np.int64)]
    for own, cells in zip(terms, first_cell, strict=False):
        for factor in own.factors:
            found = of_slot[factor.states.table[factor.segment]].reshape(len(cells), -1)
            there = found != NONE
            pairs.append(np.stack([found[there], np.repeat(cells, there.sum(axis=1))], axis=1))
    parameter, cell = np.unique(np.concatenate(pairs), axis=0).T
    cell_of_time = tuple(cells[block] for cells, block in zip(first_cell, blocks, strict=True))
    return Reach(n_param, n_cell, parameter, cell, cell_of_time, before, keep, step)


def _of_fitted_times(terms: Sequence[TermSlots]) -> Index:
    """The slots of chains whose correlation times are fitted."""
    found = [
        factor.states.table.reshape(-1)
        for own in terms
        for factor in own.factors
        if factor.states.chain is not None and factor.states.chain.is_fitted
    ]
    return np.concatenate([np.zeros(0, np.int64), *found])


def _used_elsewhere(terms: Sequence[TermSlots], resolved: ResolvedSlots) -> frozenset[int]:
    """Parameters that anything but gains follows, or sums of several."""
    of_gains = np.zeros(resolved.base.size, bool)
    for own in terms:
        for factor in own.factors:
            of_gains[factor.states.table] = True
    others = (form for slot, form in resolved.forms.items() if not (of_gains[slot] and form.is_multiple))
    return frozenset(parameter for form in others for parameter, _ in form.terms)


def _add_chain(
    factor: GainQuantity, of_slot: Index, resolved: ResolvedSlots, into: tuple[Index, Array, Array]
) -> None:
    """Add the steps of the chains of one quantity."""
    chain, (before, keep, step) = factor.states.chain, into
    if chain is None or chain.is_fitted:
        return
    table = factor.states.table
    last = np.full(table.shape[1:], NONE, np.int64)
    for k, slots in enumerate(table):
        here = of_slot[slots]
        there = here != NONE
        own = here[there]
        by_slot = np.array([resolved.form(int(slot)).terms[0][1] for slot in slots[there]])
        before[own] = last[there]
        keep[own] = np.broadcast_to(chain.keep[k][:, None], there.shape)[there]
        step[own] = by_slot * np.broadcast_to(chain.step[k][:, None], there.shape)[there]
        last[there] = own


def _cells(
    terms: Sequence[TermSlots], partitions: Sequence[PartitionView], blocks: Sequence[Index]
) -> tuple[list[Index], int]:
    """The cell of each block of times of each partition, and how many cells there are."""
    groups = list(range(len(partitions)))
    sharing: dict[int, int] = {}
    for i, own in enumerate(terms):
        for factor in own.factors:
            chain = factor.states.chain
            if chain is not None and not chain.is_fitted:
                first = sharing.setdefault(id(factor.states), groups[i])
                groups = [first if group == groups[i] else group for group in groups]
    keys = []
    for i, (view, block) in enumerate(zip(partitions, blocks, strict=True)):
        for b in range(int(block.max()) + 1):
            keys.append((groups[i], float(view.time[block == b].min()), i, b))
    rank = {key[2:]: n for n, key in enumerate(sorted(keys))}
    found = [
        np.array([rank[i, b] for b in range(int(block.max()) + 1)], np.int64)
        for i, block in enumerate(blocks)
    ]
    return found, len(keys)
