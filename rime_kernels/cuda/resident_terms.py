"""Jones matrices of the antennas that stay on the device from call to call."""

from __future__ import annotations

from typing import Any

import numpy as np

from rime_kernels import device
from rime_kernels.arrays import AntennaTerms
from rime_kernels.compile.types import DeviceArray
from rime_kernels.inputs import jones_rows


def is_device_resident(terms: AntennaTerms | None) -> bool:
    """Whether the matrices cannot change: the same for all entries, in an array that cannot be written to."""
    return terms is not None and len(terms.jones) == 1 and _is_frozen(terms.jones)


class ResidentTerms:
    """The last matrices that stay, as kernels read them: `inputs.jones_rows`, uploaded once."""

    def __init__(self) -> None:
        self._terms: AntennaTerms | None = None
        self._rows: DeviceArray = None

    def of(self, terms: AntennaTerms) -> tuple[DeviceArray, bool]:
        """The matrices on the device, and whether they have just come in the place of others."""
        if self.has(terms):
            return self._rows, False
        had = self._terms is not None
        self._terms = self._rows = None
        self._rows = device.upload(jones_rows(terms))
        self._terms = terms
        return self._rows, had

    def has(self, terms: AntennaTerms) -> bool:
        """Whether these matrices are on the device."""
        return self._terms is not None and _are_same(self._terms, terms)


def _are_same(one: AntennaTerms, other: AntennaTerms) -> bool:
    return (
        one.jones is other.jones
        and np.array_equal(one.time_block, other.time_block)
        and np.array_equal(one.chan_block, other.chan_block)
    )


def _is_frozen(values: Any) -> bool:
    """Whether neither the array nor what it is a view of can be written to."""
    while isinstance(values, np.ndarray):
        if values.flags.writeable:
            return False
        values = values.base
    return values is None
