"""What ranks say to each other: what rank 0 asks for, and what the others answer."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.errors import BackendError, BiroError
from rime_kernels.arrays import Sources
from rime_kernels.choices import Backend
from rime_kernels.engine.device_threads import Devices
from rime_kernels.engine.local_shards import ShardCall
from rime_kernels.engine.sharded import OnShardDone
from rime_kernels.jones_beam import JonesBeam

_CONSTANT = ("coefficient", "grid", "antenna_class", "angle", "feed_angle")
"""Arrays of a `JonesBeam` that are the same in all calls of a likelihood, and may be large."""


class PrepareEngine(NamedTuple):
    """Make room for the shards of an engine on devices of a rank; it answers with a `FoundDevices`."""

    engine: int
    backend: Backend
    devices: Devices | None


class FoundDevices(NamedTuple):
    """The backend that a rank has found, and its devices: name and kind of each."""

    backend: str
    names: list[str]
    kinds: list[str]


class AddShard(NamedTuple):
    """A shard for a device of one rank, which receives its recipe; it answers when the engine is made."""

    engine: int
    rank: int
    device: int
    n_engine: int


class ComputeShards(NamedTuple):
    """A call on all shards of an engine; each rank that holds some answers with their results.

    `constant` are the arrays that `lean` has taken out of the sources; None where they are those of the call
    before. With `has_given`, each rank receives the arguments of its shards. `end` is done with the result of
    each shard, and its number among those of the rank.
    """

    engine: int
    call: ShardCall
    constant: tuple[NDArray[Any], ...] | None
    has_given: bool
    end: OnShardDone | None = None


class CallFunction(NamedTuple):
    """Call a function of a module; each rank answers with what it gives.

    With `has_given`, each rank receives an argument of its own, which comes first. With `to`, one rank alone
    does it.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    has_given: bool = False
    to: int | None = None


class EndRanks(NamedTuple):
    """Rank 0 is done."""


Request = PrepareEngine | AddShard | ComputeShards | CallFunction | EndRanks


@dataclass(frozen=True)
class Envelope:
    """A request, the number that its answers have, and what rank 0 needs no longer: engines, partitions."""

    request: Request
    ticket: int
    dropped: tuple[int, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What a rank has found, or why it could not: of another rank than 0 a `BiroError`."""

    value: Any = None
    failure: BaseException | None = field(default=None)


def failure_of(error: Exception, where: str) -> BiroError:
    """What rank 0 is to raise for an error of another rank, in one line that names the rank.

    Errors that biro raises on purpose keep their class; others are taken for failures of the machine, and say
    where they come from.
    """
    if isinstance(error, BiroError):
        return type(error)(f"{where}: {error}")
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return BackendError(f"{where}: {type(error).__name__}: {error}{place}")


def lean(sources: Sources) -> tuple[Sources, tuple[NDArray[Any], ...]]:
    """The sources without the large arrays of their beam that are the same in all calls, and these arrays."""
    beam = sources.beam
    if not isinstance(beam, JonesBeam):
        return sources, ()
    constant = tuple(getattr(beam, name) for name in _CONSTANT)
    return _with_arrays(sources, beam, [array[:0] for array in constant]), constant


def whole(sources: Sources, constant: Sequence[NDArray[Any]]) -> Sources:
    """The sources with the arrays that `lean` has taken out."""
    return _with_arrays(sources, sources.beam, constant) if isinstance(sources.beam, JonesBeam) else sources


def _with_arrays(sources: Sources, beam: JonesBeam, arrays: Sequence[NDArray[Any]]) -> Sources:
    new, other = copy.copy(sources), copy.copy(beam)
    for name, array in zip(_CONSTANT, arrays, strict=True):
        object.__setattr__(other, name, np.asarray(array))
    object.__setattr__(new, "beam", other)
    return new
