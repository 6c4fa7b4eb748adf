"""The exception family that a script can catch, from its root downwards."""


class BiroError(Exception):
    """Something a user can mend; the message says what was given, expected, and to do."""


class InputError(BiroError, ValueError):
    """An argument has an impossible shape, value or combination of values."""


class BackendError(BiroError, RuntimeError):
    """The backend that was asked for is not here, or its device failed."""
