"""Checkpoints of samples of an image: arrays with a digest of what they belong to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from biro.errors import InputError
from biro.files.npz import read_npz


def read_checkpoint(path: Path, digest: str, options: str) -> dict[str, NDArray[Any]]:
    """The arrays of a run that goes on.

    Parameters
    ----------
    path : Path
    digest : str
        Of data, model and options.
    options : str
        Those that the digest is of, in words.

    Raises
    ------
    InputError
        It is of other data, another model or other options.
    DataError
        It is broken.
    """
    kept = read_npz(path, "a fit of an image that goes on")
    if "digest" not in kept or str(kept["digest"]) != digest:
        raise InputError(
            f"{path}: is of other data, another model, {options}; remove it or choose another folder"
        )
    return kept
