"""Derivatives of the sources and their adjoint, against differences of the sources themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from biro.models import (
    AiryBeam,
    Cos3Beam,
    CrescentSource,
    GaussianBeam,
    GaussianSource,
    HalfNormal,
    ImageModel,
    ImageTerm,
    Noise,
    Normal,
    PartitionView,
    Pointing,
    PointSource,
    SkyModel,
    Uniform,
)
from biro.models.bound.model import BoundModel
from biro.models.bound.si_values import Scatter
from rime_kernels import Sources

MakeView = Callable[..., PartitionView]
CENTRES = [(1.0, 0.5), (1.01, 0.49), (1.0, 0.5)]
AT = {"east": "1 arcsec", "north": "-2 arcsec"}


def fields_of(sources: Sources) -> SimpleNamespace:
    """The arrays that can follow theta, under the names that their derivatives have."""
    beam = sources.beam
    return SimpleNamespace(
        lm=sources.lm,
        stokes=sources.stokes,
        spectral_terms=sources.spectral_terms,
        shape=sources.shape,
        beam_scale=None if beam is None else beam.scale,
        pointing=None if beam is None else beam.pointing,
        template_scale=sources.template_scale,
        template_shift=sources.template_shift,
        faraday=sources.faraday,
        profile=sources.profile,
    )


def random_slopes(like: SimpleNamespace, rng: np.random.Generator) -> SimpleNamespace:
    """Numbers of the size that makes every array count alike."""

    def one(array: np.ndarray | None) -> np.ndarray | None:
        if array is None:
            return None
        return rng.normal(size=array.shape) / max(1e-12, np.abs(array).max(initial=0.0))

    return SimpleNamespace(**{name: one(array) for name, array in vars(like).items()})


def linear(model: BoundModel, theta: np.ndarray, slopes: Sequence[SimpleNamespace], weight: np.ndarray):
    """sum over partitions of weight times <slopes, sources>: what has these slopes by construction."""
    total = np.zeros(len(theta))
    for i, sources in enumerate(model.sources_of_all(theta)):
        for name, array in vars(fields_of(sources)).items():
            if array is not None:
                product = getattr(slopes[i], name)[:1] * array
                total += weight[i] * product.reshape(len(theta), -1).sum(axis=1)
    return total


def check(model: BoundModel, n_batch: int = 3, seed: int = 0) -> None:
    """pull_back of random slopes is the derivative of the sum with these slopes, by 4th-order differences."""
    rng = np.random.default_rng(seed)
    theta = model.prior_transform(0.05 + 0.9 * rng.random((n_batch, model.n_param)))
    weight = rng.uniform(0.5, 2.0, len(model.partitions))
    slopes = [random_slopes(fields_of(sources), rng) for sources in model.sources_of_all(theta)]
    for each in slopes:  # one row for all entries of the batch, so that a sum over rows is no mixture
        for name, array in vars(each).items():
            if array is not None:
                setattr(each, name, np.repeat(array[:1], n_batch, axis=0))
    found = model.pull_back(theta, slopes, np.broadcast_to(weight, (n_batch, len(weight))))
    low, high = model.prior_transform(np.array([np.full(model.n_param, p) for p in (0.25, 0.75)]))
    # h^4/30 of fifth derivatives on the prior's scale, and rounding 1e-16 / h.
    step = 3e-3 * (high - low)
    for i, name in enumerate(model.parameter_names):
        value = [linear(model, theta + k * step * (np.arange(len(step)) == i), slopes, weight)
                 for k in (-2, -1, 1, 2)]  # fmt: skip
        expected = (value[0] - 8 * value[1] + 8 * value[2] - value[3]) / (12 * step[i])
        scale = np.abs(expected).max() + 1.0 / (high - low)[i] * 1e-3
        np.testing.assert_allclose(found[:, i], expected, rtol=1e-7, atol=1e-7 * scale, err_msg=name)
        assert np.abs(expected).max() > 0, name
    check_push_forward(model, theta, slopes, weight, found)


def check_push_forward(
    model: BoundModel,
    theta: np.ndarray,
    slopes: Sequence[SimpleNamespace],
    weight: np.ndarray,
    pulled: np.ndarray,
) -> None:
    """<push_forward(v), slopes> = <v, pull_back(slopes)>, about each theta and about one."""
    low, high = model.prior_transform(np.array([np.full(model.n_param, p) for p in (0.25, 0.75)]))
    change = np.random.default_rng(9).normal(size=theta.shape) * (high - low)
    for about, expected in ((theta, pulled), (theta[0], pulled[:1])):
        found = np.zeros(len(theta))
        for i, pushed in enumerate(model.push_forward(about, change)):
            for name, array in vars(slopes[i]).items():
                if array is not None:
                    moved = getattr(pushed, name)
                    assert moved.shape == array.shape, name
                    found += weight[i] * (moved * array).reshape(len(theta), -1).sum(axis=1)
        terms = expected * change
        # Rounding of some tens of terms.
        assert (np.abs(found - terms.sum(axis=1)) < 1e-12 * np.abs(terms).sum(axis=1)).all()


def test_spectra_and_rotation(view: MakeView) -> None:
    rm = Uniform("-50 rad/m2", "50 rad/m2")
    model = SkyModel(
        [
            PointSource("a", **AT, I="1 Jy", Q="0.1 Jy", rm=rm, rm_width=HalfNormal("9 rad/m2"),
                        spectral_index={"I": [-0.7, 0.1], "Q": Normal(-0.5, 0.1)},
                        free_free=Uniform("0.2 GHz", "1 GHz")),
            PointSource("b", **AT, I="1 Jy", pol_fraction=0.1, pol_angle="10 deg", rm="a.rm * 0.5",
                        rm_scatter="a.rm_width", self_absorption="a.free_free * 3",
                        spectral_index=Uniform(-2, -0.1), thick_index=Normal(2.5, 0.1)),
            PointSource("c", **AT, I="1 Jy", line={
                "velocity": Normal(0, 20, "km/s"), "rest_freq": "1420.4 MHz", "height": Uniform(-1, 0),
                "fwhm": Uniform("5 km/s", "50 km/s"), "profile": "lorentzian"}, log10_spectrum=[-0.7, 0.2]),
            PointSource("e", **AT, I="1 Jy", v_fraction=Uniform(-0.1, 0.1), v_index=Normal(0, 1),
                        spectral_index=Uniform(-1, 0)),
            GaussianSource("d", **AT, fwhm="1 arcsec", I="1 Jy", table={
                "freq": ["1 GHz", "2 GHz"], "value": [Uniform(0.5, 2), "d.table.value[0] * 0.5"]}),
        ],
        ref_freq="1.4 GHz",
    )  # fmt: skip
    check(model.bind([view("f/a"), view("g/a", (3.26, 0.03))]))


@pytest.mark.parametrize("between", ["linear", "constant"])
def test_light_curves(view: MakeView, between: str) -> None:
    """Partitions of different times, a source without knots, fractions of what varies."""
    flux = Uniform("1 Jy", "2 Jy")
    model = SkyModel(
        [
            PointSource("a", **AT, times=["5 s", "12 s", "40 s"], between=between,
                        I=[flux, "a.I[0] * 2", flux], Q=Uniform("0 Jy", "1 Jy"), v_fraction=Uniform(-1, 1)),
            PointSource("b", **AT, I=flux, pol_fraction=Uniform(0, 1), pol_angle="20 deg"),
            GaussianSource("c", **AT, fwhm="1 arcsec", I=[flux, flux], times=["0 s", "1 min"],
                           pol_fraction=Uniform(0, 1), pol_angle=Uniform("0 deg", "90 deg")),
        ]
    )  # fmt: skip
    check(model.bind([view("f/a"), view("g/a"), view("h/a", n_time=6)]))


@pytest.fixture
def fields(view: MakeView) -> list[PartitionView]:
    names = ("a/x", "b/x", "a/y")
    return [view(name, centre) for name, centre in zip(names, CENTRES, strict=True)]


def test_of_positions_fluxes_spectra_and_shapes(fields: list[PartitionView]) -> None:
    sources = [
        GaussianSource(
            "g", east="p.east", north="3 arcsec", I="q.I", emaj=Uniform(2, 4, "arcsec"),
            ratio=Uniform(0.2, 0.8), pa=Uniform(0, 180, "deg"), log10_spectrum=[-0.5, Normal(0, 1)],
        ),
        PointSource("p", east=Uniform(-60, 60, "arcsec"), north="0 arcsec", I=Normal(2, 1, "Jy"),
                    Q=Uniform(-100, 100, "mJy"), U="p.Q", V="-0.5 Jy",
                    spectral_index={"I": [Normal(-0.7, 0.1), Normal(0, 0.1)], "Q": "g.log10_spectrum[1]"}),
        PointSource("q", ra=Uniform(0.99, 1.01, "rad"), dec=Uniform(28, 29, "deg"), I=Uniform(0, 3000, "mJy"),
                    pol_fraction=Uniform(0.1, 0.5), pol_angle=Uniform(-70, 110, "deg"),
                    v_fraction=Uniform(-1, 1), polynomial=[Normal(0, 1), "g.log10_spectrum[1]"]),
        PointSource("f", ra="0.99 rad", dec="0.5 rad", I="7 Jy", spectral_index=-0.7),
        GaussianSource("c", east="1 arcmin", north="-1 arcmin", I="1 Jy", fwhm="g.emaj"),
        GaussianSource("e", east="p.east", north="p.east", I="1 Jy", emaj="g.emaj",
                       emin=Uniform(100, 1000, "mas"), pa="q.pol_angle"),
    ]  # fmt: skip
    check(SkyModel(sources, ref_freq="1 GHz", noise=Noise(1)).bind(fields))


def test_derivatives_by_way_of_the_bearing(view: MakeView) -> None:
    """Positions and motions of sources far from centres near the pole turn their shapes."""
    polar = (0.52, 1.4)
    wide = {"emaj": "40 arcsec", "ratio": Uniform(0.2, 0.8), "pa": Uniform(0, 180, "deg")}
    sources = [
        GaussianSource("a", ra=Uniform(40, 50, "deg"), dec=Uniform(80, 81, "deg"), I="1 Jy", **wide),
        GaussianSource("b", east=Uniform(1, 2, "deg"), north=Uniform(-1, 1, "deg"), I="1 Jy", **wide),
        CrescentSource("c", ra="48 deg", dec=Uniform(80, 81, "deg"), I="1 Jy", diameter="40 arcsec",
                       inner_ratio=0.5, offset=0.6, hole_pa=Uniform(0, 90, "deg")),
        GaussianSource("d", ra="48 deg", dec="81 deg", I="1 Jy", pm_east=Uniform(5e-3, 1e-2, "deg/yr"),
                       pm_north="0 deg/yr", epoch="1961-01-01", emaj="1 arcmin", emin="30 arcsec",
                       pa="10 deg"),
        GaussianSource("e", ra="48 deg", dec="81 deg", I="1 Jy", frame="phase_centre", **wide),
    ]  # fmt: skip
    fields = [view("a/x", polar), view("b/x", (0.8, 1.38))]
    check(SkyModel(sources, noise=Noise(1)).bind(fields))


def test_of_polarised_light_curves(fields: list[PartitionView]) -> None:
    """Fractions are one number for all times, fluxes one for each."""
    fluxes = [Uniform(1, 2, "Jy"), "s.I[0]", Uniform(500, 900, "mJy")]
    source = PointSource("s", **AT, I=fluxes, pol_fraction=Uniform(0.1, 0.5), pol_angle=Uniform(0, 60, "deg"),
                         v_fraction=Uniform(-0.5, 0.5))  # fmt: skip
    check(SkyModel(source, noise=Noise(1)).bind(fields))


@pytest.mark.parametrize(
    "beam",
    [
        Cos3Beam(Uniform(60, 70, "1/GHz")),
        GaussianBeam(Uniform(20, 40, "arcmin"), "1.4 GHz"),
        AiryBeam(Uniform(2200, 2600, "cm")),
    ],
)
def test_of_beams_and_pointing(fields: list[PartitionView], view: MakeView, beam: object) -> None:
    """Polynomials in time, antennas of their own, partitions with other times."""
    pointing = Pointing(
        east=[Normal(0, 1, "arcsec"), "0 arcsec", Normal(0, 2, "arcsec")],
        north=Normal(0, 1e-5, "rad"),
        antenna={"B": {"east": "pointing.north[A]", "north": [Normal(0, 1, "arcmin"), "1 arcsec"]}},
    )
    sky = SkyModel(PointSource("s", **AT, I="1 Jy"), beam=beam, pointing=pointing, noise=Noise(1))
    check(sky.bind([*fields, view("c/x", CENTRES[1], n_time=2, antennas="BAD")]))


def test_of_images(fields: list[PartitionView]) -> None:
    image = ImageModel(np.ones((1, 1, 4, 4)), 1e-5, (1.0, 0.5))
    terms = [
        ImageTerm("a", file=image, scale=Uniform(0, 2), east=Uniform(-1, 1, "arcsec"), north="s.east"),
        ImageTerm("b", file=image, scale="a.scale"),
    ]
    source = PointSource("s", east=Uniform(-1, 1, "arcmin"), north="0 rad", I="1 Jy")
    check(SkyModel(source, images=terms, noise=Noise(1)).bind(fields))
    check(SkyModel(source, images=[ImageTerm("a", file=image, scale=Uniform(0, 2))]).bind(fields[:1]))


def test_of_offsets_far_out(fields: list[PartitionView]) -> None:
    """Where the outward part of an offset counts: 30 deg out, seen from centres 1 rad apart."""
    away = [PartitionView("z/x", "z", "x", (1.9, -0.2), fields[0].time, fields[0].chan_freq, ("A", "B", "C"))]
    source = PointSource("s", east=Uniform(0.3, 0.5, "rad"), north=Uniform(-0.5, -0.3, "rad"), I="1 Jy")
    check(SkyModel(source, noise=Noise(1)).bind([*fields, *away]))


def test_of_a_few_moving_sources_among_fixed_ones(fields: list[PartitionView]) -> None:
    sources = [
        PointSource(f"s{i}", ra=f"{1 + 0.001 * i} rad", dec=Uniform(0.4, 0.6, "rad") if i == 3 else "0.5 rad",
                    I="1 Jy")
        for i in range(6)
    ]  # fmt: skip
    check(SkyModel(sources, noise=Noise(1)).bind(fields))


@pytest.mark.parametrize("per", ["partition", "field", "all"])
def test_of_noise_factors(fields: list[PartitionView], per: str) -> None:
    model = SkyModel(PointSource("s", **AT, I=Uniform(0, 1, "Jy")), noise=Noise(per=per)).bind(fields)
    rng = np.random.default_rng(1)
    slopes, theta = rng.normal(size=(4, 3)), model.prior_transform(rng.random((4, model.n_param)))
    found = model.pull_back_noise(slopes)
    for i in range(model.n_param):
        # Linear in theta: one difference is exact but for rounding.
        change = model.noise_factor(theta + (np.arange(model.n_param) == i)) - model.noise_factor(theta)
        np.testing.assert_allclose(found[:, i], (slopes * change).sum(axis=1), rtol=1e-12, atol=1e-12)
    fixed = SkyModel(PointSource("s", **AT, I=Uniform(0, 1, "Jy")), noise=Noise(2)).bind(fields)
    assert not fixed.pull_back_noise(slopes).any()


def test_not_a_number_stays_in_its_row(fields: list[PartitionView]) -> None:
    source = PointSource("s", east=Uniform(0, 1, "arcsec"), north="0 rad", I=Uniform(0, 1, "Jy"))
    model = SkyModel(source, noise=Noise(1)).bind(fields)
    theta = np.full((3, 2), 0.5)
    slopes = [random_slopes(fields_of(s), np.random.default_rng(0)) for s in model.sources_of_all(theta)]
    slopes[1].lm[1] = np.nan
    found = model.pull_back(theta, slopes)
    assert np.isnan(found[1, 0])
    assert np.isfinite(found[[0, 2]]).all()


def test_scatter_is_the_adjoint_of_take() -> None:
    rng = np.random.default_rng(0)
    index = np.array([3, 0, 3, 9, 1, 3, 0])
    given, elements = rng.normal(size=(2, 5)), rng.normal(size=(2, 7))
    into = np.zeros((2, 5))
    Scatter(index, 5).add(into, elements)
    kept = index < 5
    taken = given[:, index[kept]]
    np.testing.assert_allclose((into * given).sum(), (taken * elements[:, kept]).sum(), rtol=1e-13)
