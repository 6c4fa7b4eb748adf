"""The gradient of chi2 by tensor cores against that of the CPU's loops, on a device or in Numba's simulator.

The simulator has no tensor cores: there a thread multiplies numbers that the others of its warp have read.
"""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

from rime_kernels import Rows, stokes_to_corr
from rime_kernels.cuda.kernels.tiles.parts import TileShape
from rime_kernels.cuda.launch_shapes import tensor_core_shapes
from rime_kernels.cuda.launch_shapes.tensor_core_shapes import forced_tensor_cores
from tests.rime_kernels.problems import by_tensor_cores, data_for, gradient_by_tensor_cores

# Of the largest derivative of a field: as of the other kernels (`test_gradient.py`), of which those of the
# CPU in float64 are right to 1e-12.
TOLERANCE = {"double": 1e-11, "single": 2e-5}
# Blocks of one warp and one or two tiles a thread.
SMALL = [TileShape(2, 32, 4, 32, 1, 0, 8, 1), TileShape(2, 32, 4, 32, 1, 0, 8, 2)]
LARGE = [TileShape(2, 640, 8, 80, 1, 96, 16, 1), TileShape(2, 320, 8, 80, 1, 96, 8, 2)]

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("cuda_backend", "tensor_cores_always")]


def expected_gradient(rows: Rows, sources: Any, *dof: Any, **options: Any) -> Any:
    """That of the CPU in double precision."""
    return by_tensor_cores(rows, **{**options, "backend": "cpu"}).chi2_and_gradient(sources, *dof)


def assert_close(found: Any, expected: Any, tolerance: float) -> None:
    np.testing.assert_allclose(found[0], expected[0], rtol=tolerance)
    for name, there in vars(expected[1]).items():
        here = getattr(found[1], name)
        assert (here is None) == (there is None)
        for b in range(0 if there is None else len(there)):
            most = np.abs(there[b]).max(initial=0.0)
            np.testing.assert_allclose(here[b], there[b], rtol=0, atol=tolerance * most, err_msg=name)


def check(rows: Rows, sources: Any, shape: TileShape, precision: Any, *dof: Any, **options: Any) -> None:
    with forced_tensor_cores(shape):
        found = gradient_by_tensor_cores(by_tensor_cores(rows, precision=precision, **options), sources, *dof)
    assert_close(found, expected_gradient(rows, sources, *dof, **options), TOLERANCE[precision])


def complete(n_antenna: int, n_chan: int = 1, corr: tuple[str, ...] = ("I",)) -> Rows:
    """All baselines at one time; those of every third pair of antennas the other way round."""
    first, second = np.triu_indices(n_antenna, 1)
    turned = np.arange(first.size) % 3 == 0
    first, second = np.where(turned, second, first), np.where(turned, first, second)
    position = np.random.default_rng(1).normal(scale=800.0, size=(n_antenna, 3))
    uvw, time = position[first] - position[second], np.zeros(first.size, int)
    freq = 1e9 + 1e7 * np.arange(n_chan)
    return Rows(uvw, first, second, time, freq, stokes_to_corr(list(corr)), n_antenna, 1)


VARIANTS = [
    pytest.param(shape, precision, polarised, marks=() if k in (0, 7) else pytest.mark.on_device)
    for k, (shape, precision, polarised) in enumerate(
        itertools.product(SMALL, ["double", "single"], [True, False])
    )
]


@pytest.mark.parametrize(("shape", "precision", "polarised"), VARIANTS)
def test_every_variant(problem, sky, shape, precision, polarised) -> None:
    """Rows of either order, some missing, autocorrelations; nine sources are two groups of eight.

    Two channels, or two entries of a batch.
    """
    rows = problem(n_antenna=5, n_time=1, n_chan=2 if polarised else 1)
    sources = sky(rows, n_gaussian=0, n_point=9, n_batch=1 if polarised else 2)
    if not polarised:
        sources.stokes[..., 1:] = 0.0
    check(rows, sources, shape, precision)


@pytest.mark.parametrize(
    ("correlations", "precision", "dof"),
    [
        (["XX", "YY"], "single", None),
        pytest.param(["RR", "LL"], "double", 3.0, marks=pytest.mark.on_device),
        pytest.param(["XY", "YX"], "single", 3.0, marks=pytest.mark.on_device),
    ],
)
def test_correlations_of_two_stokes_parameters(problem, sky, correlations, precision, dof) -> None:
    """I and Q, I and V, U and V: derivatives with respect to the two others are 0."""
    rows = dataclasses.replace(
        problem(n_antenna=4, n_time=1, n_chan=1), stokes_to_corr=stokes_to_corr(correlations)
    )
    sources = sky(rows, n_gaussian=0, n_point=2, n_batch=1)
    check(rows, sources, SMALL[1], precision, *([] if dof is None else [np.full(1, dof)]))


