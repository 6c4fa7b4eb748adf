"""JAX with double precision on the CPU, and its packages, for images."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from biro.errors import InputError

PACKAGES = ("jax", "jaxbind", "nifty")
EXTRA = "images"


def require_packages() -> None:
    """Refuse to go on where JAX, jaxbind or nifty is missing, in a line with the name of the extra.

    Raises
    ------
    InputError
        A package is not installed.
    """
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise InputError(
            f"samples of an image need {', '.join(missing)}, not installed here: "
            f'pip install "biro-rime[{EXTRA}]"; prior = "smooth" needs none of them'
        )


@contextmanager
def double_precision() -> Iterator[None]:
    """JAX with float64 on the CPU within the block; the settings of the process stay as they are."""
    require_packages()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # biro's kernels share the GPU
    import jax
    from nifty.re import logger

    logger.setLevel(logging.CRITICAL)  # its lines of each iteration; biro has its own
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        yield
