"""Visibilities of images as a linear function in JAX, with its transpose, by biro's gridders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jaxbind
import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.image_posterior.operator import ImageOperator

Array = NDArray[np.float64]
Vis = NDArray[np.complexfloating]


class UsedData:
    """The complex samples that count, of all partitions in a row.

    Parameters
    ----------
    weights : sequence of float64 (n_row, n_chan, n_corr), 1/Jy^2
        Of each partition; samples of weight 0 are left out.

    Attributes
    ----------
    places : list of bool (n_row, n_chan, n_corr)
    n : int
        Number of complex samples.
    """

    def __init__(self, weights: Sequence[Array]) -> None:
        self.places = [np.asarray(weight) > 0.0 for weight in weights]
        self._ends = np.cumsum([int(place.sum()) for place in self.places])
        self.n = int(self._ends[-1])

    def taken(self, values: Sequence[ArrayLike]) -> NDArray[Any]:
        """What counts of arrays (n_row, n_chan, n_corr) of all partitions, (n,)."""
        pairs = zip(values, self.places, strict=True)
        return np.concatenate([np.broadcast_to(value, place.shape)[place] for value, place in pairs])

    def put(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """Arrays of the partitions that have these values, (n,), where samples count, and 0 elsewhere."""
        found = []
        for place, own in zip(self.places, np.split(values, self._ends[:-1]), strict=True):
            full = np.zeros(place.shape, values.dtype)
            full[place] = own
            found.append(full)
        return found

    def parts(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """The values (n,) of each partition."""
        return np.split(values, self._ends[:-1])


def real_parts(vis: NDArray[Any]) -> Array:
    """Real and imaginary parts as the two rows of one array, float64 (2, n)."""
    return np.stack([vis.real, vis.imag]).astype(np.float64)


def visibility_function(
    operator: ImageOperator, used: UsedData, n_stokes: int | None = None
) -> Callable[[Any], Any]:
    """R as a function of JAX: an image (N, N) in Jy/pixel to real and imaginary parts (2, n), in Jy.

    Images are (n_plane, N, N) where the operator has planes: frequencies or frames. With `n_stokes` they are
    (n_stokes, N, N) or (n_plane, n_stokes, N, N).

    It works under jit, vmap, grad and jvp. A batch is one call, within which the gridder runs image by image.
    Real and imaginary parts are apart, so that the transpose is the adjoint of the real inner product.

    Parameters
    ----------
    operator : ImageOperator
    used : UsedData
    n_stokes : 1, 3 or 4, optional

    Returns
    -------
    function
    """
    size = (operator.field.size, operator.field.size)
    planes = (*operator.plane_axis, n_stokes or 1, *size)
    shape = (*operator.plane_axis, *size) if n_stokes is None else planes

    def predict(image: Array) -> Array:
        return real_parts(used.taken(operator.predict(image.reshape(planes))))

    def adjoint(parts: Array) -> Array:
        vis = used.put(parts[0] + 1j * parts[1])
        return operator.adjoint(vis, n_stokes=n_stokes or 1).reshape(shape)

    call = jaxbind.get_linear_call(
        _batched(predict, len(shape)),
        _batched(adjoint, 2),
        _shape_rule((2, used.n)),
        _shape_rule(shape),
        func_can_batch=True,
    )
    return lambda image: call(image)[0]


def _batched(function: Callable[[Array], Array], n_axis: int) -> Callable[..., None]:
    """A function of one array as jaxbind calls it, with any number of axes of a batch in front."""

    def run(out: Sequence[Array], arguments: Sequence[Array], _: Any) -> None:
        (given,), (into,) = arguments, out
        batch = given.shape[: given.ndim - n_axis]
        for place in np.ndindex(*batch):
            one = np.ascontiguousarray(given[place])
            # A step of a search may overflow: NaN makes it shorter, where an error would end the run.
            into[place] = function(one) if np.isfinite(one).all() else np.nan

    return run


def _shape_rule(shape: tuple[int, ...]) -> Callable[..., Any]:
    """The shape of a result, of one array or a batch, as jaxbind asks for it.

    Axes of a batch lie in front, for vmap moves them there.
    """

    def rule(*arguments: Any, batch_axes: Any = None) -> Any:
        axes = () if not batch_axes else tuple(batch_axes[0])
        if sorted(axes) != list(range(len(axes))):
            raise NotImplementedError(f"a batch of images has its axes in front, got {axes}")
        out = arguments[0].shape[: len(axes)] + shape
        return ((out, np.dtype(np.float64), axes[-1] if axes else None),)

    return rule
