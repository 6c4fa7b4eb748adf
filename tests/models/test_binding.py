"""theta to source arrays, checked by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from astropy import units as u
from scipy import stats

from biro.models import (
    AiryBeam,
    Cos3Beam,
    Frozen,
    GaussianBeam,
    GaussianSource,
    LogUniform,
    ModelError,
    Noise,
    Normal,
    PartitionView,
    Pointing,
    PointSource,
    SkyModel,
    Uniform,
)

MakeView = Callable[..., PartitionView]
ARCSEC = np.pi / 648000
HERE = {"east": "0 arcsec", "north": "0 arcsec"}
FIXED_NOISE = Noise(1)


def bind(view: MakeView, *sources: object, **given: object) -> object:
    return SkyModel(sources, noise=given.pop("noise", FIXED_NOISE), **given).bind([view()])


def test_points_come_first_and_keep_their_numbers(view: MakeView) -> None:
    shape = {"emaj": "4 arcsec", "emin": "2 arcsec", "pa": "30 deg"}
    model = bind(
        view,
        GaussianSource(
            "g", east=Uniform(-1, 1, "arcsec"), north="2 arcsec", I="3 Jy", frame="phase_centre", **shape
        ),
        PointSource("p", east="10 mas", north="-1 arcmin", I=LogUniform("100 mJy", "2000 mJy"), V="-1 Jy"),
        GaussianSource("h", **HERE, I="1 Jy", emaj=Uniform(1, 2, "deg"), ratio=0.25, pa="-0.1 rad"),
        GaussianSource("c", **HERE, I="1 Jy", fwhm="5 arcsec"),
    )
    assert model.parameter_names == ("g.east", "p.I", "h.emaj")
    assert [p.unit for p in model.parameters] == ["arcsec", "mJy", "deg"]
    assert model.source_names == ("p", "g", "h", "c")
    sources = model.sources(np.array([[0.5, 300.0, 1.5], [-1.0, 2000.0, 1.0]]), 0)
    np.testing.assert_allclose(sources.lm[0, :2], np.array([[0.01, -60], [0.5, 2]]) * ARCSEC, rtol=4e-16)
    np.testing.assert_allclose(sources.stokes[:, 0, 0], [[0.3, 0, 0, -1], [2, 0, 0, -1]], rtol=4e-16)
    assert sources.n_gaussian == 3
    deg = np.pi / 180
    np.testing.assert_allclose(
        sources.shape[0],
        [[4 * ARCSEC, 2 * ARCSEC, 30 * deg], [1.5 * deg, 0.375 * deg, -0.1], [5 * ARCSEC, 5 * ARCSEC, 0]],
        rtol=1e-15,
    )
    assert sources.beam is None
    assert sources.spectral_terms.shape == (2, 4, 4, 0)


def test_polarisation_by_fraction_and_angle(view: MakeView) -> None:
    model = bind(
        view,
        PointSource(
            "a", **HERE, I=Uniform(1, 9, "Jy"), pol_fraction=0.1, pol_angle="15 deg", v_fraction=-0.01
        ),
    )
    stokes = model.sources([[2.0], [4.0]], 0).stokes
    expected = np.array([1, 0.1 * np.cos(np.pi / 6), 0.1 * np.sin(np.pi / 6), -0.01])
    np.testing.assert_allclose(stokes[:, 0, 0], np.array([[2], [4]]) * expected, rtol=1e-15)


def value_of(sources: object, freq: float) -> np.ndarray:
    """Flux of each source and Stokes parameter from the arrays, as arrays.Sources documents them."""
    x = freq / sources.ref_freq
    terms = sources.spectral_terms[0]
    powers = np.arange(terms.shape[-1])
    log = np.exp(np.log(x)[:, None] * (terms * np.log(x)[:, None, None] ** powers).sum(-1))
    poly = 1 + (terms * (x - 1)[:, None, None] ** (powers + 1)).sum(-1)
    return sources.stokes[0, 0] * np.where(sources.log_spectrum[:, None], log, poly)


def test_every_form_of_spectrum(view: MakeView) -> None:
    """Formulas of physics section 4, evaluated here with logarithms to base 10 where the user's is."""
    at = {**HERE, "ref_freq": "1 GHz"}
    sources = bind(
        view,
        PointSource("flat", **HERE, I="2 Jy"),
        PointSource("index", **at, I="2 Jy", Q="-1 Jy", spectral_index=-0.7),
        PointSource("curved", **at, I="2 Jy", spectral_index=[-0.7, 0.2, -0.1]),
        PointSource("log10", **at, I="2 Jy", log10_spectrum=[-0.7, 0.2, -0.1]),
        PointSource("poly", **at, I="2 Jy", polynomial=[0.5, -0.25]),
        PointSource("each", **at, I="2 Jy", Q="1 Jy", V="1 Jy", spectral_index={"I": -0.7, "Q": [0.5, 1.0]}),
        PointSource("zero", **at, I="0 Jy", spectral_index=3.0),
    ).sources(np.zeros((1, 0)), 0)
    x = 1.7
    found = value_of(sources, x * 1e9)
    lg, ln = np.log10(x), np.log(x)
    np.testing.assert_allclose(
        found[:, 0],
        [
            2,
            2 * x**-0.7,
            2 * x ** (-0.7 + 0.2 * ln - 0.1 * ln**2),
            10 ** (np.log10(2) - 0.7 * lg + 0.2 * lg**2 - 0.1 * lg**3),
            2 * (1 + 0.5 * 0.7 - 0.25 * 0.49),
            2 * x**-0.7,
            0,
        ],
        rtol=1e-14,
    )
    assert found[1, 1] == pytest.approx(-(x**-0.7), rel=1e-14)
    assert found[5, 1] == pytest.approx(x ** (0.5 + ln), rel=1e-14)
    assert found[5, 3] == pytest.approx(x**-0.7, rel=1e-14)  # follows I


