"""The options of each sampler; unknown names and impossible values are refused."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self

from biro.errors import InputError
from biro.files.memory import check_memory
from biro.inference.maximum.starts import N_SCREEN
from biro.inference.samplers.option_base import (
    MOST_FOR_ENSEMBLE,
    SamplerOptions,
    check_positive,
    check_threads,
)
from biro.inference.samplers.tempering.options import TemperingOptions

MOST_EVALUATIONS = 3e12
"""Likelihoods that a run may need at least: a year and more, at the fastest."""
FASTEST = 1e-5
"""Seconds that a likelihood of the smallest data takes, in a batch."""
LEAST_DLOGZ = 1e-9
"""Smaller remainders of a log-evidence are lost in its rounding."""
MOST_ACCEPTED = 0.999
"""Largest fraction of steps that NUTS can be asked to accept."""
DEEPEST = 20
"""Largest depth of a trajectory: a million steps."""
EXACT = "exact"
"""What stands for the sampler where there is nothing to sample."""
_NUMBER = 8
"""Bytes of a float64."""
_LARGEST = 2**62
"""Whole numbers are below this."""


@dataclass(frozen=True)
class EnsembleOptions(SamplerOptions):
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
        return self.n_walker // 2

    def resolved(self, n_param: int) -> Self:
        if n_param > MOST_FOR_ENSEMBLE and not self.n_walker:
            raise InputError(
                f"emcee does not converge with {n_param} parameters (a few dozen at most); use --sampler "
                "nuts, or none for the maximum with errors (an explicit n_walker overrides this)"
            )
        n_walker = self.n_walker or max(4 * n_param, 32)
        if n_walker < 2 * n_param or n_walker % 2:
            raise InputError(
                f"emcee needs an even number of walkers, at least 2 x {n_param} parameters = {2 * n_param}, "
                f"got n_walker={n_walker}"
            )
        check_positive(self, ("max_steps", "n_tau", "tau_change"))
        return replace(self, n_walker=n_walker)

    def numbers(self, n_param: int) -> float:
        return self.evaluations(n_param) * (n_param + 2.0)

    def evaluations(self, n_param: int) -> float:
        # A chain of n_tau steps, if one step is as good as an independent draw, which none is.
        return self.n_walker * float(min(self.max_steps, self.n_tau))


@dataclass(frozen=True)
class NestedOptions(SamplerOptions):
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

    @property
    def n_together(self) -> int:
        return self.batch

    def resolved(self, n_param: int) -> Self:
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
        check_positive(self, ("dlogz", "n_effective"))
        check_threads("batch", self.batch)
        if self.dlogz < LEAST_DLOGZ:
            raise InputError(
                f"dlogz must be at least {LEAST_DLOGZ:g}, which rounding hides, got {self.dlogz}"
            )
        if self.walks < 0:
            raise InputError(f"walks must be 0 or more, got {self.walks}")
        method = self.method if self.method != "auto" else ("rslice" if n_param > 20 else "rwalk")
        walks = self.walks or n_param + 20
        return replace(self, n_live=n_live, method=method, walks=walks)

    def numbers(self, n_param: int) -> float:
        return max(self.n_live, self.n_effective) * (2.0 * n_param + 8.0)

    def evaluations(self, n_param: int) -> float:
        # The live points are replaced once, at least, each by a walk.
        n_step = self.walks if self.method == "rwalk" else 1
        return self.n_live + max(self.n_live, self.n_effective) * float(n_step)


@dataclass(frozen=True)
class MaximumOptions(SamplerOptions):
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

    @property
    def n_together(self) -> int:
        return self.starts

    def resolved(self, n_param: int) -> Self:
        check_positive(self, ("starts", "n_sample"))
        return self

    def numbers(self, n_param: int) -> float:
        return 3.0 * max(N_SCREEN * self.starts, self.n_sample) * n_param

    def evaluations(self, n_param: int) -> float:
        return float(N_SCREEN * self.starts + self.n_sample)


@dataclass(frozen=True)
class ExactOptions(SamplerOptions):
    """Options of the exact draws that replace a sampler where a likelihood integrates over all parameters.

    Attributes
    ----------
    n_sample : int
        Independent draws.
    """

    n_sample: int = 4000

    @property
    def n_together(self) -> int:
        return 1

    def resolved(self, n_param: int) -> Self:
        return self

    def numbers(self, n_param: int) -> float:
        return 0.0

    def evaluations(self, n_param: int) -> float:
        return 1.0


@dataclass(frozen=True)
class NutsOptions(SamplerOptions):
    """Options of "nuts".

    Attributes
    ----------
    n_chain : int
        Chains, whose gradients are worked out together; more where there are more modes.
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
        return self.n_chain

    def resolved(self, n_param: int) -> Self:
        check_positive(self, ("n_chain", "n_tune", "target_accept", "max_depth"))
        if self.n_chain < 2:
            raise InputError(f"n_chain must be at least 2 (R-hat compares chains), got {self.n_chain}")
        if self.n_draw < 4:
            raise InputError(f"n_draw must be at least 4, got {self.n_draw}")
        if self.target_accept >= 1.0:
            raise InputError(f"target_accept must be below 1, got {self.target_accept}")
        if self.target_accept > MOST_ACCEPTED:
            raise InputError(
                f"target_accept must be at most {MOST_ACCEPTED}, got {self.target_accept} (closer to 1 the "
                "steps become ever shorter)"
            )
        if self.max_depth > DEEPEST:
            raise InputError(
                f"max_depth must be at most {DEEPEST}, got {self.max_depth} (a trajectory has up to "
                "2^max_depth steps)"
            )
        check_threads("n_chain", self.n_chain)
        return self

    def numbers(self, n_param: int) -> float:
        return 2.0 * self.evaluations(n_param) * (n_param + 10.0)

    def evaluations(self, n_param: int) -> float:
        return self.n_chain * float(self.n_draw + self.n_tune)


