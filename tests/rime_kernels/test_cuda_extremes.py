"""The CUDA kernels where arrays, sources or values are extreme."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from rime_kernels import InputError, Rime, Rows, Sources, device, stokes_to_corr
from tests.rime_kernels.problems import LINEAR, data_for

FORMS = ["factored", "row"]
on_device = pytest.mark.on_device
TOLERANCE = {"double": 1e-12, "single": 2e-6}


def changed(sources: Sources, **changes: Any) -> Sources:
    return Sources(**{**{field.name: getattr(sources, field.name) for field in fields(sources)}, **changes})


def rows_of(position: np.ndarray, first: Any, second: Any, corr: list[str] = LINEAR) -> Rows:
    """One time, one channel; uvw are differences of these positions."""
    first, second = np.asarray(first), np.asarray(second)
    none = np.zeros(first.size, int)
    uvw = position[first] - position[second]
    return Rows(uvw, first, second, none, [1.0e9], stokes_to_corr(corr), len(position), 1)


def gaussian(fwhm: float, lm: tuple[float, float] = (1e-3, 2e-3)) -> Sources:
    return Sources(
        [[lm]], [[[[1.0, 0.2, 0.1, -0.3]]]], [1e9], np.zeros((1, 1, 4, 0)), [True], [[[fwhm, fwhm / 2, 0.3]]]
    )


# ---- arrays


@pytest.mark.cuda
@pytest.mark.parametrize("form", FORMS)
def test_short_baselines_among_long_ones_keep_their_digits(cuda_backend, reference, form) -> None:
    """Antennas 100 m apart, 1000 km from the others: the envelope is of the differences of coordinates.

    In float32 alone they would be good to 0.06 m of the 100 m.
    """
    position = np.array([[0, 0, 0], [70, 70, 10], [6e5, -7e5, 3e5], [6e5 - 80, -7e5 + 60, 3e5 + 20]])
    rows = rows_of(position, *np.triu_indices(4, 1))
    sources = gaussian(1e-3)
    expected = reference.visibilities(rows, LINEAR, sources)
    short = np.linalg.norm(rows.uvw, axis=1) < 200
    assert short.sum() == 2
    assert (np.abs(expected[0, short, 0, 0]) > 0.1).all()
    assert not expected[0, ~short].any()
    found = Rime(rows, backend="cuda", precision="single", form=form, extent=0.01).predict(sources)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("first", "second"),
    [
        *(([1], [0]), ([0], [0]), ([1] * 20, [0, 1] * 10)),
        *(pytest.param(*each, marks=on_device) for each in (([0], [1]), ([2], [1]))),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_one_row_one_antenna_one_pair(cuda_backend, reference, error_of, form, first, second) -> None:
    rows = rows_of(np.random.default_rng(1).normal(size=(3, 3)) * 300, first, second)
    rime = Rime(rows, backend="cuda", form=form, extent=0.04, **data_for(rows))
    sources = gaussian(1e-4)
    expected = reference.visibilities(rows, LINEAR, sources)
    assert error_of(rime.predict(sources), expected) < TOLERANCE["double"]
    given = data_for(rows)
    square = given["weight"] * np.abs(expected - given["vis"]) ** 2
    np.testing.assert_allclose(rime.chi2(sources), [square.sum()], rtol=1e-12)


@pytest.mark.cuda
def test_rows_too_few_for_tiles_go_one_by_one(cuda_backend, reference, error_of) -> None:
    """300 antennas, eight pairs of some of them at each of three times: no tile has two rows of a time."""
    rng = np.random.default_rng(1)
    first, second = rng.choice(300, (2, 24), replace=False)
    plain = rows_of(rng.normal(size=(300, 3)) * 300, first, second)
    time, matrix = np.arange(24) % 3, stokes_to_corr(LINEAR)
    rows = Rows(plain.uvw, first, second, time, [1.0e9], matrix, 300, 3)
    rime = Rime(rows, backend="cuda", form="factored", extent=0.04, **data_for(rows))
    sources = gaussian(1e-4)
    assert "row by row" in rime.plan(sources)
    expected = reference.visibilities(rows, LINEAR, sources)
    assert error_of(rime.predict(sources), expected) < TOLERANCE["double"]
    dense = rows_of(rng.normal(size=(4, 3)), *np.triu_indices(4))
    by_tiles = Rime(dense, backend="cuda", form="factored", extent=0.04, **data_for(dense))
    assert "tiles of" in by_tiles.plan(sources)


@pytest.mark.cuda
@on_device
@pytest.mark.parametrize("form", FORMS)
def test_more_antennas_than_a_block_has_room_for(cuda_backend, reference, error_of, form) -> None:
    """Several splits, each with antennas of its own."""
    n_antenna = 20 if device.simulated() else 120
    rows = rows_of(np.random.default_rng(1).normal(size=(n_antenna, 3)) * 300, *np.triu_indices(n_antenna))
    rime = Rime(rows, backend="cuda", form=form, extent=0.04, **data_for(rows))
    sources = gaussian(1e-4)
    expected = reference.visibilities(rows, LINEAR, sources)
    assert error_of(rime.predict(sources), expected) < TOLERANCE["double"]
    given = data_for(rows)
    square = given["weight"] * np.abs(expected - given["vis"]) ** 2
    np.testing.assert_allclose(rime.chi2(sources), [square.sum()], rtol=1e-12)


# ---- sources


@pytest.mark.cuda
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("precision", ["double", "single"])
def test_what_is_resolved_is_exactly_nothing(cuda_backend, form, precision) -> None:
    """Exponents down to -inf; an antenna with itself sees all of the flux, however large the source is."""
    position = np.random.default_rng(1).normal(size=(4, 3)) * 300
    rows = rows_of(position, *np.triu_indices(4), ["I"])
    rime = Rime(rows, backend="cuda", form=form, precision=precision, extent=0.04, **data_for(rows))
    alone = rows.antenna1 == rows.antenna2
    for fwhm in (1.0, 1e15) if device.simulated() else (1.0, 1e6, 1e15):
        sources = changed(gaussian(fwhm), stokes=[[[[1.0, 0.0, 0.0, 0.0]]]])
        vis = rime.predict(sources)[0, :, 0, 0]
        np.testing.assert_array_equal(vis[~alone], 0.0)
        np.testing.assert_allclose(vis[alone], 1.0, rtol=TOLERANCE[precision])
        assert np.isfinite(rime.chi2(sources)).all()


@pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("form", FORMS)
def test_a_large_chi2_has_the_digits_of_float64(request, backend, problem, form) -> None:
    """Model, data and weights are short binary fractions: what float32 holds, and chi2, are exact.

    Squares from 0.01 to 1e11: rounded to float32 the largest would be off by thousands.
    """
    if backend == "cuda":
        request.getfixturevalue("cuda_backend")
    rows, rng = problem(n_antenna=3, n_time=2, n_chan=2), np.random.default_rng(7)
    shape = rows.n_row, rows.n_chan, rows.n_corr

    def eighths(most: float) -> np.ndarray:
        return np.rint(np.exp2(rng.uniform(0, most, shape)) * rng.choice([-1, 1], shape)) / 8

    vis = eighths(20) + 1j * eighths(20)
    weight, template = rng.integers(0, 32, shape) / 16, eighths(6) + 1j * eighths(6)
    sources = Sources(
        [[(0.0, 0.0)]], [[[[0.75, 0.0, 0.0, 0.0]]]], [1e9], np.zeros((1, 1, 4, 0)), [True],
        np.zeros((1, 0, 3)), template_scale=[[2.0]],
    )  # fmt: skip
    away = np.array([0.75, 0.0, 0.0, 0.75]) + 2.0 * template - vis
    expected = np.sum(weight * (away.real**2 + away.imag**2))
    options = {"backend": backend, "form": form, "precision": "single", "extent": 0.04}
    rime = Rime(rows, vis=vis, weight=weight, template=template[None], **options)
    for _ in range(1 if device.simulated() else 3):  # made, recorded, played
        found = rime.chi2(sources), rime.chi2_and_gradient(sources)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-13)  # sums of a hundred in float64


@pytest.mark.cuda
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pointing", [None, True, pytest.param(False, marks=on_device)])
def test_no_source_at_all(cuda_backend, problem, sky, beam_of, form, pointing) -> None:
    rows = problem(n_antenna=3, n_time=2, n_chan=2)
    given = data_for(rows)
    rime = Rime(rows, backend="cuda", form=form, extent=0.04, **given)
    beam = None if pointing is None else beam_of(rows, "cos3", pointing=pointing)
    sources = sky(rows, n_point=0, n_gaussian=0, beam=beam)
    assert not rime.predict(sources).any()
    square = (given["weight"] * np.abs(given["vis"]) ** 2).sum()
    np.testing.assert_allclose(rime.chi2(sources), [square, square], rtol=1e-12)


# ---- values (the simulator's arithmetic warns of NaN)


SPOILT = {
    "lm": [("lm", np.nan), ("lm", 0.9), ("lm", np.inf)],
    "flux": [("stokes", np.nan), ("stokes", np.inf), ("spectral_terms", 1e6), ("spectral_terms", np.nan)],
    "shape": [("shape", np.nan), ("shape", -1e-5)],
}


@pytest.mark.cuda
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", list(SPOILT))
@pytest.mark.parametrize("form", ["factored", pytest.param("row", marks=on_device)])
def test_a_spoilt_entry_touches_no_other(cuda_backend, problem, sky, form, kind) -> None:
    rows = problem(n_antenna=3, n_time=1, n_chan=2)
    rime = Rime(rows, backend="cuda", form=form, extent=0.04, **data_for(rows))
    good = sky(rows, n_batch=3, ref_freq=np.full(4, 5e8))
    expected = rime.chi2(good)
    for name, value in SPOILT[kind]:
        bad = good.copy()
        # A point's, but for shapes.
        getattr(bad, name)[1, 0] = value
        found = rime.chi2(bad)
        np.testing.assert_array_equal(found[[0, 2]], expected[[0, 2]])
        assert not np.isfinite(found[1])


@pytest.mark.cuda
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("form", [pytest.param("factored", marks=on_device), "row"])
def test_a_spoilt_beam_touches_no_other(cuda_backend, problem, sky, beam_of, form) -> None:
    rows = problem(n_antenna=3, n_time=1, n_chan=2)
    rime = Rime(rows, backend="cuda", form=form, extent=0.04, **data_for(rows))
    good = sky(rows, n_batch=3, beam=beam_of(rows, "cos3", n_batch=3))
    expected = rime.chi2(good)
    for name, value in (("scale", np.nan), ("scale", -1.0), ("pointing", np.nan)):
        bad = good.copy()
        getattr(bad.beam, name)[1] = value
        np.testing.assert_array_equal(rime.chi2(bad), [expected[0], np.nan, expected[2]])


@pytest.mark.cuda
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_visibilities_of_what_cannot_be_meant_are_refused(cuda_backend, problem, sky) -> None:
    rows = problem(n_antenna=3, n_time=1, n_chan=2)
    rime = Rime(rows, backend="cuda", extent=0.04)
    good = sky(rows, n_batch=3)
    bad = good.copy()
    bad.lm[1, 0] = 0.9
    with pytest.raises(InputError, match="batch entry 1 has impossible values"):
        rime.predict(bad)
    # NaN can: of its own entry it makes NaN.
    bad.lm[1, 0] = np.nan
    found = rime.predict(bad)
    assert np.isnan(found[1]).all()
    np.testing.assert_array_equal(found[[0, 2]], rime.predict(good)[[0, 2]])
