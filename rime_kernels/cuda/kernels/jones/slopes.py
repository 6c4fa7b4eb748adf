"""Derivatives of an antenna's matrix with respect to where its beam lies on the sky."""

from __future__ import annotations

import functools

from numba import float32, float64, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels.jones.pairs import pairs_of
from rime_kernels.cuda.kernels.jones.voltages import AntennaFrame, CudaBeams, Steps
from rime_kernels.jones_beam import matrices, spline

_cell, _slopes, _turned = spline.cell, spline.slopes, spline.turned


@functools.cache
def _make_row(single: bool) -> Compiled:
    """Function that gives, for four nodes of a row, sums of Re tr(g^H node) times two sets of weights."""
    unpack = pairs_of(single).unpack

    @device.inline
    def node(nodes: Array, offset: int, g: tuple[Scalar, ...]) -> Scalar:
        a_re, a_im = unpack(nodes[offset])
        b_re, b_im = unpack(nodes[offset + uint64(1)])
        c_re, c_im = unpack(nodes[offset + uint64(2)])
        d_re, d_im = unpack(nodes[offset + uint64(3)])
        # Two halves of four terms each: shorter chains of dependent multiply-adds.
        half = g[0] * a_re + g[1] * a_im + g[2] * b_re + g[3] * b_im
        return half + g[4] * c_re + g[5] * c_im + g[6] * d_re + g[7] * d_im

    @device.part
    def row(
        nodes: Array, offset: int, g: tuple[Scalar, ...], w: tuple[Scalar, ...], slope: tuple[Scalar, ...]
    ) -> tuple[Scalar, Scalar]:
        first, second = node(nodes, offset, g), node(nodes, offset + uint64(4), g)
        third, fourth = node(nodes, offset + uint64(8), g), node(nodes, offset + uint64(12), g)
        # One read of the four nodes serves the value and the slope along x.
        value = w[0] * first + w[1] * second + w[2] * third + w[3] * fourth
        return value, slope[0] * first + slope[1] * second + slope[2] * third + slope[3] * fourth

    return row


@functools.cache
def make_pull_place(single: bool, circular: bool) -> Compiled:
    """Function that gives Re tr(g^H dT) for T = E P of an antenna: of l, of m, and of the beam's scale.

    With respect to the source's place; the negative of the first two is that of the place to which the
    antenna points. Beyond the grid E is that of its edge, and changes along the edge alone.
    """
    real = float32 if single else float64
    weights, row = spline.make_weights(single), _make_row(single)
    rotated = device.inline((matrices.rotated_circular if circular else matrices.rotated_linear).py_func)

    @device.part
    def pull_place(
        frame: AntennaFrame,
        l: Scalar,
        m: Scalar,
        steps: Steps,
        scale: Scalar,
        g: tuple[Scalar, ...],
        beams: CudaBeams,
    ) -> tuple[Scalar, Scalar, Scalar]:
        # tr(g^H dE P) = tr((g P^H)^H dE), and P^H turns back.
        g = rotated(g, real(frame.feed_cos), -real(frame.feed_sin))
        # The place in the beam's own frame: from where the antenna points, turned by the parallactic angle.
        dl, dm = l - frame.dl, m - frame.dm
        x, y = _turned(dl, dm, frame.sin, frame.cos)
        i_x, t_x, in_x = _cell(x * steps.per_x - steps.from_x, beams.n_x - 2)
        i_y, t_y, in_y = _cell(y * steps.per_y - steps.from_y, beams.n_y - 2)
        w, v = weights(real(t_x)), weights(real(t_y))
        a, b, c, d = _slopes(t_x)
        slope = real(a), real(b), real(c), real(d)
        a, b, c, d = _slopes(t_y)
        nodes, step = beams.coefficient, uint64(4 * beams.n_x)
        offset = frame.first + uint64(i_y) * step + uint64(4) * uint64(i_x)
        first, first_x = row(nodes, offset, g, w, slope)
        second, second_x = row(nodes, offset + step, g, w, slope)
        third, third_x = row(nodes, offset + step + step, g, w, slope)
        fourth, fourth_x = row(nodes, offset + step + step + step, g, w, slope)
        of_x = v[0] * first_x + v[1] * second_x + v[2] * third_x + v[3] * fourth_x
        of_y = real(a) * first + real(b) * second + real(c) * third + real(d) * fourth
        # `in_x` and `in_y` are 0 beyond the grid, where E is held at the value of the edge.
        by_x, by_y = float64(of_x) * (in_x * steps.per_x), float64(of_y) * (in_y * steps.per_y)
        of_l, of_m = by_x * frame.cos + by_y * frame.sin, by_y * frame.cos - by_x * frame.sin
        # The place within the beam goes as 1 / scale: d/d scale = -(dl d/dl + dm d/dm) / scale.
        return of_l, of_m, -(of_l * dl + of_m * dm) / scale

    return pull_place
