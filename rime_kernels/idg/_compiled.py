"""Host loops that need no threads, compiled with a cache on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

from rime_kernels._jit import FASTMATH


def cached(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop for the CPU; cached on disk where some folder can be written."""
    options: dict[str, Any] = {"error_model": "numpy", "fastmath": FASTMATH}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no folder for the cache can be written
        return njit(**options)(function)
