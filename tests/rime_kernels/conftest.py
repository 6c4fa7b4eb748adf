"""Fixtures of the kernels' tests: random problems, and the slow reference."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rime_kernels.arrays import Beam, Rows, Sources
from rime_kernels.jones_beam import JonesBeam
from rime_kernels.physics.brightness import stokes_to_corr
from tests.rime_kernels.problems import LINEAR, relative

# Their loops take up to a minute to compile, and have the same steps in single precision. On the CPU that is
# left to `-m thorough` here; `SINGLE`, `test_rime`, `test_antenna_truth` and biro's `test_precision` have it.
LONG_TO_COMPILE = {
    "test_antenna_terms", "test_fisher", "test_gradient", "test_jones_rime", "test_spectral_forms",
    "test_student_chi2", "test_templates",
}  # fmt: skip
SINGLE = {"test_many_sources_and_entries"}
# Half a minute of compilation for each form on the CPU, whose sums differ in nothing these are about.
# The other form is thorough.
FORM_ON_CPU = {
    "test_a_large_chi2_has_the_digits_of_float64": "factored",
    "test_gains_of_both_feeds_multiply_stokes_parameters": "row",
    "test_narrow_registers": "factored",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave what takes long on the CPU and differs in precision or form alone to `-m thorough`."""
    for item in items:
        values, name = getattr(item, "callspec", None), getattr(item, "originalname", "")
        if values is None or item.path.parent != Path(__file__).parent or item.get_closest_marker("cuda"):
            continue
        is_single = values.params.get("precision") == "single" and item.path.stem in LONG_TO_COMPILE
        is_other_form = values.params.get("form") != FORM_ON_CPU.get(name, values.params.get("form"))
        if (is_single and name not in SINGLE) or is_other_form:
            item.add_marker(pytest.mark.thorough)


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """tests/reference.py: explicit sums in float64."""
    path = Path(__file__).parents[1] / "reference.py"
    spec = importlib.util.spec_from_file_location("rime_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def cuda_backend() -> str:
    """The name "cuda", where there is a device or the simulator was asked for."""
    from rime_kernels import BackendError, device

    try:
        return device.resolve("cuda")[0]
    except BackendError as error:
        if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
            raise
        pytest.skip(str(error))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def backend(request: pytest.FixtureRequest) -> str:
    """The CPU, and CUDA where it is."""
    name = str(request.param)
    return str(request.getfixturevalue("cuda_backend")) if name == "cuda" else name


@pytest.fixture
def tiles_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The factored form goes by tiles, however few rows there are to fill them."""
    from rime_kernels.cuda.layouts import choice

    monkeypatch.setattr(choice, "LEAST_FILL", 0.0)


@pytest.fixture
def tensor_cores_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensor cores sum, however few rows there are to fill their tiles."""
    from rime_kernels.cuda.layouts import choice

    monkeypatch.setattr(choice, "LEAST_TENSOR_CORE_FILL", 0.0)


def make_rows(
    n_antenna: int = 5, n_time: int = 3, n_chan: int = 3, corr: list[str] = LINEAR, seed: int = 1
) -> Rows:
    """Ragged rows in random order: a quarter missing, a third with antennas swapped, autocorrelations."""
    rng = np.random.default_rng(seed)
    first, second = np.triu_indices(n_antenna)
    keep = rng.permutation(first.size * n_time)[: max(1, (3 * first.size * n_time) // 4)]
    time, baseline = np.divmod(keep, first.size)
    p, q = first[baseline], second[baseline]
    swap = rng.random(p.size) < 1 / 3
    p, q = np.where(swap, q, p), np.where(swap, p, q)
    position = rng.normal(scale=800.0, size=(n_time, n_antenna, 3))
    uvw = position[time, p] - position[time, q]
    freq = np.linspace(1.0e9, 1.6e9, n_chan)
    return Rows(uvw, p, q, time, freq, stokes_to_corr(corr), n_antenna, n_time)


def make_sources(
    rows: Rows, n_batch: int = 2, n_point: int = 2, n_gaussian: int = 2, seed: int = 2, **changes: Any
) -> Sources:
    """Polarised sources of both signs and kinds of spectrum, some brightness changing in time."""
    rng = np.random.default_rng(seed)
    n = n_point + n_gaussian
    fields: dict[str, Any] = {
        "lm": rng.uniform(-0.04, 0.04, (n_batch, n, 2)),
        "stokes": rng.normal(size=(n_batch, rows.n_time, n, 4)),
        "ref_freq": rng.uniform(1.0e9, 2.0e9, n),
        "spectral_terms": rng.normal(scale=0.7, size=(n_batch, n, 4, 2)),
        "log_spectrum": np.arange(n) % 2 == 0,
        "shape": np.sort(rng.uniform(1e-5, 1e-4, (n_batch, n_gaussian, 3)))[..., ::-1] * [1, 1, 3e4],
    }
    return Sources(**{**fields, **changes})


def make_beam(rows: Rows, kind: Any, n_batch: int = 2, *, pointing: bool = True, seed: int = 3) -> Beam:
    """A beam with x up to about 1.5 at the sources, with pointing errors of some mrad."""
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.8, 1.2, n_batch) * {"cos3": 20e-9, "gaussian": 15e-9, "airy": 40e-9}[kind]
    errors = rng.normal(scale=0.004, size=(n_batch, rows.n_time, rows.n_antenna, 2)) if pointing else None
    return Beam(kind, scale, errors)


@pytest.fixture
def problem() -> Callable[..., Rows]:
    return make_rows


@pytest.fixture
def sky() -> Callable[..., Sources]:
    return make_sources


@pytest.fixture
def beam_of() -> Callable[..., Beam]:
    return make_beam


@pytest.fixture
def error_of() -> Callable[[np.ndarray, np.ndarray], float]:
    return relative


def make_jones_beam(
    rows: Rows, n_batch: int = 2, *, seed: int = 4, turned: bool = False, **changes: Any
) -> JonesBeam:
    """Random matrices of two classes, turned and pointed anew at each time; some sources lie beyond.

    `turned` says whether feeds have angles and rotation measures of their own.
    """
    rng = np.random.default_rng(seed)
    shape, each = (2, rows.n_chan, 9, 10, 2, 2), (rows.n_time, rows.n_antenna)
    fields: dict[str, Any] = {
        "coefficient": rng.normal(size=shape) + 1j * rng.normal(size=shape),
        "grid": [-0.04, 0.012, -0.035, 0.011],
        "antenna_class": np.arange(rows.n_antenna) // 2 % 2,
        "angle": rng.normal(size=each),
        "feed_angle": rng.normal(size=(*each, rows.n_chan)),
        "scale": rng.uniform(0.8, 1.2, n_batch),
        "pointing": rng.normal(scale=0.004, size=(n_batch, *each, 2)),
    }
    if turned:
        fields["turn"] = rng.normal(size=(n_batch, rows.n_antenna, 2)) * [1.0, 10.0]
        fields["wavelength2"] = (299792458.0 / rows.chan_freq) ** 2
    return JonesBeam(**{**fields, **changes})


@pytest.fixture
def jones_beam_of() -> Callable[..., JonesBeam]:
    return make_jones_beam
