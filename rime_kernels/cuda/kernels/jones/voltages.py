"""The matrix through which an antenna sees a source, T = E P K, and its product with the brightness."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from numba import float32, float64, int64, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels.arguments import DeviceSky
from rime_kernels.cuda.kernels.jones.pairs import pairs_of
from rime_kernels.jones_beam import matrices, spline
from rime_kernels.physics.feeds import feeds_of

_cell, _turned = spline.cell, spline.turned


class CudaBeams(NamedTuple):
    """A `JonesBeam` on the device; `motion` and scale are in `DeviceSky`."""

    coefficient: Array  # `pairs`, flat (n_class, n_chan, n_y, n_x, 4); borders counted
    antenna_class: Array  # int32 (n_time or 1, n_antenna)
    angle: Array  # float64 (n_time or 1, n_antenna)
    feed_angle: Array  # float64 (n_time or 1, n_antenna, n_chan or 1)
    wavelength2: Array  # float64 (n_chan,) where there are turns, or one unused element
    applies: Array  # int32 (n_source or 1,): 0 where a source is not seen through the beam
    n_chan: int
    n_y: int
    n_x: int
    first_x: float  # of the grid without its borders, rad
    step_x: float
    first_y: float
    step_y: float


class AntennaFrame(NamedTuple):
    """How an antenna's beam lies on the sky at a time and channel."""

    dl: Scalar  # where it points, rad
    dm: Scalar
    cos: Scalar  # of the angle by which it is turned
    sin: Scalar
    feed_cos: Scalar  # of its feeds' angle
    feed_sin: Scalar
    first: int  # where the coefficients of its class and channel begin, uint64


def is_circular(matrix: tuple[complex, ...]) -> bool:
    """Whether the feeds are R, L, from `Rows.stokes_to_corr` (n_corr, 4), flat."""
    full, _ = feeds_of(np.reshape(matrix, (-1, 4)), "beams of Jones matrices")
    return bool(full[0, 1] == 0.0)  # RR has no Q


class Steps(NamedTuple):
    """What turns a place in a beam's frame, rad, into steps of its grid."""

    per_x: Scalar
    from_x: Scalar
    per_y: Scalar
    from_y: Scalar


@device.inline
def steps_of(scale: Scalar, beams: CudaBeams) -> Steps:
    """The steps of the grid for a beam that is `scale` times as wide as its grid has it."""
    per_x, per_y = 1.0 / (scale * beams.step_x), 1.0 / (scale * beams.step_y)
    return Steps(per_x, beams.first_x / beams.step_x, per_y, beams.first_y / beams.step_y)


@device.inline
def frame_of(b: int, t: Scalar, a: Scalar, c: int, sky: DeviceSky, beams: CudaBeams) -> AntennaFrame:
    """The frame of antenna a at time slot t and channel c."""
    pointing, angle, feed_angle = sky.pointing, beams.angle, beams.feed_angle
    # What does not change has a single time, or antenna.
    time, antenna = min(t, pointing.shape[1] - 1), min(a, pointing.shape[2] - 1)
    turn = angle[min(t, angle.shape[0] - 1), a]
    phi = feed_angle[min(t, feed_angle.shape[0] - 1), a, min(c, feed_angle.shape[2] - 1)]
    if pointing.shape[3] > 2:
        phi += pointing[b, time, antenna, 2] - pointing[b, time, antenna, 3] * beams.wavelength2[c]
    which = beams.antenna_class[min(t, beams.antenna_class.shape[0] - 1), a]
    plane = int64(which) * int64(beams.n_chan) + int64(c)
    return AntennaFrame(
        pointing[b, time, antenna, 0], pointing[b, time, antenna, 1], math.cos(turn), math.sin(turn),
        math.cos(phi), math.sin(phi), uint64(int64(4) * plane * int64(beams.n_y) * int64(beams.n_x)),
    )  # fmt: skip


@functools.cache
def _make_element(single: bool) -> Compiled:
    """Function that sums one element of 4 x 4 nodes times the weights; `step` from a row to the next."""
    unpack = pairs_of(single).unpack

    @device.part
    def row(nodes: Array, offset: int, w: Array) -> tuple[Scalar, Scalar]:
        a_re, a_im = unpack(nodes[offset])
        b_re, b_im = unpack(nodes[offset + uint64(4)])
        c_re, c_im = unpack(nodes[offset + uint64(8)])
        d_re, d_im = unpack(nodes[offset + uint64(12)])
        re = w[0] * a_re + w[1] * b_re + w[2] * c_re + w[3] * d_re
        return re, w[0] * a_im + w[1] * b_im + w[2] * c_im + w[3] * d_im

    @device.inline
    def element(nodes: Array, offset: int, step: Scalar, w: Array, v: Array) -> tuple[Scalar, Scalar]:
        a_re, a_im = row(nodes, offset, w)
        b_re, b_im = row(nodes, offset + step, w)
        c_re, c_im = row(nodes, offset + step + step, w)
        d_re, d_im = row(nodes, offset + step + step + step, w)
        re = v[0] * a_re + v[1] * b_re + v[2] * c_re + v[3] * d_re
        return re, v[0] * a_im + v[1] * b_im + v[2] * c_im + v[3] * d_im

    return element


@functools.cache
def make_voltage(single: bool, circular: bool) -> Compiled:
    """Function that gives E P of an antenna towards a source at l, m: see `matrices`."""
    real = float32 if single else float64
    weights, element = spline.make_weights(single), _make_element(single)
    rotated = device.inline((matrices.rotated_circular if circular else matrices.rotated_linear).py_func)

    @device.inline
    def voltage(
        frame: AntennaFrame, l: Scalar, m: Scalar, steps: Steps, applies: Scalar, beams: CudaBeams
    ) -> tuple[Scalar, ...]:
        one, zero = real(1), real(0)
        e = one, zero, zero, zero, zero, zero, one, zero
        if applies != 0:
            x, y = _turned(l - frame.dl, m - frame.dm, frame.sin, frame.cos)
            i_x, t_x, _ = _cell(x * steps.per_x - steps.from_x, beams.n_x - 2)
            i_y, t_y, _ = _cell(y * steps.per_y - steps.from_y, beams.n_y - 2)
            # Cells are found in float64: their borders are where one rounding would move a place by a cell.
            w, v = weights(real(t_x)), weights(real(t_y))
            nodes, step = beams.coefficient, uint64(4 * beams.n_x)
            offset = frame.first + uint64(i_y) * step + uint64(4) * uint64(i_x)
            e00 = element(nodes, offset, step, w, v)
            e01 = element(nodes, offset + uint64(1), step, w, v)
            e10 = element(nodes, offset + uint64(2), step, w, v)
            e11 = element(nodes, offset + uint64(3), step, w, v)
            e = e00[0], e00[1], e01[0], e01[1], e10[0], e10[1], e11[0], e11[1]
        return rotated(e, real(frame.feed_cos), real(frame.feed_sin))

    return voltage


@functools.cache
def make_times_brightness(circular: bool) -> Compiled:
    """Function that gives T B from T and the two pairs of Stokes parameters I + iQ and U + iV."""
    product = device.inline(matrices.times_hermitian.py_func)

    @device.inline
    def times_brightness(t: tuple[Scalar, ...], iq: Scalar, uv: Scalar) -> tuple[Scalar, ...]:
        if circular:
            return product(t, iq.real, uv.imag, iq.imag, uv.real)
        return product(t, iq.real, iq.imag, uv.real, uv.imag)

    return times_brightness
