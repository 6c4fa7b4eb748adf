"""Nothing needs the network: times, sidereal angles and frames come from what is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from astropy.coordinates import EarthLocation
from astropy.coordinates.sites import SiteRegistry
from astropy.time import Time

from biro.io.uvdata.read import without_sites
from biro.observation.feeds.earth import ut1_and_pole


def without_network(words: list[object], home: Path) -> subprocess.CompletedProcess[str]:
    """A command that has no network at all, and no caches of earlier downloads."""
    for before in (("unshare", "-n"), ("unshare", "-rn")):
        try:
            if subprocess.run([*before, "true"], capture_output=True, check=False).returncode == 0:
                break
        except OSError:
            continue
    else:
        pytest.skip("this system lets nobody take the network away (unshare -n and unshare -rn fail)")
    hidden = {name: str(home) for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "ASTROPY_CACHE_DIR")}
    return subprocess.run(
        [*before, sys.executable, "-m", "biro", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | hidden,
    )


def test_a_set_in_an_old_frame(measurement_set: Callable[[str], Path], tmp_path: Path) -> None:
    """B1950 and the times of 1989 take casacore's tables."""
    done = without_network(["info", measurement_set("vla_3c273_x")], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "12h29m06" in done.stdout


def test_a_simulation_of_a_day_to_come(tmp_path: Path) -> None:
    """Its sidereal time is extrapolated where tables end, not asked for."""
    sky = tmp_path / "sky.toml"
    sky.write_text('[[source]]\nname = "a"\neast = "0 deg"\nnorth = "0 deg"\nI = "1 Jy"\n')
    words = [
        *("simulate", tmp_path / "obs.ms", sky, "--telescope", "KAT-7", "--start", "2049-03-01"),
        *("--phase-centre", "05h00m00s -45d00m00s", "--duration", "2 min", "--integration", "60 s"),
        *("--freq", "1.8 GHz", "--chan-width", "1 MHz", "--backend", "cpu"),
    ]
    done = without_network(words, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "obs.ms" / "table.dat").is_file()


def test_tables_of_years_ago_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """astropy refuses predictions that are more than a month old where it may not fetch new ones."""
    now = Time(66154.0, format="mjd")  # of 2040
    monkeypatch.setattr(Time, "now", lambda: now)
    known, later = 58000.0, 70000.0
    ut1_utc, pole_x, pole_y = ut1_and_pole(np.array([known, later]))
    # Bulletin B of the IERS: UT1 - UTC of 2017 September 4.
    assert ut1_utc[0] == pytest.approx(0.336, abs=1e-3)
    assert (ut1_utc[1], pole_x[1], pole_y[1]) == (0.0, 0.0, 0.0)


def test_sites_that_the_user_has_loaded_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """While pyuvdata reads a file, and after it."""
    loaded = SiteRegistry()
    for registry in (loaded, None):
        monkeypatch.setattr(EarthLocation, "_site_registry", registry)
        with without_sites():
            assert EarthLocation._site_registry is not None
            assert (EarthLocation._site_registry is loaded) == (registry is loaded)
        assert EarthLocation._site_registry is registry
