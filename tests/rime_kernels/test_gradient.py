"""The gradient of chi2 against differences of explicit sums in float64, on every backend."""

from dataclasses import fields, replace
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest
from scipy.special import jv

from rime_kernels import Beam, Gradient, InputError, Rime, Rows, Sources, chi2_and_gradient_many, device
from rime_kernels.physics import beam, brightness, envelope, phase
from tests.rime_kernels.problems import LINEAR, data_for, rows_for, with_data
from tests.rime_kernels.remembered import remembered

BEAM_KINDS = ["cos3", "gaussian", "airy"]
# Steps over which chi2 changes like a polynomial of sixth degree: of its phases (1e4 wavelengths), of the
# rest; steps of beams so short that they do not lead over the bend of cos3, where it is held.
STEPS = {
    "lm": 2e-6, "stokes": 0.05, "spectral_terms": 0.01, "shape": 1e-3, "scale": 3e-5, "pointing": 2e-6,
    "template_scale": 0.05, "template_shift": 2e-6,
}  # fmt: skip
# Of the largest derivative of a field. Differences keep 1e-8; float32 rounds each of some hundred terms, and
# the residuals that they are sums of, by 1e-7 of the brightest.
TOLERANCE = {"double": 1e-7, "single": 2e-5}

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def parts_of(sources: Sources | Gradient) -> dict[str, np.ndarray]:
    """The arrays that have derivatives, by name."""
    names = ("lm", "stokes", "spectral_terms", "shape", "template_scale", "template_shift")
    found = {name: getattr(sources, name) for name in names}
    if isinstance(sources, Gradient):
        found |= {"scale": sources.beam_scale, "pointing": sources.pointing}
    elif sources.beam is not None:
        found |= {"scale": sources.beam.scale, "pointing": sources.beam.pointing}
    return {name: values for name, values in found.items() if values is not None}


def moved(sources: Sources, changes: dict[str, np.ndarray]) -> Sources:
    """The sources with something added to some of their arrays."""
    here = parts_of(sources)
    new = {name: here[name] + change for name, change in changes.items()}
    of_beam = {name: new.pop(name) for name in ("scale", "pointing") if name in new}
    return replace(sources, **new, beam=replace(sources.beam, **of_beam) if of_beam else sources.beam)


@remembered
def expected_gradient(
    reference: ModuleType, rows: Rows, sources: Sources, corr: list[str] = LINEAR, **options: Any
) -> dict[str, np.ndarray]:
    """Differences of the explicit chi2, element by element, of all entries of the batch at once."""
    given = {**data_for(rows), **options}
    found = {}
    for name, values in parts_of(sources).items():
        found[name] = np.empty(values.shape)
        for index in np.ndindex(*values.shape[1:]):
            one = np.zeros(values.shape)
            # Widths and angles of Gaussians and the scale of the beam are of very different size.
            one[:, *index] = np.abs(values[:, *index]) if name in ("shape", "scale") else 1.0

            def chi2(x: float, name: str = name, one: np.ndarray = one) -> np.ndarray:
                found: np.ndarray = reference.chi2(rows, corr, moved(sources, {name: x * one}), **given)
                return found

            found[name][:, *index] = reference.derivative(chi2, STEPS[name]) / one[:, *index]
    return found


def check(
    reference: ModuleType, rime: Rime, sources: Sources, corr: list[str] = LINEAR, **options: Any
) -> None:
    """chi2 and all derivatives against the explicit sums."""
    chi2, gradient = rime.chi2_and_gradient(sources)
    tolerance = TOLERANCE[rime.precision]
    given = {**data_for(rime.rows), **options}
    np.testing.assert_allclose(chi2, reference.chi2(rime.rows, corr, sources, **given), rtol=tolerance)
    expected, found = expected_gradient(reference, rime.rows, sources, corr, **options), parts_of(gradient)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].shape == values.shape
        if name in ("stokes", "spectral_terms") and not sources.polarised:
            polarised = (..., slice(1, 4)) if name == "stokes" else (slice(None), slice(None), slice(1, 4))
            values[polarised] = 0.0  # nobody asks
        if name == "shape":  # angles are not widths
            close(found[name][..., :2], values[..., :2], tolerance, name)
            close(found[name][..., 2], values[..., 2], tolerance, name)
        else:
            close(found[name], values, tolerance, name)


