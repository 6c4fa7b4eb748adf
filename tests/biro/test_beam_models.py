"""Sky models with beams of Jones matrices: predictions against explicit sums, images against points."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.interpolate import RectBivariateSpline

import biro
from biro.beams.loading import beam_of
from biro.errors import BiroError
from biro.models import (
    BeamCube,
    FitsBeam,
    GaussianSource,
    ImageModel,
    Ionosphere,
    IonosphereSamples,
    ModelError,
    Noise,
    Normal,
    Pointing,
    PointSource,
    SkyModel,
)
from biro.models.components.antenna_terms.feeds import Feeds
from biro.simulation.prediction import predict

C = 299792458.0
STEP = 0.001


@pytest.fixture(scope="module")
def observation(measurement_set) -> biro.Observation:
    """A small array of alt-azimuth antennas with linear feeds."""
    return biro.read_ms(measurement_set("sim_7_lin"))


def beam_cube(freq: np.ndarray) -> BeamCube:
    """A beam that is like nothing else: squinted, complex, with cross-hands."""
    x, y = np.arange(-20, 21) * STEP, np.arange(-18, 19) * STEP
    planes = np.linspace(freq.min(), freq.max() * 1.001, 4)
    at_y, at_x = np.meshgrid(y, x, indexing="ij")
    jones = np.empty((4, y.size, x.size, 2, 2), complex)
    for i, nu in enumerate(planes):
        u, v = at_x / 0.015 * nu / planes[0], at_y / 0.02 * nu / planes[0]
        jones[i, ..., 0, 0] = np.exp(-((u - 0.1) ** 2) - v**2 + 0.3j * u)
        jones[i, ..., 1, 1] = np.exp(-((u + 0.1) ** 2) - v**2 - 0.2j * v)
        jones[i, ..., 0, 1] = 0.1 * u * v + 0.05j * u
        jones[i, ..., 1, 0] = -0.08 * u * v + 0.03
    return BeamCube(x, y, planes, jones)


def sources() -> list[PointSource]:
    lm = [(0.004, -0.006), (-0.007, 0.003), (0.0, 0.0)]
    stokes = [(1.0, 0.1, -0.2, 0.05), (2.0, -0.3, 0.4, 0.0), (0.5, 0.0, 0.0, 0.1)]
    return [
        PointSource(
            f"s{i}", east=f"{l} rad", north=f"{m} rad", I=f"{a} Jy", Q=f"{b} Jy", U=f"{c} Jy", V=f"{d} Jy"
        )
        for i, ((l, m), (a, b, c, d)) in enumerate(zip(lm, stokes, strict=True))
    ]


def explicit(
    observation, cube, *, width=1.0, rotation="none", pointing=(0.0, 0.0), apparent=(), rm=None, offset=0.0
) -> np.ndarray:
    """The sum over sources of E P F B F^H P^H E^H K, with splines of scipy, of the first partition.

    E is 1 for sources of apparent flux; `rm` (time, antenna) are rotation measures of the ionosphere, rad/m2.
    `offset` (antenna,) are angles of feeds, rad, that P has and the P^H of a correction has not.
    """
    part, view = observation.partitions[0], observation.partition_views[0]
    angle = view.feeds.frame_angle()
    stated = view.feeds.feed_angle() if rotation != "none" else np.zeros_like(angle)
    rows, vis = part.rows, 0.0
    for source in sources():
        l, m = source.east.value, source.north.value
        n = np.sqrt(1 - l * l - m * m)
        i, q, u, v = (getattr(source, key)[0].value for key in "IQUV")
        bright = np.array([[i + q, u + 1j * v], [u - 1j * v, i - q]])
        metres = rows.uvw @ np.array([l, m, n - 1])
        for c, nu in enumerate(part.chan_freq):
            dl, dm = l - pointing[0], m - pointing[1]
            x = (dl * np.cos(angle) - dm * np.sin(angle)) / width
            y = (dl * np.sin(angle) + dm * np.cos(angle)) / width
            plane = np.empty((*angle.shape, 2, 2), complex)
            for a in range(2):
                for b in range(2):
                    values = [_spline(cube, k, a, b, x, y) for k in range(cube.freq.size)]
                    # A polynomial of third order through the four planes, which a cubic spline is.
                    plane[..., a, b] = _lagrange(cube.freq, values, nu)
            if source.name in apparent:
                plane[...] = np.eye(2)
            jones = plane @ _turned(stated + offset)
            if rm is not None:
                chi = rm * (C / nu) ** 2
                jones = jones @ _turned(-chi)  # What is polarised along X comes in at position angle chi.
            if rotation == "corrected":
                jones = _turned(-stated) @ jones
            first, second = jones[rows.time_index, rows.antenna1], jones[rows.time_index, rows.antenna2]
            phase = np.exp(2j * np.pi * metres * nu / C)[:, None, None]
            term = first @ bright @ second.conj().swapaxes(-1, -2) * phase
            vis = vis + np.eye(part.n_chan)[c][None, :, None] * term.reshape(-1, 1, 4)
    return vis


def _turned(phi):
    """What linear feeds at position angle phi receive of the field along north and east."""
    return np.moveaxis(np.array([[np.cos(phi), np.sin(phi)], [-np.sin(phi), np.cos(phi)]]), (0, 1), (-2, -1))


def _spline(cube, k, a, b, x, y):
    real, imag = (RectBivariateSpline(cube.y, cube.x, part, s=0) for part in _parts(cube.jones[k, ..., a, b]))
    return real.ev(y, x) + 1j * imag.ev(y, x)


def _parts(values):
    return values.real, values.imag


def _lagrange(nodes, values, at):
    total = 0.0
    for i, value in enumerate(values):
        others = np.delete(nodes, i)
        total = total + value * np.prod((at - others) / (nodes[i] - others))
    return total


def prediction(observation, model, **options) -> np.ndarray:
    """At the middle of integrations and channels, as explicit sums and images have it."""
    options |= {"precision": "double", "backend": "cpu", "smearing": "off"}
    return next(iter(predict(observation, model, **options)))


@pytest.mark.parametrize("rotation", ["none", "present", "corrected"])
def test_points_through_a_turning_beam(observation, rotation) -> None:
    """Data that were corrected for the rotation of feeds have P^H E P: what a model without [feeds] says."""
    cube = beam_cube(observation.partitions[0].chan_freq)
    model = SkyModel(
        sources(),
        beam=FitsBeam(file=cube, width=1.1),
        pointing=Pointing(east="0.0007 rad", north="-0.0004 rad"),
        feeds=None if rotation == "corrected" else Feeds(rotation=rotation),
    )
    expected = explicit(observation, cube, width=1.1, rotation=rotation, pointing=(0.0007, -0.0004))
    found = prediction(observation, model)
    # Rounding of splines and phases in double precision, relative to fluxes of order 1.
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert np.ptp(observation.partition_views[0].feeds.frame_angle()) > 0.1


@pytest.mark.parametrize("rotation", ["none", "present", "corrected"])
def test_feeds_that_are_turned_by_more_than_the_data_state(observation, rotation) -> None:
    """Angles of each antenna stand in the P of E P, behind a beam that they do not turn."""
    part, view = observation.partitions[0], observation.partition_views[0]
    cube, names = beam_cube(part.chan_freq), view.antenna_names
    offset = np.random.default_rng(4).normal(scale=0.3, size=len(names))
    own = {name: {"offset": f"{angle} rad"} for name, angle in zip(names[1:], offset[1:], strict=True)}
    feeds = Feeds(rotation=rotation, offset=f"{offset[0]} rad", antenna=own)
    model = SkyModel(sources(), beam=FitsBeam(file=cube), feeds=feeds)
    expected = explicit(observation, cube, rotation=rotation, offset=offset)
    # Rounding of splines and phases in double precision, relative to fluxes of order 1.
    np.testing.assert_allclose(prediction(observation, model), expected, atol=1e-9)
    assert np.abs(expected - explicit(observation, cube, rotation=rotation)).max() > 0.05


@pytest.mark.parametrize("rotation", ["present", "corrected", "none"])
def test_the_ionosphere_turns_what_the_beam_sees(observation, rotation) -> None:
    """Rotation of each antenna and time on the sky's side of E P, and a dispersive phase beside it."""
    part, view = observation.partitions[0], observation.partition_views[0]
    cube, rng = beam_cube(part.chan_freq), np.random.default_rng(6)
    rm = rng.normal(scale=5.0, size=(view.time.size, len(view.antenna_names)))
    tec = rng.normal(scale=0.05, size=len(view.antenna_names))
    known = IonosphereSamples("", view.time, view.antenna_names, np.broadcast_to(tec, rm.shape), rm)
    model = SkyModel(
        sources(),
        beam=FitsBeam(file=cube),
        feeds=Feeds(rotation=rotation),
        ionosphere=Ionosphere(file=known, rm="1.5 rad/m2"),
    )
    phase = np.exp(-8.44797245e9j * tec[:, None] / part.chan_freq)
    seen = explicit(observation, cube, rotation=rotation, rm=rm + 1.5)
    rows = part.rows
    expected = seen * (phase[rows.antenna1] * phase[rows.antenna2].conj())[..., None]
    # Their constant has nine digits, and phases are below 1 rad; fluxes are of order 1.
    np.testing.assert_allclose(prediction(observation, model), expected, atol=1e-8)
    assert np.abs(seen - explicit(observation, cube, rotation=rotation)).max() > 0.05
    # Images are worked out at as many frequencies as what turns fastest asks for.
    beam = model.bind([view], beam_of(model, [view])).fixed_beam(0)
    assert np.unravel_index(np.argmax(np.abs(rm + 1.5)), rm.shape) in beam.samples


