"""Profiles in loops and kernels: discs, rings, m-rings and a user's own, against explicit sums with SciPy."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.special import jv

from rime_kernels import Gradient, InputError, Rime, Rows, Smearing, Sources, register_profile, stokes_to_corr
from rime_kernels.compile.identity import UnknownError, foreign_identity
from rime_kernels.physics.profiles import CODES
from rime_kernels.physics.registered import registered_profile
from tests.rime_kernels.problems import LINEAR, data_for, rows_for, with_data
from tests.rime_kernels.remembered import remembered

SPEED_OF_LIGHT = 299792458.0
DISC, RING, MRING = CODES["disc"], CODES["ring"], CODES["m-ring"]
GRADIENT = CODES["gradient-gaussian"]
# float32 rounds each of some ten terms by 6e-8; in float64, phases of 1e4 turns keep 1e-12 of a turn.
TOLERANCE = {"double": 1e-11, "single": 2e-6}
# Steps over which chi2 changes like a polynomial of sixth degree, as shares of each width and parameter.
STEPS = {"lm": 2e-6, "shape": 1e-3, "profile": 1e-3, "stokes": 0.05}

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def two_points(u: float, v: float, east: float, ratio: float) -> complex:
    """Two points `east` apart, the eastern one `ratio` times as bright; their total is 1."""
    turn = 2.0 * math.pi * u * east
    return (1.0 + ratio * complex(math.cos(turn), math.sin(turn))) / (1.0 + ratio)


def two_points_slopes(u: float, v: float, east: float, ratio: float) -> tuple[complex, ...]:
    turn, over = 2.0 * math.pi * u * east, 1.0 / (1.0 + ratio)
    second = complex(math.cos(turn), math.sin(turn))
    of_turn = 2j * math.pi * ratio * over * second
    return of_turn * east, 0j, of_turn * u, (second - 1.0) * over * over


@pytest.fixture(scope="module")
def own(reference: ModuleType) -> int:
    """The code of a profile of two points, known to the explicit sums as well."""
    code = register_profile("two points", two_points)
    reference.PROFILES[code] = explicit_two_points
    return code


def explicit_two_points(a: np.ndarray, b: np.ndarray, parameters: np.ndarray, nu: float) -> np.ndarray:
    """The same from the axes: at a position angle of 0, b lies along u."""
    found: np.ndarray = (1.0 + parameters[1] * np.exp(2j * np.pi * b * parameters[0])) / (1.0 + parameters[1])
    return found


def explicit_mring(a: np.ndarray, b: np.ndarray, parameters: np.ndarray, nu: float) -> np.ndarray:
    """Sum over m of beta_m i^m J_m(z) e^(i m phi), beta_-m = conj(beta_m); phi from a to b."""
    z, phi = np.pi * np.hypot(a, b), np.arctan2(b, a)
    total = parameters[6] * jv(0, z).astype(complex)
    for m in (1, 2, 3):
        beta = complex(*parameters[2 * m - 2 : 2 * m])
        for k, factor in ((m, beta), (-m, beta.conjugate())):
            total = total + factor * 1j**k * jv(k, z) * np.exp(1j * k * phi)
    return total


@pytest.fixture(autouse=True)
def _explicit(reference: ModuleType) -> None:
    reference.PROFILES[MRING] = explicit_mring


def sky_with_profiles(
    sky: Any, rows: Rows, kinds: list[int], n_point: int = 1, n_gaussian: int = 1, **changes: Any
) -> Sources:
    """Points, Gaussians and profiles whose first zeros some baselines reach."""
    n_profile, n_batch = len(kinds), changes.get("n_batch", 2)
    made: Sources = sky(rows, n_point=n_point, n_gaussian=n_gaussian + n_profile, **changes)
    shape, rng = made.shape.copy(), np.random.default_rng(4)
    shape[:, n_gaussian:, :2] *= 10.0
    parameters = np.zeros((n_batch, n_profile, 8))
    for j, kind in enumerate(kinds):
        if kind == MRING:
            parameters[:, j, :6] = rng.uniform(-0.5, 0.5, (n_batch, 6))
            parameters[:, j, 6] = 1.0
        elif kind >= 1000:
            parameters[:, j, :2] = rng.uniform(0.3, 0.7, (n_batch, 2))
        elif kind == GRADIENT:
            parameters[:, j, :2], parameters[:, j, 2] = rng.uniform(-3, 3, (n_batch, 2)), 0.6e9
    return replace(made, shape=shape, profile=parameters, profile_kind=np.array(kinds, np.int32))


@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("precision", ["double", pytest.param("single", marks=pytest.mark.thorough)])
def test_visibilities_and_chi2(
    backend, problem, sky, beam_of, reference, error_of, own, form, precision
) -> None:
    rows = rows_for(problem)
    rime = with_data(rows, backend, form=form, precision=precision)
    sources = sky_with_profiles(sky, rows, [DISC, RING, MRING, GRADIENT, own])
    for each in (sources, replace(sources, beam=beam_of(rows, "gaussian"))):
        expected = reference.visibilities(rows, LINEAR, each)
        assert error_of(rime.predict(each), expected) < TOLERANCE[precision]
        found = reference.chi2(rows, LINEAR, each, **data_for(rows))
        np.testing.assert_allclose(rime.chi2(each), found, rtol=2 * TOLERANCE[precision])


def test_profiles_alone_unpolarised_and_in_the_frame_of_uv(
    backend, problem, sky, reference, error_of
) -> None:
    rows = rows_for(problem)
    sources = sky_with_profiles(sky, rows, [RING, MRING], n_point=0, n_gaussian=0)
    stokes = sources.stokes[:, :1].copy()
    stokes[..., 1:] = 0.0
    sources = replace(sources, stokes=stokes)
    rime = with_data(rows, backend, form="row", gaussian_frame="uv")
    expected = reference.visibilities(rows, LINEAR, sources, frame="uv")
    assert error_of(rime.predict(sources), expected) < TOLERANCE["double"]


def test_more_sources_than_are_summed_at_a_time(problem, sky, reference, error_of) -> None:
    # A piece has 48 sources, and 60 make two of 30: points and profiles share the second.
    rows = problem(n_antenna=3, n_time=1, n_chan=1)
    sources = sky_with_profiles(sky, rows, [DISC, RING] * 11, n_point=35, n_gaussian=3, n_batch=1)
    rime = with_data(rows, "cpu", form="factored")
    expected = reference.visibilities(rows, LINEAR, sources)
    assert error_of(rime.predict(sources), expected) < TOLERANCE["double"]


def moved(sources: Sources, name: str, change: np.ndarray) -> Sources:
    return replace(sources, **{name: getattr(sources, name) + change})


@remembered
def expected_gradient(reference: ModuleType, rows: Rows, sources: Sources, name: str) -> np.ndarray:
    """Differences of the explicit chi2, element by element, of all entries of the batch at once.

    Of brightnesses every seventh alone, NaN elsewhere: `test_gradient.py` has all of them.
    """
    values = getattr(sources, name)
    found = np.full(values.shape, np.nan)
    every = 7 if name in ("stokes", "spectral_terms") else 1  # coprime to the lengths of all axes
    for index in list(np.ndindex(*values.shape[1:]))[::every]:
        one = np.zeros(values.shape)
        found[:, *index] = 0.0
        one[:, *index] = np.abs(values[:, *index]) if name in ("shape", "profile") else 1.0
        if not one.any():
            continue  # a parameter that the kind has not

        def chi2(x: float, one: np.ndarray = one) -> np.ndarray:
            given: np.ndarray = reference.chi2(rows, LINEAR, moved(sources, name, x * one), **data_for(rows))
            return given

        found[:, *index] = reference.derivative(chi2, STEPS[name]) / one[:, *index]
    return found


@pytest.mark.parametrize("form", ["factored", pytest.param("row", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("precision", ["double", pytest.param("single", marks=pytest.mark.thorough)])
def test_gradient(backend, problem, sky, beam_of, reference, own, form, precision) -> None:
    rows = rows_for(problem)
    sources = sky_with_profiles(sky, rows, [DISC, MRING, GRADIENT, own], beam=beam_of(rows, "gaussian"))
    chi2, gradient = with_data(rows, backend, form=form, precision=precision).chi2_and_gradient(sources)
    np.testing.assert_allclose(
        chi2, reference.chi2(rows, LINEAR, sources, **data_for(rows)), rtol=2 * TOLERANCE[precision]
    )
    for name in STEPS:
        expected, found = expected_gradient(reference, rows, sources, name), getattr(gradient, name)
        if name == "profile":
            found = np.where(sources.profile == 0.0, 0.0, found)
        parts = [(..., slice(0, 2)), (..., 2)] if name == "shape" else [...]
        for part in parts:  # angles are not widths
            # Of the largest derivative: differences keep 1e-8; float32 rounds each of some hundred terms.
            known = np.isfinite(expected[part])
            largest = np.abs(expected[part][known]).max()
            tolerance = {"double": 1e-7, "single": 2e-5}[precision] * largest
            np.testing.assert_allclose(
                found[part][known], expected[part][known], rtol=0.0, atol=tolerance, err_msg=name
            )


@pytest.mark.parametrize("form", ["factored", pytest.param("row", marks=pytest.mark.thorough)])
def test_smeared(problem, sky, reference, error_of, form) -> None:
    """Against explicit sums at many times and frequencies; derivatives against differences of chi2."""
    rows = problem(n_antenna=3, n_time=2, n_chan=2)
    sources = sky_with_profiles(sky, rows, [DISC, MRING, GRADIENT])
    smearing = Smearing(0.6, np.full(rows.n_row, 15.0), np.full(rows.n_chan, 0.5e6), error=1e-8)
    rime = with_data(rows, "cpu", form=form, smearing=smearing)
    expected = reference.averaged(lambda at: reference.visibilities(at, LINEAR, sources), rows, smearing, 3)
    # 1e-8 of the loss, and Romberg's method has as much.
    assert error_of(rime.predict(sources), expected) < 1e-7
    chi2, gradient = rime.chi2_and_gradient(sources)
    np.testing.assert_allclose(rime.chi2(sources), chi2, rtol=1e-12)  # sums in another order
    rng = np.random.default_rng(9)
    for name in STEPS:
        values = getattr(sources, name)
        way = rng.normal(size=values.shape) * (np.abs(values) if name in ("shape", "profile") else 1.0)
        slope = reference.derivative(
            lambda x, name=name, way=way: rime.chi2(moved(sources, name, x * way)), STEPS[name]
        )
        found = np.sum(getattr(gradient, name) * way, axis=tuple(range(1, values.ndim)))
        size = np.sqrt(np.sum((getattr(gradient, name) * way) ** 2, axis=tuple(range(1, values.ndim))))
        assert (np.abs(found - slope) < 1e-6 * size).all(), name  # what differences are good for


def change_of(sources: Sources, n_change: int) -> Gradient:
    rng = np.random.default_rng(8)

    def any_of(name: str, scale: Any) -> np.ndarray:
        return rng.normal(size=(n_change, *getattr(sources, name).shape[1:])) * scale

    return Gradient(
        any_of("lm", 1e-5), any_of("stokes", 0.1), any_of("spectral_terms", 0.1),
        any_of("shape", [1e-5, 1e-5, 0.1]), profile=any_of("profile", 0.1),
    )  # fmt: skip


def slope_along(reference: ModuleType, rows: Rows, sources: Sources, change: Gradient, i: int) -> np.ndarray:
    """The derivative of the visibilities along change i, by differences of sixth order."""

    def vis(x: float) -> np.ndarray:
        new = {
            name: getattr(sources, name) + x * getattr(change, name)[i : i + 1]
            for name in ("lm", "stokes", "spectral_terms", "shape", "profile")
        }
        found: np.ndarray = reference.visibilities(rows, LINEAR, replace(sources, **new))[0]
        return found

    slope: np.ndarray = reference.derivative(vis, 0.01)
    return slope


def test_change_of_visibilities_and_information(problem, sky, reference, error_of, own) -> None:
    rows = rows_for(problem)
    sources = sky_with_profiles(sky, rows, [DISC, MRING, GRADIENT, own], n_batch=1)
    used = sources.profile != 0.0
    rime, change = with_data(rows, "cpu", form="row"), change_of(sources, 3)
    change.profile[:, ~used[0]] = 0.0
    columns = rime.tangent(sources, change)
    for i in range(3):
        # Differences of sixth order keep 1e-9.
        assert error_of(columns[i], slope_along(reference, rows, sources, change, i)) < 1e-7
    weight = data_for(rows)["weight"]
    expected = np.einsum("iabc,jabc,abc->ij", columns.conj(), columns, weight).real
    assert error_of(rime.information(sources, change), expected) < 1e-12  # the same sums in another order
    residual = np.random.default_rng(9).normal(size=(1, *weight.shape, 2)) @ np.array([1.0, 1j])
    back = rime.adjoint(sources, residual)
    for i in range(3):
        forth = np.sum(weight * (columns[i].conj() * residual[0]).real)
        names = ("lm", "stokes", "spectral_terms", "shape", "profile")
        found = sum(np.sum(getattr(change, name)[i] * getattr(back, name)[0]) for name in names)
        # A model as large as the residual is subtracted from and added to it: 1e-12 of some hundred terms.
        assert abs(found - forth) < 1e-9 * np.abs(weight * columns[i] * residual[0]).sum()


@pytest.mark.parametrize("form", ["factored", pytest.param("row", marks=pytest.mark.thorough)])
def test_through_a_beam_of_jones_matrices(
    problem, sky, jones_beam_of, reference, error_of, own, form
) -> None:
    """V, chi2, its gradient by all arrays of profiles, and J v, in the CPU's loops over matrices."""
    rows = rows_for(problem)
    applies = np.array([True, True, False, True, True, True])
    beam = jones_beam_of(rows, applies=applies)
    sources = sky_with_profiles(sky, rows, [DISC, MRING, GRADIENT, own], beam=beam)
    rime = with_data(rows, "cpu", form=form)
    expected = reference.visibilities(rows, LINEAR, sources)
    assert error_of(rime.predict(sources), expected) < TOLERANCE["double"]
    chi2, gradient = rime.chi2_and_gradient(sources)
    np.testing.assert_allclose(chi2, reference.chi2(rows, LINEAR, sources, **data_for(rows)), rtol=1e-10)
    # Sources must not pass from one cell of the beam's grid to the next: a shorter step than elsewhere.
    for name, step in {**STEPS, "lm": 1e-7}.items():
        rng, used = np.random.default_rng(3), getattr(sources, name) != 0.0
        way = rng.normal(size=used.shape) * used * np.abs(getattr(sources, name)) ** (name != "lm")

        def along(x: float, name: str = name, way: np.ndarray = way) -> np.ndarray:
            moved = replace(sources, **{name: getattr(sources, name) + x * way})
            made: np.ndarray = reference.chi2(rows, LINEAR, moved, **data_for(rows))
            return made

        here = (getattr(gradient, name) * way).reshape(len(way), -1)
        # Of the sizes of both: differences over such steps keep 1e-8.
        size = np.linalg.norm(here, axis=1)
        assert (np.abs(here.sum(axis=1) - reference.derivative(along, step)) < 1e-7 * size).all(), name


