"""Names of partitions, unique among them, also where several sets were joined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from biro.errors import InputError
from biro.observation.partition import Partition

SAME_DIRECTION = 1e-6
"""Phase centres of one field may differ by this much between sets, rad: that is 0.2 arcsec."""


def unique_labels(partitions: Sequence[Partition]) -> tuple[str, ...]:
    """field/spwN, with ids and the set's name added only as far as two partitions would share a label.

    Raises
    ------
    InputError
        Two partitions have the same label all the same: they would share a noise factor.
    """
    labels = [""] * len(partitions)
    for members in _by_set(partitions).values():
        for i, label in zip(members, _labels_within_set([partitions[i] for i in members]), strict=True):
            labels[i] = label
    count = Counter(labels)
    unique = tuple(
        label if count[label] == 1 or not part.set_name else f"{part.set_name}/{label}"
        for label, part in zip(labels, partitions, strict=True)
    )
    label, number = Counter(unique).most_common(1)[0] if unique else ("", 0)
    if number > 1:
        raise InputError(
            f"{number} partitions are called {label}, and would share a noise factor; join observations with "
            "biro.join, or give the partitions another field, spw_id or data_desc_id"
        )
    return unique


def field_names(partitions: Sequence[Partition]) -> tuple[str, ...]:
    """The field of each partition, after the set's name where sets give one name to several directions."""
    return _told_apart(partitions, lambda part: part.field, _same_direction)


def window_names(partitions: Sequence[Partition]) -> tuple[str, ...]:
    """The spectral window of each partition, after the set's name where sets give one name to several bands.

    Bands that overlap are taken as one window, because sets may differ by a Doppler shift or a selection.
    """
    return _told_apart(partitions, lambda part: part.spw, _overlapping)


def _by_set(partitions: Sequence[Partition]) -> dict[str, list[int]]:
    """Numbers of the partitions of each set."""
    members: dict[str, list[int]] = {}
    for i, part in enumerate(partitions):
        members.setdefault(part.set_name, []).append(i)
    return members


def _labels_within_set(partitions: Sequence[Partition]) -> list[str]:
    """field/spwN of partitions of one set, with ids added only as far as two would share a label."""
    fields_of_name: dict[str, set[int]] = {}
    for part in partitions:
        fields_of_name.setdefault(part.field, set()).add(part.field_id)
    labels = []
    for part in partitions:
        name = part.field if len(fields_of_name[part.field]) == 1 else f"{part.field}#{part.field_id}"
        labels.append(f"{name}/spw{part.spw_id}" + (f"/{part.hands}" if part.hands else ""))
    count = Counter(labels)
    return [
        label if count[label] == 1 else f"{label}/dd{part.data_desc_id}"
        for label, part in zip(labels, partitions, strict=True)
    ]


def _told_apart(
    partitions: Sequence[Partition],
    name_of: Callable[[Partition], str],
    same: Callable[[Partition, Partition], bool],
) -> tuple[str, ...]:
    """Names, after the set's name where a partition of another set has the same name for something else."""
    if len({part.set_name for part in partitions}) <= 1:
        return tuple(map(name_of, partitions))
    names = []
    for part in partitions:
        others = [other for other in partitions if other.set_name != part.set_name]
        namesakes = [other for other in others if name_of(other) == name_of(part)]
        is_clear = all(same(part, other) for other in namesakes)
        names.append(name_of(part) if is_clear else f"{part.set_name}/{name_of(part)}")
    return tuple(names)


def _same_direction(one: Partition, other: Partition) -> bool:
    (ra, dec), (other_ra, other_dec) = one.phase_centre, other.phase_centre
    turn = (ra - other_ra + np.pi) % (2 * np.pi) - np.pi
    return bool(np.hypot(turn * np.cos(dec), dec - other_dec) < SAME_DIRECTION)


def _overlapping(one: Partition, other: Partition) -> bool:
    (low, high), (other_low, other_high) = _band(one), _band(other)
    return low <= other_high and other_low <= high


def _band(part: Partition) -> tuple[float, float]:
    """Lowest and highest frequency, Hz."""
    half = 0.5 * part.chan_width
    return float((part.chan_freq - half).min()), float((part.chan_freq + half).max())
