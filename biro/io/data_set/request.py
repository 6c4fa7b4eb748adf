"""What is wanted of a data set: which of its visibilities, with which weights, averaged how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from biro.display.formatting import check_names
from biro.errors import InputError
from biro.flagging.strategy import StrategyLike, read_strategy
from biro.io.data_set.options import DataOptions, SetOptions
from biro.observation.averaging import Averaging
from biro.observation.selection import Selection
from biro.observation.weighting import Weighting
from rime_kernels.choices import Convention

T = TypeVar("T")


@dataclass(frozen=True)
class ReadingOptions:
    """What is done with data of any format, apart from selecting and averaging.

    Attributes
    ----------
    convention : "casa" or "fourier"
        "fourier" negates uvw (physics: section 2).
    allow_unusable : bool
        Return the rows even when no visibility among them is usable, and correlations as they are stored
        (to predict into them).
    flagger : Strategy, name or path, optional
        How interference is looked for; default: not at all.
    keep_values : bool
        Keep the values of visibilities that do not count, with a weight of 0.
    """

    convention: Convention = "casa"
    allow_unusable: bool = False
    flagger: StrategyLike | None = None
    keep_values: bool = False

    def __post_init__(self) -> None:
        if self.convention not in ("casa", "fourier"):
            raise InputError(f"convention must be 'casa' or 'fourier', got {self.convention!r}")
        if self.flagger is not None:
            object.__setattr__(self, "flagger", read_strategy(self.flagger))


@dataclass(frozen=True)
class ReadRequest:
    """What is wanted of a data set."""

    selection: Selection
    weighting: Weighting
    averaging: Averaging
    treatment: ReadingOptions

    @classmethod
    def of(cls, caller: str, options: DataOptions | SetOptions, also: Sequence[str] = ()) -> ReadRequest:
        """Sort the keyword arguments of a function that reads.

        Parameters
        ----------
        caller : str
            Name of the function, for messages.
        options : DataOptions
        also : names
            Of arguments that the function has beside those of `DataOptions`.

        Raises
        ------
        InputError
            An option that is not there or not understood.
        """
        check_names(options, [*DataOptions.__annotations__, *also], caller)
        given: dict[str, Any] = dict(options)
        return cls(
            _one_of(Selection, given, "selection"),
            _one_of(Weighting, given, "weighting"),
            _one_of(Averaging, given, "averaging"),
            ReadingOptions(**_fields_of(ReadingOptions, given)),
        )


def _fields_of(kind: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are fields of a class, which checks their values itself."""
    return {item.name: given[item.name] for item in fields(kind) if item.name in given}


def _one_of(kind: type[T], given: Mapping[str, Any], name: str) -> T:
    """The object that is given by this name, or one of its fields as they are given.

    Raises
    ------
    InputError
        Both are given.
    """
    own, made = _fields_of(kind, given), given.get(name)
    stated = [item.name for item in fields(kind) if own.get(item.name, item.default) is not item.default]  # type: ignore[arg-type]
    if made is None:
        return kind(**own)
    if stated:
        raise InputError(f"give either {name}= or {', '.join(stated)}, not both")
    if not isinstance(made, kind):
        raise InputError(f"{name} must be a biro.{kind.__name__}, got {made!r}")
    return made
