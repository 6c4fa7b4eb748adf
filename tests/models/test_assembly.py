"""Sources of several partitions: right, shared where they are alike, and nobody's but the caller's."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from biro.models import (
    Cos3Beam,
    GaussianSource,
    Noise,
    Normal,
    PartitionView,
    Pointing,
    PointSource,
    SkyModel,
    Uniform,
)
from biro.models.bound.memory import ReusedMemory
from biro.models.bound.model import BoundModel
from biro.models.bound.positions.places import SourceDirections, TangentPlanes
from rime_kernels import Sources

MakeView = Callable[..., PartitionView]
ARCSEC = np.pi / 648000
DEG = np.pi / 180
CENTRES = [(1.0, 0.5), (1.01, 0.49), (1.0, 0.5)]
ARRAYS = ("lm", "stokes", "ref_freq", "spectral_terms", "log_spectrum", "shape")
# So many that the arrays are not among the small ones that are made anew.
MANY = 3000


def lm_of(ra: np.ndarray, dec: np.ndarray, centre: tuple[float, float]) -> np.ndarray:
    """Physics: section 1, as it is written there."""
    ra0, dec0 = centre
    l = np.cos(dec) * np.sin(ra - ra0)
    m = np.sin(dec) * np.cos(dec0) - np.cos(dec) * np.sin(dec0) * np.cos(ra - ra0)
    return np.stack([l, m], -1)


@pytest.fixture
def fields(view: MakeView) -> list[PartitionView]:
    """Two fields; the first and the last partition are of one, in two bands."""
    names = ("a/x", "b/x", "a/y")
    return [view(name, centre) for name, centre in zip(names, CENTRES, strict=True)]


@pytest.fixture
def mixed(fields: list[PartitionView]) -> BoundModel:
    """Constant, free, tied and periodic quantities, positions of both kinds, Gaussians before points."""
    sources = [
        GaussianSource(
            "g", east="p.east", north="3 arcsec", I="q.I", emaj=Uniform(2, 4, "arcsec"),
            ratio="0.5", pa=Uniform(0, 180, "deg"), log10_spectrum=[-0.5, Normal(0, 1)],
        ),
        PointSource("p", east=Uniform(-60, 60, "arcsec"), north="0 arcsec", I="2 Jy", V="-0.5 Jy"),
        PointSource("q", ra="1.001 rad", dec=Uniform(0.48, 0.52, "rad"), I=Uniform(0, 3000, "mJy"),
                    pol_fraction=0.2, pol_angle=Uniform(-70, 110, "deg"), v_fraction=Uniform(-1, 1)),
        PointSource("f", ra="0.99 rad", dec="0.5 rad", I="7 Jy", spectral_index=-0.7),
        GaussianSource("c", east="1 arcmin", north="-1 arcmin", I="1 Jy", fwhm="g.emaj"),
    ]  # fmt: skip
    return SkyModel(sources, ref_freq="1 GHz", noise=Noise(1)).bind(fields)


def expected(theta: np.ndarray, centre: tuple[float, float]) -> dict[str, np.ndarray]:
    """What the model above means, for theta in the order of its file."""
    curve, emaj, pa, east, dec, flux, angle, circular = theta.T
    one = np.ones(len(theta))
    q = lm_of(1.001 * one, dec, centre)
    f = lm_of(0.99 * one, 0.5 * one, centre)
    away = [np.stack([a * one, b * one], -1) * ARCSEC for a, b in ((east, 0), (east, 3), (60, -60))]
    p, g, c = (offset_seen_from(offsets, centre) for offsets in away)
    i, chi, nil = flux / 1000, 2 * angle * DEG, 0 * one
    stokes = [
        [2 * one, nil, nil, -0.5 * one],
        [i, 0.2 * i * np.cos(chi), 0.2 * i * np.sin(chi), circular * i],
        [7 * one, nil, nil, nil],
        [i, nil, nil, nil],
        [one, nil, nil, nil],
    ]
    terms = np.zeros((len(theta), 5, 4, 2))
    terms[:, 2, :, 0] = -0.7
    terms[:, 3, :, 0] = -0.5
    terms[:, 3, :, 1] = curve[:, None] / np.log(10)
    size = emaj * ARCSEC
    # pa is from the north at the source, and the arrays count it from the m axis.
    turn = north_seen_from(away[1], centre)
    shape = [[size, size / 2, np.mod(pa, 180) * DEG + turn], [size, size, nil]]
    return {
        "lm": np.stack([p, q, f, g, c], 1),
        "stokes": np.moveaxis(np.array(stokes), -1, 0)[:, None],
        "spectral_terms": terms,
        "shape": np.moveaxis(np.array(shape), -1, 0),
    }


def radec_of(offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Right ascension and declination of direction cosines about the first centre."""
    (ra0, dec0), (x, y) = CENTRES[0], offsets.T
    n = np.sqrt(1 - x * x - y * y)
    dec = np.arcsin(y * np.cos(dec0) + n * np.sin(dec0))
    return ra0 + np.arctan2(x, n * np.cos(dec0) - y * np.sin(dec0)), dec


