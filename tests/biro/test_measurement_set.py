"""Reading of real Measurement Sets: numbers from the data's own README, selection, conventions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from astropy.coordinates import FK4, SkyCoord
from casacore.tables import makecoldesc, table

import biro
from biro.errors import DataError, InputError, MeasurementSetError
from biro.io.data_set.options import ColumnOptions, SetKeywords, SetOptions
from biro.io.data_set.request import ReadingOptions
from biro.io.measurement_set import create_ms, read_columns, read_ms
from biro.io.measurement_set.opened import TableOptions
from biro.io.measurement_set.process import MeasurementSetProcess
from biro.observation.averaging import Averaging
from biro.observation.observation import Observation
from biro.observation.selection import Selection
from biro.observation.weighting import Weighting

Unpack = Callable[[str], Path]
DEGREE = np.pi / 180


def two_by_two() -> Observation:
    """Two fields x two windows with different channels and correlations, rows interleaved."""
    rng = np.random.default_rng(5)
    parts = []
    for i, (n_chan, corr_type) in enumerate([(2, ("XX", "XY", "YX", "YY")), (3, ("YY", "XX"))]):
        for j in range(2):
            n_row = 6
            single = Observation.from_arrays(
                vis=rng.normal(size=(n_row, n_chan, len(corr_type))) + 1j,
                uvw=rng.normal(size=(n_row, 3)) * 100,
                antenna1=[0, 0, 2] * 2,
                antenna2=[1, 2, 1] * 2,
                time=np.repeat([5e9, 5e9 + 10], 3),
                chan_freq=1e9 + 1e6 * np.arange(n_chan),
                corr_type=corr_type,
                phase_centre=(0.1 + j, -0.2),
                chan_width=1e6,
                interval=10.0,
                antenna_positions=rng.normal(size=(3, 3)) * 100,
            )
            (part,) = single.partitions
            number = 2 * j + i
            changed = {"field": f"F{j}", "field_id": j, "spw": f"W{i}", "spw_id": i, "data_desc_id": i}
            parts.append((part, changed | {"row_id": np.arange(n_row) * 4 + number}))
    partitions = tuple(replace(part, **changed) for part, changed in parts)
    partitions = tuple(sorted(partitions, key=lambda part: (part.field_id, part.data_desc_id)))
    return replace(single, partitions=partitions)


@pytest.mark.parametrize(
    ("name", "shape", "usable", "telescope", "weights"),
    [
        # Rows, channels, correlations and flagged fractions as the README of the data says.
        ("vla_3c273_x", [(7669, 1, 4)], 23921, "VLA", "WEIGHT_SPECTRUM"),
        ("vlba_j1033p6051_ku", [(5082, 1, 4)] * 8, 160560, "VLBA", "WEIGHT_SPECTRUM"),
        ("wsrt_3c343.1", [(108, 16, 4)], 6912, "WSRT", "WEIGHT"),
        ("SR1_M87", [(2367, 1, 4)], 4734, "VLBA", "WEIGHT_SPECTRUM"),
        ("sim_7_circ", [(63, 4, 4)], 1008, "VLA", "WEIGHT"),
    ],
)
def test_real_sets(
    measurement_set: Unpack, name: str, shape: list, usable: int, telescope: str, weights: str
) -> None:
    observation = read_ms(measurement_set(name), allow_unusable=True)  # correlations as they are stored
    assert [part.vis.shape for part in observation.partitions] == shape
    assert observation.counts["usable"] == usable == sum(part.n_usable for part in observation.partitions)
    causes = sum(n for cause, n in observation.counts.items() if cause not in ("usable", "total"))
    assert observation.counts["total"] == usable + causes == sum(np.prod(s) for s in shape)
    assert (observation.telescope, observation.weight_origin) == (telescope, weights)
    for part in observation.partitions:
        assert (part.vis[part.weight == 0] == 0).all()
        assert np.isfinite(part.weight).all()
        assert (part.weight >= 0).all()


def test_b1950_vla_becomes_icrs(measurement_set: Unpack) -> None:
    observation = read_ms(measurement_set("vla_3c273_x"))
    (part,) = observation.partitions
    # 3C273 is at 12h29m06.700s +02d03m08.60s (ICRS); it is the phase centre, within the 0.1 arcsec of 1989.
    known = np.array([15 * (12 + 29 / 60 + 6.700 / 3600), 2 + 3 / 60 + 8.60 / 3600]) * DEGREE
    offset = (np.array(part.phase_centre) - known) / DEGREE * 3600
    assert np.abs(offset).max() < 0.1
    assert part.frame == "B1950_VLA"
    # The north of B1950 there, by astropy.
    b1950 = FK4(equinox="B1950", obstime="J1989.5")
    here, north = (SkyCoord(186.638533, 2.328692 + d, unit="deg", frame=b1950).icrs for d in (0, 0.01))
    turn = here.position_angle(north).wrap_at("180d").deg
    assert any(f"rotated by {turn:+.3f} deg" in note for note in observation.notes)


def test_j2000_is_taken_as_icrs(measurement_set: Unpack) -> None:
    part = read_ms(measurement_set("vlba_j1033p6051_ku"), spws=0).partitions[0]
    # README: 158.4642874, +60.8520375 deg, to the digits given.
    assert np.array(part.phase_centre) / DEGREE == pytest.approx([158.4642874, 60.8520375], abs=5e-8)


def test_arrays_equal_the_columns_and_are_frozen(measurement_set: Unpack) -> None:
    path = measurement_set("wsrt_3c343.1")
    observation = read_ms(path)
    (part,) = observation.partitions
    with table(str(path), ack=False) as main:
        assert np.array_equal(part.vis, main.getcol("DATA"))
        assert np.array_equal(part.uvw, main.getcol("UVW"))
        assert np.array_equal(part.antenna1, main.getcol("ANTENNA1"))
        assert np.array_equal(part.time, main.getcol("TIME"))
    assert np.array_equal(part.times[part.time_index], part.time)
    assert (part.interval, part.freq_frame, part.corr_type) == (30.0, "TOPO", ("XX", "XY", "YX", "YY"))
    for array in (part.vis, part.weight, part.uvw, part.row_id, observation.antenna_positions):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_infinite_weights_are_left_out_and_counted(measurement_set: Unpack) -> None:
    counts = read_ms(measurement_set("SR1_M87")).counts
    # README: RL and LR are zero with weight inf where unflagged: 2 of 4 correlations, less the flagged ones.
    assert counts["non-finite weight"] == 3628
    assert counts["FLAG"] == 1106
    assert counts["non-finite weight"] + counts["FLAG"] == 2 * 2367


def test_fourier_convention_negates_uvw(measurement_set: Unpack) -> None:
    path = measurement_set("sim_7_circ")
    casa, fourier = (read_ms(path, convention=c).partitions[0] for c in ("casa", "fourier"))
    assert np.array_equal(casa.uvw, -fourier.uvw)
    assert np.array_equal(casa.vis, fourier.vis)
    with pytest.raises(InputError, match="'casa' or 'fourier', got 'paper'"):
        read_ms(path, convention="paper")


def test_default_column_is_corrected_data(measurement_set: Unpack) -> None:
    assert read_ms(measurement_set("sim_7_circ")).column == "CORRECTED_DATA"
    assert read_ms(measurement_set("sim_7_circ"), column="MODEL_DATA").partitions[0].vis[0, 0, 0] == 1
    assert read_ms(measurement_set("vla_3c273_x")).column == "DATA"


def test_columns_read_together_are_those_read_one_by_one(
    measurement_set: Unpack, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, names = measurement_set("sim_7_circ"), ["DATA", "MODEL_DATA"]
    single = [read_ms(path, column=name, antennas=[0, 1, 2, 4], average_time="60 s") for name in names]
    started: list[Path] = []
    start = MeasurementSetProcess.__init__

    def counted(self: MeasurementSetProcess, path: Path, time_limit: float) -> None:
        started.append(path)
        start(self, path, time_limit)

    monkeypatch.setattr(MeasurementSetProcess, "__init__", counted)
    together = biro.read_columns(path, names, antennas=[0, 1, 2, 4], average_time="60 s")
    assert len(started) == 1
    for one, other in zip(single, together, strict=True):
        assert (one.column, one.counts) == (other.column, other.counts)
        for part, same in zip(one.partitions, other.partitions, strict=True):
            for key in ("vis", "weight", "uvw", "row_id", "time"):
                assert np.array_equal(getattr(part, key), getattr(same, key))
    with pytest.raises(InputError, match="columns must be a list of names, got 'DATA'"):
        biro.read_columns(path, "DATA")
    with pytest.raises(InputError, match="read_columns has no argument 'column'"):
        biro.read_columns(path, names, column="DATA")  # type: ignore[call-arg]
    with pytest.raises(MeasurementSetError, match="no visibility column NONE; there are"):
        biro.read_columns(path, ["DATA", "NONE"])


def test_alike_hands_of_a_model_stay_as_those_of_the_data(measurement_set: Unpack) -> None:
    """MODEL_DATA is 1 in RR and LL: read alone, they are copies that make Stokes I."""
    path = measurement_set("sim_7_circ")
    assert read_ms(path, column="MODEL_DATA", correlations="RR,LL").partitions[0].corr_type == ("I",)
    data, model = biro.read_columns(path, ["DATA", "MODEL_DATA"], correlations="RR,LL")
    assert data.partitions[0].corr_type == model.partitions[0].corr_type == ("RR", "LL")
    assert (model.partitions[0].vis[model.partitions[0].weight > 0] == 1).all()


def test_selection(measurement_set: Unpack) -> None:
    path = measurement_set("wsrt_3c343.1")
    whole = read_ms(path).partitions[0]
    some = read_ms(
        path,
        scans=[2, 5],
        antennas=["RT0", "RT6", "RT7"],
        channels="4:8",
        correlations=["XX", "YY"],
        fields="3C343.1",
        time_range=("2000-08-03T13:00", "2000-08-03T14:00Z"),
    )
    (part,) = some.partitions
    keep = np.isin(whole.antenna1, [0]) & (whole.time <= whole.times[1])
    assert np.array_equal(part.row_id, np.flatnonzero(keep))
    assert np.array_equal(part.vis, whole.vis[keep][:, 4:8][:, :, [0, 3]])
    assert np.array_equal(part.chan_freq, whole.chan_freq[4:8])
    assert (part.corr_type, part.chan_id.tolist(), part.corr_id.tolist()) == (
        ("XX", "YY"),
        [4, 5, 6, 7],
        [0, 3],
    )
    assert some.counts["not selected"] == some.counts["total"] - some.counts["usable"] == 6912 - part.vis.size
    same = read_ms(path, selection=Selection(antennas=["!RT1", "!RT2"], scans=(2, 5)))
    assert np.array_equal(same.partitions[0].row_id, part.row_id)


def test_time_range_is_utc_whatever_the_column_holds(measurement_set: Unpack) -> None:
    path = measurement_set("vla_3c273_x")
    whole = read_ms(path)
    # The column is TAI, 24 s ahead of UTC in June 1989 (IERS Bulletin C).
    assert (whole.time_scale, whole.utc_offset) == ("TAI", -24.0)
    first = whole.summary().time_range[0]
    assert first.startswith("1989-06-27T01:02:56")
    part = read_ms(path, time_range=("1989-06-27T01:02:50", "1989-06-27T01:03:10")).partitions[0]
    assert len(part.times) == 2
    by_number = read_ms(path, time_range=(part.times[0], part.times[1])).partitions[0]
    assert np.array_equal(by_number.row_id, part.row_id)


@pytest.mark.parametrize(
    ("uv_range", "low", "high", "in_wavelengths"),
    [
        ("600 m..0.8km", 600, 800, False),
        ((600, None), 600, np.inf, False),
        ("3.512 klambda..", 3512, np.inf, True),
    ],
)
def test_uv_range(
    measurement_set: Unpack, uv_range: object, low: float, high: float, in_wavelengths: bool
) -> None:
    path = measurement_set("wsrt_3c343.1")
    whole, (part,) = read_ms(path).partitions[0], read_ms(path, uv_range=uv_range).partitions
    length = np.hypot(whole.uvw[:, 0], whole.uvw[:, 1])[:, None]
    length = length * whole.chan_freq / 299792458.0 if in_wavelengths else np.repeat(length, 16, axis=1)
    inside = (length >= low) & (length <= high)
    assert 0 < inside.sum() < inside.size
    if in_wavelengths:
        # Some rows must be cut in mid-band, or the test does not see that channels are judged one by one.
        assert (inside.any(axis=1) != inside.all(axis=1)).any()
    assert np.array_equal(part.row_id, np.flatnonzero(inside.any(axis=1)))
    assert np.array_equal(part.weight[:, :, 0] > 0, inside[part.row_id])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fields": "3C48"}, "no field '3C48'; there are 0='3C343.1'"),
        ({"spws": 3}, "no spectral window 3"),
        ({"antennas": ["RT0", "RTX"]}, r"no antenna 'RTX' .*; there are 0='RT0'"),
        ({"scans": 3}, "no scan 3; there are 2, 5, 8"),
        ({"channels": [16]}, "has channels 0 to 15"),
        (
            {"time_range": ("2001-01-01", None)},
            "no data are selected: none lie in the time range; .* 2000-08-03",
        ),
        (
            {"correlations": "RR"},
            "no data are selected: none have these correlations; the set has XX, XY, YX, YY",
        ),
        ({"column": "CORRECTED"}, "no visibility column CORRECTED; there are DATA$"),
        ({"weight_column": "WEIGHT_SPECTRUM"}, "no weight column WEIGHT_SPECTRUM; there are WEIGHT, SIGMA"),
        ({"time_range": ("noon", None)}, "time 'noon' is not understood"),
        ({"uv_range": "5 parsec.."}, "length '5 parsec' is not understood"),
        ({"uv_range": "5 m..3 klambda"}, "both ends in lengths or both in wavelengths"),
        ({"channels": "a:b"}, "channels 'a:b' is not understood"),
        ({"average_time": "3 Jy"}, "average_time '3 Jy' is not understood"),
        ({"average_channels": 0}, "average_channels must be a whole number >= 1, got 0"),
        ({"time_limit": 0}, "time_limit must be positive"),
    ],
)
def test_what_is_asked_for_must_be_there(measurement_set: Unpack, options: dict, message: str) -> None:
    with pytest.raises((DataError, InputError), match=message):
        read_ms(measurement_set("wsrt_3c343.1"), **options)


def test_help_names_every_argument(measurement_set: Unpack) -> None:
    """What `Selection`, `Weighting` and `Averaging` have is an argument by name, and is explained there."""
    arguments, told = inspect.signature(read_ms).parameters, read_ms.__doc__ or ""
    of_columns = ColumnOptions.__annotations__.keys() - SetOptions.__annotations__.keys()
    assert of_columns == {"keep_values"}
    assert "`keep_values=True`" in (read_columns.__doc__ or "")
    for item in (*fields(TableOptions), *fields(ReadingOptions)):
        if item.name == "keep_values":  # of `read_columns` alone
            continue
        assert arguments[item.name].default == item.default
        assert explains(told, item.name)
    grouped = told.split("**keywords")[1].split("Returns")[0]
    for group in (Selection, Weighting, Averaging):
        for item in fields(group):
            assert re.search(rf"\b{item.name}[,;.]", grouped), item.name
            assert explains(group.__doc__ or "", item.name)
    by_name = {item.name for group in (Selection, Weighting, Averaging) for item in fields(group)}
    assert SetKeywords.__annotations__.keys() == by_name
    own = arguments.keys() - {"path", "progress", "keywords"}
    assert SetOptions.__annotations__.keys() == own | by_name


def explains(text: str, name: str) -> bool:
    """Whether a docstring has an entry for an argument."""
    return re.search(rf"^    (\w+, )*{name}(, \w+)* : ", text, re.M) is not None


def test_options_are_given_as_objects_or_by_name(measurement_set: Unpack) -> None:
    path = measurement_set("wsrt_3c343.1")
    with pytest.raises(InputError, match="read_ms has no argument 'field'; did you mean 'fields'"):
        read_ms(path, field=0)  # type: ignore[call-arg]
    chosen = Selection(scans=np.array([2]))
    with pytest.raises(InputError, match="give either selection= or fields, channels, not both"):
        read_ms(path, selection=chosen, fields=[0], channels="1:")
    with pytest.raises(InputError, match="give either averaging= or average_channels, not both"):
        read_ms(path, averaging=Averaging("2 min"), average_channels=2)
    with pytest.raises(InputError, match=r"weighting must be a biro\.Weighting, got 'equal'"):
        read_ms(path, weighting="equal")  # type: ignore[arg-type]
    given = Weighting("equal"), Averaging("2 min", 2)
    found = read_ms(path, selection=chosen, weighting=given[0], averaging=given[1])
    by_name = read_ms(path, scans=[2], weights="equal", average_time="2 min", average_channels=2)
    assert len(found.partitions) == 1
    assert found.digest() == by_name.digest()
    again = biro.read(path, selection=chosen, weighting=given[0], averaging=given[1])
    assert again.digest() == found.digest()


def test_fields_and_windows_are_never_mixed(tmp_path: Path) -> None:
    given = two_by_two()
    create_ms(tmp_path / "four.ms", given)
    found = read_ms(tmp_path / "four.ms")
    assert [(p.field, p.spw) for p in found.partitions] == [
        ("F0", "W0"),
        ("F0", "W1"),
        ("F1", "W0"),
        ("F1", "W1"),
    ]
    assert found.labels == ("F0/spw0", "F0/spw1", "F1/spw0", "F1/spw1")
    for mine, theirs in zip(found.partitions, given.partitions, strict=True):
        assert np.array_equal(mine.row_id, theirs.row_id)
        assert np.array_equal(mine.uvw, theirs.uvw)
        assert np.array_equal(mine.vis, theirs.vis.astype(np.complex64))
        assert np.array_equal(mine.chan_freq, theirs.chan_freq)
        assert (mine.phase_centre, mine.corr_type) == (theirs.phase_centre, theirs.corr_type)
    one = read_ms(tmp_path / "four.ms", fields="F1", spws="W1").partitions
    assert [(p.field, p.spw) for p in one] == [("F1", "W1")]
    names = [frame.label for frame in found.partition_views]
    assert names == list(found.labels)
    cross_hands = read_ms(tmp_path / "four.ms", correlations="XY").partitions
    assert [p.spw for p in cross_hands] == ["W0", "W0"]


def test_unsorted_rows_and_missing_baselines_stay_as_they_are(
    copy: Callable[[str], Path], tmp_path: Path
) -> None:
    source = copy("sim_7_circ")
    order = np.random.default_rng(1).permutation(63)[:40]
    with table(str(source), ack=False) as main, main.selectrows(order) as chosen:
        shuffled = tmp_path / "shuffled.ms"
        chosen.copy(str(shuffled), deep=True, valuecopy=True).close()
    whole, (part,) = read_ms(source).partitions[0], read_ms(shuffled).partitions
    assert np.array_equal(part.time, whole.time[order])
    assert np.array_equal(part.vis, whole.vis[order])
    assert np.array_equal(part.uvw, whole.uvw[order])
    assert np.array_equal(part.times[part.time_index], part.time)


def test_second_antenna_first(copy: Callable[[str], Path]) -> None:
    path = copy("sim_7_circ")
    with table(str(path), readonly=False, ack=False) as main:
        first, second = main.getcol("ANTENNA1"), main.getcol("ANTENNA2")
        main.putcol("ANTENNA1", second)
        main.putcol("ANTENNA2", first)
    (part,) = read_ms(path).partitions
    assert (part.antenna1 > part.antenna2).all()
    assert part.n_antenna == 7


def test_weights_in_the_order_of_the_rule(copy: Callable[[str], Path]) -> None:
    path = copy("sim_7_circ")
    with table(str(path), readonly=False, ack=False) as main:
        main.putcol("WEIGHT", np.full((63, 4), 3.0, np.float32))
        main.putcol("SIGMA", np.full((63, 4), 0.5, np.float32))
        description = makecoldesc("WEIGHT_SPECTRUM", main.getcoldesc("DATA") | {"valueType": "float"})
        main.addcols(description)
    # A WEIGHT_SPECTRUM column without any value is passed over, as CASA's own sets have it.
    observation = read_ms(path)
    assert (observation.weight_origin, observation.partitions[0].weight.max()) == ("WEIGHT", 3.0)
    sigma = read_ms(path, weight_column="SIGMA")
    assert (sigma.weight_origin, sigma.partitions[0].weight.min()) == ("SIGMA", 4.0)
    with table(str(path), readonly=False, ack=False) as main:
        main.putcell("WEIGHT_SPECTRUM", 7, np.full((4, 4), 9.0, np.float32))
    # A column without a value in rows that have data is passed over, too; asked for, it is not filled up.
    assert read_ms(path).weight_origin == "WEIGHT"
    observation = read_ms(path, weight_column="WEIGHT_SPECTRUM")
    assert observation.counts["no data"] == 62 * 16
    assert np.unique(np.nonzero(observation.partitions[0].weight)[0]).tolist() == [7]


def test_double_precision_data_stay_double(copy: Callable[[str], Path]) -> None:
    path = copy("sim_7_circ")
    with table(str(path), readonly=False, ack=False) as main:
        description = makecoldesc("FINE_DATA", main.getcoldesc("DATA") | {"valueType": "dcomplex"})
        main.addcols(description)
        main.putcol("FINE_DATA", np.full((63, 4, 4), 1 / 3 + 0j))
    (part,) = read_ms(path, column="FINE_DATA").partitions
    assert (part.vis.dtype, part.weight.dtype) == (np.complex128, np.float64)
    assert part.vis[0, 0, 0] == 1 / 3


@pytest.mark.parametrize(
    ("frame", "direction", "tolerance"),
    [
        # astropy is the oracle. casacore goes from galactic coordinates by way of B1950, whose E-terms of
        # aberration (0.34 arcsec) and epoch the two treat differently: 0.5 arcsec.
        ("B1950", (186.63853, 2.32869), 2e-4),
        ("GALACTIC", (289.95079, 64.35997), 2e-4),
        ("ICRS", (187.27792, 2.05239), 1e-12),
        ("J2000", (187.27792, 2.05239), 1e-12),
    ],
)
def test_frames_of_the_phase_centre(
    copy: Callable[[str], Path], frame: str, direction: tuple, tolerance: float
) -> None:
    path = copy("sim_7_circ")
    with table(str(path / "FIELD"), readonly=False, ack=False) as field:
        field.putcolkeyword("PHASE_DIR", "MEASINFO", {"type": "direction", "Ref": frame})
        field.putcell("PHASE_DIR", 0, np.array([direction]) * DEGREE)
    (part,) = read_ms(path).partitions
    kind = {"B1950": FK4(equinox="B1950", obstime="J2020"), "GALACTIC": "galactic"}.get(frame, "icrs")
    known = SkyCoord(*direction, unit="deg", frame=kind).icrs
    assert np.array(part.phase_centre) / DEGREE == pytest.approx([known.ra.deg, known.dec.deg], abs=tolerance)
    assert part.frame == frame


def test_phase_centre_frame_from_a_column_and_polynomials(copy: Callable[[str], Path]) -> None:
    path = copy("sim_7_circ")
    with table(str(path / "FIELD"), readonly=False, ack=False) as field:
        field.addcols(makecoldesc("PhaseDir_Ref", {"valueType": "int", "dataManagerType": "StandardStMan"}))
        about = {"type": "direction", "VarRefCol": "PhaseDir_Ref"}
        about |= {"TabRefTypes": ["J2000", "GALACTIC"], "TabRefCodes": np.array([0, 8], np.uint32)}
        field.putcolkeyword("PHASE_DIR", "MEASINFO", about)
        field.putcell("PhaseDir_Ref", 0, 8)
        field.putcell("PHASE_DIR", 0, np.array([[289.95079, 64.35997], [1e-6, 0]]) * DEGREE)
    observation = read_ms(path)
    known = SkyCoord(289.95079, 64.35997, unit="deg", frame="galactic").icrs
    found = np.array(observation.partitions[0].phase_centre) / DEGREE
    assert found == pytest.approx([known.ra.deg, known.dec.deg], abs=2e-4)  # see above
    assert any("constant term" in note for note in observation.notes)


def test_a_field_that_moves_is_refused(copy: Callable[[str], Path]) -> None:
    path = copy("sim_7_circ")
    with table(str(path / "FIELD"), readonly=False, ack=False) as field:
        field.putcolkeyword("PHASE_DIR", "MEASINFO", {"type": "direction", "Ref": "AZEL"})
    with pytest.raises(DataError, match="field F: its phase centre is in the frame AZEL"):
        read_ms(path)
