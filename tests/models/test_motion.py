"""Proper motion and orbits: closed forms, other programs' numbers, derivatives, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from astropy import units
from astropy.coordinates import SkyCoord
from astropy.time import Time

from biro.models import ModelError, PartitionView, PointSource, SkyModel, read_model, write_model
from biro.models.bound.positions.motion import eccentric_anomaly, orbit_offset
from biro.models.components.direction import radec_to_lm
from biro.models.files import write_oskar
from biro.models.files.toml import from_toml

MakeView = Callable[..., PartitionView]
MAS = np.pi / 648e6
YEAR = 365.25 * 86400.0
HEAD = '[[source]]\nname = "a"\nI = "1 Jy"\n'
OFFSET = HEAD + 'east = "0 mas"\nnorth = "0 mas"\n'
ORBIT = (
    'orbit = { period = "2 yr", periastron = "0.3 yr", eccentricity = 0.6, semi_major = "4 mas", '
    'inclination = "50 deg", node = "30 deg", argument = "80 deg" }\n'
)


def at(view: PartitionView, years: float) -> PartitionView:
    return replace(view, label=f"{view.label}+{years}", time=view.time + years * YEAR)


def places(text: str, views: list[PartitionView]) -> np.ndarray:
    """(l, m) in mas of the first source in each partition."""
    bound = from_toml(text).bind(views)
    theta = bound.prior_transform(np.full((1, bound.n_param), 0.5))
    return np.array([sources.lm[0, 0] for sources in bound.sources_of_all(theta)]) / MAS


def test_keplers_equation() -> None:
    mean = np.concatenate([np.linspace(-20.0, 20.0, 4001), np.geomspace(1e-12, 1.0, 200)])
    for e in (0.0, 1e-3, 0.3, 0.9, 0.99):
        found = eccentric_anomaly(mean, np.array(e))
        # 1e-15 times the largest numbers here; the task is 1e-12.
        np.testing.assert_allclose(found - e * np.sin(found), mean, rtol=0, atol=2e-14)
    ends = np.array([0.0, np.pi])
    np.testing.assert_allclose(eccentric_anomaly(ends, np.array(0.7)), ends, atol=1e-15)


def test_orbits_that_have_closed_forms() -> None:
    # Face-on circle: the position angle grows by 360 deg in a period, from node + argument.
    t = np.linspace(0.0, 3.0, 7)
    for when in t:
        offset, _ = orbit_offset(np.array([3.0, 0.0, 0.0, 2.0, 0.0, 0.4, 0.3]), when)
        angle = 0.7 + 2 * np.pi * when / 3.0
        np.testing.assert_allclose(offset, [2 * np.sin(angle), 2 * np.cos(angle)], atol=1e-14)
    # At periastron a (1 - e) along the argument, half a period later a (1 + e) on the other side; edge-on
    # everything lies on the line of nodes.
    for when, along in ((1.0, 0.5), (2.5, -1.5)):
        face, _ = orbit_offset(np.array([3.0, 1.0, 0.5, 1.0, 0.0, 0.0, 0.25]), when)
        np.testing.assert_allclose(face, [along * np.sin(0.25), along * np.cos(0.25)], atol=1e-14)
        edge, _ = orbit_offset(np.array([3.0, 1.0, 0.5, 1.0, np.pi / 2, 0.0, 0.25]), when)
        np.testing.assert_allclose(edge, [0.0, along * np.cos(0.25)], atol=1e-14)
    # Kepler's second law: areas are swept at a constant rate, pi a^2 sqrt(1 - e^2) cos i in a period.
    elements = np.array([3.0, 1.0, 0.5, 1.3, 1.1, 0.2, 0.25])
    h = 1e-4
    for when in t:
        (x0, y0), (x1, y1) = (orbit_offset(elements, when + s)[0] for s in (-h, h))
        swept = 0.5 * (y0 * x1 - x0 * y1) / (2 * h)
        # The chord cuts off a share of about h^2 of the area.
        expected = np.pi * 1.3**2 * np.sqrt(0.75) * np.cos(1.1) / 3.0
        assert swept == pytest.approx(expected, rel=1e-6)


def test_derivatives_of_an_orbit() -> None:
    elements = np.array([2.0, 0.3, 0.6, 4.0, 0.9, 0.5, 1.4])
    _, slopes = orbit_offset(elements, 7.1)
    for k, h in enumerate(1e-3 * np.maximum(np.abs(elements), 0.3)):
        step = h * np.eye(7)[k]
        p, m, pp, mm = (orbit_offset(elements + s * step, 7.1)[0] for s in (1, -1, 2, -2))
        # Differences of fourth order: 1e-12 of higher derivatives, which reach 1e4 here.
        np.testing.assert_allclose(slopes[:, k], (8 * (p - m) - (pp - mm)) / (12 * h), rtol=1e-7, atol=1e-7)


def test_offsets_move_from_their_epoch(view: MakeView) -> None:
    text = OFFSET + 'pm_east = "3 mas/yr"\npm_north = "-1 mas/yr"\n'
    views = [at(view(), 0.0), at(view("g/b"), 2.5)]
    mean = 10.0 / YEAR  # of the times 0, 10, 20 s
    expected = np.array([[3.0, -1.0]]) * np.array([[mean], [2.5 + mean]])
    np.testing.assert_allclose(places(text, views), expected, rtol=1e-12)
    later = places(text + 'epoch = "365.25 day"\n', views)
    np.testing.assert_allclose(later, expected - [[3.0, -1.0]], rtol=1e-9)


@pytest.mark.filterwarnings("ignore:ERFA function")  # of the distance, which is far
def test_right_ascension_and_declination_move_as_in_astropy(view: MakeView) -> None:
    """Barnard's star over 10 years near the pole, where the sky is curved within the motion."""
    start = Time("2016-01-01T12:00:00", scale="utc")
    data = replace(view(centre=(1.0, 1.55)), time=(start + 10 * units.year).mjd * 86400 + np.zeros(1))
    text = (
        HEAD + 'ra = "1.01 rad"\ndec = "1.551 rad"\npm_east = "-8000 mas/yr"\npm_north = "10.362 arcsec/yr"\n'
    )
    found = places(text + 'epoch = "J2016.0"\n', [data])[0] * MAS
    star = SkyCoord(
        1.01 * units.rad,
        1.551 * units.rad,
        pm_ra_cosdec=-8000 * units.mas / units.yr,
        pm_dec=10362 * units.mas / units.yr,
        obstime=Time("J2016.0"),
        distance=1e9 * units.pc,
    )
    moved = star.apply_space_motion(start + 10 * units.year)
    expected = radec_to_lm(moved.ra.rad, moved.dec.rad, (1.0, 1.55))
    # A tangent plane and a great circle differ in third order of 6e-4 rad; TDB and UTC by 70 s, 3e-8 mas.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        np.hypot(*(found - radec_to_lm(1.01, 1.551, (1.0, 1.55)))), 6.347e-4, rtol=1e-2
    )


