"""What a fit of files puts into the record of its run beside what was sampled, and takes from it later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from biro.errors import OutputError
from biro.files.json_value import JsonValue
from biro.run.record import read_facts, read_record
from rime_kernels.choices import AnyPrecision


def observed_facts(paths: Sequence[Path], reading: Mapping[str, object]) -> dict[str, object]:
    """Which data were read, and how, for the record of a run: one path, or a list of several."""
    places = [str(path.absolute()) for path in paths]
    return {"observation": places[0] if len(places) == 1 else places, "reading": reading}


def asked_precision(precision: str, run_dir: Path) -> AnyPrecision:
    """The precision that a likelihood is asked for.

    A resumed run keeps the precision it was begun with, because "auto" may mean another on another machine.
    """
    asked: JsonValue = precision
    if precision == "auto":
        asked = (read_facts(run_dir).get("likelihood") or {}).get("precision", "auto")
    return cast(AnyPrecision, asked)  # the likelihood refuses others


def check_saved(run_dir: Path) -> None:
    """Refuse to go on where the posterior is not in its run directory: a full disk, a directory that is gone.

    Raises
    ------
    OutputError
    """
    record = read_record(run_dir)
    if record is None or record.get("finished") is None:
        raise OutputError(
            f"{run_dir} could not be written, so the posterior is not there; an earlier line says whether it "
            "was saved elsewhere"
        )