def test_change_of_visibilities_through_a_beam_of_jones_matrices(
    problem, sky, jones_beam_of, reference, error_of, own
) -> None:
    rows = rows_for(problem)
    beam = jones_beam_of(rows, 1)
    sources = sky_with_profiles(sky, rows, [DISC, MRING, GRADIENT, own], n_batch=1, beam=beam)
    rime, change = with_data(rows, "cpu", form="row"), change_of(sources, 2)
    change.profile[:, ~(sources.profile != 0.0)[0]] = 0.0
    columns = rime.tangent(sources, change)
    for i in range(2):
        # Steps so short that no source leaves its cell of the grid; differences keep 1e-9.
        assert error_of(columns[i], slope_along(reference, rows, sources, change, i)) < 1e-7


def test_truth_of_eht_imaging(shapes_truth, reference, error_of) -> None:
    """Discs, rings and m-rings of `shapes.npz`, at positions off the centre."""
    found = 0
    for name, made in shapes_truth.items():
        u, v, sources, expected = made
        uvw = np.stack([u, v, 0.0 * u], axis=1) * SPEED_OF_LIGHT / 1e11
        zero = np.zeros(u.size, np.int32)
        rows = Rows(uvw, zero, zero + 1, zero, np.array([1e11]), stokes_to_corr(["I"]), 2, 1)
        rime = Rime(rows, backend="cpu", form="row", extent=1e-6)
        # eht-imaging's numbers are right to 1e-14; its pi has 13 digits.
        assert error_of(rime.predict(sources)[0, :, 0, 0], expected) < 1e-10, name
        found += 1
    assert found == 5