def test_sources_that_do_not_vary(problem, sky) -> None:
    """Student's t; one source in the middle gathers."""
    rows = problem(n_antenna=3, n_time=1, n_chan=1)
    sources = sky(rows, n_gaussian=0, n_point=3, n_batch=1, varied=(1, 2))
    sources.stokes[..., 1:] = 0.0
    dof = np.full(1, 3.0)
    with forced_tensor_cores(SMALL[0]):
        chi2, found = gradient_by_tensor_cores(by_tensor_cores(rows), sources, dof)
    all_vary = dataclasses.replace(sources, varied=None)
    expected_chi2, expected = expected_gradient(rows, all_vary, dof)
    np.testing.assert_allclose(chi2, expected_chi2, rtol=TOLERANCE["double"])
    np.testing.assert_allclose(found.lm[:, 1], expected.lm[:, 1], rtol=TOLERANCE["double"])
    np.testing.assert_allclose(found.stokes[..., 1, 0], expected.stokes[..., 1, 0], rtol=TOLERANCE["double"])


def test_both_sides_of_the_diagonal(sky) -> None:
    """18 antennas are two blocks of 16 rows and three of eight columns that hold any."""
    rows = complete(18)
    sources = sky(rows, n_gaussian=0, n_point=1, n_batch=1)
    check(rows, sources, TileShape(2, 192, 4, 32, 1, 0, 8, 1), "double")


@pytest.mark.on_device
@pytest.mark.parametrize("precision", ["double", "single"])
def test_templates(problem, sky, precision) -> None:
    """Their derivatives come from the kernel that leaves the residuals."""
    rows, rng = problem(n_antenna=7, n_time=2, n_chan=2), np.random.default_rng(6)
    shape = (2, rows.n_row, rows.n_chan, rows.n_corr)
    template = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    options = {"template": template, "template_lm": rng.uniform(-0.02, 0.02, (2, 2))}
    shift = rng.normal(scale=1e-4, size=(2, 2, 2))
    sources = sky(rows, n_gaussian=0, n_point=5, template_scale=rng.normal(size=(2, 2)), template_shift=shift)
    check(rows, sources, SMALL[0], precision, **options)


@pytest.mark.on_device
@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_half_precision_takes_residuals_of_every_size(problem, sky, scale) -> None:
    """Half precision ends at 65504 and 6e-8; residuals are scaled by powers of two before."""
    rows = problem(n_antenna=6, n_time=1, n_chan=1)
    given = data_for(rows)
    sources = sky(rows, n_gaussian=0, n_point=3)
    sources.stokes[...] *= scale
    check(rows, sources, SMALL[0], "single", vis=scale * given["vis"], weight=given["weight"] / scale)


@pytest.mark.on_device
@pytest.mark.parametrize("shape", LARGE, ids=["one tile", "two tiles"])
@pytest.mark.parametrize(("n_antenna", "n", "polarised"), [(64, 100, True), (64, 70, False), (27, 33, True)])
@pytest.mark.parametrize(
    ("precision", "n_parameter"),
    [("double", 1), ("double", 2), ("single", 1), ("single", 2), ("single", 4)],  # what registers allow
)
def test_blocks_as_devices_have_them(
    problem, sky, monkeypatch, precision, shape, n_antenna, n, polarised, n_parameter
) -> None:
    """Chunks that are full and that are not, an odd number of antennas, one to four parameters a block.

    Results are the same, to the bit, in a second call and where data come in slabs.
    """
    rows = problem(n_antenna=n_antenna, n_time=2, n_chan=2)
    sources = sky(rows, n_gaussian=0, n_point=n)
    n_stokes, single = 4 if polarised else 1, precision == "single"
    if not polarised:
        sources.stokes[..., 1:] = 0.0
    given = tensor_core_shapes.TensorCoreAdjointShape(min(n_parameter, n_stokes), 32, 128 if single else 0)
    monkeypatch.setitem(tensor_core_shapes.GATHER_SHAPES, (single, n_stokes), given)
    with forced_tensor_cores(shape):
        rime = by_tensor_cores(rows, precision=precision)
        found = gradient_by_tensor_cores(rime, sources)
        again = gradient_by_tensor_cores(rime, sources)
        limited = gradient_by_tensor_cores(
            by_tensor_cores(rows, precision=precision, memory_limit="4 MB"), sources
        )
    for other in (again, limited):
        for name in ("lm", "stokes", "spectral_terms"):
            np.testing.assert_array_equal(getattr(found[1], name), getattr(other[1], name))
    assert_close(found, expected_gradient(rows, sources), TOLERANCE[precision])


@pytest.mark.on_device
@pytest.mark.parametrize("precision", ["double", "single"])
def test_large_arrays_take_tensor_cores_by_themselves(sky, precision) -> None:
    """A block has no registers for the matrices of 80 antennas: other kernels take these."""
    for n_antenna, takes in [(64, True), (80, False)]:
        rows = complete(n_antenna, 2, ("XX", "XY", "YX", "YY"))
        sources = sky(rows, n_gaussian=0, n_point=64)
        rime = by_tensor_cores(rows, precision=precision)
        found = rime.chi2_and_gradient(sources)
        (key,) = rime.engine.adjoint_sums  # type: ignore[attr-defined]
        assert ("tensor cores" in str(key[0])) == takes
        assert_close(found, expected_gradient(rows, sources), TOLERANCE[precision])
