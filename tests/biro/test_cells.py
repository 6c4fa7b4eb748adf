"""Few visibilities that stand for those of cells: closed forms, fits with and without, what is refused."""

from __future__ import annotations

import functools
import json
from dataclasses import replace

import numpy as np
import pytest
import real
from commands import works

import biro
from biro.cli.plot import likelihood_of
from biro.errors import InputError
from biro.io.measurement_set import create_ms
from biro.likelihood.cells.axis import cut, lagrange
from biro.likelihood.cells.choose import cells_for, reduced_near
from biro.likelihood.cells.variation import Variation
from biro.models import GaussianBeam, ImageModel, ImageTerm, Noise, Normal, PointSource, SkyModel, Uniform
from biro.models.files.toml import from_toml
from biro.simulation.simulator import Channels, Track, simulate

RNG = np.random.default_rng(7)
CENTRE = (1.3, -0.75)
FAR = 0.25
"""Degrees from the phase centre of the farthest source."""
DISTANCE = np.radians(1.01 * FAR)
TRUTH = {"a.I": 1.0, "a.east": -60.0, "a.north": 20.0, "b.I": 0.5}


def sky(noise: Noise | None = None, **more) -> SkyModel:
    """Two points, one whose place is fitted near the phase centre, one far out."""
    a = PointSource(
        "a", east=Normal(-58, 10, "arcsec"), north=Normal(15, 10, "arcsec"), I=Uniform(0, 3, "Jy")
    )
    b = PointSource("b", east=f"{0.8 * FAR} deg", north=f"{-0.6 * FAR} deg", I=Uniform(0, 3, "Jy"))
    return SkyModel([a, b], noise=noise or Noise(), **more)


@functools.cache
def observed(noise: float = 1.0) -> biro.Observation:
    """KAT-7, 40 integrations of 30 s, 8 channels; weights differ, and a tenth of the samples are flagged."""
    plain = simulate(
        "KAT-7",
        sky(Noise(factor=1.0)),
        phase_centre=CENTRE,
        times=Track("2026-03-01", 1200.0, 30.0),
        channels=Channels(1.3e9, 2e6, 8),
        noise=noise,
        seed=3,
        values=TRUTH,
    )
    part = plain.partitions[0]
    rng = np.random.default_rng(4)
    weight = part.weight * np.where(rng.random(part.weight.shape) < 0.1, 0.0, 1.0)
    # As a correlator's weights do: by antenna and time, hardly by channel.
    weight = weight * rng.uniform(0.8, 1.2, (part.n_row, 1, 1))
    vis = np.where(weight > 0, part.vis, 0.0)
    return replace(plain, partitions=(replace(part, vis=vis, weight=weight),))


def point(part, east: float, north: float):
    """exp(2 pi i (u l + v m + w (n - 1)) nu / c) of a point at direction cosines (physics: section 2)."""
    metres = part.uvw @ [east, north, np.sqrt(1 - east**2 - north**2) - 1]
    phase = 2j * np.pi * metres[:, None] * part.chan_freq / 299792458.0
    return np.exp(phase)[..., None] * np.ones(part.n_corr)


def test_lagrange_gives_polynomials_back():
    nodes, points = np.array([0.0, 1.5, 2.0, 4.0]), np.linspace(-1, 5, 9)
    cubic = np.polynomial.Polynomial([0.3, -1.0, 0.5, 0.2])
    # A cubic follows exactly from four nodes; numbers up to 30 in float64.
    np.testing.assert_allclose(lagrange(points, nodes) @ cubic(nodes), cubic(points), atol=1e-12)
    own = nodes + 0.1 * RNG.random((9, 1))
    np.testing.assert_allclose(np.sum(lagrange(points, own) * cubic(own), axis=1), cubic(points), atol=1e-12)


@pytest.mark.parametrize("limit", [0.1, 0.01, 1e-4])
def test_phases_follow_from_nodes_to_the_limit(limit):
    points = 10.0 * np.arange(200)
    runs, rates = [np.arange(90), np.arange(90, 200)], np.linspace(0.0, 0.01, 32)
    axis = cut(points, runs, rates, limit)
    phases = np.exp(1j * np.outer(points, rates))
    missed = np.abs(phases - axis.weights @ phases[axis.nodes])
    # rms over the points of each cell and all rates; cells of a size that is not asked about are no worse.
    for cell in range(axis.cell_of_point.max() + 1):
        assert np.sqrt(np.mean(missed[axis.cell_of_point == cell] ** 2)) <= limit
    # A turn of phase needs two nodes at least (Nyquist); with eight nodes a cell, polynomials need few more.
    turns = 0.01 * 2000.0 / (2 * np.pi)
    assert 2 * turns < len(axis.nodes) < 20 * turns
    assert set(axis.cell_of_point[:90]).isdisjoint(axis.cell_of_point[90:])


