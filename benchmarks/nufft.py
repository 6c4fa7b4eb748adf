"""Compare predictions and their adjoint with programs that do these in JAX, on one device.

    python benchmarks/nufft.py [--quick] [--repeat 5] [--visibilities 1e6 1e7] [--size 2048]
                                   [--accuracy 1e-5] [--output FILE]

Visibilities of one correlation of an image in double precision, and images of visibilities, by biro's
image-domain gridding and W-projection, and by packages where they are installed:

    nufftax     non-uniform transforms in JAX alone. It has no w-terms, so w is 0 here for all programs
    jax-nufft   a w-gridder on jax-finufft, whose wheels are for CPUs: a GPU needs it built with CUDA

Times are those of whole calls with results on the host, and on a GPU also those of what is done there
("device"), with visibilities and images there. The device is chosen as for the other programs. Memory is
what a program took of the GPU. Differences are relative to the first program, by the 2-norm. A package that
is missing is printed, and no failure.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from common.machine import machine, machine_slug, print_machine
from common.options import make_parser, output_path, parse
from common.results import write
from common.timing import measure
from common.types import Line
from gridding.cases import Size, make_grid, make_rows
from numpy.typing import NDArray

from rime_kernels import Rows, device, make_gridder
from rime_kernels.idg import ImageGrid
from rime_kernels.physics.phase import SPEED_OF_LIGHT

Call = Callable[[], Any]


@dataclass(frozen=True)
class Problem:
    """Rows with w = 0, pixels, an image (1, N, N) and visibilities (n_row, n_chan, 1)."""

    rows: Rows
    grid: ImageGrid
    image: NDArray[np.float64]
    vis: NDArray[np.complex128]
    accuracy: float
    backend: str

    @classmethod
    def of(cls, n_vis: float, size: int, accuracy: float, backend: str) -> Problem:
        n_time, n_chan = (2, 4) if n_vis < 1e3 else (100, max(1, round(n_vis / 201600)))
        rows = make_rows(Size(8 if n_vis < 1e3 else 64, n_time, n_chan, size), 1)
        rows = replace(rows, uvw=rows.uvw * [1.0, 1.0, 0.0])
        rng, shape = np.random.default_rng(1), (rows.n_row, rows.n_chan, 1)
        vis = rng.normal(size=shape) + 1j * rng.normal(size=shape)
        return cls(rows, make_grid(rows, size), rng.normal(size=(1, size, size)), vis, accuracy, backend)

    @property
    def n_vis(self) -> int:
        return self.rows.n_row * self.rows.n_chan


@dataclass(frozen=True)
class Program:
    """Both calls of a program with results on the host, and those whose results stay on the device."""

    name: str
    predict: Call
    grid: Call
    resident: tuple[Call, Call] | None = None
    n_byte: Callable[[], int | None] = lambda: None


def of_biro(problem: Problem, engine: str) -> Program:
    free = _free_bytes(problem)
    gridder = make_gridder(
        problem.rows, problem.grid, engine=engine, accuracy=problem.accuracy, backend=problem.backend
    )
    resident = None
    if problem.backend == "cuda" and not device.simulated():
        from gridding.resident import Resident

        there = Resident(gridder, problem.image, None)
        resident = lambda: there.kernel_seconds(3)["degridder"], lambda: there.kernel_seconds(3)["gridder"]
    return Program(
        engine,
        lambda: gridder.predict(problem.image),
        lambda: gridder.grid(problem.vis),
        resident,
        lambda: None if free is None else free - (_free_bytes(problem) or 0),
    )


def of_nufftax(problem: Problem) -> Program:
    """Positive exponents, and pixels x to the west: l = -(x - N/2) cell (physics: section 8)."""
    import jax
    import jax.numpy as jnp
    from nufftax import nufft2d1, nufft2d2

    n, cell = problem.grid.n_pixel, problem.grid.cell
    scale = 2.0 * np.pi * cell * problem.rows.chan_freq / SPEED_OF_LIGHT
    u, v = (problem.rows.uvw[:, i, None] * scale for i in (0, 1))
    x, y = jnp.asarray(-u.ravel()), jnp.asarray(v.ravel())
    image, vis = jnp.asarray(problem.image[0] + 0j), jnp.asarray(problem.vis.ravel())
    eps, shape = problem.accuracy, problem.vis.shape
    ahead = jax.jit(lambda image: nufft2d2(x, y, image, eps=eps, isign=1))
    back = jax.jit(lambda vis: nufft2d1(x, y, vis, (n, n), eps=eps, isign=-1).real)
    return Program(
        "nufftax",
        lambda: np.asarray(ahead(image)).reshape(shape),
        lambda: np.asarray(back(vis))[None],
        (lambda: ahead(image).block_until_ready(), lambda: back(vis).block_until_ready()),
        _jax_bytes,
    )


def of_jax_nufft(problem: Problem) -> Program:
    """Its w-gridder, as one of ducc0 with the same signs."""
    import jax
    import jax.numpy as jnp
    import jax_nufft

    n, cell = problem.grid.n_pixel, problem.grid.cell
    plan = jax_nufft.make_plan(
        problem.rows.uvw * [1.0, -1.0, 1.0], problem.rows.chan_freq, (n, n), cell, cell, problem.accuracy
    )  # fmt: skip
    image, vis = jnp.asarray(problem.image[0].T), jnp.asarray(problem.vis[..., 0])
    ahead, back = (
        jax.jit(lambda x: jax_nufft.dirty2vis(plan, x)),
        jax.jit(lambda x: jax_nufft.vis2dirty(plan, x, divide_by_n=False)),
    )
    return Program(
        "jax-nufft", lambda: np.asarray(ahead(image))[..., None], lambda: np.asarray(back(vis)).T[None],
        (lambda: ahead(image).block_until_ready(), lambda: back(vis).block_until_ready()), _jax_bytes,
    )  # fmt: skip


def _free_bytes(problem: Problem) -> int | None:
    if problem.backend != "cuda" or device.simulated():
        return None
    return int(device.cupy("").cuda.runtime.memGetInfo()[0])


def _jax_bytes() -> int | None:
    import jax

    stats = jax.devices()[0].memory_stats()
    return None if stats is None else int(stats["peak_bytes_in_use"])


def measured(problem: Problem, repeat: int) -> Iterator[Line]:
    """A line for each program, or for the reason why there is none."""
    first: list[NDArray[Any]] | None = None
    makers = {
        "idg": lambda: of_biro(problem, "idg"),
        "wprojection": lambda: of_biro(problem, "wprojection"),
        "nufftax": lambda: of_nufftax(problem),
        "jax-nufft": lambda: of_jax_nufft(problem),
    }
    for name, make in makers.items():
        line: Line = {"program": name, "n_vis": problem.n_vis, "size": problem.grid.n_pixel}
        try:
            program = make()
            results = [np.asarray(program.predict()), np.asarray(program.grid())]
        except Exception as error:  # a peer that is missing, or that cannot work on this device
            yield line | {"left_out": f"{type(error).__name__}: {error}"[:300]}
            continue
        first = first or results
        apart = [
            float(np.linalg.norm(one - other) / np.linalg.norm(other))
            for one, other in zip(results, first, strict=True)
        ]
        line |= {"difference_predict": apart[0], "difference_grid": apart[1]}
        line |= {"predict_s": measure(program.predict, repeat).median}
        line |= {"grid_s": measure(program.grid, repeat).median, "n_byte": program.n_byte()}
        if program.resident is not None:
            line |= dict(
                zip(("predict_device_s", "grid_device_s"), resident_seconds(program, repeat), strict=True)
            )
        yield line


def resident_seconds(program: Program, repeat: int) -> list[float]:
    """Times of the calls that stay on the device; biro's return the time of their kernels by events."""
    assert program.resident is not None
    found = []
    for call in program.resident:
        answer = call()
        found.append(float(answer) if isinstance(answer, float) else measure(call, repeat).median)
    return found


