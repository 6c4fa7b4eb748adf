"""The change of visibilities with a change v of the sources, J v.

With P = E_p E_q K_pq envelope_pq of a source and a change v of the sources,

    J v = sum over sources of P (dB + B (i d(phase) + d ln(envelope) + d ln(E_p) + d ln(E_q)))

With Jones matrices A of the antennas this is dX, the change of the sum X, and J v is what
`cpu.antennas.see_changes` makes of it.

Derivatives are analytic, not finite differences. All is float64, whatever the precision of `Rime`.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays import Rows, Sources
from rime_kernels.arrays.sources import AXES
from rime_kernels.choices import GaussianFrame
from rime_kernels.cpu.antennas import AntennaSamples, see_changes
from rime_kernels.cpu.jones.spline import beams_of
from rime_kernels.cpu.jones.tangent import fill_columns as fill_jones_columns
from rime_kernels.cpu.profiles import functions_of
from rime_kernels.cpu.tangent import Changes, TangentSamples, TangentSky
from rime_kernels.cpu.voltage_tangent import fill_columns
from rime_kernels.errors import InputError
from rime_kernels.gradient import Gradient
from rime_kernels.inputs import beam_codes, profile_arrays, registered_profiles
from rime_kernels.jones_beam import JonesBeam, motion_of
from rime_kernels.physics import beam, phase
from rime_kernels.physics.envelope import projection_slopes, projections
from rime_kernels.physics.feeds import feeds_of
from rime_kernels.physics.profiles import N_PARAMETER
from rime_kernels.smearing.average import Average
from rime_kernels.source_spectra import argument_slopes, rotation_of, shared_voltage, spectra_of

Array = NDArray[np.float64]
T = TypeVar("T", bound=np.generic)
_TWO_PI = 2.0 * np.pi
_NEEDED = ("lm", "stokes", "spectral_terms", "shape")
_ARRAYS = tuple(field.name for field in fields(Gradient) if field.name in AXES)
_OF_BEAM = ("beam_scale", "pointing", "turn")


class FixedInputs(NamedTuple):
    """The observation, templates, and how phases are made: the same for every call."""

    rows: Rows
    antenna_uvw: Array | None  # (n_time, n_antenna, 3), m, where phases are made of antenna terms
    template: NDArray[np.complexfloating]  # (n_template, n_row, n_chan, n_corr)
    template_lm: Array  # (n_template, 2)
    frame: GaussianFrame
    average: Average | None = None  # where visibilities are smeared


def check_change(sources: Sources, change: Gradient) -> int:
    """The number of changes.

    Raises
    ------
    InputError
        Arrays that are not shaped as those of the sources.
    """
    n_change = len(change.lm)
    of_beam = {} if sources.beam is None else {"beam_scale": sources.beam.scale}
    if sources.beam is not None and sources.beam.pointing is not None:
        of_beam["pointing"] = sources.beam.pointing
    if isinstance(sources.beam, JonesBeam) and sources.beam.turn is not None:
        of_beam["turn"] = sources.beam.turn
    for name in _ARRAYS + _OF_BEAM:
        values = getattr(change, name)
        values_of_sources = of_beam.get(name) if name in _OF_BEAM else getattr(sources, name)
        if values is None and (values_of_sources is None or name not in _NEEDED):
            continue
        if values_of_sources is None:
            raise InputError(f"change.{name} was given, but the sources have none")
        expected = (n_change, *values_of_sources.shape[1:])
        if np.shape(values) != expected:
            raise InputError(f"change.{name} must have shape {expected}, got {np.shape(values)}")
    _check_change_of_jones(sources, change)
    return n_change


def _check_change_of_jones(sources: Sources, change: Gradient) -> None:
    if change.antenna_terms is None:
        return
    if sources.antenna_terms is None:
        raise InputError("change.antenna_terms was given, but the sources have none")
    expected = (len(change.lm), *sources.antenna_terms.jones.shape[1:])
    if np.shape(change.antenna_terms) != expected:
        raise InputError(
            f"change.antenna_terms must have shape {expected}, got {np.shape(change.antenna_terms)}"
        )


def columns_of(
    fixed: FixedInputs, sources: Sources, change: Gradient
) -> TangentColumns | SeenColumns | AveragedColumns:
    """J v of several changes about one list of sources, smeared or not, seen through antennas or not."""
    if fixed.average is not None:
        return AveragedColumns(fixed, fixed.average, sources, change)
    if sources.antenna_terms is None:
        return TangentColumns(fixed, sources, change)
    return SeenColumns(fixed, sources, change)


class AveragedColumns:
    """`TangentColumns` of visibilities that are smeared: the mean of those at the nodes of `average`.

    Other parameters as those of `TangentColumns`.
    """

    def __init__(self, fixed: FixedInputs, average: Average, sources: Sources, change: Gradient) -> None:
        self.n_change, self._n_row = check_change(sources, change), fixed.rows.n_row
        self._groups = []
        for group in average.groups:
            which = np.flatnonzero(group.has_row)
            some = fixed._replace(
                rows=_some(fixed.rows, which), template=fixed.template[:, which], average=None
            )
            nodes = [
                (weight, columns_of(some._replace(rows=rows, antenna_uvw=uvw), sources, change))
                for weight, rows, uvw in average.of(group, which).samples(some.rows, fixed.antenna_uvw)
            ]
            self._groups.append((which, nodes))

    def of(self, rows: slice) -> NDArray[np.complex128]:
        """complex128 (n_change, n_row, n_chan, n_corr) of some of the rows."""
        start, stop, _ = rows.indices(self._n_row)
        parts, places = [], []
        for which, nodes in self._groups:
            first, last = np.searchsorted(which, [start, stop])
            if first < last:
                parts.append(sum(weight * node.of(slice(first, last)) for weight, node in nodes))
                places.append(which[first:last])
        return np.concatenate(parts, axis=1)[:, np.argsort(np.concatenate(places))]


def _some(rows: Rows, which: NDArray[np.int64]) -> Rows:
    """Some of the rows."""
    names = ("uvw", "antenna1", "antenna2", "time_index")
    return replace(rows, **{name: getattr(rows, name)[which] for name in names})


class SeenColumns:
    """`TangentColumns` of sources that are seen through Jones matrices of the antennas.

    Parameters as those of `TangentColumns`.

    Raises
    ------
    InputError
        A change off the diagonal where there are templates without all four correlations.
    """

    def __init__(self, fixed: FixedInputs, sources: Sources, change: Gradient) -> None:
        self._terms, self.n_change = sources.antenna_terms, check_change(sources, change)
        self._rows = fixed.rows
        fixed, bare, self._place = through_feeds(fixed, sources)
        self._change = TangentColumns(fixed, bare, replace(change, antenna_terms=None))
        # X is linear in the fluxes and in the scales of templates: it is its own change with these.
        self._full = TangentColumns(fixed, bare, of_fluxes(bare))
        shape = (self.n_change, *sources.antenna_terms.jones.shape[1:]) if sources.antenna_terms else ()
        self._of_jones = np.zeros(shape, np.complex128)
        if change.antenna_terms is not None:
            self._of_jones[...] = change.antenna_terms
        if len(fixed.template) and len(self._place) < 4 and np.any(self._of_jones * (1 - np.eye(2))):
            raise InputError(
                "antenna terms change off the diagonal, for which templates need all four correlations, got "
                f"{len(self._place)}"
            )

    def of(self, rows: slice) -> NDArray[np.complex128]:
        """complex128 (n_change, n_row, n_chan, n_corr) of some of the rows."""
        assert self._terms is not None, "columns_of makes these where there are terms"
        of_rows = self._rows
        samples = AntennaSamples(
            of_rows.antenna1[rows], of_rows.antenna2[rows],
            np.ascontiguousarray(self._terms.time_block[of_rows.time_index[rows]]), self._terms.chan_block,
        )  # fmt: skip
        change, full = self._change.of(rows), self._full.of(rows)[0]
        out = np.empty((*change.shape[:3], self._place.size), np.complex128)
        see_changes(samples, self._terms.jones[0], self._of_jones, full, change, self._place, out)
        return out


def through_feeds(fixed: FixedInputs, sources: Sources) -> tuple[FixedInputs, Sources, NDArray[np.int64]]:
    """The observation with all four correlations of its feeds, the sources without the antennas' matrices.

    Also which of these correlations each one of the data is, int64 (n_corr,).
    """
    full, place = feeds_of(fixed.rows.stokes_to_corr)
    template = np.zeros((*fixed.template.shape[:3], 4), np.complex128)
    template[..., place] = fixed.template
    fixed = fixed._replace(rows=replace(fixed.rows, stokes_to_corr=full), template=template)
    bare = replace(sources, antenna_terms=None)
    bare.__dict__["polarised"] = sources.polarised
    return fixed, bare, np.array(place, np.int64)


def of_fluxes(sources: Sources) -> Gradient:
    """The change of all fluxes, and scales of templates, by what they are."""
    return Gradient(
        np.zeros_like(sources.lm), sources.stokes, np.zeros_like(sources.spectral_terms),
        np.zeros_like(sources.shape), template_scale=sources.template_scale,
    )  # fmt: skip


class TangentColumns:
    """J v of several changes v about one list of sources, row by row.

    Parameters
    ----------
    fixed : FixedInputs
    sources : Sources
        A batch of one.
    change : Gradient
        Changes (n_change, ...) of its arrays.
    """

    def __init__(self, fixed: FixedInputs, sources: Sources, change: Gradient) -> None:
        self._fixed, self._sources, self._change = fixed, sources, change
        self.n_change = check_change(sources, change)
        n_stokes = 4 if sources.polarised else 1
        self._matrix = np.ascontiguousarray(fixed.rows.stokes_to_corr[:, :n_stokes])
        self._code = beam_codes(sources)[1]
        self._beams = beams_of(fixed.rows.stokes_to_corr, sources, sources.n_source)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            self._sky = _sky(fixed, sources, n_stokes)
            self._changes = _changes(fixed, sources, change, self._sky)

    def of(self, rows: slice) -> NDArray[np.complex128]:
        """complex128 (n_change, n_row, n_chan, n_corr) of some of the rows."""
        fixed, all_rows = self._fixed, self._fixed.rows
        first, second, time = (x[rows] for x in (all_rows.antenna1, all_rows.antenna2, all_rows.time_index))
        uvw = np.ascontiguousarray(all_rows.uvw[rows])
        phase_uvw = uvw
        if fixed.antenna_uvw is not None:
            phase_uvw = fixed.antenna_uvw[time, first] - fixed.antenna_uvw[time, second]
        samples = TangentSamples(
            _to_read(phase_uvw), _to_read(uvw), _to_read(first), _to_read(second), _to_read(time),
            _to_read(all_rows.chan_freq), *self._feeds(),
        )  # fmt: skip
        out = np.zeros((self.n_change, len(uvw), all_rows.n_chan, all_rows.n_corr), np.complex128)
        if self._sky.direction.size and self._changes.source.size:
            flat = out.reshape(self.n_change, -1, all_rows.n_corr)
            functions = functions_of(registered_profiles(self._sources))
            if self._beams is not None:
                # Real parts of the correlations, then imaginary parts.
                matrix = np.kron([1.0, 1j], np.eye(all_rows.n_corr))
                fill_jones_columns(self._beams, samples, self._sky, self._changes, matrix, flat, functions)
            else:
                fill_columns(self._code, samples, self._sky, self._changes, self._matrix, flat, functions)
        self._add_templates(rows, uvw, out)
        return out

    def _feeds(self) -> tuple[NDArray[np.complex128], NDArray[np.int64]]:
        """`pauli` and `product` of `TangentSamples`."""
        if self._beams is None:
            return np.zeros((0, 2, 2), np.complex128), np.zeros(0, np.int64)
        full, place = feeds_of(self._fixed.rows.stokes_to_corr)
        pauli = np.ascontiguousarray(full.T[: self._matrix.shape[1]]).reshape(-1, 2, 2)
        return pauli, np.array(place, np.int64)

    def _add_templates(self, rows: slice, uvw: Array, out: NDArray[np.complex128]) -> None:
        """T e^(i phi) (da + i a d phi), phi by the change of direction of the template's centre."""
        sources, change, fixed = self._sources, self._change, self._fixed
        if sources.template_scale is None:
            return
        turn = _TWO_PI / phase.SPEED_OF_LIGHT * fixed.rows.chan_freq
        for t, template in enumerate(fixed.template):
            seen, of_phase = template[rows].astype(np.complex128), np.zeros((self.n_change, 3))
            if sources.template_shift is not None:
                moved = phase.directions(fixed.template_lm[t] + sources.template_shift[0, t])
                by_shift = (moved - phase.directions(fixed.template_lm[t])) @ uvw.T
                seen *= np.exp(1j * np.outer(by_shift, turn))[..., None]
                if change.template_shift is not None:
                    of_phase = phase.push_directions(moved, change.template_shift[:, t])
            for i in range(self.n_change):
                scale = 0.0 if change.template_scale is None else change.template_scale[i, t]
                if scale == 0.0 and not of_phase[i].any():
                    continue
                angle = np.outer(uvw @ of_phase[i], turn)
                out[i] += (scale + 1j * sources.template_scale[0, t] * angle)[..., None] * seen