def test_what_turns_feeds_is_fitted(observation) -> None:
    """ln L is that of the same angles and rotation measures as numbers, some tied and some given."""
    part, view = observation.partitions[0], observation.partition_views[0]
    cube, names = beam_cube(part.chan_freq), view.antenna_names
    offset, rm = np.random.default_rng(5).normal(size=(2, len(names))) * [[0.3], [5.0]]
    rm[2], offset[1] = rm[0], 0.2  # a tie, and a number

    def model(angles, measures):
        own = [
            {name: {key: x} for name, x in zip(names, each, strict=False)}
            for key, each in (("offset", angles), ("rm", measures))
        ]
        return SkyModel(
            sources(),
            beam=FitsBeam(file=cube),
            feeds=Feeds(rotation="present", antenna=own[0]),
            ionosphere=Ionosphere(antenna=own[1]),
            noise=Noise(factor=1.0),
        )

    given = model([f"{x} rad" for x in offset], [f"{x} rad/m2" for x in rm])
    angles: list[object] = [Normal(0, 1, "rad") for _ in names]
    measures: list[object] = [Normal(0, 9, "rad/m2") for _ in names]
    angles[1], measures[2] = "0.2 rad", f"ionosphere.rm[{names[0]}]"
    options = {"smearing": "off", "backend": "cpu"}
    likelihood = biro.Likelihood(observation, model(angles, measures), **options)
    value = {f"feeds.offset[{name}]": x for name, x in zip(names, offset, strict=True)}
    value |= {f"ionosphere.rm[{name}]": x for name, x in zip(names, rm, strict=True)}
    theta = [value[name] for name in likelihood.parameter_names]
    assert len(theta) == 2 * len(names) - 2
    expected = biro.Likelihood(observation, given, **options).log_likelihood(np.zeros(0))
    none = biro.Likelihood(observation, model([], []), **options)
    # Rounding of some thousand squares; without any turns they are others.
    assert likelihood.log_likelihood(np.array(theta)) == pytest.approx(expected, rel=1e-12)
    assert none.log_likelihood(np.zeros(0)) != pytest.approx(expected, rel=1e-3)