def test_brightness_per_time_slot(view: MakeView) -> None:
    varying = ["1 Jy", Uniform(0, 10, "Jy"), "core.I"]
    model = bind(view, PointSource("core", **HERE, I="7 Jy"), PointSource("v", **HERE, I=varying))
    assert model.parameter_names == ("v.I[1]",)
    stokes = model.sources([[5.0]], 0).stokes
    np.testing.assert_array_equal(stokes[0, :, 0, 0], [7, 7, 7])
    np.testing.assert_array_equal(stokes[0, :, 1, 0], [1, 5, 7])
    with pytest.raises(ModelError, match="3 elements, but partition 'f/spw0' has 4 times"):
        model.model.bind([view(n_time=4)])
    assert SkyModel(PointSource("v", **HERE, I=[1, 2, 3] * u.Jy)).bind([view()]).n_param == 1


def test_astropy_quantities_are_taken(view: MakeView) -> None:
    source = PointSource("a", ra=187.3 * u.deg, dec=0.03 * u.rad, I=Normal(1 * u.Jy, 20 * u.mJy))
    assert source.I[0] == Normal(1, 0.02, "Jy")
    assert bind(view, source).extent(0) > 0


def test_ties_follow(view: MakeView) -> None:
    model = bind(
        view,
        PointSource("a", east=Normal(0, 1, "arcsec"), north="c.east", I="b.I"),
        PointSource("b", east="a.east", north="0 deg", I=Uniform(1, 2000, "mJy")),
        PointSource("c", east="1 arcmin", north="0 deg", I="a.I"),
    )
    assert model.parameter_names == ("a.east", "b.I")
    sources = model.sources([3.0, 500.0], 0)
    np.testing.assert_allclose(sources.lm[0, :, 0], np.array([3, 3, 60]) * ARCSEC, rtol=1e-15)
    assert sources.lm[0, 0, 1] == pytest.approx(60 * ARCSEC, rel=1e-15)
    np.testing.assert_allclose(sources.stokes[0, 0, :, 0], 0.5)


def test_radec_and_offsets_agree_between_frames(view: MakeView) -> None:
    """A source at the stated centre is the centre, seen from any field."""
    centre = (1.0, 0.5)
    fields = [view("a", (1.01, 0.49)), view("b", (0.98, 0.52))]
    at_centre = PointSource("o", **HERE, I="1 Jy")
    same = PointSource("r", ra="1 rad", dec="0.5 rad", I="1 Jy")
    model = SkyModel([at_centre, same], centre=centre).bind(fields)
    theta = model.prior_transform(np.full((1, 2), 0.5))
    for i, field in enumerate(fields):
        lm = model.sources(theta, i).lm[0]
        np.testing.assert_allclose(lm[0], lm[1], atol=2e-16)
        ra0, dec0 = field.phase_centre
        expected = np.cos(0.5) * np.sin(1 - ra0)
        assert lm[1, 0] == pytest.approx(expected, rel=1e-14)
        assert lm[1, 1] == pytest.approx(
            np.sin(0.5) * np.cos(dec0) - np.cos(0.5) * np.sin(dec0) * np.cos(1 - ra0), rel=1e-13
        )


def test_default_centre_is_the_first_field(view: MakeView) -> None:
    model = SkyModel(PointSource("a", east="1 deg", north="0 deg", I="1 Jy"), noise=Noise(1))
    bound = model.bind([view("a", (1.0, 0.5)), view("b", (1.0, 0.6))])
    np.testing.assert_array_equal(bound.sources(np.zeros(0), 0).lm[0, 0], [np.deg2rad(1), 0])
    assert bound.sources(np.zeros(0), 1).lm[0, 0, 1] == pytest.approx(-0.0998, abs=1e-4)


