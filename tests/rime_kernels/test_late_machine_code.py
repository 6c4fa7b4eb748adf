"""Functions that loops call become machine code with the loop, once, or where their address is asked for."""

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import float64, njit, prange, typeof
from numba.core import codegen
from numba.core.errors import TypingError

from rime_kernels.compile import jit, late


@pytest.fixture(autouse=True)
def no_machine_code_from_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "enable", lambda compiled: None)


def cubed(x: float) -> float:
    return x * x * x


def make_sum(function: Any) -> Callable[[Any, Any], None]:
    """A parallel loop that calls a function."""

    def add(values: Any, out: Any) -> None:
        for i in prange(len(values)):
            out[i] = function(values[i]) + 1.0

    return jit.loop(add)


def of_values(loop: Callable[[Any, Any], None]) -> Any:
    out = np.zeros(4)
    loop(np.arange(4.0), out)
    return out


def test_a_function_inside_a_loop_has_no_machine_code_of_its_own() -> None:
    inner = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)(cubed)
    assert of_values(make_sum(inner)) == pytest.approx([1.0, 2.0, 9.0, 28.0])
    library = inner.overloads[(float64,)].library
    assert isinstance(library, late.LateLibrary)
    assert not library._made


def test_an_address_is_that_of_machine_code() -> None:
    inner = njit(no_cpython_wrapper=True)(cubed)
    of_values(make_sum(inner))
    code = inner.overloads[(float64,)]
    address = code.library.get_pointer_to_function(code.fndesc.llvm_cfunc_wrapper_name)
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(address)(3.0) == 27.0
    assert code.library.get_pointer_to_function("nobody has this name") == 0


@pytest.mark.parametrize("is_inlined", [False, True])
def test_what_is_not_inlined_is_optimised_once(is_inlined: bool) -> None:
    """The function that calls it has none of its code; a loop has, and whoever compiles later."""

    def shifted(x: float) -> float:
        return inner(x) - 1.0

    def doubled(x: float) -> float:
        return 2.0 * middle(x)

    inner = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=is_inlined)(cubed)
    middle = njit(shifted)
    assert of_values(make_sum(middle)) == pytest.approx([0.0, 1.0, 8.0, 27.0])
    library = middle.overloads[(float64,)].library
    assert library.apart == (() if is_inlined else (inner.overloads[(float64,)].library,))
    defined = [each.name for each in library.own_module.functions if not each.is_declaration]
    assert any("shifted" in name for name in defined)
    assert not any("cubed" in name for name in defined)
    assert njit(doubled)(3.0) == 52.0
    assert middle(2.0) == 7.0


def test_a_function_that_a_loop_has_compiled_is_called_from_python() -> None:
    inner = njit(cubed)
    of_values(make_sum(inner))
    assert inner(2.0) == 8.0
    assert inner(2) == 8


def test_what_raises_inside_a_loop_raises() -> None:
    def root(x: float) -> float:
        if x < 0:
            raise ValueError("below zero", 7)
        return math.sqrt(x)

    def add(values: Any) -> float:
        total = 0.0
        for x in values:
            total += inner(x)
        return total

    inner = njit(no_cpython_wrapper=True)(root)
    loop = jit.serial_loop(add)
    assert loop(np.array([4.0, 9.0])) == 5.0
    with pytest.raises(ValueError, match="below zero"):
        loop(np.array([4.0, -1.0]))


def test_a_loop_inside_a_loop() -> None:
    def add(values: Any, out: Any) -> None:
        inner(values, out)
        for i in range(len(out)):
            out[i] *= 2.0

    inner = make_sum(njit(cubed))
    assert of_values(jit.serial_loop(add)) == pytest.approx([2.0, 4.0, 18.0, 56.0])
    assert of_values(inner) == pytest.approx([1.0, 2.0, 9.0, 28.0])


def test_after_an_error_numba_compiles_as_before() -> None:
    def wrong(x: float) -> Any:
        return x.absent  # type: ignore[attr-defined]

    with pytest.raises(TypingError):
        of_values(make_sum(njit(wrong)))
    plain = njit(cubed)
    assert plain(2.0) == 8.0
    assert type(plain.overloads[(typeof(2.0),)].library) is codegen.JITCodeLibrary


def test_a_numba_with_other_private_parts_compiles_as_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert late.options() == {"pipeline_class": late.LoopCompiler}
    monkeypatch.setattr(late, "PRIVATE_PARTS", (("absent",), ()))
    assert late.options() == {}
