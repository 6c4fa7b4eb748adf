"""Cells that hold times of several days, where baselines are where they were and nothing else varies."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
from test_cells import CENTRE, DISTANCE, FAR, TRUTH, close, point, sky

import biro
from biro.likelihood.cells.axis import cut
from biro.likelihood.cells.choose import cells_for
from biro.likelihood.cells.sidereal_rotation import turns_of
from biro.likelihood.cells.variation import Variation, variations
from biro.models import Feeds, Gain, LogNormal, Noise, PerSegment, PointSource
from biro.simulation.simulator import Channels, Track, simulate

SIDEREAL_DAY = 86164.0905
"""s (IAU 1982: 23 h 56 min 4.0905 s of mean solar time)."""


@functools.cache
def three_days() -> biro.Observation:
    """KAT-7 about the culmination of a field on three days, in one partition."""
    days = [
        simulate(
            "KAT-7",
            sky(Noise(factor=1.0)),
            phase_centre=CENTRE,
            times=Track(f"2026-03-0{day}", 1200.0, 30.0),
            channels=Channels(1.3e9, 2e6, 4),
            noise=1.0,
            seed=day,
            values=TRUTH,
        )
        for day in (1, 2, 3)
    ]
    parts = [day.partitions[0] for day in days]
    of_rows = ("uvw", "antenna1", "antenna2", "time", "vis", "weight")
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in of_rows}
    number = np.unique(joined["time"], return_inverse=True)[1].astype(np.int32)
    rows = np.arange(number.size)
    part = replace(parts[0], **joined, time_index=number, row_id=rows, scan_number=number // 40)
    return replace(days[0], partitions=(part,))


def test_turns_begin_where_there_are_no_times():
    one = np.arange(0.0, 30000.0, 60.0)
    # The second day begins an hour earlier by the stars, the fourth an hour later.
    times = np.concatenate([one, one + SIDEREAL_DAY - 3600.0, one + 3 * SIDEREAL_DAY + 3600.0])
    np.testing.assert_array_equal(turns_of(times), np.repeat([0, 1, 3], one.size))
    np.testing.assert_array_equal(turns_of(np.array([5.0])), [0])


def test_points_of_several_days_give_phases_back():
    """Of three days, whose points lie anywhere between each other, or at the same places."""
    for offset in (0.0, 3.1):
        points = np.concatenate([10.0 * np.arange(60) + day * offset for day in range(3)])
        order, rates = np.argsort(points, kind="stable"), np.linspace(0.0, 0.005, 32)
        axis = cut(points, [order], rates, 0.01, 3)
        phases = np.exp(1j * np.outer(points, rates))
        missed = np.abs(phases - axis.weights @ phases[axis.nodes])
        assert np.sqrt(np.mean(missed**2)) <= 0.01
        # As many as of one day, or little more.
        alone = cut(points[:60], [np.arange(60)], rates, 0.01)
        assert len(alone.nodes) <= len(axis.nodes) <= 1.5 * len(alone.nodes)


def test_cells_hold_several_days_where_nothing_else_varies():
    obs = three_days()
    part = obs.partitions[0]
    (within,), (over,) = (cells_for(obs, [Variation(DISTANCE, in_time=each)], 0.03) for each in (True, False))
    # Three days lie on one another: up to three times fewer, less where cells end.
    assert 1.3 * over.n_kept < within.n_kept <= 3 * over.n_kept
    exact = point(part, np.radians(0.8 * FAR), np.radians(-0.6 * FAR))
    for cells in (within, over):
        found = cells.expand(exact[cells.rows][:, cells.channels.nodes])
        assert np.sqrt(np.mean(np.abs(found - exact) ** 2)) < 1.2 * 0.03


def test_a_fit_to_cells_of_several_days_is_that_to_all_data():
    whole = biro.Likelihood(three_days(), sky())
    cells = biro.Likelihood(three_days(), sky(), average="cells")
    turns = turns_of(three_days().partitions[0].times)[three_days().partitions[0].time_index]
    own, rows = cells.cells[0].times.tocoo(), cells.cells[0].rows
    assert (turns[own.row] != turns[rows[own.col]]).any()
    close(cells, whole)


@pytest.mark.parametrize(
    ("more", "in_time"),
    [
        ({}, False),
        ({"gain": Gain(amplitude=LogNormal(0.1))}, False),
        ({"gain": Gain(amplitude=PerSegment(LogNormal(0.1), per="scan"))}, True),
        ({"feeds": Feeds(rotation="present")}, True),
        ({"knots": True}, True),
    ],
)
def test_what_varies_with_time_keeps_days_apart(more, in_time):
    model = sky(**{key: value for key, value in more.items() if key != "knots"})
    if "knots" in more:
        flare = PointSource("c", east="0 deg", north="0 deg", I=["1 Jy", "2 Jy"], times=["0 h", "48 h"])
        model = replace(model, sources=[*model.sources, flare])
    (varying,) = variations(biro.Likelihood(three_days(), model))
    assert varying.in_time is in_time
