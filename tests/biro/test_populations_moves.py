"""Moves of populations keep the prior where the likelihood is constant; densities of proposals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from biro.models import LogUniform, Normal, NumberPrior, PowerLaw, Uniform
from biro.models.components.population import log_share
from biro.models.quantities.parameter import Parameter
from biro.source_finding.populations.flux_proposal import FluxProposal, FluxProposals
from biro.source_finding.populations.moves import PopulationMoves
from biro.source_finding.populations.number_moves import BirthAndDeath, SplitAndMerge, Walkers
from biro.source_finding.populations.places import Mixture, PlaceMixtures
from biro.source_finding.populations.scales import Scales
from biro.source_finding.populations.source_moves import Drift, Exchange
from biro.source_finding.populations.space import PopulationSpace, Quantity

Array = NDArray[np.float64]
N_WALKER, N_MOVE = 6000, 20
MOST_SIGMA = 4.6
"""Largest of about 150 deviations of a normal distribution: one is beyond it with a chance of 6e-4."""
SCALES = Scales(information=10.0, whitening=np.array([[1.3, 0.4], [0.0, 0.5]]))
KINDS = ("point", "gaussian")


class Constant:
    """A likelihood of 1 for all states, without data."""

    def __init__(self, number: NumberPrior) -> None:
        quantities = [
            Quantity("east", "arcsec", Uniform(-3, 5), None),
            Quantity("north", "arcsec", Normal(1, 2), None),
            Quantity("I", "Jy", PowerLaw(0.8, 0.1, 5), None),
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


def mixtures() -> PlaceMixtures:
    """Births on two rungs: about three places with unequal weights and widths, and by the prior."""
    place = np.array([[0.2, 0.3], [1.4, 0.3], [4.0, -2.5]]) @ SCALES.whitening.T
    some = Mixture(place, np.array([0.2, 0.7, 1.0]), np.array([0.5, 2.0, 1.0]))
    return PlaceMixtures(SPACE, SCALES.whitening, [some, Mixture.mixed()])


SD_OF_SHARED, STEP = np.full((2, 1), 0.2), np.array([0.5, 1.0])


def births(rng: np.random.Generator, walkers: Walkers) -> None:
    BirthAndDeath(LIKELIHOOD, FluxProposals(LIKELIHOOD, SCALES.information), mixtures())(rng, walkers)


def splits(rng: np.random.Generator, walkers: Walkers) -> None:
    for _ in range(3):
        SplitAndMerge(LIKELIHOOD, SCALES.whitening, 2.0)(rng, walkers)


def exchanges(rng: np.random.Generator, walkers: Walkers) -> None:
    fluxes = FluxProposals(LIKELIHOOD, SCALES.information)
    Exchange(LIKELIHOOD, fluxes, SCALES.whitening)(rng, walkers)


def drifts(rng: np.random.Generator, walkers: Walkers) -> None:
    Drift(LIKELIHOOD, SCALES, SD_OF_SHARED, STEP)(rng, walkers, 2)


def all_together(rng: np.random.Generator, walkers: Walkers) -> None:
    moves = PopulationMoves(LIKELIHOOD, SCALES, mixtures(), SD_OF_SHARED, STEP)
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
    rung = np.repeat([0, 1], N_WALKER // 2)
    walkers = Walkers(rows.copy(), np.zeros(N_WALKER), np.array([0.4, 1.0])[rung], rung)
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
    """The prior of 2 points and a Gaussian: 1/12 for their order, the pmf of 3, and densities."""
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


def test_mixtures_of_places_have_the_density_of_their_draws() -> None:
    of, n = mixtures(), 60_000
    rng = np.random.default_rng(4)
    edges = np.linspace(-12.0, 14.0, 27), np.linspace(-12.0, 14.0, 27)
    fine = [np.linspace(e[0], e[-1], 16 * 26 + 1) for e in edges]
    middle = [0.5 * (e[1:] + e[:-1]) for e in fine]
    places = np.stack(np.meshgrid(*middle, indexing="ij"), axis=-1).reshape(-1, 2)
    for rung in (0, 1):
        density = np.exp(of.log_density(places, np.full(len(places), rung)))
        mass = density * (1.0 / 16.0) ** 2
        # The midpoint rule, whose error is largest at the ends of the uniform prior: half a cell of 8.
        assert mass.sum() == pytest.approx(1.0, abs=8e-3)
        drawn = of.draw(rng, np.full(n, rung))
        expected = n * mass.reshape(26, 16, 26, 16).sum(axis=(1, 3))
        count = np.histogram2d(drawn[:, 0], drawn[:, 1], edges)[0]
        used = expected > 25.0
        chi2 = ((count - expected)[used] ** 2 / expected[used]).sum()
        assert abs(chi2 - used.sum()) < 4.5 * np.sqrt(2.0 * used.sum())


def test_mixtures_of_places_round_trip() -> None:
    of = mixtures()
    again = PlaceMixtures.of(SPACE, SCALES.whitening, of.arrays())
    rng, rung = np.random.default_rng(8), np.repeat([0, 1], 50)
    places = of.draw(np.random.default_rng(7), rung)
    assert np.array_equal(again.draw(np.random.default_rng(7), rung), places)
    other = np.concatenate([places, rng.uniform(-9, 9, (100, 2))])
    rung = np.concatenate([rung, rung])
    assert np.allclose(again.log_density(other, rung), of.log_density(other, rung), rtol=1e-13)


class Peaked(Constant):
    """A likelihood with a peak in the place of each source that is narrower than the prior."""

    def heights(self, rows: Array) -> Array:
        return self.slopes(rows)[0]

    def slopes(self, rows: Array) -> tuple[Array, Array]:
        slots, slope = self.space.slots_of(rows), np.zeros(rows.shape)
        exists = slots[..., 0] >= 0.0
        off = np.where(exists[..., None], slots[..., 1:3] - [1.0, 0.5], 0.0) / [0.4, 0.6]
        self.space.slots_of(slope)[..., 1:3] = -off / [0.4, 0.6]
        return -0.5 * (off**2).sum(axis=(1, 2)), slope


@pytest.mark.parametrize("name", ["births", "exchanges", "drifts"])
def test_moves_keep_a_peaked_density(name: str) -> None:
    """Begun from draws of the prior kept with the probability L, which are draws of the posterior."""
    of, rng = Peaked(NumberPrior("uniform", low=0, high=2)), np.random.default_rng(6)
    likelihood: Any = of
    rows = of.space.draw(rng, 400_000)
    rows = rows[rng.random(len(rows)) < np.exp(of.heights(rows))]
    walkers = Walkers(rows.copy(), of.heights(rows), np.ones(len(rows)), np.zeros(len(rows), np.int64))
    fluxes = FluxProposals(likelihood, SCALES.information)
    move: Any = {
        "births": BirthAndDeath(likelihood, fluxes, mixtures()),
        "exchanges": Exchange(likelihood, fluxes, SCALES.whitening),
        "drifts": lambda *given: Drift(likelihood, SCALES, SD_OF_SHARED, STEP[1:])(*given, 2),
    }[name]
    for _ in range(8):
        move(rng, walkers)

    def figures(of_rows: Array) -> Array:
        """Functions of each walker whose means are compared."""
        slots, number = of.space.slots_of(of_rows), of.space.number(of_rows)
        east, north, flux = (slots[..., i] for i in (1, 2, 3))
        exists = slots[..., 0] >= 0.0
        far, bright = (abs(east - 1.0) > 0.5), flux > 1.0
        each = [far, abs(north - 0.5) > 0.6, bright, far & bright, far & ~bright]
        return np.stack([number == 0, number == 2, *((exists & one).sum(axis=1) for one in each)], axis=1)

    change = figures(walkers.rows) * 1.0 - figures(rows)
    z = change.mean(axis=0) / (change.std(axis=0) / np.sqrt(len(change)) + 1e-12)
    had = of.space.number(rows) > 0
    assert (walkers.rows != rows)[had].any(axis=1).mean() > 0.2, "of the few that had a source"
    assert np.abs(z).max() < 4.5, z
