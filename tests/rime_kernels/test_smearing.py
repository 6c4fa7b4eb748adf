"""Smearing: against vectors made by brute force, the closed form, averages of explicit sums, differences."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from rime_kernels import (
    AntennaTerms,
    Gradient,
    InputError,
    Rime,
    Rows,
    Smearing,
    Sources,
    predict,
    stokes_to_corr,
)
from rime_kernels.cpu import smeared
from rime_kernels.cpu.forward import make_visibilities
from rime_kernels.cpu.gradient import make_gradients
from rime_kernels.smearing import average_of, rates, turned
from rime_kernels.smearing.rotation import turn_about_pole
from tests.rime_kernels.problems import LINEAR, data_for

EARTH_RATE = 7.2921158553e-5
FORMS = ["factored", "row"]
SPEED_OF_LIGHT = 299792458.0


# ---- vectors of another program


@pytest.fixture(scope="module")
def truth() -> Any:
    default = Path(__file__).parents[3] / "shared" / "data"
    path = Path(os.environ.get("BIRO_TEST_DATA", default)) / "truth" / "jones" / "smearing.npz"
    if not path.exists():
        if os.environ.get("CI") == "true":
            pytest.fail(f"no {path}")
        pytest.skip("reference data not found")
    return np.load(path)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("name", "seconds", "hertz"),
    [("vis_smeared", 10.0, 2e6), ("vis_time_only", 10.0, 0.0), ("vis_freq_only", 0.0, 2e6)],
)
def test_vectors_made_by_brute_force(truth, form, name, seconds, hertz) -> None:
    n_row = len(truth["uvw"])
    stokes = np.zeros(n_row)
    rows = Rows.from_columns(
        truth["uvw"], truth["antenna1"], truth["antenna2"], stokes, truth["chan_freq"], stokes_to_corr(["I"])
    )
    smearing = Smearing(float(truth["dec0"]), np.full(n_row, seconds), np.array([hertz]))
    for s, lm in enumerate(truth["lm"]):
        source = Sources(
            lm[None, None], truth["flux"][s] * np.array([[[[1.0, 0.0, 0.0, 0.0]]]]),
            np.array([truth["freq_ref"]]), np.full((1, 1, 4, 1), truth["alpha"][s]), np.array([True]),
            np.zeros((1, 0, 3)),
        )  # fmt: skip
        extent = float(np.abs(lm).max())
        rime = Rime(rows, backend="cpu", form=form, extent=extent, smearing=smearing)
        found = rime.predict(source)[0, :, 0, 0]
        loss = np.abs(truth[name][s] - truth["vis_unsmeared"][s])
        # The error that was asked for, in every row.
        assert (np.abs(found - truth[name][s]) < 5e-5 * loss).all()


# ---- closed form and explicit sums


def test_bandwidth_alone_is_a_sinc() -> None:
    rng = np.random.default_rng(3)
    uvw, lm = rng.normal(scale=2000.0, size=(50, 3)), np.array([[0.01, -0.02]])
    n_minus_1 = np.sqrt(1.0 - np.sum(lm**2)) - 1.0
    delay = uvw @ np.array([*lm[0], n_minus_1]) / SPEED_OF_LIGHT
    freq, width = np.array([1.0e9, 1.5e9]), np.array([4e6, 1e6])
    smearing = Smearing(0.5, np.zeros(50), width)
    found = predict(uvw, freq, lm, [[2.0, 0, 0, 0]], corr=["I"], smearing=smearing)[..., 0]
    plain = 2.0 * np.exp(2j * np.pi * np.outer(delay, freq))
    # Up to 1.5 turns; the error is 5e-5 of a loss that is 1 at most.
    np.testing.assert_allclose(found, plain * np.sinc(np.outer(delay, width)), atol=1e-4)
    assert np.abs(found - plain).max() > 1.0


def test_uvw_turn_about_the_pole_of_date() -> None:
    """Against SciPy's rotation; `rates` against differences."""
    uvw, angle, declination, pole_angle = np.random.default_rng(1).normal(size=(20, 3)), 0.03, 0.6, 0.2
    north = np.array([np.sin(pole_angle), np.cos(pole_angle)]) * np.cos(declination)
    pole = np.array([*north, np.sin(declination)])
    expected = Rotation.from_rotvec(angle * pole).apply(uvw)
    found = np.stack(turned(*uvw.T, np.full(20, angle), declination, pole_angle), axis=-1)
    np.testing.assert_allclose(found, expected, atol=1e-14)  # rounding
    step = 1e-3
    pair = [Rotation.from_rotvec(x * step * pole).apply(uvw) for x in (1.0, -1.0)]
    slopes = EARTH_RATE * (pair[0] - pair[1]) / (2.0 * step)
    # Central differences miss step^2 / 6.
    found = np.stack(rates(*uvw.T, declination, pole_angle), axis=-1)
    np.testing.assert_allclose(found, slopes, atol=1e-6 * EARTH_RATE)


