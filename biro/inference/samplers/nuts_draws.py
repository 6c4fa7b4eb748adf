"""The draws of NUTS as they come from nutpie's threads, and the file in which they are kept."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from biro.errors import RunError
from biro.inference.samplers.array_file import ArrayFile
from biro.inference.samplers.coordinates.whitened import WhitenedFrame

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
FILE = "draws.npz"
RECORDER = "recorder"
"""The variable by which nutpie's traces and recorders find each other."""
STATS = np.dtype([(name, np.float64) for name in ("energy", "diverging", "outside", "depth", "step_size")])
"""Statistics of each draw, from nutpie; `outside`: its trajectory ended where the density is zero."""
# nutpie has no types.
Trace: TypeAlias = Any
_ROOM = 64
"""Draws of a chain for which there is room at first."""
_MEET = 10.0
"""Seconds that a chain waits for all others to begin; then it begins without them."""
_ENOUGH_FOR_SCALE = 200
"""Draws that tell the scale of a coordinate to 5 %."""


class NutsProgress(NamedTuple):
    """How far a run has come, in all of its processes.

    Attributes
    ----------
    z : float64 (n_chain, n, n_dim)
        Draws that count, as many of each chain.
    stats : STATS (n_chain, n)
        Of these draws.
    last : float64 (n_chain or 0, n_dim)
        Where the chains are, or begin.
    scale : float64 (n_dim,)
        Of each coordinate, as far as the draws tell.
    n_tuned : int
        Draws for tuning that each chain has made.
    n_gradient : int
        Gradients asked for.
    """

    z: Array
    stats: NDArray[np.void]
    last: Array
    scale: Array
    n_tuned: int
    n_gradient: int

    @classmethod
    def none(cls, n_chain: int, n_dim: int) -> NutsProgress:
        return cls(
            np.empty((n_chain, 0, n_dim)),
            np.empty((n_chain, 0), STATS),
            np.empty((0, n_dim)),
            np.ones(n_dim),
            n_tuned=0,
            n_gradient=0,
        )


class _Chain:
    """One chain of this process: its index in the run, its draws and their statistics."""

    def __init__(self) -> None:
        self.index = 0
        self.stats = np.empty(0, STATS)
        self._rows, self._n = np.empty((0, 0)), 0

    def __len__(self) -> int:
        return self._n

    @property
    def z(self) -> Array:
        """Its draws, float64 (n, n_dim), for any thread to read."""
        n = self._n  # rows have at least as many
        return self._rows[:n]

    def add(self, z: Array) -> None:
        """One more draw."""
        if self._n == len(self._rows):
            more = np.empty((max(_ROOM, self._n), z.size))
            self._rows = np.concatenate([self._rows.reshape(-1, z.size), more])
        self._rows[self._n] = z
        self._n += 1


