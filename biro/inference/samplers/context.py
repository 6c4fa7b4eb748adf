"""What every sampler gets besides the target and its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biro.inference.maximum.maximum import STARTS
from biro.inference.posterior.samples import Provenance
from biro.run.interrupt import StopFlag


@dataclass(frozen=True)
class RunContext:
    """Where a run of a sampler comes from, where its state goes, and what ends it.

    Attributes
    ----------
    provenance : Provenance
        Sampler, seed, resolved options and digests; it becomes that of the posterior.
    stop : StopFlag
        Set by the first signal: the sampler saves its state and ends.
    progress : bool
        Show bars on stderr (`biro.display.progress`).
    folder : Path or None
        Of the run directory; None where nothing is saved.
    run_id : str
        Name of the run, which files of its state carry.
    start : float64 (n_param,) or None
        The point that the climb to the maximum begins at; None: draws from the prior.
    """

    provenance: Provenance
    stop: StopFlag
    progress: bool
    folder: Path | None = None
    run_id: str = ""
    start: NDArray[np.float64] | None = None

    @property
    def starts(self) -> int | NDArray[np.float64]:
        """What `biro.maximise` starts from."""
        return STARTS if self.start is None else self.start[None]
