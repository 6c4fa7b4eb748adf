"""Speed of image-domain gridding, against ducc0's w-gridder where that is installed.

    python benchmarks/idg.py --device cpu|cuda [--quick] [--repeat 3] [--kernels] [--whole]

Rates are visibilities per second of wall-clock time; a visibility has all its correlations. *Kernels* are
what is done to items: subgrids cut from the grid, their transforms, w and A-terms, the sums over pixels (and
the way back); the transforms of the whole image are not in them. *Whole* is `Idg.predict` and `Idg.grid` with
the plan reused. On a CUDA device (`idg_cuda`) kernels are the sums over pixels and what stands around them,
timed by events. ducc0 has one correlation a call and no A-terms: four correlations are four of its calls.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from report import goal_text, machine, machine_slug, write
from timing import seconds_of

from rime_kernels import Rows, device, stokes_to_corr
from rime_kernels.idg import Idg, ImageGrid

_SPEED_OF_LIGHT = 299792458.0
_CORR = {1: ["I"], 4: ["XX", "XY", "YX", "YY"]}
_SUBGRIDS = (24, 32, 48, 64)


@dataclass(frozen=True)
class Size:
    """An observation and an image."""

    n_antenna: int
    n_time: int
    n_chan: int
    n_pixel: int
    hours: float = 6.0

    @property
    def n_vis(self) -> int:
        return self.n_antenna * (self.n_antenna - 1) // 2 * self.n_time * self.n_chan


_TINY = Size(8, 4, 16, 128)


def make_rows(size: Size, n_corr: int) -> Rows:
    """Hours about the meridian of an array of up to 8 km, most baselines short, at 1.3 - 1.364 GHz."""
    rng = np.random.default_rng(1)
    radius = np.minimum(4e3, 500.0 * np.exp(rng.normal(size=size.n_antenna)))
    angle = rng.uniform(0.0, 2.0 * np.pi, size.n_antenna)
    east, north, lat, dec = (
        radius * np.cos(angle),
        radius * np.sin(angle),
        np.deg2rad(-31.0),
        np.deg2rad(-35.0),
    )
    x, y, z = -np.sin(lat) * north, east, np.cos(lat) * north
    hour = np.linspace(-0.5, 0.5, size.n_time)[:, None] * size.hours * (np.pi / 12.0)
    to_west = np.cos(hour) * x - np.sin(hour) * y
    u = np.sin(hour) * x + np.cos(hour) * y
    v, w = np.cos(dec) * z - np.sin(dec) * to_west, np.sin(dec) * z + np.cos(dec) * to_west
    p, q = np.triu_indices(size.n_antenna, 1)
    uvw = np.stack([each[:, q] - each[:, p] for each in (u, v, w)], axis=-1).reshape(-1, 3)
    time_index = np.repeat(np.arange(size.n_time), p.size)
    freq = 1.3e9 + 64e6 * (np.arange(size.n_chan) + 0.5) / size.n_chan
    p, q = np.tile(p, size.n_time), np.tile(q, size.n_time)
    return Rows(uvw, p, q, time_index, freq, stokes_to_corr(_CORR[n_corr]), size.n_antenna, size.n_time)


def make_grid(rows: Rows, n_pixel: int) -> ImageGrid:
    """Three pixels to the shortest wave."""
    longest = np.abs(rows.uvw[:, :2]).max() * rows.chan_freq.max() / _SPEED_OF_LIGHT
    return ImageGrid(n_pixel, float(1.0 / (3.0 * longest)))


def make_screens(idg: Idg, n_antenna: int, kind: str) -> np.ndarray | None:
    """A-terms that are no ones; how smooth they are costs nothing."""
    if kind == "none":
        return None
    rng, shape = np.random.default_rng(2), (1, n_antenna, *idg.lm[0].shape)
    if kind == "scalar":
        return np.exp(0.3j * rng.normal(size=shape))
    return np.eye(2) + 0.2 * (rng.normal(size=(*shape, 2, 2, 2)) @ [1.0, 1.0j])


class Stages:
    """Seconds that the transforms of the whole image take, of the calls since `clear`."""

    def __init__(self, idg: Idg) -> None:
        self.seconds = 0.0
        image = getattr(idg._engine, "_image", None)
        self.can = image is not None
        for name in ("to_grid", "from_grid"):
            if image is not None:
                setattr(image, name, self._timed(getattr(image, name)))

    def clear(self) -> None:
        self.seconds = 0.0

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> None:
            start = time.perf_counter()
            call(*args)
            self.seconds += time.perf_counter() - start

        return timed


class Case:
    """One way to predict and to grid: what is measured, ready to be called."""

    def __init__(
        self, size: Size, n_corr: int, screens: str, accuracy: float, backend: Any, subgrid: int | None = None
    ) -> None:
        rows = make_rows(size, n_corr)
        self.name = f"{accuracy:g}, {n_corr} corr, A-terms {screens}"
        self.size, self.grid, self.rows, self.accuracy = size, make_grid(rows, size.n_pixel), rows, accuracy
        self.n_stokes = 4 if n_corr == 4 else 1
        start = time.perf_counter()
        self.idg = Idg(rows, self.grid, accuracy=accuracy, backend=backend, subgrid=subgrid)
        self.plan_s = time.perf_counter() - start
        rng = np.random.default_rng(3)
        self.image = rng.normal(size=(self.n_stokes, size.n_pixel, size.n_pixel))
        self.vis = np.ones((rows.n_row, rows.n_chan, n_corr), np.complex64)
        self.screens = make_screens(self.idg, size.n_antenna, screens)

    def predict(self) -> None:
        self.idg.predict(self.image, self.screens)

    def image_of(self) -> None:
        self.idg.grid(self.vis, n_stokes=self.n_stokes, screens=self.screens)

    def ducc(self, threads: int) -> dict[str, Callable[[], Any]]:
        """ducc0's call of either kind, for one correlation; none where it is not installed."""
        try:
            from ducc0 import wgridder
        except ImportError:
            return {}
        size, cell = self.size.n_pixel, self.grid.cell
        options = {
            "uvw": self.rows.uvw * [1.0, -1.0, 1.0], "freq": self.rows.chan_freq, "pixsize_x": cell,
            "pixsize_y": cell, "epsilon": self.accuracy, "do_wgridding": True, "divide_by_n": False,
            "nthreads": threads,
        }  # fmt: skip
        image = self.image[0].astype(np.float32)
        vis = np.ascontiguousarray(self.vis[..., 0])
        return {
            "predict": lambda: wgridder.dirty2vis(dirty=image, **options),
            "grid": lambda: wgridder.vis2dirty(vis=vis, npix_x=size, npix_y=size, **options),
        }


