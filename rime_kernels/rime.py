"""The measurement equation at fixed rows: visibilities, residuals, chi2 and derivatives of given sources."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rime_kernels import check, checked_inputs, device
from rime_kernels.arrays import Rows, Sources
from rime_kernels.arrays.row_cells import RowCells
from rime_kernels.choices import Backend, GaussianFrame, Precision
from rime_kernels.compile.call_lock import CALL_LOCK
from rime_kernels.deprecation import method_alias
from rime_kernels.derivatives import Derivatives, ShardedDerivatives
from rime_kernels.engine import Engine, Visibilities
from rime_kernels.engine.call_memo import call_memo
from rime_kernels.engine.device_threads import Devices, threads_of
from rime_kernels.engine.sharded import HeldData, OnShardDone, Ranks, ShardedEngine, ShardShares, Team
from rime_kernels.engine.smeared import Settings
from rime_kernels.errors import InputError
from rime_kernels.geometry import Form, row_table, solve_antennas
from rime_kernels.gradient import Gradient
from rime_kernels.inputs import Output, check_axes, constants
from rime_kernels.make_engine import make_engine
from rime_kernels.resident_model import ResidentModel
from rime_kernels.smearing.average import average_of
from rime_kernels.smearing.smearing import Smearing
from rime_kernels.tangent.columns import FixedInputs
from rime_kernels.tangent.grouped import GroupedInformation


class Rime:
    """Visibilities of a batch of source lists at fixed rows, and their distance from data.

        V_pq = sum over sources of E_p E_q K_pq envelope_pq B  +  sum over templates of a_t T_t,pq

    (physics: sections 2 to 6; templates are visibilities computed elsewhere, such as those of an image).
    Where `Sources.antenna_terms` has Jones matrices A, this is X_pq, and V_pq = A_p X_pq A_q^H.

    Rows and data are prepared once, and sent to a GPU once; each call takes the sources only.
    Several Python threads may call; one call runs at a time. Results do not depend on the
    number of threads, and repeat to the bit.

    Parameters
    ----------
    rows : Rows
    vis : complex (n_row, n_chan, n_corr), Jy, optional
        Data; needed by everything except `predict` and `tangent`. Any value may stand where the weight is 0.
    weight : float (n_row, n_chan, n_corr), 1/Jy^2, optional
        1/sigma^2 of the real and of the imaginary part; 0 where a sample is not to count.
    template : complex (n_template, n_row, n_chan, n_corr), Jy, optional
        Visibilities T whose factors a are `Sources.template_scale`.
    template_lm : float (n_template, 2), optional
        Direction cosines of the centre of each template. Where `Sources.template_shift` moves a template, its
        visibilities get the phase of a point that moves from this centre, an approximation for brightness
        far from the centre where w is large. Default: the phase centre.
    backend : "auto", "cpu" or "cuda"
    precision : "double" or "single"
        Of everything except phases, which are float64 until whole turns are subtracted.
    form : "auto", "factored" or "row"
        Phases from antenna terms, or from each row's own uvw; "auto" takes the factored form where
        the uvw of each time slot close well enough (`geometry.choose_form`).
    gaussian_frame : "tangent" or "uv"
        (u', v') of Gaussian sources (physics: section 5).
    extent : float
        Largest |l| and |m| that the sources will take; decides the form.
    smearing : Smearing, optional
        Visibilities are averages over integrations and channels. Without it they are those of the middle of
        each.
    memory_limit : int or str, optional
        Bytes, or text such as "8 GB", that data and workspace may take on the device (on the CPU, the
        workspace of one pass). Data that do not fit stay in the host's memory and are streamed.
        Default: most of what is free on the device.
    devices : "all", int or sequence of int, optional
        GPUs of one kind that share the rows, in shards of whole time slots that follow from the rows alone:
        all, the first so many, or those of these numbers. The result is the same to the bit for any number of
        them. `memory_limit` is that of each. Default: the one that is current, without shards.
    ranks : Ranks, optional
        Other processes that share the rows with this one, in the same shards; `devices` are those of each.
    held : HeldData, optional
        In place of `vis` and `weight`: each of the `ranks` holds those of its shards. With `ShardShares`,
        there are no data.
    folder : str, optional
        Data as they are computed with lie in files of this folder, which are mapped into memory, and gone
        with the `Rime`: for data that memory has no room for. Default: they are in memory.

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
        An array of another shape, an unknown word, or a value out of range; devices beside a CPU.
    BackendError
        `backend="cuda"` without a device; devices that are not there.
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
        smearing: Smearing | None = None,
        memory_limit: int | str | None = None,
        devices: Devices | None = None,
        ranks: Ranks | None = None,
        held: HeldData | None = None,
        folder: str | None = None,
    ) -> None:
        check.one_of("precision", precision, ("single", "double"))
        check.one_of("gaussian_frame", gaussian_frame, ("tangent", "uv"))
        self.rows, self.precision = rows, precision
        is_held = held is not None and not isinstance(held, ShardShares)
        self._has_vis, self._has_weight = (each is not None or is_held for each in (vis, weight))
        templates, self._template_lm = checked_inputs.templates_of(rows, template, template_lm)
        self._n_template, self._frame = len(templates), gaussian_frame
        data = checked_inputs.data_of(rows, vis, weight)
        self.backend, backend_reason = device.resolve(backend)
        geometry = solve_antennas(rows)
        self.closure = geometry.closure
        average = None if smearing is None else average_of(smearing, rows, extent)
        self.form, form_reason = checked_inputs.form_of(rows, geometry, form, extent, precision, average)
        self.reason = f"{backend_reason}; {form_reason}"
        factored, single = self.form == "factored", precision == "single"
        table = row_table(rows.time_index, rows.n_time)
        limit = None if memory_limit is None else check.n_byte("memory_limit", memory_limit)
        settings = Settings(single, factored, gaussian_frame, limit, folder)
        team = None if devices is None or ranks is not None else Team(threads_of(self.backend, devices))
        self.engine: Engine = make_engine(
            self.backend,
            team if ranks is None else ranks.team(backend, self.backend, devices),
            average,
            constants(rows, table, geometry.uvw, data, (templates, self._template_lm), single),
            table,
            settings,
            held,
        )
        fixed = FixedInputs(
            rows, geometry.uvw if factored else None, templates, self._template_lm, gaussian_frame, average
        )
        if isinstance(self.engine, ShardedEngine):
            self._derivatives: Derivatives = ShardedDerivatives(fixed, self.engine)
        else:
            self._derivatives = Derivatives(fixed, self.engine, data[1] if data is not None else None)

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
            Impossible values (`Sources.invalid`), or time or antenna axes other than those of the rows.
        """
        return self._run(sources, Output.VIS)

    def predict_some(
        self, sources: Sources, rows: NDArray[np.int64], channels: slice
    ) -> NDArray[np.complexfloating]:
        """`predict` of some rows, all different, and channels: (n_batch, n_some, n_chan taken, n_corr).

        Where other processes compute for rows, they send no others.
        """
        self._validate(sources)
        with CALL_LOCK:
            if isinstance(self.engine, ShardedEngine):
                return self.engine.run_some(sources, rows, channels)
            return self.engine.run(sources, Output.VIS)[:, :, channels][:, rows]

    def predict_sharded(self, sources: Sources, on_shard_done: OnShardDone) -> None:
        """`predict` where each process, and each device, keeps the visibilities of its shards.

        Parameters
        ----------
        sources : Sources
            A batch of one.
        on_shard_done : function of int and complex (1, n_row of the shard, n_chan, n_corr)
            Is called for each shard in the process that has computed it, with its number among the shards of
            that process. It can be sent to other processes, where there are some.

        Raises
        ------
        InputError
            As `predict`; or no devices or ranks were given.
        """
        self._validate(sources)
        if not isinstance(self.engine, ShardedEngine):
            raise InputError("predict_sharded needs devices or ranks that share the rows")
        with CALL_LOCK:
            self.engine.run_sharded(sources, on_shard_done)

    predict_apart = method_alias("Rime.predict_apart", predict_sharded)

    def residual(self, sources: Sources) -> NDArray[np.complexfloating]:
        """Model minus data, V - D; as `predict` otherwise."""
        if not self._has_vis:
            raise _no_data("residual", "vis")
        return self._run(sources, Output.RESIDUAL)

    def weighted_residual2(self, sources: Sources) -> NDArray[np.float64]:
        """w |V - D|^2 of each sample, float64 (n_batch, n_row, n_chan, n_corr); as `predict` otherwise."""
        self._check(sources, "weighted_residual2")
        return self._run(sources, Output.WEIGHTED)

    def chi2(self, sources: Sources, scaled_dof: ArrayLike | None = None) -> NDArray[np.float64]:
        """chi2 = sum w |D - V|^2 over the samples (physics: section 7).

        For Student's t distribution, whose tails are wide enough for outliers, with t = `scaled_dof`:

            chi2 = sum t ln(1 + w |D - V|^2 / t)

        Each complex sample has a t distribution of two dimensions with nu degrees of freedom; with the noise
        factor s, t = nu s^2 and N samples, the log-likelihood is

            -(1 + 2/nu) chi2 / (2 s^2) - N ln(2 pi) + sum ln w - 2 N ln s

        Parameters
        ----------
        sources : Sources
        scaled_dof : float64 (n_batch,), optional
            nu s^2, the degrees of freedom times the square of the noise factor; above 0.

        Returns
        -------
        float64 (n_batch,)
            NaN for entries with a NaN or with impossible values (`Sources.invalid`, or a `scaled_dof`
            that is not finite and above 0); they do not change other entries.

        Raises
        ------
        InputError
            No data or weights were given, or time or antenna axes are not those of the rows.
        """
        with CALL_LOCK, call_memo():
            return self.start_chi2(sources, scaled_dof)()

    def chi2_and_gradient(
        self, sources: Sources, scaled_dof: ArrayLike | None = None
    ) -> tuple[NDArray[np.float64], Gradient]:
        """chi2 as `chi2`, with its derivatives with respect to all arrays of `sources`, and to `scaled_dof`.

        Parameters
        ----------
        sources : Sources
        scaled_dof : float64 (n_batch,), optional

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
        self._check(sources, "chi2_and_gradient")
        with call_memo():
            t = checked_inputs.scaled_dof_of(sources, scaled_dof)
            return self._derivatives.chi2_and_gradient(sources, t)

    def tangent(self, sources: Sources, change: Gradient) -> NDArray[np.complex128]:
        """J v: the exact first-order change of the visibilities with a change v of the sources.

        J are the derivatives of visibilities with respect to the arrays of `sources`; those with respect
        to Q, U and V count where `Sources.polarised` is True. Computed on the CPU in double precision,
        whatever the backend.

        Parameters
        ----------
        sources : Sources
        change : Gradient
            v, a change of each array of the sources, (n_change, ...); None where an array does not change.

        Returns
        -------
        complex128 (n_change, n_row, n_chan, n_corr), Jy
            Each change belongs to its entry of the batch or, where the batch has one entry, to this one.

        Raises
        ------
        InputError
            As `predict`; or changes with other shapes than the sources have.
        """
        self._validate(sources)
        return self._derivatives.tangent(sources, change)

    def adjoint(self, sources: Sources, residual: ArrayLike) -> Gradient:
        """Re(J^H W r): half the gradient of chi2 where V - D is r.

        For every change v, the sum of Re(conj(J v) w r) over samples is the sum of v times this over arrays.
        The data are replaced during the call: a device gets them anew, and again for the next chi2.

        Parameters
        ----------
        sources : Sources
        residual : complex (n_batch, n_row, n_chan, n_corr), Jy
            r; any value may stand where the weight is 0.

        Returns
        -------
        Gradient

        Raises
        ------
        InputError
            As `predict`; no weights were given, or r has another shape.
        """
        self._validate(sources, "adjoint")
        if not sources.n_batch:
            raise InputError("adjoint needs at least one list of sources, got an empty batch")
        checked = checked_inputs.residual_of(self.rows, sources, residual)
        return self._derivatives.adjoint(sources, checked)

    def information_product(self, sources: Sources, change: Gradient) -> Gradient:
        """Re(J^H W J v), the product of `information` with one change v; as `information` otherwise."""
        self._validate(sources, "information_product")
        return self._derivatives.information_product(sources, change)

    def cache_model(self, sources: Sources, cells: RowCells) -> ResidentModel | None:
        """Model visibilities that stay on a GPU beside the data, for gains that are fitted to them.

        Parameters
        ----------
        sources : Sources
            A batch of one.
        cells : RowCells
            Which visibilities have one gain.

        Returns
        -------
        ResidentModel, or None
            None on the CPU, and where visibilities cannot stay on the device: of templates, of models that
            are smeared, or where it has too little memory.

        Raises
        ------
        InputError
            As `predict`; no data or weights were given.
        """
        self._validate(sources, "cache_model")
        with CALL_LOCK:
            resident = self.engine.cache_model(sources, cells)
        return None if resident is None else ResidentModel(sources, resident, self._derivatives)

    keep = method_alias("Rime.keep", cache_model)

    def information(
        self, sources: Sources, change: Gradient, weight: NDArray[np.floating] | None = None
    ) -> NDArray[np.float64]:
        """Re(J^H W J) between several changes of the sources: their Fisher information.

        Columns of J are made and multiplied for some rows at a time, on the CPU in double precision,
        whatever the backend.

        Parameters
        ----------
        sources : Sources
            A batch of one.
        change : Gradient
            As for `tangent`.
        weight : floating (n_row, n_chan, n_corr), 1/Jy^2, optional
            W, where it is not that of the data.

        Returns
        -------
        float64 (n_change, n_change)

        Raises
        ------
        InputError
            As `tangent`; no weights were given, or of another shape; or a batch of several.
        """
        self._validate(sources, "information")
        shape = (self.rows.n_row, self.rows.n_chan, self.rows.n_corr)
        if weight is not None and weight.shape != shape:
            raise InputError(f"weight must have shape {shape}, got {weight.shape}")
        return self._derivatives.information(sources, change, weight)

    def grouped_information(
        self,
        sources: Sources,
        change: Gradient,
        groups: NDArray[np.int64],
        n_inner: int,
        weight: NDArray[np.floating] | None = None,
    ) -> GroupedInformation:
        """`information` in blocks, where some changes are of groups of rows and the others of all rows.

        Parameters
        ----------
        sources : Sources
            A batch of one.
        change : Gradient
            As for `tangent`. Of each of the first n_inner changes, what it does to the rows of a group counts
            as a change of its own.
        groups : int64 (n_row,)
            The group of each row; -1 where these changes do not count.
        n_inner : int
        weight : floating (n_row, n_chan, n_corr), 1/Jy^2, optional
            As for `information`.

        Returns
        -------
        GroupedInformation
        """
        self._validate(sources, "grouped_information")
        return self._derivatives.grouped_information(sources, change, groups, n_inner, weight)

    def plan(self, sources: Sources) -> str:
        """How `chi2` of sources with these shapes would be computed: kernel, memory, slabs, batch."""
        self._check(sources, "a plan")
        with CALL_LOCK:
            return f"{self.reason}; {self.engine.plan(sources)}"

    def start_chi2(
        self, sources: Sources, scaled_dof: ArrayLike | None = None
    ) -> Callable[[], NDArray[np.float64]]:
        """Begin to compute `chi2`; the function returned waits for it. The caller holds `CALL_LOCK`."""
        self._check(sources, "chi2")
        t = None if scaled_dof is None else checked_inputs.scaled_dof_of(sources, scaled_dof)
        finish, invalid = self.engine.start_chi2(sources, t), sources.invalid()

        def finished() -> NDArray[np.float64]:
            chi2 = finish()
            if t is not None:
                chi2 *= t  # the engines divide by it
            chi2[invalid] = np.nan
            return chi2

        return finished

    def _check(self, sources: Sources, needs_data: str = "") -> None:
        """Refuse other axes than those of the rows and, for a call that needs data, a `Rime` without any."""
        if needs_data and not self._has_weight:
            raise _no_data(needs_data, "vis and weight")
        check_axes(self.rows, self._n_template, sources)

    def _run(self, sources: Sources, output: Output) -> Visibilities:
        self._validate(sources)
        with CALL_LOCK:
            return self.engine.run(sources, output)

    def _validate(self, sources: Sources, needs_data: str = "") -> None:
        self._check(sources, needs_data)
        checked_inputs.validate_sources(sources)


def _no_data(call: str, wanted: str) -> InputError:
    return InputError(f"{call} needs data: give Rime(..., {wanted}=...)")
