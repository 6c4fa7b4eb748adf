"""Machine code kept on disk: of loops on the CPU, and of CUDA kernels.

Numba's own way knows a function by its bytecode and by what it closes over, pickled. It does not see that
scalar physics which is compiled into it has changed; it never finds a kernel again whose device functions are
made anew in each process; and it has one index for all functions of a name, which processes that write at
once can leave with one function in place of another, for ever. Here each thing compiled has a file of its
own, which says of which text of this package it was made.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

from rime_kernels.compile.identity import identity, short

log = logging.getLogger(__name__)
# Machine code and what Numba keeps beside it: 7 times smaller at the fastest level (measured).
_LEVEL = 1


def keep(compiled: Any, *decides: str, ready: Callable[[Any], None] | None = None) -> None:
    """Let a function look for its machine code on disk before it is compiled, and leave it there after.

    Parameters
    ----------
    compiled : Numba dispatcher
        Not kept where no folder can be written, its constants cannot be told, or Numba is built otherwise.
    decides : str
        What decides over the machine code beside the function, its constants, the types of its
        arguments and the processor: versions, options.
    ready : function, optional
        Called with what was found on disk, to find out whether it can be used.
    """
    attribute = "_cache" if hasattr(compiled, "_cache") else "cache"
    before = getattr(compiled, attribute, None)
    try:
        known = identity(compiled.py_func), numba.__version__, decides
        compiled.enable_caching()
        cache = getattr(compiled, attribute)
        file = cache._cache_file
        cache._index_key = functools.partial(_name, cache._impl.filename_base, known)
        file.load = functools.partial(_load, file._load_data)
        file.save = functools.partial(_save, file._save_data, file._dump)
        cache.load_overload = functools.partial(_found, compiled.py_func, cache.load_overload, ready)
        cache.save_overload = functools.partial(_left, compiled.py_func, cache.save_overload)
    except Exception as error:  # whatever another Numba says
        log.info("machine code of %r is not kept on disk: %s", compiled, error)
        if before is not None:
            setattr(compiled, attribute, before)


def _name(base: str, known: Any, signature: Any, codegen: Any) -> str:
    """The file of a function for these types of arguments and this processor."""
    return f"{base}.{short((known, signature, codegen.magic_tuple()))}.nbc"


def _load(read: Callable[[str], Any], name: str) -> Any:
    try:
        source, packed = read(name)
    except FileNotFoundError:
        return None
    return pickle.loads(zlib.decompress(packed)) if source == _SOURCE else None


def _save(write: Callable[[str, Any], None], dump: Callable[[Any], bytes], name: str, kept: Any) -> None:
    if source_digest() == _SOURCE:  # else this process runs a text that is no longer there
        write(name, (_SOURCE, zlib.compress(dump(kept), _LEVEL)))


def _found(function: Any, load: Callable[..., Any], ready: Callable[[Any], None] | None, *given: Any) -> Any:
    """What is on disk; None if there is nothing, or nothing that can be used."""
    try:
        found = load(*given)
        if found is not None and ready is not None:
            ready(found)
        return found
    except Exception as error:  # of the disk, or of whatever a damaged file holds
        log.info("machine code of %r on disk cannot be used: %s", function, error)
        return None


def _left(function: Any, save: Callable[..., Any], *given: Any) -> None:
    """Leave machine code on disk, where that works."""
    try:
        save(*given)
    except Exception as error:  # a full disk, for one
        log.info("machine code of %r cannot be kept on disk: %s", function, error)
        _warn_once(str(error))


@functools.cache
def _warn_once(reason: str) -> None:
    log.warning("machine code cannot be kept on disk, the next start will compile again: %s", reason)


def source_digest(pattern: str = "*.py") -> str:
    """Hexadecimal digits that change with the text of any module of this package whose name is such."""
    root = Path(__file__).parents[1]
    found = hashlib.sha256()
    for path in sorted(root.rglob(pattern)):
        found.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


# Of the text that this process runs, taken as it begins.
_SOURCE = source_digest()
