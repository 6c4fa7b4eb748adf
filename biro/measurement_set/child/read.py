"""Reading in the child process: metadata, index columns, and chunks of data columns."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from casacore.measures import measures
from casacore.tables import table
from numpy.typing import NDArray

from biro.files.child_messages import RefusalError

if TYPE_CHECKING:
    from biro.files.child_messages import Link

CHUNK_BYTES = 32 << 20
QUERY_ROWS = 1 << 22
"""Rows asked about at a time: some seconds, well within the time limit."""
INDEX_COLUMNS = {
    "ANTENNA1": np.int32,
    "ANTENNA2": np.int32,
    "FIELD_ID": np.int32,
    "DATA_DESC_ID": np.int32,
    "SCAN_NUMBER": np.int32,
    "FLAG_ROW": np.bool_,
    "TIME": np.float64,
    "INTERVAL": np.float64,
    "UVW": np.float64,
}
SUBTABLES = ("ANTENNA", "FIELD", "SPECTRAL_WINDOW", "POLARIZATION", "DATA_DESCRIPTION", "OBSERVATION")
NUMPY_TYPES = {
    "complex": np.complex64,
    "dcomplex": np.complex128,
    "float": np.float32,
    "double": np.float64,
    "boolean": np.bool_,
    "int": np.int32,
}
FREQUENCY_FRAMES = ("REST", "LSRK", "LSRD", "BARY", "GEO", "TOPO", "GALACTO", "LGROUP", "CMB")
# In the order of casacore's MDirection::Types, for sets whose column does not list its codes.
DIRECTION_FRAMES = (
    *("J2000", "JMEAN", "JTRUE", "APP", "B1950", "B1950_VLA", "BMEAN", "BTRUE", "GALACTIC", "HADEC", "AZEL"),
    *("AZELSW", "AZELGEO", "AZELSWGEO", "JNAT", "ECLIPTIC", "MECLIPTIC", "TECLIPTIC", "SUPERGAL", "ITRF"),
    *("TOPO", "ICRS"),
)
FIXED_FRAMES = {"B1950", "B1950_VLA", "GALACTIC", "SUPERGAL", "ECLIPTIC"}
DATED_FRAMES = {"JMEAN", "JTRUE", "APP", "BMEAN", "BTRUE", "JNAT", "MECLIPTIC", "TECLIPTIC"}


def open_table(path: str, **options: Any) -> Any:
    """A casacore table, without its chatter."""
    return table(path, ack=False, **options)


def visibility_columns(main: Any) -> list[str]:
    """Columns of complex numbers with a channel and a correlation axis."""
    descriptions = {name: main.getcoldesc(name) for name in main.colnames()}
    return [
        name for name, about in descriptions.items() if about["valueType"].lower() in ("complex", "dcomplex")
    ]


class Reader:
    """Answers `open`, `metadata`, `index` and `read`."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def open(self, path: str) -> None:
        """Open and look whether this is a Measurement Set; answers with its column names."""
        self.path = path
        self.link.step(f"opening {os.path.join(path, 'table.dat')} and the data files beside it")
        main = open_table(path, lockoptions="permanentwait")
        missing = [name for name in INDEX_COLUMNS if name not in main.colnames() and name != "INTERVAL"]
        missing += [f"subtable {name}" for name in SUBTABLES if name not in main.keywordnames()]
        if missing:
            kind = main.info().get("type") or "of no stated type"
            raise RefusalError(
                f"a casacore table ({kind}), but not a Measurement Set: it has no {', '.join(missing)}"
            )
        self.main = main
        self.files = {}
        for manager in main.getdminfo().values():
            for column in manager["COLUMNS"]:
                self.files[column] = f"table.f{manager['SEQNR']}"
        columns = main.colnames()
        half = [c for c in visibility_columns(main) if main.getcolkeywords(c).get("BIRO_COMPLETE") is False]
        self.link.send({"columns": columns, "visibility": visibility_columns(main), "incomplete": half})

    def metadata(self) -> None:
        """Answer with what the subtables say."""
        tables = {}
        for name in SUBTABLES:
            self.link.step(f"reading subtable {os.path.join(self.path, name)}")
            tables[name] = open_table(self.main.getkeyword(name).removeprefix("Table: "))
        times = self._column("TIME") if self.main.nrows() else np.zeros(1)
        scale = self.main.getcolkeywords("TIME").get("MEASINFO", {}).get("Ref", "UTC")
        antenna = tables["ANTENNA"]
        positions = antenna.getcol("POSITION") if antenna.nrows() else np.zeros((0, 3))
        polarization = tables["POLARIZATION"]
        description = tables["DATA_DESCRIPTION"]
        telescopes = tables["OBSERVATION"].getcol("TELESCOPE_NAME") if tables["OBSERVATION"].nrows() else []
        self.link.send(
            {
                "antenna_names": list(antenna.getcol("NAME")),
                "antenna_positions": np.asarray(positions).tolist(),
                "dish_diameter": list(map(float, antenna.getcol("DISH_DIAMETER"))),
                "fields": Directions(tables["FIELD"], times[0], scale, positions).fields(),
                "spws": _windows(tables["SPECTRAL_WINDOW"]),
                "corr_types": [
                    np.ravel(polarization.getcell("CORR_TYPE", i)).tolist()
                    for i in range(polarization.nrows())
                ],
                "data_descriptions": [
                    [int(description.getcell(c, i)) for c in ("SPECTRAL_WINDOW_ID", "POLARIZATION_ID")]
                    for i in range(description.nrows())
                ],
                "telescope": ", ".join(dict.fromkeys(telescopes)) or "UNKNOWN",
                "time_scale": scale,
                "utc_offset": _utc_offset(times[0], scale),
                "uvw_frame": self.main.getcolkeywords("UVW").get("MEASINFO", {}).get("Ref", ""),
            }
        )

    def index(self) -> None:
        """Answer with the columns that rows are chosen by, one message each."""
        here = [name for name in INDEX_COLUMNS if name in self.main.colnames()]
        self.link.send({"columns": here})
        for name in here:
            self.link.send({}, self._column(name).astype(INDEX_COLUMNS[name], copy=False))

    def read(self, array: NDArray[np.int64], column: str, shape: list[int], chan: Any, corr: Any) -> None:
        """Answer with chunks of a column for the given rows; the last message says {"end": True}.

        `shape` is the full cell, (n_chan, n_corr) or (n_corr,); `chan`, `corr` the indices wanted (None: all
        of them).
        Each chunk's head has "start" and "undefined", the rows (within the chunk) that have no value.
        """
        self._step(column)
        rows = self.main if len(array) == self.main.nrows() else self.main.selectrows(array)
        dtype = column_type(self.main, column)
        missing = self._undefined(rows, column, tuple(shape))
        size = max(1, CHUNK_BYTES // (dtype.itemsize * int(np.prod(shape))))
        for start in range(0, len(array), size):
            self._step(column)
            span = (start, min(size, len(array) - start))
            values, undefined = read_cells(rows, column, span, missing, np.empty((span[1], *shape), dtype))
            self.link.send({"start": start, "undefined": undefined.tolist()}, _pick(values, chan, corr))
        self.link.send({"end": True})

    def _undefined(self, rows: Any, column: str, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """`undefined_rows` in blocks, with a sign of life for each: a large set has hundreds of them."""
        number = rows.nrows()
        if number <= QUERY_ROWS:
            return undefined_rows(rows, column, shape)
        found = []
        for start in range(0, number, QUERY_ROWS):
            self._step(column)
            block = rows.selectrows(np.arange(start, min(start + QUERY_ROWS, number)))
            found.append(start + undefined_rows(block, column, shape))
        return np.concatenate(found)

    def _step(self, column: str) -> None:
        self.link.step(
            f"reading {column} from {os.path.join(self.path, self.files.get(column, 'table.dat'))}*"
        )

    def _column(self, name: str) -> NDArray[Any]:
        self._step(name)
        try:
            values = self.main.getcol(name)
        except RuntimeError:
            without = sum(not self.main.iscelldefined(name, i) for i in range(self.main.nrows()))
            if without:
                raise RefusalError(f"{name} has no value in {without} of {self.main.nrows()} rows") from None
            raise
        if len(values) != self.main.nrows():
            raise RefusalError(f"{name} gave {len(values)} rows of {self.main.nrows()}; the set is truncated")
        return np.asarray(values)


def column_type(main: Any, column: str) -> np.dtype[Any]:
    """Type of a column's elements."""
    return np.dtype(NUMPY_TYPES[main.getcoldesc(column)["valueType"].lower()])


def undefined_rows(rows: Any, column: str, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Rows, counted within `rows`, whose cell has no value. To be asked before reading: casacore 3.8 dies
    with SIGSEGV when a span of a tiled column has cells without a value.

    Raises
    ------
    RefusalError
        A cell has another shape.
    """
    # The length of the first axis and the number of elements together give the shape; asked in the order
    # of their cost, and the whole shape never, which would take longer than reading a narrow column.
    size = int(np.prod(shape))
    odd = f"!isdefined({column}) || nelements({column}) != {size} || ndim({column}) != {len(shape)}"
    if len(shape) > 1:
        odd += f" || shape({column})[0] != {shape[0]}"
    found = rows.query(odd)
    if not found.nrows():
        return np.zeros(0, np.int64)
    wrong = found.query(f"isdefined({column}) && nelements({column}) > 0", limit=1)
    if wrong.nrows():
        raise RefusalError(
            f"{column} of row {wrong.rownumbers()[0]} has shape {np.shape(wrong.getcell(column, 0))},"
            f" but its data description says {shape}"
        )
    return np.array(found.rownumbers(rows), np.int64)


def read_cells(
    rows: Any, column: str, span: tuple[int, int], missing: NDArray[np.int64], values: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Fill `values` with a span (start, number) of rows, 0 where there is none; also which those are."""
    start, number = span
    undefined = missing[(missing >= start) & (missing < start + number)] - start
    if undefined.size:
        values[...] = 0
        defined = np.setdiff1d(np.arange(number), undefined)
        if defined.size:
            some = rows.selectrows(start + defined)
            found = np.empty((len(defined), *values.shape[1:]), values.dtype)
            some.getcolnp(column, found)
            values[defined] = found
    else:
        rows.getcolnp(column, values, start, number)
    return values, undefined


def _pick(values: NDArray[Any], chan: list[int] | None, corr: list[int] | None) -> NDArray[Any]:
    if chan is not None and values.ndim == 3:
        values = values[:, chan]
    return values if corr is None else values[..., corr]


def _windows(window: Any) -> list[dict[str, Any]]:
    names = window.getcol("NAME") if "NAME" in window.colnames() else [""] * window.nrows()
    windows = []
    for i, name in enumerate(names):
        code = int(window.getcell("MEAS_FREQ_REF", i)) if "MEAS_FREQ_REF" in window.colnames() else 5
        windows.append(
            {
                "name": name,
                "chan_freq": np.ravel(window.getcell("CHAN_FREQ", i)).tolist(),
                "chan_width": np.ravel(window.getcell("CHAN_WIDTH", i)).tolist(),
                "frame": FREQUENCY_FRAMES[code] if 0 <= code < len(FREQUENCY_FRAMES) else "undefined",
            }
        )
    return windows


def _utc_offset(time: float, scale: str) -> float:
    """Seconds to add to a time on this scale to make it UTC."""
    if scale == "UTC":
        return 0.0
    dm = measures()
    utc = dm.measure(dm.epoch(scale, f"{time / 86400:.12f}d"), "UTC")["m0"]["value"]
    return float(round((utc - time / 86400) * 86400, 3))


class Directions:
    """PHASE_DIR of every field as ICRS right ascension and declination.

    J2000 is taken as ICRS: what sets call J2000 are, by the practice of correlators and catalogues,
    ICRF positions; the two frames differ by less than 25 mas.
    """

    def __init__(self, field: Any, time: float, scale: str, positions: NDArray[np.float64]) -> None:
        self.field = field
        self.keywords = field.getcolkeywords("PHASE_DIR").get("MEASINFO", {})
        self.dm = measures()
        self.dm.do_frame(self.dm.epoch(scale, f"{time / 86400:.12f}d"))
        if len(positions):
            self.dm.do_frame(self.dm.position("ITRF", *(f"{x:.6f}m" for x in positions[0])))

    def fields(self) -> list[dict[str, Any]]:
        """Name, direction (rad) and frame of each field; "problem" where its frame cannot be used."""
        names = self.field.getcol("NAME") if self.field.nrows() else []
        return [{"name": name, **self._direction(i)} for i, name in enumerate(names)]

    def _frame(self, row: int) -> str:
        column = self.keywords.get("VarRefCol")
        if column is None:
            return str(self.keywords.get("Ref", "J2000"))
        code = self.field.getcell(column, row)
        if isinstance(code, str):
            return code
        types = self.keywords.get("TabRefTypes", DIRECTION_FRAMES)
        codes = list(self.keywords.get("TabRefCodes", range(len(DIRECTION_FRAMES))))
        return str(types[codes.index(code)]) if code in codes else f"code {code}"

    def _direction(self, row: int) -> dict[str, Any]:
        frame = self._frame(row).upper()
        # Axes (term of the polynomial in time, angle): the constant term holds at FIELD's TIME.
        terms = np.reshape(self.field.getcell("PHASE_DIR", row), (-1, 2))
        ra, dec = (float(x) for x in terms[0])
        problem = note = None
        if frame in FIXED_FRAMES | DATED_FRAMES:
            given = self.dm.direction(frame, f"{ra!r}rad", f"{dec!r}rad")
            found = self.dm.measure(given, "J2000")
            turn = self._turn(frame, (ra, dec))
            ra, dec = found["m0"]["value"], found["m1"]["value"]
            note = (
                f"UVW has the axes of {frame}, whose north is turned by {np.degrees(turn):+.3f} deg from that"
                " of ICRS at the phase centre: offsets of sources are turned alike"
            )
        elif frame not in ("J2000", "ICRS"):
            problem = f"its phase centre is in the frame {frame}, which does not stay at one place of the sky"
        if len(terms) > 1 and np.any(terms[1:]):
            moved = "PHASE_DIR has terms in time; its constant term was taken"
            note = moved if note is None else f"{moved}; {note}"
        return {"direction": [ra % (2 * np.pi), dec], "frame": frame, "problem": problem, "note": note}

    def _turn(self, frame: str, direction: tuple[float, float]) -> float:
        """Position angle, north through east in ICRS, of a frame's own north at a direction, rad."""
        ra, dec = direction
        away = 1e-4 if dec < 0 else -1e-4  # not across the pole
        here, there = (
            self.dm.measure(self.dm.direction(frame, f"{ra!r}rad", f"{angle!r}rad"), "J2000")
            for angle in (dec, dec + away)
        )
        east = (there["m0"]["value"] - here["m0"]["value"] + np.pi) % (2 * np.pi) - np.pi
        north = there["m1"]["value"] - here["m1"]["value"]
        return float(np.arctan2(np.sign(away) * east * np.cos(here["m1"]["value"]), np.sign(away) * north))
