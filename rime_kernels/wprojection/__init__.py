"""W-projection: visibilities of images by kernels that contain w, and images of visibilities.

WProjection  predicts and grids at the rows of an observation, planned once
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rime_kernels.wprojection.wprojection import WProjection

__all__ = ["WProjection"]


def __getattr__(name: str) -> Any:  # any public name
    """Import a public name when it is first used."""
    if name in __all__:
        return getattr(importlib.import_module("rime_kernels.wprojection.wprojection"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
