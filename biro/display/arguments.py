"""Refusal of arguments of a wrong kind, in one line: what was given, what was expected, and how to get it."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ParamSpec, TypeVar

from biro.display.formatting import given_text
from biro.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Kind:
    """What an argument must be.

    Attributes
    ----------
    text : str
        With its article, "a Likelihood".
    methods : tuple of str
        It has at least one of these,
    remedy : str
        How to get one.
    has : tuple of str
        or one of these attributes,
    types : tuple of type
        or it is of one of these types.
    several : bool
        Whether a list or tuple of them will do, too.
    """

    text: str
    methods: tuple[str, ...] = ()
    remedy: str = ""
    has: tuple[str, ...] = ()
    types: tuple[type, ...] = ()
    several: bool = False

    def fits(self, given: object) -> bool:
        """Whether an argument is of this kind."""
        if isinstance(given, type):
            return False
        if self.several and isinstance(given, list | tuple):
            return all(replace(self, several=False).fits(each) for each in given)
        is_one = any(callable(getattr(given, name, None)) for name in self.methods)
        return is_one or any(hasattr(given, name) for name in self.has) or isinstance(given, self.types)

    def refuse(self, given: object, function: str) -> None:
        """Refuse an argument of another kind.

        Raises
        ------
        InputError
        """
        if not self.fits(given):
            raise InputError(
                f"{function} takes {self.text}, got {given_text(given)}{self.remedy and f'. {self.remedy}'}"
            )


LIKELIHOOD = Kind(
    "a Likelihood",
    ("log_likelihood", "predict"),
    'Make one: biro.Likelihood(observation, biro.read_model("sky.toml"))',
)
POSTERIOR = Kind(
    "a Posterior",
    ("equal_weight",),
    'Make one: biro.sample(likelihood), or load that of a run: biro.Posterior.load("RUN/posterior.nc")',
)
OBSERVATION = Kind("an Observation", (), 'Read one: biro.read("obs.ms")', ("partitions",))
SKY = Kind("a SkyModel", ("bind",), 'Read one: biro.read_model("sky.toml")')
MODELS = Kind("a SkyModel, or an Observation with model visibilities", ("bind",), SKY.remedy, ("partitions",))
SOLVED = Kind("the result of biro.solve_gains", has=("windows",))
NUMBERS = Kind("the result of biro.fit_numbers", has=("rungs",))
PATH = Kind("the path of a file or folder", types=(str, os.PathLike))
PATHS = replace(PATH, text="a path, or a list of paths", several=True)
NAME = Kind("the name of a parameter", types=(str,))


def takes(**kinds: Kind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Refuse arguments of another kind, by their names; None passes where it is the default.

    Parameters
    ----------
    kinds : Kind
        Of each argument that is checked.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        places = {name: i for i, name in enumerate(signature.parameters)}
        optional = {name for name in kinds if signature.parameters[name].default is None}

        @functools.wraps(function)
        def checked(*args: P.args, **options: P.kwargs) -> R:
            for name in sorted(kinds, key=places.__getitem__):
                kind = kinds[name]
                if places[name] < len(args):
                    given: object = args[places[name]]
                elif name in options:
                    given = options[name]
                else:
                    continue  # Python names an argument that is missing
                if not (given is None and name in optional):
                    kind.refuse(given, function.__name__)
            return function(*args, **options)

        return checked

    return decorate


def takes_likelihood(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse whatever is no likelihood as the argument `likelihood` of a function."""
    return takes(likelihood=LIKELIHOOD)(function)
