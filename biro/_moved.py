"""Modules that moved in version 0.3 are found under their earlier names, with a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "arrow": "inference.block_arrowhead",
    "closures": "likelihood.closures",
    "data_set": "io.data_set",
    "feeds": "observation.feeds",
    "flag_lines": "io.flag_commands",
    "formatting": "display.formatting",
    "free_gains": "likelihood.free_gains",
    "gain_files": "io.gain_files",
    "held": "observation.distributed_data",
    "images": "imaging",
    "ionosphere": "io.ionosphere",
    "list_priors": "source_finding.list_priors",
    "maximum": "inference.maximum",
    "measurement_set": "io.measurement_set",
    "misfit": "diagnosis",
    "msv4": "io.msv4",
    "posterior": "inference.posterior",
    "progress": "display.progress",
    "ranks": "distributed",
    "reading": "io.reading",
    "samplers": "inference.samplers",
    "sky_files": "io.sky_files",
    "smearing": "observation.smearing",
    "stages": "display.stages",
    "style": "display.style",
    "target": "inference.target",
    "tasks": "distributed.tasks",
    "uvdata": "io.uvdata",
    "uvfits": "io.uvfits",
}
"""Earlier and present names of modules and packages, within `biro`."""
GONE = "0.5"
"""Release in which the earlier names end."""


class _Moved(Loader):
    """Finds a module under an earlier name, and gives the module itself: no class exists twice."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        room, *parts = fullname.split(".")
        if room != "biro" or not parts or parts[0] not in MOVED:
            return None
        present = ".".join(("biro", MOVED[parts[0]], *parts[1:]))
        text = f"{fullname} is called {present} now; the earlier name works until biro {GONE}"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return ModuleSpec(fullname, self, loader_state=present)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(spec.loader_state)
        spec.loader_state = module.__spec__  # the import system replaces it
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None, "the import system has set it"
        module.__spec__ = module.__spec__.loader_state


def find_moved_modules() -> None:
    """Let imports find modules under their earlier names."""
    if not any(isinstance(each, _Moved) for each in sys.meta_path):
        sys.meta_path.insert(0, _Moved())