def offset_seen_from(offsets: np.ndarray, centre: tuple[float, float]) -> np.ndarray:
    """Direction cosines about a centre of direction cosines about the first."""
    return lm_of(*radec_of(offsets), centre)


def north_seen_from(offsets: np.ndarray, centre: tuple[float, float]) -> np.ndarray:
    """atan2(dl/ddec, dm/ddec) of direction cosines about the first centre, in the plane of a centre."""
    (ra, dec), (ra0, dec0) = radec_of(offsets), centre
    dl = -np.sin(dec) * np.sin(ra - ra0)
    dm = np.cos(dec) * np.cos(dec0) + np.sin(dec) * np.sin(dec0) * np.cos(ra - ra0)
    return np.arctan2(dl, dm)


def draws(model: BoundModel, n: int, seed: int = 0) -> np.ndarray:
    return model.prior_transform(np.random.default_rng(seed).random((n, model.n_param)))


@pytest.mark.parametrize("n_batch", [1, 7, MANY])
def test_every_partition_has_the_sources_that_the_model_says(mixed: BoundModel, n_batch: int) -> None:
    names = "g.log10_spectrum[1] g.emaj g.pa p.east q.dec q.I q.pol_angle q.v_fraction"
    assert mixed.parameter_names == tuple(names.split())
    theta = draws(mixed, n_batch)
    theta[0, 2] += 540.0  # an angle outside the range of its prior means the one inside
    for i, sources in enumerate(mixed.sources_of_all(theta)):
        alone = mixed.sources(theta, i)
        for name, value in expected(theta, CENTRES[i]).items():
            # Rounding: terms of order 1 cancel in l and m (2e-15), and 540 deg in the angle (1e-13).
            np.testing.assert_allclose(getattr(sources, name), value, rtol=1e-13, atol=2e-15)
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(alone, name), getattr(sources, name))
            assert getattr(sources, name).flags.c_contiguous
        assert sources.beam is None
    assert i == 2


def test_a_batch_is_its_vectors_to_the_bit(mixed: BoundModel) -> None:
    theta = draws(mixed, 20)
    theta[3:6, 2] -= 180.0
    together = list(mixed.sources_of_all(theta))
    for k, vector in enumerate(theta):
        for one, all_of_them in zip(mixed.sources_of_all(vector), together, strict=True):
            for name in ("lm", "stokes", "spectral_terms", "shape"):
                np.testing.assert_array_equal(getattr(one, name)[0], getattr(all_of_them, name)[k])


def test_partitions_share_what_they_may(mixed: BoundModel) -> None:
    first, second, third = mixed.sources_of_all(draws(mixed, 2))
    assert third is first  # of one phase centre
    assert second is not first
    for name in ("stokes", "spectral_terms", "ref_freq", "log_spectrum"):
        assert getattr(second, name) is getattr(first, name)


def test_pointing_is_shared_by_partitions_of_the_same_times(view: MakeView) -> None:
    fields = [view("a/x"), view("a/y"), view("b/x", n_time=2)]
    pointing = Pointing(east=["0 rad", Normal(0, 1, "arcsec")])
    source = PointSource("s", east="0 rad", north="0 rad", I="1 Jy")
    model = SkyModel(source, beam=Cos3Beam(), pointing=pointing, noise=Noise(1)).bind(fields)
    first, second, third = model.sources_of_all(np.array([[1.0, 2.0, 3.0]]))
    assert second is first
    assert third.beam.scale is first.beam.scale
    # Times 0, 10, 20 s of the data are -1, 0, 1; antenna B has the second parameter.
    np.testing.assert_allclose(first.beam.pointing[0, :, 1, 0], np.array([-2, 0, 2]) * ARCSEC, rtol=1e-15)
    np.testing.assert_allclose(third.beam.pointing[0, :, 1, 0], np.array([-2, 0]) * ARCSEC, rtol=1e-15)
    alone = model.sources([[1.0, 2.0, 3.0]], 2).beam
    np.testing.assert_array_equal(alone.pointing, third.beam.pointing)


