"""Point sources summed by tensor cores against explicit sums, on a device or in Numba's simulator.

The simulator has no tensor cores: there their operands are multiplied one by one.
"""

import dataclasses
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rime_kernels import Rows, device, stokes_to_corr
from rime_kernels.cuda.kernels.tiles import sums
from rime_kernels.cuda.kernels.tiles.parts import Tile, TileKernel, TileShape
from rime_kernels.cuda.launch_shapes.tensor_core_shapes import forced_tensor_cores
from rime_kernels.inputs import Variant
from rime_kernels.physics.beam import NO_BEAM
from tests.rime_kernels.problems import LINEAR, chi2_of, data_for, with_data

# As of the other kernels: roundings of phases of some 100 turns, and of terms in float32; numbers of two
# halves have 22 bits, 2.4e-7.
TOLERANCE = {"double": 1e-12, "single": 2e-6}
# Blocks of one warp and one or two tiles a thread, and those that a device has.
SMALL = [TileShape(2, 32, 4, 32, 1, 0, 8, 1), TileShape(2, 32, 4, 32, 1, 0, 16, 2)]
# Those that the simulator runs: all values of each parameter occur.
SIMULATED = [(SMALL[0], "double", True, "none"), (SMALL[1], "single", False, "pointing")]
VARIANTS = [
    pytest.param(*each, marks=() if each in SIMULATED else pytest.mark.on_device)
    for each in itertools.product(SMALL, ["double", "single"], [True, False], ["none", "pointing"])
]
# A block has all tiles of one or two rows of bundles; of many antennas, several blocks share an item.
LARGE = [TileShape(2, 640, 8, 80, 1, 96, 16, 1), TileShape(2, 320, 8, 80, 1, 96, 8, 2)]


def points(sky: Any, rows: Rows, n: int, **more: Any) -> Any:
    """n point sources in each of two entries of the batch."""
    return sky(rows, n_gaussian=0, n_point=n, **more)


@pytest.mark.cuda
@pytest.mark.usefixtures("cuda_backend", "tensor_cores_always")
@pytest.mark.parametrize(("shape", "precision", "polarised", "beam"), VARIANTS)
def test_every_variant(problem, sky, beam_of, reference, error_of, shape, precision, polarised, beam) -> None:
    """Ten sources are more than a step and less than a chunk; five antennas fill a part of a warp's tiles."""
    rows = problem(n_antenna=5, n_time=1, n_chan=2)
    made = None if beam == "none" else beam_of(rows, "cos3", pointing=True)
    sources = points(sky, rows, 10, beam=made)
    if not polarised:
        sources.stokes[..., 1:] = 0.0
    expected = reference.visibilities(rows, LINEAR, sources)
    with forced_tensor_cores(shape):
        rime = with_data(rows, form="factored", precision=precision)
        assert "tensor cores" in rime.plan(sources)
        assert error_of(rime.predict(sources), expected) < TOLERANCE[precision]
        np.testing.assert_allclose(rime.chi2(sources), chi2_of(rows, expected), rtol=TOLERANCE[precision])


@pytest.mark.cuda
@pytest.mark.usefixtures("cuda_backend", "tensor_cores_always")
@pytest.mark.parametrize(
    ("correlations", "precision", "tail"),
    [
        (["XX", "YY"], "single", None),
        pytest.param(["RR", "LL"], "double", 3.0, marks=pytest.mark.on_device),
        pytest.param(["XY", "YX"], "single", 3.0, marks=pytest.mark.on_device),
    ],
)
def test_correlations_of_two_stokes_parameters(
    problem, sky, reference, error_of, correlations, precision, tail
) -> None:
    """I and Q, I and V, U and V: the two that are observed are summed, also for Student's t."""
    rows = dataclasses.replace(
        problem(n_antenna=4, n_time=1, n_chan=1), stokes_to_corr=stokes_to_corr(correlations)
    )
    sources = points(sky, rows, 3)
    expected = reference.visibilities(rows, correlations, sources)
    with forced_tensor_cores(SMALL[1]):
        rime = with_data(rows, form="factored", precision=precision)
        assert "tensor cores" in rime.plan(sources)
        assert error_of(rime.predict(sources), expected) < TOLERANCE[precision]
        np.testing.assert_allclose(rime.chi2(sources), chi2_of(rows, expected), rtol=TOLERANCE[precision])
        if tail is not None:
            given = data_for(rows)
            square = given["weight"] * np.abs(expected - given["vis"]) ** 2
            log = tail * np.log1p(square / tail).sum(axis=(1, 2, 3))
            found = rime.chi2(sources, np.full(2, tail))
            np.testing.assert_allclose(found, log, rtol=TOLERANCE[precision])


