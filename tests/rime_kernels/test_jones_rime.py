"""Visibilities through beams of 2x2 Jones matrices, against explicit sums, closed forms and scalar beams."""

from dataclasses import replace
from typing import Any

import numba
import numpy as np
import pytest
from scipy.interpolate import make_interp_spline

from rime_kernels import (
    Antennas,
    AntennaTerms,
    Beam,
    InputError,
    JonesBeam,
    Options,
    Rime,
    Rows,
    Sources,
    device,
    predict,
)
from rime_kernels.physics.brightness import stokes_to_corr
from tests.rime_kernels.problems import CIRCULAR, LINEAR

# Phases of 1e4 turns, and in single precision sums of some terms: as for other beams.
TOLERANCE = {"double": 1e-11, "single": 2e-6}

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def rime_of(rows: Rows, **options: Any) -> Rime:
    return Rime(rows, **{"backend": "cpu", "extent": 0.04, **options})


def constant_beam(rows: Rows, e: np.ndarray, **changes: Any) -> JonesBeam:
    """E the same 2x2 matrix everywhere."""
    given = {
        "coefficient": np.broadcast_to(e, (1, rows.n_chan, 4, 4, 2, 2)), "grid": [-0.1, 0.2, -0.1, 0.2],
        "antenna_class": np.zeros(rows.n_antenna, int), "angle": np.zeros((1, rows.n_antenna)),
        "feed_angle": np.zeros((1, rows.n_antenna)), "scale": np.ones(1),
    }  # fmt: skip
    return JonesBeam(**{**given, **changes})


def coefficients_of(values: np.ndarray) -> np.ndarray:
    """Spline coefficients along two axes of values at the nodes, (n_y, n_x, ...) of at least 4 x 4.

    scipy's not-a-knot splines, evaluated where cubic B-splines give them back: c is p - p''/6 at a node of
    each cubic piece p, one more node at each side by the pieces at the ends.
    """
    for axis in (0, 1):
        n = values.shape[axis]
        spline = make_interp_spline(np.arange(float(n)), values, k=3, axis=axis)
        at = np.arange(-1.0, n + 1.0)
        values = np.moveaxis(spline(at) - spline(at, 2) / 6.0, 0, axis)
    return values


# ---- against explicit sums


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("n_chan", [3, 1])
@pytest.mark.parametrize("corr", [LINEAR, CIRCULAR])
def test_explicit_sums(problem, sky, jones_beam_of, reference, precision, form, n_chan, corr) -> None:
    """Vectors along channels, and along times or rows that have antennas and angles of their own."""
    rows = problem(n_chan=n_chan, n_time=3 if n_chan > 1 else 11, corr=corr)
    sources = sky(rows, beam=jones_beam_of(rows))
    found = rime_of(rows, form=form, precision=precision).predict(sources)
    expected = reference.visibilities(rows, corr, sources)
    assert np.linalg.norm(found - expected) < TOLERANCE[precision] * np.linalg.norm(expected)


@pytest.mark.parametrize("corr", [["LL"], ["YY", "XY"], ["RL"], ["LR", "RR", "RL", "LL"], ["XX"]])
def test_some_correlations_in_any_order(problem, sky, jones_beam_of, reference, error_of, corr) -> None:
    rows = problem(corr=corr, n_time=2)
    sources = sky(rows, 1, beam=jones_beam_of(rows, 1))
    assert error_of(rime_of(rows).predict(sources), reference.visibilities(rows, corr, sources)) < 1e-11