_OPTIONS: dict[str, type[SamplerOptions]] = {
    "emcee": EnsembleOptions,
    "dynesty": NestedOptions,
    "dynesty-dynamic": NestedOptions,
    "tempering": TemperingOptions,
    "nuts": NutsOptions,
    "none": MaximumOptions,
}
SAMPLERS = tuple(_OPTIONS)
"""Names of the samplers."""
_TYPES = {int: "a whole number", float: "a number", str: "a word"}


def check_sampler(sampler: str) -> None:
    """Refuse a sampler that does not exist.

    Raises
    ------
    InputError
        Naming those that exist.
    """
    if sampler not in _OPTIONS:
        raise InputError(f"unknown sampler {sampler!r}; there are {', '.join(SAMPLERS)}")


def parse_options(sampler: str, keywords: Mapping[str, object], n_param: int) -> SamplerOptions:
    """The options of a sampler from keyword arguments, with every default filled in.

    Parameters
    ----------
    sampler : str
    keywords : mapping
    n_param : int
        Number of parameters, from which defaults follow.

    Raises
    ------
    InputError
        An unknown sampler; an unknown option (with the nearest known one); a value of another type, or one
        that is impossible.
    """
    check_sampler(sampler)
    cls = _OPTIONS[sampler]
    types = {item.name: type(item.default) for item in fields(cls)}
    for name, value in keywords.items():
        if name not in types:
            near = difflib.get_close_matches(name, types, n=1)
            hint = f": did you mean {near[0]!r}?" if near else "."
            raise InputError(f"unknown option {name!r}{hint} Options of {sampler}: {', '.join(types)}")
        if types[name] is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, types[name]) or isinstance(value, bool):
            raise InputError(f"option {name} must be {_TYPES[types[name]]}, got {value!r}")
        if isinstance(value, int | float) and not abs(value) < _LARGEST:
            raise InputError(f"option {name} must be a finite number below {_LARGEST:.1e}, got {value!s:.20}")
    options = cls(**keywords).resolved(n_param)
    _check_cost(sampler, options, keywords, n_param)
    return options


def _check_cost(sampler: str, options: SamplerOptions, stated: Mapping[str, object], n_param: int) -> None:
    """Refuse a run that cannot fit in memory, or cannot end within a year, before anything is written.

    Raises
    ------
    InputError
    """
    words = (
        f"{sampler} with {', '.join(f'{name}={value}' for name, value in stated.items()) or 'its defaults'}"
    )
    check_memory(_NUMBER * options.numbers(n_param), words, "take smaller numbers")
    n_call = options.evaluations(n_param)
    if n_call > MOST_EVALUATIONS:
        years = n_call * FASTEST / 3.16e7
        raise InputError(
            f"{words} needs {n_call:.2g} likelihoods or more, {years:.2g} years even at {FASTEST * 1e6:g} "
            "us each; give smaller numbers"
        )
