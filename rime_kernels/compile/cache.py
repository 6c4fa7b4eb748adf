"""Cache machine code on disk: of loops on the CPU, and of CUDA kernels.

Numba's own cache identifies a function by its bytecode and by what it closes over, pickled. It does not see a
change of scalar physics that is compiled into the function; it never finds a kernel again whose device
functions are made anew in each process; and it has one index for all functions of a name, in which processes
that write at the same time can leave one function in place of another, for ever. Here each compiled function
has a file of its own, which holds a digest of this package's source text.

This replaces private parts of Numba (`PRIVATE_PARTS`), so its versions have an upper bound in pyproject.toml.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numba

from rime_kernels.compile.identity import Identity, identity, short
from rime_kernels.compile.types import Compiled, NumbaType, TargetContext

log = logging.getLogger(__name__)
# Level of zlib, the fastest: machine code becomes 7 times smaller (measured).
_LEVEL = 1
# What Numba unpickles machine code to.
MachineCode: TypeAlias = Any
# Private attributes of Numba's caches that are replaced here: of a dispatcher's cache, and of its file.
PRIVATE_PARTS = (
    ("_cache_file", "_impl", "_index_key", "load_overload", "save_overload"),
    ("load", "save", "_load_data", "_save_data", "_dump"),
)


def enable(compiled: Compiled, *versions: str, ready: Callable[[MachineCode], None] | None = None) -> None:
    """Let a function look for its machine code on disk before it is compiled, and store it there after.

    A function is not cached where no folder can be written, one of its constants cannot be identified, or
    the installed Numba has other private parts.

    Parameters
    ----------
    compiled : Numba dispatcher
    versions : str
        What determines the machine code beside the function, its constants, the types of its arguments
        and the processor: versions, options of the compiler.
    ready : function, optional
        Called with machine code from disk; raises an exception where it cannot be used.
    """
    attribute = "_cache" if hasattr(compiled, "_cache") else "cache"
    before = getattr(compiled, attribute, None)
    try:
        known = identity(compiled.py_func), numba.__version__, versions
        compiled.enable_caching()
        cache = getattr(compiled, attribute)
        file = cache._cache_file
        cache._index_key = functools.partial(_file_name, cache._impl.filename_base, known)
        file.load = functools.partial(_load, file._load_data)
        file.save = functools.partial(_save, file._save_data, file._dump)
        cache.load_overload = functools.partial(_load_safely, compiled.py_func, cache.load_overload, ready)
        cache.save_overload = functools.partial(_save_safely, compiled.py_func, cache.save_overload)
    except Exception as error:  # another version of Numba may raise anything
        log.info("machine code of %r is not cached on disk: %s", compiled, error)
        if before is not None:
            setattr(compiled, attribute, before)


def _file_name(base: str, known: Identity, signature: NumbaType, codegen: TargetContext) -> str:
    """The file of a function for these types of arguments and this processor."""
    return f"{base}.{short((known, signature, codegen.magic_tuple()))}.nbc"


def _load(read: Callable[[str], tuple[str, bytes]], name: str) -> MachineCode:
    """Machine code that was made of the present source text, or None."""
    try:
        source, packed = read(name)
    except FileNotFoundError:
        return None
    return pickle.loads(zlib.decompress(packed)) if source == SOURCE else None


def _save(
    write: Callable[[str, object], None], dump: Callable[[MachineCode], bytes], name: str, code: MachineCode
) -> None:
    """Write machine code, unless this process runs a source text that has been replaced since."""
    if source_digest() == SOURCE:
        write(name, (SOURCE, zlib.compress(dump(code), _LEVEL)))


def _load_safely(
    function: Compiled,
    load: Callable[..., MachineCode],
    ready: Callable[[MachineCode], None] | None,
    *arguments: object,
) -> MachineCode:
    """Machine code on disk; None where there is none, or none that can be used."""
    try:
        code = load(*arguments)
        if code is not None and ready is not None:
            ready(code)
        return code
    except Exception as error:  # of the disk, or of a damaged file
        log.info("machine code of %r on disk cannot be used: %s", function, error)
        return None


def _save_safely(function: Compiled, save: Callable[..., None], *arguments: object) -> None:
    """Store machine code on disk, where that works."""
    try:
        save(*arguments)
    except Exception as error:  # such as a full disk
        log.info("machine code of %r cannot be cached on disk: %s", function, error)
        warn_once(str(error))


@functools.cache
def warn_once(reason: str) -> None:
    log.warning("machine code cannot be kept on disk, the next start will compile again: %s", reason)


def source_digest(pattern: str = "**/*.py") -> str:
    """Hexadecimal digits that change with the text of any module of this package that fits the pattern.

    The pattern is of paths below `rime_kernels`.
    """
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.glob(pattern)):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


# The digest of the text that this process runs, taken as it starts.
SOURCE = source_digest()
