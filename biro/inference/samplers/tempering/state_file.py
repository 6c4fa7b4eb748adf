"""The file in which a tempered run is kept: arrays, and nothing that is ever executed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from biro.errors import RunError
from biro.inference.samplers.array_file import ArrayFile
from biro.inference.samplers.tempering.ensemble import Ensemble
from biro.inference.samplers.tempering.problem import Moves, Problem

Array = NDArray[np.float64]
FILE = "tempering.npz"


@dataclass
class TemperedState:
    """A run after its warm-up: what it needs to go on, and its draws so far.

    Attributes
    ----------
    ensemble : Ensemble
    moves : Moves
    rng : Generator
    draws : list of float64 (n_walker, n_row)
        Draws of the posterior after each step.
    log_likelihood : list of float64 (n_rung, n_walker)
        Of the draws on all rungs.
    """

    ensemble: Ensemble
    moves: Moves
    rng: np.random.Generator
    draws: list[Array] = field(default_factory=list)
    log_likelihood: list[Array] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.draws)

    def keep(self) -> None:
        """Keep the draws where the walkers are now."""
        self.draws.append(self.ensemble.rows[-1].copy())
        self.log_likelihood.append(self.ensemble.log_likelihood.copy())


class TemperedStateFile(ArrayFile):
    """Where the state of a run is kept.

    Parameters
    ----------
    path : path
    run_id : str
        Written into the file; the state of another run is refused.
    """

    def read(self, problem: Problem, n_walker: int) -> TemperedState | None:
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
                moves = problem.moves_of(file)
                draws, height = file["draws"], file["heights"]
                rng = np.random.default_rng()
                rng.bit_generator.state = json.loads(str(file["random_state"]))
        except Exception as error:  # numpy and zipfile raise many kinds about files that are damaged
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise RunError(f"{self._path} cannot be read ({reason}); remove it to start again") from None
        n_rung, shape = len(ensemble.beta), (n_walker, problem.n_row)
        fits = ensemble.rows.shape == (n_rung, *shape) and moves.n_rung == n_rung
        fits &= ensemble.log_likelihood.shape == ensemble.visited.shape == (n_rung, n_walker)
        fits &= ensemble.rejected.shape == ensemble.accepted.shape == (n_rung - 1,)
        fits &= draws.shape[1:] == shape and height.shape[1:] == (n_rung, n_walker)
        fits &= len(draws) == len(height)
        if run_id != self._run_id or not fits:
            raise RunError(f"{self._path} holds another run's draws; remove it to start again")
        return TemperedState(ensemble, moves, rng, list(draws), list(height))

    def save(self, state: TemperedState) -> None:
        """Write the state."""
        ensemble = state.ensemble
        self.write(
            {
                "random_state": np.array(json.dumps(state.rng.bit_generator.state)),
                "draws": np.array(state.draws).reshape(-1, *ensemble.rows.shape[1:]),
                "heights": np.array(state.log_likelihood).reshape(-1, *ensemble.log_likelihood.shape),
                **state.moves.arrays(),
                **{name: getattr(ensemble, name) for name in Ensemble.names()},
            }
        )
