"""What has other ranks at work until it is closed."""

from __future__ import annotations

from typing import Self

from biro.distributed.ranks import MpiRanks


class Closing:
    """A likelihood whose data ranks of MPI may share: a context manager that lets the others end.

    Attributes
    ----------
    ranks : MpiRanks or None
        None where this process is alone.
    """

    ranks: MpiRanks | None = None

    def close(self) -> None:
        """Let the other ranks end, which serve all likelihoods of `comm`; none of these can be asked then."""
        if self.ranks is not None:
            self.ranks.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
