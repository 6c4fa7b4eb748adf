"""Energy that a GPU has taken, by the counter of its driver (NVML), less what it takes when idle."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

from rime_kernels import device

_IDLE_SECONDS = 5.0


class NoMeterError(Exception):
    """Why energy cannot be measured here."""


class Meter:
    """The counter of the GPU that calls run on.

    Attributes
    ----------
    idle_watt : float
        What the GPU takes with nothing to do, measured when the meter is made.

    Raises
    ------
    NoMeterError
        Without NVML, or with a GPU that has no counter.
    """

    def __init__(self, idle_seconds: float = _IDLE_SECONDS) -> None:
        try:
            self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise NoMeterError(f"NVML is not there: {error}") from None
        self._handle, name = ctypes.c_void_p(), device.cuda.get_current_device().uuid
        self._call("nvmlInit_v2")
        self._call("nvmlDeviceGetHandleByUUID", name.encode(), ctypes.byref(self._handle))
        device.cuda.synchronize()
        self.idle_watt = self._watt(lambda: time.sleep(idle_seconds))

    def joules(self, call: Callable[[], object], least_seconds: float) -> tuple[float, float, int]:
        """Repeat a call for at least so long: joules above idle, seconds, and how many there were."""
        call()
        device.cuda.synchronize()
        n, before, start = 0, self._millijoules(), time.perf_counter()
        while time.perf_counter() - start < least_seconds:
            call()
            device.cuda.synchronize()
            n += 1
        seconds = time.perf_counter() - start
        return 1e-3 * (self._millijoules() - before) - self.idle_watt * seconds, seconds, n

    def _watt(self, wait: Callable[[], object]) -> float:
        before, start = self._millijoules(), time.perf_counter()
        wait()
        return 1e-3 * (self._millijoules() - before) / (time.perf_counter() - start)

    def _millijoules(self) -> int:
        found = ctypes.c_ulonglong()
        self._call("nvmlDeviceGetTotalEnergyConsumption", self._handle, ctypes.byref(found))
        return found.value

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._nvml, name)(*arguments)
        if status:
            raise NoMeterError(f"{name} of NVML failed with status {status}")