@pytest.mark.parametrize("n_batch", [1, MANY])
def test_sources_of_one_partition_belong_to_the_caller(mixed: BoundModel, n_batch: int) -> None:
    theta = draws(mixed, n_batch)
    before = [mixed.sources(theta, i).copy() for i in range(3)]
    for name in ARRAYS:
        spoilt = mixed.sources(theta, 1)
        getattr(spoilt, name)[...] = 1
    for i, kept in enumerate(before):
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(mixed.sources(theta, i), name), getattr(kept, name))


def test_results_that_are_kept_are_not_written_over(mixed: BoundModel) -> None:
    """Memory is used again only for results that are gone."""
    several = [draws(mixed, MANY, seed) for seed in range(4)]
    kept = [list(mixed.sources_of_all(theta)) for theta in several]
    for theta, found in zip(several, kept, strict=True):
        for i, sources in enumerate(found):
            np.testing.assert_allclose(sources.lm, expected(theta, CENTRES[i])["lm"], rtol=1e-13, atol=2e-15)
            np.testing.assert_allclose(sources.stokes, expected(theta, CENTRES[i])["stokes"], rtol=1e-13)


def test_threads_do_not_disturb_each_other(mixed: BoundModel) -> None:
    several = [draws(mixed, MANY, seed) for seed in range(16)]

    def worst(theta: np.ndarray) -> float:
        return max(
            np.abs(sources.stokes - expected(theta, CENTRES[i])["stokes"]).max()
            for i, sources in enumerate(mixed.sources_of_all(theta))
        )

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(worst, several)) < 1e-14  # rounding of at most 7 Jy


def test_memory_is_used_again_when_nobody_looks_at_it() -> None:
    memory = ReusedMemory()
    first = memory.empty(100, 200)
    part = first[50:].reshape(-1)
    del first
    second = memory.empty(100, 200)
    assert not np.shares_memory(second, part)
    where = second.ctypes.data
    del second
    assert memory.empty(300, 50).ctypes.data == where
    assert memory.empty(3, 4).shape == (3, 4)


def test_a_bound_model_can_be_pickled(mixed: BoundModel) -> None:
    """Samplers that keep their state as a pickle take the likelihood along."""
    theta = draws(mixed, 2)
    again = pickle.loads(pickle.dumps(mixed))
    for kept, sources in zip(again.sources_of_all(theta), mixed.sources_of_all(theta), strict=True):
        np.testing.assert_array_equal(kept.lm, sources.lm)


def test_a_sky_of_stokes_i_says_so(view: MakeView) -> None:
    at = {"east": "0 rad", "north": "0 rad"}

    def polarised(**given: object) -> bool:
        model = SkyModel(PointSource("s", **at, **given), noise=Noise(1)).bind([view()])
        (sources,) = model.sources_of_all(draws(model, 2))
        return sources.polarised

    assert not polarised(I="1 Jy")
    assert not polarised(I=Uniform(0, 1, "Jy"), Q="0 Jy")
    assert polarised(I="1 Jy", U="0.1 Jy")
    assert polarised(I="1 Jy", V=Uniform(-1, 1, "Jy"))
    assert polarised(I="1 Jy", pol_fraction=0.1, pol_angle="0 deg")
    assert polarised(I="1 Jy", v_fraction=0.1)


def test_constraints_see_angles_within_their_period(view: MakeView) -> None:
    source = GaussianSource(
        "g",
        east="0 rad",
        north="0 rad",
        I="1 Jy",
        emaj="2 arcsec",
        emin="1 arcsec",
        pa=Uniform(0, 180, "deg"),
    )
    free = SkyModel(source, noise=Noise(1)).bind([view()])
    assert not free.is_constrained
    assert free.allowed([[400.0]]).tolist() == [True]
    model = SkyModel(source, noise=Noise(1), constraints=[lambda p: p["g.pa"] < 90]).bind([view()])
    assert model.is_constrained
    assert model.allowed([[10.0], [100.0], [190.0], [-10.0], [np.nan]]).tolist() == [
        True,
        False,
        True,
        False,
        False,
    ]


def test_an_angle_within_its_period_stays_to_the_bit(mixed: BoundModel) -> None:
    theta = draws(mixed, 200)
    theta[:, 6] = np.linspace(-1, 1, 200) / 7  # digits that 70 deg more and 70 deg less would cost
    assert mixed.wrap(theta) is theta
    theta[1, 2] += 180.0
    wrapped = mixed.wrap(theta)
    assert wrapped is not theta
    np.testing.assert_array_equal(np.delete(wrapped, 1, 0), np.delete(theta, 1, 0))
    np.testing.assert_array_equal(np.delete(wrapped[1], 2), np.delete(theta[1], 2))
    assert wrapped[1, 2] == pytest.approx(theta[1, 2] - 180.0, rel=1e-13)


