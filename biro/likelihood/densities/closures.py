"""`gains="closures"`: gains may be anything at any time and channel; what they cannot change is compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.likelihood.closures.counts import ClosureCounts
from biro.likelihood.closures.legs import SNR_LIMIT
from biro.likelihood.closures.partition_closures import PartitionClosures
from biro.likelihood.densities.chi_squared import ChiSquaredLikelihood
from biro.likelihood.densities.each_theta import over_weight
from biro.likelihood.engines import PartitionEngines
from biro.likelihood.normalisation import Normalisation
from biro.models import BoundModel
from biro.models.bound.theta_batch import ThetaBatch
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.weighting import with_systematic
from rime_kernels import Gradient, Rime, Sources

Array = NDArray[np.float64]


class ClosureLikelihood(ChiSquaredLikelihood):
    """The log-likelihood of closure phases and log closure amplitudes; a `GainTreatment`.

    Parameters
    ----------
    observation : Observation
    model : BoundModel
    engines : PartitionEngines

    Raises
    ------
    InputError
        There are no closures; or the model has gains with priors, or noise that is not Gaussian.
    """

    def __init__(self, observation: Observation, model: BoundModel, engines: PartitionEngines) -> None:
        refuse_model(model)
        self._fraction = model.model.noise.fixed_fraction
        self._closures = ClosureSums.of(observation, engines, self._fraction)
        super().__init__(observation, model, engines, self._closures, self._closures.normalisation())
        self.lines, self.identity = self._closures.tally.lines(), [repr(SNR_LIMIT)]

    def corrected(self, vis: Sequence[NDArray[np.complexfloating]], batch: ThetaBatch) -> Observation:
        """The data with the gains taken out that fit model visibilities best.

        Visibilities that no closures are made of have no weight then.
        """
        data = [part.vis for part in self._observation.partitions]
        return self._closures.corrected(with_systematic(self._observation, self._fraction, data), vis)

    def weights(
        self, batch: ThetaBatch, vis: Sequence[NDArray[np.complexfloating]] | None = None
    ) -> Sequence[NDArray[np.floating]]:
        """Stated weights, with a systematic error of the data or, if given, of `vis`."""
        data = [part.vis for part in self._observation.partitions] if vis is None else vis
        weighted = with_systematic(self._observation, self._fraction, data)
        return [part.weight for part in weighted.partitions]


def refuse_model(model: BoundModel) -> None:
    """Refuse noise and gains that closures cannot take.

    Raises
    ------
    InputError
    """
    distribution = model.model.noise.distribution
    if distribution != "gaussian":
        raise InputError(f'gains="closures" needs Gaussian noise, found noise.distribution {distribution!r}')
    if model.has_fitted_gains:
        raise InputError(
            "closures do not depend on antenna gains, but [gain] has priors; remove them, or choose "
            "another --gains"
        )


class ClosureSums:
    """Chi-squared of closure phases and log closure amplitudes, and derivatives, of all partitions.

    Parameters
    ----------
    engines : PartitionEngines
        Which compute visibilities.
    partitions : sequence of Partition
    closures : sequence of PartitionClosures
    tally : ClosureCounts
        How many closures there are, and what is left out.
    """

    def __init__(
        self,
        engines: PartitionEngines,
        partitions: Sequence[Partition],
        closures: Sequence[PartitionClosures],
        tally: ClosureCounts,
    ) -> None:
        self._engines, self._partitions = engines, partitions
        self.closures, self.tally = closures, tally

    @classmethod
    def of(cls, observation: Observation, engines: PartitionEngines, fraction: float = 0.0) -> ClosureSums:
        """The closures of an observation with the noise that its weights state.

        And with a systematic error that is so large a fraction of each amplitude, in quadrature.

        Raises
        ------
        InputError
            There are no closures.
        """
        closures = [PartitionClosures.of(part) for part in observation.partitions]
        if fraction > 0.0:
            pairs = [(each, each.sets.legs) for each in closures]
            closures = [each.with_noise(legs.variance + fraction**2, legs.thermal) for each, legs in pairs]
        tally = ClosureCounts.of(observation, closures)
        tally.refuse_none()
        return cls(engines, observation.partitions, closures, tally)

    def with_closures(self, closures: Sequence[PartitionClosures]) -> ClosureSums:
        """This likelihood with closures that have other noise."""
        return ClosureSums(self._engines, self._partitions, closures, self.tally)

    def normalisation(self) -> Normalisation:
        """The normalisation of these closures, which are one real number each."""
        n_vis = [len(closures.sets.legs) for closures in self.closures]
        n_data = [closures.n_data for closures in self.closures]
        return Normalisation(n_vis, n_data, [closures.log_norm for closures in self.closures])

    def chi2(self, batch: ThetaBatch, scaled_dofs: Sequence[Array] | None = None) -> Array:
        """float64 (n_batch, n_partition); NaN for impossible sources."""
        chi2 = np.full((len(batch), len(self.closures)), np.nan)
        for i, rows, vis in self._engines.visibilities(batch):
            chi2[rows, i] = self.closures[i].chi2(vis).sum(axis=1)
        return chi2

    def chi2_and_gradient(
        self, batch: ThetaBatch, scaled_dofs: Sequence[Array] | None
    ) -> tuple[Array, Sequence[Gradient]]:
        """`chi2`, and its derivatives with respect to the sources of each partition as the model has them."""
        chi2 = np.full((len(batch), len(self.closures)), np.nan)

        def residuals(i: int, rows: slice, vis: NDArray[np.complexfloating]) -> NDArray[np.complex128]:
            of_kinds, slope = self.closures[i].chi2_and_slope(vis)
            chi2[rows, i] = of_kinds.sum(axis=1)
            slope[~np.isfinite(chi2[rows, i])] = 0.0
            return over_weight(slope, self._partitions[i])

        return chi2, self._engines.gradients(batch, residuals)

    def information(self, i: int, sources: Sources, change: Gradient) -> Array:
        """Re(J^H A^T (A S A^T)^-1 A J) of ln V between changes of the sources of partition i."""
        _, columns, slope = self._tangents(i, sources, change)
        flat = (len(columns), -1)
        return np.asarray(np.real(slope.reshape(flat).conj() @ columns.reshape(flat).T))

    def information_product(self, i: int, sources: Sources, change: Gradient) -> Gradient:
        """The information times one change of the sources."""
        slope = self._tangents(i, sources, change)[2]
        return self._engines.rimes[i].adjoint(sources, over_weight(slope, self._partitions[i]))

    def corrected(self, observation: Observation, vis: Sequence[NDArray[np.complexfloating]]) -> Observation:
        """An observation with the gains taken out that fit model visibilities best.

        Visibilities that no closures are made of are 0 then and have no weight.

        Parameters
        ----------
        observation : Observation
            Whose closures these are, with the weights that are to be corrected.
        vis : sequence of complex (n_row, n_chan, n_corr), Jy
            Visibilities of the model.
        """
        parts = []
        for part, closures, model in zip(observation.partitions, self.closures, vis, strict=True):
            gains = closures.gains(model)
            there = gains != 0.0
            data = np.where(there, part.vis / np.where(there, gains, 1.0), 0.0)
            parts.append(replace(part, vis=data, weight=part.weight * np.abs(gains) ** 2))
        return replace(observation, partitions=tuple(parts))

    def _tangents(
        self, i: int, sources: Sources, change: Gradient
    ) -> tuple[NDArray[np.complexfloating], NDArray[np.complex128], NDArray[np.complex128]]:
        """Visibilities, their changes, and these weighted by the covariance of closures."""
        rime: Rime = self._engines.rimes[i]
        vis, columns = rime.predict(sources)[0], rime.tangent(sources, change)
        return vis, columns, self.closures[i].information(vis, columns)
