"""All tests of the residuals of a fit."""

from __future__ import annotations

from collections.abc import Sequence

from biro.misfit.finding import Finding
from biro.misfit.residual_data import ResidualData


def find_causes(
    data: Sequence[ResidualData], antenna_names: Sequence[str], *, has_outliers: bool = False
) -> list[Finding]:
    """What the residuals of a fit show, the kind that explains most of the misfit first."""
    return []
