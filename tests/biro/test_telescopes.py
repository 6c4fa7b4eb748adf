"""Antenna positions: the arrays by name, and files of a user's own."""

from __future__ import annotations

import numpy as np
import pytest

from biro.errors import InputError
from biro.simulation.telescopes import Centre, local_to_itrf, names, read_antennas, telescope, up


def baselines(array):
    return np.linalg.norm(array.positions[:, None] - array.positions, axis=-1)


def test_the_vla_in_c_configuration_is_where_casa_puts_it(truth):
    np.testing.assert_array_equal(telescope("VLA-C").positions, truth("casa_27_circ")["antpos"])


# Published longest and shortest baselines (the VLA's in C without the short spacings added since 2010).
@pytest.mark.parametrize(
    ("name", "n_antenna", "longest", "shortest"),
    [
        ("VLA-A", 27, 36.4e3, 680),
        ("VLA-B", 27, 11.1e3, 210),
        ("VLA-C", 27, 3.4e3, 78),
        ("VLA-D", 27, 1.03e3, 40),
        ("MeerKAT", 64, 7.7e3, 29),
        ("KAT-7", 7, 185, 26),
        ("WSRT", 14, 2.7e3, 36),
        ("EVN", 9, 2.28e6, 266e3),  # Noto to Jodrell Bank; Effelsberg to Westerbork
    ],
)
def test_known_arrays_have_their_published_extent(name, n_antenna, longest, shortest):
    array = telescope(name.lower())
    length = baselines(array)
    assert array.name == name
    assert len(array.antenna_names) == n_antenna
    assert length.max() == pytest.approx(longest, rel=0.02)
    assert length[length > 0].min() == pytest.approx(shortest, rel=0.2)
    assert array.source


def test_every_array_is_listed():
    assert set(names()) == {"EVN", "KAT-7", "MeerKAT", "VLA-A", "VLA-B", "VLA-C", "VLA-D", "WSRT"}


@pytest.mark.parametrize("name", names())
def test_feeds_are_those_of_the_telescope(name):
    """The VLA and VLBI observe in R and L, the dipoles and horns of the others in X and Y."""
    assert telescope(name).feeds == ("circular" if name.startswith(("VLA", "EVN")) else "linear")


def test_a_file_states_its_feeds(tmp_path):
    lines = "# coordsys: local\n# centre: 0 0 0\n{}0 0 0 25 A\n9 9 9 25 B\n"
    for head, feeds in (("", "linear"), ("# feeds: circular\n", "circular")):
        (tmp_path / "a.csv").write_text(lines.format(head))
        assert read_antennas(tmp_path / "a.csv").feeds == feeds
    (tmp_path / "a.csv").write_text(lines.format("# feeds: round\n"))
    with pytest.raises(InputError, match="feeds must be linear or circular, found 'round'"):
        read_antennas(tmp_path / "a.csv")


def test_wsrt_is_an_east_west_array():
    array = telescope("WSRT")
    offset = array.positions - array.positions[0]
    # The Earth's axis is z: an east-west line has no extent along it (2 cm over 2.7 km as surveyed).
    assert np.abs(offset[:, 2]).max() < 0.03


def test_local_coordinates_against_a_closed_form():
    # On the equator at longitude 0: east is +y, north is +z, up is +x; WGS84 has a = 6378137 m.
    place = local_to_itrf([[1.0, 2.0, 3.0]], Centre(0.0, 0.0, 10.0))
    np.testing.assert_allclose(place, [[6378137.0 + 13.0, 1.0, 2.0]], rtol=0, atol=1e-8)
    # At the pole (polar radius 6356752.314245 m), longitude 90: north points to longitude -90, that is -y.
    place = local_to_itrf([[0.0, 2.0, 3.0]], Centre(90.0, 90.0, 0.0))
    np.testing.assert_allclose(place, [[0.0, -2.0, 6356752.314245 + 3.0]], rtol=0, atol=1e-6)


def test_up_is_the_normal_of_the_ellipsoid():
    low = local_to_itrf(np.zeros(3), Centre(-107.6, 34.1, 0.0))
    high = local_to_itrf(np.zeros(3), Centre(-107.6, 34.1, 1000.0))
    np.testing.assert_allclose(up(low), (high - low) / 1000.0, atol=1e-9)


def test_a_casa_configuration_file(tmp_path):
    path = tmp_path / "mine.cfg"
    path.write_text(
        "# observatory=MINE\n# coordsys=LOC (local tangent plane)\n# COFA=21.44,-30.71\n# x y z diam pad\n"
        "0 0 0 12. P1\n100.5 -20 1.5 12. P2\n"
    )
    array = read_antennas(path)
    assert array.name == "MINE"
    assert array.antenna_names == ("P1", "P2")
    # Length is kept by the rotation; metres in ITRF carry 1e-9 m of rounding at 6e6 m.
    assert baselines(array)[0, 1] == pytest.approx(np.sqrt(100.5**2 + 20**2 + 1.5**2), abs=1e-8)


def test_what_the_caller_says_wins_over_the_file(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("x,y,z,diameter,name\n0,0,0,12,a\n10,0,0,12,b\n")
    array = read_antennas(path, coordsys="local", centre=(10.0, 50.0, 100.0), name="Mine")
    assert array.name == "Mine"
    assert array.diameter.tolist() == [12.0, 12.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 3 4\n", "line 1: expected 'x y z diameter name'"),
        ("# coordsys = LOC\n0 0 0 12 a\n1 0 0 12 b\n", "need their centre"),
        ("# coordsys = UTM\n0 0 0 12 a\n", "coordsys must be global"),
        ("# coordsys =\n0 0 0 12 a\n1 0 0 12 b\n", "are they local"),
        ("0 0 0 12 a\n1 0 0 12 b\n", "are they local"),
        ("# nothing\n", "no antennas"),
        ("6378137 0 0 12 a\n", "2 or more antennas"),
        ("6378137 0 0 12 a\n6378137 5 0 12 a\n", "unique"),
        ("6378137 nan 0 12 a\n6378137 5 0 12 b\n", "finite"),
    ],
)
def test_errors_of_antenna_files_say_what_to_do(tmp_path, text, message):
    path = tmp_path / "bad.cfg"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_antennas(path)


def test_unknown_names_list_the_known_ones():
    with pytest.raises(InputError, match="called 'VLA-E'; known are EVN, KAT-7, MeerKAT"):
        telescope("VLA-E")


def test_missing_file():
    with pytest.raises(InputError, match="cannot read antenna file"):
        read_antennas("nowhere.cfg")
