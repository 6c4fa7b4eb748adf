"""Measure `Rime.chi2`, the same streamed from the host, and beside it the project's first kernels."""

from __future__ import annotations

import importlib
import inspect
import time
from dataclasses import asdict

import numpy as np
from common.timing import measure
from common.types import Line, Options

from chi2.cases import STREAMED, Case, Field, fewer_times, field, first_times, sources
from rime_kernels import Rime
from rime_kernels.cuda.launch_shapes.tensor_core_shapes import forced_tensor_cores

# Source-visibilities that the first kernels get: they are slow, and hold antenna terms of the whole problem.
_PLAIN_WORK = {"cpu": 5e7, "cuda": 4e9}
# They keep one float64 of each sample and entry of the batch, and the data, on the device.
_PLAIN_SAMPLES = 2e8


class NotMeasuredError(Exception):
    """A case that cannot be measured here, and why."""


class Ours:
    """Measures cases on one backend; a `Rime` is kept as long as the cases have the same geometry."""

    def __init__(self, device: str, repeat: int) -> None:
        self._device, self._repeat = device, repeat
        self._field: Field | None = None
        self._rimes: dict[tuple[str, str], tuple[Rime, float]] = {}

    def measure(self, case: Case, precision: str) -> Line:
        """One line of the table."""
        rime, build = self.rime(case, precision)
        sky = sources(case)
        timing = measure(lambda: rime.chi2(sky), self._repeat)
        line = {**asdict(case), "precision": precision, "form": rime.form, "n_row": case.n_row}
        line |= {"build_s": build, "first_s": timing.first, "n": timing.n}
        line |= {"median_ms": 1e3 * timing.median, "min_ms": 1e3 * timing.least}
        line["rate"] = case.n_source_visibility / timing.median
        line["likelihoods_per_s"] = case.n_batch / timing.median
        if "tensor cores" in rime.plan(sky):
            line["without_units_ms"] = 1e3 * self._without_tensor_cores(case, precision)
        return line

    def _without_tensor_cores(self, case: Case, precision: str) -> float:
        """Seconds of the same call where no tensor cores are used."""
        sky = sources(case)
        with forced_tensor_cores(None):
            rime, _ = self._new(case, precision)
            return measure(lambda: rime.chi2(sky), self._repeat).median

    def plain(self, case: Case, precision: str) -> Line:
        """Rate of the first kernels, on as many times as they hold, and how far their chi2 is from ours."""
        if case.form == "row":
            return {"skipped": "the first kernels here have the factored form alone"}
        module = importlib.import_module("chi2.plain" if self._device == "cpu" else "chi2.plain_cuda")
        most = _PLAIN_WORK[self._device]
        few = fewer_times(
            case, min(most, _PLAIN_SAMPLES / (case.n_sample * case.n_batch) * case.n_source_visibility)
        )
        part, sky = first_times(field(case), few.n_time), sources(case)
        plain = module.Plain(part, precision == "single")
        found = plain.chi2(sky)
        timing = measure(lambda: plain.chi2(sky), self._repeat, longest=2.0)
        line = {"rate": few.n_source_visibility / timing.median, "n_time": few.n_time, "n": timing.n}
        if few.n_time == case.n_time:
            expected = self.rime(case, precision)[0].chi2(sky)
            line["difference"] = float(np.abs(found / expected - 1.0).max())
        return line

    def streamed(self, case: Case, precision: str, host_to_device: float | None) -> Line:
        """With a quarter of the data's bytes as memory limit, against the slower of kernel and bus."""
        if "memory_limit" not in inspect.signature(Rime).parameters:
            raise NotMeasuredError("Rime takes no memory_limit in this version")
        if host_to_device is None:
            raise NotMeasuredError("the rate from host to device was not measured")
        n_byte = field(case).n_byte * (1 if precision == "single" else 2)
        limit = f"{n_byte // 4} B"
        sky = sources(case)
        resident = measure(lambda: self.rime(case, precision)[0].chi2(sky), self._repeat)
        rime, _ = self.rime(case, precision, memory_limit=limit)
        timing = measure(lambda: rime.chi2(sky), self._repeat)
        slower = max(resident.median, n_byte / host_to_device)
        line = {
            **asdict(case),
            "name": f"{case.name}, {STREAMED}",
            "precision": precision,
            "n_row": case.n_row,
            "n": timing.n,
        }
        line |= {"median_ms": 1e3 * timing.median, "min_ms": 1e3 * timing.least, "memory_limit": limit}
        line |= {"n_byte": n_byte, "resident_ms": 1e3 * resident.median}
        line |= {"transfer_ms": 1e3 * n_byte / host_to_device, "share_of_slower": slower / timing.median}
        return {**line, "rate": case.n_source_visibility / timing.median}

    def rime(self, case: Case, precision: str, **more: str) -> tuple[Rime, float]:
        """A `Rime` and the seconds it took to make; those of another geometry go first."""
        whole = field(case)
        if self._field is not whole:
            self._rimes.clear()
            self._field = whole
        key = precision, case.form
        if key in self._rimes and not more:
            return self._rimes[key]
        made = self._new(case, precision, **more)
        if not more:
            self._rimes[key] = made
        return made

    def _new(self, case: Case, precision: str, **more: str) -> tuple[Rime, float]:
        whole = field(case)
        options: Options = {"backend": self._device, "precision": precision, "form": case.form, **more}
        start = time.perf_counter()
        rime = Rime(whole.rows, vis=whole.vis, weight=whole.weight, extent=0.02, **options)
        return rime, time.perf_counter() - start
