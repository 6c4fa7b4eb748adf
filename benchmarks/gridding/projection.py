"""What is measured of W-projection: updates of its kernels, whole calls beside those of other gridders."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from common.types import Line, OnDevice

from gridding.cases import QUICK, SIMULATED, Case, Size
from gridding.cpu import Stages
from rime_kernels import device, make_gridder
from rime_kernels.gridding.gridder import Gridder
from rime_kernels.wprojection import WProjection
from rime_kernels.wprojection.cuda.parts import WProjectionShape, shape_for


@dataclass(frozen=True)
class Some:
    """What is measured alone: supports, numbers of correlations, accuracies; all where there are none."""

    supports: tuple[float, ...] | None = None
    n_corr: tuple[float, ...] | None = None
    accuracies: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Problem:
    """Where it is measured, and how."""

    backend: str
    quick: bool
    repeat: int
    thread_time: bool
    some: Some = Some()

    @property
    def size(self) -> Size:
        """Size of the observation whose kernels are measured."""
        if self.quick:
            return SIMULATED if self.backend == "cuda" and device.simulated() else QUICK
        return Size(64, 60, 64, 2048, 1.0) if self.backend == "cuda" else Size(32, 30, 64, 1024)

    def seconds(self, call: Callable[[], object], less: Callable[[], float] = lambda: 0.0) -> float:
        """The least time of some calls after the first; `less` gives what of a call's is not meant."""
        clock = time.process_time if self.thread_time else time.perf_counter
        found = []
        for _ in range(self.repeat + 1):
            before, start = less(), clock()
            call()
            found.append(clock() - start - (less() - before))
        return min(found[1:])


HEAD = (
    f"{'kernels':16}{'S':>4}{'P':>4}{'M':>14}{'degrid G/s':>14}{'grid G/s':>12}   updates (idg: visibilities)"
)
WHOLE_HEAD = (
    f"{'whole calls':34}{'engine':>13}{'predict s':>11}{'grid s':>9}{'estimated':>11}   taken by auto"
)


def kernels(problem: Problem, keep: Callable[[list[Line]], object]) -> list[Line]:
    """Measure and print the rates of kernels; `keep` gets the lines after each."""
    lines: list[Line] = []
    print(f"\n{problem.size}\n{HEAD}")
    supports = _wanted(problem.some.supports, [7] if problem.quick else [7, 11, 15, 23, 25, 31, 63])
    for n_corr in _wanted(problem.some.n_corr, [1] if problem.quick else [1, 2, 4]):
        case = Case(problem.size, n_corr, "none", 1e-3, problem.backend)
        gridders: list[tuple[int, Gridder]] = [
            (
                support,
                WProjection(case.rows, case.grid, accuracy=1e-2, backend=problem.backend, support=support),
            )
            for support in supports
        ]
        for support, gridder in [*gridders, (case.idg.layout.size, case.idg)]:
            for line in _kernel_lines(problem, case, support, gridder):
                lines.append(line)
                print(_kernel_text(line), flush=True)
                keep(lines)
    return lines


def _wanted(named: tuple[float, ...] | None, all_of_them: list[int]) -> list[int]:
    return all_of_them if named is None else [round(each) for each in named]


def _kernel_lines(problem: Problem, case: Case, size: int, gridder: Gridder) -> Iterator[Line]:
    """Yield the rates of one gridder; on a GPU those of each number of cells to a thread."""
    line: Line = {
        "engine": gridder.engine, "size": size, "n_corr": case.rows.n_corr, "n_vis": case.size.n_vis,
        "m": "", "plan": gridder.plan,
    }  # fmt: skip
    if problem.backend == "cpu":
        yield _with_rates(line, _seconds_on_cpu(problem, case, gridder))
    elif gridder.engine == "idg":
        yield _with_rates(line, _seconds_on_device(problem, case, gridder))
    else:
        engine: OnDevice = gridder.grid_engine  # type: ignore[attr-defined]
        by_tensor_cores = gridder.layout.by_tensor_cores  # type: ignore[attr-defined]
        for name, *form in _forms(by_tensor_cores, size, case.rows.n_corr, problem.quick):
            engine.shape, engine.by_tensor_cores, engine.by_vis = form
            yield _with_rates(line | {"m": name}, _seconds_on_device(problem, case, gridder))


def _forms(
    by_tensor_cores: bool, support: int, n_plane: int, quick: bool
) -> Iterator[tuple[str, WProjectionShape | None, bool, bool]]:
    """Yield what is taken, then tensor cores, shapes of threads with cells, and threads of one cell.

    With the name a form has: its shape, whether tensor cores are taken, and threads that have visibilities.
    The last form where a block has room for it.
    """
    yield "as taken", None, by_tensor_cores, True
    if by_tensor_cores:
        yield "tensor cores", None, True, False
    taken = [shape_for(support, n_plane, single=True, degrids=degrids) for degrids in (True, False)]
    yield ", ".join(dict.fromkeys(f"{shape.m_x} x {shape.m_y}" for shape in taken)), None, False, False
    if not quick and support**2 <= 1024:
        yield "1 x 1", WProjectionShape(1, 1, taken[0].n_stage), False, False


