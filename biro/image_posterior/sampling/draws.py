"""What the samplers of an image have in common: the posterior that they take, settings, and draws."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError

if TYPE_CHECKING:
    from biro.image_posterior.sampling.elbo import Elbo

Array = NDArray[np.float64]
Method = Literal["map", "mgvi", "geovi", "hmc"]


class Posterior(Protocol):
    """What is sampled: a likelihood of standard normal numbers."""

    n: int
    n_data: int
    is_hyper: NDArray[np.bool_]
    """Which numbers describe the prior of others. MAP holds them, as their maximum is far from the mass."""
    watched: list[NDArray[Any]]
    """Places of groups of numbers that may creep while visibilities stay: hyperparameters, gains, noise."""

    def likelihood(self) -> Any:
        """A likelihood of nifty of one array (n,); its normalised residuals squared add up to chi2."""

    def visibilities(self, xi: Any) -> Any:
        """The model of the data in units of the noise, any shape: what tells whether the mean has moved."""


@dataclass(frozen=True)
class Settings:
    """How the posterior is approximated.

    Attributes
    ----------
    method : "geovi", "mgvi", "map" or "hmc"
        The last is for `chains.sample_chains`.
    n_samples : int
        Samples of the result, even: pairs.
    n_iterations : int
        At most so many moves of the mean. It ends when visibilities move by less than 0.4 of the spread of
        samples twice, and hyperparameters, gains and noise by less than 0.3 of theirs over three iterations.
    seed : int
    n_pairs : int
        Pairs of samples while the mean moves, the same random numbers in each iteration.
    n_steps : int
        Steps of each chain at most, of "hmc".
    elbo : bool
        Whether to compute the lower bound of the evidence.
    """

    method: Method = "geovi"
    n_samples: int = 16
    n_steps: int = 3200
    n_iterations: int = 24
    seed: int = 1
    n_pairs: int = 12
    elbo: bool = False

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise InputError(f'method: "hmc", "geovi", "mgvi" or "map", found {self.method!r}')
        for name in ("n_samples", "n_iterations", "n_pairs", "n_steps"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name}: an integer from 1 on, found {value!r}")
        if self.elbo not in (False, True):
            raise InputError(f"elbo: 1 or 0, found {self.elbo!r}")
        if self.method == "hmc" and self.n_samples < 2:
            raise InputError("n_samples: errors need at least 2 samples, found 1")
        if self.elbo and self.n_samples < 4:
            raise InputError(f"elbo: its error needs n_samples = 4 at least, found {self.n_samples}")
        if self.method in ("mgvi", "geovi") and self.n_samples % 2:
            raise InputError(
                f"n_samples: variational samples are pairs; give an even number, found {self.n_samples}"
            )


@dataclass
class Iteration:
    """One move of the mean.

    Attributes
    ----------
    number : int
    energy : float
        -ln of likelihood times prior at the mean, averaged over the samples, less a constant.
    reduced_chi2 : float
        chi2/2N, averaged over the samples.
    moved : float
        Rms move of the mean in the space of the data, in units of the samples' sd.
    crept : float
        Largest rms move of hyperparameters, gains or noise over three iterations, in units of their sd;
        infinite until there are so many, 0 where there are none of these numbers.
    seconds : float
    """

    number: int
    energy: float
    reduced_chi2: float
    moved: float
    crept: float
    seconds: float

    def __str__(self) -> str:
        crept = f", hyperparameters by {self.crept:.2g} sd in three" if 0.0 < self.crept < np.inf else ""
        return (
            f"iteration {self.number}: chi2/2N {self.reduced_chi2:.4g}, energy {self.energy:.6g}, "
            f"mean moved by {self.moved:.2g} sd{crept}, {self.seconds:.1f} s"
        )


@dataclass
class Draws:
    """What came out.

    Attributes
    ----------
    mean : float64 (n,)
    samples : float64 (n_samples, n)
        Empty for MAP.
    iterations : list of Iteration
    converged : bool
    n_unfinished : int
        Samples whose conjugate gradients did not end; bent ones that did not end, and were left out.
    elbo : Elbo or None
        Where it was asked for.
    """

    mean: Array
    samples: Array
    iterations: list[Iteration] = field(default_factory=list)
    converged: bool = False
    n_unfinished: int = 0
    elbo: Elbo | None = None
