"""Whether memory and disks of all ranks have room for what these are to hold, before any work is done."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from biro.distributed.ranks import MpiRanks
from biro.errors import InputError
from biro.files import memory
from biro.files.atomic import why_not_written
from biro.files.memory import byte_text

Remedy = Callable[[int, int], str]
"""What to do, from how many times too much there is, and on how many such machines it would fit."""


class _Shortage(NamedTuple):
    """Ranks that share what is free, of which they need more."""

    ranks: list[int]
    needed: float
    free: int

    @property
    def times(self) -> int:
        """How many times as much as is free is needed."""
        return int(-(-self.needed // max(1, self.free)))


def check_memory(ranks: MpiRanks | None, needed: Sequence[float], what: str, remedy: Remedy) -> None:
    """Refuse what needs more memory than is free on the host of any rank.

    Ranks of one host share its memory; each has a limit of its own (`ulimit -v`) besides.

    Parameters
    ----------
    ranks : MpiRanks or None
        None for this process alone.
    needed : sequence of float
        Bytes, of each rank.
    what : str
        What needs them.
    remedy : function
        See `Remedy`.

    Raises
    ------
    InputError
        Names the rank, its host, what is needed and what is there.
    """
    free = [memory.free_now()] if ranks is None else ranks.do(memory.free_now)
    hosts = [""] if ranks is None else ranks.hosts
    sharing = [[i for i, other in enumerate(hosts) if other == host] for host in dict.fromkeys(hosts)]
    lacks = _lacks(sharing, needed, [each.shared for each in free])
    lacks += _lacks([[i] for i in range(len(free))], needed, [each.own for each in free])
    if not lacks:
        return
    worst = max(lacks, key=lambda lack: lack.needed / max(1, lack.free))
    advice = remedy(max(2, worst.times), max(2, worst.times) * len(sharing))
    raise InputError(
        f"{_who(ranks, worst, needed)}{what} needs {_with_others(worst, needed)} of memory, "
        f"{byte_text(worst.free)} are free; {advice}"
    )


def check_disk(ranks: MpiRanks, folder: str, needed: Sequence[float], what: str, remedy: str) -> None:
    """Refuse to write more into a folder than the disk has room for on which any rank has it.

    Ranks that see a file which rank 0 makes share its disk; of the others, those of one host share one.

    Parameters
    ----------
    ranks : MpiRanks
    folder : str
    needed : sequence of float
        Bytes, of each rank.
    what : str
        What takes them.
    remedy : str

    Raises
    ------
    InputError
    """
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as mark:
            found = ranks.do(_disk, folder, mark.name)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be written: {why_not_written(os.path.join(folder, 'x'), error)}"
        ) from None
    disks: dict[str, list[int]] = {}
    for rank, (sees_mark, _) in enumerate(found):
        disks.setdefault("" if sees_mark else ranks.hosts[rank], []).append(rank)
    lacks = _lacks(disks.values(), needed, [free for _, free in found])
    if lacks:
        raise InputError(
            f"{_who(ranks, lacks[0], needed)}{folder}: {what} need {_with_others(lacks[0], needed)}, "
            f"{byte_text(lacks[0].free)} are free; {remedy}"
        )


def _disk(folder: str, mark: str) -> tuple[bool, int]:
    """Whether this rank sees the file of rank 0, and how much room its folder has."""
    sees_mark = os.path.exists(mark)
    os.makedirs(folder, exist_ok=True)
    return sees_mark, shutil.disk_usage(folder).free


def _lacks(groups: Iterable[list[int]], needed: Sequence[float], free: Sequence[int]) -> list[_Shortage]:
    """The groups of ranks that need more than is free for them."""
    found = [_Shortage(group, sum(needed[i] for i in group), min(free[i] for i in group)) for group in groups]
    return [each for each in found if each.needed > each.free]


def _neediest(lack: _Shortage, needed: Sequence[float]) -> int:
    return max(lack.ranks, key=lambda rank: needed[rank])


def _who(ranks: MpiRanks | None, lack: _Shortage, needed: Sequence[float]) -> str:
    """The rank that needs most, where there are several."""
    return "" if ranks is None or ranks.n_rank == 1 else f"{ranks.where(_neediest(lack, needed))}: "


def _with_others(lack: _Shortage, needed: Sequence[float]) -> str:
    """What the rank needs, and what it needs together with those it shares with."""
    own = byte_text(needed[_neediest(lack, needed)])
    others = len(lack.ranks) - 1
    return own if not others else f"{own} ({byte_text(lack.needed)} with {others} more on its host)"
