"""The engine of a `Rime` whose rows several devices share, each with shards of whole time slots.

Sources go to every device, of this process and of others. Each shard gives its chi2 and derivatives, and
these are added here in the order of the shards: the result is the same to the bit for any number of devices
and processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rime_kernels.adjoint import Adjoint, plus
from rime_kernels.arrays import Sources
from rime_kernels.arrays.row_cells import RowCells
from rime_kernels.choices import Backend
from rime_kernels.engine import Visibilities
from rime_kernels.engine.device_threads import Devices
from rime_kernels.engine.local_shards import DeviceWorker, EngineRecipe, LocalShards, Part, ShardCall
from rime_kernels.engine.shards import Index, rows_of, shard_bounds, shared_out, table_of
from rime_kernels.geometry import RowTable
from rime_kernels.inputs import Constants, Output

OnShardDone: TypeAlias = Callable[[int, Any], Any]
"""What is done with the result of a shard where it was found, and its number among those of the process."""


class FarShards(Protocol):
    """The shards of one engine that other processes hold, in the order of their devices.

    Attributes
    ----------
    names : sequence of str
        Of the devices of the other processes, as plans call them.
    """

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def processes(self) -> Sequence[int]:
        """The number of the process of each device; this process is 0."""
        ...

    def add(self, device: int, recipe: EngineRecipe, n_engine: int) -> None:
        """Make the engine of one more shard on a device."""
        ...

    def start(
        self, call: ShardCall, given: Sequence[Any] | None = None, end: OnShardDone | None = None
    ) -> Callable[[], list[Any]]:
        """Begin a call on all shards; the function returned waits for the results, in the order of shards.

        `end` is done in each process with the number of a shard among its own, and the result of it; what it
        returns comes back in the place of that.
        """
        ...


class Team(NamedTuple):
    """What shares the rows of a `Rime`: devices of this process first, then those of others."""

    workers: Sequence[DeviceWorker]
    far: FarShards | None = None


class Ranks(Protocol):
    """Processes that share rows: this one, and others that do what it asks for."""

    def team(self, asked: Backend, backend: str, devices: Devices | None) -> Team:
        """The devices of all ranks for a backend that was asked for and that found here, for a new engine.

        Raises
        ------
        BackendError
            A rank that has another backend than this one, or devices of another kind.
        """
        ...

    def check_alike(self, asked: Backend) -> None:
        """Refuse ranks of which `team` would refuse one."""
        ...


class DataOf(Protocol):
    """Gives vis and weight of a shard in the process that holds them, to which it can be sent."""

    def __call__(self) -> tuple[NDArray[np.complexfloating], NDArray[np.floating]]:
        """Both (n_row of the shard, n_chan, n_corr), rows in the order of time."""
        ...


class HeldData(Protocol):
    """Data and weights of which each process holds those of its shards."""

    @property
    def shares(self) -> Sequence[Sequence[int]]:
        """Numbers of the shards of each process, this one first; neighbours together."""
        ...

    def of(self, shard: int) -> DataOf | None:
        """What gives the data of a shard; None where there are none."""
        ...


class ShardShares(NamedTuple):
    """Says which process works on which shards, where there are no data: a `HeldData`."""

    shares: Sequence[Sequence[int]]

    def of(self, shard: int) -> None:
        """There are no data."""


class MakeRecipe(Protocol):
    """Makes what the shard of some rows is made from."""

    def __call__(
        self, rows: Index, fixed: Constants, table: RowTable, data: DataOf | None, /
    ) -> EngineRecipe:
        """`rows` are their numbers among all; `data` takes the place of those in `fixed`."""
        ...


class ShardedEngine:
    """An engine of several shards: see the protocol `rime_kernels.engine.Engine`.

    Parameters
    ----------
    recipe_of : MakeRecipe
    team : Team
    fixed : Constants
        Of all rows.
    table : RowTable
    held : HeldData, optional
        Where data and weights are not in `fixed`; or `ShardShares`.
    """

    def __init__(
        self,
        recipe_of: MakeRecipe,
        team: Team,
        fixed: Constants,
        table: RowTable,
        held: HeldData | None = None,
    ) -> None:
        self._shape = fixed.uvw.shape[0], fixed.chan_freq.size, fixed.matrix.shape[0]
        self._complex = fixed.matrix.dtype.type
        bounds, n_here = shard_bounds(table), len(team.workers)
        self._names = [worker.name for worker in team.workers] + list(team.far.names if team.far else ())
        self._shares = _shares(bounds, team, held)
        self._rows = [table.order[start:stop] for start, stop in pairwise(bounds)]
        self.local_shards, self._far = LocalShards(team.workers), team.far
        self._n_here = sum(map(len, self._shares[:n_here]))
        for device, numbers in enumerate(self._shares):
            for number in numbers:
                some = rows_of(fixed, self._rows[number])
                data = None if held is None else held.of(number)
                recipe = recipe_of(self._rows[number], some, table_of(some, len(table.slot_start)), data)
                if device < n_here:
                    self.local_shards.add(device, recipe, len(numbers))
                elif self._far is not None:
                    self._far.add(device - n_here, recipe, len(numbers))

    def run(self, sources: Sources, output: Output) -> Visibilities:
        """V, residual or weighted square, (n_batch, n_row, n_chan, n_corr)."""
        kind = np.float64 if output is Output.WEIGHTED else self._complex
        result: Visibilities = np.empty((sources.n_batch, *self._shape), kind)

        def fill(number: int, found: Visibilities) -> None:
            result[:, self._rows[number]] = found

        for number, found in enumerate(self._start(ShardCall("run", sources, output), end=fill)()):
            if found is not None:
                fill(number, found)
        return result

    def run_sharded(self, sources: Sources, on_shard_done: OnShardDone) -> None:
        """V of a batch of one, of which each process keeps those of its shards; see
        `Rime.predict_sharded`.
        """
        self._start(ShardCall("run", sources), end=on_shard_done, far_end=on_shard_done)()

    def run_some(self, sources: Sources, rows: Index, channels: slice) -> Visibilities:
        """V of some rows, which differ from each other, and some channels."""
        place = np.full(self._shape[0], -1)
        place[rows] = np.arange(rows.size)
        wanted = [np.flatnonzero(place[own] >= 0) for own in self._rows]
        n_chan = len(range(self._shape[1])[channels])
        result: Visibilities = np.empty((sources.n_batch, rows.size, n_chan, self._shape[2]), self._complex)
        parts = self.by_shard(ShardCall("run", sources), [Part(which, channels) for which in wanted])
        for own, which, part in zip(self._rows, wanted, parts, strict=True):
            if part is not None:
                result[:, place[own[which]]] = part
        return result

    def of_shards(self, values: NDArray[Any], axis: int = 0) -> list[NDArray[Any]]:
        """An array with an axis of rows, in parts that belong to the shards."""
        return [np.take(values, rows, axis) for rows in self._rows]

    def by_shard(self, call: ShardCall, given: Sequence[Any] | None = None) -> list[Any]:
        """The results of all shards, in their order; `given` are their own arguments (`ShardCall`)."""
        return self._start(call, given)()

    def start_chi2(
        self, sources: Sources, scaled_dof: NDArray[np.float64] | None
    ) -> Callable[[], NDArray[np.float64]]:
        """Begin to compute chi2, or the sum of logarithms, (n_batch,); the function returned waits for it."""
        wait = self._start(ShardCall("chi2", sources, scaled_dof=scaled_dof))

        def finish() -> NDArray[np.float64]:
            total = np.zeros(sources.n_batch)
            for chi2 in wait():
                total += chi2
            return total

        return finish

    def start_adjoint(
        self,
        sources: Sources,
        scaled_dof: NDArray[np.float64] | None,
        vis: NDArray[np.complexfloating] | None = None,
    ) -> Callable[[], Adjoint]:
        """Begin to compute chi2 and its derivatives; `vis` replaces the data. The function returned waits."""
        parts = None if vis is None else self.of_shards(vis.reshape(self._shape))
        wait = self._start(ShardCall("adjoint", sources, scaled_dof=scaled_dof), parts)

        def finish() -> Adjoint:
            total: Adjoint | None = None
            for part in wait():
                total = plus(total, part)
            assert total is not None, "rows are not empty"
            return total

        return finish

    def cache_model(self, sources: Sources, cells: RowCells) -> None:
        """What gains are fitted to does not stay on several devices."""

    def plan(self, sources: Sources) -> str:
        """How chi2 of such sources is computed, in words."""
        plans, lines = self._start(ShardCall("plan", sources))(), []
        for name, numbers in zip(self._names, self._shares, strict=True):
            if numbers:
                n_row = sum(self._rows[number].size for number in numbers)
                distinct = dict.fromkeys(plans[number] for number in numbers)
                lines.append(f"{name}: {len(numbers)} shards of {n_row} rows; {'; '.join(distinct)}")
        return " | ".join(lines)

    def _start(
        self,
        call: ShardCall,
        given: Sequence[Any] | None = None,
        end: OnShardDone = lambda _, found: found,
        far_end: OnShardDone | None = None,
    ) -> Callable[[], list[Any]]:
        """Begin a call on all shards; the function returned gives their results in the order of shards.

        `end` is done with the results of this process as they come, `far_end` with those of others, which
        are given as they are without it.
        """
        n = self._n_here
        # Others begin first, for the devices of this process may be a CPU that works at once.
        theirs = None if given is None else given[n:]
        far = None if self._far is None else self._far.start(call, theirs, far_end)
        here = self.local_shards.start(call, None if given is None else given[:n], end)

        def wait() -> list[Any]:
            try:
                found = here()
            finally:  # an error here leaves no others at work
                others = [] if far is None else far()
            return found + others

        return wait


def _shares(bounds: Index, team: Team, held: HeldData | None) -> list[list[int]]:
    """The shards of each device: of all, or of those that its process holds."""
    owners = [0] * len(team.workers) + list(team.far.processes if team.far else ())
    if held is None:
        return shared_out(bounds, len(owners))
    found: list[list[int]] = []
    for process, shards in enumerate(held.shares):
        first = shards[0] if shards else 0
        own = shared_out(bounds[first : first + len(shards) + 1], owners.count(process))
        found += [[first + shard for shard in each] for each in own]
    return found
