"""Text files of sky models: read by content, written by name."""

from __future__ import annotations

from pathlib import Path

from biro.models.files.bbs import read_bbs, write_bbs
from biro.models.files.text import read_text
from biro.models.files.tigger import is_tigger, read_tigger, write_tigger
from biro.models.files.toml import read_model, write_model
from biro.models.sky import SkyModel

__all__ = ["read_bbs", "read_model", "read_sky", "read_tigger", "write_bbs", "write_model", "write_tigger"]


def read_sky(path: str | Path) -> SkyModel:
    """A sky model from a TOML model file, a WSClean/BBS component list, or a Tigger ASCII list.

    The content decides: `.toml` is a model file; a comment "#format:" makes a Tigger list; a line that
    says "format =" or "= format" makes a BBS list; anything else is taken for a model file.

    Raises
    ------
    ModelError
        No such file, or none of these.
    """
    path = Path(path)
    if path.suffix.lower() == ".toml":
        return read_model(path)
    text = read_text(path)
    if is_tigger(text):
        return read_tigger(path)
    head = [line.lower().replace(" ", "") for line in text.splitlines()[:200]]
    if any("format=" in line or "=format" in line for line in head):
        return read_bbs(path)
    return read_model(path)
