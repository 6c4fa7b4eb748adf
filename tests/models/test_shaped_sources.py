"""Discs, rings, galaxies and the like: what a user writes, and the arrays of the kernels made from it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from numba import njit

from biro.models import (
    AnnulusSource,
    BetaModelSource,
    CoreHaloSource,
    CrescentSource,
    DiscSource,
    ExponentialSource,
    Fixed,
    GaussianSource,
    GradientGaussianSource,
    LimbDarkenedSource,
    ModelError,
    MRingSource,
    Noise,
    PartitionView,
    PointSource,
    RingSource,
    SersicSource,
    ShapeletSource,
    SkyModel,
    SphereSource,
    Uniform,
)
from biro.models.files import write_sky
from biro.models.files.toml import from_toml
from rime_kernels.arrays import Sources
from rime_kernels.gradient import Gradient
from rime_kernels.physics import profiles

HERE = {"east": "0 mas", "north": "0 mas"}
PLACE = HERE | {"I": "1 Jy"}
SIZE, NUMBER = Uniform(1, 3, "mas"), Uniform(0.2, 0.8)
ELLIPSE = {"emaj": SIZE, "ratio": NUMBER, "pa": Uniform("0 deg", "180 deg")}
NU = 1e9
# Which only compiled functions call, for Python.
profile_visibility = njit(lambda *arguments: profiles.profile_visibility(*arguments))
RING = {"diameter": "1 mas"}
ROUND = RING | {"beta_re": [0], "beta_im": [0]}


def view() -> PartitionView:
    return PartitionView(
        label="f/s",
        field="f",
        spw="s",
        phase_centre=(1.0, 0.5),
        time=np.zeros(1),
        chan_freq=np.array([NU]),
        antenna_names=("A", "B"),
    )


def sources_of(*sources: Any) -> Sources:
    bound = SkyModel(list(sources), noise=Noise(factor=1)).bind([view()])
    return bound.sources(np.zeros((1, 0)), 0)


def stokes_visibilities(sources: Sources, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Visibilities (4, n) of I, Q, U, V of sources whose flux is constant; u, v in wavelengths."""
    total = np.zeros((4, len(u)), dtype=complex)
    lm, stokes, shape = sources.lm[0], sources.stokes[0, 0], sources.shape[0]
    n_gaussian = len(shape) - sources.n_profile
    for i in range(sources.n_source):
        envelope = np.ones(len(u), dtype=complex)
        j = i - sources.n_point
        if j >= 0:
            emaj, emin, pa = shape[j]
            a = emaj * (u * np.sin(pa) + v * np.cos(pa))
            b = emin * (u * np.cos(pa) - v * np.sin(pa))
            envelope = np.exp(-(np.pi**2) / (4 * np.log(2)) * (a**2 + b**2)) + 0j
        if j >= n_gaussian:
            kind, p = sources.profile_kind[j - n_gaussian], sources.profile[0, j - n_gaussian]
            envelope = np.array(
                [complex(*profile_visibility(kind, *ab, *p, NU)) for ab in zip(a, b, strict=True)]
            )
        total += stokes[i][:, None] * envelope * np.exp(2j * np.pi * (u * lm[i, 0] + v * lm[i, 1]))
    return total


def eht_source(name: str, k: dict[str, Any]) -> Any:
    """A model of eht-imaging as a user of biro writes it."""
    given: dict[str, Any] = {
        "east": Fixed(k["x0"], "rad"),
        "north": Fixed(k["y0"], "rad"),
        "I": Fixed(k["F0"], "Jy"),
    }
    stretch = k.get("stretch", 1.0)
    if "stretch" in k:
        given |= {
            "emaj": Fixed(k["d"] * stretch, "rad"),
            "emin": Fixed(k["d"], "rad"),
            "pa": Fixed(k["stretch_PA"], "rad"),
        }
    else:
        given["diameter"] = Fixed(k["d"], "rad")
    if "alpha" in k:
        given["blur"] = Fixed(k["alpha"] * stretch, "rad")
    if "pol_frac" in k:
        given |= {
            "pol_fraction": k["pol_frac"],
            "pol_angle": Fixed(k["pol_evpa"], "rad"),
            "v_fraction": k["cpol_frac"],
        }
    if "crescent" in name:
        given |= {
            "inner_ratio": k["fr"],
            "offset": k["fo"],
            "floor": k["ff"],
            "hole_pa": Fixed(k["phi"], "rad"),
        }
        return CrescentSource("s", **given)
    if "mring" in name:
        for key, ours in (("beta_list", "beta"), ("beta_list_pol", "beta_pol"), ("beta_list_cpol", "beta_v")):
            if key in k:
                given |= {f"{ours}_re": [x for x, _ in k[key]], f"{ours}_im": [y for _, y in k[key]]}
        return MRingSource("s", **given)
    return (DiscSource if "disk" in name else RingSource)("s", **given)


