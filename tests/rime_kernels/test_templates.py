"""Templates: visibilities from elsewhere whose factors are parameters."""

from typing import Any

import numpy as np
import pytest

from rime_kernels import InputError, Rime, Rows, Sources, device
from tests.rime_kernels.problems import LINEAR, data_for

# float32 rounds terms and sums (see the other tests); in float64 most is rounding of the sines.
TOLERANCE = {"single": 2e-6, "double": 1e-11}


def templates_for(rows: Rows, n_template: int) -> np.ndarray:
    rng = np.random.default_rng(8)
    shape = (n_template, rows.n_row, rows.n_chan, rows.n_corr)
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def small(problem: Any) -> Rows:
    return problem(n_antenna=4, n_time=3, n_chan=2) if device.simulated() else problem(n_antenna=7, n_chan=5)


def nothing(scale: np.ndarray | None) -> Sources:
    """A sky of templates alone."""
    n = 1 if scale is None else len(scale)
    arrays = (
        np.zeros((n, 0, 2)),
        np.zeros((n, 1, 0, 4)),
        np.ones(0),
        np.zeros((n, 0, 4, 0)),
        np.zeros(0, bool),
    )
    return Sources(*arrays, np.zeros((n, 0, 3)), template_scale=scale)


def moved(rows: Rows, templates: np.ndarray, centre: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Templates of each entry times the phase by which a point at their centre moves (physics: section 2)."""
    before, after = (np.append(lm, np.sqrt(1 - np.sum(lm**2, -1, keepdims=True)), -1) for lm in (
        np.broadcast_to(centre, shift.shape), centre + shift))  # fmt: skip
    turns = np.einsum("rx,btx->btr", rows.uvw, after - before)[..., None] * rows.chan_freq / 299792458.0
    return np.exp(2j * np.pi * turns)[..., None] * templates


def check(
    backend: str, problem: Any, sky: Any, reference: Any, form: str, precision: str, *, shifted: bool
) -> None:
    rows, tolerance = small(problem), TOLERANCE[precision]
    data, templates = data_for(rows), templates_for(rows, 2)
    scale = np.random.default_rng(9).normal(size=(3, 2))
    centre, shift = np.array([[0.01, -0.02], [0.0, 0.005]]), np.zeros((3, 2, 2))
    if shifted:
        shift = np.random.default_rng(10).uniform(-1e-3, 1e-3, (3, 2, 2))
    sources = sky(rows, n_batch=3, template_scale=scale, template_shift=shift if shifted else None)
    options: dict[str, Any] = {"backend": backend, "extent": 0.04, "form": form, "precision": precision}
    expected = reference.visibilities(rows, LINEAR, sources)
    expected += np.einsum("bt,btrck->brck", scale, moved(rows, templates, centre, shift))
    chi2 = (data["weight"] * np.abs(data["vis"] - expected) ** 2).sum(axis=(1, 2, 3))
    options |= {"template": templates, "template_lm": centre}
    rime = Rime(rows, **data, **options)
    norm = np.linalg.norm(expected)
    assert np.linalg.norm(rime.predict(sources) - expected) < tolerance * norm
    for _ in range(1 if device.simulated() and backend == "cuda" else 3):  # made, recorded, played
        np.testing.assert_allclose(rime.chi2(sources), chi2, rtol=2 * tolerance)
    counts = data["weight"] > 0
    residual = rime.residual(sources)[:, counts] - (expected - data["vis"])[:, counts]
    assert np.linalg.norm(residual) < tolerance * norm
    np.testing.assert_allclose(rime.weighted_residual2(sources).sum(axis=(1, 2, 3)), chi2, rtol=2 * tolerance)
    streamed = Rime(rows, **data, memory_limit=20_000, **options)
    np.testing.assert_array_equal(streamed.chi2(sources), rime.chi2(sources))


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("shifted", [False, True])
def test_templates(problem, sky, reference, form, precision, shifted) -> None:
    check("cpu", problem, sky, reference, form, precision, shifted=shifted)


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize(
    ("form", "shifted"),
    [
        ("factored", True),
        ("row", False),
        pytest.param("factored", False, marks=pytest.mark.on_device),
        pytest.param("row", True, marks=pytest.mark.on_device),
    ],
)
def test_templates_on_cuda(cuda_backend, problem, sky, reference, form, precision, shifted) -> None:
    check("cuda", problem, sky, reference, form, precision, shifted=shifted)


def test_templates_alone_and_without_data(problem) -> None:
    rows = small(problem)
    templates, scale = templates_for(rows, 3), np.array([[2.0, -1.0, 0.0], [0.0, 0.0, 0.5]])
    rime = Rime(rows, template=templates, extent=0.0, backend="cpu")
    expected = np.einsum("bt,trck->brck", scale, templates)
    np.testing.assert_allclose(rime.predict(nothing(scale)), expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("n_scale", [0, 2])
def test_factors_of_other_templates_are_refused(problem, n_scale) -> None:
    rows = small(problem)
    rime = Rime(rows, template=templates_for(rows, 1), extent=0.0, backend="cpu")
    with pytest.raises(InputError, match=rf"template_scale must have shape \(1, 1\), got {n_scale} factors"):
        rime.predict(nothing(np.ones((1, n_scale)) if n_scale else None))


@pytest.mark.parametrize("bad", ["shape", "nan"])
def test_templates_that_cannot_be_meant_are_refused(problem, bad) -> None:
    rows = small(problem)
    templates = templates_for(rows, 1)
    if bad == "nan":
        templates[0, 0, 0, 0] = np.nan
    with pytest.raises(InputError, match="template"):
        Rime(rows, template=templates if bad == "nan" else templates[0], extent=0.0, backend="cpu")


def test_what_goes_with_templates_is_refused_without_them(problem) -> None:
    rows = small(problem)
    with pytest.raises(InputError, match="template_lm was given without template"):
        Rime(rows, template_lm=np.zeros((1, 2)), extent=0.0, backend="cpu")
    alone = nothing(None)
    with pytest.raises(InputError, match="template_shift was given without template_scale"):
        Sources(
            *(alone.lm, alone.stokes, alone.ref_freq, alone.spectral_terms, alone.log_spectrum, alone.shape),
            template_shift=np.zeros((1, 1, 2)),
        )