@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("corr", [LINEAR, ["LL", "RL"]])
def test_what_a_beam_shows_is_seen_through_matrices_of_the_antennas(
    problem, sky, jones_beam_of, reference, error_of, form, corr
) -> None:
    """G D of `Sources.antenna_terms` outside of E."""
    rows, rng = problem(corr=corr), np.random.default_rng(5)
    jones = rng.normal(size=(2, 2, rows.n_antenna, 1, 2, 4)) @ [[1, 0], [1j, 0], [0, 1], [0, 1j]]
    terms = AntennaTerms(jones, np.arange(rows.n_time) // 2, np.zeros(rows.n_chan))
    sources = sky(rows, beam=jones_beam_of(rows), antenna_terms=terms)
    expected = reference.visibilities(rows, corr, sources)
    assert error_of(rime_of(rows, form=form).predict(sources), expected) < 1e-11


@pytest.mark.parametrize("form", ["factored", "row"])
def test_many_sources_and_channels(problem, sky, jones_beam_of, reference, error_of, form) -> None:
    """More than one piece of sources and one block of channels; some sources without the beam."""
    rows = problem(n_antenna=4, n_chan=11, n_time=2)
    sources = sky(rows, n_point=20, n_gaussian=17)
    some = np.random.default_rng(1).random(37) > 0.3
    for changes in ({"applies": some}, {"pointing": None}, {"scale": np.ones(1)}):
        made = replace(sources, beam=jones_beam_of(rows, **changes))
        expected = reference.visibilities(rows, LINEAR, made)
        assert error_of(rime_of(rows, form=form).predict(made), expected) < TOLERANCE["double"]


def test_one_beam_after_another_with_the_same_data(problem, sky, jones_beam_of, reference, error_of) -> None:
    """Coefficients are kept in the order of lanes between calls: those of another beam take their place."""
    rows = problem(n_antenna=4, n_chan=11, n_time=2)
    sources, rime = sky(rows), rime_of(rows)
    first, second = jones_beam_of(rows), jones_beam_of(rows)
    second = replace(second, coefficient=1j * first.coefficient[..., ::-1])
    for beam in (first, second, first):
        seen = replace(sources, beam=beam)
        error = error_of(rime.predict(seen), reference.visibilities(rows, LINEAR, seen))
        assert error < TOLERANCE["double"]


@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("n_chan", [3, 1])
def test_antennas_with_one_beam_after_the_other(
    problem, sky, jones_beam_of, reference, error_of, form, n_chan
) -> None:
    """With one channel the lanes of a vector are times: those of a vector differ."""
    rows = problem(n_chan=n_chan, n_time=3 if n_chan > 1 else 11)
    classes = np.random.default_rng(8).integers(0, 2, (rows.n_time, rows.n_antenna))
    sources = sky(rows, 1, beam=jones_beam_of(rows, 1, antenna_class=classes))
    expected = reference.visibilities(rows, LINEAR, sources)
    assert error_of(rime_of(rows, form=form).predict(sources), expected) < 1e-12
    with pytest.raises(InputError, match=r"antenna_class must have 1 or n_time = .* time slots, got 2"):
        rime_of(rows).predict(replace(sources, beam=jones_beam_of(rows, 1, antenna_class=classes[:2])))


@pytest.mark.parametrize("form", ["factored", "row"])
def test_what_is_the_same_at_all_times(problem, sky, jones_beam_of, reference, error_of, form) -> None:
    rows = problem(n_chan=1, n_time=9)
    made = jones_beam_of(rows)
    fixed = replace(made, angle=made.angle[:1], feed_angle=made.feed_angle[:1, :, 0])
    fixed = replace(fixed, pointing=made.pointing[:1, :1])
    sources = sky(rows, beam=fixed)
    sources = replace(sources, stokes=sources.stokes[:, :1])
    expected = reference.visibilities(rows, LINEAR, sources)
    assert error_of(rime_of(rows, form=form).predict(sources), expected) < TOLERANCE["double"]


@pytest.mark.parametrize("form", ["factored", "row"])
def test_all_that_is_made_of_visibilities(problem, sky, jones_beam_of, reference, error_of, form) -> None:
    rows, rng = problem(), np.random.default_rng(5)
    shape = (rows.n_row, rows.n_chan, rows.n_corr)
    vis, weight = rng.normal(size=shape) + 1j * rng.normal(size=shape), rng.uniform(0.0, 2.0, shape)
    sources = sky(rows, beam=jones_beam_of(rows))
    rime = rime_of(rows, vis=vis, weight=weight, form=form)
    model = reference.visibilities(rows, LINEAR, sources)
    assert error_of(rime.residual(sources), model - vis) < 1e-11
    squares = weight * np.abs(model - vis) ** 2
    assert error_of(rime.weighted_residual2(sources), squares) < 1e-11
    np.testing.assert_allclose(rime.chi2(sources), squares.sum(axis=(1, 2, 3)), rtol=1e-11)
    t = np.array([3.0, 50.0])
    expected = (t[:, None, None, None] * np.log1p(squares / t[:, None, None, None])).sum(axis=(1, 2, 3))
    np.testing.assert_allclose(rime.chi2(sources, t), expected, rtol=1e-11)


# ---- closed forms


@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("corr", [LINEAR, CIRCULAR])
def test_a_beam_of_1_is_no_beam(problem, sky, error_of, form, corr) -> None:
    rows = problem(corr=corr)
    rime, sources = rime_of(rows, form=form), sky(rows)
    none = rime.predict(sources)
    # Roundings of weights that add up to 1, and of matrix products.
    assert error_of(rime.predict(replace(sources, beam=constant_beam(rows, np.eye(2)))), none) < 1e-12
    off = constant_beam(rows, np.full((2, 2), 3.0), applies=np.zeros(4, bool))
    assert error_of(rime.predict(replace(sources, beam=off)), none) < 1e-12


@pytest.mark.parametrize("form", ["factored", "row"])
def test_a_matrix_that_is_the_same_everywhere_acts_after_the_sum(problem, sky, error_of, form) -> None:
    rows, e = problem(), np.array([[1.0 + 0.2j, 0.3j], [-0.1 + 0.1j, 0.8]])
    rime, sources = rime_of(rows, form=form), sky(rows)
    vis = rime.predict(sources)
    expected = (e @ vis.reshape(*vis.shape[:-1], 2, 2) @ e.conj().T).reshape(vis.shape)
    assert error_of(rime.predict(replace(sources, beam=constant_beam(rows, e))), expected) < 1e-12


@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("n_chan", [3, 1])
def test_feeds_that_turn(problem, sky, error_of, form, n_chan) -> None:
    """RL gains e^-i(phi_p + phi_q); XX of a point with Q, U is I + Q cos 2 phi + U sin 2 phi."""
    rows = problem(corr=CIRCULAR, n_chan=n_chan, n_time=9)
    phi = np.random.default_rng(1).normal(size=(rows.n_time, rows.n_antenna))
    rime, sources = rime_of(rows, form=form), sky(rows)
    seen = rime.predict(replace(sources, beam=constant_beam(rows, np.eye(2), feed_angle=phi)))
    p, q = (phi[rows.time_index, a][:, None] for a in (rows.antenna1, rows.antenna2))
    turn = np.exp(1j * np.stack([q - p, -p - q, p + q, p - q], axis=-1))
    assert error_of(seen, turn * rime.predict(sources)) < 1e-12
    rows = problem(n_chan=n_chan)
    stokes = np.array([3.0, 1.0, -2.0, 0.5]).reshape(1, 1, 1, 4)
    point = sky(rows, 1, n_point=1, n_gaussian=0, stokes=stokes, spectral_terms=np.zeros((1, 1, 4, 0)))
    one = constant_beam(rows, np.eye(2), feed_angle=np.full((1, rows.n_antenna), 0.4))
    seen = np.abs(rime_of(rows, form=form).predict(replace(point, beam=one))[0, ..., 0])
    np.testing.assert_allclose(seen, 3.0 + np.cos(0.8) - 2.0 * np.sin(0.8), rtol=1e-12)


@pytest.mark.parametrize("form", ["factored", "row"])
def test_a_beam_that_turns_sees_the_sky_turned_back(problem, sky, jones_beam_of, error_of, form) -> None:
    """The position angle of a source, as the antenna sees it, is less by the angle."""
    rows = problem()
    angle = 0.7 + np.zeros((1, rows.n_antenna))
    still = jones_beam_of(rows, pointing=None, angle=0.0 * angle, feed_angle=0.0 * angle)
    sources = sky(rows, n_gaussian=0, n_point=4)
    r, pa = np.hypot(*np.moveaxis(sources.lm, -1, 0)), np.arctan2(sources.lm[..., 0], sources.lm[..., 1])
    turned = r[..., None] * np.stack([np.sin(pa - 0.7), np.cos(pa - 0.7)], axis=-1)
    there = replace(sources, lm=turned, beam=still)
    # Phases of a source are those of its own place: rows without length leave the beam alone.
    rows = replace(rows, uvw=np.zeros_like(rows.uvw))
    rime = rime_of(rows, form=form)
    found = rime.predict(replace(sources, beam=replace(still, angle=angle)))
    assert error_of(found, rime.predict(there)) < 1e-12


@pytest.mark.parametrize("pointing", [True, False])
def test_a_real_scalar_beam_on_a_fine_grid(problem, sky, beam_of, error_of, pointing) -> None:
    """Interpolation errs by 3/128 h^4 times the fourth derivative along each axis: here by 5e-7."""
    rows = problem()
    made: Beam = beam_of(rows, "gaussian", 1, pointing=pointing)
    x = np.linspace(-0.06, 0.06, 121)
    r = np.hypot(x, x[:, None])
    values = np.exp(-2.0 * np.log(2.0) * (made.scale[0] * rows.chan_freq * r[..., None]) ** 2)
    coefficient = coefficients_of(values)[..., None, None] * np.eye(2)
    beam = constant_beam(
        rows, np.eye(2), coefficient=np.moveaxis(coefficient, 2, 0)[None], grid=[-0.06, 0.001, -0.06, 0.001],
        pointing=made.pointing,
    )  # fmt: skip
    sources = sky(rows, 1)
    rime = rime_of(rows)
    expected = rime.predict(replace(sources, beam=made))
    assert 0.0 < error_of(rime.predict(replace(sources, beam=beam)), expected) < 2e-6


# ---- against another program


@pytest.mark.parametrize("feed", ["lin", "circ"])
def test_codex_africanus_feed_rotation_and_a_beam(truth, error_of, feed) -> None:
    """P, and E P, of its own angles and its E at the sources."""
    f, corr = truth("jones/africanus_beam"), {"lin": LINEAR, "circ": CIRCULAR}[feed]
    q = f["parallactic_angles_astropy"]
    only_p = seen_by_africanus(f, corr, np.broadcast_to(np.eye(2), f["dde"].shape), q)
    both = seen_by_africanus(f, corr, f["dde"], q)
    # It computes sqrt(1 - l^2 - m^2) - 1, which cancels: 2e-13.
    assert error_of(only_p, f[f"vis_p_{feed}"].reshape(only_p.shape)) < 1e-10
    assert error_of(both, f[f"vis_ep_{feed}"].reshape(both.shape)) < 1e-10


@pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_codex_africanus_random_matrices(truth, error_of, request, backend) -> None:
    if backend == "cuda":
        backend = request.getfixturevalue("cuda_backend")
        if device.simulated():
            pytest.skip("hundreds of rows would take minutes in the simulator")
    f = truth("jones/africanus_jones_random")
    found = seen_by_africanus(f, LINEAR, f["dde"], np.zeros(f["dde"].shape[1:3]), backend)
    assert error_of(found, f["vis_dde"].reshape(found.shape)) < 1e-10


@pytest.mark.parametrize("precision", ["double", pytest.param("single", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("feed", ["lin", "circ"])
def test_codex_africanus_gains_beam_and_feed_rotation(truth, error_of, feed, precision) -> None:
    """G E P: its E at a source is a beam of its own for each antenna and time."""
    f, corr = truth("jones/africanus_beam"), {"lin": LINEAR, "circ": CIRCULAR}[feed]
    q, (n_time, n_antenna) = f["parallactic_angles_astropy"], f["dde"].shape[1:3]
    n_chan = f["chan_freq"].size
    rows = Rows(
        f["uvw"], f["antenna1"], f["antenna2"], f["time_index"], f["chan_freq"], stokes_to_corr(corr),
        n_antenna, n_time,
    )  # fmt: skip
    gains = AntennaTerms(f["die"][None, ..., None] * np.eye(2), np.arange(n_time), np.arange(n_chan))
    total = 0.0
    for s, dde in enumerate(f["dde"]):
        e = dde.reshape(-1, n_chan, 1, 1, 2, 2)
        beam = JonesBeam(
            np.broadcast_to(e, (*e.shape[:2], 4, 4, 2, 2)), [-0.1, 0.2, -0.1, 0.2],
            np.arange(n_time * n_antenna).reshape(n_time, n_antenna), np.zeros((1, n_antenna)), q, np.ones(1),
        )  # fmt: skip
        shape = f["gauss_maj_min_pa"][None, 2:3] if s == 2 else np.zeros((1, 0, 3))
        sources = Sources(
            f["lm"][None, s : s + 1], f["stokes"][None, None, s : s + 1], np.ones(1), np.zeros((1, 1, 4, 0)),
            np.ones(1, bool), shape, beam, antenna_terms=gains,
        )  # fmt: skip
        rime = Rime(rows, backend="cpu", gaussian_frame="uv", precision=precision, extent=0.04)
        total = total + rime.predict(sources)[0]
    # It computes sqrt(1 - l^2 - m^2) - 1, which cancels: 2e-13. In single precision that of other sums.
    assert (
        error_of(total, f[f"vis_gep_{feed}"].reshape(total.shape))
        < {"double": 1e-10, "single": 2e-6}[precision]
    )


def seen_by_africanus(
    f: Any, corr: list[str], dde: np.ndarray, q: np.ndarray, backend: Any = "cpu"
) -> np.ndarray:
    """A class for each antenna, a beam for each source and time, the same in all directions."""
    total = np.zeros((len(f["uvw"]), f["chan_freq"].size, 4), complex)
    for s, t in np.ndindex(*dde.shape[:2]):
        e, here = dde[s, t][:, :, None, None], f["time_index"] == t
        beam = JonesBeam(
            np.broadcast_to(e, (*e.shape[:2], 4, 4, 2, 2)), [-0.1, 0.2, -0.1, 0.2], np.arange(len(e)),
            np.zeros((1, len(e))), q[t : t + 1], np.ones(1),
        )  # fmt: skip
        total[here] += predict_africanus(f, corr, beam, slice(s, s + 1), backend)[here]
    return total


def predict_africanus(
    f: Any, corr: list[str], beam: JonesBeam, which: slice, backend: Any = "cpu"
) -> np.ndarray:
    """Its sources in its frame of Gaussians."""
    antennas = Antennas(f["antenna1"], f["antenna2"], f["time_index"])
    shape = np.zeros((len(f["lm"]), 3))
    shape[2] = f["gauss_maj_min_pa"][2]
    return predict(
        f["uvw"], f["chan_freq"], f["lm"][which], f["stokes"][which], shape=shape[which], beam=beam,
        antennas=antennas, corr=corr, options=Options(backend=backend, gaussian_frame="uv"),
    )  # fmt: skip


# ---- calls


@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("wrong", ["nan lm", "nan pointing", "nan scale", "scale", "far"])
def test_one_bad_entry_is_nan_and_spoils_no_other(problem, sky, jones_beam_of, form, wrong) -> None:
    rows = problem()
    vis = np.zeros((rows.n_row, rows.n_chan, rows.n_corr), complex)
    rime = rime_of(rows, vis=vis, weight=np.ones(vis.shape), form=form)
    sources = sky(rows, beam=jones_beam_of(rows)).copy()
    expected = rime.chi2(sources)
    place, value = {
        "nan lm": (sources.lm[1, 0], np.nan), "nan pointing": (sources.beam.pointing[1, 0, 0], np.nan),
        "nan scale": (sources.beam.scale[1:], np.nan), "scale": (sources.beam.scale[1:], -1.0),
        "far": (sources.beam.pointing[1, 0, 0], 1e300),
    }[wrong]  # fmt: skip
    place[...] = value
    chi2 = rime.chi2(sources)
    assert chi2[0] == expected[0]
    assert np.isnan(chi2[1]) == (wrong != "far")


def test_a_sky_without_sources_and_an_empty_batch(problem, sky, jones_beam_of) -> None:
    rows = problem()
    empty = sky(rows, n_point=0, n_gaussian=0, beam=jones_beam_of(rows))
    np.testing.assert_array_equal(rime_of(rows).predict(empty), 0.0)
    none: Sources = sky(rows, beam=jones_beam_of(rows, scale=np.ones(1))).entries(0, 0)
    assert rime_of(rows).predict(none).shape[0] == 0


def test_threads_and_parts_of_a_batch_do_not_change_a_bit(problem, sky, jones_beam_of) -> None:
    rows = problem(n_antenna=10, n_time=6, n_chan=20)
    sources, n_thread = sky(rows, n_point=30, beam=jones_beam_of(rows)), numba.get_num_threads()
    expected = rime_of(rows).predict(sources)
    np.testing.assert_array_equal(rime_of(rows, memory_limit=1000).predict(sources), expected)
    try:
        numba.set_num_threads(1)
        np.testing.assert_array_equal(rime_of(rows).predict(sources), expected)
    finally:
        numba.set_num_threads(n_thread)
