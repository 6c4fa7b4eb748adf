"""Beams of 2x2 Jones matrices on a GPU or in Numba's simulator, against explicit sums and another program."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rime_kernels import AntennaTerms, Rime, Rows, Sources, device
from tests.rime_kernels.problems import CIRCULAR, LINEAR

# Phases of 1e4 turns, and in single precision sums of some terms: as for other beams.
TOLERANCE = {"double": 1e-11, "single": 2e-6}

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.usefixtures("cuda_backend", "tiles_always"),
    pytest.mark.filterwarnings("error::RuntimeWarning"),
]


def rows_for(problem: Any, **changes: Any) -> Rows:
    """Few threads where CUDA is simulated: the simulator takes milliseconds for each."""
    sizes = (
        {"n_antenna": 3, "n_time": 2, "n_chan": 2} if device.simulated() else {"n_antenna": 9, "n_chan": 5}
    )
    made: Rows = problem(**{**sizes, **changes})
    return made


def rime_of(rows: Rows, **options: Any) -> Rime:
    rng = np.random.default_rng(5)
    shape = (rows.n_row, rows.n_chan, rows.n_corr)
    weight = rng.uniform(0.5, 2.0, shape) * (rng.random(shape) > 0.2)
    given = {"vis": rng.normal(size=shape) + 1j * rng.normal(size=shape), "weight": weight}
    return Rime(rows, **{**given, "backend": "cuda", "extent": 0.04, **options})


def squares_of(rime: Rime, vis: np.ndarray) -> np.ndarray:
    """Weighted squares of the residuals, of the data that the engine has."""
    rng = np.random.default_rng(5)
    shape = vis.shape[1:]
    weight = rng.uniform(0.5, 2.0, shape) * (rng.random(shape) > 0.2)
    return weight * np.abs(vis - (rng.normal(size=shape) + 1j * rng.normal(size=shape))) ** 2


thorough = pytest.mark.thorough


@pytest.mark.parametrize(
    ("form", "precision", "corr"),
    [
        ("factored", "double", LINEAR),
        ("factored", "single", CIRCULAR),
        ("row", "double", CIRCULAR),
        ("row", "single", LINEAR),
        pytest.param("factored", "single", LINEAR, marks=thorough),
        pytest.param("factored", "double", ["LR", "RR"], marks=thorough),
        pytest.param("row", "double", ["YY"], marks=thorough),
    ],
)
def test_explicit_sums(problem, sky, jones_beam_of, reference, error_of, form, precision, corr) -> None:
    """Points and Gaussians; classes, angles and pointing errors of each antenna and time; and Student's t."""
    rows = rows_for(problem, corr=corr)
    rime = rime_of(rows, form=form, precision=precision)
    sources = sky(rows, beam=jones_beam_of(rows, turned=precision == "double"))
    expected = reference.visibilities(rows, corr, sources)
    assert error_of(rime.predict(sources), expected) < TOLERANCE[precision]
    squares, t = squares_of(rime, expected), np.array([3.0, 50.0])
    # Of sums of squares; they are of one sign.
    np.testing.assert_allclose(rime.chi2(sources), squares.sum(axis=(1, 2, 3)), rtol=TOLERANCE[precision])
    each = t[:, None, None, None]
    expected_t = (each * np.log1p(squares / each)).sum(axis=(1, 2, 3))
    np.testing.assert_allclose(rime.chi2(sources, t), expected_t, rtol=TOLERANCE[precision])


@pytest.mark.parametrize("form", ["factored", pytest.param("row", marks=pytest.mark.on_device)])
def test_what_is_the_same_for_all_and_sources_without_the_beam(
    problem, sky, jones_beam_of, reference, error_of, form
) -> None:
    """One time of angles, one scale, no pointing errors; brightness that stays; more sources than a chunk."""
    rows = rows_for(problem)
    made = jones_beam_of(rows, pointing=None, scale=np.ones(1), applies=np.arange(9) % 3 > 0)
    beam = replace(made, angle=made.angle[:1], feed_angle=made.feed_angle[:1, :, 0])
    sources = sky(rows, n_point=5, beam=beam, n_gaussian=4)
    sources = replace(sources, stokes=sources.stokes[:, :1])
    expected = reference.visibilities(rows, LINEAR, sources)
    assert error_of(rime_of(rows, form=form).predict(sources), expected) < TOLERANCE["double"]


@pytest.mark.parametrize("form", [pytest.param("factored", marks=pytest.mark.on_device), "row"])
def test_matrices_of_the_antennas_outside_of_the_beam(
    problem, sky, jones_beam_of, reference, error_of, form
) -> None:
    rows, rng = rows_for(problem), np.random.default_rng(5)
    jones = rng.normal(size=(2, 2, rows.n_antenna, 1, 2, 4)) @ [[1, 0], [1j, 0], [0, 1], [0, 1j]]
    terms = AntennaTerms(jones, np.arange(rows.n_time) % 2, np.zeros(rows.n_chan))
    # And each antenna with one beam after the other.
    beam = jones_beam_of(rows, antenna_class=rng.integers(0, 2, (rows.n_time, rows.n_antenna)))
    sources = sky(rows, n_gaussian=0, beam=beam, antenna_terms=terms)
    expected = reference.visibilities(rows, LINEAR, sources)
    rime = rime_of(rows, form=form)
    assert error_of(rime.predict(sources), expected) < TOLERANCE["double"]
    expected_chi2 = squares_of(rime, expected).sum(axis=(1, 2, 3))
    np.testing.assert_allclose(rime.chi2(sources), expected_chi2, rtol=1e-11)


def test_one_call_after_another(problem, sky, jones_beam_of, reference) -> None:
    """Repeated calls give equal bits, from graphs and parts of the batch too; another beam replaces it."""
    rows = rows_for(problem)
    first, second = (sky(rows, n_gaussian=0, beam=jones_beam_of(rows, seed=seed)) for seed in (4, 5))
    without = replace(first, beam=None)
    rime = rime_of(rows)
    found = [rime.chi2(first) for _ in range(3)]
    np.testing.assert_array_equal(found[1:], [found[0]] * 2)
    expected = [squares_of(rime, reference.visibilities(rows, LINEAR, s)) for s in (second, without)]
    for sources, squares in zip((second, without), expected, strict=True):
        np.testing.assert_allclose(rime.chi2(sources), squares.sum(axis=(1, 2, 3)), rtol=1e-11)
    np.testing.assert_array_equal(rime.chi2(first), found[0])
    np.testing.assert_array_equal(rime_of(rows, memory_limit=20000).chi2(first), found[0])


@pytest.mark.parametrize("form", ["factored", "row"])
def test_one_bad_entry_is_nan_and_spoils_no_other(problem, sky, jones_beam_of, form) -> None:
    rows = rows_for(problem)
    rime, sources = rime_of(rows, form=form), sky(rows, n_gaussian=0, beam=jones_beam_of(rows)).copy()
    expected = rime.chi2(sources)
    sources.beam.pointing[1, 0, 0] = np.nan
    with np.errstate(invalid="ignore"):  # the simulator's arithmetic warns of NaN
        chi2 = rime.chi2(sources)
    assert chi2[0] == expected[0]
    assert np.isnan(chi2[1])


def test_a_sky_without_sources(problem, sky, jones_beam_of) -> None:
    rows = rows_for(problem)
    empty: Sources = sky(rows, n_point=0, n_gaussian=0, beam=jones_beam_of(rows))
    np.testing.assert_array_equal(rime_of(rows).predict(empty), 0.0)
