"""Moves of `biro.populations` keep the prior where the likelihood is constant; densities of proposals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from biro.models import LogUniform, Normal, NumberPrior, PowerLaw, Uniform
from biro.models.components.population import log_share
from biro.models.quantities.parameter import Parameter
from biro.populations.flux_proposal import FluxProposal, FluxProposals
from biro.populations.moves import PopulationMoves
from biro.populations.number_moves import BirthAndDeath, SplitAndMerge, Walkers
from biro.populations.places import PlaceGrid, PlaceTables, Table
from biro.populations.scales import Scales
from biro.populations.source_moves import Drift, Exchange
from biro.populations.space import PopulationSpace, Quantity

Array = NDArray[np.float64]
N_WALKER, N_MOVE = 6000, 20
MOST_SIGMA = 4.6
"""Largest of about 150 deviations of a normal distribution: one is beyond it with a chance of 6e-4."""
SCALES = Scales(information=3.0, whitening=np.array([[1.3, 0.4], [0.0, 0.8]]))
KINDS = ("point", "gaussian")


class Constant:
    """A likelihood of 1 for all states, without data."""

    def __init__(self, number: NumberPrior) -> None:
        quantities = [
            Quantity("east", "arcsec", Uniform(-3, 5), None),
            Quantity("north", "arcsec", Normal(1, 2), None),
            Quantity("I", "Jy", PowerLaw(1.5, 0.1, 5), None),
            Quantity("emaj", "arcsec", LogUniform(0.2, 6), None),
            Quantity("ratio", "", Uniform(0.2, 1), None),
            Quantity("pa", "deg", Uniform(0, 180), 180.0),
            # Its density is far from 1: a move that leaves it out changes the number of sources.
            Quantity("spectral_index", "", Normal(-0.7, 0.03), None),
        ]
        shared = [Parameter("noise.factor", "", Normal(2, 0.3), None, "")]
        self.space = PopulationSpace(number.log_pmf(np.arange(number.high + 1)), KINDS, quantities, shared)
        self.n_call = 0

    def heights(self, rows: Array) -> Array:
        self.n_call += len(rows)
        return np.zeros(len(rows))

    def slopes(self, rows: Array) -> tuple[Array, Array]:
        return self.heights(rows), np.zeros(rows.shape)


LIKELIHOOD: Any = Constant(NumberPrior("poisson", mean=2, high=5))
SPACE: PopulationSpace = LIKELIHOOD.space
GRID = PlaceGrid(SPACE, (0.7, 0.9))


def tables() -> PlaceTables:
    """Births on two rungs: in three cells of unequal weights, and by the prior."""
    cell = GRID.cells(np.array([[0.2, 0.3], [1.4, 0.3], [4.0, -2.5]]))
    return PlaceTables(SPACE, GRID, [Table(np.sort(cell), np.array([0.5, 2.0, 1.0])), EMPTY])


EMPTY = Table(np.zeros(0, np.int64), np.zeros(0))
SD_OF_SHARED, STEP = np.full((2, 1), 0.2), np.array([0.5, 1.0])


def births(rng: np.random.Generator, walkers: Walkers) -> None:
    BirthAndDeath(LIKELIHOOD, FluxProposals(LIKELIHOOD, SCALES.information), tables())(rng, walkers)


def splits(rng: np.random.Generator, walkers: Walkers) -> None:
    SplitAndMerge(LIKELIHOOD, SCALES.whitening, 0.7)(rng, walkers)


def exchanges(rng: np.random.Generator, walkers: Walkers) -> None:
    fluxes = FluxProposals(LIKELIHOOD, SCALES.information)
    Exchange(LIKELIHOOD, fluxes, SCALES.whitening)(rng, walkers)


def drifts(rng: np.random.Generator, walkers: Walkers) -> None:
    Drift(LIKELIHOOD, SCALES, SD_OF_SHARED, STEP)(rng, walkers, 2)


def all_together(rng: np.random.Generator, walkers: Walkers) -> None:
    moves = PopulationMoves(LIKELIHOOD, SCALES, tables(), SD_OF_SHARED, STEP)
    rows, height = walkers.rows.reshape(2, -1, SPACE.n_row), walkers.height.reshape(2, -1)
    moves.sweep(rng, walkers.beta[[0, -1]], rows, height)


def deviations(rows: Array) -> dict[str, float]:
    """Deviations from what draws of the prior are expected to be, in standard errors.

    Walkers are independent and, if moves keep the prior, draws of it. A cumulative value of n draws has then
    the mean 1/2 with the variance 1/(12 n), and the mean square deviation 1/12 with the variance 1/(180 n).
    """
    found: dict[str, float] = {}
    space, n = SPACE, len(rows)
    slots, number, counts = space.slots_of(rows), space.number(rows), space.counts(rows)
    expected = np.exp(space.log_number)

    def count(name: str, is_so: NDArray[np.bool_], p: float) -> None:
        found[name] = float((is_so.mean() - p) / np.sqrt(p * (1.0 - p) / len(is_so)))

    def uniform(name: str, prior: Any, values: Array) -> None:
        off = prior.cumulative(values) - 0.5
        found[f"mean of {name}"] = float(off.mean() * np.sqrt(12.0 * len(off)))
        found[f"variance of {name}"] = float((np.mean(off**2) - 1.0 / 12.0) * np.sqrt(180.0 * len(off)))

    for k in range(space.n_slot + 1):
        count(f"P({k})", number == k, float(expected[k]))
        for n_point in range(k + 1 if k else 0):
            # All numbers of points among k sources are equally probable.
            count(f"P({n_point} points of {k})", counts[number == k, 0] == n_point, 1.0 / (k + 1.0))
    for i, parameter in enumerate(space.shared):
        uniform(parameter.name, parameter.prior, space.shared_of(rows)[:, i])
    for kind, of_kind in enumerate(space.kinds):
        for name, some in (("one", number == 1), ("two", number == 2), ("more", number > 2)):
            each = slots[some][slots[some][..., 0] == kind]
            for i in np.flatnonzero(space.has[kind]):
                quantity = space.quantities[i]
                uniform(f"{quantity.key} of {of_kind} of {name}", quantity.prior, each[:, 1 + i])
            assert not each[:, 1:][:, ~space.has[kind]].any(), "a point has no size"
    assert not slots[..., 1:][slots[..., 0] < 0.0].any(), "free slots are empty"
    assert n == N_WALKER
    return found


@pytest.mark.parametrize("move", [births, splits, exchanges, drifts, all_together])
def test_moves_keep_the_prior(move: Callable[[np.random.Generator, Walkers], None]) -> None:
    rng = np.random.default_rng(11)
    rows = SPACE.draw(rng, N_WALKER)
    table = np.repeat([0, 1], N_WALKER // 2)
    walkers = Walkers(rows.copy(), np.zeros(N_WALKER), np.array([0.4, 1.0])[table], table)
    before = deviations(rows)
    for _ in range(N_MOVE):
        move(rng, walkers)
    moved = (walkers.rows != rows).any(axis=1).mean()
    assert moved > 0.3, "moves that are hardly ever accepted prove nothing"
    after = deviations(walkers.rows)
    for found in (before, after):
        worst = max(found, key=lambda name: abs(found[name]))
        assert abs(found[worst]) < MOST_SIGMA, worst


def test_order_of_kinds_has_the_probability_that_shares_give() -> None:
    """log_prior of 2 points and a Gaussian: 1/12 for this order, times the pmf of 3 and densities."""
    rows = SPACE.draw(np.random.default_rng(3), 4000)
    some = (SPACE.number(rows) == 3) & (SPACE.counts(rows)[:, 0] == 2)
    slots = SPACE.slots_of(rows[some])
    density = SPACE.log_density_of_shared(SPACE.shared_of(rows[some]))
    for i in range(3):
        density += SPACE.log_density(slots[:, i, 1:], slots[:, i, 0].astype(np.int64))
    expected = SPACE.log_number[3] + np.log(1.0 / 12.0) + density
    np.testing.assert_allclose(SPACE.log_prior(rows[some]), expected, rtol=1e-12)
    assert log_share(np.array([2, 1])) == pytest.approx(np.log(1.0 / 12.0))


@pytest.mark.parametrize("mean", [1.0, 0.1, -60.0, 90.0])
def test_flux_proposal_has_the_density_of_its_draws(mean: float) -> None:
    """With a mean inside the prior, at its end, and 600 standard deviations outside."""
    prior, n, sd = PowerLaw(1.5, 0.1, 5.0), 40_000, 0.1
    rng = np.random.default_rng(2)
    ones = np.ones(n)
    flux = FluxProposal(mean * ones, sd * ones, *prior.support).draw(rng, prior.transform(rng.random(n)))
    from_end = np.geomspace(1e-5, 1.0, 60)
    edges = np.unique(np.concatenate([np.linspace(0.1, 5.0, 40), 0.1 + from_end, 5.0 - from_end]))
    # Gauss-Legendre in each bin.
    x, w = np.polynomial.legendre.leggauss(12)
    half = np.diff(edges)[:, None] / 2.0
    at = (edges[:-1, None] + half * (1.0 + x)).ravel()
    of = FluxProposal(np.full(at.shape, mean), np.full(at.shape, sd), *prior.support)
    density = np.exp(of.log_density(at, prior.log_density(at)))
    mass = (density.reshape(half.shape[0], -1) * w * half).sum(axis=1)
    assert mass.sum() == pytest.approx(1.0, abs=2e-4), "but for what is within 1e-5 of an end"
    count = np.histogram(flux, edges)[0]
    used = n * mass > 25.0
    chi2 = ((count - n * mass) ** 2 / (n * mass))[used].sum()
    dof = used.sum()
    assert abs(chi2 - dof) < 4.5 * np.sqrt(2.0 * dof), "chi2 of counts in bins"
    rest = n * mass[~used].sum()
    assert count[~used].sum() == pytest.approx(rest, abs=4.5 * np.sqrt(25.0 + rest)), "counts elsewhere"


def test_place_tables_have_the_density_of_their_draws() -> None:
    of, n = tables(), 60_000
    rng = np.random.default_rng(4)
    for table in (0, 1):
        # A finer grid than that of the tables, with edges at those of its cells.
        edges = [GRID.low[i] + GRID.width[i] * np.arange(GRID.shape[i] * 8 + 1) / 8 for i in (0, 1)]
        middle = [0.5 * (e[1:] + e[:-1]) for e in edges]
        places = np.stack(np.meshgrid(*middle, indexing="ij"), axis=-1).reshape(-1, 2)
        density = np.exp(of.log_density(places, np.full(len(places), table)))
        mass = density * GRID.width.prod() / 64
        # The midpoint rule of a normal density, and the 1e-4 of it beyond either end of the grid.
        assert mass.sum() == pytest.approx(1.0, abs=3e-4)
        drawn = of.draw(rng, np.full(n, table))
        shape = (GRID.shape[0], 8, GRID.shape[1], 8)
        expected = n * mass.reshape(shape).sum(axis=(1, 3))
        count = np.histogram2d(drawn[:, 0], drawn[:, 1], [e[::8] for e in edges])[0]
        used = expected > 25.0
        chi2 = ((count - expected) ** 2 / expected)[used].sum()
        assert abs(chi2 - used.sum()) < 4.5 * np.sqrt(2.0 * used.sum())


def test_place_tables_round_trip() -> None:
    of = tables()
    again = PlaceTables.of(SPACE, GRID, *of.arrays())
    rng, table = np.random.default_rng(8), np.repeat([0, 1], 50)
    places = of.draw(np.random.default_rng(7), table)
    assert np.array_equal(again.draw(np.random.default_rng(7), table), places)
    other = np.concatenate([places, rng.uniform(-9, 9, (100, 2))])
    table = np.concatenate([table, table])
    assert np.array_equal(again.log_density(other, table), of.log_density(other, table))