def text_of(line: Line) -> str:
    if "left_out" in line:
        return f"{line['program']:13} left out: {line['left_out'].splitlines()[0]}"
    device_s = [
        f"{line[key]:11.4f}" if key in line else f"{'-':>11}" for key in ("predict_device_s", "grid_device_s")
    ]
    taken = "-" if line["n_byte"] is None else f"{line['n_byte'] / 1e9:.2f}"
    apart = max(line["difference_predict"], line["difference_grid"])
    return (
        f"{line['program']:13}{line['n_vis']:11}{line['predict_s']:11.4f}{line['grid_s']:11.4f}"
        f"{device_s[0]}{device_s[1]}{taken:>8}{apart:10.1e}"
    )


def main() -> int:
    parser = make_parser(__doc__, device=True, repeat=5)
    parser.add_argument("--visibilities", type=float, nargs="+", default=[1e6, 1e7])
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--accuracy", type=float, default=1e-5)
    args = parse(parser)
    if args.quick:
        args.visibilities, args.size = [500.0], 64
    if args.device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import jax

        jax.config.update("jax_enable_x64", True)
    except ImportError:
        print("JAX is not installed: biro alone")
    about, lines = machine(args.device), []
    print_machine(about)
    print(
        f"{'program':13}{'n_vis':>11}{'predict s':>11}{'grid s':>11}{'device s':>11}{'device s':>11}"
        f"{'GB':>8}{'differ':>10}"
    )
    for n_vis in args.visibilities:
        for line in measured(Problem.of(n_vis, args.size, args.accuracy, args.device), args.repeat):
            lines.append(line)
            print(text_of(line), flush=True)
            found = {"device": args.device, "quick": args.quick, "machine": about, "accuracy": args.accuracy}
            write(output_path(args, "nufft", f"{machine_slug(about)}.json"), found | {"programs": lines})
    return 0


if __name__ == "__main__":
    sys.exit(main())
