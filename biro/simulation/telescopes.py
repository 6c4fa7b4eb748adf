"""Positions of antennas: arrays known by name, and antenna files of users.

The positions that come with biro are in `biro/simulation/data/*.csv`; the head of each file names its source.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.choices import Feeds
from biro.display.formatting import LENGTHS, Printed, range_text
from biro.errors import InputError
from biro.models.components.antenna_terms.mounts import MOUNTS, mount_kind
from biro.models.files.foreign import read_text_file
from biro.models.quantities.strict import short_repr

CoordSys = Literal["global", "local"]
_GLOBAL = {"global", "xyz", "itrf"}
_LOCAL = {"local", "loc", "enu"}


class Centre(NamedTuple):
    """A place on the WGS84 ellipsoid: longitude (deg, east), latitude (deg, geodetic), height (m)."""

    longitude: float
    latitude: float
    height: float = 0.0


@dataclass(frozen=True, eq=False)
class Telescope(Printed):
    """An array of antennas.

    Attributes
    ----------
    name : str
    antenna_names : tuple of str
    positions : float64 (n_antenna, 3), m
        ITRF (geocentric, z towards the pole).
    diameter : float64 (n_antenna,), m
    source : str
        Where the positions come from.
    mount : str
        Of all antennas.
    feeds : "linear" or "circular"
        Of all antennas, in most of their bands: what `biro.simulate` makes unless another kind is given.
    """

    name: str
    antenna_names: tuple[str, ...]
    positions: NDArray[np.float64]
    diameter: NDArray[np.float64]
    source: str = ""
    mount: str = "alt-az"
    feeds: Feeds = "linear"

    def __repr__(self) -> str:
        span = np.linalg.norm(self.positions[:, None] - self.positions, axis=-1).max()
        dishes = range_text(self.diameter.min(), self.diameter.max(), LENGTHS)
        return (
            f"<Telescope {self.name}: {len(self.antenna_names)} antennas of {dishes}, "
            f"{range_text(span, span, LENGTHS)} across>"
        )

    def __post_init__(self) -> None:
        n_antenna = len(self.antenna_names)
        if self.positions.shape != (n_antenna, 3) or self.diameter.shape != (n_antenna,):
            raise InputError(
                f"telescope {self.name}: {n_antenna} names need positions ({n_antenna}, 3) and diameters "
                f"({n_antenna},), got {self.positions.shape} and {self.diameter.shape}"
            )
        if n_antenna < 2:
            raise InputError(
                f"telescope {self.name}: an interferometer has 2 or more antennas, got {n_antenna}"
            )
        if len(set(self.antenna_names)) != n_antenna:
            raise InputError(f"telescope {self.name}: antenna names must be unique")
        if not np.isfinite(self.positions).all():
            raise InputError(f"telescope {self.name}: positions must be finite numbers, in metres")
        radius = np.linalg.norm(self.positions, axis=1)
        if radius.min() < 6.0e6 or radius.max() > 7.0e6:
            raise InputError(
                f"telescope {self.name}: ITRF positions lie about 6.37e6 m from the Earth's centre, got "
                f"{radius.min():.6g} to {radius.max():.6g} m; are they local (coordsys local, with a centre)?"
            )

    @property
    def centre(self) -> NDArray[np.float64]:
        """Mean of the antenna positions, float64 (3,), m ITRF."""
        return np.asarray(self.positions.mean(axis=0))


def names() -> tuple[str, ...]:
    """Names of the arrays that come with biro."""
    return tuple(sorted(_read_head(Path(str(path)))["name"] for path in _data_files()))


def telescope(name: str) -> Telescope:
    """An array by name (case does not matter), or from an antenna file.

    Parameters
    ----------
    name : str
        One of `names()`, or the path of a file as `read_antennas` takes it.

    Raises
    ------
    InputError
        Neither a known name nor a file.
    """
    for path in _data_files():
        if Path(str(path)).stem == name.lower():
            return read_antennas(Path(str(path)))
    if Path(name).is_file():
        return read_antennas(name)
    raise InputError(f"no telescope and no antenna file called {name!r}; known are {', '.join(names())}")


def read_antennas(
    path: str | Path,
    *,
    coordsys: CoordSys | None = None,
    centre: tuple[float, ...] | None = None,
    name: str | None = None,
) -> Telescope:
    """Read antennas from a CSV file, or one in the form of CASA's simulator (.cfg).

    Each line holds `x y z diameter name`, separated by commas or white space; lines that begin with #
    may state `coordsys = global` (ITRF metres; CASA: XYZ) or `local` (metres east, north and up of a
    centre; CASA: LOC), `centre = longitude latitude height` (deg, deg, m on WGS84; CASA: COFA), a
    name (CASA: observatory), the mount of all antennas (`alt-az` by default), and their feeds (`linear` by
    default, or `circular`).

    Parameters
    ----------
    path : str or Path
    coordsys, centre, name : optional
        Values that replace those of the file.

    Raises
    ------
    InputError
        No such file, a line that cannot be read, or local coordinates without a centre.
    """
    path = Path(path)
    head = _read_head(path)
    system = (coordsys or head.get("coordsys") or "global").split()[0].lower()
    if system not in _GLOBAL | _LOCAL:
        raise InputError(f"{path}: coordsys must be global (XYZ) or local (LOC), found {short_repr(system)}")
    rows = [_parse_row(path, number, line) for number, line in _data_lines(path)]
    if not rows:
        raise InputError(f"{path}: no antennas; a line is 'x y z diameter name'")
    positions = np.array([row[:3] for row in rows], dtype=np.float64)
    if system in _LOCAL:
        positions = local_to_itrf(positions, _centre(path, centre, head))
    return Telescope(
        name=name or head.get("name") or head.get("observatory") or path.stem,
        antenna_names=tuple(row[4] for row in rows),
        positions=positions,
        diameter=np.array([row[3] for row in rows], dtype=np.float64),
        source=head.get("source", str(path)),
        mount=_mount(path, head.get("mount", "alt-az")),
        feeds=_feeds(path, head.get("feeds", "linear")),
    )


def local_to_itrf(enu: ArrayLike, centre: Centre) -> NDArray[np.float64]:
    """ITRF positions of points stated in metres east, north and up of a place.

    With longitude lambda and geodetic latitude phi of the centre,

        east  = (-sin lambda, cos lambda, 0)
        north = (-sin phi cos lambda, -sin phi sin lambda, cos phi)
        up    = (cos phi cos lambda, cos phi sin lambda, sin phi)

    Parameters
    ----------
    enu : (..., 3), m
    centre : Centre

    Returns
    -------
    float64 (..., 3), m
    """
    import erfa

    longitude, latitude = np.deg2rad(centre.longitude), np.deg2rad(centre.latitude)
    origin = np.asarray(erfa.gd2gc(1, longitude, latitude, centre.height))
    return np.asarray(origin + np.asarray(enu, dtype=np.float64) @ _enu_axes(longitude, latitude))


def up(position: NDArray[np.float64]) -> NDArray[np.float64]:
    """Unit vector towards the geodetic zenith at an ITRF position, float64 (3,)."""
    import erfa

    longitude, latitude, _ = erfa.gc2gd(1, position)
    return np.asarray(_enu_axes(float(longitude), float(latitude))[2])


def _enu_axes(longitude: float, latitude: float) -> NDArray[np.float64]:
    sin_lon, cos_lon = np.sin(longitude), np.cos(longitude)
    sin_lat, cos_lat = np.sin(latitude), np.cos(latitude)
    return np.array(
        [
            [-sin_lon, cos_lon, 0.0],
            [-sin_lat * cos_lon, -sin_lat * sin_lon, cos_lat],
            [cos_lat * cos_lon, cos_lat * sin_lon, sin_lat],
        ]
    )


def _data_files() -> list[resources.abc.Traversable]:
    folder = resources.files("biro.simulation") / "data"
    files = (path for path in folder.iterdir() if path.name.endswith(".csv"))
    return sorted(files, key=lambda path: path.name)


def _lines(path: Path) -> list[str]:
    try:
        return read_text_file(path).splitlines()
    except OSError as error:
        raise InputError(f"cannot read antenna file {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"cannot read antenna file {path}: {error}") from None


def _read_head(path: Path) -> dict[str, str]:
    """Keys and values of the comment lines, `key = value` or `key: value`.

    A line indented by three spaces or more after # continues the value before.
    """
    head: dict[str, str] = {}
    key = ""
    for line in _lines(path):
        if not line.startswith("#"):
            continue
        text = line[1:]
        if text.startswith("   ") and key:
            head[key] += " " + text.strip()
            continue
        marks = [text.index(mark) for mark in "=:" if mark in text]
        key = text[: min(marks)].strip().lower() if marks else ""
        if key:
            head[key] = text[min(marks) + 1 :].strip()
    return head


def _data_lines(path: Path) -> list[tuple[int, str]]:
    """Numbered lines that are neither comment, nor empty, nor the line of column names."""
    lines = enumerate(_lines(path), start=1)
    kept = [(number, line) for number, line in lines if line.strip() and not line.lstrip().startswith("#")]
    if kept and next(csv.reader([kept[0][1]]))[0].strip().lower() == "x":
        kept = kept[1:]
    return kept


def _parse_row(path: Path, number: int, line: str) -> tuple[float, float, float, float, str]:
    words = [word.strip() for word in line.split(",")] if "," in line else line.split()
    try:
        x, y, z, diameter = (float(word) for word in words[:4])
        name = words[4]
    except (ValueError, IndexError):
        raise InputError(
            f"{path}, line {number}: expected 'x y z diameter name' (metres), "
            f"found {short_repr(line.strip())}"
        ) from None
    return x, y, z, diameter, name


def _mount(path: Path, text: str) -> str:
    kind = mount_kind(text)
    if kind not in MOUNTS:
        raise InputError(f"{path}: mount must be one of {', '.join(MOUNTS)}, found {short_repr(text)}")
    return kind


def _feeds(path: Path, text: str) -> Feeds:
    for kind in get_args(Feeds):
        if text.strip().lower() == kind:
            return cast(Feeds, kind)
    raise InputError(f"{path}: feeds must be linear or circular, found {short_repr(text)}")


def _centre(path: Path, centre: tuple[float, ...] | None, head: dict[str, str]) -> Centre:
    if centre is None:
        text = head.get("centre") or head.get("cofa") or ""
        try:
            centre = tuple(float(word) for word in text.replace(",", " ").split())
        except ValueError:
            centre = ()
    if len(centre) not in (2, 3):
        raise InputError(
            f"{path}: local coordinates need their centre: a line '# centre = longitude latitude height' "
            "(deg, deg, m), or centre=(longitude, latitude, height)"
        )
    return Centre(*cast(tuple[float, float], centre))
