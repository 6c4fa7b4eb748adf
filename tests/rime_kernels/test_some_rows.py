"""A gridder of some of the rows: the visibilities of these are those of a gridder of all, to the bit."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from rime_kernels import InputError, Rows, make_gridder, stokes_to_corr
from rime_kernels.gridding.grid import ImageGrid

N_ANTENNA, N_TIME, N_CHAN = 6, 40, 3


def tracks() -> Rows:
    """Baselines that turn with the sky and have w of both signs."""
    rng = np.random.default_rng(3)
    place = rng.uniform(-800.0, 800.0, (N_ANTENNA, 3))
    p, q = np.triu_indices(N_ANTENNA, 1)
    angle = np.linspace(0.0, 0.4, N_TIME)
    x, y, z = (place[q] - place[p]).T
    u = np.outer(np.cos(angle), x) - np.outer(np.sin(angle), y)
    v = np.outer(np.sin(angle), x) + np.outer(np.cos(angle), y)
    uvw = np.stack([u, v, np.broadcast_to(z, u.shape)], axis=2).reshape(-1, 3)
    return Rows(
        uvw=uvw,
        antenna1=np.tile(p, N_TIME).astype(np.int32),
        antenna2=np.tile(q, N_TIME).astype(np.int32),
        time_index=np.repeat(np.arange(N_TIME), p.size).astype(np.int32),
        chan_freq=1.4e9 + 5e7 * np.arange(N_CHAN),
        stokes_to_corr=stokes_to_corr(("I",)),
        n_antenna=N_ANTENNA,
        n_time=N_TIME,
    )


@pytest.mark.parametrize("engine", ["idg", "wprojection"])
@pytest.mark.parametrize("limit", [None, "5.5 MB"])
def test_visibilities_are_those_among_all_rows(
    engine: Literal["idg", "wprojection"], limit: str | None
) -> None:
    """Whole times, as ranks have them, rows in any order, and one row; whole images, and quarters."""
    rows, grid = tracks(), ImageGrid(128, 7e-5)
    image = np.random.default_rng(4).normal(size=(1, 128, 128))
    gridder = make_gridder(rows, grid, engine=engine, accuracy=1e-5, backend="cpu", memory_limit=limit)
    whole = gridder.predict(image)
    times = np.flatnonzero((rows.time_index >= 7) & (rows.time_index < 19))
    for wanted in (times, np.random.default_rng(5).permutation(rows.n_row)[:50], np.array([5])):
        some = gridder.of_rows(wanted)
        np.testing.assert_array_equal(some.predict(image), whole[wanted])
        assert some.row_plan.n_item < gridder.row_plan.n_item
    with pytest.raises(InputError, match="a gridder of some rows predicts, and does not grid"):
        some.grid(whole)
    np.testing.assert_array_equal(gridder.predict(image), whole)
