"""Gains of antennas as functions of standard normal numbers, by the layout of biro's own gains.

    ln g = sum of c x + i sum of c' x'

(`biro.models.bound.antenna_terms.log_gains`): coordinates x have normal priors, of their own or linked to the
segment before. A phase that is uniform over the circle is a normal one with sd pi here, whose wrapped density
is uniform to 1.4 %, and which has no boundary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.image_posterior.sampling.jax_operator import UsedData
from biro.models.bound.antenna_terms.log_gains import LogGains, LogTerm, PartitionGains
from biro.models.components.antenna_terms.gain import DIMENSIONS
from biro.models.components.source import PointSource
from biro.models.quantities.parameter import Fixed
from biro.models.sky import SkyModel
from biro.observation.observation import Observation
from biro.observation.partition import Partition

Array = NDArray[np.float64]
Places = NDArray[np.int64]
_FEED = {"R": 0, "X": 0, "L": 1, "Y": 1}
_MOST_LINKED = 3000
"""Coordinates of correlated segments, whose prior is a full matrix here."""


class GainModel:
    """What gains of antennas multiply the visibilities of an image by.

    Parameters
    ----------
    sky : SkyModel
        With gains that have priors.
    observation : Observation
    used : UsedData

    Attributes
    ----------
    n : int
        Standard normal numbers.
    names : tuple of str
        Parameters of the gains, in the order of their coordinates.
    lines : list of str
        Which antennas are references.
    circles : int64 (n_circle,)
        Numbers of phases that are uniform over the circle: 2 more are the same gain.

    Raises
    ------
    InputError
        Gains that only `biro.fit` treats: numbers, tables, priors with numbers that are fitted.
    """

    def __init__(self, sky: SkyModel, observation: Observation, used: UsedData) -> None:
        given = [value for gain in sky.gains for key in DIMENSIONS for value in gain._values(key)]
        if any(isinstance(one, Fixed) for one in given):
            raise InputError(
                "[gain]: numbers are not applied beside an image that is sampled; give priors, or calibrate "
                "the data first (biro solve --corrected)"
            )
        # Only the layout of gains is wanted of the model, which must have a source.
        plain = dataclasses.replace(
            sky,
            sources=[PointSource("x", east="0 arcsec", north="0 arcsec", I="1 Jy")],
            images=(),
            image_priors=(),
            constraints=(),
        )
        bound = plain.bind(observation.partition_views)
        gains = bound.log_gains
        self._each, self._partitions = gains.each, observation.partitions
        if gains.log_uniform or gains.priors.names:
            raise InputError(
                "gains beside an image that is sampled have log-normal amplitudes and normal or uniform "
                "phases with numbers for sd and correlation time; fit other priors with sources, by biro.fit"
            )
        self.n, self.names, self.lines = len(gains.names), gains.names, bound.gain_lines
        self._middle, self._spread = gains.middle, _spread(gains)
        is_alone = np.ones(self.n, bool) if self._spread.ndim == 1 else (self._spread != 0.0).sum(axis=0) == 1
        self.circles = np.flatnonzero(gains.is_circle & is_alone)
        self._terms = _all_terms(gains.each, observation.partitions, used)

    def coordinates(self, xi: Any) -> Any:
        """Log amplitudes, phases (rad), ... of standard normal numbers (n,)."""
        moved = self._spread * xi if self._spread.ndim == 1 else self._spread @ xi
        return self._middle + moved

    def numbers(self, products: Sequence[NDArray[np.complexfloating]]) -> Array:
        """Standard normal numbers of gains that are known, which one number of the prior explains each.

        Parameters
        ----------
        products : sequence of complex (n_row, n_chan, n_corr)
            g_p conj(g_q) of each partition, of feeds that share their gains; 0 or NaN where there is none.

        Returns
        -------
        float64 (n,)
            Within three standard deviations of the prior. Delays and rates are 0.
        """
        x = self._middle.copy()
        for own, part, product in zip(self._each, self._partitions, products, strict=True):
            _fill(x, own, part, product)
        away = x - self._middle
        found = away / self._spread if self._spread.ndim == 1 else np.linalg.solve(self._spread, away)
        return np.clip(found, -3.0, 3.0)

    def factors(self, xi: Any) -> tuple[Any, Any]:
        """g_p conj(g_q) of each complex sample that counts: ln amplitude and phase (rad), (n_data,)."""
        # The last coordinate is that of antennas without one.
        x = jnp.append(self.coordinates(xi), 0.0)
        log_amplitude: Any = 0.0
        phase: Any = 0.0
        for is_phase, first, second, by in self._terms:
            if is_phase:
                phase = phase + by * (x[first] - x[second])
            else:
                log_amplitude = log_amplitude + by * (x[first] + x[second])
        return log_amplitude, phase


def _spread(gains: LogGains) -> Array:
    """What standard normal numbers are multiplied by: float64 (n,), or a matrix where segments are linked."""
    priors, links = gains.priors.known, gains.links
    own = np.zeros(len(gains.names))
    has = priors.weight > 0.0
    own[has] = priors.weight[has] ** -0.5
    own[gains.is_circle] = np.pi
    if not links.later.size:
        return own
    if len(own) > _MOST_LINKED:
        raise InputError(
            f"gains of {len(own)} correlated segments are more than {_MOST_LINKED}; make segments longer, or "
            "remove correlated"
        )
    own[links.later] = priors.link_weight**-0.5
    chain = np.eye(len(own))
    chain[links.later, links.earlier] = -priors.keep
    return np.asarray(np.linalg.solve(chain, np.diag(own)))


def _fill(x: Array, own: PartitionGains, part: Partition, product: NDArray[np.complexfloating]) -> None:
    """Put ln amplitudes and phases into the coordinates of a partition, which add up to its products."""
    plain = [term for term in own.terms if np.all(term.factor == 1.0)]
    for time in range(len(own.terms[0].factor)):
        rows = np.flatnonzero(own.time_block[part.time_index] == time)
        for chan in range(own.terms[0].factor.shape[1]):
            values = product[np.ix_(rows, np.flatnonzero(own.chan_block == chan))].mean(axis=(1, 2))
            good = np.isfinite(values) & (values != 0.0)
            pairs = part.antenna1[rows][good], part.antenna2[rows][good]
            for is_phase in (False, True):
                term = next((term for term in plain if term.is_phase == is_phase), None)
                if term is None or not good.any():
                    continue
                for place in np.unique(term.coordinate[time, :, chan].T, axis=0):  # of each feed
                    found = (_phases if is_phase else _log_amplitudes)(*pairs, values[good], place)
                    known = (place >= 0) & np.isfinite(found)
                    x[place[known]] = found[known]


def _log_amplitudes(first: Places, second: Places, values: Any, place: Places) -> Array:
    """ln |g| of each antenna, NaN without data, by least squares over the baselines."""
    rows, n = np.arange(len(values)), len(place)
    sums = np.zeros((len(values), n))
    np.add.at(sums, (rows, first), 1.0)
    np.add.at(sums, (rows, second), 1.0)
    used = sums.any(axis=0)
    found = np.full(n, np.nan)
    found[used] = np.linalg.lstsq(sums[:, used], np.log(np.abs(values)), rcond=None)[0]
    return found


def _phases(first: Places, second: Places, values: Any, place: Places) -> Array:
    """arg g of each antenna, NaN without data, from one baseline to the next; 0 for a reference."""
    found = np.full(len(place), np.nan)
    used = np.union1d(first, second)
    for start in sorted(used, key=lambda antenna: place[antenna]):  # antennas without a coordinate first
        if np.isfinite(found[start]):
            continue
        found[start] = 0.0
        for _ in range(len(place)):
            for p, q, value in zip(first, second, values, strict=True):
                if np.isfinite(found[p]) and np.isnan(found[q]):
                    found[q] = found[p] - np.angle(value)
                elif np.isfinite(found[q]) and np.isnan(found[p]):
                    found[p] = found[q] + np.angle(value)
    return np.asarray(np.angle(np.exp(1j * found)))


def _all_terms(
    each: list[PartitionGains], partitions: tuple[Partition, ...], used: UsedData
) -> list[tuple[bool, Places, Places, Array]]:
    """For each kind of term: coordinates of both antennas of each sample, and c, (n_data,) each."""
    found = []
    for k in range(max(len(own.terms) for own in each)):
        rows = [_places(own, own.terms[k], part) for own, part in zip(each, partitions, strict=True)]
        first, second, by = (used.taken([row[i] for row in rows]) for i in range(3))
        found.append((each[0].terms[k].is_phase, first, second, by))
    return found


def _places(own: PartitionGains, term: LogTerm, part: Partition) -> tuple[Places, Places, Array]:
    """Coordinates of both antennas, and c, (n_row, n_chan, n_corr) each."""
    if own.turned:
        raise InputError("gains of feeds that turn are not fitted beside an image; use data of Stokes I")
    time = own.time_block[part.time_index][:, None, None]
    chan = own.chan_block[None, :, None]
    feeds = np.array([(_FEED.get(name[0], 0), _FEED.get(name[-1], 0)) for name in part.corr_type]).T
    first = term.coordinate[time, part.antenna1[:, None, None], chan, feeds[0]]
    second = term.coordinate[time, part.antenna2[:, None, None], chan, feeds[1]]
    return first, second, term.factor[time, chan]
