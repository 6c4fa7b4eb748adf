"""Calls of gridders on data that lie on a GPU, and the times of their kernels by CUDA events."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

import numpy as np
from common.types import OnDevice
from numba import uint32

from rime_kernels import device
from rime_kernels.gridding.gridder import Gridder
from rime_kernels.idg.cuda import sums
from rime_kernels.wprojection.cuda import engine as projection

cuda: ModuleType = device.cuda

# Kernels whose time counts as the degridder's, and the gridder's; where their functions are called.
_KERNELS: dict[str, dict[str, tuple[ModuleType, tuple[str, ...]]]] = {
    "idg": {"degridder": (sums, ("make_degrid",)), "gridder": (sums, ("make_prepare", "make_grid"))},
    "wprojection": {
        "degridder": (projection, ("make_degrid", "make_block_degrid", "make_vis_degrid")),
        "gridder": (projection, ("make_grid", "make_block_grid")),
    },
}


@functools.cache
def _pause() -> OnDevice:
    """Kernel of one thread that does nothing for some time, longer than launches take."""

    @device.kernel(0)
    def pause() -> None:
        cuda.nanosleep(uint32(300_000))

    return pause


class _Timed:
    """A kernel whose launches leave the events before and after them in a list.

    The device pauses before: a kernel that has to wait for its launch would seem to take longer.
    """

    def __init__(self, kernel: OnDevice, log: list[tuple[OnDevice, OnDevice]]) -> None:
        self._kernel, self._log = kernel, log

    def __getitem__(self, how: tuple[OnDevice, ...]) -> Callable[..., None]:
        def launch(*given: object) -> None:
            begin, end = device.cuda.event(), device.cuda.event()
            if not device.simulated():
                _pause()[1, 1, how[2]]()
            begin.record(how[2])
            self._kernel[how](*given)
            end.record(how[2])
            self._log.append((begin, end))

        return launch


@contextmanager
def _timed(module: ModuleType, names: tuple[str, ...]) -> Iterator[Callable[[], float]]:
    """Time kernels that functions of a module make; yield a function of the seconds since its last call."""
    log: list[tuple[OnDevice, OnDevice]] = []
    before = {name: getattr(module, name) for name in names}

    def seconds() -> float:
        device.cuda.synchronize()
        found = sum(begin.elapsed_time(end) for begin, end in log) * 1e-3
        log.clear()
        return max(found, 1e-9)  # the simulator's clock stands still

    try:
        for name, make in before.items():
            setattr(module, name, lambda *given, make=make: _Timed(make(*given), log))
        yield seconds
    finally:
        for name, make in before.items():
            setattr(module, name, make)


class Resident:
    """An image and visibilities that lie on the device, and what is done to them there."""

    def __init__(self, gridder: Gridder, image: np.ndarray, screens: np.ndarray | None) -> None:
        self._kernels = _KERNELS[gridder.engine]
        self._engine: OnDevice = gridder.grid_engine
        self._screens = gridder.screens_of(screens, image.shape[0])
        self._image = self._engine.send(image)
        self._vis = self._engine.predict_on_device(self._image, self._screens)

    def predict(self) -> None:
        self._engine.predict_on_device(self._image, self._screens, self._vis)

    def grid(self) -> None:
        self._engine.grid_on_device(self._vis, None, self._screens)

    def kernel_seconds(self, repeat: int) -> dict[str, float]:
        """The least times of the heavy kernels."""
        found = {}
        for name, call in (("degridder", self.predict), ("gridder", self.grid)):
            module, names = self._kernels[name]
            with _timed(module, names) as seconds:
                each = []
                for _ in range(repeat):
                    call()
                    each.append(seconds())
            found[name] = min(each)
        return found
