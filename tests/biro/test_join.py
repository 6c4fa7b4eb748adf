"""Observations joined: labels, antennas, times, and the likelihood of all data together."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import biro
from biro.errors import DataError, InputError
from biro.io.measurement_set import create_ms, read_ms, write_column
from biro.models.files.toml import from_toml
from biro.observation.join import set_names
from biro.observation.observation import Observation
from biro.simulation.prediction import predict

POINT = """
[[source]]
name = "core"
east = "20 arcsec"
north = "-10 arcsec"
I = { prior = "uniform", low = 0, high = 10, unit = "Jy" }
"""
POINTING = """
[[source]]
name = "core"
east = "20 arcsec"
north = "-10 arcsec"
I = "1 Jy"

[beam]
kind = "gaussian"
fwhm = "2 arcmin"
ref_freq = "1 GHz"

[pointing.antenna]
A = { east = "10 arcsec", north = "0 arcsec" }
C = { east = "0 arcsec", north = "-15 arcsec" }
D = { east = "-20 arcsec", north = "5 arcsec" }
"""
PLACES = {"A": (0.0, 0.0, 1.0), "B": (300.0, 0.0, 1.0), "C": (0.0, 500.0, 1.0), "D": (700.0, 90.0, 1.0)}


def observe(seed: int, antennas: str = "ABC", **changed: Any) -> Observation:
    """Noise of 1 Jy on three baselines, four times and two channels, of the field F."""
    rng = np.random.default_rng(seed)
    given: dict[str, Any] = {
        "vis": rng.normal(size=(12, 2, 2)) + 1j * rng.normal(size=(12, 2, 2)),
        "uvw": rng.normal(size=(12, 3)) * (300, 300, 3),
        "antenna1": np.tile([0, 0, 1], 4),
        "antenna2": np.tile([1, 2, 2], 4),
        "time": np.repeat(5e9 + 10.0 * np.arange(4), 3) + 1e5 * seed,
        "chan_freq": [1.0e9, 1.1e9],
        "corr_type": ("XX", "YY"),
        "antenna_names": list(antennas),
        "antenna_positions": np.array([PLACES[name] for name in antennas]),
        "field": "F",
        "source": f"/data/day{seed}.ms",
    }
    return Observation.from_arrays(**(given | changed))


def test_log_likelihoods_add_up() -> None:
    """Independent data: ln L of all is the sum, each set with a noise factor of its own."""
    sets = [observe(1), observe(2, "BCD")]
    likelihood = biro.Likelihood(biro.join(sets), from_toml(POINT), backend="cpu")
    assert tuple(likelihood.parameter_names) == (
        "core.I",
        "noise.factor[day1.ms/F/spw0]",
        "noise.factor[day2.ms/F/spw0]",
    )
    alone = [biro.Likelihood(one, from_toml(POINT), backend="cpu") for one in sets]
    expected = alone[0].log_likelihood([0.7, 1.1]) + alone[1].log_likelihood([0.7, 0.8])
    # Sums of the same terms, of rounding errors some 1e-16 each.
    assert likelihood.log_likelihood([0.7, 1.1, 0.8]) == pytest.approx(expected, rel=1e-12)


def test_antennas_are_known_by_name() -> None:
    """Pointing errors belong to antennas: what is predicted for a set does not depend on the others."""
    sets = [observe(1, "ABC"), observe(2, "DCB")]
    joined = biro.join(sets)
    assert joined.antenna_names == ("A", "B", "C", "D")
    assert np.array_equal(joined.antenna_positions, [PLACES[name] for name in "ABCD"])
    assert joined.partitions[1].antenna1.tolist() == [3, 3, 2] * 4
    assert joined.partitions[1].antenna2.tolist() == [2, 1, 1] * 4
    together = list(predict(joined, from_toml(POINTING), backend="cpu"))
    for one, found in zip(sets, together, strict=True):
        absent = {"A", "B", "C", "D"} - {*one.antenna_names}
        lines = [line for line in POINTING.splitlines() if line[:1] not in absent]
        (expected,) = predict(one, from_toml("\n".join(lines)), backend="cpu")
        # Phases are rounded alike; antenna coordinates are solved with another reference: 1e-12 of 1 Jy.
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)


def test_an_antenna_that_moved_is_another() -> None:
    places = np.array([PLACES[name] for name in "ABC"])
    places += ((0, 0, 0), (0, 9, 0), (0, 0, 0.1))
    joined = biro.join([observe(1), observe(2, antenna_positions=places)])
    assert joined.antenna_names == ("A", "B", "C", "day2.ms/B")
    assert joined.partitions[1].antenna2.tolist() == [3, 2, 2] * 4
    assert any("day2.ms: antennas B have other positions" in note for note in joined.notes)


def test_labels_are_as_they_were_where_they_differ() -> None:
    joined = biro.join([observe(1), observe(2, field="G"), observe(3)])
    assert joined.labels == ("day1.ms/F/spw0", "G/spw0", "day3.ms/F/spw0")
    assert joined.set_names == ("day1.ms", "day2.ms", "day3.ms")
    assert joined.source == "/data/day1.ms, /data/day2.ms, /data/day3.ms"
    assert joined.counts["usable"] == joined.counts["total"] == 3 * 48
    assert "day1.ms/F/spw0" in str(joined.summary())


def test_one_name_for_two_things_is_two_groups() -> None:
    """Fields of one name and two directions, and windows of two bands, do not share a noise factor."""
    near, far = observe(2, phase_centre=(1e-7, 0.0)), observe(2, phase_centre=(1e-3, 0.0))
    assert [view.field for view in biro.join([observe(1), near]).partition_views] == ["F", "F"]
    assert [view.field for view in biro.join([observe(1), far]).partition_views] == ["day1.ms/F", "day2.ms/F"]
    shifted, other = observe(2, chan_freq=[1.01e9, 1.11e9]), observe(2, chan_freq=[5.0e9, 5.1e9])
    assert [view.spw for view in biro.join([observe(1), shifted]).partition_views] == ["0", "0"]
    assert [view.spw for view in biro.join([observe(1), other]).partition_views] == ["day1.ms/0", "day2.ms/0"]


def test_times_of_different_scales_become_utc() -> None:
    one, other = observe(1), replace(observe(2), time_scale="TAI", utc_offset=-37.0)
    joined = biro.join([one, other])
    assert (joined.time_scale, joined.utc_offset) == ("UTC", 0.0)
    assert np.array_equal(joined.partitions[1].time, other.partitions[0].time - 37.0)
    assert joined.partitions[1].times[0] == other.partitions[0].times[0] - 37.0
    same = biro.join([replace(one, time_scale="TAI", utc_offset=-37.0), other])
    assert (same.time_scale, same.utc_offset) == ("TAI", -37.0)


@pytest.mark.parametrize(
    ("sources", "names"),
    [
        (["a/x.ms", "b/y.ms"], ["x.ms", "y.ms"]),
        (["/d/1/x.ms", "/d/2/x.ms"], ["1/x.ms", "2/x.ms"]),
        (["/x.ms", "/d/x.ms"], ["/x.ms", "d/x.ms"]),
        (["arrays", "arrays", "x.ms"], ["arrays#1", "arrays#2", "x.ms"]),
    ],
)
def test_names_of_sets(sources: list[str], names: list[str]) -> None:
    assert set_names(sources) == names


def test_what_cannot_be_joined_is_refused() -> None:
    one, other = observe(1), observe(2)
    joined = biro.join([one, other])
    for given, message in (
        ([one, observe(1, source="copy.ms")], "day1.ms and copy.ms have the same visibilities of field F"),
        ([joined, observe(3)], "is joined already; give all observations to one call of join"),
        (["a.ms", "b.ms"], "join needs observations, as biro.read gives them, found the path 'a.ms'"),
        ([one, 3], "join needs a list of observations, found int"),
        ([], "there is nothing to join"),
    ):
        with pytest.raises(InputError, match=message):
            biro.join(given)  # type: ignore[arg-type]
    assert biro.join([one]) is one


def test_equal_labels_are_refused_where_an_observation_is_made() -> None:
    one, other = observe(1), observe(2)
    with pytest.raises(InputError, match=r"2 partitions are called F/spw0/dd0, and would share .*biro\.join"):
        replace(one, partitions=(*one.partitions, *other.partitions))


def test_a_joined_observation_is_pickled_and_hashed() -> None:
    sets = observe(1), observe(2)
    joined = biro.join(sets)
    found = pickle.loads(pickle.dumps(joined))
    assert (found.labels, found.digest()) == (joined.labels, joined.digest())
    renamed = biro.join([sets[0], replace(sets[1], source="night.ms")])
    assert renamed.digest() != joined.digest()  # other names of parameters


def test_several_sets_are_read_as_one(tmp_path: Path) -> None:
    paths = [tmp_path / f"day{seed}.ms" for seed in (1, 2)]
    for seed, path in enumerate(paths, 1):
        create_ms(path, observe(seed))
    joined, alone = read_ms(paths, channels="1:"), [read_ms(path, channels="1:") for path in paths]
    assert joined.labels == ("day1.ms/F/spw0", "day2.ms/F/spw0")
    for part, one in zip(joined.partitions, alone, strict=True):
        assert np.array_equal(part.vis, one.partitions[0].vis)
        assert part.n_chan == 1
    with pytest.raises(InputError, match=r"day1\.ms: is given twice"):
        read_ms([paths[0], paths[1], tmp_path / "." / "day1.ms"])
    with pytest.raises(InputError, match="found an empty list"):
        read_ms([])
    with pytest.raises(DataError, match=r"day1\.ms: no field 'G'; there are 0='F'"):
        read_ms(paths, fields="G")
    with pytest.raises(InputError, match=r"joined data of day1\.ms, day2\.ms; read each set on its own"):
        write_column(paths[0], "NEW", joined, [])
    with pytest.raises(InputError, match=r"cannot make one set of the joined data of day1\.ms, day2\.ms"):
        create_ms(tmp_path / "all.ms", joined)
