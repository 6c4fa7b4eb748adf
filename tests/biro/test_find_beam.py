"""Sources found through the beams of the antennas have the fluxes of the sky."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from test_cli import biro as command
from test_find import FAINT, GAUSSIAN, OPTIONS, POINT
from test_imaging import observe

import biro
from biro.errors import InputError
from biro.models import (
    DishBeam,
    GaussianBeam,
    Leakage,
    ModelError,
    PointSource,
    SkyModel,
    Uniform,
    read_model,
)
from biro.simulation.prediction import predict
from biro.source_finding.fitting.beam_factors import BeamFactors, SeenThrough

ARCMIN = np.pi / 180 / 60
# Power 0.5 at 30 arcmin and 1.4 GHz: of the point at 22.4 arcmin 0.68 is seen, of the faint one 0.42.
FWHM = 60.0
INSTRUMENT = SkyModel([], beam=GaussianBeam(fwhm=f"{FWHM} arcmin", ref_freq="1.4 GHz"))
SIGMA = 0.05


def power(east: float, north: float, freq: float) -> float:
    """Of the Gaussian beam, at a place in arcmin."""
    return float(np.exp(-4.0 * np.log(2.0) * (east**2 + north**2) * (freq / 1.4e9 / FWHM) ** 2))


def seen(blank: biro.Observation, sources: list, beam: object) -> biro.Observation:
    """The noise of an observation, and these sources through a beam."""
    parts = zip(blank.partitions, predict(blank, SkyModel(sources, beam=beam)), strict=True)
    return dataclasses.replace(
        blank, partitions=tuple(dataclasses.replace(part, vis=part.vis + model) for part, model in parts)
    )


@pytest.fixture(scope="module")
def field() -> biro.Observation:
    return seen(
        observe(n_row=1500, sigma=SIGMA, weight=SIGMA**-2, w=0.1), [POINT, GAUSSIAN, FAINT], INSTRUMENT.beam
    )


def test_fluxes_are_those_of_the_sky(field: biro.Observation) -> None:
    found = biro.find_sources(field, beam=INSTRUMENT, **OPTIONS)
    assert [source.kind for source in found.sources] == ["ellipse", "point", "point"]
    for source, flux, east, north in zip(
        found.sources, (3.0, 1.0, 0.06), (-15, 10, -33), (12, -20, 5), strict=True
    ):
        assert abs(source.flux - flux) < 4 * source.flux_err
        assert np.hypot(source.east - east * ARCMIN, source.north - north * ARCMIN) < 4 * source.position_err
    # What the beam takes of a source makes its error larger: 0.65 mJy by what is kept.
    kept = power(10, -20, field.partitions[0].chan_freq.mean())
    assert found.sources[1].flux_err == pytest.approx(SIGMA / np.sqrt(6000) / kept, rel=0.1)
    assert found.sky.beam == INSTRUMENT.beam
    # A fit of the proposed model sees the same: noise is left, of 2 x 12000 numbers.
    likelihood = biro.Likelihood(field, found.sky)
    theta = [found.start.get(name, 1.0) for name in likelihood.parameter_names]
    assert likelihood.chi2(theta).sum() / 24000 == pytest.approx(1.0, abs=4 * np.sqrt(2 / 24000))


def test_without_a_beam_fluxes_are_what_it_leaves(field: biro.Observation) -> None:
    found = biro.find_sources(field, **OPTIONS)
    at = [np.hypot(s.east - 10 * ARCMIN, s.north + 20 * ARCMIN) for s in found.sources]
    source = found.sources[int(np.argmin(at))]
    assert source.flux == pytest.approx(power(10, -20, field.partitions[0].chan_freq.mean()), abs=0.02)
    assert found.sky.beam is None


def test_the_factor_and_its_slopes_have_their_closed_form(field: biro.Observation) -> None:
    part, lm = field.partitions[0], (10 * ARCMIN, -20 * ARCMIN)
    (beam,) = SeenThrough.of(field, INSTRUMENT).beams
    assert beam is not None
    factor = BeamFactors.of(part, np.arange(50), beam, "cpu")
    expected = np.array([power(10, -20, freq) for freq in part.chan_freq])
    # Double precision: E is a formula of l and m.
    np.testing.assert_allclose(factor.kept(lm), np.broadcast_to(expected, (50, expected.size)), rtol=1e-12)
    slope = -8.0 * np.log(2.0) * (part.chan_freq / 1.4e9 / (FWHM * ARCMIN)) ** 2
    for found, x in zip(factor.log_slopes(lm), lm, strict=True):
        # Differences over 2e-7 rad of numbers of 1e-16.
        np.testing.assert_allclose(found, np.broadcast_to(slope * x, found.shape), rtol=1e-6)


def test_beams_of_matrices_that_turn(measurement_set) -> None:
    """An elliptical dish with squint on alt-az mounts: what is kept changes with time, and with the hand."""
    obs = biro.read_ms(measurement_set("sim_7_lin"))
    freq = obs.partitions[0].chan_freq.mean()
    beam = DishBeam(
        fwhm="12 arcmin", ref_freq=f"{freq} Hz", ratio=0.7, squint="1.6 arcmin", squint_pa="70 deg"
    )
    place = {"east": "3.6 arcmin", "north": "-2.4 arcmin"}
    rng, sigma = np.random.default_rng(4), 0.02
    noise = [
        sigma * (rng.normal(size=part.vis.shape) + 1j * rng.normal(size=part.vis.shape))
        for part in obs.partitions
    ]
    blank = dataclasses.replace(
        obs,
        partitions=tuple(
            dataclasses.replace(part, vis=vis, weight=np.full(part.weight.shape, sigma**-2))
            for part, vis in zip(obs.partitions, noise, strict=True)
        ),
    )
    data = seen(blank, [PointSource("s", **place, I="1 Jy")], beam)
    found = biro.find_sources(data, beam=SkyModel([], beam=beam), max_sources=3, cell="4 arcsec", size=256)
    (source,) = found.sources
    assert abs(source.flux - 1.0) < 4 * source.flux_err
    # Noise is left: the deviation of the mean of 2 x 252 squares is 0.06.
    assert found.reduced_chi2 == pytest.approx(1.0, abs=0.2)
    apparent = biro.find_sources(data, max_sources=1, cell="4 arcsec", size=256).sources[0]
    assert apparent.flux < 0.9
    # A formed Stokes I has no beams of matrices.
    with pytest.raises(ModelError, match="Stokes"):
        biro.find_sources(
            biro.read_ms(measurement_set("sim_7_lin"), stokes="I"), beam=SkyModel([], beam=beam)
        )


def test_a_source_is_added_through_the_beam_of_the_fit(field: biro.Observation) -> None:
    sky = SkyModel(
        [dataclasses.replace(GAUSSIAN, I=Uniform(1, 5, "Jy")), FAINT],
        beam=GaussianBeam(fwhm=Uniform(50, 70, "arcmin"), ref_freq="1.4 GHz"),
    )
    likelihood = biro.Likelihood(field, sky)
    fit = biro.maximise(likelihood, seed=1)
    added = biro.add_source(fit, likelihood, kind="point", name="p", **OPTIONS)
    flux = added.sources[-1].I[0]
    assert flux.unit == "mJy"
    assert 0.5 * (flux.low + flux.high) == pytest.approx(1000.0, abs=50.0)


def test_a_beam_that_is_to_be_fitted_is_refused(field: biro.Observation) -> None:
    free = SkyModel([], beam=GaussianBeam(fwhm=Uniform(50, 70, "arcmin"), ref_freq="1.4 GHz"))
    with pytest.raises(InputError, match=r"must have fixed values, but beam\.fwhm has a prior"):
        biro.find_sources(field, beam=free, **OPTIONS)


def test_what_the_search_leaves_out_is_said(field: biro.Observation, caplog) -> None:
    SeenThrough.of(field, dataclasses.replace(INSTRUMENT, leakage=Leakage(d_x=0.01)))
    assert "ignores leakage" in caplog.text


def test_the_command(tmp_path, measurement_set) -> None:
    """3C 273 through a wide beam; the proposed model has it, and fits."""
    vla = measurement_set("vla_3c273_x")
    (tmp_path / "beam.toml").write_text(
        '[beam]\nkind = "gaussian"\nfwhm = "5 arcmin"\nref_freq = "8.4 GHz"\n'
    )
    options = ["--beam", tmp_path / "beam.toml", "--max-sources", "1"]
    code, _, said = command("find", vla, "-o", tmp_path / "sky.toml", *options)
    assert code == 0, said
    assert read_model(tmp_path / "sky.toml").beam == GaussianBeam(fwhm="5 arcmin", ref_freq="8.4 GHz")
    (tmp_path / "none.toml").write_text(
        '[[source]]\ntype = "point"\nname = "a"\neast = "0 deg"\nnorth = "0 deg"\nI = "1 Jy"\n'
    )
    code, _, said = command("find", vla, "-o", tmp_path / "b.toml", "--beam", tmp_path / "none.toml")
    assert code == 2
    assert "has no [beam] table" in said
