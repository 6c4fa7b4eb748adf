"""Fitted images seen through a primary beam, of one pointing or of several.

Oracles are the measurement equation as a sum over points with the beam of each pointing, and skies whose
truth is known.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import biro
from biro.errors import InputError
from biro.image_posterior.field import ImageField
from biro.image_posterior.operator import ImageOperator
from biro.image_posterior.primary_beam import about, mosaic_centre, power_patterns, widest_separation
from biro.models import GaussianBeam, ImagePrior, KatBeam, Normal, PointSource, SkyModel
from biro.models.components.direction import lm_to_radec
from biro.observation.observation import Observation
from biro.observation.stokes import PSEUDO_I, form_stokes
from biro.simulation import Channels, Track

CENTRE, CELL, SIZE = (1.0, 0.6), float(np.deg2rad(5.0 / 3600.0)), 64
POINTINGS = ((4e-4, 2e-4), (-4e-4, -2e-4))
POINTS = (((32, 32), 1.0), ((12, 46), 0.5), ((50, 20), 0.7))
BEAM = GaussianBeam(fwhm="0.08 deg", ref_freq="1.4 GHz")


def points(beam: GaussianBeam | None = BEAM) -> SkyModel:
    """Points in the middle of pixels of the image."""
    sources = []
    for i, ((x, y), flux) in enumerate(POINTS):
        ra, dec = lm_to_radec(-(x - SIZE // 2) * CELL, (y - SIZE // 2) * CELL, CENTRE)
        sources.append(PointSource(f"s{i}", ra=f"{ra!r} rad", dec=f"{dec!r} rad", I=f"{flux} Jy"))
    return SkyModel(sources, beam=beam)


def observed(noise: float) -> Observation:
    """VLA-C, two pointings of half a beam apart, 25 % of bandwidth."""
    return biro.join(
        [
            biro.simulate(
                "VLA-C",
                points(),
                phase_centre=lm_to_radec(*offset, CENTRE),
                times=Track("2026-03-01", 3 * 3600.0, 3600.0),
                channels=Channels(1.25e9, 1e8, 4),
                noise=noise,
                seed=seed,
                progress=False,
            )
            for seed, offset in enumerate(POINTINGS)
        ]
    )


@pytest.fixture(scope="module")
def mosaic() -> Observation:
    """Without noise, Stokes I."""
    whole = observed(0.0)
    return replace(whole, partitions=tuple(form_stokes(whole.partitions, PSEUDO_I)[0]))


@pytest.fixture(scope="module")
def operator(mosaic: Observation) -> ImageOperator:
    field = ImageField(SIZE, CELL, CENTRE)
    turned = replace(mosaic, partitions=tuple(about(part, CENTRE) for part in mosaic.partitions))
    return ImageOperator(turned, field, beams=power_patterns(mosaic, field, points()))


def test_visibilities_of_pixels_are_those_of_points(operator: ImageOperator) -> None:
    """Simulated data are sums over points in the frame of each pointing; gridders hold 1e-6, beams 1e-5."""
    image = np.zeros((1, SIZE, SIZE))
    for (x, y), flux in POINTS:
        image[0, y, x] = flux
    for made, expected in zip(operator.predict(image), operator.data, strict=True):
        assert np.abs(made - expected).max() < 2e-5 * np.abs(expected).max()


def test_adjoint_with_beams(operator: ImageOperator) -> None:
    rng = np.random.default_rng(1)
    image = rng.normal(size=(1, SIZE, SIZE))
    vis = [rng.normal(size=part.shape) + 1j * rng.normal(size=part.shape) for part in operator.data]
    pairs = zip(operator.predict(image), vis, strict=True)
    forward = sum(float((a.conj() * b).real.sum()) for a, b in pairs)
    assert float((image * operator.adjoint(vis)).sum()) == pytest.approx(forward, rel=1e-9)


def test_responses_add_up_to_the_normal_matrix(operator: ImageOperator) -> None:
    """R^T W R of a point is the sum over pointings of P (PSF * P x), but for w-terms and the band's beam."""
    point = np.zeros((1, SIZE, SIZE))
    point[0, 40, 20] = 1.0
    exact = operator.adjoint(operator.predict(point), weighted=True)[0]
    n, made = SIZE, np.zeros((SIZE, SIZE))
    for one in operator.responses:
        assert one.power is not None
        shifted = np.roll(one.psf, (40 - n, 20 - n), (0, 1))[:n, :n]
        made += one.power * shifted * one.power[40, 20]
    assert len(operator.responses) == len(POINTINGS)
    assert np.abs(made - exact).max() < 0.05 * np.abs(exact).max()


def test_centre_and_separation(mosaic: Observation) -> None:
    """The pointings lie on either side of the centre, 2 sqrt(l^2 + m^2) apart."""
    # Second order in the offsets of 4e-4.
    assert mosaic_centre(mosaic) == pytest.approx(CENTRE, abs=2e-7)
    assert widest_separation(mosaic) == pytest.approx(2.0 * np.hypot(*POINTINGS[0]), rel=1e-6)


def test_a_mosaic_has_fluxes_without_the_beam() -> None:
    """Points of 1, 0.5 and 0.7 Jy that beams attenuate by up to 2.5: within 5 % of the flux."""
    sky = SkyModel(
        [], image_priors=[ImagePrior("field", prior="smooth", size=SIZE, cell="5 arcsec")], beam=BEAM
    )
    made = biro.fit_image(observed(0.02), sky, progress=False, pictures=False)
    y, x = np.indices((SIZE, SIZE))
    for (column, row), flux in POINTS:
        near = np.hypot(x - column, y - row) <= 4
        assert made.mean[0][near].sum() == pytest.approx(flux, rel=0.05)
    assert not [line for line in made.remarks if "DOES NOT FIT" in line]


def test_pointings_without_a_beam_are_refused() -> None:
    sky = SkyModel([], image_priors=[ImagePrior("field", prior="smooth")])
    with pytest.raises(InputError, match="2 phase centres, and a mosaic needs the primary beam"):
        biro.fit_image(observed(0.02), sky, progress=False)


def test_a_beam_with_a_prior_is_refused(mosaic: Observation) -> None:
    beam = GaussianBeam(fwhm=Normal(0.08, 0.01, "deg"), ref_freq="1.4 GHz")
    with pytest.raises(InputError, match="beam in front of a fitted image must be fixed"):
        power_patterns(mosaic, ImageField(SIZE, CELL, CENTRE), points(beam))


def test_a_beam_of_jones_matrices_is_refused() -> None:
    field = ImagePrior("field", prior="smooth")
    sky = replace(points(), image_priors=(field,), beam=KatBeam(extent="1 deg"))
    with pytest.raises(
        InputError, match='"katbeam": the beam has Jones matrices, and a fitted image takes a'
    ):
        biro.fit_image(observed(0.02), sky, progress=False)
