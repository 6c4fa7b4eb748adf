"""Profiles of a user's own: a function of coordinates and parameters, compiled for the CPU and CUDA.

A registered function is called by the loops and kernels as those of `physics.profiles` are. Its derivatives
are given, or differences of fourth order of the compiled function with steps h,

    f'(x) = (8 (f(x + h) - f(x - h)) - (f(x + 2 h) - f(x - 2 h))) / (12 h)

(Abramowitz and Stegun 25.3.6; error h^4 f'''''/30). For coordinates h = 3e-5 hypot(a, b), for a parameter
3e-5 times its scale: what moves chi2 is good to 1e-11 of V where V has up to ten turns between the centre and
the baseline; rounding limits it, and with more turns the error grows as their fifth power.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numba import float64, types
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from rime_kernels import check
from rime_kernels.compile.identity import UnknownError, foreign_identity
from rime_kernels.compile.jit import physics_function, python_function
from rime_kernels.compile.types import Compiled, NumbaType, Scalar
from rime_kernels.errors import InputError
from rime_kernels.physics.profiles import (
    CODES,
    FIRST_REGISTERED,
    N_PARAMETER,
    profile_slopes,
    profile_visibility,
)

Coordinates = Literal["uv", "axes", "radial"]

_STEP = 3e-5


@dataclass(frozen=True, eq=False)
class RegisteredProfile:
    """A profile that `register_profile` has taken.

    Attributes
    ----------
    name : str
    code : int
        What `Sources.profile_kind` has for it.
    parameters : tuple of str
        Names of its parameters, in the order of `Sources.profile`.
    coordinates : "uv", "axes" or "radial"
    """

    name: str
    code: int
    parameters: tuple[str, ...]
    coordinates: Coordinates
    visibility: Compiled = field(repr=False)
    slopes: Compiled = field(repr=False)


_REGISTERED: list[RegisteredProfile] = []


def register_profile(
    name: str,
    function: Callable[..., Any],
    slopes: Callable[..., Any] | None = None,
    n_parameter: int | None = None,
    *,
    coordinates: Coordinates = "uv",
    scales: Sequence[float] | None = None,
) -> int:
    """Make a function a shape that sources may have, in this process.

    Numba has to be able to compile it: numbers, `math`, `cmath`, complex numbers, other compiled functions;
    no arrays. A value of NaN makes the chi2 of its batch entry NaN; it has to be finite at the origin.

    Parameters
    ----------
    name : str
        No name of a shape that is built in; a name that is registered already stands for the new function
        from now on.
    function : callable
        The envelope, a number, complex or real, or a pair (re, im):

        - "uv": function(u, v, \\*parameters), coordinates in wavelengths of a source with maj = min = 1 rad
          and pa = 0; generally v = a, u = b: the source is stretched along its axes, and turned, by these.
        - "axes": function(a, b, \\*parameters), as `physics.profiles` has them.
        - "radial": function(rho, \\*parameters), rho = hypot(a, b).
    slopes : callable, optional
        Takes the same, gives a tuple of derivatives with respect to each argument; default: differences.
    n_parameter : int, optional
        How many parameters there are, 8 at most; default: as many as the function has arguments for.
    coordinates : "uv", "axes" or "radial"
    scales : sequence of float, optional
        How much each parameter changes before V looks different, for the steps of differences; default:
        the parameter's own size (1 where it is 0).

    Returns
    -------
    int
        The code for `Sources.profile_kind`.

    Raises
    ------
    InputError
        A name that is taken, the wrong number of arguments, a function that does not compile, or that gives
        something else than a number or a pair of numbers.
    """
    if not isinstance(name, str) or not name or name in CODES:
        raise InputError(f"a profile's name must be text, and not {', '.join(CODES)}; got {name!r}")
    check.one_of("coordinates", coordinates, get_args(Coordinates))
    parameters = _parameters(name, function, n_parameter, coordinates)
    n = len(parameters)
    if scales is not None and (len(scales) != n or not all(math.isfinite(x) and x > 0.0 for x in scales)):
        raise InputError(f"scales of profile {name!r} must be {n} numbers above 0, got {scales!r}")
    visibility: Any = _make_envelope(*_compiled_visibility(name, function, n, coordinates), n, coordinates)
    if slopes is None:
        given: Any = _make_differences(visibility, n, tuple(map(float, scales or ())))
    else:
        _parameters(name, slopes, n, coordinates)
        given = _make_slopes(visibility, _compiled_slopes(name, slopes, n, coordinates), n, coordinates)
    # What they close over does not tell all that their machine code is made of.
    visibility.py_func.identity = given.py_func.identity = _known(function, slopes), scales and tuple(scales)
    code = FIRST_REGISTERED + len(_REGISTERED)
    _REGISTERED.append(RegisteredProfile(name, code, parameters, coordinates, visibility, given))
    return code


def registered_profile(name: str) -> RegisteredProfile | None:
    """The profile that was registered last by this name; None where there is none."""
    return next((each for each in reversed(_REGISTERED) if each.name == name), None)


def profiles_of(kinds: Iterable[int]) -> tuple[RegisteredProfile, ...]:
    """The registered profiles among these codes, each once, in the order of their codes.

    Raises
    ------
    InputError
        A code that nothing has.
    """
    found = []
    for kind in sorted(set(map(int, kinds)) - set(CODES.values())):
        if not 0 <= kind - FIRST_REGISTERED < len(_REGISTERED):
            raise InputError(f"no profile has the code {kind}: register_profile gives the codes of your own")
        found.append(_REGISTERED[kind - FIRST_REGISTERED])
    return tuple(found)


def numbered(kinds: NDArray[np.int32], registered: tuple[RegisteredProfile, ...]) -> NDArray[np.int64]:
    """Codes of profiles, numbered as in functions made of these profiles, whatever else is registered."""
    own = {each.code: FIRST_REGISTERED + k for k, each in enumerate(registered)}
    return np.array([own.get(kind, kind) for kind in kinds.tolist()], np.int64)


# ---- functions of all kinds, as loops and kernels call them


@functools.cache
def make_visibility(registered: tuple[RegisteredProfile, ...]) -> Compiled:
    """Function as `profile_visibility` that knows these, too, as codes `FIRST_REGISTERED` and following."""
    return _chain(profile_visibility, [each.visibility for each in registered])


@functools.cache
def make_slopes(registered: tuple[RegisteredProfile, ...]) -> Compiled:
    """Make the function of slopes for some profiles, like `profile_slopes` for all."""
    return _chain(profile_slopes, [each.slopes for each in registered])


def _chain(otherwise: Compiled, functions: list[Compiled]) -> Compiled:
    """A function that calls the one of its kind."""
    if not functions:
        return otherwise
    before, last = _chain(otherwise, functions[:-1]), functions[-1]
    code = FIRST_REGISTERED + len(functions) - 1

    @physics_function
    def of_kind(
        kind: int, a: float, b: float, p0: float, p1: float, p2: float, p3: float, p4: float, p5: float,
        p6: float, p7: float, nu: float,
    ) -> float:  # fmt: skip
        if kind == code:  # a user's own do not depend on the frequency
            return last(a, b, p0, p1, p2, p3, p4, p5, p6, p7)
        return before(kind, a, b, p0, p1, p2, p3, p4, p5, p6, p7, nu)

    return of_kind


# ---- from a user's function to one with all eight parameters


def _parameters(
    name: str, function: Callable[..., Any], n_parameter: int | None, coordinates: Coordinates
) -> tuple[str, ...]:
    """Names of the parameters of a function; refuses one that does not take as many arguments."""
    n_before = 1 if coordinates == "radial" else 2
    first = "rho" if coordinates == "radial" else "u, v" if coordinates == "uv" else "a, b"
    try:
        arguments = list(inspect.signature(getattr(function, "py_func", function)).parameters.values())
    except (TypeError, ValueError) as error:
        raise InputError(f"the function of profile {name!r} is not a Python function: {error}") from None
    n_more = len(arguments) - n_before
    wanted = n_more if n_parameter is None else n_parameter
    variable = any(each.kind not in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in arguments)
    if variable or n_more != wanted or not 0 <= wanted <= N_PARAMETER:
        expected = f"{first} and {wanted if 0 <= wanted <= N_PARAMETER else '0 to 8'} parameters"
        got = ", ".join(map(str, arguments))
        raise InputError(f"the function of profile {name!r} must take {expected}, got ({got})")
    return tuple(each.name for each in arguments[n_before:])


def _compiled(
    name: str, function: Callable[..., Any], n_parameter: int, coordinates: Coordinates
) -> tuple[Compiled, NumbaType]:
    """The function, compiled, and the type of what it gives; refuses one that does not compile."""
    compiled = physics_function(getattr(function, "py_func", function))
    arguments = (float64,) * (n_parameter + (1 if coordinates == "radial" else 2))
    try:
        compiled.compile(arguments)
    except NumbaError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = next((line for line in lines if not line.startswith("Failed in")), "")
        raise InputError(f"the function of profile {name!r} does not compile: {reason}") from error
    return compiled, compiled.overloads[arguments].signature.return_type


def _compiled_visibility(
    name: str, function: Callable[..., Any], n_parameter: int, coordinates: Coordinates
) -> tuple[Compiled, bool]:
    """The function of the envelope, and whether it gives a pair."""
    compiled, found = _compiled(name, function, n_parameter, coordinates)
    members = _members(found)
    if not isinstance(found, types.Number) and not (len(members) == 2 and all(map(_is_real, members))):
        raise InputError(
            f"the function of profile {name!r} must give a number or a pair (re, im), got {found}"
        )
    return compiled, bool(members)


def _compiled_slopes(
    name: str, function: Callable[..., Any], n_parameter: int, coordinates: Coordinates
) -> Compiled:
    """The function of its derivatives."""
    compiled, found = _compiled(name, function, n_parameter, coordinates)
    members, n_slope = _members(found), n_parameter + (1 if coordinates == "radial" else 2)
    if len(members) != n_slope or not all(isinstance(each, types.Number) for each in members):
        raise InputError(f"the slopes of profile {name!r} must be a tuple of {n_slope} numbers, got {found}")
    return compiled


def _members(found: NumbaType) -> list[NumbaType]:
    """The types of the members of a tuple; none of anything else."""
    return list(found) if isinstance(found, types.BaseTuple) else []


def _is_real(found: NumbaType) -> bool:
    return isinstance(found, types.Integer | types.Float)


def _known(*functions: Callable[..., Any] | None) -> object:
    """What identifies the text of functions; an object that nothing knows where that is not possible."""
    try:
        plain: list[Any] = [getattr(each, "py_func", each) for each in functions if each]
        return tuple(foreign_identity(each) for each in plain)
    except (UnknownError, RecursionError):
        return object()


def _make_call(function: Compiled, n: int, coordinates: Coordinates) -> Compiled:
    """Function of a, b and all parameters that hands a user's function its own ones."""
    if coordinates == "radial":

        @physics_function
        def call(
            a: float, b: float, p0: float, p1: float, p2: float, p3: float, p4: float, p5: float,
            p6: float, p7: float,
        ) -> float:  # fmt: skip
            return function(math.sqrt(a * a + b * b), *(p0, p1, p2, p3, p4, p5, p6, p7)[:n])

        return call
    swapped = coordinates == "uv"

    @physics_function
    def call_with_both(
        a: float, b: float, p0: float, p1: float, p2: float, p3: float, p4: float, p5: float, p6: float,
        p7: float,
    ) -> float:  # fmt: skip
        # v lies along the source where its position angle is 0.
        x, y = (b, a) if swapped else (a, b)
        return function(x, y, *(p0, p1, p2, p3, p4, p5, p6, p7)[:n])

    return call_with_both


