"""The file in which tuning keeps its records: JSON, for any number of devices and versions.

No result depends on the file. One that cannot be read, or is something else, is neither used nor changed; a
warning says so.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from rime_kernels.arrays.whole_file import write_whole

log = logging.getLogger(__name__)

FORMAT = "biro tuning 1"
VARIABLE = "BIRO_TUNING"
# As JSON gives it: strings, numbers, None and one object of numbers, to be checked by the reader.
Record = dict[str, Any]


def location() -> Path | None:
    """The file: what BIRO_TUNING names, or `biro/tuning.json` in the user's cache folder.

    None where BIRO_TUNING is "off", or the user has no folder.
    """
    named = os.environ.get(VARIABLE, "")
    if named:
        return None if named.lower() == "off" else Path(named)
    cache = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The specification wants relative paths there to be ignored.
        folder = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    except RuntimeError:  # no home
        return None
    return folder / "biro" / "tuning.json"


def read(path: Path) -> list[Record] | None:
    """The records of the file; an empty list where there is no file, None where it is not a tuning file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        log.warning("%s cannot be read, and is not used: %s", path, error)
        return None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        log.warning("%s is not a file of %r, and is not used: remove it, or set %s", path, FORMAT, VARIABLE)
        return None
    records = content.get("records")
    return [item for item in records if isinstance(item, dict)] if isinstance(records, list) else []


def write(path: Path, records: list[Record], key: tuple[str, ...]) -> bool:
    """Put records into the file, in place of those with the same values of `key`; whether that worked.

    The file is replaced as a whole: a process that reads it meanwhile sees the old one or the new one.
    """
    present = read(path)
    if present is None:
        return False
    replaced = {tuple(str(item.get(name)) for name in key) for item in records}
    others = [item for item in present if tuple(str(item.get(name)) for name in key) not in replaced]
    content = json.dumps({"format": FORMAT, "records": [*others, *records]}, indent=1) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content.encode())
    except OSError as error:
        log.warning("%s cannot be written (%s); tuning ends with this process", path, error.strerror)
        return False
    return True
