"""What the launchers hand to the kernels, in groups: the sky, the data, and where results go.

Kernels take NamedTuples, `typed`; Numba makes plain arguments of their members, so that a group costs a
kernel nothing. What the kernels over tiles and over rows have each for themselves stands in `tiles.parts`
and `rows.parts`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import types

from rime_kernels import device
from rime_kernels.compile.types import Array, DeviceArray, Record


class DeviceSky(NamedTuple):
    """A batch of source lists: points, then Gaussians, then profiles.

    `n_gaussian` counts Gaussians and profiles, which are alike until their envelopes are computed.
    """

    n_gaussian: int
    n_bright_time: int  # times that `bright` has: 1 where it does not change
    direction: Array  # float64 (n_batch, n_source, 3): l, m, n - 1
    projection: Array  # float64 (n_batch, n_gaussian or 1, 2, 3): `envelope.projections`
    beam_scale: Array  # float64 (n_batch,), 1 / (rad Hz)
    pointing: Array  # float64 (n_batch, n_time or 1, n_antenna, 2), rad; or 4: `JonesBeam.motion`
    template_factor: Array  # float64 (n_batch, n_template or 1, 4): `Inputs.template`
    bright: Array  # flat, Jy, in working precision: `brightness.make_brightness`
    n_profile: int  # the last of these
    profile: Array  # float64 (n_batch, n_profile, 8), or (n_batch, 1, 1)
    profile_kind: Array  # float64 (n_profile or 1,)
    jones: Array  # float64 (n_batch, .): `inputs.Parameters.jones`
    n_jones_time: int  # time slots that have a block; 0 without matrices, as the next two
    n_jones_antenna: int
    n_jones_chan: int  # blocks of channels
    first_varied: int  # the sources whose derivatives are asked for: from this one on
    stop_varied: int  # and before this one


class DataColumns(NamedTuple):
    """Data, weights and templates of a slab as the chi2 reads them, flat: `make_arrange`."""

    vis: DeviceArray  # complex, Jy
    weight: DeviceArray  # 1/Jy^2; below 0 where antenna2 is on a tile's first side
    template: DeviceArray  # complex, Jy
    stride: int  # template t lies t `stride` behind the first

    def ahead(self, n: int) -> DataColumns:
        """The columns without their first n data."""
        if not n:
            return self
        template = self.template[n:] if self.stride else self.template
        return DataColumns(self.vis[n:], self.weight[n:], template, self.stride)


class Results(NamedTuple):
    """Where a kernel leaves what it was launched for."""

    vis: Array  # complex (n_batch, rows of the slab, n_chan, n_corr), Jy
    sums: Array  # float64 (n_batch times `chi2_terms.n_kinds`, n_sum): partial sums of chi2 and others


class _Typed:
    """A group whose Numba type has been looked up: see `typed`."""

    __slots__ = ("_group", "_numba_type_")

    def __init__(self, group: tuple[Any, ...]) -> None:
        self._group, self._numba_type_ = group, _type_of(group)

    def __len__(self) -> int:
        return len(self._group)

    def __iter__(self) -> Any:
        return iter(self._group)


def typed(group: tuple[Any, ...]) -> Record:
    """The NamedTuple as an argument of a kernel.

    Numba makes the type of a tuple anew at every launch, which takes longer than the launch: 0.15 ms for the
    groups of one kernel, against 0.03 ms here (measured). Members are device arrays, int and float.
    """
    return group if device.simulated() else _Typed(group)


_TYPES: dict[tuple[Any, ...], Any] = {}
_NUMBERS = {int: types.int64, float: types.float64}


def _type_of(group: tuple[Any, ...]) -> Any:
    """The Numba type of a NamedTuple; Numba has one object for each type, so that its address is a key."""
    kinds = tuple([_NUMBERS.get(type(x)) or x._numba_type_ for x in group])
    key = type(group), *map(id, kinds)
    if key not in _TYPES:
        # It holds the types of its members, whose addresses therefore stay theirs.
        _TYPES[key] = types.NamedTuple(kinds, type(group))
    return _TYPES[key]
