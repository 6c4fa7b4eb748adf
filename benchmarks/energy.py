"""Measure the energy that predicting and gridding take on a GPU: joules per visibility, operations per joule.

    python benchmarks/energy.py [--device cpu|cuda] [--quick] [--seconds 10] [--output FILE]

W-projection with a small and a large support, and image-domain gridding, of one and of four correlations;
image and visibilities lie on the GPU. Energy is what the driver's counter says (NVML) over at least so many
seconds of calls, less what the GPU takes when idle. Operations are those of the kernels alone: 8 for each
visibility, correlation and cell of W-projection (a complex product and its sum); 8 for each pixel of a
subgrid of image-domain gridding, and 4 for its phase, sine and cosine. On a CPU nothing is measured.
"""

from __future__ import annotations

import sys

from common.energy import Meter, NoMeterError
from common.machine import machine, machine_slug, print_machine
from common.options import make_parser, output_path, parse
from common.results import write
from common.types import Line
from gridding.cases import SIMULATED, Case, Size

from rime_kernels import device
from rime_kernels.gridding.gridder import Gridder
from rime_kernels.wprojection import WProjection

SUPPORTS = (7, 31)
WHOLE = Size(64, 60, 64, 2048, 1.0)


def main() -> int:
    parser = make_parser(__doc__, device=True)
    parser.add_argument("--seconds", type=float, default=10.0, help="least time of the calls (default 10)")
    args = parse(parser)
    device.resolve(args.device)
    about = machine(args.device)
    print_machine(about)
    output = output_path(args, "energy", f"{args.device}_{machine_slug(about)}.json")
    try:
        if args.device == "cpu" or device.simulated():
            raise NoMeterError("energy is measured on a GPU")
        meter = Meter()
    except NoMeterError as error:
        print(f"nothing was measured: {error}")
        write(output, {"quick": args.quick, "machine": about, "skipped": str(error), "lines": []})
        return 0
    seconds = 0.1 if args.quick else args.seconds
    print(f"idle {meter.idle_watt:.0f} W\n{'':34}{'nJ/vis.':>10}{'W':>8}{'GFLOP/J':>10}")
    lines: list[Line] = []
    for n_corr in (1, 4):
        case = Case(SIMULATED if args.quick else WHOLE, n_corr, "none", 1e-3, args.device)
        for name, gridder, operations in _gridders(case, n_corr):
            lines += _lines(case, name, gridder, operations, meter, seconds)
            write(
                output, {"quick": args.quick, "machine": about, "idle_watt": meter.idle_watt, "lines": lines}
            )
    print(f"\nwritten to {output}" if output else "\nnot written")
    return 0


def _gridders(case: Case, n_corr: int) -> list[tuple[str, Gridder, int]]:
    """Name, gridder, and operations of its kernels for each visibility."""
    found: list[tuple[str, Gridder, int]] = []
    for support in SUPPORTS:
        gridder = WProjection(case.rows, case.grid, accuracy=1e-2, backend="cuda", support=support)
        found.append((f"W-projection, S = {support}", gridder, 8 * support**2 * n_corr))
    size = case.idg.layout.size
    return [*found, (f"IDG, {size} x {size}", case.idg, size**2 * (8 * n_corr + 4))]


def _lines(
    case: Case, name: str, gridder: Gridder, operations: int, meter: Meter, seconds: float
) -> list[Line]:
    from gridding.resident import Resident

    there, found = Resident(gridder, case.image, None), []
    for what, call in (("predict", there.predict), ("grid", there.grid)):
        joules, took, n = meter.joules(call, seconds)
        per_vis = joules / (n * case.size.n_vis)
        line: Line = {
            "engine": gridder.engine, "name": name, "what": what, "n_corr": case.rows.n_corr,
            "n_vis": case.size.n_vis, "n_call": n, "seconds": took, "joules": joules,
            "joule_per_vis": per_vis, "watt": joules / took, "flop_per_joule": operations / per_vis,
        }  # fmt: skip
        text = f"{name}, {case.rows.n_corr} corr, {what}"
        print(
            f"{text:34}{1e9 * per_vis:10.1f}{line['watt']:8.0f}{1e-9 * line['flop_per_joule']:10.1f}",
            flush=True,
        )
        found.append(line)
    return found


if __name__ == "__main__":
    sys.exit(main())
