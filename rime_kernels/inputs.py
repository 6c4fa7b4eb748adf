"""The arrays that compiled loops read: constants of the observation, and the parameters of one call."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays import AntennaTerms, Rows, Sources
from rime_kernels.arrays.mapped import in_folder
from rime_kernels.choices import GaussianFrame
from rime_kernels.errors import InputError
from rime_kernels.geometry import RowTable
from rime_kernels.jones_beam import JonesBeam
from rime_kernels.physics import beam, envelope, feeds, phase
from rime_kernels.physics.form_codes import POWER_LAW
from rime_kernels.physics.registered import RegisteredProfile, numbered, profiles_of

T = TypeVar("T", bound=np.generic)


class Output(IntEnum):
    """What a loop computes from model visibilities V, data D and weights w."""

    VIS = 0  # V
    RESIDUAL = 1  # V - D
    WEIGHTED = 2  # w |V - D|^2
    CHI2 = 3  # the sum of it
    LOG = 4  # the sum of ln(1 + w |V - D|^2 / scaled_dof): `Rime.chi2`
    GIVEN = 5  # derivatives of chi2 where V - D is what stands in the place of D


@dataclass(frozen=True)
class Variant:
    """Properties of a model for which loops and kernels are compiled, or chosen.

    Attributes
    ----------
    single : bool
        Working precision float32 instead of float64.
    factored : bool
        Phases from antenna terms; otherwise from each row's own uvw.
    beam : int
        Code of the beam in the antenna terms (`beam.CODES`), used for a beam with pointing errors. A beam
        that all antennas share is part of the brightness instead.
    polarised : bool
        Four Stokes parameters; otherwise I alone.
    shifted : bool
        Templates are moved.
    log : bool
        chi2 is a sum of logarithms: `Output.LOG`.
    profiles : tuple of RegisteredProfile, or None
        There are profiles, and which of a user's own are among them; None without any.
    jones : bool
        A GPU's kernels see the sums through the matrices of `AntennaTerms`.
    diagonal : bool
        These stay diagonal: `AntennaTerms.stays_diagonal`.
    jones_beam : bool
        A GPU's kernels have a matrix of a `JonesBeam` for each antenna and source.
    turned : bool
        Feeds are turned by `JonesBeam.turn`, whose derivatives a GPU's kernels sum, too.
    given : bool
        A GPU's kernels find V - D in place of the data, for derivatives: `Output.GIVEN`.
    stokes : tuple of int, or None
        The two of four Stokes parameters (0 for I) that tensor cores sum, where the observed correlations
        have no others in them; None for all.
    """

    single: bool
    factored: bool
    beam: int
    polarised: bool
    shifted: bool = False
    log: bool = False
    profiles: tuple[RegisteredProfile, ...] | None = None
    jones: bool = False
    diagonal: bool = False
    jones_beam: bool = False
    turned: bool = False
    given: bool = False
    stokes: tuple[int, ...] | None = None

    @property
    def staged(self) -> bool:
        """Whether kernels over tiles put matrices that stay diagonal into shared memory."""
        return self.diagonal and not self.jones_beam

    @functools.cached_property
    def n_stokes(self) -> int:
        """Stokes parameters that are summed."""
        if self.stokes is not None:
            return len(self.stokes)
        return 4 if self.polarised else 1

    @functools.cached_property
    def real(self) -> type[np.floating]:
        return np.float32 if self.single else np.float64

    @property
    def complex(self) -> type[np.complexfloating]:
        return np.complex64 if self.single else np.complex128


class Constants(NamedTuple):
    """Arrays that are the same for every call; `vis` and `weight` have the working precision."""

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
    """The parameters of one call for the CPU: directions and Gaussian axes computed; every array float64."""

    direction: NDArray[np.float64]  # (n_batch, n_source, 3): l, m, n - 1
    stokes: NDArray[np.float64]  # (n_batch, n_time or 1, n_source, 4)
    ref_freq: NDArray[np.float64]  # (n_source,)
    spectral_form: NDArray[np.float64]  # (n_source,): `forms_of`
    spectral_terms: NDArray[np.float64]  # (n_batch, n_source, 4, n_term)
    projection: NDArray[np.float64]  # (n_batch, n_shape, 2, 3): of Gaussians, then profiles
    beam_scale: NDArray[np.float64]  # (n_batch,)
    pointing: NDArray[np.float64]  # (n_batch, n_time or 1, n_antenna, 2); or 4: `JonesBeam.motion`
    template: NDArray[np.float64]  # (n_batch, n_template or 1, 4): scale, change of l, m, n; see `_template`
    faraday: NDArray[np.float64]  # (n_batch, n_source, 4), or one unused element
    profile: NDArray[np.float64]  # (n_batch, n_profile, 8), or (n_batch, 1, 1) where there is none
    profile_kind: NDArray[np.float64]  # (n_profile or 1,): codes as `registered.numbered` has them
    first_varied: int  # `Sources.varied_range`
    stop_varied: int

    def batch(self, start: int, stop: int) -> Inputs:
        """The entries start .. stop - 1 of the batch."""
        return self._replace(**{name: getattr(self, name)[start:stop] for name in _PER_ENTRY_OF_INPUTS})


class Parameters(NamedTuple):
    """The parameters of one call for a GPU, which computes directions and Gaussian axes from them itself.

    They are the arrays of `Sources`, but no axis is empty: a flat spectrum has one term of 0, and where
    there is no Gaussian or no beam there is one unused element.
    """

    lm: NDArray[np.float64]  # (n_batch, n_source, 2)
    stokes: NDArray[np.float64]  # (n_batch, n_time or 1, n_source, 4)
    ref_freq: NDArray[np.float64]  # (n_source,)
    spectral_form: NDArray[np.float64]  # (n_source,): `forms_of`
    spectral_terms: NDArray[np.float64]  # (n_batch, n_source, 4, n_term)
    shape: NDArray[np.float64]  # (n_batch, n_shape, 3): of Gaussians, then profiles
    beam_scale: NDArray[np.float64]  # (n_batch,)
    pointing: NDArray[np.float64]  # (n_batch, n_time or 1, n_antenna, 2); or 4: `JonesBeam.motion`
    template: NDArray[np.float64]  # (n_batch, n_template or 1, 4): scale, change of l, m, n; see `_template`
    faraday: NDArray[np.float64]  # (n_batch, n_source, 4), or one unused element
    profile: NDArray[np.float64]  # these two as `Inputs` has them
    profile_kind: NDArray[np.float64]
    # (n_batch or 1, .): `jones_rows`; one unused element without antenna terms, or where they stay there
    jones: NDArray[np.float64]

    def batch(self, start: int, stop: int) -> Parameters:
        """The entries start .. stop - 1 of the batch."""
        part = {name: getattr(self, name)[start:stop] for name in _PER_ENTRY_OF_PARAMETERS}
        jones = self.jones if len(self.jones) == 1 else self.jones[start:stop]
        return self._replace(**part, jones=jones)


_SHARED = {"ref_freq", "spectral_form", "profile_kind", "first_varied", "stop_varied", "jones"}
_PER_ENTRY_OF_INPUTS = tuple(name for name in Inputs._fields if name not in _SHARED)
_PER_ENTRY_OF_PARAMETERS = tuple(name for name in Parameters._fields if name not in _SHARED)


def parameters(
    sources: Sources, template_lm: NDArray[np.float64], scaled_dof: NDArray[np.float64] | None = None,
    *, with_jones: bool = True,
) -> Parameters:  # fmt: skip
    """The parameters of one call for a GPU; a sky without sources gets one source without flux."""
    antenna_terms = sources.antenna_terms if with_jones else None
    if sources.n_source == 0:
        sources = _one_without_flux(sources)
    shape = sources.shape if sources.shape.size else np.zeros((sources.n_batch, 1, 3))
    jones = np.zeros((1, 1)) if antenna_terms is None else jones_rows(antenna_terms)
    return Parameters(lm=sources.lm, shape=shape, jones=jones, **_arrays(sources, template_lm, scaled_dof))


def _arrays(
    sources: Sources, template_lm: NDArray[np.float64], scaled_dof: NDArray[np.float64] | None
) -> dict[str, NDArray[np.float64]]:
    """What `Inputs` and `Parameters` have in common; what there is none of has one unused element."""
    n_batch, terms, beam = len(sources.lm), sources.spectral_terms, sources.beam
    scale, pointing = np.zeros(n_batch), np.zeros((n_batch, 1, 1, 2))
    if isinstance(beam, JonesBeam):
        scale, motion = np.broadcast_to(beam.scale, n_batch), beam.motion
        pointing = np.broadcast_to(motion, (n_batch, *motion.shape[1:]))
    elif beam is not None:
        scale, pointing = beam.scale, pointing if beam.pointing is None else beam.pointing
    profile, profile_kind = profile_arrays(sources)
    return {
        "stokes": sources.stokes,
        "ref_freq": sources.ref_freq,
        "spectral_form": forms_of(sources),
        "spectral_terms": terms if terms.size else np.zeros((*terms.shape[:3], 1)),
        "beam_scale": scale,
        "pointing": pointing,
        "template": _template(sources, template_lm, scaled_dof),
        "faraday": np.zeros((n_batch, 1, 1)) if sources.faraday is None else sources.faraday,
        "profile": profile,
        "profile_kind": profile_kind,
    }


def registered_profiles(sources: Sources) -> tuple[RegisteredProfile, ...] | None:
    """`Variant.profiles` of these sources.

    Raises
    ------
    InputError
        A kind of profile that nothing has.
    """
    if sources.profile_kind is None or not sources.n_profile:
        return None
    return profiles_of(sources.profile_kind.tolist())


def profile_arrays(sources: Sources) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The last two of `Inputs`, sent with every call."""
    if sources.profile is None or sources.profile_kind is None or not sources.n_profile:
        return np.zeros((len(sources.lm), 1, 1)), np.zeros(1)
    kinds = numbered(sources.profile_kind, profiles_of(sources.profile_kind.tolist()))
    return sources.profile, kinds.astype(np.float64)


