"""Points by tensor cores and Gaussians by multiply-adds, in one kernel: against explicit sums and the CPU.

On a device or in Numba's simulator, which has no tensor cores: there numbers are multiplied one by one.
"""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

from rime_kernels import Rows, device, stokes_to_corr
from rime_kernels.arrays import AntennaTerms
from rime_kernels.cuda.kernels.tiles.parts import TileShape
from rime_kernels.cuda.launch_shapes import tensor_core_shapes
from rime_kernels.cuda.launch_shapes.tensor_core_shapes import (
    forced_tensor_cores,
    full_enough,
    mixed_shape,
    tensor_cores_faster,
)
from rime_kernels.inputs import Variant
from rime_kernels.physics.beam import NO_BEAM
from tests.rime_kernels.problems import LINEAR, by_tensor_cores, chi2_of, gradient_by_tensor_cores

# As of points alone (`test_tensor_cores.py`, `test_tensor_cores_adjoint.py`): of visibilities and chi2, and
# of the largest derivative of a field.
TOLERANCE = {"double": 1e-12, "single": 2e-6}
GRADIENT_TOLERANCE = {"double": 1e-11, "single": 2e-5}
# Blocks of one warp and one or two tiles a thread; two Gaussians a chunk.
SMALL = [TileShape(2, 32, 2, 32, 1, 0, 8, 1), TileShape(2, 32, 2, 32, 1, 0, 16, 2)]


def variants(*simulated: tuple[TileShape, str, bool]) -> list[Any]:
    """Shapes, precisions, and whether sources are polarised; the simulator runs some of them."""
    return [
        pytest.param(*each, marks=() if each in simulated else pytest.mark.on_device)
        for each in itertools.product(SMALL, ["double", "single"], [True, False])
    ]


# As devices have them; warps that share a scheduler begin with points or with Gaussians.
LARGE = [TileShape(2, 640, 8, 80, 1, 96, 16, 1), TileShape(2, 320, 4, 80, 1, 96, 8, 2)]


def on_tensor_cores(test: Any) -> Any:
    return pytest.mark.cuda(pytest.mark.usefixtures("cuda_backend", "tensor_cores_always")(test))


def assert_gradient(rows: Rows, sources: Any, found: Any, precision: str, *dof: Any, **options: Any) -> None:
    """It is that of the CPU in double precision, which itself is right to 1e-12 (`test_gradient.py`)."""
    chi2, expected = by_tensor_cores(rows, **{**options, "backend": "cpu"}).chi2_and_gradient(sources, *dof)
    np.testing.assert_allclose(found[0], chi2, rtol=TOLERANCE[precision])
    for name, there in vars(expected).items():
        here = getattr(found[1], name)
        assert (here is None) == (there is None)
        for b in range(0 if there is None else len(there)):
            tolerance = GRADIENT_TOLERANCE[precision] * np.abs(there[b]).max(initial=0.0)
            np.testing.assert_allclose(here[b], there[b], rtol=0, atol=tolerance, err_msg=name)


@on_tensor_cores
@pytest.mark.parametrize(
    ("shape", "precision", "polarised"), variants((SMALL[0], "double", True), (SMALL[1], "single", False))
)
def test_every_variant(problem, sky, beam_of, reference, error_of, shape, precision, polarised) -> None:
    """Three Gaussians are more than a chunk, nine points than a step; the ninth antenna is a second tile's.

    The first Gaussian of those without polarisation is so wide that its coordinates come in two parts; there
    antennas have beams.
    """
    rows = problem(n_antenna=9, n_time=1, n_chan=1)
    beam = None if polarised else beam_of(rows, "cos3", pointing=True)
    sources = sky(rows, n_point=9, n_gaussian=3, beam=beam)
    if not polarised:
        sources.stokes[..., 1:] = 0.0
        sources.shape[:, 0, :2] *= 30.0
    expected = reference.visibilities(rows, LINEAR, sources)
    with forced_tensor_cores(shape):
        rime = by_tensor_cores(rows, precision=precision)
        assert "tensor cores" in rime.plan(sources)
        assert error_of(rime.predict(sources), expected) < TOLERANCE[precision]
        np.testing.assert_allclose(rime.chi2(sources), chi2_of(rows, expected), rtol=TOLERANCE[precision])


@on_tensor_cores
@pytest.mark.parametrize(("shape", "precision", "polarised"), variants((SMALL[0], "double", True)))
def test_gradient_of_every_variant(problem, sky, shape, precision, polarised) -> None:
    """Rows of either order, some missing, autocorrelations; two entries of a batch, or two channels.

    Single precision is simulated with two Stokes parameters, below.
    """
    rows = problem(n_antenna=4, n_time=1, n_chan=1 if polarised else 2)
    sources = sky(rows, n_point=2, n_gaussian=2, n_batch=2 if polarised else 1)
    if not polarised:
        sources.stokes[..., 1:] = 0.0
    with forced_tensor_cores(shape):
        found = gradient_by_tensor_cores(by_tensor_cores(rows, precision=precision), sources)
    assert_gradient(rows, sources, found, precision)


