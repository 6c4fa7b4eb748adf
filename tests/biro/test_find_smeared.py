"""Sources far from the phase centre, which averages over integrations and channels make fainter."""

from __future__ import annotations

import numpy as np
import pytest

import biro
from biro.models import Noise, PointSource, SkyModel
from biro.observation.smearing import SmearingChoice, smearing_of
from biro.simulation.prediction import predict
from biro.simulation.simulator import Channels, Track, simulate
from biro.source_finding.fitting import visibility_data
from biro.source_finding.fitting.averages import Averages

ARCMIN = np.pi / 180 / 60
CENTRE = (1.3, -0.75)
FAR = (50.0, -35.0)
OPTIONS = {"cell": "1 arcmin", "size": 180, "backend": "cpu"}


def observation(noise=0.02, place=FAR):
    near = PointSource("near", east="-3 arcmin", north="20 arcsec", I="1 Jy")
    far = PointSource("far", east=f"{place[0]} arcmin", north=f"{place[1]} arcmin", I="2 Jy")
    return simulate(
        "KAT-7",
        SkyModel([near, far], noise=Noise(factor=1.0)),
        phase_centre=CENTRE,
        times=Track("2026-03-01", 6 * 3600.0, 480.0),
        channels=Channels(1.3e9, 2e7, 1),
        smearing="on",
        noise=noise,
        seed=4,
        backend="cpu",
    )


def test_fluxes_of_far_sources_are_not_too_low(monkeypatch):
    data = observation()
    found = biro.find_sources(data, **OPTIONS)
    (line,) = found.smearing
    assert line.startswith("smearing on: averaging over 480 s and 20 MHz loses up to ")
    assert "of a source 1.02 deg from the phase centre" in line
    assert line in str(found)
    assert [source.kind for source in found.sources] == ["point", "point"]
    far, near = found.sources
    for source, flux, place in ((far, 2.0, FAR), (near, 1.0, (-3.0, 1 / 3))):
        assert abs(source.flux - flux) < 4 * source.flux_err
        apart = np.hypot(source.east / ARCMIN - place[0], source.north / ARCMIN - place[1])
        assert apart < 4 * source.position_err / ARCMIN
    assert found.reduced_chi2 == pytest.approx(1.0, abs=5 / np.sqrt(21 * 45))
    # The same search without it.
    monkeypatch.setattr(visibility_data, "choose", lambda *_: SmearingChoice(None, "as asked"))
    plain = biro.find_sources(data, max_sources=2, **OPTIONS)
    assert plain.smearing == ("smearing off: as asked",)
    low = min(
        plain.sources, key=lambda one: np.hypot(one.east / ARCMIN - FAR[0], one.north / ARCMIN - FAR[1])
    )
    assert low.kind != "point" or low.flux < 2.0 - 20 * far.flux_err


def test_where_nothing_is_lost_nothing_is_averaged():
    found = biro.find_sources(observation(1.0, (6.0, -5.0)), **OPTIONS)
    (line,) = found.smearing
    assert line.startswith("smearing off: averaging over 480 s and 20 MHz loses up to ")


def test_the_factor_is_the_mean_but_for_little_of_the_loss():
    data = observation()
    (part,) = data.partitions
    averages = Averages.of(smearing_of(part), part.rows, np.arange(part.n_row))
    lm = (FAR[0] * ARCMIN, FAR[1] * ARCMIN)
    sky = SkyModel([PointSource("p", east=f"{lm[0]!r} rad", north=f"{lm[1]!r} rad", I="1 Jy")])
    exact, plain = (next(predict(data, sky, smearing=mode, backend="cpu"))[:, :, 0] for mode in ("on", "off"))
    loss = np.abs(exact - plain).max()
    assert loss > 0.05
    # What is left is of third order: the rate changes by 0.035, squared, within an integration.
    assert np.abs(averages.kept(lm) * plain - exact).max() < 1.5e-3 * loss
    # Its derivatives against differences, of a step of 1e-4 of the distance from the phase centre, squared.
    step = 1e-6
    for i, slope in enumerate(averages.log_slopes(lm)):
        change = step * np.eye(2)[i]
        one, other = (np.log(averages.kept(tuple(lm + x * change))) for x in (1.0, -1.0))
        np.testing.assert_allclose(slope, (one - other) / (2 * step), atol=1e-6 * np.abs(slope).max())