def test_the_angle_about_the_pole_grows_as_the_hour_angle() -> None:
    uvw, grown, declination, pole_angle = np.random.default_rng(2).normal(size=(20, 3)), 0.4, 0.6, 0.2
    angle, across = turn_about_pole(*uvw.T, declination, pole_angle)
    later = turned(*uvw.T, np.full(20, grown), declination, pole_angle)
    found, kept = turn_about_pole(*later, declination, pole_angle)
    np.testing.assert_allclose(np.mod(found - angle, 2.0 * np.pi), grown, rtol=1e-12)
    # A turn keeps the lengths along and across the axis; all to rounding.
    np.testing.assert_allclose(kept, across, rtol=1e-13)
    north = np.array([np.sin(pole_angle), np.cos(pole_angle)]) * np.cos(declination)
    along = uvw @ [*north, np.sin(declination)]
    np.testing.assert_allclose(across**2, np.sum(uvw**2, axis=1) - along**2, rtol=1e-12)
    # At the pole of the (u, v) plane w is at angle 0, and u a quarter of a turn on.
    assert turn_about_pole(np.array([0.0, 3.0]), np.zeros(2), np.array([2.0, 0.0]), 0.0)[0] == pytest.approx(
        [0.0, np.pi / 2.0]
    )


@pytest.mark.parametrize(("n_short", "n_group"), [(0, 1), (3, 1), (4, 2), (32, 2), (61, 2), (64, 1)])
def test_short_baselines_have_nodes_of_their_own_where_they_are_a_sixteenth(
    n_short: int, n_group: int
) -> None:
    n_row = 64
    uvw = np.full((n_row, 3), 1.0) * np.where(np.arange(n_row) < n_short, 10.0, 2e4)[:, None]
    zero, other = np.zeros(n_row, np.int64), 1 + np.arange(n_row)
    rows = Rows(uvw, zero, other, zero, np.array([1.4e9]), stokes_to_corr(["I"]), n_row + 1, 1)
    average = average_of(Smearing(0.6, np.full(n_row, 30.0), np.array([1e6])), rows, 0.01)
    assert len(average.groups) == n_group
    assert np.array_equal(sum(group.has_row.astype(int) for group in average.groups), np.ones(n_row))
    sizes = {len(group.times) * len(group.freqs): group.has_row for group in average.groups}
    most = len(average.times) * len(average.freqs)
    if n_group == 2:
        assert np.array_equal(sizes[min(sizes)], np.arange(n_row) < n_short)
    if n_short < n_row:
        assert max(sizes) == most > 4


def smearing_of(rows: Rows, *, equal: bool = True, size: float = 1.0) -> Smearing:
    """Up to about 0.3 turns in either axis for sources within 0.04."""
    rng = np.random.default_rng(9)
    interval = np.full(rows.n_row, 25.0) if equal else rng.uniform(5.0, 40.0, rows.n_row)
    return Smearing(0.6, size * interval, size * rng.uniform(0.5e6, 1e6, rows.n_chan), error=1e-8)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [None, "gaussian"])
