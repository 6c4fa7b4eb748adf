"""chi2 with a scaled_dof, and its derivatives, against explicit sums of logarithms on every backend."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rime_kernels import Gradient, InputError, Rime, Rows, Sources, chi2_many, device
from tests.rime_kernels.problems import LINEAR

FORMS = ["factored", "row"]
# Phases of some 100 turns, rounded to 1e-16 of that; float32 terms of float64 phases.
TOLERANCE = {"double": 1e-12, "single": 2e-6}
# Differences keep 1e-8; float32 rounds each of some hundred terms by 1e-7 of the brightest.
SLOPE_TOLERANCE = {"double": 1e-7, "single": 2e-5}
STEPS = {"lm": 2e-6, "stokes": 0.05, "shape": 1e-3, "template_scale": 0.05, "template_shift": 2e-6}
SCALED_DOF = np.array([3.0, 40.0])

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """On CUDA the factored form goes by tiles, however few rows there are to fill them."""
    if request.param == "cpu":
        return "cpu"
    name = str(request.getfixturevalue("cuda_backend"))
    from rime_kernels.cuda.layouts import choice

    monkeypatch.setattr(choice, "LEAST_FILL", 0.0)
    return name


def rows_for(problem: Any, **changes: Any) -> Rows:
    """Few threads where CUDA is simulated: the simulator takes milliseconds for each."""
    made: Rows = problem(**{"n_antenna": 3 if device.simulated() else 5, "n_time": 2, "n_chan": 2, **changes})
    return made


def data_for(rows: Rows) -> dict[str, np.ndarray]:
    """One sample in ten is far off."""
    rng = np.random.default_rng(5)
    shape = (rows.n_row, rows.n_chan, rows.n_corr)
    weight = rng.uniform(0.5, 2.0, shape) * (rng.random(shape) > 0.2)
    vis = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return {"vis": vis + 1e3 * (rng.random(shape) < 0.1), "weight": weight}


def with_data(rows: Rows, backend: str, **options: Any) -> Rime:
    return Rime(rows, **{**data_for(rows), "backend": backend, "extent": 0.04, **options})


def expected_chi2(
    reference: ModuleType, rows: Rows, sources: Sources, scaled_dof: np.ndarray, **more: Any
) -> np.ndarray:
    """sum t ln(1 + w |D - V|^2 / t), from explicit visibilities."""
    given = data_for(rows)
    model = reference.visibilities(rows, LINEAR, sources)
    if more:
        model = model + reference.moved_templates(rows, sources, **more)
    square = given["weight"] * np.abs(model - given["vis"]) ** 2
    t = scaled_dof[:, None, None, None]
    found: np.ndarray = np.sum(t * np.log1p(square / t), axis=(1, 2, 3))
    return found


def check(reference: ModuleType, rime: Rime, sources: Sources, **more: Any) -> None:
    """The value, and derivatives along a random change of each array, against differences."""
    rows, precision = rime.rows, rime.precision
    expected = expected_chi2(reference, rows, sources, SCALED_DOF, **more)
    np.testing.assert_allclose(rime.chi2(sources, SCALED_DOF), expected, rtol=TOLERANCE[precision])
    chi2, gradient = rime.chi2_and_gradient(sources, SCALED_DOF)
    np.testing.assert_allclose(chi2, expected, rtol=TOLERANCE[precision])

    def of_scaled_dof(x: float) -> np.ndarray:
        return expected_chi2(reference, rows, sources, SCALED_DOF * (1.0 + x), **more)

    tolerance = SLOPE_TOLERANCE[precision]
    slope = reference.derivative(of_scaled_dof, 0.02) / SCALED_DOF
    np.testing.assert_allclose(gradient.scaled_dof, slope, rtol=tolerance)
    rng = np.random.default_rng(7)
    for name, step in STEPS.items():
        values = getattr(sources, name)
        if values is None or (not sources.polarised and name == "stokes"):
            continue
        change = rng.normal(size=values.shape) * (np.abs(values) if name == "shape" else 1.0)

        def along(x: float, name: str = name, values: Any = values, change: Any = change) -> np.ndarray:
            moved = replace(sources, **{name: values + x * change})
            return expected_chi2(reference, rows, moved, SCALED_DOF, **more)

        product = (getattr(gradient, name) * change).reshape(len(values), -1)
        error = np.abs(product.sum(axis=1) - reference.derivative(along, step / 3.0))
        # Terms of either sign: what their sum may be wrong by is relative to them.
        assert np.all(error < tolerance * np.sqrt((product**2).sum(axis=1))), name


@pytest.mark.parametrize(
    ("precision", "form", "beam", "polarised"),
    [
        ("double", "factored", "pointing", True),
        ("double", "row", "none", False),
        ("single", "factored", "none", True),
        ("single", "row", "pointing", True),
    ],
)
def test_variants(backend, problem, sky, beam_of, reference, precision, form, beam, polarised) -> None:
    rows = rows_for(problem)
    sources = sky(rows, n_point=1, n_gaussian=1, beam=None if beam == "none" else beam_of(rows, "cos3"))
    if not polarised:
        sources.stokes[..., 1:] = 0.0
    check(reference, with_data(rows, backend, form=form, precision=precision), sources)


@pytest.mark.parametrize(
    ("form", "shifted"), [("factored", True), pytest.param("row", False, marks=pytest.mark.on_device)]
)
def test_with_templates(backend, problem, sky, reference, form, shifted) -> None:
    rows = rows_for(problem)
    rng = np.random.default_rng(8)
    shape = (2, rows.n_row, rows.n_chan, rows.n_corr)
    template, centre = rng.normal(size=shape) + 1j * rng.normal(size=shape), rng.uniform(-0.02, 0.02, (2, 2))
    shift = rng.uniform(-1e-3, 1e-3, (2, 2, 2)) if shifted else None
    given = {"template": template, "template_lm": centre}
    sources = sky(rows, n_point=1, n_gaussian=1, template_scale=rng.normal(size=(2, 2)), template_shift=shift)
    check(reference, with_data(rows, backend, form=form, **given), sources, **given)


@pytest.mark.parametrize(
    ("form", "n_chan"), [("factored", 1), pytest.param("row", 1, marks=pytest.mark.on_device), ("row", 11)]
)
def test_other_lanes_and_runs(backend, problem, sky, reference, form, n_chan) -> None:
    """Lanes along times or rows, runs of channels that are not whole."""
    rows = rows_for(problem, n_chan=n_chan, n_time=3 if n_chan == 1 else 1)
    check(reference, with_data(rows, backend, form=form), sky(rows, n_point=1, n_gaussian=1))


@pytest.mark.on_device
def test_a_high_scaled_dof_is_chi2(backend, problem, sky) -> None:
    rows = rows_for(problem)
    rime, sources = with_data(rows, backend), sky(rows, n_point=1, n_gaussian=1)
    chi2, gradient = rime.chi2_and_gradient(sources)
    for scaled_dof in (1e12, 1e18):
        found, slopes = rime.chi2_and_gradient(sources, np.full(2, scaled_dof))
        # t ln(1 + c/t) = c - c^2/2t: c reaches 4e6.
        np.testing.assert_allclose(found, chi2, rtol=4e6 / scaled_dof + 1e-13)
        np.testing.assert_allclose(slopes.stokes, gradient.stokes, rtol=1e-3 if scaled_dof < 1e18 else 1e-9)


@pytest.mark.parametrize("precision", ["double", "single"])
def test_far_outliers_keep_the_sum_finite(backend, problem, sky, precision) -> None:
    """Of 1e15 sigma: the logarithm knows no overflow where the square just fits in float32."""
    rows, t = rows_for(problem), np.array([1e-2, 1e-2])
    given = data_for(rows)
    given["vis"] = np.full(given["vis"].shape, 1e15 + 0j)
    rime = Rime(rows, **given, backend=backend, extent=0.04, precision=precision)
    found = rime.chi2(sky(rows, n_point=1, n_gaussian=0), t)
    expected = np.sum(t[0] * np.log1p(given["weight"] * 1e30 / t[0]))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.on_device
@pytest.mark.parametrize("form", FORMS)
def test_batches_repeat_to_the_bit_with_chi2_between(backend, problem, sky, form) -> None:
    """Entries have scaled_dofs of their own; on CUDA chi2 is recorded at its second call."""
    rows = rows_for(problem)
    rime, sources = with_data(rows, backend, form=form), sky(rows, n_batch=3, n_point=1, n_gaussian=1)
    scaled_dof = np.array([2.0, 5.0, 1e3])
    first, plain = rime.chi2(sources, scaled_dof), rime.chi2(sources)
    value, gradient = rime.chi2_and_gradient(sources, scaled_dof)
    for _ in range(1 if device.simulated() else 3):
        np.testing.assert_array_equal(rime.chi2(sources, scaled_dof), first)
        np.testing.assert_array_equal(rime.chi2(sources), plain)
        again, slopes = rime.chi2_and_gradient(sources, scaled_dof)
        np.testing.assert_array_equal(again, value)
        assert_same(slopes, gradient)
    for b in range(3):
        alone = sources.entries(b, b + 1)
        assert rime.chi2(alone, scaled_dof[b : b + 1])[0] == first[b]


def assert_same(found: Gradient, expected: Gradient) -> None:
    for name, values in vars(expected).items():
        if values is not None:
            np.testing.assert_array_equal(getattr(found, name), values, err_msg=name)


@pytest.mark.cuda
@pytest.mark.on_device
@pytest.mark.parametrize("form", FORMS)
def test_streaming_changes_no_bit(cuda_backend, problem, sky, form) -> None:
    rows = rows_for(problem, n_time=3 if form == "factored" else 6, n_chan=1)
    sources = sky(rows, n_point=1, n_gaussian=1)
    rime = with_data(rows, cuda_backend, form=form)
    value, gradient = rime.chi2_and_gradient(sources, SCALED_DOF)
    limited = with_data(rows, cuda_backend, form=form, memory_limit=1)
    found, slopes = limited.chi2_and_gradient(sources, SCALED_DOF)
    np.testing.assert_array_equal(found, value)
    assert_same(slopes, gradient)
    np.testing.assert_array_equal(limited.chi2(sources, SCALED_DOF), rime.chi2(sources, SCALED_DOF))


@pytest.mark.cuda
def test_both_kinds_of_chi2_share_the_data(cuda_backend, problem, sky) -> None:
    rows = rows_for(problem)
    sources, rime = sky(rows, n_point=1, n_gaussian=1), with_data(rows, cuda_backend)
    rime.chi2(sources)
    (data,) = rime.engine.data.held.values()  # type: ignore[attr-defined]
    rime.chi2(sources, SCALED_DOF)
    rime.chi2_and_gradient(sources, SCALED_DOF)
    assert list(rime.engine.data.held.values()) == [data]  # type: ignore[attr-defined]


def test_several_together(problem, sky) -> None:
    rows = rows_for(problem)
    sources, rime = sky(rows, n_point=1, n_gaussian=1), with_data(rows, "cpu")
    first, second = chi2_many([rime, rime], [sources, sources], [None, SCALED_DOF])
    np.testing.assert_array_equal(first, rime.chi2(sources))
    np.testing.assert_array_equal(second, rime.chi2(sources, SCALED_DOF))


def test_impossible_scaled_dofs_are_nan(problem, sky) -> None:
    rows = rows_for(problem)
    sources, rime = sky(rows, n_batch=5, n_point=1, n_gaussian=1), with_data(rows, "cpu")
    found, gradient = rime.chi2_and_gradient(sources, [0.0, -1.0, np.nan, np.inf, 4.0])
    np.testing.assert_array_equal(np.isnan(found), [True] * 4 + [False])
    np.testing.assert_array_equal(np.isnan(gradient.lm).all(axis=(1, 2)), [True] * 4 + [False])
    np.testing.assert_array_equal(
        np.isnan(rime.chi2(sources, [0.0, -1.0, np.nan, np.inf, 4.0])), np.isnan(found)
    )
    with pytest.raises(InputError, match=r"scaled_dof must have shape \(batch = 5,\), got \(2,\)"):
        rime.chi2(sources, SCALED_DOF)


@pytest.mark.parametrize("real", [np.float64, np.float32])
def test_the_logarithm_of_vectors(real) -> None:
    from numba import njit

    from rime_kernels.cpu.simd import load, pointer, store, zeros
    from rime_kernels.cpu.vector_math import log1p

    @njit
    def fill(x: np.ndarray, out: np.ndarray) -> None:
        like = zeros(real, 4)
        for i in range(0, x.size, 4):
            store(pointer(out), i, log1p(load(pointer(x), i, like)))

    rng = np.random.default_rng(0)
    largest = 300 if real is np.float64 else 36
    some = np.concatenate([10.0 ** rng.uniform(-30, largest, 20000), rng.uniform(0, 3, 20000), np.zeros(4)])
    x = some.astype(real)
    out = np.empty_like(x)
    fill(x, out)
    # Two roundings and the polynomial's; against extended precision.
    expected = np.log1p(x.astype(np.longdouble))
    error = np.abs(out - expected) / np.where(expected > 0, expected, 1)
    assert error.max() < 2 * np.finfo(real).eps
    bad = np.array([np.nan, np.inf, np.nan, 0.0], real)
    fill(bad, out[:4])
    np.testing.assert_array_equal(np.isnan(out[:4]), [True, True, True, False])