def _to_read(values: NDArray[T]) -> NDArray[T]:
    """The array as one that cannot be written to: rows may be such, and loops are compiled anew for these."""
    seen = np.ascontiguousarray(values).view()
    seen.flags.writeable = False
    return seen


def _sky(fixed: FixedInputs, sources: Sources, n_stokes: int) -> TangentSky:
    """The sources as arrays for the loop."""
    direction = phase.directions(sources.lm[0])
    projection = projections(sources.shape[0], direction[sources.n_point :], fixed.frame)
    factor = spectra_of(sources, fixed.rows.chan_freq, n_stokes).factor[0]
    voltage, _ = shared_voltage(sources, fixed.rows.chan_freq)
    factor = np.moveaxis(factor * (voltage[0] ** 2)[..., None], 0, -1)
    rotation = rotation_of(sources, fixed.rows.chan_freq)
    factor, cross = _turned(factor, None if rotation is None else rotation.factor[0].T)
    scale, pointing = 0.0, np.zeros((1, 1, 2))
    if sources.beam is not None:
        scale = float(sources.beam.scale[0])
        if isinstance(sources.beam, JonesBeam):
            pointing = np.ascontiguousarray(sources.beam.motion[0])
        elif sources.beam.pointing is not None:
            pointing = np.ascontiguousarray(sources.beam.pointing[0])
    return TangentSky(
        np.ascontiguousarray(direction),
        np.ascontiguousarray(projection),
        np.ascontiguousarray(sources.stokes[0, ..., :n_stokes]),
        factor,
        scale,
        pointing,
        cross,
        *_profiles(sources),
    )