def test_an_angle_a_rounding_below_its_range_is_its_start(mixed: BoundModel) -> None:
    """180 - 1e-14 rounds to 180, the same angle, which the range does not contain."""
    low = float(mixed.parameters[2].prior.support[0])
    theta = draws(mixed, 3)
    theta[:, 2] = [np.nextafter(low, -np.inf), low - 180.0, low + 180.0]
    wrapped = mixed.wrap(theta)[:, 2]
    assert (wrapped >= low).all()
    assert (wrapped < low + 180.0).all()
    np.testing.assert_allclose(wrapped[1:], low, atol=1e-12)


def test_a_few_moving_sources_among_fixed_ones(view: MakeView) -> None:
    """Fixed positions are settled beforehand, the others put in their places."""
    ra, dec = 1.0 + 0.001 * np.arange(6), 0.5 - 0.002 * np.arange(6)
    sources = [
        PointSource(
            f"s{i}",
            ra=f"{ra[i]} rad",
            dec=Uniform(0.4, 0.6, "rad") if i in (1, 4) else f"{dec[i]} rad",
            I="1 Jy",
        )
        for i in range(6)
    ]
    model = SkyModel(sources, noise=Noise(1)).bind([view("a", CENTRES[0]), view("b", CENTRES[1])])
    theta = np.array([[0.45, 0.55], [0.5, 0.51], [0.41, 0.59]])
    for found, centre in zip(model.sources_of_all(theta), CENTRES, strict=False):
        for k, (second, fifth) in enumerate(theta):
            moved = dec.copy()
            moved[[1, 4]] = second, fifth
            np.testing.assert_allclose(found.lm[k], lm_of(ra, moved, centre), rtol=1e-12, atol=1e-15)


def test_hidden_sources_of_either_kind_are_nan() -> None:
    planes = TangentPlanes([(0.0, 0.0), (1.0, 0.0)], (0.0, 0.0))
    lm = SourceDirections(np.array([True, False, True, False]), planes).lm(
        np.array([[[0.8, 0.61], [1.6, 0.0], [-0.72, 0.68], [-0.5, 0.0]]])
    )
    # 0.8^2 + 0.61^2 > 1; 1.6 rad from the first centre; 0.72 to the west is 1 + 0.9 rad from the second.
    assert np.isnan(lm[0, 0, :, 0]).tolist() == [True, True, False, False]
    assert np.isnan(lm[1, 0, :, 0]).tolist() == [True, False, True, False]
    np.testing.assert_array_equal(lm[0, 0, 2], [-0.72, 0.68])


def test_copies_are_checked_and_apart(mixed: BoundModel) -> None:
    (first, *_) = mixed.sources_of_all(draws(mixed, 2))
    copied = first.copy()
    assert isinstance(copied, Sources)
    for name in ARRAYS:
        assert not np.shares_memory(getattr(copied, name), getattr(first, name))
    assert copied.polarised


def test_sources_that_vary_are_those_between_the_first_and_the_last_with_a_parameter(view: MakeView) -> None:
    free, known = Uniform(0, 2, "Jy"), {"east": "1 arcsec", "north": "0 arcsec"}
    at = [view("a", CENTRES[0])]

    def varied(*flux: object, beam: object = None, halo: object = "1 arcsec") -> object:
        names = "abcd"[: len(flux)]
        sources = [PointSource(n, I=x, **known) for n, x in zip(names, flux, strict=True)]  # type: ignore[arg-type]
        sources.append(GaussianSource("g", I="1 Jy", fwhm=halo, **known))  # type: ignore[arg-type]
        model = SkyModel(sources, beam=beam, noise=Noise(Uniform(1, 2))).bind(at)  # type: ignore[arg-type]
        (found,) = model.at(np.full((1, model.n_param), 1.5)).sources()
        return found.varied

    assert varied("1 Jy", free, "1 Jy") == (1, 2)
    assert varied("1 Jy", free, "1 Jy", "b.I") == (1, 4)  # one that is tied follows the parameter
    assert varied("1 Jy", "1 Jy", halo=Uniform(1, 2, "arcsec")) == (2, 3)
    assert varied("1 Jy", "1 Jy") == (0, 0)
    assert varied(free, "1 Jy", halo=Uniform(1, 2, "arcsec")) is None
    assert varied("1 Jy", free, "1 Jy", beam=Cos3Beam("65 /GHz")) == (1, 2)
    assert varied("1 Jy", free, "1 Jy", beam=Cos3Beam(Uniform(60, 70, "/GHz"))) is None
