"""Check that model visibilities can be written where an observation was read, before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from biro.distributed.remote_data import Model, RemoteArray
from biro.errors import InputError
from biro.observation.observation import Observation
from biro.observation.partition import Partition

BLOCK_VISIBILITIES = 1 << 21
"""Visibilities that are written at a time."""
Mode = Literal["replace", "add", "subtract"]


def check_as_stored(observation: Observation, what: str) -> None:
    """Refuse an observation whose visibilities are not those of one data set as they are stored.

    Parameters
    ----------
    observation : Observation
    what : str
        What is to be written: "a column".

    Raises
    ------
    InputError
        It is joined, averaged, or of Stokes parameters that were formed while reading.
    """
    if observation.set_names:
        raise InputError(
            f"cannot write {what} from the joined data of {', '.join(observation.set_names)}; read each "
            "set on its own"
        )
    if observation.averaged is not None:
        raise InputError(f"cannot write {what} from averaged data; read the set again without averaging")
    lacks_stored = [part.corr_id is not None and not part.corr_id.size for part in observation.partitions]
    if observation.formed is not None or any(lacks_stored):
        raise InputError(
            f"cannot write {what} from Stokes parameters that were formed while reading; read the set "
            "again with allow_unusable=True and without stokes="
        )


def check_mode(mode: str) -> None:
    """Refuse a mode that is not known.

    Raises
    ------
    InputError
    """
    if mode not in ("replace", "add", "subtract"):
        raise InputError(f"mode must be 'replace', 'add' or 'subtract', got {mode!r}")


def checked_models(
    partitions: Sequence[Partition],
    models: Iterable[NDArray[np.generic] | RemoteArray],
    dtype: DTypeLike = np.complex128,
) -> Iterator[tuple[Partition, Model]]:
    """Each partition with its model, which is asked for only when the one before was taken.

    `dtype` is the type that stores them.

    Raises
    ------
    InputError
        More or fewer models than partitions; one of wrong shape, kind, or with values that are not finite or
        beyond `dtype`.
    """
    remaining = iter(models)
    for number, part in enumerate(partitions):
        model = next(remaining, None)
        if model is None:
            raise InputError(f"models has {number} arrays for {len(partitions)} partitions")
        yield part, _checked(model, part, number, dtype)
    if next(remaining, None) is not None:
        raise InputError(f"models has more arrays than the {len(partitions)} partitions")


def blocks_of_rows(part: Partition) -> Iterator[NDArray[np.int64]]:
    """Rows of a partition, in their order, a block of visibilities at a time."""
    step = max(1, BLOCK_VISIBILITIES // max(1, part.n_chan * part.n_corr))
    for start in range(0, part.n_row, step):
        yield np.arange(start, min(start + step, part.n_row))


def _checked(
    model: NDArray[np.generic] | RemoteArray, part: Partition, number: int, dtype: DTypeLike
) -> Model:
    if not isinstance(model, RemoteArray):
        model = np.asarray(model)
    if model.shape != part.vis.shape:
        raise InputError(
            f"model {number} must have shape {part.vis.shape} (row, chan, corr), got {model.shape}"
        )
    if not np.issubdtype(model.dtype, np.complexfloating):
        raise InputError(f"model {number} must be complex, got {model.dtype}")
    found = cast(Model, model)
    parts = found.by_block(_largest) if isinstance(found, RemoteArray) else [_largest(found)]
    largest = float(np.max(parts, initial=0.0))
    if not np.isfinite(largest):
        raise InputError(f"model {number} has values that are not finite; nothing of it was written")
    most = float(np.finfo(dtype).max)
    if largest > most:
        raise InputError(
            f"model {number} has visibilities of up to {largest:.3g} Jy, but the column stores "
            f"{np.dtype(dtype).name}, up to {most:.3g}; nothing of it was written. Check the flux densities "
            "of the model"
        )
    return found


def _largest(vis: NDArray[np.complexfloating]) -> float:
    """Largest modulus of a real or imaginary part; NaN where one is no number."""
    return float(np.max([np.abs(half).max(initial=0.0) for half in (vis.real, vis.imag)]))
