"""Items of work as a table on the device."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rime_kernels.gridding.plan import Plan

# Columns of the table of items.
FIRST_ROW, N_ROW, FIRST_CHAN, N_CHAN, X, Y, SLOT, ANTENNA1, ANTENNA2, FLIP = range(10)


def split_long(plan: Plan, most: int) -> Plan:
    """The plan with items of at most so many visibilities, or of one row: threads then have alike to do."""
    n_row = np.maximum(1, most // plan.n_chan)
    n_part = -(-plan.n_row // n_row)
    item = np.repeat(np.arange(plan.n_item), n_part)
    part = np.arange(item.size) - np.repeat(np.cumsum(n_part) - n_part, n_part)
    begin, end = (plan.n_row[item] * k // n_part[item] for k in (part, part + 1))
    columns = {
        name: getattr(plan, name)[item]
        for name in ("first_chan", "n_chan", "x", "y", "w", "layer", "antenna1", "antenna2", "slot", "flip")
    }
    return plan._replace(
        first_row=(plan.first_row[item] + begin).astype(np.int32), n_row=(end - begin).astype(np.int32),
        layer_start=np.concatenate([[0], np.cumsum(n_part)])[plan.layer_start].astype(np.int32), **columns,
    )  # fmt: skip


def item_table(plan: Plan) -> NDArray[np.int32]:
    """The items' whole numbers, (n_item, 10)."""
    columns = (
        plan.first_row, plan.n_row, plan.first_chan, plan.n_chan, plan.x, plan.y, plan.slot, plan.antenna1,
        plan.antenna2, plan.flip,
    )  # fmt: skip
    return np.stack(columns, axis=1)


def starts(plan: Plan) -> NDArray[np.int64]:
    """Visibilities before each item, and their number, (n_item + 1,)."""
    return np.concatenate([[0], np.cumsum(plan.n_row.astype(np.int64) * plan.n_chan)])
