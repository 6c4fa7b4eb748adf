"""Large data: the likelihood of an image by convolution with the PSF, corrected by exact residuals.

    chi2(I) = chi2(I_0) - 2 (I - I_0)^T r + (I - I_0)^T D (I - I_0),    r = R^T W (d - R I_0)

D is the convolution with the PSF of twice the field, which is R^T W R as far as w-terms do not change the PSF
across the field; its spectrum is taken as it is, negative values included. A major cycle makes r exact at
I_0, so that the maximum is exact whatever D is, and D decides the errors (Roth et al. 2024, arXiv:2406.09144,
where the spectrum is clipped). Noise of samples is the exact R^T W^(1/2) of white noise.

All of this but major cycles and noise runs on the device of JAX. The gridder works on the host or on a GPU
beside it: once for each major cycle, and once for each pair of samples of the whole run.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import nifty.re as jft
import numpy as np
from jax import ShapeDtypeStruct
from jax.tree_util import Partial
from numpy.typing import NDArray

from biro.image_posterior.operator import ImageOperator
from biro.image_posterior.sampling.jax_operator import UsedData
from biro.image_posterior.sampling.models.visibility_model import Sections
from biro.image_posterior.sampling.sky_priors import SkyPrior
from biro.jax import HostFunction, call_host

Array = NDArray[np.float64]
Calibration: TypeAlias = Callable[[Array], tuple[ImageOperator, int]]
LARGE = 200_000
"""Complex samples from which on images are fitted so."""


def convolved(kernel: Any, image: Any) -> Any:
    """D I, (N, N), for the transform of the PSF of twice the field, (2N, N + 1)."""
    n = image.shape[-1]
    return _field_of(kernel * _modes(image), n)


def transform_of_psf(operator: ImageOperator) -> Any:
    """The transform of the PSF of twice the field, float64 (2N, N + 1), 1/Jy^2.

    Its imaginary part, which only w-terms make, has no place in a metric.
    """
    return jnp.asarray(np.fft.rfft2(np.fft.ifftshift(operator.psf)).real)


def _modes(image: Any) -> Any:
    n = image.shape[-1]
    return jnp.fft.rfft2(jnp.pad(image, ((0, n), (0, n))))


def _field_of(modes: Any, n: int) -> Any:
    return jnp.fft.irfft2(modes, s=(2 * n, 2 * n))[:n, :n]


def _root(kernel: Any) -> Any:
    """|K|^(1/2) in units in which I^T D I is the sum of squares of modes, where K is not negative."""
    n = kernel.shape[0] // 2
    # Modes of the half-plane count twice but for those on its borders.
    twice = jnp.full(n + 1, 2.0).at[jnp.array([0, n])].set(1.0)
    return jnp.sqrt(jnp.abs(kernel) * twice) / (2 * n)


class ConvolvedGaussian(jft.Likelihood):  # type: ignore[misc]
    """-ln L of an image, 1/2 I^T D I - j^T I + constant, with the metric D.

    The space of the data that nifty sees has two parts. Modes m = |K|^(1/2) F I are what images become, for
    K the transform of the PSF; the way back, F^T sign(K) |K|^(1/2) m, makes D of both together, negative
    values of K included. A seed, 0 for images, stands for white noise of the data: where it is not 0, the way
    back is the exact R^T W^(1/2) of noise drawn with it, whatever the modes are. So the space of the data has
    the size of the image, however many data there are.

    Parameters
    ----------
    kernel : float64 (2N, N + 1)
        K.
    dirty : float64 (N, N)
        j = r + D I_0.
    constant : float
    noise : function of a float64
        R^T W^(1/2) of white noise drawn with this seed, (N, N).
    """

    kernel: Any = dataclasses.field(metadata={"static": False})
    dirty: Any = dataclasses.field(metadata={"static": False})
    constant: Any = dataclasses.field(metadata={"static": False})
    noise: Any = dataclasses.field(metadata={"static": False})

    def __init__(self, kernel: Any, dirty: Any, constant: Any, noise: Callable[[Any], Any]) -> None:
        self.kernel, self.dirty, self.constant, self.noise = kernel, dirty, constant, Partial(noise)
        super().__init__(
            domain=ShapeDtypeStruct(dirty.shape, jnp.float64),
            lsm_tangents_shape=(
                ShapeDtypeStruct((), jnp.float64),
                ShapeDtypeStruct((2, *kernel.shape), jnp.float64),
            ),
        )

    def energy(self, primals: Any) -> Any:
        """-ln L of an image, less the constant of the noise."""
        half = 0.5 * jnp.vdot(primals, convolved(self.kernel, primals))
        return half - jnp.vdot(self.dirty, primals) + self.constant

    def metric(self, primals: Any, tangents: Any) -> Any:
        """D of a change of the image."""
        return convolved(self.kernel, tangents)

    def transformation(self, primals: Any) -> Any:
        """No seed, and the modes of an image: coordinates in which the metric is constant."""
        modes = _root(self.kernel) * _modes(primals)
        return jnp.zeros(()), jnp.stack([modes.real, modes.imag])

    def right_sqrt_metric(self, primals: Any, tangents: Any) -> Any:
        """The modes of a change of the image."""
        return self.transformation(tangents)

    def left_sqrt_metric(self, primals: Any, tangents: Any) -> Any:
        """The image of modes, or that of white noise of the data where there is a seed."""
        seed, (real, imag) = tangents
        safe = jnp.where(self.kernel == 0.0, 1.0, _root(self.kernel))
        found = _field_of(self.kernel / safe * (real + 1j * imag), primals.shape[-1])
        return jax.lax.cond(seed == 0.0, lambda _: found, self.noise, seed)

    def normalized_residual(self, primals: Any) -> Any:
        """One number whose square is chi2."""
        return jnp.sqrt(jnp.maximum(2.0 * self.energy(primals), 0.0))[None]


class ConvolvedModel:
    """An image of large data, as `variational.sample` takes it.

    Parameters
    ----------
    operator : ImageOperator
        R, the data and their weights, with the noise as it is.
    prior : SkyPrior
    calibrate : function of an image (N, N), optional
        The operator with data that have the gains of this image taken out, and the number of gains: they are
        solved for in each major cycle, and taken as known in between.

    Attributes
    ----------
    n, n_data : int
        Numbers of the state, and complex samples.
    n_gain : int
        Real numbers of gains that the last major cycle solved for.
    chi2 : float
        Exact, of the image of the last major cycle.
    """

    gains = noise = components = None
    is_convolved = True

    def __init__(
        self, operator: ImageOperator, prior: SkyPrior, calibrate: Calibration | None = None
    ) -> None:
        self.prior, self.n, self.calibrate, self.n_gain = prior, prior.n, calibrate, 0
        self.is_hyper = prior.is_hyper
        self.watched: list[NDArray[Any]] = [np.flatnonzero(prior.is_hyper)]
        self.at = Sections(slice(0, self.n), slice(0, 0), slice(0, 0))
        self._take(operator)
        # One function for all major cycles: with another one JAX would compile anew.
        self._noise = noise_function(lambda: self.operator)
        size = operator.field.size
        self.expand_about(np.zeros((size, size)))

    def _take(self, operator: ImageOperator) -> None:
        """Fit the data of an operator, with their weights."""
        self.operator = operator
        self.used = UsedData(operator.weights)
        self.n_data = self.used.n
        self._kernel = transform_of_psf(operator)

    def image(self, xi: Any) -> Any:
        """Brightness (N, N), Jy/pixel."""
        return self.prior.image(xi[self.at.sky])

    def major_cycle(self, xi: Array) -> None:
        """Solve for gains if asked, and make the residual exact at the image of a state."""
        image = np.asarray(self.image(jnp.asarray(xi)))
        if self.calibrate is not None:
            operator, self.n_gain = self.calibrate(image)
            self._take(operator)
        self.expand_about(image)

    def expand_about(self, image: Array) -> None:
        """Make the residual exact at an image, float64 (N, N)."""
        model = self.operator.predict(image[None])
        self.chi2 = sum(self.operator.chi2(model))
        residual = self.operator.adjoint(self.operator.residuals(model), weighted=True)[0]
        smoothed = np.asarray(convolved(self._kernel, jnp.asarray(image)))
        self._dirty = jnp.asarray(residual + smoothed)
        # The energy at this image is chi2 / 2.
        at_image = 0.5 * float((image * smoothed).sum()) - float((self._dirty * image).sum())
        self._constant = jnp.asarray(0.5 * self.chi2 - at_image)

    def seconds_of_convolution(self) -> float:
        """The time that D I takes, for a plan."""
        image, call = self._dirty, jax.jit(convolved)
        call(self._kernel, image).block_until_ready()  # compiled
        began = time.monotonic()
        call(self._kernel, image).block_until_ready()
        return time.monotonic() - began

    def visibilities(self, xi: Any) -> Any:
        """Modes of the image, whose square is I^T D I but for negative values of K, which count as 0."""
        modes = _modes(self.image(xi)) * jnp.where(self._kernel > 0.0, _root(self._kernel), 0.0)
        return jnp.stack([modes.real, modes.imag])

    def likelihood(self) -> Any:
        """The likelihood of nifty about the last major cycle."""
        made = ConvolvedGaussian(self._kernel, self._dirty, self._constant, self._noise)
        return made.amend(self.image, domain=ShapeDtypeStruct((self.n,), jnp.float64))


def noise_function(current: Callable[[], ImageOperator]) -> Callable[[Any], Any]:
    """R^T W^(1/2) of white noise as a function of JAX of a seed, a float64: an image (N, N) in 1/Jy.

    Images are kept as long as weights are the same: samples are drawn with the same seeds in each iteration.
    The host draws the noise, which may be larger than the memory of a GPU.

    Parameters
    ----------
    current : function
        Gives the operator, whose weights change with gains that are taken out.
    """
    size = current().field.size
    kept: dict[int, Array] = {}
    of = current()

    def of_seed(seed: np.float64) -> Array:
        nonlocal of
        if of is not current():
            pairs = zip(of.weights, current().weights, strict=True)
            if not all(np.array_equal(*pair) for pair in pairs):
                kept.clear()
            of = current()
        bits = int(seed.view(np.uint64))
        if bits not in kept:
            rng = np.random.default_rng(bits)
            drawn = [_white(rng, weight) for weight in of.weights]
            kept[bits] = np.asarray(of.adjoint(drawn)[0])
        return kept[bits]

    def of_seeds(seeds: Array) -> list[Array]:
        return [np.stack([of_seed(seed) for seed in seeds[:, 0]])]

    host = HostFunction(of_seeds, [((size, size), np.float64)])
    return lambda seed: call_host(host, seed[..., None])[0]


def _white(rng: np.random.Generator, weight: Array) -> NDArray[np.complex128]:
    """Noise of unit variance of each real and imaginary part, divided by sigma."""
    found = np.empty(weight.shape, np.complex128)
    parts = found.view(np.float64).reshape(*weight.shape, 2)
    rng.standard_normal(out=parts)
    parts *= np.sqrt(weight)[..., None]
    return found
