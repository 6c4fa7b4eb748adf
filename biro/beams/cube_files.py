"""Beams from FITS cubes: one file for the real or imaginary part of each element of the Jones matrix."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biro.display.arguments import PATH, takes
from biro.errors import InputError
from biro.files.fits_file import check_is_file, naming, opened
from biro.files.memory import check_memory
from biro.models.components.beam_cube import BeamCube
from biro.models.errors import ModelError

if TYPE_CHECKING:
    from astropy.io.fits import Header

Array = NDArray[np.float64]
FEEDS = {"linear": ("xx", "xy", "yx", "yy"), "circular": ("rr", "rl", "lr", "ll")}
"""Elements of E in the order of its rows."""
_CORR, _PART = re.compile(r"\$[({](corr|CORR)[)}]"), re.compile(r"\$[({](reim|REIM)[)}]")
_FREQ_UNITS = {"": 1.0, "HZ": 1.0, "KHZ": 1e3, "MHZ": 1e6, "GHZ": 1e9}
_ANGLE_UNITS = {"": np.pi / 180.0, "DEG": np.pi / 180.0, "DEGREES": np.pi / 180.0, "RAD": 1.0}
# Names of the axes: direction cosines east and north, or x and y of the antenna's frame, which are the same.
_AXES = {"L": "x", "X": "x", "M": "y", "Y": "y", "FREQ": "freq"}
# Nodes of a grid may lie a little beyond the horizon.
_FURTHEST = 1.1


@takes(files=PATH)
def read_beam(files: str | os.PathLike[str]) -> BeamCube:
    """Read a voltage beam from eight FITS cubes, as codex-africanus, Montblanc and CubiCal name them.

    Parameters
    ----------
    files : str
        Path with $(corr) and $(reim) in it, such as "beam_$(corr)_$(reim).fits". They stand for xx, xy, yx,
        yy (or rr, rl, lr, ll) and re, im; $(CORR) and $(REIM) for capitals. The axes of every file, in any
        order: L or X (deg, or rad where CUNIT says so), M or Y, FREQ (Hz). A minus before the name (-X)
        turns the axis round. Values of an axis may be listed as GFREQ1, GFREQ2, ...; directions must be
        evenly spaced.

    Returns
    -------
    BeamCube

    Raises
    ------
    InputError
        Names the file: missing, axes missing or in other units, other axes than the first file has, a
        direction that is not evenly spaced; values that are not finite.
    """
    template = os.fspath(files)
    names, elements = _names(template)
    first, cubes = None, []
    for name in names:
        place = Path(name)
        with naming(place, "a beam cube"):
            check_is_file(place)
            with opened(place) as hdus:
                hdu = next((hdu for hdu in hdus if hdu.is_image and hdu.header.get("NAXIS", 0) > 0), None)
                if hdu is None:
                    raise InputError("there is no image in this file")
                axes = _axes(hdu.header)
                if first is None:
                    first = axes
                    check_memory(96.0 * np.prod(axes.shape), "the beam", "give a smaller cube")
                elif not axes.same(first):
                    raise InputError(f"its axes are not those of {names[0]}")
                cubes.append(axes.ordered(np.asarray(hdu.data, dtype=np.float64)))
    assert first is not None
    parts = np.stack(cubes, axis=-1)
    jones = (parts[..., 0::2] + 1j * parts[..., 1::2]).reshape(*parts.shape[:3], 2, 2)
    try:
        return BeamCube(first.x, first.y, first.freq, jones, name=f"beam {template} ({elements})")
    except ModelError as error:
        raise InputError(str(error)) from None


def _names(template: str) -> tuple[list[str], str]:
    """Names of the eight files, real parts before imaginary ones, and the kind of feeds that exists."""
    if not _CORR.search(template) or not _PART.search(template):
        raise InputError(
            f"beam {template!r}: a beam has eight files, named by a path with $(corr) and $(reim) in it, "
            'such as "beam_$(corr)_$(reim).fits"'
        )

    def name(corr: str, part: str) -> str:
        found = _CORR.sub(lambda match: corr.upper() if match[1].isupper() else corr, template)
        return _PART.sub(lambda match: part.upper() if match[1].isupper() else part, found)

    for feeds, elements in FEEDS.items():
        if Path(name(elements[0], "re")).exists():
            return [name(corr, part) for corr in elements for part in ("re", "im")], feeds
    raise InputError(
        f"beam {template!r}: found neither {name('xx', 're')} nor {name('rr', 're')}; give the path from "
        "the folder of the model file"
    )


@dataclass(frozen=True, eq=False)
class _CubeAxes:
    """Nodes of the axes of a cube, ascending, and how its data are brought into the order freq, y, x."""

    x: Array
    y: Array
    freq: Array
    order: tuple[int, ...]
    reversed: tuple[bool, bool, bool]

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.freq.size, self.y.size, self.x.size

    def same(self, other: _CubeAxes) -> bool:
        """Whether two cubes have the same nodes."""
        return self.shape == other.shape and all(
            np.allclose(a, b, rtol=1e-6, atol=1e-12)
            for a, b in ((self.x, other.x), (self.y, other.y), (self.freq, other.freq))
        )

    def ordered(self, data: Array) -> Array:
        """The data of a file as (freq, y, x), ascending."""
        turned = np.transpose(data, self.order).reshape(self.shape)
        for axis, backwards in enumerate(self.reversed):
            turned = np.flip(turned, axis) if backwards else turned
        return turned


def _axes(header: Header) -> _CubeAxes:
    """The axes of a cube from its header."""
    n_axis = int(header["NAXIS"])
    found: dict[str, tuple[int, Array]] = {}
    for i in range(1, n_axis + 1):
        ctype = str(header.get(f"CTYPE{i}", "")).strip().upper()
        kind = _AXES.get(ctype.lstrip("+-"))
        if kind is None:
            if int(header[f"NAXIS{i}"]) == 1:
                continue
            raise InputError(f"axis {i} is called {ctype!r}; expected L or X, M or Y, and FREQ")
        if kind in found:
            raise InputError(
                f"two axes along {kind}, {ctype!r} is the second; expected L or X, M or Y, and FREQ"
            )
        found[kind] = n_axis - i, _nodes(header, i, ctype, kind)
    missing = [
        names for kind, names in (("x", "L or X"), ("y", "M or Y"), ("freq", "FREQ")) if kind not in found
    ]
    if missing:
        raise InputError(f"it has no axis called {', '.join(missing)} (CTYPE)")
    backwards = tuple(
        nodes.size > 1 and nodes[-1] < nodes[0] for _, nodes in (found[k] for k in ("freq", "y", "x"))
    )
    x, y, freq = (np.sort(found[kind][1]) for kind in ("x", "y", "freq"))
    order = [found[kind][0] for kind in ("freq", "y", "x")]
    rest = [axis for axis in range(n_axis) if axis not in order]
    return _CubeAxes(x, y, freq, (*rest, *order), (backwards[0], backwards[1], backwards[2]))


def _nodes(header: Header, axis: int, ctype: str, kind: str) -> Array:
    """Values along an axis, in Hz, or as direction cosines in radians."""
    n, name = int(header[f"NAXIS{axis}"]), ctype.lstrip("+-")
    listed = [f"G{name}{i + 1}" for i in range(n)]
    unit = str(header.get(f"CUNIT{axis}", "")).strip().upper()
    units = _FREQ_UNITS if kind == "freq" else _ANGLE_UNITS
    if unit not in units:
        wanted = "Hz" if kind == "freq" else "deg or rad"
        raise InputError(f"axis {ctype} has the unit {unit!r}; expected {wanted} (CUNIT{axis})")
    if all(key in header for key in listed):
        values = np.array([float(header[key]) for key in listed])
    else:
        needed = [f"{key}{axis}" for key in ("CRVAL", "CDELT") if f"{key}{axis}" not in header]
        if needed:
            raise InputError(f"axis {ctype} has no {' and no '.join(needed)}")
        pixel = np.arange(1, n + 1) - float(header.get(f"CRPIX{axis}", 1.0))
        values = float(header[f"CRVAL{axis}"]) + float(header[f"CDELT{axis}"]) * pixel
    values = values * units[unit] * (-1.0 if ctype.startswith("-") else 1.0)
    if not np.all(np.isfinite(values)) or np.unique(values).size < n:
        raise InputError(f"axis {ctype} has values that are not finite or not all different")
    if kind != "freq" and (reach := float(np.abs(values).max())) > _FURTHEST:
        raise InputError(
            f"axis {ctype} reaches {reach:g} rad, expected direction cosines, which end at 1; are its values "
            f"in degrees? Then CUNIT{axis} is 'deg'"
        )
    return np.asarray(values)
