"""chi2 of several `Rime` in one call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rime_kernels.arrays import Sources
from rime_kernels.compile.call_lock import CALL_LOCK
from rime_kernels.engine.call_memo import call_memo
from rime_kernels.gradient import Gradient
from rime_kernels.rime import Rime


def chi2_many(
    rimes: Sequence[Rime],
    sources: Iterable[Sources],
    scaled_dofs: Iterable[ArrayLike | None] | None = None,
) -> list[NDArray[np.float64]]:
    """`Rime.chi2` of several, all started before the first is waited for, so that a GPU works on all at once.

    Parameters
    ----------
    rimes : sequence of Rime
    sources : iterable of Sources, one for each
    scaled_dofs : iterable of float64 (n_batch,) or None, one for each, optional

    Returns
    -------
    list of float64 (n_batch,)

    Raises
    ------
    InputError
        As `Rime.chi2`.
    """
    calls = zip(rimes, sources, scaled_dofs or [None] * len(rimes), strict=True)
    started, found = [], []
    with CALL_LOCK, call_memo():  # partitions often have the same sources
        try:
            for rime, batch, scaled_dof in calls:
                started.append(rime.start_chi2(batch, scaled_dof))
        finally:  # also after an error: none may be left running
            for finish in started:
                found.append(finish())
    return found


def chi2_and_gradient_many(
    rimes: Sequence[Rime],
    sources: Iterable[Sources],
    scaled_dofs: Iterable[ArrayLike | None] | None = None,
) -> list[tuple[NDArray[np.float64], Gradient]]:
    """`Rime.chi2_and_gradient` of several, one after the other; parameters as those of `chi2_many`."""
    calls = zip(rimes, sources, scaled_dofs or [None] * len(rimes), strict=True)
    with call_memo():
        return [rime.chi2_and_gradient(batch, scaled_dof) for rime, batch, scaled_dof in calls]
