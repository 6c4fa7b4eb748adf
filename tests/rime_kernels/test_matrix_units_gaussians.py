"""Points by matrix units and Gaussians by multiply-adds, in one kernel: against explicit sums and the CPU.

On a device or in Numba's simulator, which has no matrix units: there their operands are multiplied one by one.
"""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

from rime_kernels import Rime, Rows, stokes_to_corr
from rime_kernels.cuda.kernels.tiles.parts import TileShape
from rime_kernels.cuda.shapes.matrix_units import forced_units

LINEAR = ["XX", "XY", "YX", "YY"]
# As of points alone (`test_matrix_units.py`).
TOLERANCE = {"double": 1e-12, "single": 2e-6}
# Blocks of one warp and one or two tiles a thread; two Gaussians a chunk.
SMALL = [TileShape(2, 32, 2, 32, 1, 0, 8, 1), TileShape(2, 32, 2, 32, 1, 0, 16, 2)]
# Those that the simulator runs: all values of each parameter occur.
SIMULATED = [(SMALL[0], "double", True), (SMALL[1], "single", False)]
VARIANTS = [
    pytest.param(*each, marks=() if each in SIMULATED else pytest.mark.on_device)
    for each in itertools.product(SMALL, ["double", "single"], [True, False])
]

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("_units")]


@pytest.fixture
def _units(cuda_backend, monkeypatch) -> None:
    """However few rows there are to fill the tiles."""
    from rime_kernels.cuda.layouts import choice

    monkeypatch.setattr(choice, "LEAST_UNIT_FILL", 0.0)


def data_for(rows: Rows) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    shape = (rows.n_row, rows.n_chan, rows.n_corr)
    weight = rng.uniform(0.5, 2.0, shape) * (rng.random(shape) > 0.2)
    return {"vis": rng.normal(size=shape) + 1j * rng.normal(size=shape), "weight": weight}


def in_units(rows: Rows, **options: Any) -> Rime:
    return Rime(rows, **{**data_for(rows), "extent": 0.04, "form": "factored", "backend": "cuda", **options})


def chi2_of(rows: Rows, vis: np.ndarray) -> np.ndarray:
    given = data_for(rows)
    return (given["weight"] * np.abs(vis - given["vis"]) ** 2).sum(axis=(1, 2, 3))


@pytest.mark.parametrize(("shape", "precision", "polarised"), VARIANTS)
def test_every_variant(problem, sky, reference, error_of, shape, precision, polarised) -> None:
    """Three Gaussians are more than a chunk; nine points are more than a step, five antennas part of a warp's."""
    rows = problem(n_antenna=5, n_time=1, n_chan=2)
    sources = sky(rows, n_point=9, n_gaussian=3)
    if not polarised:
        sources.stokes[..., 1:] = 0.0
    expected = reference.visibilities(rows, LINEAR, sources)
    with forced_units(shape):
        rime = in_units(rows, precision=precision)
        assert "matrix units" in rime.plan(sources)
        assert error_of(rime.predict(sources), expected) < TOLERANCE[precision]
        np.testing.assert_allclose(rime.chi2(sources), chi2_of(rows, expected), rtol=TOLERANCE[precision])


@pytest.mark.parametrize(
    ("correlations", "precision"),
    [(["XX", "YY"], "single"), pytest.param(["XY", "YX"], "double", marks=pytest.mark.on_device)],
)
def test_correlations_of_two_stokes_parameters(
    problem, sky, reference, error_of, correlations, precision
) -> None:
    """I and Q, U and V: the two that are observed are summed. One point, in part of a chunk."""
    rows = dataclasses.replace(
        problem(n_antenna=4, n_time=1, n_chan=1), stokes_to_corr=stokes_to_corr(correlations)
    )
    sources = sky(rows, n_point=1, n_gaussian=3)
    expected = reference.visibilities(rows, correlations, sources)
    with forced_units(SMALL[1]):
        rime = in_units(rows, precision=precision)
        assert "matrix units" in rime.plan(sources)
        assert error_of(rime.predict(sources), expected) < TOLERANCE[precision]


# Of the largest derivative of a field, as `test_matrix_units_adjoint.py` has it.
GRADIENT_TOLERANCE = {"double": 1e-11, "single": 2e-5}


def assert_gradients(rows: Rows, sources: Any, rime: Rime, precision: str, *dof: Any, **options: Any) -> None:
    """The gradient by matrix units is that of the CPU in double precision."""
    found = rime.chi2_and_gradient(sources, *dof)
    sums = rime._engine._adjoints  # type: ignore[attr-defined]
    assert all("matrix units" in str(key[0]) for key in sums)
    expected = in_units(rows, **{**options, "backend": "cpu"}).chi2_and_gradient(sources, *dof)
    np.testing.assert_allclose(found[0], expected[0], rtol=TOLERANCE[precision])
    for name, there in vars(expected[1]).items():
        here = getattr(found[1], name)
        assert (here is None) == (there is None)
        for b in range(0 if there is None else len(there)):
            most = np.abs(there[b]).max(initial=0.0)
            tolerance = GRADIENT_TOLERANCE[precision] * most
            np.testing.assert_allclose(here[b], there[b], rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize(("shape", "precision", "polarised"), VARIANTS)
def test_gradient_of_every_variant(problem, sky, shape, precision, polarised) -> None:
    """Rows of either order, some missing, autocorrelations; two channels, or two entries of a batch."""
    rows = problem(n_antenna=5, n_time=1, n_chan=2 if polarised else 1)
    sources = sky(rows, n_point=3, n_gaussian=3, n_batch=1 if polarised else 2)
    if not polarised:
        sources.stokes[..., 1:] = 0.0
    with forced_units(shape):
        assert_gradients(rows, sources, in_units(rows, precision=precision), precision)
