"""Instructions of `units` in single precision, for the simulator: it says there what they do."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.types import Compiled

# Threads of a warp; seconds that one of them waits for the others, which may have failed.
_WARP, _PATIENCE = 32, 60.0


class Address(NamedTuple):
    """A place in an array of packed pairs."""

    array: Any
    n_byte: int = 0

    def __add__(self, n_byte: Any) -> Address:
        return Address(self.array, self.n_byte + int(n_byte))


def load(address: Address) -> tuple[int, ...]:
    """Four packed pairs."""
    first, rest = divmod(address.n_byte, 16)
    assert rest == 0, "16 bytes are read from multiples of 16"
    return tuple(int(pair) for pair in address.array[4 * first : 4 * first + 4])


def fetch_line(array: Any, k: Any) -> None:
    """There is no L2: only whether the element exists."""
    assert k < array.size, "lines are brought of elements that exist"


def read_complex(array: Any, k: Any) -> tuple[Any, Any]:
    """Real and imaginary part."""
    z = array[k]
    return z.real, z.imag


def load_global(array: Any, k: Any) -> tuple[int, ...]:
    """Four packed pairs of an array, from 4 k on."""
    return tuple(int(pair) for pair in array[4 * int(k) : 4 * int(k) + 4])


def place(array: Any, k: Any) -> Address:
    """The place of an element."""
    return Address(array, int(k) * array.dtype.itemsize)


def read_numbers(address: Address) -> tuple[Any, ...]:
    """16 bytes of an array: its numbers."""
    first, n = address.n_byte // address.array.dtype.itemsize, 16 // address.array.dtype.itemsize
    return tuple(address.array[first : first + n])


def load_complex(address: Address) -> tuple[Any, Any]:
    """Real and imaginary part of a complex number in shared memory."""
    k = address.n_byte // address.array.dtype.itemsize
    return address.array[k], address.array[k + 1]


def write_complex(array: Any, address: Any, re: Any, im: Any) -> None:
    """Write a complex number to an array of numbers."""
    array[2 * int(address)], array[2 * int(address) + 1] = re, im


def store_pair(address: Address, pair: Any) -> None:
    """Write a packed pair."""
    address.array[address.n_byte // 4] = pair


def split(x: Any, y: Any) -> tuple[int, int]:
    """Two numbers as packed pairs: rounded to half precision, and what is left."""
    numbers = np.array([x, y], np.float32)
    high = numbers.astype(np.float16)
    low = (numbers - high).astype(np.float16)
    return int(high.view(np.uint32)[0]), int(low.view(np.uint32)[0])


def turn(pair: Any) -> int:
    """(y, -x) of (x, y)."""
    return ((int(pair) >> 16) | (int(pair) & 0xFFFF) << 16) ^ 0x80000000


def make_product() -> Compiled:
    """The product of a warp, whose threads wait for each other."""
    given: dict[int, tuple[Any, ...]] = {}  # one block runs at a time
    meetings: dict[int, threading.Barrier] = {}

    def numbers(first: int, which: tuple[int, int]) -> NDArray[np.float32]:
        """Row or column of a matrix: pairs that four threads have."""
        pairs = [[given[first + t][k] for k in which] for t in range(4)]
        return np.array(pairs, np.uint32).view(np.float16).astype(np.float32).ravel()

    def product(*operands: Any) -> tuple[Any, ...]:
        thread: Any = threading.current_thread()
        warp, lane = thread.thread_id // _WARP * _WARP, thread.thread_id % _WARP
        given[thread.thread_id] = operands
        meeting = meetings.setdefault(warp, threading.Barrier(_WARP, timeout=_PATIENCE))
        # Two barriers: all threads have written before anyone reads, and have read before the next product.
        meeting.wait()
        row, column = warp + lane // 4 * 4, warp + lane % 4 * 8
        rows = [numbers(row, which) for which in ((0, 2), (1, 3))]
        columns = [numbers(column + 4 * k, (4, 5)) for k in range(2)]
        found = [np.float32(a @ b) for a in rows for b in columns]
        meeting.wait()
        return tuple(c + each for c, each in zip(operands[6:], found, strict=True))

    return product