@on_tensor_cores
@pytest.mark.parametrize(
    ("correlations", "precision", "dof"),
    [
        (["XX", "YY"], "single", ()),
        pytest.param(["RR", "LL"], "double", (3.0,), marks=pytest.mark.on_device),
        pytest.param(["XY", "YX"], "single", (3.0,), marks=pytest.mark.on_device),
    ],
)
def test_correlations_of_two_stokes_parameters(
    problem, sky, reference, error_of, correlations, precision, dof
) -> None:
    """I and Q, I and V, U and V: the two that are observed are summed, also for Student's t."""
    rows = dataclasses.replace(
        problem(n_antenna=4, n_time=1, n_chan=1), stokes_to_corr=stokes_to_corr(correlations)
    )
    sources = sky(rows, n_point=1, n_gaussian=2, n_batch=1)
    tail = [np.full(1, each) for each in dof]
    with forced_tensor_cores(SMALL[1]):
        rime = by_tensor_cores(rows, precision=precision)
        found = error_of(rime.predict(sources), reference.visibilities(rows, correlations, sources))
        assert found < TOLERANCE[precision]
        gradient = gradient_by_tensor_cores(rime, sources, *tail)
    assert_gradient(rows, sources, gradient, precision, *tail)


@on_tensor_cores
@pytest.mark.parametrize(
    "varied",
    [(1, 3), (3, 4), *(pytest.param(each, marks=pytest.mark.on_device) for each in [(0, 1), (2, 4)])],
)
def test_sources_that_do_not_vary(problem, sky, varied) -> None:
    """Points alone, Gaussians alone, or some of both gather."""
    rows = problem(n_antenna=2, n_time=1, n_chan=1)
    sources = sky(rows, n_point=2, n_gaussian=2, n_batch=1, varied=varied)
    sources.stokes[..., 1:] = 0.0
    with forced_tensor_cores(SMALL[0]):
        found = gradient_by_tensor_cores(by_tensor_cores(rows), sources)
    assert_gradient(rows, sources, found, "double")


@on_tensor_cores
@pytest.mark.on_device
@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("shape", LARGE, ids=["one tile", "two tiles"])
@pytest.mark.parametrize(("n_antenna", "n_point", "n_gaussian"), [(64, 100, 20), (64, 5, 40), (27, 33, 33)])
def test_blocks_as_devices_have_them(
    problem, sky, reference, error_of, precision, shape, n_antenna, n_point, n_gaussian
) -> None:
    """More chunks of points or of Gaussians, two channels and times, narrow and wide ones.

    Results are the same, to the bit, in a second and a third call, which are recorded, and where data come in
    slabs.
    """
    rows = problem(n_antenna=n_antenna, n_time=2, n_chan=2)
    sources = sky(rows, n_point=n_point, n_gaussian=n_gaussian)
    sources.shape[:, ::7, :2] *= 30.0
    expected = reference.visibilities(rows, LINEAR, sources)
    with forced_tensor_cores(shape):
        rime = by_tensor_cores(rows, precision=precision)
        limited = by_tensor_cores(rows, precision=precision, memory_limit="4 MB")
        assert error_of(rime.predict(sources), expected) < TOLERANCE[precision]
        chi2, found = rime.chi2(sources), gradient_by_tensor_cores(rime, sources)
        for other in (rime, rime, limited):
            np.testing.assert_array_equal(other.chi2(sources), chi2)
            again = gradient_by_tensor_cores(other, sources)
            for name in ("lm", "stokes", "spectral_terms", "shape"):
                np.testing.assert_array_equal(getattr(found[1], name), getattr(again[1], name))
    np.testing.assert_allclose(chi2, chi2_of(rows, expected), rtol=TOLERANCE[precision])
    assert_gradient(rows, sources, found, precision)


@on_tensor_cores
@pytest.mark.on_device
@pytest.mark.parametrize("precision", ["double", "single"])
def test_templates(problem, sky, precision) -> None:
    """Their derivatives come from the kernel that leaves the residuals."""
    rows, rng = problem(n_antenna=7, n_time=2, n_chan=2), np.random.default_rng(6)
    shape = (2, rows.n_row, rows.n_chan, rows.n_corr)
    template = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    options = {"template": template, "template_lm": rng.uniform(-0.02, 0.02, (2, 2))}
    shift = rng.normal(scale=1e-4, size=(2, 2, 2))
    sources = sky(rows, n_point=5, n_gaussian=3, template_scale=rng.normal(size=(2, 2)), template_shift=shift)
    with forced_tensor_cores(SMALL[0]):
        found = gradient_by_tensor_cores(by_tensor_cores(rows, precision=precision, **options), sources)
    assert_gradient(rows, sources, found, precision, **options)


