"""The gradient of chi2 on the CPU: tasks with sums of their own, which are added up in a fixed order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from rime_kernels.adjoint import Adjoint
from rime_kernels.arrays import Sources
from rime_kernels.compile.jit import inner_function, loop
from rime_kernels.compile.types import Array, NumbaType, Pointer, Vector
from rime_kernels.cpu.adjoint import PIECE
from rime_kernels.cpu.antennas import LaneTerms, by_block, places
from rime_kernels.cpu.brightness import NO_BEAM, workspace
from rime_kernels.cpu.correlations import Correlations
from rime_kernels.cpu.entries import CHUNK, GradientSums, GradientWorkspace
from rime_kernels.cpu.forward import run_task
from rime_kernels.cpu.jones.adjoint import n_gains as n_matrix_gains
from rime_kernels.cpu.jones.spline import CpuBeams
from rime_kernels.cpu.lanes import Lanes, Nodes
from rime_kernels.cpu.outputs import Backward
from rime_kernels.cpu.profiles import ProfileFunctions
from rime_kernels.cpu.simd import n_lanes, pointer, size, zeros
from rime_kernels.inputs import Inputs
from rime_kernels.physics import phase
from rime_kernels.source_spectra import BrightnessAdjoint, pull_brightness


class Parts(NamedTuple):
    """What tasks add up, each in places of its own; float64.

    A place of brightnesses and pointing errors is a task, or a slot of a task where they belong to times.
    """

    chi2: NDArray[np.float64]  # (n_batch, n_task)
    first_place: NDArray[np.int64]  # (n_task,): the places of slots
    stokes_per_time: bool
    pointing_per_time: bool
    brightness: NDArray[np.float64]  # (n_batch, n_freq, n_place, n_source, n_stokes, n): nodes of frequency
    direction: NDArray[np.float64]  # (n_batch, n_task, n_source, 3)
    projection: NDArray[np.float64]  # (n_batch, n_task, n_shape, 6)
    template: NDArray[np.float64]  # (n_batch, n_task, n_template or 1, 4)
    beam_scale: NDArray[np.float64]  # (n_batch, n_task, 1)
    voltage_lm: NDArray[np.float64]  # (n_batch, n_task, n_source, 2)
    pointing: NDArray[np.float64]  # (n_batch, n_place, n_antenna, 2 or 4, n_slot_lane)
    first_run: NDArray[np.int64]  # (n_task,): the places of runs of slots
    jones: NDArray[np.float64]  # (n_batch, n_run, n_antenna, 8, n), or nothing: `antennas.by_block`
    profile: NDArray[np.float64]  # (n_batch, n_task, n_profile or 1, 8)


def n_places(tasks: NDArray[np.int64], n_time: int) -> int:
    """The number of places of what belongs to times where there are several."""
    return int(np.sum(tasks[:, 2] - tasks[:, 1])) if n_time > 1 else len(tasks)


def make_parts(
    tasks: NDArray[np.int64], lanes: Lanes, inputs: Inputs, jones: LaneTerms | None, n_stokes: int,
    n_freq: int = 1,
) -> Parts:  # fmt: skip
    """Zeros for the sums of these tasks."""
    n_batch, n_source = inputs.direction.shape[:2]
    n_task, n_lane, n_slot_lane = len(tasks), lanes.chan.shape[1], lanes.slot_time.shape[1]
    n_slot = tasks[:, 2] - tasks[:, 1]
    n_time, n_pointing_time = inputs.stokes.shape[1], inputs.pointing.shape[1]
    first_run, n_run = places(jones, tasks)
    return Parts(
        np.zeros((n_batch, n_task)),
        np.cumsum(n_slot) - n_slot,
        n_time > 1,
        n_pointing_time > 1,
        np.zeros((n_batch, n_freq, n_places(tasks, n_time), n_source, n_stokes, n_lane)),
        np.zeros((n_batch, n_task, n_source, 3)),
        np.zeros((n_batch, n_task, inputs.projection.shape[1], 6)),
        np.zeros((n_batch, n_task, inputs.template.shape[1], 4)),
        np.zeros((n_batch, n_task, 1)),
        np.zeros((n_batch, n_task, n_source, 2)),
        np.zeros((n_batch, n_places(tasks, n_pointing_time), *inputs.pointing.shape[2:], n_slot_lane)),
        first_run,
        np.zeros((n_batch, n_run, 0 if jones is None else jones.jones.shape[2], 8, n_lane)),
        np.zeros((n_batch, n_task, inputs.profile.shape[1], 8)),
    )


@inner_function
def most_entries(task: Array, slot_entry: Array) -> int:
    """The largest number of entries that a slot has in a task."""
    most = 1
    for slot in range(task[1], task[2]):
        most = max(most, min(task[4], slot_entry[slot + 1]) - max(task[3], slot_entry[slot]))
    return most


@inner_function
def add_lanes(sums: Pointer, factor: Pointer, n_out: int, n: int, out: Pointer) -> None:
    """Add up lanes (n_out, n), each times its factor (n,)."""
    for offset in range(n_out):
        for i in range(n):
            out[offset] += sums[offset * n + i] * factor[i]


@inner_function
def _gradient_task(
    factored: bool, shifted: bool, beam_code: int, output: int, i: int, b: int,
    tasks: Array, lanes: Lanes, nodes: Nodes, inputs: Inputs, beams: CpuBeams | None, spectra: Array,
    correlations: Correlations, transposed: Correlations, jones: LaneTerms | None, vis_out: Array,
    real_out: Array, parts: Parts, functions: ProfileFunctions | None, real: NumbaType, lane: Vector,
    lanes_like: Vector, stokes: Vector, total: Vector,
) -> None:  # fmt: skip
    """One task of one entry of the batch: its chi2, and its sums for the gradient."""
    n_freq, n_place = parts.brightness.shape[1:3]
    n, n_source, n_template, task = (
        size(lanes_like),
        parts.direction.shape[2],
        parts.template.shape[2],
        tasks[i],
    )
    n_projection = 6 * parts.projection.shape[2]
    n_antenna, n_chunk = lanes.antenna_uvw.shape[1], CHUNK * n
    n_residual = 2 * size(stokes) * most_entries(task, lanes.slot_entry)
    residual = workspace(n_residual, real)
    of_node = residual if nodes.weight.size == 1 else workspace(n_residual, real)
    weighted = workspace(correlations.part.shape[0] * n, real)
    products, flat = workspace(2 * n_chunk, real), workspace(10 * n_chunk, real)
    has_terms = factored and beams is None  # matrices are those of the forward loop
    terms = workspace(2 * n * n_antenna * min(n_source, PIECE) if has_terms else 0, real)
    wide, first, pair = workspace(4 * n_chunk, np.float64), np.zeros(1, np.int64), np.arange(2)
    of_direction, of_projection = np.zeros((n_freq, 3 * n * n_source)), np.zeros((n_freq, n * n_projection))
    of_template = np.zeros(4 * n * n_template)
    n_voltage = 2 if lanes.antenna.shape[2] > 1 else inputs.pointing.shape[2]
    gains = workspace(n * n_source * n_voltage if beam_code != NO_BEAM else n_matrix_gains(beams, n), real)
    gains[:] = 0
    first_place = parts.first_place[i]
    of_brightness = parts.brightness[b, 0, first_place if parts.stokes_per_time else i]
    of_pointing = parts.pointing[b, first_place if parts.pointing_per_time else i]
    of_jones, run = parts.jones[b, parts.first_run[i] :], np.zeros(1, np.int64)
    backward = Backward(
        transposed.part.shape[1], pointer(transposed.part), pointer(transposed.factor), pointer(weighted),
        pointer(residual), pointer(first), pointer(of_template), pointer(of_jones), pointer(run),
    )  # fmt: skip
    work = GradientWorkspace(
        backward, pointer(of_node),
        GradientSums(
            pointer(of_brightness), pointer(of_direction), pointer(of_projection),
            pointer(parts.profile[b, i]),
        ),
        n_place * n_source * size(stokes), parts.stokes_per_time, pointer(terms), pointer(products),
        pointer(wide), pointer(flat), pointer(wide[3 * n_chunk :]), pointer(flat[3 * n_chunk :]),
        pointer(pair), pointer(gains), pointer(parts.beam_scale[b, i]), pointer(parts.voltage_lm[b, i]),
        pointer(of_pointing), parts.pointing_per_time,
    )  # fmt: skip
    parts.chi2[b, i] = run_task(
        factored, shifted, beam_code, output, task, b, lanes, nodes, inputs, beams, spectra, correlations,
        jones, vis_out, real_out, work, functions, real, lane, lanes_like, stokes, total,
    )  # fmt: skip
    one = np.ones(n)
    for freq in range(n_freq):
        scale = nodes.scale[freq, task[0]]
        square = scale * scale
        add_lanes(
            pointer(of_direction[freq]), pointer(scale), 3 * n_source, n, pointer(parts.direction[b, i])
        )
        add_lanes(
            pointer(of_projection[freq]), pointer(square), n_projection, n, pointer(parts.projection[b, i])
        )
        square[:0] = 0.0
    add_lanes(backward.template, pointer(one), 4 * n_template, n, pointer(parts.template[b, i]))
    # Numba frees an array after its last use and does not see the pointers to it: this is a later use.
    for used in (residual, of_node, weighted, products, flat, terms, gains):
        used[:0] = 0
    for used in (wide, of_template, one):
        used[:0] = 0.0
    of_direction[:0] = of_projection[:0] = 0.0
    first[0] = pair[0] = run[0] = 0
    of_jones[:0] = 0.0


@functools.cache
def make_gradients(single: bool, n_stokes: int, n_lane: int) -> Callable[..., None]:
    """The loop over (batch, task) that fills `Parts`; `n_lane` of the coordinates, 1 or n."""
    real = np.float32 if single else np.float64
    n = n_lanes(real)
    n_all = n_stokes * n

    @loop
    def gradients(
        factored: bool, shifted: bool, beam_code: int, output: int, tasks: Array, lanes: Lanes,
        nodes: Nodes, inputs: Inputs, beams: CpuBeams | None, spectra: Array, correlations: Correlations,
        transposed: Correlations, jones: LaneTerms | None, vis_out: Array, real_out: Array, parts: Parts,
        functions: ProfileFunctions | None,
    ) -> None:  # fmt: skip
        n_batch, n_task = parts.chi2.shape
        for item in prange(n_batch * n_task):
            b, i = np.int64(item // n_task), np.int64(item % n_task)
            _gradient_task(
                factored, shifted, beam_code, output, i, b, tasks, lanes, nodes, inputs, beams, spectra,
                correlations, transposed, jones, vis_out, real_out, parts, functions, real,
                zeros(real, n_lane), zeros(real, n), zeros(real, n_all), zeros(np.float64, n),
            )  # fmt: skip

    return gradients


# ---- from the places of tasks to times and channels


def adjoint_of(
    parts: Parts, tasks: NDArray[np.int64], lanes: Lanes, inputs: Inputs, sources: Sources,
    chan_freqs: Sequence[NDArray[np.float64]], jones: LaneTerms | None,
) -> Adjoint:  # fmt: skip
    """The sums of all tasks, in the order of the tasks, with their constants.

    `chan_freqs` are the frequencies of channels, in Hz, at each node of frequency.
    """
    template = parts.template.sum(axis=1) * [2.0, *[4.0 * np.pi] * 3]
    projection = -4.0 * phase.SPEED_OF_LIGHT * parts.projection.sum(axis=1)
    by_freq = []
    for k, chan_freq in enumerate(chan_freqs):
        bright = 2.0 * _brightness(parts, k, tasks, lanes, inputs.stokes.shape[1], chan_freq.size)
        by_freq.append(pull_brightness(bright[:, :, :, : sources.n_source], sources, chan_freq))
    of_bright = BrightnessAdjoint(*(sum(values) for values in zip(*by_freq, strict=True)))
    of_jones = None
    if jones is not None:
        of_jones = by_block(parts.jones, jones, tasks, lanes, sources.template_scale is not None)
    return Adjoint(
        parts.chi2.sum(axis=1),
        of_bright.stokes,
        of_bright.spectral_terms,
        of_bright.argument,
        4.0 * np.pi * parts.direction.sum(axis=1),
        projection.reshape(*projection.shape[:2], 2, 3),
        parts.beam_scale.sum(axis=(1, 2)),
        _pointing(parts, tasks, lanes, inputs.pointing.shape[1]),
        parts.voltage_lm.sum(axis=1),
        template,
        2.0 * parts.profile.sum(axis=1),
        of_bright.faraday,
        of_jones,
    )


def _by_slot(values: NDArray[np.float64], tasks: NDArray[np.int64], n_slot: int) -> NDArray[np.float64]:
    """Sums (n_batch, n_block, n_slot, ...) from places of slots, which tasks have in the order of blocks."""
    slots = [(task[0] * n_slot + slot) for task in tasks for slot in range(task[1], task[2])]
    starts = np.flatnonzero(np.diff(slots, prepend=-1))
    found = np.add.reduceat(values, starts, axis=1)
    return found.reshape(len(values), found.shape[1] // n_slot, n_slot, *values.shape[2:])


def _by_block(values: NDArray[np.float64], tasks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sums (n_batch, n_block, 1, ...) from places of tasks."""
    starts = np.searchsorted(tasks[:, 0], np.arange(tasks[-1, 0] + 1))
    return np.add.reduceat(values, starts, axis=1)[:, :, None]