def test_a_pair_has_one_position(view: MakeView) -> None:
    """Tied to the primary, the companion is at its offset from it; both turn about the centre of mass."""
    views = [at(view(), 0.0), at(view("g/b"), 0.7)]
    pair = (
        OFFSET.replace("0 mas", "5 mas")
        + 'orbit = { period = "b.orbit.period", periastron = "b.orbit.periastron", '
        'eccentricity = "b.orbit.eccentricity", semi_major = "b.orbit.semi_major * 0.25", '
        'inclination = "b.orbit.inclination", node = "b.orbit.node", '
        'argument = "b.orbit.argument + 180 deg" }\n'
        '[[source]]\nname = "b"\nI = "1 Jy"\neast = "a.east"\nnorth = "a.north"\n' + ORBIT
    )
    bound = from_toml(pair).bind(views)
    for sources, one in zip(bound.sources_of_all(np.ones((1, bound.n_param))), views, strict=True):
        first, second = sources.lm[0] / MAS - 5.0
        np.testing.assert_allclose(first, -0.25 * second, atol=1e-9)
        years = (one.time.mean()) / YEAR
        elements = [2.0, 0.3, 0.6, 4.0, *np.deg2rad([50.0, 30.0, 80.0])]
        # Milliarcseconds near 1e-8 rad.
        np.testing.assert_allclose(second, orbit_offset(np.array(elements), years)[0], atol=1e-9)


