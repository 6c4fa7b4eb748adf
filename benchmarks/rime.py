"""Speed of the RIME: chi2 of a batch of skies, in source-visibilities per second.

    python benchmarks/rime.py --device cpu [--quick] [--precision single] [--output FILE]

Every case is measured in this run beside a plain NumPy direct sum of a part of it. The table goes to
standard output, the same as JSON to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np

import biro
from rime_kernels import Rime, Rows, Sources, device, stokes_to_corr

LINEAR = ["XX", "XY", "YX", "YY"]
SPEED_OF_LIGHT = 299792458.0
# Visibilities of the plain NumPy sum: enough to fill its arrays, few enough to wait for.
NUMPY_SAMPLES = 20000


@dataclass(frozen=True)
class Case:
    """Sizes of one problem."""

    name: str
    n_antenna: int
    n_time: int
    n_chan: int
    n_point: int
    n_gaussian: int = 0
    n_batch: int = 1
    polarised: bool = True
    form: str = "factored"

    @property
    def n_source(self) -> int:
        return self.n_point + self.n_gaussian


FULL = [Case(f"{n} antennas", n, 100, 64, 50, 50) for n in (7, 14, 27, 64, 128, 192)]
FULL += [
    Case("points", 64, 100, 64, 100),
    Case("points, Stokes I", 64, 100, 64, 100, polarised=False),
    Case("points, row form", 64, 100, 64, 100, form="row"),
    Case("1000 points", 64, 20, 64, 1000),
    Case("1 point", 64, 100, 64, 1),
    *(Case(f"EHT, batch {n}", 7, 114, 1, 3, n_batch=n, polarised=False) for n in (1, 16, 256, 4096)),
]
QUICK = [
    Case("7 antennas", 7, 20, 16, 10, 10),
    Case("14 antennas", 14, 10, 16, 10, 10),
    Case("27 antennas", 27, 5, 16, 10, 10),
    Case("27 antennas, row form", 27, 5, 16, 10, 10, form="row"),
    Case("EHT, batch 16", 7, 114, 1, 3, n_batch=16, polarised=False),
]


def problem(case: Case) -> tuple[Rows, Sources]:
    """All baselines at all times, random sources."""
    rng = np.random.default_rng(1)
    first, second = np.triu_indices(case.n_antenna, 1)
    position = rng.normal(scale=1000.0, size=(case.n_time, case.n_antenna, 3))
    uvw = (position[:, first] - position[:, second]).reshape(-1, 3)
    time_index = np.repeat(np.arange(case.n_time), first.size)
    antennas = np.tile(first, case.n_time), np.tile(second, case.n_time)
    freq = np.linspace(1.0e9, 1.5e9, case.n_chan)
    matrix = stokes_to_corr(LINEAR if case.polarised else ["I"])
    rows = Rows(uvw, *antennas, time_index, freq, matrix, case.n_antenna, case.n_time)
    stokes = rng.normal(size=(case.n_batch, 1, case.n_source, 4)) * (
        [1, 1, 1, 1] if case.polarised else [1, 0, 0, 0]
    )
    index = np.repeat(rng.normal(size=(case.n_batch, case.n_source, 1, 1)), 4, axis=2)
    shape = rng.uniform(1e-5, 1e-4, (case.n_batch, case.n_gaussian, 3))
    lm = rng.uniform(-0.02, 0.02, (case.n_batch, case.n_source, 2))
    ones = np.ones(case.n_source)
    return rows, Sources(lm, stokes, 1.4e9 * ones, index, ones, shape)


def numpy_sum(rows: Rows, sources: Sources) -> None:
    """A plain direct sum of one sky over the first rows: the same work, one source at a time."""
    n_row = max(1, min(rows.n_row, NUMPY_SAMPLES // rows.n_chan))
    u, v, w = (x[:, None] for x in rows.uvw[:n_row].T)
    nu = rows.chan_freq / SPEED_OF_LIGHT
    vis = np.zeros((n_row, rows.n_chan, rows.n_corr), complex)
    for s in range(sources.n_source):
        l, m = sources.lm[0, s]
        n = np.sqrt(1.0 - l * l - m * m)
        term = np.exp(2j * np.pi * (u * l + v * m - w * (l * l + m * m) / (1.0 + n)) * nu)
        if s >= sources.n_point:
            emaj, emin, pa = sources.shape[0, s - sources.n_point]
            x, y = u - w * l / n, v - w * m / n
            a, b = x * np.sin(pa) + y * np.cos(pa), x * np.cos(pa) - y * np.sin(pa)
            term *= np.exp(-(np.pi**2) / (4.0 * np.log(2.0)) * ((emaj * a) ** 2 + (emin * b) ** 2) * nu**2)
        factor = (rows.chan_freq / sources.ref_freq[s]) ** sources.spectral_terms[0, s, 0, 0]
        vis += (term * factor)[..., None] * (rows.stokes_to_corr @ sources.stokes[0, 0, s])
    np.sum(np.abs(vis) ** 2)


def timed(call: Callable[[], object], n: int) -> list[float]:
    """Seconds of n calls after one for warming up."""
    call()
    seconds = []
    for _ in range(n):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds


def measure(case: Case, backend: Any, precision: Any, n_repeat: int) -> dict[str, Any]:
    """One line of the table."""
    rows, sources = problem(case)
    rng = np.random.default_rng(2)
    vis = rng.normal(size=(rows.n_row, rows.n_chan, 2 * rows.n_corr)).astype(np.float32).view(np.complex64)
    options: dict[str, Any] = {"backend": backend, "precision": precision, "form": case.form}
    rime = Rime(rows, vis=vis, weight=np.ones(vis.shape, np.float32), extent=0.02, **options)
    start = time.perf_counter()
    rime.chi2(sources)
    first = time.perf_counter() - start
    median = statistics.median(timed(lambda: rime.chi2(sources), n_repeat))
    n_sample = rows.n_row * rows.n_chan
    rate = case.n_batch * n_sample * case.n_source / median
    n_plain = min(rows.n_row, max(1, NUMPY_SAMPLES // rows.n_chan)) * rows.n_chan
    plain = n_plain * case.n_source / statistics.median(timed(lambda: numpy_sum(rows, sources), 3))
    return {
        **asdict(case),
        "precision": precision,
        "first_s": first,
        "median_ms": 1e3 * median,
        "source_visibilities_per_s": rate,
        "likelihoods_per_s": case.n_batch / median,
        "numpy_source_visibilities_per_s": plain,
        "ratio_to_numpy": rate / plain,
    }


def machine(backend: str) -> dict[str, Any]:
    """What the figures belong to."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
    return {
        "device": device.device_name() if backend == "cuda" else model,
        "threads": numba.get_num_threads(),
        "versions": {"biro": biro.__version__, "numba": numba.__version__, "numpy": np.__version__},
        "python": platform.python_version(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["single", "double", "both"], default="both")
    parser.add_argument("--quick", action="store_true", help="small cases, under a minute")
    parser.add_argument("--repeat", type=int, default=20, help="calls a median is taken of (default 20)")
    parser.add_argument(
        "--output", type=Path, help="JSON file (default: benchmarks/results/rime_DEVICE.json)"
    )
    args = parser.parse_args()
    precisions = ["single", "double"] if args.precision == "both" else [args.precision]
    found = []
    print(f"{'case':24} {'form':9} {'precision':9} {'ms':>10} {'src-vis/s':>10} {'x numpy':>8}")
    for case in QUICK if args.quick else FULL:
        for precision in precisions:
            line = measure(case, args.device, precision, args.repeat)
            found.append(line)
            rate, ratio = line["source_visibilities_per_s"], line["ratio_to_numpy"]
            speed = f"{line['median_ms']:10.3f} {rate:10.3g} {ratio:8.1f}"
            print(f"{case.name:24} {case.form:9} {precision:9} {speed}", flush=True)
    name = f"rime_{args.device}{'_quick' if args.quick else ''}.json"
    output = args.output or Path(__file__).parent / "results" / name
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({"machine": machine(args.device), "cases": found}, indent=1) + "\n")
    print(f"written to {output}")


if __name__ == "__main__":
    main()
