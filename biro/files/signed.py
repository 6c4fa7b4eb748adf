"""Write and read signed checkpoints, so that no pickle of anybody else is ever loaded.

A pickle can run any command when it is loaded. So each file carries an HMAC-SHA256 over the run's name and
the pickle, made with a secret key that only this user can read. A file whose HMAC does not fit was not
written by this run, and is not loaded.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from biro.errors import RunError
from biro.files.atomic import write_atomic

_MAGIC = b"biro signed checkpoint 1\n"
_KEY_SIZE = 32
_MAC_SIZE = hashlib.sha256().digest_size


def key_path() -> Path:
    """Where the user's secret key lies: `$XDG_STATE_HOME/biro`, or `~/.local/state/biro`."""
    base = os.environ.get("XDG_STATE_HOME")
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "state"
    return root / "biro" / "checkpoint.key"


def user_key() -> bytes:
    """The user's secret key, made on first use, readable by the user alone.

    Raises
    ------
    RunError
        It cannot be made or read, or others could have read it.
    """
    try:
        path = key_path()
    except RuntimeError:
        raise RunError(
            "this user has no home directory: set HOME, or XDG_STATE_HOME to a directory of yours"
        ) from None
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            _make_key(path)
        status = path.stat()
        key = path.read_bytes()
    except OSError as error:
        raise RunError(
            f"the key that signs checkpoints, {path}, cannot be made or read ({error.strerror}); "
            "set XDG_STATE_HOME to a writable directory of yours"
        ) from error
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or len(key) != _KEY_SIZE:
        raise RunError(
            f"{path} must be {_KEY_SIZE} bytes, owned by you and readable by you alone (chmod 600). Correct "
            "this, or delete it"
        )
    return key


def _make_key(path: Path) -> None:
    """Write a key as a whole or not at all; where another process is making one, too, the first counts."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(_KEY_SIZE))
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()


def write_signed(path: Path, run_id: str, payload: bytes) -> None:
    """Write payload with its signature, atomically.

    Raises
    ------
    OSError
        The file cannot be written; an older one is left as it was.
    """
    write_atomic(path, _MAGIC + _mac(run_id, payload) + payload, mode=0o600)


def read_signed(path: Path, run_id: str) -> bytes:
    """The payload of a file that `write_signed` wrote for this run.

    Raises
    ------
    RunError
        It was changed, comes from another run or user, or is no such file.
    """
    data = path.read_bytes()
    body = len(_MAGIC) + _MAC_SIZE
    mac, payload = data[len(_MAGIC) : body], data[body:]
    if not data.startswith(_MAGIC) or not hmac.compare_digest(mac, _mac(run_id, payload)):
        raise RunError(
            f"{path} was not written by this run and user, or was changed since. biro does not load it, "
            "because a checkpoint can contain code. Delete it to start again, or give another directory"
        )
    return payload


def _mac(run_id: str, payload: bytes) -> bytes:
    return hmac.digest(user_key(), run_id.encode() + b"\0" + payload, "sha256")
