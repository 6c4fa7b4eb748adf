"""The files that pages of the documentation name: simulated observations, models, images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from astropy.io import fits

import biro
from biro.io.measurement_set import create_ms
from biro.models.files.toml import from_toml
from biro.simulation import Channels, Track
from biro.simulation.telescopes import telescope

CENTRE = "12h29m06.7s +02d03m08.6s"
CORE = """
[[source]]
name = "core"
type = "point"
east = "0 arcsec"
north = "0 arcsec"
I = {flux}
"""
JET = """
[[source]]
name = "jet"
type = "gaussian"
east = "-14 arcsec"
north = "-15 arcsec"
I = {flux}
fwhm = {size}
"""
TRUTH = CORE.format(flux='"20 Jy"') + JET.format(flux='"3 Jy"', size='"6 arcsec"')
FREE_CORE = CORE.format(flux='{ prior = "uniform", low = 0, high = 50, unit = "Jy" }')
FREE = FREE_CORE + JET.format(
    flux='{ prior = "uniform", low = 0, high = 10, unit = "Jy" }',
    size='{ prior = "uniform", low = 1, high = 20, unit = "arcsec" }',
)
MODELS = {
    "sky.toml": FREE,
    "model.toml": FREE,
    "disc.toml": FREE,
    "two.toml": FREE,
    "one.toml": FREE_CORE,
    "other.toml": FREE_CORE,
    "point.toml": FREE_CORE,
    "core_only.toml": FREE_CORE,
    "truth.toml": TRUTH,
    "expected.toml": TRUTH,
    "calibrator.toml": TRUTH,
    "bad_data.txt": "antenna=W05, channels=3,4\n",
    "model.mod": "! flux radius theta\n 20.0 0.0 0.0\n 3.0 20518.0 223.0 6000.0 1.0 0.0 1\n",
    "sky.txt": "Format = Name, Type, Ra, Dec, I\ncore, POINT, 05:00:00, +45.00.00, 2.0\n",
}
SAMPLERS = {
    "emcee": {"max_steps": 30},
    "dynesty": {"n_live": 40, "dlogz": 10.0},
    "tempering": {"n_walker": 4, "n_effective": 20, "max_steps": 10},
    "nuts": {"n_chain": 2, "n_tune": 40, "n_draw": 40},
    "none": {},
}
"""Options with which each sampler takes seconds. Its result is not to be trusted, and says so."""


def _simulated(day: str, freq: float, n_chan: int, seed: int) -> biro.Observation:
    """Ten minutes of seven antennas of the VLA: W01, W05, W09, E04, E08, N03, N07."""
    whole = telescope("VLA-C")
    chosen = np.arange(0, 27, 4)
    array = replace(
        whole,
        antenna_names=tuple(whole.antenna_names[k] for k in chosen),
        positions=whole.positions[chosen],
        diameter=whole.diameter[chosen],
    )
    observation = biro.simulate(
        array,
        from_toml(TRUTH),
        phase_centre=CENTRE,
        times=Track(day, 600.0, 60.0),
        channels=Channels(freq, 1e6, n_chan),
        feeds="circular",
        noise=1.0,
        seed=seed,
        backend="cpu",
    )
    (part,) = observation.partitions
    window = int(freq > 1.41e9)
    part = replace(part, field="3C273", spw=f"spw{window}", spw_id=window, data_desc_id=window)
    return replace(observation, partitions=(part,))


def _image(path: Path) -> None:
    pixels = np.zeros((64, 64))
    pixels[28:36, 28:36] = 0.05
    header = fits.Header(
        {"CTYPE1": "RA---SIN", "CRVAL1": 187.2779, "CDELT1": -4 / 3600, "CRPIX1": 33.0, "CUNIT1": "deg"}
        | {"CTYPE2": "DEC--SIN", "CRVAL2": 2.0524, "CDELT2": 4 / 3600, "CRPIX2": 33.0, "CUNIT2": "deg"}
        | {"BUNIT": "Jy/pixel", "RADESYS": "ICRS"}
    )
    fits.PrimaryHDU(pixels, header).writeto(path)


def make(folder: Path, data: Path) -> None:
    """Make obs.ms, day1.ms to day3.ms, models and images; obs.uvfits is one of the reference data."""
    windows = [_simulated("2026-03-01T06:00", freq, 8, seed) for seed, freq in enumerate((1.4e9, 1.42e9))]
    parts = tuple(part for window in windows for part in window.partitions)
    create_ms(folder / "obs.ms", replace(windows[0], partitions=parts))
    for day in (1, 2, 3):
        create_ms(folder / f"day{day}.ms", _simulated(f"2026-03-0{day}T06:00", 1.4e9, 2, day))
    for name, text in MODELS.items():
        (folder / name).write_text(text)
    for name in ("model.fits", "halo.fits"):
        _image(folder / name)
    for name in ("obs.uvfits", "data.uvfits", "vla_3c273_x.uvfits"):
        (folder / name).symlink_to(data / "vla_3c273_x.uvfits")
