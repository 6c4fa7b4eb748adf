"""Voltage beams as sums of Zernike polynomials: their files, and the sums on a grid."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from biro.beams.cube_files import FEEDS
from biro.beams.sampled import sample_beam
from biro.errors import InputError
from biro.files.fits_file import check_is_file, naming
from biro.files.fits_table import read_table
from biro.models.components.beam_cube import BeamCube
from biro.models.components.source import si_value
from biro.models.errors import ModelError
from biro.models.files.foreign import read_text_file
from biro.models.quantities.parameter import Fixed, quantity
from biro.models.quantities.units import ANGLE, FREQUENCY, Dimension

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
Table: TypeAlias = Mapping[str, Any]  # of a file; every entry is checked
FIRST = {"noll": 1, "osa": 0}
"""The first index of each way to count."""
_MOST_TERMS = 1000
_COLUMNS = ("FREQ", "ELEMENT", "INDEX", "REAL", "IMAG")


@dataclass(frozen=True, eq=False)
class _Coefficients:
    """Coefficients (n_freq, 2, 2, n_term) at ascending frequencies (Hz), in a disc of a radius (rad)."""

    index: str
    radius: float
    freq: Array
    values: Complex
    feeds: str


def read_zernike(file: str | Path, *, accuracy: float = 1e-6) -> BeamCube:
    """Read coefficients of Zernike polynomials, and sample the beam on the square within their disc.

        E(x, y, nu) = sum over j of c_j(nu) Z_j(r / radius, theta),    r, theta = |(x, y)|, atan2(y, x)

    with the orthonormal polynomials of Noll (1976, JOSA 66, 207), counted from 1 as Noll does or from 0 as
    OSA and ANSI Z80.28 do. Between frequencies the beam is interpolated as every `BeamCube`. It ends at
    |x|, |y| = radius / sqrt(2), the square that lies in the disc.

    Parameters
    ----------
    file : path
        TOML: `index = "noll"` or `"osa"`, `radius` (an angle), and a table `[[plane]]` for each frequency
        with `freq` and, by element (xx, xy, yx, yy or rr, rl, lr, ll), `{ real = [...], imag = [...] }`.
        Elements and parts that are missing are 0. FITS: a table with columns FREQ (Hz), ELEMENT, INDEX,
        REAL, IMAG, whose header has ZINDEX ("NOLL" or "OSA") and ZRADIUS (deg).
    accuracy : float
        As for `sample_beam`.

    Returns
    -------
    BeamCube
        Its `direction_error` and `frequency_error` say how well it is sampled.

    Raises
    ------
    InputError
        Names the file: what is missing, or not a number.
    """
    place = Path(file)
    with naming(place, "coefficients of Zernike polynomials"):
        if place.suffix.lower() == ".toml":
            found = _of_toml(read_text_file(place))
        else:
            check_is_file(place)
            found = _of_fits(place)
    name = f"Zernike beam {place} ({found.feeds})"
    at = {float(freq): values for freq, values in zip(found.freq, found.values, strict=True)}

    def jones(x: Array, y: Array, freq: float) -> Complex:
        terms = zernike(found.index, found.values.shape[-1], x / found.radius, y / found.radius)
        return np.asarray(np.einsum("pqj,j...->...pq", at[freq], terms))

    return sample_beam(jones, found.freq, found.radius / math.sqrt(2.0), accuracy=accuracy, name=name)


def zernike(index: str, n_term: int, x: Array, y: Array) -> Array:
    """The first polynomials at places in units of the radius, float64 (n_term, ...).

    Z = N R(rho) cos(m theta) for m >= 0, N R(rho) sin(|m| theta) for m < 0, N^2 = (n + 1) (2 - delta_m0).
    """
    rho, theta = np.hypot(x, y), np.arctan2(y, x)
    out = np.empty((n_term, *np.shape(rho)))
    for i in range(n_term):
        n, m = noll(i + 1) if index == "noll" else osa(i)
        angular = np.cos(m * theta) if m >= 0 else np.sin(-m * theta)
        out[i] = math.sqrt((n + 1) * (1 if m == 0 else 2)) * _radial(n, abs(m), rho) * angular
    return out


def noll(j: int) -> tuple[int, int]:
    """n and m of Noll's index (from 1): even j are cosines (m > 0), odd ones sines."""
    n = math.isqrt(8 * j - 7) // 2 - (1 - math.isqrt(8 * j - 7) % 2)
    n = max(k for k in (n, n + 1, n + 2, 0) if k >= 0 and k * (k + 1) // 2 < j)
    rest = j - n * (n + 1) // 2 - 1
    m = 2 * ((rest + 1) // 2) if n % 2 == 0 else 2 * (rest // 2) + 1
    return n, m if j % 2 == 0 else -m


def osa(j: int) -> tuple[int, int]:
    """n and m of the index of OSA and ANSI (from 0): j = (n (n + 2) + m) / 2."""
    n = (math.isqrt(8 * j + 1) - 1) // 2
    return n, 2 * j - n * (n + 2)


def _radial(n: int, m: int, rho: Array) -> Array:
    """R_n^m(rho), by its sum of powers."""
    total = np.zeros_like(rho)
    for k in range((n - m) // 2 + 1):
        factor = (-1) ** k * math.comb(n - k, k) * math.comb(n - 2 * k, (n - m) // 2 - k)
        total = total + factor * rho ** (n - 2 * k)
    return np.asarray(total)


def _of_toml(text: str) -> _Coefficients:
    table = tomllib.loads(text)
    unknown = sorted(set(table) - {"index", "radius", "plane"})
    if unknown:
        raise InputError(f"unknown key {unknown[0]!r}; expected index, radius and [[plane]]")
    planes = table.get("plane")
    if not isinstance(planes, list) or not planes or not all(isinstance(plane, dict) for plane in planes):
        raise InputError("no [[plane]] table; write one for each frequency")
    freq = [_number("freq", plane.get("freq"), FREQUENCY) for plane in planes]
    terms: list[dict[tuple[str, int], complex]] = []
    index = _index(table.get("index"))
    for plane in planes:
        found: dict[tuple[str, int], complex] = {}
        for element in sorted(set(plane) - {"freq"}):
            for i, value in enumerate(_complex(element, plane[element])):
                found[element, i + FIRST[index]] = value
        terms.append(found)
    return _ordered(index, _number("radius", table.get("radius"), ANGLE), freq, terms)


def _complex(element: str, given: object) -> Complex:
    if not isinstance(given, dict) or set(given) - {"real", "imag"}:
        raise InputError(f"{element}: expected {{ real = [...], imag = [...] }}, found {str(given)[:60]!r}")
    parts = []
    for key in ("real", "imag"):
        values = given.get(key, [])
        good = isinstance(values, list) and len(values) <= _MOST_TERMS
        if not good or not all(isinstance(v, int | float) and math.isfinite(v) for v in values):
            raise InputError(f"{element}.{key}: expected a list of at most {_MOST_TERMS} finite numbers")
        parts.append(np.array(values, dtype=np.float64))
    n = max(part.size for part in parts)
    real, imag = (np.pad(part, (0, n - part.size)) for part in parts)
    return np.asarray(real + 1j * imag)


def _of_fits(place: Path) -> _Coefficients:
    table = read_table(place, lambda names: set(_COLUMNS) <= {name.upper() for name in names})
    if table is None:
        raise InputError(f"no table with the columns {', '.join(_COLUMNS)}")
    columns = {name.upper(): values for name, values in table.values.items()}
    rows = list(zip(*(columns[name] for name in _COLUMNS), strict=True))
    freq = sorted({float(str(row[0])) for row in rows})
    terms: list[dict[tuple[str, int], complex]] = [{} for _ in freq]
    for nu, element, i, real, imag in rows:
        value = complex(float(str(real)), float(str(imag)))
        terms[freq.index(float(str(nu)))][str(element).strip().lower(), int(str(i))] = value
    if "ZRADIUS" not in table.header:
        raise InputError("the header of the table has no ZRADIUS, the radius of the disc in deg")
    index = _index(str(table.header.get("ZINDEX", "")).strip().lower())
    return _ordered(index, math.radians(float(str(table.header["ZRADIUS"]))), freq, terms)


def _index(given: object) -> str:
    if given not in FIRST:
        raise InputError(f'index: "noll" (from 1) or "osa" (from 0) must be stated, found {given!r}')
    return str(given)


def _number(key: str, given: object, dimension: Dimension) -> float:
    try:
        made = quantity(given, dimension)
    except ModelError as error:
        raise InputError(f"{key}: {error}") from None
    if not isinstance(made, Fixed):
        raise InputError(f"{key}: expected a number with its unit")
    return si_value(made, dimension)


def _ordered(
    index: str, radius: float, freq: Sequence[float], terms: Sequence[Mapping[tuple[str, int], complex]]
) -> _Coefficients:
    """Coefficients in the order of ascending frequencies."""
    named = {element for plane in terms for element, _ in plane}
    feeds = next((one for one, elements in FEEDS.items() if named <= set(elements)), None)
    if feeds is None or not named:
        raise InputError(
            "elements must be of xx, xy, yx, yy or of rr, rl, lr, ll, found "
            f"{', '.join(sorted(named)) or 'none'}"
        )
    if not 0.0 < radius < 1.0:
        raise InputError(
            f"the radius of the disc must lie between 0 and 57 deg, found {math.degrees(radius):g} deg"
        )
    indices = [j for plane in terms for _, j in plane]
    last = max(indices)
    if min(indices) < FIRST[index] or last > _MOST_TERMS:
        raise InputError(f"{index} indices must lie in {FIRST[index]} .. {_MOST_TERMS}")
    values = np.zeros((len(freq), 2, 2, last + 1 - FIRST[index]), complex)
    for plane, given in zip(values, terms, strict=True):
        for (element, j), value in given.items():
            plane[divmod(FEEDS[feeds].index(element), 2)][j - FIRST[index]] = value
    order = np.argsort(freq)
    return _Coefficients(index, radius, np.array(freq)[order], values[order], feeds)
