"""Weights that are made while reading: against the noise that was put in, and closed forms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import works
from test_cli_faults import fails

import biro
from biro.errors import InputError
from biro.observation.noise import MIN_DIFFERENCES
from biro.observation.weighting import Weighting, with_systematic

SIGMA = np.array([[0.5, 1.0], [2.0, 0.3], [1.0, 4.0]])
"""Of three baselines, RR and LL, Jy."""


def observation(n_time: int = 400, n_chan: int = 4, seed: int = 1) -> biro.Observation:
    """A steady source of 3 Jy and noise that differs from baseline to baseline; the weights say 1 Jy."""
    rng = np.random.default_rng(seed)
    n_row = 3 * n_time
    sigma = np.tile(SIGMA, (n_time, 1))[:, None, :]
    noise = rng.normal(size=(2, n_row, n_chan, 2))
    uvw = np.tile([[1e3, 0.0, 5.0], [0.0, 3e3, 7.0], [3e3, 4e3, 9.0]], (n_time, 1))
    return biro.Observation.from_arrays(
        vis=3.0 + sigma * (noise[0] + 1j * noise[1]),
        uvw=uvw,
        antenna1=np.tile([0, 0, 1], n_time),
        antenna2=np.tile([1, 2, 2], n_time),
        time=np.repeat(10.0 * np.arange(n_time), 3),
        chan_freq=1e9 + 1e6 * np.arange(n_chan),
        corr_type=["RR", "LL"],
    )


def test_weights_from_the_scatter_are_those_of_the_noise() -> None:
    (part,) = observation().partitions
    found, remark = Weighting("scatter").of(part)
    assert remark == ""
    sigma = 1.0 / np.sqrt(found.weight[:3, 0])
    # 1600 x 2 differences, neighbours of which share a sample: the median has an error of 1.17 / sqrt(2 n)
    # of sigma for n independent ones, some 2 %. Four of these.
    np.testing.assert_allclose(sigma, SIGMA, rtol=0.1)
    assert np.abs(np.log(sigma / SIGMA)).mean() < 0.03
    for i in range(3):  # one factor for each baseline and correlation
        assert np.ptp(found.weight[i::3], axis=(0, 1)).max() == 0.0
    assert found.weight_origin.endswith("scaled to the scatter of each baseline")


@pytest.mark.parametrize(("fault", "n_baseline"), [("flagged", 3), ("constant", 3), ("short", 4)])
def test_a_baseline_without_a_scatter_is_scaled_as_the_others(fault: str, n_baseline: int) -> None:
    """It has too few times, or no noise, so that its weights would be infinite."""
    (part,) = observation(n_chan=1).partitions
    vis, weight, antenna2 = part.vis.copy(), part.weight.copy(), part.antenna2.copy()
    late = np.s_[2 + 3 * (MIN_DIFFERENCES - 5) :: 3]
    if fault == "flagged":
        weight[late] = 0.0
    elif fault == "constant":
        vis[2::3] = 3.0
    else:
        antenna2[late] = 3
    found, remark = Weighting("scatter").of(replace(part, vis=vis, weight=weight, antenna2=antenna2))
    assert f"1 of {n_baseline} baselines have too few neighbouring times" in remark
    others = [0, 1, -1] if fault == "short" else [0, 1]
    of_others = np.median(found.weight[others, 0] ** -0.5, axis=0)
    np.testing.assert_allclose(found.weight[2, 0] ** -0.5, of_others, rtol=1e-6)  # float32
    assert found.weight[late].any() == (fault != "flagged")


def test_short_data_are_scaled_by_all_baselines_together_or_left_as_stated() -> None:
    """12 times of 3 baselines: 11 neighbours of each, too few; 33 together."""
    (part,) = observation(n_time=12, n_chan=1).partitions
    found, remark = Weighting("scatter").of(part)
    assert "3 of 3 baselines have too few neighbouring times" in remark
    measured = found.weight[0, 0] ** -0.5
    assert np.ptp(found.weight, axis=0).max() == 0.0
    # Medians of |x| over baselines of 0.5, 2, 1 and 1, 0.3, 4 Jy lie among these.
    assert np.all((measured > 0.3) & (measured < 4.0))
    assert np.all(measured != 1.0)
    assert found.weight_origin.endswith("scaled to the scatter of each baseline")

    (part,) = observation(n_time=5, n_chan=1).partitions
    found, remark = Weighting("scatter").of(part)
    assert "weights of RR, LL stay as in the data: fewer than 32 differences" in remark
    np.testing.assert_array_equal(found.weight, part.weight)
    assert "scaled" not in found.weight_origin


@pytest.mark.parametrize(("taper", "unit"), [("3 km", "m"), (3000.0, "m"), ("10 klambda", "lambda")])
def test_a_taper_halves_weights_at_its_distance(taper: str | float, unit: str) -> None:
    (part,) = observation(n_time=2).partitions
    found, _ = Weighting(taper=taper).of(part)
    distance = np.array([1e3, 3e3, 5e3])[:, None]
    scale = 3e3
    if unit == "lambda":
        distance, scale = distance * part.chan_freq / 299792458.0, 1e4
    expected = np.broadcast_to(0.5 ** ((distance / scale) ** 2), (3, 4))
    np.testing.assert_allclose(found.weight[:3, :, 0], expected, rtol=3e-7)  # float32
    assert "tapered to a half at" in found.weight_origin


def test_what_a_taper_makes_nothing_of_is_counted() -> None:
    """2^-(d / t)^2 is below what float64 holds from d = 33 t on; baselines are 1, 3 and 5 km long."""
    (part,) = observation(n_time=2).partitions
    found, remark = Weighting(taper="100 m").of(part)
    assert np.count_nonzero(found.weight) == 32
    assert "16 of 48 visibilities lie so far beyond the taper" in remark
    assert Weighting(taper="3 km").of(part)[1] == ""


def test_errors_with_a_taper_are_honest_with_a_fixed_factor_alone() -> None:
    """The scatter of a tapered mean over 400 skies, against the errors of both noise factors."""
    rng, distance = np.random.default_rng(5), np.linspace(0.1, 4.0, 200)
    t = 0.5 ** (distance**2)
    values = rng.normal(size=(400, 200))
    scatter = np.std(values @ t / t.sum())
    fitted = np.sqrt((values**2 @ t / 200).mean() / t.sum())
    assert fitted < 0.65 * scatter  # why there is a note
    assert scatter < 1.0 / np.sqrt(t.sum())
    assert "uncertainties too small. Set [noise] factor = 1" in Weighting(taper="3 km").note
    assert Weighting("scatter").note == ""


def test_equal_weights_leave_out_what_does_not_count() -> None:
    (part,) = observation(n_time=2).partitions
    weight = 0.25 * part.weight
    weight[1] = 0.0
    found, _ = Weighting("equal").of(replace(part, weight=weight))
    assert np.unique(found.weight[[0, 2]]).tolist() == [1.0]
    assert not found.weight[1].any()


def test_a_systematic_error_adds_to_the_variance() -> None:
    """Half of 4 Jy beside a noise of 2 Jy: 1 / (2^2 + 2^2); what is flagged stays so."""
    full = observation(n_time=2)
    (part,) = full.partitions
    weight = np.full_like(part.weight, 0.25)
    weight[1] = 0.0
    given = replace(full, partitions=(replace(part, weight=weight),))
    (found,) = with_systematic(given, 0.5, [np.full(part.vis.shape, 4.0j)]).partitions
    np.testing.assert_array_equal(found.weight, np.where(weight > 0.0, 0.125, 0.0))
    assert with_systematic(given, 0.0, []) is given


def test_what_is_not_understood() -> None:
    with pytest.raises(InputError, match=r"weights must be .stated., .scatter. or .equal., got .best."):
        Weighting("best")  # type: ignore[arg-type]
    for taper in (0.0, "-3 km", "nan", float("inf")):
        with pytest.raises(InputError, match=r"taper|length"):
            Weighting(taper=taper)


def test_from_file_and_command(data_dir: Path) -> None:
    """Weights of the VLA set are 1; the scatter of its hands is 0.036 Jy, as `biro info` measures it."""
    path = data_dir / "vla_3c273_x.uvfits"
    found = biro.read(path, correlations="RR,LL", weights="scatter", taper="100 klambda")
    (part,) = found.partitions
    (stated,) = biro.read(path, correlations="RR,LL").partitions
    assert np.array_equal(part.weight > 0, stated.weight > 0)
    assert biro.read(path, weights="equal").partitions[0].weight.max() == 1.0
    said = works("info", path, "--weights", "scatter", "--taper", "100 klambda")
    assert "scaled to the scatter of each baseline, tapered to a half at 100 klambda" in said.stdout
    assert "uncertainties too small. Set [noise] factor = 1" in " ".join(said.output.split())
    assert "taper" in fails("info", path, "--taper", "0 m")


def test_a_taper_is_refused_where_errors_would_be_too_small(tmp_path: Path) -> None:
    full = observation(n_time=2)
    part = Weighting(taper="3 km").of(full.partitions[0])[0]
    tapered = replace(full, partitions=(part,))
    source = '[[source]]\nname = "a"\neast = "0 deg"\nnorth = "0 deg"\n'
    source += 'I = { prior = "uniform", low = 0, high = 5, unit = "Jy" }\n'
    path = tmp_path / "sky.toml"
    path.write_text(source)
    with pytest.raises(InputError, match=r"TAPERED WEIGHTS.*factor = 1"):
        biro.Likelihood(tapered, biro.read_model(path))
    with pytest.raises(InputError, match="tapered"):
        biro.find_sources(tapered)
    path.write_text(source + "[noise]\nfactor = 1\n")
    assert biro.Likelihood(tapered, biro.read_model(path)).n_param == 1
