"""The record of a run, run.json: what was run on what, and what changed since."""

from __future__ import annotations

import json
import os
import platform
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NotRequired, TypedDict, cast

from biro._version import __version__
from biro.errors import RunError
from biro.files.json_value import JsonValue

RECORD = "run.json"
FORMAT = 1
DIGESTS = {
    "data": "the data or their selection changed",
    "model": "the model changed",
    "likelihood": "the precision, the frame of Gaussians, --average or an image changed",
}
"""Settings that are hashes, and what it means when one differs."""
PACKAGES = (
    "numpy", "scipy", "numba", "emcee", "dynesty", "nutpie", "astropy", "h5py", "python-casacore",
    "numba-cuda",
)  # fmt: skip
"""Packages whose versions are recorded."""
_MAX_SIZE = 16 << 20
"""Bytes of the largest record that is read."""


class RunRecord(TypedDict):
    """What run.json holds."""

    format: int
    run_id: str
    """A random name that the run was given when it began."""
    settings: dict[str, JsonValue]
    """Everything that decides the result."""
    facts: dict[str, JsonValue]
    """What else is worth recording."""
    resumed: list[str]
    """When it was resumed."""
    versions: NotRequired[dict[str, str]]
    platform: NotRequired[dict[str, JsonValue]]
    started: NotRequired[str]
    finished: NotRequired[str | None]


def versions() -> dict[str, str]:
    """Versions of this package, of Python and of the packages that results depend on."""
    installed = {"python": platform.python_version(), "biro-rime": __version__}
    for name in PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


def new_record(settings: Mapping[str, object], facts: Mapping[str, object]) -> RunRecord:
    """The record of a run that begins now."""
    return {
        "format": FORMAT,
        "run_id": uuid.uuid4().hex,
        "settings": as_json(settings),
        "facts": as_json(facts),
        "versions": versions(),
        "platform": {"system": platform.system(), "machine": platform.machine(), "cpus": os.cpu_count()},
        "started": now(),
        "resumed": [],
        "finished": None,
    }


def record_bytes(record: RunRecord) -> bytes:
    """Contents of run.json."""
    return (json.dumps(record, indent=2) + "\n").encode()


def read_record(folder: Path) -> RunRecord | None:
    """Contents of a run directory's `run.json`; None when there is none.

    Raises
    ------
    RunError
        It is broken, or of another format.
    """
    path = folder / RECORD
    try:
        if path.exists() and not path.is_file():
            raise ValueError("not a file")
        if path.exists() and path.stat().st_size > _MAX_SIZE:
            raise ValueError(f"larger than {_MAX_SIZE >> 20} MiB")
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, NotADirectoryError):
            raise RunError(f"{path.parent} is a file, expected a run directory: give another name") from None
        raise RunError(f"{path} cannot be read ({error}); give another directory") from error
    return _checked(record, path)


def read_facts(folder: Path) -> dict[str, JsonValue]:
    """The facts of a run directory's record; empty where there is no record.

    Raises
    ------
    RunError
        The record is broken, or of another format.
    """
    record = read_record(folder)
    return {} if record is None else record["facts"]


def _checked(record: JsonValue, path: Path) -> RunRecord:
    """The record, if it has all that is read from it later, each of its type."""
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise RunError(
            f"{path} is not of format {FORMAT}; resume it with the version of biro that started it"
        )
    if not {"run_id", "settings", "resumed"} <= record.keys():
        raise RunError(f"{path} is incomplete; give another directory")
    types = {"run_id": str, "settings": dict, "resumed": list, "facts": dict}
    for name, type_ in types.items():
        if not isinstance(record.setdefault(name, {}), type_):
            raise RunError(f"{path} is damaged ({name}); give another directory")
    if not isinstance(record["facts"].get("likelihood") or {}, dict):
        raise RunError(f"{path} is damaged (likelihood); give another directory")
    return cast(RunRecord, record)


def changes(
    old: Mapping[str, JsonValue], new: Mapping[str, JsonValue], may_change: tuple[str, ...]
) -> list[str]:
    """What differs between two settings, in words; options in `may_change` are passed over."""
    differences = list(_differences(old, new, may_change))
    if {DIGESTS["data"], DIGESTS["model"]} & {*differences}:
        # The likelihood's hash contains those of the data and of the model.
        differences = [difference for difference in differences if difference != DIGESTS["likelihood"]]
    return differences


def _differences(
    old: Mapping[str, JsonValue], new: Mapping[str, JsonValue], may_change: tuple[str, ...]
) -> Iterator[str]:
    for key in sorted({*old, *new} - set(may_change)):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(before, after, may_change)
        elif before != after:
            yield DIGESTS.get(key, f"{key} was {before}, is {after}")


def as_json(value: object) -> JsonValue:
    """A value as it comes back from JSON; what JSON has no type for becomes text."""
    return json.loads(json.dumps(value, default=str))


def now() -> str:
    """The time of the clock, UTC, as text."""
    return datetime.now(UTC).isoformat(timespec="seconds")
