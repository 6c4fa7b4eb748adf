"""All kernels whose shapes are measured, and the shapes that each may have."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from rime_kernels.cuda.launch_shapes import cells, flagging, model
from rime_kernels.cuda.launch_shapes.families import MOST_REGISTER, Family, Kernel, KernelKind, Shape

FAMILIES: dict[Kernel, Family] = {
    "tiles": model.TILES,
    "rows": model.ROWS,
    **flagging.FAMILIES,
    **cells.FAMILIES,
}


def all_kinds(precision: str | None = None) -> list[KernelKind]:
    """All kinds of kernels, or those of "single" or "double" precision."""
    kinds = [kind for family in FAMILIES.values() for kind in family.kinds]
    return [kind for kind in kinds if precision in (None, "single" if kind.single else "double")]


def guess(kind: KernelKind) -> Shape:
    """The shape of an untuned kernel, from measurements on a few devices."""
    return FAMILIES[kind.kernel].guess(kind)


def fits(kind: KernelKind, shape: Shape) -> bool:
    """Whether a kernel of this shape can be launched on every device, and is as precise as it must be."""
    return FAMILIES[kind.kernel].fits(kind, shape)


def neighbours(kind: KernelKind, shape: Shape) -> Iterator[Shape]:
    """Shapes that fit and differ in one field, by one step of its ladder; the most promising field first."""
    family = FAMILIES[kind.kernel]
    for name, ladder in family.ladders.items():
        now = getattr(shape, name)
        rung = _rung(now, ladder, name)
        for value in ladder[max(0, rung - 1) : rung + 2]:
            if value != now:
                changed = family.entailed(dataclasses.replace(shape, **{name: value}), name)
                if changed != shape and fits(kind, changed):
                    yield changed


def _rung(value: int, ladder: tuple[int, ...], name: str) -> int:
    """The index of the step nearest to a value; no limit of registers counts as the largest."""
    size = {rung: rung if rung or name != "max_register" else MOST_REGISTER for rung in (*ladder, value)}
    return min(range(len(ladder)), key=lambda i: abs(size[ladder[i]] - size[value]))
