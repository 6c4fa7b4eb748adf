"""The coordinates of NUTS: changes and inverses, closed forms with walls and turns, gains beside a sky."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gaussian_likelihood import Flat, SmoothGaussian
from scipy import stats

import biro
from biro.inference.samplers.coordinates.open_angles import open_angles
from biro.inference.samplers.coordinates.straight import HANDS, LINE, LOG, POLAR, UNBOUNDED, Straight
from biro.inference.samplers.coordinates.walls import Walls, walls_of
from biro.inference.samplers.coordinates.whitened import Whitened
from biro.models import Gain, Leakage, LogNormal, Normal, PerSegment, SkyModel
from biro.models.bound.prior.unconstrained import Unconstrained
from tests.biro.test_antenna_terms import eht, free_sky, observation
from tests.biro.test_fitted_gains import TURN, true_theta

__all__ = ["eht", "observation"]  # fixtures
QUICK: dict[str, Any] = {"seed": 3, "progress": False, "n_tune": 200}


def independent(posterior: biro.Posterior, name: str) -> np.ndarray:
    """Draws of a parameter, as many as are worth independent ones, float64 (n,)."""
    draws = posterior[name]
    effective = posterior.effective[list(posterior.names).index(name)]
    return np.asarray(draws[:: int(np.ceil(len(draws) / effective))])


def test_all_forms_have_their_inverse_jacobian_and_slopes() -> None:
    ends = [Flat(-2, 2, name) for name in "abcdefg"]
    likelihood = SmoothGaussian(ends, np.zeros(7), np.eye(7))
    form = np.array([UNBOUNDED, LINE, LOG, POLAR, HANDS, POLAR, HANDS])
    change = Straight(likelihood, form, np.array([-1, -1, -1, 5, 6, -1, -1]))
    theta = np.array([0.3, -1.2, 0.4, -0.5, 1.1, -0.8, 0.7])
    w = change.of_theta(theta)
    # Roundings.
    np.testing.assert_allclose(change.theta(w), theta, rtol=1e-12)
    assert change.at(w).theta[3] + 1j * change.at(w).theta[5] == pytest.approx(np.exp(w[3] + 1j * w[5]))

    def jacobian(w: np.ndarray) -> np.ndarray:
        h = 1e-5 * np.eye(w.size)
        return np.asarray((change.theta(w + h) - change.theta(w - h)).T / 2e-5)

    # Central differences in steps h: h^2 and roundings / h, 1e-10 of either.
    np.testing.assert_allclose(change.at(w).pull_back(np.eye(7)), jacobian(w), rtol=0, atol=1e-8)
    other = w + np.linspace(-0.3, 0.4, 7)
    logs = [np.linalg.slogdet(jacobian(x))[1] - change.at(x).log_jacobian() for x in (w, other)]
    assert logs[0] == pytest.approx(logs[1], abs=1e-8)
    step = 1e-5 * np.eye(7)
    slope = (change.at(w + step).log_jacobian() - change.at(w - step).log_jacobian()) / 2e-5
    np.testing.assert_allclose(change.at(w).log_jacobian_slope(), slope, rtol=0, atol=1e-8)


def test_walls_are_where_a_parameter_or_one_that_follows_it_ends() -> None:
    """a + b is 1 to 1e-3, a in (0, 1), b in (-1, 0.8): b ends at 0 and 0.8; a third one is free."""
    both, third = np.array([1.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0])
    precision = np.outer(both, both) / 1e-6 + np.outer(third, third) / 1e-4 + np.diag([0.1, 0.1, 0.0])
    middle, low, high = np.array([0.5, 0.5, 0.5]), np.array([0.0, -1.0, 0.0]), np.array([1.0, 0.8, 1.0])
    walls, moved = walls_of(precision, middle, low, high)
    assert walls.which.tolist() == [1]  # whose limit is the nearest
    # Its own limit; and three sigmas of a, 0.003, behind where a ends.
    assert (walls.low[0], walls.high[0]) == pytest.approx((-0.003, 0.8), abs=1e-4)
    np.testing.assert_array_equal(moved, middle)
    z = np.linspace(-3, 3, 7)[:, None]
    here = walls.moved(z, middle)
    np.testing.assert_allclose(walls.back(here.away, middle), z, atol=1e-9)  # roundings near the walls
    by = [walls.moved(z + h, middle) for h in (1e-5, -1e-5)]
    # Differences in steps h: h^2, and roundings / h.
    np.testing.assert_allclose((by[0].away - by[1].away) / 2e-5, np.exp(here.log_slope), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose((by[0].log_slope - by[1].log_slope) / 2e-5, here.bend, rtol=1e-7, atol=1e-9)
    assert not Walls.none().which.size


def test_a_ridge_between_limits_has_its_closed_form() -> None:
    """A position beside phases: x is uniform where x and 30 - x + y are allowed, y is normal."""
    both, third = np.array([1.0, 1.0, 0.0]), np.array([3.0, 0.0, 1.0])
    precision = np.outer(both, both) / 1e-6 + np.outer(third, third) / 1e-4 + np.diag([1e-9, 1e-9, 1e-9])
    priors = [Flat(0, 1, "a"), Flat(-1, 0.8, "b"), Flat(-9, 9, "c")]
    likelihood = SmoothGaussian(priors, [0.6, 0.4, 0.0], np.linalg.inv(precision))
    likelihood.gains = "closures"  # beside gains
    posterior = biro.sample(likelihood, "nuts", n_draw=500, **QUICK)
    assert posterior.diagnostics["r_hat"] < 1.01
    assert posterior.effective.min() > 400
    a = independent(posterior, "a")
    assert stats.kstest(a, stats.uniform(0.2, 0.8).cdf).pvalue > 1e-3
    left = posterior["c"] + 3.0 * posterior["a"] - 1.8
    assert left.std() == pytest.approx(0.01, rel=0.15)  # 400 draws or more: 3.5 %, four of them


class Turning(SmoothGaussian):
    """Two angles, rad, known by their difference alone: ln p = 400 cos(a - b - 1); and x, standard normal."""

    gains = "closures"

    def __init__(self) -> None:
        turn = [Flat(-np.pi, np.pi, name, "rad", period=2.0 * np.pi) for name in "ab"]
        super().__init__([*turn, Flat(-99, 99, "x")], np.zeros(3), np.eye(3))
        low, high = np.array([-np.inf, -np.inf, -99]), np.array([np.inf, np.inf, 99])
        model = self.model
        model.box, model.wrap = (low, high), self._wrap
        angle = SimpleNamespace(prior=SimpleNamespace(support=(-np.pi, np.pi)), period=2.0 * np.pi)
        parts = [angle, angle, self.parameters[2]]
        model.unconstrained = Unconstrained(parts, low, high, [], np.array([0, 1]))

    def _wrap(self, theta: np.ndarray) -> np.ndarray:
        turned = np.mod(theta + np.pi, 2.0 * np.pi) - np.pi
        return np.where(np.arange(3) < 2, turned, theta)

    def log_likelihood(self, theta: np.ndarray) -> np.ndarray:
        return 400.0 * (np.cos(theta[:, 0] - theta[:, 1] - 1.0) - 1.0) - 0.5 * theta[:, 2] ** 2

    def log_posterior_and_gradient(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        slope = -400.0 * np.sin(theta[:, 0] - theta[:, 1] - 1.0)
        return self.log_prior(theta) + self.log_likelihood(theta), np.stack([slope, -slope, -theta[:, 2]], 1)


def test_angles_that_turn_together_are_anywhere_in_a_turn() -> None:
    likelihood = Turning()
    density = Whitened.about(likelihood, biro.maximise(likelihood, seed=1).laplace)
    assert density.frame.open.size == 1
    posterior = biro.sample(likelihood, "nuts", n_draw=500, **QUICK)
    assert posterior.diagnostics["r_hat"] < 1.01
    assert posterior.diagnostics["depth"] < 6.0  # no trajectory goes on turning
    assert stats.kstest(independent(posterior, "a"), stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-3
    apart = np.angle(np.exp(1j * (posterior["a"] - posterior["b"] - 1.0)))
    assert apart.std() == pytest.approx(0.05, rel=0.15)  # of 400 draws or more, as above


@pytest.mark.parametrize(("sizes", "expected"), [([1.0, 1.0, -1.0, 0.0], 1), ([1.0, 0.4, 1.0, 0.0], 0)])
def test_combinations_of_whole_angles_are_open(sizes: list[float], expected: int) -> None:
    """Others, as the phases of a position on different baselines, have no turn that is one of each angle."""
    along = np.array([*sizes, 0.0])
    along /= np.linalg.norm(along)
    precision = 1e6 * (np.eye(5) - np.outer(along, along)) + 1e-4 * np.eye(5)
    values, vectors = np.linalg.eigh(precision)
    found = open_angles(values, vectors.T, np.array([True, True, True, False, False]))
    assert found.size == expected


def with_normal_amplitudes(eht: dict[str, np.ndarray], per: str = "scan") -> SkyModel:
    """The exercise with what is known of gains: log-normal amplitudes, phases anywhere."""
    gain = Gain(
        amplitude=PerSegment(LogNormal(0.15), per=per),
        phase=PerSegment(TURN, per=per),
        feeds="ratio",
        ratio_amplitude=LogNormal(0.06),
        ratio_phase=Normal(0, 7, "deg"),
    )
    leakage = Leakage(d_r=Normal(0, 0.1), d_l=Normal(0, 0.1))
    return replace(free_sky(eht), gain=gain, leakage=leakage)


def test_the_exercise_is_normal_in_these_coordinates(
    eht: dict[str, np.ndarray], observation: biro.Observation
) -> None:
    """ln p(z) is ln p(0) - z^2 / 2 to a few tenths; in y alone it is off by hundreds, of 179 dimensions."""
    likelihood = biro.Likelihood(observation, with_normal_amplitudes(eht), backend="cpu")
    laplace = biro.maximise(likelihood, seed=1, starts=true_theta(eht, likelihood)[None]).laplace
    density = Whitened.about(likelihood, laplace)
    z = np.random.default_rng(0).normal(size=(20, likelihood.n_param))
    centre = density.value_and_gradient(np.zeros((1, likelihood.n_param)))[0]
    assert np.abs(centre[1:]).max() < 1e-3  # Newton's method ended there
    off = density.value_and_gradient(z)[:, 0] - centre[0] + 0.5 * (z**2).sum(axis=1)
    # A posterior that is normal has 0. Each 1 would cost about a factor of e in what steps accept.
    assert np.sqrt(np.mean(off**2)) < 0.7
    np.testing.assert_allclose(density.z(density.theta(z)), z, rtol=0, atol=1e-8)  # roundings of a factor


@pytest.mark.thorough
@pytest.mark.parametrize("per", ["scan", "integration"])
def test_nuts_samples_the_exercise(
    eht: dict[str, np.ndarray], observation: biro.Observation, per: str
) -> None:
    """Gains of integrations leave the position open: it ends where priors of either source end."""
    likelihood = biro.Likelihood(observation, with_normal_amplitudes(eht, per), backend="cpu")
    posterior = biro.sample(likelihood, "nuts", seed=1, progress=False)
    facts = posterior.diagnostics
    assert facts["r_hat"] < 1.01
    assert facts["n_divergent"] == 0.0
    assert facts["bfmi"] > 0.5
    # Truth: 27 and -19 uas apart, to 0.05; ratio of flux densities 0.34375 to 0.0002, and others alike.
    for found, truth in (
        (posterior["p.east"] - posterior["g.east"], 27.0),
        (posterior["p.north"] - posterior["g.north"], -19.0),
        (posterior["p.I"] / posterior["g.I"], 0.34375),
        (posterior["g.emaj"], 62.0),
    ):
        assert abs(found.mean() - truth) < 4.0 * found.std()
    if per == "integration":
        # Uniform from -41 (where the point is at -60) to 60.
        assert stats.kstest(independent(posterior, "g.north"), stats.uniform(-41.1, 101.1).cdf).pvalue > 1e-3


def test_a_run_that_has_not_converged_says_how_far_it_is() -> None:
    likelihood = SmoothGaussian([Flat(-9, 9, "gain.phase[A]"), Flat(-9, 9, "b")], [0.0, 0.0], np.eye(2))
    posterior = biro.sample(likelihood, "nuts", n_draw=20, seed=3, progress=False, n_tune=20)
    (line,) = [line for line in posterior.summary().warnings() if line.startswith("NOT CONVERGED")]
    assert line.startswith(f"NOT CONVERGED: R-hat is {posterior.diagnostics['r_hat']:.3f} (good if < 1.01)")
    assert 'To converge, integrate over the gains (gains="marginalise"), or raise n_draw and resume' in line
