"""Beams that are off where the dishes point: BEAM_OFFSET of FEED, against spherical geometry of astropy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from astropy import units as u
from astropy.coordinates import SkyCoord
from casacore.tables import table
from test_pointing import FIELD, SOURCE, Angles, everywhere, ms, put_pointing, seen, sky, unit, voltage

import biro
from biro.errors import DataError
from biro.io.measurement_set import read_ms
from biro.models import PointSource, SkyModel
from biro.simulation import predict

__all__ = ["ms", "unit"]  # fixtures
OFFSET = np.deg2rad([-0.22, 0.16])
"""x to the west and y to the north, rad: almost to the source."""
# The plane of the phase centre: 4e-5 of the power at half a beam of 1 deg and a shift of 16 arcmin (docs).
PLANE = 1e-4


def moved(centre: Angles, offset: Angles = OFFSET) -> Angles:
    """North by y, and from there west by x along the great circle that is perpendicular to the meridian."""
    north = SkyCoord(centre[0] * u.rad, (centre[1] + offset[1]) * u.rad)
    found = north.directional_offset_by(90 * u.deg, -offset[0] * u.rad)
    return np.array([found.ra.rad, found.dec.rad])


def put(
    path: Path, offsets: Angles = OFFSET, mount: str = "equatorial", telescope: str = "MANY", n_feed: int = 1
) -> None:
    """Fill BEAM_OFFSET of feeds and antennas, (n_feed or 1, n_antenna or 1, 2), rad, of both receptors."""
    wide = np.broadcast_to(offsets, (n_feed, 7, 2))
    with table(f"{path}::ANTENNA", readonly=False, ack=False) as antenna:
        antenna.putcol("MOUNT", [mount] * 7)
    with table(f"{path}::OBSERVATION", readonly=False, ack=False) as observation:
        observation.putcol("TELESCOPE_NAME", [telescope])
    with table(f"{path}::FEED", readonly=False, ack=False) as feed:
        for i in range(1, n_feed):
            feed.copyrows(feed, startrowin=0, nrow=7)
            feed.putcol("FEED_ID", np.full(7, i, np.int32), 7 * i)
        for row in range(7 * n_feed):
            feed.putcell("BEAM_OFFSET", row, np.tile(wide[row // 7, row % 7], (2, 1)))


def test_the_beam_moves_and_the_phase_centre_stays(ms: Path) -> None:
    put(ms)
    (part,) = read_ms(ms).partitions
    assert part.phase_centre == pytest.approx(tuple(FIELD), abs=1e-12)
    assert part.pointing is not None
    assert part.pointing.centre == pytest.approx(tuple(moved(FIELD)), abs=1e-12)
    np.testing.assert_allclose(seen(ms), voltage(SOURCE, moved(FIELD)) ** 2, rtol=PLANE)
    assert voltage(SOURCE, FIELD) ** 2 < 0.85 < voltage(SOURCE, moved(FIELD)) ** 2
    said = str(read_ms(ms).summary())
    assert "REFERENCE_DIR and BEAM_OFFSET" in said
    assert "BEAM_OFFSET of FEED moves the beam by 0.272 deg" in said


def test_askap_phases_to_the_beam(ms: Path) -> None:
    """A source in the middle of the beam has no phase at all, whatever PHASE_DIR says."""
    put(ms, telescope="ASKAP")
    observation = read_ms(ms)
    assert observation.partitions[0].phase_centre == pytest.approx(tuple(moved(FIELD)), abs=1e-12)
    ra, dec = (f"{x!r} rad" for x in moved(FIELD).tolist())
    (found,) = predict(observation, SkyModel([PointSource("a", ra=ra, dec=dec, I="1 Jy")], beam=sky().beam))
    np.testing.assert_allclose(np.asarray(found)[:, :, 0], 1.0, atol=1e-9)  # rounding of the angles
    assert "moves the beam and the phase centre by 0.272 deg" in str(observation.summary())


def test_pointing_and_offsets_of_antennas_add(ms: Path) -> None:
    there = FIELD + np.deg2rad([0.1, 0.05])
    put_pointing(ms, everywhere(there))
    each = OFFSET * np.linspace(0.5, 1.0, 7)[:, None]
    put(ms, each)
    beams = np.array([voltage(SOURCE, moved(there, one)) for one in each])
    with table(str(ms), ack=False) as main:
        first, second = main.getcol("ANTENNA1"), main.getcol("ANTENNA2")
    np.testing.assert_allclose(seen(ms), beams[first] * beams[second], rtol=PLANE)


def test_beams_that_turn_are_not_applied_and_said(ms: Path) -> None:
    put(ms, mount="ALT-AZ")
    np.testing.assert_allclose(seen(ms), voltage(SOURCE, FIELD) ** 2, rtol=1e-5)
    said = str(read_ms(ms).summary())
    assert "BEAM_OFFSET of FEED is up to 0.272 deg, and turns with mounts that are not equatorial" in said
    assert "not applied to the beam" in said
    put(ms, mount="ALT-AZ", telescope="ASKAP")
    with pytest.raises(DataError, match="ASKAP phases visibilities to its beams: no phase centre holds"):
        biro.read(ms)


def test_several_beams_in_one_set(ms: Path) -> None:
    put(ms, np.array([np.zeros((7, 2)), np.tile(OFFSET, (7, 1))]), telescope="ASKAP", n_feed=2)
    with table(str(ms), readonly=False, ack=False) as main:
        main.putcol("FEED1", np.ones(main.nrows(), np.int32))
        main.putcol("FEED2", np.ones(main.nrows(), np.int32))
    assert read_ms(ms).partitions[0].phase_centre == pytest.approx(tuple(moved(FIELD)), abs=1e-12)
    with table(str(ms), readonly=False, ack=False) as main:
        for name in ("FEED1", "FEED2"):
            main.putcol(name, np.arange(main.nrows(), dtype=np.int32) % 2)
    with pytest.raises(DataError, match=r"differs between its 2 beams: make a set of each \(FEED1"):
        biro.read(ms)


def test_rows_of_feed_hold_for_their_times(ms: Path) -> None:
    """The row whose interval has the data counts, not the first one."""
    put(ms, np.array([np.zeros((7, 2)), np.tile(OFFSET, (7, 1))]), n_feed=2)
    with table(str(ms), ack=False) as main:
        time = main.getcol("TIME").mean()
    with table(f"{ms}::FEED", readonly=False, ack=False) as feed:
        feed.putcol("FEED_ID", np.zeros(14, np.int32))
        feed.putcol("TIME", np.repeat([time - 7200.0, time], 7))
        feed.putcol("INTERVAL", np.full(14, 7200.0))
    (part,) = read_ms(ms).partitions
    assert part.pointing is not None
    assert part.pointing.centre == pytest.approx(tuple(moved(FIELD)), abs=1e-12)
