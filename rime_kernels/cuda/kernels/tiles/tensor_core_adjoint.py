"""The kernel in which point sources accumulate by tensor cores: the adjoint of their sum (`matrices`).

A block works on one item of one batch entry, and of it on some blocks of 16 rows of the matrices of
residuals, one for each warp. The terms of a chunk of sources lie in shared memory: for each eight antennas
and sources 512 bytes, in double precision one such plane for even and one for odd antennas. Thread 4 g + t
multiplies by the terms of source g and antennas 2 t, 2 t + 1, and has products of sources 2 t, 2 t + 1 and
antennas 2 g, 2 g + 1, whose terms it reads as well; the order within a plane is such that neither meets
another thread's bank. While one chunk accumulates the next is made.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from numba import complex64, complex128, float32, float64, int32, int64, uint32, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, DeviceKernel, Module, Scalar
from rime_kernels.cuda.kernels import baseline, scalars
from rime_kernels.cuda.kernels.arguments import DeviceSky
from rime_kernels.cuda.kernels.reductions import make_warp_fold
from rime_kernels.cuda.kernels.tiles import matrices, tensor_cores
from rime_kernels.cuda.kernels.tiles.matrices import TensorCoreAdjointKernel
from rime_kernels.cuda.kernels.tiles.parts import TileTables, TileWork
from rime_kernels.physics import phase

_C = phase.SPEED_OF_LIGHT
_turns = phase.turns
# Sums of a source over the rows of a warp: of the residual, and of its turn times u, v and w.
_N_SUM = 4

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda


class ResidualInput(NamedTuple):
    """What the kernel reads besides, and where it leaves what sources accumulate."""

    first_tile: Array  # int32 (n_rows n_step,): `matrices.make_read_rest`
    values: Array  # residuals, flat: `TileRecords.by_pair`
    moments: Array  # `TileRecords.moments`


class TensorCoreItem(NamedTuple):
    """What a block works on, and which thread of it this is."""

    thread: int
    warp: Scalar
    lane: int
    b: int  # entry of the batch
    copy: Scalar  # which part of the matrices
    number: Scalar  # item of the slab
    time: int  # time slot
    chan: Scalar
    n_used: Scalar  # slots that hold antennas


class Memory(NamedTuple):
    """A block's shared memory."""

    u: Array  # float64 (n_slot,), wavelengths; 0 where no antenna is
    v: Array
    w: Array
    uvw: Array  # the same, u of all slots, then v, then w, in working precision
    accumulated: Array  # (2, n_warp, chunk, 4), flat, working precision: of two chunks in turn
    terms: Any  # the address of the terms of both chunks; the array in the simulator