def _make_envelope(function: Compiled, is_pair: bool, n: int, coordinates: Coordinates) -> Compiled:
    """The envelope as a pair of real numbers."""
    call, parts = _make_call(function, n, coordinates), _pair if is_pair else _parts

    @python_function
    def envelope(
        a: float, b: float, p0: float, p1: float, p2: float, p3: float, p4: float, p5: float, p6: float,
        p7: float,
    ) -> float:  # fmt: skip
        return parts(call(a, b, p0, p1, p2, p3, p4, p5, p6, p7))

    return envelope


@physics_function
def _parts(value: Scalar) -> tuple[Scalar, Scalar]:
    return float(value.real), float(value.imag)


@physics_function
def _pair(value: Scalar) -> tuple[Scalar, Scalar]:
    return float(value[0]), float(value[1])


@physics_function
def _nothing(slopes: Scalar) -> tuple[Scalar, Scalar]:
    return 0.0, 0.0


def _make_part(k: int, n: int) -> Compiled:
    """Function that gives number k of n, real and imaginary part; 0 where there is none."""
    if k >= n:
        return _nothing

    @physics_function
    def part(slopes: Scalar) -> tuple[Scalar, Scalar]:
        return _parts(slopes[k])

    return part


def _make_slopes(envelope: Compiled, slopes: Compiled, n: int, coordinates: Coordinates) -> Compiled:
    """The envelope and its derivatives from a user's own."""
    call, is_radial = _make_call(slopes, n, coordinates), coordinates == "radial"
    n_before = 1 if is_radial else 2
    of_a, of_b = (0, 0) if is_radial else (1, 0) if coordinates == "uv" else (0, 1)
    part_a, part_b = _make_part(of_a, 2), _make_part(of_b, 2)
    k0, k1, k2, k3, k4, k5, k6, k7 = (_make_part(n_before + k, n_before + n) for k in range(N_PARAMETER))

    @physics_function
    def with_slopes(
        a: float, b: float, p0: float, p1: float, p2: float, p3: float, p4: float, p5: float, p6: float,
        p7: float,
    ) -> tuple[float, ...]:  # fmt: skip
        own = call(a, b, p0, p1, p2, p3, p4, p5, p6, p7)
        along, across, x, y = part_a(own), part_b(own), 1.0, 1.0
        if is_radial:
            rho = math.sqrt(a * a + b * b)
            x, y = (a / rho, b / rho) if rho > 0.0 else (0.0, 0.0)
        return (
            *envelope(a, b, p0, p1, p2, p3, p4, p5, p6, p7),
            x * along[0], x * along[1], y * across[0], y * across[1], *k0(own), *k1(own), *k2(own), *k3(own),
            *k4(own), *k5(own), *k6(own), *k7(own),
        )  # fmt: skip

    return with_slopes


