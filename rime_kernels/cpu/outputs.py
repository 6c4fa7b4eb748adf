"""From sums over sources to correlations, and from these to visibilities, residuals, chi2 or its gradient."""

from __future__ import annotations

from typing import NamedTuple

from rime_kernels.compile.jit import inner_function, vector_function
from rime_kernels.compile.types import Compiled, Pointer, Vector
from rime_kernels.cpu.antennas import View, pull, see
from rime_kernels.cpu.correlations import part_of
from rime_kernels.cpu.simd import ahead, constant, convert, fetch, load, size, spread, store
from rime_kernels.cpu.sums import wavelengths
from rime_kernels.cpu.vector_math import cos_sin_turns, log1p
from rime_kernels.inputs import Output

_VIS, _RESIDUAL, _WEIGHTED, _CHI2, _LOG, _GIVEN = (int(kind) for kind in Output)


class Epilogue(NamedTuple):
    """What a task needs to turn sums over sources into its output; `n` is the number of lanes."""

    output: int
    n_corr: int
    n_stokes: int
    n_term: int
    part: Pointer  # as in Correlations
    factor: Pointer
    n_template: int
    n_added: int  # templates that are added to correlations: those that are not part of a `View`
    template: Pointer  # float64 (n_template, 4), as in Inputs; 1/scaled_dof after the last
    is_shifted: bool
    factor_of: Pointer  # (n_template, 2, n), workspace: the templates' factors
    uvw: Pointer  # as in Lanes
    n_uvw_lane: int
    scale: Vector  # float64 (n,): nu/c of the block
    data: Pointer  # (n_entry, n_corr, 3 + 2 n_template, n), of the block
    row: Pointer  # (n_entry, n_row_lane)
    n_row_lane: int
    chan: Pointer  # (n,), of the block
    n_chan: int
    vis_out: Pointer  # (n_row, n_chan, n_corr, 2)
    real_out: Pointer  # float64 (n_row, n_chan, n_corr)
    scratch: Pointer  # (2, n)


class Backward(NamedTuple):
    """Where the weighted residuals of a slot are stored for the gradient; pointers to arrays."""

    n_term: int  # of conj(M)^T, as in Correlations
    part: Pointer
    factor: Pointer
    weighted: Pointer  # (2, n_corr, n), workspace: those of one entry
    residual: Pointer  # (n_entry, 2, n_stokes, n)
    first: Pointer  # (1,): its first entry
    template: (
        Pointer  # float64 (n_template, 4, n): sums for scale, change of l, m, n; last that for scaled_dof
    )
    jones: Pointer  # float64 (n_run, n_antenna, 8, n): sums for the matrices of the antennas
    run: Pointer  # (1,): which run of slots is at hand


@vector_function
def _shift_phase(epilogue: Epilogue, t: int, u: Vector, v: Vector, w: Vector, lanes_like: Vector) -> Vector:
    """cos and sin of the phase by which template t is moved, at coordinates in wavelengths."""
    turns = (
        u * spread(epilogue.template[4 * t + 1], u)
        + v * spread(epilogue.template[4 * t + 2], u)
        + w * spread(epilogue.template[4 * t + 3], u)
    )
    return cos_sin_turns(turns, lanes_like)


@inner_function
def fill_factors(epilogue: Epilogue, entry: int, lanes_like: Vector) -> None:
    """Factors of the templates for the lanes of an entry: scale, and phase where they are moved."""
    n = size(lanes_like)
    u, v, w = wavelengths(epilogue.uvw, entry, epilogue.n_uvw_lane, epilogue.scale)
    for t in range(epilogue.n_template):
        factor = constant(epilogue.template[4 * t], lanes_like)
        if epilogue.is_shifted:
            cos, sin = _shift_phase(epilogue, t, u, v, w, lanes_like)
            store(epilogue.factor_of, 2 * n * t, factor * cos)
            store(epilogue.factor_of, 2 * n * t + n, factor * sin)
        else:
            store(epilogue.factor_of, 2 * n * t, factor)
            store(epilogue.factor_of, 2 * n * t + n, constant(0.0, lanes_like))


@vector_function
def _with_templates(epilogue: Epilogue, i: int, sums: Pointer, data: Pointer, lanes_like: Vector) -> Vector:
    """`part_of` with the templates added; `data` points to the data of this correlation."""
    value, n = part_of(epilogue, i, sums, lanes_like), size(lanes_like)
    for t in range(epilogue.n_added):
        re, im = load(data, n * (3 + 2 * t), lanes_like), load(data, n * (4 + 2 * t), lanes_like)
        cos, sin = (
            load(epilogue.factor_of, 2 * n * t, lanes_like),
            load(epilogue.factor_of, 2 * n * t + n, lanes_like),
        )
        value = value + (cos * im + sin * re if i % 2 else cos * re - sin * im)
    return value


@vector_function
def _n_each(epilogue: Epilogue, lanes_like: Vector) -> int:
    """Numbers of `data` to a correlation of an entry."""
    return (3 + 2 * epilogue.n_template) * size(lanes_like)


