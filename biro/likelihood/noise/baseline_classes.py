"""Classes of baseline length that noise may differ by, and antennas whose factors data do not tell apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from biro.display.formatting import LENGTHS, WAVELENGTHS, range_text
from biro.errors import InputError
from biro.models.components.noise import Noise
from biro.observation.partition import Partition
from biro.observation.selection import read_length
from rime_kernels.physics.phase import SPEED_OF_LIGHT

Index = NDArray[np.int64]


def row_classes(noise: Noise, partitions: Sequence[Partition]) -> list[Index]:
    """The class of each row by its projected baseline length, for each partition.

    Lengths in wavelengths are those at the mean frequency of the partition.

    Raises
    ------
    InputError
        Edges that are not understood or do not ascend, or a class without a usable visibility.
    """
    read = [read_length(edge) for edge in noise.edges or ()]
    edges, kinds = np.array([length for length, _ in read]), {kind for _, kind in read}
    if len(kinds) > 1:
        raise InputError(f"noise: edges must all be in metres or all in wavelengths, found {_listed(noise)}")
    if np.any(np.diff(edges, prepend=0.0) <= 0.0):
        raise InputError(f"noise: edges must ascend from above 0, found {_listed(noise)}")
    in_wavelengths = True in kinds
    lengths = [_lengths(part, in_wavelengths) for part in partitions]
    classes = [np.searchsorted(edges, each, side="right") for each in lengths]
    used = [part.row_weight > 0 for part in partitions]
    there = np.concatenate([each[rows] for each, rows in zip(classes, used, strict=True)])
    empty = np.setdiff1d(np.arange(noise.n_class), there)
    if empty.size:
        known = np.concatenate([each[rows] for each, rows in zip(lengths, used, strict=True)])
        span = range_text(known.min(), known.max(), WAVELENGTHS if in_wavelengths else LENGTHS)
        raise InputError(
            f"noise: no baseline in the class {noise.classes[int(empty[0])]!r} (projected lengths are "
            f"{span}); remove an edge"
        )
    return classes


def _listed(noise: Noise) -> str:
    return ", ".join(map(str, noise.edges or ()))


def _lengths(part: Partition, in_wavelengths: bool) -> NDArray[np.float64]:
    """Projected baseline length of each row."""
    scale = float(part.chan_freq.mean()) / SPEED_OF_LIGHT if in_wavelengths else 1.0
    return np.hypot(part.uvw[:, 0], part.uvw[:, 1]) * scale


def only_products(
    links: Sequence[tuple[Index, Index]], is_free: NDArray[np.bool_]
) -> list[tuple[list[int], list[int]]]:
    """Groups of factors of which data know products of one of the first and one of the second group alone.

    These are connected antennas that are in two groups, so that each baseline links one of either: s_p of the
    first may grow by what those of the second shrink by. A walk along baselines that comes back to where it
    began in an odd number of steps, or a factor that is fixed, determines them all.

    Parameters
    ----------
    links : sequence of (int (n,), int (n,))
        Factors of the two antennas of baselines.
    is_free : bool (n_factor,)
        Which are fitted.
    """
    first, second = (np.concatenate(each) for each in zip(*links, strict=True))
    n, ones = len(is_free), np.ones(2 * len(first))
    # Of each factor there are two nodes; a step along a baseline leads from those of one kind to the other.
    rows, columns = np.concatenate([first, first + n]), np.concatenate([second + n, second])
    _, label = connected_components(coo_array((ones, (rows, columns)), shape=(2 * n, 2 * n)), directed=False)
    found = []
    for one in np.unique(label[np.unique(first)]):
        group, others = np.flatnonzero(label[:n] == one), np.flatnonzero(label[n:] == one)
        if not np.intersect1d(group, others).size and is_free[np.concatenate([group, others])].all():
            found.append((group.tolist(), others.tolist()))
    return found