@pytest.mark.cuda
@pytest.mark.usefixtures("cuda_backend", "tensor_cores_always")
@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_half_precision_takes_every_flux(problem, sky, reference, error_of, scale) -> None:
    """Half precision ends at 65504 and 6e-8; fluxes are scaled by powers of two before."""
    rows = problem(n_antenna=4, n_time=1, n_chan=1)
    sources = points(sky, rows, 3)
    sources.stokes[...] *= scale
    with forced_tensor_cores(SMALL[0]):
        found = with_data(rows, form="factored", precision="single").predict(sources)
    assert error_of(found, reference.visibilities(rows, LINEAR, sources)) < TOLERANCE["single"]


@pytest.mark.cuda
@pytest.mark.usefixtures("cuda_backend", "tensor_cores_always")
def test_the_gradient_has_data_of_its_own_arrangement(problem, sky, beam_of) -> None:
    """chi2 by tensor cores, then its derivatives by other kernels, then chi2 again: data of both are kept."""
    rows = problem(n_antenna=4, n_time=1, n_chan=1)
    # Beams that differ among antennas have no adjoint by tensor cores.
    sources = points(sky, rows, 3, beam=beam_of(rows, "cos3", pointing=True))
    with forced_tensor_cores(SMALL[0]):
        rime = with_data(rows, form="factored")
        before = rime.chi2(sources)
        chi2, _ = rime.chi2_and_gradient(sources)
        after = rime.chi2(sources)
    np.testing.assert_array_equal(before, after)
    # The same sums in another order.
    np.testing.assert_allclose(chi2, before, rtol=TOLERANCE["double"])


@pytest.mark.cuda
@pytest.mark.simulator  # a kernel for a newer device than there is cannot run
@pytest.mark.usefixtures("cuda_backend", "tensor_cores_always")
@pytest.mark.parametrize("precision", ["double", "single"])
def test_kernels_are_those_of_the_device_of_their_launch(problem, sky, monkeypatch, precision) -> None:
    """GPUs of compute capability 9.0 and 8.0 in one process: in double precision they differ."""
    from rime_kernels.cuda.layouts import launch

    rows = problem(n_antenna=2, n_time=1, n_chan=1)
    sources = points(sky, rows, 1)
    found, make = [], launch.tile_kernel.make_tile_sums

    def note(kernel: Any) -> Any:
        found.append(kernel.all_rows)
        return make(kernel)

    monkeypatch.setattr(launch.tile_kernel, "make_tile_sums", note)
    with forced_tensor_cores(SMALL[0]):
        for capability in [(9, 0), (8, 0)]:
            monkeypatch.setattr(device, "capability", lambda c=capability: c)
            with_data(rows, form="factored", precision=precision).chi2(sources)
    assert found == ([True, False] if precision == "double" else [False, False])


