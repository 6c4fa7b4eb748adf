"""The likelihood: an observation and a sky model, joined once, evaluated for many parameter vectors."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.errors import InputError, LikelihoodError
from biro.images.templates import Templates
from biro.likelihood.fisher import Fisher
from biro.likelihood.noise_model import NoiseLaw
from biro.models import BoundModel, Parameter, SkyModel
from biro.observation.observation import Observation
from rime_kernels import Rime, chi2_and_gradient_together, chi2_together
from rime_kernels.arrays import Sources
from rime_kernels.check import n_byte
from rime_kernels.device import Backend
from rime_kernels.geometry import Form, Precision
from rime_kernels.physics.envelope import GaussianFrame

log = logging.getLogger(__name__)

NAN_FRACTION = 0.1
"""A run stops when more than this fraction of its evaluations is not a number ..."""
NAN_GRACE = 1000
"""... counted from this many evaluations on."""


class Likelihood:
    """Likelihood of calibrated visibilities, given a sky model.

    For each partition (field x data description), over its N unflagged complex correlations of
    weight w > 0, with a noise factor s (sigma -> s sigma),

        ln L = -chi2 / (2 s^2) - N ln(2 pi) + sum ln w - 2 N ln s,     chi2 = sum w |D - V|^2

    and the sum of these over partitions (physics: section 7); or what Student's t makes of it, where the
    model says so (`biro.likelihood.normalisation`). Data, weights, uvw and frequencies are put on the device
    once; a call sends parameters up and takes chi-squared, in float64, down.

    Parameters
    ----------
    observation : Observation
    sky : SkyModel
        Bound to the observation here: noise factors and pointing errors become parameters of its
        partitions and antennas.
    backend : "auto", "cpu" or "cuda"
        "auto" takes the GPU where one works and logs what it chose and why.
    precision : "double", "single" or "auto"
        Of the sums over sources; phases are float64 always and so is chi-squared. "auto" measures here,
        about the maximum of the posterior, what single would change, and takes it where that is below 0.05
        of ln L (`biro.likelihood.precision.choose`): `precision` and `precision_reason` say what and why.
        It happens now, not when sampling starts, because kernels, plan and digest depend on it.
    form : "auto", "factored" or "row"
        Antenna-based phases, or exact ones per row (physics: section 2). "auto" looks at how well
        each partition's uvw close, and at how far out the prior lets sources go.
    gaussian_frame : "tangent" or "uv"
        Where an elliptical Gaussian lives (physics: section 5).
    memory_limit : int or str, optional
        Bytes, or text such as "8 GB", that data and work may take on the device, or the work on the CPU;
        shared out over the partitions by the size of their data. What does not fit is streamed from
        the host's memory. No result depends on it.
    image_accuracy : float
        Rms error over rms of the visibilities of the model's images, which are worked out once.

    Raises
    ------
    InputError
        An image of the model cannot be read or used.
    BackendError
        `backend="cuda"` without a working GPU.
    ModelError
        The model cannot be bound to this observation.
    """

    def __init__(
        self,
        observation: Observation,
        sky: SkyModel,
        *,
        backend: Backend = "auto",
        precision: Precision | Literal["auto"] = "double",
        form: Form | Literal["auto"] = "auto",
        gaussian_frame: GaussianFrame = "tangent",
        memory_limit: int | str | None = None,
        image_accuracy: float = 1e-5,
    ) -> None:
        for given, reader in ((observation, "read_ms"), (sky, "read_model")):
            if isinstance(given, str | PathLike):
                raise InputError(
                    f"a likelihood takes what biro.{reader} gives, found the path {str(given)!r}"
                )
        limits = _shares(memory_limit, [part.vis.size for part in observation.partitions])
        self.observation = observation
        self.model: BoundModel = sky.bind(observation.partition_views)
        self.precision_reason = "as asked"
        if precision == "auto":
            options: dict[str, Any] = {"backend": backend, "form": form, "gaussian_frame": gaussian_frame}
            options |= {"memory_limit": memory_limit, "image_accuracy": image_accuracy}
            precision = self._chosen_precision(sky, options)
        self.precision: Precision = precision
        self.gaussian_frame = gaussian_frame
        self.memory_limit = memory_limit
        self.image_accuracy = image_accuracy
        templates = Templates(
            observation, self.model, accuracy=image_accuracy, backend=backend, memory_limit=memory_limit
        )
        self._image_digest, self._shifts = templates.digest(), templates.shifts
        self.image_outlines = templates.outlines()
        self._rimes = [
            Rime(
                part.rows,
                vis=part.vis,
                weight=part.weight,
                template=templates.of(i),
                template_lm=templates.lm(i),
                backend=backend,
                precision=precision,
                form=form,
                gaussian_frame=gaussian_frame,
                extent=max(self.model.extent(i), templates.extent(i)),
                memory_limit=limit,
            )
            for i, (part, limit) in enumerate(zip(observation.partitions, limits, strict=True))
        ]
        for part, rime in zip(observation.partitions, self._rimes, strict=True):
            log.info("%s, spw %s: %s", part.field, part.spw, rime.reason)
        self._noise = NoiseLaw(self.model, observation.partitions)
        self.n_call = 0
        self.nan_count = 0

    def __repr__(self) -> str:
        return (
            f"<Likelihood of {self.observation.source}: {self.n_vis.sum()} visibilities, "
            f"{self.n_param} parameters; {self.backend}, {self.precision} precision>"
        )

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Free parameters in the order of theta, each with name, unit and prior."""
        return self.model.parameters

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return self.model.parameter_names

    @property
    def n_param(self) -> int:
        return self.model.n_param

    @property
    def n_vis(self) -> NDArray[np.int64]:
        """Usable complex visibilities of each partition."""
        return self._noise.n_vis

    @property
    def backend(self) -> str:
        """Where it runs: "cpu" or "cuda"."""
        return self._rimes[0].backend

    @property
    def log_constraint_mass(self) -> float:
        """Log of the prior mass that constraints outside the prior transform leave."""
        return self.model.log_constraint_mass

    def chi2(self, theta: ArrayLike) -> NDArray[np.float64]:
        """Chi-squared of each partition, with weights as they are (noise factor 1), Gaussian noise or not.

        Parameters
        ----------
        theta : (n_param,) or (n_batch, n_param)
            In the units of `parameters`.

        Returns
        -------
        float64 (n_partition,) or (n_batch, n_partition)
        """
        vectors, single = self._vectors(theta)
        chi2 = self._chi2(vectors, None)
        return chi2[0] if single else chi2

    def log_likelihood(self, theta: ArrayLike) -> Any:
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
        vectors, single = self._vectors(theta)
        if self.model.is_constrained or not len(vectors):
            value = self._of_allowed(vectors)
        else:
            value = self._log_likelihood(vectors)
        return float(value[0]) if single else value

    def log_likelihood_and_gradient(self, theta: ArrayLike) -> tuple[Any, NDArray[np.float64]]:
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
        vectors, single = self._vectors(theta)
        value, gradient = np.full(len(vectors), -np.inf), np.full(vectors.shape, np.nan)
        allowed = np.flatnonzero(self.model.allowed(vectors))
        if allowed.size:
            value[allowed], gradient[allowed] = self._log_likelihood_and_gradient(vectors[allowed])
        return (float(value[0]), gradient[0]) if single else (value, gradient)

    def fisher(self, theta: ArrayLike) -> NDArray[np.float64]:
        """The Fisher information: minus the expected second derivatives of ln L (`biro.likelihood.fisher`).

        Exact. Derivatives of visibilities are multiplied by each other for some rows at a time, on the CPU
        in double precision: n_param^2 products per real number of the data.

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

    def fisher_product(self, theta: ArrayLike, change: ArrayLike) -> NDArray[np.float64]:
        """`fisher(theta)` times a change of theta (n_param,), without the matrix."""
        return self._fisher(theta).product(self._one_vector(change))

    def log_prior(self, theta: ArrayLike) -> Any:
        """Log of the normalised prior density, in the units of theta; -inf outside."""
        return self._of_model(self.model.log_prior, theta)

    def log_posterior(self, theta: ArrayLike) -> Any:
        """Log-prior plus log-likelihood (not normalised); the likelihood is not asked outside the prior."""
        vectors, single = self._vectors(theta)
        value = self.model.log_prior(vectors)
        inside = np.flatnonzero(np.isfinite(value))
        if inside.size:
            value[inside] += self.log_likelihood(vectors[inside])
        return float(value[0]) if single else value

    def log_posterior_and_gradient(self, theta: ArrayLike) -> tuple[Any, NDArray[np.float64]]:
        """`log_posterior` and its derivatives, as `log_likelihood_and_gradient` has them."""
        vectors, single = self._vectors(theta)
        value, gradient = self.model.log_prior(vectors), self.model.log_prior_slope(vectors)
        inside = np.flatnonzero(np.isfinite(value))
        if inside.size:
            found, slope = self.log_likelihood_and_gradient(vectors[inside])
            value[inside] += found
            gradient[inside] += slope
        return (float(value[0]), gradient[0]) if single else (value, gradient)

    def prior_transform(self, unit: ArrayLike) -> NDArray[np.float64]:
        """Parameters for points of the unit cube, (n_param,) or (n_batch, n_param)."""
        vectors, single = self._vectors(unit)
        theta = self.model.prior_transform(vectors)
        return theta[0] if single else theta

    def allowed(self, theta: ArrayLike) -> Any:
        """Whether the model's constraints hold."""
        return self._of_model(self.model.allowed, theta)

    def predict(self, theta: ArrayLike) -> list[NDArray[np.complexfloating]]:
        """Model visibilities (n_row, n_chan, n_corr) of each partition, for one vector theta."""
        vector = self._one_vector(theta)
        sources = self._sources(vector)
        return [rime.predict(each)[0] for rime, each in zip(self._rimes, sources, strict=True)]

    def plan(self, n_batch: int = 1) -> str:
        """How a call with so many parameter vectors is worked out, a line for each partition.

        Which kernel, how it is cut, what lies where, in how many steps; puts the data on the device.

        Raises
        ------
        InputError
            `n_batch` is below 1.
        """
        if n_batch < 1:
            raise InputError(f"n_batch must be at least 1, got {n_batch}")
        theta = self.model.prior_transform(np.full((n_batch, self.n_param), 0.5))
        each = zip(self.observation.labels, self._rimes, self._sources(theta), strict=True)
        noise = f"; {self._noise}" if self._noise.is_student else ""
        return "\n".join(f"{label}: {rime.plan(sources)}{noise}" for label, rime, sources in each)

    def noise_factor(self, theta: ArrayLike) -> NDArray[np.float64]:
        """Noise factor of each partition, for one vector theta."""
        return self.model.noise_factor(self._one_vector(theta))[0]

    def noise_dof(self, theta: ArrayLike) -> NDArray[np.float64] | None:
        """Degrees of freedom of Student's t in each partition, for one theta; None for Gaussian noise."""
        found = self.model.noise_dof(self._one_vector(theta))
        return None if found is None else found[0]

    def description(self) -> dict[str, Any]:
        """What was chosen, for the record of a run."""
        images = {"images": self._image_digest, "image_accuracy": self.image_accuracy}
        return {
            "backend": self.backend,
            "precision": self.precision,
            "precision_reason": self.precision_reason,
            "gaussian_frame": self.gaussian_frame,
            **(images if self._image_digest else {}),
            "memory_limit": self.memory_limit,
            "noise": str(self._noise),
            "form": [rime.form for rime in self._rimes],
            "reason": [rime.reason for rime in self._rimes],
            "n_vis": self.n_vis.tolist(),
            "parameters": list(self.parameter_names),
        }

    def digest(self) -> str:
        """Hash of everything that decides the value: data, model, images, precision, Gaussian frame.

        Backend, form, memory limit and the shapes of kernels change it by roundings and are left out.
        """
        parts = [self.observation.digest(), self.model.digest(), self.precision, self.gaussian_frame]
        if self._image_digest:
            parts += [self._image_digest, repr(float(self.image_accuracy))]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _chosen_precision(self, sky: SkyModel, options: dict[str, Any]) -> Precision:
        from biro.likelihood.precision import choose

        choice = choose(self.observation, sky, options)
        self.precision_reason = choice.reason
        log.info("precision %s", choice.reason)
        return choice.precision

    def _fisher(self, theta: ArrayLike) -> Fisher:
        return Fisher(self.model, self._rimes, self._shifts, self.n_vis, self._one_vector(theta))

    def _sources(self, theta: NDArray[np.float64]) -> Iterator[Sources]:
        return self._shifts.of_all(self.model.sources_of_all(theta))

    def _chi2(
        self, theta: NDArray[np.float64], scaled_dofs: list[NDArray[np.float64] | None] | None
    ) -> NDArray[np.float64]:
        # Sources of the next partition are made while the device works on the one before.
        found = chi2_together(self._rimes, self._sources(theta), scaled_dofs)
        chi2 = np.empty((len(theta), len(found)))
        for i, column in enumerate(found):
            chi2[:, i] = column
        return chi2

    def _of_allowed(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log-likelihood where the constraints hold, -inf elsewhere."""
        value = np.full(len(theta), -np.inf)
        allowed = np.flatnonzero(self.model.allowed(theta))
        if allowed.size:
            value[allowed] = self._log_likelihood(theta[allowed])
        return value

    def _log_likelihood(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        chi2 = self._chi2(theta, self._noise.scaled_dofs(theta))
        return self._counted(theta, self._noise.log_likelihood(theta, chi2))

    def _log_likelihood_and_gradient(
        self, theta: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        made: list[Sources] = []

        def kept() -> Iterator[Sources]:
            for sources in self.model.sources_of_all(theta):
                made.append(sources)
                yield sources

        scaled_dofs = self._noise.scaled_dofs(theta)
        found = chi2_and_gradient_together(self._rimes, self._shifts.of_all(kept()), scaled_dofs)
        chi2 = np.stack([each for each, _ in found], axis=1)
        value = self._counted(theta, self._noise.log_likelihood(theta, chi2))
        by_chi2, by_noise = self._noise.slopes(theta, chi2, [each.scaled_dof for _, each in found])
        by_sources = [self._shifts.pull_back(i, made[i], each) for i, (_, each) in enumerate(found)]
        gradient = self.model.pull_back(theta, by_sources, by_chi2) + by_noise
        gradient[~np.isfinite(value)] = np.nan
        return value, gradient

    def _counted(self, theta: NDArray[np.float64], value: NDArray[np.float64]) -> NDArray[np.float64]:
        """The values with what is not a number counted, and -inf."""
        usable = value < np.inf
        self.n_call += len(theta)
        if usable.all():
            return value
        self._count_bad(theta, ~usable)
        return np.where(usable, value, -np.inf)

    def _count_bad(self, theta: NDArray[np.float64], bad: NDArray[np.bool_]) -> None:
        """Count what is not a number; stop when it is more than an accident."""
        n_bad = int(bad.sum())
        self.nan_count += n_bad
        if self.n_call >= NAN_GRACE and self.nan_count > NAN_FRACTION * self.n_call:
            culprit = self._named(theta[np.flatnonzero(bad)[0]])
            words = ", ".join(f"{name} = {value:.6g}" for name, value in culprit.items())
            raise LikelihoodError(
                f"{self.nan_count} of {self.n_call} likelihood values are not a number, the last at {words}; "
                "narrow the prior that allows such parameters"
            )

    def _named(self, vector: NDArray[np.float64]) -> Mapping[str, float]:
        return dict(zip(self.parameter_names, vector.tolist(), strict=True))

    def _vectors(self, theta: ArrayLike) -> tuple[NDArray[np.float64], bool]:
        try:
            array = np.asarray(theta, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"theta must be real numbers ({error})") from None
        if array.ndim not in (1, 2) or array.shape[-1] != self.n_param:
            raise InputError(
                f"theta must have shape ({self.n_param},) or (n_batch, {self.n_param}), got {array.shape}; "
                f"its parameters are {', '.join(self.parameter_names)}"
            )
        return np.atleast_2d(array), array.ndim == 1

    def _one_vector(self, theta: ArrayLike) -> NDArray[np.float64]:
        vectors, single = self._vectors(theta)
        if not single:
            raise InputError(f"expected one vector theta of shape ({self.n_param},), got {vectors.shape}")
        return vectors

    def _of_model(self, function: Any, theta: ArrayLike) -> Any:
        vectors, single = self._vectors(theta)
        value = function(vectors)
        return value[0].item() if single else value


def _shares(memory_limit: int | str | None, sizes: list[int]) -> list[int | None]:
    """The memory of each partition, in proportion to the size of its data."""
    if memory_limit is None:
        return [None] * len(sizes)
    limit, total = n_byte("memory_limit", memory_limit), sum(sizes)
    return [max(1, limit * size // total) for size in sizes]
