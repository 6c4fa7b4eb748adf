"""Launch the degridder and the gridder on a GPU, batch by batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.types import DeviceArray, Stream
from rime_kernels.cuda.kernels.arguments import typed
from rime_kernels.gridding.cuda.engine import Batch
from rime_kernels.gridding.cuda.items import item_table, starts
from rime_kernels.gridding.cuda.launch import launch
from rime_kernels.gridding.plan import Plan, SortedRows
from rime_kernels.idg.cuda import tasks as tasks_cuda
from rime_kernels.idg.cuda.degrid import make_degrid, n_block
from rime_kernels.idg.cuda.grid import make_grid
from rime_kernels.idg.cuda.parts import IdgKernel, TaskTables, idg_shape
from rime_kernels.idg.cuda.tasks import TaskKernel, Tasks, make_prepare


class IdgSums:
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
        stream: Stream,
    ) -> None:  # fmt: skip
        self._plan, self._scale, self._size = plan, rows.scale, size
        self._single, self._stream = single, stream
        self._real: type[np.floating] = np.float32 if single else np.float64
        self._most_c = float(np.abs(curvature).max())
        self._curvature = device.upload((curvature / self._most_c).astype(self._real))
        self._rows = SortedRows(*[device.upload(each) for each in rows])
        self.items, self.w = device.upload(item_table(plan)), device.upload(plan.w)
        self._start = device.upload(starts(plan))
        self._tasks: dict[int, tuple[Tasks, TaskTables]] = {}
        self._workspace = device.Workspace()

    def degrid(
        self, batch: Batch, sums: DeviceArray, to_corr: DeviceArray, vis: DeviceArray, *, compact: bool
    ) -> None:
        """Visibilities of a batch from the sums' pixels: at their places in `vis`, or as they come.

        `vis` holds real and imaginary parts of n_corr numbers each, one behind the other.
        """
        kernel, n_task = self._kernel(int(to_corr.shape[1]), batch)
        tables, n_thread = self._tasks_of(kernel.n_sum)[1], kernel.shape.n_thread
        degrid = make_degrid(kernel, int(to_corr.shape[0]), compact)
        degrid[n_block(kernel, n_task), n_thread, self._stream](
            n_task, batch.first, batch.n_item, self._most_c, typed(tables), to_corr, self._curvature, sums,
            vis,
        )  # fmt: skip

    def grid(
        self,
        batch: Batch,
        vis: DeviceArray,
        weight: DeviceArray,
        to_corr: DeviceArray,
        sums: DeviceArray,
        *,
        compact: bool,
    ) -> None:
        """The pixels' sums over the visibilities of a batch; without weights these are 1."""
        kernel, n_task = self._kernel(int(to_corr.shape[1]), batch)
        tables, shape = self._tasks_of(kernel.n_sum)[1], kernel.shape
        each = list(zip(kernel.kinds, n_task, strict=True))
        n_coef = [n * kind.n_coef for kind, n in each]
        n_part = [n * kind.n * kernel.n_value for kind, n in each]
        array = self._workspace.array
        coef, parts = array("coef", (sum(n_coef),), self._real), array("parts", (sum(n_part),), self._real)
        for k, (kind, n) in enumerate(each):
            if n:
                task_kernel = TaskKernel(kernel.single, kernel.n_sum, kernel.size, kind)
                prepare = make_prepare(task_kernel, int(to_corr.shape[0]), compact, weight is not None)
                launch(
                    prepare, n * kind.n_part, self._stream, k, n, sum(n_coef[:k]), sum(n_part[:k]),
                    batch.first, batch.n_item, self._most_c, typed(tables), to_corr, vis,
                    vis if weight is None else weight, coef, parts,
                )  # fmt: skip
        n_own = batch.n_item * self._size**2 // shape.n_pixel
        make_grid(kernel)[-(-n_own // shape.n_grid_thread), shape.n_grid_thread, self._stream](
            batch.n_item, batch.first, n_task, tables.first_task, coef, self._curvature, parts, sums
        )

    def bytes_per_item(self, n_sum: int) -> NDArray[np.int64]:
        """What the tasks of each item take, (n_item,)."""
        tasks, _ = self._tasks_of(n_sum)
        itemsize, total = np.dtype(self._real).itemsize, np.zeros(self._plan.n_item, np.int64)
        for kind, first_task in zip(tasks.kinds, tasks.first_task, strict=True):
            total += (itemsize * (2 * kind.n * n_sum + kind.n_coef)) * np.diff(first_task)
        return total

    def _kernel(self, n_sum: int, batch: Batch) -> tuple[IdgKernel, tuple[int, ...]]:
        """What the heavy kernels are compiled for, and the tasks of each kind that a batch has."""
        here, _ = self._tasks_of(n_sum)
        n_task = here.first_task[:, batch.stop] - here.first_task[:, batch.first]
        shape = idg_shape(self._single, n_sum)
        return IdgKernel(self._single, n_sum, self._size, here.kinds, shape), tuple(n_task.tolist())

    def _tasks_of(self, n_sum: int) -> tuple[Tasks, TaskTables]:
        """Tasks for so many planes, on the host, and with items and rows on the device."""
        if n_sum not in self._tasks:
            here = tasks_cuda.make_tasks(self._plan, self._scale, idg_shape(self._single, n_sum))
            rows, (first_chan, n_chan, first_task) = self._rows, map(device.upload, here[1:])
            self._tasks[n_sum] = here, TaskTables(
                self.items, self.w, self._start, first_chan, n_chan, first_task, rows.uvw, rows.order,
                rows.shift, rows.scale,
            )  # fmt: skip
        return self._tasks[n_sum]