def test_everything_at_once(problem, sky, beam_of, reference, error_of, form, kind) -> None:
    rows = problem(n_antenna=4, n_chan=2)
    sources = sky(rows, beam=None if kind is None else beam_of(rows, kind))
    smearing = smearing_of(rows, equal=form == "factored", size=0.6)
    rime = Rime(rows, backend="cpu", form=form, extent=0.04, smearing=smearing)
    found = rime.predict(sources)
    expected = reference.averaged(lambda at: reference.visibilities(at, LINEAR, sources), rows, smearing, 3)
    # 1e-8 of the loss, and Romberg's method has as much.
    assert error_of(found, expected) < 1e-7
    assert error_of(found, reference.visibilities(rows, LINEAR, sources)) > 1e-3


@pytest.mark.parametrize("form", FORMS)
def test_more_sources_than_loops_take_at_a_time(problem, sky, reference, error_of, form) -> None:
    """V against explicit sums, and its derivatives by brightness against 2 Re <V, W (V - D)>: V is linear."""
    rows = problem(n_antenna=3, n_time=2, n_chan=9)
    sources, data = sky(rows, n_batch=1, n_point=60, n_gaussian=40), data_for(rows)
    smearing = smearing_of(rows, equal=form == "factored", size=0.3)
    rime = Rime(rows, **data, backend="cpu", form=form, extent=0.04, smearing=smearing)
    expected = reference.averaged(lambda at: reference.visibilities(at, LINEAR, sources), rows, smearing, 3)
    found = rime.predict(sources)
    # 1e-8 of the loss, and Romberg's method has as much.
    assert error_of(found, expected) < 1e-7
    weighted = data["weight"] * (found - data["vis"])
    slope = 2.0 * np.vdot(weighted, found).real
    _, gradient = rime.chi2_and_gradient(sources)
    # Rounding.
    np.testing.assert_allclose(np.sum(gradient.stokes * sources.stokes), slope, rtol=1e-11)


@pytest.mark.parametrize("form", FORMS)
def test_a_template_that_moves(problem, sky, reference, error_of, form) -> None:
    """The phase that moves it is averaged, as that of a point; the template itself is as it was given."""
    rows = problem(n_antenna=3, n_time=2, n_chan=2)
    given, of_sources = templates_for(rows)
    shift = np.random.default_rng(1).uniform(-0.02, 0.02, (2, 1, 2))
    sources = sky(rows, **of_sources, template_shift=shift)
    smearing = smearing_of(rows, equal=form == "factored", size=0.4)
    rime = Rime(
        rows, **data_for(rows), **given, template_lm=[[0.0, 0.0]], backend="cpu", form=form, extent=0.04,
        smearing=smearing,
    )  # fmt: skip
    one = [[[1.0, 0.0, 0.0, 0.0]]]

    def phase(at: Rows) -> np.ndarray:
        points = [
            Sources([lm], [one], [1e9], np.zeros((1, 1, 4, 0)), [True], np.zeros((1, 0, 3))) for lm in shift
        ]
        plain = replace(at, stokes_to_corr=stokes_to_corr(["I"]))
        return np.concatenate([reference.visibilities(plain, ["I"], point) for point in points])

    expected = reference.averaged(lambda at: reference.visibilities(at, LINEAR, sources), rows, smearing, 3)
    mean = reference.averaged(phase, rows, smearing, 3)
    expected = expected + np.einsum("bt,trcp,brcq->brcp", sources.template_scale, given["template"], mean)
    # 1e-8 of the loss, and Romberg's method has as much.
    assert error_of(rime.predict(sources), expected) < 1e-7
    squares = rime.weighted_residual2(sources).sum(axis=(1, 2, 3))
    np.testing.assert_allclose(rime.chi2_and_gradient(sources)[0], squares, rtol=1e-12)


def test_one_compiled_loop_with_and_without_smearing(problem, sky) -> None:
    """A second variant would be compiled for seconds."""
    rows = problem()
    sources, loops = sky(rows, n_batch=1), (make_visibilities(False, 4), make_gradients(False, 4, 1))
    numbers = []
    for smearing in (None, smearing_of(rows)):
        rime = Rime(rows, **data_for(rows), backend="cpu", form="factored", extent=0.04, smearing=smearing)
        rime.chi2_and_gradient(sources)
        rime.predict(sources)
        numbers.append([len(loop.signatures) for loop in loops])
    assert numbers[0] == numbers[1]
    assert min(numbers[0]) > 0


