"""Skies written in every format and read back predict the same visibilities."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from biro.models import (
    GaussianSource,
    Noise,
    PartitionView,
    PointSource,
    RingSource,
    SkyModel,
    read_sky,
    write_sky,
)
from biro.models.errors import ModelError
from biro.models.quantities.prior import LogUniform, Normal, Uniform
from rime_kernels import Rime, Rows
from rime_kernels.physics.brightness import stokes_to_corr

MakeView = Callable[..., PartitionView]
CENTRE = (0.5, 1.4)
FREQ = np.array([1.2e9, 1.5e9])


def sky(frame: str, *, polarised: bool) -> SkyModel:
    """A point and Gaussians some degrees from a centre near the pole, with spectra."""
    spectrum = {"spectral_index": -0.7, "ref_freq": "1.3 GHz"}
    linear = {"Q": "0.2 Jy", "U": "-0.1 Jy", "V": "0.05 Jy"} if polarised else {}
    shape = {"emaj": "60 arcsec", "emin": "6 arcsec", "pa": "35 deg", "frame": frame}
    return SkyModel(
        [
            PointSource("a", east="1 deg", north="-2 deg", I="3 Jy", **spectrum),
            GaussianSource("b", ra="0.8 rad", dec="1.41 rad", I="1 Jy", **spectrum, **shape),
            GaussianSource("c", east="-2 deg", north="1 deg", I="-0.5 Jy", fwhm="20 arcsec"),
            PointSource("d", east="0 deg", north="0 deg", I="1 Jy", **linear),
        ],
        centre=CENTRE,
        noise=Noise(1),
    )


def visibilities(model: SkyModel, view: PartitionView) -> np.ndarray:
    uvw = np.random.default_rng(0).normal(0, 600, (40, 3)) * (1, 1, 0.3)
    ends = np.zeros(40, np.int32), np.ones(40, np.int32)
    corr = stokes_to_corr(("XX", "XY", "YX", "YY"))
    rows = Rows(uvw, *ends, np.arange(40, dtype=np.int32), FREQ, corr, n_antenna=2, n_time=40)
    sources = model.bind([view]).sources(np.zeros((1, 0)), 0)
    return Rime(rows, backend="cpu", extent=0.1).predict(sources)[0]


@pytest.mark.parametrize("frame", ["source", "phase_centre"])
@pytest.mark.parametrize("end", [".toml", ".mod", ".osm", ".lsm.txt", ".skymodel", ".bbs", ".txt"])
def test_visibilities_survive(
    tmp_path: Path, view: Callable[..., PartitionView], end: str, frame: str
) -> None:
    given = sky(frame, polarised=end not in (".mod", ".skymodel", ".bbs", ".txt"))
    write_sky(given, tmp_path / f"sky{end}")
    again = read_sky(tmp_path / f"sky{end}")
    again = SkyModel(again.sources, centre=again.centre, noise=Noise(1))
    here = view("f/x", CENTRE)
    found, expected = visibilities(again, here), visibilities(given, here)
    # Positions are written to 1e-11 arcsec or in full precision, at some 1e3 turns from the centre.
    np.testing.assert_allclose(found, expected, atol=1e-11 * 5.0)


def test_q_and_u_of_a_bbs_list_survive_without_a_spectrum(tmp_path: Path, view: MakeView) -> None:
    given = SkyModel(
        PointSource("d", ra="0.5 rad", dec="1.41 rad", I="1 Jy", Q="0.2 Jy", U="-0.1 Jy"), noise=Noise(1)
    )
    write_sky(given, tmp_path / "sky.bbs")
    again = SkyModel(read_sky(tmp_path / "sky.bbs").sources, noise=Noise(1))
    here = view("f/x", CENTRE)
    np.testing.assert_allclose(visibilities(again, here), visibilities(given, here), atol=1e-11)


def test_a_sky_at_values_of_its_parameters() -> None:
    """By the names that `bind` gives: those of lists, Stokes parameters and tables, too."""
    flux = Uniform("1 Jy", "2 Jy")
    free = SkyModel(
        [
            PointSource("p", east=Uniform(-1, 1, "arcsec"), north="p.east", I=[flux, "3 Jy", flux],
                        U="10 mJy", ref_freq="1 GHz",
                        spectral_index={"I": [Normal(-0.7, 0.1), Normal(0, 1)], "U": -0.5}),
            PointSource("l", east="0 deg", north="0 deg", I=LogUniform("100 mJy", "900 mJy"),
                        ref_freq="1 GHz",
                        line={"freq": Uniform("1 GHz", "2 GHz"), "height": 2, "fwhm": "1 MHz"}),
            RingSource("r", east="0 deg", north="0 deg", I=flux, diameter=Uniform(1, 2, "arcsec")),
        ],
        noise=Noise(1),
    )  # fmt: skip
    view = PartitionView("f/x", "f", "x", CENTRE, np.arange(3) * 10.0, np.array([1.4e9]), ("A", "B"))
    bound = free.bind([view])
    theta = bound.prior_transform(np.full((1, bound.n_param), 0.3))
    fixed = free.at(dict(zip(bound.parameter_names, theta[0].tolist(), strict=True)))
    again = fixed.bind([view])
    assert again.n_param == 0
    found, expected = again.sources(np.zeros((1, 0)), 0), bound.sources(theta, 0)
    for name in ("lm", "stokes", "spectral_terms", "shape", "profile"):
        # A constant and a parameter are converted to SI units in another order.
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-14)
    with pytest.raises(ModelError, match=r"p.east: there is no value of this parameter"):
        free.at({})
