"""Arrays that the compiled loops over gains read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Short = NDArray[np.int32]
Flag = NDArray[np.bool_]
Starts = NDArray[np.int8]


class GainCells(NamedTuple):
    """Visibilities with one gain: of a baseline, correlation, block of times and block of channels.

    The product of the gains of a cell is exp(z), and z the sum of `factor` times coordinate over its entries,
    times i for phases.

    Attributes
    ----------
    first : int64 (n_cell + 1,)
        Where the entries of each cell begin.
    coordinate : int32 (n_entry,)
    factor : float64 (n_entry,)
        Negative for the phases of the second antenna.
    is_phase : bool (n_entry,)
    """

    first: Index
    coordinate: Short
    factor: Array
    is_phase: Flag


class GainGroups(NamedTuple):
    """Coordinates that no cell and no prior connects with those of other groups.

    Those of a group follow one another. Row i of a symmetric matrix of a group is kept from column
    `begin[i]` to the diagonal, in one array, so that element (i, j) stands at `row[i] + j`.

    Attributes
    ----------
    first : int64 (n_group + 1,)
        Where the coordinates of each group begin.
    cell_first : int64 (n_group + 1,)
    cell : int32
        The cells of one group after the other.
    link_first : int64 (n_group + 1,)
    later, earlier : int64 (n_link,)
    keep, link_weight : float64 (n_link,)
        Normal priors of x_later - middle - keep (x_earlier - middle), by 1/variance.
    middle, weight : float64 (n,)
        Normal priors of the coordinates, by mean and 1/variance.
    circle : int64 (n,)
        Of each phase the one that its prior has uniform over the circle: itself, or the first of the process
        that it belongs to; -1 of others.
    turns : bool (n,)
        Phases that may be anything: a start is looked for.
    begin, row : int64 (n,)
    """

    first: Index
    cell_first: Index
    cell: Short
    link_first: Index
    later: Index
    earlier: Index
    keep: Array
    link_weight: Array
    middle: Array
    weight: Array
    circle: Index
    turns: Flag
    begin: Index
    row: Index


class GainSums(NamedTuple):
    """Sums of each cell, float64 (n_cell,): sum w |V|^2, and real and imaginary part of sum w D conj(V)."""

    power: Array
    real: Array
    imag: Array


class Anchor(NamedTuple):
    """Maxima from which searches begin, and the sums of cells whose maxima they are.

    Only a search that begins without any earlier maximum makes one, so that a search leads to the maximum
    that such a search would find, whatever was searched for before.

    Attributes
    ----------
    x : float64 (n,)
    power, real, imag : float64 (n_cell,)
        As `GainSums`.
    room : float64 (n_group,)
        By how much sums may differ (`rime_kernels.gains.maximum.near`); 0 of groups without a maximum.
    """

    x: Array
    power: Array
    real: Array
    imag: Array
    room: Array

    @classmethod
    def of(cls, n: int, n_cell: int, n_group: int) -> Anchor:
        """Without any maximum, of so many coordinates, cells and groups."""
        power, real, imag = np.zeros((3, n_cell))
        return cls(np.zeros(n), power, real, imag, np.zeros(n_group))


class GainWork(NamedTuple):
    """Work space, kept from call to call for its factors: second derivatives change little between skies.

    Attributes
    ----------
    step, trial, slope, other : float64 (n,)
    known : bool (n,)
    matrix : float64 (n_stored,)
        Of groups that have one, a factor of the second derivatives at an earlier place.
    has_factor : bool (n_group,)
    """

    step: Array
    trial: Array
    slope: Array
    other: Array
    known: Flag
    matrix: Array
    has_factor: Flag

    @classmethod
    def of(cls, n: int, n_stored: int, n_group: int) -> GainWork:
        """Work space for so many coordinates, elements of matrices, and groups."""
        step, trial, slope, other = np.empty((4, n))
        matrix, has_factor = np.empty(n_stored), np.zeros(n_group, bool)
        return cls(step, trial, slope, other, np.empty(n, bool), matrix, has_factor)
