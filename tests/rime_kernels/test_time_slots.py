"""Time slots, against groups made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rime_kernels.arrays.time_slots import (
    RowSlots,
    slot_width,
    spacing_of_baselines,
    time_slots,
    width_of_slots,
)

START = 5.0e9


def test_times_that_rounding_parts_are_one_slot() -> None:
    """Three integrations of 10 s, of four baselines each whose times differ by up to 20 us."""
    exact = START + np.repeat([0.0, 10.0, 20.0], 4)
    time = exact + np.tile([0.0, 1e-5, -1e-5, 1e-5], 3)
    times, slot = time_slots(time, slot_width(10.0))
    assert slot.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert times == pytest.approx(START + np.array([0.0, 10.0, 20.0]), abs=2e-5)


def test_times_that_are_equal_stay_as_they_are() -> None:
    times, slot = time_slots(START + np.array([20.1, 0.1, 10.1, 0.1]), slot_width(10.0))
    assert np.array_equal(times, START + np.array([0.1, 10.1, 20.1]))
    assert slot.tolist() == [2, 0, 1, 0]


def test_a_chain_of_close_times_is_cut() -> None:
    """Steps of 0.6 s, and slots of 1 s: every second time begins one."""
    times, slot = time_slots(0.6 * np.arange(6), 1.0)
    assert slot.tolist() == [0, 0, 1, 1, 2, 2]
    assert times == pytest.approx([0.3, 1.5, 2.7])


def test_integrations_of_different_lengths_are_not_mixed() -> None:
    """Baseline-dependent averages: midpoints of 20 s rows lie 5 s from those of rows of 10 s."""
    time = np.array([5.0, 15.0, 25.0, 35.0, 10.0, 30.0])
    interval = np.array([10.0, 10.0, 10.0, 10.0, 20.0, 20.0])
    first, second = np.zeros(6, np.int32), np.array([1, 1, 1, 1, 2, 2], np.int32)
    width = width_of_slots(interval, time, first, second)
    assert RowSlots.of(time, width).number.tolist() == [0, 2, 3, 5, 1, 4]


@pytest.mark.parametrize("interval", [0.0, 1e4])
def test_steps_of_baselines_stand_in_for_a_wrong_interval(interval: float) -> None:
    """INTERVAL is 0 or far too long; baselines have steps of 10 s, two of them 3 s apart from the third."""
    base = START + 10.0 * np.arange(5)
    time = np.concatenate([base, base + 0.5, base + 3.0])
    first, second = np.zeros(15, np.int32), np.repeat(np.array([1, 2, 3], np.int32), 5)
    assert spacing_of_baselines(time, first, second) == 10.0
    width = width_of_slots(np.full(15, interval), time, first, second)
    assert width == pytest.approx(1.0)
    assert RowSlots.of(time, width).number.max() == 9
