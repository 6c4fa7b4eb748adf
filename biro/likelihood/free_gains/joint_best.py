"""Gains and linear parameters of the sky that fit best together, and the integral over both (Laplace).

Visibilities are V = V_0 + sum_k z_k T_k; z have standard normal priors, x are the coordinates of the gains.
Where F(x, z) = -ln L - ln prior is least, its second derivatives are those of x, H, in groups, with a border
that touches all groups:

    [ H   B ]      det = det(H + P) det M,     M = C - B^T (H + P)^-1 B
    [ B^T C ]

(Golub & Van Loan 2013, section 3.2.11; P: `rime_kernels.gains.laplace`). B consists of what cells have: with
a and p the real and the imaginary part of the logarithm of a cell's gain g, and sums over its visibilities,

    d2F/da dz_k = 2 Re c_k - Re r_k,    d2F/dp dz_k = -Im r_k
    c_k = |g|^2 sum w conj(V) T_k,      r_k = conj(g) sum w D conj(T_k)

The search is Newton's in z, by the rules of `rime_kernels.gains.newton`: of the least F over x at each z,
whose second derivatives are M without P.

Derivatives of the integral need half the trace of S times the second derivatives, S being their inverse, that
is held. Beside what gains have alone (`laplace`), this is

    Re sum w (2 |g|^2 conj(V) A - g conj(D) U) + sum w |g|^2 T^H M^-1 T / 2

with A = sum_k Re(E_k) T_k and U = sum_k E_k T_k, where E are the sums over the coordinates of a cell, phases
times i, of -(H + P)^-1 B M^-1. The maximum moves: this adds the derivatives, by V and T, of the slope of F
along q = (second derivatives)^-1 t, with t those of half ln det by x and z.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.free_gains.best_gains import BestGains, LaplaceVolume
from biro.likelihood.free_gains.expected import expected
from biro.likelihood.free_gains.linear_sky import JointSlopes, LinearSky
from biro.likelihood.free_gains.visibilities_of_cells import VisibilitiesOfCells
from biro.models.bound.antenna_terms.normal_priors import NormalPriors
from rime_kernels.gains.newton import SHORTER, TRIALS, has_arrived, is_better

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
_MOST = 60
"""Steps of a search."""
_N_DRAW = 100
"""Draws of linear parameters, to measure how good the integral over them is."""


class _LaplaceVolume(NamedTuple):
    """Derivatives of the determinant where the maximum is held; of each visibility, but for `gains`.

    Attributes
    ----------
    gains : LaplaceVolume
    of_x : complex128 (n_linear, n_vis)
        E.
    a : complex128 (n_vis,)
        A.
    spread : complex128 (n_linear, n_vis)
        M^-1 T.
    square, mixed : float64 (n_vis,)
        |g|^2 T^H M^-1 T, and 2 |g|^2 Re(conj(V) A).
    crossed : complex128 (n_vis,)
        g conj(D) U.
    """

    gains: LaplaceVolume
    of_x: Complex
    a: Complex
    spread: Complex
    square: Array
    mixed: Array
    crossed: Complex


class JointBest:
    """Linear parameters z, and the gains that fit best beside them.

    Parameters
    ----------
    of : VisibilitiesOfCells
    sky : LinearSky
    factor : float64 (n_partition,)
    priors : NormalPriors
    z : float64 (n_linear,)
    x : float64 (n,)
        Coordinates of gains from which the search for the best ones begins, in the order of groups.
    cold : bool
        Whether that search begins anew instead.
    climb : bool
        Whether there is one: without, gains stay at x.
    """

    def __init__(
        self,
        of: VisibilitiesOfCells,
        sky: LinearSky,
        factor: Array,
        priors: NormalPriors,
        z: Array,
        x: Array,
        *,
        cold: bool = False,
        climb: bool = True,
    ) -> None:
        self.of, self.sky, self.factor, self.priors, self.z = of, sky, factor, priors, z
        self.data, self.vis = of.data, sky.base + z @ sky.responses
        self.gains = self._gains_with(self.vis, x)
        if climb:
            self.gains.climb(warm=not cold)

    def moved(self, z: Array, x: Array) -> JointBest:
        """The best gains at another z."""
        return JointBest(self.of, self.sky, self.factor, self.priors, z, x)

    def climbed(self) -> JointBest | None:
        """The maximum, None where there is none."""
        at, n = self, self.z.size
        for _ in range(_MOST):
            if not (at.gains.converged and np.isfinite(at.value)):
                return None
            solved = at.newton
            if solved is None:
                return None
            step, gain, moves = solved
            if has_arrived(gain, n, at.value, 1.0, True):
                return at.moved(at.z + step, at.gains.x - moves @ step)
            part, better = 1.0, None
            for _ in range(TRIALS):
                trial = at.moved(at.z + part * step, at.gains.x - part * (moves @ step))
                if trial.gains.converged and is_better(trial.value, at.value, gain * part, 1.0):
                    better = trial
                    break
                part *= SHORTER
            if better is None:
                return None
            at = better
        return None

    @property
    def newton(self) -> tuple[Array, float, Array] | None:
        """A step of z, what it should gain (twice), and H^-1 B; None where there is none.

        Of the exact second derivatives, or of those of Gauss and Newton where these are not positive.
        """
        for exact in (True, False):
            border = self.border if exact else self.expected_border
            moves = border.T.copy()
            if not self.gains.solve(moves, exact=exact):
                continue
            inner = self.corner - border.T @ moves.T
            try:
                lower = np.linalg.cholesky(inner)
            except np.linalg.LinAlgError:
                continue
            half = np.linalg.solve(lower, self.slope)
            return -np.linalg.solve(lower.T, half), float(half @ half), moves.T
        return None

    @cached_property
    def value(self) -> float:
        """F, but for a constant."""
        sums, gain = self.gains.sums, self.gains.gain
        real = gain.real * sums.real + gain.imag * sums.imag
        of_data = float((0.5 * np.abs(gain) ** 2 * sums.power - real).sum())
        return of_data + 0.5 * float(self.z @ self.z) + self.gains.of_normal_priors

    @property
    def chi2(self) -> Array:
        """sum w |D - g V|^2 of each partition, float64 (n_partition,), with weights as they are."""
        return self.gains.chi2

    @property
    def log_prior(self) -> float:
        """ln of the prior's density, per unit of the coordinates of gains and of z, without (2 pi)^(-n/2)."""
        return self.gains.log_prior - 0.5 * float(self.z @ self.z)

    @cached_property
    def _gain(self) -> Complex:
        """g of each visibility."""
        return np.asarray(self.gains.gain[self.of.cell])

    @cached_property
    def weight(self) -> Array:
        """w of each visibility, with the noise factors."""
        return self.sky.weight / self.factor[self.of.partition] ** 2

    @cached_property
    def _power(self) -> Array:
        """|g|^2 of each visibility."""
        return np.abs(self._gain) ** 2

    @cached_property
    def _turned(self) -> Complex:
        """conj(g) D."""
        return np.conj(self._gain) * self.data

    @cached_property
    def slope(self) -> Array:
        """dF/dz, float64 (n_linear,)."""
        return self.z + self._along(self._power * self.vis - self._turned)

    @cached_property
    def corner(self) -> Array:
        """C, float64 (n_linear, n_linear)."""
        root = np.ascontiguousarray(np.sqrt(self.weight * self._power) * self.sky.responses).view(np.float64)
        return np.asarray(np.eye(self.z.size) + root @ root.T)

    @property
    def linear(self) -> Array:
        """The z that are best beside these gains, float64 (n_linear,)."""
        return self.z - np.linalg.solve(self.corner, self.slope)

    @cached_property
    def _c(self) -> Complex:
        """c_k of cells, complex128 (n_cell, n_linear)."""
        return np.asarray(
            self.of.to_cells @ (self.weight * self._power * np.conj(self.vis) * self.sky.responses).T
        )

    @cached_property
    def border(self) -> Array:
        """B, float64 (n, n_linear)."""
        r = self.of.to_cells @ (self.weight * self._turned * np.conj(self.sky.responses)).T
        return self.of.free.layout.slopes(2.0 * self._c.real - r)

    @property
    def expected_border(self) -> Array:
        """B as it is on average over data, that of Gauss and Newton."""
        return self.of.free.layout.slopes(self._c)

    @cached_property
    def _integral(self) -> tuple[float, Array, Array]:
        """ln of the volume, Y (n, n_linear), and the lower factor of M; NaN where they are not positive."""
        moves = self.border.T.copy()
        volume = self.gains.log_volume_and_solutions(moves)
        inner = self.corner - self.border.T @ moves.T
        try:
            lower = np.asarray(np.linalg.cholesky(inner), np.float64)
        except np.linalg.LinAlgError:
            lower = np.full(inner.shape, np.nan)
        return volume - float(np.log(np.diag(lower)).sum()), moves.T, lower

    @property
    def log_volume(self) -> float:
        """(n/2) ln 2 pi - (1/2) ln det of the second derivatives; NaN where they are not positive."""
        return self._integral[0]

    def _held(self) -> _LaplaceVolume:
        """What the determinant changes by where the maximum is held."""
        _, moves, lower = self._integral
        inverse = np.linalg.inv(lower)
        covariance = inverse.T @ inverse
        held = self.gains.held(np.ascontiguousarray(moves @ inverse.T))
        of_x = (-(self.of.free.layout.logs @ moves) @ covariance)[self.of.cell].T
        responses, spread = self.sky.responses, covariance @ self.sky.responses
        a, u = np.sum(of_x.real * responses, axis=0), np.sum(of_x * responses, axis=0)
        square = self._power * np.sum(np.conj(responses) * spread, axis=0).real
        mixed = 2.0 * self._power * (np.conj(self.vis) * a).real
        return _LaplaceVolume(held, of_x, a, spread, square, mixed, np.conj(self._turned) * u)

    def slopes(self) -> JointSlopes:
        """`log_volume`, and the derivatives of the integral."""
        of, gains, responses, own = self.of, self.gains, self.sky.responses, self._held()
        w, power, turned, held = self.weight, self._power, self._turned, own.gains
        by_log = of.to_cells @ (w * (2.0 * own.mixed - own.crossed.real + own.square))
        by_phase = of.to_cells @ (w * own.crossed.imag)
        slope = held.slope + self.of.free.layout.slopes(by_log + 1j * by_phase)
        of_maximum = gains.slopes()
        alone = [one - other for one, other in zip(held.slopes, of_maximum, strict=True)]
        by_z = -self._along(self._by_cells(alone) - 2.0 * power * own.a)
        moved, moved_z = self._moved(slope, by_z)
        gains.add_moves(held, moved)
        along = moved_z @ responses
        residual = power * self.vis - turned
        by_vis = self._by_cells(held.slopes) + power * (along - 2.0 * own.a)
        by_responses = np.conj(own.of_x) * turned - 2.0 * power * own.of_x.real * self.vis
        by_responses += moved_z[:, None] * residual - power * own.spread
        half = self._half(own) - (np.conj(residual) * along).real
        scale = self.factor[of.partition] ** -2
        by_priors = gains.of_priors(held)
        return JointSlopes(self.log_volume, scale * by_vis, scale * by_responses, half, by_priors)

    def expected_half(self) -> Array:
        """h of `biro.likelihood.free_gains.expected`, float64 (n_vis,), Jy^2."""
        found = JointBest(self.of, self.sky, self.factor, self.priors, self.z, self.gains.x, climb=False)
        found.data, found.gains = found._gain * found.vis, expected(found.gains)
        return found._half(found._held())

    def _half(self, own: _LaplaceVolume) -> Array:
        """`half` of `JointSlopes`, but for how z moves; how gains move is in it after `add_moves`."""
        vis, turned = self.vis, self._turned
        by_power, real, imag = (each[self.of.cell] for each in own.gains.slopes)
        half = 0.5 * np.abs(self.data) ** 2 - by_power * self._power * np.abs(vis) ** 2
        half -= ((real - 1j * imag) * np.conj(vis) * turned).real
        return np.asarray(half + own.mixed - own.crossed.real + 0.5 * own.square)

    def slopes_of_maximum(self) -> tuple[Complex, Array]:
        """`by_vis` and `half` of `JointSlopes`, both (n_vis,), of ln L alone: z and the gains are held."""
        scale = self.factor[self.of.partition] ** -2
        left = 0.5 * np.abs(self.data - self._gain * self.vis) ** 2
        return scale * (self._turned - self._power * self.vis), left

    def _moved(self, slope: Array, by_z: Array) -> tuple[Array, Array]:
        """q of gains (n,) and of z (n_linear,), of derivatives t by both."""
        vectors = np.vstack([slope, self.border.T])
        self.gains.solve(vectors)
        own, moves = vectors[0], vectors[1:]
        inner = self.corner - self.border.T @ moves.T
        moved_z = np.linalg.solve(inner, by_z - self.border.T @ own)
        return own - moved_z @ moves, moved_z

    def draw(self, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """Coordinates of gains (n,), z, and chi2 (n_partition,) of a draw of the normal approximation."""
        _, moves, lower = self._integral
        change = np.linalg.solve(lower.T, rng.standard_normal(self.z.size))
        x = self.gains.draw(rng) - moves @ change
        vis = self.vis + change @ self.sky.responses
        return x, self.z + change, self._gains_with(vis, x).chi2

    def log_weights(self, rng: np.random.Generator) -> Array:
        """ln of true over approximate density of draws of z, float64 (n_draw, 1).

        The true one is that of the integral over gains at z, as Laplace has it.
        """
        _, _, lower = self._integral
        at_best, found = self.gains.log_volume() - self.value, np.empty((_N_DRAW, 1))
        for k in range(_N_DRAW):
            noise = rng.standard_normal(self.z.size)
            one = self.moved(self.z + np.linalg.solve(lower.T, noise), self.gains.x)
            volume = one.gains.log_volume() if one.gains.converged else np.nan
            ratio = volume - one.value - at_best + 0.5 * float(noise @ noise)
            found[k] = ratio if np.isfinite(ratio) else -np.inf
        return found

    def _along(self, vis: Complex) -> Array:
        """Re sum w conj(T) of visibilities, float64 (n_linear,)."""
        weighted = np.ascontiguousarray(self.weight * vis, np.complex128).view(np.float64)
        return np.asarray(self.sky.responses.view(np.float64) @ weighted)

    def _by_cells(self, slopes: Sequence[Array]) -> Complex:
        """Derivatives by V of what has these by m, Re r and Im r of cells (`cell_sums.slopes_of_rows`)."""
        power, real, imag = (each[self.of.cell] for each in slopes)
        return np.asarray(2.0 * power * self._power * self.vis + (real - 1j * imag) * self._turned)

    def _gains_with(self, vis: Complex, x: Array) -> BestGains:
        of = self.of
        models = of.free.of_visibilities(of.parts(vis), of.parts(self.sky.weight))
        return BestGains(of.free, models, self.factor, x, self.priors)