def kernel_line(case: Case, repeat: int) -> dict[str, Any]:
    """Rates of what is done to items."""
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


def whole_line(case: Case, repeat: int, threads: int) -> dict[str, Any]:
    """Whole calls, and ducc0's in turn with them."""
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


def describe(case: Case) -> dict[str, Any]:
    """What a line is about."""
    layout, plan, size = case.idg._layout, case.idg._plan, case.size
    return {
        "name": case.name, "accuracy": case.accuracy, "n_corr": case.rows.n_corr, "n_vis": size.n_vis,
        "n_antenna": size.n_antenna, "n_time": size.n_time, "n_chan": size.n_chan, "n_pixel": size.n_pixel,
        "subgrid": layout.size, "n_grid": layout.n_grid, "n_layer": int(plan.layer_w.size),
        "n_item": plan.n_item, "precision": case.idg.precision, "plan": case.idg.plan,
    }  # fmt: skip


def variants(quick: bool) -> Iterator[tuple[float, int, str]]:
    """Accuracies, correlations and A-terms."""
    for accuracy, n_corr in itertools.product((1e-4,) if quick else (1e-4, 1e-5), (4, 1)):
        for screens in ("none", "2 x 2" if n_corr == 4 else "scalar"):
            yield accuracy, n_corr, screens


def kernel_text(line: dict[str, Any]) -> str:
    start = f"{line['name']:32}{line['subgrid']:8}{line['n_item']:9}"
    rates = "".join(f"{line[f'{name}_rate'] / 1e6:12.2f}" for name in ("degridder", "gridder"))
    return start + rates


def whole_text(line: dict[str, Any]) -> str:
    text = f"{line['name']:32}{line['subgrid']:8}{line['n_layer']:7}{line['plan_s']:8.2f}"
    for name in ("predict", "grid"):
        text += f"{line[f'{name}_rate'] / 1e6:10.2f}"
        has_peer = f"{name}_ducc_rate" in line
        text += (
            f"{line[f'{name}_ducc_rate'] / 1e6:8.2f}{line[f'{name}_x_ducc']:8.2f}" if has_peer else " " * 16
        )
    return text


