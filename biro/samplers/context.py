"""What every sampler gets besides the target and its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from biro.posterior.samples import Provenance
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
        Show bars on stderr (`biro.progress`).
    folder : Path or None
        Of the run directory; None where nothing is saved.
    run_id : str
        Name of the run, which files of its state carry.
    """

    provenance: Provenance
    stop: StopFlag
    progress: bool
    folder: Path | None = None
    run_id: str = ""
