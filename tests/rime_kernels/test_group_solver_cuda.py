"""Gains of groups on a GPU: against the CPU's loops, which `test_inner_gains.py` tests by quadrature."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rime_kernels.gains import laplace
from rime_kernels.gains.arrays import Anchor, GainCells, GainGroups, GainSums, GainWork
from rime_kernels.gains.cell_sums import add_slopes, gains_of_cells
from rime_kernels.gains.cuda.tables import MOST, fits
from rime_kernels.gains.maximum import ROOM, WARM, climb_all

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.usefixtures("cuda_backend"),
    pytest.mark.filterwarnings("error::RuntimeWarning"),
]
N_ANTENNA = 4
N_OWN = 2 * N_ANTENNA


class Case:
    """Two groups of four antennas, each with an amplitude and a phase, and cells that have no gain.

    Phases of the first antenna are not in any cell; those of the others are uniform over the circle, or have
    normal priors. One cell has the same coordinate twice, as gains of feeds in common have.
    """

    def __init__(self, strength: float = 100.0, *, turns: bool = True) -> None:
        rng = np.random.default_rng(1)
        entries: list[list[tuple[int, float, bool]]] = []
        for first in (0, N_OWN):
            for p in range(N_ANTENNA):
                for q in range(p + 1, N_ANTENNA):
                    one = [(first + p, 1.0, False), (first + q, 1.5, False)]
                    one += [(first + N_ANTENNA + p, 1.0, True)] if p else []
                    entries.append([*one, (first + N_ANTENNA + q, -1.0, True)])
            entries.append([(first + 1, 1.0, False), (first + 1, 0.5, False)])
            entries.append([])
        size = np.array([len(each) for each in entries])
        flat = [x for each in entries for x in each]
        self.n = 2 * N_OWN
        is_phase = np.arange(self.n) % N_OWN >= N_ANTENNA
        self.cells = GainCells(
            np.concatenate([[0], np.cumsum(size)]),
            np.array([x[0] for x in flat], np.int32),
            np.array([x[1] for x in flat]),
            np.array([x[2] for x in flat]),
        )
        used = np.flatnonzero(size).astype(np.int32)
        begin = np.repeat([0, N_OWN], N_OWN)
        stored = np.concatenate([[0], np.cumsum(np.arange(self.n) - begin + 1)[:-1]])
        nothing, none = np.zeros(0, np.int64), np.zeros(0)
        weight = np.where(is_phase, 1e-4 if turns else 0.3, 50.0)
        self.groups = GainGroups(
            np.array([0, N_OWN, 2 * N_OWN]), np.array([0, used.size // 2, used.size]), used,
            np.zeros(3, np.int64), nothing, nothing, none, none, 0.1 * rng.normal(size=self.n), weight,
            np.where(is_phase & turns, np.arange(self.n), -1), is_phase & turns, begin, stored - begin,
        )  # fmt: skip
        self.x = np.where(is_phase, rng.uniform(-2.0, 2.0, self.n), 0.1 * rng.normal(size=self.n))
        gain, power = self.gain(self.x), strength * rng.uniform(0.5, 2.0, size.size)
        noise = rng.normal(size=size.size) + 1j * rng.normal(size=size.size)
        self.cross, self.power = power * gain + np.sqrt(power) * noise, power

    def gain(self, x: np.ndarray) -> np.ndarray:
        gain = np.empty(self.cells.first.size - 1, np.complex128)
        gains_of_cells(self.cells, x, gain)
        return gain

    def sums(self, flux: float = 1.0) -> GainSums:
        """Of a sky that is brighter by some factor."""
        return GainSums(flux**2 * self.power, flux * self.cross.real, flux * self.cross.imag)

    def solver(self, *, returns: bool = False) -> Any:
        from rime_kernels.gains.cuda.solver import GroupSolver

        is_phase = np.arange(self.n) % N_OWN >= N_ANTENNA
        return GroupSolver(self.cells, self.groups, is_phase & returns)

    def anchor(self, x: np.ndarray | None = None) -> Anchor:
        """The anchor of the sums of the sky, at the truth or elsewhere."""
        return Anchor(self.x if x is None else x, *self.sums(), np.full(2, ROOM))

    def by_host(
        self, sums: GainSums, groups: GainGroups | None = None
    ) -> tuple[np.ndarray, float, list[np.ndarray]]:
        """The maximum, ln of the determinant, and slopes, by the CPU's loops from the truth."""
        x, steps, found = self.x.copy(), np.empty(2), np.empty(2)
        work, n_cell = GainWork.of(self.n, int(self.groups.row[-1]) + self.n, 2), self.power.size
        groups = self.groups if groups is None else groups
        climb_all(self.cells, groups, sums, x, np.full(2, WARM, np.int8), work, np.empty(self.n), steps)
        assert (steps >= 0).all()
        slopes = [np.full(n_cell, -0.5), np.ones(n_cell), np.zeros(n_cell)]
        by_priors, moved = (np.empty(self.n), np.empty(0), np.empty(0)), np.empty((1, self.n))
        where = self.cells, groups, sums, x
        laplace.sensitivities(*where, np.empty((self.n, 0)), work, found, moved[0], *slopes, *by_priors)
        log_determinant = float(found.sum())
        laplace.solutions(*where, True, work.step, work.matrix, found, moved)
        laplace.add_moves(self.cells, groups, x, moved[0], *slopes, *by_priors)
        return x, log_determinant, slopes


