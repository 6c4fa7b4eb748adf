"""Compile loops that will be needed later in a process of its own, while this one computes.

The gradient of a model takes ten seconds to compile, and a sampler that needs it at the end alone leaves
cores idle before. The other process stores machine code in the cache on disk, where this one finds it. Where
the other has not come so far, this one waits; where the other fails, this one compiles as it would have done.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from numba import config

from rime_kernels.compile import cache
from rime_kernels.compile.types import Compiled, NumbaType

log = logging.getLogger(__name__)

# The process has a third of a core where others want all of it (Linux), and is waited for so long, seconds.
_NICE, _PATIENCE = 5, 30.0


class Loop(NamedTuple):
    """A loop for arguments of certain types, as another process can make it."""

    make: Callable[..., Compiled]  # of a module: gives the loop
    options: tuple[Any, ...]  # of `make`
    types: tuple[NumbaType, ...]

    @property
    def compiled(self) -> Compiled:
        """The loop; it is compiled for these types when it is called."""
        return self.make(*self.options)


def loop_for(make: Callable[..., Compiled], options: tuple[Any, ...], arguments: tuple[Any, ...]) -> Loop:
    """The loop that is called with these arguments."""
    return Loop(make, options, tuple(map(make(*options).typeof_pyval, arguments)))


@contextmanager
def compiled_ahead(loops: Iterable[Loop]) -> Iterator[None]:
    """Until the end of the block, a process of its own compiles those of the loops that are not on disk.

    It ends with the block, and with this process, however that ends. There is no such process where all loops
    are on disk or loaded, where nothing can be stored there, and where Numba is to use one core.
    """
    loops = dict.fromkeys(loops)
    missing = {name: loop for loop in loops if (name := cache.missing(loop.compiled, loop.types))}
    process = _start(list(missing.values())) if missing and config.NUMBA_NUM_THREADS > 1 else None
    if process is None:
        yield
        return
    cache.AWAITED.update(dict.fromkeys(missing, functools.partial(_await_end, process)))
    try:
        yield
    finally:
        for name in missing:
            cache.AWAITED.pop(name, None)
        _end(process)


def _start(loops: list[Loop]) -> subprocess.Popen[bytes] | None:
    """The process that compiles the loops, in a new Python; None where none can be started."""
    root, path = str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{path}" if path else root},
            start_new_session=True,  # Ctrl-C does not reach it; it ends with this process
        )
    except OSError as error:
        log.info("nothing is compiled ahead: %s", error)
        return None
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # it has ended
        process.stdin.write(pickle.dumps(loops))
        process.stdin.flush()
    return process


def _await_end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_PATIENCE)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()


def _compile_loops() -> None:
    """What the process does: it reads loops from its parent, and ends when this closes the pipe."""
    loops = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(_NICE)
    for loop in loops:
        loop.compiled.compile(loop.types)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    _compile_loops()
