"""Measurement Sets with spoilt tables: the data, or one line that says what is wrong with which table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import python
from fuzz_tables import LIMIT, LONGEST, SPOILT

PROGRAM = Path(__file__).with_name("fuzz_tables.py")
DAMAGED = 20
"""Sets with random damage; 300 and more are tried by hand."""
SAME, OTHER = "the same", "other"
SAID = {
    r"(\w+ )?table.dat empty": r"broken off while .*: SET(/\w+)?/table.dat is empty; copy the set again.*",
    "table.dat (zeros|text)": r".*SET/table.dat is no table.dat of casacore; copy the set again.*",
    "table.(dat|f0) .*": r"broken off while opening SET/table.dat and the data files beside it: .*",
    "table.info missing": SAME,
    "table.lock missing": r".*table.lock, which has the number of rows, is missing or damaged; .*",
    r"[A-Z]+(_[A-Z]+)* without rows": r".*SET/[A-Z_]+ has fewer rows of [A-Z_]+ than it should",
    "(SPECTRAL_WINDOW|POLARIZATION)_ID -?[17]": "data description 0 is of .*, but there are 1 .* from 0",
    "(DATA_DESC_ID|FIELD_ID|ANTENNA.) -?[1-9]+": r"\w+ runs from -?\d+ to \d+, but its subtable has \d rows",
    "TIME (nan|all inf)": r"TIME is invalid in \d+ of 63 rows .*",
    # A row that has no baseline, or of which nobody knows how long it took, is left out or kept.
    "INTERVAL nan|UVW nan|INTERVAL missing|TIME an integer|WEIGHT of three": OTHER,
    "UVW of two": "UVW has no value in 63 of 63 rows",
    "(UVW|TIME|ANTENNA1|WEIGHT|FLAG) (a scalar|text|real|an integer)": r"column \w+ of the main table holds "
    r"(arrays|single values) of type \w+, expected .*",
    "(DATA .*|EXPOSURE -1|FLAG_ROW an integer|FLAG missing)": SAME,  # CORRECTED_DATA is read
    "(ANTENNA1|TIME|UVW|FLAG_ROW|SCAN_NUMBER) missing": r"a casacore table \(Measurement Set\), but not a "
    r"Measurement Set: it has no \w+",
    "(ANTENNA|DATA_DESCRIPTION|FIELD|OBSERVATION|POLARIZATION|SPECTRAL_WINDOW) missing": r"broken off while "
    r"reading subtable SET/(\w+): there is no folder SET/\1; copy it from the set .*",
    r"\w+ missing": r"its subtable \w+ has no column \w+",
    "CHAN_(FREQ of no channels|WIDTH of one)": r"spectral window 0 has \d frequencies in CHAN_FREQ and \d .*",
    "no channels": "the rows of data description 0 hold no visibilities: spectral window 0 has no channels",
    "CORR_TYPE of none": "the rows of data description 0 hold no .*: polarization 0 has no correlations",
    "CHAN_FREQ nan": "spectral window L: CHAN_FREQ is invalid in 4 of 4 channels .*",
    "(CHAN_FREQ text|NAME an integer)": r"column \w+ of its subtable \w+ holds single values of type \w+, "
    "expected .*",
    "PHASE_DIR (nan|of .*)": r"field F: its PHASE_DIR, \(nan, nan\) rad, is not a direction; correct it",
    "POSITION of two": r"broken off while reading subtable SET/ANTENNA: .* in column POSITION.*",
    "POSITION nan": SAME,  # antennas have to have positions where a model needs them
    "time scale unknown": "TIME is in the scale 'WRONG', expected one of UTC, TAI, .*",
    "(time scale|UVW frame) no record": SAME,
    "subtable elsewhere": "broken off while reading subtable SET/ANTENNA: there is no folder nowhere; .*",
}
"""What is said, the first that fits, by the names of what is spoilt; both are regular expressions."""


@pytest.fixture(scope="module")
def found(
    measurement_set: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[str, float]]:
    folder = tmp_path_factory.mktemp("tables")
    done = python(PROGRAM, str(measurement_set("sim_7_circ")), folder, DAMAGED, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes = json.loads(done.stdout)
    return {
        name: (said.replace(f"{folder}/copy.ms: ", "").replace(f"{folder}/copy.ms", "SET"), seconds)
        for name, (said, seconds) in outcomes.items()
    }


def test_each_spoilt_table_is_named(found: dict[str, tuple[str, float]]) -> None:
    wrong = {}
    for name in SPOILT:
        expected = next(said for of, said in SAID.items() if re.fullmatch(of, name))
        if not re.fullmatch(expected, found[name][0]):
            wrong[name] = found[name][0]
    assert not wrong


def test_random_damage_is_one_line(found: dict[str, tuple[str, float]]) -> None:
    """Data may be other where bytes of data are; nothing hangs or ends the process that reads."""
    damaged = {name: said for name, (said, _) in found.items() if name.startswith("damage")}
    assert len(damaged) == DAMAGED
    assert not {name: said for name, said in damaged.items() if said.startswith("CRASH") or "\n" in said}
    assert max(len(said.replace("SET", "")) for said in damaged.values()) < LONGEST
    assert sum(said not in (SAME, OTHER) for said in damaged.values()) > DAMAGED // 6  # damage that is seen
    # The limit of silence, and the start of what reads on a busy machine.
    assert max(seconds for _, seconds in found.values()) < LIMIT + 20.0
