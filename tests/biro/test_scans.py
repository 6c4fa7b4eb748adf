"""Scans by SCAN_NUMBER or by pauses, against lists made by hand."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from casacore.tables import table

import biro
from biro.io.measurement_set import create_ms
from biro.models.bound.antenna_terms.segments import cut
from biro.models.components.partition_view import PartitionView
from biro.observation.observation import Observation


def view(
    time: Sequence[float], scan: Sequence[int] | None, set_name: str = "", field: str = "A"
) -> PartitionView:
    """Integrations of 10 s with scan numbers."""
    number = None if scan is None else np.array(scan, np.int32)
    return PartitionView(
        label=set_name + field,
        field=field,
        spw="0",
        phase_centre=(0.0, 0.0),
        time=np.array(time, np.float64),
        chan_freq=np.array([1e9]),
        antenna_names=("a", "b"),
        interval=10.0,
        scan=number,
        set_name=set_name,
    )


def names(views: Sequence[PartitionView]) -> list[list[str]]:
    """What the scan of each time of each partition is called."""
    segments = cut("scan", views)
    return [[segments.index(i).strip("[]").removeprefix("scan ") for i in part] for part in segments.of_time]


def test_numbers_come_before_pauses_and_fields() -> None:
    """A pause of 1000 s within scan 7, and none between 7 and 9; a field that alternates within a scan."""
    assert names([view([0, 1000, 1010, 1020], [7, 7, 9, 9])]) == [["7", "7", "9", "9"]]
    assert names([view([0, 1000, 1010, 1020], None)]) == [["1", "2", "2", "2"]]
    two_fields = [view([0, 20, 40], [3, 3, 4]), view([10, 30], [3, 4], field="B")]
    assert names(two_fields) == [["3", "3", "4"], ["3", "4"]]


def test_a_number_that_comes_again_is_another_scan() -> None:
    assert names([view([0, 10, 20, 30], [1, 2, 1, 1])]) == [["1", "2", "3", "3"]]


def test_joined_sets() -> None:
    """Windows of one observation share scans; days have their own, of the same numbers or of others."""
    first = view([0, 10, 20, 30], [1, 1, 2, 2], "a")
    # The other window lacks the first and the last time, and is read at times between.
    assert names([first, view([5, 15, 25], [1, 1, 2], "b")]) == [["1", "1", "2", "2"], ["1", "1", "2"]]
    assert names([first, view([1e5, 1e5 + 10], [2, 3], "b")]) == [["1", "1", "2", "2"], ["3", "4"]]
    assert names([first, view([1e5, 1e5 + 10], [5, 6], "b")]) == [["1", "1", "2", "2"], ["5", "6"]]
    # Numbers of two telescopes that know nothing of each other: where either begins a scan.
    other = view([5, 15, 25, 35], [40, 41, 41, 41], "b")
    assert names([first, other]) == [["1", "2", "4", "4"], ["2", "3", "4", "5"]]
    # Where one set has no numbers, pauses count for all.
    assert names([first, view([5, 15], None, "b")]) == [["1"] * 4, ["1"] * 2]


@pytest.fixture
def numbered(measurement_set: Callable[[str], Path], tmp_path: Path) -> Callable[[Callable], Path]:
    """A copy of the VLA set of 3C273 with other scan numbers, given a function of the index of the time."""

    def make(scan_of: Callable[[np.ndarray], np.ndarray]) -> Path:
        path = Path(shutil.copytree(measurement_set("vla_3c273_x"), tmp_path / "numbered.ms"))
        with table(str(path), readonly=False, ack=False) as main:
            slot = np.unique(main.getcol("TIME"), return_inverse=True)[1]
            main.putcol("SCAN_NUMBER", scan_of(slot).astype(np.int32))
        return path

    return make


def scans(observation: Observation) -> list[int]:
    """The scan of each time of the first partition."""
    return cut("scan", observation.partition_views).of_time[0].tolist()


def test_a_set_with_numbers(numbered: Callable[[Callable], Path], tmp_path: Path) -> None:
    """Ten times a scan from number 5 on: selection, averaging and a set that is written keep them."""
    path = numbered(lambda slot: 5 + slot // 10)
    data = biro.read_ms(path)
    n_time = len(data.partitions[0].times)
    assert scans(data) == [slot // 10 for slot in range(n_time)]
    assert f"{-(-n_time // 10)}, by SCAN_NUMBER" in str(data.summary())
    # One scan alone has numbers still: its pauses do not end it.
    one = biro.read_ms(path, scans=6)
    assert scans(one) == [0] * 10
    assert cut("scan", one.partition_views).index(0) == "[scan 6]"
    # An average of a day would be one for each baseline; it is one for each scan.
    day = biro.read_ms(path, average_time="1 d")
    assert scans(day) == list(range(-(-n_time // 10)))
    assert np.array_equal(day.partitions[0].scan_of_time, 5 + np.arange(-(-n_time // 10)))
    weight = sum(part.weight.sum(dtype=np.float64) for part in data.partitions)
    # Sums in single precision of the weights of ten times.
    assert sum(p.weight.sum(dtype=np.float64) for p in day.partitions) == pytest.approx(weight, rel=1e-5)
    create_ms(tmp_path / "new.ms", data)
    with table(str(tmp_path / "new.ms"), ack=False) as new, table(str(path), ack=False) as old:
        rows = np.sort(np.concatenate([part.row_id for part in data.partitions]))
        assert np.array_equal(new.getcol("SCAN_NUMBER"), old.getcol("SCAN_NUMBER")[rows])


@pytest.mark.parametrize("kind", ["one", "several a time", "of integrations"])
def test_numbers_that_say_nothing(numbered: Callable[[Callable], Path], kind: str) -> None:
    """One number for all, several at one time, or one for each time: pauses count, and this is said."""
    others = {"several a time": lambda slot: np.arange(slot.size) % 2, "of integrations": lambda slot: slot}
    path = numbered(others.get(kind, np.ones_like))
    data = biro.read_ms(path)
    assert all(part.scan_number is None for part in data.partitions)
    without = replace(data, partitions=tuple(replace(p, scan_number=None) for p in data.partitions))
    assert scans(data) == scans(without)
    text = str(data.summary())
    assert "from time gaps and changes of the field" in text
    assert ("have different SCAN_NUMBERs" in text) == (kind == "several a time")
    # The 23 times are 10 s apart, with pauses of 147 and 71 minutes after the 7th and the 15th.
    assert scans(data) == [0] * 7 + [1] * 8 + [2] * 8
