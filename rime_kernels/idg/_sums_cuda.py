"""Sums over pixels and over visibilities on a CUDA device, batch by batch: what is launched for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.idg import _tasks_cuda as tasks_cuda
from rime_kernels.idg._degrid_cuda import make_degrid, n_block
from rime_kernels.idg._grid_cuda import make_grid
from rime_kernels.idg._parts_cuda import IdgKernel, idg_shape
from rime_kernels.idg._tasks_cuda import TaskKernel, Tasks
from rime_kernels.idg.plan import Plan, SortedRows

_MOST_BLOCKS = 1 << 20


def launch(kernel: Any, n: int, stream: Any, *given: Any) -> None:
    """Launch a kernel of n pieces of work; its threads go on with others where there are too few of them."""
    n_thread = device.threads_per_block()
    kernel[min(-(-n // n_thread), 2 if device.simulated() else _MOST_BLOCKS), n_thread, stream](*given)


class Batch(NamedTuple):
    """Items that are worked on together, of one layer."""

    first: int
    stop: int

    @property
    def n_item(self) -> int:
        return self.stop - self.first


class _Offsets(NamedTuple):
    """Where the tasks of a kind begin."""

    task: int
    coef: int
    part: int


class _Work(NamedTuple):
    """The tasks of a batch on the device."""

    kernel: IdgKernel
    n_task: tuple[int, ...]  # of each kind
    item_of: Any
    coef: Any
    parts: Any

    def kinds(self) -> Iterator[tuple[int, int, _Offsets, TaskKernel]]:
        """Those with tasks: number of the kind, of its tasks, where they begin, what kernels need."""
        kernel = self.kernel
        begin = _offsets(kernel, self.n_task)
        for k, (kind, n) in enumerate(zip(kernel.kinds, self.n_task, strict=True)):
            if n:
                yield k, n, begin[k], TaskKernel(kernel.single, kernel.n_sum, kernel.size, kind)


def _offsets(kernel: IdgKernel, n_task: tuple[int, ...]) -> list[_Offsets]:
    """Where the tasks of each kind begin, and where those of the last end."""
    found = [_Offsets(0, 0, 0)]
    for kind, n in zip(kernel.kinds, n_task, strict=True):
        task, coef, part = found[-1]
        found.append(_Offsets(task + n, coef + n * kind.n_coef, part + n * kind.n * kernel.n_value))
    return found


class Sums:
    """Degridder and gridder of the items of a plan.

    Parameters
    ----------
    rows : SortedRows
        In cells (`on_grid`).
    plan : Plan
    size : int
        S, pixels of a subgrid along an axis.
    single : bool
    curvature : float64 (S^2,)
        Of the pixels of a subgrid.
    stream : stream
        Of all launches.

    Attributes
    ----------
    items, w : device arrays
        The table of items, and their w.
    """

    def __init__(
        self, rows: SortedRows, plan: Plan, size: int, single: bool, curvature: NDArray[np.float64],
        stream: Any,
    ) -> None:  # fmt: skip
        self._plan, self._scale, self._size, self._single, self._stream = (
            plan,
            rows.scale,
            size,
            single,
            stream,
        )
        self._real: Any = np.float32 if single else np.float64
        self._most_c = float(np.abs(curvature).max())
        self._curvature = device.upload((curvature / self._most_c).astype(self._real))
        self._rows = SortedRows(*[device.upload(each) for each in rows])
        self.items, self.w = device.upload(tasks_cuda.item_table(plan)), device.upload(plan.w)
        self._start = device.upload(tasks_cuda.starts(plan))
        self._tasks: dict[int, tuple[Tasks, Tasks]] = {}
        self._workspace = device.Workspace()

    def degrid(self, batch: Batch, sums: Any, to_corr: Any, vis: Any, *, compact: bool) -> None:
        """Visibilities of a batch from the sums' pixels: at their places in `vis`, or as they come."""
        work = self._describe(batch, int(to_corr.shape[1]))
        n_thread = work.kernel.shape.n_thread
        make_degrid(work.kernel)[n_block(work.kernel, work.n_task), n_thread, self._stream](
            work.n_task, work.item_of, work.coef, self._curvature, sums, work.parts
        )
        for k, n, begin, kernel in work.kinds():
            finish = tasks_cuda.make_finish(kernel, compact)
            self._launch(
                finish, n * kernel.kind.n_part, k, n, begin.task, begin.part, batch.first, self.items,
                self._start, *self._there(work)[1:], self._rows.order, self._rows.shift, self._rows.scale,
                work.item_of, to_corr, work.parts, vis,
            )  # fmt: skip

    def grid(self, batch: Batch, vis: Any, weight: Any, to_corr: Any, sums: Any, *, compact: bool) -> None:
        """The pixels' sums over the visibilities of a batch; without weights these are 1."""
        work = self._describe(batch, int(to_corr.shape[1]))
        tasks = self._there(work)
        for k, n, begin, kernel in work.kinds():
            prepare = tasks_cuda.make_prepare(kernel, compact, weight is not None)
            self._launch(
                prepare, n * kernel.kind.n_part, k, n, begin.task, begin.part, batch.first, self.items,
                self._start, *tasks[1:], self._rows.order, self._rows.shift, self._rows.scale, work.item_of,
                to_corr, vis, vis if weight is None else weight, work.parts,
            )  # fmt: skip
        shape = work.kernel.shape
        n_own = batch.n_item * self._size**2 // shape.n_pixel
        make_grid(work.kernel)[-(-n_own // shape.n_grid_thread), shape.n_grid_thread, self._stream](
            batch.n_item, batch.first, work.n_task, tasks.first_task, work.coef, self._curvature, work.parts,
            sums,
        )  # fmt: skip

    def bytes_per_item(self, n_sum: int) -> NDArray[np.int64]:
        """What the tasks of each item take, (n_item,)."""
        tasks, _ = self._tasks_of(n_sum)
        itemsize, total = np.dtype(self._real).itemsize, np.zeros(self._plan.n_item, np.int64)
        for kind, first_task in zip(tasks.kinds, tasks.first_task, strict=True):
            total += (itemsize * (2 * kind.n * n_sum + kind.n_coef) + 4) * np.diff(first_task)
        return total

    def _describe(self, batch: Batch, n_sum: int) -> _Work:
        """The batch's tasks, their coefficients, and room for their visibilities."""
        here, there = self._tasks_of(n_sum)
        kernel = IdgKernel(self._single, n_sum, self._size, here.kinds, idg_shape(self._single, n_sum))
        n_task = tuple((here.first_task[:, batch.stop] - here.first_task[:, batch.first]).tolist())
        array, end = self._workspace.array, _offsets(kernel, n_task)[-1]
        work = _Work(
            kernel, n_task, array("item_of", (end.task,), np.int32), array("coef", (end.coef,), self._real),
            array("parts", (end.part,), self._real),
        )  # fmt: skip
        for k, n, begin, task_kernel in work.kinds():
            self._launch(
                tasks_cuda.make_describe(task_kernel), n, k, n, begin.task, begin.coef, batch.first,
                batch.n_item, self._most_c, self.items, self.w, *there[1:], self._rows.uvw, self._rows.scale,
                work.item_of, work.coef,
            )  # fmt: skip
        return work

    def _launch(self, kernel: Any, n: int, *given: Any) -> None:
        launch(kernel, n, self._stream, *given)

    def _there(self, work: _Work) -> Tasks:
        """The tasks on the device."""
        return self._tasks_of(work.kernel.n_sum)[1]

    def _tasks_of(self, n_sum: int) -> tuple[Tasks, Tasks]:
        """Tasks for so many planes, on the host and on the device."""
        if n_sum not in self._tasks:
            here = tasks_cuda.make_tasks(self._plan, self._scale, idg_shape(self._single, n_sum))
            self._tasks[n_sum] = here, Tasks(here.kinds, *[device.upload(each) for each in here[1:]])
        return self._tasks[n_sum]
