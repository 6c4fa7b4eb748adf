"""Images with samples: the linear function in JAX, priors, gains, noise, samples of a Wiener filter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import biro
from biro.errors import DataError, InputError
from biro.image_posterior.field import ImageField
from biro.image_posterior.operator import ImageOperator, with_data
from biro.image_posterior.sampling import jax_room
from biro.models import GaussianSource, ImagePrior, PointSource, SkyModel
from biro.models.components.antenna_terms.gain import Gain
from biro.models.components.antenna_terms.per_segment import PerSegment
from biro.models.components.noise import Noise
from biro.models.quantities.prior import HalfNormal, LogNormal, LogUniform, Normal, Triangular, Uniform
from biro.observation.stokes import PSEUDO_I, form_stokes
from biro.simulation import Channels, Track
from biro.simulation.prediction import predict

pytest.importorskip("jax", reason="needs the extra images")
pytest.importorskip("nifty.re", reason="needs the extra images")
pytest.importorskip("jaxbind", reason="needs the extra images")

N, CELL, NOISE = 16, 1.2e-4, 0.3
NOTHING = SkyModel([PointSource("nothing", east="0 arcsec", north="0 arcsec", I="0 Jy")])


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    with jax_room.double_precision():
        yield


@pytest.fixture(scope="module")
def observation() -> biro.Observation:
    """Stokes I of KAT-7 at four times: 84 visibilities."""
    made = biro.simulate(
        "KAT-7",
        NOTHING,
        phase_centre="12h00m00s -40d00m00s",
        times=Track("2026-03-01T20:00", 4 * 3600.0, 3600.0),
        channels=Channels(1.4e9, 1e6),
        noise=NOISE,
        seed=1,
        progress=False,
    )
    parts, _ = form_stokes(made.partitions, PSEUDO_I)
    return replace(made, partitions=tuple(parts))


@pytest.fixture(scope="module")
def operator(observation: biro.Observation) -> ImageOperator:
    field = ImageField(N, CELL, observation.partitions[0].phase_centre)
    return ImageOperator(observation, field, accuracy=1e-7, backend="cpu")


def explicit(operator: ImageOperator) -> np.ndarray:
    """Real and imaginary parts of R as a matrix (2 n, N^2), from physics: section 2."""
    (part,) = operator.observation.partitions
    axis = operator.field.axis
    l, m = (a.ravel() for a in np.meshgrid(-axis, axis))
    n_minus_1 = np.sqrt(1.0 - l**2 - m**2) - 1.0
    turns = part.uvw @ np.stack([l, m, n_minus_1]) * part.chan_freq[0] / 299792458.0
    phasor = np.exp(2j * np.pi * turns)[part.weight[:, 0, 0] > 0]
    return np.concatenate([phasor.real, phasor.imag])


class LinearPrior:
    """Gaussian pixels with exponential correlation, of mean 1: the posterior is that of a Wiener filter."""

    lines = ()

    def __init__(self) -> None:
        y, x = np.indices((N, N))
        apart = np.hypot(y.ravel()[:, None] - y.ravel(), x.ravel()[:, None] - x.ravel())
        self.covariance = 0.5**2 * np.exp(-apart / 3.0)
        self.root, self.n = np.linalg.cholesky(self.covariance), N * N
        self.is_hyper = np.zeros(self.n, bool)

    def image(self, xi: Any) -> Any:
        return 1.0 + (self.root @ xi).reshape(N, N)

    def spectrum(self, xi: Any) -> None:
        return None


@pytest.fixture(scope="module")
def wiener(operator: ImageOperator) -> SimpleNamespace:
    """Data of a sky of the linear prior, the exact posterior, and samples of it."""
    from biro.image_posterior.sampling.draws import Settings
    from biro.image_posterior.sampling.models.visibility_model import VisibilityModel
    from biro.image_posterior.sampling.variational import sample

    rng, prior, matrix = np.random.default_rng(5), LinearPrior(), explicit(operator)
    truth = prior.image(rng.normal(size=N * N))
    whole = np.zeros(operator.data[0].shape, complex)
    used = operator.weights[0] > 0
    data = matrix @ truth.ravel() + NOISE * rng.normal(size=len(matrix))
    whole[used] = data[: len(data) // 2] + 1j * data[len(data) // 2 :]
    with_sky = with_data(operator, [whole], [np.where(used, NOISE**-2, 0.0)])
    gain = (
        prior.covariance
        @ matrix.T
        @ np.linalg.inv(matrix @ prior.covariance @ matrix.T + NOISE**2 * np.eye(len(data)))
    )
    mean = 1.0 + gain @ (data - matrix @ np.ones(N * N))
    covariance = prior.covariance - gain @ matrix @ prior.covariance
    with jax_room.double_precision():
        model = VisibilityModel(with_sky, prior)
        settings = Settings(method="mgvi", n_samples=60, n_iterations=2, n_pairs=2, seed=3)
        start = np.zeros(N * N)
        draws = sample(model, start, settings)
    images = np.array([prior.image(xi) for xi in draws.samples])
    return SimpleNamespace(
        model=model, settings=settings, start=start, draws=draws, images=images, mean=mean, prior=prior,
        sd=np.sqrt(np.diag(covariance)), covariance=covariance, operator=with_sky, matrix=matrix,
    )  # fmt: skip


class TestVisibilityFunction:
    def test_it_is_the_sum_over_pixels_with_its_transpose(self, wiener: SimpleNamespace) -> None:
        import jax

        rng, size = np.random.default_rng(1), len(wiener.matrix)
        image, parts = rng.normal(size=(N, N)), rng.normal(size=(2, size // 2))
        found = np.asarray(jax.jit(wiener.model.predict)(image)).ravel()
        # The gridder's accuracy was asked for as 1e-7 of the 2-norm of each source.
        scale = np.linalg.norm(image) * np.sqrt(size)
        np.testing.assert_allclose(found, wiener.matrix @ image.ravel(), atol=1e-6 * scale)
        back = jax.vjp(wiener.model.predict, image)[1](parts)[0]
        assert np.vdot(back, image) == pytest.approx(np.vdot(parts, found.reshape(2, -1)), rel=1e-11)

    def test_batches_are_one_image_after_the_other(self, wiener: SimpleNamespace) -> None:
        import jax

        images = np.random.default_rng(2).normal(size=(2, 3, N, N))
        twice = jax.vmap(jax.vmap(wiener.model.predict))(images)
        np.testing.assert_array_equal(twice[1, 2], wiener.model.predict(images[1, 2]))

    def test_an_image_that_overflows_is_no_number(self, wiener: SimpleNamespace) -> None:
        assert np.isnan(np.asarray(wiener.model.predict(np.full((N, N), np.inf)))).all()

    def test_gradient_and_curvature_of_chi2_are_those_of_differences(self, wiener: SimpleNamespace) -> None:
        import jax

        likelihood, rng = wiener.model.likelihood(), np.random.default_rng(3)
        xi, change = rng.normal(size=(2, N * N))
        step = 1e-4
        energies = [float(likelihood(xi + k * step * change)) for k in (-1, 0, 1)]
        slope = float(np.vdot(jax.grad(likelihood)(xi), change))
        # The energy is quadratic: differences are exact but for rounding and the gridder's 1e-7.
        assert slope == pytest.approx((energies[2] - energies[0]) / (2 * step), rel=1e-6)
        curvature = float(np.vdot(likelihood.metric(xi, change), change))
        response = wiener.matrix @ (wiener.prior.root @ change) / NOISE
        assert curvature == pytest.approx(float(response @ response), rel=1e-5)


class TestSamplesOfAWienerFilter:
    def test_mean_is_exact(self, wiener: SimpleNamespace) -> None:
        found = np.asarray(wiener.prior.image(wiener.draws.mean)).ravel()
        # Mirrored samples leave the mean of a linear problem without Monte Carlo noise. The search ends where
        # a step changes the energy by less than 0.02: sqrt(0.04) standard deviations in any direction.
        assert np.abs((found - wiener.mean) / wiener.sd).max() < 0.2

    def test_pixel_variances_are_exact_within_their_monte_carlo_errors(self, wiener: SimpleNamespace) -> None:
        away = wiener.images.reshape(60, -1) - np.asarray(wiener.prior.image(wiener.draws.mean)).ravel()
        variance = (away**2).mean(axis=0)
        # 30 independent pairs: each variance is good to sqrt(2 / 30), neighbours are alike.
        ratio = variance / wiener.sd**2
        assert abs(ratio.mean() - 1.0) < 0.12
        assert np.all(np.abs(ratio - 1.0) < 5.0 * np.sqrt(2.0 / 30.0))

    def test_covariance_of_all_pixels_is_exact(self, wiener: SimpleNamespace) -> None:
        # sum of (s - mean)^T C^-1 (s - mean) over 30 independent samples is chi2 with 30 N^2 degrees.
        away = wiener.images.reshape(60, -1)[::2] - np.asarray(wiener.prior.image(wiener.draws.mean)).ravel()
        chi2 = float(np.sum(away * np.linalg.solve(wiener.covariance, away.T).T))
        dof = 30 * N * N
        assert abs(chi2 - dof) < 5.0 * np.sqrt(2.0 * dof) + 0.01 * dof  # the last: where gradients stop

    def test_a_seed_gives_the_same_bits_and_a_checkpoint_goes_on(
        self, wiener: SimpleNamespace, tmp_path: Path
    ) -> None:
        from biro.image_posterior.sampling.variational import sample

        path, lines = tmp_path / "state.npz", list[str]()
        few = replace(wiener.settings, n_samples=2, n_iterations=2)
        whole = sample(wiener.model, wiener.start, few)
        sample(wiener.model, wiener.start, replace(few, n_iterations=1), checkpoint=path)
        again = sample(wiener.model, wiener.start, few, checkpoint=path, tell=lines.append)
        np.testing.assert_array_equal(again.samples, whole.samples)
        assert lines[0].startswith("going on after iteration 1")
        assert "chi2/2N" in lines[1]
        with pytest.raises(InputError, match="of other data"):
            sample(wiener.model, wiener.start, replace(few, seed=9), checkpoint=path)
        path.write_bytes(path.read_bytes()[:100])
        with pytest.raises(DataError, match=r"state\.npz"):
            sample(wiener.model, wiener.start, few, checkpoint=path)


class TestChains:
    @pytest.fixture
    def model(self, wiener: SimpleNamespace) -> Any:
        """The linear problem by the modes of its data; pixels are watched, which may be negative."""
        from biro.image_posterior.sampling.compact import CompactModel, find_modes

        class Watched(CompactModel):
            def quantities(self, xi: Any) -> dict[str, Any]:
                return {"pixels": self.image(xi).ravel()}

        with jax_room.double_precision():
            modes = find_modes(wiener.operator, wiener.model.used, 10.0 * N * N)
            assert modes is not None
            return Watched(wiener.operator, wiener.prior, modes)

    def test_energy_is_that_of_the_visibilities(self, wiener: SimpleNamespace, model: Any) -> None:
        for xi in np.random.default_rng(1).normal(size=(3, N * N)):
            data = np.concatenate([wiener.operator.data[0].real, wiener.operator.data[0].imag]).ravel()
            used = np.tile(wiener.operator.weights[0].ravel() > 0, 2)
            misfit = data[used] - wiener.matrix @ np.asarray(wiener.prior.image(xi)).ravel()
            # Modes left out change each datum by 0.01 of the noise, and the gridder's accuracy is 1e-7.
            assert float(model.likelihood()(xi)) == pytest.approx(0.5 * misfit @ misfit / NOISE**2, rel=1e-5)

    def test_samples_have_the_exact_mean_and_covariance(
        self, wiener: SimpleNamespace, model: Any, tmp_path: Path
    ) -> None:
        from biro.image_posterior.sampling.chains import ChainRun, sample_chains
        from biro.image_posterior.sampling.draws import Settings

        settings, lines = Settings(method="hmc", n_samples=640, n_steps=400, seed=2), list[str]()
        draws = sample_chains(model, wiener.start, settings, tell=lines.append)
        assert draws.converged
        assert "400 steps of 8 chains" in lines[-1]
        images = np.array([wiener.prior.image(xi) for xi in draws.samples]).reshape(640, -1)
        # Steps of a normal distribution are hardly correlated: at least 300 of the 640 are independent, so
        # that means are good to 0.06 sd and variances to 8 %; the largest of 256 has 4 of these errors.
        assert np.abs((images.mean(axis=0) - wiener.mean) / wiener.sd).max() < 0.25
        ratio = images.var(axis=0) / wiener.sd**2
        assert abs(ratio.mean() - 1.0) < 0.05
        assert np.abs(ratio - 1.0).max() < 0.35

        # A run that was cut goes on with the same bits.
        def cut(line: str) -> None:
            if line.startswith("100 steps"):
                raise KeyboardInterrupt

        path = tmp_path / "state.npz"
        with pytest.raises(KeyboardInterrupt):
            sample_chains(model, wiener.start, settings, checkpoint=path, tell=cut)
        again = sample_chains(model, wiener.start, settings, checkpoint=path, tell=lines.append)
        assert "going on after 100 steps" in lines[-4]
        np.testing.assert_array_equal(again.samples, draws.samples)
        with pytest.raises(InputError, match="of other data"):
            ChainRun(model, seed=9).read(path)

    def test_without_data_a_field_has_the_numbers_of_its_prior(self) -> None:
        import jax.numpy as jnp
        import nifty.re as jft

        from biro.image_posterior.sampling.chains import sample_chains
        from biro.image_posterior.sampling.draws import Settings
        from biro.image_posterior.sampling.sky_priors import CorrelatedField

        prior = CorrelatedField(N, 1.0)
        nothing = jft.Gaussian(jnp.zeros(1)).amend(lambda xi: 1e-9 * xi[:1], domain=jnp.zeros(prior.n))
        posterior: Any = SimpleNamespace(
            n=prior.n, n_data=1, is_hyper=prior.is_hyper, log_scale=prior.log_scale,
            likelihood=lambda: nothing, quantities=lambda xi: {"numbers": xi},
            circles=np.zeros(0, int),
        )  # fmt: skip
        settings = Settings(method="hmc", n_samples=640, n_steps=400)
        draws = sample_chains(posterior, np.zeros(prior.n), settings)
        square = draws.samples**2
        # Moves of the spectrum at a fixed image change all numbers: each stays normal with sd 1. Of 341
        # numbers and 300 independent samples the mean square is good to 0.5 %, of the three first numbers of
        # the spectrum (flexibility, sd, slope) to 5 %, and of any number to 8 %.
        assert abs(square.mean() - 1.0) < 0.02
        assert abs(square[:, 1:4].mean() - 1.0) < 0.2
        assert np.abs(square.mean(axis=0) - 1.0).max() < 0.4
        assert np.abs(draws.samples.mean(axis=0)).max() < 0.25


def test_pairs_whose_bending_did_not_end_are_left_out() -> None:
    import jax
    import jax.numpy as jnp
    import nifty.re as jft

    from biro.image_posterior.sampling.variational import _of_ended

    away = jnp.arange(12.0).reshape(6, 2)
    samples = jft.Samples(pos=jnp.ones(2), samples=away, keys=jax.random.split(jax.random.PRNGKey(1), 3))
    kept, n_out = _of_ended(samples, np.array([True, True, True, False, True, True]))
    assert n_out == 2
    np.testing.assert_array_equal(kept.samples, 1.0 + away[jnp.array([0, 1, 4, 5])])
    assert len(kept.keys) == 2


class TestConvolvedModel:
    def test_energy_and_metric_are_those_of_the_exact_data(self, wiener: SimpleNamespace) -> None:
        from biro.image_posterior.sampling.models.convolved_model import ConvolvedModel

        model = ConvolvedModel(wiener.operator, wiener.prior)
        rng = np.random.default_rng(7)
        xi, change = rng.normal(size=(2, N * N))
        model.major_cycle(xi)
        exact = wiener.operator.chi2(wiener.operator.predict(np.asarray(model.image(xi))[None]))[0]
        likelihood = model.likelihood()
        assert float(likelihood(xi)) == pytest.approx(0.5 * exact, rel=1e-10)
        # w-terms of KAT-7 change the PSF over the field of 6.6 arcmin by parts in 1e4.
        response = wiener.matrix @ (wiener.prior.root @ change) / NOISE
        curvature = float(np.vdot(likelihood.metric(xi, change), change))
        assert curvature == pytest.approx(float(response @ response), rel=2e-3)


class TestPriors:
    def test_pixels_have_the_inverse_gamma_quantiles(self) -> None:
        from biro.image_posterior.sampling.sky_priors import Pixels

        prior = Pixels(N, flux=2.0)
        xi = np.linspace(-5.0, 5.0, N * N)
        median = 0.02 * 2.0 / N**2
        law = stats.invgamma(1.0, scale=np.log(2.0) * median)
        np.testing.assert_allclose(np.ravel(prior.image(xi)), law.ppf(stats.norm.cdf(xi)), rtol=1e-7)
        np.testing.assert_allclose(
            prior.numbers(np.asarray(prior.image(xi))), np.clip(xi, *_seen(prior, xi)), atol=1e-6
        )

    def test_a_field_has_its_flux_and_finds_the_numbers_of_an_image(self) -> None:
        import jax

        from biro.image_posterior.sampling.sky_priors import CorrelatedField

        prior = CorrelatedField(N, flux=2.0, flux_sd=0.5)
        xi, make = 0.3 * np.random.default_rng(2).normal(size=prior.n), jax.jit(prior.image)
        image = np.asarray(make(xi))
        # The flux is that of the first number alone.
        assert image.sum() == pytest.approx(2.0 * np.exp(0.5 * xi[0]), rel=1e-12)
        smooth = np.exp(-0.5 * ((np.indices((N, N)) - N // 2) ** 2).sum(axis=0) / 3.0**2)
        again = np.asarray(make(prior.numbers(2.0 * smooth / smooth.sum())))
        # Numbers beyond 3 and faint pixels are cut, which the middle does not feel much.
        assert np.corrcoef(again.ravel(), smooth.ravel())[0, 1] > 0.98

    def test_the_power_spectrum_is_that_of_the_drawn_fields(self) -> None:
        import jax

        from biro.image_posterior.sampling.sky_priors import CorrelatedField, FieldNumbers

        numbers = FieldNumbers((1.0, 1e-6), (-3.0, 1e-6), None)
        prior = CorrelatedField(N, 1.0, numbers=numbers)
        xi = np.random.default_rng(4).normal(size=(400, prior.n))
        modes = np.abs(np.fft.fft2(np.log(jax.jit(jax.vmap(prior.image))(xi)))) ** 2 / N**4
        k = np.hypot(*np.meshgrid(*2 * [np.fft.fftfreq(N, 1.0 / N)]))
        power = np.array([modes[:, np.isclose(k, at)].mean() for at in prior.wavenumbers[:6]])
        # A power law of slope -3; 400 fields with 4 to 8 modes each: 3 % each, and 5 sigma of that.
        np.testing.assert_allclose(power / power[0], prior.wavenumbers[:6] ** -3.0, rtol=0.25)
        np.testing.assert_allclose(np.asarray(jax.jit(prior.spectrum)(xi[0]))[:6], power, rtol=0.15)

    @pytest.mark.parametrize(
        ("prior", "law"),
        [
            (Uniform(1.0, 3.0), stats.uniform(1.0, 2.0)),
            (LogUniform(0.1, 10.0), stats.loguniform(0.1, 10.0)),
            (Normal(1.0, 2.0), stats.norm(1.0, 2.0)),
            (LogNormal(0.5, 2.0), stats.lognorm(0.5, scale=2.0)),
            (HalfNormal(0.3), stats.halfnorm(scale=0.3)),
        ],
    )
    def test_quantities_have_the_quantiles_of_their_priors(self, prior: Any, law: Any) -> None:
        from biro.image_posterior.sampling.models.noise_model import from_normal

        xi = np.linspace(-4.0, 4.0, 9)
        np.testing.assert_allclose(from_normal(prior)(xi), law.ppf(stats.norm.cdf(xi)), rtol=1e-7)

    def test_other_priors_are_refused(self) -> None:
        from biro.image_posterior.sampling.models.noise_model import from_normal

        with pytest.raises(InputError, match="found triangular"):
            from_normal(Triangular(0.0, 1.0, 2.0))


def _seen(prior: Any, xi: np.ndarray) -> tuple[float, float]:
    """Numbers between which a search begins: pixels above 1e-4 of the brightest, and 3 at most."""
    brightest = float(np.max(prior.image(xi)))
    law = stats.invgamma(1.0, scale=np.log(2.0) * 0.04 / N**2)
    return max(-3.0, float(stats.norm.ppf(law.cdf(1e-4 * brightest)))), 3.0


class TestGains:
    @pytest.fixture
    def gains(self, observation: biro.Observation, operator: ImageOperator) -> Any:
        from biro.image_posterior.sampling.jax_operator import UsedData
        from biro.image_posterior.sampling.models.gain_model import GainModel

        gain = Gain(
            amplitude=PerSegment(LogNormal(0.1), per="integration", correlated="2 h"),
            phase=PerSegment(Uniform("-180 deg", "180 deg"), per="integration"),
        )
        sky = replace(NOTHING, gain=gain)
        return GainModel(sky, observation, UsedData(operator.weights))

    def test_they_are_those_of_the_bound_model(
        self, gains: Any, observation: biro.Observation, operator: ImageOperator
    ) -> None:
        from biro.image_posterior.sampling.jax_operator import UsedData

        sky = replace(NOTHING, gain=Gain(
            amplitude=PerSegment(LogNormal(0.1), per="integration"),
            phase=PerSegment(Uniform("-180 deg", "180 deg"), per="integration"),
        ))  # fmt: skip
        bound = sky.bind(observation.partition_views)
        xi = 0.5 * np.random.default_rng(1).normal(size=gains.n)
        values = dict(zip(gains.names, np.asarray(gains.coordinates(xi)), strict=True))
        # The bound model takes amplitudes and degrees; names of correlated segments are those of steps.
        theta = []
        for name in bound.parameter_names:
            if name.startswith("noise"):
                theta.append(1.0)
            elif "amplitude" in name:
                theta.append(np.exp(values[name.replace("amplitude[", "amplitude.step[")]))
            else:
                theta.append(np.rad2deg(values[name]))
        (part,) = observation.partitions
        of_antenna = bound.gains(np.array(theta), 0)[0][..., 0]
        first, second = (of_antenna[part.time_index, a] for a in (part.antenna1, part.antenna2))
        expected = UsedData(operator.weights).taken([(first * second.conj())[:, None, None]])
        log_amplitude, phase = gains.factors(xi)
        np.testing.assert_allclose(np.exp(log_amplitude + 1j * phase), expected, rtol=1e-12)

    def test_linked_segments_have_the_covariance_of_their_process(self, gains: Any) -> None:
        first = next(name for name in gains.names if "amplitude" in name).split("]")[0]
        own = [i for i, name in enumerate(gains.names) if name.startswith(first)]
        spread = np.asarray(gains._spread)
        covariance = (spread @ spread.T)[np.ix_(own, own)]
        hours = np.arange(len(own))
        # A Gauss-Markov process: sd 0.1, correlation exp(-dt / 2 h).
        expected = 0.1**2 * np.exp(-np.abs(hours[:, None] - hours) / 2.0)
        assert len(own) == 4
        np.testing.assert_allclose(covariance, expected, rtol=1e-6)

    def test_known_products_give_their_numbers(self, gains: Any, operator: ImageOperator) -> None:
        from biro.image_posterior.sampling.jax_operator import UsedData

        xi = 0.4 * np.random.default_rng(6).normal(size=gains.n)
        log_amplitude, phase = gains.factors(xi)
        products = UsedData(operator.weights).put(np.exp(np.asarray(log_amplitude) + 1j * np.asarray(phase)))
        again = gains.factors(gains.numbers(products))
        np.testing.assert_allclose(again[0], log_amplitude, atol=1e-9)
        np.testing.assert_allclose(np.exp(1j * (np.asarray(again[1]) - phase)), 1.0, atol=1e-9)

    def test_what_is_not_fitted_is_refused(
        self, observation: biro.Observation, operator: ImageOperator
    ) -> None:
        from biro.image_posterior.sampling.jax_operator import UsedData
        from biro.image_posterior.sampling.models.gain_model import GainModel

        used = UsedData(operator.weights)
        with pytest.raises(InputError, match="numbers are not applied"):
            GainModel(replace(NOTHING, gain=Gain(amplitude=1.1)), observation, used)
        fitted_sd = PerSegment(LogNormal(1.0), sd=HalfNormal(0.1))
        with pytest.raises(InputError, match="numbers for sd and correlation time"):
            GainModel(replace(NOTHING, gain=Gain(amplitude=fitted_sd)), observation, used)


class TestNoise:
    def test_variance_is_that_of_factor_and_fraction(
        self, observation: biro.Observation, operator: ImageOperator
    ) -> None:
        from biro.image_posterior.sampling.jax_operator import UsedData
        from biro.image_posterior.sampling.models.noise_model import NoiseModel

        used = UsedData(operator.weights)
        noise = Noise(factor=LogUniform(0.5, 2.0), systematic=0.1)
        model = NoiseModel(noise, observation.partition_views, used)
        mean = np.random.default_rng(1).normal(size=(2, used.n))
        # A number of 0 is the median of the prior, 1.
        expected = np.sqrt(1.0 + 0.1**2 * (mean**2).sum(axis=0))
        np.testing.assert_allclose(model.scale(np.zeros(model.n), mean), np.stack([expected] * 2), rtol=1e-12)
        assert model.names == ["noise.factor"]
        # A number of 1 is the quantile Phi(1) of the factor, which multiplies a systematic error that is a
        # number (physics: section 7), and not one that has a prior.
        factor = 0.5 * 4.0 ** stats.norm.cdf(1.0)
        found = model.scale(np.ones(1), mean)
        np.testing.assert_allclose(found, np.stack([factor * expected] * 2), rtol=1e-12)
        free = replace(noise, systematic=Uniform(0.0, 0.2))
        found = NoiseModel(free, observation.partition_views, used).scale(np.array([1.0, 0.0]), mean)
        apart = np.sqrt(factor**2 + 0.1**2 * (mean**2).sum(axis=0))
        np.testing.assert_allclose(found, np.stack([apart] * 2), rtol=1e-12)


def test_a_fit_of_pixels_has_the_flux_of_a_point_with_its_error(observation: biro.Observation) -> None:
    sky = SkyModel([PointSource("p", east="25 arcsec", north="0 arcsec", I="10 Jy")])
    (part,) = observation.partitions
    (model,) = predict(observation, sky, backend="cpu")
    data = replace(observation, partitions=(replace(part, vis=part.vis + model),))
    fitted = SkyModel(
        [], images=[ImagePrior("field", prior="pixels", size=N, cell=f"{CELL} rad")], noise=Noise(factor=1.0)
    )
    image = biro.fit_image(
        data, fitted, method="mgvi", n_samples=8, n_iterations=2, progress=False, backend="cpu"
    )
    assert image.samples.shape == (8, 1, N, N)
    assert image.samples.min() > 0.0
    flux = image.flux
    # 84 visibilities of noise 0.3 Jy: a known place alone would be good to 0.3 / sqrt(168) = 0.023 Jy.
    assert flux.error is not None
    assert 0.02 < flux.error < 1.0
    # All pixels of the prior are above 0, and the beam has hundreds of them: faint ones add some of the flux.
    assert abs(flux.flux - 10.0) < 1.0
    assert "NOT CONVERGED" in str(image)


def test_a_small_field_is_sampled_by_chains(observation: biro.Observation) -> None:
    sky = SkyModel([GaussianSource("g", east="25 arcsec", north="0 arcsec", I="10 Jy", fwhm="60 arcsec")])
    (part,) = observation.partitions
    (model,) = predict(observation, sky, backend="cpu")
    data = replace(observation, partitions=(replace(part, vis=part.vis + model),))
    flux = LogNormal(10.0, 0.3, "Jy")
    field = ImagePrior("field", prior="correlated-field", size=N, cell=f"{CELL} rad", flux=flux)
    fitted = SkyModel([], images=[field], noise=Noise(factor=1.0))
    image = biro.fit_image(data, fitted, n_steps=100, progress=False, backend="cpu")
    assert image.facts["method"] == "hmc"
    assert image.samples.shape == (160, 1, N, N)
    # Errors of chains are those of the posterior; 100 steps (160 samples) may be too few for them to agree.
    assert "APPROXIMATE" not in str(image)
    assert ("NOT CONVERGED" in str(image)) != image.facts["converged"]
    # 84 visibilities of noise 0.3 Jy: chi2/2N is good to 1/sqrt(84), and the image takes some of it.
    assert 0.6 < image.total_chi2 < 1.4
    found = image.flux
    assert found.error is not None
    assert abs(found.flux - 10.0) < 4.0 * found.error


def test_a_missing_package_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax_room, "find_spec", lambda name: None if name == "jaxbind" else object())
    with pytest.raises(
        InputError, match=r'need jaxbind, not installed here: pip install "biro-rime\[images\]"'
    ):
        jax_room.require_packages()


class TestRemarks:
    """What the result states of errors, by prior, method and number of samples."""

    @staticmethod
    def of(prior: str, method: str, n_samples: int, *, converged: bool = True) -> list[str]:
        from biro.image_posterior.sampled_result import _remarks
        from biro.image_posterior.sampling.draws import Draws

        sky: Any = SimpleNamespace(gains=())
        problem: Any = SimpleNamespace(prior=ImagePrior("x", prior=prior), options={}, sky=sky)
        draws = Draws(np.zeros(3), np.zeros((n_samples, 3)), converged=converged)
        return [line.split(":")[0] for line in _remarks(problem, draws, method)]

    def test_pixels_have_a_line_about_their_errors(self) -> None:
        assert self.of("pixels", "geovi", 16) == self.of("pixels", "mgvi", 16) == ["ERRORS TOO SMALL"]
        assert self.of("pixels", "map", 0) == []
        assert self.of("correlated-field", "geovi", 16) == ["APPROXIMATE ERRORS"]

    @pytest.mark.parametrize(("n_samples", "error"), [(2, 71), (4, 50), (6, 41), (8, None)])
    def test_few_samples_are_named_with_the_error_of_errors(self, n_samples: int, error: int | None) -> None:
        """The sd of n/2 normal draws about a known mean has the relative error 1/sqrt(n)."""
        from biro.image_posterior.sampled_result import _few_samples

        found = _few_samples(n_samples, n_samples / 2)
        assert bool(found) == (error is not None) == ("FEW SAMPLES" in self.of("pixels", "geovi", n_samples))
        if error is not None:
            assert f"errors from {n_samples} samples are themselves uncertain by {error} %" in found[0]

    def test_a_map_that_moves_has_no_errors_that_are_too_small(self) -> None:
        from biro.image_posterior import sampled_result

        assert self.of("correlated-field", "map", 0, converged=False) == ["NOT CONVERGED"]
        assert "error" not in sampled_result._MAP_MOVES
        assert "errors may be too small" in sampled_result._NOT_CONVERGED


def test_a_flux_that_its_prior_hardly_allows_is_named() -> None:
    from biro.image_posterior.sampled_result import _far_flux

    assert _far_flux(-3.9) == ()
    (line,) = _far_flux(-11.34)
    assert line.startswith("FLUX FAR FROM THE PRIOR: the flux of the image is 11 standard deviations")


def test_an_odd_number_of_samples_is_refused_for_pairs_alone() -> None:
    """Chains are the default of small images, so that the method decides when it is known."""
    from biro.image_posterior.sampled import _settings

    def settings(**options: Any) -> Any:
        return _settings(SimpleNamespace(options=options, seed=3))

    assert settings(n_samples=5).n_samples == settings(n_samples=5, method="hmc").n_samples == 5
    for refused in (
        lambda: settings(n_samples=5, method="geovi"),
        lambda: replace(settings(n_samples=5), method="mgvi"),
    ):
        with pytest.raises(InputError, match="variational samples are pairs; give an even number, found 5"):
            refused()
