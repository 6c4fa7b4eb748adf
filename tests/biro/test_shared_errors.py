"""Residuals that several spectral windows have in common, and what they take from the errors."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from biro.diagnosis.correlated_errors import error_ratios, shared_remark
from biro.diagnosis.residual_data import ResidualData
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.source_finding.fitting import correlated
from biro.source_finding.fitting.component import Component
from biro.source_finding.fitting.visibility_data import VisibilityData

N_WINDOW, N_TIME, N_ANTENNA = 8, 40, 10
PAIRS = np.array([(p, q) for p in range(N_ANTENNA) for q in range(p + 1, N_ANTENNA)])


def windows(common: float, seed: int, names: tuple[str, ...] = ("I",)) -> list[Partition]:
    """Unit noise in windows, and closure errors of baselines, of this rms, that last all times."""
    rng = np.random.default_rng(seed)
    n_pair, shape = len(PAIRS), (N_TIME, len(PAIRS), 1, len(names))
    errors = common * (rng.normal(size=n_pair) + 1j * rng.normal(size=n_pair))
    parts = []
    for i in range(N_WINDOW):
        vis = rng.normal(size=shape) + 1j * rng.normal(size=shape) + errors[:, None, None]
        obs = Observation.from_arrays(
            vis=vis.reshape(-1, 1, len(names)),
            uvw=np.ones((N_TIME * n_pair, 3)),
            antenna1=np.tile(PAIRS[:, 0], N_TIME),
            antenna2=np.tile(PAIRS[:, 1], N_TIME),
            time=5e9 + 10.0 * np.repeat(np.arange(N_TIME), n_pair),
            chan_freq=[1e9 + 1e7 * i],
            corr_type=names,
            weight=1.0,
        )
        parts.append(dataclasses.replace(obs.partitions[0], spw=str(i), spw_id=i))
    return parts


def flux_ratio(parts: list[Partition], phase: float = 0.0) -> float:
    """The ratio of errors of a flux in the phase centre, of data that all are turned by some phases."""
    turns = [np.exp(1j * phase * np.random.default_rng(9).normal(size=part.vis.shape)) for part in parts]
    residuals = [part.vis * turn for part, turn in zip(parts, turns, strict=True)]
    (ratio,) = error_ratios(parts, residuals, [[turn] for turn in turns], turns)
    return float(ratio)


@pytest.mark.parametrize("names", [("I",), ("RR", "LL")])
@pytest.mark.parametrize("phase", [0.0, 3.0])
def test_closure_errors_of_all_windows_count(names: tuple[str, ...], phase: float) -> None:
    """The mean over m samples with the error of a baseline in common has m v + 1 times the variance.

    The errors are a tenth of the noise, so that v = 0.01 and m = 320 (640 of two hands). There are 45 errors,
    of which the mean square is known to 4 / sqrt(2 x 2 x 45) = 30 %, and the ratio to half of this. A source
    away from the phase centre turns errors of gains and of baselines with it.
    """
    parts = windows(0.1, 1, names)
    m = N_WINDOW * N_TIME * len(names)
    assert flux_ratio(parts, phase) == pytest.approx(np.sqrt((1.0 + 0.01 * m) / 1.01), rel=0.25)
    # In one window alone the errors hide in the noise: a correlation of 0.01 is two of its errors or fewer.
    assert flux_ratio(parts[:1], phase) < 1.5


def test_windows_share_times_that_files_round_differently() -> None:
    """Times of each window are off by up to 1e-10 d (physics: section 6), a millionth of the integration."""
    parts, rng = windows(0.1, 1), np.random.default_rng(3)
    for i, part in enumerate(parts):
        off = rng.uniform(-1e-10, 1e-10, N_TIME)[part.time_index] * 86400.0
        parts[i] = dataclasses.replace(part, time=part.time + off)
    # Their common times are the same, so that nothing but the order of sums may differ.
    assert flux_ratio(parts) == pytest.approx(flux_ratio(windows(0.1, 1)), rel=1e-9)


@pytest.mark.parametrize("most", [1, 1 << 23])
def test_some_of_the_baselines_know_the_errors_of_found_sources(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source in the phase centre, with derivatives of 45 baselines or of every other one."""
    monkeypatch.setattr(correlated, "MOST_DERIVATIVES", most)
    one = Observation.from_arrays(
        vis=np.zeros((1, 1, 1), complex),
        uvw=np.ones((1, 3)),
        antenna1=[0],
        antenna2=[N_ANTENNA - 1],
        time=[5e9],
        chan_freq=[1e9],
        corr_type=("I",),
        weight=1.0,
    )
    observation = dataclasses.replace(one, partitions=tuple(windows(0.1, 1)))
    data = VisibilityData(observation, "cpu")
    ratio = correlated.correlated_error_ratios(data, [Component((0.0, 0.0), 0.0)], data.residual(()), 1.0)
    m = N_WINDOW * N_TIME
    assert ratio[0] == pytest.approx(np.sqrt((1.0 + 0.01 * m) / 1.01), rel=0.25)


def test_white_noise_of_windows_counts_as_such() -> None:
    """Chance adds correlations that are certain by two standard errors: one in twenty, and small."""
    ratios = [flux_ratio(windows(0.0, seed)) for seed in range(2, 8)]
    assert np.median(ratios) == pytest.approx(1.0, abs=0.02)
    assert max(ratios) < 1.15


@pytest.mark.parametrize(("common", "is_said"), [(0.0, False), (0.1, True)])
def test_a_line_says_what_windows_have_in_common(common: float, is_said: bool) -> None:
    data = [ResidualData(part, np.zeros_like(part.vis), 1.0) for part in windows(common, 20)]
    line = shared_remark(data)
    assert line.startswith("RESIDUALS OF 8 PARTITIONS ARE CORRELATED with each other: 0.01") is is_said
    # Windows of other fields were seen at other times.
    apart = [
        dataclasses.replace(d, partition=dataclasses.replace(d.partition, field=f"f{i}"))
        for i, d in enumerate(data)
    ]
    assert shared_remark(apart) == ""
