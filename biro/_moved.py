"""Modules that moved in version 0.3 are found under their earlier names, with a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import InspectLoader, Loader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType

MOVED = {
    "arrow": "inference.block_arrowhead",
    "closures": "likelihood.closures",
    "closures.tally": "likelihood.closures.counts",
    "data_set": "io.data_set",
    "data_set.models_of_rows": "io.data_set.writable_models",
    "data_set.shares": "io.data_set.shared_reading",
    "feeds": "observation.feeds",
    "flag_lines": "io.flag_commands",
    "flag_lines.cells": "io.flag_commands.new_flags",
    "flag_lines.lines": "io.flag_commands.commands",
    "formatting": "display.formatting",
    "free_gains": "likelihood.free_gains",
    "gain_files": "io.gain_files",
    "held": "distributed.remote_data",
    "images": "imaging",
    "ionosphere": "io.ionosphere",
    "likelihood.cells.about": "likelihood.cells.expansion_point",
    "likelihood.cells.turning": "likelihood.cells.sidereal_rotation",
    "likelihood.hands": "likelihood.parallel_hands",
    "likelihood.inner": "likelihood.integrals.inner_parameters",
    "likelihood.isolated": "likelihood.disjoint_sources",
    "likelihood.lone_gains": "likelihood.single_baseline_gains",
    "likelihood.noise.seen_sky": "likelihood.noise.sky_through_gains",
    "likelihood.noise_model": "likelihood.normalisation",
    "likelihood.treatments": "likelihood.densities",
    "likelihood.treatments.baseline_classes": "likelihood.noise.baseline_classes",
    "likelihood.treatments.fluxes_beside_gains": "likelihood.integrals.fluxes_beside_gains",
    "likelihood.treatments.gain_information": "likelihood.integrals.gain_information",
    "likelihood.treatments.inner_fit": "likelihood.integrals.inner_fit",
    "likelihood.treatments.inner_gains": "likelihood.integrals.gains",
    "likelihood.treatments.inner_noise": "likelihood.integrals.inner_noise",
    "likelihood.treatments.linear": "likelihood.integrals.linear",
    "likelihood.treatments.noise_of_baselines": "likelihood.noise.noise_of_baselines",
    "likelihood.treatments.treatment": "likelihood.densities.gain_treatment",
    "likelihood.treatments.varied_noise": "likelihood.noise.varied_noise",
    "likelihood.undetermined": "likelihood.degeneracies",
    "list_priors": "source_finding.list_priors",
    "maximum": "inference.maximum",
    "maximum.ascent": "inference.maximum.objective",
    "measurement_set": "io.measurement_set",
    "measurement_set.flag_lines": "io.measurement_set.flag_commands",
    "misfit": "diagnosis",
    "misfit.causes.beside": "diagnosis.causes.least_squares",
    "misfit.causes.places": "diagnosis.causes.bright_places",
    "misfit.causes.uneven": "diagnosis.causes.uneven_noise",
    "misfit.lines": "diagnosis.verdict_text",
    "msv4": "io.msv4",
    "plots.so_far": "plots.progress_state",
    "posterior": "inference.posterior",
    "progress": "display.progress",
    "ranks": "distributed",
    "ranks.alone": "distributed.single_process",
    "ranks.beat": "distributed.heartbeat",
    "ranks.held": "distributed.data_on_ranks",
    "ranks.place": "distributed.this_rank",
    "ranks.room": "distributed.capacity",
    "ranks.turns": "distributed.rank_tasks",
    "reading": "io.reading",
    "samplers": "inference.samplers",
    "samplers.polish": "inference.samplers.add_maximum",
    "sky_files": "io.sky_files",
    "smearing": "observation.smearing",
    "stages": "display.stages",
    "style": "display.style",
    "target": "inference.target",
    "target.degeneracies": "inference.target.degeneracy_text",
    "tasks": "distributed.tasks",
    "uvdata": "io.uvdata",
    "uvfits": "io.uvfits",
    "uvfits.flag_lines": "io.uvfits.flag_commands",
}
"""Earlier and present names of modules and packages, within `biro`."""
GONE = "0.5"
"""Release in which the earlier names end."""


class _Moved(Loader):
    """Finds a module under an earlier name, and gives the module itself: no class exists twice."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        present = _present(fullname)
        if present is None or (there := _found(present)) is None:
            return None
        warnings.warn(_text(fullname, present), DeprecationWarning, stacklevel=2)
        is_package = there.submodule_search_locations is not None
        return ModuleSpec(fullname, self, loader_state=present, is_package=is_package)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(spec.loader_state)
        spec.loader_state = module.__spec__  # the import system replaces it
        return module

    def get_code(self, fullname: str) -> CodeType | None:
        """Code of the module, for `python -m`."""
        there = _found(_present(fullname) or "")
        return (
            there.loader.get_code(there.name) if there and isinstance(there.loader, InspectLoader) else None
        )

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None, "the import system has set it"
        module.__spec__ = module.__spec__.loader_state


def with_moved_modules(get: Callable[[str], object]) -> Callable[[str], object]:
    """The attributes of `biro`, with modules under their earlier names: `biro.images` after `import biro`."""

    def found(name: str) -> object:
        if name not in MOVED:
            return get(name)
        warnings.warn(_text(f"biro.{name}", f"biro.{MOVED[name]}"), DeprecationWarning, stacklevel=2)
        return import_module(f"biro.{MOVED[name]}")

    return found


def _text(fullname: str, present: str) -> str:
    return f"{fullname} is called {present} now; the earlier name works until biro {GONE}"


def _present(fullname: str) -> str | None:
    """The present name of a module; None where it has not moved."""
    room, *parts = fullname.split(".")
    for n in range(len(parts), 0, -1) if room == "biro" else ():
        if (moved := MOVED.get(".".join(parts[:n]))) is not None:
            return ".".join(("biro", moved, *parts[n:]))
    return None


def _found(name: str) -> ModuleSpec | None:
    """The spec of a module; None where there is none."""
    try:
        return find_spec(name) if name else None
    except ModuleNotFoundError:
        return None


def find_moved_modules() -> None:
    """Let imports find modules under their earlier names."""
    if not any(isinstance(each, _Moved) for each in sys.meta_path):
        # Before the finder of files, which would make a second copy of a module of a room that moved.
        sys.meta_path.insert(0, _Moved())
