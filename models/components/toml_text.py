"""What a user wrote about the sky, as the text of a model file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from biro.models.components.antenna_terms.gain import Gain
from biro.models.components.antenna_terms.gain_solutions import GainSolutions
from biro.models.components.antenna_terms.ionosphere import Ionosphere, IonosphereSamples
from biro.models.components.antenna_terms.per_segment import PerSegment
from biro.models.components.beam_cube import BeamCube
from biro.models.components.constraint import Bounds, Condition, Order
from biro.models.components.direction import Centre, direction_text
from biro.models.components.image import ImageModel
from biro.models.components.image_term import ImageTerm
from biro.models.components.noise import Noise
from biro.models.components.population import NumberPrior
from biro.models.components.single_dish import SingleDish
from biro.models.components.sky import SkyDescription
from biro.models.components.source import LOCAL
from biro.models.errors import ModelError
from biro.models.quantities.frozen_prior import Frozen
from biro.models.quantities.parameter import Fixed
from biro.models.quantities.prior import Prior
from biro.models.quantities.prior_table import to_table
from biro.models.quantities.strict import Entry, short_repr
from biro.models.quantities.tie import Tie


def to_toml(model: SkyDescription, *, centre: Centre | None = None, python_as_comments: bool = False) -> str:
    """The TOML text of a model.

    Parameters
    ----------
    model : SkyDescription
        Such as a `SkyModel`.
    centre : (float, float), rad, optional
        Written where the model states none.
    python_as_comments : bool
        Write what only Python can say as comments, instead of raising.
    """
    emit = _Emitter(python_as_comments)
    centre = model.centre if model.centre is not None else centre
    sky: dict[str, object] = {}
    if centre is not None:
        sky["centre"] = direction_text(centre)
    if model.centre_error is not None:
        sky["centre_error"] = model.centre_error
    if model.ref_freq is not None:
        sky["ref_freq"] = model.ref_freq
    if sky:
        emit.table("[sky]", sky, {"centre_error": _OF_CENTRE})
    for source in model.sources:
        leave = ["name", *["beam"] * source.beam, *["frame"] * (getattr(source, "frame", None) == LOCAL)]
        emit.table("[[source]]", {"name": source.name, "type": source.type} | _entries(source, tuple(leave)))
    for population in model.populations:
        emit.table("[[population]]", _without_defaults(population))
    for image in model.images:
        emit.image(image)
    for fitted in model.image_priors:
        usual = [
            key for key in ("regularisation", "stokes") if getattr(fitted, key) == getattr(type(fitted), key)
        ]
        emit.table("[[image]]", _entries(fitted, tuple(usual)))
    if model.beam is not None:
        emit.beam(model.beam)
    if model.pointing is not None:
        emit.table("[pointing]", {k: v for k, v in _entries(model.pointing).items() if v != {}})
    for name in ("feeds", "leakage"):
        given = getattr(model, name)
        if given is not None:
            emit.table(f"[{name}]", _without_defaults(given))
    for gain in model.gains:
        emit.gain(gain, "[gain]" if len(model.gains) == 1 else "[[gain]]")
    if model.ionosphere is not None:
        emit.ionosphere(model.ionosphere)
    if model.noise != Noise() or python_as_comments:
        default = ("distribution",) if model.noise.distribution == Noise.distribution else ()
        emit.table("[noise]", {k: v for k, v in _entries(model.noise, default).items() if v != {}})
    for constraint in model.constraints:
        emit.constraint(constraint)
    return emit.text()


def entry_lines(item: Entry, keys: Sequence[str]) -> list[str]:
    """Lines of a model file for some entries of a part of a model, such as a source."""
    emit = _Emitter(python_as_comments=False)
    return [f"{_key(key)} = {emit.value(getattr(item, key))}" for key in keys]


_OF_CENTRE = "A phase centre of the data that is closer to centre than this counts as centre (it is rounded)."
"""Comment on `centre_error`."""


def _entries(item: Entry, leave: tuple[str, ...] = ()) -> dict[str, object]:
    """The entries of a part of a model by name, without those that are not given."""
    fields = [field.name for field in dataclasses.fields(item) if field.name not in leave]
    return {name: getattr(item, name) for name in fields if getattr(item, name) is not None}


def _is_of_python(value: object) -> bool:
    """Whether a beam has something here that no file can say."""
    if isinstance(value, dict):
        return any(map(_is_of_python, value.values()))
    return isinstance(value, BeamCube) or callable(value)


def _without_defaults(item: Entry, leave: tuple[str, ...] = ()) -> dict[str, object]:
    """The entries of a part of a model that are not what they are by default."""
    plain = {field.name: field.default for field in dataclasses.fields(item)}
    return {name: value for name, value in _entries(item, leave).items() if value not in (plain[name], {})}


class _Emitter:
    """Writes tables of strings, numbers, quantities, lists and tables; nothing else occurs in a model."""

    def __init__(self, python_as_comments: bool) -> None:
        self._comments = python_as_comments
        self._lines: list[str] = []

    def text(self) -> str:
        return "\n".join(self._lines).lstrip("\n") + "\n"

    def table(
        self, header: str, table: Mapping[str, object], comments: Mapping[str, str] | None = None
    ) -> None:
        self._lines += ["", header]
        for key, value in table.items():
            self._lines += [f"# {comments[key]}"] if comments and key in comments else []
            if self._comments and _has_frozen(value):
                self._lines.append(f"# {_key(key)} = {value!r}")
            else:
                self._lines.append(f"{_key(key)} = {self.value(value)}")

    def image(self, image: ImageTerm) -> None:
        given = _entries(image)
        if isinstance(image.file, ImageModel):
            if not self._comments:
                raise ModelError(
                    f"image {image.name!r}: an image in memory cannot be written to a model file; save it as "
                    "FITS and give the path"
                )
            given["file"] = ""  # which no reader takes: without its image the model is another
        self.table("[[image]]", given)

    def beam(self, beam: Entry) -> None:
        given = {"kind": beam.kind} | _entries(beam)
        centre = given.pop("centre", "pointing")
        if centre != "pointing":
            given["centre"] = centre if isinstance(centre, str) else direction_text(centre)
        of_python = [key for key, value in given.items() if _is_of_python(value)]
        if of_python and not self._comments:
            raise ModelError(
                f"beam: {of_python[0]}: a beam in memory and a function can be used from Python only, not "
                "written to a model file"
            )
        self.table("[beam]", given | dict.fromkeys(of_python, ""))

    def gain(self, gain: Gain, header: str) -> None:
        given = _without_defaults(gain)
        if gain.table is not None:
            paths = [one.source if isinstance(one, GainSolutions) else one for one in gain.table]
            if not all(paths) and not self._comments:
                raise ModelError(
                    "gain: gains in memory cannot be written to a model file; write them with "
                    "biro.io.gain_files.write_gains and give the path"
                )
            given["table"] = paths[0] if len(paths) == 1 else paths
        self.table(header, given)

    def ionosphere(self, ionosphere: Ionosphere) -> None:
        given = _without_defaults(ionosphere)
        if ionosphere.file is not None:
            paths = [one.source if isinstance(one, IonosphereSamples) else one for one in ionosphere.file]
            if not all(paths) and ionosphere.kind == "given" and not self._comments:
                raise ModelError(
                    "ionosphere: numbers in memory cannot be written to a model file; save them as .npz and "
                    "give the path"
                )
            del given["file"]
            if ionosphere.kind == "given":
                given["file"] = paths[0]
        self.table("[ionosphere]", given)

    def constraint(self, constraint: Order | Bounds | Condition) -> None:
        if not isinstance(constraint, Condition):
            self.table("[[constraint]]", _entries(constraint))
        elif self._comments:
            self._lines += ["", f"# [[constraint]] {constraint!r}"]
        else:
            raise ModelError(f"{constraint!r} can be used from Python only, not written to a model file")

    def value(self, value: object) -> str:
        """One value of a table."""
        if isinstance(value, Fixed):
            number = _float(value.value)
            return _string(f"{value.value!r} {value.unit}") if value.unit else number
        if isinstance(value, Tie):
            return f"{{ tie = {_string(value.to)} }}"
        if isinstance(value, Prior):
            return self.value(to_table(value))
        if isinstance(value, PerSegment):
            return self.value(to_table(value.prior) | _without_defaults(value, ("prior",)))
        if isinstance(value, SingleDish):
            return self.value(_entries(value))
        if isinstance(value, NumberPrior):
            return self.value(_without_defaults(value))
        if isinstance(value, str):
            return _string(value)
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, int):
            return str(value)
        if isinstance(value, float):
            return _float(value)
        if isinstance(value, (list, tuple)):
            # A list of one quantity is written as that quantity, which reads back the same.
            if len(value) == 1 and not isinstance(value[0], str):
                return self.value(value[0])
            return "[" + ", ".join(self.value(item) for item in value) + "]"
        if isinstance(value, Mapping):
            return "{ " + ", ".join(f"{_key(k)} = {self.value(v)}" for k, v in value.items()) + " }"
        raise ModelError(f"cannot be written to a model file: {short_repr(value)}")


def _has_frozen(value: object) -> bool:
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else ()
    if isinstance(value, PerSegment):
        inside = (value.prior, value.correlated, value.sd)
    return isinstance(value, Frozen) or any(_has_frozen(item) for item in inside)


def _float(value: float) -> str:
    return repr(value) if math.isfinite(value) else str(value)


def _key(key: str) -> str:
    return key if key.replace("_", "").isalnum() and key.isascii() else _string(key)


_ESCAPES = {'"': '\\"', "\\": "\\\\"}


def _string(text: str) -> str:
    made = "".join(_ESCAPES.get(c, c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}") for c in text)
    return f'"{made}"'
