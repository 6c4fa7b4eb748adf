"""Work that rank 0 hands out piece by piece: results for arguments, until there are no more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from biro.distributed.messages import Answer, failure_of
from biro.distributed.this_rank import PLACE

if TYPE_CHECKING:
    from biro.distributed.link import Link

GIVE, TAKE = (1 << 14) + 1, (1 << 14) + 2
"""Tags of arguments and results, above those of answers to requests."""


def at_work(make: Callable[..., Callable[[Any], Any]], arguments: Sequence[Any]) -> None:
    """What a rank other than 0 does: see `biro.distributed.ranks.MpiRanks.working`."""
    link, work = PLACE.link, None
    assert link is not None, "this rank serves rank 0"
    while (given := link.recv(source=0, tag=GIVE)) is not None:
        try:
            work = work or make(*arguments)
            answer = Answer(work(*given))
        except Exception as error:
            answer = Answer(failure=failure_of(error, PLACE.where))
        link.send((link.rank, answer), 0, TAKE)


class WorkDistributor:
    """Gives arguments to other ranks that are at work, and takes their results."""

    def __init__(self, link: Link) -> None:
        self._link, self._n_busy = link, 0

    def give(self, rank: int, argument: object) -> None:
        """Give an argument to a rank that has nothing to do."""
        self._link.send((argument,), rank, GIVE)
        self._n_busy += 1

    def taken(self) -> list[tuple[int, Answer]]:
        """The results and errors that have come, each with its rank."""
        found = []
        while self._n_busy and self._link.has_come(TAKE):
            found.append(self._take())
        return found

    def end(self) -> None:
        """Have the ranks end their work; results that have not been taken are lost."""
        for rank in range(1, self._link.size):
            self._link.send(None, rank, GIVE)
        while self._n_busy:
            self._take()

    def _take(self) -> tuple[int, Answer]:
        rank, answer = self._link.recv(tag=TAKE)
        self._n_busy -= 1
        return rank, answer
