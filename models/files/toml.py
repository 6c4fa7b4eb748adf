"""The model file: TOML in, `SkyModel` out, and back."""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from biro.models.components.beam import BEAMS, Pointing
from biro.models.components.constraint import Bounds, Condition, Order, read_constraint
from biro.models.components.direction import Centre
from biro.models.components.image import ImageModel
from biro.models.components.image_term import ImageTerm
from biro.models.components.noise import Noise
from biro.models.components.source import GaussianSource, PointSource
from biro.models.errors import ModelError
from biro.models.files.text import naming, read_text, write_text
from biro.models.quantities.frozen_prior import Frozen
from biro.models.quantities.parameter import Fixed, Tie
from biro.models.quantities.prior import Prior
from biro.models.quantities.prior_table import to_table
from biro.models.quantities.strict import nearest, shown
from biro.models.sky import SkyModel

_TYPES: dict[str, type[PointSource] | type[GaussianSource]] = {
    "point": PointSource,
    "gaussian": GaussianSource,
}
_TABLES = ("sky", "source", "image", "beam", "pointing", "noise", "constraint")
_SKY_KEYS = ("centre", "ref_freq")
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
    given: dict[str, Any] = {key: sky[key] for key in _SKY_KEYS if key in sky}
    if "beam" in tables:
        given["beam"] = _beam(_table(tables, "beam"))
    if "pointing" in tables:
        given["pointing"] = Pointing(**_table(tables, "pointing"))
    if "noise" in tables:
        given["noise"] = Noise(**_table(tables, "noise"))
    sources = [_source(i, table) for i, table in enumerate(_tables(tables, "source"))]
    images = [_image(i, table, Path(folder)) for i, table in enumerate(_tables(tables, "image"))]
    if not sources and not images:
        raise ModelError("no sources; write at least one [[source]] or [[image]] table")
    constraints = [read_constraint(table) for table in _tables(tables, "constraint")]
    return SkyModel(sources, images=images, constraints=constraints, **given)


def _check_integers(tables: dict[str, Any]) -> None:
    """Refuse integers beyond TOML's own 64 bits, which Python neither prints nor converts."""
    left: list[Any] = [tables]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            left.extend(item.values())
        elif isinstance(item, list):
            left.extend(item)
        elif isinstance(item, int) and item.bit_length() > 63:
            raise ModelError(f"not valid TOML: an integer of {item.bit_length()} bits; at most 63 and a sign")


