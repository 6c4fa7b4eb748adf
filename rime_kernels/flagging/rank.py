"""The scale-invariant rank operator: flags grow by a share of their own length."""

from __future__ import annotations

import numpy as np
from numba import get_num_threads, prange
from numpy.typing import ArrayLike, NDArray

from rime_kernels import check
from rime_kernels.compile.call_lock import CALL_LOCK
from rime_kernels.compile.jit import loop
from rime_kernels.flagging.lines import rank_line
from rime_kernels.flagging.options import check_eta

Mask = NDArray[np.bool_]


def rank_operator(flag: ArrayLike, eta: float = 0.2, given: ArrayLike = False) -> Mask:
    """Flags of lines, and those that the scale-invariant rank operator adds.

    A sample is flagged where it lies in any interval of which the share 1 - eta or more is flagged: a run of
    n flags grows by eta/(1 - eta) n to either side, whatever its length (Offringa, van de Gronde & Roerdink
    2012, A&A 539, A95).

    Parameters
    ----------
    flag : bool (n_line, n)
    eta : float
        0 adds nothing.
    given : bool, broadcast against flag
        Samples that were left out from the start: they count neither as flagged nor as clear, and none of
        them is added.

    Returns
    -------
    bool (n_line, n)

    Raises
    ------
    InputError
        eta is not in [0, 1).
    """
    check_eta(eta)
    found = check.array("flag", flag, np.bool_, ("n_line", "n"))
    left_out = np.ascontiguousarray(np.broadcast_to(np.asarray(given, bool), found.shape))
    out = np.empty_like(found)
    with CALL_LOCK:
        _ranks(found, left_out, eta, np.empty((get_num_threads(), found.shape[1] + 1)), out)
    return out


@loop
def _ranks(found: Mask, given: Mask, eta: float, sums: NDArray[np.float64], out: Mask) -> None:
    n_worker = len(sums)
    for worker in prange(n_worker):
        for line in range(worker, len(found), n_worker):
            rank_line(found[line], given[line], eta, sums[worker], out[line])