def test_fast_phases_leave_all_points_and_none_leave_one_a_cell():
    points, run = np.arange(40.0), [np.arange(40)]
    fast = cut(points, run, np.array([3.0]), 0.01)
    np.testing.assert_array_equal(fast.nodes, np.arange(40))
    np.testing.assert_array_equal(fast.weights, np.eye(40))
    assert len(cut(points, run, np.zeros(1), 0.01).nodes) == 1


def test_models_of_all_rows_follow_from_those_at_the_nodes():
    part = observed().partitions[0]
    for limit in (0.1, 0.01, 0.001):
        (cells,) = cells_for(replace(observed(), partitions=(part,)), [Variation(DISTANCE)], limit)
        exact = point(part, np.radians(0.8 * FAR), np.radians(-0.6 * FAR))
        found = cells.expand(exact[cells.rows][:, cells.channels.nodes])
        # The limit is of a point in the worst direction, by the rates of most of the data.
        assert np.sqrt(np.mean(np.abs(found - exact) ** 2)) < 1.2 * limit
        assert part.n_row * part.n_chan > 1.5 * cells.n_kept


def test_chi_squared_and_slopes_near_the_model_are_those_of_all_data():
    """Whatever flags and weights are, and where values that are flagged are not numbers."""
    obs = observed()
    part = obs.partitions[0]
    near = 0.9 * point(part, 1e-4, 2e-4)
    cells = cells_for(obs, [Variation(DISTANCE)], 0.03)
    reduced = reduced_near(obs, cells, [near])
    stands, rows, nodes = reduced.observation.partitions[0], cells[0].rows, cells[0].channels.nodes
    weight, at = part.weight, near[rows][:, nodes]
    chi2 = np.sum(weight * np.abs(part.vis - near) ** 2)
    # Sums of 1e5 numbers in float64.
    found = np.sum(stands.weight * np.abs(stands.vis - at) ** 2) + reduced.left_out[0]
    assert found == pytest.approx(chi2, rel=1e-11)
    change = RNG.normal(size=at.shape) + 1j * RNG.normal(size=at.shape)
    slope = np.sum(weight * (np.conj(part.vis - near) * cells[0].expand(change)).real)
    found = np.sum(stands.weight * (np.conj(stands.vis - at) * change).real)
    assert found == pytest.approx(slope, abs=1e-9 * np.abs(slope) + 1e-9 * chi2)
    assert stands.weight.min() >= 0.0
    assert stands.weight.sum() == pytest.approx(weight.sum(), rel=1e-12)
    wild = replace(part, vis=np.where(weight > 0, part.vis, np.nan))
    again = reduced_near(replace(obs, partitions=(wild,)), cells, [near])
    np.testing.assert_array_equal(again.observation.partitions[0].vis, stands.vis)
    assert again.left_out == reduced.left_out


def test_the_square_of_a_change_is_nearly_that_of_all_data():
    obs, part = observed(), observed().partitions[0]
    (cells,) = every = cells_for(obs, [Variation(DISTANCE)], 0.003)
    stands = reduced_near(obs, every, [np.zeros(part.vis.shape)]).observation.partitions[0]
    change = point(part, DISTANCE, 0.0) + point(part, 0.0, -DISTANCE)
    found = np.sum(stands.weight * np.abs(change[cells.rows][:, cells.channels.nodes]) ** 2)
    # Exact for even weights at Legendre's zeros (Gauss): flags, and nodes that are next to these, leave 1e-4.
    # Nodes of equal weight would be off by 3e-3.
    assert found == pytest.approx(np.sum(part.weight * np.abs(change) ** 2), rel=5e-4)


