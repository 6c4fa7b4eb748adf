"""Observations from plain arrays: checks, frozenness, identity, and what other packages get of them."""

from __future__ import annotations

import pickle
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from biro.errors import InputError
from biro.observation import flags
from biro.observation.flags import apply_flags, empty_counts
from biro.observation.observation import Observation
from rime_kernels import stokes_to_corr

LINEAR = ("XX", "XY", "YX", "YY")


def arrays(**changed: Any) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    given: dict[str, Any] = {
        "vis": (rng.normal(size=(6, 2, 4)) + 1j * rng.normal(size=(6, 2, 4))).astype(np.complex64),
        "uvw": rng.normal(size=(6, 3)) * 100,
        "antenna1": np.array([0, 0, 2, 0, 0, 2]),
        "antenna2": np.array([1, 2, 1, 1, 2, 1]),
        "time": np.repeat([5e9 + 20, 5e9], 3),
        "chan_freq": np.array([1.0e9, 1.1e9]),
        "corr_type": LINEAR,
        "phase_centre": (1.0, -0.5),
    }
    return given | changed


def test_from_arrays() -> None:
    given = arrays(weight=np.full((6, 1, 1), 4.0), antenna_names=["a", "b", "c"], field="F")
    observation = Observation.from_arrays(**given)
    (part,) = observation.partitions
    assert np.array_equal(part.vis, given["vis"])
    assert (part.weight == 4).all()
    assert (part.vis.dtype, part.weight.dtype) == (np.complex64, np.float32)
    assert part.time_index.tolist() == [1, 1, 1, 0, 0, 0]
    assert part.times.tolist() == [5e9, 5e9 + 20]
    assert (part.n_antenna, part.interval, part.chan_width.tolist()) == (3, 20.0, [1e8, 1e8])
    assert observation.counts["usable"] == observation.counts["total"] == 48
    (frame,) = observation.partition_views
    assert (frame.label, frame.field, frame.phase_centre) == ("F/spw0", "F", (1.0, -0.5))
    assert (frame.antenna_names, frame.time.tolist()) == (("a", "b", "c"), [5e9, 5e9 + 20])


def test_what_was_given_is_copied_and_frozen() -> None:
    given = arrays()
    (part,) = Observation.from_arrays(**given).partitions
    given["vis"][:] = 0
    given["uvw"][:] = 0
    assert part.vis.all()
    assert part.uvw.any()
    with pytest.raises(ValueError, match="read-only"):
        part.vis[0] = 0
    with pytest.raises(TypeError):
        Observation.from_arrays(**arrays()).counts["usable"] = 0  # type: ignore[index]


def test_rows_for_the_kernels() -> None:
    (part,) = Observation.from_arrays(**arrays()).partitions
    rows = part.rows
    assert (rows.n_antenna, rows.n_time) == (3, 2)
    assert np.array_equal(rows.stokes_to_corr, stokes_to_corr(LINEAR))
    assert np.array_equal(rows.uvw, part.uvw)


def test_fourier_convention() -> None:
    casa, fourier = (
        Observation.from_arrays(**arrays(convention=c)).partitions[0] for c in ("casa", "fourier")
    )
    assert np.array_equal(casa.uvw, -fourier.uvw)


