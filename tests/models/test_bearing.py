"""Position angles from the north at the source: bearings in tangent planes, and skies made of points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import constants

from biro.models import (
    CrescentSource,
    DiscSource,
    GaussianSource,
    GradientGaussianSource,
    ModelError,
    MRingSource,
    Noise,
    PartitionView,
    ShapeletSource,
    SkyModel,
)
from biro.models.bound.positions.bearing import bearing, bearing_slopes
from biro.models.files.toml import from_toml
from rime_kernels import Rime, Rows
from rime_kernels.physics.brightness import stokes_to_corr
from tests.models.test_assembly import lm_of

MakeView = Callable[..., PartitionView]
DEG, ARCSEC = np.pi / 180, np.pi / 648000
FREQ = 1.5e9
# Right ascension, declination of phase centres: mid latitude, near both poles, at one, on the equator.
CENTRES = [(0.5, 0.6), (30 * DEG, 80 * DEG), (-2.0, -1.5), (1.0, np.pi / 2), (0.0, 0.0)]
PLACE = {"ra": "48 deg", "dec": "80.5 deg", "I": "1 Jy", "ref_freq": "1.2 GHz"}
POLAR = (30 * DEG, 80 * DEG)


@pytest.mark.parametrize("centre", CENTRES)
def test_the_bearing_is_that_of_a_step_to_the_north(centre: tuple[float, float]) -> None:
    rng = np.random.default_rng(0)
    ra, dec = centre[0] + rng.normal(0, 0.2, 50), np.clip(centre[1] + rng.normal(0, 0.1, 50), -1.55, 1.55)
    step = 1e-6
    move = lm_of(ra, dec + step, centre) - lm_of(ra, dec - step, centre)
    found = bearing(lm_of(ra, dec, centre), centre[1])
    # Differences: rounding 1e-16 over steps of 1e-6.
    np.testing.assert_allclose(np.angle(np.exp(1j * (found - np.arctan2(*move.T)))), 0.0, atol=1e-9)


def test_the_bearing_of_a_source_near_the_pole() -> None:
    """physics: section 5 gives this one."""
    lm = lm_of(np.array(48 * DEG), np.array(80.5 * DEG), POLAR)
    assert bearing(lm, POLAR[1]) / DEG == pytest.approx(-17.745, abs=1e-3)
    assert bearing(np.zeros(2), POLAR[1]) == 0.0


@pytest.mark.parametrize("centre", CENTRES)
def test_slopes_of_the_bearing(centre: tuple[float, float]) -> None:
    lm = np.random.default_rng(1).uniform(-0.2, 0.2, (40, 2))
    found, h = bearing_slopes(lm, centre[1]), 1e-5
    for k in range(2):
        step = h * np.eye(2)[k]
        turn = bearing(lm + step, centre[1]) - bearing(lm - step, centre[1])
        expected = np.angle(np.exp(1j * turn)) / (2 * h)
        # h^2/6 of third derivatives, which grow as the third power of the slopes towards a pole.
        np.testing.assert_allclose(
            found[:, k], expected, rtol=1e-6, atol=1e-9 * np.abs(found).max() ** 3 + 1e-9
        )


def points_of_a_gaussian(pa: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """ra, dec and flux of points that make a Gaussian of 60 x 6 arcsec in the plane that touches the sky."""
    (ra, dec), g = (48 * DEG, 80.5 * DEG), np.linspace(-4, 4, 61)
    share = np.exp(-(g**2) / 2)
    along, across = np.meshgrid(g * 60 * ARCSEC, g * 6 * ARCSEC, indexing="ij") / np.sqrt(8 * np.log(2))
    x = along * np.sin(pa) + across * np.cos(pa)
    y = along * np.cos(pa) - across * np.sin(pa)
    z = np.sqrt(1 - x * x - y * y)
    found = (
        ra + np.arctan2(x, z * np.cos(dec) - y * np.sin(dec)),
        np.arcsin(y * np.cos(dec) + z * np.sin(dec)),
    )
    flux = np.outer(share, share) / share.sum() ** 2
    return found[0].ravel(), found[1].ravel(), flux.ravel()


def rows_of(uvw: np.ndarray) -> Rows:
    n = len(uvw)
    antennas = np.zeros(n, np.int32), np.ones(n, np.int32)
    times = np.arange(n, dtype=np.int32)
    return Rows(uvw, *antennas, times, np.array([FREQ]), stokes_to_corr(("I",)), n_antenna=2, n_time=n)


def predicted(model: SkyModel, view: PartitionView, uvw: np.ndarray) -> np.ndarray:
    sources = model.bind([view]).sources(np.zeros((1, 0)), 0)
    return Rime(rows_of(uvw), backend="cpu", extent=0.1).predict(sources)[0][:, 0, 0]


@pytest.mark.parametrize("pa", [0.0, 35.0, 120.0])
@pytest.mark.parametrize("centre", [POLAR, (60 * DEG, 80 * DEG)], ids=["one field", "another"])
def test_fields_see_one_gaussian_of_the_sky(view: MakeView, centre: tuple[float, float], pa: float) -> None:
    """A Gaussian far from two phase centres is the points that it is made of, whichever field sees it."""
    rng = np.random.default_rng(2)
    uvw = rng.normal(0, 600, (40, 3)) * (1, 1, 0.2)
    ra, dec, flux = points_of_a_gaussian(pa * DEG)
    l, m = lm_of(ra, dec, centre).T
    phase = (
        np.outer(uvw[:, 0], l) + np.outer(uvw[:, 1], m) + np.outer(uvw[:, 2], np.sqrt(1 - l * l - m * m) - 1)
    )
    expected = np.exp(2j * np.pi * FREQ / constants.c * phase) @ flux
    shape = {"emaj": "60 arcsec", "emin": "6 arcsec", "pa": f"{pa} deg"}
    sky = SkyModel(GaussianSource("g", **PLACE, **shape), noise=Noise(1))
    found = predicted(sky, view("f/x", centre), uvw)
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    # The plane of the phase centre foreshortens the sky by 1 - n = 1.5e-3 in one direction; without the
    # bearing the error is 0.3.
    assert error < 2e-3


ELLIPSE = {"emaj": "40 arcsec", "ratio": 0.4, "pa": "25 deg"}
RING = {"diameter": "40 arcsec"}
BETAS = {"beta_re": [0.3, 0.1, 0.05, 0.1], "beta_im": [0.1, -0.2, 0.1, 0.0]}
KINDS = {
    "gaussian": (GaussianSource, ELLIPSE),
    "disc": (DiscSource, ELLIPSE),
    "gradient": (GradientGaussianSource, {"fwhm": "30 arcsec", "gradient_along": 2, "spectral_index": 0}),
    "crescent": (CrescentSource, RING | {"inner_ratio": 0.5, "offset": 0.6, "hole_pa": "70 deg"}),
    "ellipse crescent": (CrescentSource, ELLIPSE | {"inner_ratio": 0.5, "offset": 0.6, "hole_pa": "70 deg"}),
    "m-ring": (MRingSource, RING | BETAS),
    "ellipse m-ring": (MRingSource, ELLIPSE | BETAS),
    "shapelets": (ShapeletSource, {"scale": "15 arcsec", "coefficients": [0.3, -0.2, 0.1, 0.2, 0.3]}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_shape_turns_about_its_centre(view: MakeView, kind: str) -> None:
    """With the baselines turned by the bearing, and the source's phase taken out, both frames agree."""
    make, given = KINDS[kind]
    lm = lm_of(np.array(48 * DEG), np.array(80.5 * DEG), POLAR)
    uvw = np.random.default_rng(3).normal(0, 400, (30, 3)) * (1, 1, 0)
    sin, cos = np.sin(beta := bearing(lm, POLAR[1])), np.cos(beta)
    # What lies at the angle x from the source's north lies at x + beta in the plane.
    turned = np.stack(
        [uvw[:, 0] * cos - uvw[:, 1] * sin, uvw[:, 0] * sin + uvw[:, 1] * cos, 0 * uvw[:, 0]], -1
    )

    def envelope(frame: str, uvw: np.ndarray) -> np.ndarray:
        vis = predicted(
            SkyModel(make("s", **PLACE, **given, frame=frame), noise=Noise(1)), view("f/x", POLAR), uvw
        )
        return vis * np.exp(-2j * np.pi * FREQ / constants.c * (uvw[:, :2] @ lm))

    local = envelope("source", uvw)
    # Rounding of phases of some hundred turns.
    np.testing.assert_allclose(local, envelope("phase_centre", turned), atol=1e-11)
    assert np.abs(local - envelope("phase_centre", uvw)).max() > 1e-2


def test_a_circle_and_the_phase_centre_are_not_turned(view: MakeView) -> None:
    sky = SkyModel(
        [
            GaussianSource("a", **PLACE, fwhm="10 arcsec"),
            GaussianSource("b", east="0 rad", north="0 rad", I="1 Jy", **ELLIPSE),
        ],
        noise=Noise(1),
    )
    shape = sky.bind([view("f/x", POLAR)]).sources(np.zeros((1, 0)), 0).shape
    np.testing.assert_array_equal(shape[0, :, 2], [0.0, 25 * DEG])


def test_frames_are_written_and_refused() -> None:
    sky = SkyModel(
        [GaussianSource(name, **PLACE, **ELLIPSE, frame=frame)
         for name, frame in (("a", "source"), ("b", "phase_centre"))]
    )  # fmt: skip
    text = sky.to_toml()
    assert from_toml(text) == sky
    assert text.count("frame") == 1
    with pytest.raises(ModelError, match='frame: expected "source"'):
        GaussianSource("a", **PLACE, **ELLIPSE, frame="ICRS")
