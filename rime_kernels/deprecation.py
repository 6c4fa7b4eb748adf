"""Earlier names of this package, and the warning that an earlier name of any package gives."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")

RELEASES = 2
"""Minor releases for which an earlier name works: one that changes in 0.3 goes in 0.5."""
ALIASES = {
    "rime_kernels.chi2_together": ("rime_kernels.chi2_many", "0.3"),
    "rime_kernels.chi2_and_gradient_together": ("rime_kernels.chi2_and_gradient_many", "0.3"),
    "Rime.predict_apart": ("Rime.predict_sharded", "0.3"),
    "Rime.keep": ("Rime.cache_model", "0.3"),
    "Sources.impossible": ("Sources.invalid", "0.3"),
    "Gradient.spoil": ("Gradient.set_nan", "0.3"),
}
"""Each earlier name, its present name, and the release in which it changed."""
_OWN = frozenset({"biro", "models", "rime_kernels"})


def warn_renamed(earlier: str, present: str, since: str) -> None:
    """Warn at the line outside these packages that uses an earlier name: Python shows it there."""
    frame, stacklevel = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _OWN:
        frame, stacklevel = frame.f_back, stacklevel + 1
    major, minor = map(int, since.split("."))
    gone = f"{major}.{minor + RELEASES}"
    text = f"{earlier} is called {present} now; the earlier name works until biro {gone}"
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel)


def warn_alias(earlier: str) -> None:
    """Warn of an earlier name of this package."""
    warn_renamed(earlier, *ALIASES[earlier])


def method_alias(earlier: str, method: Callable[P, T]) -> Callable[P, T]:
    """The method under an earlier name, which warns; a class that has another one of it has that."""
    present = ALIASES[earlier][0].split(".")[-1]

    @functools.wraps(method)
    def called(owner: Any, *args: Any, **options: Any) -> Any:
        warn_alias(earlier)
        return getattr(owner, present)(*args, **options)

    called.__doc__ = f"Call `{present}`, which this is the earlier name of; it warns."
    return cast(Callable[P, T], called)
