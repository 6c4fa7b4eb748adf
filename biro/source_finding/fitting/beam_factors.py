"""What the beams of the antennas make of the visibilities of a component."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from biro.beams.loading import beam_of
from biro.errors import InputError
from biro.models import Noise, PointSource, SkyModel
from biro.models.bound.jones_beams import PartitionBeam
from biro.observation.correlations import share_of_i
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from rime_kernels.arrays import Beam, Rows, Sources
from rime_kernels.choices import Backend
from rime_kernels.jones_beam import JonesBeam
from rime_kernels.physics.brightness import stokes_to_corr
from rime_kernels.rime import Rime

log = logging.getLogger(__name__)
AnyKernelBeam: TypeAlias = Beam | JonesBeam
# Of the differences that give derivatives, rad: far less than a beam is wide.
_STEP = 1e-7
# Fraction of a source below which its derivatives count as none.
_NOTHING = 1e-9


@dataclass(frozen=True)
class SeenThrough:
    """The beams of the antennas in each partition of an observation.

    Attributes
    ----------
    beams : tuple of Beam, JonesBeam or None
        One for each partition.
    reach : float
        Distance from the phase centre up to which they are known, as a direction cosine; infinite for
        formulas.
    """

    beams: tuple[AnyKernelBeam | None, ...]
    reach: float = np.inf

    @classmethod
    def of(cls, observation: Observation, instrument: SkyModel, *, warn: bool = True) -> SeenThrough:
        """The beams of a model, whose values must be fixed.

        Parameters
        ----------
        observation : Observation
        instrument : SkyModel
        warn : bool
            Log a warning about terms of the model that are left out.

        Raises
        ------
        InputError
            A value that is to be fitted.
        ModelError
            As `SkyModel.bind`.
        """
        others = (
            ("leakage", instrument.leakage),
            ("gain", instrument.gains),
            ("ionosphere", instrument.ionosphere),
        )
        left_out = ", ".join(name for name, given in others if given)
        if left_out and warn:
            log.warning("the search applies beam, pointing and feeds of the model, and ignores %s", left_out)
        views = observation.partition_views
        sky = seen_through(SkyModel([PointSource("s", east="0 rad", north="0 rad", I="1 Jy")]), instrument)
        sky = replace(sky, noise=Noise(factor=1.0))
        bound = sky.bind(views, beam_of(sky, views))
        if bound.n_param:
            raise InputError(
                f"the beam for the search must have fixed values, but {', '.join(bound.parameter_names)} "
                "has a prior; give a number here, and the prior in the fit"
            )
        theta, n = np.zeros((1, 0)), len(views)
        known = [bound.beam_at(theta, i) for i in range(n)]
        reach = min((beam.reach for beam in known if isinstance(beam, PartitionBeam)), default=np.inf)
        return cls(tuple(bound.sources(theta, i).beam for i in range(n)), reach)


def seen_through(sky: SkyModel, instrument: SkyModel | None) -> SkyModel:
    """The sources of a model, seen through the beam, pointing and feeds of another."""
    if instrument is None:
        return sky
    return replace(sky, beam=instrument.beam, pointing=instrument.pointing, feeds=instrument.feeds)


@dataclass(frozen=True, eq=False)
class BeamFactors:
    """The factor by which beams change Stokes I of an unpolarised point or Gaussian at (l, m),

        sum over correlations of  share (c E_p E_q^H)_correlation

    with c what the correlation has of Stokes I (`share_of_i`: 1 of parallel hands), and
    E of either antenna as in the measurement equation (physics: section 6). It is what a source of 1 Jy
    gives on baselines of no length, of which this computes it.

    Attributes
    ----------
    rime : Rime
        Of rows whose baselines have no length.
    share : complex128 (n_row, n_chan, n_hand)
        Of each correlation in Stokes I, as weights have it: w c^* over the sum of w |c|^2.
    beam : Beam or JonesBeam
    """

    rime: Rime
    share: NDArray[np.complex128]
    beam: AnyKernelBeam

    @classmethod
    def of(
        cls, part: Partition, index: NDArray[np.int64], beam: AnyKernelBeam, backend: Backend
    ) -> BeamFactors:
        """The factors of some rows of a partition, whose numbers there are `index`."""
        of_i = share_of_i(part.corr_type)
        hands = np.flatnonzero(of_i)
        rows = Rows(
            uvw=np.zeros((len(index), 3)),
            antenna1=part.antenna1[index],
            antenna2=part.antenna2[index],
            time_index=part.time_index[index],
            chan_freq=part.chan_freq,
            stokes_to_corr=stokes_to_corr([part.corr_type[i] for i in hands]),
            n_antenna=part.rows.n_antenna,
            n_time=part.rows.n_time,
        )
        weight = part.weight[index][:, :, hands].astype(np.float64)
        total = (weight @ np.abs(of_i[hands]) ** 2)[..., None]
        share = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0.0) * of_i[hands].conj()
        if isinstance(beam, JonesBeam):
            beam = replace(beam, applies=None)
        return cls(Rime(rows, extent=1.0, backend=backend), share, beam)

    def kept(self, lm: tuple[float, float]) -> NDArray[np.complex128]:
        """What is kept of a source, complex128 (n_row, n_chan)."""
        one = np.ones(1)
        source = Sources(
            lm=np.array(lm).reshape(1, 1, 2),
            stokes=np.array([1.0, 0.0, 0.0, 0.0]).reshape(1, 1, 1, 4),
            ref_freq=one,
            spectral_terms=np.zeros((1, 1, 4, 1)),
            log_spectrum=np.ones(1, bool),
            shape=np.zeros((1, 0, 3)),
            beam=self.beam,
        )
        return np.asarray((self.rime.predict(source)[0] * self.share).sum(axis=-1))

    def log_slopes(self, lm: tuple[float, float]) -> list[NDArray[np.complex128]]:
        """Derivatives of the logarithm of `kept` by l and by m, complex128 (n_row, n_chan) each."""
        here, slopes = self.kept(lm), []
        is_seen = np.abs(here) > _NOTHING
        for way in ((_STEP, 0.0), (0.0, _STEP)):
            change = self.kept((lm[0] + way[0], lm[1] + way[1])) - self.kept((lm[0] - way[0], lm[1] - way[1]))
            slopes.append(np.divide(change, 2.0 * _STEP * here, out=np.zeros_like(here), where=is_seen))
        return slopes
