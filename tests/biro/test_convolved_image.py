"""Images of large data by convolution with the PSF: noise, bent samples, and the first image."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import biro
from biro.image_posterior.operator import ImageOperator, with_data
from biro.models import Gain, GaussianSource, ImagePrior, Noise, SkyModel
from biro.simulation import Channels, Track
from tests.biro.test_sampled_image import (
    NOISE,
    N,
    explicit,
    observation,  # noqa: F401
    operator,  # noqa: F401
    precision,  # noqa: F401
)

jax = pytest.importorskip("jax", reason="needs the extra images")


class LogNormalPixels:
    """Independent log-normal pixels: an image that is not linear in its numbers."""

    lines = ()

    def __init__(self) -> None:
        self.n, self.is_hyper = N * N, np.zeros(N * N, bool)

    def image(self, xi: Any) -> Any:
        return 0.1 * jax.numpy.exp(0.5 * xi).reshape(N, N)


@pytest.fixture
def made(operator: ImageOperator) -> SimpleNamespace:  # noqa: F811
    """A sky of the prior, observed, with the model by convolution, and R as a matrix divided by the noise."""
    from biro.image_posterior.sampling.models.convolved_model import ConvolvedModel

    rng, prior, matrix = np.random.default_rng(3), LogNormalPixels(), explicit(operator)
    truth = np.asarray(prior.image(rng.normal(size=N * N)))
    whole = np.zeros(operator.data[0].shape, complex)
    used = operator.weights[0] > 0
    data = matrix @ truth.ravel() + NOISE * rng.normal(size=len(matrix))
    whole[used] = data[: len(data) // 2] + 1j * data[len(data) // 2 :]
    full = with_data(operator, [whole], [np.where(used, NOISE**-2, 0.0)])
    return SimpleNamespace(
        operator=full, prior=prior, model=ConvolvedModel(full, prior), matrix=matrix / NOISE, truth=truth,
        data=data / NOISE,
    )  # fmt: skip


def test_samples_bend_as_with_the_exact_data(made: SimpleNamespace) -> None:
    """geoVI draws x with x - e + J(e)^T (t(x) - t(e)) = a given sample, t = R I / sigma as a matrix here."""
    from nifty.re.evi import _nonlinear_residual_metric, _nonlinear_residual_vg

    rng = np.random.default_rng(4)
    e, x, sample, change = 0.5 * rng.normal(size=(4, N * N))
    likelihood = made.model.likelihood()
    at_e = likelihood.transformation(e)
    value, _ = _nonlinear_residual_vg(likelihood, (), e, at_e, sample, x)
    images = [np.asarray(made.prior.image(xi)).ravel() for xi in (e, x)]
    slopes = [0.5 * image * made.matrix for image in images]  # dI/dxi = I / 2 for this prior
    residual = sample - (x - e + slopes[0].T @ (made.matrix @ (images[1] - images[0])))
    # w-terms of KAT-7 change the PSF over the field of 6.6 arcmin by parts in 1e4.
    assert float(value) == pytest.approx(0.5 * residual @ residual, rel=2e-3)
    once = slopes[0].T @ (slopes[1] @ change) + change
    expected = slopes[1].T @ (slopes[0] @ once) + once
    found = _nonlinear_residual_metric(likelihood, (), e, x, change)
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())


def test_numbers_of_others_behind_those_of_the_image_do_not_count(made: SimpleNamespace) -> None:
    """The scale of a single-dish map is the last number of a state, which a prior may take as its own."""
    xi = np.random.default_rng(8).normal(size=N * N)
    np.testing.assert_array_equal(made.model.image(np.append(xi, 3.0)), made.prior.image(xi))


def test_noise_of_samples_has_the_covariance_of_the_exact_data(made: SimpleNamespace) -> None:
    likelihood = made.model.likelihood()
    images = jax.jit(jax.vmap(made.model._noise))(np.random.default_rng(5).normal(size=400))
    covariance = made.matrix.T @ made.matrix
    # Along each of 20 directions a mean of 400 chi2 of one degree of freedom: 7 %, and 5 sigma of that.
    along = np.random.default_rng(6).normal(size=(N * N, 20))
    found = np.mean((np.asarray(images).reshape(400, -1) @ along) ** 2, axis=0)
    np.testing.assert_allclose(found, np.sum(along * (covariance @ along), axis=0), rtol=0.35)
    # The same seed is the same noise, in the space of the numbers as for images.
    modes = np.ones((2, *made.model._kernel.shape))
    drawn = likelihood.likelihood.left_sqrt_metric(made.truth, (jax.numpy.asarray(0.3), modes))
    np.testing.assert_array_equal(drawn, made.model._noise(jax.numpy.asarray(0.3)))
    # Gains that are taken out change weights: noise divided by sigma^2 grows as the root of them.
    made.model._take(with_data(made.operator, made.operator.data, [2.0 * made.operator.weights[0]]))
    heavier = np.asarray(made.model._noise(jax.numpy.asarray(0.3)))
    np.testing.assert_allclose(
        heavier, np.sqrt(2.0) * np.asarray(drawn), rtol=1e-9, atol=1e-9 * np.abs(heavier).max()
    )


def test_the_first_image_is_positive_and_fits(made: SimpleNamespace) -> None:
    from biro.image_posterior.sampling.first_image import first_image

    image = first_image(made.operator)
    assert image.min() >= 0.0
    chi2 = [np.sum((made.data - made.matrix @ some.ravel()) ** 2) for some in (image, made.truth)]
    # 84 complex samples and 256 free pixels: it fits about as well as the truth, but for the penalty.
    assert chi2[0] < 1.5 * chi2[1]
    # The gridder is asked for 1e-7: at the least penalised chi2 slopes are 0 where pixels are above 0.
    slope = made.matrix.T @ (made.data - made.matrix @ image.ravel()) / np.sqrt(made.operator.weight_sum)
    np.testing.assert_allclose(slope[image.ravel() > 1e-3], 1.0, atol=0.1)


def test_the_first_image_takes_the_noise_that_is_given(made: SimpleNamespace) -> None:
    from biro.image_posterior.sampling.first_image import first_image

    # With 1e9 times the noise no pixel is above it.
    assert not first_image(made.operator, 1e9).any()


def test_the_plan_states_memory_and_time_by_images_not_by_visibilities(made: SimpleNamespace) -> None:
    from biro.image_posterior.sampled import _plan
    from biro.image_posterior.sampling.draws import Settings

    text = _plan(made, made.model, Settings(n_pairs=2, n_samples=2))
    # 4 states of 10 times 256 numbers and 8 arrays of 32 x 32, and 2 samples, of 8 bytes each: 0.348 MB.
    assert text.startswith("geovi: 256 numbers, 84 complex visibilities; about 0.348 MB, at most about ")


def test_gains_of_large_data_are_solved_for_between_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of phase are taken out, as many as there are, and the result states that they have no errors."""
    from biro.image_posterior import sampled
    from biro.image_posterior.problem import FittedImage, ImageProblem
    from biro.image_posterior.sampling.models import convolved_model

    monkeypatch.setattr(convolved_model, "LARGE", 100)
    rng, size, n_time = np.random.default_rng(7), 24, 3
    blob = GaussianSource(
        "g", east="4 arcsec", north="-6 arcsec", I="4 Jy", emaj="30 arcsec", emin="20 arcsec", pa="0 deg"
    )
    seen = biro.simulate(
        "VLA-C",
        SkyModel([blob]),
        phase_centre="12h00m00s +40d00m00s",
        times=Track("2026-03-01", n_time * 3600.0, 3600.0),
        channels=Channels(1.4e9, 5e7),
        noise=0.1,
        seed=3,
        progress=False,
    )
    (part,) = seen.partitions
    phase = rng.uniform(-np.pi, np.pi, (n_time, part.n_antenna))
    turn = phase[part.time_index, part.antenna1] - phase[part.time_index, part.antenna2]
    broken = replace(part, vis=np.asarray(part.vis * np.exp(1j * turn)[:, None, None], part.vis.dtype))

    def rough(problem: ImageProblem) -> tuple[ImageProblem, FittedImage]:
        """A start with the flux in a disc of 30 arcsec, and no gains, in place of self-calibration."""
        y, x = np.indices((size, size)) - size // 2
        disc = 1.0 * (np.hypot(x, y) < 2.5)
        start = 4.0 * disc / disc.sum()
        return problem, FittedImage(samples=start[None, None], is_map=True, operator=problem.operator)

    monkeypatch.setattr(sampled, "fit_map", rough)
    gain = Gain(phase={"prior": "uniform", "low": "-180 deg", "high": "180 deg", "per": "integration"})
    image = ImagePrior("x", prior="correlated-field", size=size, cell="6 arcsec")
    sky = SkyModel([], images=[image], gain=gain, noise=Noise(factor=1.0))
    made = biro.fit_image(
        replace(seen, partitions=(broken,)), sky, backend="cpu", progress=False, method="map", n_iterations=2
    )
    assert any(line.startswith("GAINS WITHOUT ERRORS") for line in made.remarks)
    # A phase of each antenna but the reference at each time.
    n_gain = n_time * (part.n_antenna - 1)
    assert made.facts["n_gain"] == n_gain
    n_dof = 2 * sum(made.n_data) - n_gain
    # Three standard deviations of chi2, sqrt(2 n), and pixels that are fitted, too.
    assert abs(sum(made.chi2) / n_dof - 1.0) < 3.0 * np.sqrt(2.0 / n_dof)
    # The error of a sum of 1053 visibilities of 0.1 Jy is 3 mJy; the prior of the flux is 20 %.
    assert made.flux.flux == pytest.approx(4.0, abs=0.05)
