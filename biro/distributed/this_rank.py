"""Which rank this process is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from biro.distributed.link import Link


@dataclass
class _ThisRank:
    """This process among the ranks.

    Attributes
    ----------
    rank, number : int
        Among all, and among those of its host.
    where : str
        Rank and host, for messages.
    link : Link or None
        To rank 0; None before ranks have begun.
    """

    rank: int = 0
    number: int = 0
    where: str = ""
    link: Link | None = None


PLACE = _ThisRank()
