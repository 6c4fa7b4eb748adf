"""The file that an ensemble's chain grows in: HDF5, appended to now and then, safe against kill -9."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from emcee import State
from emcee.backends import Backend
from numpy.typing import NDArray

from biro.errors import RunError

log = logging.getLogger(__name__)

SAVE_EVERY = 1.0
"""Seconds between appends; what a kill can cost."""
BACKUP_EVERY = 60.0
"""Seconds between copies of the file."""
_SPARE = 4 << 20
"""Bytes that must stay free: HDF5 grows a file by whole chunks, and needs some to close it."""


class ChainFile:
    """Appends the steps of an emcee backend, and the random state after the last, to an HDF5 file.

    A run that is killed while a write is under way may leave a file that HDF5 cannot open; a
    copy not older than `BACKUP_EVERY` seconds is then used. Steps repeat exactly from the random
    state, so nothing but time is lost.

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
        self._backup = path.with_suffix(".bak.h5")
        self._run_id = run_id
        self._n_saved = 0
        self._last_save = self._last_backup = time.monotonic()
        self._failed = False

    def restore(self) -> Backend | None:
        """The chain as it was saved, or None when there is none.

        Raises
        ------
        RunError
            There is one, but neither it nor its copy can be read, or it belongs to another run.
        """
        errors = []
        for path in (self.path, self._backup):
            if not path.exists():
                continue
            try:
                backend = self._read(path)
            except (OSError, KeyError, ValueError) as error:
                errors.append(f"{path.name}: {error}")
                continue
            if path == self._backup:
                shutil.copyfile(path, self.path)
                log.warning(
                    "%s was broken; going on from its copy (step %d)", self.path.name, backend.iteration
                )
            self._n_saved = backend.iteration
            return backend
        if errors:
            raise RunError(f"the chain cannot be read ({'; '.join(errors)}); start anew in another directory")
        return None

    def append(self, backend: Backend, *, now: bool = False) -> None:
        """Save new steps if it is time to, or `now`. A full disk is reported once and tried again."""
        if backend.iteration == self._n_saved or not (now or time.monotonic() - self._last_save > SAVE_EVERY):
            return
        self._last_save = time.monotonic()
        try:
            self._require_room(backend)
            self._write(backend)
            self._copy()
        except OSError as error:
            if not self._failed:
                log.warning("%s cannot be written (%s); sampling goes on in memory", self.path, error)
            self._failed = True
            return
        if self._failed:
            log.warning("%s is written again", self.path)
        self._failed = False
        self._n_saved = backend.iteration

    def _require_room(self, backend: Backend) -> None:
        """Refuse before HDF5 meets the end of the disk: it can neither close such a file nor end cleanly."""
        n_step = backend.iteration - self._n_saved
        need = _SPARE + sum(n_step * data[0].nbytes for data in _arrays(backend).values())
        if shutil.disk_usage(self.path.parent).free < need:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _copy(self) -> None:
        if time.monotonic() - self._last_backup > BACKUP_EVERY:
            temporary = self._backup.with_suffix(".tmp")
            shutil.copyfile(self.path, temporary)
            os.replace(temporary, self._backup)
            self._last_backup = time.monotonic()

    def _write(self, backend: Backend) -> None:
        n_step = backend.iteration
        with h5py.File(self.path, "a") as file:
            if "chain" not in file:
                file.attrs["run_id"] = self._run_id
                file.attrs["centre"] = self.centre
                for name, data in _arrays(backend).items():
                    file.create_dataset(
                        name, (0, *data.shape[1:]), maxshape=(None, *data.shape[1:]), dtype="f8"
                    )
            for name, data in _arrays(backend).items():
                file[name].resize(n_step, axis=0)
                file[name][self._n_saved :] = data[self._n_saved : n_step]
            _, key, position, has_gauss, gauss = backend.random_state
            file.attrs.update(rng_key=key, rng_position=position, rng_has_gauss=has_gauss, rng_gauss=gauss)
            file.attrs["accepted"] = backend.accepted
            file.attrs["n_step"] = n_step

    def _read(self, path: Path) -> Backend:
        with h5py.File(path, "r") as file:
            if file.attrs["run_id"] != self._run_id:
                raise RunError(f"{path} belongs to another run; start anew in another directory")
            n_step = int(file.attrs["n_step"])
            chain, log_prob, blobs = (file[name][:n_step] for name in ("chain", "log_prob", "log_likelihood"))
            self.centre = np.asarray(file.attrs["centre"], dtype=np.float64)
            accepted, random_state = file.attrs["accepted"], _random_state(file.attrs)
        if not (len(chain) == len(log_prob) == len(blobs) == n_step > 0):
            raise ValueError("its arrays are shorter than it says")
        backend = Backend()
        backend.reset(*chain.shape[1:])
        backend.chain, backend.log_prob, backend.blobs = chain, log_prob, blobs
        backend.iteration, backend.accepted, backend.random_state = n_step, accepted, random_state
        backend.initialized = True
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


def _arrays(backend: Backend) -> Mapping[str, Any]:
    return {"chain": backend.chain, "log_prob": backend.log_prob, "log_likelihood": backend.blobs}


def _random_state(attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    key = np.asarray(attributes["rng_key"], dtype=np.uint32)
    counters = (int(attributes["rng_position"]), int(attributes["rng_has_gauss"]))
    return ("MT19937", key, *counters, float(attributes["rng_gauss"]))
