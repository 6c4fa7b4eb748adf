"""The gradient of chi2, and products with J, the derivatives of visibilities with respect to sources.

J v is the change of visibilities with a change v of the sources, J^H W r the way back, and J^H W J the Fisher
information.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rime_kernels.adjoint import Adjoint
from rime_kernels.arrays import Sources
from rime_kernels.compile.call_lock import CALL_LOCK
from rime_kernels.engine import Engine
from rime_kernels.engine.call_memo import memoised_within_call
from rime_kernels.engine.local_shards import ShardCall
from rime_kernels.engine.sharded import ShardedEngine
from rime_kernels.errors import InputError
from rime_kernels.gradient import Gradient, geometry_of, gradient_of
from rime_kernels.inputs import Output
from rime_kernels.tangent.columns import FixedInputs
from rime_kernels.tangent.grouped import GroupedInformation, grouped_information
from rime_kernels.tangent.information import information, tangents

# Bytes of the derivatives with respect to brightnesses at each channel, which an engine makes at a time.
ADJOINT_BYTES = 256 << 20
# Bytes of the columns of J that the Fisher information is made of at a time.
COLUMN_BYTES = 128 << 20


class Derivatives:
    """What the methods of `Rime` with the same names compute, for sources and arrays that have been checked.

    Parameters
    ----------
    fixed : FixedInputs
        Rows, templates, and how phases are made.
    engine : Engine
    weight : floating (n_row, n_chan, n_corr), 1/Jy^2, or None
        None where only J v is wanted.
    lock : context manager
        Held during a call.
    """

    def __init__(
        self,
        fixed: FixedInputs,
        engine: Engine,
        weight: NDArray[np.floating] | None,
        lock: AbstractContextManager[object] = CALL_LOCK,
    ) -> None:
        self._fixed, self._engine, self._weight, self._lock = fixed, engine, weight, lock

    def chi2_and_gradient(
        self, sources: Sources, t: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.float64], Gradient]:
        """chi2 (n_batch,) and its gradient, NaN where values are impossible; t is that of `Rime.chi2`."""
        n_chan, n_time = self._fixed.rows.n_chan, sources.stokes.shape[1]
        step = max(1, ADJOINT_BYTES // (32 * n_chan * max(1, sources.n_source) * n_time))
        if step >= sources.n_batch:
            return self._chi2_and_gradient(sources, t)
        starts = range(0, sources.n_batch, step)
        parts = [
            self._chi2_and_gradient(sources.entries(b, b + step), None if t is None else t[b : b + step])
            for b in starts
        ]
        return np.concatenate([chi2 for chi2, _ in parts]), Gradient.joined([part for _, part in parts])

    def _chi2_and_gradient(
        self, sources: Sources, t: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.float64], Gradient]:
        """chi2 and its gradient for a batch that is small enough to be worked out at once."""
        with self._lock:
            adjoint = self._engine.start_adjoint(sources, t)()
        chi2 = np.where(sources.invalid(), np.nan, adjoint.chi2 if t is None else t * adjoint.chi2)
        frame = self._fixed.frame
        geometry = memoised_within_call("geometry", (sources,), lambda: geometry_of(sources, frame), frame)
        gradient = gradient_of(adjoint, sources, frame, self._fixed.template_lm, geometry)
        if t is not None:
            # d/dt of sum t ln(1 + y), y = w |D - V|^2 / t, is sum ln(1 + y) - sum y / (1 + y).
            gradient = replace(gradient, scaled_dof=adjoint.chi2 - 0.5 * adjoint.template[:, -1, 0])
        is_nan = np.isnan(chi2)
        if is_nan.any():
            gradient.set_nan(is_nan)
        return chi2, gradient

    def tangent(self, sources: Sources, change: Gradient) -> NDArray[np.complex128]:
        """J v, complex128 (n_change, n_row, n_chan, n_corr)."""
        with self._lock:
            return tangents(self._fixed, sources, change)

    def information_product(self, sources: Sources, change: Gradient) -> Gradient:
        """Re(J^H W J v) for one change v."""
        return self.adjoint(sources, self.tangent(sources, change))

    def adjoint(self, sources: Sources, residual: NDArray[np.complex128]) -> Gradient:
        """Re(J^H W r) of a residual (n_batch, n_row, n_chan, n_corr)."""
        residual = np.where(self._checked_weight() > 0.0, residual, 0.0)
        with self._lock:
            model = self._engine.run(sources, Output.VIS)
        parts = [self._adjoint(sources.entries(b, b + 1), model[b], r) for b, r in enumerate(residual)]
        return Gradient.joined(parts)

    def _adjoint(
        self, sources: Sources, model: NDArray[np.complexfloating], residual: NDArray[np.complex128]
    ) -> Gradient:
        """Half the gradient of chi2 for data from which the model differs by a multiple of the residual."""
        largest = np.abs(residual).max()
        # The multiple is as large as the model, or the difference of model and data would lose digits.
        scale = float(np.abs(model).max() / largest) if largest > 0.0 else 1.0
        scale = scale if scale > 0.0 else 1.0
        with self._lock:
            adjoint = self._engine.start_adjoint(sources, None, model - scale * residual)()
        gradient = gradient_of(adjoint, sources, self._fixed.frame, self._fixed.template_lm)
        return gradient.times(0.5 / scale)

    def of_resident(self, sources: Sources, adjoint: Adjoint) -> Gradient:
        """Re(J^H W r) for what `ResidentVisibilities.adjoint` has in the place of V - D."""
        return gradient_of(adjoint, sources, self._fixed.frame, self._fixed.template_lm).times(0.5)

    def information(
        self, sources: Sources, change: Gradient, weight: NDArray[np.floating] | None
    ) -> NDArray[np.float64]:
        """Re(J^H W J), float64 (n_change, n_change); with the weights of the data where none are given."""
        if sources.n_batch != 1:
            raise InputError(f"information is that about one list of sources, got {sources.n_batch} lists")
        with self._lock:
            used = self._checked_weight() if weight is None else weight
            return information(self._fixed, used, sources, change, COLUMN_BYTES)

    def grouped_information(
        self,
        sources: Sources,
        change: Gradient,
        groups: NDArray[np.int64],
        n_inner: int,
        weight: NDArray[np.floating] | None,
    ) -> GroupedInformation:
        """The information of each group of rows; see `Rime.grouped_information`."""
        with self._lock:
            used = self._checked_weight() if weight is None else weight
            return grouped_information(self._fixed, used, sources, change, groups, n_inner, COLUMN_BYTES)

    def _checked_weight(self) -> NDArray[np.floating]:
        assert self._weight is not None, "Rime has checked that it has weights"
        return self._weight


class ShardedDerivatives(Derivatives):
    """Derivatives where shards have the data: the products of all shards are added in their order.

    Parameters
    ----------
    fixed : FixedInputs
    engine : ShardedEngine
    """

    def __init__(self, fixed: FixedInputs, engine: ShardedEngine) -> None:
        super().__init__(fixed, engine, None)
        self._shards = engine

    def information_product(self, sources: Sources, change: Gradient) -> Gradient:
        """Re(J^H W J v) for one change v."""
        return self._total(ShardCall("product", sources, change=change))

    def adjoint(self, sources: Sources, residual: NDArray[np.complex128]) -> Gradient:
        """Re(J^H W r) of a residual (n_batch, n_row, n_chan, n_corr)."""
        return self._total(ShardCall("product", sources), self._shards.of_shards(residual, 1))

    def information(
        self, sources: Sources, change: Gradient, weight: NDArray[np.floating] | None
    ) -> NDArray[np.float64]:
        """Re(J^H W J), float64 (n_change, n_change)."""
        own = None if weight is None else self._shards.of_shards(weight)
        return np.asarray(sum(self._by_shard(ShardCall("information", sources, change=change), own)))

    def grouped_information(
        self,
        sources: Sources,
        change: Gradient,
        groups: NDArray[np.int64],
        n_inner: int,
        weight: NDArray[np.floating] | None,
    ) -> GroupedInformation:
        """The information of each group of rows; see `Rime.grouped_information`."""
        of_rows, n_group = self._shards.of_shards(groups), int(groups.max(initial=-1)) + 1
        weights = [None] * len(of_rows) if weight is None else self._shards.of_shards(weight)
        call = ShardCall("grouped", sources, change=change, n_inner=n_inner)
        parts = self._by_shard(call, list(zip(of_rows, weights, strict=True)))
        n_outer = len(change.lm) - n_inner
        total = GroupedInformation(
            np.zeros((n_group, n_inner, n_inner)),
            np.zeros((n_group, n_inner, n_outer)),
            np.zeros((n_outer, n_outer)),
        )
        for part in parts:  # whose groups end with the last that it has a row of
            own = slice(len(part.diagonal))
            total.diagonal[own] += part.diagonal
            total.side[own] += part.side
            total.corner[...] += part.corner
        return total

    def _total(self, call: ShardCall, given: Sequence[Any] | None = None) -> Gradient:
        return reduce(Gradient.plus, self._by_shard(call, given))

    def _by_shard(self, call: ShardCall, given: Sequence[Any] | None = None) -> list[Any]:
        with self._lock:
            return self._shards.by_shard(call, given)