def goals(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Four correlations with A-terms against four calls of ducc0 without."""
    found = []
    for line in lines:
        if line["accuracy"] == 1e-4 and line["n_corr"] == 4 and "2 x 2" in line["name"]:
            for name in ("predict", "grid"):
                ratio = line.get(f"{name}_x_ducc")
                found.append({
                    "case": f"{name}, {line['name']}", "precision": line["precision"], "sense": "at least",
                    "bound": 1.0, "unit": "x four calls of ducc0", "found": ratio,
                    "reached": None if ratio is None else ratio >= 1.0,
                })  # fmt: skip
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--quick", action="store_true", help="small cases: does it work, not how fast is it")
    parser.add_argument("--repeat", type=int, default=3, help="calls the least of which counts (default 3)")
    parser.add_argument("--times", type=int, default=360, help="times of the observation, every 10 s (CUDA)")
    parser.add_argument("--kernels", action="store_true", help="kernels alone")
    parser.add_argument("--whole", action="store_true", help="whole calls alone")
    parser.add_argument(
        "--output", type=Path, help="JSON file (default: benchmarks/results/idg/...; none if quick)"
    )
    return parser.parse_args()


def main() -> int:
    args = arguments()
    device.resolve(args.device)
    about = machine(args.device)
    print(f"{about.get('gpu', about['cpu'])}, {about['threads']} CPU threads, load {about['load']:.1f}")
    if args.device == "cuda":
        return on_device(args, about)
    small, large = (_TINY,) * 2 if args.quick else (Size(64, 25, 64, 2048), Size(64, 100, 64, 2048))
    kernels: list[dict[str, Any]] = []
    whole: list[dict[str, Any]] = []

    def found() -> dict[str, Any]:
        return {"kernels": kernels, "whole": whole, "goals": goals(whole)}

    if not args.whole:
        print(f"\nkernels, {small}\n{'':32}{'subgrid':>8}{'items':>9}{'degrid M/s':>12}{'grid M/s':>12}")
        for accuracy, n_corr, screens in variants(args.quick):
            for subgrid in _SUBGRIDS[:1] if args.quick else _SUBGRIDS:
                case = Case(small, n_corr, screens, accuracy, args.device, subgrid)
                kernels.append(kernel_line(case, args.repeat))
                print(kernel_text(kernels[-1]), flush=True)
                save(args, about, found())
    if not args.kernels:
        columns = "".join(f"{name + ' M/s':>10}{'ducc':>8}{'x ducc':>8}" for name in ("pred", "grid"))
        print(f"\nwhole calls, {large}\n{'':32}{'subgrid':>8}{'layers':>7}{'plan s':>8}{columns}")
        for accuracy, n_corr, screens in variants(args.quick):
            case = Case(large, n_corr, screens, accuracy, args.device)
            whole.append(whole_line(case, args.repeat, about["threads"]))
            print(whole_text(whole[-1]), flush=True)
            save(args, about, found())
    finish(args, about, found())
    return 0


def on_device(args: argparse.Namespace, about: dict[str, Any]) -> int:
    """The same on a CUDA device, whose roofs are measured too."""
    import idg_cuda

    # Every ten seconds: items are as full as in real observations.
    size = _TINY if args.quick else Size(64, args.times, 64, 2048, args.times / 360.0)
    print(f"{size}\n")
    keep = functools.partial(save, args, about)
    found = idg_cuda.measured(Case, describe, size, args.repeat, quick=args.quick, keep=keep)
    finish(args, about, found)
    return 0


def finish(args: argparse.Namespace, about: dict[str, Any], found: dict[str, Any]) -> None:
    """Show the goals and write the file."""
    print("\ngoals:\n" + "\n".join(goal_text(verdict) for verdict in found["goals"]))
    output = save(args, about, found)
    if output is not None:
        print(f"\nwritten to {output}")


def save(args: argparse.Namespace, about: dict[str, Any], found: dict[str, Any]) -> Path | None:
    """Write the file, where one is wanted; its path."""
    output: Path | None = args.output
    if output is None and not args.quick:
        output = Path(__file__).parent / "results" / "idg" / f"{args.device}_{machine_slug(about)}.json"
    if output is not None:
        write(output, {"device": args.device, "quick": args.quick, "machine": about} | found)
    return output


if __name__ == "__main__":
    sys.exit(main())
