"""The gradient of chi2 by matrix units against that of the CPU's loops, on a device or in Numba's simulator.

The simulator has no matrix units: there a thread multiplies numbers that the others of its warp have read.
"""

import itertools
from typing import Any

import numpy as np
import pytest

from rime_kernels import Rime, Rows
from rime_kernels.cuda.kernels.tiles.parts import TileShape
from rime_kernels.cuda.shapes.matrix_units import forced_units

# Of the largest derivative of a field: as of the other kernels (`test_gradient.py`), of which those of the
# CPU in float64 are right to 1e-12.
TOLERANCE = {"double": 1e-11, "single": 2e-5}
# Blocks of one warp and one or two tiles a thread.
SMALL = [TileShape(2, 32, 4, 32, 1, 0, 8, 1), TileShape(2, 32, 4, 32, 1, 0, 8, 2)]
LARGE = [TileShape(2, 640, 8, 80, 1, 96, 16, 1), TileShape(2, 320, 8, 80, 1, 96, 8, 2)]

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


def gradient_in_units(rime: Rime, sources: Any, *dof: Any) -> Any:
    found = rime.chi2_and_gradient(sources, *dof)
    sums = rime._engine._adjoints  # type: ignore[attr-defined]
    assert all("matrix units" in str(key[0]) for key in sums)
    return found


def expected_gradient(rows: Rows, sources: Any, *dof: Any, **options: Any) -> Any:
    """That of the CPU in double precision."""
    return in_units(rows, **{**options, "backend": "cpu"}).chi2_and_gradient(sources, *dof)


def assert_close(found: Any, expected: Any, tolerance: float) -> None:
    np.testing.assert_allclose(found[0], expected[0], rtol=tolerance)
    for name, there in vars(expected[1]).items():
        here = getattr(found[1], name)
        assert (here is None) == (there is None)
        for b in range(0 if there is None else len(there)):
            most = np.abs(there[b]).max(initial=0.0)
            np.testing.assert_allclose(here[b], there[b], rtol=0, atol=tolerance * most, err_msg=name)


VARIANTS = [
    pytest.param(shape, precision, polarised, marks=() if k in (0, 7) else pytest.mark.on_device)
    for k, (shape, precision, polarised) in enumerate(
        itertools.product(SMALL, ["double", "single"], [True, False])
    )
]


@pytest.mark.parametrize(("shape", "precision", "polarised"), VARIANTS)
def test_every_variant(problem, sky, shape, precision, polarised) -> None:
    """Rows of either order, some missing, autocorrelations; ten sources are two groups of eight."""
    rows = problem(n_antenna=5, n_time=2, n_chan=1)
    sources = sky(rows, n_gaussian=0, n_point=10)
    if not polarised:
        sources.stokes[..., 1:] = 0.0
    with forced_units(shape):
        found = gradient_in_units(in_units(rows, precision=precision), sources)
    assert_close(found, expected_gradient(rows, sources), TOLERANCE[precision])