def close(found: np.ndarray, expected: np.ndarray, tolerance: float, name: str) -> None:
    """Equal to a tolerance of the largest of each entry of the batch."""
    for b, (here, there) in enumerate(zip(found, expected, strict=True)):
        largest = np.abs(there).max(initial=0.0)
        error = np.abs(here - there).max(initial=0.0)
        assert error <= tolerance * largest, f"{name} of entry {b}: {error / largest:.1e}"


# ---- scalars


@pytest.mark.parametrize("kind", BEAM_KINDS)
def test_slopes_of_beams(kind: str) -> None:
    x = np.concatenate([np.linspace(0.0, 1.08, 50), np.linspace(1.1, 300.0, 500)])
    expected = {
        "cos3": np.where(x < 1.0881, -3.0 * np.cos(x) ** 2 * np.sin(x), 0.0),
        "gaussian": -4.0 * np.log(2.0) * x * np.exp(-2.0 * np.log(2.0) * x**2),
        "airy": -2.0 * jv(2, x) / np.where(x > 0.0, x, 1.0),
    }[kind]
    found = [beam.voltage_slope(beam.CODES[kind], value) for value in x]
    # The series loses 1.4 digits to cancellation just below x = 8.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)


def test_slopes_of_the_argument_and_of_spectra(reference: ModuleType) -> None:
    given = np.array([20e-9, 1.4e9, 0.01, -0.02])
    slopes = beam.argument_slopes(*given)
    for k, slope in zip((0, 2, 3), slopes, strict=True):
        unit = given[k] * (np.arange(4) == k)
        expected = reference.derivative(lambda x, unit=unit: beam.argument(*(given + x * unit)), 1e-2)
        assert slope * given[k] == pytest.approx(expected, rel=1e-10)
    assert beam.argument_slopes(20e-9, 1.4e9, 0.0, 0.0) == (0.0, 0.0, 0.0)
    for is_log in (True, False):
        factor = brightness.spectral_factor(-0.7, 0.3, is_log)
        expected = reference.derivative(lambda x: brightness.spectral_factor(x - 0.7, 0.3, is_log), 1e-2)  # noqa: B023
        assert brightness.spectral_slope(factor, 0.3, is_log) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("frame", ["tangent", "uv"])
def test_what_is_pulled_back_through_directions_and_projections(reference: ModuleType, frame: Any) -> None:
    rng = np.random.default_rng(1)
    lm, shape, gradient = np.array([0.4, -0.3]), np.array([3e-4, 1e-4, 0.7]), rng.normal(size=(2, 3))

    def product(x: np.ndarray) -> float:
        made = envelope.projections(shape * (1 + x[2:]), phase.directions(lm + x[:2]), frame)
        return float(np.sum(made * gradient))

    expected = [reference.derivative(lambda x, e=e: product(x * e), 1e-2) for e in np.eye(5)]
    of_shape, of_lm = envelope.pull_projections(shape, phase.directions(lm), frame, gradient)
    scale = np.abs(expected).max()
    # Sixth order of steps of 1e-2: 1e-10.
    np.testing.assert_allclose([*of_lm, *(of_shape * shape)], expected, rtol=0, atol=1e-9 * scale)
    n_slopes = [reference.derivative(lambda x, e=e: phase.directions(lm + x * e)[2], 1e-2) for e in np.eye(2)]
    np.testing.assert_allclose(
        phase.pull_directions(phase.directions(lm), np.array([0.0, 0.0, 1.0])), n_slopes, rtol=1e-9
    )
    slopes = envelope.projection_slopes(shape, phase.directions(lm), frame) * [*shape, 1.0, 1.0]
    found = np.einsum("ij,ijk->k", gradient, slopes)
    np.testing.assert_allclose(found, [*expected[2:], *expected[:2]], rtol=0, atol=1e-9 * scale)
    pushed = phase.push_directions(phase.directions(lm), np.eye(2))
    np.testing.assert_allclose(pushed, [[1, 0, n_slopes[0]], [0, 1, n_slopes[1]]], rtol=1e-9)