def test_rows_that_lack_a_node_and_rows_that_come_twice():
    obs = observed()
    part = obs.partitions[0]
    (cells,) = cells_for(obs, [Variation(DISTANCE)], 0.03)
    kept = np.bincount(part.antenna1[cells.rows] * 7 + part.antenna2[cells.rows], minlength=49)
    node = cells.rows[len(cells.rows) // 2]
    one = part.antenna1[node] * 7 + part.antenna2[node]

    def with_rows(rows):
        of_rows = ("uvw", "antenna1", "antenna2", "time", "time_index", "row_id", "vis", "weight")
        return replace(part, **{name: getattr(part, name)[rows] for name in of_rows})

    def total(less):
        (found,) = cells_for(replace(obs, partitions=(less,)), [Variation(DISTANCE)], 0.03)
        exact = point(less, 1e-4, 2e-4)
        expanded = found.expand(exact[found.rows][:, found.channels.nodes])
        assert np.abs(expanded - exact).max() < 0.1
        return np.bincount(less.antenna1[found.rows] * 7 + less.antenna2[found.rows], minlength=49)

    less = total(with_rows(np.delete(np.arange(part.n_row), node)))
    assert less[one] > kept[one]  # all rows of this cell are left as they are
    assert np.delete(less, one).tolist() == np.delete(kept, one).tolist()
    assert total(with_rows(np.repeat(np.arange(part.n_row), 2))).tolist() == (2 * kept).tolist()


def close(cells: biro.Likelihood, whole: biro.Likelihood, starts: np.ndarray | None = None) -> None:
    """Both fits have the same maximum, errors and evidence, to what cells promise."""
    given = {} if starts is None else {"starts": starts}
    found, exact = (biro.maximise(each, seed=1, **given) for each in (cells, whole))
    # SHIFT of biro.likelihood.cells.choose, and what a climb leaves: 1e-6 of ln p is 0.0014 sigma.
    assert np.abs((found.best_fit - exact.best_fit) / exact.error).max() < 0.02 + 2e-3
    # ln L within 3 sigma changes by 0.1 at most: errors by 0.1 / 9 of themselves.
    np.testing.assert_allclose(found.error, exact.error, rtol=0.012)
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=0.1)
    np.testing.assert_array_equal(cells.n_vis, whole.n_vis)
    theta = exact.best_fit
    # Reduced chi-squared is that of all data: chi-squared differs by far less than its scatter of sqrt(2 N).
    np.testing.assert_allclose(cells.chi2(theta), whole.chi2(theta), atol=0.2)


def test_a_fit_to_cells_is_that_to_all_data():
    """Of two partitions with a noise factor each."""
    one = observed().partitions[0]
    other = replace(one, spw_id=1, data_desc_id=1, spw="1", weight=2.0 * one.weight)
    obs = replace(observed(), partitions=(one, other))
    cells, whole = biro.Likelihood(obs, sky(), average="cells"), biro.Likelihood(obs, sky())
    (line,) = cells.choices.average
    assert line.startswith("average: cells hold ")
    assert cells.description()["average"] == [line]
    assert len(cells.cells) == 2
    close(cells, whole)
    assert cells.digest() != whole.digest()
    assert cells.data_digest() == whole.data_digest()
    theta = whole.prior_transform(np.full(whole.n_param, 0.4))
    for found, exact in zip(cells.predict(theta), whole.predict(theta), strict=True):
        np.testing.assert_array_equal(found, exact)  # the same computation, of all rows
    assert cells.observation.partitions[0].n_row == obs.partitions[0].n_row


def test_images_and_a_beam_beside_sources():
    """An image that is scaled, seen through a beam."""
    pixels = np.zeros((1, 1, 40, 40))
    pixels[0, 0, 14:26, 10:31] = 2e-3
    image = ImageModel(pixels, np.radians(20 / 3600), CENTRE, offset=(0.001, -0.002))
    points = [replace(each, east="-60 arcsec", north="20 arcsec") for each in sky().sources[:1]]
    model = SkyModel(
        points,
        images=ImageTerm("i", file=image, scale=Uniform(0, 3)),
        beam=GaussianBeam(fwhm="0.9 deg", ref_freq="1.3 GHz"),
        noise=Noise(factor=1.0),
    )
    theta, rng = np.array([1.0, 1.0]), np.random.default_rng(5)
    part, (vis,) = observed().partitions[0], biro.Likelihood(observed(), model).predict(theta)
    sigma = 1.0 / np.sqrt(np.where(part.weight > 0, part.weight, np.inf))
    vis = vis + sigma * (rng.normal(size=vis.shape) + 1j * rng.normal(size=vis.shape))
    obs = replace(observed(), partitions=(replace(part, vis=vis),))
    cells, whole = biro.Likelihood(obs, model, average="cells"), biro.Likelihood(obs, model)
    assert len(cells.cells) == 1
    errors = np.sqrt(np.diag(np.linalg.inv(whole.fisher(theta))))
    near = theta + 2.0 * errors * rng.normal(size=(20, 2))
    # LIMIT of biro.likelihood.cells.choose, within 3 sigma.
    difference = cells.log_likelihood(near) - whole.log_likelihood(near)
    assert np.ptp(difference) < 0.2


def test_what_is_stated_is_what_a_fit_finds():
    obs = observed(noise=0.01)
    cells, whole = biro.Likelihood(obs, sky(), average="cells"), biro.Likelihood(obs, sky())
    found, exact = biro.maximise(cells, seed=1), biro.maximise(whole, seed=1)
    shift = np.abs((found.best_fit - exact.best_fit) / exact.error).max()
    stated = float(cells.choices.average[0].split("move by ")[1].split(" sigma")[0])
    # One step of Newton's method tells a shift of 0.02 sigma to far less; a climb ends 0.0014 sigma away.
    assert shift == pytest.approx(stated, abs=2e-3)


