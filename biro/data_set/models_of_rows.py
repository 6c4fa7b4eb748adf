"""Check that model visibilities can be written where an observation was read, before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.observation.observation import Observation
from biro.observation.partition import Partition

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
            f"cannot write {what} from the joined data of {', '.join(observation.set_names)}: read each "
            "set by itself"
        )
    if observation.averaged is not None:
        raise InputError(f"cannot write {what} from averaged data: read the set again without averaging")
    lacks_stored = [part.corr_id is not None and not part.corr_id.size for part in observation.partitions]
    if observation.formed is not None or any(lacks_stored):
        raise InputError(
            f"cannot write {what} from Stokes parameters that were formed while reading: read the set again "
            "with allow_unusable=True and without stokes="
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
    partitions: Sequence[Partition], models: Iterable[NDArray[np.generic]]
) -> Iterator[tuple[Partition, NDArray[np.complexfloating]]]:
    """Each partition with its model, which is asked for only when the one before was taken.

    Raises
    ------
    InputError
        More or fewer models than partitions; one of wrong shape, kind, or with values that are not finite.
    """
    remaining = iter(models)
    for number, part in enumerate(partitions):
        model = next(remaining, None)
        if model is None:
            raise InputError(f"models has {number} arrays for {len(partitions)} partitions")
        yield part, _checked(model, part, number)
    if next(remaining, None) is not None:
        raise InputError(f"models has more arrays than the {len(partitions)} partitions")


def _checked(model: NDArray[np.generic], part: Partition, number: int) -> NDArray[np.complexfloating]:
    model = np.asarray(model)
    if model.shape != part.vis.shape:
        raise InputError(
            f"model {number} must have shape {part.vis.shape} (row, chan, corr), got {model.shape}"
        )
    if not np.iscomplexobj(model):
        raise InputError(f"model {number} must be complex, got {model.dtype}")
    if not np.isfinite(model).all():
        raise InputError(f"model {number} has values that are not finite; nothing of it was written")
    return cast(NDArray[np.complexfloating], model)