def _seconds_on_device(problem: Problem, case: Case, gridder: Gridder) -> dict[str, float]:
    from gridding.resident import Resident

    return Resident(gridder, case.image, None).kernel_seconds(problem.repeat + 1)


def _seconds_on_cpu(problem: Problem, case: Case, gridder: Gridder) -> dict[str, float]:
    """Times without the transforms of grids."""
    stages = Stages(gridder)

    def grid() -> object:
        return gridder.grid(case.vis, n_stokes=case.n_stokes)

    return {
        "degridder": problem.seconds(lambda: gridder.predict(case.image), lambda: stages.seconds),
        "gridder": problem.seconds(grid, lambda: stages.seconds),
    }


def _with_rates(line: Line, seconds: dict[str, float]) -> Line:
    """The line with times, and updates (or visibilities) per second."""
    each = line["size"] ** 2 * line["n_corr"] if line["engine"] == "wprojection" else 1
    found = line.copy()
    for name, value in seconds.items():
        found[f"{name}_s"], found[f"{name}_rate"] = value, each * line["n_vis"] / value
    return found


def _kernel_text(line: Line) -> str:
    rates = f"{line['degridder_rate'] / 1e9:14.4f}{line['gridder_rate'] / 1e9:12.4f}"
    return f"{line['engine']:16}{line['size']:4}{line['n_corr']:4}{line['m']:>14}{rates}"


def cases(problem: Problem) -> Iterator[tuple[Size, int, float]]:
    """Yield observations, correlations and accuracies: full and sparse, few and many pixels.

    On a GPU the sparse one has one channel, as that of Merry (2016): 64 antennas, two hours in steps of 2 s.
    """
    if problem.quick:
        yield problem.size, 1, 1e-3
        return
    sizes = [Size(32, 30, 64, 512), Size(32, 120, 2, 512), Size(12, 20, 16, 2048)]
    accuracies = [1e-2, 1e-4, 1e-5, 1e-6]
    if problem.backend == "cuda":
        sizes = [Size(64, 60, 64, 2048, 1.0), Size(64, 3600, 1, 2048, 2.0), Size(64, 20, 16, 4096)]
        accuracies = [1e-2, 1e-4, 1e-6]
    for size in sizes:
        for accuracy in problem.some.accuracies or accuracies:
            for n_corr in _wanted(problem.some.n_corr, [1, 4]):
                yield size, n_corr, accuracy


def whole(problem: Problem, keep: Callable[[list[Line]], object]) -> list[Line]:
    """Measure and print whole calls, on a GPU of what lies there; `keep` gets the lines after each."""
    lines: list[Line] = []
    print(f"\n{WHOLE_HEAD}")
    for size, n_corr, accuracy in cases(problem):
        case = Case(size, n_corr, "none", accuracy, problem.backend)
        taken = make_gridder(case.rows, case.grid, accuracy=accuracy, backend=problem.backend).engine
        other = WProjection(case.rows, case.grid, accuracy=accuracy, backend=problem.backend)
        found = [_whole_line(problem, case, gridder, taken) for gridder in (case.idg, other)]
        ducc = case.ducc(1 if problem.thread_time else 0)
        if ducc and problem.backend == "cpu":
            seconds = {f"{name}_s": n_corr * problem.seconds(call) for name, call in ducc.items()}
            found.append({"engine": "ducc0", "name": found[0]["name"], "taken": False} | seconds)
        for line in found:
            print(_whole_text(line), flush=True)
        lines += found
        keep(lines)
    return lines


def _whole_line(problem: Problem, case: Case, gridder: Gridder, taken: str) -> Line:
    size = case.size
    predict, grid = _whole_calls(problem, case, gridder)
    return {
        "name": f"{size.n_vis} vis., {size.n_pixel} pixels, {case.rows.n_corr} corr, {case.accuracy:g}",
        "engine": gridder.engine, "n_vis": size.n_vis, "n_pixel": size.n_pixel, "n_corr": case.rows.n_corr,
        "accuracy": case.accuracy, "taken": taken == gridder.engine, "estimated_s": gridder.cost * 1e-9,
        "predict_s": problem.seconds(predict), "grid_s": problem.seconds(grid), "plan": gridder.plan,
    }  # fmt: skip


def _whole_calls(
    problem: Problem, case: Case, gridder: Gridder
) -> tuple[Callable[[], object], Callable[[], object]]:
    """A prediction, and an image."""
    if problem.backend == "cpu":
        return lambda: gridder.predict(case.image), lambda: gridder.grid(case.vis, n_stokes=case.n_stokes)
    from gridding.resident import Resident

    there = Resident(gridder, case.image, None)
    return there.predict, there.grid


def _whole_text(line: Line) -> str:
    estimated = f"{line['estimated_s']:11.3f}" if "estimated_s" in line else " " * 11
    times = f"{line['predict_s']:11.3f}{line['grid_s']:9.3f}{estimated}"
    return f"{line['name']:34}{line['engine']:>13}{times}{'   *' if line['taken'] else ''}"
