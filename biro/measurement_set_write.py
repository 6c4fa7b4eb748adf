"""Writing Measurement Sets: a column of model visibilities, or a whole new set."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from numpy.typing import NDArray

from biro.observation import Observation

Mode = Literal["replace", "add", "subtract"]


@dataclass(frozen=True)
class WriteReport:
    """What was written.

    Attributes
    ----------
    column : str
    created : bool
        The column was not there before.
    rows_written, rows_kept : int
        Rows that got new values, and those that kept theirs (zero in a new column).
    """

    column: str
    created: bool
    rows_written: int
    rows_kept: int


def write_column(
    path: str | os.PathLike[str],
    column: str,
    observation: Observation,
    models: Iterable[NDArray],
    *,
    mode: Mode = "replace",
    source_column: str | None = None,
    time_limit: float = 30.0,
) -> WriteReport:
    """Write model visibilities of each partition of `observation` (in its order) into a column."""
    raise NotImplementedError


def create_ms(
    path: str | os.PathLike[str], observation: Observation, *, overwrite: bool = False, time_limit: float = 30.0
) -> None:
    """Make a new Measurement Set that holds an observation; `read_ms` gives it back."""
    raise NotImplementedError
