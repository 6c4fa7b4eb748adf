"""Antennas of polarised images: rotation of feeds, leakage and gains, of standard normal numbers.

    V_pq = L_p [G_p D_p P_p X P_q^H D_q^H G_q^H] L_q^H                               (physics: section 6)

L is P^H where rotation was taken out of the data, else 1. Names, priors and ties of D are those of [leakage]
beside components (`biro.models.bound.antenna_terms.layout`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.image_posterior.sampling.jax_operator import UsedData
from biro.image_posterior.sampling.models.gain_model import GainModel
from biro.image_posterior.sampling.models.noise_model import from_normal
from biro.models.bound.antenna_terms.layout import TermSlots, antenna_term_slots
from biro.models.bound.antenna_terms.rotation import rotation
from biro.models.bound.slots import ModelSlots, ResolvedSlots
from biro.models.quantities.prior import Prior
from biro.models.sky import SkyModel
from biro.observation.observation import Observation
from biro.observation.partition import Partition

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Complex = NDArray[np.complex128]


class AntennaModel:
    """What antennas make of the four correlations of each row and channel.

    Parameters
    ----------
    sky : SkyModel
    observation : Observation
        With all four correlations of its feeds.
    cells : UsedData
        All four correlations of the rows and channels of which any counts.

    Attributes
    ----------
    n, n_gain : int
        Standard normal numbers; those of gains come first.
    names : tuple of str
        Of the gains and leakages that are fitted.
    lines : list of str
        Which antennas are references of gains.

    Raises
    ------
    InputError
        Priors that only `biro.fit` treats.
    """

    def __init__(self, sky: SkyModel, observation: Observation, cells: UsedData) -> None:
        gained = dataclasses.replace(sky, leakage=None)
        self._gains = GainModel(gained, observation, cells) if sky.gains else None
        self.n_gain = self._gains.n if self._gains else 0
        slots, views = ModelSlots(), observation.partition_views
        terms = antenna_term_slots(dataclasses.replace(sky, gain=None), views, slots).each
        resolved = slots.resolve()
        turned = [one.name for one in resolved.parameters if not one.name.startswith("leakage.")]
        if turned:
            raise InputError(
                f"{', '.join(turned[:4])}: angles of feeds are not fitted beside an image; give numbers"
            )
        self._priors = _alike([parameter.prior for parameter in resolved.parameters])
        self._base, self._by_parameter = resolved.base, _factors(resolved)
        self.leakage_names = tuple(one.name for one in resolved.parameters)
        self.n = self.n_gain + len(self.leakage_names)
        self.names = (*(self._gains.names if self._gains else ()), *self.leakage_names)
        self.lines = list(self._gains.lines) if self._gains else []
        parts = observation.partitions
        self._turn, self._turn_back = _rotations(terms, resolved.base, parts, cells)
        self._leakage = _leakage_places(terms, parts, cells)
        self._is_circular, self._n_cell = all(one.basis == "circular" for one in terms), cells.n // 4
        self.changes_nothing = not self.n and self._turn is None and self._leakage is None

    def coordinates(self, xi: Any) -> Any:
        """Log amplitudes and phases (rad) of gains, then leakages, of standard normal numbers (n,)."""
        gains = jnp.zeros(0) if self._gains is None else self._gains.coordinates(xi[: self.n_gain])
        return jnp.concatenate([gains, self.leakages(xi)])

    def leakages(self, xi: Any) -> Any:
        """Real and imaginary parts of leakages that are fitted, in the order of `leakage_names`."""
        given = xi[self.n_gain :]
        found = jnp.zeros(len(self.leakage_names))
        for value_of, places in self._priors:
            found = found.at[places].set(value_of(given[places]))
        return found

    def numbers(self, products: Sequence[NDArray[np.complexfloating]]) -> Array:
        """Numbers (n,) of known gains (`GainModel.numbers`), without leakage as far as its prior goes."""
        found = np.zeros(self.n)
        if self._gains is not None:
            found[: self.n_gain] = self._gains.numbers(products)
        return found

    def applied(self, xi: Any, sky: Any) -> Any:
        """V of X, complex (n_cell, 2, 2)."""
        found = sky if self._turn is None else _between(self._turn, sky)
        if self._leakage is not None:
            values = self._base + self._by_parameter @ self.leakages(xi)
            first, second = (_complex(values[place]) for place in self._leakage)
            found = found + first[:, :, None] * found[:, ::-1]
            found = found + jnp.conj(second)[:, None, :] * found[:, :, ::-1]
        found = found * self._gain(xi)
        return found if self._turn_back is None else _between(self._turn_back, found)

    def factors(self, xi: Any) -> Complex:
        """What gains and the rotation of circular feeds multiply each correlation by, (n_cell, 2, 2)."""
        found = np.broadcast_to(np.asarray(self._gain(xi)), (self._n_cell, 2, 2))
        if self._turn is None or self._turn_back is not None or not self._is_circular:
            return found
        first, second = (np.diagonal(one, axis1=1, axis2=2) for one in self._turn)
        return found * first[:, :, None] * second.conj()[:, None, :]

    def _gain(self, xi: Any) -> Any:
        """g_p conj(g_q) of both feeds, (n_cell, 2, 2), or 1."""
        if self._gains is None:
            return jnp.ones((1, 1, 1))
        log_amplitude, phase = self._gains.factors(xi[: self.n_gain])
        return jnp.exp(log_amplitude + 1j * phase).reshape(-1, 2, 2)


def _alike(priors: Sequence[Prior]) -> list[tuple[Callable[[Any], Any], Index]]:
    """Values of standard normal numbers of each of the different priors, and the places of its parameters."""
    different: list[Prior] = []
    for prior in priors:
        if prior not in different:
            different.append(prior)
    return [
        (from_normal(one), np.array([i for i, prior in enumerate(priors) if prior == one]))
        for one in different
    ]


def _factors(resolved: ResolvedSlots) -> Array:
    """What each parameter is multiplied by in each slot, float64 (n_slot, n_parameter)."""
    found = np.zeros((resolved.base.size, len(resolved.parameters)))
    for slot, form in resolved.forms.items():
        for parameter, factor in form.terms:
            found[slot, parameter] = factor
    return found


def _rotations(
    terms: Sequence[TermSlots], base: Array, parts: Sequence[Partition], cells: UsedData
) -> tuple[tuple[Complex, Complex] | None, tuple[Complex, Complex] | None]:
    """P of both antennas of each cell, (n_cell, 2, 2) each, and L; None where they are 1.

    Offsets of feeds, in `base`, are in P alone: data were corrected without them.
    """
    offsets = [np.zeros(1) if one.offset is None else base[one.offset] for one in terms]
    if not any(one.angle.any() or own.any() for one, own in zip(terms, offsets, strict=True)):
        return None, None
    turned: list[list[Complex]] = [[], []]
    back: list[list[Complex]] = [[], []]
    for own, offset, part, place in zip(terms, offsets, parts, cells.places, strict=True):
        row, _ = np.nonzero(place[:, :, 0])
        each = np.broadcast_to(offset, own.angle.shape[1])
        for k, antenna in enumerate((part.antenna1, part.antenna2)):
            angle = own.angle[own.time_block[part.time_index[row]], antenna[row]]
            turned[k].append(rotation(angle + each[antenna[row]], own.basis))
            back[k].append(rotation(-angle if own.taken_out else 0.0 * angle, own.basis))
    first, second = (np.concatenate(each) for each in turned)
    to_sky = np.concatenate(back[0]), np.concatenate(back[1])
    return (first, second), to_sky if any(one.taken_out for one in terms) else None


def _leakage_places(
    terms: Sequence[TermSlots], parts: Sequence[Partition], cells: UsedData
) -> tuple[Index, Index] | None:
    """Slots of the leakages of both antennas of each cell, (n_cell, feed, part) each; None without any."""
    if not any(one.leakage is not None for one in terms):
        return None
    found: list[list[Index]] = [[], []]
    for own, part, place in zip(terms, parts, cells.places, strict=True):
        assert own.leakage is not None
        row, chan = np.nonzero(place[:, :, 0])
        block = own.leakage_block[own.chan_block[chan]]
        for k, antenna in enumerate((part.antenna1, part.antenna2)):
            found[k].append(own.leakage[block, antenna[row]])
    return np.concatenate(found[0]), np.concatenate(found[1])


def _complex(parts: Any) -> Any:
    """Complex numbers (n, 2) of real and imaginary parts (n, 2, 2)."""
    return parts[..., 0] + 1j * parts[..., 1]


def _between(matrices: tuple[Complex, Complex], vis: Any) -> Any:
    """A_p X A_q^H of each cell."""
    first, second = matrices
    return jnp.einsum("nij,njk,nlk->nil", first, vis, second.conj())