def test_extent_covers_the_prior(view: MakeView) -> None:
    wide = bind(
        view,
        PointSource("a", east=Uniform(-3, 1, "arcsec"), north=Normal(1, 1, "arcsec"), I="1 Jy"),
        PointSource("b", east="-2 arcsec", north="0 arcsec", I="1 Jy"),
    )
    assert wide.extent(0) == pytest.approx((1 - stats.norm.ppf(1e-9)) * ARCSEC, rel=1e-12)
    draws = wide.prior_transform(np.random.default_rng(0).random((1000, wide.n_param)))
    assert np.abs(wide.sources(draws, 0).lm).max() <= wide.extent(0)
    everywhere = PointSource("a", east=Normal(0, 1, "rad"), north="0 rad", I="1 Jy")
    assert bind(view, everywhere).extent(0) == 1.0


@pytest.mark.parametrize("dec", ["85 deg", Uniform("84 deg", "85 deg")])
def test_extent_of_a_ring_about_the_pole(dec: object) -> None:
    centre = (np.pi / 4, np.deg2rad(85))
    about = PartitionView("a", "a", "0", centre, np.zeros(1), np.array([1e9]), ("A", "B"))
    ring = PointSource("a", ra=Uniform("0 deg", "360 deg"), dec=dec, I="1 Jy")
    model = SkyModel(ring, noise=FIXED_NOISE).bind([about])
    draws = model.prior_transform(np.random.default_rng(0).random((4000, model.n_param)))
    seen = np.abs(model.sources(draws, 0).lm).max()
    # Steps of 5.6 deg come within 2.8 deg of every place of the ring: 0.5 % at most of its m are missed.
    assert 0.995 * seen <= model.extent(0) < 1.1 * seen


def test_noise_groups(view: MakeView) -> None:
    fields = [view("a/x"), view("a/y"), view("b/x")]
    source = PointSource("s", **HERE, I="1 Jy")
    for per, names, column in (
        ("partition", ["[a/x]", "[a/y]", "[b/x]"], [0, 1, 2]),
        ("field", ["[a]", "[b]"], [0, 0, 1]),
        ("spw", ["[x]", "[y]"], [0, 1, 0]),
        ("all", [""], [0, 0, 0]),
    ):
        model = SkyModel(source, noise=Noise(per=per)).bind(fields)
        assert model.parameter_names == tuple(f"noise.factor{name}" for name in names)
        theta = np.arange(1.0, 1 + len(names))[None]
        np.testing.assert_array_equal(model.noise_factor(theta), theta[:, column])
    default = SkyModel(source).bind([view()])
    assert default.parameter_names == ("noise.factor",)
    assert default.parameters[0].prior == LogUniform(1e-3, 1e3)
    np.testing.assert_array_equal(
        SkyModel(source, noise=Noise(2)).bind(fields).noise_factor(np.zeros((4, 0))), 2
    )


def test_beams_reach_the_kernels_in_their_units(view: MakeView) -> None:
    source = PointSource("s", **HERE, I="1 Jy")
    none = np.zeros((1, 0))
    assert bind(view, source, beam=Cos3Beam()).sources(none, 0).beam.scale == pytest.approx(65e-9, rel=1e-15)
    fitted = bind(view, source, beam=Cos3Beam(Uniform(60, 70, "1/GHz")))
    assert fitted.parameter_names == ("beam.coefficient",)
    np.testing.assert_allclose(fitted.sources([[61.0], [62.0]], 0).beam.scale, [61e-9, 62e-9], rtol=1e-15)
    gaussian = bind(view, source, beam=GaussianBeam("1 deg", ref_freq="1 GHz")).sources(none, 0).beam
    assert gaussian.kind == "gaussian"
    assert gaussian.scale == pytest.approx(1 / (np.pi / 180 * 1e9), rel=1e-15)
    airy = bind(view, source, beam=AiryBeam("25 m")).sources(none, 0).beam
    assert airy.scale == pytest.approx(np.pi * 25 / 299792458, rel=1e-15)


