"""Smearing on a GPU or in Numba's simulator: against means of explicit sums by Romberg's method."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rime_kernels import AntennaTerms, Rime, Rows, Smearing, Sources, device
from tests.rime_kernels.problems import LINEAR

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.usefixtures("cuda_backend", "tiles_always"),
    pytest.mark.filterwarnings("error::RuntimeWarning"),
]


def rows_for(problem: Any) -> Rows:
    """Few threads where CUDA is simulated: the simulator takes milliseconds for each."""
    sizes = {"n_antenna": 3, "n_time": 2} if device.simulated() else {"n_antenna": 7, "n_time": 5}
    made: Rows = problem(n_chan=2, **sizes)
    return made


def smearing_of(rows: Rows, *, equal: bool) -> Smearing:
    """Up to about 0.05 turns in either axis for sources within 0.04: two or three nodes."""
    interval = np.full(rows.n_row, 3.0) if equal else np.random.default_rng(9).uniform(2.0, 4.0, rows.n_row)
    return Smearing(0.6, interval, np.array([8e4, 8e4] if equal else [6e4, 1e5]), error=1e-6)


def complex_numbers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    found: np.ndarray = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return found


def given_for(rows: Rows) -> dict[str, np.ndarray]:
    rng, shape = np.random.default_rng(5), (rows.n_row, rows.n_chan, rows.n_corr)
    return {
        "vis": complex_numbers(rng, *shape),
        "weight": rng.uniform(0.5, 2.0, shape) * (rng.random(shape) > 0.2),
        "template": complex_numbers(rng, 1, *shape),
        "template_lm": np.array([[0.01, -0.02]]),
    }


def sources_for(sky: Any, rows: Rows, *, n_batch: int = 1, **changes: Any) -> Sources:
    rng = np.random.default_rng(8)
    moved = {
        "template_scale": rng.normal(size=(n_batch, 1)),
        "template_shift": rng.normal(scale=1e-3, size=(n_batch, 1, 2)),
    }
    made: Sources = sky(rows, n_batch=n_batch, n_point=1, n_gaussian=1, **(moved | changes))
    return made


def matrices_for(rows: Rows) -> AntennaTerms:
    noise = complex_numbers(np.random.default_rng(4), 1, rows.n_time, rows.n_antenna, rows.n_chan, 2, 2)
    return AntennaTerms(np.eye(2) + 0.3 * noise, np.arange(rows.n_time), np.arange(rows.n_chan))


STEPS = {"lm": 1e-6, "stokes": 0.05, "spectral_terms": 0.01, "shape": 1e-3, "template_scale": 0.05}
STEPS |= {"template_shift": 1e-6, "jones": 0.02, "pointing": 1e-5}


def arrays_of(sources: Sources) -> dict[str, np.ndarray]:
    found = {name: getattr(sources, name) for name in STEPS if name not in ("jones", "pointing")}
    if sources.antenna_terms is not None:
        found["jones"] = sources.antenna_terms.jones
    if sources.beam is not None:
        found["pointing"] = sources.beam.pointing  # type: ignore[union-attr]
    return found


def moved(sources: Sources, name: str, change: np.ndarray) -> Sources:
    values = arrays_of(sources)[name] + change
    if name == "jones":
        assert sources.antenna_terms is not None
        return replace(sources, antenna_terms=replace(sources.antenna_terms, jones=values))
    if name == "pointing":
        assert sources.beam is not None
        return replace(sources, beam=replace(sources.beam, pointing=values))
    return replace(sources, **{name: values})


@pytest.mark.parametrize("form", ["factored", pytest.param("row", marks=pytest.mark.on_device)])
def test_means_and_their_brightness(problem, sky, reference, form) -> None:
    """V is linear in fluxes I and factors a of templates: of chi2, I dI + a da is 2 Re sum w V* (V - D)."""
    rows = problem(n_antenna=2, n_time=1, n_chan=2)
    sources, given = sources_for(sky, rows), given_for(rows)
    smearing = replace(smearing_of(rows, equal=form == "factored"), error=1e-3)
    template = given["template"], given["template_lm"]
    vis = reference.averaged(
        lambda at: reference.visibilities(at, LINEAR, sources)
        + reference.moved_templates(at, sources, *template),
        rows, smearing, 2,
    )  # fmt: skip
    rime = Rime(rows, **given, backend="cuda", form=form, extent=0.04, smearing=smearing)
    # 1e-3 of a loss of 1e-2 at most.
    np.testing.assert_allclose(rime.predict(sources), vis, atol=1e-5 * np.abs(vis).max())
    chi2, gradient = rime.chi2_and_gradient(sources)
    away = vis - given["vis"]
    np.testing.assert_allclose(chi2, (given["weight"] * np.abs(away) ** 2).sum(), rtol=1e-5)
    names = "stokes", "template_scale"
    found = sum((getattr(sources, name) * getattr(gradient, name)).sum() for name in names)
    slopes = 2.0 * given["weight"] * (np.conj(vis) * away).real
    assert abs(found - slopes.sum()) < 1e-5 * np.abs(slopes).sum()


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        pytest.param("factored", "student", marks=pytest.mark.on_device),
        pytest.param("row", "matrices", marks=pytest.mark.on_device),
        pytest.param("factored", "matrices", marks=pytest.mark.thorough),
        pytest.param("row", "student", marks=pytest.mark.thorough),
        pytest.param("factored", "pointing", marks=pytest.mark.thorough),
        pytest.param("row", "pointing", marks=pytest.mark.thorough),
    ],
)
def test_all_that_a_rime_computes(problem, sky, beam_of, reference, form, kind) -> None:
    """Templates move; matrices of antennas, beams with pointing errors, or Student's t come with them."""
    rows = rows_for(problem)
    changes = {"antenna_terms": matrices_for(rows)} if kind == "matrices" else {}
    if kind == "pointing":
        changes["beam"] = beam_of(rows, "cos3", n_batch=1)
    sources, given = sources_for(sky, rows, **changes), given_for(rows)
    smearing = smearing_of(rows, equal=form == "factored")
    rime = Rime(rows, **given, backend="cuda", form=form, extent=0.04, smearing=smearing)
    assert "2 blocks" in rime.plan(sources)  # autocorrelations need fewer nodes
    t = np.array([3.0]) if kind == "student" else None
    template = given["template"], given["template_lm"]

    def model(at: Sources) -> np.ndarray:
        def vis(nodes: Rows) -> np.ndarray:
            if at.antenna_terms is not None:
                return np.asarray(reference.seen_through_antennas(nodes, LINEAR, at, "tangent", *template))
            plain = reference.visibilities(nodes, LINEAR, at)
            return np.asarray(plain + reference.moved_templates(nodes, at, *template))

        return np.asarray(reference.averaged(vis, rows, smearing, 2))

    def chi2(at: Sources, dof: np.ndarray | None = t) -> np.ndarray:
        squares = given["weight"] * np.abs(model(at) - given["vis"]) ** 2
        if dof is None:
            return np.asarray(squares.sum(axis=(1, 2, 3)))
        return dof * np.log1p(squares / dof[:, None, None, None]).sum(axis=(1, 2, 3))

    # The error is 1e-6 of a loss of 1e-2 at most, and Romberg's method has as much.
    expected = model(sources)
    np.testing.assert_allclose(rime.predict(sources), expected, atol=1e-7 * np.abs(expected).max())
    assert np.abs(expected - model_of_middles(reference, rows, sources, template)).max() > 1e-4
    counts = given["weight"][None] > 0.0
    np.testing.assert_allclose(
        rime.residual(sources)[counts], (expected - given["vis"])[counts], atol=1e-7 * np.abs(expected).max()
    )
    np.testing.assert_allclose(rime.chi2(sources, t), chi2(sources), rtol=1e-7)
    found_chi2, gradient = rime.chi2_and_gradient(sources, t)
    np.testing.assert_allclose(found_chi2, rime.chi2(sources, t), rtol=1e-12)
    rng, part = np.random.default_rng(6), 0.2 if t is not None else 1.0  # logarithms are no polynomials
    for name, values in arrays_of(sources).items():
        way = rng.normal(size=values.shape) * (np.abs(values) if name == "shape" else 1.0)
        slope = reference.derivative(
            lambda x, name=name, way=way: chi2(moved(sources, name, x * way)), part * STEPS[name]
        )
        product = (np.conj(getattr(gradient, {"jones": "antenna_terms"}.get(name, name))) * way).real
        # What differences are good for, and the error of the nodes.
        assert np.abs(product.sum() - slope) < 3e-7 * np.linalg.norm(product), name
    if t is not None:
        expected = reference.derivative(lambda x: chi2(sources, t + x), 0.01)
        np.testing.assert_allclose(gradient.scaled_dof, expected, rtol=1e-6)


