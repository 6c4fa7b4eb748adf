"""What the loops read: constants of the rows, and the parameters of one call, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays import Rows, Sources
from rime_kernels.errors import InputError
from rime_kernels.geometry import RowTable
from rime_kernels.physics import beam, envelope, phase


class Output(IntEnum):
    """What a loop makes of a model visibility V, given data D and weight w."""

    VIS = 0  # V
    RESIDUAL = 1  # V - D
    WEIGHTED = 2  # w |V - D|^2
    CHI2 = 3  # the sum of it
    LOG = 4  # the sum of ln(1 + it / scaled_dof): `Rime.chi2`


@dataclass(frozen=True)
class Variant:
    """The constants that a loop is compiled for.

    Attributes
    ----------
    single : bool
        Working precision float32 instead of float64.
    factored : bool
        Phases from antenna terms; otherwise from each row's own uvw.
    beam : int
        Code of the beam in the antenna terms (`beam.CODES`): the one with pointing errors. A beam
        that all antennas share is part of the brightness.
    polarised : bool
        Four Stokes parameters; otherwise I alone.
    shifted : bool
        Templates are moved.
    log : bool
        chi2 is a sum of logarithms: `Output.LOG`.
    """

    single: bool
    factored: bool
    beam: int
    polarised: bool
    shifted: bool = False
    log: bool = False

    @property
    def n_stokes(self) -> int:
        return 4 if self.polarised else 1

    @property
    def real(self) -> type[np.floating]:
        return np.float32 if self.single else np.float64

    @property
    def complex(self) -> type[np.complexfloating]:
        return np.complex64 if self.single else np.complex128


class Constants(NamedTuple):
    """What stays the same from call to call; `vis` and `weight` have the working precision."""

    uvw: NDArray[np.float64]  # (n_row, 3)
    antenna1: NDArray[np.int32]  # (n_row,)
    antenna2: NDArray[np.int32]
    time_index: NDArray[np.int32]
    order: NDArray[np.int64]  # (n_row,), rows grouped by time
    chan_freq: NDArray[np.float64]  # (n_chan,)
    matrix: NDArray[np.complexfloating]  # (n_corr, 4)
    antenna_uvw: NDArray[np.float64]  # (n_time, n_antenna, 3)
    vis: NDArray[np.complexfloating]  # (n_row, n_chan, n_corr), or one element
    weight: NDArray[np.floating]
    template: NDArray[np.complexfloating]  # (n_template, n_row, n_chan, n_corr)
    template_lm: NDArray[np.float64]  # (n_template, 2)


class Inputs(NamedTuple):
    """The parameters of one call; every array float64."""

    direction: NDArray[np.float64]  # (n_batch, n_source, 3): l, m, n - 1
    stokes: NDArray[np.float64]  # (n_batch, n_time or 1, n_source, 4)
    ref_freq: NDArray[np.float64]  # (n_source,)
    log_spectrum: NDArray[np.float64]  # (n_source,), 1 or 0
    spectral_terms: NDArray[np.float64]  # (n_batch, n_source, 4, n_term)
    projection: NDArray[np.float64]  # (n_batch, n_gaussian, 2, 3)
    beam_scale: NDArray[np.float64]  # (n_batch,)
    pointing: NDArray[np.float64]  # (n_batch, n_time or 1, n_antenna, 2)
    template: NDArray[np.float64]  # (n_batch, n_template or 1, 4): scale, change of l, m, n; see `_template`

    def batch(self, start: int, stop: int) -> Inputs:
        """The entries start .. stop - 1 of the batch."""
        shared = {"ref_freq", "log_spectrum"}
        return Inputs(
            *(
                value if name in shared else value[start:stop]
                for name, value in zip(self._fields, self, strict=True)
            )
        )


class Parameters(NamedTuple):
    """The parameters of one call as `Sources` has them, for engines that work the rest out themselves.

    No axis is empty: a flat spectrum has a term of 0, no Gaussian and no beam are one element that
    nobody reads.
    """

    lm: NDArray[np.float64]  # (n_batch, n_source, 2)
    stokes: NDArray[np.float64]  # (n_batch, n_time or 1, n_source, 4)
    ref_freq: NDArray[np.float64]  # (n_source,)
    log_spectrum: NDArray[Any]  # (n_source,)
    spectral_terms: NDArray[np.float64]  # (n_batch, n_source, 4, n_term)
    shape: NDArray[np.float64]  # (n_batch, n_gaussian, 3)
    beam_scale: NDArray[np.float64]  # (n_batch,)
    pointing: NDArray[np.float64]  # (n_batch, n_time or 1, n_antenna, 2)
    template: NDArray[np.float64]  # (n_batch, n_template or 1, 4): scale, change of l, m, n; see `_template`

    def batch(self, start: int, stop: int) -> Parameters:
        """The entries start .. stop - 1 of the batch."""
        some = {name: getattr(self, name)[start:stop] for name in _OF_BATCH}
        return self._replace(**some)


_OF_BATCH = ("lm", "stokes", "spectral_terms", "shape", "beam_scale", "pointing", "template")


def parameters(
    sources: Sources, template_lm: NDArray[np.float64], scaled_dof: NDArray[np.float64] | None = None
) -> Parameters:
    """The parameters of one call; a sky without sources gets one of no flux. `scaled_dof` as `Rime.chi2`."""
    if sources.n_source == 0:
        sources = _one_of_no_flux(sources)
    n_batch, terms, shape, beam = sources.n_batch, sources.spectral_terms, sources.shape, sources.beam
    if not terms.size:
        terms = np.zeros((*terms.shape[:3], 1))
    if not shape.size:
        shape = np.zeros((n_batch, 1, 3))
    scale = np.zeros(n_batch) if beam is None else beam.scale
    pointing = np.zeros((n_batch, 1, 1, 2)) if beam is None or beam.pointing is None else beam.pointing
    return Parameters(
        sources.lm, sources.stokes, sources.ref_freq, sources.log_spectrum, terms, shape, scale, pointing,
        _template(sources, template_lm, scaled_dof),
    )  # fmt: skip


def _template(
    sources: Sources, template_lm: NDArray[np.float64], scaled_dof: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Scale of each template, and how l, m and n of its centre change where it is moved.

    A row behind them has 1/scaled_dof, where there is one: kernels read both when the sums are made.
    """
    n_template = len(template_lm)
    if scaled_dof is None and not n_template:
        return np.zeros((sources.n_batch, 1, 1))  # nobody reads it, but it is sent with every call
    found = np.zeros((sources.n_batch, n_template + (scaled_dof is not None), 4))
    if sources.template_scale is not None:
        found[:, :n_template, 0] = sources.template_scale
        if sources.template_shift is not None:
            moved = phase.directions(template_lm + sources.template_shift)
            found[:, :n_template, 1:] = moved - phase.directions(template_lm)
    if scaled_dof is not None:
        found[:, n_template, 0] = 1.0 / scaled_dof
    return found


