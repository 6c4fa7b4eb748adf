"""Derivatives through beams of 2x2 Jones matrices, against differences of explicit sums."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest

from rime_kernels import AntennaTerms, Gradient, Rime, Rows, Sources
from tests.rime_kernels.problems import LINEAR, data_for

# Steps along a random direction over which chi2 changes like a polynomial of sixth degree; those of places in
# the beam so short that few sources pass from one cell of the grid to the next.
STEPS = {
    "lm": 1e-7, "stokes": 0.05, "spectral_terms": 0.01, "shape": 1e-3, "beam_scale": 1e-6, "pointing": 1e-6,
    "faraday": 1e-3, "antenna_terms": 0.01, "turn": 0.003,
}  # fmt: skip
# Of the sizes of derivatives and direction. Differences over short steps keep 1e-8; float32 rounds each of
# some hundred terms, and the residuals that they are sums of, by 1e-7 of the brightest.
TOLERANCE = {"double": 1e-7, "single": 2e-5}

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def rime_of(rows: Rows, **options: Any) -> Rime:
    return Rime(rows, **{**data_for(rows), "backend": "cpu", "extent": 0.04, **options})


def arrays_of(sources: Sources) -> dict[str, np.ndarray]:
    """The arrays that can change, under the names of `Gradient`; the beam's with the axis of the batch."""
    assert sources.beam is not None
    found = {name: getattr(sources, name) for name in ("lm", "stokes", "spectral_terms", "shape")}
    found["beam_scale"] = np.broadcast_to(sources.beam.scale, sources.n_batch)
    if sources.beam.pointing is not None:
        pointing = sources.beam.pointing
        found["pointing"] = np.broadcast_to(pointing, (sources.n_batch, *pointing.shape[1:]))
    if sources.beam.turn is not None:
        found["turn"] = np.broadcast_to(sources.beam.turn, (sources.n_batch, *sources.beam.turn.shape[1:]))
    if sources.faraday is not None:
        found["faraday"] = sources.faraday
    if sources.antenna_terms is not None:
        found["antenna_terms"] = sources.antenna_terms.jones
    return found


def moved(sources: Sources, name: str, change: np.ndarray) -> Sources:
    new = arrays_of(sources)[name] + change
    if name in ("beam_scale", "pointing", "turn"):
        return replace(sources, beam=replace(sources.beam, **{name.removeprefix("beam_"): new}))
    if name == "antenna_terms":
        return replace(sources, antenna_terms=replace(sources.antenna_terms, jones=new))
    return replace(sources, **{name: new})


def outside(rows: Rows, sources: Sources) -> Sources:
    """The same with matrices of antennas outside of the beam, and brightnesses that turn."""
    rng = np.random.default_rng(9)
    shape = (2, 1, rows.n_antenna, 1, 2, 2)
    jones = np.eye(2) + 0.3 * (rng.normal(size=shape) + 1j * rng.normal(size=shape))
    terms = AntennaTerms(jones, np.zeros(rows.n_time), np.zeros(rows.n_chan))
    faraday = rng.uniform(0.1, 1.0, (2, sources.n_source, 4)) * [30.0, 0.05, 10.0, 3.0]
    return replace(sources, antenna_terms=terms, faraday=faraday)


def check(reference: ModuleType, rime: Rime, sources: Sources, corr: list[str] = LINEAR) -> Gradient:
    """chi2, and its derivatives along random directions of each array, against explicit sums."""
    data, rng = data_for(rime.rows), np.random.default_rng(6)
    chi2, gradient = rime.chi2_and_gradient(sources)
    tolerance = TOLERANCE[rime.precision]
    expected = reference.chi2(rime.rows, corr, sources, **data)
    np.testing.assert_allclose(chi2, expected, rtol=tolerance)
    for name, values in arrays_of(sources).items():
        found = getattr(gradient, name)
        assert found.shape == values.shape, name
        way = rng.normal(size=values.shape) * (np.abs(values) if name in ("shape", "beam_scale") else 1.0)
        if name == "antenna_terms":
            way = way + 1j * rng.normal(size=values.shape)
        if name in ("stokes", "spectral_terms") and not sources.polarised:
            np.testing.assert_array_equal(found[..., 1:] if name == "stokes" else found[:, :, 1:], 0.0)
            way[(..., slice(1, 4)) if name == "stokes" else (slice(None), slice(None), slice(1, 4))] = 0.0

        def along(x: float, name: str = name, way: np.ndarray = way) -> np.ndarray:
            made: np.ndarray = reference.chi2(rime.rows, corr, moved(sources, name, x * way), **data)
            return made

        slope = reference.derivative(along, STEPS[name])
        here = (found * way.conj()).real.reshape(len(way), -1)
        size = np.linalg.norm(here, axis=1)
        assert (np.abs(here.sum(axis=1) - slope) < tolerance * size).all(), name
    return gradient


