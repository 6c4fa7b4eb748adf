"""How a transposition is cut."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TransposeShape:
    """How a transposition is cut.

    Attributes
    ----------
    side : int
        Matrices are cut into squares of this side, which a block brings through shared memory.
    padding : int
        Numbers that rows of a square are longer than needed; 1 lets a column lie in different banks.
    n_each : int
        Numbers of a square that a thread moves; a divisor of the side.
    """

    side: int = 32
    padding: int = 1
    n_each: int = 4