@functools.cache
def make_accumulate_point_gradients(kernel: TensorCoreAdjointKernel) -> DeviceKernel:
    """The kernel; it leaves the records of the sources that are varied, of each item and copy."""
    single, chunk, n_own = kernel.variant.single, kernel.chunk, kernel.n_own
    real, n_parameter = float32 if single else float64, kernel.n_parameter
    word = uint32 if single and not device.simulated() else real
    n_word = n_own if single and not device.simulated() else 1
    shared_memory, n_rows = _make_memory(kernel), kernel.n_rows
    find_item, place, fill = _make_find_item(kernel), _make_place(kernel), _make_fill(kernel)
    read, split = matrices.make_read_rest(kernel), matrices.make_split_rest(kernel)
    accumulate, join = _make_accumulate_chunk(kernel), _make_join(kernel)
    n_sum = 2 * _N_SUM  # of two sources
    numbers_of = device.inline((lambda own, words: words) if n_word > 1 else (lambda own, words: own))

    @device.kernel(kernel.max_register, kernel.dynamic_bytes)
    def accumulate_point_gradients(
        work: TileWork, tables: TileTables, sky: DeviceSky, rest: ResidualInput
    ) -> None:
        memory = shared_memory()
        own, words = cuda.local.array(n_own, real), cuda.local.array(n_word, word)
        products, sums = cuda.local.array(8, real), cuda.local.array(n_sum, real)
        item = find_item(int32(cuda.threadIdx.x), uint32(cuda.blockIdx.x), work, tables)
        place(item, tables, memory)
        of_block = uint32(item.warp // uint32(n_rows))
        rows = uint32(item.warp - of_block * uint32(n_rows))
        parameter = uint32(item.copy * uint32(n_parameter) + of_block)
        of_all = uint64(item.b) * uint64(work.n_total) + uint64(item.number)
        read(of_all, parameter, rows, item.lane, rest.first_tile, rest.values, own)
        inverse = split(own, words)
        cuda.syncthreads()
        pair = uint32(uint32(8) * rows + uint32(item.lane >> uint32(2)))
        # One half of the warps that share a scheduler makes terms first, the other multiplies first.
        late = uint32((item.warp >> uint32(2)) & uint32(1))
        n_varied = int32(int32(sky.stop_varied) - int32(sky.first_varied))
        n_chunk = int32(int32(n_varied + int32(chunk - 1)) // int32(chunk))
        number = int32(0)
        while number < n_chunk + 2:
            # Terms are one chunk ahead of the products, and these are one ahead of the records.
            if number >= 2:
                join(item, int32(number - 2), work, tables, sky, memory.accumulated, rest.moments)
            step = uint32(0)
            # Twice, in a way that the compiler does not know: it would make two copies of the code.
            while step <= uint32(work.n_item):
                if uint32(step ^ late) == 0:
                    if number < n_chunk:
                        fill(item, number, sky, memory)
                elif 0 < number <= n_chunk:
                    accumulate(
                        item, int32(number - 1), pair, inverse, sky, numbers_of(own, words), products, sums,
                        memory,
                    )  # fmt: skip
                step = uint32(step + uint32(1))
            cuda.syncthreads()
            number = int32(number + 1)

    return accumulate_point_gradients


def _make_memory(kernel: TensorCoreAdjointKernel) -> Compiled:
    """Function that declares a block's shared arrays."""
    single, n_slot, n_uvw = kernel.variant.single, kernel.n_slot, 3 * kernel.n_slot
    real, n_accumulated = float32 if single else float64, 2 * kernel.n_warp * kernel.chunk * _N_SUM
    element: Any = complex64 if single else complex128
    if not device.simulated():
        element = uint64
    address: Compiled = (lambda array: array) if device.simulated() else tensor_cores.make_address()

    @device.inline
    def shared_memory() -> Memory:
        # A line for each: the simulator tells shared arrays apart by their line.
        u = cuda.shared.array(n_slot, float64)
        v = cuda.shared.array(n_slot, float64)
        w = cuda.shared.array(n_slot, float64)
        uvw = cuda.shared.array(n_uvw, real)
        accumulated = cuda.shared.array(n_accumulated, real)
        terms = cuda.shared.array(0, element)
        return Memory(u, v, w, uvw, accumulated, address(terms))

    return shared_memory


def _make_find_item(kernel: TensorCoreAdjointKernel) -> Compiled:
    """Function that says what block `number` works on."""
    n_copy = kernel.n_copy

    @device.inline
    def find_item(thread: int, number: Scalar, work: TileWork, tables: TileTables) -> TensorCoreItem:
        copy, rest = uint32(number % uint32(n_copy)), uint32(number // uint32(n_copy))
        b, n_chan = uint32(0), uint32(tables.chan_freq.size)
        if work.n_batch > 1:
            b, rest = uint32(rest % uint32(work.n_batch)), uint32(rest // uint32(work.n_batch))
        layer = uint32(rest // n_chan)
        time = tables.layer_time[uint32(work.first_layer) + layer]
        warp, lane = uint32(uint32(thread) >> uint32(5)), uint32(uint32(thread) & uint32(31))
        chan = uint32(rest - layer * n_chan)
        return TensorCoreItem(uint32(thread), warp, lane, b, copy, rest, time, chan, uint32(work.n_used))

    return find_item


def _make_place(kernel: TensorCoreAdjointKernel) -> Compiled:
    """Function that puts the antennas' coordinates, in wavelengths, into shared memory."""
    n_slot, n_thread = kernel.n_slot, 32 * kernel.n_warp
    real = float32 if kernel.variant.single else float64

    @device.part
    def place(item: TensorCoreItem, tables: TileTables, memory: Memory) -> None:
        scale, x = tables.chan_freq[item.chan] / _C, item.thread
        while x < uint32(n_slot):
            u, v, w = 0.0, 0.0, 0.0
            if x < item.n_used:
                a = tables.antenna[0, x]
                u = tables.antenna_uvw[item.time, a, 0] * scale
                v = tables.antenna_uvw[item.time, a, 1] * scale
                w = tables.antenna_uvw[item.time, a, 2] * scale
            memory.u[x], memory.v[x], memory.w[x] = u, v, w
            memory.uvw[x], memory.uvw[x + uint32(n_slot)] = real(u), real(v)
            memory.uvw[x + uint32(2 * n_slot)] = real(w)
            x = uint32(x + uint32(n_thread))

    return place


@functools.cache
def _make_put(kernel: TensorCoreAdjointKernel) -> Compiled:
    """Function that writes the terms of antennas 2 t and 2 t + 1 of a step for one source.

    `slot` is that of the first antenna, `group` and `source` say which of the chunk's, `within` where in a
    plane their unit lies.
    """
    chunk, plane, n_buffer = kernel.chunk, kernel.plane_bytes, kernel.dynamic_bytes // 2
    if device.simulated():
        n_element = kernel.n_slot * chunk

        def put(
            terms: Any, odd: Any, step: Any, slot: Any, group: Any, source: Any, within: Any, a: Any, b: Any
        ) -> None:
            into = int(odd) * n_element + int(slot) * chunk + 8 * int(group) + int(source)
            terms[into], terms[into + chunk] = complex(*a), complex(*b)

        return put
    single = kernel.variant.single
    split, store = tensor_cores.make_split(), tensor_cores.make_store(single)

    @device.inline
    def put_terms(
        terms: Scalar, odd: Scalar, step: Scalar, slot: int, group: int, source: Scalar,
        within: Scalar, a: Any, b: Any,
    ) -> None:  # fmt: skip
        offset = uint32(terms + odd * uint32(n_buffer) + uint32(512) * group + within)
        if single:
            x, y = split(a[0], a[1]), split(b[0], b[1])
            store(uint32(offset + step * uint32(plane)), x[0], y[0], x[1], y[1])
        else:
            offset = uint32(offset + step * uint32(2 * plane))
            store(offset, a[0], a[1])
            store(uint32(offset + uint32(plane)), b[0], b[1])

    return put_terms


def _make_fill(kernel: TensorCoreAdjointKernel) -> Compiled:
    """Function that makes the terms of chunk `number`, of two antennas and one source at a time."""
    n_step, n_warp, chunk = kernel.n_step, kernel.n_warp, kernel.chunk
    real, put = float32 if kernel.variant.single else float64, _make_put(kernel)
    cos_sin, place = scalars.make_cos_sin(kernel.variant.single), device.inline(matrices.place_in_plane)

    @device.inline
    def term(
        x: Scalar, item: TensorCoreItem, memory: Memory, l: Scalar, m: Scalar, n: Scalar
    ) -> tuple[Scalar, Scalar]:
        cos, sin = cos_sin(_turns(memory.u[x], memory.v[x], memory.w[x], l, m, n))
        if x >= item.n_used:
            cos, sin = real(0), real(0)
        return cos, sin

    @device.part
    def fill(item: TensorCoreItem, number: Scalar, sky: DeviceSky, memory: Memory) -> None:
        start = uint32(uint32(sky.first_varied) + uint32(number) * uint32(chunk))
        n_source = min(uint32(chunk), uint32(uint32(sky.stop_varied) - start))
        source, t = uint32(item.lane >> uint32(2)), uint32(item.lane & uint32(3))
        within, odd = place(item.lane), uint32(uint32(number) & uint32(1))
        e = item.warp
        while e < uint32(uint32(n_step) * uint32(uint32(n_source + uint32(7)) >> uint32(3))):
            group = uint32(e // uint32(n_step))
            step = uint32(e - group * uint32(n_step))
            # In place of sources that are not there the last one comes again; nobody reads what it
            # accumulates.
            s = uint32(start + min(uint32(uint32(8) * group + source), uint32(n_source - uint32(1))))
            l, m, n = sky.direction[item.b, s, 0], sky.direction[item.b, s, 1], sky.direction[item.b, s, 2]
            x = uint32(uint32(8) * step + uint32(2) * t)
            a = term(x, item, memory, l, m, n)
            b = term(uint32(x + uint32(1)), item, memory, l, m, n)
            put(memory.terms, odd, step, x, group, source, within, a, b)
            e = uint32(e + uint32(n_warp))

    return fill


@functools.cache
def _make_read(kernel: TensorCoreAdjointKernel) -> Compiled:
    """Function that reads the terms of a pair of antennas for source 2 t + x of a group, x 0 or 1."""
    single, plane, chunk = kernel.variant.single, kernel.plane_bytes, kernel.chunk
    if device.simulated():

        def read(offset: Any, pair: Any, t: Any, x: int) -> Any:
            terms, first = offset
            into = first + 2 * int(pair) * chunk + 2 * int(t) + x
            a, b = terms[into], terms[into + chunk]
            return a.real, a.imag, b.real, b.imag

        return read
    load, whole = tensor_cores.make_load(single), tensor_cores.make_whole()

    @device.inline
    def read_terms(offset: int, pair: Scalar, t: Scalar, x: int) -> Any:
        step, within = uint32(pair >> uint32(2)), uint32(pair & uint32(3))
        number = uint32(uint32(uint32(4 * x) + within) ^ uint32(uint32(2) * t))
        here = uint32(offset + uint32(16) * uint32(uint32(8) * t + number))
        if single:
            both = load(uint32(here + step * uint32(plane)))
            a, b = whole(both[0], both[2]), whole(both[1], both[3])
        else:
            here = uint32(here + step * uint32(2 * plane))
            a, b = load(here), load(uint32(here + uint32(plane)))
        return a[0], a[1], b[0], b[1]

    return read_terms


def _make_terms_at(kernel: TensorCoreAdjointKernel) -> Compiled:
    """Function that says where the terms of a group of eight sources begin."""
    n_buffer, n_element = kernel.dynamic_bytes // 2, kernel.n_slot * kernel.chunk
    if device.simulated():
        return lambda memory, odd, group: (memory.terms, int(odd) * n_element + 8 * int(group))

    @device.inline
    def terms_at(memory: Memory, odd: Scalar, group: int) -> Scalar:
        return uint32(memory.terms + odd * uint32(n_buffer) + uint32(512) * group)

    return terms_at


def _make_accumulate_chunk(kernel: TensorCoreAdjointKernel) -> Compiled:
    """Function in which the sources of chunk `number` accumulate from the rows of a warp."""
    chunk, n_warp, n_slot = kernel.chunk, kernel.n_warp, kernel.n_slot
    multiply, read, fold = (
        matrices.make_multiply(kernel),
        _make_read(kernel),
        make_warp_fold(2 * _N_SUM, 4, 32),
    )
    terms_at = _make_terms_at(kernel)

    @device.part
    def accumulate_chunk(
        item: TensorCoreItem, number: Scalar, pair: Scalar, inverse: Scalar, sky: DeviceSky, numbers: Array,
        product: Array, value: Array, memory: Memory,
    ) -> None:  # fmt: skip
        odd, t = uint32(uint32(number) & uint32(1)), uint32(item.lane & uint32(3))
        left = int32(int32(sky.stop_varied) - int32(sky.first_varied) - number * int32(chunk))
        n_group = uint32(min(uint32(chunk // 8), uint32(uint32(left + int32(7)) >> uint32(3))))
        # Where the sum that this thread ends up with goes: those of source 2 t, then of 2 t + 1, one half
        # after the other (`make_warp_fold`).
        lane = item.lane
        which = uint32(
            uint32(lane & uint32(4)) | uint32((lane >> uint32(2)) & uint32(2)) | uint32(lane >> uint32(4))
        )
        into = uint32(uint32(odd * uint32(n_warp) + item.warp) * uint32(chunk) + uint32(2) * t)
        into = uint32(uint32(_N_SUM) * into + which)
        group = uint32(0)
        while group < n_group:
            offset = terms_at(memory, odd, group)
            multiply(offset, lane, numbers, product)
            for x in range(2):
                a_re, a_im, b_re, b_im = read(offset, pair, t, x)
                re, im = product[x], product[4 + x]
                re_1, im_1 = product[2 + x], product[6 + x]
                turn, turn_1 = a_re * im - a_im * re, b_re * im_1 - b_im * re_1
                value[_N_SUM * x] = a_re * re + a_im * im + b_re * re_1 + b_im * im_1
                for k in range(3):
                    slot = uint32(uint32(k * n_slot) + uint32(2) * pair)
                    value[_N_SUM * x + 1 + k] = (
                        turn * memory.uvw[slot] + turn_1 * memory.uvw[slot + uint32(1)]
                    )
            fold(lane, value)
            memory.accumulated[into] = inverse * value[0]
            into = uint32(into + uint32(8 * _N_SUM))
            group = uint32(group + uint32(1))

    return accumulate_chunk


def _make_join(kernel: TensorCoreAdjointKernel) -> Compiled:
    """Function that joins what the sources of chunk `number` accumulated, into their records."""
    single, n_warp, chunk, n_rows = kernel.variant.single, kernel.n_warp, kernel.chunk, kernel.n_rows
    n_parameter, n_copy, n_thread = kernel.n_parameter, kernel.n_copy, 32 * kernel.n_warp
    polarised, per_source = kernel.variant.polarised, 2 if kernel.variant.polarised else 1
    n_made = kernel.record.n_bright + _N_SUM - 1  # what is behind is 0
    real, n_value, n_bright = float32 if single else float64, kernel.record.n_value, kernel.record.n_bright
    read_stokes = baseline.make_read_stokes(single, 4 if polarised else 1, int64)
    chosen = kernel.variant.stokes or (0, 1, 2, 3)
    in_order, (one, other) = chosen == (0, 1, 2, 3), chosen[:2]

    @device.inline
    def name_of(parameter: Scalar) -> Scalar:
        if in_order:
            return parameter
        return uint32(one) if parameter == 0 else uint32(other)

    @device.part
    def join(
        item: TensorCoreItem, number: Scalar, work: TileWork, tables: TileTables, sky: DeviceSky,
        accumulated: Array,
        moments: Array,
    ) -> None:  # fmt: skip
        n_source, n_chan = int64(sky.direction.shape[1]), int64(tables.chan_freq.size)
        start = int32(int32(sky.first_varied) + number * int32(chunk))
        n_now = uint32(min(int32(chunk), int32(int32(sky.stop_varied) - start)))
        # Brightness that does not change has a single time, which all times read.
        time = min(int64(item.time) - int64(work.first_time), int64(sky.n_bright_time) - int64(1))
        bright_at = (int64(item.b) * int64(sky.n_bright_time) + time) * n_chan + int64(item.chan)
        bright_at = bright_at * n_source + int64(start)
        row = (int64(item.b) * int64(work.n_total) + int64(item.number)) * int64(n_copy) + int64(item.copy)
        row = row * n_source + int64(start)
        odd, x = uint32(uint32(number) & uint32(1)), item.thread
        while x < n_now * uint32(n_value):
            s = uint32(x // uint32(n_value))
            k = uint32(x - s * uint32(n_value))
            stokes = read_stokes(sky.bright, (bright_at + int64(s)) * int64(per_source))
            is_bright, total = k < uint32(n_bright), 0.0
            column = uint32(0) if is_bright else uint32(k + uint32(1) - uint32(n_bright))
            offset = uint32(uint32(_N_SUM) * uint32(odd * uint32(n_warp * chunk) + s) + column)
            for j in range(n_parameter if k < uint32(n_made) else 0):
                name = name_of(uint32(item.copy * uint32(n_parameter) + uint32(j)))
                bright = stokes.i if name == 0 else stokes.q
                if polarised and name >= 2:
                    bright = stokes.u if name == 2 else stokes.v
                factor = float64(bright)
                if is_bright:
                    factor = 0.5 if name == k else 0.0
                # In float64, and always in the same order.
                of_rows = 0.0
                for _ in range(n_rows):
                    of_rows += float64(accumulated[offset])
                    offset = uint32(offset + uint32(_N_SUM * chunk))
                total += factor * of_rows
            moments[(row + int64(s)) * int64(n_value) + int64(k)] = real(total)
            x = uint32(x + uint32(n_thread))

    return join