def _make_differences(envelope: Compiled, n: int, scales: tuple[float, ...]) -> Compiled:
    """The envelope and its derivatives by differences: see the module's text."""
    s0, s1, s2, s3, s4, s5, s6, s7 = (*scales, *[0.0] * (N_PARAMETER - len(scales)))

    @physics_function
    def step_of(p: float, scale: float) -> float:
        return _STEP * (scale if scale > 0.0 else abs(p) if p != 0.0 else 1.0)

    @physics_function
    def difference(
        k: int, h: float, a: float, b: float, p0: float, p1: float, p2: float, p3: float, p4: float,
        p5: float, p6: float, p7: float,
    ) -> tuple[float, float]:  # fmt: skip
        """The derivative with respect to argument k by differences; 0 if there is no argument k, or at the
        origin.
        """
        re, im = 0.0, 0.0
        if k >= n + 2 or h == 0.0:
            return re, im
        for i in range(4):
            # At -2 h, -h, h, 2 h.
            d = h * (i - 2 if i < 2 else i - 1)
            factor = (1.0 if i == 0 else -8.0 if i == 1 else 8.0 if i == 2 else -1.0) / (12.0 * h)
            x, y = envelope(
                a + (d if k == 0 else 0.0), b + (d if k == 1 else 0.0), p0 + (d if k == 2 else 0.0),
                p1 + (d if k == 3 else 0.0), p2 + (d if k == 4 else 0.0), p3 + (d if k == 5 else 0.0),
                p4 + (d if k == 6 else 0.0), p5 + (d if k == 7 else 0.0), p6 + (d if k == 8 else 0.0),
                p7 + (d if k == 9 else 0.0),
            )  # fmt: skip
            re, im = re + factor * x, im + factor * y
        return re, im

    @physics_function
    def with_slopes(
        a: float, b: float, p0: float, p1: float, p2: float, p3: float, p4: float, p5: float, p6: float,
        p7: float,
    ) -> tuple[float, ...]:  # fmt: skip
        h = _STEP * math.sqrt(a * a + b * b)
        return (
            *envelope(a, b, p0, p1, p2, p3, p4, p5, p6, p7),
            *difference(0, h, a, b, p0, p1, p2, p3, p4, p5, p6, p7),
            *difference(1, h, a, b, p0, p1, p2, p3, p4, p5, p6, p7),
            *difference(2, step_of(p0, s0), a, b, p0, p1, p2, p3, p4, p5, p6, p7),
            *difference(3, step_of(p1, s1), a, b, p0, p1, p2, p3, p4, p5, p6, p7),
            *difference(4, step_of(p2, s2), a, b, p0, p1, p2, p3, p4, p5, p6, p7),
            *difference(5, step_of(p3, s3), a, b, p0, p1, p2, p3, p4, p5, p6, p7),
            *difference(6, step_of(p4, s4), a, b, p0, p1, p2, p3, p4, p5, p6, p7),
            *difference(7, step_of(p5, s5), a, b, p0, p1, p2, p3, p4, p5, p6, p7),
            *difference(8, step_of(p6, s6), a, b, p0, p1, p2, p3, p4, p5, p6, p7),
            *difference(9, step_of(p7, s7), a, b, p0, p1, p2, p3, p4, p5, p6, p7),
        )  # fmt: skip

    return with_slopes