@pytest.mark.parametrize(
    "name",
    ["disk", "blurred_disk", "thick_ring", "stretched_thick_ring", "crescent", "mring_2", "mring_123",
     "thick_mring", "stretched_thick_mring"],
)  # fmt: skip
def test_agrees_with_eht_imaging_in_all_stokes_parameters(truth: Any, name: str) -> None:
    file = truth("jones/shapes")
    k = json.loads(str(file["params"]))[name]
    found = stokes_visibilities(sources_of(eht_source(name, k)), file["u"], file["v"])
    # Rounding, and direction cosines of offsets from a centre, which cost 1e-16 rad of 1e-10 rad.
    np.testing.assert_allclose(found[0], file[f"vis_{name}"], rtol=0, atol=2e-7)
    for i, stokes in enumerate("QUV", start=1):
        if f"vis_{name}_{stokes}" in file:
            np.testing.assert_allclose(found[i], file[f"vis_{name}_{stokes}"], rtol=0, atol=2e-7)


def test_a_core_with_its_halo_is_two_gaussians() -> None:
    halo = {"emaj": "3 mas", "emin": "2 mas", "pa": "20 deg"}
    made = CoreHaloSource("s", **HERE, I="2 Jy", Q="0.5 Jy", core_fraction=0.3, core_fwhm="0.4 mas", **halo)
    pair = [
        GaussianSource("a", **HERE, I="0.6 Jy", Q="0.15 Jy", fwhm="0.4 mas"),
        GaussianSource("b", **HERE, I="1.4 Jy", Q="0.35 Jy", **halo),
    ]
    found, expected = sources_of(made), sources_of(*pair)
    # 0.3 of 2 is 0.6 but for rounding.
    np.testing.assert_allclose(found.stokes, expected.stokes, rtol=1e-15)
    np.testing.assert_array_equal(found.shape, expected.shape)
    point = sources_of(CoreHaloSource("s", **PLACE, core_fraction=0.3, fwhm="3 mas"))
    assert (point.n_point, point.n_source) == (1, 2)


def test_a_blurred_core_with_its_halo_is_both_times_a_gaussian() -> None:
    given = {"core_fraction": 0.3, "emaj": "3 mas", "ratio": 0.5, "pa": "20 deg"}
    u, v = np.random.default_rng(4).normal(0, 1e8, (2, 15))
    blur = np.exp(-(np.pi**2) / (4 * np.log(2)) * (0.7 * np.pi / 648e6) ** 2 * (u**2 + v**2))
    for core in ({}, {"core_fwhm": "0.4 mas"}):
        sharp, blurred = (
            stokes_visibilities(sources_of(CoreHaloSource("s", **PLACE, **given, **core, **more)), u, v)
            for more in ({}, {"blur": "0.7 mas"})
        )
        # Gaussians of the convolved widths against a product, of the order of 1.
        np.testing.assert_allclose(blurred, sharp * blur, rtol=0, atol=1e-14)


def test_high_orders_of_an_ellipse_count_angles_from_north() -> None:
    # A ring of emaj = 3, emin = 2 at 35 deg, sampled where it was a circle: PA there is that of the user.
    beta, pa = {2: 0.1 + 0.2j, 5: -0.3 + 0.1j, 11: 0.2 - 0.1j}, np.radians(35)
    numbers = [beta.get(m, 0) for m in range(1, 12)]
    given = {"beta_re": [x.real for x in numbers], "beta_im": [x.imag for x in numbers]}
    source = MRingSource("s", **PLACE, emaj="3 mas", emin="2 mas", pa="35 deg", **given)
    angle = 2 * np.pi * np.arange(512) / 512
    brightness = 1 + 2 * sum(x * np.exp(1j * m * angle) for m, x in beta.items()).real
    along, across = 1.5 * np.cos(angle - pa), np.sin(angle - pa)  # half of 3 and of 2 mas
    mas = np.pi / 648e6
    east = mas * (along * np.sin(pa) + across * np.cos(pa))
    north = mas * (along * np.cos(pa) - across * np.sin(pa))
    u, v = np.random.default_rng(3).normal(0, 2e8, (2, 15))
    expected = np.exp(2j * np.pi * (u[:, None] * east + v[:, None] * north)) @ brightness / 512
    # Trapezoids around a circle are exact; Bessel functions lose two digits at z = 8.
    np.testing.assert_allclose(stokes_visibilities(sources_of(source), u, v)[0], expected, rtol=0, atol=1e-13)


