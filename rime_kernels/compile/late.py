"""Machine code of a loop is made once, not anew for each function that it calls.

A loop calls functions that call others, and LLVM optimises all of them together in the end. Numba makes
machine code of each as soon as it is compiled, with all that it calls; and of a parallel loop four times: of
its body, of two wrappers around the body, and of the function that starts it, which alone is ever called. A
`LateLibrary` holds a function that others call: it is optimised a little, with what is inlined into it, and
becomes machine code where its address is asked for. What it calls and what is not inlined stays apart from
it, so that this is optimised a little once, and comes to it in the loop. The first gradient compiles in less
than half the time (docs/developers/kernels.md).

This replaces private parts of Numba (`PRIVATE_PARTS`). A Numba that has others, or is newer than those that
this was tested with, compiles as it does without: the same machine code, later.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numba
from numba.core import codegen
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock

from rime_kernels.compile.types import Compiled, Module

log = logging.getLogger(__name__)
# Objects that Python makes before it looks for garbage: Numba makes millions that it keeps. A loop compiles
# in 5 % less time than with Python's 700 (measured), and takes 20 MB more.
_OBJECTS = 20_000
# Private attributes that are used here: of a library of code, and of what makes them.
PRIVATE_PARTS = (
    (
        "_optimize_final_module", "_finalize_final_module", "_finalize_dynamic_globals", "codegen",
        "_get_compiled_object", "_ensure_finalized", "get_pointer_to_function", "enable_object_caching",
        "finalize", "_optimize_functions", "_get_module_for_linking",
    ),
    ("_library_class", "_pass_builder", "_module_pass_manager", "_function_pass_manager", "set_env"),
)  # fmt: skip
# The newest release of Numba whose private parts are known.
NEWEST = (0, 68)
# How Numba names the body of a parallel loop, which nobody calls from Python, and the wrappers around it.
_BODY = "__numba_parfor_gufunc"
_WRAPPERS = "parallelgufuncwrapper", "<numba.np.ufunc.wrappers._GufuncWrapper"


class _PartOfLoop(codegen.JITCodeLibrary):
    """Code of a loop, or of a function that loops call."""

    def _optimize_functions(self, module: Module) -> None:
        """Simplify functions; vectors are made of loops where machine code is made."""
        module.data_layout = self._codegen._data_layout
        manager, builder = self._codegen._function_pass_manager(
            opt=1, loop_vectorize=False, slp_vectorize=False
        )
        for function in module.functions:
            if not function.is_declaration:
                manager.run(function, builder)


class LateLibrary(_PartOfLoop):
    """The code of a function that loops call: no machine code before its address is asked for."""

    _made = False
    apart: tuple[LateLibrary, ...] = ()
    """Of functions that this one calls, and that are not inlined into it."""

    @property
    def own_module(self) -> Module:
        """The function with all that is inlined into it; declarations of what is `apart`."""
        self._ensure_finalized()
        return super()._get_module_for_linking()

    def finalize(self) -> None:
        """Link what is inlined into the function, and note what is apart from it."""
        libraries = list(dict.fromkeys(self._linking_libraries))
        apart = [each for each in libraries if isinstance(each, LateLibrary) and not each._is_inlined()]
        inside = [each for each in libraries if each not in apart]
        of_inside = [other for each in inside for other in getattr(each, "apart", ())]
        self.apart = tuple(dict.fromkeys([*apart, *of_inside]))
        _link(self, inside)
        super().finalize()

    def _is_inlined(self) -> bool:
        """Whether LLVM inlines the function wherever it is called, or has machine code of it already."""
        own = [each for each in self.own_module.functions if not each.is_declaration]
        return self._made or any(b"alwaysinline" in group for each in own for group in each.attributes)

    def _get_module_for_linking(self) -> Module:
        """The function with all that it calls, for libraries that know nothing of what is `apart`."""
        module = self.own_module
        if self.apart:
            module = module.clone()
            for each in _with_all_apart(self.apart):
                module.link_in(each.own_module, preserve=True)
        return module

    def _optimize_final_module(self) -> None:
        """Optimise a little what is inlined many times; the loop optimises all that it calls again."""
        if self.name.startswith((_BODY, *_WRAPPERS)):
            return
        manager, builder = self._codegen._module_pass_manager(
            loop_vectorize=False, slp_vectorize=False, opt=1, cost="cheap"
        )
        manager.run(self._final_module, builder)

    def _finalize_final_module(self) -> None:
        """End what LLVM is to know of the function; machine code from disk is taken at once."""
        self._environments: dict[str, object] = {}
        if self._object_caching_enabled and self._compiled_object:
            self._made = True
            super()._finalize_final_module()
        else:
            self._finalize_dynamic_globals()
            self._finalized = True

    def _make(self) -> None:
        """Make machine code, as Numba does it at once."""
        if self._made:
            return
        self._made = True
        for each in _with_all_apart(self.apart):
            self._final_module.link_in(each.own_module, preserve=True)
        super()._optimize_final_module()
        super()._finalize_final_module()
        for name, environment in self._environments.items():
            self._codegen.set_env(name, environment)

    def get_pointer_to_function(self, name: str) -> int:
        """The address of a function; 0 if this library has none of this name."""
        self._ensure_finalized()
        if not self._made and (not self._defines(name) or self.name.startswith(_BODY)):
            return 0
        self._make()
        return int(super().get_pointer_to_function(name))

    def _defines(self, name: str) -> bool:
        try:
            return not self._final_module.get_function(name).is_declaration
        except NameError:
            return False

    def _get_compiled_object(self) -> bytes:
        self._make()
        return bytes(super()._get_compiled_object())

    @property
    def codegen(self) -> Module:
        """What Numba tells where a function's environment lies: this library, until it has machine code."""
        return self._codegen if self._made else self

    def set_env(self, name: str, environment: object) -> None:
        """Keep an environment until there is machine code that has a place for it."""
        self._environments[name] = environment


