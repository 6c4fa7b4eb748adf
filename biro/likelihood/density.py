"""Prior, likelihood and posterior of a bound model as functions of parameter vectors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.display.formatting import first_few, given_text
from biro.errors import InputError, LikelihoodError
from biro.inference.block_arrowhead.matrix import ArrowheadMatrix
from biro.inference.block_arrowhead.space import ArrowheadSpace
from biro.likelihood.densities.gain_treatment import GainTreatment, Information
from biro.likelihood.densities.noise_terms import VisibilityLikelihoodWithNoiseTerms
from biro.likelihood.densities.visibilities import VisibilityLikelihood
from biro.likelihood.fisher import Fisher
from biro.models import BoundModel, Parameter
from biro.models.bound.theta_batch import ThetaBatch

Array = NDArray[np.float64]
# A number for one theta (n_param,), an array (n_batch, ...) for a batch of them: shapes decide, not types.
NumberOrArray: TypeAlias = Any
NAN_FRACTION = 0.1
"""A run stops when more than this fraction of its evaluations is not a number ..."""
NAN_GRACE = 1000
"""... counted from this many evaluations on."""


class Density:
    """The values of a likelihood, with derivatives and prior, for one parameter vector or a batch of them.

    Attributes
    ----------
    model : BoundModel
        Of the parameters of theta.
    n_param : int
        Number of free parameters.
    """

    def _evaluate(
        self, model: BoundModel, seen: BoundModel, treatment: GainTreatment, hint: str = ""
    ) -> None:
        """Take what gives ln L of theta.

        Parameters
        ----------
        model : BoundModel
            Whose parameters theta has.
        seen : BoundModel
            The same at the times and channels of the visibilities that are computed.
        treatment : GainTreatment
            Bound to `seen`.
        hint : str
            A word about vectors of other parameters.
        """
        self.model, self._seen, self._treatment, self._hint = model, seen, treatment, hint
        self.n_param, self._count = model.n_param, EvaluationCount(model.parameter_names)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Free parameters in the order of theta, each with name, unit and prior."""
        return self.model.parameters

    @property
    def parameter_names(self) -> list[str]:
        """Names of the free parameters, in the order of theta; a list, which UltraNest adds lists to."""
        return list(self.model.parameter_names)

    @property
    def n_vis(self) -> NDArray[np.int64]:
        """Complex visibilities that count, of each partition."""
        return self._treatment.n_vis

    @property
    def n_data(self) -> NDArray[np.int64]:
        """Real numbers that chi2 of each partition is a sum over: two for a visibility, one for a closure."""
        return self._treatment.n_data

    @property
    def n_call(self) -> int:
        """Number of parameter vectors for which the log-likelihood was computed so far."""
        return self._count.n_call

    @property
    def nan_count(self) -> int:
        """Number of these vectors for which the log-likelihood was not a number."""
        return self._count.n_nan

    @property
    def log_constraint_mass(self) -> float:
        """Log of the prior mass that constraints outside the prior transform leave."""
        return self.model.log_constraint_mass

    def chi2(self, theta: ArrayLike) -> Array:
        """Chi-squared of each partition, with weights as they are (noise factor 1), Gaussian noise or not.

        Parameters
        ----------
        theta : (n_param,) or (n_batch, n_param)
            In the units of `parameters`.

        Returns
        -------
        float64 (n_partition,) or (n_batch, n_partition)
        """
        batch, is_single = self._batch(theta)
        chi2 = self._treatment.chi2(batch)
        return chi2[0] if is_single else chi2

    def log_likelihood(self, theta: ArrayLike) -> NumberOrArray:
        """Log-likelihood; -inf where a constraint of the model forbids the parameters.

        Parameters
        ----------
        theta : (n_param,) or (n_batch, n_param)

        Returns
        -------
        float, or float64 (n_batch,)

        Raises
        ------
        InputError
            Any other shape.
        LikelihoodError
            More than a tenth of all evaluations so far, once there are 1000, were not a number; fewer
            are -inf, and counted in `nan_count`.
        """
        batch, is_single = self._batch(theta)
        value = self._of_allowed(batch)
        return float(value[0]) if is_single else value

    def log_likelihood_and_gradient(self, theta: ArrayLike) -> tuple[NumberOrArray, Array]:
        """Log-likelihood and its derivatives with respect to all parameters, for about two of its calls.

        Parameters
        ----------
        theta : (n_param,) or (n_batch, n_param)

        Returns
        -------
        float, or float64 (n_batch,)
            As `log_likelihood`.
        float64 (n_param,) or (n_batch, n_param)
            Per unit of each parameter; NaN where the value is -inf.

        Raises
        ------
        InputError, LikelihoodError
            As `log_likelihood`.
        """
        batch, is_single = self._batch(theta)
        value, gradient = np.full(len(batch), -np.inf), np.full(batch.theta.shape, np.nan)
        allowed = np.flatnonzero(batch.allowed)
        if allowed.size:
            value[allowed], gradient[allowed] = self._value_and_gradient(batch.rows(allowed))
        return (float(value[0]), gradient[0]) if is_single else (value, gradient)

    def fisher(self, theta: ArrayLike) -> Array:
        """The Fisher information: minus the expected second derivatives of ln L (`biro.likelihood.fisher`).

        Exact. Derivatives of visibilities are multiplied by each other for some rows at a time, on the CPU
        in double precision: n_param^2 products per real number of the data. Where gains or fluxes are
        integrated over, the part of the noise is by differences of exact sums, and between priors of gains
        that are fitted it is that of these data, not on average over data.

        Parameters
        ----------
        theta : (n_param,)

        Returns
        -------
        float64 (n_param, n_param)

        Raises
        ------
        InputError
            Any other shape, or a theta that a constraint of the model forbids.
        """
        return self._fisher(theta).matrix()

    @cached_property
    def segments(self) -> ArrowheadSpace | None:
        """How the precision of gains of many segments falls into blocks; None where there are no segments.

        None as well where something is integrated over: `fisher` has no blocks then.
        """
        if not (
            self.model.has_fitted_gains
            and isinstance(self._treatment, VisibilityLikelihood | VisibilityLikelihoodWithNoiseTerms)
        ):
            return None
        space = ArrowheadSpace.of(self._seen.reach)
        return space if len(space.layout.index) > 1 else None

    def fisher_by_segments(self, theta: ArrayLike) -> ArrowheadMatrix:
        """`fisher` in the blocks of `segments`, for one theta: far less work where there are many segments.

        It is W^T F W, of the states x with theta = W x, without the blocks that are 0.
        """
        fisher = self._fisher(theta)
        assert self.segments is not None, "there are no segments"
        assert isinstance(fisher, Fisher)
        return fisher.arrowhead(self.segments)

    def fisher_product(self, theta: ArrayLike, change: ArrayLike) -> Array:
        """`fisher(theta)` times a change of theta (n_param,), without the matrix."""
        return self._fisher(theta).product(self._one(change).theta)

    def log_prior(self, theta: ArrayLike) -> NumberOrArray:
        """Log of the normalised prior density, in the units of theta; -inf outside."""
        batch, is_single = self._batch(theta)
        return float(batch.log_prior[0]) if is_single else batch.log_prior

    def log_posterior(self, theta: ArrayLike) -> NumberOrArray:
        """Log-prior plus log-likelihood (not normalised); the likelihood is not asked outside the prior."""
        log_prior, log_likelihood = self.log_prior_and_likelihood(theta)
        return log_prior + log_likelihood

    def log_prior_and_likelihood(self, theta: ArrayLike) -> tuple[NumberOrArray, NumberOrArray]:
        """`log_prior` and `log_likelihood` in one call; the latter is -inf outside the prior."""
        batch, is_single = self._batch(theta)
        log_prior = batch.log_prior
        inside = np.isfinite(log_prior)
        if inside.all():
            value = self._values(batch)
        else:
            value = np.full(len(batch), -np.inf)
            if inside.any():
                value[inside] = self._values(batch.rows(np.flatnonzero(inside)))
        return (float(log_prior[0]), float(value[0])) if is_single else (log_prior, value)

    def log_posterior_and_gradient(self, theta: ArrayLike) -> tuple[NumberOrArray, Array]:
        """`log_posterior` and its derivatives, as `log_likelihood_and_gradient` has them."""
        batch, is_single = self._batch(theta)
        value, gradient = batch.log_prior.copy(), batch.log_prior_slope.copy()
        inside = np.flatnonzero(np.isfinite(value))
        if inside.size:
            log_likelihood, slope = self._value_and_gradient(batch.rows(inside))
            value[inside] += log_likelihood
            gradient[inside] += slope
        return (float(value[0]), gradient[0]) if is_single else (value, gradient)

    def prior_transform(self, unit: ArrayLike) -> Array:
        """Parameters for points of the unit cube, (n_param,) or (n_batch, n_param)."""
        vectors, is_single = self._vectors(unit)
        theta = self.model.prior_transform(vectors)
        return theta[0] if is_single else theta

    def allowed(self, theta: ArrayLike) -> NumberOrArray:
        """Whether the model's constraints hold."""
        batch, is_single = self._batch(theta)
        return batch.allowed[0].item() if is_single else batch.allowed

    def noise_factor(self, theta: ArrayLike) -> Array:
        """Noise factor of each partition, for one vector theta."""
        return np.asarray(self._one(theta).noise_factor[0])

    def noise_dof(self, theta: ArrayLike) -> Array | None:
        """Degrees of freedom of Student's t in each partition, for one theta; None for Gaussian noise."""
        dof = self._one(theta).noise_dof
        return None if dof is None else dof[0]

    def doubts(self, theta: ArrayLike) -> list[str]:
        """What makes the value doubtful, for one vector theta: an integral that is only approximate."""
        return self._treatment.remarks(self._one(theta))

    def _fisher(self, theta: ArrayLike) -> Information:
        return self._treatment.fisher(self._one(theta))

    def _of_allowed(self, batch: ThetaBatch) -> Array:
        """Log-likelihood where the constraints hold, -inf elsewhere."""
        if len(batch) and not self.model.is_constrained:
            return self._values(batch)
        value = np.full(len(batch), -np.inf)
        allowed = np.flatnonzero(batch.allowed)
        if allowed.size:
            value[allowed] = self._values(batch.rows(allowed))
        return value

    def _values(self, batch: ThetaBatch) -> Array:
        """Log-likelihood (n_batch,), whatever the constraints say."""
        return self._count.checked(batch.theta, self._treatment.log_likelihood(batch))

    def _value_and_gradient(self, batch: ThetaBatch) -> tuple[Array, Array]:
        """`_values` and their derivatives, (n_batch, n_param)."""
        value, gradient = self._treatment.log_likelihood_and_gradient(batch)
        value = self._count.checked(batch.theta, value)
        gradient[~np.isfinite(value)] = np.nan
        return value, gradient

    def _batch(self, theta: ArrayLike) -> tuple[ThetaBatch, bool]:
        """theta as a batch, and whether it is one vector."""
        vectors, is_single = self._vectors(theta)
        return ThetaBatch(self._seen.parts, vectors), is_single

    def _one(self, theta: ArrayLike) -> ThetaBatch:
        """One vector theta as a batch of one."""
        batch, is_single = self._batch(theta)
        if not is_single:
            raise InputError(f"expected one vector theta of shape ({self.n_param},), got {batch.theta.shape}")
        return batch

    def _vectors(self, theta: ArrayLike) -> tuple[Array, bool]:
        try:
            array = np.asarray(theta, dtype=np.float64)
        except (TypeError, ValueError):
            hint = ". Give its best_fit" if hasattr(theta, "best_fit") else ""
            hint = hint or (". Give its theta" if hasattr(theta, "theta") else "")
            raise InputError(
                f"theta must be real numbers, one for each parameter, got {given_text(theta)}{hint}"
            ) from None
        is_single, n_param = array.ndim == 1, self.n_param
        if array.shape[-1:] != (n_param,) or array.ndim > 2:
            raise InputError(
                f"theta must have shape ({n_param},) or (n_batch, {n_param}), got {array.shape}; "
                f"its parameters are {', '.join(self.parameter_names)}" + self._hint
            )
        return array[None] if is_single else array, is_single


