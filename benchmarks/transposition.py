"""How fast a matrix is transposed, by kernels that bring it through shared memory, beside a copy.

    python benchmarks/transposition.py --device cuda
    python benchmarks/transposition.py

Flagging looks along channels and along time, and pays for it with transpositions. The table has bytes read
and written in a second, and their share of those of a copy, which moves as much. On a GPU:

- naive: each thread moves one number; either reads or writes are scattered.
- tiled: squares of 32 by 32 pass through shared memory, so that both are of neighbours; columns of a square
  lie in one bank, and are read one by one.
- padded: rows of a square are a number longer, and its columns lie in all banks.
- several: a thread moves 2, 4 or 8 numbers of a square; flagging does, 4 of them.

On the CPU: NumPy's copy of the transposed view, and the same in squares.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from common.machine import machine, machine_slug
from common.options import make_parser, output_path, parse
from common.results import write
from common.timing import measure
from common.types import Line, OnDevice, Value
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.cuda.launch_shapes.flagging import TransposeShape
from rime_kernels.flagging.cuda.transposition import transpose_into

# The simulator replaces a global of this name while a kernel runs.
cuda: OnDevice = device.cuda
Matrix = NDArray[np.float32]
SQUARE = 256
"""Side of the squares on the CPU: two of them fit into its second cache."""
CASES = ((8192, 8192), (100000, 640), (20000, 4096))
"""Rows and columns: a large matrix, and times of many baselines by channels."""


def on_the_cpu(given: Matrix, repeat: int) -> tuple[float, dict[str, float]]:
    """Seconds of a copy, and of each way to transpose."""
    out, copied = np.empty(given.shape[::-1], np.float32), np.empty_like(given)

    def whole() -> None:
        out[...] = given.T

    def squares() -> None:
        for i in range(0, given.shape[0], SQUARE):
            for j in range(0, given.shape[1], SQUARE):
                out[j : j + SQUARE, i : i + SQUARE] = given[i : i + SQUARE, j : j + SQUARE].T

    copy = measure(lambda: np.copyto(copied, given), repeat).least
    return copy, {
        name: checked(call, lambda: out, given, repeat)
        for name, call in (("whole", whole), ("squares", squares))
    }


def checked(call: Callable[[], None], found: Callable[[], Matrix], given: Matrix, repeat: int) -> float:
    """Seconds of a call that transposes, after a look at what it gives."""
    seconds = measure(call, repeat).least
    if not np.array_equal(found(), given.T):
        raise SystemExit("a transposition is wrong: nothing is measured")
    return seconds


def on_a_gpu(given: Matrix, repeat: int) -> tuple[float, dict[str, float]]:
    """Time of kernels on a GPU, which are waited for (`on_the_cpu` is for the CPU)."""
    side = 4 if device.simulated() else 32
    shapes = {"tiled": TransposeShape(side, 0, 1), "padded": TransposeShape(side, 1, 1)}
    several = (2,) if device.simulated() else (2, 4, 8)
    shapes |= {f"several, {n}": TransposeShape(side, 1, n) for n in several}
    n, m = given.shape
    there, out = cuda.to_device(given.reshape(1, n, m)), cuda.device_array((1, m, n), np.float32)
    naive, blocks = make_naive(), (-(-m // side), -(-n // side))

    def waited_for(launch: Callable[[], Value]) -> Callable[[], None]:
        def call() -> None:
            launch()
            cuda.synchronize()

        return call

    calls = {"naive": waited_for(lambda: naive[blocks, (side, side)](there, out))}
    for name, shape in shapes.items():
        calls[name] = waited_for(lambda shape=shape: transpose_into(there, out, np.float32, shape=shape))
    copied = cuda.device_array((1, n, m), np.float32)
    copy = measure(waited_for(lambda: copied.copy_to_device(there)), repeat).least
    return copy, {
        name: checked(call, lambda: out.copy_to_host()[0], given, repeat) for name, call in calls.items()
    }


def make_naive() -> Value:
    """Kernel of which each thread moves one number."""

    @device.kernel(0)
    def naive(given: Value, out: Value) -> None:
        column = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        row = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
        if row < given.shape[1] and column < given.shape[2]:
            out[0, column, row] = given[0, row, column]

    return naive


def case(shape: tuple[int, int], on_cuda: bool, repeat: int) -> Line:
    """One matrix: bytes a second of the copy and of each way, and shares."""
    given = np.random.default_rng(1).random(shape, np.float32)
    copy, seconds = (on_a_gpu if on_cuda else on_the_cpu)(given, repeat)
    moved = 2.0 * given.nbytes
    return {
        "shape": shape,
        "copy_byte_per_s": moved / copy,
        "byte_per_s": {name: moved / each for name, each in seconds.items()},
        "share": {name: copy / each for name, each in seconds.items()},
    }


def main() -> int:
    parser = make_parser(__doc__, device=True, repeat=20)
    args = parse(parser)
    on_cuda = args.device == "cuda"
    if on_cuda:
        device.resolve("cuda")
    about = machine(args.device)
    shapes = ((10, 7),) if args.quick and on_cuda else ((300, 500),) if args.quick else CASES
    lines = [case(shape, on_cuda, args.repeat) for shape in shapes]
    for line in lines:
        print(f"{line['shape'][0]} x {line['shape'][1]}: copy {1e-9 * line['copy_byte_per_s']:.1f} GB/s")
        for name, rate in line["byte_per_s"].items():
            print(f"  {name:12}{1e-9 * rate:10.1f} GB/s{100 * line['share'][name]:8.0f} % of the copy")
    path = output_path(args, "transposition", f"{machine_slug(about)}.json")
    write(path, {"quick": args.quick, "machine": about, "lines": lines})
    return 0


if __name__ == "__main__":
    sys.exit(main())
