"""Small observations of KAT-7 that several benchmarks simulate and fit."""

from __future__ import annotations

from biro.models.files.toml import from_toml
from biro.observation.observation import Observation
from biro.simulation.simulator import Channels, Track, simulate


def observe(sky: str, noise: float, seed: int) -> Observation:
    """Simulate eight hours of KAT-7 at 1.8 GHz: 21 baselines at 12 times, one channel.

    Parameters
    ----------
    sky : str
        A model file without free parameters.
    noise : float
        Standard deviation of the real and of the imaginary part of a visibility, Jy.
    seed : int
    """
    return simulate(
        "KAT-7",
        from_toml(sky),
        phase_centre="05h00m00s -45d00m00s",
        times=Track("2026-03-01", 8 * 3600.0, 2400.0),
        channels=Channels(1.8e9, 1e6),
        noise=noise,
        seed=seed,
        backend="cpu",
    )
