"""Leakage between the feeds of an antenna: D of the measurement equation (physics: section 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY
from typing import ClassVar

from biro.models.components.antenna_terms.feeds import Basis
from biro.models.components.antenna_terms.per_antenna import read_names, read_own
from biro.models.components.noise import GROUPINGS
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed, Quantity, Series, read_entry, series
from biro.models.quantities.prior import Prior
from biro.models.quantities.strict import Entry, did_you_mean, short_repr, strict
from biro.models.quantities.units import NUMBER

FEEDS: dict[Basis, tuple[str, str]] = {"circular": ("d_r", "d_l"), "linear": ("d_x", "d_y")}
"""Keys of the two feeds of each basis."""
KEYS = (*FEEDS["circular"], *FEEDS["linear"])
PARTS = ("real", "imag")
PER = GROUPINGS
MAX_BLOCKS = 10_000


@strict
class Leakage:
    """D = [[1, d_r], [d_l, 1]] of circular feeds, [[1, d_x], [d_y, 1]] of linear ones.

    d_r is what the feed R has of L, d_l what L has of R, and so on. Each is complex: a table with `real` and
    `imag`, a text such as "0.03-0.02j", or one quantity, which a prior makes that of both parts and a number
    that of the real part. A prior stands for one parameter per antenna and feed.

    Parameters
    ----------
    d_r, d_l, d_x, d_y : optional
        Of every antenna in `antennas`; those that are not given are 0.
    chan_blocks : int, default 1
        Blocks of neighbouring channels, as equal as can be, that have leakages of their own; quantities may
        be lists of one for each.
    per : "all", "partition", "field" or "spw", default "all"
        Which partitions of the data share leakages.
    antennas : list of str, default all
    antenna : {name: {"d_r": ..., ...}}
        Antennas that have leakages of their own.
    """

    label: ClassVar[str] = "leakage"
    _: KW_ONLY
    d_r: Entry = None
    d_l: Entry = None
    d_x: Entry = None
    d_y: Entry = None
    chan_blocks: int = 1
    per: str = "all"
    antennas: Entry = None
    antenna: Entry = None

    def __post_init__(self) -> None:
        if not 1 <= self.chan_blocks <= MAX_BLOCKS:
            raise ModelError(f"chan_blocks: from 1 to {MAX_BLOCKS}, found {self.chan_blocks}")
        if self.per not in PER:
            hint = did_you_mean(self.per, PER)
            raise ModelError(f"per: one of {', '.join(PER)}, found {short_repr(self.per)}{hint}")
        for key in KEYS:
            if getattr(self, key) is not None:
                object.__setattr__(self, key, read_entry(key, self._complex, getattr(self, key)))
        object.__setattr__(self, "antennas", read_names(self.antennas))
        object.__setattr__(self, "antenna", read_own(self.antenna, dict.fromkeys(KEYS, self._complex)))

    def _complex(self, value: Entry) -> dict[str, Series]:
        made = read_complex(value)
        for part, items in made.items():
            if len(items) not in (1, self.chan_blocks):
                raise ModelError(
                    f"{part}: a list has one element for each of chan_blocks = {self.chan_blocks}, "
                    f"found {len(items)}"
                )
        return made

    def named(self) -> set[str]:
        """Antennas that the model names."""
        return set(self.antennas or ()) | set(self.antenna)

    def keys(self) -> set[str]:
        """The keys of feeds that are given for any antenna."""
        own = {key for entries in self.antenna.values() for key in entries}
        return own | {key for key in KEYS if getattr(self, key) is not None}

    def parts(self, antenna: str, basis: Basis) -> Iterator[tuple[int, int, str, list[Quantity]]]:
        """Feed (0, 1), part (0 real, 1 imaginary), key and quantity of each block, of one antenna."""
        included = self.antennas is None or antenna in self.antennas
        for feed, key in enumerate(FEEDS[basis]):
            given = self.antenna.get(antenna, {}).get(key, getattr(self, key) if included else None)
            for part, name in enumerate(PARTS):
                items = () if given is None else given.get(name, ())
                if items:
                    each = items * self.chan_blocks if len(items) == 1 else items
                    yield feed, part, f"{key}.{name}", list(each)


def read_complex(value: Entry) -> dict[str, Series]:
    """Real and imaginary part of what a person wrote for a complex number.

    Raises
    ------
    ModelError
        None of the forms of `Leakage`.
    """
    if isinstance(value, Mapping) and not {"prior", "tie"} & set(value):
        for key in value:
            if key not in PARTS:
                hint = did_you_mean(key, PARTS)
                raise ModelError(f"unknown key {short_repr(key)}{hint}; keys allowed: real, imag")
        return {part: read_entry(part, series, value[part], NUMBER) for part in PARTS if part in value}
    number = _number(value)
    if number is not None:
        return {"real": (Fixed(number.real),), "imag": (Fixed(number.imag),)}
    made = series(value, NUMBER)
    if all(isinstance(item, Prior) for item in made):
        return {"real": made, "imag": made}
    if all(isinstance(item, Fixed) for item in made):
        return {"real": made}
    raise ModelError(
        f'expected a complex number such as "0.03-0.02j", {{ real = ..., imag = ... }} or a prior, found '
        f'{short_repr(value)}; a tie says which part it is of: {{ real = "a tie" }}'
    )


def _number(value: Entry) -> complex | None:
    """A complex number, or a text with a j; None for anything else."""
    if isinstance(value, complex):
        return value
    if not isinstance(value, str) or "j" not in value:
        return None
    try:
        return complex(value.replace(" ", ""))
    except ValueError:
        return None
