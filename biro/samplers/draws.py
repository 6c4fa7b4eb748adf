"""The draws of NUTS as they come, and the file that they are kept in."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.errors import RunError
from biro.run import write_atomic

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
FILE = "draws.npz"
SAVE_EVERY = 5.0
"""Seconds between writes of the draws; what a kill can cost."""
_ENOUGH_FOR_SCALE = 200
"""Draws that tell the scale of a coordinate to 5 %."""


class Progress(NamedTuple):
    """How far a run has come.

    Attributes
    ----------
    z : float64 (n_chain, n, n_dim)
        Draws that count, as many of each chain.
    last : float64 (n_chain or 0, n_dim)
        Where the chains are.
    n_tuned : int
        Draws for tuning that each chain has made.
    """

    z: Array
    last: Array
    n_tuned: int

    @classmethod
    def none(cls, n_chain: int, n_dim: int) -> Progress:
        return cls(np.empty((n_chain, 0, n_dim)), np.empty((0, n_dim)), 0)

    @property
    def scale(self) -> Array:
        """Of each coordinate, as far as the draws tell."""
        draws = self.z.reshape(-1, self.z.shape[2])
        return draws.std(axis=0) if len(draws) >= _ENOUGH_FOR_SCALE else np.ones(draws.shape[1])


class Draws:
    """The draws of all chains as they come.

    Parameters
    ----------
    n_tune : int
        Draws of each chain that do not count.
    before : Progress
        Of earlier processes of the run.
    """

    def __init__(self, n_tune: int, before: Progress) -> None:
        self._n_tune, self._before, self._scale = n_tune, before, before.scale
        self._new: list[list[Array]] = []
        self._frozen = False

    def freeze(self) -> None:
        """Take no more draws: those of chains that are not answered any more are none."""
        self._frozen = True

    def recorder(self) -> Callable[[Array], dict[str, Array]]:
        """A function for nutpie to call with each draw of a chain, those for tuning first."""
        chain: list[Array] = []
        self._new.append(chain)

        def record(scaled: Array) -> dict[str, Array]:
            if not self._frozen:
                chain.append(self._scale * scaled)
            return {}

        return record

    @property
    def n_step(self) -> int:
        """Draws of this process, tuning included."""
        return sum(map(len, self._new))

    def so_far(self) -> Progress:
        """With the draws of this process: as many of each chain as of the shortest."""
        before = self._before
        begun = [chain for chain in self._new if chain]  # more recorders are made than chains
        if len(begun) < len(before.z):
            return before
        chains = sorted(begun, key=lambda chain: chain[0].tolist())
        n = min(map(len, chains))
        new = np.array([chain[self._n_tune : max(n, self._n_tune)] for chain in chains])
        z = np.concatenate([before.z, new.reshape(len(chains), -1, before.z.shape[2])], axis=1)
        last = np.array([chain[n - 1] for chain in chains])
        return Progress(z, last, before.n_tuned + min(n, self._n_tune))


class DrawsFile:
    """Where the draws of a run are kept, with the coordinates that they are in.

    Parameters
    ----------
    path : path
    run_id : str
        Written into the file; draws of another run are refused.
    """

    def __init__(self, path: Path, run_id: str) -> None:
        self._path, self._run_id, self._saved = path, run_id, time.monotonic()
        self._failed = False

    def read(self, n_chain: int, n_dim: int) -> tuple[Array, Array, Progress] | None:
        """Middle and factor of the coordinates, and the draws in them; None when there are none.

        Raises
        ------
        RunError
            They cannot be read, or are another run's.
        """
        if not self._path.exists():
            return None
        try:
            with np.load(self._path, allow_pickle=False) as found:
                if sum(item.file_size for item in found.zip.infolist()) > self._path.stat().st_size:
                    raise ValueError("it is compressed, or says that it holds more than it has")
                z, middle, factor = found["z"], found["middle"], found["factor"]
                last, n_tuned, run_id = found["last"], int(found["n_tuned"]), str(found["run_id"])
        except Exception as error:  # numpy and zipfile raise many kinds about files that are damaged
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise RunError(f"{self._path} cannot be read ({reason}); remove it to begin again") from None
        shapes = middle.shape, factor.shape, z.shape[::2], last.shape[1:]
        if run_id != self._run_id or shapes != ((n_dim,), (n_dim, n_dim), (n_chain, n_dim), (n_dim,)):
            raise RunError(f"{self._path} holds another run's draws; remove it to begin again")
        return middle, factor, Progress(z, last, n_tuned)

    def save(self, middle: Array, factor: Array, draws: Draws, *, now: bool) -> None:
        """Write them, if they have not been for a while. A full disk is reported once and tried again."""
        if not now and time.monotonic() - self._saved < SAVE_EVERY:
            return
        self._saved, data = time.monotonic(), io.BytesIO()
        z, last, n_tuned = draws.so_far()
        np.savez(data, z=z, last=last, n_tuned=n_tuned, middle=middle, factor=factor, run_id=self._run_id)
        try:
            write_atomic(self._path, data.getvalue())
        except OSError as error:
            if not self._failed:
                log.warning("%s cannot be written (%s); sampling goes on in memory", self._path, error)
            self._failed = True
            return
        if self._failed:
            log.warning("%s is written again", self._path)
        self._failed = False