@vector_function
def _difference(epilogue: Epilogue, i: int, sums: Pointer, data: Pointer, lanes_like: Vector) -> Vector:
    """Real (i even) or imaginary part of V - D of correlation i // 2, in float64.

    Where a model is far from the data, and weights are high, roundings of the difference and of its square
    are all that float32 does to chi2: 1e-7 of each sample's part.
    """
    value, datum = (
        _with_templates(epilogue, i, sums, data, lanes_like),
        load(data, size(lanes_like) * (i % 2), lanes_like),
    )
    return convert(value, epilogue.scale) - convert(datum, epilogue.scale)


@vector_function
def _given(epilogue: Epilogue, i: int, sums: Pointer, data: Pointer, lanes_like: Vector) -> Vector:
    """The difference V - D where it is given in place of the data; otherwise like `_difference`."""
    return convert(load(data, size(lanes_like) * (i % 2), lanes_like), epilogue.scale)


@vector_function
def _add_square(
    epilogue: Epilogue, backward: Backward, so_far: Vector, square: Vector
) -> tuple[Vector, Vector]:
    """Add a weighted square; gives the new sum, and the factor of this sample's weight in the gradient."""
    return so_far + square, constant(1.0, square)


@vector_function
def _square_total(so_far: Vector) -> Vector:
    return so_far


@vector_function
def _add_log(epilogue: Epilogue, backward: Backward, so_far: Vector, square: Vector) -> tuple[Vector, Vector]:
    """The counterpart of `_add_square` for Student's t: p with 1 + p = (1 + y1) (1 + y2) ..., y = square /
    scaled_dof.

    Exact for any y, since all terms are positive. Adds y/(1 + y) to a sum of `backward`.
    """
    one = constant(1.0, square)
    y = square * constant(epilogue.template[4 * epilogue.n_template], square)
    weight = one / (one + y)
    if backward is not None:
        offset = 4 * size(y) * epilogue.n_template
        store(backward.template, offset, load(backward.template, offset, y) + y * weight)
    return so_far + (y + so_far * y), weight


@vector_function
def _log_total(so_far: Vector) -> Vector:
    """ln(1 + y1) + ln(1 + y2) + ..., of p."""
    return log1p(so_far)


def _make_chi2(add: Compiled, total_of: Compiled) -> Compiled:
    @inner_function
    def chi2(epilogue: Epilogue, sums: Pointer, data: Pointer, lanes_like: Vector) -> Vector:
        """The weighted squares of an entry in float64, lane by lane, summed over correlations."""
        total = constant(0.0, epilogue.scale)
        for k in range(epilogue.n_corr):
            here = ahead(data, k * _n_each(epilogue, lanes_like))
            re = _difference(epilogue, 2 * k, sums, here, lanes_like)
            im = _difference(epilogue, 2 * k + 1, sums, here, lanes_like)
            weight = convert(load(here, 2 * size(lanes_like), lanes_like), epilogue.scale)
            total, _ = add(epilogue, None, total, weight * (re * re + im * im))
        return total_of(total)

    return chi2


