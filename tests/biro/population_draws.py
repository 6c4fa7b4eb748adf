"""Draws of populations whose truth is known."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from biro.imaging.psf import RestoringBeam
from biro.source_finding.populations.results.draws import SourceDraws

WIDTH = 1e-5
BEAM = RestoringBeam(WIDTH, WIDTH, 0.0)


class Truth(NamedTuple):
    """A source: place in beams, flux (Jy), probability, scatter of the place in beams."""

    east: float
    north: float
    flux: float
    p: float = 1.0
    scatter: float = 0.05


def make_draws(rows: Sequence[Sequence[Truth]], seed: int = 0, scatter_ln_flux: float = 0.1) -> SourceDraws:
    """Draws that have these sources in an order of chance, with scatter; `p` does not count."""
    rng = np.random.default_rng(seed)
    draw = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    flat = [source for row in rows for source in row]
    n = len(flat)
    scatter = WIDTH * np.array([source.scatter for source in flat])
    values = {
        "east": WIDTH * np.array([source.east for source in flat]) + scatter * rng.standard_normal(n),
        "north": WIDTH * np.array([source.north for source in flat]) + scatter * rng.standard_normal(n),
        "I": np.array([source.flux for source in flat]) * np.exp(scatter_ln_flux * rng.standard_normal(n)),
    }
    order = np.lexsort((rng.random(n), draw))
    return SourceDraws(
        "field",
        ("point",),
        len(rows),
        draw[order],
        np.zeros(n, np.int8),
        {k: v[order] for k, v in values.items()},
    )


def random_rows(truth: Sequence[Truth], n_draw: int, seed: int = 0) -> list[list[Truth]]:
    """In each draw, sources that exist by chance with their probability."""
    rng = np.random.default_rng(seed)
    return [[source for source in truth if rng.random() < source.p] for _ in range(n_draw)]
