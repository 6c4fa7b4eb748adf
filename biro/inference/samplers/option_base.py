"""What the options of all samplers have, and the checks that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import ClassVar, Self

from biro.errors import InputError

MOST_THREADS = 1024
"""Threads that a sampler may have; systems allow some thousands of one user."""
MOST_FOR_ENSEMBLE = 200
"""Parameters up to which emcee and tempering are begun: beyond some dozens, hardly a move is accepted."""


@dataclass(frozen=True)
class SamplerOptions(ABC):
    """The options of a sampler."""

    may_change: ClassVar[tuple[str, ...]] = ()
    """Options that may differ when a run is resumed."""

    @property
    @abstractmethod
    def n_together(self) -> int:
        """Parameter vectors in one likelihood call."""

    @abstractmethod
    def resolved(self, n_param: int) -> Self:
        """The options with every default filled in, for a number of parameters.

        Raises
        ------
        InputError
            A value that is impossible.
        """

    @abstractmethod
    def numbers(self, n_param: int) -> float:
        """Float64 numbers that the sampler holds in memory at least."""

    @abstractmethod
    def evaluations(self, n_param: int) -> float:
        """Likelihoods that the sampler asks for at least."""

    def as_dict(self) -> dict[str, int | float | str]:
        """The options by name, for records."""
        return asdict(self)


def check_threads(name: str, number: int) -> None:
    """Refuse more threads than a system allows.

    Raises
    ------
    InputError
    """
    if number > MOST_THREADS:
        raise InputError(f"{name} must be at most {MOST_THREADS} (one thread each), got {number}")


def check_positive(options: SamplerOptions, names: tuple[str, ...]) -> None:
    """Refuse options that are 0 or less.

    Raises
    ------
    InputError
    """
    for name in names:
        if not getattr(options, name) > 0:
            raise InputError(f"{name} must be above 0, got {getattr(options, name)}")
