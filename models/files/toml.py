"""Read a model file, which is TOML, as a `SkyModel`, and write one."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from biro.models.components.antenna_terms.feeds import Feeds
from biro.models.components.antenna_terms.gain import Gain
from biro.models.components.antenna_terms.ionosphere import Ionosphere
from biro.models.components.antenna_terms.leakage import Leakage
from biro.models.components.beam import BEAMS, AnyBeam, Pointing
from biro.models.components.constraint import read_constraint
from biro.models.components.image_prior import ImagePrior
from biro.models.components.image_term import ImageTerm
from biro.models.components.jones_beam import GRID_BEAMS, GridBeam
from biro.models.components.noise import Noise
from biro.models.components.population import Population
from biro.models.components.shapes.kinds import SHAPED
from biro.models.components.source import GaussianSource, PointSource, Source
from biro.models.components.toml_text import to_toml
from biro.models.errors import ModelError
from biro.models.files.text import naming, read_text, write_text
from biro.models.quantities.strict import did_you_mean, short_repr
from biro.models.sky import SkyModel

Table: TypeAlias = dict[str, Any]  # as tomllib gives it; the classes of a model check every entry
_TYPES: dict[str, type[Source]] = {"point": PointSource, "gaussian": GaussianSource, **SHAPED}
_TABLES = (
    *("sky", "source", "population", "image", "beam", "pointing", "feeds", "leakage", "gain"),
    *("ionosphere", "noise", "constraint"),
)
_SKY_KEYS = ("centre", "centre_error", "ref_freq")
_MAX_DEPTH = 32
# tomllib takes time and memory that grow with the square of the number of parts of a key.
_DEEP = re.compile(rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{_MAX_DEPTH}}}""")


def read_model(path: str | Path) -> SkyModel:
    """The sky model of a TOML file.

    Raises
    ------
    ModelError
        Names the file, the source, the key, what was found and what is allowed.
    """
    text = read_text(path)
    with naming(path):
        return from_toml(text, Path(path).parent)


def write_model(model: SkyModel, path: str | Path) -> None:
    """Write a sky model as a TOML file that `read_model` reads back as an equal model.

    Raises
    ------
    ModelError
        The model has what only Python can say, or the file cannot be written.
    """
    with naming(path):
        text = to_toml(model)
    write_text(path, text)


def from_toml(text: str, folder: str | Path = ".") -> SkyModel:
    """The sky model of a TOML text; paths in it are relative to the folder.

    Raises
    ------
    ModelError
        As `read_model`, without the file's name.
    """
    if _DEEP.search(text):
        raise ModelError(f"not valid TOML here: a key of more than {_MAX_DEPTH} parts")
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ModelError(f"not valid TOML: {error}") from None
    except RecursionError:
        raise ModelError("not valid TOML: nested too deeply") from None
    except ValueError as error:  # integers beyond Python's limit of digits
        raise ModelError(f"not valid TOML: {error}") from None
    _check_integers(tables)
    _refuse_unknown("table", tables, _TABLES)
    sky = _table(tables, "sky")
    _refuse_unknown("[sky] key", sky, _SKY_KEYS)
    given: Table = {key: sky[key] for key in _SKY_KEYS if key in sky}
    if "beam" in tables:
        given["beam"] = _beam(_table(tables, "beam"), Path(folder))
    if "pointing" in tables:
        given["pointing"] = Pointing(**_table(tables, "pointing"))
    if "feeds" in tables:
        given["feeds"] = Feeds(**_table(tables, "feeds"))
    if "leakage" in tables:
        given["leakage"] = Leakage(**_table(tables, "leakage"))
    if "gain" in tables:
        one = tables["gain"]
        several = _tables(tables, "gain") if isinstance(one, list) else [_table(tables, "gain")]
        given["gain"] = [_gain(table, Path(folder)) for table in several]
    if "ionosphere" in tables:
        table = dict(_table(tables, "ionosphere"))
        if isinstance(table.get("file"), str) and table["file"]:
            table["file"] = Path(folder) / table["file"]
        given["ionosphere"] = Ionosphere(**table)
    if "noise" in tables:
        given["noise"] = Noise(**_table(tables, "noise"))
    sources = [_source(i, table) for i, table in enumerate(_tables(tables, "source"))]
    images = [_image(i, table, Path(folder)) for i, table in enumerate(_tables(tables, "image"))]
    populations = [_population(i, table) for i, table in enumerate(_tables(tables, "population"))]
    if not sources and not images and not populations and "beam" not in given:
        raise ModelError("no sources; write at least one [[source]], [[population]] or [[image]] table")
    constraints = [read_constraint(table) for table in _tables(tables, "constraint")]
    return SkyModel(sources, images=images, populations=populations, constraints=constraints, **given)


