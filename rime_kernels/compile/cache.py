"""Cache machine code on disk: of loops on the CPU, and of CUDA kernels.

Numba's own cache identifies a function by its bytecode and by what it closes over, pickled. It does not see a
change of scalar physics that is compiled into the function; it never finds a kernel again whose device
functions are made anew in each process; and it has one index for all functions of a name, in which processes
that write at the same time can leave one function in place of another, for ever. Here each compiled function
has a file of its own, which begins with two digests: of the text of this package, and of the code that the
function is made of. Where the text is the same the file is taken at once. Where it is another, it is taken if
the code of the function is the same.

Of Numba's caches this uses where files lie and how machine code becomes bytes. Functions stay without a cache
where another version of Numba has other classes.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import pickle
import sys
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numba

from rime_kernels.compile.identity import Identity, identity, short
from rime_kernels.compile.sources import code_digest, source_digest
from rime_kernels.compile.types import NumbaType, TargetContext

log = logging.getLogger(__name__)
# Level of zlib, the fastest: machine code becomes 7 times smaller (measured).
_LEVEL = 1
# What Numba unpickles machine code to.
MachineCode: TypeAlias = Any
# Length of a digest, hexadecimal digits of SHA-256.
_N_DIGIT = 64


def enable(compiled: Any, *versions: str, ready: Callable[[MachineCode], None] | None = None) -> None:
    """Let a function look for its machine code on disk before it is compiled, and store it there after.

    A function is not cached where no folder can be written, one of its constants cannot be identified, or
    the installed Numba has other classes.

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
        made = _cache_like(type(getattr(compiled, attribute)))(compiled.py_func)
        made.known, made.ready = known, ready
        setattr(compiled, attribute, made)
    except Exception as error:  # another version of Numba may raise anything
        log.info("machine code of %r is not cached on disk: %s", compiled, error)
        if before is not None:
            setattr(compiled, attribute, before)


def _cache_like(kind: type) -> Any:
    """A class of caches in the place of one of Numba's, which tests whether it has one of its own class."""
    dump = next(
        module.dumps for each in kind.__mro__ if hasattr(module := sys.modules[each.__module__], "dumps")
    )
    return type("OwnFiles", (_OwnFiles, kind), {"dump": staticmethod(dump)})


class _OwnFiles:
    """The cache of one function, with a file for each combination of types of its arguments.

    Attributes
    ----------
    known : tuple
        What identifies the function, with versions.
    ready : function or None
        See `enable`.
    """

    known: Identity
    ready: Callable[[MachineCode], None] | None
    dump: Callable[[object], bytes]
    _py_func: Any
    _impl: Any

    def load_overload(self, signature: NumbaType, context: TargetContext) -> MachineCode:
        """Machine code on disk; None where there is none, or none that can be used."""
        try:
            # Numba's own method prepares the context; that of CUDA also selects the target.
            return super().load_overload(signature, context)  # type: ignore[misc]
        except Exception as error:  # of the disk, or of a damaged file
            log.info("machine code of %r on disk cannot be used: %s", self._py_func, error)
            return None

    def _load_overload(self, signature: NumbaType, context: TargetContext) -> MachineCode:
        """Machine code on disk, or None; Numba calls this method from `load_overload`."""
        packed = self._read(self._place(signature, context.codegen()), signature)
        if packed is None:
            return None
        code = self._impl.rebuild(context, pickle.loads(zlib.decompress(packed)))
        if self.ready is not None:
            self.ready(code)
        return code

    def save_overload(self, signature: NumbaType, code: MachineCode) -> None:
        """Store machine code on disk, unless the text that made it has been replaced since."""
        try:
            if self._impl.check_cachable(code) and source_digest() == SOURCE:
                self._impl.locator.ensure_cache_path()
                packed = zlib.compress(self.dump(self._impl.reduce(code)), _LEVEL)
                _write(self._place(signature, code.codegen), self._code_digest(signature), packed)
        except Exception as error:  # such as a full disk
            log.info("machine code of %r cannot be cached on disk: %s", self._py_func, error)
            warn_once(str(error))

    def _read(self, place: Path, signature: NumbaType) -> bytes | None:
        """Machine code that was made of the present code, compressed, or None."""
        try:
            content = place.read_bytes()
        except FileNotFoundError:
            return None
        text, code, packed = content[:_N_DIGIT], content[_N_DIGIT : 2 * _N_DIGIT], content[2 * _N_DIGIT :]
        if text.decode() != SOURCE:
            if source_digest() != SOURCE or code.decode() != self._code_digest(signature):
                return None
            with contextlib.suppress(OSError):  # found at once the next time
                _write(place, code.decode(), packed)
        return packed

    def _code_digest(self, signature: NumbaType) -> str:
        arguments = signature.args if hasattr(signature, "args") else signature
        return code_digest(self._py_func, arguments)

    def _place(self, signature: NumbaType, codegen: TargetContext) -> Path:
        """The file of the function for these types of arguments and this processor."""
        name = f"{self._py_func.__module__}.{self._py_func.__qualname__}".replace("<", "").replace(">", "")
        python = f"py{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
        key = short((self.known, signature, codegen.magic_tuple()))
        return Path(self._impl.locator.get_cache_path(), f"{name}-{python}.{key}.nbc")


def _write(place: Path, code: str, packed: bytes) -> None:
    """Write a file whole or not at all, whoever else writes it at the same time."""
    part = place.with_name(f"{place.name}.tmp.{uuid.uuid4().hex[:16]}")
    try:
        part.write_bytes(SOURCE.encode() + code.encode() + packed)
        os.replace(part, place)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@functools.cache
def warn_once(reason: str) -> None:
    log.warning("machine code cannot be kept on disk, the next start will compile again: %s", reason)


# The digest of the text that this process runs, taken as it starts.
SOURCE = source_digest()
