"""chi2 of several `Rime` in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rime_kernels import checked_inputs
from rime_kernels.arrays import Sources
from rime_kernels.compile.call_lock import CALL_LOCK
from rime_kernels.engine.one_call import one_call
from rime_kernels.gradient import Gradient


class Startable(Protocol):
    """What is asked of a `Rime`."""

    def _start_chi2(
        self, sources: Sources, scaled_dof: NDArray[np.float64] | None = None
    ) -> Callable[[], NDArray[np.float64]]:
        """Begin to work out chi2; the function returned waits for it."""

    def _chi2_and_gradient(
        self, sources: Sources, scaled_dof: ArrayLike | None
    ) -> tuple[NDArray[np.float64], Gradient]:
        """chi2 and its derivatives."""


def chi2_together(
    rimes: Sequence[Startable],
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
    with CALL_LOCK, one_call():  # partitions often have the same sources
        started = []
        try:
            for rime, batch, scaled_dof in zip(
                rimes, sources, scaled_dofs or [None] * len(rimes), strict=True
            ):
                t = checked_inputs.scaled_dof_of(batch, scaled_dof)
                started.append((rime._start_chi2(batch, t), batch.impossible(), t))
        finally:  # also after an error: none may be left running
            finished = [(finish(), impossible, t) for finish, impossible, t in started]
    for chi2, impossible, t in finished:
        if t is not None:
            chi2 *= t  # the engines divide by it
        chi2[impossible] = np.nan
    return [chi2 for chi2, _, _ in finished]


def chi2_and_gradient_together(
    rimes: Sequence[Startable],
    sources: Iterable[Sources],
    scaled_dofs: Iterable[ArrayLike | None] | None = None,
) -> list[tuple[NDArray[np.float64], Gradient]]:
    """`Rime.chi2_and_gradient` of several, one after the other; parameters as those of `chi2_together`."""
    calls = zip(rimes, sources, scaled_dofs or [None] * len(rimes), strict=True)
    with one_call():
        return [rime._chi2_and_gradient(batch, scaled_dof) for rime, batch, scaled_dof in calls]
