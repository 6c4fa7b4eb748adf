"""Quantities of a source that are fractions of Stokes I."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Fraction:
    """Stokes parameters that follow from I and quantities x of a source.

    Attributes
    ----------
    keys : tuple of str
        The quantities, which are given together.
    bounds : dict of str to (float, float)
        Values that a quantity must lie between, whatever its prior.
    stokes : tuple of str
        The Stokes parameters that follow.
    of : function
        From I and each x, float64 arrays that broadcast, to each Stokes parameter.
    slopes : function
        From the same arrays to the derivatives of each Stokes parameter with respect to I and each x.
    """

    keys: tuple[str, ...]
    bounds: dict[str, tuple[float, float]]
    stokes: tuple[str, ...]
    of: Callable[..., tuple[Array, ...]]
    slopes: Callable[..., tuple[tuple[Array | float, ...], ...]]


def _linear(i: Array, p: Array, chi: Array) -> tuple[Array, ...]:
    """Q = p I cos(2 chi), U = p I sin(2 chi)."""
    return p * i * np.cos(2 * chi), p * i * np.sin(2 * chi)


def _linear_slopes(i: Array, p: Array, chi: Array) -> tuple[tuple[Array, ...], ...]:
    cos, sin = np.cos(2 * chi), np.sin(2 * chi)
    return (p * cos, i * cos, -2 * p * i * sin), (p * sin, i * sin, 2 * p * i * cos)


def _circular(i: Array, v: Array) -> tuple[Array, ...]:
    """V = v I."""
    return (v * i,)


def _circular_slopes(i: Array, v: Array) -> tuple[tuple[Array, ...], ...]:
    return ((v, i),)


FRACTIONS = (
    # A negative fraction is a positive one at an angle 90 deg away: every posterior would be there twice.
    Fraction(
        ("pol_fraction", "pol_angle"), {"pol_fraction": (0.0, 1.0)}, ("Q", "U"), _linear, _linear_slopes
    ),
    Fraction(("v_fraction",), {"v_fraction": (-1.0, 1.0)}, ("V",), _circular, _circular_slopes),
)
