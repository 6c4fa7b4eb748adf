"""Warn of public names that the API reference does not document; with -W this is an error."""

import importlib
import inspect

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

log = logging.getLogger(__name__)
PUBLIC = (
    "biro",
    "biro.errors",
    "biro.io.measurement_set",
    "biro.models",
    "biro.models.files",
    "biro.plots",
    "biro.sbc",
    "biro.simulation",
    "rime_kernels",
    "rime_kernels.idg",
    "rime_kernels.wprojection",
)
"""Packages and modules whose `__all__` is what users may rely on."""


def check(app: Sphinx, env: BuildEnvironment) -> None:
    """Compare `__all__` with what is documented, object by object: one may be public in two places."""
    known = set()
    for name, entry in env.domains.python_domain.objects.items():
        if entry.objtype not in ("module", "method", "property", "attribute"):
            known.add(id(look_up(name)))
    for package in PUBLIC:
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if name == "__version__" or inspect.ismodule(value) or id(value) in known:
                continue
            log.warning("%s.%s is public and not documented", package, name, type="public_names")


def look_up(name: str) -> object:
    """The object of a documented name, or None."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute, None)
    except ImportError:
        return None


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
