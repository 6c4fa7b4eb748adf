"""The machine that a benchmark runs on, and the versions of the packages that matter."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from pathlib import Path

import numba

from common.types import Line
from rime_kernels import device

_PACKAGES = ("biro-rime", "numpy", "numba", "llvmlite", "numba-cuda", "cupy-cuda12x", "cupy-cuda13x", "emcee")


def machine(backend: str) -> Line:
    """Describe what the figures belong to: processors, threads, versions; no names of hosts or people."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*:\s*(.+)", text)
    found: Line = {
        "cpu": model[1] if model else platform.processor(),
        "threads": numba.get_num_threads(),
        "load": os.getloadavg()[0],  # others' work, before ours: medians are worth less the more there is
        "python": platform.python_version(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
    }
    if backend == "cuda":
        found["gpu"] = device.device_name()
        for name, ask in (("cuda_runtime", _runtime), ("driver", _driver)):
            try:
                found[name] = ask()
            except Exception as error:  # each driver package answers in its own way, or not at all
                found[name] = f"unknown ({type(error).__name__})"
    return found


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _runtime() -> str:
    return ".".join(map(str, device.cuda.runtime.get_version()))


def _driver() -> str:
    text = Path("/proc/driver/nvidia/version").read_text()
    match = re.search(r"\s(\d+\.\d+(\.\d+)?)\s", text)
    return match[1] if match else "unknown"


def machine_slug(about: Line) -> str:
    """Return the name of the processor as a file name."""
    return re.sub(r"[^a-z0-9]+", "_", str(about.get("gpu", about["cpu"])).lower()).strip("_")


def print_machine(about: Line) -> None:
    """Print the processor, its threads and its load, which stand above a table."""
    print(f"{about.get('gpu', about['cpu'])}, {about['threads']} CPU threads, load {about['load']:.1f}")
