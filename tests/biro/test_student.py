"""Student's t as noise: against SciPy's density sample by sample, and what it is for: data with outliers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multivariate_t

import biro
from biro.likelihood.normalisation import student_information
from biro.models import ModelError, write_model

ONE_SOURCE = """
[[source]]
name = "a"
east = "0 arcsec"
north = "0 arcsec"
I = { prior = "uniform", low = -10, high = 10, unit = "Jy" }
V = { prior = "uniform", low = -10, high = 10, unit = "Jy" }
"""
STUDENT = '[noise]\ndistribution = "student-t"\n'
FITTED = STUDENT + 'dof = { prior = "log-uniform", low = 1, high = 1e9 }\n'
PAIRS = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])


def sky(text: str, tmp_path: Path) -> biro.SkyModel:
    path = tmp_path / "sky.toml"
    path.write_text(text)
    return biro.read_model(path)


def observation(noise: NDArray[np.complex128], weight: NDArray[np.float64], **about: str) -> biro.Observation:
    """RR and LL of four antennas at two frequencies: a source of 3 Jy at the centre, and noise."""
    n_row = len(noise)
    rng = np.random.default_rng(9)
    antenna1, antenna2 = PAIRS[np.arange(n_row) % 6].T
    return biro.Observation.from_arrays(
        vis=noise + 3.0,
        uvw=rng.normal(scale=300.0, size=(n_row, 3)),
        antenna1=antenna1,
        antenna2=antenna2,
        time=5e9 + np.arange(n_row) // 6,
        chan_freq=[1.0e9, 1.5e9],
        corr_type=["RR", "LL"],
        weight=weight,
        flag=np.random.default_rng(8).random(noise.shape) < 0.1,
        **about,
    )


def gaussian_noise(seed: int, n_row: int) -> NDArray[np.complex128]:
    pair = np.random.default_rng(seed).normal(size=(2, n_row, 2, 2))
    return np.asarray(pair[0] + 1j * pair[1])


def small(seed: int = 0, n_row: int = 40, **about: str) -> biro.Observation:
    weight = np.random.default_rng(seed + 100).uniform(0.5, 2.0, (n_row, 2, 2))
    return observation(gaussian_noise(seed, n_row), weight, **about)


def by_scipy(obs: biro.Observation, i: float, v: float, s: float, nu: float) -> float:
    """The source is I + V in RR and I - V in LL, on every baseline."""
    total = 0.0
    for part in obs.partitions:
        for k, model in enumerate([i + v, i - v]):
            used = part.weight[..., k] > 0
            residual = part.vis[..., k][used] - model
            for w, r in zip(part.weight[..., k][used], residual, strict=True):
                density = multivariate_t(np.zeros(2), np.eye(2) * s**2 / w, df=nu)
                total += float(density.logpdf([r.real, r.imag]))
    return total


THETA = np.array([[2.5, 0.3, 1.0, 4.0], [1.0, -0.7, 1.7, 1.3], [-3.0, 0.0, 0.4, 90.0]])


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("form", ["factored", "row"])
def test_it_is_the_sum_of_densities_in_two_dimensions(tmp_path: Path, precision: str, form: str) -> None:
    obs = small()
    likelihood = biro.Likelihood(obs, sky(ONE_SOURCE + FITTED, tmp_path), precision=precision, form=form)
    assert tuple(likelihood.parameter_names) == ("a.I", "a.V", "noise.factor", "noise.dof")
    expected = [by_scipy(obs, *vector) for vector in THETA]
    # Sums of some hundred terms in float64; float32 rounds data, weights and models to 6e-8.
    tolerance = 1e-12 if precision == "double" else 1e-6
    np.testing.assert_allclose(likelihood.log_likelihood(THETA), expected, rtol=tolerance)
    # A batch whose vectors have scaled_dofs of their own is its vectors.
    assert likelihood.log_likelihood(THETA).tolist() == [likelihood.log_likelihood(x) for x in THETA]


def slope(function, theta, i: int, step: float) -> float:  # type: ignore[no-untyped-def]
    """Central differences of sixth order."""
    axis = np.zeros(theta.size)
    axis[i] = step
    pairs = [function(*(theta + k * axis)) - function(*(theta - k * axis)) for k in (1, 2, 3)]
    return float((45.0 * pairs[0] - 9.0 * pairs[1] + pairs[2]) / (60.0 * step))


@pytest.mark.parametrize("precision", ["double", "single"])
def test_derivatives_are_those_of_the_density(tmp_path: Path, precision: str) -> None:
    obs = small()
    likelihood = biro.Likelihood(obs, sky(ONE_SOURCE + FITTED, tmp_path), precision=precision)
    value, gradient = likelihood.log_likelihood_and_gradient(THETA[:2])
    # The kernels with and without derivatives sum in the same order.
    np.testing.assert_allclose(value, likelihood.log_likelihood(THETA[:2]), rtol=1e-13)
    for found, theta in zip(gradient, THETA[:2], strict=True):
        expected = [
            slope(lambda *x: by_scipy(obs, *x), theta, i, 0.005 * (1.0 + abs(theta[i]))) for i in range(4)
        ]
        # Differences keep 1e-8 of the largest; float32 rounds each of some hundred residuals to 1e-7.
        tolerance = 1e-7 if precision == "double" else 1e-5
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


def test_many_degrees_of_freedom_are_a_gaussian(tmp_path: Path) -> None:
    obs = small()
    student = biro.Likelihood(obs, sky(ONE_SOURCE + FITTED, tmp_path))
    gaussian = biro.Likelihood(obs, sky(ONE_SOURCE, tmp_path))
    theta = np.array([[2.5, 0.3, 1.0], [1.0, -0.7, 1.7]])
    expected, slopes = gaussian.log_likelihood_and_gradient(theta)
    for nu in (1e6, 1e9):
        value, found = student.log_likelihood_and_gradient(np.column_stack([theta, [nu, nu]]))
        # They differ by x (x - 4) / (4 nu) a sample, x its weighted square: up to 30 in the second vector.
        np.testing.assert_allclose(value, expected, rtol=0, atol=3e4 / nu)
        np.testing.assert_allclose(found[:, :3], slopes, rtol=200.0 / nu)


def test_groups_have_degrees_of_freedom_of_their_own(tmp_path: Path) -> None:
    one, two = small(1, field="A"), small(2, n_row=60, field="B")
    both = biro.Observation(
        partitions=(*one.partitions, *two.partitions), antenna_names=one.antenna_names,
        antenna_positions=one.antenna_positions, telescope="", source="arrays", column="DATA",
        weight_origin="WEIGHT", counts={},
    )  # fmt: skip
    likelihood = biro.Likelihood(both, sky(ONE_SOURCE + FITTED, tmp_path))
    names = ("noise.factor[A/spw0]", "noise.factor[B/spw0]", "noise.dof[A/spw0]", "noise.dof[B/spw0]")
    assert tuple(likelihood.parameter_names[2:]) == tuple(names)
    theta = np.array([2.0, 0.2, 0.9, 1.2, 3.0, 20.0])

    def expected(i: float, v: float, s1: float, s2: float, nu1: float, nu2: float) -> float:
        return by_scipy(one, i, v, s1, nu1) + by_scipy(two, i, v, s2, nu2)

    value, gradient = likelihood.log_likelihood_and_gradient(theta)
    assert value == pytest.approx(expected(*theta), rel=1e-12)
    for i in (1, 3, 4, 5):
        assert gradient[i] == pytest.approx(slope(expected, theta, i, 0.02 * theta[i]), rel=1e-7)


def test_fixed_degrees_of_freedom_are_no_parameter(tmp_path: Path) -> None:
    obs = small()
    likelihood = biro.Likelihood(obs, sky(ONE_SOURCE + STUDENT + "factor = 1\ndof = 5\n", tmp_path))
    assert tuple(likelihood.parameter_names) == ("a.I", "a.V")
    assert likelihood.log_likelihood([1.0, 0.5]) == pytest.approx(
        by_scipy(obs, 1.0, 0.5, 1.0, 5.0), rel=1e-12
    )
    # What people read as chi2 is the Gaussian's, whatever the noise.
    gaussian = biro.Likelihood(obs, sky(ONE_SOURCE + "[noise]\nfactor = 1\n", tmp_path))
    np.testing.assert_array_equal(likelihood.chi2([1.0, 0.5]), gaussian.chi2([1.0, 0.5]))


def test_plan_and_record_say_so(tmp_path: Path) -> None:
    obs = small()
    student = biro.Likelihood(obs, sky(ONE_SOURCE + STUDENT, tmp_path), backend="cpu")
    gaussian = biro.Likelihood(obs, sky(ONE_SOURCE, tmp_path), backend="cpu")
    assert student.plan().splitlines()[0].endswith("; Student-t noise")
    assert "noise" not in gaussian.plan()
    assert student.description()["noise"] == "Student-t noise"
    fixed = biro.Likelihood(obs, sky(ONE_SOURCE + STUDENT + "dof = 5\n", tmp_path))
    other = biro.Likelihood(obs, sky(ONE_SOURCE + STUDENT + "dof = 6\n", tmp_path))
    assert len({each.digest() for each in (student, gaussian, fixed, other)}) == 4


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        ('distribution = "student-t"\ndof = 0', "noise.dof must be positive, found noise.dof = 0"),
        ('distribution = "student-t"\ndof = -2', "noise.dof must be positive"),
        ('distribution = "student-t"\ndof = inf', "noise: dof: must be finite, found inf"),
        ("dof = 5", 'noise: dof: is only for distribution = "student-t", which is not set'),
        (
            'distribution = "student"',
            r"one of gaussian, student-t, found 'student' \(did you mean 'student-t'",
        ),
        ("distribution = 3", "noise: distribution: Input should be a valid string, found 3"),
    ],
)
def test_what_cannot_be_meant_is_one_line(tmp_path: Path, noise: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        biro.Likelihood(small(), sky(f"{ONE_SOURCE}[noise]\n{noise}\n", tmp_path))


def test_the_file_is_written_as_it_was_read(tmp_path: Path) -> None:
    model = sky(ONE_SOURCE + FITTED, tmp_path)
    write_model(model, tmp_path / "other.toml")
    assert biro.read_model(tmp_path / "other.toml") == model


# ---- what it is for


def spoilt(seed: int, n_row: int) -> tuple[biro.Observation, NDArray[np.bool_]]:
    """Weights that are right; one sample of a hundred 30 to 100 sigma high, all of one sign."""
    rng = np.random.default_rng(seed)
    noise = gaussian_noise(seed, n_row)
    bad = rng.random(noise.shape) < 0.01
    noise[bad] += rng.uniform(30.0, 100.0, np.count_nonzero(bad))
    return observation(noise, np.ones(noise.shape)), bad


def test_outliers_move_the_gaussian_maximum_and_not_the_robust_one(tmp_path: Path) -> None:
    obs, bad = spoilt(4, 600)
    clean = obs.partitions[0].weight * ~bad
    n_clean = np.count_nonzero(clean)
    # The source is alone, at the phase centre: I is the mean of all samples, to 1/sqrt(n) of the noise.
    sigma = 1.0 / np.sqrt(n_clean)
    maxima = {}
    for name, noise in (("gaussian", "[noise]\nfactor = 1\n"), ("student-t", FITTED)):
        maxima[name] = biro.maximise(biro.Likelihood(obs, sky(ONE_SOURCE + noise, tmp_path)), seed=1)
    flux = {name: found.laplace.theta[0] for name, found in maxima.items()}
    assert abs(flux["gaussian"] - 3.0) > 10.0 * sigma
    best = np.sum(clean * obs.partitions[0].vis.real) / n_clean
    assert abs(flux["student-t"] - best) < 0.5 * sigma
    assert abs(flux["student-t"] - 3.0) < 3.0 * sigma
    robust = maxima["student-t"].laplace
    # Its error is that of the clean data, but for the curvature of what was drawn.
    assert 0.95 < robust.error[0] / sigma < 1.2
    assert robust.theta[3] < 10.0


def test_a_chain_says_the_same_as_the_maximum(tmp_path: Path) -> None:
    obs, bad = spoilt(4, 600)
    clean = obs.partitions[0].weight * ~bad
    posterior = biro.sample(
        biro.Likelihood(obs, sky(ONE_SOURCE + STUDENT, tmp_path)), "emcee", seed=3, progress=False
    )
    sigma = 1.0 / np.sqrt(np.count_nonzero(clean))
    best = np.sum(clean * obs.partitions[0].vis.real) / np.count_nonzero(clean)
    flux = posterior.samples[:, 0]
    # 1700 effective draws: 2 % of sigma in the mean and in the width.
    assert abs(flux.mean() - best) < 0.5 * sigma
    assert 0.9 < flux.std() / sigma < 1.2


def test_gaussian_data_lose_nothing(tmp_path: Path) -> None:
    obs = observation(gaussian_noise(1, 600), np.ones((600, 2, 2)))
    student = biro.maximise(biro.Likelihood(obs, sky(ONE_SOURCE + STUDENT, tmp_path)), seed=1)
    gaussian = biro.maximise(biro.Likelihood(obs, sky(ONE_SOURCE, tmp_path)), seed=1)
    error = gaussian.laplace.error[0]
    # Degrees of freedom come out at some hundred: weights of samples at 3 sigma fall by some percent.
    assert student.laplace.theta[3] > 30.0
    assert abs(student.laplace.theta[0] - gaussian.laplace.theta[0]) < 0.1 * error
    np.testing.assert_allclose(student.laplace.error[0], error, rtol=0.02)
    # The parameter that is not needed costs evidence.
    assert student.log_evidence < gaussian.log_evidence


def test_degrees_of_freedom_are_found_within_their_error(tmp_path: Path) -> None:
    """Data drawn from SciPy's t, nu = 4, s = 1.3; pulls, and errors that the Fisher information expects."""
    n_row, nu, s = 500, 4.0, 1.3
    drawn = multivariate_t(np.zeros(2), np.eye(2) * s**2, df=nu, seed=11).rvs((n_row, 2, 2))
    obs = observation(drawn[..., 0] + 1j * drawn[..., 1], np.ones((n_row, 2, 2)))
    likelihood = biro.Likelihood(obs, sky(ONE_SOURCE + FITTED, tmp_path))
    found = biro.maximise(likelihood, seed=1).laplace
    pull = (found.theta - [3.0, 0.0, s, nu]) / found.error
    assert np.all(np.abs(pull) < 3.0)
    of_vis, of_s, of_both, of_nu = student_information(np.array(s), np.array(nu))
    n_vis = likelihood.n_vis[0]
    noise = np.linalg.inv(n_vis * np.array([[of_s, of_both], [of_both, of_nu]]))
    expected = [*[1.0 / np.sqrt(n_vis * of_vis)] * 2, *np.sqrt(np.diag(noise))]
    # The curvature of 1800 samples scatters about its mean by some percent; that of nu follows nu.
    np.testing.assert_allclose(found.error[:3], expected[:3], rtol=0.1)
    np.testing.assert_allclose(found.error[3], expected[3], rtol=0.35)
