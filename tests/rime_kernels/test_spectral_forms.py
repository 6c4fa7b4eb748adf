"""Spectra that are more than polynomials, and Faraday rotation: closed forms, then whole visibilities."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

from rime_kernels import Gradient, InputError, Rime, Rows, Sources, device
from rime_kernels.physics import brightness, spectral_forms
from rime_kernels.physics import form_codes as forms
from tests.rime_kernels.problems import LINEAR
from tests.rime_kernels.remembered import remembered

# Of the largest derivative of an array. Differences of sixth order keep 1e-8; float32 rounds by 1e-7.
TOLERANCE = {"double": 1e-7, "single": 2e-5}
FORMS = [forms.FREE_FREE, forms.SELF_ABSORBED, forms.GAUSSIAN_LINE, forms.LORENTZIAN_LINE,
         forms.LINEAR_TABLE, forms.LOG_TABLE]  # fmt: skip
# Eight terms of each form, about the frequencies of the rows, 1.0 .. 1.6 GHz; no channel at a knot.
TERMS = {
    forms.FREE_FREE: [0.7e9, 0, 0, 0, -0.7, 0.2, 0.1, 0],
    forms.SELF_ABSORBED: [1.3e9, -0.7, 2.4, 0, 0, 0, 0, 0],
    forms.GAUSSIAN_LINE: [1.27e9, 0.3e9, 1.4, 0.8, -0.7, 0.2, 0, 0],
    forms.LORENTZIAN_LINE: [1.27e9, 0.3e9, -0.4, 0.8, -0.7, 0.2, 0, 0],
    forms.LINEAR_TABLE: [0.9e9, 0.4, 1.21e9, 1.3, 1.38e9, 0.7, 1.7e9, 0.9],
    forms.LOG_TABLE: [0.9e9, 0.4, 1.21e9, 1.3, 1.7e9, 0.9, 0, 0],
}

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def factor(form: int, nu: float, power: float, *own: float) -> float:
    return float(spectral_forms.form_factor(form, nu, power, *own))


# ---- closed forms


def test_free_free_is_the_power_law_above_and_falls_by_e_at_its_frequency() -> None:
    assert factor(forms.FREE_FREE, 0.3e9, 2.0, 0.3e9, 0, 0, 0) == pytest.approx(2.0 / np.e, rel=1e-14)
    # tau = 1e-2.1 at 10 nu_ff
    thin = factor(forms.FREE_FREE, 3e9, 2.0, 0.3e9, 0, 0, 0)
    assert thin == pytest.approx(2.0 * np.exp(-(10.0**-2.1)), rel=1e-14)
    assert factor(forms.FREE_FREE, 3e9, 2.0, 0.0, 0, 0, 0) == 2.0


@pytest.mark.parametrize("thin", [-0.05, -0.7, -1.5, -3.0])
@pytest.mark.parametrize("thick", [2.0, 2.5])
def test_a_synchrotron_spectrum_peaks_at_its_frequency_with_flux_one(thin: float, thick: float) -> None:
    peak = minimize_scalar(
        lambda x: -factor(forms.SELF_ABSORBED, np.exp(x), 1.0, 2e9, thin, thick, 0),
        bracket=(np.log(1e9), np.log(2.1e9), np.log(8e9)),
        tol=1e-10,
    )
    # A maximum is flat: its place keeps half of the digits.
    assert np.exp(peak.x) == pytest.approx(2e9, rel=1e-6)
    assert factor(forms.SELF_ABSORBED, 2e9, 1.0, 2e9, thin, thick, 0) == pytest.approx(1.0, rel=1e-13)
    low, high = (
        np.log(factor(forms.SELF_ABSORBED, 1.01 * nu, 1.0, 2e9, thin, thick, 0))
        - np.log(factor(forms.SELF_ABSORBED, nu, 1.0, 2e9, thin, thick, 0))
        for nu in (2e5, 2e13)
    )
    # Four decades away the optical depth, (1e4)^-(k - a) or its inverse, is below 1e-8.
    np.testing.assert_allclose([low, high], np.array([thick, thin]) * np.log(1.01), rtol=1e-6)


@pytest.mark.parametrize("form", [forms.GAUSSIAN_LINE, forms.LORENTZIAN_LINE])
def test_lines_have_their_height_width_and_area(form: int) -> None:
    line = (1.42e9, 2e6, 3.0, 0.0)
    assert factor(form, 1.42e9, 7.0, *line) == 3.0
    for nu in (1.419e9, 1.421e9):
        assert factor(form, nu, 7.0, *line) == pytest.approx(1.5, rel=1e-14)
    area, _ = quad(
        lambda x: factor(form, 1.42e9 + 2e6 * np.tan(x), 7.0, *line) / np.cos(x) ** 2, -1.57079, 1.57079
    )
    # sqrt(pi / 4 ln 2), and pi/2, times height and width; the ends of the range leave out 1e-5.
    expected = 3.0 * (np.sqrt(np.pi / (4 * np.log(2))) if form == forms.GAUSSIAN_LINE else np.pi / 2)
    assert area == pytest.approx(expected, rel=1e-5)
    assert factor(form, 1.42e9, 7.0, 1.42e9, 2e6, -0.5, 1.0) == pytest.approx(6.5)


def test_tables_pass_through_their_knots_and_go_on_beyond() -> None:
    # Through 1 and 4 at 1 and 2 GHz: 3 nu - 2, and nu^2.
    for form, law in ((forms.LINEAR_TABLE, lambda x: 3 * x - 2), (forms.LOG_TABLE, lambda x: x**2)):
        for x in (0.9, 1.0, 1.3, 2.0, 2.5):
            assert factor(form, 1e9 * x, 1.0, 1e9, 1.0, 2e9, 4.0) == pytest.approx(law(x), rel=1e-13)


@pytest.mark.parametrize(("k", "part"), [(0, np.cos), (1, np.sin)])
def test_burns_slab_and_screen_are_integrals_over_faraday_depth(k: int, part: Any) -> None:
    rm, slab, sigma, wave2 = 30.0, 70.0, 9.0, 0.04
    of_slab, _ = quad(lambda x: part(2 * x * wave2) / slab, rm - slab / 2, rm + slab / 2)
    of_screen, _ = quad(
        lambda x: part(2 * x * wave2) * np.exp(-0.5 * ((x - rm) / sigma) ** 2), rm - 90, rm + 90
    )
    assert brightness.faraday(wave2, rm, 0.0, slab, 0.0)[k] == pytest.approx(of_slab, rel=1e-12)
    # Ten sigma on either side leave out 1e-22.
    expected = of_screen / (sigma * np.sqrt(2 * np.pi))
    assert brightness.faraday(wave2, rm, 0.0, 0.0, sigma)[k] == pytest.approx(expected, rel=1e-12)


def test_the_angle_is_as_given_at_the_reference_and_turns_north_through_east() -> None:
    assert brightness.faraday(0.05, 100.0, 0.05, 0.0, 0.0) == (1.0, 0.0)
    re, im = brightness.faraday(0.05, 4.0, 0.0, 0.0, 0.0)
    # chi = RM lambda^2: Q = cos 2 chi, U = sin 2 chi of what was Q = 1.
    np.testing.assert_allclose([re, im], [np.cos(0.4), np.sin(0.4)], rtol=1e-14)


@pytest.mark.parametrize("x", [0.0, 1e-9, 0.0999, 0.1001, 3.0])
def test_slopes_of_the_slab_near_its_series(x: float, reference: ModuleType) -> None:
    found = brightness.faraday_slopes(1.0, 0.0, 0.0, x, 0.0)[4]
    expected = reference.derivative(lambda d: np.sinc((x + d) / np.pi), 1e-2)
    # Differences of sixth order with steps of 1e-2, and of numbers that are good to 1e-16.
    assert found == pytest.approx(expected, abs=1e-13)


# ---- visibilities and derivatives


def rows_for(problem: Any) -> Rows:
    sizes = (
        {"n_antenna": 3, "n_time": 2, "n_chan": 2} if device.simulated() else {"n_antenna": 3, "n_chan": 5}
    )
    made: Rows = problem(**sizes)
    return made


def sky_of(sky: Any, rows: Rows, *, faraday: bool, **changes: Any) -> Sources:
    """A source of each form, the last a Gaussian, and a power law; brightness changes in time."""
    rng = np.random.default_rng(8)
    n = len(FORMS) + 1
    made: Sources = sky(rows, n_point=n - 1, n_gaussian=1, spectral_terms=np.zeros((2, n, 4, 8)))
    terms = np.array([*TERMS.values(), [-0.7, 0.2, 0, 0, 0, 0, 0, 0]])
    # Stokes parameters and entries of the batch have spectra of their own.
    terms = terms[None, :, None] * rng.uniform(0.98, 1.02, (2, n, 4, 8))
    turning = rng.uniform(0.5, 1.5, (2, n, 4)) * [20.0, 0.03, 15.0, 6.0]
    given = {
        "spectral_terms": terms,
        "spectral_form": np.array([*FORMS, 0]),
        "log_spectrum": np.ones(n, bool),
        "faraday": turning if faraday else None,
    }
    return replace(made, **{**given, **changes})


def data_for(rows: Rows) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    shape = (rows.n_row, rows.n_chan, rows.n_corr)
    return {
        "vis": rng.normal(size=shape) + 1j * rng.normal(size=shape),
        "weight": rng.uniform(0.5, 2.0, shape),
    }


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("polarised", [True, False])
def test_visibilities(backend, problem, sky, reference, error_of, precision, form, polarised) -> None:
    rows = rows_for(problem)
    sources = sky_of(sky, rows, faraday=polarised)
    if not polarised:
        sources.stokes[..., 1:] = 0.0
    rime = Rime(rows, backend=backend, precision=precision, form=form, extent=0.04)
    expected = reference.visibilities(rows, LINEAR, sources)
    # Phases of some hundred turns in double, sums of terms in single precision (as for other sources).
    assert error_of(rime.predict(sources), expected) < {"double": 1e-11, "single": 2e-6}[precision]


def only(sources: Sources, kept: list[int]) -> Sources:
    """Some of the sources; the last is the one Gaussian."""
    whole = {k: getattr(sources, k) for k in ("lm", "spectral_terms", "faraday")}
    few = {k: None if values is None else values[:, kept] for k, values in whole.items()}
    few |= {k: getattr(sources, k)[kept] for k in ("ref_freq", "spectral_form", "log_spectrum")}
    shape = sources.shape if sources.n_source - 1 in kept else sources.shape[:, :0]
    return replace(sources, stokes=sources.stokes[:, :, kept], shape=shape, **few)


@remembered
def slopes_of(reference: ModuleType, rows: Rows, sources: Sources, name: str, step: float) -> np.ndarray:
    """Differences of the explicit chi2 by the elements of an array, times these; 0 where an element is."""
    values, found, data = getattr(sources, name), np.zeros(getattr(sources, name).shape), data_for(rows)
    whole, of_time = reference.visibilities(rows, LINEAR, sources), name == "stokes"
    for s in range(sources.n_source):
        alone = only(sources, [s])
        others = data["vis"] - (whole - reference.visibilities(rows, LINEAR, alone))
        mine = getattr(alone, name)
        for index in np.ndindex(*mine.shape[1:]):
            one = np.zeros(mine.shape)
            one[:, *index] = mine[:, *index]
            if not one.any():
                continue

            def chi2(
                x: float, alone: Sources = alone, one: np.ndarray = one, others: np.ndarray = others
            ) -> np.ndarray:
                moved = replace(alone, **{name: getattr(alone, name) + x * one})
                misfit = np.abs(reference.visibilities(rows, LINEAR, moved) - others) ** 2
                chi2: np.ndarray = np.sum(data["weight"] * misfit, axis=(1, 2, 3))
                return chi2

            place = (index[0], s, *index[2:]) if of_time else (s, *index[1:])
            found[:, *place] = reference.derivative(chi2, step)
    assert found.shape == values.shape
    return found


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("per_time", [True, False])
def test_derivatives(backend, problem, sky, reference, beam_of, precision, per_time) -> None:
    rows = rows_for(problem)
    sources = sky_of(sky, rows, faraday=True, beam=beam_of(rows, "gaussian", pointing=False))
    if not per_time:
        sources = replace(sources, stokes=sources.stokes[:, :1])
    if device.simulated():  # which takes milliseconds for each thread
        sources = only(sources, [0, 1, 3, 5])
    rime = Rime(rows, **data_for(rows), backend=backend, precision=precision, extent=0.04)
    _, gradient = rime.chi2_and_gradient(sources)
    # Relative steps, short against all scales: phases are some radians, frequencies some widths of lines.
    for name, step in (("spectral_terms", 1e-3), ("faraday", 1e-3), ("stokes", 0.05)):
        values = getattr(sources, name)
        found = getattr(gradient, name) * values
        expected = slopes_of(reference, rows, sources, name, step)
        error = np.abs(found - expected).max() / np.abs(expected).max()
        assert error < TOLERANCE[precision], f"{name}: {error:.1e}"


@pytest.mark.parametrize("per_time", [True, False])
def test_tangents_are_differences_of_visibilities(problem, sky, reference, per_time) -> None:
    rows, rng = rows_for(problem), np.random.default_rng(3)
    sources = sky_of(sky, rows, faraday=True).entries(0, 1)
    if not per_time:
        sources = replace(sources, stokes=sources.stokes[:, :1])
    names = ("stokes", "spectral_terms", "faraday")
    change = {k: rng.normal(size=getattr(sources, k).shape) * getattr(sources, k) for k in names}
    zeros = Gradient(
        np.zeros_like(sources.lm), change["stokes"], change["spectral_terms"], np.zeros_like(sources.shape),
        faraday=change["faraday"],
    )  # fmt: skip
    found = Rime(rows, backend="cpu", extent=0.04).tangent(sources, zeros)

    def vis(x: float) -> np.ndarray:
        moved = replace(sources, **{k: getattr(sources, k) + x * change[k] for k in names})
        vis: np.ndarray = reference.visibilities(rows, LINEAR, moved)
        return vis

    expected = reference.derivative(vis, 1e-3)
    # Steps of 1e-3 of everything at once: 1e-13 of their size is rounded away.
    assert np.linalg.norm(found - expected) < 1e-9 * np.linalg.norm(expected)


def test_no_flux_is_zero_whatever_turns_it(backend, problem, sky) -> None:
    rows = rows_for(problem)
    sources = sky_of(sky, rows, faraday=True)
    sources.stokes[:, :, 1] = 0.0
    sources.spectral_terms[:, 1] = -1.0  # a table of no meaning
    assert np.isfinite(Rime(rows, backend=backend, extent=0.04).predict(sources)).all()


def test_forms_are_checked(problem, sky) -> None:
    rows = rows_for(problem)
    sources = sky(rows)
    with pytest.raises(InputError, match=r"spectral_form must be within 0 .. 7, got 0 .. 8"):
        replace(sources, spectral_form=np.array([0, 0, 0, 8]))
    with pytest.raises(InputError, match="spectral_form 2 needs 4 spectral terms or more, got 2"):
        replace(sources, spectral_form=np.array([0, 0, 0, 2]))
    with pytest.raises(InputError, match="faraday"):
        replace(sources, faraday=np.zeros((2, 4, 3)))