class NutsDraws:
    """The draws of all chains as they come.

    Parameters
    ----------
    n_tune : int
        Draws of each chain that do not count.
    before : NutsProgress
        Of earlier processes of the run.
    """

    def __init__(self, n_tune: int, before: NutsProgress) -> None:
        self._n_tune, self._before = n_tune, before
        self._new: list[_Chain] = []
        # By thread: nutpie's are not Python's, which forgets their `threading.local` after each call.
        self._seed_of_thread: dict[int, int] = {}
        self._index_of_thread: dict[int, int] = {}
        self._lock = threading.Lock()
        self._all_begun = threading.Barrier(max(1, len(before.last)))
        self._n_gradient, self._frozen = 0, False

    def freeze(self) -> None:
        """Take no more draws, because chains go on after the gate has stopped answering."""
        self._frozen = True

    def begin(self, seed: object) -> Array | None:
        """Where a chain is to begin or to go on; None where nothing says so.

        Chains are numbered by the seeds that nutpie gives them, whichever thread is the first: so that a run
        can be repeated, each waits until all have begun.
        """
        if not len(self._before.last):
            return None
        thread = threading.get_ident()
        if thread not in self._seed_of_thread:
            with self._lock:
                self._seed_of_thread[thread] = int(str(seed))
            with contextlib.suppress(threading.BrokenBarrierError):
                self._all_begun.wait(timeout=_MEET)
            with self._lock:
                before = sum(other < self._seed_of_thread[thread] for other in self._seed_of_thread.values())
                # Where some did not come in time, a later one may find the same number as an earlier one.
                free = set(range(len(self._before.last))) - set(self._index_of_thread.values())
                self._index_of_thread[thread] = before if before in free or not free else min(free)
        return np.asarray(self._before.last[self._index_of_thread[thread]])

    @property
    def index(self) -> int:
        """The index in the run of the chain whose thread this is."""
        return self._index_of_thread.get(threading.get_ident(), 0)

    def recorder(self) -> Callable[[Array], dict[str, Array]]:
        """A function for nutpie to call with each draw of a chain, those for tuning first, in its thread."""
        chain = _Chain()
        self._new.append(chain)
        number = np.array(float(self._new.index(chain)))

        def record(scaled: Array) -> dict[str, Array]:
            if not self._frozen:
                chain.index = self.index
                chain.add(self._before.scale * scaled)
            return {RECORDER: number}

        return record

    def look(self, trace: Trace, n_gradient: int) -> None:
        """Take the statistics of the draws so far from a trace of nutpie, and the number of gradients."""
        self._n_gradient = n_gradient
        for draws, statistics in zip(*trace.get_arrow_trace(), strict=True):
            if not statistics.num_rows:
                continue
            stats = np.empty(statistics.num_rows, STATS)
            for name in ("energy", "depth", "step_size"):
                stats[name] = statistics.column(name).to_numpy()
            ended = np.array(statistics.column("diverging").to_pylist())
            # A call that raises has no end of which the energy could be off.
            no_end = [end is None for end in statistics.column("divergence_end").to_pylist()]
            stats["outside"], stats["diverging"] = ended & no_end, ended & ~np.array(no_end)
            self._new[int(draws.column(RECORDER).to_numpy()[0])].stats = stats

    @property
    def n_step(self) -> int:
        """Draws of this process, tuning included."""
        return sum(map(len, self._new))

    def progress_state(self) -> NutsProgress:
        """With the draws of this process at the last `look`: as many of each chain as of the shortest."""
        before = self._before
        n_chain, _, n_dim = before.z.shape
        begun = [chain for chain in self._new if len(chain)]  # more recorders are made than chains
        n = min((min(len(chain), len(chain.stats)) for chain in begun), default=0)
        if len(begun) < n_chain or not n:
            return before
        chains = sorted(begun, key=lambda chain: (chain.index, chain.z[0].tolist()))
        first = min(self._n_tune, n)
        z = np.stack([chain.z[first:n] for chain in chains])
        if before.z.size:
            z = np.concatenate([before.z, z], axis=1)
        # While there are too few draws after tuning, the second half of all draws of this process is used.
        recent = z if z[..., 0].size >= _ENOUGH_FOR_SCALE else np.array([c.z[n // 2 : n] for c in chains])
        recent = recent.reshape(-1, n_dim)
        return NutsProgress(
            z,
            np.concatenate([before.stats, [chain.stats[first:n] for chain in chains]], axis=1),
            last=np.array([chain.z[n - 1] for chain in chains]),
            scale=recent.std(axis=0) if len(recent) >= _ENOUGH_FOR_SCALE else before.scale,
            n_tuned=before.n_tuned + first,
            n_gradient=before.n_gradient + self._n_gradient,
        )


class NutsDrawsFile(ArrayFile):
    """Where the draws of a run are kept, with the coordinates that they are in.

    Parameters
    ----------
    path : path
    run_id : str
        Written into the file; draws of another run are refused.
    """

    def read(self, n_chain: int, n_dim: int) -> tuple[WhitenedFrame, NutsProgress] | None:
        """The frame of the coordinates, and the draws in them; None when there are none.

        There may be more chains than `n_chain`: one at least in each mode.

        Raises
        ------
        RunError
            They cannot be read, or are another run's.
        """
        if not self._path.exists():
            return None
        try:
            with np.load(self._path, allow_pickle=False) as file:
                if sum(item.file_size for item in file.zip.infolist()) > self._path.stat().st_size:
                    raise ValueError("it is compressed, or smaller than its header states")
                z, stats, last, scale = (file[name] for name in ("z", "stats", "last", "scale"))
                before = NutsProgress(z, stats, last, scale, int(file["n_tuned"]), int(file["n_gradient"]))
                frame, run_id = WhitenedFrame.of(file), str(file["run_id"])
                if before.stats.dtype != STATS:
                    raise ValueError("it was written by another version of biro")
        except Exception as error:  # numpy and zipfile raise many kinds about files that are damaged
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise RunError(f"{self._path} cannot be read ({reason}); remove it to start again") from None
        fits = {of.shape for of in (frame.middle, frame.form, frame.partner, before.scale)} == {(n_dim,)}
        fits &= frame.factor.shape in ((n_dim, n_dim), (0, 0))  # the latter where it is that by segments
        fits &= len(before.z) >= n_chain and before.z.shape[2:] == (n_dim,)
        fits &= before.stats.shape == before.z.shape[:2]
        fits &= before.last.shape in ((0, n_dim), (len(before.z), n_dim))
        if run_id != self._run_id or not fits:
            raise RunError(f"{self._path} holds another run's draws; remove it to start again")
        return frame, before

    def save(self, frame: WhitenedFrame, draws: NutsDraws) -> None:
        """Write them."""
        self.write({**draws.progress_state()._asdict(), **frame.arrays()})
