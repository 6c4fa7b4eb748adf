"""The gains that fit the visibilities of a model best, and the integral over all gains about them (Laplace).

    ln Z = ln L + ln prior + (n/2) ln 2 pi - (1/2) ln det H

at the maximum over the n coordinates of the gains (`biro.models.bound.antenna_terms.log_gains`), H minus the
second derivatives there (MacKay 2003, chapter 27). The integral is exact where ln L is a parabola over the
range that data and prior leave to the gains. The range of a phase with a uniform prior ends; what is done
where the data say little of it stands in `rime_kernels.gains.laplace`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.free_gains.gain_problem import GainProblem, Visibilities
from biro.likelihood.free_gains.layout import HOLD, PIN, PartitionCells
from biro.models.bound.antenna_terms.normal_priors import NormalPriors
from rime_kernels import Gradient
from rime_kernels.compile.call_lock import CALL_LOCK
from rime_kernels.gains import cell_sums, laplace
from rime_kernels.gains.arrays import Anchor, GainGroups, GainSums
from rime_kernels.gains.maximum import COLD, WARM, climb_all, make_anchors, near
from rime_kernels.gains.models import CellModel, HostModel
from rime_kernels.resident_model import ResidentModel

if TYPE_CHECKING:
    from rime_kernels.gains.cuda.solver import Found, GroupSolver

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
Slopes = tuple[Array, Array, Array]
"""By m, Re r and Im r of each cell (`rime_kernels.gains.curvature`), float64 (n_cell,)."""
_TURN = 2.0 * np.pi
_LOG_2PI = float(np.log(_TURN))
_ROUNDING = 1e-15
"""Error of sums over cells, relative to the sum w |D|^2, which they nearly cancel in chi2."""
MATTERS = 1e-4
"""Error of chi2."""


class LaplaceVolume(NamedTuple):
    """ln of the volume of an integral over gains, and derivatives where the maximum is held.

    Attributes
    ----------
    log_volume : float
    slope : float64 (n,)
        Of ln det(H + P) / 2 by the coordinates.
    slopes : Slopes
        Of the integral by the sums of cells.
    by_priors : NormalPriors
        The same by the priors, by groups.
    """

    log_volume: float
    slope: Array
    slopes: Slopes
    by_priors: NormalPriors


class BestGains:
    """The gains that fit the visibilities of one sky best.

    Parameters
    ----------
    free : GainProblem
    models : sequence of CellModel
    factor : float64 (n_partition,)
    x : float64 (n,)
        Coordinates, in the order of groups.
    priors : NormalPriors

    Attributes
    ----------
    groups : Groups
        With these priors.
    x : float64 (n,)
    converged : bool
    """

    def __init__(
        self, free: GainProblem, models: Sequence[CellModel], factor: Array, x: Array, priors: NormalPriors
    ) -> None:
        self.free, self.models, self.factor, self.x, self.priors = free, models, factor, x, priors
        is_known = priors is free.gains.priors.known
        self.groups: GainGroups = free.layout.groups if is_known else free.layout.with_priors(priors)
        self.converged = True

    def climb(self, *, warm: bool) -> None:
        """Go to the maximum; from x, if `warm`, or from where a search begins anew."""
        self._climb(np.full(self.free.layout.n_group, WARM if warm else COLD, np.int8))

    def near(self, anchor: Anchor) -> NDArray[np.int8]:
        """Where the search of each group begins, (n_group,): at an anchor, or from the data."""
        start = np.empty(self.free.layout.n_group, np.int8)
        with CALL_LOCK:
            near(self.free.layout.cells, self.groups, self.sums, anchor, self.free.work, start)
        return start

    def climb_from(self, anchor: Anchor) -> None:
        """Go to the maximum from that of similar data, or from the data alone, whose maximum is kept then."""
        layout, start = self.free.layout, self.near(anchor)
        self.x = anchor.x
        cold, steps = self._climb(start)
        if (start == COLD).any():
            with CALL_LOCK:
                make_anchors(layout.cells, self.groups, self.sums, self.x, start, cold, steps, anchor)

    def _climb(self, start: NDArray[np.int8]) -> tuple[Array, Array]:
        """Go to the maximum: where searches without a start began (n,), and how many steps all took."""
        layout, work, steps = self.free.layout, self.free.work, np.empty(self.free.layout.n_group)
        self.x, cold = self.x.copy(), np.zeros(layout.n)
        with CALL_LOCK:
            climb_all(layout.cells, self.groups, self.sums, self.x, start, work, cold, steps)
            if self._turn_back():
                warm = np.full_like(start, WARM)
                climb_all(layout.cells, self.groups, self.sums, self.x, warm, work, cold, steps)
        self.converged, self.free.latest = bool((steps >= 0).all() and np.isfinite(self.x).all()), self
        return cold, steps

    def _turn_back(self) -> bool:
        """Bring phases within half a turn of the means of their priors: whether any was not.

        Those of a process follow the phase before. Whole turns change no data, but priors: without this, what
        a search began at would decide the value.
        """
        groups, away = self.groups, self.x - self.groups.middle
        turns = np.rint(np.where(self.free.returns, away, 0.0) / _TURN)
        later, earlier, keep = groups.later, groups.earlier, groups.keep
        over = np.abs(away[later] - keep * away[earlier]) > 0.5 * _TURN
        if not (turns.any() or (over & self.free.layout.is_angle[later]).any()):
            return False
        away -= _TURN * turns
        for k in np.flatnonzero(self.free.layout.is_angle[later]):  # in the order of each process
            step = away[later[k]] - keep[k] * away[earlier[k]]
            away[later[k]] -= _TURN * np.rint(step / _TURN)
        self.x = groups.middle + away
        return True

    @cached_property
    def sums(self) -> GainSums:
        """Sums over all cells, by noise factors."""
        sums = [model.sums(factor**-2) for _, model, factor in self._each()]
        return GainSums(*(sums[0] if len(sums) == 1 else np.concatenate(sums, axis=1)))

    @cached_property
    def gain(self) -> Complex:
        """Product of the gains of the two antennas of each cell, complex128 (n_cell,)."""
        return self._gains_at(self.x)

    def _each(self) -> Iterator[tuple[PartitionCells, CellModel, float]]:
        return zip(self.free.layout.partitions, self.models, self.factor.tolist(), strict=True)

    @cached_property
    def chi2(self) -> Array:
        """sum w |D - g V|^2 of each partition, float64 (n_partition,), with weights as they are."""
        return self._chi2_with(self.gain)

    def chi2_at(self, x: Array) -> Array:
        """chi-squared for other coordinates of the gains, (n,) in the order of groups."""
        return self._chi2_with(self._gains_at(x))

    def _chi2_with(self, gain: Complex) -> Array:
        return self.free.left_out + [model.chi2(own.own(gain)) for own, model, _ in self._each()]

    @property
    def log_prior(self) -> float:
        """ln of the prior's density at the best gains, per unit of their coordinates."""
        # A phase that nothing determines has a normal prior in place of the uniform one.
        pinned = 0.5 * (_LOG_2PI + np.log(PIN)) * self.free.layout.pinned.size
        # What holds phases is taken back as it is on average over the circle.
        held = 0.5 * HOLD * np.pi**2 / 3.0 * self.free.layout.n_held
        log_norm = self.free.gains.log_flat + self.priors.log_norm
        return float(log_norm + pinned + held - self.of_normal_priors)

    @property
    def of_normal_priors(self) -> float:
        """Half the sum of squares of normal priors, over their variances."""
        groups, away = self.groups, self.x - self.groups.middle
        linked = away[groups.later] - groups.keep * away[groups.earlier]
        return float(0.5 * ((groups.weight * away**2).sum() + (groups.link_weight * linked**2).sum()))

    def log_volume(self) -> float:
        """(n/2) ln 2 pi - (1/2) ln det H, NaN where H is not positive."""
        layout, found = self.free.layout, np.empty(self.free.layout.n_group)
        with CALL_LOCK:
            laplace.determinants(layout.cells, self.groups, self.sums, self.x, self.free.work, found)
        self.free.leave(self)
        return float(0.5 * (layout.n * _LOG_2PI - found.sum()))

    def log_volume_and_solutions(self, vectors: Array) -> float:
        """`log_volume`; replaces vectors (n_vector, n) by (H + P)^-1 times them."""
        volume = self.log_volume()
        with CALL_LOCK:
            laplace.solve_all(self.groups, self.free.work.matrix, vectors)
        return volume

    def log_volume_and_slopes(self) -> tuple[float, Slopes, NormalPriors | None]:
        """`log_volume`, and the derivatives of the integral by the sums of cells and by the priors."""
        held = self.held(np.empty((self.free.layout.n, 0)))
        moved = held.slope[None].copy()
        self.solve(moved)
        self.add_moves(held, moved[0])
        return held.log_volume, held.slopes, self.of_priors(held)

    def held(self, border: Array) -> LaplaceVolume:
        """`log_volume` and its derivatives, the maximum being held, beside a border (n, n_border)."""
        layout, found = self.free.layout, np.empty(self.free.layout.n_group)
        slope, slopes = np.empty(layout.n), self.slopes()
        by = NormalPriors(np.zeros(layout.n), *np.zeros((2, layout.link_order.size)))
        where = layout.cells, self.groups, self.sums, self.x, border, self.free.work
        with CALL_LOCK:
            laplace.sensitivities(*where, found, slope, *slopes, *by)
        return LaplaceVolume(float(0.5 * (layout.n * _LOG_2PI - found.sum())), slope, slopes, by)

    def solve(self, vectors: Array, *, exact: bool = True) -> bool:
        """Replace vectors (n_vector, n) by H^-1 times them: whether H is positive.

        H are the exact second derivatives, or those of Gauss and Newton.
        """
        layout, work, found = self.free.layout, self.free.work, np.empty(self.free.layout.n_group)
        where = layout.cells, self.groups, self.sums, self.x, exact
        with CALL_LOCK:
            laplace.solutions(*where, work.step, work.matrix, found, vectors)
        work.has_factor[:] = np.isfinite(found)
        self.free.leave(self)
        return bool(np.isfinite(found).all())

    def add_moves(self, held: LaplaceVolume, moved: Array) -> None:
        """Add how the maximum moves: `moved` (n,) is H^-1 times the slope of `held`."""
        where = self.free.layout.cells, self.groups, self.x, moved
        with CALL_LOCK:
            laplace.add_moves(*where, *held.slopes, *held.by_priors)

    def of_priors(self, held: LaplaceVolume) -> NormalPriors:
        """Derivatives of the integral by the priors, with their normalisation, in the order of `LogGains`."""
        pairs = zip(self.priors.log_norm_slopes, self.free.layout.of_coordinates(held.by_priors), strict=True)
        return NormalPriors(*(one + other for one, other in pairs))

    def slopes(self) -> Slopes:
        """Derivatives of ln L by the sums of cells: of a maximum, by the envelope theorem."""
        n = self.gain.size
        return np.full(n, -0.5), np.ones(n), np.zeros(n)

    def pulled(self, slopes: Slopes) -> list[Gradient]:
        """Derivatives by the sources of each partition, of what has these slopes by the sums of cells."""
        found = []
        for own, model, factor in self._each():
            by_power, real, imag = (factor**-2 * own.own(each) for each in slopes)
            found.append(model.pulled(own.own(self.gain), by_power, real + 1j * imag))
        return found

    def by_factor(self, slopes: Slopes) -> Array:
        """Derivatives of what a determinant adds to ln L, by the noise factors, float64 (n_partition,)."""
        of_cell = np.empty(self.gain.size)
        # Of the determinant alone: those of the maximum are -1/2 and 1.
        by_power, by_real, by_imag = slopes[0] + 0.5, slopes[1] - 1.0, slopes[2]
        with CALL_LOCK:
            cell_sums.add_slopes(self.gain, self.sums, by_power, by_real, by_imag, of_cell)
        total = [own.own(of_cell).sum() for own in self.free.layout.partitions]
        return -2.0 * np.array(total) / self.factor

    def response(self, models: Sequence[HostModel], changes: Visibilities) -> Complex:
        """How ln gains of cells change, as Gauss and Newton have it, where visibilities change: (n_cell,).

        Parameters
        ----------
        models : sequence of HostModel
            Those of which these are the best gains.
        changes : sequence of complex (n_row, n_chan, n_corr), Jy
            Of the model without the fitted gains, of each partition.
        """
        layout = self.free.layout
        each = zip(layout.partitions, models, changes, self.factor, strict=True)
        total = np.concatenate([m.changes(dv, own.own(self.gain)) / s**2 for own, m, dv, s in each])
        moved = layout.slopes(total)[None]
        self.solve(moved, exact=False)
        return np.asarray(layout.logs @ moved[0])

    def log_weights(self, n_draw: int, rng: np.random.Generator) -> Array:
        """ln of true over approximate density of draws of the normal approximation, (n_draw, n_group)."""
        layout = self.free.layout
        noise, found = rng.standard_normal((n_draw, layout.n)), np.empty((n_draw, layout.n_group))
        work = np.empty(layout.n), np.empty(layout.n_stored), np.empty(layout.n)
        with CALL_LOCK:
            laplace.importance(layout.cells, self.groups, self.sums, self.x, *work, noise, found)
        return found

    def _gains_at(self, x: Array) -> Complex:
        """Gains of cells, complex128 (n_cell,)."""
        gain = np.empty(self.free.layout.cells.first.size - 1, np.complex128)
        with CALL_LOCK:
            cell_sums.gains_of_cells(self.free.layout.cells, x, gain)
        return gain

    def draw(self, rng: np.random.Generator) -> Array:
        """Coordinates drawn from the normal approximation about the best ones, (n,), by groups."""
        layout = self.free.layout
        first, second = np.empty((2, layout.n))
        work = first, np.empty(layout.n_stored), second, np.empty(layout.n_group)
        noise = rng.standard_normal((1, layout.n))
        with CALL_LOCK:
            laplace.draws(layout.cells, self.groups, self.sums, self.x, *work, noise)
        return np.asarray(self.x + noise[0])

    def parameters(self, x: Array) -> Array:
        """Parameters of coordinates, both (n,), in the order of `LogGains` and of groups."""
        place = self.free.layout.place
        found: Array = self.free.gains.parameters(x[None, place], self.priors)[0]
        return found


