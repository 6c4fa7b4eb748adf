"""The file in which a tempered run is kept: arrays, and nothing that is ever executed."""

from __future__ import annotations

import io
import json
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biro.errors import RunError
from biro.files.atomic import write_atomic
from biro.inference.samplers.tempering.ensemble import Ensemble
from biro.inference.samplers.tempering.moves import Moves
from biro.inference.target.checked import Target

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
FILE = "tempering.npz"
SAVE_EVERY, SAVE_SHARE = 5.0, 0.03
"""Seconds between writes, and the part of the time that they may take: what a kill can cost."""


@dataclass
class TemperedState:
    """A run after its warm-up: what it needs to go on, and its draws so far.

    Attributes
    ----------
    ensemble : Ensemble
    moves : Moves
    rng : Generator
    unit : list of float64 (n_walker, n_param)
        Draws of the posterior after each step.
    log_likelihood : list of float64 (n_rung, n_walker)
        Of the draws on all rungs.
    """

    ensemble: Ensemble
    moves: Moves
    rng: np.random.Generator
    unit: list[Array] = field(default_factory=list)
    log_likelihood: list[Array] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.unit)

    def keep(self) -> None:
        """Keep the draws where the walkers are now."""
        self.unit.append(self.ensemble.unit[-1].copy())
        self.log_likelihood.append(self.ensemble.log_likelihood.copy())


class TemperedStateFile:
    """Where the state of a run is kept.

    Parameters
    ----------
    path : path
    run_id : str
        Written into the file; the state of another run is refused.
    """

    def __init__(self, path: Path, run_id: str) -> None:
        self._path, self._run_id = path, run_id
        self._due, self._failed = time.monotonic() + SAVE_EVERY, False

    def read(self, target: Target, n_walker: int) -> TemperedState | None:
        """The state as saved; None when there is no file.

        Raises
        ------
        RunError
            It cannot be read, or is another run's.
        """
        if not self._path.exists():
            return None
        try:
            with np.load(self._path, allow_pickle=False) as file:
                if sum(item.file_size for item in file.zip.infolist()) > self._path.stat().st_size:
                    raise ValueError("it is compressed, or smaller than its header states")
                run_id = str(file["run_id"])
                ensemble = Ensemble(*(file[name] for name in Ensemble.names()))
                moves = Moves.of(file, target.wraps)
                unit, height = file["draws"], file["heights"]
                rng = np.random.default_rng()
                rng.bit_generator.state = json.loads(str(file["random_state"]))
        except Exception as error:  # numpy and zipfile raise many kinds about files that are damaged
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise RunError(f"{self._path} cannot be read ({reason}); remove it to start again") from None
        n_rung, n_param = len(ensemble.beta), target.n_param
        fits = ensemble.unit.shape == (n_rung, n_walker, n_param) and moves.archive.ndim == 3
        fits &= ensemble.log_likelihood.shape == ensemble.visited.shape == (n_rung, n_walker)
        fits &= ensemble.rejected.shape == ensemble.accepted.shape == (n_rung - 1,)
        fits &= moves.archive.shape[::2] == (n_rung - 1, n_param) and len(unit) == len(height)
        fits &= unit.shape[1:] == (n_walker, n_param) and height.shape[1:] == (n_rung, n_walker)
        if run_id != self._run_id or not fits:
            raise RunError(f"{self._path} holds another run's draws; remove it to start again")
        return TemperedState(ensemble, moves, rng, list(unit), list(height))

    @property
    def is_due(self) -> bool:
        """Whether it has not been written for a while, a longer one where that takes long."""
        return time.monotonic() >= self._due

    def save(self, state: TemperedState) -> None:
        """Write the state. A full disk is reported once and tried again."""
        begun, data, ensemble = time.monotonic(), io.BytesIO(), state.ensemble
        shape = ensemble.log_likelihood.shape
        np.savez(
            data,
            allow_pickle=False,
            run_id=np.array(self._run_id),
            random_state=np.array(json.dumps(state.rng.bit_generator.state)),
            draws=np.array(state.unit).reshape(-1, *ensemble.unit.shape[1:]),
            heights=np.array(state.log_likelihood).reshape(-1, *shape),
            **state.moves.arrays(),
            **{name: getattr(ensemble, name) for name in Ensemble.names()},
        )
        try:
            write_atomic(self._path, data.getbuffer())
        except OSError as error:
            if not self._failed:
                log.warning(
                    "%s cannot be written (%s); sampling continues in memory", self._path, error.strerror
                )
            self._failed = True
            return
        finally:
            ended = time.monotonic()
            self._due = ended + max(SAVE_EVERY, (ended - begun) / SAVE_SHARE)
        if self._failed:
            log.warning("%s can be written again", self._path)
        self._failed = False