def test_rows_of_one_time_with_intervals_of_their_own_take_the_row_form(problem, sky) -> None:
    rows = problem()
    smearing = smearing_of(rows, equal=False)
    rime = Rime(rows, backend="auto", extent=0.04, smearing=smearing)
    assert rime.form == "row"
    assert "rows of one time slot have different intervals" in rime.reason
    with pytest.raises(InputError, match='form="factored" cannot have'):
        Rime(rows, backend="cpu", form="factored", extent=0.04, smearing=smearing)


# ---- chi2 and derivatives


def templates_for(rows: Rows) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What a `Rime` takes for a template, and what sources have of it; it stands still."""
    rng, shape = np.random.default_rng(8), (1, rows.n_row, rows.n_chan, rows.n_corr)
    template = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return {"template": template}, {"template_scale": rng.normal(size=(2, 1))}


def arrays_of(sources: Sources) -> dict[str, np.ndarray]:
    names = ("lm", "stokes", "spectral_terms", "shape", "template_scale")
    found = {name: getattr(sources, name) for name in names}
    if sources.beam is not None:
        found |= {"beam_scale": sources.beam.scale, "pointing": sources.beam.pointing}
    return {name: values for name, values in found.items() if values is not None}


def moved(sources: Sources, name: str, change: np.ndarray) -> Sources:
    if name in ("beam_scale", "pointing"):
        of_beam = {"beam_scale": "scale"}.get(name, name)
        assert sources.beam is not None
        beam = replace(sources.beam, **{of_beam: arrays_of(sources)[name] + change})
        return replace(sources, beam=beam)
    return replace(sources, **{name: arrays_of(sources)[name] + change})


STEPS = {
    "lm": 1e-6, "stokes": 0.05, "spectral_terms": 0.01, "shape": 1e-3, "template_scale": 0.05,
    "beam_scale": 1e-4, "pointing": 1e-5,
}  # fmt: skip


@pytest.mark.parametrize(("form", "student"), [("factored", True), ("row", False)])
def test_gradient_against_differences(problem, sky, beam_of, reference, form, student) -> None:
    rows = problem(n_antenna=3, n_time=2, n_chan=2)
    given, of_sources = templates_for(rows)
    sources = sky(rows, beam=beam_of(rows, "cos3"), **of_sources)
    data, smearing = data_for(rows), smearing_of(rows, equal=form == "factored", size=0.3)
    smearing = replace(smearing, error=1e-10)
    rime = Rime(rows, **data, **given, backend="cpu", form=form, extent=0.04, smearing=smearing)
    t = np.array([3.0, 7.0]) if student else None

    def chi2(at: Sources, dof: np.ndarray | None = t) -> np.ndarray:
        vis = reference.averaged(lambda nodes: reference.visibilities(nodes, LINEAR, at), rows, smearing, 3)
        vis = vis + np.einsum("bt,trcp->brcp", at.template_scale, given["template"])
        squares = data["weight"] * np.abs(vis - data["vis"]) ** 2
        if dof is None:
            return np.asarray(squares.sum(axis=(1, 2, 3)))
        return dof * np.log1p(squares / dof[:, None, None, None]).sum(axis=(1, 2, 3))

    found_chi2, gradient = rime.chi2_and_gradient(sources, t)
    np.testing.assert_allclose(found_chi2, chi2(sources), rtol=1e-7)
    np.testing.assert_allclose(rime.chi2(sources, t), found_chi2, rtol=1e-12)
    rng, part = np.random.default_rng(6), 0.2 if student else 1.0  # logarithms are no polynomials
    for name, values in arrays_of(sources).items():
        way = rng.normal(size=values.shape) * (np.abs(values) if name in ("shape", "beam_scale") else 1.0)
        expected = reference.derivative(
            lambda x, name=name, way=way: chi2(moved(sources, name, x * way)), part * STEPS[name]
        )
        slope = getattr(gradient, name)
        found = np.array([np.vdot(g, w) for g, w in zip(slope, way, strict=True)])
        size = np.array([np.linalg.norm(g * w) for g, w in zip(slope, way, strict=True)])
        assert (np.abs(found - expected) < 1e-7 * size).all(), name  # what differences are good for
    if t is not None:
        expected = reference.derivative(lambda x: chi2(sources, t + x), 0.01)
        np.testing.assert_allclose(gradient.scaled_dof, expected, rtol=1e-7)


@pytest.mark.parametrize("form", FORMS)
def test_products_with_j(problem, sky, reference, form) -> None:
    """J v against differences of predictions, which explicit sums test; J^H W J and J^H W r from J v."""
    rows = problem(n_antenna=3, n_time=2, n_chan=2)
    sources = sky(rows, n_batch=1)
    data, smearing = data_for(rows), smearing_of(rows, equal=form == "factored")
    rime = Rime(rows, **data, backend="cpu", form=form, extent=0.04, smearing=smearing)
    rng = np.random.default_rng(7)
    ways = {
        name: rng.normal(size=(3, *values.shape[1:])) * (np.abs(values) if name == "shape" else 1.0)
        for name, values in arrays_of(sources).items()
    }
    scaled = {name: STEPS[name] * way for name, way in ways.items()}
    change = Gradient(**scaled)
    found = rime.tangent(sources, change)
    for i in range(3):

        def vis(x: float, i: int = i) -> np.ndarray:
            at = sources
            for name, way in scaled.items():
                at = moved(at, name, x * way[i : i + 1])
            return rime.predict(at)[0]

        expected = reference.derivative(vis, 1.0)
        # What differences of visibilities that are polynomials to 1e-8 are good for.
        np.testing.assert_allclose(found[i], expected, atol=1e-7 * np.abs(expected).max())
    weighted = data["weight"] * found
    information = np.einsum("irck,jrck->ij", found.conj(), weighted).real
    np.testing.assert_allclose(rime.information(sources, change), information, rtol=1e-11)
    residual = rng.normal(size=data["vis"].shape) + 1j * rng.normal(size=data["vis"].shape)
    adjoint = rime.adjoint(sources, residual[None])
    for i in range(3):
        back = sum(float(np.vdot(getattr(adjoint, name)[0], way[i])) for name, way in scaled.items())
        np.testing.assert_allclose(back, np.vdot(found[i], data["weight"] * residual).real, rtol=1e-9)


# ---- blocks, other kinds of sources, errors


def test_blocks_of_rows_and_of_the_batch_change_nothing(problem, sky, monkeypatch) -> None:
    rows = problem(n_antenna=4)
    sources = sky(rows, n_batch=3)
    t = np.array([3.0, 7.0, 2.0])
    given = {**data_for(rows), "backend": "cpu", "extent": 0.04, "smearing": smearing_of(rows)}
    whole = Rime(rows, **given)
    monkeypatch.setattr(smeared, "BLOCK_BYTES", 16 * rows.n_chan * rows.n_corr * 5)
    parts = Rime(rows, **given)
    assert "in 3 blocks" in whole.plan(sources)
    assert "in 6 blocks" in parts.plan(sources)
    for call in ("predict", "residual", "weighted_residual2", "chi2"):
        # Sums in another order.
        np.testing.assert_allclose(getattr(parts, call)(sources), getattr(whole, call)(sources), rtol=1e-9)
    one, other = (rime.chi2_and_gradient(sources, t)[1] for rime in (whole, parts))
    for name in (*arrays_of(sources), "scaled_dof"):
        largest = np.abs(getattr(one, name)).max()
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-9, atol=1e-12 * largest)


@pytest.mark.parametrize("moves", [False, True])
def test_the_gradient_of_a_batch_is_that_of_its_entries(problem, sky, moves) -> None:
    """To the bit: in one call, or node by node, as templates that move need it."""
    rows, t = problem(n_antenna=4), np.array([3.0, 7.0])
    template, of_sources = templates_for(rows)
    if moves:
        of_sources["template_shift"] = np.random.default_rng(1).uniform(-0.02, 0.02, (2, 1, 2))
    sources = sky(rows, **of_sources)
    rime = Rime(
        rows, **data_for(rows), **template, template_lm=[[0.0, 0.0]], backend="cpu", extent=0.04,
        smearing=smearing_of(rows),
    )  # fmt: skip
    chi2, gradient = rime.chi2_and_gradient(sources, t)
    for b in range(2):
        own, alone = rime.chi2_and_gradient(sources.entries(b, b + 1), t[b : b + 1])
        assert own == chi2[b : b + 1]
        for name in (*arrays_of(sources), "scaled_dof"):
            np.testing.assert_array_equal(getattr(gradient, name)[b], getattr(alone, name)[0])


def jones_for(rows: Rows) -> AntennaTerms:
    rng = np.random.default_rng(4)
    shape = (2, rows.n_time, rows.n_antenna, rows.n_chan, 2, 2)
    jones = np.eye(2) + 0.3 * (rng.normal(size=shape) + 1j * rng.normal(size=shape))
    return AntennaTerms(jones, np.arange(rows.n_time), np.arange(rows.n_chan))


@pytest.mark.thorough
@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("matrices", [False, True])
def test_through_antennas_and_beams_of_matrices(
    problem, sky, jones_beam_of, reference, error_of, precision, matrices
) -> None:
    rows = problem(n_antenna=4, n_chan=2)
    sources = sky(rows, antenna_terms=jones_for(rows), beam=jones_beam_of(rows) if matrices else None)
    smearing = smearing_of(rows, size=0.6)
    given = {**data_for(rows), "backend": "cpu", "extent": 0.04, "precision": precision}
    rime = Rime(rows, **given, smearing=smearing)
    tolerance = {"double": 1e-7, "single": 1e-5}[precision]
    expected = reference.averaged(lambda at: reference.visibilities(at, LINEAR, sources), rows, smearing, 3)
    assert error_of(rime.predict(sources), expected) < tolerance
    _, gradient = rime.chi2_and_gradient(sources)
    double = Rime(rows, **{**given, "precision": "double"}, smearing=smearing)
    assert sources.antenna_terms is not None
    way = np.random.default_rng(2).normal(size=(*sources.antenna_terms.jones.shape, 2)).view(complex)[..., 0]

    def chi2(x: float) -> np.ndarray:
        terms = replace(sources.antenna_terms, jones=sources.antenna_terms.jones + x * way)
        return double.chi2(replace(sources, antenna_terms=terms))

    slope = np.sum((gradient.antenna_terms.conj() * way).real, axis=(1, 2, 3, 4, 5))
    np.testing.assert_allclose(slope, reference.derivative(chi2, 0.01), rtol=10 * tolerance)


def test_a_sky_without_sources_and_an_empty_batch(problem, sky) -> None:
    rows = problem()
    rime = Rime(rows, **data_for(rows), backend="cpu", extent=0.04, smearing=smearing_of(rows))
    np.testing.assert_array_equal(rime.predict(sky(rows, n_point=0, n_gaussian=0)), 0.0)
    empty = sky(rows).entries(0, 0)
    chi2, gradient = rime.chi2_and_gradient(empty)
    assert chi2.shape == (0,)
    assert gradient.lm.shape == (0, 4, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"interval": np.ones(3)}, "an interval of each of .* rows"),
        ({"chan_width": np.array([3e9, 1e6, 1e6])}, "below twice the frequency"),
        ({"chan_width": np.array([-1e6, 1e6, 1e6])}, "chan_width must be at least 0, got -1e\\+06"),
        ({"interval": np.full(30, np.nan)}, "interval must be finite"),
        ({"declination": 2.0}, "declination must lie within"),
        ({"pole_angle": 4.0}, "pole_angle must lie within -pi .. pi rad, got 4"),
        ({"error": 0.0}, "error must lie between 0 and 1"),
        ({"chan_width": np.full(3, 9e8)}, "more than 128 nodes resolve: limit where sources may lie"),
    ],
)
def test_what_cannot_be_is_refused(problem, changes, message) -> None:
    rows = problem()
    if changes.get("interval", np.zeros(0)).size == 30:
        changes = {"interval": np.full(rows.n_row, np.nan)}
    fields = {"declination": 0.6, "interval": np.ones(rows.n_row), "chan_width": np.full(3, 1e6)}
    with pytest.raises(InputError, match=message):
        Rime(rows, backend="cpu", extent=0.9, smearing=Smearing(**{**fields, **changes}))
