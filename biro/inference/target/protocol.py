"""The types of what is climbed and what is sampled: the part of a likelihood that each of them uses.

`biro.Likelihood` has all of it. A likelihood of one's own needs only what is asked of it: it is a
`SampledLikelihood` for emcee and dynesty, a `DifferentiableLikelihood` for the maximum and NUTS, and a
`RecordedLikelihood` for `biro.sample`, which writes down what was sampled. It may be a `JointLikelihood`,
which computes prior and likelihood of a batch in one call.

Where nothing else is said, theta is a batch of parameter vectors, float64 (n_batch, n_param), in the units
of `parameters`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError

if TYPE_CHECKING:
    from biro.inference.block_arrowhead.matrix import ArrowheadMatrix
    from biro.inference.block_arrowhead.space import ArrowheadSpace
    from biro.models.bound.prior.unconstrained import Unconstrained
    from biro.models.quantities.parameter import Parameter
    from rime_kernels.choices import Precision

Array = NDArray[np.float64]
Watch = Callable[[float], None]
"""Called with the highest value so far, after each batch; what it raises ends a search."""


class ConstrainedModel(Protocol):
    """What nested sampling asks of a model whose constraints cut into its prior."""

    @property
    def log_constraint_mass_error(self) -> float:
        """Standard error of `SampledLikelihood.log_constraint_mass`."""


class DifferentiableModel(ConstrainedModel, Protocol):
    """What the climb to a maximum, and NUTS, ask of a model about its prior."""

    @property
    def box(self) -> tuple[Array, Array]:
        """Lower and upper ends of the priors, float64 (n_param,) each; infinite where there is none."""

    @property
    def unconstrained(self) -> Unconstrained:
        """The change to parameters that may be any real number."""

    @property
    def noise_parameters(self) -> Mapping[int, tuple[NDArray[np.bool_], float]]:
        """Index of each noise factor in theta -> its partitions, bool (n_partition,), and factor per unit."""

    def prior_transform(self, unit: Array) -> Array:
        """Parameters of points of the unit cube, float64 (n_batch, n_param)."""

    def wrap(self, theta: Array) -> Array:
        """theta, one vector or a batch, with periodic parameters moved into the range of their priors."""


class RecordedModel(ConstrainedModel, Protocol):
    """What the record of a run asks of a model."""

    def digest(self) -> str:
        """sha256 of the model."""

    def to_toml(self) -> str:
        """The model as text."""


class LabelledData(Protocol):
    """Data with a label for each partition."""

    @property
    def labels(self) -> Sequence[str]:
        """One for each partition."""


class RecordedData(Protocol):
    """Data with a digest."""

    def digest(self) -> str:
        """sha256 of the data."""


class SampledLikelihood(Protocol):
    """What every sampler asks of a likelihood."""

    @property
    def parameters(self) -> Sequence[Parameter]:
        """Free parameters in the order of theta."""

    @property
    def log_constraint_mass(self) -> float:
        """Log of the prior mass that is left by constraints outside the prior transform."""

    @property
    def model(self) -> ConstrainedModel:
        """The model, with its prior."""

    def log_likelihood(self, theta: Array) -> Array:
        """float64 (n_batch,); -inf where theta is impossible."""

    def log_prior(self, theta: Array) -> Array:
        """Log of the normalised prior density, float64 (n_batch,); -inf outside the prior."""

    def prior_transform(self, unit: Array) -> Array:
        """Parameters of points of the unit cube, float64 (n_batch, n_param)."""

    def allowed(self, theta: Array) -> NDArray[np.bool_]:
        """Whether the constraints hold, bool (n_batch,)."""


class JointLikelihood(SampledLikelihood, Protocol):
    """A likelihood that computes prior and likelihood of a batch in one call, both checked."""

    def log_prior_and_likelihood(self, theta: Array) -> tuple[Array, Array]:
        """`log_prior` and `log_likelihood`, float64 (n_batch,) each; both are -inf outside the prior."""


class DifferentiableLikelihood(SampledLikelihood, Protocol):
    """What the climb to the maximum of a posterior, and NUTS, ask of a likelihood."""

    @property
    def model(self) -> DifferentiableModel:
        """The model, with its prior."""

    @property
    def observation(self) -> LabelledData:
        """The data."""

    @property
    def n_param(self) -> int:
        """How many parameters are free."""

    @property
    def parameter_names(self) -> Sequence[str]:
        """In the order of theta."""

    @property
    def precision(self) -> Precision:
        """Smallest difference of values of ln L that means something."""

    @property
    def n_vis(self) -> NDArray[np.int64]:
        """Usable complex visibilities of each partition, int64 (n_partition,)."""

    def log_posterior(self, theta: Array) -> Array:
        """Log-prior plus log-likelihood, float64 (n_batch,)."""

    def log_posterior_and_gradient(self, theta: Array) -> tuple[Array, Array]:
        """`log_posterior` and its derivatives, float64 (n_batch, n_param), NaN where it is -inf."""

    def chi2(self, theta: Array) -> Array:
        """Chi-squared of each partition, float64 (n_partition,) of one theta or (n_batch, n_partition)."""

    def noise_factor(self, theta: Array) -> Array:
        """Noise factor of each partition, float64 (n_partition,), of one theta (n_param,)."""


class SegmentedModel(DifferentiableModel, Protocol):
    """What precisions by segments ask of a model."""

    def log_prior_slope(self, theta: Array) -> Array:
        """Derivatives of the log prior density, float64 (n_batch, n_param); NaN outside."""


class StartPoints(NamedTuple):
    """Points from which a climb to the maximum begins.

    Attributes
    ----------
    theta : float64 (n_start, n_param)
    searched : bool
        Whether the likelihood itself looked for them in the whole prior.
    missed_mass : float or None
        Estimated part of the posterior in modes that this search has not found; None where it is not known.
    """

    theta: Array
    searched: bool = False
    missed_mass: float | None = None


class StartingLikelihood(DifferentiableLikelihood, Protocol):
    """A likelihood that knows where its maximum may be."""

    def start_points(self, seed: int) -> StartPoints:
        """Points near the maximum; none where there is no way to find them."""


class BiasedMaximum(DifferentiableLikelihood, Protocol):
    """A likelihood that knows what the maximum of its posterior is biased in."""

    def doubts_of_maximum(self) -> Sequence[str]:
        """What the maximum is biased in, though samples are not: a line each."""


class GainTreatingLikelihood(SampledLikelihood, Protocol):
    """A likelihood that treats gains in one of several ways."""

    @property
    def gains(self) -> str:
        """How: "sample", "closures", "marginalise" or "solve"."""


class GainSolvingLikelihood(DifferentiableLikelihood, Protocol):
    """A likelihood that finds the gains among its parameters, given all others."""

    def with_best_gains(self, theta: Array) -> Array:
        """Vectors theta (n_batch, n_param) with the gains that are best beside all else."""


class SegmentedLikelihood(DifferentiableLikelihood, Protocol):
    """A likelihood with parameters of many segments of time, whose precision falls into blocks."""

    @property
    def model(self) -> SegmentedModel:
        """The model, with its prior."""

    @property
    def segments(self) -> ArrowheadSpace | None:
        """The states in which the precision falls into blocks; None where there are no segments."""

    def fisher_by_segments(self, theta: Array) -> ArrowheadMatrix:
        """The Fisher information in these states, of one theta (n_param,)."""


class FisherLikelihood(DifferentiableLikelihood, Protocol):
    """A likelihood with its Fisher information."""

    @property
    def model(self) -> SegmentedModel:
        """The model, with its prior."""

    def fisher(self, theta: Array) -> Array:
        """Minus the expected second derivatives of ln L, float64 (n_param, n_param), of one theta."""


class RecordedLikelihood(SampledLikelihood, Protocol):
    """What `biro.sample` asks of a likelihood for the record of a run."""

    @property
    def model(self) -> RecordedModel:
        """The model, with its prior."""

    @property
    def observation(self) -> RecordedData:
        """The data."""

    def digest(self) -> str:
        """Hash of everything that decides the value of the likelihood."""

    def description(self) -> Mapping[str, object]:
        """What was chosen (precision, backend, ...), as plain values for JSON."""


class InnerDraws(NamedTuple):
    """Draws of parameters that a likelihood integrates over, each given a vector of the others.

    Attributes
    ----------
    theta : float64 (n, n_full)
        Vectors of all parameters.
    log_likelihood : float64 (n,)
        Of these.
    is_inner : bool (n_full,)
        The parameters that were drawn.
    centre, sd : float64 (n, n_inner)
        Means and sigmas of the distributions that they were drawn from.
    """

    theta: Array
    log_likelihood: Array
    is_inner: NDArray[np.bool_]
    centre: Array
    sd: Array


class IntegratingLikelihood(SampledLikelihood, Protocol):
    """A likelihood that integrates over some parameters, which theta then does not have."""

    @property
    def marginalised(self) -> Sequence[str]:
        """The names of these parameters."""

    @property
    def full(self) -> RecordedLikelihood:
        """The likelihood that has all parameters."""

    def inner_draws(self, theta: Array, rng: np.random.Generator) -> InnerDraws:
        """A draw of these parameters for each theta."""

    def doubts(self, theta: Array) -> Sequence[str]:
        """What makes the integral doubtful, for one theta (n_param,)."""

    def completed(self, theta: Array) -> Array:
        """Vectors of all parameters, with the most probable values of these, float64 (n_batch, n_full)."""


def n_data_of(likelihood: DifferentiableLikelihood) -> NDArray[np.int64]:
    """Real numbers that chi-squared of each partition is a sum over, int64 (n_partition,).

    Two for each visibility, where a likelihood does not say otherwise (`n_data`), as that of closures does.
    """
    n_data: NDArray[np.int64] = getattr(likelihood, "n_data", 2 * likelihood.n_vis)
    return n_data


def starts_offered_by(likelihood: DifferentiableLikelihood, seed: int) -> StartPoints:
    """The points that a likelihood offers to begin at; none of most."""
    if not hasattr(likelihood, "start_points"):
        return StartPoints(np.empty((0, likelihood.n_param)))
    return cast("StartingLikelihood", likelihood).start_points(seed)


def doubts_of_maximum(likelihood: DifferentiableLikelihood) -> Sequence[str]:
    """What the maximum of a posterior is biased in, as far as its likelihood knows."""
    if not hasattr(likelihood, "doubts_of_maximum"):
        return ()
    return cast("BiasedMaximum", likelihood).doubts_of_maximum()


def treatment_of_gains(likelihood: SampledLikelihood) -> str:
    """How a likelihood treats gains; "sample" where it does not say."""
    return cast("GainTreatingLikelihood", likelihood).gains if hasattr(likelihood, "gains") else "sample"


def solves_gains(likelihood: SampledLikelihood) -> TypeGuard[GainSolvingLikelihood]:
    """Whether a likelihood finds the gains among its parameters."""
    return bool(getattr(likelihood, "solves_gains", False))


def integrates(likelihood: SampledLikelihood) -> TypeGuard[IntegratingLikelihood]:
    """Whether a likelihood integrates over parameters of the model."""
    return bool(getattr(likelihood, "marginalised", ()))


def full_of(likelihood: RecordedLikelihood) -> RecordedLikelihood:
    """The likelihood that has all parameters: itself where it integrates over none."""
    return likelihood.full if integrates(likelihood) else likelihood


def gives_both(likelihood: SampledLikelihood) -> TypeGuard[JointLikelihood]:
    """Whether a likelihood computes prior and likelihood in one call."""
    return hasattr(likelihood, "log_prior_and_likelihood")


def has_gradient(likelihood: SampledLikelihood) -> TypeGuard[DifferentiableLikelihood]:
    """Whether a likelihood has the derivatives that the climb to a maximum, and NUTS, need."""
    return hasattr(likelihood, "log_posterior_and_gradient")


def segmented(likelihood: SampledLikelihood) -> SegmentedLikelihood | None:
    """The likelihood itself, if it has parameters in segments."""
    found = cast("SegmentedLikelihood", likelihood)
    return found if getattr(likelihood, "segments", None) is not None else None


def informed(likelihood: DifferentiableLikelihood) -> FisherLikelihood | None:
    """The likelihood itself, if it has its Fisher information and the slopes of its prior."""
    found = cast("FisherLikelihood", likelihood)
    return found if hasattr(likelihood, "fisher") and hasattr(likelihood.model, "log_prior_slope") else None


def differentiable(likelihood: SampledLikelihood, wanted_by: str) -> DifferentiableLikelihood:
    """The likelihood itself, if it has derivatives.

    Parameters
    ----------
    likelihood : SampledLikelihood
    wanted_by : str
        Who asks, for the message.

    Raises
    ------
    InputError
        It has none.
    """
    if not has_gradient(likelihood):
        raise InputError(f"{wanted_by} needs a likelihood with log_posterior_and_gradient")
    return likelihood