class DeviceGains(BestGains):
    """Best gains that were found on a device, where what is asked for next is computed, too.

    What another search has taken the place of there meanwhile, and all else, is computed on the CPU.

    Parameters
    ----------
    free : GainProblem
    model : ResidentModel
    factor : float64 (1,)
    solver : GroupSolver
    found : Found
        What its last search has given.
    """

    def __init__(
        self, free: GainProblem, model: ResidentModel, factor: Array, solver: GroupSolver, found: Found
    ) -> None:
        super().__init__(free, [model], factor, found.x, free.gains.priors.known)
        self._model, self._solver, self._found, self._turn = model, solver, found, solver.turn
        self._by_scale = 0.0

    @cached_property
    def chi2(self) -> Array:
        """chi-squared by the sums of cells, where this loses no digits that matter."""
        square = self.free.square_of_data(self._model)
        if square * _ROUNDING > MATTERS:
            return self._chi2_with(self.gain)
        return self.free.left_out + square + 2.0 * self.factor**2 * self._found.of_cells

    @property
    def of_normal_priors(self) -> float:
        """See `BestGains`."""
        return self._found.of_priors

    @property
    def _is_last(self) -> bool:
        """Whether what the device has is that of this maximum."""
        return self._turn == self._solver.turn

    def log_volume(self) -> float:
        """See `BestGains`."""
        if not self._is_last:
            return super().log_volume()
        with CALL_LOCK:
            log_determinant = self._solver.log_determinant(self.free.layout.groups)
        return 0.5 * (self.free.layout.n * _LOG_2PI - log_determinant)

    def log_volume_and_slopes(self) -> tuple[float, Slopes, NormalPriors | None]:
        """Log volume and its derivatives, which are on the device; none are by priors, which are known."""
        if not self._is_last:
            return super().log_volume_and_slopes()
        with CALL_LOCK:
            log_determinant, self._by_scale, slopes = self._solver.slopes(self.free.layout.groups)
        return 0.5 * (self.free.layout.n * _LOG_2PI - log_determinant), slopes, None

    def pulled(self, slopes: Slopes) -> list[Gradient]:
        """See `BestGains`."""
        if isinstance(slopes[0], np.ndarray):
            return super().pulled(slopes)
        assert self._is_last, "derivatives on the device are used before the next search"
        return [self._model.pulled_on_device(float(self.factor[0]) ** -2, self._solver.gain, slopes)]

    def by_factor(self, slopes: Slopes) -> Array:
        """See `BestGains`."""
        if isinstance(slopes[0], np.ndarray):
            return super().by_factor(slopes)
        return np.asarray(-2.0 * self._by_scale / self.factor)
