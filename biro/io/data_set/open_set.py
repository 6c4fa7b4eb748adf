"""How a set of any format is opened by the process that reads it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from biro.errors import BiroError, DataError
from biro.files.foreign_text import visible, visible_line
from biro.io.data_set.options import SetOptions
from biro.io.data_set.request import ReadRequest
from biro.io.data_set.stored_data import DataSet

Place = str | os.PathLike[str]
OpenSet = Callable[[Place, SetOptions], AbstractContextManager[tuple[DataSet, ReadRequest]]]
"""A function of a module: opens a set of one format, and sorts the options with which it is read."""


INSTALL_FORMATS = "in the checkout of biro: pip install '.[formats]'"
"""What installs the packages that read formats of others."""


@contextmanager
def naming(path: Place, what: str) -> Iterator[None]:
    """Put the path before the message of an error, and turn errors of other packages into DataError.

    Parameters
    ----------
    path : path of the set
    what : str
        What it cannot be read as, where a package that reads it fails.
    """
    place = visible(str(path))
    try:
        yield
    except BiroError as error:
        text = visible(str(error))
        raise DataError(text if text.startswith(f"{place}: ") else f"{place}: {text}") from None
    except OSError as error:
        raise DataError(f"{place}: cannot be read ({error.strerror or error}); damaged or cut off?") from None
    except Exception as error:  # other packages raise many kinds about foreign files
        reason = visible_line(error)[:200] or type(error).__name__
        raise DataError(f"{place}: cannot be read as {what} ({reason})") from None
