"""Make the arrays of frozen dataclasses read-only, also after they were pickled."""

from __future__ import annotations

from dataclasses import fields
from functools import partial

import numpy as np


def freeze_arrays(holder: object) -> None:
    """Make every array of a frozen dataclass read-only.

    Each array is replaced by a read-only view, so that the array of whoever made the object stays as it was.
    """
    for item in fields(holder):  # type: ignore[arg-type]
        value = getattr(holder, item.name)
        if isinstance(value, np.ndarray):
            view = value.view()
            view.flags.writeable = False
            object.__setattr__(holder, item.name, view)


def reduce_to_fields(holder: object, **changed: object) -> tuple[partial[object], tuple[()]]:
    """What `__reduce__` of a frozen dataclass returns, so that unpickling runs its constructor again.

    Without it the arrays of an unpickled object could be written to: pickle does not keep the flag.

    Parameters
    ----------
    holder : object
        Instance of a dataclass.
    **changed
        Fields to pass to the constructor in place of what the object holds, where pickle cannot take that.
    """
    values = {item.name: getattr(holder, item.name) for item in fields(holder)}  # type: ignore[arg-type]
    return partial(type(holder), **(values | changed)), ()
