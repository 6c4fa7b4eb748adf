"""Movies: visibilities of frames, their prior, refusals, and changes that are seen or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import biro
from biro.errors import InputError
from biro.image_posterior.field import ImageField
from biro.image_posterior.frames import FramesOperator, FrameTimes, choose_frames
from biro.image_posterior.operator import ImageOperator, with_data
from biro.image_posterior.results.movie import LightCurve
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
        assert choose_frames(observation, prior_of(frame="1 d")) is None


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
    def field(self) -> Any:
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
        single = {key: item for key, item in made.domain.items() if not key.startswith("time ") and key != "xi"}
        shapes = {key: np.zeros(item.shape) for key, item in single.items()} | {"xi": np.zeros((N, N))}
        _, unravel = ravel_pytree(shapes)
        still, (sd, slope), modes = np.split(xi, [len(_) + 1, len(_) + 3])
        given = unravel(still[1:])
        names = dict(zip(field._names, (sd, slope), strict=True))
        whole = {**given, **{f"time {key}": value for key, value in names.items()}}
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