def test_an_image_is_not_seen_through_feeds_whose_turn_is_fitted(observation) -> None:
    cube = beam_cube(observation.partitions[0].chan_freq)
    feeds = Feeds(rotation="present", offset=Normal(0, 5, "deg"))
    model = SkyModel(sources(), beam=FitsBeam(file=cube), feeds=feeds)
    bound = model.bind(observation.partition_views, beam_of(model, observation.partition_views))
    with pytest.raises(BiroError, match="its beam, pointing errors and feed rotation cannot be fitted"):
        bound.fixed_beam(0)
    # For one parameter vector, whose angles are in degrees, an image has the feeds of that one.
    one = bound.beam_at(np.full(bound.n_param, 0.2), 0)
    zero = bound.beam_at(np.zeros(bound.n_param), 0)
    nu, place = observation.partitions[0].chan_freq[0], (np.array(0.001), np.array(0.002))
    found, middle = (beam.jones(*place, nu, 0, 3) for beam in (one, zero))
    # Two products of numbers of order 1.
    np.testing.assert_allclose(found, middle @ _turned(np.deg2rad(0.2)), atol=1e-14)


def test_gradients_of_the_beam_and_the_feeds_beside_sources(observation) -> None:
    """Every parameter against differences of ln L, where all of them turn and move together."""
    cube = beam_cube(observation.partitions[0].chan_freq)
    first = dataclasses.replace(
        sources()[0], I=Normal(1, 0.1, "Jy"), U=Normal(-0.2, 0.1, "Jy"), east=Normal(4, 0.1, "mrad")
    )
    shape = {"emaj": "20 arcsec", "emin": "10 arcsec", "pa": Normal(30, 5, "deg")}
    wide = GaussianSource("g", east="-2 mrad", north=Normal(3, 0.1, "mrad"), I="1.5 Jy", **shape)
    model = SkyModel(
        [first, wide],
        beam=FitsBeam(file=cube, width=Normal(1.0, 0.02)),
        pointing=Pointing(east=Normal(0, 0.5, "mrad"), north=["0 mrad", Normal(0, 0.3, "mrad")]),
        feeds=Feeds(rotation="present", offset=Normal(0, 5, "deg")),
        ionosphere=Ionosphere(rm=Normal(0, 1, "rad/m2")),
        noise=Noise(factor=Normal(1, 0.1)),
    )
    likelihood = biro.Likelihood(observation, model, smearing="off", backend="cpu")
    names = likelihood.parameter_names
    kinds = [name.split("[")[0] for name in names]
    assert [kinds.count(kind) for kind in ("feeds.offset", "ionosphere.rm")] == [7, 7]
    assert sum(name.startswith("pointing") for name in names) == 14
    theta = likelihood.prior_transform(np.random.default_rng(8).uniform(0.3, 0.7, len(names)))
    _, gradient = likelihood.log_likelihood_and_gradient(theta)
    step = 1e-4 * (
        likelihood.prior_transform(np.full(len(names), 0.84))
        - likelihood.prior_transform(np.full(len(names), 0.5))
    )
    for i, name in enumerate(names):
        far = []
        for by in (-2, -1, 1, 2):  # differences of fourth order
            moved = theta.copy()
            moved[i] += by * step[i]
            far.append(float(np.squeeze(likelihood.log_likelihood(moved))))
        slope = (far[0] - 8 * far[1] + 8 * far[2] - far[3]) / (12 * step[i])
        # Roundings of ln L, of 1e-16 of it, over the step.
        least = 1e-14 * abs(far[1]) / step[i]
        assert gradient[i] == pytest.approx(slope, rel=1e-7, abs=least), name


