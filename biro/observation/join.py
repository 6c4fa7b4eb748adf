"""Join observations, so that one model is fitted to all of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.observation.averaging import Averaged
from biro.observation.observation import Observation, hash_of_vis
from biro.observation.partition import Partition
from biro.observation.stokes import FormedStokes
from rime_kernels.arrays.time_slots import slot_width, time_slots

SAME_PLACE = 1.0
"""Antennas of one name are one antenna where their positions differ by less than this, m."""


def join(observations: Iterable[Observation]) -> Observation:
    """Several observations as one, whose partitions a model is fitted to together.

    Partitions keep their labels; where two would be equal, the name of their set stands in front: the end of
    its path that tells it from the others, "day1.ms/3C273/spw0", or "arrays#2" where sources are equal.
    Antennas of one name are one antenna, except where their positions differ by 1 m or more: then the name of
    the set stands in front of the later one, and a note says so. Times of different scales become UTC.

    Parameters
    ----------
    observations : iterable of Observation
        Of several Measurement Sets (`biro.read_ms` joins those of a list of paths), or of arrays.

    Returns
    -------
    Observation
        Its `source` and `column` list those of all; `counts` are the sums.

    Raises
    ------
    InputError
        No observation, something else than observations, one that is joined already, or the same
        visibilities twice.
    """
    given = list(observations) if isinstance(observations, Iterable) else [observations]
    _check(given)
    if len(given) == 1:
        return given[0]
    names = set_names([observation.source for observation in given])
    antennas = _Antennas.of(given, names)
    is_one_scale = len({(one.time_scale, one.utc_offset) for one in given}) == 1
    of_sets = [
        _of_set(part, name, index, 0.0 if is_one_scale else one.utc_offset, len(antennas.names))
        for one, name, index in zip(given, names, antennas.index, strict=True)
        for part in one.partitions
    ]
    partitions = _in_common_slots(of_sets)
    _check_different(partitions)
    first, conventions = given[0], {one.convention for one in given}
    return Observation(
        partitions=tuple(partitions),
        antenna_names=antennas.names,
        antenna_positions=antennas.positions,
        telescope=_listed(one.telescope for one in given),
        source=_listed(one.source for one in given),
        column=_listed(one.column for one in given),
        weight_origin=_listed(one.weight_origin for one in given),
        counts=_sums([one.counts for one in given]),
        time_scale=first.time_scale if is_one_scale else "UTC",
        utc_offset=first.utc_offset if is_one_scale else 0.0,
        dish_diameter=antennas.diameters,
        convention=conventions.pop() if len(conventions) == 1 else "casa",
        averaged=_most_smeared(given),
        formed=_formed([one.formed for one in given if one.formed is not None]),
        notes=(*_notes(given, names), *antennas.notes),
    )


def distinct_paths(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], caller: str
) -> list[str | os.PathLike[str]]:
    """The paths of several data sets, or of one, for a function that reads them.

    Raises
    ------
    InputError
        No path at all, or one that is given twice, whose data would count twice.
    """
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    if not paths:
        raise InputError(f"{caller} needs the path of a data set, found an empty list")
    places = [os.path.abspath(os.fspath(path)) for path in paths]
    for place, path in zip(places, paths, strict=True):
        if places.count(place) > 1:
            raise InputError(f"{path}: is given twice, so its data would count twice; give each set once")
    return paths


def set_names(sources: Sequence[str]) -> list[str]:
    """A short name for each source, unique among them: the end of its path, or a number where paths agree."""
    parts = [Path(source).parts or (source,) for source in sources]
    for depth in range(1, 1 + max(map(len, parts))):
        names = ["/".join(part[-depth:]).replace("//", "/") for part in parts]
        if len(set(names)) == len(names):
            return names
    names = [part[-1] for part in parts]
    return [
        f"{name}#{1 + names[:i].count(name)}" if names.count(name) > 1 else name
        for i, name in enumerate(names)
    ]


def _check(given: Sequence[object]) -> None:
    """Refuse what is not a list of observations that were not joined before."""
    if not given:
        raise InputError("there is nothing to join: give a list of observations")
    for one in given:
        if isinstance(one, str | os.PathLike):
            raise InputError(f"join needs observations, as biro.read gives them, found the path {str(one)!r}")
        if not isinstance(one, Observation):
            raise InputError(f"join needs a list of observations, found {type(one).__name__}")
        if len(given) > 1 and one.set_names:
            raise InputError(f"{one.source}: is joined already; give all observations to one call of join")


def _check_different(partitions: Sequence[Partition]) -> None:
    """Refuse visibilities that would count twice."""
    for one, other in combinations(partitions, 2):
        if (
            one.set_name != other.set_name
            and one.vis.shape == other.vis.shape
            and np.array_equal(one.time, other.time)
            and np.array_equal(one.chan_freq, other.chan_freq)
            and np.array_equal(one.uvw, other.uvw)
            and one.corr_type == other.corr_type
            and one.phase_centre == other.phase_centre
            and one.by_block(hash_of_vis) == other.by_block(hash_of_vis)
        ):
            raise InputError(
                f"{one.set_name} and {other.set_name} have the same visibilities of field {one.field}, "
                f"spectral window {one.spw}, which would count twice; give them once"
            )


def _of_set(
    part: Partition, name: str, index: NDArray[np.int32], utc_offset: float, n_antenna: int
) -> Partition:
    """A partition with the antenna numbers and the time scale of the joined observation."""
    return replace(
        part,
        set_name=name,
        antenna1=index[part.antenna1],
        antenna2=index[part.antenna2],
        n_antenna=n_antenna,
        time=part.time + utc_offset if utc_offset else part.time,
        slot_time=part.slot_time + utc_offset
        if utc_offset and part.slot_time is not None
        else part.slot_time,
        feeds=None if part.feeds is None else part.feeds.renumbered(index, n_antenna, utc_offset),
        pointing=None if part.pointing is None else part.pointing.renumbered(index, n_antenna, utc_offset),
    )


def _in_common_slots(parts: Sequence[Partition]) -> list[Partition]:
    """The partitions with times that are one slot in several of them, which sets round differently."""
    shortest = min((part.shortest_interval for part in parts), default=0.0)
    all_times = np.concatenate([part.times for part in parts])
    times, slot = time_slots(all_times, slot_width(shortest))
    found = []
    for part, own in zip(
        parts, np.split(times[slot], np.cumsum([len(p.times) for p in parts])[:-1]), strict=True
    ):
        # Two times of one partition stay two.
        is_other = not np.array_equal(own, part.times) and (np.diff(own) > 0.0).all()
        found.append(replace(part, slot_time=own[part.time_index]) if is_other else part)
    return found


@dataclass(frozen=True)
class _Antennas:
    """The antennas of several observations together.

    Attributes
    ----------
    names : tuple of str
    positions : float64 (n_antenna, 3), m
    diameters : float64 (n_antenna,), m
    index : list of int32 (n_antenna of the observation,)
        Where the antennas of each observation are among these.
    notes : tuple of str
    """

    names: tuple[str, ...]
    positions: NDArray[np.float64]
    diameters: NDArray[np.float64]
    index: list[NDArray[np.int32]]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, observations: Sequence[Observation], set_names: Sequence[str]) -> _Antennas:
        """The antennas of each observation, those of one name and place once."""
        number: dict[str, int] = {}
        positions: list[NDArray[np.float64]] = []
        diameters: list[float] = []
        index, notes = [], []
        for observation, set_name in zip(observations, set_names, strict=True):
            numbers, moved = [], []
            diameter = observation.dish_diameter
            known = diameter if len(diameter) else np.zeros(observation.n_antenna)
            for name, position, size in zip(
                observation.antenna_names, observation.antenna_positions, known, strict=True
            ):
                if name in number and _is_elsewhere(position, positions[number[name]]):
                    moved.append(name)
                    name = f"{set_name}/{name}"
                if name not in number:
                    number[name] = len(number)
                    positions.append(position)
                    diameters.append(float(size))
                numbers.append(number[name])
            index.append(np.array(numbers, np.int32))
            if moved:
                notes.append(
                    f"{set_name}: antennas {' '.join(moved)} have other positions than in earlier sets. "
                    "biro treats "
                    f"them as separate antennas, named {set_name}/{moved[0]} and so on"
                )
        return cls(
            tuple(number), np.array(positions).reshape(-1, 3), np.array(diameters), index, tuple(notes)
        )


def _is_elsewhere(position: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    """Whether two antennas stand apart; a position of zeros is not known."""
    known = position.any() and other.any()
    return bool(known and np.linalg.norm(position - other) >= SAME_PLACE)


def _listed(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words))


def _sums(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    causes = dict.fromkeys(cause for count in counts for cause in count)
    return {cause: sum(count.get(cause, 0) for count in counts) for cause in causes}


def _formed(given: Sequence[FormedStokes]) -> FormedStokes | None:
    """What Stokes parameters were formed, of all sets together."""
    if not given:
        return None
    return FormedStokes(
        _listed(one.stokes for one in given),
        sum(one.n_formed for one in given),
        sum(one.n_incomplete for one in given),
        sum(one.n_one_hand for one in given),
    )


def _most_smeared(observations: Sequence[Observation]) -> Averaged | None:
    """What was averaged in the observation that loses most by it."""
    averaged = [one.averaged for one in observations if one.averaged is not None]
    return max(averaged, key=lambda item: item.loss, default=None)


def _notes(observations: Sequence[Observation], names: Sequence[str]) -> Iterator[str]:
    """The notes of all, each with its set, and what was averaged where that differs."""
    averaged = {one.averaged and (one.averaged.seconds, one.averaged.channels) for one in observations}
    for one, name in zip(observations, names, strict=True):
        yield from (f"{name}: {note}" for note in one.notes)
        if len(averaged) > 1:
            how = one.averaged
            yield f"{name}: " + (
                "not averaged" if how is None else f"averaged {how.seconds:g} s x {how.channels} channels"
            )
