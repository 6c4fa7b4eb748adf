"""Gains of antennas as functions of standard normal numbers, by the layout of biro's own gains.

    ln g = sum of c x + i sum of c' x'

(`biro.models.bound.antenna_terms.log_gains`): coordinates x have normal priors, of their own or linked to the
segment before. A phase that is uniform over the circle is a normal one with sd pi here, whose wrapped density
is uniform to 1.4 %, and which has no boundary.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.image_posterior.jax_operator import UsedData
from biro.models.bound.antenna_terms.log_gains import LogGains, LogTerm, PartitionGains
from biro.models.components.source import PointSource
from biro.models.quantities.parameter import Fixed
from biro.models.sky import SkyModel
from biro.observation.observation import Observation
from biro.observation.partition import Partition

Array = NDArray[np.float64]
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

    Raises
    ------
    InputError
        Gains that only `biro.fit` treats: numbers, tables, priors with numbers that are fitted.
    """

    def __init__(self, sky: SkyModel, observation: Observation, used: UsedData) -> None:
        _refuse_known(sky, observation)
        # Only the layout of gains is wanted of the model, which must have a source.
        plain = dataclasses.replace(
            sky, sources=[PointSource("x", I=1.0)], images=(), image_priors=(), constraints=()
        )
        bound = plain.bind(observation.partition_views)
        gains = bound.log_gains
        if gains.log_uniform or gains.priors.names:
            raise InputError(
                "gains beside an image that is sampled have log-normal amplitudes and normal or uniform phases "
                "with numbers for sd and correlation time; fit other priors with sources, by biro.fit"
            )
        self.n, self.names, self.lines = len(gains.names), gains.names, bound.gain_lines
        self._middle, self._spread = gains.middle, _spread(gains)
        self._terms = _all_terms(gains.each, observation.partitions, used)

    def coordinates(self, xi: Any) -> Any:
        """Log amplitudes, phases (rad), ... of standard normal numbers (n,)."""
        moved = self._spread * xi if self._spread.ndim == 1 else self._spread @ xi
        return self._middle + moved

    def numbers(self, coordinates: Array) -> Array:
        """Standard normal numbers that have these coordinates."""
        away = coordinates - self._middle
        return away / self._spread if self._spread.ndim == 1 else np.linalg.solve(self._spread, away)

    def factors(self, xi: Any) -> tuple[Any, Any]:
        """g_p conj(g_q) of each complex sample that counts: ln of the amplitude, and phase (rad), (n_data,)."""
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


def _refuse_known(sky: SkyModel, observation: Observation) -> None:
    antennas = {name for view in observation.partition_views for name in view.antenna_names}
    for gain in sky.gains:
        given = [value for key in ("amplitude", "phase") for value in gain._values(key)]
        if gain.table is not None or any(isinstance(one, Fixed) for one in given):
            raise InputError(
                "gain: tables and numbers are not applied beside an image that is sampled; apply them first "
                "(biro solve --corrected, or remove them)"
            )
    del antennas


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


Places = NDArray[np.int64]


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