@pytest.fixture
def shapes_truth() -> dict[str, Any]:
    import os

    folder = Path(os.environ.get("BIRO_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))
    path = folder / "truth" / "jones" / "shapes.npz"
    if not path.exists():
        pytest.skip(f"no {path}")
    truth = np.load(path)
    params, made = json.loads(str(truth["params"])), {}
    names = ("disk", DISC), ("ring", RING), ("mring_1", MRING), ("mring_3", MRING), ("mring_123", MRING)
    for name, kind in names:
        p = params[name]
        parameters = np.zeros((1, 1, 8))
        if kind == MRING:
            betas = [complex(*beta) for beta in p["beta_list"]]
            parameters[0, 0, 6] = 1.0
            for m, beta in enumerate(betas[:3]):
                parameters[0, 0, 2 * m : 2 * m + 2] = beta.real, beta.imag
        sources = Sources(
            np.array([[[p.get("x0", 0.0), p.get("y0", 0.0)]]]), np.array([[[[p["F0"], 0.0, 0.0, 0.0]]]]),
            np.ones(1), np.zeros((1, 1, 4, 0)), np.ones(1, np.bool_), np.array([[[p["d"], p["d"], 0.0]]]),
            profile=parameters, profile_kind=np.array([kind], np.int32),
        )  # fmt: skip
        made[name] = truth["u"], truth["v"], sources, truth[f"vis_{name}"]
    return made


# ---- functions of a user's own


def one_profile(sky: Any, rows: Rows, code: int, parameters: list[float]) -> Sources:
    sources = sky_with_profiles(sky, rows, [code], n_point=0, n_gaussian=0, n_batch=2)
    full = np.zeros((2, 1, 8))
    full[..., : len(parameters)] = parameters
    return replace(sources, profile=full)


def test_slopes_of_a_users_function_given_or_by_differences(problem, sky, own) -> None:
    rows = rows_for(problem)
    given = register_profile("two points with slopes", two_points, two_points_slopes)
    rime = with_data(rows, "cpu", form="row")
    sources = one_profile(sky, rows, own, [0.6, 0.4])
    _, found = rime.chi2_and_gradient(sources)
    _, expected = rime.chi2_and_gradient(replace(sources, profile_kind=np.array([given], np.int32)))
    for name in ("shape", "profile", "lm"):
        # Differences are good to 1e-11 of V; the sums of them to some times that.
        atol = 1e-9 * np.abs(getattr(expected, name)).max()
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=0.0, atol=atol)


def test_axes_and_radial_functions_are_a_gaussian(backend, problem, sky, error_of) -> None:
    """exp(-pi^2/(4 ln 2) rho^2) is the Gaussian whose FWHM are the axes (physics: section 5)."""
    k = math.pi**2 / (4.0 * math.log(2.0))
    radial = register_profile("radial gaussian", lambda rho: math.exp(-k * rho * rho), coordinates="radial")
    axes = register_profile(
        "gaussian of axes", lambda a, b: (math.exp(-k * (a * a + b * b)), 0.0), coordinates="axes"
    )
    rows = rows_for(problem)
    rime = with_data(rows, backend, form="row")
    gaussian = sky(rows, n_point=0, n_gaussian=2)
    kinds = np.array([radial, axes], np.int32)
    sources = replace(gaussian, profile=np.zeros((2, 2, 8)), profile_kind=kinds)
    assert error_of(rime.predict(sources), rime.predict(gaussian)) < 1e-13  # the same up to roundings
    _, found = rime.chi2_and_gradient(sources)
    _, expected = rime.chi2_and_gradient(gaussian)
    assert error_of(found.shape[..., :2], expected.shape[..., :2]) < 1e-9  # differences
    assert not found.profile.any()


def test_nan_of_a_users_function_is_that_of_its_entry(backend, problem, sky) -> None:
    code = register_profile("nan", lambda u, v, p: math.sqrt(p) + 0.0 * u)
    rows = rows_for(problem)
    sources = one_profile(sky, rows, code, [1.0])
    sources.profile[1, 0, 0] = -1.0
    chi2 = with_data(rows, backend, form="row").chi2(sources)
    assert np.isfinite(chi2[0])
    assert np.isnan(chi2[1])


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (lambda u: u, {}, "must take u, v and 0 to 8 parameters, got (u)"),
        (two_points, {"n_parameter": 3}, "must take u, v and 3 parameters, got (u: 'float', v: 'float'"),
        (lambda u, v, *p: u, {}, "must take u, v"),
        (lambda rho: [rho], {"coordinates": "radial"}, "must give a number or a pair (re, im)"),
        (lambda u, v: unknown(u), {}, "does not compile: NameError"),  # noqa: F821
        (two_points, {"slopes": lambda u, v, p, q: (u, v)}, "must be a tuple of 4 numbers"),
        (two_points, {"scales": [1.0, -1.0]}, "must be 2 numbers above 0"),
        (two_points, {"coordinates": "polar"}, "coordinates must be one of"),
        (3, {}, "is not a Python function"),
    ],
)
def test_functions_that_are_no_profiles(function, options, message) -> None:
    with pytest.raises(InputError) as caught:
        register_profile("mine", function, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_and_codes(problem, sky) -> None:
    with pytest.raises(InputError, match="a profile's name must be text, and not disc"):
        register_profile("disc", two_points)
    first = register_profile("again", two_points)
    second = register_profile("again", lambda u, v, width: math.exp(-u * u * width))
    found = registered_profile("again")
    assert second > first
    assert found is not None
    assert (found.code, found.parameters, found.coordinates) == (second, ("width",), "uv")
    rows = rows_for(problem)
    with pytest.raises(InputError, match="no profile has the code 999"):
        with_data(rows, "cpu").chi2(sky_with_profiles(sky, rows, [999]))


def test_shapes_of_profiles_are_checked(problem, sky) -> None:
    rows = rows_for(problem)
    sources = sky_with_profiles(sky, rows, [DISC, RING])
    with pytest.raises(InputError, match="profile and profile_kind belong together"):
        replace(sources, profile=None)
    with pytest.raises(InputError, match="profile must have shape"):
        replace(sources, profile=np.zeros((2, 2, 7)))
    with pytest.raises(InputError, match="shape must have a row for each of the 2 profiles, got 1"):
        replace(sources, shape=sources.shape[:, :1])
    copied = sources.copy()
    assert copied.profile is not sources.profile
    assert (copied.n_point, copied.n_gaussian, copied.n_profile) == (1, 1, 2)
    assert sources.entries(1, 2).profile.shape == (1, 2, 8)


_FACTOR = 2.0


def _by_global(u: float) -> float:
    return _FACTOR * u


def _by_module(u: float) -> float:
    return float(json.dumps(u))


def test_machine_code_of_functions_is_told_apart_by_all_that_they_use(monkeypatch) -> None:
    one, other = (lambda u: 2.0 * u), (lambda u: 3.0 * u)
    assert foreign_identity(one)[1:] != foreign_identity(other)[1:]
    before = foreign_identity(_by_global)
    monkeypatch.setitem(globals(), "_FACTOR", 3.0)
    assert foreign_identity(_by_global) != before
    with pytest.raises(UnknownError):
        foreign_identity(_by_module)