def test_autocorrelations() -> None:
    given = arrays(antenna2=np.array([0, 2, 1, 1, 2, 1]))
    dropped, kept = (Observation.from_arrays(**given, autocorrelations=keep) for keep in (False, True))
    assert (dropped.counts["autocorrelation"], kept.counts["autocorrelation"]) == (8, 0)
    assert dropped.partitions[0].row_id.tolist() == [1, 2, 3, 4, 5]
    assert kept.partitions[0].n_row == 6


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"vis": np.ones((6, 2, 4))}, "vis must be complex64 or complex128, got float64"),
        ({"vis": np.ones((6, 2, 2), complex)}, r"vis must have shape \(row, chan, 4\)"),
        ({"uvw": np.ones((3, 6))}, r"uvw must have shape \(6, 3\) .*, got \(3, 6\); transpose it\?"),
        ({"uvw": np.full((6, 3), np.nan)}, "uvw has values that are not finite"),
        ({"antenna1": np.zeros(6)}, "antenna1 must be integers"),
        ({"antenna1": np.full(6, -1)}, "antenna1 must not be negative, got -1"),
        ({"time": np.zeros(5)}, r"time must have shape \(6,\), got \(5,\)"),
        ({"chan_freq": [1e9]}, r"chan_freq must have shape \(2,\)"),
        ({"chan_freq": [1e9, -1]}, "chan_freq must be finite and positive"),
        ({"chan_width": np.ones(3)}, r"chan_width must be one number or \(2,\)"),
        ({"corr_type": ("XX", "XY", "YX", "PP")}, "corr_type: unknown correlation 'PP'; known are I, Q"),
        ({"corr_type": ("XX", "XY", "YX", "XX")}, "has a correlation twice"),
        ({"weight": np.ones(5)}, r"weight of shape \(5,\) does not broadcast to vis \(6, 2, 4\)"),
        ({"flag": True}, "0 of 48 visibilities usable: FLAG 48"),
        ({"phase_centre": (0.0, 90.0)}, "phase_centre must be .* radians"),
        ({"antenna_names": ["a"]}, "antenna_names has 1 names, but antenna number 2 is used"),
        ({"antenna_positions": np.zeros((4, 2))}, r"antenna_positions must have shape \(4, 3\)"),
        ({"convention": "paper"}, "convention must be 'casa' or 'fourier', got 'paper'"),
        ({"chan_widht": 1.0}, "no argument 'chan_widht'; did you mean 'chan_width'"),
    ],
)
def test_what_cannot_be_meant_is_refused(changed: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Observation.from_arrays(**arrays(**changed))


def test_pickle_brings_all_back_frozen() -> None:
    given = Observation.from_arrays(**arrays(source="somewhere"))
    _ = given.labels  # worked out already
    found = pickle.loads(pickle.dumps(given))
    assert (found.digest(), found.source, found.counts) == (given.digest(), "somewhere", given.counts)
    (part,) = found.partitions
    for array in (part.vis, part.weight, part.time, found.antenna_positions):
        assert not array.flags.writeable
    with pytest.raises(TypeError):
        found.counts["usable"] = 0


def test_the_digest_sees_all_data_but_not_the_path() -> None:
    base = Observation.from_arrays(**arrays())
    (part,) = base.partitions
    assert Observation.from_arrays(**arrays(source="elsewhere")).digest() == base.digest()
    digests = {base.digest()}
    for name in ("vis", "weight", "uvw", "time", "chan_freq", "antenna1"):
        array = np.array(getattr(part, name))
        array.flat[0] += 1
        digests.add(replace(base, partitions=(replace(part, **{name: array}),)).digest())
    digests.add(replace(base, partitions=(replace(part, phase_centre=(1.0, -0.4)),)).digest())
    digests.add(replace(base, partitions=(part, replace(part, spw_id=1))).digest())
    assert len(digests) == 9


def test_labels_are_unique() -> None:
    base = Observation.from_arrays(**arrays(field="A"))
    (part,) = base.partitions
    variants = [{}, {"spw_id": 1}, {"field": "B", "field_id": 1}, {"field_id": 2}, {"data_desc_id": 5}]
    labels = replace(base, partitions=tuple(replace(part, **v) for v in variants)).labels
    assert labels == ("A#0/spw0/dd0", "A#0/spw1", "B/spw0", "A#2/spw0", "A#0/spw0/dd5")


def test_each_visibility_is_counted_once() -> None:
    """Random faults: the sum over causes is the total, whatever falls together, and the order decides."""
    rng = np.random.default_rng(8)
    shape = (50, 3, 2)
    vis = np.where(rng.random(shape) < 0.2, np.nan, 1 + 1j)
    weight = rng.choice([1.0, 0.0, -1.0, np.inf, np.nan], shape)
    row, flag = rng.random((50, 1, 1)) < 0.2, rng.random(shape) < 0.3
    faults = {
        "FLAG_ROW": np.broadcast_to(row, shape),
        "FLAG": flag,
        "non-finite data": np.isnan(vis),
        "non-finite weight": ~np.isfinite(weight),
        "negative weight": weight < 0,
        "zero weight": weight == 0,
    }
    expected = dict.fromkeys(faults, 0)  # in the documented order
    for at in np.ndindex(shape):
        cause = next((name for name, fault in faults.items() if fault[at]), None)
        if cause:
            expected[cause] += 1
    counts = empty_counts()
    apply_flags(vis, weight, [("FLAG", flag), ("FLAG_ROW", row)], counts)
    assert {cause: counts[cause] for cause in faults} == expected
    assert counts["total"] == vis.size == counts["usable"] + sum(expected.values())
    assert ((vis == 0) == (weight == 0)).all()
    assert np.count_nonzero(weight) == counts["usable"]


@pytest.mark.parametrize("block", [1, 7, 1 << 22])
def test_settling_takes_little_memory(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flags, "BLOCK_VISIBILITIES", 4096 * block)
    vis = np.ones((256, 2048, 2), np.complex64)
    vis[::2, ::3] = np.nan
    weight = np.ones(vis.shape, np.float32)
    row = (np.arange(256) % 5 == 0)[:, None, None]
    counts = empty_counts()
    tracemalloc.start()
    apply_flags(vis, weight, [("FLAG_ROW", row), ("no data", np.zeros((1, 1, 1), bool))], counts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Rows 0, 5, ... are flagged: 52 of 256; of the other even rows (102) every third channel is NaN.
    assert counts["FLAG_ROW"] == 52 * 4096
    assert counts["non-finite data"] == 102 * 683 * 2
    assert counts["usable"] + 52 * 4096 + 102 * 683 * 2 == counts["total"] == vis.size
    assert np.array_equal(vis == 0, weight == 0)
    if block == 1:  # a row is 4096 visibilities; masks of the whole would take 1 MB each
        assert peak < 200_000
