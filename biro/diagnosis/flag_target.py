"""The data set in which visibilities of an observation can be flagged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from biro.observation.observation import Observation

OF_SETS = ("WEIGHT_SPECTRUM", "WEIGHT", "SIGMA_SPECTRUM", "SIGMA")
"""Where weights of a Measurement Set come from."""


@dataclass(frozen=True)
class FlagTarget:
    """The data set that a command names.

    Attributes
    ----------
    source : str
        Path.
    """

    source: str

    @classmethod
    def of(cls, observation: object) -> FlagTarget | None:
        """The set of an observation; None where it is no single one, or averages what the set has."""
        if not isinstance(observation, Observation) or observation.averaged is not None:
            return None
        origins = {part.weight_origin for part in observation.partitions}
        is_flagged = origins <= {*OF_SETS} or origins == {"UVFITS"}
        if not is_flagged or not Path(observation.source).exists():
            return None
        return cls(observation.source)