def test_shapelets_of_one_order_are_derivatives_of_a_gaussian() -> None:
    # c_mn gives c_mn i^(m+n) H_m(x) H_n(y) e^(-(x^2 + y^2)/2) / sqrt(2^(m+n) m! n!), x = 2 pi scale q.
    scale, terms = 1e-9, [0.0] * 65
    terms[10 * 11 // 2 + 3 - 1] = 0.4  # c_73
    given = {"scale": Fixed(scale, "rad"), "axis_pa": "30 deg", "coefficients": terms}
    u, v = np.array([[1e8, -2e8, 0.0], [3e7, 1e8, 4e8]])
    x = 2 * np.pi * scale * (u * np.sin(np.pi / 6) + v * np.cos(np.pi / 6))
    y = 2 * np.pi * scale * (u * np.cos(np.pi / 6) - v * np.sin(np.pi / 6))
    hermite = np.polynomial.hermite.hermval
    odd = hermite(x, [0] * 7 + [1]) * hermite(y, [0] * 3 + [1]) / np.sqrt(2.0**10 * 5040 * 6)
    expected = np.exp(-(x**2 + y**2) / 2) * (1 - 0.4 * odd)
    found = stokes_visibilities(sources_of(ShapeletSource("s", **PLACE, **given)), u, v)[0]
    # Recurrences against polynomials, of the order of 1.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)
    blurred = sources_of(ShapeletSource("s", **PLACE, **given, blur=Fixed(0.7 * scale, "rad")))
    expected = expected * np.exp(-(np.pi**2) / (4 * np.log(2)) * (0.7 * scale) ** 2 * (u**2 + v**2))
    np.testing.assert_allclose(stokes_visibilities(blurred, u, v)[0], expected, rtol=0, atol=1e-14)


def test_a_group_has_one_position_scale_and_flux() -> None:
    free = {"ring.east": (-1, 1), "ring.I": (1, 3), "ring.diameter": (0.5, 1.5)}
    east, flux, size = (
        Uniform(*free[key], unit) for key, unit in zip(free, ("mas", "Jy", "mas"), strict=True)
    )
    at = {"east": "ring.east", "north": "ring.north"}
    group = [
        RingSource("ring", east=east, north="0 mas", I=flux, diameter=size),
        GaussianSource("base", **at, I="ring.I * 0.3", fwhm="ring.diameter * 2"),
        PointSource("knot", east="ring.east + 3 mas", north="ring.north", I="ring.I * 0.1"),
    ]
    bound = SkyModel(group, noise=Noise(factor=1)).bind([view()])
    assert bound.parameter_names == tuple(free)
    found, mas = bound.sources(np.array([[0.5, 2.0, 1.2]]), 0), np.pi / 648e6
    # Points first, then Gaussians, then profiles.
    np.testing.assert_allclose(found.lm[0, :, 0] / mas, [3.5, 0.5, 0.5], rtol=1e-12)
    np.testing.assert_allclose(found.stokes[0, 0, :, 0], [0.2, 0.6, 2.0], rtol=1e-14)
    np.testing.assert_allclose(found.shape[0, :, 0] / mas, [2.4, 1.2], rtol=1e-12)


def rich_sky() -> SkyModel:
    """Every kind of source, with nearly every quantity free."""
    flux, angle = Uniform(0.5, 2, "Jy"), Uniform("0 deg", "360 deg")
    blur = Uniform(0.1, 0.4, "mas")
    return SkyModel(
        [
            RingSource("ring", **HERE, I=flux, diameter=SIZE, blur=blur),
            PointSource("point", **PLACE),
            DiscSource("disc", **HERE, I=flux, **ELLIPSE, blur=blur),
            GaussianSource("gauss", **PLACE, fwhm=SIZE),
            LimbDarkenedSource("limb", **PLACE, diameter=SIZE, limb_darkening=NUMBER),
            AnnulusSource("annulus", **PLACE, diameter=SIZE, inner_ratio=NUMBER),
            SphereSource("sphere", **PLACE, **ELLIPSE),
            ExponentialSource("exp", **PLACE, **ELLIPSE),
            SersicSource("sersic", **PLACE, effective_radius="disc.emaj / 2", n=Uniform(0.5, 6)),
            BetaModelSource("beta", **PLACE, core_radius=SIZE, beta=Uniform(0.55, 1)),
            # A reference frequency near 1, or differences of sums would lose digits to it.
            GradientGaussianSource(
                "graded", **PLACE, **ELLIPSE, gradient_along=NUMBER,
                gradient_across="graded.gradient_along * 2",
                spectral_index=NUMBER, ref_freq="2 Hz",
            ),
            CrescentSource(
                "crescent", **PLACE, **ELLIPSE, inner_ratio=0.4, offset=NUMBER, floor=0.2, hole_pa=angle
            ),
            CoreHaloSource(
                "halo", **HERE, I=flux, pol_fraction=NUMBER, pol_angle="20 deg", **ELLIPSE,
                core_fraction=NUMBER, core_fwhm=Uniform(0, 0.1, "mas"), blur=blur,
            ),
            MRingSource(
                "mring", east=Uniform(-1, 1, "mas"), north="0 mas", I=flux, **ELLIPSE, blur=blur,
                beta_re=[NUMBER, 0.1, 0, NUMBER, 0.1], beta_im=[NUMBER, NUMBER, 0, NUMBER, NUMBER],
                beta_pol_re=[NUMBER, 0.2, NUMBER],
                beta_pol_im=[0.1, NUMBER, NUMBER], beta_v_re=[NUMBER, 0.1], beta_v_im=[0, NUMBER],
            ),
            ShapeletSource(
                "shapelets", **PLACE, scale=SIZE, axis_pa=angle, coefficients=[NUMBER] * 44, blur=blur
            ),
        ]
    )  # fmt: skip


def test_a_file_holds_every_kind() -> None:
    sky = rich_sky()
    assert from_toml(sky.to_toml()) == sky


def test_the_gradient_is_that_of_the_arrays() -> None:
    bound = rich_sky().bind([view()])
    theta = bound.prior_transform(np.random.default_rng(0).uniform(0.2, 0.8, (2, bound.n_param)))
    sources, rng = bound.sources(theta, 0), np.random.default_rng(1)
    names = ("lm", "stokes", "spectral_terms", "shape", "profile")
    slopes = {name: rng.normal(size=getattr(sources, name).shape) for name in names}

    def total(theta: np.ndarray) -> np.ndarray:
        found = bound.sources(theta, 0)
        return sum(np.sum(getattr(found, k) * s, axis=tuple(range(1, s.ndim))) for k, s in slopes.items())

    found = bound.pull_back(
        theta, [Gradient(*[slopes[name] for name in names[:4]], None, None, profile=slopes["profile"])]
    )
    h = 1e-4
    for i in range(bound.n_param):
        step = h * np.eye(bound.n_param)[i]
        expected = (
            total(theta - 2 * step)
            - 8 * total(theta - step)
            + 8 * total(theta + step)
            - total(theta + 2 * step)
        ) / (12 * h)
        # Rounding of sums of the order of 100 over h, and h^4 of functions that vary over 1.
        np.testing.assert_allclose(
            found[:, i], expected, rtol=1e-8, atol=1e-8, err_msg=bound.parameters[i].name
        )


def test_changes_of_the_arrays_are_the_adjoint_of_the_gradient() -> None:
    bound = rich_sky().bind([view()])
    batch = bound.at(bound.prior_transform(np.full((1, bound.n_param), 0.3)))
    rng = np.random.default_rng(2)
    change = rng.normal(size=(1, bound.n_param))
    (pushed,) = batch.push_forward(change)
    slopes = {
        k: rng.normal(size=getattr(pushed, k).shape)
        for k in ("lm", "stokes", "spectral_terms", "shape", "profile")
    }
    forward = sum(np.sum(getattr(pushed, k) * s) for k, s in slopes.items())
    back = bound.pull_back(
        bound.prior_transform(np.full((1, bound.n_param), 0.3)),
        [
            Gradient(
                *[slopes[k] for k in ("lm", "stokes", "spectral_terms", "shape")],
                None,
                None,
                profile=slopes["profile"],
            )
        ],
    )
    # Both are sums of some hundred products of the order of 1.
    assert forward == pytest.approx(np.sum(back * change), abs=1e-10)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (RingSource, {}, "a size is diameter alone"),
        (RingSource, {"diameter": "1 mas", "emaj": "1 mas"}, "found emaj, diameter"),
        (SersicSource, {"effective_radius": "1 mas"}, "n: is missing"),
        (MRingSource, RING, "beta_re and beta_im are missing"),
        (MRingSource, RING | {"beta_re": [0.1] * 13, "beta_im": [0.1] * 13}, "beta_1 to beta_12"),
        (MRingSource, RING | {"beta_re": [0.1], "beta_im": [0.1, 0.2]}, "found 1 and 2 numbers"),
        (
            MRingSource,
            ROUND | {"beta_pol_re": [0.1], "beta_pol_im": [0], "Q": "1 Jy"},
            "Q and U are given twice",
        ),
        (
            MRingSource,
            ROUND | {"beta_v_re": [0.1], "beta_v_im": [0.2]},
            "which must be 0",
        ),
        (GradientGaussianSource, {"fwhm": "1 mas"}, "gradient_along: is missing"),
        (ShapeletSource, {"scale": "1 mas", "coefficients": [0.1] * 3}, "whole orders"),
        (ShapeletSource, {"scale": "1 mas", "emaj": "1 mas", "coefficients": [0.1] * 2}, "no emaj"),
    ],
)  # fmt: skip
def test_refuses_what_is_no_shape(kind: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message) as error:
        kind("s", **PLACE, **given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (SersicSource("s", **PLACE, effective_radius="1 mas", n=9), "s.n must be within 0.3 .. 8"),
        (BetaModelSource("s", **PLACE, core_radius="1 mas", beta=0.5), "s.beta must be within 0.505 .. 8"),
        (RingSource("s", **PLACE, diameter="1 mas", blur="-1 mas"), "s.blur must be 0 arcsec or more"),
        (
            CoreHaloSource("s", **PLACE, fwhm="1 mas", core_fraction=0.1, blur="-1 mas"),
            "s.blur must be 0 arcsec or more",
        ),
        (RingSource("s", **PLACE, diameter="0 mas", blur="1 mas"), "s.diameter must be positive"),
        (
            AnnulusSource("s", **PLACE, diameter="1 mas", inner_ratio=1.2),
            "s.inner_ratio must be within 0 .. 1",
        ),
        (
            CoreHaloSource("s", **PLACE, fwhm="1 mas", core_fraction=-0.1),
            "s.core_fraction must be within 0 .. 1",
        ),
        (
            GradientGaussianSource("s", **PLACE, fwhm="1 mas", gradient_along=1),
            "source 's': a gradient of the spectral index needs a ref_freq",
        ),
        (
            DiscSource("s", **PLACE, emaj="1 mas", emin="2 mas", pa="0 deg"),
            "source 's': emaj must not be below emin",
        ),
    ],
)
def test_refuses_numbers_beyond_their_limits(source: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        SkyModel([source]).bind([view()])


def test_a_prior_beyond_the_limits_is_zero_there() -> None:
    bound = SkyModel([SersicSource("s", **PLACE, effective_radius="1 mas", n=Uniform(0.1, 10))]).bind(
        [view()]
    )
    theta = np.array([[0.2, 1.0], [1.0, 1.0], [9.0, 1.0]])[:, : bound.n_param]
    np.testing.assert_array_equal(np.isfinite(bound.log_prior(theta)), [False, True, False])


def test_component_lists_refuse_what_they_cannot_say(tmp_path: Any) -> None:
    sky = SkyModel([RingSource("r", ra="1 deg", dec="2 deg", I="1 Jy", diameter="1 mas")])
    with pytest.raises(ModelError, match="source 'r' is of type 'ring'"):
        write_sky(sky, tmp_path / "sky.osm")


def test_a_type_that_is_not_known_is_named() -> None:
    with pytest.raises(ModelError, match=r"type: one of point, gaussian, disc.*did you mean 'ring'"):
        from_toml('[[source]]\nname = "s"\ntype = "rings"\n')
