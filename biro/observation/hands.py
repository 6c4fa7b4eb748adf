"""Parallel and cross hands of a partition as partitions of their own, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from biro.observation.correlations import PARALLEL_HANDS
from biro.observation.partition import Partition


def split_hands(part: Partition, *, each: bool = False) -> list[Partition]:
    """Parallel and cross hands as partitions of their own, which share rows; one where only one kind counts.

    I of data that hold Stokes parameters is a parallel hand, the others are cross hands. With `each`, every
    correlation that counts is a partition of its own, and those that do not count are left with the first.
    """
    order = np.arange(part.n_corr) if part.corr_id is None or not part.corr_id.size else part.corr_id
    parallel = np.array([name in (*PARALLEL_HANDS, "I") for name in part.corr_type])
    kinds = {"parallel": np.flatnonzero(parallel), "cross": np.flatnonzero(~parallel)}
    if each:
        counts = part.weight.any(axis=(0, 1))
        kinds = {part.corr_type[i]: np.array([i]) for i in np.flatnonzero(counts)}
        if kinds:
            kinds[next(iter(kinds))] = np.append(next(iter(kinds.values())), np.flatnonzero(~counts))
    if len(kinds) < 2 or not all(part.weight[..., corr].any() for corr in kinds.values()):
        return [part]
    return [
        replace(
            part,
            corr_type=tuple(part.corr_type[i] for i in corr),
            vis=part.vis[..., corr],
            weight=part.weight[..., corr],
            corr_id=order[corr],
            hands=hands,
        )
        for hands, corr in kinds.items()
    ]


def merge_hands(parts: Sequence[Partition]) -> list[Partition]:
    """Partitions as they were before `split_hands`."""
    groups: list[list[Partition]] = []
    for part in parts:
        if part.hands and groups and _belongs(part, groups[-1]):
            groups[-1].append(part)
        else:
            groups.append([part])
    return [group[0] if len(group) == 1 else _merged(group) for group in groups]


def _belongs(part: Partition, group: Sequence[Partition]) -> bool:
    """Whether a partition and those of a group were one."""
    first = group[0]
    alike = all(getattr(part, key) == getattr(first, key) for key in ("set_name", "field_id", "data_desc_id"))
    return bool(first.hands) and alike and part.hands not in [one.hands for one in group]


def _merged(group: Sequence[Partition]) -> Partition:
    """The partition of which these were split off."""
    names = [name for one in group for name in one.corr_type]
    stored = np.concatenate([one.corr_id for one in group if one.corr_id is not None])
    order = np.argsort(stored)
    return replace(
        group[0],
        corr_type=tuple(names[i] for i in order),
        vis=np.concatenate([one.vis for one in group], axis=2)[..., order],
        weight=np.concatenate([one.weight for one in group], axis=2)[..., order],
        corr_id=stored[order],
        hands="",
    )
