"""What the header of a UVFITS file says about its groups: parameters, axes, the type of stored numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biro.errors import DataError
from biro.files.other_formats import name_fits

if TYPE_CHECKING:
    from astropy.io.fits import HDUList, Header

TYPES = {8: "u1", 16: ">i2", 32: ">i4", 64: ">i8", -32: ">f4", -64: ">f8"}
"""Types of stored numbers by BITPIX."""
MAX_PARAMETERS = 99
"""More random parameters than any file has."""
STOKES_CODES = {
    **{i + 1: name for i, name in enumerate("IQUV")},
    **{-1 - i: name for i, name in enumerate(("RR", "LL", "RL", "LR"))},
    **{-5 - i: name for i, name in enumerate(("XX", "YY", "XY", "YX"))},
}
"""Correlations by the codes of the STOKES axis."""
ORDER = ("I", "Q", "U", "V", "RR", "RL", "LR", "LL", "XX", "XY", "YX", "YY")
"""The order of correlations in a Measurement Set, which is that of an observation of UVFITS too."""
_WEIGHT_SCALE = re.compile(r"AIPS\s+WTSCAL\s*=\s*([-+.\dED]+)")


@dataclass(frozen=True)
class GroupAxis:
    """One axis of the array that every group holds."""

    name: str
    length: int
    value: float
    pixel: float
    step: float

    @property
    def values(self) -> NDArray[np.float64]:
        """World coordinates along the axis, float64 (length,)."""
        return (np.arange(1.0, self.length + 1.0) - self.pixel) * self.step + self.value


@dataclass(frozen=True)
class RandomParameter:
    """A random parameter: its value is stored * scale + zero."""

    name: str
    scale: float
    zero: float


@dataclass(frozen=True)
class GroupHeader:
    """How a file stores its groups.

    Attributes
    ----------
    n_group : int
    parameters : tuple of RandomParameter
    axes : tuple of GroupAxis
        The first changes fastest in the file.
    dtype : dtype
        Of stored numbers.
    scale, zero : float
        Of the numbers of the array.
    blank : int or None
        Stored integer that stands for no value.
    weight_scale : float
        A further factor of the weights, which AIPS keeps in the history of files of integers.
    """

    n_group: int
    parameters: tuple[RandomParameter, ...]
    axes: tuple[GroupAxis, ...]
    dtype: np.dtype[np.generic]
    scale: float
    zero: float
    blank: int | None
    weight_scale: float

    def axis(self, name: str) -> GroupAxis:
        """An axis by name; one of a single pixel at 1 where the file has none."""
        return next((axis for axis in self.axes if axis.name == name), GroupAxis(name, 1, 1.0, 1.0, 1.0))

    @property
    def group_size(self) -> int:
        """Numbers stored for one group."""
        return len(self.parameters) + math.prod(axis.length for axis in self.axes)

    @property
    def correlations(self) -> list[str]:
        """Names of the correlations as stored."""
        return [STOKES_CODES[round(value)] for value in self.axis("STOKES").values]

    @property
    def ordered_correlations(self) -> list[str]:
        """Names of the correlations in the order of an observation."""
        return sorted(self.correlations, key=ORDER.index)


def parse_header(hdus: HDUList) -> GroupHeader:
    """Read and check the header of the first unit of a file.

    Raises
    ------
    DataError
        Not a UVFITS file, another kind of file of visibilities, or axes and numbers that are not understood.
    """
    header = hdus[0].header
    _check_kind(hdus)
    bitpix = header.get("BITPIX")
    if bitpix not in TYPES:
        raise DataError(f"BITPIX = {bitpix!r}; expected one of {', '.join(map(str, TYPES))}")
    blank = header.get("BLANK") if bitpix > 0 else None
    group = GroupHeader(
        n_group=_count(header, "GCOUNT"),
        parameters=tuple(_parameters(header)),
        axes=tuple(_axes(header)),
        dtype=np.dtype(TYPES[bitpix]),
        scale=_number(header, "BSCALE", 1.0),
        zero=_number(header, "BZERO", 0.0),
        blank=int(blank) if isinstance(blank, int) else None,
        weight_scale=_weight_scale(header),
    )
    _check_axes(group)
    return group


def _check_kind(hdus: HDUList) -> None:
    """Refuse files that hold no random groups, naming those of other formats."""
    header = hdus[0].header
    if header.get("GROUPS") is True and header.get("NAXIS1") == 0:
        return
    if header.get("NAXIS1") == 777777701:
        raise DataError("visibilities in an AIPS table, not in random groups; write it with AIPS's FITTP")
    raise DataError(name_fits(list(header), [hdu.name for hdu in hdus]))


def _parameters(header: Header) -> Iterator[RandomParameter]:
    for i in range(1, _count(header, "PCOUNT", MAX_PARAMETERS) + 1):
        name = str(header.get(f"PTYPE{i}", "")).strip().upper()
        yield RandomParameter(name, _number(header, f"PSCAL{i}", 1.0), _number(header, f"PZERO{i}", 0.0))


def _axes(header: Header) -> Iterator[GroupAxis]:
    for i in range(2, _count(header, "NAXIS") + 1):
        yield GroupAxis(
            str(header.get(f"CTYPE{i}", "")).strip().upper(),
            _count(header, f"NAXIS{i}"),
            _number(header, f"CRVAL{i}", 1.0),
            _number(header, f"CRPIX{i}", 1.0),
            _number(header, f"CDELT{i}", 1.0),
        )


def _check_axes(group: GroupHeader) -> None:
    """Refuse axes whose meaning is not known; an axis of one pixel needs none."""
    names = [axis.name for axis in group.axes if axis.name]
    twice = {name for name in names if names.count(name) > 1}
    known = ("COMPLEX", "STOKES", "FREQ", "IF", "RA", "DEC")
    strange = [
        axis.name or "(no name)" for axis in group.axes if axis.length > 1 and axis.name not in known[:4]
    ]
    if twice or strange:
        raise DataError(
            f"axis {', '.join(twice or strange)}; expected each of {', '.join(known)} at most once"
        )
    lacking = {"COMPLEX", "STOKES", "FREQ"} - set(names)
    if lacking:
        raise DataError(f"no axis {', '.join(sorted(lacking))}; there are {', '.join(names)}")
    if group.axis("COMPLEX").length != 3:
        raise DataError(
            f"an axis COMPLEX of {group.axis('COMPLEX').length}; expected 3: real, imaginary, weight"
            " (AIPS writes compressed data in full with UVCMP or FITTP's FORMAT = 3)"
        )
    if group.axis("STOKES").length > len(STOKES_CODES):
        raise DataError(f"{group.axis('STOKES').length} correlations; there are {len(STOKES_CODES)} kinds")
    codes = [value for value in group.axis("STOKES").values if round(value) not in STOKES_CODES]
    if codes:
        raise DataError(f"code {codes[0]:g} on the axis STOKES; expected 1 to 4, or -1 to -8")


def _count(header: Header, name: str, most: int = 1 << 62) -> int:
    value = header.get(name)
    if not isinstance(value, int) or not 0 <= value <= most:
        raise DataError(f"{name} = {value!r} in the header; expected a whole number from 0 to {most}")
    return value


def _number(header: Header, name: str, default: float) -> float:
    value = header.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DataError(f"{name} = {value!r} in the header; expected a number")
    return float(value)


def _weight_scale(header: Header) -> float:
    """The last factor that the history gives: every program that writes the file anew adds its own."""
    lines = header.get("HISTORY", [])
    found = [match[1] for match in map(_WEIGHT_SCALE.search, map(str, lines)) if match]
    try:
        scale = float(found[-1].replace("D", "E")) if found else 1.0
    except ValueError:
        return 1.0
    return scale if 0.0 < scale < math.inf else 1.0