# ---- every derivative


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("beam", ["none", "shared", "pointing"])
@pytest.mark.parametrize("polarised", [True, False])
def test_every_variant(backend, problem, sky, beam_of, reference, precision, form, beam, polarised) -> None:
    rows = rows_for(problem)
    made = None if beam == "none" else beam_of(rows, "cos3", pointing=beam == "pointing")
    sources = sky(rows, beam=made)
    if not polarised:
        sources.stokes[..., 1:] = 0.0
    check(reference, with_data(rows, backend, form=form, precision=precision), sources)


@pytest.mark.parametrize("kind", ["gaussian", "airy"])
@pytest.mark.parametrize("pointing", [True, False])
def test_beams(backend, problem, sky, beam_of, reference, kind, pointing) -> None:
    rows = rows_for(problem)
    check(reference, with_data(rows, backend), sky(rows, beam=beam_of(rows, kind, pointing=pointing)))


@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("per_time", [True, False])
@pytest.mark.parametrize("beam", ["none", "pointing"])
def test_one_channel(backend, problem, sky, beam_of, reference, form, per_time, beam) -> None:
    """Vectors along time or rows, whose lanes have times and antennas of their own."""
    rows = rows_for(problem, n_chan=1, n_time=3 if device.simulated() else 11)
    sources = sky(rows, beam=None if beam == "none" else beam_of(rows, "airy"))
    if not per_time:
        made = sources.beam and Beam("airy", sources.beam.scale, sources.beam.pointing[:, :1])
        sources = replace(sources, stokes=sources.stokes[:, :1], beam=made)
    check(reference, with_data(rows, backend, form=form), sources)


@pytest.mark.parametrize("form", ["factored", "row"])
def test_the_other_frame_and_correlations(backend, problem, sky, reference, form) -> None:
    corr = ["LR", "RR", "V"]
    rows = rows_for(problem, corr=corr)
    rime = with_data(rows, backend, form=form, gaussian_frame="uv")
    check(reference, rime, sky(rows), corr, frame="uv")


@pytest.mark.parametrize("n_point", [3, 0])
def test_one_kind_of_source_and_flat_spectra(backend, problem, sky, reference, n_point) -> None:
    rows = rows_for(problem)
    sources = sky(rows, n_point=n_point, n_gaussian=3 - n_point, spectral_terms=np.zeros((2, 3, 4, 0)))
    check(reference, with_data(rows, backend), sources)


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("shifted", [True, False])
def test_templates(backend, problem, sky, reference, precision, form, shifted) -> None:
    rows = rows_for(problem)
    rng = np.random.default_rng(8)
    shape = (2, rows.n_row, rows.n_chan, rows.n_corr)
    template, centre = rng.normal(size=shape) + 1j * rng.normal(size=shape), rng.uniform(-0.02, 0.02, (2, 2))
    shift = rng.uniform(-1e-3, 1e-3, (2, 2, 2)) if shifted else None
    sources = sky(rows, template_scale=rng.normal(size=(2, 2)), template_shift=shift)
    given = {"template": template, "template_lm": centre}
    rime = with_data(rows, backend, precision=precision, form=form, **given)
    check(reference, rime, sources, **given)


@pytest.mark.parametrize(
    ("precision", "form"),
    [
        ("double", "factored"),
        ("double", "row"),
        ("single", "factored"),
        pytest.param("single", "row", marks=pytest.mark.thorough),
    ],
)
def test_many_sources_and_entries(backend, problem, sky, beam_of, reference, form, precision) -> None:
    """More than fit into one piece, chunk or task, along a few random directions."""
    rows = rows_for(problem, n_antenna=4 if device.simulated() else 17, n_chan=2, n_time=3)
    n_source = 20 if device.simulated() else 130
    sources = sky(
        rows, n_point=n_source // 2, n_gaussian=n_source - n_source // 2, beam=beam_of(rows, "gaussian")
    )
    rime, data = with_data(rows, backend, form=form, precision=precision), data_for(rows)
    gradient = parts_of(rime.chi2_and_gradient(sources)[1])
    rng = np.random.default_rng(6)
    for name, values in parts_of(sources).items():
        way = rng.normal(size=values.shape) * (np.abs(values) if name in ("shape", "scale") else 1.0)
        expected = reference.derivative(
            lambda x, change=way, name=name: reference.chi2(
                rows, LINEAR, moved(sources, {name: x * change}), **data
            ),
            0.1 * STEPS[name],
        )
        found = np.array([np.vdot(g, w) for g, w in zip(gradient[name], way, strict=True)])
        size = np.array([np.linalg.norm(g * w) for g, w in zip(gradient[name], way, strict=True)])
        assert (np.abs(found - expected) < TOLERANCE[precision] * size).all(), name