def _profiles(sources: Sources) -> tuple[Array, Array]:
    """Parameters (n_profile, 8) and kinds (n_profile,) for the loop."""
    if not sources.n_profile:
        return np.zeros((0, N_PARAMETER)), np.zeros(0)
    parameters, kinds = profile_arrays(sources)
    return np.ascontiguousarray(parameters[0]), kinds


def _turned(factor: Array, rotation: NDArray[np.complex128] | None) -> tuple[Array, Array]:
    """Factors (n, n_stokes, n_chan) of a brightness that is turned by (n, n_chan), and `TangentSky.cross`."""
    if rotation is None:
        return np.ascontiguousarray(factor), np.zeros((0, 2, 1))
    q, u = factor[:, 1], factor[:, 2]
    cross = np.stack([-u * rotation.imag, q * rotation.imag], axis=1)
    kept = [factor[:, 0], q * rotation.real, u * rotation.real, factor[:, 3]]
    return np.ascontiguousarray(np.stack(kept, axis=1)), np.ascontiguousarray(cross)


def _changes(fixed: FixedInputs, sources: Sources, change: Gradient, sky: TangentSky) -> Changes:
    """The changes of the sources, for pairs of a change and a source that it affects."""
    n_change, n_stokes = len(change.lm), sky.stokes.shape[2]
    beam_scale = np.zeros(n_change) if change.beam_scale is None else np.asarray(change.beam_scale, float)
    pointing = motion_of(change.pointing, change.turn, n_change)
    which, source = np.nonzero(_touched(sources, change, beam_scale, pointing))
    lm, shape = change.lm[which, source], source - sources.n_point
    direction = phase.push_directions(sky.direction[source], lm)
    projection, some = np.zeros((len(source), 2, 3)), shape >= 0
    slopes = projection_slopes(sources.shape[0], sky.direction[sources.n_point :], fixed.frame)[shape[some]]
    of_shape = change.shape[which[some], shape[some]]
    projection[some] = np.einsum("pijk,pk->pij", slopes, np.concatenate([of_shape, lm[some]], axis=-1))
    stokes = np.moveaxis(change.stokes[..., :n_stokes], 2, 1)[which, source]
    of_factor, of_cross = _of_factor(fixed, sources, change, beam_scale, which, source, n_stokes)
    return Changes(
        np.searchsorted(which, np.arange(n_change + 1)).astype(np.int64),
        source.astype(np.int64),
        np.ascontiguousarray(direction),
        projection,
        np.ascontiguousarray(stokes),
        of_factor,
        np.ascontiguousarray(beam_scale),
        np.ascontiguousarray(np.broadcast_to(pointing, (n_change, *pointing.shape[1:]))),
        of_cross,
        _of_profiles(sources, change, which, source),
    )