def model_of_middles(reference: Any, rows: Rows, sources: Sources, template: Any) -> np.ndarray:
    """What smearing changes."""
    if sources.antenna_terms is not None:
        return np.asarray(reference.seen_through_antennas(rows, LINEAR, sources, "tangent", *template))
    return np.asarray(
        reference.visibilities(rows, LINEAR, sources) + reference.moved_templates(rows, sources, *template)
    )


@pytest.mark.on_device
@pytest.mark.parametrize("precision", ["double", pytest.param("single", marks=pytest.mark.thorough)])
def test_blocks_of_rows_and_batches_change_nothing(problem, sky, precision) -> None:
    rows = rows_for(problem)
    sources = sources_for(sky, rows, n_batch=2, template_shift=None)
    given = {**given_for(rows), "backend": "cuda", "extent": 0.04, "precision": precision}
    given |= {"smearing": replace(smearing_of(rows, equal=True), error=0.1)}
    whole = Rime(rows, **given)
    assert "data on the device" in whole.plan(sources)
    # Data of about three rows at a time; bytes of each sample.
    n_byte = {"double": 112, "single": 56}[precision]
    parts = Rime(rows, **given, memory_limit=int(3 * rows.n_chan * rows.n_corr * n_byte / 0.3))
    assert "sent in every call" in parts.plan(sources)
    tolerance = {"double": 1e-11, "single": 1e-5}[precision]  # sums in another order
    for call in ("predict", "chi2"):
        found = getattr(whole, call)(sources)
        atol = tolerance * np.abs(found).max()
        np.testing.assert_allclose(getattr(parts, call)(sources), found, atol=atol)
        np.testing.assert_allclose(getattr(whole, call)(sources.entries(1, 2)), found[1:], atol=atol)
    one, other = (rime.chi2_and_gradient(sources)[1] for rime in (whole, parts))
    for name in ("lm", "stokes", "shape", "template_scale"):
        atol = 10 * tolerance * np.abs(getattr(one, name)).max()
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), atol=atol)


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["factored", "row"])
def test_through_beams_of_matrices(problem, sky, jones_beam_of, reference, form) -> None:
    rows = rows_for(problem)
    sources = sky(rows, n_batch=1, n_point=1, n_gaussian=1, beam=jones_beam_of(rows, n_batch=1))
    smearing = smearing_of(rows, equal=form == "factored")
    rime = Rime(rows, backend="cuda", form=form, extent=0.04, smearing=smearing)
    expected = reference.averaged(
        lambda at: reference.visibilities(at, LINEAR, sources), rows, smearing, 2
    )  # fmt: skip
    np.testing.assert_allclose(rime.predict(sources), expected, atol=1e-7 * np.abs(expected).max())


def test_an_empty_batch_has_no_derivatives(problem, sky) -> None:
    rows = rows_for(problem)
    given = {**given_for(rows), "backend": "cuda", "extent": 0.04}
    rime = Rime(rows, **given, smearing=smearing_of(rows, equal=True))
    chi2, gradient = rime.chi2_and_gradient(sources_for(sky, rows).entries(0, 0))
    assert chi2.shape == (0,)
    assert gradient.lm.shape == (0, 2, 2)