@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("beam", ["none", "pointing"])
def test_derivatives_of_some_sources(backend, problem, sky, beam_of, reference, form, beam) -> None:
    """Those of others are 0, as are those of the beam; again and again, as calls of one kind are recorded."""
    rows = rows_for(problem)
    sources = sky(rows, n_point=3, n_gaussian=2, beam=beam_of(rows, "cos3") if beam == "pointing" else None)
    whole, rime = expected_gradient(reference, rows, sources), with_data(rows, backend, form=form)
    axis = {"lm": 1, "stokes": 2, "spectral_terms": 1, "shape": 1}
    for first, stop in [(1, 2), (1, 4), (3, 5), (0, 0), (1, 2), (1, 4), (1, 2)]:
        chi2, gradient = rime.chi2_and_gradient(replace(sources, varied=(first, stop)))
        np.testing.assert_array_equal(chi2, rime.chi2_and_gradient(sources)[0])
        for name, values in parts_of(gradient).items():
            expected = np.zeros_like(whole[name])
            if name in axis:
                before = 3 if name == "shape" else 0  # points have none
                own = slice(max(0, first - before), max(0, stop - before))
                expected.swapaxes(0, axis[name])[own] = whole[name].swapaxes(0, axis[name])[own]
                scale = np.abs(whole[name]).max()
                assert np.abs(values - expected).max() <= TOLERANCE["double"] * scale, (name, first, stop)
            np.testing.assert_array_equal(values[expected == 0.0], 0.0, err_msg=name)


# ---- awkward places


def few(problem: Any, sky: Any, **changes: Any) -> tuple[Rows, Sources]:
    rows = rows_for(problem)
    return rows, sky(rows, **changes)


def test_a_circular_gaussian_has_no_position_angle(backend, problem, sky) -> None:
    rows, sources = few(problem, sky)
    sources.shape[..., 1] = sources.shape[..., 0]
    _, gradient = with_data(rows, backend).chi2_and_gradient(sources)
    of_axes = np.abs(gradient.shape[..., 0] * sources.shape[..., 0])
    # Two numbers of this size, rounded, are subtracted.
    assert (np.abs(gradient.shape[..., 2]) < 1e-13 * of_axes.max()).all()


@pytest.mark.parametrize("form", ["factored", "row"])
def test_a_gaussian_without_extent_is_a_point(backend, problem, sky, form) -> None:
    rows, sources = few(problem, sky, n_point=0, n_gaussian=2)
    sources.shape[..., :2] = 0.0
    rime = with_data(rows, backend, form=form)
    _, found = rime.chi2_and_gradient(sources)
    _, expected = rime.chi2_and_gradient(replace(sources, shape=np.zeros((2, 0, 3))))
    # The same terms in another order.
    for name in ("lm", "stokes", "spectral_terms"):
        close(parts_of(found)[name], parts_of(expected)[name], 1e-12, name)
    np.testing.assert_array_equal(found.shape, 0.0)


@pytest.mark.parametrize("kind", [None, *BEAM_KINDS])
@pytest.mark.parametrize("pointing", [True, False])
def test_a_source_at_the_phase_centre(backend, problem, sky, beam_of, reference, kind, pointing) -> None:
    rows, sources = few(problem, sky)
    if kind is not None:
        sources = replace(sources, beam=beam_of(rows, kind, pointing=pointing))
    sources.lm[:, 0] = 0.0
    sources.lm[:, -1] = 0.0
    check(reference, with_data(rows, backend), sources)