def _check_integers(tables: Table) -> None:
    """Refuse integers beyond TOML's own 64 bits, which Python neither prints nor converts."""
    left: list[object] = [tables]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            left.extend(item.values())
        elif isinstance(item, list):
            left.extend(item)
        elif isinstance(item, int) and item.bit_length() > 63:
            raise ModelError(f"not valid TOML: an integer of {item.bit_length()} bits; at most 63 and a sign")


def _refuse_unknown(what: str, given: Mapping[str, object], known: tuple[str, ...]) -> None:
    for key in given:
        if key not in known:
            raise ModelError(
                f"unknown {what} {short_repr(key)}{did_you_mean(key, known)}; allowed: {', '.join(known)}"
            )


def _table(tables: Table, key: str) -> Table:
    table = tables.get(key, {})
    if not isinstance(table, dict):
        raise ModelError(f"{key}: expected a table [{key}], found {short_repr(table)}")
    return table


def _tables(tables: Table, key: str) -> list[Table]:
    found = tables.get(key, [])
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ModelError(f"{key}: expected tables [[{key}]] with two brackets, found {short_repr(found)}")
    return found


def _source(index: int, table: Table) -> Source:
    label = f"source {table.get('name', index + 1)!r}"
    kind = table.get("type", "point")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ModelError(
            f"{label}: type: one of {', '.join(_TYPES)}, found {short_repr(kind)}{did_you_mean(kind, _TYPES)}"
        )
    if "name" not in table:
        raise ModelError(f"{label}: 'name' is missing")
    given = {key: value for key, value in table.items() if key != "type"}
    if kind == "point":
        shape = [key for key in given if key in GaussianSource.shape_keys]
        if shape:
            raise ModelError(f'{label}: {shape[0]}: a point has no shape; write type = "gaussian"')
    return _TYPES[kind](**given)


def _population(index: int, table: Table) -> Population:
    if "name" not in table:
        raise ModelError(f"population {index + 1}: 'name' is missing")
    return Population(**table)


def _image(index: int, table: Table, folder: Path) -> ImageTerm | ImagePrior:
    label = f"image {table.get('name', index + 1)!r}"
    if "prior" in table:
        if "file" in table:
            raise ModelError(f"{label}: file, prior: an image is read from a file or fitted; leave one out")
        if "name" not in table:
            raise ModelError(f"{label}: 'name' is missing")
        given = table.get("single_dish")
        if isinstance(given, dict) and isinstance(given.get("file"), str) and given["file"]:
            table = table | {"single_dish": given | {"file": folder / given["file"]}}
        return ImagePrior(**table)
    for key in ("name", "file"):
        if not isinstance(table.get(key), str):
            raise ModelError(f"{label}: {key}: expected a text, found {short_repr(table.get(key))}")
    path = folder / table["file"] if table["file"] else ""
    return ImageTerm(**(table | {"file": path}))


def _gain(table: Table, folder: Path) -> Gain:
    if "table" not in table:
        return Gain(**table)
    paths = table["table"] if isinstance(table["table"], list) else [table["table"]]
    return Gain(**(table | {"table": [folder / p if isinstance(p, str) and p else p for p in paths]}))


def _beam(table: Table, folder: Path) -> AnyBeam | GridBeam:
    kind, known = table.get("kind"), BEAMS | GRID_BEAMS
    if not isinstance(kind, str) or kind not in known:
        raise ModelError(
            f"beam: kind: one of {', '.join(known)}, found {short_repr(kind)}{did_you_mean(kind, known)}"
        )
    given = {key: value for key, value in table.items() if key != "kind"}
    for key in ("file", "measurement_set"):
        if isinstance(given.get(key), str) and given[key]:
            given[key] = folder / given[key]
    if isinstance(given.get("antennas"), dict):
        given["antennas"] = {
            name: folder / file if isinstance(file, str) and file else file
            for name, file in given["antennas"].items()
        }
    return known[kind](**given)
