"""Messages between ranks: what arrives is what was sent, whether its arrays are small or large."""

from __future__ import annotations

import json
from pathlib import Path

from link_program import LARGE, SMALL
from started_ranks import mpiexec

PROGRAM = Path(__file__).with_name("link_program.py")


def test_objects_arrive_as_they_were_sent(tmp_path: Path) -> None:
    done = mpiexec(3, PROGRAM, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    assert [each.pop("size") for each in found] == [3, 3, 3]
    assert [each.pop("gathered") for each in found] == [[0, 1, 2], None, None]
    assert {f"whole {LARGE}", f"from any {SMALL}"} < set(found[0])
    assert all(all(each.values()) for each in found), found