def test_no_flux_has_the_derivative_of_its_spectrum(backend, problem, sky, reference) -> None:
    rows, sources = few(problem, sky)
    sources.stokes[:, :, 1] = 0.0
    sources.stokes[:, :, 3, 0] = 0.0
    check(reference, with_data(rows, backend), sources)


def test_no_flux_with_a_spectrum_beyond_all_numbers_has_no_derivative_by_it(backend, problem, sky) -> None:
    rows, sources = few(problem, sky)
    sources.stokes[:, :, 0] = 0.0
    sources.spectral_terms[:, 0, :, 0] = 1e6
    chi2, gradient = with_data(rows, backend).chi2_and_gradient(sources)
    assert np.isfinite(chi2).all()
    np.testing.assert_array_equal(gradient.spectral_terms[:, 0], 0.0)
    assert np.isfinite(gradient.lm).all()


@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize(
    "wrong", ["horizon", "nan lm", "nan flux", "nan shape", "negative axis", "nan pointing"]
)
def test_one_bad_entry_is_nan_and_spoils_no_other(backend, problem, sky, beam_of, form, wrong) -> None:
    rows = rows_for(problem)
    sources = sky(rows, n_batch=3, beam=beam_of(rows, "cos3", n_batch=3))
    rime = with_data(rows, backend, form=form)
    alone = [rime.chi2_and_gradient(entry(sources, b)) for b in range(3)]
    assert sources.beam is not None
    assert sources.beam.pointing is not None
    place: tuple[np.ndarray, Any, float] = {
        "horizon": (sources.lm, (1, 0), 0.9),
        "nan lm": (sources.lm, (1, 0), np.nan),
        "nan flux": (sources.stokes, (1, 0, 0, 0), np.nan),
        "nan shape": (sources.shape, (1, 0), np.nan),
        "negative axis": (sources.shape, (1, 0, 1), -1e-5),
        "nan pointing": (sources.beam.pointing, (1, 0), np.nan),
    }[wrong]
    place[0][place[1]] = place[2]
    chi2, gradient = rime.chi2_and_gradient(sources)
    assert np.isnan(chi2[1])
    for name, values in parts_of(gradient).items():
        assert np.isnan(values[1]).all(), name
        for b in (0, 2):
            np.testing.assert_array_equal(values[b], parts_of(alone[b][1])[name][0], err_msg=name)
            assert chi2[b] == alone[b][0][0]


def entry(sources: Sources, b: int) -> Sources:
    """One entry of a batch, as a batch of one."""
    one = slice(b, b + 1)
    of_batch = ("lm", "stokes", "spectral_terms", "shape", "template_scale", "template_shift")
    new = {name: getattr(sources, name) for name in of_batch}
    new = {name: None if values is None else values[one].copy() for name, values in new.items()}
    made = sources.beam
    if made is not None:
        pointing = None if made.pointing is None else made.pointing[one].copy()
        made = Beam(made.kind, made.scale[one].copy(), pointing)
    rest = {f.name: getattr(sources, f.name) for f in fields(sources)}
    return Sources(**{**rest, **new, "beam": made})


# ---- calls


def test_a_sky_without_sources(backend, problem, sky, beam_of) -> None:
    rows = rows_for(problem)
    empty = sky(rows, n_point=0, n_gaussian=0)
    rime = with_data(rows, backend)
    chi2, gradient = rime.chi2_and_gradient(empty)
    np.testing.assert_array_equal(chi2, rime.chi2(empty))
    assert gradient.lm.shape == (2, 0, 2)
    assert gradient.stokes.shape == empty.stokes.shape
    assert gradient.beam_scale is gradient.pointing is gradient.template_scale is None
    with_beam = replace(empty, beam=beam_of(rows, "airy"))
    _, gradient = rime.chi2_and_gradient(with_beam)
    np.testing.assert_array_equal(gradient.beam_scale, 0.0)
    np.testing.assert_array_equal(gradient.pointing, np.zeros_like(with_beam.beam.pointing))


