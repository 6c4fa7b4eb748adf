"""The option `average` of a likelihood."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal, TypeAlias

from biro.errors import InputError
from biro.likelihood.cells.choose import ReducedData, choose_cells
from biro.likelihood.cells.variation import ComparableLikelihood
from biro.likelihood.options import EngineOptions
from biro.observation.observation import Observation

log = logging.getLogger(__name__)

Average: TypeAlias = Literal["none", "cells"] | ReducedData
"""Whether few visibilities stand for those of a cell; or what stands for all, where that is known."""


def reduced_data(
    average: Average,
    observation: Observation,
    options: EngineOptions,
    like: Callable[[Observation, EngineOptions, Average], ComparableLikelihood],
) -> tuple[ReducedData | None, list[str]]:
    """What stands for the data, None where all are used; and a line about it where cells were asked for.

    Parameters
    ----------
    average : Average
    observation : Observation
    options : EngineOptions
    like : function of data, options and an `Average`
        Makes the likelihood of the model.

    Raises
    ------
    InputError
        A word that is none of `Average`; or a model for which data of cells cannot stand.
    """
    if isinstance(average, ReducedData):
        return average, []
    if average not in ("none", "cells"):
        raise InputError(f'average must be "none" or "cells", got {average!r}')
    if average == "none":
        return None, []

    def likelihood_of(data: Observation, reduced: ReducedData | None = None) -> ComparableLikelihood:
        return like(data, options, "none" if reduced is None else reduced)

    found = choose_cells(observation, likelihood_of)
    line = f"cells hold {found.statement}" if isinstance(found, ReducedData) else f"no cells: {found}"
    log.info("average: %s", line)
    return found if isinstance(found, ReducedData) else None, [f"average: {line}"]
