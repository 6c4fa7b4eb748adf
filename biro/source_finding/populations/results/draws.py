"""The sources of one population in all draws of a posterior."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.files.npz import texts

Array = NDArray[np.float64]
NEEDED = ("east", "north", "I")
"""Values that each source has."""
SHAPE = ("emaj", "emin", "pa")
_VALUE = "value_"


@dataclass(frozen=True, eq=False)
class SourceDraws:
    """Sources of one population in all draws of a posterior.

    Draws have equal weight, and may have no source. The order of the sources within a draw means nothing.

    Attributes
    ----------
    name : str
    types : tuple of str
        Kinds of sources, as the model file calls them: "point", "gaussian", ...
    n_draw : int
        Draws, those without a source included.
    draw : int64 (n,)
        The draw that each source belongs to, ascending.
    kind : int8 (n,)
        Index of its type.
    values : mapping of str to float64 (n,)
        "east" and "north", offsets from the centre (direction cosines, rad); "I", Jy; and what else the types
        have, by the names of a model file in rad, Jy and Hz: "emaj", "emin" and "pa" (from north at the
        source), "spectral_index", ... NaN where the type of the source has no such value.

    Raises
    ------
    InputError
        Arrays that do not belong together, draws or types out of range, or a position or flux that is not
        finite.
    """

    name: str
    types: tuple[str, ...]
    n_draw: int
    draw: NDArray[np.int64]
    kind: NDArray[np.int8]
    values: Mapping[str, Array]

    def __post_init__(self) -> None:
        n = len(self.draw)
        if self.n_draw < 1:
            raise InputError(f"n_draw: at least 1, got {self.n_draw}")
        missing = [key for key in NEEDED if key not in self.values]
        if missing:
            raise InputError(f"values: expected {', '.join(NEEDED)}, {', '.join(missing)} not given")
        arrays: dict[str, NDArray[Any]] = {"draw": self.draw, "kind": self.kind, **self.values}
        for key, array in arrays.items():
            if np.shape(array) != (n,):
                raise InputError(f"{key} must have shape ({n},) as draw, got {np.shape(array)}")
        if n and not (self.draw[0] >= 0 and self.draw[-1] < self.n_draw and (np.diff(self.draw) >= 0).all()):
            raise InputError(f"draw must ascend from 0 to {self.n_draw - 1} at most; sort the sources by it")
        if n and not (self.kind.min() >= 0 and self.kind.max() < len(self.types)):
            raise InputError(f"kind must be an index of {len(self.types)} types, 0 to {len(self.types) - 1}")
        for key in NEEDED:
            n_bad = int(np.count_nonzero(~np.isfinite(self.values[key])))
            if n_bad:
                raise InputError(f"{key} must be finite, but {n_bad} of {n} sources have NaN or infinity")

    def __len__(self) -> int:
        """Sources in all draws together."""
        return len(self.draw)

    @property
    def east(self) -> Array:
        """Offsets to the east, float64 (n,), rad."""
        return self.values["east"]

    @property
    def north(self) -> Array:
        """Offsets to the north, float64 (n,), rad."""
        return self.values["north"]

    @property
    def flux(self) -> Array:
        """Flux densities in Stokes I, float64 (n,), Jy."""
        return self.values["I"]

    @cached_property
    def number(self) -> NDArray[np.int64]:
        """Sources in each draw, int64 (n_draw,)."""
        return np.bincount(self.draw, minlength=self.n_draw).astype(np.int64)

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """Index of the first source of each draw, and of the end, int64 (n_draw + 1,)."""
        return np.concatenate([[0], np.cumsum(self.number)]).astype(np.int64)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything as arrays, for a file of NumPy; `from_arrays` reads them back."""
        head: dict[str, NDArray[Any]] = {
            "name": np.array(self.name),
            "types": np.array(self.types, dtype=str),
        }
        head |= {"n_draw": np.array(self.n_draw), "draw": self.draw, "kind": self.kind}
        return head | {_VALUE + key: array for key, array in self.values.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> SourceDraws:
        """The draws from what `to_arrays` gave.

        Raises
        ------
        InputError
            They do not belong together.
        """
        found = {key.removeprefix(_VALUE): arrays[key] for key in arrays if key.startswith(_VALUE)}
        return cls(
            name=texts(arrays["name"].reshape(1))[0],
            types=texts(arrays["types"]),
            n_draw=int(arrays["n_draw"]),
            draw=arrays["draw"].astype(np.int64),
            kind=arrays["kind"].astype(np.int8),
            values={key: array.astype(np.float64) for key, array in found.items()},
        )