def _brightness(
    parts: Parts, freq: int, tasks: NDArray[np.int64], lanes: Lanes, n_time: int, n_chan: int
) -> NDArray[np.float64]:
    """(n_batch, n_time, n_chan, n_source, n_stokes) from sums of lanes, at a node of frequency."""
    if parts.stokes_per_time:
        found = _by_slot(parts.brightness[:, freq], tasks, len(lanes.slot_time))
    else:
        found = _by_block(parts.brightness[:, freq], tasks)
    n_batch, n_block, n_slot, n_source, n_stokes, n = found.shape
    if lanes.axis == "channels":
        found = found.transpose(0, 2, 1, 5, 3, 4)
        return found.reshape(n_batch, n_slot, n_block * n, n_source, n_stokes)[:, :, :n_chan]
    if lanes.axis == "time" and parts.stokes_per_time:
        found = found.transpose(0, 2, 5, 1, 3, 4)
        return found.reshape(n_batch, n_slot * n, n_chan, n_source, n_stokes)[:, :n_time]
    return found.sum(axis=-1).transpose(0, 2, 1, 3, 4)


def _pointing(parts: Parts, tasks: NDArray[np.int64], lanes: Lanes, n_time: int) -> NDArray[np.float64]:
    """(n_batch, n_time, n_antenna, 2 or 4)."""
    if not parts.pointing_per_time:
        return parts.pointing.sum(axis=(1, 4))[:, None]
    found = _by_slot(parts.pointing, tasks, len(lanes.slot_time)).sum(axis=1)
    n_batch, n_slot, n_antenna, n_motion, n_slot_lane = found.shape
    found = found.transpose(0, 1, 4, 2, 3).reshape(n_batch, n_slot * n_slot_lane, n_antenna, n_motion)
    return found[:, :n_time]