def _of_profiles(
    sources: Sources, change: Gradient, which: NDArray[np.int64], source: NDArray[np.int64]
) -> Array:
    """Changes of the parameters of profiles, (n_pair, 8); 0 of other sources."""
    out, j = np.zeros((len(source), N_PARAMETER)), source - (sources.n_source - sources.n_profile)
    if change.profile is not None:
        out[j >= 0] = change.profile[which[j >= 0], j[j >= 0]]
    return out


def _touched(sources: Sources, change: Gradient, beam_scale: Array, pointing: Array) -> NDArray[np.bool_]:
    """Which sources each change affects, bool (n_change, n_source)."""
    beams_move = (beam_scale != 0.0)[:, None] | np.any(pointing != 0.0, axis=(1, 2, 3))[:, None]
    touched = np.repeat(beams_move, sources.n_source, axis=1)
    for name in _ARRAYS:
        values, axes = getattr(change, name), AXES[name][1]
        axis = next((i for i, kind in enumerate(axes) if kind in ("source", "shape", "profile")), 0)
        if values is not None and axis:
            others = tuple(i for i in range(1, values.ndim) if i != axis)
            # Gaussians and profiles are the last of the sources.
            touched[:, sources.n_source - values.shape[axis] :] |= np.any(values != 0.0, axis=others)
    return touched


