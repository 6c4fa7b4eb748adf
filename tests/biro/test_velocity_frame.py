"""Velocities of lines in a frame that the model states, as astropy has them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from astropy import units
from astropy.coordinates import EarthLocation, SkyCoord, SpectralCoord
from astropy.io import fits
from astropy.time import Time
from astropy.utils import iers

import biro
from biro.errors import InputError
from biro.io.measurement_set import create_ms, read_ms
from biro.models import ModelError
from biro.models.files.toml import from_toml
from biro.observation.observation import Observation
from biro.simulation.simulator import Channels, Track, simulate

REST, VELOCITY, FWHM = 1420.40575e6, 20e3, 4e3
CENTRE = np.deg2rad([187.0, 12.0])
LINE = 'profile = "gaussian", velocity = "20 km/s", rest_freq = "1420.40575 MHz", fwhm = "4 km/s"'


def sky(frame: str) -> biro.SkyModel:
    own = f', velocity_frame = "{frame}"' if frame else ""
    ra, dec = CENTRE.tolist()
    return from_toml(
        f"[sky]\ncentre = ['{ra!r} rad', '{dec!r} rad']\n"
        "[[source]]\nname = 'a'\neast = '0 rad'\nnorth = '0 rad'\nI = '2 Jy'\n"
        f"line = {{ {LINE}{own} }}\n"
    )


def observe(frame: str) -> Observation:
    # Channels of 0.6 km/s about the line, wherever the Earth moves it (30 km/s).
    return simulate(
        "KAT-7",
        sky(frame),
        phase_centre=(CENTRE[0], CENTRE[1]),
        times=Track("2026-03-01", 60.0, 60.0),
        channels=Channels(1420.0e6, 2.84e3, 200),
    )


def by_astropy(observation: Observation, freq: np.ndarray, frame: str) -> np.ndarray:
    """Radio velocities of frequencies at the telescope, in another frame."""
    with (
        warnings.catch_warnings(),
        iers.conf.set_temp("auto_download", False),
        iers.conf.set_temp("iers_degraded_accuracy", "ignore"),
    ):
        warnings.simplefilter("ignore")
        moment = Time(observation.partitions[0].times[0] / 86400.0, format="mjd", scale="utc")
        place = EarthLocation.from_geocentric(*observation.antenna_positions.mean(axis=0), unit="m")
        far = SkyCoord(
            *(CENTRE * units.rad),
            distance=1e6 * units.kpc,
            radial_velocity=0 * units.km / units.s,
            pm_ra_cosdec=0 * units.mas / units.yr,
            pm_dec=0 * units.mas / units.yr,
        )
        seen = SpectralCoord(freq, "Hz", observer=place.get_itrs(obstime=moment), target=far)
        turned = seen.with_observer_stationary_relative_to({"LSRK": "lsrk", "BARY": "icrs"}[frame])
        return np.asarray(turned.to_value("m/s", doppler_convention="radio", doppler_rest=REST * units.Hz))


@pytest.mark.parametrize("frame", ["LSRK", "BARY", "TOPO", ""])
def test_a_line_lies_where_astropy_has_it(frame: str) -> None:
    observation = observe(frame)
    part = observation.partitions[0]
    spectrum = np.abs(part.vis[0, :, 0])
    here = 299792458.0 * (1.0 - part.chan_freq / REST)
    velocity = here if frame in ("TOPO", "") else by_astropy(observation, part.chan_freq, frame)
    mean = (spectrum * velocity).sum() / spectrum.sum()
    # Formulas differ by the transverse Doppler effect and gravity, some m/s; frames by 10 km/s and more.
    assert mean == pytest.approx(VELOCITY, abs=10.0)
    width = np.sqrt((spectrum * (velocity - mean) ** 2).sum() / spectrum.sum()) * np.sqrt(8 * np.log(2))
    assert width == pytest.approx(FWHM, rel=1e-3)  # the width of a frame's hertz changes by 1e-4


def test_a_cube_in_that_frame_has_the_line_at_its_velocity(tmp_path: Path) -> None:
    create_ms(tmp_path / "line.ms", observe("LSRK"))
    observation = read_ms(tmp_path / "line.ms")
    assert observation.partitions[0].freq_frame == "TOPO"
    cube = biro.image(
        observation, cube=True, frame="LSRK", axis="velocity", rest_freq=REST, size=32, cell="30 arcsec",
        channels_per_plane=4,
    )  # fmt: skip
    cube.save(tmp_path / "line")
    with fits.open(tmp_path / "line.fits") as file:
        header, values = file[0].header, file[0].data.squeeze()
    assert (header["SPECSYS"], header["RESTFRQ"], header["CTYPE4"]) == ("LSRK", REST, "VRAD")
    velocity = header["CRVAL4"] + header["CDELT4"] * (np.arange(len(values)) + 1 - header["CRPIX4"])
    spectrum = np.nan_to_num(values[:, 16, 16])
    assert (spectrum * velocity).sum() / spectrum.sum() == pytest.approx(VELOCITY, abs=10.0)


def test_slopes_by_velocity_are_those_of_its_frame_and_a_fit_states_it() -> None:
    free = '{ prior = "uniform", low = "0 km/s", high = "40 km/s" }'
    model = from_toml(sky("LSRK").to_toml().replace('"20.0 km/s"', free))
    observation = observe("LSRK")
    bound = model.bind(observation.partition_views)
    low, high = (bound.sources([v, 1.0], 0).spectral_terms[0, 0, 0, 0] for v in (19.0, 21.0))
    (change,) = bound.push_forward([20.0, 1.0], [2.0, 0.0])
    # The centre of a line is linear in its velocity; 3e-11 of it is a rounding of the difference.
    assert change.spectral_terms[0, 0, 0, 0] == pytest.approx(high - low, rel=1e-9)
    (line,) = observation.velocity_lines(sky("LSRK"))
    assert line.startswith("velocities: in LSRK, converted to the frame of the data (TOPO)")
    assert "velocity_frame would change it" in observation.velocity_lines(sky(""))[0]


def test_frames_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(ModelError, match="one of LSRK, BARY, TOPO, found 'LSR'"):
        sky("LSR")
    with pytest.raises(ModelError, match="the centre is given as freq"):
        biro.models.PointSource(
            "a",
            east="0 rad",
            north="0 rad",
            I="1 Jy",
            line={"freq": "1.42 GHz", "fwhm": "1 MHz", "velocity_frame": "LSRK"},
        )
    part = observe("TOPO").partitions[0]
    rest = replace(observe("TOPO"), partitions=(replace(part, freq_frame="REST"),))
    with pytest.raises(InputError, match="cannot convert the frequencies of spw 0 from REST to LSRK, only"):
        sky("LSRK").bind(rest.partition_views)
    assert from_toml(sky("BARY").to_toml()) == sky("BARY")
