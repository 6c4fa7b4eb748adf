"""Products with J, the derivatives of visibilities with respect to sources: J v, J^H W r, J^H W J."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rime_kernels import check
from rime_kernels.arrays import Rows, Sources
from rime_kernels.errors import InputError
from rime_kernels.gradient import Gradient, gradient_of
from rime_kernels.inputs import Output
from rime_kernels.tangent import Fixed, information, tangents

if TYPE_CHECKING:
    from rime_kernels.rime import Engine

# Of columns of J, which the Fisher information is made of at a time.
_COLUMN_BYTES = 128 << 20


class Products:
    """The part of `Rime` that multiplies by J.

    A change v of sources has the form of a `Gradient`: an array for each of theirs. The changes of Q, U
    and V count where `Sources.polarised` is True.
    """

    rows: Rows
    _engine: Engine
    _fixed: Fixed
    _weight: NDArray[np.floating] | None
    _lock: threading.Lock

    def tangent(self, sources: Sources, change: Gradient) -> NDArray[np.complex128]:
        """J v: how the visibilities change with the sources, to first order and exactly.

        Worked out on the CPU in double precision, whatever the backend.

        Parameters
        ----------
        sources : Sources
        change : Gradient
            v, a change of each array of the sources, (n_change, ...); None stands for none.

        Returns
        -------
        complex128 (n_change, n_row, n_chan, n_corr), Jy
            Each change goes with its entry of the batch or, if that is a batch of one, with this.

        Raises
        ------
        InputError
            As `Rime.predict`; or changes that are not shaped as the sources are.
        """
        self._refuse_impossible(sources)
        with self._lock:
            return tangents(self._fixed, sources, change)

    def adjoint(self, sources: Sources, residual: ArrayLike) -> Gradient:
        """Re(J^H W r): the sum of Re(conj(J v) w r) over samples is that of v times it over arrays.

        Half the gradient of chi2 where V - D is r. Data are replaced for the time of the call: on a
        device they are sent there anew, and once more for the next chi2.

        Parameters
        ----------
        sources : Sources
        residual : complex (n_batch, n_row, n_chan, n_corr), Jy
            r; where the weight is 0 it may be anything.

        Returns
        -------
        Gradient

        Raises
        ------
        InputError
            As `Rime.predict`; no weights were given, or r has another shape.
        """
        self._need("adjoint", weight=True)
        assert self._weight is not None
        sizes = {"batch": sources.n_batch, "row": self.rows.n_row}
        sizes |= {"chan": self.rows.n_chan, "corr": self.rows.n_corr}
        given = check.array("residual", residual, np.complex128, ("batch", "row", "chan", "corr"), sizes)
        given = np.where(self._weight > 0.0, given, 0.0)
        model = self._visibilities(sources, Output.VIS)
        if not sources.n_batch:
            raise InputError("adjoint needs at least one list of sources, got an empty batch")
        parts = [self._adjoint_of(sources.entries(b, b + 1), model[b], r) for b, r in enumerate(given)]
        return Gradient.joined(parts)

    def _adjoint_of(
        self, sources: Sources, model: NDArray[Any], residual: NDArray[np.complex128]
    ) -> Gradient:
        """Half the gradient of chi2 for data from which the model differs by a multiple of the residual."""
        largest = np.abs(residual).max()
        # As large as the model, or rounding of the difference would show.
        scale = float(np.abs(model).max() / largest) if largest > 0.0 else 1.0
        scale = scale if scale > 0.0 else 1.0
        with self._lock:
            found = self._engine.chi2_and_adjoint(sources, None, model - scale * residual)
        fixed = self._fixed
        gradient = gradient_of(found, sources, fixed.frame, fixed.template_lm)
        return gradient.times(0.5 / scale)

    def information(self, sources: Sources, change: Gradient) -> NDArray[np.float64]:
        """Re(J^H W J) between some changes of the sources: their Fisher information.

        Columns of J are made and multiplied for some rows at a time, on the CPU in double precision,
        whatever the backend.

        Parameters
        ----------
        sources : Sources
            A batch of one.
        change : Gradient
            As for `tangent`.

        Returns
        -------
        float64 (n_change, n_change)

        Raises
        ------
        InputError
            As `tangent`; no weights were given, or a batch of several.
        """
        self._need("information", weight=True)
        self._refuse_impossible(sources)
        if sources.n_batch != 1:
            raise InputError(f"information is that about one list of sources, got {sources.n_batch} lists")
        assert self._weight is not None
        with self._lock:
            return information(self._fixed, self._weight, sources, change, _COLUMN_BYTES)

    def _need(self, call: str, *, weight: bool) -> None:
        raise NotImplementedError

    def _refuse_impossible(self, sources: Sources) -> None:
        raise NotImplementedError

    def _visibilities(self, sources: Sources, output: Output) -> NDArray[Any]:
        raise NotImplementedError
