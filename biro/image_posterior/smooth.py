"""The fast map: the most probable image, by cycles of a minor problem with the PSF and exact residuals.

A major cycle predicts the image by biro's gridder and grids the exact residuals, g = R^T W (d - R x0). The
minor problem minimises

    chi2(x0)/2 - <x - x0, g> + <x - x0, H (x - x0)>/2 + strength penalty

by L-BFGS-B, where H is the convolution with the PSF of twice the field, which is R^T W R but for w-terms.
Where g is exact the minimum is that of the exact chi2, however approximate H is. The cycles end when the
exact chi2 stops falling.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft2, rfft2
from scipy.optimize import minimize

from biro.display.progress import bar
from biro.image_posterior.operator import ImageOperator
from biro.image_posterior.regularisers import Regulariser, make_regulariser
from biro.models.choices import Regularisation

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
MAX_CYCLES = 12
ENOUGH = 0.1
"""Cycles end when chi2 changes by less than this many of its standard deviations, sqrt(4 N)."""
MEMORY, N_FIRST, N_ITERATION = 20, 100, 300
"""Of L-BFGS-B: steps remembered, iterations at each strength of the first cycle and of later ones."""
N_STRENGTH = 5
"""Strengths from the strongest to the weakest that the first cycle tries."""


@dataclass(frozen=True)
class FluxPrior:
    """The flux of the image is known: mean and standard deviation, Jy."""

    mean: float
    sd: float


@dataclass(frozen=True)
class SmoothMap:
    """The most probable image.

    Attributes
    ----------
    image : float64 (N, N), Jy/pixel
    chi2 : tuple of float
        Exact, after each major cycle.
    strength : float
    reached : bool
        Whether chi2 came down to what noise has.
    """

    image: Array
    chi2: tuple[float, ...]
    strength: float
    reached: bool


class _Minor:
    """The minor problem: chi2/2 near an image by its exact value and gradient there, and the PSF."""

    def __init__(self, operator: ImageOperator, noise: float, flux: FluxPrior | None) -> None:
        self._n, self._flux = operator.field.size, flux
        psf = operator.psf / noise**2
        self.transfer: Array = np.asarray(rfft2(np.fft.ifftshift(psf)).real)

    def at(self, x0: Array, half_chi2: float, gradient: Array) -> None:
        """Place the problem at an image, with chi2/2 and R^T W (d - R x0) there."""
        self._x0, self._half, self._g = x0, half_chi2, gradient

    def times(self, x: Array) -> Array:
        """H x."""
        n = self._n
        return np.asarray(irfft2(self.transfer * rfft2(x, s=(2 * n, 2 * n)), s=(2 * n, 2 * n))[:n, :n])

    def half_chi2(self, x: Array) -> tuple[float, Array]:
        """chi2/2 and its derivatives."""
        step = x - self._x0
        curved = self.times(step)
        return self._half + float((step * (0.5 * curved - self._g)).sum()), curved - self._g

    def value(self, x: Array) -> tuple[float, Array]:
        """chi2/2 and the penalty of the flux, with derivatives."""
        value, gradient = self.half_chi2(x)
        if self._flux is not None:
            pull = (float(x.sum()) - self._flux.mean) / self._flux.sd
            return value + 0.5 * pull**2, gradient + pull / self._flux.sd
        return value, gradient

    def minimise(self, regulariser: Regulariser, z: Array, strength: float, n_iteration: int) -> Array:
        """Variables of the least chi2/2 + strength penalty."""
        shape = z.shape

        def objective(flat: Array) -> tuple[float, Array]:
            at = flat.reshape(shape)
            value, gradient = self.value(regulariser.image(at))
            penalty, slope = regulariser.penalty(at)
            whole = regulariser.pull(at, gradient) + strength * slope
            return value + strength * penalty, whole.ravel()

        found = minimize(
            objective,
            z.ravel(),
            jac=True,
            method="L-BFGS-B",
            bounds=[(regulariser.low, None)] * z.size,
            options={"maxiter": n_iteration, "maxcor": MEMORY, "maxfun": 2 * n_iteration, "ftol": 1e-10},
        )
        return np.asarray(found.x).reshape(shape)


def smooth_map(
    operator: ImageOperator,
    regularisation: Regularisation | Regulariser = "starlet",
    *,
    noise: float = 1.0,
    flux: FluxPrior | None = None,
    strength: float | None = None,
    show: bool = True,
) -> SmoothMap:
    """The most probable image of the data of an operator, Stokes I.

    The strength of the penalty is the largest with which chi2 / 2N is that of the noise; it is at most
    the `strongest` and at least the `weakest` of the regulariser. Where the weakest does not reach the noise,
    because of errors of calibration or a source outside, `reached` is False.

    Parameters
    ----------
    operator : ImageOperator
    regularisation : "starlet", "entropy", "tv", or a Regulariser
    noise : float
        Factor by which the noise is larger than the weights state.
    flux : FluxPrior, optional
    strength : float, optional
        In place of the rule.
    show : bool
        Show a bar with chi2 of each cycle.
    """
    minor, n = _Minor(operator, noise, flux), operator.field.size
    n_data = sum(operator.n_data)
    target, scatter = float(n_data), float(np.sqrt(n_data))  # of chi2/2
    x, z = np.zeros((n, n)), None
    regulariser = regularisation if isinstance(regularisation, Regulariser) else None
    history: list[float] = []
    chosen = strength
    best: tuple[float, Array] | None = None
    with bar("fitting an image", "cycles", total=MAX_CYCLES, show=show) as shown:
        for cycle in range(MAX_CYCLES + 1):
            residuals = operator.residuals(operator.predict(x[None]))
            weighted = zip(operator.weights, residuals, strict=True)
            half = 0.5 * sum(float((w * np.abs(v) ** 2).sum()) for w, v in weighted) / noise**2
            if cycle:
                history.append(2.0 * half)
                shown.update(1)
                log.info("cycle %d: chi2/2N %.5g, strength %.4g", cycle, half / n_data, chosen or 0.0)
                if best is not None and half > best[0] - ENOUGH * scatter:
                    if half < best[0]:
                        best = half, x
                    break
                best = half, x
                if cycle == MAX_CYCLES:
                    break
            gradient = operator.adjoint(residuals, weighted=True)[0] / noise**2
            minor.at(x, half, gradient)
            if regulariser is None:
                assert not isinstance(regularisation, Regulariser)
                regulariser = make_regulariser(regularisation, minor.transfer, gradient)
            z = regulariser.start(gradient) if z is None else z
            if chosen is None:
                z, chosen = _by_rule(minor, regulariser, z, target)
            else:
                z = minor.minimise(regulariser, z, chosen, N_ITERATION)
            x = regulariser.image(z)
    assert best is not None
    assert chosen is not None
    reached = best[0] <= target + 3.0 * scatter + 0.02 * target
    return SmoothMap(best[1], tuple(history), float(chosen), bool(reached))


def _by_rule(minor: _Minor, regulariser: Regulariser, z: Array, target: float) -> tuple[Array, float]:
    """Variables and strength by the rule of `smooth_map`, from the strongest down."""
    strong, weak = regulariser.strongest, regulariser.weakest
    strengths = np.geomspace(strong, weak, max(N_STRENGTH, int(2.0 * np.log10(strong / weak))))
    before: tuple[Array, float, float] | None = None
    for strength in strengths:
        z = minor.minimise(regulariser, z, float(strength), N_FIRST)
        half = minor.half_chi2(regulariser.image(z))[0]
        log.debug("strength %.4g: chi2/2N %.5g", strength, half / target)
        if half <= target:
            if before is None:
                return z, float(strength)
            return _between(minor, regulariser, before, (z, float(strength), half), target)
        before = z, float(strength), half
    return z, float(strengths[-1])


def _between(
    minor: _Minor,
    regulariser: Regulariser,
    strong: tuple[Array, float, float],
    weak: tuple[Array, float, float],
    target: float,
) -> tuple[Array, float]:
    """Variables and strength where chi2/2 is the target, by interpolation between two strengths."""
    for _ in range(3):
        share = (np.log(strong[2]) - np.log(target)) / max(np.log(strong[2]) - np.log(weak[2]), 1e-12)
        strength = float(np.exp(np.log(strong[1]) + np.clip(share, 0.1, 0.9) * np.log(weak[1] / strong[1])))
        z = minor.minimise(regulariser, weak[0], strength, N_FIRST)
        half = minor.half_chi2(regulariser.image(z))[0]
        found = z, strength, half
        if abs(half - target) < 0.002 * target:
            return z, strength
        strong, weak = (found, weak) if half > target else (strong, found)
    return weak[0], weak[1]