def constants(
    rows: Rows,
    table: RowTable,
    antenna_uvw: NDArray[np.float64],
    data: tuple[NDArray[Any], NDArray[Any]] | None,
    template: tuple[NDArray[Any], NDArray[np.float64]],
    single: bool,
) -> Constants:
    """The constant arrays in working precision, contiguous and writable: one type for each loop."""
    real, cplx = (np.float32, np.complex64) if single else (np.float64, np.complex128)
    vis, weight = data if data is not None else (np.zeros((1, 1, 1)), np.zeros((1, 1, 1)))
    return Constants(
        _plain(rows.uvw),
        _plain(rows.antenna1),
        _plain(rows.antenna2),
        _plain(rows.time_index),
        _plain(table.order),
        _plain(rows.chan_freq),
        _plain(rows.stokes_to_corr.astype(cplx)),
        _plain(antenna_uvw),
        _plain(vis.astype(cplx, copy=False)),
        _plain(weight.astype(real, copy=False)),
        _plain(template[0].astype(cplx, copy=False)),
        _plain(template[1]),
    )


def in_time_order(fixed: Constants) -> Constants:
    """The same with rows grouped by time; `order` still says where they came from."""
    if np.array_equal(fixed.order, np.arange(fixed.order.size)):
        return fixed
    data = [name for name in ("vis", "weight") if getattr(fixed, name).shape[0] == fixed.order.size]
    names = ("uvw", "antenna1", "antenna2", "time_index", *data)
    template = np.ascontiguousarray(fixed.template[:, fixed.order])
    return fixed._replace(template=template, **{name: getattr(fixed, name)[fixed.order] for name in names})