@pytest.mark.parametrize("position", ["east = {e}\nnorth = {n}\n", "ra = {r}\ndec = {d}\n"])
def test_derivatives_go_back_to_the_elements(view: MakeView, position: str) -> None:
    def free(low: str, high: str) -> str:
        return f'{{ prior = "uniform", low = {low}, high = {high} }}'

    where = position.format(
        e=free('"-1 arcsec"', '"1 arcsec"'),
        n=free('"-1 arcsec"', '"1 arcsec"'),
        r=free('"187.27 deg"', '"187.28 deg"'),
        d=free('"2.05 deg"', '"2.06 deg"'),
    )
    speed, angle = free('"-9 arcsec/yr"', '"9 arcsec/yr"'), free('"0 deg"', '"90 deg"')
    orbit = {
        "period": free('"1 yr"', '"3 yr"'),
        "periastron": free('"0 yr"', '"1 yr"'),
        "eccentricity": free("0", "0.9"),
        "semi_major": free('"1 arcsec"', '"9 arcsec"'),
        "inclination": angle,
        "node": angle,
        "argument": angle,
    }
    elements = ", ".join(f"{key} = {value}" for key, value in orbit.items())
    text = f"{HEAD}{where}pm_east = {speed}\npm_north = {speed}\norbit = {{ {elements} }}\n"
    steady = '[[source]]\nname = "b"\nI = "1 Jy"\neast = "1 mas"\nnorth = "0 mas"\n'
    bound = from_toml(text + steady + "[noise]\nfactor = 1\n").bind([at(view(), 0.0), at(view("g/b"), 1.7)])
    rng = np.random.default_rng(3)
    theta = bound.prior_transform(rng.uniform(0.2, 0.8, (1, bound.n_param)))
    slopes = rng.normal(size=(2, 2, 2))

    def total(at_theta: np.ndarray) -> float:
        each = zip(slopes, bound.sources_of_all(at_theta), strict=True)
        return sum(float(np.sum(slope * sources.lm[0])) for slope, sources in each)

    changes = list(bound.push_forward(theta, np.eye(bound.n_param)))
    pushed = sum(np.sum(s * one.lm, axis=(1, 2)) for s, one in zip(slopes, changes, strict=True))
    for k, parameter in enumerate(bound.parameters):
        h = 1e-4 * (parameter.prior.high - parameter.prior.low) * np.eye(bound.n_param)[k]
        p, m, pp, mm = (total(theta + s * h) for s in (1, -1, 2, -2))
        expected = (8 * (p - m) - (pp - mm)) / (12 * h.max())
        scale = 1e-5 / (parameter.prior.high - parameter.prior.low)
        # 1e-16 of rounding in positions of 0.02 rad over steps of 1e-4 of ranges that move them by 1e-5.
        assert pushed[k] == pytest.approx(expected, rel=1e-7, abs=1e-7 * scale), parameter.name

    class Slopes:
        profile = beam_scale = pointing = template_scale = template_shift = antenna_terms = faraday = None

        def __init__(self, i: int) -> None:
            sources = list(bound.sources_of_all(theta))[i]
            self.lm, self.stokes = slopes[i][None], np.zeros_like(sources.stokes)
            self.spectral_terms = np.zeros_like(sources.spectral_terms)
            self.shape = np.zeros_like(sources.shape)

    back = bound.pull_back(theta, [Slopes(0), Slopes(1)])
    np.testing.assert_allclose(back[0], pushed, rtol=1e-12)


def test_model_files(tmp_path: Path, view: MakeView) -> None:
    speed = '{ prior = "normal", mean = 0, sd = 5, unit = "mas/yr" }'
    text = f'{OFFSET}pm_east = {speed}\nepoch = "J2016.0"\n{ORBIT}'
    model = from_toml(text)
    assert model.bind([view()]).parameters[0].name == "a.pm_east"
    write_model(model, tmp_path / "model.toml")
    assert read_model(tmp_path / "model.toml") == model
    moving = PointSource("a", ra="0 deg", dec="0 deg", I="1 Jy", pm_east="1 mas/yr")
    with pytest.raises(ModelError, match="a: moves, which a component list cannot store"):
        write_oskar(SkyModel([moving]), tmp_path / "sky.osm")


def test_a_partition_in_which_a_source_moves_too_far(view: MakeView) -> None:
    month = replace(view(), time=np.linspace(0.0, 30 * 86400.0, 5), longest=1e8)
    text = OFFSET + 'pm_east = "{} mas/yr"\n'
    from_toml(text.format(0.1)).bind([month])
    # 15 days of 10 mas/yr, 0.41 mas, 2.0e-9 rad times 1e8 wavelengths.
    with pytest.raises(ModelError, match=r"'a' moves by 0.411 mas in .* \(720 h\): 0.2 turns"):
        from_toml(text.format(10)).bind([month])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('pm_east = "1 mas"', "pm_east: unit 'mas' is not a proper motion; write for example '10 mas/yr'"),
        ('epoch = "J2016.0"', "epoch: needs a motion"),
        ('pm_east = "1 mas/yr"\nepoch = "1991-25-01"', "epoch: expected a date such as"),
        ('pm_east = "1 mas/yr"\nepoch = "Jx"', "epoch: expected an epoch such as 'J2016.0', found 'Jx'"),
        ('orbit = "1 yr"', "orbit: expected a table such as"),
        (ORBIT.replace("node", "nodes"), "orbit: unknown key 'nodes' .did you mean 'node'"),
        (ORBIT.replace('semi_major = "4 mas", ', ""), "orbit: semi_major is missing"),
        (ORBIT.replace("0.6", "1.1"), "a.orbit.eccentricity must be within 0 .. 0.99, found"),
        (ORBIT.replace('"2 yr"', '"-2 yr"'), "a.orbit.period must be positive, found"),
    ],
)
def test_what_is_refused(view: MakeView, text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        from_toml(OFFSET + text).bind([view()])