@pytest.mark.parametrize("rotation", ["none", "present"])
def test_sources_of_apparent_flux_are_not_seen_through_the_beam(observation, rotation) -> None:
    """Their feeds turn all the same; arrays have points before Gaussians, and so do flags."""
    cube = beam_cube(observation.partitions[0].chan_freq)
    flags = {"s0": True, "s1": False, "s2": False}
    given = [dataclasses.replace(source, beam=flags[source.name]) for source in sources()]
    far = GaussianSource("far", east="0.005 rad", north="0 rad", I="0 Jy", fwhm="1 arcsec")
    model = SkyModel([far, *given], beam=FitsBeam(file=cube), feeds=Feeds(rotation=rotation))
    expected = explicit(observation, cube, rotation=rotation, apparent=("s1", "s2"))
    np.testing.assert_allclose(prediction(observation, model), expected, atol=1e-9)


@pytest.mark.parametrize("rotates", [False, True])
def test_an_image_is_seen_as_its_pixels_are(observation, rotates) -> None:
    """Two bright pixels of an image, and two points at their places."""
    cell, n = 2.5e-5, 512
    pixels = np.zeros((4, 1, n, n))
    # Pixel (x, y) lies at l = -(x - N/2) cell, m = (y - N/2) cell.
    pixels[:, 0, 256 - 240, 256 - 160] = 1.0, 0.1, -0.2, 0.05
    pixels[:, 0, 256 + 120, 256 + 240] = 2.0, -0.3, 0.4, 0.0
    points = [
        dataclasses.replace(sources()[0], east=f"{160 * cell} rad", north=f"{-240 * cell} rad"),
        dataclasses.replace(sources()[1], east=f"{-240 * cell} rad", north=f"{120 * cell} rad"),
    ]
    part = observation.partitions[0]
    names = observation.partition_views[0].antenna_names
    own = {name: {"rm": f"{3 * k} rad/m2"} for k, name in enumerate(names)}
    instrument = {
        "beam": FitsBeam(file=beam_cube(part.chan_freq)),
        "feeds": Feeds(rotation="present"),
        "ionosphere": Ionosphere(antenna=own) if rotates else None,
    }
    expected = prediction(observation, SkyModel(points, **instrument))
    image = ImageModel(pixels, cell, part.phase_centre)
    nothing = SkyModel([PointSource("none", east="0 rad", north="0 rad", I="0 Jy")], **instrument)
    found = prediction(observation, nothing, image=image, accuracy=1e-4)
    error = np.sqrt(np.mean(np.abs(found - expected) ** 2) / np.mean(np.abs(expected) ** 2))
    # The accuracy that was asked for.
    assert error < 1e-4


