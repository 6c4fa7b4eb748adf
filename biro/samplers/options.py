"""What can be asked of each sampler; unknown names and impossible numbers are refused."""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, TypeVar

from biro.errors import InputError


@dataclass(frozen=True)
class EnsembleOptions:
    """Options of "emcee".

    Attributes
    ----------
    n_walker : int
        Even, at least twice the number of parameters; 0 for max(4 n_param, 32).
    max_steps : int
        The longest chain; may be raised when a run is resumed.
    n_tau : float
        The chain is long enough at this many autocorrelation times ...
    tau_change : float
        ... whose estimate changed by less than this fraction since the last look.
    """

    n_walker: int = 0
    max_steps: int = 50_000
    n_tau: float = 50.0
    tau_change: float = 0.05

    may_change: ClassVar[tuple[str, ...]] = ("max_steps",)

    @property
    def n_together(self) -> int:
        """Parameter vectors handed over at once."""
        return self.n_walker // 2

    def resolved(self, n_param: int) -> EnsembleOptions:
        """With the number of walkers decided.

        Raises
        ------
        InputError
            Too few walkers, or an odd number of them.
        """
        n_walker = self.n_walker or max(4 * n_param, 32)
        if n_walker < 2 * n_param or n_walker % 2:
            raise InputError(
                f"emcee needs an even number of walkers, at least 2 x {n_param} parameters = {2 * n_param}, "
                f"got n_walker={n_walker}"
            )
        _positive(self, ("max_steps", "n_tau", "tau_change"))
        return EnsembleOptions(n_walker, self.max_steps, self.n_tau, self.tau_change)


@dataclass(frozen=True)
class NestedOptions:
    """Options of "dynesty" and "dynesty-dynamic".

    Attributes
    ----------
    n_live : int
        Live points; 0 for max(500, 25 n_param).
    batch : int
        Proposals side by side, which is the number of rows in one likelihood call.
    dlogz : float
        Ends when the live points hold less than this of the log-evidence.
    method : str
        "rwalk", "unif", "rslice", "slice", as dynesty calls them; "auto" is "rwalk", and
        "rslice" above 20 parameters.
    walks : int
        Steps of a random walk; 0 for n_param + 20.
    bound : str
        "multi", "single", "none", "balls" or "cubes".
    n_effective : int
        Effective samples to stop at ("dynesty-dynamic" only).
    """

    n_live: int = 0
    batch: int = 64
    dlogz: float = 0.01
    method: str = "auto"
    walks: int = 0
    bound: str = "multi"
    n_effective: int = 10_000

    may_change: ClassVar[tuple[str, ...]] = ()

    @property
    def n_together(self) -> int:
        """Parameter vectors handed over at once."""
        return self.batch

    def resolved(self, n_param: int) -> NestedOptions:
        """With live points, method and walks decided.

        Raises
        ------
        InputError
            An unknown method or bound, or numbers that cannot be meant.
        """
        methods, bounds = (
            ("auto", "rwalk", "unif", "rslice", "slice"),
            ("multi", "single", "none", "balls", "cubes"),
        )
        if self.method not in methods or self.bound not in bounds:
            raise InputError(
                f"method must be one of {', '.join(methods)} and bound one of {', '.join(bounds)}, "
                f"got {self.method!r} and {self.bound!r}"
            )
        n_live = self.n_live or max(500, 25 * n_param)
        if n_live <= 2 * n_param:
            raise InputError(f"n_live must exceed 2 x {n_param} parameters = {2 * n_param}, got {n_live}")
        if self.batch < 2:
            raise InputError(f"batch must be at least 2, got {self.batch}")
        _positive(self, ("dlogz", "n_effective"))
        method = self.method if self.method != "auto" else ("rslice" if n_param > 20 else "rwalk")
        walks = self.walks or n_param + 20
        return NestedOptions(n_live, self.batch, self.dlogz, method, walks, self.bound, self.n_effective)


@dataclass(frozen=True)
class MaximumOptions:
    """Options of "none".

    Attributes
    ----------
    starts : int
        Points that climb to the maximum.
    n_sample : int
        Draws of the normal distribution about it.
    """

    starts: int = 16
    n_sample: int = 1000

    may_change: ClassVar[tuple[str, ...]] = ()

    @property
    def n_together(self) -> int:
        """Parameter vectors handed over at once."""
        return self.starts

    def resolved(self, n_param: int) -> MaximumOptions:
        """As they are.

        Raises
        ------
        InputError
            A number that cannot be meant.
        """
        _positive(self, ("starts", "n_sample"))
        return self


@dataclass(frozen=True)
class NutsOptions:
    """Options of "nuts".

    Attributes
    ----------
    n_chain : int
        Chains, whose gradients are worked out together.
    n_draw : int
        Draws of each; may be raised when a run is resumed.
    n_tune : int
        Draws before these, in which steps and scales are adapted.
    target_accept : float
        Between 0 and 1: more for shorter steps, where there are divergences.
    max_depth : int
        A trajectory has at most 2^max_depth - 1 steps. One less than the mean depth of an earlier run
        takes half the gradients, and pays where the posterior is about normal (docs/nuts.md).
    """

    n_chain: int = 4
    n_draw: int = 1000
    n_tune: int = 400
    target_accept: float = 0.8
    max_depth: int = 10

    may_change: ClassVar[tuple[str, ...]] = ("n_draw",)

    @property
    def n_together(self) -> int:
        """Parameter vectors handed over at once."""
        return self.n_chain

    def resolved(self, n_param: int) -> NutsOptions:
        """As they are.

        Raises
        ------
        InputError
            A number that cannot be meant.
        """
        _positive(self, ("n_chain", "n_tune", "target_accept", "max_depth"))
        if self.n_chain < 2:
            raise InputError(f"n_chain must be at least 2, which R-hat compares, got {self.n_chain}")
        if self.n_draw < 4:
            raise InputError(f"n_draw must be at least 4, got {self.n_draw}")
        if self.target_accept >= 1.0:
            raise InputError(f"target_accept must be below 1, got {self.target_accept}")
        return self


Options = EnsembleOptions | NestedOptions | MaximumOptions | NutsOptions
KINDS: dict[str, type[EnsembleOptions] | type[NestedOptions] | type[MaximumOptions] | type[NutsOptions]] = {
    "emcee": EnsembleOptions,
    "dynesty": NestedOptions,
    "dynesty-dynamic": NestedOptions,
    "nuts": NutsOptions,
    "none": MaximumOptions,
}
"""Of each sampler."""
_KINDS = {int: "a whole number", float: "a number", str: "a word"}
_Kind = TypeVar("_Kind", EnsembleOptions, NestedOptions, MaximumOptions, NutsOptions)


def parse(kind: type[_Kind], given: dict[str, Any], n_param: int) -> _Kind:
    """Options of one kind from keywords, resolved for a number of parameters.

    Raises
    ------
    InputError
        An unknown name (with the nearest known one), or a value of another type.
    """
    known = {item.name: type(item.default) for item in fields(kind)}
    for name, value in given.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(f"unknown option {name!r}{hint} There are {', '.join(known)}")
        if known[name] is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, known[name]) or isinstance(value, bool):
            raise InputError(f"option {name} must be {_KINDS[known[name]]}, got {value!r}")
    return kind(**given).resolved(n_param)


def as_dict(options: Options) -> dict[str, Any]:
    """Plain values, for records."""
    return asdict(options)


def _positive(options: Options, names: tuple[str, ...]) -> None:
    for name in names:
        if not getattr(options, name) > 0:
            raise InputError(f"{name} must be above 0, got {getattr(options, name)}")
