"""The exception family that a script can catch, from its root downwards."""

import warnings


class BiroError(Exception):
    """Something a user can mend; the message says what was given, expected, and to do."""


class InputError(BiroError, ValueError):
    """An argument has an impossible shape, value or combination of values."""


class BackendError(BiroError, RuntimeError):
    """The backend that was asked for is not here, or its device failed."""


def warn_renamed(old: str, new: str) -> None:
    """Warn the caller of a function of this package that its name `old` has become `new`."""
    warnings.warn(f"{old} is called {new} now; write {new}", DeprecationWarning, stacklevel=3)
