"""Gains of the diagnosis, solved from sums over baselines: the sums of squares are those of the samples."""

from __future__ import annotations

import numpy as np
import pytest

import biro
from biro.diagnosis.causes.gains.candidates import PARTS, Frame, GainFit, cells_of
from biro.diagnosis.causes.samples import ResidualSamples
from biro.diagnosis.residual_data import ResidualData

N_ANTENNA, N_TIME, FREQ = 5, 8, np.array([1.0e9, 1.1e9, 1.25e9])
P, Q = np.triu_indices(N_ANTENNA, 1)
FIRST, SECOND = np.tile(P, N_TIME), np.tile(Q, N_TIME)
SLOT = np.repeat(np.arange(N_TIME), len(P))


def frame_of(scatter: float) -> Frame:
    """Samples of a point with gains that scatter, different in the two feeds, and noise of variance 1."""
    rng = np.random.default_rng(3)
    shape = (len(FIRST), len(FREQ), 2)
    uvw, model = rng.normal(size=(len(FIRST), 3)) * 300.0, np.full(shape, 20.0 + 0.0j)
    gain = np.exp(scatter * (rng.normal(size=(N_ANTENNA, 2)) + 1j * rng.normal(size=(N_ANTENNA, 2))))
    noise = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    data = model * (gain[FIRST] * gain[SECOND].conj())[:, None] + noise
    observation = biro.Observation.from_arrays(
        data, uvw, FIRST, SECOND, 5e9 + 10.0 * SLOT, FREQ, ["RR", "LL"], weight=1.0, interval=10.0
    )
    return Frame(
        ResidualSamples.of([ResidualData(observation.partitions[0], model, 1.0)], ()), in_feeds=False
    )


@pytest.mark.parametrize("scatter", [0.01, 0.2])
def test_the_sum_of_squares_beside_gains_is_that_of_the_samples(scatter: float) -> None:
    frame = frame_of(scatter)
    ways = list(cells_of(frame.own))
    assert {(way.name, way.by_feed) for way in ways} == {
        *(("steady", False), ("steady", True), ("time", False), ("time", True), ("channel", False))
    }
    for cells in ways:
        for wanted in PARTS:
            fit = GainFit(frame, cells, tuple(range(N_ANTENNA)), wanted, 0.0, 1)
            left = fit.after()
            # |r|^2 of 480 samples, each summed with an error of some 1e-16 of |V|^2 = 400.
            assert np.sum(np.abs(left.residual) ** 2) == pytest.approx(fit.solved.square, rel=1e-9)
            # What is taken out of the residuals is put into the model: together they are the data.
            assert np.allclose(left.model + left.residual, frame.own.model + frame.own.residual)


def test_gains_of_feeds_leave_noise_alone() -> None:
    frame = frame_of(0.2)
    by_feed = next(cells for cells in cells_of(frame.own) if cells.name == "steady" and cells.by_feed)
    fit = GainFit(frame, by_feed, tuple(range(N_ANTENNA)), (True, True), 0.0, 1)
    # 960 numbers less 18 gains: chi2 of 942 has a scatter of sqrt(2 * 942) = 43, four of these.
    assert fit.solved.square == pytest.approx(942.0, abs=175.0)
    assert frame.own.square > 10.0 * fit.solved.square
