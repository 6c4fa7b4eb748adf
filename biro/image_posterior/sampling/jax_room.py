"""JAX with double precision on the CPU or a GPU, and its packages, for images."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from biro.errors import InputError

PACKAGES = ("jax", "jaxbind", "nifty", "blackjax")
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


def has_gpu() -> bool:
    """Whether JAX has a GPU."""
    _import_jax()
    import jax

    try:
        return bool(jax.devices("gpu"))
    except RuntimeError:
        return False


def _import_jax() -> None:
    """Let JAX take memory of a GPU as it needs it, since gridders need some, too; it asks at its start."""
    require_packages()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


@contextmanager
def double_precision(on_gpu: bool = False) -> Iterator[None]:
    """JAX with float64 within the block; the settings of the process are restored after it.

    Parameters
    ----------
    on_gpu : bool
        Whether JAX computes on a GPU, not on the CPU.
    """
    _import_jax()
    import jax
    from nifty.re import logger

    logger.setLevel(logging.CRITICAL)  # its lines of each iteration; biro has its own
    before = jax.config.jax_enable_x64
    # Calls of `biro.jax` run in threads of XLA, which see the setting of the process alone.
    jax.config.update("jax_enable_x64", True)
    try:
        device = jax.devices("gpu" if on_gpu else "cpu")[0]
        with warnings.catch_warnings(), jax.enable_x64(True), jax.default_device(device):
            # What nifty draws a start from, which biro does not need.
            warnings.filterwarnings("ignore", "drawing white parameters")
            yield
    finally:
        jax.config.update("jax_enable_x64", before)
