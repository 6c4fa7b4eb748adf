"""Image-domain gridding: visibilities of images with w and A-terms, and images of visibilities.

Idg          predicts and grids at the rows of an observation, planned once
ImageGrid    where the pixels of an image lie
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rime_kernels.gridding.grid import ImageGrid
    from rime_kernels.idg.idg import Idg

__all__ = ["Idg", "ImageGrid"]

_HOME = {"Idg": "idg.idg", "ImageGrid": "gridding.grid"}


def __getattr__(name: str) -> Any:  # any public name
    """Import a public name when it is first used."""
    if name in _HOME:
        return getattr(importlib.import_module(f"rime_kernels.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
