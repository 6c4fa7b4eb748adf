"""Text files of sky models: their content says how they are read; functions write each format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from biro.models.errors import ModelError
from biro.models.files.bbs import read_bbs, write_bbs
from biro.models.files.catalogue import is_text_catalogue, read_catalogue
from biro.models.files.difmap import is_difmap, read_difmap, write_difmap
from biro.models.files.oskar import is_numbers, is_oskar, read_oskar, write_oskar
from biro.models.files.oskar_named import is_oskar_named
from biro.models.files.text import read_text
from biro.models.files.tigger import is_tigger, read_tigger, write_tigger
from biro.models.files.tigger_html import is_tigger_html, read_tigger_html
from biro.models.files.toml import read_model, write_model
from biro.models.sky import SkyModel

WRITERS = {
    ".toml": write_model,
    ".lsm.txt": write_tigger,
    ".txt": write_bbs,
    ".skymodel": write_bbs,
    ".bbs": write_bbs,
    ".mod": write_difmap,
    ".mfit": write_difmap,
    ".osm": write_oskar,
}
"""What writes a file, by how its name ends; the first that fits."""


def read_sky(path: str | Path) -> SkyModel:
    """A sky model from a text: a TOML model file, a WSClean/BBS or Tigger component list, a model of difmap,
    a sky file of OSKAR, or a catalogue of PyBDSF or AEGEAN; `biro.read_sky` takes FITS and CASA's lists too.

    The content decides: `.toml` is a model file; a line of names of columns, as PyBDSF and AEGEAN write it,
    makes a catalogue; HTML with objects a Tigger model; a comment "#format:" a Tigger list; a comment that
    "!" begins, or a name that ends in `.mod` or `.mfit`, a model of difmap; lines of numbers below a
    comment that "#" begins, or a name that ends in `.osm`, a sky file of OSKAR; a line that says "format ="
    or "= format" a BBS list, or one of OSKAR where it has columns that BBS has not; anything
    else is taken for a model file.

    Raises
    ------
    ModelError
        No such file, or none of these.
    """
    return reader_of(path)(path)


def reader_of(path: str | Path) -> Callable[[str | Path], SkyModel]:
    """The function by which `read_sky` reads a text: `read_model`, `read_bbs` or another one.

    Raises
    ------
    ModelError
        No such file, or numbers that several programs write.
    """
    path = Path(path)
    if path.suffix.lower() == ".toml":
        return read_model
    text = read_text(path)
    ends = path.suffix.lower()
    told = (
        (is_text_catalogue(text), read_catalogue),
        (is_tigger_html(text), read_tigger_html),
        (is_tigger(text), read_tigger),
        (is_difmap(text) or ends in (".mod", ".mfit"), read_difmap),
        (is_oskar(text) or ends == ".osm" or is_oskar_named(text), read_oskar),
    )
    for is_it, reader in told:
        if is_it:
            return reader
    if is_numbers(text):
        raise ModelError(
            f"{path}: holds only numbers, as lists of several programs do; rename it to .osm (OSKAR) or .mod "
            "(difmap)"
        )
    head = [line.lower().replace(" ", "") for line in text.splitlines()[:200]]
    is_bbs = any("format=" in line or "=format" in line for line in head)
    return read_bbs if is_bbs else read_model


def write_sky(
    model: SkyModel, path: str | Path, free: Mapping[str, Mapping[str, float]] | None = None
) -> None:
    """Write a sky model in the format that the end of the file's name says.

    `.toml` is a model file, `.lsm.txt` a Tigger list, `.txt`, `.skymodel` and `.bbs` are BBS lists, `.mod`
    and `.mfit` models of difmap, `.osm` a sky file of OSKAR. Models of difmap mark the quantities that were
    fitted, `free`, as `write_difmap` takes them; the other formats have no such marks.

    Raises
    ------
    ModelError
        Another end of the name, something that the format cannot say, or a file that cannot be written.
    """
    for end, write in WRITERS.items():
        if str(path).lower().endswith(end):
            return write_difmap(model, path, free) if write is write_difmap else write(model, path)
    raise ModelError(f"{path}: unknown format; the name must end in one of {', '.join(WRITERS)}")
