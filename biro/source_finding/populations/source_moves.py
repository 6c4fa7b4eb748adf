"""Moves that leave the number of sources as it is: a source is exchanged, or all drift along the gradient."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.models.components.population import log_share
from biro.source_finding.populations.flux_proposal import FluxProposals
from biro.source_finding.populations.likelihoods import PopulationLikelihood
from biro.source_finding.populations.number_moves import Walkers
from biro.source_finding.populations.scales import Scales
from biro.source_finding.populations.space import SIZES

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Mask = NDArray[np.bool_]
_NEAREST = 1e-3
"""Smallest scale of the shift of an exchanged source, in beams; the largest is a beam."""
_CHANGES_KIND = 0.5
"""Part of the exchanges that may change the kind of the source."""


class Exchange:
    """A random source is replaced by one near it, of any kind, with a flux near the best.

    The shift is normal, with a scale between a thousandth of a beam and a beam, uniform in its logarithm. A
    size that was not there before is drawn from its prior.

    Parameters
    ----------
    likelihood : PopulationLikelihood
    fluxes : FluxProposals
    whitening : float64 (2, 2)
        Matrix from places (east, north) to coordinates in which the beam is a circle of size 1.
    """

    def __init__(self, likelihood: PopulationLikelihood, fluxes: FluxProposals, whitening: Array) -> None:
        self._likelihood, self._fluxes = likelihood, fluxes
        self._back = np.linalg.inv(whitening)

    def __call__(self, rng: np.random.Generator, walkers: Walkers) -> tuple[Mask, Mask]:
        """One attempt for each walker; which were tried (have a source) and accepted."""
        space = self._likelihood.space
        number = space.number(walkers.rows)
        can, accepted = number > 0, np.zeros(len(walkers.rows), bool)
        which = np.flatnonzero(can)
        if not len(which):
            return can, accepted
        rows, n = walkers.rows[which], len(which)
        chosen = (rng.random(n) * number[which]).astype(np.int64)
        old = space.slots_of(rows)[np.arange(n), chosen]
        kind, values = old[:, 0].astype(np.int64), old[:, 1:]
        changes = rng.random(n) < _CHANGES_KIND
        new_kind = np.where(changes, rng.integers(len(space.kinds), size=n), kind)
        scale = _NEAREST ** rng.random(n)
        shift = (rng.standard_normal((n, 2)) * scale[:, None]) @ self._back.T
        new = values.copy()
        for i, where in enumerate(space.place):
            new[:, where] += shift[:, i]
        extended, was_extended = space.has[new_kind], space.has[kind]
        new = np.where(extended & ~was_extended, space.draw_sources(rng, new_kind), new)
        new = np.where(extended, new, 0.0)
        base = space.without_source(rows, chosen)
        height = self._likelihood.heights(base)
        # The fluxes of the old and of the new source, given all else.
        both = self._fluxes(
            np.concatenate([base, base]),
            np.concatenate([height, height]),
            np.concatenate([kind, new_kind]),
            np.concatenate([values, new]),
            np.concatenate([walkers.beta[which]] * 2),
        )
        there, back = (
            type(both)(both.mean[n:], both.sd[n:], *both[2:]),
            type(both)(both.mean[:n], both.sd[:n], *both[2:]),
        )
        flux = space.quantities[space.flux].prior.transform(rng.random(n))
        new[:, space.flux] = there.draw(rng, flux)
        log_ratio = np.zeros(n)
        for sign, of, each, other, part in (
            (1.0, there, new_kind, kind, new),
            (-1.0, back, kind, new_kind, values),
        ):
            # The prior of sizes that were drawn from it cancels; of what both have it is in the ratio.
            log_prior = np.zeros(n)
            for i in range(space.n_quantity):
                shared = space.has[each, i] & space.has[other, i]
                density = space.quantities[i].prior.log_density(part[:, i])
                log_prior += np.where(shared, density, 0.0)
            log_flux = space.log_density(part, each, [space.flux])
            log_ratio += sign * (log_prior - of.log_density(part[:, space.flux], log_flux))
        counts = space.counts(base)
        one = np.eye(len(space.kinds), dtype=np.int64)
        log_ratio += log_share(counts + one[new_kind]) - log_share(counts + one[kind])
        possible = np.flatnonzero(np.isfinite(log_ratio))
        if len(possible):
            which, log_ratio = which[possible], log_ratio[possible]
            proposed = space.with_source(base[possible], new_kind[possible], new[possible])
            accepted[which] = walkers.take(
                rng, which, proposed, self._likelihood.heights(proposed), log_ratio
            )
        return can, accepted


class Drift:
    """All numbers of a state move along the gradient of its density, by their local scales.

    One step of Langevin's equation with a metric that depends on the state (Girolami & Calderhead 2011, J. R.
    Statist. Soc. B 73, 123, section 5, without the derivatives of the metric): y is normal about
    x + eps^2 G^-1 grad / 2 with the covariance eps^2 G^-1, and is accepted by the ratio of Metropolis and
    Hastings. G is diagonal in places along the axes of the beam: beta times what the data tell of a source of
    that flux and size, alone, and what its prior tells.

    Parameters
    ----------
    likelihood : PopulationLikelihood
    scales : Scales
    sd_of_shared : float64 (n_rung - 1, n_shared)
        Scatter of the shared parameters at each temperature above the prior.
    step : float64 (n_rung - 1,)
        eps.
    """

    def __init__(
        self,
        likelihood: PopulationLikelihood,
        scales: Scales,
        sd_of_shared: Array,
        step: Array,
    ) -> None:
        self._likelihood, self._information = likelihood, scales.information
        self._sd_of_shared, self.step = sd_of_shared, step
        space, whitening = likelihood.space, scales.whitening
        self._whitening = np.eye(space.n_quantity)
        self._whitening[np.ix_(space.place, space.place)] = whitening
        self._back = np.linalg.inv(self._whitening)
        self._beam = float(np.sqrt(np.abs(np.linalg.det(self._back[np.ix_(space.place, space.place)]))))
        scale = np.diff([q.prior.quantile_range(0.16) for q in space.quantities], axis=1)[:, 0] / 2.0
        scale[list(space.place)] = np.sqrt(((whitening * scale[list(space.place)]) ** 2).sum(axis=1))
        self._of_prior = scale**-2.0

    def __call__(self, rng: np.random.Generator, walkers: Walkers, n_step: int) -> Array:
        """Steps of all walkers; the part of them that was accepted, float64 (n,)."""
        space, everyone = self._likelihood.space, np.arange(len(walkers.rows))
        eps = self.step[walkers.rung][:, None]
        here, slope = walkers.rows.copy(), None
        total = np.zeros(len(here))
        for _ in range(n_step):
            if slope is None:
                slope = self._slope(here, walkers.beta)[1]
            scale = self._scale(here, walkers)
            move = eps * rng.standard_normal(here.shape) * scale
            there = self._moved(here, slope, scale, eps, move)
            log_prior = space.log_prior(there)
            height, there_slope = np.full(len(here), -np.inf), np.zeros(here.shape)
            inside = np.flatnonzero(np.isfinite(log_prior) & np.isfinite(there).all(axis=1))
            if len(inside):
                height[inside], there_slope[inside] = self._slope(there[inside], walkers.beta[inside])
            back_scale = self._scale(there, walkers)
            with np.errstate(invalid="ignore"):
                log_ratio = log_prior - space.log_prior(here)
                log_ratio += self._log_density(there, here, there_slope, back_scale, eps)
                log_ratio -= self._log_density(here, there, slope, scale, eps)
            accepted = walkers.take(rng, everyone, there, height, log_ratio)
            slope = np.where(accepted[:, None], there_slope, slope)
            here = walkers.rows.copy()
            total += accepted
        return total / n_step

    def _slope(self, rows: Array, beta: Array) -> tuple[Array, Array]:
        """ln L, and the slopes of beta ln L + ln prior in beam coordinates, float64 (n, n_row)."""
        space = self._likelihood.space
        height, slope = self._likelihood.slopes(rows)
        slope *= beta[:, None]
        shared = space.shared_of(slope)
        for i, parameter in enumerate(space.shared):
            shared[:, i] += parameter.prior.log_slope(space.shared_of(rows)[:, i])
        of_rows, slots = space.slots_of(rows), space.slots_of(slope)
        exists = of_rows[..., 0] >= 0.0
        kind = of_rows[..., 0][exists].astype(np.int64)
        of_prior = space.log_slope(of_rows[..., 1:][exists], kind)
        slots[..., 1:][exists] = (slots[..., 1:][exists] + of_prior) * space.has[kind] @ self._back
        return height, slope

    def _scale(self, rows: Array, walkers: Walkers) -> Array:
        """G^-1/2 of all numbers, float64 (n, n_row): 0 of kinds, free slots and what a kind does not have."""
        space = self._likelihood.space
        scale = np.zeros(rows.shape)
        space.shared_of(scale)[:] = self._sd_of_shared[walkers.rung]
        slots, of_scale = space.slots_of(rows), space.slots_of(scale)
        exists = slots[..., 0] >= 0.0
        values, kind = slots[..., 1:][exists], slots[..., 0][exists].astype(np.int64)
        beta = np.broadcast_to(walkers.beta[:, None], exists.shape)[exists]
        told = beta * self._information
        signal = told * values[:, space.flux] ** 2
        size = np.max(np.abs(values[:, space.sizes]), axis=1, initial=0.0) / self._beam
        seen = 1.0 / (1.0 + size**2)
        known = np.zeros(values.shape)
        known[:, space.flux] = told * seen
        known[:, list(space.place)] = (signal * seen**2)[:, None]
        if len(space.sizes):
            # Least sizes that are told from a point: about a beam over the fourth root of the signal.
            least = (1.0 + signal) ** -0.25
            of_size = signal * seen**3 * np.maximum(size, least) ** 2
            for i, quantity in enumerate(space.quantities):
                if quantity.key in SIZES:
                    known[:, i] = of_size / self._beam**2
                elif quantity.key == "ratio":
                    known[:, i] = of_size * size**2
                elif quantity.key == "pa":
                    turn = 180.0 if quantity.period is None else quantity.period
                    known[:, i] = of_size * size**2 * (np.pi / turn) ** 2
        has = space.has[kind]
        of_scale[..., 1:][exists] = np.where(has, (known + self._of_prior) ** -0.5, 0.0)
        return scale

    def _moved(self, rows: Array, slope: Array, scale: Array, eps: Array, move: Array) -> Array:
        """Where a move in beam coordinates and the drift lead from rows."""
        space = self._likelihood.space
        change = 0.5 * eps**2 * scale**2 * slope + move
        slots = space.slots_of(change)
        slots[..., 1:] = slots[..., 1:] @ self._back.T
        slots[..., 0] = 0.0
        there = rows + change
        values = space.slots_of(there)[..., 1:]
        for i in np.flatnonzero(np.isfinite(space.period)):
            low, period, moved = space.quantities[i].prior.support[0], space.period[i], slots[..., 1 + i]
            turned = low + np.mod(values[..., i] - low, period)
            values[..., i] = np.where(moved == 0.0, values[..., i], turned)
            # By more than half a turn, the way back would be another.
            values[..., i][np.abs(moved) >= 0.5 * period] = np.nan
        shared, moves = space.shared_of(there), space.shared_of(change)
        for i in np.flatnonzero(np.isfinite(space.period_of_shared)):
            low, period = space.shared[i].prior.support[0], space.period_of_shared[i]
            shared[:, i] = low + np.mod(shared[:, i] - low, period)
            shared[np.abs(moves[:, i]) >= 0.5 * period, i] = np.nan
        return there

    def _log_density(self, here: Array, there: Array, slope: Array, scale: Array, eps: Array) -> Array:
        """ln of the density of a move from here to there, up to a constant, float64 (n,)."""
        space = self._likelihood.space
        change = there - here
        slots = space.slots_of(change)[..., 1:]
        turned = np.isfinite(space.period)
        period = space.period[turned]
        slots[..., turned] -= period * np.rint(slots[..., turned] / period)
        shared, turned = space.shared_of(change), np.isfinite(space.period_of_shared)
        period = space.period_of_shared[turned]
        shared[:, turned] -= period * np.rint(shared[:, turned] / period)
        slots[:] = slots @ self._whitening.T
        moves = scale > 0.0
        used = np.where(moves, scale, 1.0)
        z = np.where(moves, (change - 0.5 * eps**2 * scale**2 * slope) / (eps * used), 0.0)
        return np.asarray(-0.5 * (z**2).sum(axis=1) - np.log(used).sum(axis=1))
