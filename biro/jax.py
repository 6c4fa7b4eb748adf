"""A likelihood and its model visibilities as functions of JAX, with derivatives.

They work inside `jax.jit`, `jax.vmap` (one call of biro for the whole batch), `jax.grad`, `jax.jvp`, loops
and the user's own programs, so that samplers written in JAX can use them. A compiled program calls biro on
the host: parameters go there, and numbers come back. JAX has to compute with 64 bits
(`jax.config.update("jax_enable_x64", True)`).

There are first derivatives only. They are biro's own: exact, and in reverse for about two calls of the value.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.likelihood.jacobian import Jacobian

# JAX reserves three quarters of a GPU at its start, which biro needs too.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

try:
    import jax
    import jax.numpy as jnp
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir
except ImportError as _error:
    _words = f'biro.jax needs the package jax ({_error}); pip install "biro-rime[images]"'
    raise ImportError(_words) from None

if TYPE_CHECKING:
    from biro.likelihood.likelihood import Likelihood

__all__ = ["JaxLikelihood", "likelihood", "model"]

Array = NDArray[np.float64]
JaxArray: TypeAlias = Any
"""A `jax.Array`, or what stands for one while JAX traces a function."""
Arrays = Sequence[NDArray[Any]]
_T = TypeVar("_T")
_LOCK = threading.Lock()
"""A compiled program may call from any thread, or from several."""


def likelihood(likelihood: Likelihood) -> JaxLikelihood:
    """Functions of JAX that a likelihood has: log-likelihood, log-posterior, and changes of parameters.

    Parameters
    ----------
    likelihood : Likelihood
        Of any kind: on a GPU or shared among processes, with any treatment of gains.

    Raises
    ------
    InputError
        `likelihood` is no likelihood; or JAX computes with 32 bits.

    Examples
    --------
    >>> target = biro.jax.likelihood(likelihood)                        # doctest: +SKIP
    >>> jax.jit(jax.value_and_grad(target.log_likelihood))(theta)       # doctest: +SKIP
    """
    return JaxLikelihood(likelihood)


def model(likelihood: Likelihood) -> Callable[[JaxArray], tuple[JaxArray, ...]]:
    """The model visibilities of a likelihood as a function of JAX, with exact J v and its adjoint.

    J are the derivatives of visibilities with respect to theta. J v comes with `jax.jvp` and `jax.linearize`,
    the adjoint with `jax.vjp` and `jax.linear_transpose`, so that J^T W J of a metric is exact.

    Parameters
    ----------
    likelihood : Likelihood
        One whose theta has all parameters (else its `full`), with data that this process has. With
        `gains="closures"`, visibilities are those of the sky model.

    Returns
    -------
    function
        From theta, float64 (..., n_param), to a tuple with the visibilities of each partition, complex128
        (..., n_row, n_chan, n_corr), Jy. Those without weight are 0.

    Raises
    ------
    InputError
        `likelihood` integrates over parameters, or other processes have data; or JAX computes with 32 bits.
    """
    _check(likelihood)
    products, n = Jacobian(likelihood), likelihood.n_param
    outputs = tuple((shape, np.complex128) for shape in products.shapes)
    push = HostFunction(products.push_forward, outputs)
    # JAX multiplies by J^T, without conjugates: Re(J^T c) = Re(J^H conj(c)).
    pull = HostFunction(lambda theta, *c: [products.pull_back(theta, list(map(np.conj, c)))], _numbers((n,)))
    visibilities = _linearised(HostFunction(products.visibilities, outputs), push, pull)
    return lambda theta: tuple(visibilities(_vectors(theta, likelihood)))


class JaxLikelihood:
    """A likelihood as functions of JAX: `biro.jax.likelihood` makes it.

    Each takes one vector, float64 (n_param,), or a batch of any shape (..., n_param). Outside of compiled
    programs an error of biro is raised as it is. Inside them JAX raises its own `JaxRuntimeError`, whose text
    has that of biro.

    Parameters
    ----------
    likelihood : Likelihood

    Attributes
    ----------
    likelihood : Likelihood
    """

    def __init__(self, likelihood: Likelihood) -> None:
        _check(likelihood)
        self.likelihood, bound, n = likelihood, likelihood.model, likelihood.n_param
        self._log_likelihood = _differentiable(
            likelihood.log_likelihood, likelihood.log_likelihood_and_gradient, n
        )
        self._log_posterior = _differentiable(
            likelihood.log_posterior, likelihood.log_posterior_and_gradient, n
        )
        self._log_density = _differentiable(self._density_of_y, self._density_of_y_and_gradient, n)
        self._prior_transform = _change_of_variables(bound.prior_transform_at, n)
        self._constrained = _change_of_variables(bound.unconstrained.at, n)
        self._unconstrained = HostFunction(lambda x: [bound.unconstrained.of_theta(x)], _numbers((n,)))

    def __repr__(self) -> str:
        return f"<JAX functions of {repr(self.likelihood)[1:-1]}>"

    def log_likelihood(self, theta: JaxArray) -> JaxArray:
        """Log-likelihood of theta (..., n_param), in the units of the model: float64 (...).

        It is -inf, with derivatives of NaN, where a constraint of the model forbids theta.
        """
        return self._log_likelihood(_vectors(theta, self.likelihood))

    def log_posterior(self, theta: JaxArray) -> JaxArray:
        """Log-prior plus log-likelihood of theta (..., n_param): float64 (...).

        It is -inf, with derivatives of NaN, outside the prior.
        """
        return self._log_posterior(_vectors(theta, self.likelihood))

    def log_density(self, y: JaxArray) -> JaxArray:
        """Log-posterior density of parameters without bounds, y (..., n_param): float64 (...).

            ln p(y) = ln p(theta(y)) + ln |d theta / d y|,

        with theta(y) from `constrained`. It is finite for all real y, unless the model has constraints that
        the change of variables does not build in.
        """
        return self._log_density(_vectors(y, self.likelihood))

    def constrained(self, y: JaxArray) -> JaxArray:
        """Parameters theta (..., n_param) of parameters without bounds, y (..., n_param).

        A periodic parameter may lie outside the range of its prior by whole periods.
        """
        return self._constrained(_vectors(y, self.likelihood))

    def unconstrained(self, theta: JaxArray) -> JaxArray:
        """Parameters without bounds, y (..., n_param), of theta (..., n_param); it has no derivatives.

        A parameter at a limit of its prior is moved by a tiny part of its scale into the allowed range.
        """
        return call_host(self._unconstrained, _vectors(theta, self.likelihood))[0]

    def prior_transform(self, unit: JaxArray) -> JaxArray:
        """Parameters theta (..., n_param) of points of the unit cube (..., n_param).

        Points spread evenly over the cube give theta spread as the prior, without the constraints that
        `log_likelihood` looks at. With the distribution function of a normal distribution before it, theta
        depends on numbers with standard normal priors, as nifty wants them.
        """
        return self._prior_transform(_vectors(unit, self.likelihood))

    def _density_of_y(self, y: Array) -> Array:
        change = self.likelihood.model.unconstrained.at(y)
        value = self.likelihood.log_posterior(self._within(change.theta))
        return np.asarray(value + change.log_jacobian())

    def _density_of_y_and_gradient(self, y: Array) -> tuple[Array, Array]:
        change = self.likelihood.model.unconstrained.at(y)
        value, slope = self.likelihood.log_posterior_and_gradient(self._within(change.theta))
        return value + change.log_jacobian(), change.pull_back(slope) + change.log_jacobian_slope()

    def _within(self, theta: Array) -> Array:
        """Parameters that roundings moved beyond a limit of their prior are moved back to it."""
        return np.asarray(np.clip(theta, *self.likelihood.model.box))


class _TransformAt(Protocol):
    """A change of variables at some points, (n, n_param)."""

    theta: Array

    def push_forward(self, change: Array) -> Array: ...

    def pull_back(self, slopes: Array) -> Array: ...


class HostFunction:
    """A function of biro for batches of arrays, as programs of JAX call it.

    Parameters
    ----------
    function : callable
        From arrays with n entries each, the first of them float64 (n, n_param), to several such arrays.
    outputs : sequence of (tuple of int, type)
        Shape and type of one entry of each of these.

    Attributes
    ----------
    transposed : HostFunction or None
        Of a function that is linear in all arguments but the first: its transpose in these.
    """

    def __init__(
        self, function: Callable[..., Arrays], outputs: Sequence[tuple[tuple[int, ...], type]]
    ) -> None:
        self._function, self._outputs = function, outputs
        self.transposed: HostFunction | None = None

    def avals(self, first: JaxArray, *_: JaxArray) -> list[Any]:
        """What JAX knows of the results before they are there."""
        return [jax.core.ShapedArray((*first.shape[:-1], *shape), np.dtype(t)) for shape, t in self._outputs]

    def __call__(self, *arrays: NDArray[Any]) -> list[NDArray[Any]]:
        """The results for arrays with any number of axes of batches before those of one entry.

        The arrays may be memory of JAX, which it uses again after the call.
        """
        batch = arrays[0].shape[:-1]
        n, k = int(np.prod(batch)), len(batch)
        flat = [np.array(array).reshape((n, *array.shape[k:])) for array in arrays]
        if n:
            with _LOCK:
                results = self._function(*flat)
        else:
            results = [np.zeros((0, *shape)) for shape, _ in self._outputs]
        shaped = zip(results, self._outputs, strict=True)
        return [np.asarray(result, t).reshape((*batch, *shape)) for result, (shape, t) in shaped]


_primitive = Primitive("biro")
_primitive.multiple_results = True


def call_host(function: HostFunction, *args: JaxArray) -> list[JaxArray]:
    found: list[JaxArray] = _primitive.bind(*args, function=function)
    return found


def _compute(*args: JaxArray, function: HostFunction) -> list[JaxArray]:
    """Outside of compiled programs."""
    return [jnp.asarray(result) for result in function(*map(np.asarray, args))]


def _lower(ctx: Any, *args: Any, function: HostFunction) -> Any:
    """Inside a compiled program, on the CPU or a GPU.

    `jax.pure_callback` would put the arguments on a device of the CPU first: that takes 30 us, and has
    blocked programs for ever (JAX issue 24255). Here they come as arrays of NumPy.
    """
    lowered = mlir.emit_python_callback(
        ctx, function, None, list(args), ctx.avals_in, ctx.avals_out, has_side_effect=False
    )
    return lowered[0]


def _in_batch(
    args: Sequence[JaxArray], axes: Sequence[int | None], *, function: HostFunction
) -> tuple[list[JaxArray], list[int]]:
    size = next(arg.shape[axis] for arg, axis in zip(args, axes, strict=True) if axis is not None)
    moved = [
        jnp.broadcast_to(arg, (size, *arg.shape)) if axis is None else jnp.moveaxis(arg, axis, 0)
        for arg, axis in zip(args, axes, strict=True)
    ]
    results = call_host(function, *moved)
    return results, [0] * len(results)


def _tangent(
    args: Sequence[JaxArray], changes: Sequence[JaxArray], *, function: HostFunction
) -> tuple[list[JaxArray], list[JaxArray]]:
    """Only what is linear has a derivative here: those of other functions stand beside them."""
    if type(changes[0]) is not ad.Zero or function.transposed is None:
        raise InputError(
            "biro.jax has first derivatives of log_likelihood, log_posterior, log_density, constrained, "
            "prior_transform and model, and no second ones; likelihood.fisher(theta) has the expected ones"
        )
    moved = [ad.instantiate_zeros(change) for change in changes[1:]]
    return call_host(function, *args), call_host(function, args[0], *moved)


def _transpose(slopes: Sequence[JaxArray], *args: JaxArray, function: HostFunction) -> list[JaxArray | None]:
    assert function.transposed is not None, "JAX transposes what is linear"
    return [None, *call_host(function.transposed, args[0], *map(ad.instantiate_zeros, slopes))]


_primitive.def_impl(_compute)
_primitive.def_abstract_eval(lambda *args, function: function.avals(*args))
mlir.register_lowering(_primitive, _lower)
batching.primitive_batchers[_primitive] = _in_batch
ad.primitive_jvps[_primitive] = _tangent
ad.primitive_transposes[_primitive] = _transpose


def _numbers(*shapes: tuple[int, ...]) -> tuple[tuple[tuple[int, ...], type], ...]:
    return tuple((shape, np.float64) for shape in shapes)


def _differentiable(
    value: Callable[[Array], Array], both: Callable[[Array], tuple[Array, Array]], n: int
) -> Callable[[JaxArray], JaxArray]:
    """A function with one number for each vector; where it is differentiated, it is one call of `both`."""
    alone = HostFunction(lambda x: [value(x)], _numbers(()))
    with_gradient = HostFunction(both, _numbers((), (n,)))

    def jvp(at: tuple[JaxArray], changes: tuple[JaxArray]) -> tuple[JaxArray, JaxArray]:
        found, gradient = call_host(with_gradient, *at)
        return found, (gradient * changes[0]).sum(axis=-1)

    return _with_jvp(lambda x: call_host(alone, x)[0], jvp)


def _linearised(
    function: HostFunction, push: HostFunction, pull: HostFunction
) -> Callable[[JaxArray], list[JaxArray]]:
    """A function with its derivative `push`, linear in the second argument, and the transpose of that."""
    push.transposed, pull.transposed = pull, push

    def jvp(at: tuple[JaxArray], changes: tuple[JaxArray]) -> tuple[list[JaxArray], list[JaxArray]]:
        return call_host(function, *at), call_host(push, *at, *changes)

    return _with_jvp(partial(call_host, function), jvp)


def _with_jvp(
    function: Callable[[JaxArray], _T], jvp: Callable[..., tuple[_T, _T]]
) -> Callable[[JaxArray], _T]:
    """The function, with its value and their change by `jvp` where JAX differentiates it."""
    found = jax.custom_jvp(function)
    found.defjvp(jvp)
    return cast("Callable[[JaxArray], _T]", found)


def _change_of_variables(at: Callable[[Array], _TransformAt], n: int) -> Callable[[JaxArray], JaxArray]:
    """The change to theta that `at` has at some points, with derivatives."""
    outputs = _numbers((n,))
    function = _linearised(
        HostFunction(lambda x: [at(x).theta], outputs),
        HostFunction(lambda x, change: [at(x).push_forward(change)], outputs),
        HostFunction(lambda x, slopes: [at(x).pull_back(slopes)], outputs),
    )
    return lambda x: function(x)[0]


def _vectors(theta: JaxArray, of: Likelihood) -> JaxArray:
    """theta as float64 (..., n_param)."""
    _check_bits()
    vectors = jnp.asarray(theta)
    if vectors.ndim == 0 or vectors.shape[-1] != of.n_param or jnp.iscomplexobj(vectors):
        n = of.n_param
        raise InputError(
            f"theta must be real numbers of shape ({n},) or (..., {n}), got {vectors.dtype} "
            f"{vectors.shape}; its parameters are {', '.join(of.parameter_names)}"
        )
    return vectors.astype(np.float64)


def _check(likelihood: Likelihood) -> None:
    _check_bits()
    if not hasattr(likelihood, "log_likelihood_and_gradient"):
        raise InputError(f"biro.jax needs a biro.Likelihood, got {type(likelihood).__name__}")


def _check_bits() -> None:
    if jax.dtypes.canonicalize_dtype(np.float64) != np.float64:
        raise InputError(
            "biro.jax needs numbers of 64 bits, and JAX is set to 32; call "
            'jax.config.update("jax_enable_x64", True) first'
        )