def sent(sums: GainSums) -> Any:
    from rime_kernels import device

    return device.upload(np.array(sums))


def f_of(case: Case, sums: GainSums, x: np.ndarray) -> tuple[float, float]:
    """What cells and priors have of f, by its definition."""
    gain, groups = case.gain(x), case.groups
    r = gain.conj() * (sums.real + 1j * sums.imag)
    of_cells = (0.5 * np.abs(gain) ** 2 * sums.power - r.real).sum()
    return float(of_cells), float(0.5 * (groups.weight * (x - groups.middle) ** 2).sum())


# Of phases that data say much of and little of: P counts in the second.
@pytest.mark.parametrize("strength", [1000.0, 3.0])
def test_from_sky_to_sky_as_on_the_cpu(strength: float) -> None:
    case = Case(strength)
    solver = case.solver()
    assert solver.best(case.groups, sent(case.sums())) is None  # nothing is known yet
    solver.place(case.anchor())
    for flux in (1.0, 1.0001, 1.02, 0.99):
        sums = case.sums(flux)
        x, log_determinant, slopes = case.by_host(sums)
        found = solver.best(case.groups, sent(sums))
        # The search ends where a step gains less than 1e-13 for each coordinate: 1e-6 of its error, before
        # that step is made, which squares what is left, or multiplies it by 1e-2 where a matrix is kept.
        np.testing.assert_allclose(found.x, x, atol=1e-7 / np.sqrt(strength))
        assert (found.of_cells, found.of_priors) == pytest.approx(f_of(case, sums, found.x), rel=1e-12)
        assert solver.log_determinant(case.groups) == pytest.approx(log_determinant, abs=1e-8)
        value, by_scale, there = solver.slopes(case.groups)
        assert value == pytest.approx(log_determinant, abs=1e-8)
        for one, other in zip(there, slopes, strict=True):
            np.testing.assert_allclose(one.copy_to_host(), other, atol=1e-8)
        total, gain = np.empty(sums.power.size), case.gain(x)
        add_slopes(gain, sums, slopes[0] + 0.5, slopes[1] - 1.0, slopes[2], total)
        assert by_scale == pytest.approx(total.sum(), abs=1e-6)
        np.testing.assert_allclose(solver.gain.copy_to_host().view(complex), gain, atol=1e-7)


def test_results_repeat_to_the_bit() -> None:
    case, found = Case(), []
    for _ in range(2):
        solver = case.solver()
        solver.place(case.anchor())
        best = solver.best(case.groups, sent(case.sums(1.01)))
        found.append([best.x.tolist(), best.of_cells, solver.slopes(case.groups)[0]])
    assert found[0] == found[1]


def test_what_is_far_or_has_no_maximum_is_left_to_the_cpu() -> None:
    """And so is all where a group has no anchor; the anchors stay as they were."""
    case = Case()
    solver = case.solver()
    solver.place(case.anchor())
    before = solver.best(case.groups, sent(case.sums()))
    away = case.sums()
    turned = GainSums(away.power, -away.real, -away.imag)
    assert solver.best(case.groups, sent(turned)) is None
    assert solver.best(case.groups, sent(GainSums(np.nan * away.power, away.real, away.imag))) is None
    again = solver.best(case.groups, sent(case.sums()))
    np.testing.assert_allclose(again.x, before.x, atol=1e-8)
    solver.place(case.anchor()._replace(room=np.array([ROOM, 0.0])))
    assert solver.best(case.groups, sent(case.sums())) is None


def test_phases_come_back_within_half_a_turn() -> None:
    """With normal priors; a whole turn away is another maximum, of lower density."""
    case = Case(turns=False)
    turn = np.where(np.arange(case.n) == N_ANTENNA + 2, 2.0 * np.pi, 0.0)
    wanted, _, _ = case.by_host(case.sums())
    for returns in (False, True):
        solver = case.solver(returns=returns)
        solver.place(case.anchor(wanted + turn))
        found = solver.best(case.groups, sent(case.sums()))
        assert (np.abs(found.x - wanted).max() < 1e-7) == returns


def test_priors_follow_their_arrays() -> None:
    case = Case()
    solver = case.solver()
    solver.place(case.anchor())
    solver.best(case.groups, sent(case.sums()))
    narrow = case.groups._replace(weight=1.5 * case.groups.weight)
    x, log_determinant, _ = case.by_host(case.sums(), narrow)
    found = solver.best(narrow, sent(case.sums()))
    np.testing.assert_allclose(found.x, x, atol=1e-8)
    assert solver.log_determinant(narrow) == pytest.approx(log_determinant, abs=1e-8)


def test_what_there_are_kernels_for() -> None:
    case = Case()
    assert fits(case.cells, case.groups)
    link = np.zeros(1, np.int64)
    assert not fits(case.cells, case.groups._replace(later=link, earlier=link))
    assert not fits(case.cells, case.groups._replace(first=np.array([0, MOST + 1])))
