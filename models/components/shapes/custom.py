"""Sources whose visibility is a function of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, ClassVar

from biro.models.components.shapes.shaped import ShapedSource
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed, Quantity, QuantityLike, quantity
from biro.models.quantities.strict import Entry, did_you_mean, key_names, short_repr, strict
from biro.models.quantities.units import ANGLE, NUMBER

if TYPE_CHECKING:
    from rime_kernels.physics.registered import RegisteredProfile

ENTRY_POINTS = "biro.profiles"
"""Group of entry points by which installed packages register profiles."""


def _profile(name: Entry) -> RegisteredProfile:
    """The profile of a name, registered before or by an installed package's entry point of this name.

    Raises
    ------
    ModelError
        There is none, or the entry point fails or does not register it.
    """
    # Imports Numba, which other models do not need.
    from rime_kernels.physics.registered import registered_profile

    found = registered_profile(name) if isinstance(name, str) else None
    if found is None and isinstance(name, str):
        for point in list(entry_points(group=ENTRY_POINTS, name=name))[:1]:
            found = _from(point)
    if found is None:
        raise ModelError(
            f"profile: {short_repr(name)} is not registered; call "
            "rime_kernels.register_profile(name, function) before the model is read"
        )
    return found


def _from(point: EntryPoint) -> RegisteredProfile:
    """The profile that an entry point registers."""
    from rime_kernels.physics.registered import registered_profile

    of = f"profile: the entry point {point.value!r}"
    try:
        point.load()()
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(f"{of} for {point.name!r} fails: {type(error).__name__}: {reason}") from error
    found = registered_profile(point.name)
    if found is None:
        raise ModelError(f"{of} registers no profile {point.name!r}")
    return found


@strict
class CustomSource(ShapedSource):
    """A source whose visibility is a function that `rime_kernels.register_profile` was given before.

    Parameters
    ----------
    profile : str
        The name under which it is registered, or an entry point of the group "biro.profiles" registers it.
    parameters : table of numbers
        Those of the function, by the names of its arguments, which are pure numbers.
    angles : table of angles, optional
        Those of the function that are angles; it gets them in radians.
    size : angle, optional
        Or emaj, emin, pa; or emaj, ratio, pa: what scales the coordinates of the function. 1 rad by default
        for functions of u and v, which then are in wavelengths.

    Raises
    ------
    ModelError
        The name is not registered, or an argument of the function is missing, unknown or given twice.
    """

    type: ClassVar[str] = "custom"
    size_key: ClassVar[str] = "size"
    shape_keys: ClassVar[tuple[str, ...]] = ("size", "emaj", "emin", "ratio", "pa")
    _: KW_ONLY
    size: QuantityLike = None
    profile: Entry = None
    parameters: Entry = None
    angles: Entry = None

    def _check_shape(self) -> None:
        found = _profile(self.profile)
        if found.coordinates == "uv" and all(getattr(self, key) is None for key in self.shape_keys):
            object.__setattr__(self, "size", Fixed(1.0, "rad"))
        super()._check_shape()
        for key, dimension in (("parameters", NUMBER), ("angles", ANGLE)):
            given = getattr(self, key) or {}
            if not isinstance(given, Mapping):
                raise ModelError(f"{key}: expected a table of quantities by name, found {short_repr(given)}")
            read = {}
            for name, value in given.items():
                if name not in found.parameters:
                    hint = did_you_mean(name, found.parameters)
                    known = ", ".join(found.parameters) or "none"
                    raise ModelError(f"{key}: {short_repr(name)} is no argument of it{hint}; it has {known}")
                try:
                    read[name] = quantity(value, dimension)
                except ModelError as error:
                    raise ModelError(f"{key}: {name}: {error}") from None
            object.__setattr__(self, key, read or None)
        self._check_arguments(found.parameters)

    def _check_arguments(self, names: tuple[str, ...]) -> None:
        for name in names:
            times = sum(name in (table or {}) for table in (self.parameters, self.angles))
            if times != 1:
                fault = "is missing" if times == 0 else "is given twice"
                raise ModelError(f"{name}: {fault}; it is an argument of profile {self.profile!r}")
            if name in key_names(type(self)):
                raise ModelError(f"{name}: no argument can be called so; sources have this key")

    def arguments(self) -> dict[str, tuple[Quantity, bool]]:
        """The quantities of the function by name, in its order, and which are angles."""
        found = _profile(self.profile)
        angles = self.angles or {}
        return {
            name: (angles[name], True) if name in angles else (self.parameters[name], False)
            for name in found.parameters
        }
