"""Writing columns and new sets, read back by casacore itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from casacore.tables import table

from biro.errors import MeasurementSetError
from biro.io.measurement_set import create_ms, read_ms, write_column
from biro.observation.observation import Observation


def column(path: Path, name: str) -> np.ndarray:
    with table(str(path), ack=False) as main:
        return np.asarray(main.getcol(name))


@pytest.mark.parametrize("name", ["wsrt_3c343.1", "vlba_j1033p6051_ku"])
def test_a_new_column_is_like_data(copy: Callable[[str], Path], name: str) -> None:
    path = copy(name)
    before = column(path, "DATA")
    observation = read_ms(path)
    rng = np.random.default_rng(1)
    models = [rng.normal(size=part.vis.shape) + 1j for part in observation.partitions]
    report = write_column(path, "SKY_MODEL", observation, iter(models))
    assert (report.created, report.rows_written, report.rows_kept) == (True, len(before), 0)
    expected = np.empty(before.shape, np.complex64)
    for part, model in zip(observation.partitions, models, strict=True):
        expected[part.row_id] = model
    assert np.array_equal(column(path, "SKY_MODEL"), expected)
    assert np.array_equal(column(path, "DATA"), before)
    with table(str(path), ack=False) as main:
        assert main.getcolkeyword("SKY_MODEL", "BIRO_COMPLETE") is True
        assert main.getdminfo("SKY_MODEL")["TYPE"] == main.getdminfo("DATA")["TYPE"]
        # addImagingColumns would have made these too.
        assert not {"MODEL_DATA", "CORRECTED_DATA", "IMAGING_WEIGHT"} & set(main.colnames())


def test_add_and_subtract(copy: Callable[[str], Path]) -> None:
    path = copy("sim_7_circ")
    data = column(path, "DATA")
    observation = read_ms(path, column="DATA")
    model = np.full((63, 4, 4), 0.5 - 2j)
    write_column(path, "RESIDUAL", observation, [model], mode="subtract", source_column="DATA")
    assert np.array_equal(column(path, "RESIDUAL"), data - model.astype(np.complex64))
    write_column(path, "RESIDUAL", observation, [model], mode="add")
    assert np.allclose(column(path, "RESIDUAL"), data, atol=1e-6)
    with pytest.raises(MeasurementSetError, match="no column NONE to add to or from; there are DATA"):
        write_column(path, "NEW", observation, [model], mode="add", source_column="NONE")
    with pytest.raises(MeasurementSetError, match="no column NEW to add to or from"):
        write_column(path, "NEW", observation, [model], mode="add")


def test_what_is_not_predicted_is_kept(copy: Callable[[str], Path]) -> None:
    path = copy("sim_7_circ")
    some = read_ms(path, antennas=["W02", "W08", "W18"], channels=[1, 3], correlations="LL")
    (part,) = some.partitions
    model = np.full(part.vis.shape, 7j)
    assert part.vis.shape == (9, 2, 1)
    expected = np.zeros((63, 4, 4), np.complex64)
    expected[part.row_id[:, None], [1, 3], 3] = 7j
    report = write_column(path, "NEW", some, [model])
    assert (report.rows_written, report.rows_kept) == (9, 54)
    assert report.rows_text == "9 rows written, 54 left at 0"
    assert np.array_equal(column(path, "NEW"), expected)
    # MODEL_DATA was 1 everywhere.
    write_column(path, "MODEL_DATA", some, [model])
    expected[expected == 0] = 1
    assert np.array_equal(column(path, "MODEL_DATA"), expected)


def test_rows_of_another_set_are_refused(copy: Callable[[str], Path]) -> None:
    path = copy("sim_7_circ")
    with table(str(path), readonly=False, ack=False) as main:
        rows = main.nrows()
        main.putcol("ANTENNA1", main.getcol("ANTENNA1")[::-1])
        main.putcol("ANTENNA2", main.getcol("ANTENNA2")[::-1])
    other = read_ms(path, column="DATA")
    with table(str(path), readonly=False, ack=False) as main:
        main.putcol("ANTENNA1", main.getcol("ANTENNA1")[::-1])
        main.putcol("ANTENNA2", main.getcol("ANTENNA2")[::-1])
    models = [np.ones((rows, 4, 4), complex)]
    with pytest.raises(MeasurementSetError, match=r"row 0 is of antennas 0 and 1, but .* 5 and 6: read the"):
        write_column(path, "NEW", other, models)
    with pytest.raises(MeasurementSetError, match="NEW is incomplete"):
        read_ms(path, column="NEW")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_new_set_can_be_read_by_casacore(tmp_path: Path, overwrite: bool) -> None:
    rng = np.random.default_rng(2)
    shape = (12, 5, 4)
    observation = Observation.from_arrays(
        vis=rng.normal(size=shape) + 1j,
        uvw=rng.normal(size=(12, 3)) * 100,
        antenna1=[0, 0, 1] * 4,
        antenna2=[1, 2, 2] * 4,
        time=np.repeat(5e9 + 8.0 * np.arange(4), 3),
        chan_freq=1e9 + 1e6 * np.arange(5),
        corr_type=("RR", "RL", "LR", "LL"),
        weight=rng.uniform(1, 2, shape),
        flag=rng.random(shape) < 0.3,
        phase_centre=(4.0, -0.7),
        antenna_names=["A", "B", "C"],
        antenna_positions=rng.normal(size=(3, 3)) * 1e3,
        dish_diameter=13.5,
        telescope="MeerKAT",
        field="sky",
        freq_frame="LSRK",
    )
    path = tmp_path / "new.ms"
    for again in range(1 + overwrite):
        create_ms(path, observation, overwrite=bool(again))
    assert [file.name for file in tmp_path.iterdir()] == ["new.ms"]
    (part,) = observation.partitions
    assert np.array_equal(column(path, "DATA"), part.vis.astype(np.complex64))
    assert np.array_equal(column(path, "FLAG"), part.weight == 0)
    mean = part.weight.mean(axis=1)
    assert column(path, "WEIGHT") == pytest.approx(mean, rel=1e-6)
    assert column(path, "SIGMA") == pytest.approx(
        np.where(mean > 0, 1 / np.sqrt(np.maximum(mean, 1e-9)), 0), rel=1e-6
    )
    with table(str(path / "FEED"), ack=False) as feed:
        assert feed.getcol("POLARIZATION_TYPE")["array"][:2] == ["R", "L"]
        assert feed.nrows() == 3
    with table(str(path / "POLARIZATION"), ack=False) as polarization:
        assert polarization.getcell("CORR_TYPE", 0).tolist() == [5, 6, 7, 8]
        assert polarization.getcell("CORR_PRODUCT", 0).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    found = read_ms(path)
    (mine,) = found.partitions
    single = replace(part, vis=part.vis.astype(np.complex64), weight=part.weight.astype(np.float32))
    for name in ("uvw", "time", "chan_freq", "chan_width", "antenna1", "vis", "weight", "row_id"):
        assert np.array_equal(getattr(mine, name), getattr(single, name)), name
    for name in ("field", "phase_centre", "corr_type", "freq_frame", "interval", "n_antenna"):
        assert getattr(mine, name) == getattr(single, name), name
    assert (found.telescope, found.antenna_names) == ("MeerKAT", ("A", "B", "C"))
    assert np.array_equal(found.antenna_positions, observation.antenna_positions)
    assert found.dish_diameter.tolist() == [13.5] * 3


@pytest.mark.parametrize("corr_type", [("XX", "YY"), ("I",), ("YY", "YX", "XY", "XX")])
def test_round_trip_of_other_correlations(tmp_path: Path, corr_type: tuple[str, ...]) -> None:
    observation = Observation.from_arrays(
        vis=np.ones((3, 1, len(corr_type)), np.complex64) * (1 + np.arange(len(corr_type))),
        uvw=np.ones((3, 3)),
        antenna1=[0, 0, 1],
        antenna2=[1, 2, 2],
        time=np.full(3, 5e9),
        chan_freq=[1e9],
        corr_type=corr_type,
        convention="fourier",
    )
    create_ms(tmp_path / "new.ms", observation)
    # UVW is negated on the way in, and negated back on the way out.
    assert (column(tmp_path / "new.ms", "UVW") == 1).all()
    (part,) = read_ms(tmp_path / "new.ms", convention="fourier").partitions
    assert part.corr_type == corr_type
    assert np.array_equal(part.vis, observation.partitions[0].vis)
    assert np.array_equal(part.uvw, observation.partitions[0].uvw)


def test_a_set_from_a_real_one(measurement_set: Callable[[str], Path], tmp_path: Path) -> None:
    """Flags, infinite weights and TAI times survive: what is usable is the same."""
    given = read_ms(measurement_set("SR1_M87"), allow_unusable=True)
    create_ms(tmp_path / "new.ms", given)
    found = read_ms(tmp_path / "new.ms", allow_unusable=True)
    assert found.counts["usable"] == given.counts["usable"]
    assert (found.time_scale, given.time_scale) == ("UTC", "TAI")
    assert found.summary().time_range == given.summary().time_range
    assert np.array_equal(found.partitions[0].weight, given.partitions[0].weight)