class EvaluationCount:
    """How many parameter vectors were evaluated, and for how many of them ln L was not a number.

    Parameters
    ----------
    parameter_names : sequence of str
        In the order of theta, for the message.

    Attributes
    ----------
    n_call, n_nan : int
    """

    def __init__(self, parameter_names: Sequence[str]) -> None:
        self._names = parameter_names
        self.n_call = self.n_nan = 0

    def checked(self, theta: Array, value: Array) -> Array:
        """The values (n_batch,) of theta (n_batch, n_param), with -inf in place of NaN and +inf.

        Raises
        ------
        LikelihoodError
            More than a tenth of all evaluations so far, once there are 1000, were not a number.
        """
        self.n_call += len(theta)
        if np.maximum.reduce(value, initial=-np.inf) < np.inf:  # false for NaN
            return value
        usable = value < np.inf
        self.n_nan += int((~usable).sum())
        if self.n_call >= NAN_GRACE and self.n_nan > NAN_FRACTION * self.n_call:
            first = theta[np.flatnonzero(~usable)[0]].tolist()
            words = first_few(f"{name} = {x:.6g}" for name, x in zip(self._names, first, strict=True))
            raise LikelihoodError(
                f"{self.n_nan} of {self.n_call} likelihood values are NaN, the last at {words}; narrow the "
                "prior to exclude such values"
            )
        return np.where(usable, value, -np.inf)
