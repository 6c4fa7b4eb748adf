"""Programs of tests that need mounts of their own: a small disk, or a storage that never answers."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from typing import Any

import pytest

MOUNT = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)

def mount(kind, where, flags, options):
    if libc.mount(b"biro", os.fsencode(where), kind.encode(), flags, options.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(where))

def small_disk(where, size):
    mount("tmpfs", where, 0, f"size={size}")

def read_only(where):
    mount("tmpfs", where, 1 | 32, "")  # MS_RDONLY | MS_REMOUNT

def storage_that_hangs(where):
    # A file system in user space whose server never answers; holds as long as the descriptor is open.
    fd = os.open("/dev/fuse", os.O_RDWR)
    mount("fuse", where, 0, f"fd={fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}")
    return fd

def fill(folder, left):
    # Until nothing goes in any more, then give `left` bytes back.
    size = 0
    with open(os.path.join(folder, "filler"), "wb", buffering=0) as file:
        try:
            while True:
                size += file.write(bytes(4096))
        except OSError:
            file.truncate(max(0, size - left))
"""


@functools.cache
def _private_mounts() -> tuple[str, ...]:
    """The words before a command that give it mounts of its own; none where the system forbids it."""
    for words in (("unshare", "-m"), ("unshare", "-rm")):
        try:
            if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0:
                return words
        except OSError:
            continue
    return ()


def run_with_mounts(program: str, *words: object) -> Any:
    """What a program prints, as JSON, that may call what `MOUNT` defines."""
    before = _private_mounts()
    if not before:
        pytest.skip("this system lets nobody mount (unshare -m and unshare -rm fail)")
    done = subprocess.run(
        [*before, sys.executable, "-c", MOUNT + program, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if "PermissionError" in done.stderr or "No such file or directory: '/dev/fuse'" in done.stderr:
        pytest.skip(f"this system lets nobody mount ({done.stderr.strip().splitlines()[-1]})")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])
