"""Read gains of antennas from H5parm files, as DP3 and LoSoTo write them.

The format is that of LoSoTo's cookbook (section H5parm) and `losoto/h5parm.py`: a solution set holds
solution tables, each with `val` and `weight` (0: no solution), whose attribute AXES names their axes; the
title of a table is its type. What values mean is read from DP3, `steps/OneApplyCal.cc` and
`schaapcommon/h5parm/jonesparameters.cc`: g = amplitude exp(+i phase), and V_pq = g_p V g_q^* of data that
are not corrected yet, which is G of physics: section 6. Times are middles of solution intervals, MJD in
seconds, on the time scale of the Measurement Set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import first_few
from biro.errors import DataError
from biro.files.foreign_text import visible, visible_line
from biro.files.hdf5 import Hdf5Node, list_hdf5, read_hdf5
from biro.models.components.antenna_terms.gain_solutions import GainSolutions
from biro.models.errors import ModelError
from biro.models.quantities.strict import did_you_mean

Array = NDArray[np.float64]
AXES = ("time", "ant", "freq", "pol")
"""Axes of a table here, in this order; `dir` is chosen before."""
PARTS = ("val", "weight", *AXES, "dir")
"""Arrays of a table."""
FEEDS = {"XX": (0,), "RR": (0,), "YY": (1,), "LL": (1,), "I": (0, 1), "": (0, 1)}
"""Which feeds have the gain of a polarization; "" stands for a table without such an axis."""
CROSS = ("XY", "YX", "RL", "LR")
TOGETHER = (("XX", "XY", "YX", "YY"), ("RR", "RL", "LR", "LL"), ("I",), ("",))
"""Polarizations that a table may have beside each other."""
_KIND = re.compile(r"(?:common)?(?:scalar)?(amplitude|phase)")
NEGLIGIBLE = 1e-6
"""Amplitudes across feeds that count as 0, relative to the median of those of feeds."""


class _SolutionTable(NamedTuple):
    """A solution table, in one direction.

    Attributes
    ----------
    name : str
        "sol000/phase000".
    kind : "amplitude" or "phase"
    time : float64 (n_time,) or None
        MJD, s; None where the table has no such axis, and holds for all times.
    freq : float64 (n_freq,) or None
    antennas : tuple of str
    values : float64 (n_time or 1, n_antenna, n_freq or 1, 2)
        Of the two feeds: an amplitude, or a phase in rad.
    usable : bool, as values
    """

    name: str
    kind: str
    time: Array | None
    freq: Array | None
    antennas: tuple[str, ...]
    values: Array
    usable: NDArray[np.bool_]


def split_h5parm(path: Path) -> tuple[Path, str]:
    """The path of a file, and what follows it behind a colon: "cal.h5:sol000/phase000"."""
    text = str(path)
    for at in (match.start() for match in re.finditer(":", text)):
        if Path(text[:at]).is_file() and not path.exists():
            return Path(text[:at]), text[at + 1 :]
    return path, ""


def is_h5parm(nodes: Mapping[str, Hdf5Node]) -> bool:
    """Whether an HDF5 file has a table of solutions."""
    return any(_soltabs(nodes, solset) for solset in _groups(nodes, ""))


def read_h5parm(path: Path, inside: str = "") -> GainSolutions:
    """Gains of a file: amplitudes times phases of a solution set, or one of its tables.

    Parameters
    ----------
    path : Path
        Of the file.
    inside : str
        "sol000", "sol000/phase000", or "sol000/phase000/Patch_1" with a direction. Default: the only
        solution set, with its only table of amplitudes and its only one of phases.

    Raises
    ------
    DataError
        A damaged file, one without gains, or with several that may be meant.
    """
    try:
        nodes = list_hdf5(path)
        names, direction = _chosen(path, nodes, inside)
        wanted = [f"{name}/{part}" for name in names for part in PARTS]
        wanted.append(f"{names[0].split('/')[0]}/antenna/name")
        _, arrays = read_hdf5(path, wanted, with_text=True)
        tables = [_table(path, nodes, arrays, name, direction, len(names) > 1) for name in names]
        return _together(path, f"{path}:{inside}" if inside else str(path), tables)
    except DataError:
        raise
    except (ValueError, OSError, ModelError, KeyError, IndexError) as error:
        reason = visible_line(error)[:200]
        hint = ""
        if "filter" in reason:
            hint = (
                f"; it is compressed in a way that PyTables alone reads: ptrepack --complevel=0 {path} NEW.h5"
            )
        raise DataError(f"{path}: no H5parm file of gains, or a broken one ({reason}){hint}") from None


def _groups(nodes: Mapping[str, Hdf5Node], parent: str) -> list[str]:
    """Names of the groups in a group."""
    return [
        name.removeprefix(parent)
        for name, node in nodes.items()
        if name.startswith(parent) and "/" not in name.removeprefix(parent) and node.shape is None
    ]


def _soltabs(nodes: Mapping[str, Hdf5Node], solset: str) -> dict[str, str]:
    """Solution tables of a solution set, and the type of each."""
    found = {}
    for name in _groups(nodes, f"{solset}/"):
        value = nodes.get(f"{solset}/{name}/val")
        if value is not None and value.shape is not None:
            title = nodes[f"{solset}/{name}"].attributes.get("TITLE")
            found[name] = visible(str(title or name.rstrip("0123456789")).strip().lower())
    return found


def _kind(type_: str) -> str | None:
    match = _KIND.fullmatch(type_)
    return match and match.group(1)


def _chosen(path: Path, nodes: Mapping[str, Hdf5Node], inside: str) -> tuple[list[str], str]:
    """The tables that are meant, as "sol000/phase000", and the direction."""
    solset, table, direction = [*inside.split("/", 2), "", ""][:3]
    sets = [name for name in _groups(nodes, "") if _soltabs(nodes, name)]
    if not sets:
        raise DataError(f"{path}: HDF5, but no H5parm file of gains: no group in it has a table of solutions")
    if not solset and len(sets) > 1:
        raise DataError(
            f"{path}: it has {len(sets)} solution sets; name the one to be read: "
            f"{first_few([f'{path}:{name}' for name in sets])}"
        )
    solset = solset or sets[0]
    if solset not in sets:
        hint = did_you_mean(solset, sets)
        raise DataError(f"{path}: no solution set {solset!r}; it has {first_few(sets)}{hint}")
    types = _soltabs(nodes, solset)
    if table:
        if table not in types:
            hint = did_you_mean(table, list(types))
            raise DataError(f"{path}: {solset} has no table {table!r}; it has {first_few(list(types))}{hint}")
        _refuse_other(path, solset, {table: types[table]})
        return [f"{solset}/{table}"], direction
    _refuse_other(path, solset, types)
    for kind in ("amplitude", "phase"):
        several = [f"{path}:{solset}/{name}" for name, type_ in types.items() if _kind(type_) == kind]
        if len(several) > 1:
            raise DataError(
                f"{path}: {solset} has {len(several)} tables of {kind}s; name those to be read, "
                f"{first_few(several)}"
            )
    return [f"{solset}/{name}" for name in types], direction


def _refuse_other(path: Path, solset: str, types: Mapping[str, str]) -> None:
    """Refuse tables that are no amplitudes or phases of feeds."""
    for name, type_ in types.items():
        if _kind(type_) is None:
            own = [f'"{path}:{solset}/{other}"' for other, its in types.items() if _kind(its)]
            other = f"; or name the tables to be read: [gain] table = [{', '.join(own)}]" if own else ""
            raise DataError(
                f"{path}: {solset}/{name} is of type {type_}, and biro reads amplitude and phase; apply it "
                f"to the data first (DP3: applycal.parmdb={path} applycal.correction={name}){other}"
            )


def _table(
    path: Path,
    nodes: Mapping[str, Hdf5Node],
    arrays: Mapping[str, NDArray[np.generic]],
    name: str,
    direction: str,
    is_paired: bool,
) -> _SolutionTable:
    """Make a table of its arrays; `is_paired` says that its amplitudes, or phases, are read beside it."""
    solset, own = name.split("/")
    given = {part: arrays[f"{name}/{part}"] for part in PARTS if f"{name}/{part}" in arrays}
    axes = _axes(nodes, f"{name}/val", given["val"].shape)
    if "ant" not in axes:
        raise DataError(f"{path}: {name} has no axis of antennas (AXES = {','.join(axes)})")
    if "ant" not in given and f"{solset}/antenna/name" in arrays:
        given["ant"] = arrays[f"{solset}/antenna/name"]
    for axis, size in zip(axes, given["val"].shape, strict=True):
        if axis not in PARTS and size > 1:
            raise DataError(f"{path}: {name} has an axis {axis!r}, which gains do not have")
        if axis in PARTS and axis not in given:
            raise ValueError(f"it lacks {name}/{axis}")
        if axis in PARTS and given[axis].shape != (size,):
            raise ValueError(f"{name}/{axis} has shape {given[axis].shape}, and {name}/val {size} of it")
    at = _direction(path, name, _words(given["dir"]) if "dir" in axes else (), direction)
    values = _arranged(np.asarray(given["val"], np.float64), axes, at)
    usable = np.isfinite(values)
    if "weight" in given:
        of_weight = _axes(nodes, f"{name}/weight", given["weight"].shape, axes)
        usable &= _arranged(np.asarray(given["weight"], np.float64), of_weight, at) > 0
    kind = str(_kind(_soltabs(nodes, solset)[own]))
    values, usable = _of_feeds(
        path, name, kind, is_paired, _words(given["pol"]) if "pol" in axes else ("",), values, usable
    )
    return _in_order(
        _SolutionTable(
            name,
            kind,
            np.asarray(given["time"], np.float64) if "time" in axes else None,
            np.asarray(given["freq"], np.float64) if "freq" in axes else None,
            _words(given["ant"]),
            values,
            usable,
        )
    )


def _axes(
    nodes: Mapping[str, Hdf5Node], name: str, shape: tuple[int, ...], default: Sequence[str] = ()
) -> list[str]:
    """Names of the axes of an array."""
    text = nodes[name].attributes.get("AXES")
    axes = [word.strip() for word in str(text).split(",")] if text else list(default)
    if len(axes) != len(shape) or len(set(axes)) != len(axes):
        raise ValueError(f"{name} has {len(shape)} axes, and its attribute AXES is {text!r}")
    return axes


def _words(array: NDArray[np.generic] | None) -> tuple[str, ...]:
    """The texts of an axis."""
    if array is None:
        return ()
    return tuple(visible(bytes(word).decode(errors="replace").strip()) for word in array.ravel().tolist())


def _direction(path: Path, name: str, known: tuple[str, ...], wanted: str) -> int:
    """Which direction is meant; names are written with and without brackets, as "[Patch_1]"."""
    plain = [one.strip("[]") for one in known]
    if not wanted:
        if len(known) > 1:
            each = f"{path}:{name}/{plain[0]}"
            raise DataError(
                f"{path}: {name} has gains of {len(known)} directions ({first_few(plain)}), and biro applies "
                f'those of one to all of the sky; name the direction: [gain] table = "{each}"'
            )
        return 0
    if plain.count(wanted.strip("[]")) != 1:
        hint = did_you_mean(wanted, plain)
        its = first_few(plain) if plain else "no axis of directions"
        raise DataError(f"{path}: {name} has no direction {wanted!r}; it has {its}{hint}")
    return plain.index(wanted.strip("[]"))


def _arranged(array: Array, axes: Sequence[str], direction: int) -> Array:
    """An array with the axes `AXES`, of length 1 where the file has none, in one direction."""
    if "dir" in axes:
        array = np.take(array, direction, axis=axes.index("dir"))
        axes = [axis for axis in axes if axis != "dir"]
    other = tuple(i for i, axis in enumerate(axes) if axis not in AXES)
    array = np.squeeze(array, axis=other)
    axes = [axis for axis in axes if axis in AXES]
    array = np.transpose(array, [axes.index(axis) for axis in AXES if axis in axes])
    return np.asarray(np.expand_dims(array, tuple(i for i, axis in enumerate(AXES) if axis not in axes)))


def _of_feeds(
    path: Path,
    name: str,
    kind: str,
    is_paired: bool,
    polarizations: tuple[str, ...],
    values: Array,
    usable: NDArray[np.bool_],
) -> tuple[Array, NDArray[np.bool_]]:
    """Values of the two feeds, and which there are, from those of polarizations."""
    names = [one.upper() for one in polarizations]
    is_known = any(set(names) <= set(kind) for kind in TOGETHER)
    if not is_known or len(set(names)) < len(names):
        raise DataError(f"{path}: {name} has polarizations {', '.join(names)}; biro reads XX, YY or RR, LL")
    found = np.zeros((*values.shape[:3], 2))
    there = np.zeros(found.shape, bool)
    for i, one in enumerate(names):
        for feed in FEEDS.get(one, ()):
            found[..., feed], there[..., feed] = values[..., i], usable[..., i]
    cross = [i for i, one in enumerate(names) if one in CROSS]
    if cross:
        size = float(np.median(np.abs(found[there]))) if there.any() else 0.0
        largest = float(np.max(np.abs(values[..., cross]), where=usable[..., cross], initial=0.0))
        if (kind == "amplitude" and largest > NEGLIGIBLE * size) or (kind == "phase" and not is_paired):
            raise DataError(
                f"{path}: {name} is a part of full Jones matrices ({', '.join(names)}), and biro reads gains "
                f"of feeds; apply it to the data first (DP3: applycal.parmdb={path} "
                "applycal.correction=fulljones)"
            )
    return found, there


def _in_order(table: _SolutionTable) -> _SolutionTable:
    """The table with ascending times and frequencies."""
    for axis, key in ((0, "time"), (2, "freq")):
        along = getattr(table, key)
        if along is not None:
            order = np.argsort(along, kind="stable")
            table = table._replace(
                **{key: along[order]},
                values=np.take(table.values, order, axis=axis),
                usable=np.take(table.usable, order, axis=axis),
            )
    return table


def _together(path: Path, source: str, tables: Sequence[_SolutionTable]) -> GainSolutions:
    """Amplitudes times phases, on the axes that the tables share."""
    first = tables[0]
    time, freq = first.time, first.freq
    for other in tables[1:]:
        if other.antennas != first.antennas:
            raise DataError(_apart(path, tables, "antennas"))
        for what, one, its in (("times", time, other.time), ("frequencies", freq, other.freq)):
            if one is not None and its is not None and not np.array_equal(one, its):
                raise DataError(_apart(path, tables, what))
        time, freq = other.time if time is None else time, other.freq if freq is None else freq
    shape = (1 if time is None else time.size, len(first.antennas), 1 if freq is None else freq.size, 2)
    gain, usable = np.ones(shape, np.complex128), np.ones(shape, bool)
    for table in tables:
        gain = gain * (table.values if table.kind == "amplitude" else np.exp(1j * table.values))
        usable = usable & table.usable
    return GainSolutions(
        source,
        np.zeros(1) if time is None else time,
        np.ones(1) if freq is None else freq,  # with one frequency no gain depends on it
        first.antennas,
        np.where(usable, gain, 1.0),
        usable,
        n_flagged=int(np.count_nonzero(~usable)),
        interval=np.full(1, np.inf) if time is None else _intervals(time),
    )


def _intervals(time: Array) -> Array:
    """How long each solution holds, s: up to half of the way to the nearer neighbour; 0 where it is alone."""
    if time.size < 2:
        return np.zeros(time.size)
    step = np.diff(time)
    return np.asarray(np.minimum(np.append(step, np.inf), np.insert(step, 0, np.inf)))


def _apart(path: Path, tables: Sequence[_SolutionTable], what: str) -> str:
    names = [table.name for table in tables]
    each = ", ".join(f'"{path}:{name}"' for name in names)
    return f"{path}: {' and '.join(names)} have different {what}; give both: [gain] table = [{each}]"
