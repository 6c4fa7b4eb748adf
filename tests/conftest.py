"""Fixtures shared by all rooms: the reference data, and whether a GPU must be there."""

from __future__ import annotations

import os
import shutil
import tarfile
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DATA = Path(os.environ.get("BIRO_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))


SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
if SIMULATED:
    import simulator

    simulator.hasten()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-cuda", action="store_true", help="a test skipped for want of a GPU fails")


def pytest_configure(config: pytest.Config) -> None:
    """Before workers begin: let each have one thread of BLAS, and import arviz once.

    Threads of several workers wait for each other at each small matrix, which takes up to four times as long
    (measured). The first import of arviz in a day writes a file, which fails where two processes do it at
    once (arviz 0.23).
    """
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read by NumPy and SciPy as a worker imports them
    if find_spec("arviz") is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import arviz  # noqa: F401


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what looks at the CUDA simulator where there is none, and what other workers would disturb."""
    if item.get_closest_marker("simulator") and not SIMULATED:
        pytest.skip("looks at the CUDA simulator itself")
    if item.get_closest_marker("alone") and not _is_alone():
        pytest.skip("measures the memory of the whole device: run it without other workers (-m alone)")


def _is_alone() -> bool:
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) == 1


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Turn the skip of a CUDA test into a failure where a GPU was promised."""
    report = yield
    needs_device = item.get_closest_marker("cuda") and not item.get_closest_marker("simulator")
    if item.get_closest_marker("alone") and not _is_alone():
        needs_device = None
    if report.skipped and needs_device and item.config.getoption("--require-cuda"):
        report.outcome = "failed"
        report.longrepr = f"skipped although --require-cuda was given: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of real data sets and truth vectors."""
    if not DATA.is_dir():
        if os.environ.get("CI") == "true":
            pytest.fail(f"no reference data at {DATA}; CI must have them (set BIRO_TEST_DATA)")
        pytest.skip(f"no reference data at {DATA}; set BIRO_TEST_DATA to their folder")
    return DATA


@pytest.fixture(scope="session")
def truth(data_dir: Path) -> Callable[[str], dict[str, np.ndarray]]:
    """Arrays of one truth file by name: truth("casa_27_circ")."""

    def load(name: str) -> dict[str, np.ndarray]:
        with np.load(data_dir / "truth" / f"{name}.npz") as file:
            return dict(file)

    return load


@pytest.fixture(scope="session")
def measurement_set(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Path of an unpacked Measurement Set: measurement_set("vla_3c273_x"). Copy before writing."""
    unpacked: dict[str, Path] = {}

    def unpack(name: str) -> Path:
        if name not in unpacked:
            found = sorted(data_dir.rglob(f"{name}*.tgz"))
            if len(found) != 1:
                pytest.fail(f"expected one archive named {name}*.tgz, found {found}")
            folder = tmp_path_factory.mktemp(name)
            with tarfile.open(found[0]) as archive:
                archive.extractall(folder, filter="data")
            (unpacked[name],) = folder.iterdir()
        return unpacked[name]

    return unpack


@pytest.fixture
def copy(measurement_set: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a Measurement Set that a test may change: copy("vla_3c273_x")."""

    def make(name: str) -> Path:
        return Path(shutil.copytree(measurement_set(name), tmp_path / "copy.ms"))

    return make
