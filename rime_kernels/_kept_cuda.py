"""Machine code of CUDA kernels kept on disk, as Numba keeps that of loops on the CPU.

Numba knows a kernel on disk by its bytecode and by what it closes over, pickled. Functions of ours among the
latter are made anew in each process and never pickle to the same bytes, so here a kernel is known by the
constants that it, and each function that it closes over, was made for. And Numba has one index for all
kernels of a name, which two processes that write at once can spoil for ever; here each has a file of its own.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rime_kernels import _identity, _jit

log = logging.getLogger(__name__)


def keep(kernel: Any, version: str) -> Any:
    """Let a kernel look for its machine code on disk before it is compiled, and leave it there after.

    Parameters
    ----------
    kernel : numba.cuda dispatcher
        Left as it is where no folder can be written, or its constants cannot be told.
    version : str
        Of the compiler.

    Returns
    -------
    kernel
    """
    before = getattr(kernel, "_cache", None)
    try:
        known = version, _identity.identity(kernel), sorted(kernel.targetoptions.items())
        kernel.enable_caching()
        cache, file = kernel._cache, kernel._cache._cache_file
        cache._index_key = functools.partial(_name, cache._impl.filename_base, known)
        file.load = functools.partial(_load, file._load_data)
        file.save = functools.partial(_save, file._save_data)
        _jit.forgive(cache)
    except (_identity.UnknownError, RuntimeError, AttributeError) as error:  # the last: another numba-cuda
        log.info("kernel %s is not kept on disk: %s", kernel.py_func.__qualname__, error)
        kernel._cache = before
    return kernel


def _name(base: str, known: Any, signature: Any, codegen: Any) -> str:
    """The file of a kernel for these types of arguments and this device."""
    return f"{base}.{_identity.short((known, signature, codegen.magic_tuple()))}.nbc"


def _load(read: Callable[[str], Any], name: str) -> Any:
    try:
        source, kept = read(name)
    except FileNotFoundError:
        return None
    return kept if source == _source_digest() else None


def _save(write: Callable[[str, Any], None], name: str, kept: Any) -> None:
    write(name, (_source_digest(), kept))


@functools.cache
def _source_digest() -> int:
    """A number that changes with the text of any module of this package."""
    root = Path(__file__).parent
    names = sorted(str(path.relative_to(root).with_suffix("")) for path in root.rglob("*.py"))
    return _jit.source_digest(*names)