def inputs(
    sources: Sources,
    frame: envelope.GaussianFrame,
    template_lm: NDArray[np.float64],
    scaled_dof: NDArray[np.float64] | None = None,
) -> Inputs:
    """The parameters of one call: directions and Gaussian axes made once per source.

    A sky without sources gets one of no flux and a flat spectrum a term of 0, so that no kernel
    meets an empty axis.
    """
    if sources.n_source == 0:
        sources = _one_of_no_flux(sources)
    terms = sources.spectral_terms
    direction = phase.directions(sources.lm)
    gaussian = direction[:, sources.n_point :]
    scale, pointing = np.zeros(sources.n_batch), np.zeros((sources.n_batch, 1, 1, 2))
    if sources.beam is not None:
        scale = sources.beam.scale
        pointing = pointing if sources.beam.pointing is None else sources.beam.pointing
    return Inputs(
        _plain(direction),
        _plain(sources.stokes),
        _plain(sources.ref_freq),
        _plain(sources.log_spectrum.astype(np.float64)),
        _plain(terms if terms.size else np.zeros((*terms.shape[:3], 1))),
        _plain(envelope.projections(sources.shape, gaussian, frame)),
        _plain(scale),
        _plain(pointing),
        _template(sources, template_lm, scaled_dof),
    )


def _one_of_no_flux(sources: Sources) -> Sources:
    n_batch = sources.n_batch
    return Sources(
        np.zeros((n_batch, 1, 2)),
        np.zeros((n_batch, 1, 1, 4)),
        np.ones(1),
        np.zeros((n_batch, 1, 4, 0)),
        np.zeros(1, np.bool_),
        np.zeros((n_batch, 0, 3)),
        template_scale=sources.template_scale,
        template_shift=sources.template_shift,
    )


def beam_codes(sources: Sources) -> tuple[int, int]:
    """Codes of the beam in the brightness (the same for all antennas) and in the antenna terms."""
    if sources.beam is None:
        return beam.NO_BEAM, beam.NO_BEAM
    code = beam.CODES[sources.beam.kind]
    return (code, beam.NO_BEAM) if sources.beam.pointing is None else (beam.NO_BEAM, code)


def check_axes(rows: Rows, n_template: int, sources: Sources) -> None:
    """Refuse sources whose time or antenna axes are not those of the rows, or that scale other templates."""
    n_scale = 0 if sources.template_scale is None else sources.template_scale.shape[1]
    if n_scale != n_template:
        raise InputError(
            f"template_scale must have shape ({sources.n_batch}, {n_template}), got {n_scale} factors"
        )
    n_time = sources.stokes.shape[1]
    if n_time not in (1, rows.n_time):
        raise InputError(f"stokes must have 1 or n_time = {rows.n_time} time slots, got {n_time}")
    if sources.beam is None or sources.beam.pointing is None:
        return
    shape = sources.beam.pointing.shape
    if shape[0] != sources.n_batch or shape[1] not in (1, rows.n_time) or shape[2] != rows.n_antenna:
        expected = f"({sources.n_batch}, 1 or {rows.n_time}, {rows.n_antenna}, 2)"
        raise InputError(f"beam.pointing must have shape {expected}, got {shape}")


def _plain(value: NDArray[Any]) -> NDArray[Any]:
    return np.require(value, requirements=["C", "W", "A"])
