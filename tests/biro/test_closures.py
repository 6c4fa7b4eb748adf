"""Closure phases and log closure amplitudes as data: figures of eht-imaging, gains, derivatives, noise."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from commands import works
from scipy import linalg, stats

import biro
from biro.cli.plot import likelihood_of
from biro.errors import InputError
from biro.likelihood.closures.counts import ClosureCounts
from biro.likelihood.closures.partition_closures import PartitionClosures
from biro.observation.observation import Observation
from biro.observation.weighting import with_systematic

LIGHT = 299792458.0
SKY = """
[[source]]
name = "core"
type = "gaussian"
east = "0 uas"
north = "0 uas"
I = "1.6 Jy"
emaj = { prior = "uniform", low = 20, high = 100, unit = "uas" }
ratio = { prior = "uniform", low = 0.2, high = 1 }
pa = { prior = "uniform", low = 0, high = 180, unit = "deg" }

[[source]]
name = "knot"
type = "point"
east = { prior = "uniform", low = 0, high = 60, unit = "uas" }
north = { prior = "uniform", low = -60, high = 0, unit = "uas" }
I = { prior = "uniform", low = 0.1, high = 2, unit = "Jy" }

[noise]
factor = { prior = "log-uniform", low = 0.1, high = 10 }
"""
TRUTH = {"core.emaj": 62.0, "core.ratio": 34 / 62, "core.pa": 37.0, "knot.east": 27.0, "knot.north": -19.0}
TRUTH |= {"knot.I": 0.55, "noise.factor": 1.0}


@pytest.fixture(scope="module")
def eht(truth):
    """The arrays of eht-imaging: visibilities without noise, with it, and closures."""
    return {**truth("jones/eht"), **truth("jones/eht_closure")}


def of_hand(eht, hand):
    """Model, data and sigma of one hand, or of Stokes I, (n_row,)."""
    both = [eht["vis_ideal"][:, 0], eht["vis_ideal_noisy"][:, 0]]
    if hand == "i":
        model, data = ((vis[:, 0] + vis[:, 3]) / 2 for vis in both)
        return model, data, np.hypot(eht["sigma"][:, 0], eht["sigma"][:, 3]) / 2
    k = {"rr": 0, "ll": 3}[hand]
    return both[0][:, k], both[1][:, k], eht["sigma"][:, k]


def observed(eht, data, sigma, corr=("I",), rows=slice(None)):
    """An observation with the rows of the EHT set."""
    vis = np.repeat(data[rows, None, None], len(corr), axis=2)
    weight = np.broadcast_to((1 / sigma[rows] ** 2)[:, None, None], vis.shape)
    arrays = (eht["uvw"][rows], eht["antenna1"][rows], eht["antenna2"][rows], eht["time"][rows], [227.1e9])
    return Observation.from_arrays(vis, *arrays, corr, weight=weight)


@pytest.mark.parametrize("hand", ["rr", "ll", "i"])
def test_chi2_with_the_full_covariance_is_that_of_eht_imaging(eht, hand):
    model, data, sigma = of_hand(eht, hand)
    (part,) = observed(eht, data, sigma).partitions
    closures = PartitionClosures.of(part, 0.0, corrected=False)
    assert (closures.n_phase, closures.n_amplitude) == (354, 324)
    found = closures.chi2(model[None, :, None, None])[0]
    wanted = [eht[f"{kind}_{hand}_chi2_full"] for kind in ("cp", "lca")]
    # The same sum by way of matrices of closures, whose condition takes some digits.
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_the_normalisation_is_that_of_the_normal_distribution_of_a_minimal_set(eht):
    """Triangles and quadrangles as eht-imaging chose them: any minimal set has the same density."""
    model, data, sigma = of_hand(eht, "i")
    (part,) = observed(eht, data, sigma).partitions
    closures = PartitionClosures.of(part, 0.0, corrected=False)
    rows = {
        (int(t), *pair): (row, sign)
        for row, (t, a, b) in enumerate(zip(eht["time_index"], eht["antenna1"], eht["antenna2"], strict=True))
        for pair, sign in (((int(a), int(b)), 1.0), ((int(b), int(a)), -1.0))
    }
    kinds = {
        "cp_i_tri": ((0, 1, 1), (1, 2, 1), (2, 0, 1)),
        "lca_i_quad": ((0, 1, 1), (2, 3, 1), (0, 3, -1), (1, 2, -1)),
    }
    log_density = 0.0
    for key, legs in kinds.items():
        is_phase, table = key == "cp_i_tri", eht[key].astype(int)
        for t in np.unique(table[:, 0]):
            some = table[table[:, 0] == t, 1:]
            matrix = np.zeros((len(some), len(data)))
            for k, antennas in enumerate(some):
                for a, b, sign in legs:
                    row, turned = rows[(t, antennas[a], antennas[b])]
                    matrix[k, row] += sign * (turned if is_phase else 1.0)
            ratio = np.log(data / model)
            residual = matrix @ (ratio.imag if is_phase else ratio.real)
            residual -= 2 * np.pi * np.rint(residual / (2 * np.pi)) * is_phase
            covariance = (matrix * (sigma / np.abs(data)) ** 2) @ matrix.T
            log_density += stats.multivariate_normal.logpdf(residual, cov=covariance)
    chi2 = closures.chi2(model[None, :, None, None]).sum()
    assert closures.log_norm - chi2 / 2 == pytest.approx(log_density, rel=1e-10)


def test_gains_of_antennas_change_nothing(eht):
    model, data, sigma = of_hand(eht, "i")
    rng = np.random.default_rng(1)
    shape = (len(eht["times"]), len(eht["stations"]))
    gain = np.exp(rng.normal(0, 0.7, shape) + 1j * rng.uniform(-np.pi, np.pi, shape))
    factor = gain[eht["time_index"], eht["antenna1"]] * gain[eht["time_index"], eht["antenna2"]].conj()
    found = []
    for g in (np.ones(len(data)), factor):
        (part,) = observed(eht, data * g, sigma * np.abs(g)).partitions
        closures = PartitionClosures.of(part)
        found.append([*closures.chi2(model[None, :, None, None])[0], closures.log_norm])
        gains = closures.gains(model[:, None, None])[:, 0, 0]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-10)
    # Of corrected data nothing but noise is left: less than that of the data, as gains take some of it.
    used = gains != 0
    assert np.mean(np.abs(data * factor / gains - model)[used] ** 2) < 2 * np.mean(sigma[used] ** 2) * 1.1


def test_groups_without_links_and_polygons_without_triangles():
    """chi2 = |N x|^2 with the null space of what antennas do to legs, for ragged rows, by brute force."""
    pairs = [(0, 1), (1, 2), (2, 3), (0, 3), (5, 6), (6, 7), (5, 7), (5, 8), (7, 8), (8, 9), (10, 11)]
    rng = np.random.default_rng(2)
    model, sigma = rng.normal(size=len(pairs)) + 3j, 0.05
    data = model + sigma * (rng.normal(size=len(pairs)) + 1j * rng.normal(size=len(pairs)))
    first, second = np.array(pairs).T
    (part,) = Observation.from_arrays(
        data[:, None, None],
        rng.normal(size=(len(pairs), 3)),
        first,
        second,
        np.zeros(len(pairs)),
        [1e9],
        ["XX"],
        weight=sigma**-2,
    ).partitions
    closures = PartitionClosures.of(part, corrected=False)
    assert (closures.n_phase, closures.n_amplitude) == (
        1 + 2,
        1 + 1,
    )  # a square; two triangles with a common leg
    assert (closures.sets.n_idle, closures.sets.n_idle_set) == (1, 1)
    ratio, root = np.log(data / model), np.abs(data) / sigma
    wanted = []
    for x, sign in ((ratio.imag, -1.0), (ratio.real, 1.0)):
        antennas = np.zeros((len(pairs), 12))
        antennas[np.arange(len(pairs)), first], antennas[np.arange(len(pairs)), second] = 1.0, sign
        wanted.append(np.sum((linalg.null_space((root[:, None] * antennas).T).T @ (root * x)) ** 2))
    np.testing.assert_allclose(closures.chi2(model[None, :, None, None])[0], wanted, rtol=1e-9)


@pytest.fixture(scope="module")
def likelihood(eht, tmp_path_factory):
    path = tmp_path_factory.mktemp("sky") / "sky.toml"
    path.write_text(SKY)
    _, data, sigma = of_hand(eht, "i")
    return biro.Likelihood(
        observed(eht, data, sigma, ("RR", "LL")), biro.read_model(path), gains="closures", backend="cpu"
    )


def test_derivatives_are_those_of_differences(likelihood):
    truth = np.array([TRUTH[name] for name in likelihood.parameter_names])
    theta = truth * np.array([[1.0], [1.03]])
    value, gradient = likelihood.log_likelihood_and_gradient(theta)
    np.testing.assert_allclose(value, likelihood.log_likelihood(theta), rtol=1e-13)
    for k, name in enumerate(likelihood.parameter_names):
        step = np.zeros(likelihood.n_param)
        step[k] = 1e-3 * theta[1, k]
        # Five points: the error is of the fourth order in the step.
        ends = [likelihood.log_likelihood(theta[1] + i * step) for i in (-2, -1, 1, 2)]
        slope = (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * step[k])
        assert gradient[1, k] == pytest.approx(slope, rel=1e-7), name


def test_the_fisher_information_is_the_curvature_where_the_model_is_right(likelihood):
    theta = np.array([TRUTH[name] for name in likelihood.parameter_names])
    parts = [
        replace(part, vis=vis, weight=part.weight * 1e4)
        for part, vis in zip(likelihood.observation.partitions, likelihood.predict(theta), strict=True)
    ]
    ideal = replace(likelihood.observation, partitions=tuple(parts))
    exact = biro.Likelihood(ideal, likelihood.sky, gains="closures", backend="cpu")
    fisher, free = exact.fisher(theta), slice(0, -1)  # the noise factor has its own below
    steps = np.diag(1e-4 * theta)[free]
    ends = [exact.log_likelihood_and_gradient(theta + sign * steps)[1] for sign in (-1, 1)]
    curvature = ((ends[0] - ends[1]) / (2e-4 * theta[free, None]))[:, free]
    # What is subtracted from log amplitudes is a residual: 1e-4 of a variance.
    np.testing.assert_allclose(curvature, fisher[free, free], rtol=1e-3, atol=1e-4 * np.abs(fisher).max())
    np.testing.assert_allclose(exact.fisher_product(theta, np.eye(len(theta))[1]), fisher[1], rtol=1e-9)
    assert fisher[-1, -1] == pytest.approx(2 * exact.n_data.sum())  # 2 n / s^2 of n real data


def test_the_noise_factor_counts_closures(likelihood):
    theta = np.array([TRUTH[name] for name in likelihood.parameter_names])
    assert likelihood.n_data.tolist() == [2 * (354 + 324)]
    doubled = theta.copy()
    doubled[likelihood.parameter_names.index("noise.factor")] = 2.0
    change = likelihood.log_likelihood(doubled) - likelihood.log_likelihood(theta)
    chi2, n = likelihood.chi2(theta).sum(), likelihood.n_data.sum()
    assert change == pytest.approx(0.375 * chi2 - n * math.log(2))


def test_estimates_are_unbiased_and_chi2_is_its_number(eht):
    """200 draws of noise three times that of the set (median SNR 24): first-order estimates and chi2."""
    model, _, sigma = of_hand(eht, "i")
    sigma = 3 * sigma
    u, v = eht["uvw"][:, :2].T * 227.1e9 / LIGHT * np.pi / 180 / 3600e6

    def sky(flux, size, east, north):
        gauss = np.exp(-(np.pi**2) / (4 * math.log(2)) * size**2 * (u**2 + v**2))
        return gauss + flux * np.exp(2j * np.pi * (u * east + v * north))

    truth, steps = np.array([0.35, 45.0, 27.0, -19.0]), np.array([1e-4, 1e-2, 1e-2, 1e-2])
    model = 1.6 * sky(*truth)
    changes = [(1.6 * sky(*(truth + d)) - 1.6 * sky(*(truth - d))) / (2 * d.sum()) for d in np.diag(steps)]
    jacobian = np.array(changes)[:, :, None, None]
    rng = np.random.default_rng(3)
    pulls, chi2 = {True: [], False: []}, []
    for _ in range(200):
        data = model + sigma * (rng.normal(size=len(model)) + 1j * rng.normal(size=len(model)))
        (part,) = observed(eht, data, sigma).partitions
        for corrected in pulls:
            closures = PartitionClosures.of(part, corrected=corrected)
            found, slope = closures.chi2_and_slope(model[None, :, None, None])
            information = closures.information(model[:, None, None], jacobian)
            fisher = np.einsum("irck,jrck->ij", information.conj(), jacobian).real
            score = -0.5 * np.einsum("rck,jrck->j", slope[0].conj(), jacobian).real
            covariance = np.linalg.inv(fisher)
            pulls[corrected].append(covariance @ score / np.sqrt(np.diag(covariance)))
        chi2.append(found.sum() / closures.n_data)
    mean = {kind: np.mean(found, axis=0) for kind, found in pulls.items()}
    # Standard errors are 0.07; four of them.
    assert np.abs(mean[True]).max() < 0.28
    assert np.abs(mean[False]).max() > 0.5
    inside = np.mean(np.abs(pulls[True]) < 1.0)
    assert inside == pytest.approx(0.683, abs=4 * 0.0165 * 1.5)  # 800 numbers, not all independent
    # sqrt(2 / 678 / 200) = 0.004; beyond normality of phases and logs at SNR 6 to 24, a hundredth.
    assert np.mean(chi2) == pytest.approx(1.0, abs=0.03)


def test_what_is_left_out_is_said(eht):
    _, data, sigma = of_hand(eht, "rr")
    faint = np.where(eht["time_index"] == 0, 100.0, 1.0) * sigma
    observation = observed(eht, data, faint, ("RR", "RL"))
    closures = [PartitionClosures.of(part) for part in observation.partitions]
    text = "\n".join(ClosureCounts.of(observation, closures).lines())
    assert f"{len(data)} visibilities of cross hands" in text
    assert "visibilities below 3 sigma" in text
    assert "flux scale" in text


def test_baselines_of_different_times_are_named(eht):
    """Staggered integrations lose closures: half of the baselines come 20 s later than the others."""
    _, data, sigma = of_hand(eht, "rr")
    later = (eht["antenna1"] + eht["antenna2"]) % 2 == 1
    for offset, is_named in ((0.0, False), (20.0, True)):
        moved = {**eht, "time": eht["time"] + np.where(later, offset, 0.0)}
        observation = observed(moved, data, sigma, ("RR",))
        text = "\n".join(
            ClosureCounts.of(observation, [PartitionClosures.of(p) for p in observation.partitions]).lines()
        )
        assert ("times of baselines differ" in text) == is_named
    # One row less leaves a gap of one time.
    row = np.flatnonzero((eht["antenna1"] == eht["antenna1"][0]) & (eht["antenna2"] == eht["antenna2"][0]))[2]
    whole, less = (
        ClosureCounts.of(each, [PartitionClosures.of(part) for part in each.partitions])
        for each in (observed(eht, data, sigma, rows=np.arange(len(data)) != gone) for gone in (-1, row))
    )
    assert (less.n_row, less.n_without_gaps) == (whole.n_row - 1, whole.n_without_gaps)


@pytest.mark.parametrize(
    ("corr", "stations", "scale", "message"),
    [
        (("RL",), range(8), 1.0, "cross hands only"),
        (("I",), range(2), 1.0, "three antennas"),
        (("I",), range(8), 1e6, "below 3 sigma; average"),
    ],
)
def test_data_without_closures_are_refused_in_a_line(eht, likelihood, corr, stations, scale, message):
    _, data, sigma = of_hand(eht, "i")
    rows = np.isin(eht["antenna1"], list(stations)) & np.isin(eht["antenna2"], list(stations))
    observation = observed(eht, data, scale * sigma, corr, rows)
    with pytest.raises(InputError, match=message) as error:
        biro.Likelihood(observation, likelihood.sky, gains="closures", backend="cpu")
    assert "\n" not in str(error.value)


def test_three_antennas_have_a_closure_phase_and_no_amplitude(eht, likelihood):
    _, data, sigma = of_hand(eht, "i")
    rows = np.isin(eht["antenna1"], [0, 1, 2]) & np.isin(eht["antenna2"], [0, 1, 2])
    three = biro.Likelihood(
        observed(eht, data, sigma, rows=rows), likelihood.sky, gains="closures", backend="cpu"
    )
    assert "0 log closure amplitudes" in three.choices.gains[0]
    assert any("no closure amplitude (fewer than four" in line for line in three.choices.gains)


def test_words_that_do_not_go_together(likelihood):
    with pytest.raises(InputError, match=r'gains must be one of "sample", .*, got .closure'):
        biro.Likelihood(likelihood.observation, likelihood.sky, gains="closure", backend="cpu")
    tails = replace(likelihood.sky, noise=type(likelihood.sky.noise)(distribution="student-t"))
    with pytest.raises(InputError, match="Gaussian noise"):
        biro.Likelihood(likelihood.observation, tails, gains="closures", backend="cpu")


def test_evidences_of_closures_and_of_visibilities_do_not_compare(likelihood):
    other = biro.Likelihood(likelihood.observation, likelihood.sky, backend="cpu")
    assert other.data_digest() == likelihood.observation.digest() != likelihood.data_digest()
    assert other.digest() != likelihood.digest()
    assert likelihood.description()["gains"] == "closures"


def test_a_systematic_error_of_weights_follows_the_model(eht):
    _, data, sigma = of_hand(eht, "i")
    model = 1.1 * data[:, None, None]
    with_error = with_systematic(observed(eht, data, sigma), 0.05, [model])
    variance = 1 / with_error.partitions[0].weight[:, 0, 0]
    np.testing.assert_allclose(variance, sigma**2 + (0.05 * 1.1 * np.abs(data)) ** 2, rtol=1e-12)


M87 = """
[[source]]
name = "ring"
type = "m-ring"
east = "0 uas"
north = "0 uas"
I = "0.5 Jy"
diameter = { prior = "uniform", low = 20, high = 80, unit = "uas" }
blur = { prior = "uniform", low = 1, high = 40, unit = "uas" }
beta_re = [{ prior = "uniform", low = -1, high = 1 }, { prior = "uniform", low = -1, high = 1 }]
beta_im = [{ prior = "uniform", low = -1, high = 1 }, { prior = "uniform", low = -1, high = 1 }]