def _refuse_unknown(what: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in given:
        if key not in known:
            raise ModelError(f"unknown {what} {shown(key)}{nearest(key, known)}; allowed: {', '.join(known)}")


def _table(tables: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = tables.get(key, {})
    if not isinstance(table, dict):
        raise ModelError(f"{key}: expected a table [{key}], found {shown(table)}")
    return table


def _tables(tables: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = tables.get(key, [])
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ModelError(f"{key}: expected tables [[{key}]] with two brackets, found {shown(found)}")
    return found


def _source(index: int, table: dict[str, Any]) -> PointSource | GaussianSource:
    label = f"source {table.get('name', index + 1)!r}"
    kind = table.get("type", "point")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ModelError(
            f"{label}: type: one of {', '.join(_TYPES)}, found {shown(kind)}{nearest(kind, _TYPES)}"
        )
    if "name" not in table:
        raise ModelError(f"{label}: 'name' is missing")
    given = {key: value for key, value in table.items() if key != "type"}
    if kind == "point":
        shape = [key for key in given if key in GaussianSource.shape_keys]
        if shape:
            raise ModelError(f'{label}: {shape[0]}: a point has no shape; write type = "gaussian"')
    return _TYPES[kind](**given)


def _image(index: int, table: dict[str, Any], folder: Path) -> ImageTerm:
    label = f"image {table.get('name', index + 1)!r}"
    for key in ("name", "file"):
        if not isinstance(table.get(key), str):
            raise ModelError(f"{label}: {key}: expected a text, found {shown(table.get(key))}")
    path = folder / table["file"] if table["file"] else ""
    return ImageTerm(**(table | {"file": path}))


def _beam(table: dict[str, Any]) -> Any:
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in BEAMS:
        raise ModelError(f"beam: kind: one of {', '.join(BEAMS)}, found {shown(kind)}{nearest(kind, BEAMS)}")
    return BEAMS[kind](**{key: value for key, value in table.items() if key != "kind"})


def to_toml(model: SkyModel, *, centre: Centre | None = None, python_as_comments: bool = False) -> str:
    """The TOML text of a model.

    Parameters
    ----------
    model : SkyModel
    centre : (float, float), rad, optional
        Written where the model states none.
    python_as_comments : bool
        Write what only Python can say as comments, instead of raising.
    """
    emit = _Emitter(python_as_comments)
    centre = model.centre if model.centre is not None else centre
    sky: dict[str, Any] = {}
    if centre is not None:
        sky["centre"] = [f"{centre[0]!r} rad", f"{centre[1]!r} rad"]
    if model.ref_freq is not None:
        sky["ref_freq"] = model.ref_freq
    if sky:
        emit.table("[sky]", sky)
    for source in model.sources:
        emit.table("[[source]]", {"name": source.name, "type": source.type} | _given(source, ("name",)))
    for image in model.images:
        emit.image(image)
    if model.beam is not None:
        emit.table("[beam]", {"kind": model.beam.kind} | _given(model.beam))
    if model.pointing is not None:
        emit.table("[pointing]", {k: v for k, v in _given(model.pointing).items() if v != {}})
    if model.noise != Noise() or python_as_comments:
        default = ("distribution",) if model.noise.distribution == Noise.distribution else ()
        emit.table("[noise]", _given(model.noise, default))
    for constraint in model.constraints:
        emit.constraint(constraint)
    return emit.text()


def _given(item: Any, leave: tuple[str, ...] = ()) -> dict[str, Any]:
    fields = [field.name for field in dataclasses.fields(item) if field.name not in leave]
    return {name: getattr(item, name) for name in fields if getattr(item, name) is not None}


class _Emitter:
    """Writes tables of strings, numbers, quantities, lists and tables; nothing else occurs in a model."""

    def __init__(self, python_as_comments: bool) -> None:
        self._comments = python_as_comments
        self._lines: list[str] = []

    def text(self) -> str:
        return "\n".join(self._lines).lstrip("\n") + "\n"

    def table(self, header: str, table: Mapping[str, Any]) -> None:
        self._lines += ["", header]
        for key, value in table.items():
            if self._comments and _has_frozen(value):
                self._lines.append(f"# {_key(key)} = {value!r}")
            else:
                self._lines.append(f"{_key(key)} = {self._value(value)}")

    def image(self, image: ImageTerm) -> None:
        given = _given(image)
        if isinstance(image.file, ImageModel):
            if not self._comments:
                raise ModelError(
                    f"image {image.name!r}: an image in memory cannot be written to a model file; save it as "
                    "FITS and give the path"
                )
            given["file"] = ""  # which no reader takes: without its image the model is another
        self.table("[[image]]", given)

    def constraint(self, constraint: Order | Bounds | Condition) -> None:
        if not isinstance(constraint, Condition):
            self.table("[[constraint]]", _given(constraint))
        elif self._comments:
            self._lines += ["", f"# [[constraint]] {constraint!r}"]
        else:
            raise ModelError(f"{constraint!r} can be used from Python only, not written to a model file")

    def _value(self, value: Any) -> str:
        if isinstance(value, Fixed):
            number = _float(value.value)
            return _string(f"{value.value!r} {value.unit}") if value.unit else number
        if isinstance(value, Tie):
            return f"{{ tie = {_string(value.to)} }}"
        if isinstance(value, Prior):
            return self._value(to_table(value))
        if isinstance(value, str):
            return _string(value)
        if isinstance(value, float):
            return _float(value)
        if isinstance(value, (list, tuple)):
            # A list of one quantity is written as that quantity, which reads back the same.
            if len(value) == 1 and not isinstance(value[0], str):
                return self._value(value[0])
            return "[" + ", ".join(self._value(item) for item in value) + "]"
        if isinstance(value, Mapping):
            return "{ " + ", ".join(f"{_key(k)} = {self._value(v)}" for k, v in value.items()) + " }"
        raise ModelError(f"cannot be written to a model file: {shown(value)}")


def _has_frozen(value: Any) -> bool:
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else ()
    return isinstance(value, Frozen) or any(_has_frozen(item) for item in inside)


def _float(value: float) -> str:
    return repr(value) if math.isfinite(value) else str(value)


def _key(key: str) -> str:
    return key if key.replace("_", "").isalnum() and key.isascii() else _string(key)


_ESCAPES = {'"': '\\"', "\\": "\\\\"}


def _string(text: str) -> str:
    made = "".join(_ESCAPES.get(c, c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}") for c in text)
    return f'"{made}"'
