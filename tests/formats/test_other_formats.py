"""Formats that other packages read, compared with the same data read by biro alone.

The packages fix versions of numba that biro's other tests do not take, so that these tests run in an
environment of their own (CONTRIBUTING.md) and are skipped elsewhere.
"""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import biro
from biro.errors import DataError, InputError
from biro.observation.observation import Observation

Unpack = Callable[[str], Path]
UVFITS = ["vla_3c273_x.uvfits", "eht_oj287_2017_fullpol.uvfits", "vlba_3c345_43ghz.uvfits"]
SOURCE, CENTRE = (1.0, 0.5), (1.001, 0.499)
"""Directions (ra, dec) of a source and of the phase centre, rad."""
SETS = ["sim_7_circ", "vlba_j1033p6051_ku", "SR1_M87_2017_100_lo_hops_netcal_StokesI"]


def assert_same(given: Observation, expected: Observation) -> None:
    """Every number is stored as it is in both files, so all are the same to the last bit."""
    assert len(given.partitions) == len(expected.partitions)
    for one, other in zip(given.partitions, expected.partitions, strict=True):
        order = [one.corr_type.index(name) for name in other.corr_type]
        i, j = (np.lexsort((part.antenna2, part.antenna1, part.time)) for part in (one, other))
        np.testing.assert_array_equal(one.uvw[i], other.uvw[j])
        np.testing.assert_array_equal(one.vis[i][..., order], other.vis[j])
        np.testing.assert_array_equal(one.weight[i][..., order], other.weight[j])
        np.testing.assert_array_equal(one.chan_freq, other.chan_freq)
        np.testing.assert_array_equal(one.chan_width, other.chan_width)
        assert one.phase_centre == other.phase_centre
        assert one.interval == pytest.approx(other.interval, rel=1e-9)
        # Julian dates in float64 are rounded to 4e-5 s.
        np.testing.assert_allclose(one.time[i], other.time[j], atol=5e-5)


@pytest.mark.parametrize("name", UVFITS)
def test_uvh5_holds_what_uvfits_holds(name: str, data_dir: Path, tmp_path: Path) -> None:
    """UVH5 that pyuvdata makes of UVFITS, against biro's own reader: signs, B1950, windows, weights."""
    pyuvdata = pytest.importorskip("pyuvdata", reason="pip install '.[formats]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        held = pyuvdata.UVData.from_file(str(data_dir / name), file_type="uvfits")
        held.write_uvh5(str(tmp_path / "same.h5"))
    assert_same(biro.read(tmp_path / "same.h5"), biro.read(data_dir / name))
    selected = {"correlations": "RR,LL", "uv_range": "1 klambda.."}
    assert_same(biro.read(tmp_path / "same.h5", **selected), biro.read(data_dir / name, **selected))


def simulated() -> object:
    """A set of pyuvdata with linear feeds and one point source of 2 Jy off centre.

    It is made at the phase centre, where visibilities are 2 Jy by any convention, and pyuvdata itself moves
    the phase centre away from it.
    """
    from astropy.coordinates import EarthLocation
    from pyuvdata import Telescope, UVData

    positions = np.array([[0.0, 0, 0], [100, 20, 3], [-50, 300, -10], [200, -100, 40]])
    telescope = Telescope.new(
        name="test",
        location=EarthLocation.from_geodetic(-107.6, 34.08, 2124.0),
        antenna_positions=dict(enumerate(positions)),
        instrument="test",
        antenna_diameters=np.full(4, 25.0),
        mount_type="alt-az",
        feeds=["x", "y"],
        x_orientation="north",
    )
    centre = {"cat_type": "sidereal", "cat_lon": SOURCE[0], "cat_lat": SOURCE[1]}
    held = UVData.new(
        freq_array=1.4e9 + 1e6 * np.arange(8),
        channel_width=1e6,
        polarization_array=np.array([-5, -6, -7, -8]),
        telescope=telescope,
        times=2459000.5 + np.arange(3) * 10 / 86400,
        integration_time=10.0,
        antpairs=[(i, j) for i in range(4) for j in range(i + 1, 4)],
        do_blt_outer=True,
        phase_center_catalog={0: {"cat_name": "A", **centre, "cat_frame": "fk5", "cat_epoch": 2000.0}},
        vis_units="Jy",
        empty=True,
    )
    held.data_array[...] = [2.0, 2.0 + 1e-4, 1e-4, 1e-4]  # hands that are no copies; zeros are no data
    held.nsample_array[:] = 3.0
    held.phase(lon=CENTRE[0], lat=CENTRE[1], phase_frame="fk5", epoch=2000.0, cat_name="B")
    return held


@pytest.mark.parametrize("kind", ["uvh5", "miriad"])
def test_a_source_stands_where_it_was_put(kind: str, tmp_path: Path) -> None:
    """The sign of visibilities and uvw is that of physics: section 2, against pyuvdata's own convention."""
    pytest.importorskip("pyuvdata", reason="pip install '.[formats]'")
    held = simulated()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        getattr(held, f"write_{kind}")(str(tmp_path / "set"))
    data = biro.read(tmp_path / "set")
    (part,) = data.partitions
    # physics: section 1.
    east = SOURCE[0] - CENTRE[0]
    l = np.cos(SOURCE[1]) * np.sin(east)
    m = np.sin(SOURCE[1]) * np.cos(CENTRE[1]) - np.cos(SOURCE[1]) * np.sin(CENTRE[1]) * np.cos(east)
    turns = part.uvw @ [l, m, np.sqrt(1 - l * l - m * m) - 1]
    turns = turns[:, None] * part.chan_freq / 299792458.0
    parallel = [part.corr_type.index(name) for name in ("XX", "YY")]
    # pyuvdata's apparent places differ by 2 mas, 2e-4 rad of phase at 500 m; a wrong sign makes 4 Jy.
    expected = np.broadcast_to(2 * np.exp(2j * np.pi * turns)[..., None], (*turns.shape, 2))
    np.testing.assert_allclose(part.vis[..., parallel], expected, atol=1e-3)
    assert len(data.antenna_names) == 4
    assert part.interval == pytest.approx(10.0, rel=1e-5)


def test_what_has_no_phase_centre_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyuvdata", reason="pip install '.[formats]'")
    held = simulated()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        held.unproject_phase()
        held.write_uvh5(str(tmp_path / "drift.uvh5"))
    with pytest.raises(DataError, match=r"unprojected.*UVData\.phase"):
        biro.read(tmp_path / "drift.uvh5")


@pytest.mark.parametrize("name", SETS)
def test_version_4_holds_what_version_2_holds(name: str, measurement_set: Unpack, tmp_path: Path) -> None:
    """Zarr that xradio makes of a Measurement Set, against biro's own reader of that set."""
    xradio = pytest.importorskip("xradio.measurement_set", reason="pip install 'xradio[casacore]'")
    place, zarr = measurement_set(name), tmp_path / "set.ps.zarr"
    xradio.convert_msv2_to_processing_set(in_file=str(place), out_file=str(zarr), persistence_mode="w")
    assert_same(biro.read(zarr), biro.read(place))
    if name == "sim_7_circ":
        for column, other in (("VISIBILITY", "DATA"), ("VISIBILITY_MODEL", "MODEL_DATA")):
            assert_same(biro.read(zarr, column=column), biro.read(place, column=other))
        with pytest.raises(DataError, match="no column DATA; there are VISIBILITY, VISIBILITY_CORRECTED"):
            biro.read(zarr, column="DATA")
        with pytest.raises(InputError, match="has no weight_column"):
            biro.read(zarr, weight_column="WEIGHT")