def jones_rows(terms: AntennaTerms) -> NDArray[np.float64]:
    """Blocks of all time slots and channels, then real and imaginary parts of all matrices, of each entry."""
    flat = np.ascontiguousarray(terms.jones).reshape(len(terms.jones), -1).view(np.float64)
    blocks = np.concatenate([terms.time_block, terms.chan_block]).astype(np.float64)
    return np.concatenate([np.broadcast_to(blocks, (len(flat), blocks.size)), flat], axis=1)


def _template(
    sources: Sources, template_lm: NDArray[np.float64], scaled_dof: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Scale of each template, and how l, m and n of its centre change where it is moved.

    With a `scaled_dof`, a last row has 1/scaled_dof: kernels read both after the sums over sources.
    """
    n_template = len(template_lm)
    if scaled_dof is None and not n_template:
        return np.zeros((len(sources.lm), 1, 1))  # unused, but sent with every call
    rows = np.zeros((sources.n_batch, n_template + (scaled_dof is not None), 4))
    if sources.template_scale is not None:
        rows[:, :n_template, 0] = sources.template_scale
        if sources.template_shift is not None:
            moved = phase.directions(template_lm + sources.template_shift)
            rows[:, :n_template, 1:] = moved - phase.directions(template_lm)
    if scaled_dof is not None:
        rows[:, n_template, 0] = 1.0 / scaled_dof
    return rows


def constants(
    rows: Rows,
    table: RowTable,
    antenna_uvw: NDArray[np.float64],
    data: tuple[NDArray[np.complexfloating], NDArray[np.floating]] | None,
    template: tuple[NDArray[np.complexfloating], NDArray[np.float64]],
    single: bool,
) -> Constants:
    """The constant arrays in working precision, contiguous and writable: one type for each loop."""
    cplx = np.complex64 if single else np.complex128
    nothing = np.zeros((1, 1, 1), cplx)
    fixed = Constants(
        _contiguous(rows.uvw),
        _contiguous(rows.antenna1),
        _contiguous(rows.antenna2),
        _contiguous(rows.time_index),
        _contiguous(table.order),
        _contiguous(rows.chan_freq),
        _contiguous(rows.stokes_to_corr.astype(cplx)),
        _contiguous(antenna_uvw),
        nothing,
        nothing.real.copy(),
        _contiguous(template[0].astype(cplx, copy=False)),
        _contiguous(template[1]),
    )
    return with_data(fixed, data)


def with_data(
    fixed: Constants, data: tuple[NDArray[np.complexfloating], NDArray[np.floating]] | None
) -> Constants:
    """These constants with data and weights in working precision, or unchanged without them."""
    if data is None:
        return fixed
    cplx = fixed.matrix.dtype
    vis, weight = data[0].astype(cplx, copy=False), data[1].astype(cplx.type(0).real.dtype, copy=False)
    return fixed._replace(vis=_contiguous(vis), weight=_contiguous(weight))


def in_files(fixed: Constants, folder: str | None) -> Constants:
    """These constants with data and weights in files of a folder, where one is given."""
    return fixed._replace(vis=in_folder(fixed.vis, folder), weight=in_folder(fixed.weight, folder))


def in_time_order(fixed: Constants) -> Constants:
    """These constants with rows grouped by time; `order` still says where the rows came from."""
    if np.array_equal(fixed.order, np.arange(fixed.order.size)):
        return fixed
    data = [name for name in ("vis", "weight") if getattr(fixed, name).shape[0] == fixed.order.size]
    names = ("uvw", "antenna1", "antenna2", "time_index", *data)
    template = np.ascontiguousarray(fixed.template[:, fixed.order])
    return fixed._replace(template=template, **{name: getattr(fixed, name)[fixed.order] for name in names})


def inputs(
    sources: Sources,
    frame: GaussianFrame,
    template_lm: NDArray[np.float64],
    scaled_dof: NDArray[np.float64] | None = None,
) -> Inputs:
    """The parameters of one call for the CPU: directions and Gaussian axes are computed once per source.

    A sky without sources gets one source without flux, and a flat spectrum one term of 0, so that no loop
    has an empty axis.
    """
    if sources.n_source == 0:
        sources = _one_without_flux(sources)
    direction = phase.directions(sources.lm)
    n_source = direction.shape[1]
    of_shapes = direction[:, n_source - sources.shape.shape[1] :]
    made = _arrays(sources, template_lm, scaled_dof)
    made |= {"direction": direction, "projection": envelope.projections(sources.shape, of_shapes, frame)}
    for name, values in made.items():
        if not values.flags.carray:  # as the loops are compiled for: contiguous, writable, aligned
            made[name] = values.copy()
    first, stop = (0, n_source) if sources.varied is None else sources.varied
    return Inputs(**made, first_varied=first, stop_varied=stop)


def _one_without_flux(sources: Sources) -> Sources:
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


def forms_of(sources: Sources) -> NDArray[np.float64]:
    """The form of each spectrum: a code of `spectral_forms`."""
    polynomial = sources.log_spectrum.astype(np.float64)
    if sources.spectral_form is None:
        return polynomial
    return np.where(sources.spectral_form > POWER_LAW, sources.spectral_form, polynomial)


def beam_codes(sources: Sources) -> tuple[int, int]:
    """Codes of the beam in the brightness (the same for all antennas) and in the antenna terms.

    None of a beam of Jones matrices, which has loops of its own.
    """
    if sources.beam is None or isinstance(sources.beam, JonesBeam):
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
    if sources.antenna_terms is not None:
        _check_antenna_terms(rows, n_template, sources.antenna_terms)
    if isinstance(sources.beam, JonesBeam):
        feeds.feeds_of(rows.stokes_to_corr, "beams of Jones matrices", stokes=False)
        sources.beam.check_axes(rows.n_time, rows.n_antenna, rows.n_chan)
        return
    if sources.beam is None or sources.beam.pointing is None:
        return
    shape = sources.beam.pointing.shape
    if shape[0] != sources.n_batch or shape[1] not in (1, rows.n_time) or shape[2] != rows.n_antenna:
        expected = f"({sources.n_batch}, 1 or {rows.n_time}, {rows.n_antenna}, 2)"
        raise InputError(f"beam.pointing must have shape {expected}, got {shape}")


def _check_antenna_terms(rows: Rows, n_template: int, terms: AntennaTerms) -> None:
    """Refuse antenna terms whose axes are not those of the rows, or that need correlations they lack."""
    full, place = feeds.feeds_of(rows.stokes_to_corr)
    if not feeds.is_of_feeds(full) and not terms.scalar:
        raise InputError(
            "antenna terms of data in Stokes parameters, or between circular and linear feeds, must be the "
            "same number for both feeds, without leakage or rotation; read XX, XY, YX, YY or RR, RL, LR, LL"
        )
    jones, n_time, n_chan = terms.jones, terms.time_block.size, terms.chan_block.size
    if (n_time, jones.shape[2], n_chan) != (rows.n_time, rows.n_antenna, rows.n_chan):
        raise InputError(
            f"antenna_terms must be those of n_time = {rows.n_time} time slots, n_antenna = {rows.n_antenna} "
            f"and n_chan = {rows.n_chan} channels; got {n_time}, {jones.shape[2]} and {n_chan}"
        )
    if n_template and set(place) != {0, 1, 2, 3} and not terms.diagonal:
        raise InputError(
            "antenna terms that are not diagonal need all four correlations of the templates, got "
            f"{rows.n_corr}; read all four, or leave out leakage"
        )


def _contiguous(value: NDArray[T]) -> NDArray[T]:
    """The array, or a copy, as the loops are compiled for it: contiguous, writable, aligned."""
    flags = value.flags
    return value if flags.c_contiguous and flags.writeable and flags.aligned else np.array(value, order="C")