def test_chi2_is_that_of_chi2(backend, problem, sky, beam_of) -> None:
    rows = rows_for(problem)
    for form in ("factored", "row"):
        for made in (None, beam_of(rows, "cos3")):
            sources, rime = sky(rows, beam=made), with_data(rows, backend, form=form)
            np.testing.assert_allclose(rime.chi2_and_gradient(sources)[0], rime.chi2(sources), rtol=1e-13)


def test_a_batch_in_parts_is_the_batch(backend, problem, sky, beam_of, monkeypatch) -> None:
    rows = rows_for(problem)
    for made in (None, beam_of(rows, "airy", n_batch=5)):
        sources, rime = sky(rows, n_batch=5, beam=made), with_data(rows, backend, memory_limit="1 GB")
        whole = rime.chi2_and_gradient(sources)
        monkeypatch.setattr("rime_kernels.derivatives.ADJOINT_BYTES", 2 * 32 * rows.n_chan * 4 * rows.n_time)
        chi2, gradient = rime.chi2_and_gradient(sources)
        monkeypatch.undo()
        np.testing.assert_array_equal(chi2, whole[0])
        for name, values in parts_of(whole[1]).items():
            np.testing.assert_array_equal(parts_of(gradient)[name], values, err_msg=name)


def test_little_memory_is_no_other_result(backend, problem, sky) -> None:
    rows = rows_for(problem)
    sources = sky(rows, n_batch=3)
    _, expected = with_data(rows, backend).chi2_and_gradient(sources)
    _, gradient = with_data(rows, backend, memory_limit=20_000).chi2_and_gradient(sources)
    for name, values in parts_of(expected).items():
        # Streamed data are summed in other groups.
        close(parts_of(gradient)[name], values, 1e-12, name)


def test_an_empty_batch(backend, problem, sky) -> None:
    rows = rows_for(problem)
    chi2, gradient = with_data(rows, backend).chi2_and_gradient(sky(rows, n_batch=2).entries(0, 0))
    assert chi2.shape == (0,)
    assert gradient.stokes.shape == (0, rows.n_time, 4, 4)


def test_together_is_one_by_one(backend, problem, sky) -> None:
    rows = [rows_for(problem), rows_for(problem, seed=4)]
    rimes, sources = [with_data(each, backend) for each in rows], [sky(each) for each in rows]
    for (chi2, gradient), rime, each in zip(
        chi2_and_gradient_many(rimes, sources), rimes, sources, strict=True
    ):
        alone, expected = rime.chi2_and_gradient(each)
        np.testing.assert_array_equal(chi2, alone)
        for name, values in parts_of(expected).items():
            np.testing.assert_array_equal(parts_of(gradient)[name], values, err_msg=name)


def test_without_weights_there_is_no_gradient(backend, problem, sky) -> None:
    rows, sources = few(problem, sky)
    with pytest.raises(InputError, match="chi2_and_gradient needs data"):
        with_data(rows, backend, weight=None).chi2_and_gradient(sources)
    with pytest.raises(InputError, match="must have 1 or n_time"):
        with_data(rows, backend).chi2_and_gradient(
            replace(sources, stokes=np.ones((2, rows.n_time + 1, 4, 4)))
        )


def test_threads_do_not_change_a_bit(problem, sky, beam_of) -> None:
    rows = problem(n_antenna=20, n_time=20, n_chan=20)
    n_thread = numba.get_num_threads()
    for precision in ("single", "double"):
        rime = with_data(rows, "cpu", precision=precision)
        assert " 1 tasks" not in rime.plan(sky(rows, n_point=30))
        for made in (None, beam_of(rows, "cos3")):
            sources = sky(rows, n_point=30, beam=made)
            found = [rime.chi2_and_gradient(sources) for _ in range(2)]
            try:
                numba.set_num_threads(1)
                found.append(rime.chi2_and_gradient(sources))
            finally:
                numba.set_num_threads(n_thread)
            for chi2, gradient in found[1:]:
                np.testing.assert_array_equal(chi2, found[0][0])
                for name, values in parts_of(gradient).items():
                    np.testing.assert_array_equal(values, parts_of(found[0][1])[name], err_msg=name)
