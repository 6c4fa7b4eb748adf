"""Checks of shapes, types and values, shared by all public calls of this package."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rime_kernels.errors import InputError

Shape = tuple[int | str, ...]
T = TypeVar("T", bound=np.generic)
# So few numbers that BLAS adds up their squares in one thread, and sooner than two passes are made.
_FEW = 8192


def array(
    name: str, value: ArrayLike, dtype: type[T], shape: Shape, sizes: dict[str, int] | None = None
) -> NDArray[T]:
    """The value as a contiguous array of this type and shape.

    Names in `shape` stand for sizes: the first array that uses a name sets its size in `sizes`, later
    ones must have the same.

    Raises
    ------
    InputError
        The value is not made of such numbers, or has another shape.
    """
    sizes = {} if sizes is None else sizes
    checked = _numbers(name, value, dtype)
    if not _fits(checked.shape, shape, sizes):
        hint = "; transpose it?" if len(shape) > 1 and _fits(checked.shape[::-1], shape, sizes) else ""
        raise InputError(f"{name} must have shape {_text(shape, sizes)}, got {checked.shape}{hint}")
    for key, n in zip(shape, checked.shape, strict=True):
        if isinstance(key, str):
            sizes[key] = n
    return checked


def coerce(self: object, name: str, dtype: type, shape: Shape, sizes: dict[str, int]) -> None:
    """Check an attribute of a frozen object, and replace it by a contiguous array of this type."""
    object.__setattr__(self, name, array(name, getattr(self, name), dtype, shape, sizes))


def index(name: str, value: NDArray[np.int32], size_name: str, size: int) -> None:
    """Raise an error where an index does not lie in 0 .. size - 1."""
    low, high = int(value.min()), int(value.max())
    if low < 0 or high >= size:
        raise InputError(f"{name} must lie in 0 .. {size_name} - 1 = {size - 1}, got {low} .. {high}")


def _numbers(name: str, value: ArrayLike, dtype: type[T]) -> NDArray[T]:
    if type(value) is np.ndarray and value.dtype == dtype and value.flags.c_contiguous:
        return value  # the case of every likelihood call
    try:
        raw = np.asarray(value)
        if raw.dtype.kind == "c" and np.dtype(dtype).kind != "c":
            raise TypeError
        converted: NDArray[T] = np.ascontiguousarray(raw, dtype=dtype).reshape(raw.shape)
    except (TypeError, ValueError) as error:
        kind = {"c": "complex", "f": "real", "b": "true or false"}.get(np.dtype(dtype).kind, "whole")
        numbers = kind if kind == "true or false" else f"{kind} numbers"
        raise InputError(f"{name} must be an array of {numbers}, got {_kind(value)}") from error
    if np.dtype(dtype).kind in "iu" and raw.size and not np.array_equal(converted, raw):
        raise InputError(f"{name} must be whole numbers, got {raw.dtype} that are not")
    return converted


def _kind(value: ArrayLike) -> str:
    dtype = getattr(value, "dtype", None)
    return f"dtype {dtype}" if dtype is not None else type(value).__name__


def _fits(sizes_found: tuple[int, ...], shape: Shape, sizes: dict[str, int]) -> bool:
    if len(sizes_found) != len(shape):
        return False
    for n, key in zip(sizes_found, shape, strict=True):
        if n != (sizes.get(key, n) if isinstance(key, str) else key):
            return False
    return True


def _text(shape: Shape, sizes: dict[str, int]) -> str:
    parts = [f"{key} = {sizes[key]}" if isinstance(key, str) and key in sizes else str(key) for key in shape]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise an error where a word is not among the allowed ones."""
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")


def finite(name: str, value: NDArray[np.inexact]) -> None:
    """Raise an error where there is NaN or infinity, with the index of the first."""
    bad = ~np.isfinite(value)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InputError(f"{name} must be finite; {int(bad.sum())} are not, the first at index {where}")


_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def n_byte(name: str, value: int | str) -> int:
    """A number of bytes: a whole number, or text such as "8 GB" or "512 MiB"."""
    text = str(value).strip()
    number = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text[len(number) :].strip().upper() or "B"
    try:
        number_of_bytes = int(float(number) * _UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        number_of_bytes = 0
    if number_of_bytes < 1 or isinstance(value, bool):
        raise InputError(f'{name} must be bytes, or text such as "8 GB" or "512 MiB"; got {value!r}')
    return number_of_bytes


def byte_text(number: float) -> str:
    """A number of bytes as text, with a suitable unit."""
    sizes = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))
    size, unit = next((item for item in sizes if number >= item[0]), sizes[-1])
    return f"{number / size:.{0 if number >= 10.0 * size else 1}f}".removesuffix(".0") + f" {unit}"


def within_circle(lm: NDArray[np.float64]) -> bool:
    """Whether l^2 + m^2 < 1 is certain of all directions (..., 2), at the least expense; False for NaN.

    Where all |l| and |m| are below 0.7, or even the squares of all of them together are below 1, as those of
    a few sources of a small field are.
    """
    if lm.size <= _FEW and np.vdot(lm, lm) < 1.0:
        return True
    return bool(np.maximum.reduce(lm, axis=None) < 0.7 and np.minimum.reduce(lm, axis=None) > -0.7)
