"""Rings of images, and what closures need to show them: an envelope, and phases on the circle.

Oracles are closed forms: a thin ring blurred by a Gaussian, a Gaussian envelope.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import ive

from biro.errors import InputError
from biro.image_posterior.field import ImageField
from biro.image_posterior.problem import ImageProblem
from biro.image_posterior.results.ring import ring_of
from biro.models import ImagePrior, PointSource, SkyModel
from biro.models.errors import ModelError
from biro.models.quantities.prior import LogNormal, Uniform

N, UAS = 48, np.pi / 180.0 / 3600e6
FIELD = ImageField(N, 2.5 * UAS, (0.0, 0.0))


def grid(east: float, north: float) -> tuple[np.ndarray, np.ndarray]:
    """Radius (uas) and position angle of all pixels about a point."""
    l, m = np.meshgrid(-FIELD.axis / UAS - east, FIELD.axis / UAS - north)
    return np.hypot(l, m), np.arctan2(l, m)


def ring(radius: np.ndarray, diameter: float, blur: float) -> np.ndarray:
    """A thin ring convolved with a Gaussian of this FWHM: exp(-(r^2 + R^2) / 2 s^2) I0(r R / s^2)."""
    s, r0 = blur / np.sqrt(8.0 * np.log(2.0)), 0.5 * diameter
    return np.asarray(np.exp(-0.5 * ((radius - r0) / s) ** 2) * ive(0, radius * r0 / s**2))


def blob(east: float, north: float, fwhm: float) -> np.ndarray:
    return np.asarray(np.exp(-4.0 * np.log(2.0) * (grid(east, north)[0] / fwhm) ** 2))


BRIDGE = ring(grid(0.0, 0.0)[0], 42.0, 10.0)


class TestRing:
    def test_a_blurred_ring_has_the_diameter_and_width_of_its_profile(self) -> None:
        fine = np.linspace(0.0, 60.0, 60001)
        profile = ring(fine, 42.0, 15.0)
        inside = fine[profile > 0.5 * profile.max()]
        radius, angle = grid(6.0, -4.0)
        image = ring(radius, 42.0, 15.0)
        bright_south = image * (1.0 - 0.5 * np.cos(angle))
        found = ring_of(np.stack([image, bright_south]), FIELD, 0.0)
        assert found.is_ring.all()
        # Pixels of 2.5 uas and cubic splines: errors of a hundredth of a pixel and less; the centre of a ring
        # with a bright side moves by up to the finest step of the search, a quarter of a pixel.
        np.testing.assert_allclose(found.diameter / UAS, 2.0 * fine[profile.argmax()], atol=0.4)
        np.testing.assert_allclose(found.width / UAS, inside[-1] - inside[0], atol=0.2)
        np.testing.assert_allclose(found.east / UAS, 6.0, atol=1.3)
        np.testing.assert_allclose(found.north / UAS, -4.0, atol=1.3)
        assert found.depth[0] == pytest.approx(profile[0] / profile.max(), abs=0.01)
        # Convolved, it is the ring with both blurs in quadrature.
        wider = ring(fine, 42.0, np.hypot(15.0, 10.0))
        blurred = ring_of(image[None], FIELD, 10.0 * UAS, is_map=True)
        assert blurred.diameter[0] / UAS == pytest.approx(2.0 * fine[wider.argmax()], abs=0.3)
        assert "convolved to 10 uas" in str(blurred)

    @pytest.mark.parametrize(
        "image",
        [
            blob(0.0, 0.0, 45.0),
            blob(18.0, 10.0, 20.0) + 0.7 * blob(-18.0, -12.0, 20.0),
            blob(21.0, 0.0, 14.0) + blob(-21.0, 0.0, 14.0) + 0.05 * BRIDGE / BRIDGE.max(),
        ],
        ids=["blob", "double", "double with a faint bridge"],
    )
    def test_a_blob_and_a_double_have_none(self, image: np.ndarray) -> None:
        found = ring_of(image[None], FIELD, 5.0 * UAS, is_map=True)
        assert not found.is_ring.any()
        assert str(found).startswith("NO RING")

    def test_errors_are_those_of_the_samples(self) -> None:
        radius, _ = grid(0.0, 0.0)
        diameters = np.array([38.0, 40.0, 42.0, 44.0])
        samples = np.stack([ring(radius, d, 12.0) for d in diameters])
        found = ring_of(samples, FIELD, 0.0)
        # The peak of a blurred ring lies inside of it by about s^2 / R, alike for all of these.
        assert np.diff(found.diameter / UAS) == pytest.approx(2.0, abs=0.15)
        assert "4 of 4 samples have a ring" in str(found)
        some = ring_of(np.concatenate([samples[:2], [blob(0.0, 0.0, 40.0)] * 2]), FIELD, 0.0)
        assert str(some).startswith("NOT CERTAINLY A RING: 2 of 4 samples")
        with pytest.raises(InputError, match="without positive brightness"):
            ring_of(0.0 * samples, FIELD, 0.0)


class TestEnvelope:
    def test_without_structure_the_image_is_the_gaussian(self) -> None:
        pytest.importorskip("nifty.re", reason="needs the extra images")
        import jax

        from biro.image_posterior.sampling.jax_room import double_precision
        from biro.image_posterior.sampling.sky_priors import CorrelatedField, Envelope

        n = 16  # what is compiled takes as long for any size
        radius = np.hypot(*(np.indices((n, n)) - n // 2))
        with double_precision(False):
            fitted = CorrelatedField(n, 2.0, 0.1, envelope=Envelope(12.0, 0.3))
            known = CorrelatedField(n, 2.0, 0.1, envelope=Envelope(12.0))
            assert fitted.n == known.n + 1
            wide = np.zeros(fitted.n)
            wide[-1] = 2.0
            for prior, width, xi in ((known, 12.0, np.zeros(known.n)), (fitted, 12.0 * np.exp(0.6), wide)):
                expected = 0.5 ** (4.0 * (radius / width) ** 2)
                image = np.asarray(jax.jit(prior.image)(xi))
                np.testing.assert_allclose(image, 2.0 * expected / expected.sum(), rtol=1e-10)
            # The numbers of an image give that image, where none is cut at 3.
            make = jax.jit(fitted.image)
            image = np.asarray(make(0.1 * np.random.default_rng(1).normal(size=fitted.n)))
            again = np.asarray(make(fitted.numbers(image)))
            bright = image > 0.1 * image.max()
            np.testing.assert_allclose(again[bright], image[bright], rtol=0.05)

    @pytest.mark.parametrize("envelope", ["0 uas", Uniform(1.0, 2.0, "uas"), "2 Jy"])
    def test_what_is_no_width_is_refused(self, envelope: Any) -> None:
        with pytest.raises(ModelError, match="envelope"):
            ImagePrior("x", prior="correlated-field", envelope=envelope)
        with pytest.raises(ModelError, match="envelope: needs prior"):
            ImagePrior("x", prior="smooth", envelope="3 uas")

    def test_closures_alone_have_one_by_default(self) -> None:
        pytest.importorskip("nifty.re", reason="needs the extra images")
        from biro.image_posterior.sampled_model import sky_prior
        from biro.image_posterior.sampling.closure_fit import closure_remark
        from biro.image_posterior.sampling.envelope import envelope_of

        def of(closures: bool, sources: list[PointSource], **given: Any) -> Any:
            prior = ImagePrior("x", prior="correlated-field", flux="1 Jy", **given)
            operator: Any = SimpleNamespace(field=FIELD)
            none: Any = None
            sky = SkyModel(sources, images=[prior])
            return ImageProblem(none, operator, [], prior, sky, 1.0, 1, True, closures=closures)

        point = PointSource("core", east="0 uas", north="0 uas", I="1 Jy")
        # 120 uas wide, pixels of 2.5 uas.
        for problem, expected in (
            (of(True, []), (16.0, 0.0)),
            (of(True, [], envelope=LogNormal(median=50.0, sd=0.2, unit="uas")), (20.0, 0.2)),
            (of(False, [], envelope="30 uas"), (12.0, 0.0)),
        ):
            found = envelope_of(problem)
            assert found is not None
            assert tuple(found) == pytest.approx(expected)
        # A component fixes the position, and calibrated data do.
        assert envelope_of(of(True, [point])) is None
        assert envelope_of(of(False, [])) is None
        with pytest.raises(InputError, match="envelope: 2 uas is less than a pixel"):
            envelope_of(of(False, [], envelope="2 uas"))
        image = np.ones((N, N)) / N**2
        remark = closure_remark(of(True, []))
        assert "makes flux far out improbable (envelope about the middle: Gaussian of FWHM 40 uas)" in remark
        assert "envelope" not in closure_remark(of(True, [point]))
        assert "envelope about the middle: Gaussian of FWHM 40 uas" in sky_prior(of(True, []), image).lines

    def test_the_model_file_keeps_it(self) -> None:
        prior = ImagePrior("x", prior="correlated-field", envelope=LogNormal(median=60.0, sd=0.2, unit="uas"))
        text = SkyModel([], images=[prior]).to_toml()
        assert 'envelope = { prior = "log-normal", sd = 0.2, median = 60.0, unit = "uas" }' in text


class TestChains:
    def test_turns_of_a_phase_do_not_count(self) -> None:
        pytest.importorskip("blackjax", reason="needs the extra images")
        from biro.image_posterior.sampling.chains import _mean_of

        rng = np.random.default_rng(4)
        about = np.array([0.9, 0.3])  # half turns
        states = about + 0.05 * rng.normal(size=(500, 2)) + 2.0 * rng.integers(-1, 2, size=(500, 2))
        mean = _mean_of(states, np.array([0]))
        assert mean[0] == pytest.approx(0.9, abs=0.01)  # 0.05 / sqrt(500), and four sigma of it
        assert mean[1] == pytest.approx(states[:, 1].mean(), rel=1e-12)

    def test_gains_name_the_numbers_that_turn(self) -> None:
        from biro.image_posterior.sampling.compact import CompactModel

        gains, at = SimpleNamespace(circles=np.array([1, 3])), SimpleNamespace(gains=slice(5, 9))
        given: Any = SimpleNamespace(at=at, gains=gains)
        of_model: Any = CompactModel.circles
        np.testing.assert_array_equal(of_model.fget(given), [6, 8])