@pytest.mark.parametrize("precision", ["double", pytest.param("single", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("n_chan", [3, pytest.param(1, marks=pytest.mark.thorough)])
def test_every_variant(backend, problem, sky, jones_beam_of, reference, precision, form, n_chan) -> None:
    """Vectors along channels, and along times or rows that have antennas and angles of their own."""
    rows = problem(n_antenna=4, n_chan=n_chan, n_time=2 if n_chan > 1 else 9)
    sources = sky(rows, beam=jones_beam_of(rows, turned=True))
    check(reference, rime_of(rows, backend=backend, form=form, precision=precision), sources)


@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("corr", [["RL", "LL"], ["LR", "RR", "RL", "LL"], ["YY"]])
def test_other_correlations(problem, sky, jones_beam_of, reference, form, corr) -> None:
    rows = problem(n_antenna=4, n_time=2, corr=corr)
    check(reference, rime_of(rows, form=form), sky(rows, beam=jones_beam_of(rows, turned=True)), corr)


@pytest.mark.parametrize("form", ["factored", "row"])
def test_what_is_the_same_for_all(problem, sky, jones_beam_of, reference, form) -> None:
    """Angles, pointing errors and fluxes at all times; a scale, pointing errors and turns of the batch."""
    rows = problem(n_antenna=4, n_chan=1, n_time=9)
    made = jones_beam_of(rows, turned=True, scale=np.ones(1))
    made = replace(made, angle=made.angle[:1], feed_angle=made.feed_angle[:1, :, 0])
    made = replace(made, pointing=made.pointing[:1, :1], turn=made.turn[:1])
    sources = sky(rows, beam=made)
    gradient = check(reference, rime_of(rows, form=form), replace(sources, stokes=sources.stokes[:, :1]))
    assert gradient.beam_scale is not None
    assert gradient.beam_scale.shape == (2,)


@pytest.mark.parametrize("form", ["factored", "row"])
def test_many_sources_unpolarised_some_without_the_beam(problem, sky, jones_beam_of, reference, form) -> None:
    rows = problem(n_antenna=3, n_time=1, n_chan=9)
    applies = np.random.default_rng(1).random(37) > 0.3
    # Antennas in pairs that have the same beam, and share it.
    beam = jones_beam_of(rows, 1, turned=True, applies=applies, pointing=None, angle=np.full((1, 3), 0.3))
    sources = sky(rows, 1, n_point=20, n_gaussian=17, beam=beam)
    sources.stokes[..., 1:] = 0.0
    check(reference, rime_of(rows, form=form), sources)


@pytest.mark.parametrize("corr", [LINEAR, ["RR", "RL"]])
def test_matrices_outside_and_turned_brightnesses(
    backend, problem, sky, jones_beam_of, reference, corr
) -> None:
    rows = problem(n_antenna=4, n_time=2, corr=corr)
    sources = outside(rows, sky(rows, beam=jones_beam_of(rows)))
    check(reference, rime_of(rows, backend=backend), sources, corr)


def test_adjoint_and_student_chi2(problem, sky, jones_beam_of, reference) -> None:
    """Half the gradient where V - D is r; sums of logarithms, weighted by 1/(1 + y)."""
    rows = problem(n_antenna=4, n_time=2)
    sources, data = sky(rows, beam=jones_beam_of(rows)), data_for(rows)
    rime, model = rime_of(rows), reference.visibilities(rows, LINEAR, sources)
    _, gradient = rime.chi2_and_gradient(sources)
    pulled = rime.adjoint(sources, model - data["vis"])
    for name in arrays_of(sources):
        expected = 0.5 * getattr(gradient, name)
        # Two ways to the same residuals of some hundred samples.
        np.testing.assert_allclose(
            getattr(pulled, name), expected, rtol=0, atol=1e-10 * np.abs(expected).max()
        )
    t = np.array([3.0, 50.0])
    found = rime.chi2_and_gradient(sources, t)[1]
    for b in range(2):
        y = data["weight"] * np.abs(model[b] - data["vis"]) ** 2 / t[b]
        other = Rime(rows, vis=data["vis"], weight=data["weight"] / (1.0 + y), backend="cpu", extent=0.04)
        for name in arrays_of(sources):
            expected = getattr(other.chi2_and_gradient(sources)[1], name)[b]
            atol = 1e-10 * np.abs(expected).max()
            np.testing.assert_allclose(getattr(found, name)[b], expected, rtol=0, atol=atol)


def test_threads_do_not_change_a_bit(problem, sky, jones_beam_of) -> None:
    rows = problem(n_antenna=10, n_time=6, n_chan=20)
    sources, n_thread = sky(rows, n_point=30, beam=jones_beam_of(rows)), numba.get_num_threads()
    _, expected = rime_of(rows).chi2_and_gradient(sources)
    try:
        numba.set_num_threads(1)
        _, found = rime_of(rows).chi2_and_gradient(sources)
    finally:
        numba.set_num_threads(n_thread)
    for name in arrays_of(sources):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


# ---- J v


def change_for(sources: Sources, n_change: int | None = None) -> Gradient:
    """Random changes of everything, so large as `STEPS`."""
    rng, found = np.random.default_rng(7), {}
    for name, values in arrays_of(sources).items():
        part = np.abs(values[:1]) if name in ("shape", "beam_scale") else 1.0
        found[name] = STEPS[name] * part * rng.normal(size=(n_change or sources.n_batch, *values.shape[1:]))
    return Gradient(**found)


@pytest.mark.parametrize(
    ("form", "polarised"),
    [
        ("factored", True),
        ("row", False),
        pytest.param("factored", False, marks=pytest.mark.thorough),
        pytest.param("row", True, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("corr", [LINEAR, ["LR", "RR"]])
def test_tangent_and_its_adjoint(problem, sky, jones_beam_of, reference, form, corr, polarised) -> None:
    """J v of each array against differences; <J v, W r> is <v, J^H W r>."""
    rows = problem(n_antenna=4, n_time=2, corr=corr)
    applies = np.array([True, False, True, True])
    classes = [[0, 1, 1, 0], [1, 1, 0, 0]]
    beam = jones_beam_of(rows, turned=True, applies=applies, antenna_class=classes)
    sources = sky(rows, beam=beam)
    sources.stokes[..., 1:] *= polarised
    if polarised:
        sources = outside(rows, sources)
    rime, weight, whole = rime_of(rows, form=form), data_for(rows)["weight"], change_for(sources)
    if not polarised:
        whole.stokes[..., 1:] = 0.0
    residual = np.random.default_rng(8).normal(size=(2, *weight.shape)) * (1.0 + 0.5j)
    pulled = rime.adjoint(sources, residual)
    for name in arrays_of(sources):
        change = Gradient(**{key: getattr(whole, key) * (key == name) for key in arrays_of(sources)})
        found = rime.tangent(sources, change)
        expected = reference.derivative(
            lambda x, name=name: reference.visibilities(
                rows, corr, moved(sources, name, x * getattr(whole, name))
            ),
            1.0,
        )
        assert np.linalg.norm(found - expected) < 1e-7 * np.linalg.norm(expected), name
        left = np.sum(weight * (np.conj(found) * residual).real, axis=(1, 2, 3))
        right = np.sum((getattr(change, name).conj() * getattr(pulled, name)).real.reshape(2, -1), axis=1)
        size = np.sqrt(np.sum(weight * np.abs(found) ** 2) * np.sum(weight * np.abs(residual) ** 2))
        assert (np.abs(left - right) < 1e-11 * size).all(), name  # sums of some hundred terms


def test_information_is_that_of_the_columns(problem, sky, jones_beam_of) -> None:
    rows = problem(n_antenna=4, n_time=2)
    sources, rime = sky(rows, 1, beam=jones_beam_of(rows, 1)), rime_of(rows)
    change = change_for(sources, 5)
    columns = rime.tangent(sources, change).reshape(5, -1)
    expected = ((columns.conj() * data_for(rows)["weight"].ravel()) @ columns.T).real
    np.testing.assert_allclose(rime.information(sources, change), expected, rtol=1e-10, atol=0)