def _make_pull(add: Compiled, total_of: Compiled, difference: Compiled = _difference) -> Compiled:
    @inner_function
    def pull_entry(
        epilogue: Epilogue, backward: Backward, view: View | None, entry: int, sums: Pointer, data: Pointer,
        lanes_like: Vector,
    ) -> Vector:  # fmt: skip
        """Store R = conj(M)^T w (V - D) of an entry; gives what its lanes add to chi2."""
        total, n, n_corr, n_stokes = (
            constant(0.0, epilogue.scale),
            size(lanes_like),
            epilogue.n_corr,
            epilogue.n_stokes,
        )
        for k in range(n_corr):
            here = ahead(data, k * _n_each(epilogue, lanes_like))
            weight = convert(load(here, 2 * n, lanes_like), epilogue.scale)
            re = difference(epilogue, 2 * k, sums, here, lanes_like)
            im = difference(epilogue, 2 * k + 1, sums, here, lanes_like)
            total, factor = add(epilogue, backward, total, weight * (re * re + im * im))
            weight = weight * factor
            store(backward.weighted, n * k, convert(weight * re, lanes_like))
            store(backward.weighted, n * (n_corr + k), convert(weight * im, lanes_like))
        weighted = backward.weighted
        if view is not None:
            weighted = pull(view, epilogue, backward, entry, lanes_like)
        residual = ahead(backward.residual, 2 * n * n_stokes * (entry - backward.first[0]))
        for i in range(2 * n_stokes):
            store(residual, n * (n_stokes * (i % 2) + i // 2), part_of(backward, i, weighted, lanes_like))
        return total_of(total)

    return pull_entry


_chi2, _log_chi2 = _make_chi2(_add_square, _square_total), _make_chi2(_add_log, _log_total)
_pull, _log_pull = _make_pull(_add_square, _square_total), _make_pull(_add_log, _log_total)
_given_pull = _make_pull(_add_square, _square_total, _given)


@inner_function
def _pull_templates(
    epilogue: Epilogue, backward: Backward, entry: int, data: Pointer, lanes_like: Vector
) -> None:
    """Add to the sums of the templates z = sum conj(phase T) w (V - D): Re(z), and scale Im(z) u, v, w."""
    n, n_corr = size(lanes_like), epilogue.n_corr
    u, v, w = wavelengths(epilogue.uvw, entry, epilogue.n_uvw_lane, epilogue.scale)
    for t in range(epilogue.n_template):
        z_re, z_im = constant(0.0, lanes_like), constant(0.0, lanes_like)
        for k in range(n_corr):
            here = ahead(data, k * _n_each(epilogue, lanes_like))
            re, im = load(here, n * (3 + 2 * t), lanes_like), load(here, n * (4 + 2 * t), lanes_like)
            r_re, r_im = (
                load(backward.weighted, n * k, lanes_like),
                load(backward.weighted, n * (n_corr + k), lanes_like),
            )
            z_re, z_im = z_re + re * r_re + im * r_im, z_im + re * r_im - im * r_re
        cos, sin = _shift_phase(epilogue, t, u, v, w, lanes_like)
        z_re, z_im = convert(cos * z_re + sin * z_im, u), convert(cos * z_im - sin * z_re, u)
        z_im = z_im * spread(epilogue.template[4 * t], u)
        offset = 4 * n * t
        store(backward.template, offset, load(backward.template, offset, u) + z_re)
        store(backward.template, offset + n, load(backward.template, offset + n, u) + z_im * u)
        store(backward.template, offset + 2 * n, load(backward.template, offset + 2 * n, u) + z_im * v)
        store(backward.template, offset + 3 * n, load(backward.template, offset + 3 * n, u) + z_im * w)


@inner_function
def _write(epilogue: Epilogue, entry: int, sums: Pointer, data: Pointer, lanes_like: Vector) -> None:
    """Write V, V - D or w |V - D|^2 of the lanes to their rows and channels."""
    n = size(lanes_like)
    for k in range(epilogue.n_corr):
        here = ahead(data, k * _n_each(epilogue, lanes_like))
        re = _with_templates(epilogue, 2 * k, sums, here, lanes_like)
        im = _with_templates(epilogue, 2 * k + 1, sums, here, lanes_like)
        if epilogue.output != _VIS:
            re, im = re - load(here, 0, lanes_like), im - load(here, n, lanes_like)
        if epilogue.output == _WEIGHTED:
            re = load(here, 2 * n, lanes_like) * (re * re + im * im)
        store(epilogue.scratch, 0, re)
        store(epilogue.scratch, n, im)
        for i in range(n):
            row = epilogue.row[entry * epilogue.n_row_lane + min(i, epilogue.n_row_lane - 1)]
            chan = epilogue.chan[i]
            if row >= 0 and chan >= 0:
                place = (row * epilogue.n_chan + chan) * epilogue.n_corr + k
                if epilogue.output == _WEIGHTED:
                    epilogue.real_out[place] = epilogue.scratch[i]
                else:
                    epilogue.vis_out[2 * place] = epilogue.scratch[i]
                    epilogue.vis_out[2 * place + 1] = epilogue.scratch[n + i]


@vector_function
def expect(epilogue: Epilogue, entry: int, stop: int, lanes_like: Vector) -> None:
    """Prefetch the data of entries entry .. stop - 1 while their sums are computed."""
    n_data = epilogue.n_corr * _n_each(epilogue, lanes_like)
    if epilogue.output != _VIS:
        fetch(epilogue.data, entry * n_data, stop * n_data)


@vector_function
def needs_sums(epilogue: Epilogue, view: View | None) -> bool:
    """Whether the output depends on the sums over sources."""
    return view is not None or epilogue.output != _GIVEN


@vector_function
def finish(
    epilogue: Epilogue, backward: Backward, view: View | None, entry: int, sums: Pointer, lanes_like: Vector
) -> Vector:
    """Compute the output of an entry from its sums, or store its residuals; the chi2 of its lanes, or 0.

    `view` is None without Jones matrices of the antennas.
    """
    data = ahead(epilogue.data, entry * epilogue.n_corr * _n_each(epilogue, lanes_like))
    done = constant(0.0, epilogue.scale)
    if epilogue.is_shifted:
        fill_factors(epilogue, entry, lanes_like)
    if view is not None:
        sums = see(view, epilogue, entry, sums, data, lanes_like)
    if backward is not None:
        if epilogue.output == _LOG:
            done = _log_pull(epilogue, backward, view, entry, sums, data, lanes_like)
        elif epilogue.output == _GIVEN:
            done = _given_pull(epilogue, backward, view, entry, sums, data, lanes_like)
        else:
            done = _pull(epilogue, backward, view, entry, sums, data, lanes_like)
        if epilogue.n_template > 0:
            _pull_templates(epilogue, backward, entry, data, lanes_like)
    elif epilogue.output == _CHI2:
        done = _chi2(epilogue, sums, data, lanes_like)
    elif epilogue.output == _LOG:
        done = _log_chi2(epilogue, sums, data, lanes_like)
    else:
        _write(epilogue, entry, sums, data, lanes_like)
    return done
