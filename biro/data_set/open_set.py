"""How a set of any format is opened by the process that reads it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager

from biro.data_set.assembly import DataSet, Request
from biro.data_set.options import SetOptions

Place = str | os.PathLike[str]
OpenSet = Callable[[Place, SetOptions], AbstractContextManager[tuple[DataSet, Request]]]
"""A function of a module: opens a set of one format, and sorts the options with which it is read."""
