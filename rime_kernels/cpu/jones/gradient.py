"""The gradient of chi2 through beams of Jones matrices on the CPU: tasks, as in `cpu/gradient.py`."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numba import prange

from rime_kernels.compile.jit import inner_function, loop
from rime_kernels.compile.types import Array, NumbaType, Vector
from rime_kernels.cpu.adjoint import CHUNK
from rime_kernels.cpu.antennas import LaneTerms
from rime_kernels.cpu.brightness import workspace
from rime_kernels.cpu.correlations import Correlations
from rime_kernels.cpu.gradient import Parts, add_lanes, most_entries
from rime_kernels.cpu.jones.adjoint import PIECE, JonesGradientWorkspace
from rime_kernels.cpu.jones.forward import run_task
from rime_kernels.cpu.jones.spline import CpuBeams
from rime_kernels.cpu.lanes import Lanes
from rime_kernels.cpu.outputs import Backward
from rime_kernels.cpu.profiles import ProfileFunctions
from rime_kernels.cpu.simd import n_lanes, pointer, size, zeros
from rime_kernels.inputs import Inputs


@inner_function
def _gradient_task(
    factored: bool, shifted: bool, output: int, i: int, b: int, tasks: Array, lanes: Lanes, inputs: Inputs,
    beams: CpuBeams, spectra: Array, correlations: Correlations, transposed: Correlations,
    jones: LaneTerms | None,
    vis_out: Array, real_out: Array, parts: Parts, functions: ProfileFunctions | None, real: NumbaType,
    lane: Vector, lanes_like: Vector, eight: Vector, total: Vector,
) -> None:  # fmt: skip
    """One task of one entry of the batch: its chi2, and its sums for the gradient."""
    n, n_source, n_template, task = (
        size(lanes_like),
        parts.direction.shape[2],
        parts.template.shape[2],
        tasks[i],
    )
    n_projection, n_chunk = 6 * parts.projection.shape[2], CHUNK * n
    residual = workspace(8 * n * most_entries(task, lanes.slot_entry), real)
    weighted = workspace(correlations.part.shape[0] * n, real)
    products, flat = workspace(2 * n_chunk, real), workspace(10 * n_chunk, real)
    gains = workspace(8 * n * (PIECE * beams.antenna_class.shape[1] + 2), real)
    wide, first = workspace(4 * n_chunk + 2 * n, np.float64), np.zeros(1, np.int64)
    of_direction, of_projection = np.zeros(3 * n * n_source), np.zeros(n * n_projection)
    of_template = np.zeros(4 * n * n_template)
    first_place = parts.first_place[i]
    of_brightness = parts.brightness[b, 0, first_place if parts.stokes_per_time else i]
    of_pointing = parts.pointing[b, first_place if parts.pointing_per_time else i]
    of_jones, run = parts.jones[b, parts.first_run[i] :], np.zeros(1, np.int64)
    backward = Backward(
        transposed.part.shape[1], pointer(transposed.part), pointer(transposed.factor), pointer(weighted),
        pointer(residual), pointer(first), pointer(of_template), pointer(of_jones), pointer(run),
    )  # fmt: skip
    work = JonesGradientWorkspace(
        backward, pointer(of_brightness), pointer(of_direction), pointer(of_projection),
        pointer(parts.profile[b, i]), parts.stokes_per_time, pointer(gains[16 * n :]), pointer(gains),
        pointer(products), pointer(wide), pointer(flat),
        pointer(wide[3 * n_chunk :]), pointer(flat[3 * n_chunk :]),
        pointer(wide[4 * n_chunk :]), pointer(parts.beam_scale[b, i]), pointer(parts.voltage_lm[b, i]),
        pointer(of_pointing), parts.pointing_per_time,
    )  # fmt: skip
    parts.chi2[b, i] = run_task(
        factored, shifted, output, task, b, lanes, inputs, beams, spectra, correlations, jones, vis_out,
        real_out, work, functions, real, lane, lanes_like, eight, total,
    )  # fmt: skip
    scale, one = lanes.scale[task[0]], np.ones(n)
    square = scale * scale
    add_lanes(work.direction, pointer(scale), 3 * n_source, n, pointer(parts.direction[b, i]))
    add_lanes(work.projection, pointer(square), n_projection, n, pointer(parts.projection[b, i]))
    add_lanes(backward.template, pointer(one), 4 * n_template, n, pointer(parts.template[b, i]))
    # Numba frees an array after its last use and does not see the pointers to it: this is a later use.
    for used in (residual, weighted, products, flat, gains):
        used[:0] = 0
    for used in (wide, of_direction, of_projection, of_template, square, one):
        used[:0] = 0.0
    first[0] = run[0] = 0
    of_jones[:0] = 0.0


@functools.cache
def make_gradients(single: bool, n_lane: int) -> Callable[..., None]:
    """The loop over (batch, task) that fills `Parts`; `n_lane` of the coordinates, 1 or n."""
    real = np.float32 if single else np.float64
    n = n_lanes(real)

    @loop
    def gradients(
        factored: bool, shifted: bool, output: int, tasks: Array, lanes: Lanes, inputs: Inputs,
        beams: CpuBeams,
        spectra: Array, correlations: Correlations, transposed: Correlations, jones: LaneTerms | None,
        vis_out: Array, real_out: Array, parts: Parts, functions: ProfileFunctions | None,
    ) -> None:  # fmt: skip
        n_batch, n_task = parts.chi2.shape
        for item in prange(n_batch * n_task):
            b, i = np.int64(item // n_task), np.int64(item % n_task)
            _gradient_task(
                factored, shifted, output, i, b, tasks, lanes, inputs, beams, spectra, correlations,
                transposed, jones, vis_out, real_out, parts, functions, real, zeros(real, n_lane),
                zeros(real, n), zeros(np.float64, 8), zeros(np.float64, n),
            )  # fmt: skip

    return gradients