class LoopLibrary(_PartOfLoop):
    """The code of a loop, with all that it calls."""

    def finalize(self) -> None:
        """Link all that is called, also by what is called, each once."""
        _link(self, _with_all_apart(self._linking_libraries))
        super().finalize()


def _link(into: codegen.CPUCodeLibrary, libraries: Iterable[codegen.CPUCodeLibrary]) -> None:
    """Link functions into a library, without what is apart from them, and leave nothing else to be linked."""
    for each in dict.fromkeys(libraries):
        each._ensure_finalized()
        into._reload_init.update(each._reload_init)
        module = each.own_module if isinstance(each, LateLibrary) else each._get_module_for_linking()
        into._final_module.link_in(module, preserve=True)
    into._linking_libraries = []


def _with_all_apart(libraries: Iterable[codegen.CPUCodeLibrary]) -> list[codegen.CPUCodeLibrary]:
    """Libraries, what is apart from them, and from that, and so on: callers before what they call.

    LLVM leaves out what no function that is linked before it calls.
    """
    done: dict[codegen.CPUCodeLibrary, None] = {}

    def visit(library: codegen.CPUCodeLibrary) -> None:
        if library not in done:
            for each in getattr(library, "apart", ()):
                visit(each)
            done[library] = None

    for each in libraries:
        visit(each)
    return list(done)[::-1]


class LoopCompiler(Compiler):
    """Compile a loop; what it calls becomes part of its machine code, and has none of its own."""

    def compile_extra(self, function: Callable[..., object]) -> Compiled:
        """Compile a Python function."""
        generator = self.state.targetctx.codegen()
        with _late_libraries(generator), _rare_garbage_collection():
            self.state.library = LoopLibrary(generator, function.__qualname__)
            self.state.library.enable_object_caching()
            return super().compile_extra(function)


@contextmanager
def _late_libraries(generator: Module) -> Iterator[None]:
    """Until the end of the block, code that is made becomes machine code late."""
    with global_compiler_lock:
        before = generator._library_class
        generator._library_class = LateLibrary
        try:
            yield
        finally:
            generator._library_class = before


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(max(_OBJECTS, before[0]) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _has_parts() -> bool:
    library, generator = PRIVATE_PARTS
    return all(hasattr(codegen.JITCodeLibrary, name) for name in library) and all(
        hasattr(codegen.JITCPUCodegen, name) for name in generator
    )


def options() -> dict[str, type]:
    """What `numba.njit` is told for a loop."""
    if numba.version_info.short <= NEWEST and _has_parts():
        return {"pipeline_class": LoopCompiler}
    log.info("functions inside loops become machine code one by one: Numba has other private parts")
    return {}
