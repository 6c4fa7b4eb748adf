"""Whether find tells phases of antennas that are not calibrated from structure of the sky."""

from __future__ import annotations

import numpy as np
import pytest

from biro.observation.observation import Observation
from biro.source_finding.fitting.visibility_data import VisibilityData
from biro.source_finding.phase_coherence import PhaseCoherence, phase_coherence

N_SCAN, N_TIME, N_ANTENNA, FREQ = 12, 5, 8, 1e9
PAIRS = np.array([(p, q) for p in range(N_ANTENNA) for q in range(p + 1, N_ANTENNA)])
C = 299792458.0


def coherence(lm: np.ndarray, flux: np.ndarray, phase: float) -> PhaseCoherence:
    """Points seen by antennas whose phases differ by so many radians rms in each scan."""
    rng = np.random.default_rng(1)
    scan = np.repeat(np.arange(N_SCAN), N_TIME)
    place = rng.uniform(-500.0, 500.0, (len(scan), N_ANTENNA, 2))
    uv = place[:, PAIRS[:, 1]] - place[:, PAIRS[:, 0]]
    vis = np.exp(2j * np.pi * FREQ / C * np.tensordot(uv, lm.T, 1)) @ flux
    turn = phase * rng.normal(size=(N_SCAN, N_ANTENNA))[scan]
    vis = vis * np.exp(1j * (turn[:, PAIRS[:, 0]] - turn[:, PAIRS[:, 1]]))
    vis = vis + 0.05 * (rng.normal(size=vis.shape) + 1j * rng.normal(size=vis.shape))
    n_pair = len(PAIRS)
    obs = Observation.from_arrays(
        vis=vis.reshape(-1, 1, 1),
        uvw=np.concatenate([uv, np.zeros((*uv.shape[:2], 1))], axis=2).reshape(-1, 3),
        antenna1=np.tile(PAIRS[:, 0], len(scan)),
        antenna2=np.tile(PAIRS[:, 1], len(scan)),
        time=5e9 + np.repeat(10.0 * np.arange(len(scan)) + 600.0 * scan, n_pair),
        interval=10.0,
        chan_freq=[FREQ],
        corr_type=("I",),
        weight=0.05**-2,
    )
    found = phase_coherence(VisibilityData(obs))
    assert found is not None
    return found


POINT = np.array([[2e-3, -1e-3]])  # some seven beams from the centre
FIELD = np.random.default_rng(2).uniform(-3e-3, 3e-3, (30, 2))


def test_a_calibrated_point_needs_no_phases() -> None:
    found = coherence(POINT, np.ones(1), 0.0)
    # Noise of 0.05 turns phases by 0.05 rad; pixels of an eighth of a beam lose less than 5 %.
    assert found.calibrated > 0.93
    assert found.remark() == ""


def test_phases_that_are_not_calibrated_are_named() -> None:
    found = coherence(np.zeros((1, 2)), np.ones(1), 3.0)
    # Phases of antennas are fitted: what is left is the noise, cos(0.05) = 0.999.
    assert found.with_free_phases == pytest.approx(0.999, abs=0.005)
    assert found.calibrated < 0.4
    assert "The phases of the antennas are not calibrated" in found.remark()


def test_a_field_of_many_sources_is_no_phase_error() -> None:
    """Thirty equal points have phases like random ones, which those of antennas cannot explain either."""
    found = coherence(FIELD, np.ones(30), 0.0)
    assert found.calibrated < 0.5
    assert found.remark() == ""


def test_three_antennas_have_too_few_closures() -> None:
    """Three phases of baselines, and two that are free."""
    rng = np.random.default_rng(3)
    obs = Observation.from_arrays(
        vis=np.exp(1j * rng.normal(size=(30, 1, 1))),
        uvw=rng.normal(size=(30, 3)) * 100.0,
        antenna1=np.tile([0, 0, 1], 10),
        antenna2=np.tile([1, 2, 2], 10),
        time=5e9 + 10.0 * np.repeat(np.arange(10), 3),
        chan_freq=[FREQ],
        corr_type=("I",),
        weight=1e4,
    )
    assert phase_coherence(VisibilityData(obs)) is None
