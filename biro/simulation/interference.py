"""Interference that a simulation adds: kinds of it in time and frequency, and which visibilities have it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import in_unit
from biro.distributed.blocks import Vis, Weight
from biro.errors import InputError
from biro.observation.observation import Observation
from biro.observation.partition import Partition

Array = NDArray[np.float64]
Kind = Callable[[np.random.Generator, int, int], Array]
STREAM = 2
"""Set beside the seed, so that the noise of a seed is the same with interference and without."""
FASTEST = 0.2
"""Most turns of a fringe of interference in an integration: transmitters do not follow the sky."""


def _line(rng: np.random.Generator, n_time: int, n_chan: int) -> Array:
    out = np.zeros((n_time, n_chan))
    out[:, rng.integers(n_chan)] = 1.0
    return out


def _lines(rng: np.random.Generator, n_time: int, n_chan: int) -> Array:
    out = np.zeros((n_time, n_chan))
    out[:, rng.choice(n_chan, max(1, n_chan // 50), replace=False)] = 1.0
    return out


def _band(rng: np.random.Generator, n_time: int, n_chan: int) -> Array:
    width = max(1, n_chan // 40)
    first = rng.integers(n_chan - width + 1)
    out = np.zeros((n_time, n_chan))
    out[:, first : first + width] = 1.0
    return out


def _comb(rng: np.random.Generator, n_time: int, n_chan: int) -> Array:
    out = np.zeros((n_time, n_chan))
    out[:, rng.integers(min(16, n_chan)) :: 16] = 1.0
    return out


def _on_and_off(rng: np.random.Generator, n_time: int) -> NDArray[np.bool_]:
    """A transmitter that is on in turns of 3 to 10 integrations, off as long on average."""
    turns = np.cumsum(rng.integers(3, 11, n_time))
    return np.asarray(np.searchsorted(turns, np.arange(n_time), side="right") % 2 == 0)


def _intermittent(steady: Kind) -> Kind:
    def make(rng: np.random.Generator, n_time: int, n_chan: int) -> Array:
        return steady(rng, n_time, n_chan) * _on_and_off(rng, n_time)[:, None]

    return make


def _drifting(steady: Kind) -> Kind:
    def make(rng: np.random.Generator, n_time: int, n_chan: int) -> Array:
        shift = np.round(rng.uniform(-0.5, 0.5) * np.arange(n_time)).astype(int)
        out = steady(rng, n_time, n_chan)
        return np.stack([np.roll(row, by) for row, by in zip(out, shift, strict=True)])

    return make


def _bursts(length: int, share: float, number: int) -> Kind:
    """Bursts of so many integrations, over a share of the band."""

    def make(rng: np.random.Generator, n_time: int, n_chan: int) -> Array:
        out = np.zeros((n_time, n_chan))
        for _ in range(number):
            width = max(1, round(share * n_chan))
            t, c = rng.integers(max(1, n_time - length + 1)), rng.integers(n_chan - width + 1)
            out[t : t + length, c : c + width] = 1.0
        return out

    return make


def _samples(rng: np.random.Generator, n_time: int, n_chan: int) -> Array:
    return (rng.random((n_time, n_chan)) < 1 / 64).astype(float)


def _power_law(rng: np.random.Generator, n_time: int, n_chan: int) -> Array:
    """Spots whose strengths s have the density s^-2 above 1, 100 at most."""
    out = np.zeros((n_time, n_chan))
    for _ in range(max(1, n_time * n_chan // 800)):
        t, c = rng.integers(n_time), rng.integers(n_chan)
        out[t : t + rng.integers(1, 5), c : c + rng.integers(1, 4)] = min(100.0, 1.0 / (1.0 - rng.random()))
    return out


KINDS: dict[str, Kind] = {
    "line": _line,
    "lines": _lines,
    "band": _band,
    "comb": _comb,
    "intermittent line": _intermittent(_line),
    "intermittent band": _intermittent(_band),
    "drifting line": _drifting(_line),
    "drifting band": _drifting(_band),
    "intermittent drifting line": _drifting(_intermittent(_line)),
    "burst": _bursts(1, 1.0, 1),
    "bursts": _bursts(1, 1.0, 3),
    "long burst": _bursts(4, 1.0, 1),
    "burst of half the band": _bursts(1, 0.5, 2),
    "samples": _samples,
    "power law": _power_law,
}
"""Strength by time and channel of each kind, in that which is asked for; 0 where there is none."""


@dataclass(frozen=True)
class Interference:
    """Interference of transmitters that are the same to all antennas.

    A baseline sees each kind with a phase of its own that turns evenly in time, alike in all correlations.

    Attributes
    ----------
    kinds : tuple of str
        Names of `KINDS`; several are added.
    strength : float, Jy, or text as "10 Jy"
        Amplitude in a visibility.

    Raises
    ------
    InputError
        An unknown kind, none, or a strength that is not positive.
    """

    kinds: tuple[str, ...]
    strength: float

    def __init__(self, kinds: Sequence[str], strength: float | str) -> None:
        object.__setattr__(self, "kinds", tuple(kinds))
        object.__setattr__(self, "strength", in_unit(strength, "Jy", "strength"))
        if not self.kinds or not 0.0 < self.strength < np.inf:
            raise InputError(f"interference needs kinds and a strength above 0 Jy, got {self.strength}")
        for kind in self.kinds:
            if kind not in KINDS:
                raise InputError(f"no kind of RFI {kind!r}; there are {', '.join(KINDS)}")

    def add(
        self, observation: Observation, seed: int | None = None
    ) -> tuple[Observation, tuple[NDArray[np.bool_], ...]]:
        """The observation with interference, and at which times and channels it is.

        Parameters
        ----------
        observation : Observation
        seed : int, optional
            The same seed gives the same interference.

        Returns
        -------
        Observation
        tuple of bool (n_time, n_chan)
            Of each partition: at which of its times, and in which channels, interference was added; it is
            there in all baselines and correlations.
        """
        rng = np.random.default_rng(None if seed is None else [seed, STREAM])
        both = [self._to_partition(part, rng) for part in observation.partitions]
        changed = replace(observation, partitions=tuple(part for part, _ in both))
        return changed, tuple(truth for _, truth in both)

    def _to_partition(self, part: Partition, rng: np.random.Generator) -> tuple[Partition, NDArray[np.bool_]]:
        pairs = np.stack([part.antenna1, part.antenna2])
        baselines, index = np.unique(pairs, axis=1, return_inverse=True)
        profiles, turns = [], []
        for kind in self.kinds:
            profiles.append(KINDS[kind](rng, len(part.times), part.n_chan))
            start, rate = rng.uniform([[0.0], [-FASTEST]], [[1.0], [FASTEST]], (2, baselines.shape[1]))
            turns.append(start[index.ravel()] + rate[index.ravel()] * part.time_index)
        of_blocks = []
        for own, *turned in zip(part.split(part.time_index), *map(part.split, turns), strict=True):
            times, time_index = np.unique(own, return_inverse=True)
            of_blocks.append((time_index, [each[times] for each in profiles], turned))
        changed, _ = part.replaced(_interfered, self.strength, each=of_blocks)
        return changed, np.any(np.stack(profiles) > 0.0, axis=0)


def _interfered(
    vis: Vis,
    weight: Weight,
    of_block: tuple[NDArray[np.int64], Sequence[Array], Sequence[Array]],
    strength: float,
) -> tuple[Vis, Weight, None]:
    """A block with interference: the time of each row, strengths by time and channel, turns of each row."""
    time_index, profiles, turns = of_block
    added = np.zeros(vis.shape[:2], np.complex128)
    for profile, turn in zip(profiles, turns, strict=True):
        added += strength * profile[time_index] * np.exp(2j * np.pi * turn)[:, None]
    return np.where(weight > 0, vis + added[:, :, None], 0.0).astype(vis.dtype), weight, None