@pytest.mark.cuda
@pytest.mark.simulator  # the function runs as Python
@pytest.mark.usefixtures("cuda_backend")
@pytest.mark.parametrize(("single", "n_own", "n_corr"), [(True, 1, 4), (True, 2, 1), (False, 1, 2)])
def test_every_line_of_an_item_comes_nearer(monkeypatch, single, n_own, n_corr) -> None:
    """The threads of an item name each 128 bytes of its data and weights once, and nothing else."""
    named: dict[str, list[int]] = {"vis": [], "weight": []}
    monkeypatch.setattr(sums, "make_fetch_line", lambda: lambda array, at: named[array].append(int(at)))
    shape = TileShape(2, 96, 4, 32, 1, 0, 16, n_own)
    variant = Variant(single, True, NO_BEAM, polarised=True)
    look_ahead = sums.make_look_ahead(TileKernel(variant, True, (1.0,) * 4 * n_corr, False, 0, shape))
    n_tile = 96 * n_own
    n = 4 * n_corr * n_tile  # tiles of 2 x 2 antennas
    tables: Any = SimpleNamespace(place=np.empty((1, 1, 4, n_tile)))
    columns: Any = SimpleNamespace(vis="vis", weight="weight")
    for thread in range(96):
        look_ahead(Tile(True, 0, 7, thread, thread, 96, np.uint64(7 * n), 0.0), tables, columns, None)
    for name, n_byte in {"vis": 8 if single else 16, "weight": 4 if single else 8}.items():
        lines = sorted(at * n_byte // 128 for at in named[name])
        assert lines == list(range(7 * n * n_byte // 128, 8 * n * n_byte // 128))


@pytest.mark.cuda
@pytest.mark.on_device
@pytest.mark.usefixtures("cuda_backend", "tensor_cores_always")
@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("shape_of", LARGE, ids=["one tile", "two tiles"])
@pytest.mark.parametrize(("n_antenna", "n"), [(64, 100), (27, 33), (130, 17)])
def test_blocks_as_devices_have_them(
    problem, sky, reference, error_of, precision, shape_of, n_antenna, n
) -> None:
    """One block and several for an item, chunks that are full and that are not, an odd number of antennas."""
    rows = problem(n_antenna=n_antenna, n_time=2, n_chan=2)
    sources = points(sky, rows, n)
    expected = reference.visibilities(rows, LINEAR, sources)
    with forced_tensor_cores(shape_of):
        rime = with_data(rows, form="factored", precision=precision)
        assert error_of(rime.predict(sources), expected) < TOLERANCE[precision]
        chi2 = rime.chi2(sources)
        np.testing.assert_array_equal(rime.chi2(sources), chi2)
        streamed = with_data(rows, form="factored", precision=precision, memory_limit="1 MB")
        np.testing.assert_array_equal(streamed.chi2(sources), chi2)
    np.testing.assert_allclose(chi2, chi2_of(rows, expected), rtol=TOLERANCE[precision])


@pytest.mark.cuda
@pytest.mark.on_device
@pytest.mark.usefixtures("cuda_backend")
@pytest.mark.parametrize("precision", ["double", "single"])
def test_a_large_array_takes_tensor_cores_by_itself(problem, sky, reference, error_of, precision) -> None:
    """All baselines; `problem` leaves a quarter of them out, too many for these tiles."""
    first, second = np.triu_indices(64, 1)
    position = np.random.default_rng(1).normal(scale=800.0, size=(64, 3))
    uvw, time = position[first] - position[second], np.zeros(first.size, int)
    rows = Rows(uvw, first, second, time, [1e9], stokes_to_corr(["I"]), 64, 1)
    sources = points(sky, rows, 80)
    sources.stokes[..., 1:] = 0.0
    rime = with_data(rows, form="factored", precision=precision)
    assert ("tensor cores" in rime.plan(sources)) == (device.capability() >= (8, 0))
    found = error_of(rime.predict(sources), reference.visibilities(rows, ["I"], sources))
    assert found < TOLERANCE[precision]


@pytest.mark.cuda
@pytest.mark.on_device
@pytest.mark.usefixtures("cuda_backend", "tensor_cores_always")
@pytest.mark.parametrize("diagonal", [True, False])
def test_antenna_terms(problem, sky, reference, error_of, diagonal) -> None:
    """Jones matrices of the antennas are applied to the sums of tensor cores as to all others."""
    from rime_kernels.arrays import AntennaTerms

    rows = problem(n_antenna=20, n_time=2, n_chan=2)
    rng = np.random.default_rng(3)
    jones = rng.normal(size=(1, 2, 20, 1, 2, 2)) + 1j * rng.normal(size=(1, 2, 20, 1, 2, 2))
    if diagonal:
        jones[..., 0, 1] = jones[..., 1, 0] = 0.0
    plain = points(sky, rows, 20)
    terms = AntennaTerms(jones, np.arange(2), np.zeros(2, int))
    sources = points(sky, rows, 20, antenna_terms=terms)
    with forced_tensor_cores(LARGE[0]):
        found = with_data(rows, form="factored").predict(sources)
    coherency = reference.visibilities(rows, LINEAR, plain).reshape(2, rows.n_row, 2, 2, 2)
    first, second = (jones[0, rows.time_index, side, 0] for side in (rows.antenna1, rows.antenna2))
    seen = np.einsum("rij,brcjk,rlk->brcil", first, coherency, second.conj())
    # Sums of products of two matrices of size 1.
    assert error_of(found, seen.reshape(2, rows.n_row, 2, 4)) < 1e-12
