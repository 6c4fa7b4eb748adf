"""The parameters of the kernels' profiles as a function of the values, with derivatives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.shapes.parts import CUSTOM, HIGH_MRING, N_PARAMETER, SourceSlots
from biro.models.bound.si_values import IndexedValues, SIValues
from biro.models.bound.slots import ZERO
from biro.models.errors import ModelError

Array = NDArray[np.float64]
# Codes from here on are those of a user's own: `rime_kernels.physics.profiles`, which needs Numba.
FIRST_REGISTERED = 1000
_N_TERM = 2
_BLUR = 7
_FIRST = 6  # the first order of the higher ones along a ring


class ProfileTables:
    """Index tables of the profiles of a sky.

    Attributes
    ----------
    kind : int32 (n_profile,)
        Codes of `rime_kernels.physics.profiles`.
    slot : int (n_profile, 8, 2); factor : float64, alike; constant : float64 (n_profile, 8)
        Each parameter is a constant and a sum of multiples of two slots.
    shape : int (n_profile, 3)
        Slots of the size, of the second axis, and of pa.
    turned : int (n,)
        Those whose coefficients count angles from north, and which have a pa; `orders` (n, 3) are theirs.
    blurred : int (n,)
        Those that are convolved with a Gaussian.
    """

    def __init__(self, parts: Sequence[SourceSlots]) -> None:
        n = len(parts)
        self.slot = np.full((n, N_PARAMETER, _N_TERM), ZERO, dtype=np.int64)
        self.factor = np.zeros((n, N_PARAMETER, _N_TERM))
        self.constant = np.array([[c.constant for c in p.numbers] for p in parts]).reshape(n, N_PARAMETER)
        for i, part in enumerate(parts):
            for k, combination in enumerate(part.numbers):
                for j, (factor, slot) in enumerate(combination.terms):
                    self.slot[i, k, j], self.factor[i, k, j] = slot, factor
        self.shape = np.array([part.shape for part in parts], dtype=np.int64).reshape(n, 3)
        kinds = ("m-ring", HIGH_MRING)
        is_ring = np.array([part.kind in kinds and part.turns for part in parts], dtype=bool)
        self.turned = np.flatnonzero(is_ring)
        first = np.array(
            [
                int(part.numbers[_FIRST].constant) if part.kind == HIGH_MRING else 1
                for part, turns in zip(parts, is_ring, strict=True)
                if turns
            ],
            dtype=np.int64,
        )
        self.orders = first[:, None] + np.arange(3)
        has_blur = [not part.kind.startswith(CUSTOM) for part in parts]
        self.blurred = np.flatnonzero((self.slot[:, _BLUR, 0] != ZERO) & np.array(has_blur, dtype=bool))
        self.kind = _codes(parts)


def _codes(parts: Sequence[SourceSlots]) -> NDArray[np.int32]:
    return np.array([_code(part.kind) for part in parts], dtype=np.int32)


def _code(kind: str) -> int:
    """The code of the kernels; their modules import Numba, which a model without profiles does not need."""
    if kind.startswith(CUSTOM):
        from rime_kernels.physics.registered import registered_profile

        found = registered_profile(kind.removeprefix(CUSTOM))
        if found is None:
            raise ModelError(f"profile {kind.removeprefix(CUSTOM)!r} is not registered in this process")
        return found.code
    from rime_kernels.physics.profiles import CODES

    return CODES[kind]


class SourceProfiles:
    """`Sources.profile`, float64 (n_batch, n_profile, 8).

    Sums of multiples of values; then beta_m e^(i m pa) of turned m-rings, and blur / size.
    """

    def __init__(self, tables: ProfileTables, values: SIValues) -> None:
        self._tables = tables
        self._terms, self._shape = IndexedValues(values, tables.slot), IndexedValues(values, tables.shape)

    def __call__(self, values: Array) -> Array:
        found: Array = self._sums(values) + self._tables.constant
        shape = self._shape(values)
        self._turn(found, shape, 1.0)
        self._blur(found, shape)
        return found

    def _sums(self, values: Array) -> Array:
        return np.asarray(np.sum(self._terms(values) * self._tables.factor, axis=-1))

    def _betas(self, array: Array) -> NDArray[np.complex128]:
        """Three coefficients beta_m of each m-ring that is turned, (n_batch, n, 3)."""
        pairs = array[:, self._tables.turned, :6]
        return np.asarray(pairs[..., 0::2] + 1j * pairs[..., 1::2])

    def _put_betas(self, array: Array, betas: NDArray[np.complex128]) -> None:
        rows = self._tables.turned
        array[:, rows, 0:6:2], array[:, rows, 1:6:2] = betas.real, betas.imag

    def _turn(self, array: Array, shape: Array, sign: float) -> None:
        if self._tables.turned.size:
            pa = shape[:, self._tables.turned, 2]
            turn = np.exp(sign * 1j * pa[..., None] * self._tables.orders)
            self._put_betas(array, self._betas(array) * turn)

    def _blur(self, array: Array, shape: Array) -> None:
        rows = self._tables.blurred
        if rows.size:
            with np.errstate(divide="ignore", invalid="ignore"):  # theta outside of the prior
                array[:, rows, _BLUR] /= shape[:, rows, 0]

    def push_forward(self, values: Array, changes: Array) -> Array:
        """With d(beta e^(i m pa)) = e^(i m pa) (d beta + i m beta d pa), and d of blur over size."""
        found, shape, moves = self._sums(changes), self._shape(values), self._shape(changes)
        now = self(values)
        self._turn(found, shape, 1.0)
        if self._tables.turned.size:
            by_pa = 1j * self._tables.orders * self._betas(now) * moves[:, self._tables.turned, 2, None]
            self._put_betas(found, self._betas(found) + by_pa)
        self._blur(found, shape)
        rows = self._tables.blurred
        found[:, rows, _BLUR] -= now[:, rows, _BLUR] * moves[:, rows, 0] / shape[:, rows, 0]
        return found

    def pull_back(self, values: Array, slopes: Array, into: Array) -> None:
        """The adjoint of that."""
        slopes, now, shape = slopes.copy(), self(values), self._shape(values)
        of_shape = np.zeros(shape.shape)
        rows = self._tables.turned
        if rows.size:
            by_pa = (np.conj(self._betas(slopes)) * 1j * self._tables.orders * self._betas(now)).real
            of_shape[:, rows, 2] += by_pa.sum(axis=-1)
            self._turn(slopes, shape, -1.0)
        rows = self._tables.blurred
        of_shape[:, rows, 0] -= slopes[:, rows, _BLUR] * now[:, rows, _BLUR] / shape[:, rows, 0]
        self._blur(slopes, shape)
        self._shape.pull_back(values, of_shape, into)
        self._terms.pull_back(values, slopes[..., None] * self._tables.factor, into)
