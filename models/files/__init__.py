"""Text files of sky models: their content says how they are read; functions write each format."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from biro.models.files.bbs import read_bbs, write_bbs
    from biro.models.files.catalogue import read_catalogue
    from biro.models.files.difmap import read_difmap, write_difmap
    from biro.models.files.formats import read_sky, write_sky
    from biro.models.files.oskar import read_oskar, write_oskar
    from biro.models.files.tigger import read_tigger, write_tigger
    from biro.models.files.tigger_html import read_tigger_html
    from biro.models.files.toml import read_model, write_model

__all__ = [
    "read_bbs",
    "read_catalogue",
    "read_difmap",
    "read_model",
    "read_oskar",
    "read_sky",
    "read_tigger",
    "read_tigger_html",
    "write_bbs",
    "write_difmap",
    "write_model",
    "write_oskar",
    "write_sky",
    "write_tigger",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        kind = name.partition("_")[2]
        home = {"sky": "formats", "model": "toml"}.get(kind, kind)
        return getattr(import_module(f"biro.models.files.{home}"), name)
    raise AttributeError(f"module 'biro.models.files' has no attribute {name!r}")
