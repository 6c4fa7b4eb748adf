"""Data and models among the words of one command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from biro.errors import InputError
from biro.io.reading import OPENERS, is_text
from biro.models.files.foreign import read_file
from biro.observation.join import set_names


def split_models(words: Sequence[Path]) -> tuple[list[Path], dict[str, Path]]:
    """The data of a command, and its models by name.

    Data are folders or binary files, models are text: so the models are the words of text at the end. The
    last word is a model, whatever it is.

    Parameters
    ----------
    words : sequence of Path
        One set of data at least, then one model at least.

    Returns
    -------
    data : list of Path
    models : dict of Path by str
        Each called by the end of its path that tells it from the others, without its suffix.

    Raises
    ------
    InputError
        No data, data behind a model, or a model that is given twice.
    """
    data, models = list(words[:-1]), [words[-1]]
    while data and is_model(data[-1]):
        models.insert(0, data.pop())
    if not data:
        raise InputError(f"{words[0]}: a model, but the data come first; write the data before the models")
    for path in data:
        if is_model(path):
            raise InputError(f"{path}: a model between the data; write the models after all data")
    absolute = [str(path.absolute().with_suffix("")) for path in models]
    if len({path.resolve() for path in models}) < len(models):
        raise InputError(f"a model is given twice: {', '.join(map(str, models))}")
    if len(set(absolute)) < len(absolute):  # one.toml and one.mod
        absolute = [str(path.absolute()) for path in models]
    names = [name.replace("/", "_") for name in set_names(absolute)] if len(models) > 1 else [models[0].stem]
    return data, dict(zip(names, models, strict=True))


def is_model(path: Path) -> bool:
    """Whether a path is a file of text, which models are, and data are not."""
    try:
        start = read_file(path, only=64) if path.is_file() else b""
    except (OSError, ValueError):
        return False
    return is_text(start) and not start.startswith(tuple(OPENERS))
