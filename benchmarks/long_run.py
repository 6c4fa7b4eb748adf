"""A million likelihood calls: do memory and open files stay as they are?

    python benchmarks/long_run.py --device cpu --output benchmarks/results/survive/long_run_cpu.json

Calls `Likelihood.log_likelihood` with one parameter vector at a time, on a small problem, and writes down now
and then what the process holds: host memory (resident), device memory, file descriptors, threads. Memory must
not grow with the calls: the slope over the second half, by least squares, is what the table ends with.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from cases import Case
from report import machine
from whole import likelihood

CASE = Case("long run", n_antenna=7, n_time=10, n_chan=1, n_point=1, polarised=False)
_LOOKS = 50
_PAGE = os.sysconf("SC_PAGE_SIZE")


def held(device: str) -> dict[str, float]:
    """What this process holds: MB of the host, MB of the device (of all processes), descriptors, threads."""
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    found = {
        "host_mb": resident / 1e6,
        "descriptors": float(len(os.listdir("/proc/self/fd"))),
        "threads": float(len(os.listdir("/proc/self/task"))),
    }
    if device == "cuda":
        from rime_kernels.device import cuda

        free, total = cuda.current_context().get_memory_info()
        found["device_mb"] = (total - free) / 1e6
    return found


def run(device: str, n_call: int) -> dict[str, Any]:
    """Call, look, call; a few thousand calls before the first look."""
    target = likelihood(CASE, "double", device, free_places=True)
    theta = target.prior_transform(np.random.default_rng(1).uniform(size=(1000, target.n_param)))
    first = [target.log_likelihood(each) for each in theta]
    for each in theta[:500]:
        target.log_likelihood(each)
    looks, begun, done = [{"calls": 0, "seconds": 0.0, **held(device)}], time.perf_counter(), 0
    print(_line(looks[0]), flush=True)
    while done < n_call:
        for i in range(max(1, n_call // _LOOKS)):
            value = target.log_likelihood(theta[i % 1000])
            if value != first[i % 1000]:
                raise SystemExit(f"call {done + i} gave {value}, the first {first[i % 1000]}")
        done += max(1, n_call // _LOOKS)
        looks.append({"calls": done, "seconds": time.perf_counter() - begun, **held(device)})
        print(_line(looks[-1]), flush=True)
    return {
        "calls": done,
        "us_per_call": 1e6 * looks[-1]["seconds"] / done,
        "slopes": slopes(looks),
        "looks": looks,
    }


def slopes(looks: list[dict[str, float]]) -> dict[str, float]:
    """Growth over a million calls of what is held, from the second half of the looks."""
    later = looks[len(looks) // 2 :]
    calls = np.array([look["calls"] for look in later]) / 1e6
    names = [name for name in later[0] if name not in ("calls", "seconds")]
    return {name: float(np.polyfit(calls, [look[name] for look in later], 1)[0]) for name in names}


def _line(look: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.6g}" for name, value in look.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    about = machine(given.device)
    found = {"machine": about, "case": asdict(CASE)}
    found |= run(given.device, given.calls)
    print(f"{found['us_per_call']:.1f} us a call; growth per million calls: {_line(found['slopes'])}")
    if given.output:
        given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
