"""Measure gridding on a CPU: the steps of each item, and whole calls beside those of ducc0."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator

from common.goals import Verdict, verdict
from common.timing import seconds_of
from common.types import Line

from gridding.cases import Case, describe
from rime_kernels.idg import Idg


def variants(quick: bool) -> Iterator[tuple[float, int, str]]:
    """Yield accuracies, correlations and A-terms."""
    for accuracy, n_corr in itertools.product((1e-4,) if quick else (1e-4, 1e-5), (4, 1)):
        for screens in ("none", "2 x 2" if n_corr == 4 else "scalar"):
            yield accuracy, n_corr, screens


class Stages:
    """A clock of the transforms of the whole image: their seconds since `clear`."""

    def __init__(self, idg: Idg) -> None:
        self.seconds = 0.0
        image = getattr(idg.grid_engine, "_image", None)
        for name in ("to_grid", "from_grid"):
            if image is not None:
                setattr(image, name, self._timed(getattr(image, name)))

    def clear(self) -> None:
        self.seconds = 0.0

    def _timed(self, call: Callable[..., object]) -> Callable[..., object]:
        def timed(*args: object) -> None:
            start = time.perf_counter()
            call(*args)
            self.seconds += time.perf_counter() - start

        return timed


def kernel_line(case: Case, repeat: int) -> Line:
    """Measure the rates of what is done to items."""
    stages, line = Stages(case.idg), describe(case)
    for name, call in (("degridder", case.predict), ("gridder", case.image_of)):
        call()
        found = []
        for _ in range(repeat):
            stages.clear()
            found.append(seconds_of(call) - stages.seconds)
        line[f"{name}_s"] = min(found)
        line[f"{name}_rate"] = case.size.n_vis / min(found)
    return line


def whole_line(case: Case, repeat: int, threads: int) -> Line:
    """Measure whole calls, and those of ducc0 in turn with them."""
    line, others = describe(case), case.ducc(threads)
    line["plan_s"] = case.plan_s
    for name, call in (("predict", case.predict), ("grid", case.image_of)):
        calls = {"": call} | ({"_ducc": others[name]} if name in others else {})
        found: dict[str, list[float]] = {key: [] for key in calls}
        for turn in range(repeat + 1):
            for key, each in calls.items():
                seconds = seconds_of(each)
                if turn:  # the first compiles
                    found[key].append(seconds)
        for key, seconds_each in found.items():
            line[f"{name}{key}_s"] = min(seconds_each)
            line[f"{name}{key}_median_s"] = statistics.median(seconds_each)
            line[f"{name}{key}_rate"] = case.size.n_vis / min(seconds_each)
        if "_ducc" in calls:
            line[f"{name}_x_ducc"] = case.rows.n_corr * line[f"{name}_ducc_s"] / line[f"{name}_s"]
    return line


KERNEL_HEAD = f"{'':32}{'subgrid':>8}{'items':>9}{'degrid M/s':>12}{'grid M/s':>12}"
_COLUMNS = "".join(f"{name + ' M/s':>10}{'ducc':>8}{'x ducc':>8}" for name in ("pred", "grid"))
WHOLE_HEAD = f"{'':32}{'subgrid':>8}{'layers':>7}{'plan s':>8}{_COLUMNS}"


def kernel_text(line: Line) -> str:
    start = f"{line['name']:32}{line['subgrid']:8}{line['n_item']:9}"
    rates = "".join(f"{line[f'{name}_rate'] / 1e6:12.2f}" for name in ("degridder", "gridder"))
    return start + rates


def whole_text(line: Line) -> str:
    text = f"{line['name']:32}{line['subgrid']:8}{line['n_layer']:7}{line['plan_s']:8.2f}"
    for name in ("predict", "grid"):
        text += f"{line[f'{name}_rate'] / 1e6:10.2f}"
        has_peer = f"{name}_ducc_rate" in line
        text += (
            f"{line[f'{name}_ducc_rate'] / 1e6:8.2f}{line[f'{name}_x_ducc']:8.2f}" if has_peer else " " * 16
        )
    return text


def goals(lines: list[Line]) -> list[Verdict]:
    """Judge four correlations with A-terms against four calls of ducc0 without."""
    found = []
    for line in lines:
        if line["accuracy"] == 1e-4 and line["n_corr"] == 4 and "2 x 2" in line["name"]:
            for name in ("predict", "grid"):
                ratio, case = line.get(f"{name}_x_ducc"), f"{name}, {line['name']}"
                unit = "x four calls of ducc0"
                found.append(
                    verdict(case, line["precision"], sense="at least", bound=1.0, unit=unit, found=ratio)
                )
    return found