def test_the_vlba_whose_uvw_are_of_other_epochs_than_their_times(measurement_set):
    """uvw of J1033+6051 jump by hundreds of metres from a smooth function of TIME."""
    text = real.j1033_core("circle") + real.j1033_blob("a", -1.0)
    obs = biro.read_ms(measurement_set("vlba_j1033p6051_ku"), correlations=("RR", "LL"), spws=[0])
    for part, each in zip(obs.partitions, cells_for(obs, [Variation(3e-8)], 1e-3), strict=True):
        exact = point(part, 3e-8, 0.0)
        missed = each.expand(exact[each.rows][:, each.channels.nodes]) - exact
        # As functions of TIME they miss 1e-3; as functions of where the uvw are, 2e-5 is left.
        assert np.sqrt(np.mean(np.abs(missed[part.weight > 0]) ** 2)) < 2e-4
    cells, whole = (biro.Likelihood(obs, from_toml(text), average=each) for each in ("cells", "none"))
    fewer = sum(part.n_row for part in obs.partitions) / sum(each.n_kept for each in cells.cells)
    assert fewer > 4.0
    found = biro.maximise(cells, seed=1)
    _, slope = whole.log_posterior_and_gradient(found.best_fit)
    inside = found.laplace.side == 0
    step = np.linalg.solve(found.laplace.precision_matrix[np.ix_(inside, inside)], slope[inside])
    # Where the posterior of all data has its maximum, by a step of Newton's method from that of cells.
    assert np.abs(step / found.error[inside]).max() < 0.02 + 2e-3


def test_a_wide_field_keeps_all_data_and_says_so():
    wide = SkyModel(
        [PointSource("a", east="40 deg", north="0 deg", I=Uniform(0, 3, "Jy"))], noise=Noise(factor=1.0)
    )
    obs = observed()
    found = biro.Likelihood(obs, wide, average="cells")
    assert found.cells == []
    assert found.choices.average[0].startswith("average: no cells: they would contain ")
    theta = np.array([1.0])
    assert found.log_likelihood(theta) == biro.Likelihood(obs, wide).log_likelihood(theta)


@pytest.mark.parametrize(
    ("model", "options", "reason"),
    [
        (sky(Noise(distribution="student-t")), {}, "Student's t"),
        (sky(Noise(per="antenna")), {}, "one noise factor for all baselines"),
        (sky(), {"gains": "closures"}, "visibilities, not closures"),
    ],
)
def test_what_cells_cannot_stand_for_is_refused(model, options, reason):
    with pytest.raises(InputError, match=reason):
        biro.Likelihood(observed(noise=0.01), model, average="cells", **options)


def test_fluxes_that_are_integrated_out_and_other_words_are_refused():
    fluxes = SkyModel(
        [PointSource("a", east="0 deg", north="0 deg", I=Normal(1.0, 1.0, "Jy", marginalise=True))]
    )
    with pytest.raises(InputError, match="marginalise = true"):
        biro.Likelihood(observed(), fluxes, average="cells")
    with pytest.raises(InputError, match=r"must be .*, got 'boxes'"):
        biro.Likelihood(observed(), sky(), average="boxes")


def test_biro_fit_says_and_keeps_what_was_found(tmp_path):
    create_ms(tmp_path / "obs.ms", observed())
    (tmp_path / "sky.toml").write_text(
        '[[source]]\nname = "a"\ntype = "point"\neast = "0 arcsec"\nnorth = "0 arcsec"\n'
        'I = { prior = "uniform", low = 0, high = 3, unit = "Jy" }\n'
    )
    run = tmp_path / "run"
    command = ["fit", "obs.ms", "sky.toml", "-o", "run", "--average", "cells", "--sampler", "none"]
    command = [str(tmp_path / word) if "." in word or word == "run" else word for word in command]
    done = works(*command, "--seed", "1", "--no-pictures")
    assert "average: cells hold " in done.output
    (line,) = json.loads((run / "run.json").read_text())["facts"]["likelihood"]["average"]
    assert line in done.output
    # Replicates would be fitted to all data.
    few = biro.Likelihood(observed(), sky(), average="cells", backend="cpu")
    with pytest.raises(InputError, match='cannot test average="cells"'):
        biro.sbc.run(few, "none", replicates=2)
    # A report that is drawn again says so, too.
    digest = biro.Posterior.load(run / "posterior.nc").provenance.data_digest
    assert likelihood_of(run, None, digest, "cpu").description()["average"] == [line]
