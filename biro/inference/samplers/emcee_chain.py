"""The file that emcee's chain is appended to, which survives kill -9 and full disks.

    line 1    biro chain 1
    line 2    JSON: run_id, n_walker, n_param, centre
    blocks    number of steps (int64), SHA-256 of what follows, the steps, the random state after the last

A block that a kill or a full disk has cut short does not fit its SHA-256, and ends the chain: what was
saved before it is whole. Nothing in the file is ever executed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import time
from io import FileIO
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from emcee import State
from emcee.backends import Backend
from numpy.typing import NDArray

from biro.errors import RunError

log = logging.getLogger(__name__)

FILE = "chain.bin"
SAVE_EVERY = 1.0
"""Seconds between appends; what a kill can cost."""
_MAGIC = b"biro chain 1\n"
_COUNT, _DIGEST = 8, 32
_MAX_LINE = 1 << 20


class _ChainBlock(NamedTuple):
    """One block of the file.

    Attributes
    ----------
    steps : structured array (n_step,)
        Chain, log-posterior and log-likelihood of all walkers: `_step_type`.
    state : structured array ()
        The random state and the accepted moves after the last step: `_state_type`.
    """

    steps: NDArray[np.void]
    state: NDArray[np.void]


class ChainFile:
    """Appends the steps of an emcee backend, and the random state after the last, to a file.

    Steps repeat exactly from the random state, so a run that goes on has the chain that it would have had.

    Parameters
    ----------
    path : path
    run_id : str
        Written into the file; a chain of another run is refused.

    Attributes
    ----------
    centre : float64 (n_param,) or None
        Where the range of parameters that wrap is centred, set by who starts the chain.
    """

    def __init__(self, path: Path, run_id: str) -> None:
        self.path = path
        self.centre: NDArray[np.float64] | None = None
        self._run_id = run_id
        self._n_saved = self._end = 0  # steps in the file, and where the last whole block ends
        self._last_save = time.monotonic()
        self._failed = False

    def restore(self) -> Backend | None:
        """The chain as it was saved, or None when no step was.

        Raises
        ------
        RunError
            The file is no chain, or that of another run.
        """
        earlier = self.path.with_suffix(".h5")
        if earlier.exists() and not self.path.exists():
            raise RunError(
                f"{earlier} is from an earlier version of biro; finish it with that version, or give "
                "another directory"
            )
        try:
            with open(self.path, "rb") as file:
                return self._read(file)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise RunError(
                f"{self.path} cannot be read ({error}); delete it to start again, or give another directory"
            ) from error

    def append(self, backend: Backend, *, now: bool = False) -> None:
        """Save new steps if it is time to, or `now`. A full disk is reported once and tried again."""
        if backend.iteration == self._n_saved or not (now or time.monotonic() - self._last_save > SAVE_EVERY):
            return
        self._last_save = time.monotonic()
        try:
            self._write(backend)
        except OSError as error:
            if not self._failed:
                log.warning(
                    "%s cannot be written (%s); sampling continues in memory", self.path, error.strerror
                )
            self._failed = True
            return
        if self._failed:
            log.warning("%s can be written again", self.path)
        self._failed = False

    def _write(self, backend: Backend) -> None:
        if not self.path.exists():  # or no more: whole again
            self._n_saved = self._end = 0
        data = _block(backend, self._n_saved)
        if not self._end:
            data = self._head(backend) + data
        with open(os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644), "wb", buffering=0) as file:
            file.truncate(self._end)
            file.seek(self._end)
            try:
                _write_all(file, data)
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(self._end)
                raise
        self._n_saved, self._end = backend.iteration, self._end + len(data)

    def _head(self, backend: Backend) -> bytes:
        assert self.centre is not None
        n_walker, n_param = backend.shape
        about = {"run_id": self._run_id, "n_walker": n_walker, "n_param": n_param}
        return _MAGIC + json.dumps({**about, "centre": self.centre.tolist()}).encode() + b"\n"

    def _read(self, file: IO[bytes]) -> Backend | None:
        magic, line = file.readline(len(_MAGIC)), file.readline(_MAX_LINE)
        if not line.endswith(b"\n") and _MAGIC.startswith(magic):
            return None  # killed while it was begun
        if magic != _MAGIC:
            raise ValueError("not a chain")
        about = json.loads(line)
        if about["run_id"] != self._run_id:
            raise RunError(f"{self.path} belongs to another run; start again in another directory")
        shape = int(about["n_walker"]), int(about["n_param"])
        centre = np.array(about["centre"], dtype=np.float64)
        if centre.shape != shape[1:]:
            raise ValueError("the centre in its second line has the wrong shape")
        size, blocks = os.fstat(file.fileno()).st_size, []
        self._end = file.tell()
        while (block := _read_block(file, size, *shape)) is not None:
            blocks.append(block)
            self._end = file.tell()
        if size > self._end:
            log.warning(
                "%s: ignoring the last %d bytes, an incomplete block",
                self.path.name,
                size - self._end,
            )
        if not blocks:
            self._end = 0
            return None
        self.centre = centre
        backend = _backend(np.concatenate([block.steps for block in blocks]), blocks[-1].state, shape)
        self._n_saved = backend.iteration
        return backend


def last_state(backend: Backend) -> State:
    """State that the chain goes on from."""
    n = backend.iteration - 1
    return State(
        backend.chain[n],
        log_prob=backend.log_prob[n],
        blobs=backend.blobs[n],
        random_state=backend.random_state,
        copy=True,
    )


def _step_type(n_walker: int, n_param: int) -> np.dtype[np.void]:
    return np.dtype(
        [
            ("chain", "<f8", (n_walker, n_param)),
            ("log_prob", "<f8", (n_walker,)),
            ("log_likelihood", "<f8", (n_walker,)),
        ]
    )


def _state_type(n_walker: int) -> np.dtype[np.void]:
    return np.dtype(
        [
            ("key", "<u4", (624,)),
            ("position", "<i8"),
            ("has_gauss", "<i8"),
            ("gauss", "<f8"),
            ("accepted", "<f8", (n_walker,)),
        ]
    )


def _block(backend: Backend, first: int) -> bytes:
    """Steps from `first` on, and the state after the last."""
    n_walker, n_param = backend.shape
    steps = np.empty(backend.iteration - first, _step_type(n_walker, n_param))
    state = np.empty((), _state_type(n_walker))
    new = slice(first, backend.iteration)
    steps["chain"], steps["log_prob"] = backend.chain[new], backend.log_prob[new]
    steps["log_likelihood"] = backend.blobs[new]
    _, state["key"], state["position"], state["has_gauss"], state["gauss"] = backend.random_state
    state["accepted"] = backend.accepted
    count, body = len(steps).to_bytes(_COUNT, "little"), steps.tobytes() + state.tobytes()
    return count + hashlib.sha256(count + body).digest() + body


def _read_block(file: IO[bytes], size: int, n_walker: int, n_param: int) -> _ChainBlock | None:
    """The next block; None where there is no whole one."""
    step, state = _step_type(n_walker, n_param), _state_type(n_walker)
    count, digest = file.read(_COUNT), file.read(_DIGEST)
    n_step = int.from_bytes(count, "little")
    n_byte = n_step * step.itemsize + state.itemsize
    if not n_step or len(digest) < _DIGEST or n_byte > size - file.tell():
        return None
    body = file.read(n_byte)
    if hashlib.sha256(count + body).digest() != digest:
        return None
    steps = np.frombuffer(body[: -state.itemsize], step)
    return _ChainBlock(steps, np.frombuffer(body[-state.itemsize :], state).reshape(()))


def _backend(steps: NDArray[np.void], state: NDArray[np.void], shape: tuple[int, int]) -> Backend:
    backend = Backend()
    backend.reset(*shape)
    backend.chain, backend.log_prob, backend.blobs = (
        np.ascontiguousarray(steps[name]) for name in ("chain", "log_prob", "log_likelihood")
    )
    counters = int(state["position"]), int(state["has_gauss"]), float(state["gauss"])
    backend.random_state = ("MT19937", state["key"].astype(np.uint32), *counters)
    backend.iteration, backend.accepted = len(steps), state["accepted"].astype(np.float64)
    backend.initialized = True
    return backend


def _write_all(file: FileIO, data: bytes) -> None:
    """Write all of the data, or raise OSError: before a disk is full, one call may write a part."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
