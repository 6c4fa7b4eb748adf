"""Measure gridding on a GPU: kernels by CUDA events, and whole calls with data on the GPU or on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from common import roofs_cuda
from common.goals import Verdict, verdict
from common.timing import measure, seconds_of
from common.types import Line

from gridding.cases import Case, Size, describe
from gridding.resident import Resident
from rime_kernels import device
from rime_kernels.gridding.cuda.stream import copy

_GOALS = (
    # line, quantity, sense, bound, unit, scale of what was found
    ("24 x 24, 4 corr", "degridder_rate", "at least", 2.0, "Gvis/s", 1e-9),
    ("24 x 24, 4 corr", "gridder_rate", "at least", 1.6, "Gvis/s", 1e-9),
    ("24 x 24, 4 corr", "predict_of_kernel", "at least", 0.6, "of the degridder's rate", 1.0),
    ("24 x 24, 4 corr", "host_predict_of_slower", "at least", 0.8, "of the slower of kernel and bus", 1.0),
    ("24 x 24, 4 corr", "aterm_cost", "<=", 0.15, "more time with 2 x 2 A-terms", 1.0),
)


def line(case: Case, roofs: Line, repeat: int, *, host: bool) -> Line:
    """Kernels, whole calls on the device, and from the host's memory."""
    there, n_vis = Resident(case.idg, case.image, case.screens), case.size.n_vis
    found: Line = {}
    for name, seconds in there.kernel_seconds(repeat).items():
        found[f"{name}_s"], found[f"{name}_rate"] = seconds, n_vis / seconds
    for name, call in (("predict", there.predict), ("grid", there.grid)):
        timing = measure(call, repeat)
        found[f"{name}_s"], found[f"{name}_rate"] = timing.median, n_vis / timing.median
        found[f"{name}_least_s"] = timing.least
    found["predict_of_kernel"] = found["degridder_s"] / found["predict_s"]
    found["grid_of_kernel"] = found["gridder_s"] / found["grid_s"]
    if host:
        bus = case.vis.nbytes / roofs["host_to_device_byte_per_s"]
        for name, call, kernel in (
            ("predict", case.predict, "degridder"), ("grid", case.image_of, "gridder"),
        ):  # fmt: skip
            timing = measure(call, repeat)
            found[f"host_{name}_s"], found[f"host_{name}_rate"] = timing.median, n_vis / timing.median
            found[f"host_{name}_of_slower"] = max(bus, found[f"{kernel}_s"]) / timing.median
    return found


def text(name: str, line: Line) -> str:
    """A line of the table."""
    rates = "".join(
        f"{line[f'{key}_rate'] / 1e9:9.3f}" for key in ("degridder", "gridder", "predict", "grid")
    )
    shares = f"{100 * line['predict_of_kernel']:7.0f}{100 * line['grid_of_kernel']:7.0f}"
    host = ""
    if "host_predict_rate" in line:
        host = "".join(
            f"{line[f'host_{key}_rate'] / 1e9:10.3f}{100 * line[f'host_{key}_of_slower']:6.0f}"
            for key in ("predict", "grid")
        )
    return f"{name:40}{rates}{shares}{host}"


HEAD = (
    f"{'Gvis/s':40}{'degrid':>9}{'gridder':>9}{'predict':>9}{'image':>9}{'% krnl':>7}{'% krnl':>7}"
    f"{'host pred':>10}{'%':>6}{'host im.':>10}{'%':>6}"
)


def goals(lines: list[Line]) -> list[Verdict]:
    """Judge the line of each goal."""
    found = []
    for name, key, sense, bound, unit, scale in _GOALS:
        values = [line[key] * scale for line in lines if line["title"] == name and key in line]
        value = values[0] if values else None
        found.append(verdict(f"{name}: {key}", "single", sense=sense, bound=bound, unit=unit, found=value))
    return found


def _host_copy(n_byte: int) -> float:
    """Bytes/s at which all threads copy from pinned memory to new memory: results leave the bus so."""
    pinned, found = device.cuda.pinned_array(n_byte // 4, np.float32), []
    pinned[:] = 1.0
    for _ in range(3):
        new = np.empty(pinned.shape, np.float32)
        found.append(seconds_of(lambda new=new: copy(pinned, new)))
    return float(pinned.nbytes / min(found))


def measured(size: Size, repeat: int, *, quick: bool, keep: Callable[[Line], object]) -> Line:
    """Measure and print all lines, with the roofs and the goals; `keep` gets what there is after each."""
    roofs = roofs_cuda.measure_roofs(quick=quick, repeat=repeat)
    roofs["host_copy_byte_per_s"] = _host_copy(1 << (16 if quick else 28))
    print(
        f"multiply-adds {roofs['fma_per_s']['single'] / 1e12:.1f} T/s single, copy "
        f"{roofs['copy_byte_per_s'] / 1e9:.0f} GB/s, pinned host to device "
        f"{roofs['host_to_device_byte_per_s'] / 1e9:.1f} GB/s, pinned to new memory of the host "
        f"{roofs['host_copy_byte_per_s'] / 1e9:.1f} GB/s\n\n{HEAD}"
    )
    lines: list[Line] = []
    for title, n_corr, screens, subgrid, host in _cases(quick):
        case = Case(size, n_corr, screens, 1e-4 if quick else 1e-5, "cuda", subgrid)
        lines.append({"title": title} | describe(case) | line(case, roofs, repeat, host=host))
        if "A-terms" in title:
            lines[0]["aterm_cost"] = lines[-1]["predict_least_s"] / lines[0]["predict_least_s"] - 1.0
        print(text(title, lines[-1]), flush=True)
        keep({"roofs": roofs, "lines": lines, "goals": goals(lines)})
    return {"roofs": roofs, "lines": lines, "goals": goals(lines)}


def _cases(quick: bool) -> Iterator[tuple[str, int, str, int | None, bool]]:
    """Yield title, correlations, A-terms, subgrid, and whether it is measured from the host too."""
    side = 16 if device.simulated() else 24
    yield f"{side} x {side}, 4 corr", 4, "none", side, not device.simulated()
    yield f"{side} x {side}, 4 corr, A-terms 2 x 2", 4, "2 x 2", side, False
    if quick:
        return
    yield "subgrid as chosen, 4 corr", 4, "none", None, True
    yield "24 x 24, 1 corr", 1, "none", 24, False
    for size in (32, 48, 64):
        yield f"{size} x {size}, 4 corr", 4, "none", size, False