def test_pointing_is_a_polynomial_in_time(view: MakeView) -> None:
    pointing = Pointing(
        east=["10 arcsec", Normal(0, 1, "arcsec")],
        antennas=["A", "B"],
        antenna={"C": {"north": Uniform(-1, 1, "arcmin")}, "B": {"east": "0 rad"}},
    )
    model = bind(view, PointSource("s", **HERE, I="1 Jy"), beam=Cos3Beam(), pointing=pointing)
    assert model.parameter_names == ("pointing.east[A][1]", "pointing.north[C]")
    found = model.sources([[4.0, 0.5], [0.0, 0.0]], 0).beam.pointing / ARCSEC
    assert found.shape == (2, 3, 3, 2)
    np.testing.assert_allclose(found[0, :, 0, 0], [6, 10, 14], rtol=1e-14)
    np.testing.assert_allclose(found[0, :, 1], 0)
    np.testing.assert_allclose(found[0, :, 2, 1], 30, rtol=1e-14)
    np.testing.assert_allclose(found[1, :, 0, 0], 10, rtol=1e-14)
    constant = bind(
        view, PointSource("s", **HERE, I="1 Jy"), beam=Cos3Beam(), pointing=Pointing(east="1 deg")
    )
    assert constant.sources(np.zeros((1, 0)), 0).beam.pointing.shape == (1, 1, 3, 2)


def test_position_angle_wraps(view: MakeView) -> None:
    model = bind(
        view,
        GaussianSource("g", **HERE, I="1 Jy", emaj="2 arcsec", emin="1 arcsec", pa=Uniform(10, 190, "deg")),
    )
    assert model.parameters[0].period == 180
    theta = np.array([[20.0], [200.0], [-160.0], [20 + 1800.0]])
    np.testing.assert_allclose(model.log_prior(theta), -np.log(180), rtol=1e-15)
    np.testing.assert_allclose(model.sources(theta, 0).shape[:, 0, 2], np.deg2rad(20), rtol=1e-12)
    np.testing.assert_allclose(model.wrap(theta), 20, rtol=1e-12)
    half = GaussianSource("g", **HERE, I="1 Jy", emaj="2 arcsec", emin="1 arcsec", pa=Uniform(0, 90, "deg"))
    bound = bind(view, half)
    assert bound.parameters[0].period is None
    assert np.isneginf(bound.log_prior([[100.0]]))


def test_log_prior_is_the_sum_of_scipy_densities(view: MakeView) -> None:
    model = bind(
        view,
        PointSource(
            "a", east=Normal(1, 2, "arcsec"), north=Uniform(-5, 5, "arcsec"), I=LogUniform(1, 10, "Jy")
        ),
        PointSource("b", east=Frozen(stats.t(3), "arcsec"), north=Normal(0, 1, "arcsec"), I="1 Jy"),
        noise=Noise(),
    )
    oracles = [
        stats.norm(1, 2),
        stats.uniform(-5, 10),
        stats.loguniform(1, 10),
        stats.t(3),
        stats.norm(0, 1),
        stats.loguniform(1e-3, 1e3),
    ]
    cube = np.random.default_rng(0).random((7, 2, 6))
    theta = model.prior_transform(cube)
    for i, oracle in enumerate(oracles):
        np.testing.assert_allclose(theta[..., i], oracle.ppf(cube[..., i]), rtol=1e-11, atol=1e-13)
    expected = sum(oracle.logpdf(theta[..., i]) for i, oracle in enumerate(oracles))
    np.testing.assert_allclose(model.log_prior(theta), expected, rtol=1e-12)
    assert model.log_constraint_mass == 0.0
    assert np.isneginf(model.log_prior(np.full(6, np.nan)))


def test_shapes_of_theta_are_strict(view: MakeView) -> None:
    model = bind(view, PointSource("a", east="0 deg", north="0 deg", I=Uniform(0, 1, "Jy")))
    for bad in (np.zeros(2), np.zeros((3, 2)), 0.5):
        with pytest.raises(ModelError, match="n_param = 1"):
            model.log_prior(bad)
    with pytest.raises(ModelError, match="n_batch"):
        model.sources(np.zeros((2, 2, 1)), 0)


def test_the_digest_sees_every_change(view: MakeView) -> None:
    def digest(flux: str = "1 Jy", **given: object) -> str:
        return SkyModel(PointSource("a", **HERE, I=flux), **given).bind([view()]).digest()

    assert digest() == digest()
    changed = [
        digest("1.0000000001 Jy"),
        digest(noise=Noise(1)),
        digest(centre=(3.26, 0.03)),
        digest(beam=Cos3Beam()),
    ]
    assert len({digest(), *changed}) == 5
    function = SkyModel(
        PointSource("a", **HERE, I=Uniform(0, 1, "Jy")), constraints=[lambda p: p["a.I"] > 0.1]
    )
    other = SkyModel(PointSource("a", **HERE, I=Uniform(0, 1, "Jy")), constraints=[lambda p: p["a.I"] > 0.2])
    assert function.bind([view()]).digest() != other.bind([view()]).digest()
