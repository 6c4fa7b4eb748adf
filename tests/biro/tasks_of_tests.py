"""Tasks for the worker processes of SBC in tests, which import them by name: so they have a module."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

import biro
from biro.errors import LikelihoodError
from biro.models.files.toml import from_toml
from biro.simulation.simulator import Channels, Track, simulate

POINT = """
[noise]
factor = { prior = "log-uniform", low = 0.5, high = 2 }
[[source]]
name = "core"
type = "point"
east = "0 arcmin"
north = "0 arcmin"
I = { prior = "uniform", low = 1, high = 5, unit = "Jy" }
"""
LOBE = """
[[source]]
name = "lobe"
type = "gaussian"
east = "6 arcmin"
north = "-3 arcmin"
I = { prior = "uniform", low = 1, high = 5, unit = "Jy" }
emaj = { prior = "uniform", low = 1, high = 8, unit = "arcmin" }
ratio = 0.5
pa = "30 deg"
"""


def likelihood(text: str = POINT, noise: float = 1.0) -> biro.Likelihood:
    """KAT-7, three times, one channel: 252 visibilities, of a point whatever the model."""
    observation = simulate(
        "KAT-7",
        from_toml(POINT),
        phase_centre="05h00m00s -45d00m00s",
        times=Track("2026-03-01", 6 * 3600.0, 7200.0),
        channels=Channels(1.3e9, 2e8, 1),
        noise=noise,
        seed=1,
        values={"core.I": 1.0},
        backend="cpu",
    )
    return biro.Likelihood(observation, from_toml(text), backend="cpu")


def too_much_weight(observation: biro.Observation) -> biro.Likelihood:
    """A fit whose weights are twice what they should be."""
    parts = tuple(replace(part, weight=2 * part.weight) for part in observation.partitions)
    return biro.Likelihood(replace(observation, partitions=parts), from_toml(POINT), backend="cpu")


def square(k: int) -> dict:
    return {"replicate": k, "square": k * k, "process": os.getpid()}


def slow(k: int) -> dict:
    time.sleep(0.5)
    return square(k)


@dataclass(frozen=True)
class Lingers:
    """Says which process it is in, and takes a minute."""

    folder: Path

    def __call__(self, k: int) -> dict:
        (self.folder / str(os.getpid())).touch()
        time.sleep(60)
        return square(k)


def refuses(k: int) -> dict:
    raise LikelihoodError(f"not {k}")


@dataclass(frozen=True)
class DiesOnce:
    """Kills its own process at number 2, the first time only where `once`."""

    mark: Path
    once: bool

    def __call__(self, k: int) -> dict:
        if k == 2 and not (self.once and self.mark.exists()):
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return square(k)