@on_tensor_cores
@pytest.mark.on_device
@pytest.mark.parametrize("diagonal", [True, False])
def test_antenna_terms(problem, sky, reference, error_of, diagonal) -> None:
    """Matrices that stay diagonal lie where the terms of Gaussians were."""
    rows = problem(n_antenna=20, n_time=2, n_chan=2)
    rng = np.random.default_rng(3)
    jones = rng.normal(size=(1, 2, 20, 1, 2, 2)) + 1j * rng.normal(size=(1, 2, 20, 1, 2, 2))
    if diagonal:
        jones[..., 0, 1] = jones[..., 1, 0] = 0.0
    plain = sky(rows, n_point=20, n_gaussian=9)
    sources = dataclasses.replace(plain, antenna_terms=AntennaTerms(jones, np.arange(2), np.zeros(2, int)))
    with forced_tensor_cores(LARGE[0]):
        found = by_tensor_cores(rows).predict(sources)
    coherency = reference.visibilities(rows, LINEAR, plain).reshape(2, rows.n_row, 2, 2, 2)
    first, second = (jones[0, rows.time_index, side, 0] for side in (rows.antenna1, rows.antenna2))
    seen = np.einsum("rij,brcjk,rlk->brcil", first, coherency, second.conj())
    assert error_of(found, seen.reshape(2, rows.n_row, 2, 4)) < TOLERANCE["double"]


def variant_of(single: bool, n_stokes: int) -> Variant:
    return Variant(single, True, NO_BEAM, n_stokes > 1, stokes=(0, 1) if n_stokes == 2 else None)


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("n_stokes", [4, 2, 1])
@pytest.mark.parametrize("n_slot", [32, 64, 80])
def test_shared_memory_has_room_for_gaussians(monkeypatch, single, n_stokes, n_slot) -> None:
    """Of an H100: 227 KiB for a block, 228 for all blocks, of which the system takes 1 for each."""
    monkeypatch.setattr(device, "shared_bytes", lambda: 227 * 1024)
    variant = variant_of(single, n_stokes)
    bare = tensor_core_shapes.fitted_tensor_cores(tensor_core_shapes.tensor_core_shape(variant), 640, n_slot)
    shape = mixed_shape(variant, bare)
    assert shape is not None
    real = 4 if single else 8
    # Terms, coordinates and in single precision their low parts, of two chunks; then the operands.
    of_gaussians = 2 * (3 if single else 2) * 2 * real * n_slot * shape.chunk
    of_points = 2 * 16 * shape.operand_units * n_slot * (1 + n_stokes)
    assert of_gaussians < 48 * 1024
    n_block = 65536 // (shape.n_thread * shape.max_register)
    assert n_block >= 1
    assert n_block * (of_gaussians + of_points + 1024) <= 228 * 1024


def test_a_device_with_little_shared_memory_has_no_such_kernel(monkeypatch) -> None:
    monkeypatch.setattr(device, "shared_bytes", lambda: 48 * 1024)
    variant = variant_of(True, 4)
    assert mixed_shape(variant, TileShape(2, 640, 8, 64, 1, 96, 8, 1)) is None


def test_tensor_cores_are_taken_where_points_are_many(monkeypatch) -> None:
    monkeypatch.setattr(device, "simulated", lambda: False)
    monkeypatch.setattr(device, "capability", lambda: (9, 0))
    for single, n_stokes in itertools.product([True, False], [4, 2, 1]):
        variant = variant_of(single, n_stokes)
        for for_adjoint in (False, True):
            assert tensor_cores_faster(variant, 1000, 1, for_adjoint=for_adjoint)
            assert not tensor_cores_faster(variant, 1, 1000, for_adjoint=for_adjoint)
    profiles = dataclasses.replace(variant_of(True, 4), profiles=())
    assert not tensor_cores_faster(profiles, 1000, 1)


@pytest.mark.parametrize(
    ("single", "n_point", "n_gaussian", "chi2", "gradient"),
    [
        (False, 100, 0, True, True),
        (False, 50, 0, False, True),
        (False, 100, 20, False, True),
        (False, 400, 20, True, True),
        (False, 200, 50, False, True),
        (False, 50, 100, False, False),
        (True, 1000, 0, True, True),
    ],
)
def test_tensor_cores_are_taken_where_they_were_faster(
    monkeypatch, single, n_point, n_gaussian, chi2, gradient
) -> None:
    """Four Stokes parameters on an H200, 64 antennas: chi2 and gradient took less time by units, or more."""
    monkeypatch.setattr(device, "simulated", lambda: False)
    monkeypatch.setattr(device, "capability", lambda: (9, 0))
    variant = variant_of(single, 4)
    assert tensor_cores_faster(variant, n_point, n_gaussian) == chi2
    assert tensor_cores_faster(variant, n_point, n_gaussian, for_adjoint=True) == gradient


@pytest.mark.parametrize(
    ("single", "n_point", "chi2", "gradient"),
    [
        (False, 100, False, True),
        (False, 1000, False, True),
        (True, 100, True, False),
        (True, 1000, True, True),
    ],
)
def test_rows_that_fill_few_places_pay_for_less(single, n_point, chi2, gradient) -> None:
    """Measured as above of 27 antennas, which fill 46 % of their tiles."""
    variant = variant_of(single, 4)
    for for_adjoint, faster in ((False, chi2), (True, gradient)):
        assert full_enough(variant, n_point, 0.46, for_adjoint=for_adjoint) == faster
        assert full_enough(variant, n_point, 0.79, for_adjoint=for_adjoint)