[[source]]
name = "large"
type = "gaussian"
east = "0 uas"
north = "0 uas"
I = { prior = "log-uniform", low = 0.1, high = 5, unit = "Jy" }
fwhm = { prior = "log-uniform", low = 1000, high = 20000, unit = "uas" }

[noise]
factor = 1
systematic = 0.02
"""


@pytest.fixture(scope="module")
def m87(data_dir, tmp_path_factory):
    """M87 of one day as published, phases of stations not calibrated, and a ring with a large Gaussian."""
    path = tmp_path_factory.mktemp("m87") / "sky.toml"
    path.write_text(M87)
    return data_dir / "SR1_M87_2017_100_lo_hops_netcal_StokesI.uvfits", path


def test_the_ring_of_m87(m87):
    """The published diameter is 42 +- 3 uas, brighter in the south; without closures chi2 / 2N is 1.9e3."""
    likelihood = biro.Likelihood(biro.read(m87[0]), biro.read_model(m87[1]), gains="closures", backend="cpu")
    assert (likelihood.n_vis.sum(), likelihood.n_data.sum()) == (1428, 1024)
    # One of three maxima of about the same height: those at 42 and 53 uas differ in m = 2.
    start = np.array([[45.0, 14.0, -0.25, -0.1, 0.0, -0.07, 0.3, 2000.0]])
    best = biro.maximise(likelihood, seed=1, starts=start)
    assert 42 < best["ring.diameter"] < 46
    assert best["ring.beta_re[0]"] < -0.2
    assert abs(best["ring.beta_im[0]"]) < 0.1
    assert 1.0 < best.reduced_chi2[0] < 1.5
    assert "chi2/dof 1.4" in str(best)
    assert str(best).startswith("THE MODEL DOES NOT FIT (M87/spw0): ")  # 1016 numbers: 9 sigma
    assert "(1024 closures)" in str(best)


def test_the_command_line_fits_and_draws_closures(m87, tmp_path):
    obs, model = m87
    words = ["fit", str(obs), str(model), "-o", str(tmp_path / "run"), "--sampler", "none", "--seed", "1"]
    words += ["--gains", "closures", "--average-time", "10 min", "--backend", "cpu", "--set", "starts=2"]
    shown = works(*words)
    assert "54 independent closure phases and 47 log closure amplitudes from 86 visibilities" in shown.output
    assert "5 visibilities below 3 sigma" in shown.output
    assert "flux scale" in shown.output
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert "closures" in json.dumps(record)
    for name in ("closure.png", "log-closure-amplitudes.png"):
        assert (tmp_path / "run" / name).is_file()
    # The likelihood of the run is made again from its record.
    posterior = biro.Posterior.load(tmp_path / "run" / "posterior.nc")
    again = likelihood_of(tmp_path / "run", None, posterior.provenance.data_digest)
    assert posterior.fits[0].n_closure == 101
    assert again.gains == "closures"
