"""Movies: visibilities of frames, their prior, refusals, and changes that are seen or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import biro
from biro.cli.app import app
from biro.errors import InputError
from biro.image_posterior.field import ImageField
from biro.image_posterior.frames import FramesOperator, choose_frames
from biro.image_posterior.make_problem import image_problem
from biro.image_posterior.misfit import change_remark
from biro.image_posterior.operator import ImageOperator, with_data
from biro.image_posterior.results.result import ImagePosterior, read_result
from biro.models import AiryBeam, GaussianSource, ImageModel, ImagePrior, ModelError, PointSource, SkyModel
from biro.models.components.noise import Noise
from biro.models.quantities.prior import LogNormal
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
    from biro.image_posterior.sampling import jax_room

    with jax_room.double_precision():
        yield


@pytest.fixture(scope="module")
def observation() -> biro.Observation:
    """Stokes I of KAT-7 at six times, 21 visibilities each."""
    made = biro.simulate(
        "KAT-7",
        NOTHING,
        phase_centre="12h00m00s -40d00m00s",
        times=Track("2026-03-01T20:00", 6 * 1800.0, 1800.0),
        channels=Channels(1.4e9, 1e6),
        noise=NOISE,
        seed=1,
        progress=False,
    )
    parts, _ = form_stokes(made.partitions, PSEUDO_I)
    return replace(made, partitions=tuple(parts))


def prior_of(**options: Any) -> ImagePrior:
    return ImagePrior("x", prior="correlated-field", **options)


@pytest.fixture(scope="module")
def operator(observation: biro.Observation) -> FramesOperator:
    """Three frames of two times."""
    times = choose_frames(observation, prior_of(frames=3))
    assert times is not None
    field = ImageField(N, CELL, observation.partitions[0].phase_centre)
    return FramesOperator(observation, field, times, accuracy=1e-7, backend="cpu")


def explicit(observation: biro.Observation, field: ImageField) -> np.ndarray:
    """R as a matrix (n_row, N^2), complex, from physics: section 2."""
    (part,) = observation.partitions
    l, m = (a.ravel() for a in np.meshgrid(-field.axis, field.axis))
    n_minus_1 = np.sqrt(1.0 - l**2 - m**2) - 1.0
    return np.exp(2j * np.pi * (part.uvw @ np.stack([l, m, n_minus_1])) * part.chan_freq[0] / 299792458.0)


class TestFrames:
    def test_they_have_equal_length_and_cover_all_integrations(self, observation: biro.Observation) -> None:
        times = choose_frames(observation, prior_of(frames=3))
        assert times is not None
        (part,) = observation.partitions
        # Six integrations of 1800 s, from half of one before the first time.
        start = part.time.min() - 900.0
        np.testing.assert_allclose(times.edges, start + 3600.0 * np.arange(4), rtol=0, atol=1e-3)
        np.testing.assert_array_equal(times.rows[0], part.time_index // 2)
        np.testing.assert_array_equal(times.counts, [42, 42, 42])
        assert times.line.startswith("3 frames of 1 h from ")

    def test_a_length_makes_as_many_as_are_needed(self, observation: biro.Observation) -> None:
        times = choose_frames(observation, prior_of(frame="40 min"))
        assert times is not None
        # 3 h are four and a half of them.
        assert times.n == 5
        np.testing.assert_allclose(np.diff(times.edges), 2400.0, atol=1e-3)

    def test_frames_without_data_are_counted(self, observation: biro.Observation) -> None:
        (part,) = observation.partitions
        weight = np.where((part.time_index // 2 == 1)[:, None, None], 0.0, part.weight)
        given = replace(observation, partitions=(replace(part, weight=weight),))
        times = choose_frames(given, prior_of(frames=3))
        assert times is not None
        np.testing.assert_array_equal(times.counts, [42, 0, 42])
        assert "1 without data follows from the others" in times.line

    def test_too_many_are_refused(self, observation: biro.Observation) -> None:
        with pytest.raises(InputError, match="7 frames, and the data have 6 times; give at most 6"):
            choose_frames(observation, prior_of(frames=7))
        (part,) = observation.partitions
        one = replace(observation, partitions=(part.some(np.flatnonzero(part.time_index == 0), slice(None)),))
        with pytest.raises(InputError, match="frames: the data have one time"):
            choose_frames(one, prior_of(frames=2))

    def test_one_frame_is_a_constant_image(self, observation: biro.Observation) -> None:
        assert choose_frames(observation, prior_of(frames=1)) is None
        prior = prior_of(frame="1 d", size=N, cell=f"{CELL} rad")
        assert choose_frames(observation, prior) is None
        problem = image_problem(observation, SkyModel([], images=[prior]), prior, "cpu", None)
        assert problem.planes is None
        assert "one frame has all times: the image is constant" in problem.operator.field.chosen


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frames": 0}, "frames: an integer from 1 on"),
        ({"frames": 2.5}, "frames: an integer from 1 on"),
        ({"frame": "-3 min"}, "frame: expected a time above 0"),
        ({"frames": 2, "frame": "3 min"}, "leave one out"),
        ({"frames": 2, "stokes": "IQU"}, "frames need Stokes I without a spectrum"),
        ({"frames": 2, "spectral_index": -0.7}, "frames need Stokes I without a spectrum"),
    ],
)
def test_models_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        prior_of(**options)


@pytest.mark.parametrize("prior", ["smooth", "pixels"])
def test_other_priors_have_no_frames(prior: str) -> None:
    with pytest.raises(ModelError, match='frames: needs prior = "correlated-field"'):
        ImagePrior("x", prior=prior, frames=2)


def test_beams_are_refused(observation: biro.Observation) -> None:
    sky = SkyModel([], images=[prior_of(frames=2)], beam=AiryBeam(diameter="12 m"))
    with pytest.raises(InputError, match=r"frames need one pointing without \[beam\]"):
        biro.fit_image(observation, sky)


class TestOperator:
    def test_each_row_is_of_the_image_of_its_frame(self, operator: FramesOperator) -> None:
        images = np.random.default_rng(1).uniform(size=(3, 1, N, N))
        (found,) = operator.predict(images)
        matrix = explicit(operator.observation, operator.field)
        frame = operator.observation.partitions[0].time_index // 2
        expected = np.array([row @ images[f].ravel() for row, f in zip(matrix, frame, strict=True)])
        # The gridder's accuracy was asked for as 1e-7 of the 2-norm of each source.
        scale = np.linalg.norm(images)
        np.testing.assert_allclose(found[:, 0, 0], expected, rtol=0, atol=1e-6 * scale)

    def test_it_equals_the_prediction_of_each_image(self, operator: FramesOperator) -> None:
        images = np.random.default_rng(2).uniform(size=(3, 1, N, N))
        observation, field = operator.observation, operator.field
        (found,) = operator.predict(images)
        part = observation.partitions[0]
        for frame, image in enumerate(images):
            model = ImageModel(image[:, None], field.cell, field.centre)
            rows = np.flatnonzero(part.time_index // 2 == frame)
            some = replace(observation, partitions=(part.some(rows, slice(None)),))
            (expected,) = predict(some, None, image=model, backend="cpu", accuracy=1e-7)
            np.testing.assert_allclose(found[rows], expected, rtol=0, atol=1e-9 * np.abs(expected).max())

    def test_the_adjoint_has_the_same_inner_product(self, operator: FramesOperator) -> None:
        rng = np.random.default_rng(3)
        images, shape = rng.normal(size=(3, 1, N, N)), operator.data[0].shape
        vis = rng.normal(size=shape) + 1j * rng.normal(size=shape)
        (made,) = operator.predict(images)
        back = operator.adjoint([vis])
        assert np.vdot(back, images) == pytest.approx(np.vdot(vis, made).real, rel=1e-11)
        weighted = operator.adjoint([vis], weighted=True)
        product = (operator.weights[0] * np.conj(vis) * made).sum().real
        assert np.vdot(weighted, images) == pytest.approx(product, rel=1e-11)

    def test_equal_frames_are_the_constant_image(self, operator: FramesOperator) -> None:
        static = ImageOperator(operator.observation, operator.field, accuracy=1e-7, backend="cpu")
        image = np.random.default_rng(4).uniform(size=(1, N, N))
        (found,), (expected,) = operator.predict(np.stack([image] * 3)), static.predict(image)
        # Both gridders have this accuracy.
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.linalg.norm(image))
        assert operator.chi2_of_frames([found]).sum() == pytest.approx(sum(operator.chi2([found])), rel=1e-12)
        # Images of residuals are of all frames together.
        dirty = operator.dirty(operator.data)
        np.testing.assert_allclose(dirty, static.dirty(static.data), atol=1e-6 * np.abs(dirty).max())

    def test_wrong_shapes_are_refused(self, operator: FramesOperator) -> None:
        with pytest.raises(InputError, match=r"\(3, n_stokes, 16, 16\), got \(2, 1, 16, 16\)"):
            operator.predict(np.zeros((2, 1, N, N)))


class TestPrior:
    """The field of three frames of 16 x 16 pixels, of 1 Jy."""

    @pytest.fixture(scope="class")
    @classmethod
    def field(cls) -> Any:
        from biro.image_posterior.sampling.jax_room import double_precision
        from biro.image_posterior.sampling.movie_prior import MovieField
        from biro.image_posterior.sampling.sky_priors import CorrelatedField

        with double_precision():
            return MovieField(CorrelatedField(N, 1.0), N, 3)

    def test_it_is_the_correlated_field_of_two_domains(self, field: Any) -> None:
        """The maker of nifty of time x space is the oracle."""
        import nifty.re as jft
        from jax.flatten_util import ravel_pytree

        from biro.image_posterior.sampling.movie_prior import CHANGE, SLOPE
        from biro.image_posterior.sampling.sky_priors import FieldNumbers

        numbers, maker = FieldNumbers(), jft.CorrelatedFieldMaker("")
        maker.set_amplitude_total_offset(0.0, lambda _: 1.0)
        options: dict[str, Any] = {"non_parametric_kind": "power"}
        maker.add_fluctuations(
            6, 1.0 / 6.0, fluctuations=CHANGE, loglogavgslope=SLOPE, prefix="time ", **options
        )
        maker.add_fluctuations(
            (N, N), 1.0 / N, fluctuations=numbers.fluctuations, loglogavgslope=numbers.slope,
            flexibility=numbers.flexibility, **options,
        )  # fmt: skip
        made = maker.finalize()
        xi = np.random.default_rng(1).normal(size=field.n)
        # s has a number of the flux, and then what nifty gives one field of space, by name.
        shapes = {key: np.zeros(v.shape) for key, v in made.domain.items() if not key.startswith("time ")}
        flat, unravel = ravel_pytree(shapes | {"xi": np.zeros((N, N))})
        still, hyper, modes = np.split(xi, [len(flat) + 1, len(flat) + 3])
        given = unravel(still[1:])
        whole = {**given, **{f"time {key}": v for key, v in zip(field._names, hyper, strict=True)}}
        whole["xi"] = np.concatenate([np.asarray(given["xi"])[None], modes.reshape(5, N, N)])
        log_image = np.asarray(made(whole))[:3]
        image = np.exp(log_image)
        expected = image / image.sum(axis=(1, 2)).mean() * np.exp(0.7 * still[0])
        np.testing.assert_allclose(field.image(xi), expected, rtol=1e-9)

    def test_its_flux_is_the_mean_of_the_frames(self, field: Any) -> None:
        xi = np.random.default_rng(2).normal(size=field.n)
        image = np.asarray(field.image(xi))
        # sd of ln F is 0.7, and the flux is that of all frames together.
        assert image.sum(axis=(1, 2)).mean() == pytest.approx(np.exp(0.7 * xi[0]), rel=1e-10)
        np.testing.assert_allclose(field.planes(xi)[0], image.mean(axis=0), rtol=1e-12)

    def test_without_changes_it_is_the_field_of_a_constant_image(self, field: Any) -> None:
        from biro.image_posterior.sampling.sky_priors import CorrelatedField

        still = CorrelatedField(N, 1.0)
        xi = np.random.default_rng(3).normal(size=field.n)
        xi[still.n + 2 :] = 0.0
        expected = np.asarray(still.image(xi[: still.n]))
        np.testing.assert_allclose(field.image(xi), np.stack([expected] * 3), rtol=1e-10)
        start = field.numbers(expected)
        np.testing.assert_allclose(field.image(start), np.stack([still.image(still.numbers(expected))] * 3))

    def test_log_scale_is_what_numbers_are_multiplied_by(self, field: Any) -> None:
        """A change of the spectrum at a fixed image divides numbers by the change of this scale."""
        rng = np.random.default_rng(4)
        xi, moved = rng.normal(size=field.n), rng.normal(size=field.n)
        other = np.where(field.is_hyper, moved, xi)
        scaled = other * np.exp(np.asarray(field.log_scale(xi)) - np.asarray(field.log_scale(other)))
        np.testing.assert_allclose(field.image(scaled), field.image(xi), rtol=1e-8)

    def test_changes_have_the_variance_of_the_spectrum(self, field: Any) -> None:
        import jax

        rng = np.random.default_rng(5)
        at = rng.normal(size=(4000, field.n))
        at[:, field.is_hyper] = 0.0
        mean = np.asarray(jax.lax.map(lambda xi: field.change(xi).mean(axis=(1, 2)), at))
        sd = float(field.time_numbers(at[0])[0])
        # Log-normal with mean 0.3 and sd 0.6: its median is 0.3 / sqrt(1 + 4). Of 4000 fields the sd has an
        # error of 1.1 %.
        assert sd == pytest.approx(0.3 / np.sqrt(5.0), rel=1e-9)
        np.testing.assert_allclose(mean.std(axis=0), sd, rtol=0.05)


class LinearPrior:
    """Gaussian pixels of mean 1, with exponential correlation in space and time: the posterior is known."""

    lines = ()

    def __init__(self, n_frame: int, n: int) -> None:
        y, x = (a.ravel() for a in np.indices((n, n)))
        apart = np.hypot(y[:, None] - y, x[:, None] - x)
        frames = np.arange(n_frame)
        of_time = np.exp(-np.abs(frames[:, None] - frames) / 2.0)
        self.covariance = 0.25 * np.kron(of_time, np.exp(-apart / 3.0))
        self.root, self.n = np.linalg.cholesky(self.covariance), len(self.covariance)
        self.is_hyper, self._shape = np.zeros(self.n, bool), (n_frame, n, n)

    def image(self, xi: Any) -> Any:
        return 1.0 + (self.root @ xi).reshape(self._shape)

    def spectrum(self, xi: Any) -> None:
        return None


def test_samples_of_a_linear_prior_are_those_of_a_wiener_filter(observation: biro.Observation) -> None:
    from biro.image_posterior.sampling.draws import Settings
    from biro.image_posterior.sampling.models.visibility_model import VisibilityModel
    from biro.image_posterior.sampling.variational import sample

    rng, n, (part,) = np.random.default_rng(6), 8, observation.partitions
    # The middle frame has no data, and follows from the others.
    weight = np.where((part.time_index // 2 == 1)[:, None, None], 0.0, part.weight)
    observation = replace(observation, partitions=(replace(part, weight=weight),))
    times = choose_frames(observation, prior_of(frames=3))
    assert times is not None
    field = ImageField(n, CELL, part.phase_centre)
    made = FramesOperator(observation, field, times, accuracy=1e-7, backend="cpu")
    matrix = np.zeros((len(part.time), 3, n * n), complex)
    matrix[np.arange(len(part.time)), part.time_index // 2] = explicit(observation, field)
    used = weight[:, 0, 0] > 0.0
    prior = LinearPrior(3, n)
    truth = np.asarray(prior.image(rng.normal(size=prior.n))).ravel()
    whole = matrix.reshape(len(matrix), -1)
    vis = whole @ truth + NOISE * (rng.normal(size=len(whole)) + 1j * rng.normal(size=len(whole)))
    rows, data = (np.concatenate([a[used].real, a[used].imag]) for a in (whole, vis))
    gain = prior.covariance @ rows.T
    gain = gain @ np.linalg.inv(rows @ gain + NOISE**2 * np.eye(len(rows)))
    mean = 1.0 + gain @ (data - rows.sum(axis=1))
    covariance = prior.covariance - gain @ rows @ prior.covariance
    with_sky = with_data(made, [vis[:, None, None]], [np.where(weight > 0.0, NOISE**-2, 0.0)])
    model = VisibilityModel(with_sky, prior)
    settings = Settings(method="mgvi", n_samples=60, n_iterations=2, n_pairs=2, seed=3)
    draws = sample(model, np.zeros(prior.n), settings)
    images = np.array([prior.image(xi) for xi in draws.samples]).reshape(60, -1)
    sd = np.sqrt(np.diag(covariance))
    # The middle frame is less certain than the others: correlation 0.61 with each of them.
    fluxes = np.sqrt(np.einsum("fifj->f", covariance.reshape(3, n * n, 3, n * n)))
    assert fluxes[1] > 1.5 * fluxes[[0, 2]].max()
    # Samples are pairs about the mean, which conjugate gradients find to a small part of the errors.
    assert np.abs(images.mean(axis=0) - mean).max() < 0.1 * sd.max()
    # 30 independent pairs of each of three fluxes: their sd is good to 1 / sqrt(60) = 13 %, three times that.
    found = images.reshape(60, 3, -1).sum(axis=2).std(axis=0)
    np.testing.assert_allclose(found, fluxes, rtol=0.4)


class TestSignificance:
    """Changes of samples about a mean change, in visibilities that a frame alone determines."""

    @staticmethod
    def found(operator: FramesOperator, strength: float, n_sample: int = 64) -> float | None:
        from biro.image_posterior.sampling.movie_result import significance

        rng = np.random.default_rng(8)
        shape = (3, 1, N, N)
        # Posterior of a flat prior in a few modes: m = truth + noise, samples have the noise again.
        (root,) = [np.sqrt(weight) for weight in operator.weights]
        modes = rng.normal(size=(12, *shape))
        modes -= modes.mean(axis=1, keepdims=True)
        rows = np.stack([(operator.predict(mode)[0] * root).ravel() for mode in modes])
        seen = np.concatenate([rows.real, rows.imag], axis=1)
        covariance = np.linalg.inv(seen @ seen.T)
        draw = np.linalg.cholesky(covariance)
        change = strength * np.sqrt(np.diag(covariance)) + draw @ rng.normal(size=12)
        samples = change + rng.normal(size=(n_sample, 12)) @ draw.T
        return significance(operator, 1.0 + np.tensordot(samples, modes, axes=1)[:, :, 0])

    def test_it_is_small_for_a_constant_source(self, operator: FramesOperator) -> None:
        # Of 12 modes z = (chi2 of 12 degrees - 12) / sqrt(24): within 3 but for a probability of 1 %.
        found = self.found(operator, 0.0)
        assert found is not None
        assert abs(found) < 3.0

    def test_it_is_large_for_one_that_changes(self, operator: FramesOperator) -> None:
        found = self.found(operator, 10.0)
        assert found is not None
        assert found > 10.0
        assert self.found(operator, 10.0, n_sample=2) is None


def test_a_fit_follows_a_source_that_fades(observation: biro.Observation) -> None:
    source = SkyModel([GaussianSource("g", east="0 arcsec", north="0 arcsec", I="10 Jy", fwhm="60 arcsec")])
    (part,) = observation.partitions
    (model,) = predict(observation, source, backend="cpu")
    faded = np.array([1.0, 0.8, 0.6])[part.time_index // 2][:, None, None] * model
    data = replace(observation, partitions=(replace(part, vis=part.vis + faded),))
    prior = prior_of(frames=3, size=N, cell=f"{CELL} rad", flux=LogNormal(8.0, 0.3, "Jy"))
    fitted = SkyModel([], images=[prior], noise=Noise(factor=1.0))
    image = biro.fit_image(data, fitted, method="map", n_iterations=1, progress=False, backend="cpu")
    # 42 visibilities of noise 0.3 Jy in each frame: 0.033 Jy for a source of known shape.
    np.testing.assert_allclose(image.movie.flux.flux, [10.0, 8.0, 6.0], atol=0.3)
    assert image.samples.shape == (1, 1, N, N)
    np.testing.assert_allclose(image.mean[0], image.movie.mean.mean(axis=0), rtol=1e-12)
    chi2 = image.arrays["frame_chi2"]
    assert chi2.sum() == pytest.approx(sum(image.chi2), rel=1e-9)
    # 84 real numbers in each frame, of which the image takes some: sd 0.15.
    assert np.all(image.movie.reduced_chi2 < 1.5)


class TestChangeRemark:
    """Residuals of 252 visibilities at twelve times, a constant image taken out."""

    @pytest.fixture(scope="class")
    @classmethod
    def static(cls) -> ImageOperator:
        made = biro.simulate(
            "KAT-7", NOTHING, phase_centre="12h00m00s -40d00m00s",
            times=Track("2026-03-01T20:00", 12 * 900.0, 900.0), channels=Channels(1.4e9, 1e6), noise=NOISE,
            seed=1, progress=False,
        )  # fmt: skip
        parts, _ = form_stokes(made.partitions, PSEUDO_I)
        whole = replace(made, partitions=tuple(parts))
        field = ImageField(N, CELL, whole.partitions[0].phase_centre)
        return ImageOperator(whole, field, backend="cpu")

    def test_a_point_that_fades_is_named(self, static: ImageOperator) -> None:
        (part,), image = static.observation.partitions, np.zeros((1, N, N))
        image[0, 10, 5] = 1.0
        (point,) = static.predict(image)
        # The constant image has the mean of a flux that falls from 3 to 1 Jy.
        fading = point * np.linspace(1.0, -1.0, 12)[part.time_index][:, None, None]
        found = change_remark(static, [fading + part.vis])
        assert found == (
            "Residuals differ from one part of the time to another: the source changes (give frames = 4), or "
            "gains do"
        )

    @pytest.mark.parametrize(
        ("options", "pointings", "remedy"),
        [
            ({"prior": "correlated-field"}, [(0.0, 0.0)], "(give frames = 4)"),
            ({"prior": "smooth"}, [(0.0, 0.0)], '(give prior = "correlated-field" and frames = 4)'),
            ({"prior": "correlated-field", "stokes": "IQU"}, [(0.0, 0.0)], "(select a shorter time"),
            ({"prior": "correlated-field"}, [(0.0, 0.0), (0.1, 0.0)], None),
        ],
    )
    def test_the_remedy_is_one_that_the_image_has(
        self, static: ImageOperator, options: dict[str, Any], pointings: list[Any], remedy: str | None
    ) -> None:
        from biro.image_posterior.misfit import _changes

        (part,) = static.observation.partitions
        prior = ImagePrior("x", **options)
        problem: Any = SimpleNamespace(closures=False, pointings=pointings, prior=prior, free=None)
        image = np.zeros((1, N, N))
        image[0, 10, 5] = 1.0
        fading = static.predict(image)[0] * np.linspace(1.0, -1.0, 12)[part.time_index][:, None, None]
        found = _changes(problem, static, [fading + part.vis], 1.0)
        assert found is None if remedy is None else remedy in str(found)

    def test_noise_and_what_is_there_all_the_time_are_not(self, static: ImageOperator) -> None:
        (part,) = static.observation.partitions
        assert change_remark(static, [part.vis]) is None
        rng = np.random.default_rng(1)
        # Noise five times too large, and a source that all times have in common.
        assert change_remark(static, [5.0 * part.vis]) is None
        (same,) = static.predict(rng.uniform(size=(1, N, N)) / N**2)
        assert change_remark(static, [10.0 * same + part.vis]) is None


def test_the_result_states_whether_changes_are_seen(operator: FramesOperator) -> None:
    from biro.image_posterior.sampling.movie_prior import MovieField
    from biro.image_posterior.sampling.movie_result import movie_of
    from biro.image_posterior.sampling.sky_priors import CorrelatedField

    prior, rng = MovieField(CorrelatedField(N, 10.0), N, 3), np.random.default_rng(10)
    model: Any = SimpleNamespace(prior=prior, at=SimpleNamespace(sky=slice(0, prior.n)))
    problem: Any = SimpleNamespace(operator=operator)
    states = np.tile(0.3 * rng.normal(size=prior.n), (32, 1))
    # Sixteen pairs of samples whose changes are as large as the prior has them, in all directions alike.
    apart = np.repeat(rng.normal(size=(16, prior.n - prior.still.n)), 2, axis=0)
    apart[1::2] *= -1.0
    states[:, prior.still.n :] = apart
    found = movie_of(problem, model, states)
    (none,) = found.remarks
    assert none.startswith("NO CHANGE SEEN: the frames differ by no more than their errors (")
    # Samples that all have one change, and a tenth of the prior about it.
    states[:, prior.still.n :] = apart[0] + 0.1 * apart
    found = movie_of(problem, model, states)
    assert found.remarks == ()
    assert found.facts["change"]["significance"] > 3.0
    assert found.arrays["frames"].shape == (32, 3, N, N)


@pytest.mark.parametrize("error", [ValueError, RuntimeError])
def test_samples_that_leave_the_range_of_numbers_end_in_a_line(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    from biro.image_posterior import sampled
    from biro.image_posterior.sampling import variational
    from biro.image_posterior.sampling.draws import Settings

    def fails(*_: Any, **__: Any) -> None:
        raise error("energy is Nan")  # as nifty does, and what JAX makes of it in compiled code

    monkeypatch.setattr(variational, "sample", fails)
    settings, problem = Settings(method="geovi"), SimpleNamespace(run_dir=None, single_dish=None)
    with pytest.raises(biro.BiroError, match=r'method = "geovi": samples left the range .* \(n_pairs\)'):
        sampled._sampled(problem, SimpleNamespace(), settings, np.zeros(1))  # type: ignore[arg-type]


@pytest.fixture
def image(observation: biro.Observation, operator: FramesOperator) -> ImagePosterior:
    """A result with three frames, whose flux falls from 3 to 1 Jy with errors of 0.1 Jy."""
    rng = np.random.default_rng(9)
    flux = np.array([3.0, 2.0, 1.0]) + 0.1 * rng.normal(size=(40, 3))
    shape = np.exp(-0.5 * (operator.field.axis[:, None] ** 2 + operator.field.axis**2) / (3.0 * CELL) ** 2)
    frames = flux[:, :, None, None] * shape / shape.sum()
    times = operator.times
    arrays = {"frames": frames, "frame_edges": times.edges, "frame_n_data": np.array([42, 0, 42])}
    arrays["frame_chi2"] = np.array([84.0, 0.0, 168.0])
    change = {"sd_in_time": {"mean": 0.5, "sd": 0.1}, "significance": 12.0}
    about = dict.fromkeys(("freq_frame", "field", "telescope", "origin"), "x")
    about |= {"freq": 1.4e9, "bandwidth": 1e6, "date": "2026-03-01T20:00:00"}
    return ImagePosterior(
        "x", "correlated-field", operator.field, frames.mean(axis=1)[:, None], False, ("a",), (168.0,), (84,),
        1.0, np.zeros((1, N, N)), None, about, facts={"change": change}, arrays=arrays,
    )  # fmt: skip


class TestResult:
    def test_light_curves_have_errors_and_chi2(self, image: ImagePosterior) -> None:
        curve = image.movie.flux
        # Means of 40 samples of sd 0.1.
        np.testing.assert_allclose(curve.flux, [3.0, 2.0, 1.0], atol=4 * 0.1 / np.sqrt(40))
        assert curve.error is not None
        np.testing.assert_allclose(curve.error, 0.1, rtol=0.4)
        np.testing.assert_allclose(curve.reduced_chi2, [1.0, np.nan, 2.0])
        half = image.movie.region("image; box(4.5, 8.5, 8, 16, 0)")
        # The first eight columns of a Gaussian of sd 3 pixels about the ninth.
        columns = np.exp(-0.5 * (np.arange(-8, 8) / 3.0) ** 2)
        np.testing.assert_allclose(half.flux / curve.flux, columns[:8].sum() / columns.sum(), rtol=1e-9)
        text = str(image)
        assert "sd in time    0.5 +- 0.1 of the mean of ln I; changes have a significance of 12 " in text
        assert "2026-03-01T20" in text
        assert half.to_dict()["reduced_chi2"] == [1.0, None, 2.0]

    def test_files_have_times_of_frames(self, image: ImagePosterior, tmp_path: Path) -> None:
        from astropy.io import fits
        from astropy.time import Time
        from astropy.wcs import WCS
        from PIL import Image

        image.save(tmp_path / "run")
        with fits.open(tmp_path / "run" / "frames.fits") as hdus:
            header, cube = hdus[0].header, hdus[0].data
        np.testing.assert_allclose(cube[:, 0, 0], image.movie.mean, rtol=1e-6)
        # astropy reads the axis of time as the standard has it.
        axis = WCS(header).sub([5])
        found = axis.pixel_to_world(np.arange(3))
        assert isinstance(found, Time)
        # MJD as float64 is good to a microsecond.
        np.testing.assert_allclose(found.mjd, image.movie.time, rtol=0, atol=2e-11)
        assert found.scale == "utc"
        table = np.genfromtxt(tmp_path / "run" / "light_curve.csv", delimiter=",", names=True)
        np.testing.assert_allclose(table["flux_jy"], image.movie.flux.flux, rtol=1e-8)
        with Image.open(tmp_path / "run" / "movie.gif") as animation:
            assert animation.n_frames == 3
        pictures = [tmp_path / "run" / name for name in ("movie.png", "light_curve.png", "movie.gif")]
        for path in pictures:
            path.unlink()
        assert CliRunner().invoke(app, ["plot", str(tmp_path / "run")]).exit_code == 0
        assert all(path.stat().st_size > 1000 for path in pictures)
        again = read_result(tmp_path / "run")
        np.testing.assert_array_equal(again.movie.samples, image.movie.samples)
        assert str(again) == str(image)
        shown = CliRunner().invoke(app, ["region", str(tmp_path / "run"), "image; box(4.5, 8.5, 8, 16, 0)"])
        # The flux of the region in all frames together, and then its light curve.
        assert shown.exit_code == 0
        assert [line.split()[-2][:2] for line in shown.output.splitlines() if "2026-03-01T" in line] == [
            "1.", "0.", "0."
        ]  # fmt: skip

    def test_a_constant_image_has_none(self, image: ImagePosterior) -> None:
        with pytest.raises(InputError, match="image 'x' is constant; fit it with frames = 4"):
            _ = replace(image, arrays={}).movie
