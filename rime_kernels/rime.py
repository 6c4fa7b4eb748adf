"""The RIME as a call: sources in; visibilities, residuals, chi2 or its gradient out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rime_kernels import check, device
from rime_kernels import given as _given
from rime_kernels.adjoint import Adjoint
from rime_kernels.arrays import Rows, Sources
from rime_kernels.device import Backend
from rime_kernels.errors import InputError
from rime_kernels.geometry import Form, Precision, row_table, solve_antennas
from rime_kernels.gradient import Gradient, gradient_of
from rime_kernels.inputs import Output, check_axes, constants
from rime_kernels.physics.envelope import GaussianFrame
from rime_kernels.products import Products
from rime_kernels.tangent import Fixed

# Numba's workqueue layer aborts when two threads run parallel loops, and a device has one workspace.
_LOCK = threading.Lock()

# Of derivatives with respect to brightnesses at each channel, which an engine hands over at a time.
_ADJOINT_BYTES = 256 << 20


class Engine(Protocol):
    """What works for a `Rime` on the CPU or on a device."""

    def run(self, sources: Sources, output: Output) -> NDArray[Any]: ...

    def start_chi2(
        self, sources: Sources, turnover: NDArray[np.float64] | None
    ) -> Callable[[], NDArray[np.float64]]: ...

    def chi2_and_adjoint(
        self, sources: Sources, turnover: NDArray[np.float64] | None, vis: NDArray[Any] | None = None
    ) -> Adjoint: ...  # `vis` in place of the data

    def plan(self, sources: Sources) -> str: ...


class Rime(Products):
    """Visibilities of a batch of source lists at fixed rows, and their distance from data.

        V_pq = sum over sources of E_p E_q K_pq envelope_pq B  +  sum over templates of a_t T_t,pq

    (physics: sections 2 to 6; templates are visibilities worked out elsewhere, such as those of an image).

    Rows and data are prepared once (and uploaded once); each call takes the parameters alone.
    Calls from several Python threads are safe, one runs at a time. Results do not depend on the
    number of threads, and repeat to the bit.

    Parameters
    ----------
    rows : Rows
    vis : complex (n_row, n_chan, n_corr), Jy, optional
        Data; needed by all but `predict`. Where the weight is 0 they may be anything.
    weight : float (n_row, n_chan, n_corr), 1/Jy^2, optional
        1/sigma^2 of the real and of the imaginary part; 0 for what does not count.
    template : complex (n_template, n_row, n_chan, n_corr), Jy, optional
        Visibilities T whose factors a are `Sources.template_scale`.
    template_lm : float (n_template, 2), optional
        Direction cosines of the centre of each, needed where `Sources.template_shift` moves them: by the
        phase by which a point there moves, which neglects how w turns what lies far from it.
        Default: the phase centre.
    backend : "auto", "cpu" or "cuda"
    precision : "double" or "single"
        Of everything but the phases, which are float64 until whole turns are off.
    form : "auto", "factored" or "row"
        Phases from antenna terms, or from each row's own uvw; "auto" takes the factored form where
        the closure of the uvw allows it (`geometry.choose_form`).
    gaussian_frame : "tangent" or "uv"
        (u', v') of Gaussian sources (physics: section 5).
    extent : float
        Largest |l| and |m| that the sources will take; decides the form.
    memory_limit : int or str, optional
        Bytes, or text such as "8 GB", that data and work may take on the device (on the CPU, the work
        of one pass). Data that do not fit stay in the host's memory and are streamed; without a
        limit, most of what is free on the device.

    Attributes
    ----------
    backend : "cpu" or "cuda"
    form : "factored" or "row"
    reason : str
        Why this backend and this form.
    precision : "double" or "single"
    closure : float64 (3,), m
        Closure residual of u, v, w (`geometry.solve_antennas`).

    Raises
    ------
    InputError
        A shape, word or value that cannot be meant.
    BackendError
        `backend="cuda"` without a device.
    """

    def __init__(
        self,
        rows: Rows,
        *,
        vis: ArrayLike | None = None,
        weight: ArrayLike | None = None,
        template: ArrayLike | None = None,
        template_lm: ArrayLike | None = None,
        backend: Backend = "auto",
        precision: Precision = "double",
        form: Form | str = "auto",
        gaussian_frame: GaussianFrame = "tangent",
        extent: float,
        memory_limit: int | str | None = None,
    ) -> None:
        check.one_of("precision", precision, ("single", "double"))
        check.one_of("gaussian_frame", gaussian_frame, ("tangent", "uv"))
        self.rows, self.precision = rows, precision
        self._has_vis, self._has_weight = vis is not None, weight is not None
        templates = _given.templates_of(rows, template, template_lm)
        self._n_template, self._template_lm, self._frame = len(templates[0]), templates[1], gaussian_frame
        data = _given.data_of(rows, vis, weight)
        self.backend, backend_reason = device.resolve(backend)
        geometry = solve_antennas(rows)
        self.closure = geometry.closure
        self.form, form_reason = _given.form_of(rows, geometry, form, extent, precision)
        self.reason = f"{backend_reason}; {form_reason}"
        antenna_uvw = geometry.uvw if self.form == "factored" else None
        self._fixed, self._lock = Fixed(rows, antenna_uvw, *templates, gaussian_frame), _LOCK
        self._weight = data[1] if data is not None else None
        table, single = row_table(rows), precision == "single"
        fixed = constants(rows, table, geometry.uvw, data, templates, single)
        self._engine: Engine = _engine(self.backend)(
            fixed,
            table,
            single=single,
            factored=self.form == "factored",
            frame=gaussian_frame,
            memory_limit=None if memory_limit is None else check.n_byte("memory_limit", memory_limit),
        )

    def predict(self, sources: Sources) -> NDArray[np.complexfloating]:
        """Model visibilities.

        Parameters
        ----------
        sources : Sources

        Returns
        -------
        complex128, or complex64 in single precision (n_batch, n_row, n_chan, n_corr), Jy

        Raises
        ------
        InputError
            Impossible values (`Sources.impossible`), or axes that are not those of the rows.
        """
        return self._visibilities(sources, Output.VIS)

    def residual(self, sources: Sources) -> NDArray[np.complexfloating]:
        """Model minus data, V - D; as `predict` otherwise."""
        self._need("residual", weight=False)
        return self._visibilities(sources, Output.RESIDUAL)

    def weighted_residual2(self, sources: Sources) -> NDArray[np.float64]:
        """w |V - D|^2 of each sample, float64 (n_batch, n_row, n_chan, n_corr); as `predict` otherwise."""
        self._need("weighted_residual2", weight=True)
        return self._visibilities(sources, Output.WEIGHTED)

    def chi2(self, sources: Sources, turnover: ArrayLike | None = None) -> NDArray[np.float64]:
        """chi2 = sum w |D - V|^2 over the samples (physics: section 7).

        With a turnover t, what outliers add grows as a logarithm:

            chi2 = sum t ln(1 + w |D - V|^2 / t)

        For t = nu s^2 and N samples the log-likelihood of Student's t with nu degrees of freedom, in two
        dimensions, of each complex sample, and of a noise factor s, is

            -(1 + 2/nu) chi2 / (2 s^2) - N ln(2 pi) + sum ln w - 2 N ln s

        Parameters
        ----------
        sources : Sources
        turnover : float64 (n_batch,), optional
            Above 0.

        Returns
        -------
        float64 (n_batch,)
            NaN for entries with a NaN or with impossible values (`Sources.impossible`, no finite turnover
            above 0); the others are what they would be alone.

        Raises
        ------
        InputError
            No data or weights were given, or axes are not those of the rows.
        """
        return chi2_together([self], [sources], [turnover])[0]

    def chi2_and_gradient(
        self, sources: Sources, turnover: ArrayLike | None = None
    ) -> tuple[NDArray[np.float64], Gradient]:
        """chi2 as `chi2`, and its derivatives with respect to all of `sources`, and to the turnover.

        Parameters
        ----------
        sources : Sources
        turnover : float64 (n_batch,), optional

        Returns
        -------
        float64 (n_batch,)
        Gradient
            NaN where chi2 is.

        Raises
        ------
        InputError
            As `chi2`.
        """
        return chi2_and_gradient_together([self], [sources], [turnover])[0]

    def plan(self, sources: Sources) -> str:
        """How `chi2` of sources like these would be worked out, in words: kernel, memory, slabs, batch."""
        self._need("a plan", weight=True)
        check_axes(self.rows, self._n_template, sources)
        with _LOCK:
            return f"{self.reason}; {self._engine.plan(sources)}"

    def _need(self, call: str, *, weight: bool) -> None:
        if not self._has_vis or (weight and not self._has_weight):
            wanted = "vis and weight" if weight else "vis"
            raise InputError(f"{call} needs data: give Rime(..., {wanted}=...)")

    def _visibilities(self, sources: Sources, output: Output) -> NDArray[Any]:
        self._refuse_impossible(sources)
        with _LOCK:
            return self._engine.run(sources, output)

    def _refuse_impossible(self, sources: Sources) -> None:
        check_axes(self.rows, self._n_template, sources)
        impossible = np.flatnonzero(sources.impossible())
        if impossible.size:
            largest = float(np.sum(sources.lm**2, axis=-1).max())
            raise InputError(
                f"batch entry {impossible[0]} cannot be meant: l^2 + m^2 must be at most 1 (largest: "
                f"{largest:g}), FWHM axes and the scale of the beam at least 0"
            )

    def _start_chi2(
        self, sources: Sources, turnover: NDArray[np.float64] | None = None
    ) -> Callable[[], NDArray[np.float64]]:
        self._need("chi2", weight=True)
        check_axes(self.rows, self._n_template, sources)
        return self._engine.start_chi2(sources, turnover)

    def _chi2_and_gradient(
        self, sources: Sources, given: ArrayLike | None
    ) -> tuple[NDArray[np.float64], Gradient]:
        self._need("chi2_and_gradient", weight=True)
        check_axes(self.rows, self._n_template, sources)
        turnover = _given.turnover_of(sources, given)
        chi2, gradients = [], []
        bytes_each = 32 * self.rows.n_chan * max(1, sources.n_source) * sources.stokes.shape[1]
        step = max(1, _ADJOINT_BYTES // bytes_each)
        for start in range(0, max(1, sources.n_batch), step):
            part = sources if step >= sources.n_batch else sources.entries(start, start + step)
            turn = None if turnover is None else turnover[start : start + step]
            with _LOCK:
                adjoint = self._engine.chi2_and_adjoint(part, turn)
            chi2.append(
                np.where(part.impossible(), np.nan, adjoint.chi2 if turn is None else turn * adjoint.chi2)
            )
            gradient = gradient_of(adjoint, part, self._frame, self._template_lm)
            if turn is not None:  # y = w |D - V|^2 / t: of sum t ln(1 + y), with sum y/(1 + y)
                gradient = replace(gradient, turnover=adjoint.chi2 - 0.5 * adjoint.template[:, -1, 0])
            gradients.append(gradient)
            gradients[-1].spoil(np.isnan(chi2[-1]))
        return np.concatenate(chi2), Gradient.joined(gradients)


def chi2_together(
    rimes: Sequence[Rime], sources: Iterable[Sources], turnovers: Iterable[ArrayLike | None] | None = None
) -> list[NDArray[np.float64]]:
    """`Rime.chi2` of several, all begun before the first is waited for.

    Parameters
    ----------
    rimes : sequence of Rime
    sources : iterable of Sources, one for each
    turnovers : iterable of float64 (n_batch,) or None, one for each, optional

    Returns
    -------
    list of float64 (n_batch,)

    Raises
    ------
    InputError
        As `Rime.chi2`.
    """
    with _LOCK:
        begun = []
        try:
            for rime, each, given in zip(rimes, sources, turnovers or [None] * len(rimes), strict=True):
                turnover = _given.turnover_of(each, given)
                begun.append((rime._start_chi2(each, turnover), each.impossible(), turnover))
        finally:
            found = [(finish(), impossible, turnover) for finish, impossible, turnover in begun]
    for chi2, impossible, turnover in found:
        if turnover is not None:
            chi2 *= turnover
        chi2[impossible] = np.nan
    return [chi2 for chi2, _, _ in found]


def chi2_and_gradient_together(
    rimes: Sequence[Rime], sources: Iterable[Sources], turnovers: Iterable[ArrayLike | None] | None = None
) -> list[tuple[NDArray[np.float64], Gradient]]:
    """`Rime.chi2_and_gradient` of several.

    Parameters
    ----------
    rimes : sequence of Rime
    sources : iterable of Sources, one for each
    turnovers : iterable of float64 (n_batch,) or None, one for each, optional

    Returns
    -------
    list of (float64 (n_batch,), Gradient)

    Raises
    ------
    InputError
        As `Rime.chi2_and_gradient`.
    """
    together = zip(rimes, sources, turnovers or [None] * len(rimes), strict=True)
    return [rime._chi2_and_gradient(each, turnover) for rime, each, turnover in together]


def _engine(backend: str) -> Any:
    if backend == "cpu":
        from rime_kernels.cpu import engine

        return engine.Engine
    from rime_kernels.cuda import engine as engine_cuda

    return engine_cuda.Engine
