"""Moves that change the number of sources: birth and death, split and merge (Green 1995, Biometrika 82, 711).

States are tuples of sources in an order that means nothing. In births and deaths the factors of the order
cancel: a new source may be at any of k + 1 places of it, and any of k + 1 sources may disappear.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.models.components.population import log_share
from biro.source_finding.populations.flux_proposal import FluxProposals
from biro.source_finding.populations.likelihoods import PopulationLikelihood
from biro.source_finding.populations.places import PlaceMixtures

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass
class Walkers:
    """States of walkers at several temperatures; moves change them in place.

    Attributes
    ----------
    rows : float64 (n, n_row)
    height : float64 (n,)
        ln L.
    beta : float64 (n,)
    rung : int64 (n,)
        Index of the temperature, of those above the prior.
    """

    rows: Array
    height: Array
    beta: Array
    rung: Index

    def take(
        self, rng: np.random.Generator, which: Index, rows: Array, height: Array, log_ratio: Array
    ) -> Mask:
        """Accept states for these walkers with the probability that Metropolis and Hastings give.

        Parameters
        ----------
        rng : Generator
        which : int64 (n,)
            The walkers.
        rows, height : float64 (n, n_row), (n,)
            Their proposed states.
        log_ratio : float64 (n,)
            ln of prior and proposal densities, new over old; the likelihood is added here.

        Returns
        -------
        bool (n,)
        """
        with np.errstate(invalid="ignore"):
            gain = self.beta[which] * (height - self.height[which]) + log_ratio
        accepted = np.log(rng.random(len(which))) < np.where(np.isnan(gain), -np.inf, gain)
        self.rows[which[accepted]], self.height[which[accepted]] = rows[accepted], height[accepted]
        return accepted


class BirthAndDeath:
    """A source appears at a place from a mixture with a flux near the best, or a random one disappears.

    Parameters
    ----------
    likelihood : PopulationLikelihood
    fluxes : FluxProposals
    places : PlaceMixtures
        One for each temperature above the prior.
    """

    def __init__(
        self, likelihood: PopulationLikelihood, fluxes: FluxProposals, places: PlaceMixtures
    ) -> None:
        self._likelihood, self._fluxes, self._places = likelihood, fluxes, places

    def __call__(self, rng: np.random.Generator, walkers: Walkers) -> tuple[Mask, Mask]:
        """One attempt for each walker; which were tried (not impossible at once) and accepted."""
        space = self._likelihood.space
        number, n = space.number(walkers.rows), len(walkers.rows)
        birth = rng.random(n) < 0.5
        can = np.where(birth, number < space.n_slot, number > 0)
        after = np.where(birth, number + 1, number - 1)
        can &= space.log_number[np.where(can, after, 0)] > -np.inf
        tried, accepted = np.flatnonzero(can), np.zeros(n, bool)
        if not len(tried):
            return can, accepted
        birth, number = birth[tried], number[tried]
        slots = space.slots_of(walkers.rows[tried])
        dying = (rng.random(len(tried)) * np.maximum(number, 1)).astype(np.int64)
        # The state without the source, and the source, for births and deaths alike.
        base = walkers.rows[tried]
        base[~birth] = space.without_source(base[~birth], dying[~birth])
        height = walkers.height[tried]
        if (~birth).any():
            height[~birth] = self._likelihood.heights(base[~birth])
        old = slots[np.arange(len(tried)), dying]
        kind = np.where(birth, rng.integers(len(space.kinds), size=len(tried)), old[:, 0]).astype(np.int64)
        values = np.where(birth[:, None], space.draw_sources(rng, kind), old[:, 1:])
        rung = walkers.rung[tried]
        places = self._places.draw(rng, rung)
        for i, where in enumerate(space.place):
            values[:, where] = np.where(birth, places[:, i], values[:, where])
        of_flux = self._fluxes(base, height, kind, values, walkers.beta[tried])
        flux = of_flux.draw(rng, values[:, space.flux])
        values[:, space.flux] = np.where(birth, flux, values[:, space.flux])
        log_prior = space.log_density(values, kind)
        # Shapes and the like are proposed from their prior.
        rest = [i for i in range(space.n_quantity) if i not in (*space.place, space.flux)]
        of_rest = space.log_density(values, kind, rest)
        log_flux = space.log_density(values, kind, [space.flux])
        proposed = self._places.log_density(values[:, list(space.place)], rung)
        proposed = proposed + of_flux.log_density(values[:, space.flux], log_flux) + of_rest
        counts = space.counts(base)
        more = counts + np.eye(len(space.kinds), dtype=np.int64)[kind]
        log_kind = log_share(more) - log_share(counts) + np.log(len(space.kinds))
        n_base = np.where(birth, number, number - 1)
        up = space.log_number[n_base + 1] - space.log_number[n_base] + log_kind + log_prior - proposed
        rows = base.copy()
        rows[birth] = space.with_source(base[birth], kind[birth], values[birth])
        if birth.any():
            height[birth] = self._likelihood.heights(rows[birth])
        accepted[tried] = walkers.take(rng, tried, rows, height, np.where(birth, up, -up))
        return can, accepted


class SplitAndMerge:
    """A point becomes two about its place, or a point and a near one become one of their flux.

    The sum of fluxes F and its centre stay. The difference d of the two places is normal with the standard
    deviation `width` along the axes of the beam, and the part f of the first in the flux uniform; the
    Jacobian of (place, F, d, f) -> two places and fluxes is F. The second gets all else that points have,
    such as a spectral index, from the prior, and the first keeps it. A merger chooses the second of its two
    points with a probability proportional to the density of its difference from the first.

    Parameters
    ----------
    likelihood : PopulationLikelihood
    whitening : float64 (2, 2)
        Matrix from places (east, north) to coordinates in which the beam is a circle of size 1.
    width : float
        In beams.
    """

    def __init__(self, likelihood: PopulationLikelihood, whitening: Array, width: float) -> None:
        self._likelihood, self._whitening, self._width = likelihood, whitening, width
        self._log_area = float(np.log(np.abs(np.linalg.det(whitening))))
        space = likelihood.space
        self._others = [i for i in range(space.n_quantity) if i not in (*space.place, space.flux)]

    def __call__(self, rng: np.random.Generator, walkers: Walkers) -> tuple[Mask, Mask]:
        """One attempt for each walker; which were tried (not impossible at once) and accepted."""
        space = self._likelihood.space
        n = len(walkers.rows)
        can, accepted = np.zeros(n, bool), np.zeros(n, bool)
        split = rng.random(n) < 0.5
        parts = []
        for is_split, propose in ((True, self._split), (False, self._merge)):
            some = np.flatnonzero(split == is_split)
            if len(some):
                which, rows, log_ratio = propose(rng, walkers.rows[some])
                parts.append((some[which], rows, log_ratio))
        which, rows, log_ratio = (np.concatenate(of) for of in zip(*parts, strict=True))
        if not len(which):
            return can, accepted
        can[which] = True
        log_ratio = log_ratio + space.log_prior(rows) - space.log_prior(walkers.rows[which])
        possible = np.isfinite(log_ratio)
        which, rows, log_ratio = which[possible], rows[possible], log_ratio[possible]
        if len(which):
            height = self._likelihood.heights(rows)
            accepted[which] = walkers.take(rng, which, rows, height, log_ratio)
        return can, accepted

    def _points(self, rows: Array) -> Mask:
        """Which slots have points, bool (n, n_slot)."""
        space = self._likelihood.space
        if "point" not in space.kinds:
            return np.zeros((len(rows), space.n_slot), bool)
        return np.asarray(space.slots_of(rows)[..., 0] == space.kinds.index("point"))

    def _places(self, slots: Array) -> Array:
        """Places in coordinates of the beam, float64 (..., 2)."""
        return slots[..., [1 + i for i in self._likelihood.space.place]] @ self._whitening.T

    def _set(self, slots: Array, at: Index, places: Array, flux: Array) -> None:
        """Change place and flux of one slot of each state."""
        space, here = self._likelihood.space, np.arange(len(at))
        back = places @ np.linalg.inv(self._whitening).T
        for i, where in enumerate(space.place):
            slots[here, at, 1 + where] = back[:, i]
        slots[here, at, 1 + space.flux] = flux

    def _log_choice(self, rows: Array, first: Index, second: Index) -> tuple[Array, Array]:
        """ln of the probability that `first` merges with `second`, and of the density of their difference."""
        here, slots, is_point = (
            np.arange(len(rows)),
            self._likelihood.space.slots_of(rows),
            self._points(rows),
        )
        places = self._places(slots)
        z = (places - places[here, first][:, None]) / self._width
        density = -0.5 * (z**2).sum(axis=2) - np.log(2.0 * np.pi * self._width**2)
        weight = np.where(is_point, density, -np.inf)
        weight[here, first] = -np.inf
        of_pair = weight[here, second]
        return of_pair - np.logaddexp.reduce(weight, axis=1), of_pair + self._log_area

    def _split(self, rng: np.random.Generator, rows: Array) -> tuple[Index, Array, Array]:
        space = self._likelihood.space
        is_point, number = self._points(rows), space.number(rows)
        n_point = is_point.sum(axis=1)
        can = (n_point > 0) & (number < space.n_slot)
        which = np.flatnonzero(can)
        rows, n_point, number = rows[which].copy(), n_point[which], number[which]
        first = _one_of(rng, is_point[which])
        here, slots = np.arange(len(which)), space.slots_of(rows)
        place, flux = self._places(slots)[here, first], slots[here, first, 1 + space.flux].copy()
        apart, part = self._width * rng.standard_normal((len(which), 2)), rng.random(len(which))
        kind = slots[here, first, 0].astype(np.int64)
        slots[here, number, 0], slots[here, number, 1:] = kind, space.draw_sources(rng, kind)
        self._set(slots, first, place + (1.0 - part)[:, None] * apart, part * flux)
        self._set(slots, number, place - part[:, None] * apart, (1.0 - part) * flux)
        choice, density = self._log_choice(rows, first, number)
        # (1 / (n + 1)) choice / ((1 / n) density) for n points, the Jacobian F, and the places in the order.
        ratio = np.log(n_point) - np.log(n_point + 1.0) + choice - density + np.log(np.abs(flux))
        ratio -= space.log_density(slots[here, number, 1:], kind, self._others)
        return which, rows, ratio + np.log(number + 1.0)

    def _merge(self, rng: np.random.Generator, rows: Array) -> tuple[Index, Array, Array]:
        space = self._likelihood.space
        is_point, number = self._points(rows), space.number(rows)
        which = np.flatnonzero(is_point.sum(axis=1) > 1)
        rows, is_point, number = rows[which], is_point[which], number[which]
        n_point = is_point.sum(axis=1)
        first, here = _one_of(rng, is_point), np.arange(len(which))
        slots = space.slots_of(rows)
        places = self._places(slots)
        z = (places - places[here, first][:, None]) / self._width
        weight = np.where(is_point, -0.5 * (z**2).sum(axis=2), -np.inf)
        weight[here, first] = -np.inf
        with np.errstate(invalid="ignore"):
            noise = rng.gumbel(size=weight.shape)
            second = np.where(np.isfinite(weight), weight + noise, -np.inf).argmax(axis=1)
        choice, density = self._log_choice(rows, first, second)
        fluxes = slots[here, first, 1 + space.flux], slots[here, second, 1 + space.flux]
        flux = fluxes[0] + fluxes[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            part = (fluxes[0] / flux)[:, None]
            place = part * places[here, first] + (1.0 - part) * places[here, second]
        merged = rows.copy()
        self._set(space.slots_of(merged), first, place, flux)
        merged = space.without_source(merged, second)
        with np.errstate(divide="ignore"):
            ratio = np.log(n_point - 1.0) - np.log(n_point) + choice - density + np.log(np.abs(flux))
        kind = slots[here, second, 0].astype(np.int64)
        ratio += np.log(number) - space.log_density(slots[here, second, 1:], kind, self._others)
        # Parts outside 0 .. 1 are of fluxes of either sign, which no split makes.
        inside = ((part[:, 0] > 0.0) & (part[:, 0] < 1.0)) | ~np.isfinite(part[:, 0])
        return which, merged, np.where(inside, -ratio, -np.inf)


def _one_of(rng: np.random.Generator, mask: Mask) -> Index:
    """A random place of each row where a mask holds, int64 (n,)."""
    return np.asarray(np.where(mask, rng.random(mask.shape), -1.0).argmax(axis=1))
