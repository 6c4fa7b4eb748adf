"""Check the structure of a FITS file before astropy, which trusts every count in a header, reads it."""

from __future__ import annotations

import gzip
import io
import math
import re
import zlib
from pathlib import Path
from typing import BinaryIO

from biro.errors import InputError

BLOCK, CARD = 2880, 80
MAX_HEADER = 4 << 20
"""Bytes of the longest header that is read; some fifty thousand cards."""
MAX_UNITS = 10_000
MAX_COUNT = 999
"""Largest number of axes or of columns that the standard allows."""
PACKED_SPARE, PACKED_MOST = 1 << 29, 200
"""A file compressed by gzip may hold so many bytes, and so many times its own size."""
GZIP_START = b"\x1f\x8b"
_COUNTS = ("NAXIS", "ZNAXIS", "WCSAXES", "TFIELDS", "A_ORDER", "B_ORDER", "AP_ORDER", "BP_ORDER")
_SIZES = re.compile(r"BITPIX|NAXIS\d*|PCOUNT|GCOUNT")


def vet(place: Path, free: int) -> Path | io.BytesIO:
    """The file, or the content of a file compressed by gzip, after a check of every header in it.

    Parameters
    ----------
    place : Path
    free : int
        Free memory, bytes, of which the content of a compressed file may take a third.

    Raises
    ------
    InputError
        A header without end, or with a count beyond the standard; a compressed file that is too large or
        damaged, or another compression than gzip.
    """
    with open(place, "rb") as file:
        start = file.read(6)
        file.seek(0)
        if start.startswith((b"BZh", b"PK\x03\x04", b"\xfd7zXZ\0")):
            raise InputError("compressed, but not by gzip; decompress it")
        if not start.startswith(GZIP_START):
            _check(file)
            return place
    content = io.BytesIO(_unpacked(place, free))
    _check(content)
    content.seek(0)
    return content


def _unpacked(place: Path, free: int) -> bytes:
    # The content is in memory beside the pixels that are made from it. A small file that unpacks to much more
    # than visibilities or pixels ever do would cost minutes before a header is looked at.
    most = PACKED_SPARE + PACKED_MOST * place.stat().st_size
    limit = min(free // 3, most)
    parts: list[bytes] = []
    size = 0
    try:
        with gzip.open(place) as file:
            while part := file.read(1 << 24):
                parts.append(part)
                size += len(part)
                if not parts[0].startswith(b"SIMPLE"):
                    raise InputError("compressed, but the content is not a FITS file")
                if size > limit:
                    why = "a third of free memory" if limit < most else "more than such data do"
                    raise InputError(
                        f"compressed, and expands to more than {limit / 1e9:.3g} GB, {why}; decompress it"
                    )
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"compressed, and damaged ({error})") from None
    return b"".join(parts)


def _check(file: BinaryIO) -> None:
    """Check all headers of a file, one after the other, and skip the data between them."""
    end = file.seek(0, io.SEEK_END)
    at = 0
    for _ in range(MAX_UNITS):
        file.seek(at)
        sizes = _header(file)
        if not sizes:
            return  # no header: bytes after the last unit, or a file that is not FITS, which astropy refuses
        at = file.tell() + -(-_data_length(sizes) // BLOCK) * BLOCK
        if at >= end:
            return
    raise InputError(f"more than {MAX_UNITS} headers")


def _header(file: BinaryIO) -> dict[str, int]:
    """Read one header; the numbers in it that give the length of its data, and other counts."""
    sizes: dict[str, int] = {}
    for n_read in range(0, MAX_HEADER, BLOCK):
        block = file.read(BLOCK)
        if n_read == 0 and not block.startswith((b"SIMPLE", b"XTENSION")):
            return {}
        for start in range(0, len(block), CARD):
            card = block[start : start + CARD]
            if card.rstrip() == b"END":
                return sizes or {"NAXIS": 0}
            name = card[:8].decode("ascii", "replace").strip()
            if card[8:10] == b"= " and (name in _COUNTS or _SIZES.fullmatch(name)):
                sizes[name] = _number(name, card[10:])
        if len(block) < BLOCK:
            raise InputError("a header without END; the file is truncated or not FITS")
    raise InputError(f"a header of more than {MAX_HEADER >> 20} MiB")


def _number(name: str, text: bytes) -> int:
    try:
        value = float(text.split(b"/")[0])
    except ValueError:
        return 0  # astropy says what is wrong with it
    if not math.isfinite(value) or (name in _COUNTS and not 0 <= value <= MAX_COUNT):
        most = f", expected 0 to {MAX_COUNT}" if name in _COUNTS else ""
        raise InputError(f"{name} = {value:g} in a header{most}")
    return int(value)


def _data_length(sizes: dict[str, int]) -> int:
    """Bytes of the data that belong to a header (FITS standard 4.0, equations 1 and 2)."""
    n_axis = sizes.get("NAXIS", 0)
    axes = [sizes.get(f"NAXIS{i + 1}", 0) for i in range(n_axis)]
    if n_axis and axes[0] == 0:
        axes = axes[1:]  # random groups
    elements = math.prod(axes) if n_axis else 0
    return max(
        0, abs(sizes.get("BITPIX", 8)) // 8 * sizes.get("GCOUNT", 1) * (sizes.get("PCOUNT", 0) + elements)
    )