# Half sides of `beam_cube`: 0.020 along x, 0.018 along y. The frame turns by more than 0.1 rad in these data.
@pytest.mark.parametrize(
    ("east", "north", "width", "dl", "refused"),
    [
        (0.012, 0.012, 1.0, 0.0, False),
        (0.0, 0.0181, 1.0, 0.0, True),
        (0.0, 0.0169, 1.0, 0.0, False),
        (0.0, 0.0169, 0.9, 0.0, True),
        (-0.0169, 0.0, 1.0, 0.004, True),
        (0.019, 0.019, 2.0, 0.0, False),
    ],
)
def test_a_source_beyond_the_cube_is_named(observation, east, north, width, dl, refused) -> None:
    views = [dataclasses.replace(view, feeds=None) for view in observation.partition_views]
    far = dataclasses.replace(sources()[0], name="far", east=f"{east} rad", north=f"{north} rad")
    model = SkyModel(
        [sources()[1], far],
        beam=FitsBeam(file=beam_cube(observation.partitions[0].chan_freq), width=width, turns=False),
        pointing=Pointing(east=f"{dl} rad"),
    )
    cube = beam_of(model, views)
    if not refused:
        model.bind(views, cube)
        return
    with pytest.raises(ModelError, match=r"source 'far' lies .* deg from the beam centre") as caught:
        model.bind(views, cube)
    distance = np.rad2deg(np.hypot(east - dl, north) / width)
    assert f" {distance:.4g} deg from the beam centre" in str(caught.value)
    assert "y = -1.031 .. 1.031 deg; give a larger cube" in str(caught.value)
    apparent = dataclasses.replace(model, sources=[sources()[1], dataclasses.replace(far, beam=False)])
    apparent.bind(views, cube)


def test_a_source_that_turns_out_of_the_cube_is_named(observation) -> None:
    """It would fit without turning, at a corner; and where a prior reaches too far."""
    views, cube = observation.partition_views, beam_cube(observation.partitions[0].chan_freq)
    corner = dataclasses.replace(sources()[0], name="corner", east="0.0195 rad", north="0.0175 rad")
    far = dataclasses.replace(sources()[0], name="far", east=Normal(0, 0.01, "rad"))
    for source, turns in ((corner, True), (far, False)):
        model = SkyModel([source], beam=FitsBeam(file=cube, turns=turns), feeds=Feeds(rotation="none"))
        with pytest.raises(ModelError, match=f"source '{source.name}' lies .* deg from the beam centre"):
            model.bind(views, cube)
    SkyModel([corner], beam=FitsBeam(file=cube, turns=False), feeds=Feeds(rotation="none")).bind(views, cube)


@pytest.mark.parametrize(
    ("first", "last", "n_plane", "refused"),
    [
        (1.05, 1.0, 4, False),
        (1.2, 1.0, 4, True),
        (1.2, 1.0, 1, False),
        (0.9, 0.95, 4, False),
        (0.7, 0.8, 4, True),
    ],
)
def test_planes_far_from_the_data_are_refused(observation, caplog, first, last, n_plane, refused) -> None:
    freq = observation.partitions[0].chan_freq
    cube = beam_cube(freq)
    planes = np.linspace(first * freq.min(), last * freq.max(), n_plane)
    cube = BeamCube(cube.x, cube.y, planes, cube.jones[:n_plane], name="beam b.fits")
    model = SkyModel(sources(), beam=FitsBeam(file=cube, turns=False), feeds=Feeds(rotation="none"))
    if refused:
        with pytest.raises(ModelError, match=r"beam b.fits has planes from .* MHz; give a cube for these"):
            model.bind(observation.partition_views, cube)
        return
    with caplog.at_level("WARNING"):
        model.bind(observation.partition_views, cube)
    assert ("the nearest one is scaled" in caplog.text) == (n_plane > 1)


def test_stokes_parameters_have_no_jones_matrices(measurement_set) -> None:
    observation = biro.read_ms(measurement_set("sim_7_lin"), stokes="I")
    cube = beam_cube(observation.partitions[0].chan_freq)
    with pytest.raises(BiroError, match=r"belong to the correlations of feeds, but partition .* has Stokes"):
        prediction(observation, SkyModel(sources(), beam=FitsBeam(file=cube)))