def _of_factor(
    fixed: FixedInputs, sources: Sources, change: Gradient, beam_scale: Array, which: NDArray[np.int64],
    source: NDArray[np.int64], n_stokes: int,
) -> tuple[Array, Array]:  # fmt: skip
    """Changes of spectrum times E^2 of the beam that antennas share, (n_pair, n_stokes, n_chan).

    0 where there is no flux, whatever the spectrum. Where Q and U are turned, the changes of what is left of
    them, and those of `TangentSky.cross`.
    """
    freq = fixed.rows.chan_freq
    spectra = spectra_of(sources, freq, n_stokes)
    factor, of_polynomial = (x[0].swapaxes(0, 1)[source] for x in (spectra.factor, spectra.slope))
    terms = change.spectral_terms[which, source][:, :n_stokes]
    of_spectrum = of_polynomial * np.einsum("jcp,pkj->pck", spectra.powers[:, :, source], terms)
    if spectra.others.size:
        place = np.full(sources.n_source, -1)
        place[spectra.others] = np.arange(spectra.others.size)
        some = np.flatnonzero(place[source] >= 0)
        by_term = spectra.by_term[0][:, place[source[some]]]
        of_spectrum[some] = np.einsum("cpkj,pkj->pck", by_term, terms[some])
    voltage, slope = (np.broadcast_to(x, (1, freq.size, sources.n_source))[0].T[source]
                      for x in shared_voltage(sources, freq))  # fmt: skip
    of_spectrum *= (voltage**2)[..., None]
    if sources.beam is not None and beam_codes(sources)[0] != beam.NO_BEAM:
        by_scale, by_lm = (x[0, source] for x in argument_slopes(sources.beam, sources.lm))
        change_of_x = by_scale * beam_scale[which] + np.sum(by_lm * change.lm[which, source], axis=1)
        by_beam = 2.0 * voltage * slope * np.outer(change_of_x, freq)
        of_spectrum = of_spectrum + factor * by_beam[..., None]
    dark = np.all(sources.stokes[0, ..., :n_stokes] == 0.0, axis=0)[source]
    of_factor = np.where(dark[:, None], 0.0, of_spectrum).transpose(0, 2, 1)
    rotation = rotation_of(sources, freq)
    if rotation is None:
        return _turned(of_factor, None)
    kept, cross = _turned(of_factor, rotation.factor[0].T[source])
    if change.faraday is None:
        return kept, cross
    of_rotation = np.einsum("jcp,pj->pc", rotation.slopes[:, 0][:, :, source], change.faraday[which, source])
    factor = np.where(dark[:, None], 0.0, factor * (voltage**2)[..., None]).transpose(0, 2, 1)
    by_turning = _turned(factor, of_rotation)
    by_turning[0][:, [0, 3]] = 0.0  # which are not turned
    return kept + by_turning[0], cross + by_turning[1]
