"""Tasks that have no result because what did them died."""

from __future__ import annotations

from typing import NamedTuple

CHECK_EVERY = 0.5
"""Seconds between two checks whether to stop."""


class LostTask(NamedTuple):
    """A task that was given up.

    Attributes
    ----------
    name : str
    why : str
        One line that names it, too.
    """

    name: str
    why: str
