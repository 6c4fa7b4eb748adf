"""What tuning remembers on disk: a list of records as JSON, of any number of devices and versions.

Nothing depends on the file: what cannot be read, or is not ours, is left alone and said in the log.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

FORMAT = "biro tuning 1"
VARIABLE = "BIRO_TUNING"


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


def read(path: Path) -> list[dict[str, Any]] | None:
    """The file's records; none where it is not there, None where it is not such a file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        log.warning("%s is left alone, it cannot be read: %s", path, error)
        return None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        log.warning("%s is left alone, it is no file of %r; remove it or set %s", path, FORMAT, VARIABLE)
        return None
    records = content.get("records")
    return [item for item in records if isinstance(item, dict)] if isinstance(records, list) else []


def write(path: Path, records: list[dict[str, Any]], key: tuple[str, ...]) -> bool:
    """Put records into the file in place of those that agree with them in `key`; whether it was done.

    The file is replaced as a whole: who reads it meanwhile sees the old one or the new one.
    """
    kept = read(path)
    if kept is None:
        return False
    mine = {tuple(str(item.get(name)) for name in key) for item in records}
    kept = [item for item in kept if tuple(str(item.get(name)) for name in key) not in mine]
    content = json.dumps({"format": FORMAT, "records": [*kept, *records]}, indent=1) + "\n"
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(content, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        log.warning("%s cannot be written (%s); tuning ends with this process", path, error.strerror)
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        return False
    return True
